//! Hive's text format, `STORED AS TEXTFILE`: a row per line, delimited fields, a marker for NULL, and no
//! quotes.
//!
//! A line may have fewer fields than columns, which are NULL then, or more, which are ignored. An empty field
//! is NULL except for texts. Compression follows the file extension (`.gz`, `.bz2`, `.xz`, `.zst`), and one
//! output partition reads a whole file. Output is uncompressed.
//!
//! Memory bound: the rows of a batch, of 16 MiB or one line.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::catalog::Session;
use datafusion::common::Result;
use datafusion::datasource::file_format::write::BatchSerializer;
use datafusion::datasource::physical_plan::FileSource;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};

mod source;

use crate::formats::format_adapter::{Files, FilesFactory, FilesSource, OwnFormat};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// Hive's text format.
pub type DelimitedFormat = Files<Layout>;
/// Factory of [`DelimitedFormat`].
pub type DelimitedFormatFactory = FilesFactory<Layout>;
/// A scan of text files.
pub type DelimitedSource = FilesSource<Layout>;

/// Extension of file names.
pub(crate) const EXTENSION: &str = "txt";

/// Field delimiters and escapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    pub delimiter: u8,
    /// Precedes special bytes of a value.
    pub escape: Option<u8>,
    /// The marker of NULL.
    pub null: String,
}

impl Default for Layout {
    fn default() -> Self {
        Self { delimiter: 1, escape: None, null: "\\N".to_string() }
    }
}

impl OwnFormat for Layout {
    const NAME: &'static str = "TEXTFILE";
    const EXTENSION: &'static str = EXTENSION;

    fn set(&mut self, name: &str, value: &str) -> Result<bool> {
        match name {
            "delimiter" => self.delimiter = byte(value)?,
            "escape" => self.escape = Some(byte(value)?),
            "null_value" => self.null = value.to_string(),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Errors: the special bytes are ambiguous (22023).
    fn check(&self) -> Result<()> {
        let is_end = |byte: u8| matches!(byte, b'\n' | b'\r');
        let wrong = is_end(self.delimiter)
            || self.escape.is_some_and(|escape| is_end(escape) || escape == self.delimiter)
            || self.null.bytes().any(|byte| is_end(byte) || byte == self.delimiter);
        match wrong {
            true => Err(SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                "the delimiter, the escape character, NULL and line ends must be distinct",
            )
            .into_datafusion()),
            false => Ok(()),
        }
    }

    fn infer_schema<'a>(
        &'a self,
        _: &'a dyn Session,
        _: &'a Arc<dyn ObjectStore>,
        _: &'a [ObjectMeta],
    ) -> BoxFuture<'a, Result<SchemaRef>> {
        let message = "text files do not tell their columns";
        ready(Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion())).boxed()
    }

    fn source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        Arc::new(DelimitedSource::new(table_schema, self.clone()))
    }
}

/// Parses one byte: literal, as its number, or as `\t`, `\001` or `\u0001`.
///
/// Errors: it is not a byte (22023).
fn byte(text: &str) -> Result<u8> {
    let coded = || match text.strip_prefix('\\')? {
        "t" => Some(b'\t'),
        "\\" => Some(b'\\'),
        digits if digits.len() == 3 => u8::from_str_radix(digits, 8).ok(),
        digits => u8::from_str_radix(digits.strip_prefix('u')?, 16).ok(),
    };
    let found = text.parse().ok().or_else(|| match text.as_bytes() {
        [byte] => Some(*byte),
        _ => coded(),
    });
    found.filter(u8::is_ascii).ok_or_else(|| {
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("\"{text}\" is not a single byte"))
            .with_hint("a character, or \\001, or its number")
            .into_datafusion()
    })
}

/// Errors: a column's type is not supported (0A000).
pub fn check(schema: &Schema) -> Result<()> {
    let has_text = |kind: &DataType| {
        !kind.is_nested() && !kind.is_binary() && !matches!(kind, DataType::FixedSizeBinary(_))
    };
    match schema.fields().iter().find(|field| !has_text(field.data_type())) {
        Some(field) => {
            let message = format!(
                "column \"{}\" of type {} is not kept in text files",
                field.name(),
                field.data_type()
            );
            Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion())
        }
        None => Ok(()),
    }
}

/// Serializes rows as lines.
pub(crate) struct Lines(pub Layout);

