//! Record layouts of JSON files: one per line, objects over several lines, or elements of one array.
//!
//! Files of lines can be split anywhere; the others are read from the beginning.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::arrow::json::reader::infer_json_schema_from_iterator;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use futures::StreamExt;
use futures::stream::BoxStream;
use serde_json::Value;

use super::{RECORD_BYTES_MAX, too_long};
use crate::formats::compression;
use harrier_error::{SqlError, SqlState};
use harrier_functions::json::floats::NUMBERS_AS_TEXT;
use harrier_sqlstate::IntoDataFusionError;

/// Bytes examined to detect the layout: without the end of a record or line in them, records are lines.
const FIRST_BYTES: u64 = 1 << 16;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Byte order marks of UTF-16.
const OTHER_MARKS: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];

/// Whether each record of a file is a line.
pub(super) async fn is_lines(store: &Arc<dyn ObjectStore>, file: &ObjectMeta) -> Result<bool> {
    let end = file.size.min(FIRST_BYTES);
    if end == 0 {
        return Ok(true);
    }
    let bytes = store.get_range(&file.location, 0..end).await?;
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&bytes);
    Ok(begins_with_line(bytes))
}

/// Whether the first line is a complete record.
fn begins_with_line(bytes: &[u8]) -> bool {
    let mut nesting = Nesting::default();
    for byte in bytes.iter().skip_while(|byte| byte.is_ascii_whitespace()) {
        match byte {
            b'[' if nesting.depth == 0 => return false,
            b'\n' => return nesting.depth == 0,
            _ => nesting.follow(*byte),
        }
        if nesting.depth == 0 && !nesting.in_text {
            return true;
        }
    }
    true
}

/// The nesting depth at a position in a file.
#[derive(Debug, Default)]
struct Nesting {
    depth: usize,
    in_text: bool,
    /// The next byte of a string is escaped.
    escaped: bool,
}

impl Nesting {
    fn follow(&mut self, byte: u8) {
        if self.in_text {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_text = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => self.in_text = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}

/// The bytes of a file as concatenated records.
pub(super) struct Records {
    input: BoxStream<'static, Result<Bytes>>,
    name: String,
    is_started: bool,
    array: Option<Array>,
}

impl Records {
    pub(super) fn new(input: BoxStream<'static, Result<Bytes>>, name: String) -> Self {
        Self { input, name, is_started: false, array: None }
    }

    /// Starts at the beginning of a line, in a file of line records.
    pub(super) fn within(input: BoxStream<'static, Result<Bytes>>, name: String) -> Self {
        Self { is_started: true, ..Self::new(input, name) }
    }

    /// Returns the next bytes; `None` at the end.
    ///
    /// Errors: those of the input; the file is UTF-16 (22021), or an invalid array (22P02).
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>> {
        let piece = match self.is_started {
            false => {
                self.is_started = true;
                self.begin().await?
            }
            true => self.input.next().await.transpose()?,
        };
        let Some(array) = &mut self.array else { return Ok(piece) };
        match piece {
            Some(piece) => match array.unwrap(&piece) {
                Ok(records) => Ok(Some(records)),
                Err(why) => Err(self.invalid(why)),
            },
            None if array.place == Place::Behind => Ok(None),
            None => Err(self.invalid("the array does not end")),
        }
    }

    /// Detects the layout from the first bytes.
    async fn begin(&mut self) -> Result<Option<Bytes>> {
        let mut present = BytesMut::new();
        loop {
            let piece = self.input.next().await.transpose()?;
            let ended = piece.is_none();
            present.extend_from_slice(&piece.unwrap_or_default());
            if !ended && present.len() < BYTE_ORDER_MARK.len() {
                continue;
            }
            if OTHER_MARKS.iter().any(|mark| present.starts_with(mark)) {
                let message = format!("file \"{}\" is UTF-16, not UTF-8 data", self.name);
                return Err(SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message).into_datafusion());
            }
            let mark = if present.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
            match present[mark..].iter().find(|byte| !byte.is_ascii_whitespace()) {
                None if !ended => continue,
                Some(b'[') => self.array = Some(Array::default()),
                _ => {}
            }
            let present = present.split_off(mark).freeze();
            return Ok((!present.is_empty()).then_some(present));
        }
    }

    fn invalid(&self, why: &str) -> DataFusionError {
        let message = format!("file \"{}\" is not valid JSON", self.name);
        SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message).with_detail(why).into_datafusion()
    }
}

/// The state of an array of objects being read.
#[derive(Debug, Default)]
struct Array {
    place: Place,
    nesting: Nesting,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    #[default]
    Before,
    /// Expects an object, or the end.
    Start,
    /// Expects an object.
    Comma,
    Within,
    /// Expects a comma, or the end.
    Element,
    Behind,
}

