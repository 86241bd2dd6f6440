//! Scan of Hive's text files.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::{
    Array, ArrayRef, RecordBatch, RecordBatchOptions, StringArray, StringBuilder,
};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{Field, SchemaRef};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileOpenFuture, FileOpener};
use datafusion::object_store::{ObjectStore, ObjectStoreExt};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};

use super::Layout;
use crate::formats::compression;
use crate::formats::format_adapter::OwnScan;
use harrier_error::{SqlError, SqlState};
use harrier_functions::parse::float;
use harrier_sqlstate::IntoDataFusionError;

/// Target bytes of the texts of a batch.
const BATCH_BYTES: usize = 16 << 20;
/// The longest valid line.
const LINE_BYTES_MAX: usize = 256 << 20;

impl OwnScan for Layout {
    const NAME: &'static str = "textfile";
    /// The start of a line cannot be found from the middle of a file.
    const CUTS_FILES: bool = false;

    fn opener(
        &self,
        store: Arc<dyn ObjectStore>,
        file_schema: &SchemaRef,
        columns: &[usize],
        batch_rows: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        let schema = Arc::new(file_schema.project(columns)?);
        let (layout, columns) = (self.clone(), columns.to_vec());
        Ok(Arc::new(DelimitedOpener { store, layout, batch_rows, schema, columns }))
    }
}

struct DelimitedOpener {
    store: Arc<dyn ObjectStore>,
    layout: Layout,
    batch_rows: usize,
    /// The projected columns, and their indexes in a line.
    schema: SchemaRef,
    columns: Vec<usize>,
}

impl FileOpener for DelimitedOpener {
    fn open(&self, file: PartitionedFile) -> Result<FileOpenFuture> {
        let store = Arc::clone(&self.store);
        let (layout, batch_rows) = (self.layout.clone(), self.batch_rows);
        let (schema, columns) = (Arc::clone(&self.schema), self.columns.clone());
        Ok(async move {
            let location = file.object_meta.location;
            let name = location.filename().unwrap_or_default().to_string();
            let input = compression::pieces(store.get(&location).await?);
            let input = compression::decompress(input, compression::of_name(&name), &name);
            let reading = LineReader {
                input,
                layout,
                batch_rows,
                schema,
                columns,
                name,
                rest: Vec::new(),
                begin: 0,
                searched: 0,
                ended: false,
                line: 0,
            };
            let batches = futures::stream::try_unfold(reading, |mut reading| async move {
                Ok(reading.next().await?.map(|batch| (batch, reading)))
            });
            Ok(batches.boxed())
        }
        .boxed())
    }
}

/// A scan of one file.
struct LineReader {
    input: BoxStream<'static, Result<Bytes>>,
    layout: Layout,
    batch_rows: usize,
    schema: SchemaRef,
    columns: Vec<usize>,
    /// For errors.
    name: String,
    /// Received bytes; unconsumed from `begin` on, and without a line end up to `searched`.
    rest: Vec<u8>,
    begin: usize,
    searched: usize,
    ended: bool,
    /// Lines consumed so far.
    line: u64,
}

impl LineReader {
    /// Returns the next rows; `None` at the end.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let mut builders: Vec<StringBuilder> = self.columns.iter().map(|_| StringBuilder::new()).collect();
        let first = self.line + 1;
        let (mut rows, mut bytes) = (0, 0);
        let mut line = Vec::new();
        while rows < self.batch_rows && bytes < BATCH_BYTES && self.next_line(&mut line).await? {
            self.append_fields(&line, &mut builders)?;
            rows += 1;
            bytes += line.len();
        }
        if rows == 0 {
            return Ok(None);
        }
        let texts = builders.iter_mut().map(StringBuilder::finish);
        let columns =
            texts.zip(self.schema.fields()).map(|(texts, field)| self.parse_column(&texts, field, first));
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(Some(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?))
    }

    /// Consumes the next line, without its end; `false` if there is none.
    async fn next_line(&mut self, line: &mut Vec<u8>) -> Result<bool> {
        line.clear();
        let end = loop {
            if let Some(end) = self.rest[self.searched..].iter().position(|byte| *byte == b'\n') {
                break self.searched + end;
            }
            self.searched = self.rest.len();
            if self.ended {
                if self.begin == self.rest.len() {
                    return Ok(false);
                }
                break self.rest.len();
            }
            self.rest.drain(..self.begin);
            self.begin = 0;
            self.searched = self.rest.len();
            if self.rest.len() > LINE_BYTES_MAX {
                return Err(self.error(
                    SqlState::PROGRAM_LIMIT_EXCEEDED,
                    "a line is too long",
                    self.line + 1,
                    None,
                ));
            }
            match self.input.next().await {
                Some(piece) => self.rest.extend_from_slice(&piece?),
                None => self.ended = true,
            }
        };
        line.extend_from_slice(&self.rest[self.begin..end]);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        self.begin = (end + 1).min(self.rest.len());
        self.searched = self.begin;
        self.line += 1;
        Ok(true)
    }

    /// Appends the projected fields of a line.
    fn append_fields(&self, line: &[u8], builders: &mut [StringBuilder]) -> Result<()> {
        let fields = split(line, &self.layout);
        for (builder, column) in builders.iter_mut().zip(&self.columns) {
            match fields.get(*column) {
                Some(field) if *field != self.layout.null.as_bytes() => {
                    let value = unescape(field, self.layout.escape);
                    match String::from_utf8(value) {
                        Ok(value) => builder.append_value(value),
                        Err(_) => {
                            let state = SqlState::CHARACTER_NOT_IN_REPERTOIRE;
                            let message = "invalid byte sequence for encoding \"UTF8\"";
                            return Err(self.error(state, message, self.line, Some(*column)));
                        }
                    }
                }
                // NULL, or a missing field.
                _ => builder.append_null(),
            }
        }
        Ok(())
    }

    /// Parses texts as values of a column. An empty text is NULL if it is not a valid value.
    fn parse_column(&self, texts: &StringArray, field: &Field, first: u64) -> Result<ArrayRef> {
        let safe = CastOptions { safe: true, ..CastOptions::default() };
        let mut values = cast_with_options(texts, field.data_type(), &safe)?;
        if field.data_type().is_floating() {
            // NULL where a cast makes infinity or zero of another number.
            values = float::in_range(texts, values)?;
        }
        if values.null_count() > texts.null_count()
            && let Some(row) = (0..texts.len())
                .find(|row| texts.is_valid(*row) && values.is_null(*row) && !texts.value(*row).is_empty())
        {
            let text = texts.value(row);
            let (state, message) = match field.data_type() {
                kind if kind.is_floating() && text.trim().parse::<f64>().is_ok() => {
                    (SqlState::NUMERIC_VALUE_OUT_OF_RANGE, float::out_of_range(text, kind).message)
                }
                kind => (
                    SqlState::INVALID_TEXT_REPRESENTATION,
                    format!("invalid input for type {kind}: \"{text}\""),
                ),
            };
            let column = self.schema.index_of(field.name()).ok().map(|at| self.columns[at]);
            let line = first + row as u64;
            return Err(self.error(state, &message, line, column));
        }
        Ok(values)
    }

    fn error(&self, state: SqlState, message: &str, line: u64, column: Option<usize>) -> DataFusionError {
        let column = column.map(|at| format!(", field {}", at + 1)).unwrap_or_default();
        SqlError::new(state, message)
            .with_detail(format!("file \"{}\", line {line}{column}", self.name))
            .into_datafusion()
    }
}