impl BatchSerializer for Lines {
    /// Errors: a value is ambiguous without an escape (22000).
    fn serialize(&self, batch: RecordBatch, _: bool) -> Result<Bytes> {
        let options = FormatOptions::new()
            .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
            .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f%:z"))
            .with_time_format(Some("%H:%M:%S%.f"));
        let columns = batch
            .columns()
            .iter()
            .map(|column| Ok((column.logical_nulls(), ArrayFormatter::try_new(column.as_ref(), &options)?)));
        let columns = columns.collect::<Result<Vec<_>, ArrowError>>()?;
        let schema = batch.schema();
        let mut text = Vec::with_capacity(batch.num_rows() * batch.num_columns() * 8);
        let mut value = String::new();
        for row in 0..batch.num_rows() {
            for (at, (nulls, formatter)) in columns.iter().enumerate() {
                if at > 0 {
                    text.push(self.0.delimiter);
                }
                if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                    text.extend_from_slice(self.0.null.as_bytes());
                    continue;
                }
                value.clear();
                formatter.value(row).write(&mut value)?;
                self.put(&value, schema.field(at).name(), &mut text)?;
            }
            text.push(b'\n');
        }
        Ok(text.into())
    }
}

impl Lines {
    /// Appends a value of a column.
    fn put(&self, value: &str, column: &str, text: &mut Vec<u8>) -> Result<()> {
        let Layout { delimiter, escape, null } = &self.0;
        let refused = |what: &str, hint: &'static str| {
            let message =
                format!("a value of column \"{column}\" has {what}, and would be misread in a text file");
            SqlError::new(SqlState::DATA_EXCEPTION, message).with_hint(hint).into_datafusion()
        };
        const ESCAPED: &str = "ROW FORMAT DELIMITED FIELDS TERMINATED BY … ESCAPED BY …";
        if value.bytes().any(|byte| matches!(byte, b'\n' | b'\r')) {
            return Err(refused("a line end in it", "other formats keep every text"));
        }
        match escape {
            None if value.as_bytes().contains(delimiter) => {
                return Err(refused("the delimiter in it", ESCAPED));
            }
            None if value == null => return Err(refused("the text of NULL", ESCAPED)),
            None => text.extend_from_slice(value.as_bytes()),
            Some(_) if value.is_empty() && null.is_empty() => {
                return Err(refused("the text of NULL", "NULL DEFINED AS another text"));
            }
            Some(escape) => {
                let begin = text.len();
                for byte in value.bytes() {
                    if byte == *delimiter || byte == *escape {
                        text.push(*escape);
                    }
                    text.push(byte);
                }
                if text[begin..] == *null.as_bytes() {
                    text.insert(begin, *escape);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ArrayRef, Int32Array, StringArray};

    use super::*;

    fn serialize_texts(texts: Vec<Option<&str>>, layout: &Layout) -> Result<String> {
        let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..texts.len() as i32));
        let texts: ArrayRef = Arc::new(StringArray::from(texts));
        let batch = RecordBatch::try_from_iter([("n", numbers), ("t", texts)])?;
        let text = Lines(layout.clone()).serialize(batch, true)?;
        Ok(String::from_utf8(text.to_vec()).unwrap())
    }

    #[test]
    fn lines_are_written() {
        let plain = Layout::default();
        assert_eq!(
            serialize_texts(vec![Some("a b"), None, Some("")], &plain).unwrap(),
            "0\u{1}a b\n1\u{1}\\N\n2\u{1}\n"
        );
        for text in ["x\u{1}y", "\\N", "a\nb", "a\rb"] {
            let error = serialize_texts(vec![Some(text)], &plain).unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error), SqlState::DATA_EXCEPTION, "{text:?}");
        }
        let escaped = Layout { delimiter: b',', escape: Some(b'\\'), null: "NULL".to_string() };
        let texts = vec![Some("a,b"), Some("\\"), Some("NULL"), None];
        assert_eq!(serialize_texts(texts, &escaped).unwrap(), "0,a\\,b\n1,\\\\\n2,\\NULL\n3,NULL\n");
    }

    #[test]
    fn bytes_are_named() {
        for (text, expected) in
            [(",", Some(b',')), ("\\t", Some(9)), ("\\001", Some(1)), ("\\u0001", Some(1)), ("9", Some(9))]
        {
            assert_eq!(byte(text).ok(), expected, "{text}");
        }
        for text in ["", "ab", "\\x", "é", "200"] {
            assert!(byte(text).is_err(), "{text}");
        }
    }
}