impl Array {
    /// Extracts the objects; bytes between them become spaces.
    fn unwrap(&mut self, bytes: &[u8]) -> Result<Bytes, &'static str> {
        let mut records = BytesMut::from(bytes);
        for byte in records.iter_mut() {
            if self.place == Place::Within {
                self.nesting.follow(*byte);
                if self.nesting.depth == 0 {
                    self.place = Place::Element;
                }
                continue;
            }
            if byte.is_ascii_whitespace() {
                continue;
            }
            self.place = match (self.place, *byte) {
                (Place::Before, b'[') => Place::Start,
                (Place::Start | Place::Comma, b'{') => {
                    self.nesting.follow(*byte);
                    self.place = Place::Within;
                    continue;
                }
                (Place::Start | Place::Element, b']') => Place::Behind,
                (Place::Element, b',') => Place::Comma,
                (Place::Start | Place::Comma, _) => return Err("an element of the array is no object"),
                (Place::Behind, _) => return Err("there is more behind the array"),
                _ => return Err("no comma is between two elements of the array"),
            };
            *byte = b' ';
        }
        Ok(records.freeze())
    }
}

/// Infers the columns of the first `records_max` records of all files.
pub(super) async fn infer(
    store: &Arc<dyn ObjectStore>,
    files: &[ObjectMeta],
    compression: FileCompressionType,
    records_max: usize,
) -> Result<SchemaRef> {
    let mut left = records_max;
    let mut known = Vec::new();
    for file in files {
        if left == 0 {
            break;
        }
        let name = file.location.filename().unwrap_or_default().to_string();
        let input = compression::pieces(store.get(&file.location).await?);
        let input = compression::decompress(input, compression, &name);
        let values = first(Records::new(input, name.clone()), left).await?;
        left -= values.len();
        known.extend(values);
    }
    Ok(Arc::new(schema_of(&known)?))
}

/// The columns of records. The texts that stand for numbers, such as "NaN", are numbers in a column that has
/// others as well.
fn schema_of(records: &[Value]) -> Result<Schema> {
    let inferred = |records: &[Value]| infer_json_schema_from_iterator(records.iter().map(Ok));
    let as_text = inferred(records)?;
    if !records.iter().any(has_number_as_text) {
        return Ok(as_text);
    }
    let change = |put: &Option<Value>| {
        let changed = records.iter().filter_map(|record| with_numbers(record, put)).collect::<Vec<_>>();
        inferred(&changed)
    };
    let as_numbers = change(&Some(Value::from(0.5)))?;
    let without = change(&None)?;
    let fields = as_text.fields().iter().map(|field| {
        let other = as_numbers.fields().find(field.name()).map(|(_, field)| field);
        let is_known = without
            .fields()
            .find(field.name())
            .is_some_and(|(_, field)| !matches!(field.data_type(), DataType::Null));
        Arc::clone(other.filter(|_| is_known).unwrap_or(field))
    });
    Ok(Schema::new(fields.collect::<Vec<_>>()))
}

fn is_number_as_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| NUMBERS_AS_TEXT.contains(&text))
}

fn has_number_as_text(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_number_as_text),
        Value::Object(fields) => fields.values().any(has_number_as_text),
        value => is_number_as_text(value),
    }
}

/// The value with `put` in place of texts that stand for numbers; without these, if it is `None`.
fn with_numbers(value: &Value, put: &Option<Value>) -> Option<Value> {
    Some(match value {
        Value::Array(items) => {
            Value::Array(items.iter().filter_map(|item| with_numbers(item, put)).collect())
        }
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), with_numbers(value, put)?)))
                .collect(),
        ),
        value if is_number_as_text(value) => return put.clone(),
        value => value.clone(),
    })
}

/// Parses the first `count` records of a file.
async fn first(mut records: Records, count: usize) -> Result<Vec<Value>> {
    let (mut present, mut tried) = (BytesMut::new(), 0);
    loop {
        let piece = records.next().await?;
        let ended = piece.is_none();
        present.extend_from_slice(&piece.unwrap_or_default());
        // Parsing restarts every time, so double the buffer.
        if !ended && present.len() < tried * 2 {
            continue;
        }
        tried = present.len();
        let mut values = Vec::new();
        let mut is_cut = false;
        for value in serde_json::Deserializer::from_slice(&present).into_iter::<Value>().take(count) {
            match value {
                Ok(value) => values.push(without_nulls(value)),
                Err(error) if error.is_eof() && !ended => {
                    is_cut = true;
                    break;
                }
                Err(_) if std::str::from_utf8(&present).is_err_and(|error| error.error_len().is_some()) => {
                    let message = format!("file \"{}\" is not valid UTF-8 data", records.name);
                    return Err(
                        SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message).into_datafusion()
                    );
                }
                Err(error) => return Err(records.invalid(&error.to_string())),
            }
        }
        let is_enough = present.len() > RECORD_BYTES_MAX && !values.is_empty();
        if ended || is_enough || (values.len() == count && !is_cut) {
            return Ok(values);
        }
        if present.len() > RECORD_BYTES_MAX {
            return Err(too_long(&records.name));
        }
    }
}