/// Splits a line into its fields, still escaped.
fn split<'l>(line: &'l [u8], layout: &Layout) -> Vec<&'l [u8]> {
    let mut fields = Vec::new();
    let (mut begin, mut at) = (0, 0);
    while at < line.len() {
        if Some(line[at]) == layout.escape {
            at += 2;
            continue;
        }
        if line[at] == layout.delimiter {
            fields.push(&line[begin..at]);
            begin = at + 1;
        }
        at += 1;
    }
    fields.push(&line[begin..]);
    fields
}

/// Removes escapes from a field. One at the end stands for itself.
fn unescape(field: &[u8], escape: Option<u8>) -> Vec<u8> {
    let mut value = Vec::with_capacity(field.len());
    let mut bytes = field.iter().copied();
    while let Some(byte) = bytes.next() {
        match Some(byte) == escape {
            true => value.push(bytes.next().unwrap_or(byte)),
            false => value.push(byte),
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split() {
        let layout = Layout { delimiter: b',', escape: Some(b'\\'), null: "\\N".to_string() };
        let fields = |line: &str| -> Vec<String> {
            let text = |field: &[u8]| String::from_utf8(unescape(field, layout.escape)).unwrap();
            split(line.as_bytes(), &layout).into_iter().map(text).collect()
        };
        assert_eq!(fields("a,b\\,c,,\\\\"), ["a", "b,c", "", "\\"]);
        assert_eq!(fields(""), [""]);
        assert_eq!(fields("a\\"), ["a\\"]);
        assert_eq!(split(b"1,\\N", &layout), [&b"1"[..], b"\\N"]);
    }

    #[tokio::test]
    async fn files_are_read_in_pieces() {
        use datafusion::arrow::array::AsArray;
        use datafusion::arrow::datatypes::{DataType, Int32Type, Schema};
        let schema = Arc::new(Schema::new(vec![
            Field::new("t", DataType::Utf8, true),
            Field::new("n", DataType::Int32, true),
        ]));
        let read = |text: &'static str| LineReader {
            input: futures::stream::iter(
                text.as_bytes().chunks(3).map(|piece| Ok(Bytes::from_static(piece))),
            )
            .boxed(),
            layout: Layout { delimiter: b'|', ..Layout::default() },
            batch_rows: 2,
            schema: Arc::clone(&schema),
            columns: vec![1, 0],
            name: "f".to_string(),
            rest: Vec::new(),
            begin: 0,
            searched: 0,
            ended: false,
            line: 0,
        };
        let mut reading = read("1|one\r\n\\N|\\N\n3\n\n5|five|more");
        let mut rows = Vec::new();
        while let Some(batch) = reading.next().await.unwrap() {
            let texts = batch.column(0).as_string::<i32>().iter().map(|text| text.map(str::to_string));
            let numbers = batch.column(1).as_primitive::<Int32Type>().iter();
            rows.extend(texts.zip(numbers));
        }
        let text = |text: &str| Some(text.to_string());
        let nothing = (None, None);
        let expected =
            [(text("one"), Some(1)), nothing.clone(), (None, Some(3)), nothing, (text("five"), Some(5))];
        assert_eq!(rows, expected);
        let error = read("1|x\ntwo|y").next().await.unwrap_err();
        assert_eq!(harrier_sqlstate::of(&error), SqlState::INVALID_TEXT_REPRESENTATION, "{error}");
    }
}