/// Removes NULL from lists, so that their element types come from other elements, also of other records.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Array(items) => {
            let kept = items.into_iter().filter(|item| !item.is_null());
            Value::Array(kept.map(without_nulls).collect())
        }
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(name, value)| (name, without_nulls(value))).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(text: &str, piece_bytes: usize) -> Records {
        let pieces = text.as_bytes().chunks(piece_bytes).map(|piece| Ok(Bytes::copy_from_slice(piece)));
        Records::new(futures::stream::iter(pieces.collect::<Vec<_>>()).boxed(), "f".to_string())
    }

    #[test]
    fn a_first_line_is_a_record_or_not() {
        for (text, expected) in [
            ("{\"a\":1}\n{\"a\":2}\n", true),
            ("\n\n {\"a\":[1,{}]}\n{\"a\":2}\n", true),
            ("{\"a\":\"{\\\"\"}\n", true),
            ("{\n\"a\":1}\n", false),
            ("{\"a\":\"}\"\n}", false),
            ("[{\"a\":1}]\n", false),
            (" [\n{\"a\":1}]\n", false),
            ("{\"a\":1", true),
            ("", true),
        ] {
            assert_eq!(begins_with_line(text.as_bytes()), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn elements_of_an_array_are_records() {
        let expected = |text: &str| serde_json::from_str::<Vec<Value>>(text).unwrap();
        for text in [
            "[]",
            " [ { } ] \n",
            "[{\"a\":1},{\"a\":\"],[{\\\"\"}]",
            "[\n  {\n    \"a\": [1, {\"b\": 2}]\n  },\n  {}\n]\n",
        ] {
            for piece_bytes in [1, 3, 100] {
                let found = first(records(text, piece_bytes), 100).await.unwrap();
                assert_eq!(found, expected(text), "{text}");
                let marked = format!("\u{feff}{text}");
                let found = first(records(&marked, piece_bytes), 100).await.unwrap();
                assert_eq!(found, expected(text), "{text} with a mark");
            }
        }
        for text in ["[", "[{\"a\":1}", "[{},]", "[{}{}]", "[1]", "[[{}]]", "[{}]{}", "[{}] []", "[,{}]"] {
            let error = first(records(text, 2), 100).await.unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error), SqlState::INVALID_TEXT_REPRESENTATION, "{text}");
        }
    }

    #[test]
    fn numbers_may_be_texts() {
        let list = |kind| DataType::new_list(kind, true);
        for (text, expected) in [
            ("{\"a\":1}\n{\"a\":\"NaN\"}", DataType::Float64),
            ("{\"a\":\"Infinity\"}\n{\"a\":1.5}", DataType::Float64),
            ("{\"a\":\"NaN\"}\n{\"a\":null}", DataType::Utf8),
            ("{\"a\":\"NaN\"}\n{\"a\":\"x\"}", DataType::Utf8),
            ("{\"a\":\"nan\"}\n{\"a\":1}", DataType::Utf8),
            ("{\"a\":[\"-Infinity\",1]}", list(DataType::Float64)),
            ("{\"a\":[1]}\n{\"a\":[\"NaN\"]}", list(DataType::Float64)),
        ] {
            let records = serde_json::Deserializer::from_str(text).into_iter::<Value>();
            let records = records.collect::<Result<Vec<_>, _>>().unwrap();
            assert_eq!(schema_of(&records).unwrap().field(0).data_type(), &expected, "{text}");
        }
    }

    #[tokio::test]
    async fn inference_samples_the_first_records() {
        let found = first(records("{\"a\":1}\n{\"a\":[null,2]}\nno JSON", 4), 2).await.unwrap();
        assert_eq!(serde_json::to_string(&found).unwrap(), "[{\"a\":1},{\"a\":[2]}]");
        let error = first(records("{\"a\":1}\n{\"a\"", 4), 2).await.unwrap_err();
        assert_eq!(harrier_sqlstate::of(&error), SqlState::INVALID_TEXT_REPRESENTATION);
    }
}
