//! Streaming row writers for the formats table, csv, json and vertical.
//!
//! Memory bound: table and vertical hold [`MEASURED_ROWS`] rows or [`MEASURED_BYTES`] to measure the columns;
//! csv and json hold one row.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::str::FromStr;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray, make_array};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::writer::{Encoder, EncoderFactory, LineDelimited, NullableEncoder, make_encoder};
use arrow::json::{EncoderOptions, WriterBuilder};
use arrow::util::display::{DurationFormat, FormatOptions};
use harrier_exec::formats::distinct_names::with_distinct_names;
use harrier_functions::format::datetime::formatter;
use harrier_functions::json::TYPE_KEY;
use harrier_functions::json::floats::float_encoder;
use unicode_width::UnicodeWidthStr;

/// Column widths are fixed after so many rows; wider values that come later stick out.
const MEASURED_ROWS: usize = 1000;
const MEASURED_BYTES: usize = 4 << 20;

/// PostgreSQL's date and time formats, used in every output format.
const TIMESTAMP: &str = "%Y-%m-%d %H:%M:%S%.f";
const TIMESTAMP_TZ: &str = "%Y-%m-%d %H:%M:%S%.f%:z";
const DATE: &str = "%Y-%m-%d";
const TIME: &str = "%H:%M:%S%.f";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns, as psql prints them
    Table,
    /// RFC 4180 with a header line; NULL is empty, the empty string is ""
    Csv,
    /// One object a line
    Json,
    /// One line per column
    Vertical,
    /// Statements in and answers out, a JSON line each
    #[value(hide = true)]
    Lines,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        clap::ValueEnum::from_str(text, true)
    }
}

impl Format {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Csv => "csv",
            Self::Json => "json",
            Self::Vertical => "vertical",
            Self::Lines => "lines",
        }
    }
}

/// Output format and terminal layout.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) format: Format,
    /// Width of the terminal, if rows go to one.
    pub(crate) columns: Option<usize>,
    /// Whether a table wider than the terminal is written with one line per column.
    pub(crate) folds: bool,
}

impl From<Format> for Layout {
    fn from(format: Format) -> Self {
        Self { format, columns: None, folds: false }
    }
}

/// Error of writing rows.
#[derive(Debug)]
pub(crate) enum OutputError {
    Io(io::Error),
    /// A value without a text form.
    Value(ArrowError),
}

impl From<io::Error> for OutputError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ArrowError> for OutputError {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::IoError(_, error) => Self::Io(error),
            error => Self::Value(error),
        }
    }
}

/// Writes the rows of one result. Order of calls: `batch` any number of times, then `end` once.
pub(crate) trait RowWriter {
    fn batch(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> Result<(), OutputError>;
    fn end(&mut self, out: &mut dyn Write) -> Result<(), OutputError>;
}

/// A writer for rows of `schema`; `null` stands for NULL in the formats for people.
pub(crate) fn row_writer(layout: impl Into<Layout>, schema: &SchemaRef, null: &str) -> Box<dyn RowWriter> {
    let schema = &with_titles(schema);
    let layout = layout.into();
    match layout.format {
        Format::Table => {
            Box::new(TableWriter { measure: Measure::new(schema, null), layout, folded: None, rows: 0 })
        }
        Format::Vertical => {
            Box::new(VerticalWriter { measure: Measure::new(schema, null), columns: layout.columns, rows: 0 })
        }
        Format::Csv => {
            Box::new(CsvWriter { schema: Arc::clone(schema), has_header: false, line: String::new() })
        }
        Format::Json | Format::Lines => {
            Box::new(JsonWriter::new(&Arc::new(with_distinct_names(schema.as_ref().clone()))))
        }
    }
}

/// Replaces generated column names by the text of their expression: `1` instead of `Int64(1)`.
fn with_titles(schema: &SchemaRef) -> SchemaRef {
    let fields: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| Arc::new(field.as_ref().clone().with_name(title(field.name()))))
        .collect();
    Arc::new(Schema::new(fields))
}

/// Type names in which the planner wraps literals.
const LITERAL_TYPES: &[&str] = &[
    "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float32", "Float64",
    "Boolean", "Utf8", "Utf8View",
];

fn title(name: &str) -> String {
    let mut title = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(open) = rest.find('(') {
        let (before, after) = (&rest[..open], &rest[open + 1..]);
        let word = before
            .rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        let close = match after.strip_prefix('"') {
            Some(text) => text.find("\")").map(|at| at + 2),
            None => after.find(')'),
        };
        let (true, Some(close)) = (LITERAL_TYPES.contains(&&before[word..]), close) else {
            title.push_str(&rest[..=open]);
            rest = after;
            continue;
        };
        title.push_str(&before[..word]);
        let value = &after[..close];
        match value.strip_prefix('"').and_then(|value| value.strip_suffix('"')) {
            Some(text) => title.extend(["'", text, "'"]),
            None => title.push_str(value),
        }
        rest = &after[close + 1..];
    }
    title.push_str(rest);
    title
}

fn format_options(null: &str) -> FormatOptions<'_> {
    FormatOptions::new()
        .with_display_error(false)
        .with_null(null)
        .with_date_format(Some(DATE))
        .with_datetime_format(Some(TIMESTAMP))
        .with_timestamp_format(Some(TIMESTAMP))
        .with_timestamp_tz_format(Some(TIMESTAMP_TZ))
        .with_time_format(Some(TIME))
        .with_duration_format(DurationFormat::Pretty)
}

/// Text of the first rows, and the column widths computed from them.
struct Measure {
    schema: SchemaRef,
    null: String,
    names: Vec<String>,
    widths: Vec<usize>,
    buffered: Vec<Vec<String>>,
    buffered_bytes: usize,
    is_settled: bool,
}

impl Measure {
    fn new(schema: &SchemaRef, null: &str) -> Self {
        let names: Vec<String> = schema.fields().iter().map(|field| printable(field.name())).collect();
        Self {
            schema: Arc::clone(schema),
            null: null.to_string(),
            widths: names.iter().map(|name| width_of(name)).collect(),
            names,
            buffered: Vec::new(),
            buffered_bytes: 0,
            is_settled: false,
        }
    }

    /// Formats `batch`; returns all rows held so far, or none while still measuring.
    fn take(&mut self, batch: &RecordBatch) -> Result<Vec<Vec<String>>, OutputError> {
        let null = self.null.clone();
        let options = format_options(&null);
        let columns = batch
            .columns()
            .iter()
            .map(|column| formatter(column.as_ref(), &options))
            .collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            let cells = columns
                .iter()
                .map(|column| Ok(printable(&column.value(row).try_to_string()?)))
                .collect::<Result<Vec<_>, ArrowError>>()?;
            self.buffered_bytes += cells.iter().map(String::len).sum::<usize>();
            if !self.is_settled {
                for (width, cell) in self.widths.iter_mut().zip(&cells) {
                    *width = (*width).max(width_of(cell));
                }
            }
            self.buffered.push(cells);
        }
        if !self.is_settled && self.buffered.len() < MEASURED_ROWS && self.buffered_bytes < MEASURED_BYTES {
            return Ok(Vec::new());
        }
        self.is_settled = true;
        Ok(std::mem::take(&mut self.buffered))
    }

    /// The rows still held.
    fn rest(&mut self) -> Vec<Vec<String>> {
        self.is_settled = true;
        std::mem::take(&mut self.buffered)
    }
}

struct TableWriter {
    measure: Measure,
    layout: Layout,
    /// Writer used instead if the rows are wider than the terminal and may be folded.
    folded: Option<VerticalWriter>,
    rows: u64,
}

/// Maximum width of a plan's header without a terminal; the plan's lines may be longer.
const PLAN_COLUMNS_MAX: usize = 100;

impl TableWriter {
    fn rows(&mut self, out: &mut dyn Write, rows: Vec<Vec<String>>) -> io::Result<()> {
        let mut text = String::new();
        if self.rows == 0 && self.measure.is_settled {
            self.fold();
        }
        if let Some(folded) = &mut self.folded {
            self.rows += rows.len() as u64;
            return folded.rows(out, rows);
        }
        if self.rows == 0 && self.measure.is_settled {
            self.header(&mut text);
        }
        for row in &rows {
            self.row(&mut text, row);
            // Bounds the buffer: many rows may be held.
            if text.len() > 1 << 16 {
                out.write_all(text.as_bytes())?;
                text.clear();
            }
        }
        self.rows += rows.len() as u64;
        out.write_all(text.as_bytes())
    }

    /// Widths of header and frame per column; a single column is at most as wide as the terminal.
    fn frame(&self) -> Vec<usize> {
        let mut widths = self.measure.widths.clone();
        if let ([width], [name]) = (&mut widths[..], &self.measure.names[..]) {
            let is_plan = name == "QUERY PLAN";
            let columns = self.layout.columns.or_else(|| is_plan.then_some(PLAN_COLUMNS_MAX));
            let most = columns.map_or(*width, |columns| columns.saturating_sub(2));
            *width = (*width).min(most.max(width_of(name)));
        }
        widths
    }

    /// Switches to one line per column if the rows are too wide and folding is on.
    fn fold(&mut self) {
        let Some(columns) = self.layout.columns.filter(|_| self.layout.folds && self.rows == 0) else {
            return;
        };
        let widths = &self.measure.widths;
        // Folding a single column gains nothing.
        if widths.len() > 1 && widths.iter().map(|width| width + 3).sum::<usize>() > columns + 1 {
            let mut measure = Measure::new(&self.measure.schema, &self.measure.null);
            measure.widths.clone_from(widths);
            measure.is_settled = true;
            self.folded = Some(VerticalWriter { measure, columns: Some(columns), rows: 0 });
        }
    }

    fn header(&self, text: &mut String) {
        let from = text.len();
        let widths = self.frame();
        for (at, (name, width)) in self.measure.names.iter().zip(&widths).enumerate() {
            if at > 0 {
                text.push('|');
            }
            let spaces = width.saturating_sub(width_of(name));
            let left = spaces / 2;
            pad(text, left + 1);
            text.push_str(name);
            pad(text, spaces - left + 1);
        }
        end_line(text, from);
        for (at, width) in widths.iter().enumerate() {
            if at > 0 {
                text.push('+');
            }
            text.extend(std::iter::repeat_n('-', width + 2));
        }
        text.push('\n');
    }

    /// Writes one row. A multi-line value continues below, with psql's plus sign.
    fn row(&self, text: &mut String, cells: &[String]) {
        let lines = cells.iter().map(|cell| cell.split('\n').count()).max().unwrap_or(1);
        let mut parts: Vec<_> = cells.iter().map(|cell| cell.split('\n').peekable()).collect();
        for _ in 0..lines {
            let from = text.len();
            for (at, part) in parts.iter_mut().enumerate() {
                if at > 0 {
                    text.push('|');
                }
                let value = part.next().unwrap_or_default();
                let spaces = self.measure.widths[at].saturating_sub(value.width());
                let is_right = is_right_aligned(self.measure.schema.field(at));
                text.push(' ');
                if is_right {
                    pad(text, spaces);
                }
                text.push_str(value);
                if !is_right {
                    pad(text, spaces);
                }
                text.push(if part.peek().is_some() { '+' } else { ' ' });
            }
            end_line(text, from);
        }
    }
}

impl RowWriter for TableWriter {
    fn batch(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> Result<(), OutputError> {
        let rows = self.measure.take(batch)?;
        if !rows.is_empty() {
            self.rows(out, rows)?;
        }
        Ok(())
    }

    fn end(&mut self, out: &mut dyn Write) -> Result<(), OutputError> {
        let rows = self.measure.rest();
        self.rows(out, rows)?;
        if self.folded.is_some() && self.rows > 0 {
            return Ok(());
        }
        let s = if self.rows == 1 { "" } else { "s" };
        writeln!(out, "({} row{s})", self.rows)?;
        Ok(())
    }
}

struct VerticalWriter {
    measure: Measure,
    /// Width of the terminal, if rows go to one: bounds the record separator.
    columns: Option<usize>,
    rows: u64,
}

impl VerticalWriter {
    fn rows(&mut self, out: &mut dyn Write, rows: Vec<Vec<String>>) -> io::Result<()> {
        let names = &self.measure.names;
        let name_width = names.iter().map(|name| width_of(name)).max().unwrap_or(0);
        let value_width = self.measure.widths.iter().copied().max().unwrap_or(0);
        let width = (name_width + 3 + value_width).min(self.columns.unwrap_or(usize::MAX));
        let mut text = String::new();
        for row in &rows {
            self.rows += 1;
            let from = text.len();
            let _ = write!(text, "-[ RECORD {} ]", self.rows);
            let mut at = text.len() - from;
            while at < width {
                text.push(if at == name_width + 1 { '+' } else { '-' });
                at += 1;
            }
            text.push('\n');
            for (name, value) in names.iter().zip(row) {
                let mut label = name.as_str();
                for line in value.split('\n') {
                    let from = text.len();
                    text.push_str(label);
                    pad(&mut text, name_width - width_of(label));
                    text.push_str(" | ");
                    text.push_str(line);
                    end_line(&mut text, from);
                    label = "";
                }
            }
            out.write_all(text.as_bytes())?;
            text.clear();
        }
        Ok(())
    }
}

impl RowWriter for VerticalWriter {
    fn batch(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> Result<(), OutputError> {
        let rows = self.measure.take(batch)?;
        self.rows(out, rows)?;
        Ok(())
    }

    fn end(&mut self, out: &mut dyn Write) -> Result<(), OutputError> {
        let rows = self.measure.rest();
        self.rows(out, rows)?;
        if self.rows == 0 {
            writeln!(out, "(0 rows)")?;
        }
        Ok(())
    }
}

struct CsvWriter {
    schema: SchemaRef,
    has_header: bool,
    line: String,
}

impl CsvWriter {
    fn header(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.has_header {
            return Ok(());
        }
        self.has_header = true;
        self.line.clear();
        for (at, field) in self.schema.fields().iter().enumerate() {
            if at > 0 {
                self.line.push(',');
            }
            push_csv(&mut self.line, field.name());
        }
        self.line.push('\n');
        out.write_all(self.line.as_bytes())
    }
}

impl RowWriter for CsvWriter {
    fn batch(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> Result<(), OutputError> {
        self.header(out)?;
        let options = format_options("");
        let columns = batch
            .columns()
            .iter()
            .map(|column| {
                let formatter = formatter(column.as_ref(), &options)?;
                Ok((formatter, column.logical_nulls(), is_plain(column.data_type())))
            })
            .collect::<Result<Vec<_>, ArrowError>>()?;
        let mut value = String::new();
        for row in 0..batch.num_rows() {
            self.line.clear();
            for (at, (column, nulls, is_plain)) in columns.iter().enumerate() {
                if at > 0 {
                    self.line.push(',');
                }
                if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                    continue;
                }
                if *is_plain {
                    column.value(row).write(&mut self.line)?;
                } else {
                    value.clear();
                    column.value(row).write(&mut value)?;
                    push_csv(&mut self.line, &value);
                }
            }
            self.line.push('\n');
            out.write_all(self.line.as_bytes())?;
        }
        Ok(())
    }

    fn end(&mut self, out: &mut dyn Write) -> Result<(), OutputError> {
        self.header(out)?;
        Ok(())
    }
}

/// Whether no value of the type needs quotes.
fn is_plain(data_type: &DataType) -> bool {
    data_type.is_numeric() || data_type.is_temporal() && !matches!(data_type, DataType::Duration(_))
}

fn push_csv(line: &mut String, value: &str) {
    if !value.is_empty() && !value.contains([',', '"', '\n', '\r']) {
        line.push_str(value);
        return;
    }
    line.push('"');
    for part in value.split_inclusive('"') {
        line.push_str(part);
        if part.ends_with('"') {
            line.push('"');
        }
    }
    line.push('"');
}

struct JsonWriter {
    /// Output schema; types without a JSON form become text.
    schema: SchemaRef,
    as_text: Vec<bool>,
}

impl JsonWriter {
    fn new(schema: &SchemaRef) -> Self {
        let options = EncoderOptions::default();
        let mut fields = Vec::with_capacity(schema.fields().len());
        let mut as_text = Vec::with_capacity(schema.fields().len());
        for field in schema.fields() {
            let empty = arrow::array::new_empty_array(field.data_type());
            let is_text = make_encoder(field, empty.as_ref(), &options).is_err();
            as_text.push(is_text);
            fields.push(if is_text {
                Arc::new(Field::new(field.name(), DataType::Utf8, true))
            } else {
                Arc::clone(field)
            });
        }
        Self { schema: Arc::new(Schema::new(fields)), as_text }
    }
}

impl RowWriter for JsonWriter {
    fn batch(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> Result<(), OutputError> {
        let columns = batch
            .columns()
            .iter()
            .zip(&self.as_text)
            .map(|(column, as_text)| if *as_text { texts(column) } else { Ok(Arc::clone(column)) })
            .collect::<Result<Vec<_>, _>>()?;
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?;
        let mut writer = WriterBuilder::new()
            .with_explicit_nulls(true)
            .with_timestamp_format(TIMESTAMP.to_string())
            .with_datetime_format(TIMESTAMP.to_string())
            .with_timestamp_tz_format(TIMESTAMP_TZ.to_string())
            .with_encoder_factory(Arc::new(PostgresValues))
            .build::<_, LineDelimited>(out);
        writer.write(&batch)?;
        writer.finish()?;
        Ok(())
    }

    fn end(&mut self, _: &mut dyn Write) -> Result<(), OutputError> {
        Ok(())
    }
}

/// Writes infinities and intervals in the text form of the other formats, and values of `json` and `jsonb` as
/// they are.
#[derive(Debug)]
struct PostgresValues;

impl EncoderFactory for PostgresValues {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        _options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        if let Some(encoder) = float_encoder(field, array)? {
            return Ok(Some(encoder));
        }
        let kind = array.data_type();
        let named = field.metadata().get(TYPE_KEY).map(String::as_str);
        let is_json = kind.is_string() && matches!(named, Some("json" | "jsonb"));
        if !is_json && !matches!(kind, DataType::Interval(_)) {
            return Ok(None);
        }
        let texts = texts(&make_array(array.to_data()))?;
        let encoder = TextEncoder { texts: texts.as_string::<i32>().clone(), is_json };
        Ok(Some(NullableEncoder::new(Box::new(encoder), array.logical_nulls())))
    }
}

struct TextEncoder {
    texts: StringArray,
    is_json: bool,
}

impl Encoder for TextEncoder {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let text = self.texts.value(row);
        if self.is_json && serde_json::from_str::<serde_json::Value>(text).is_ok() {
            // A row is a line; within values of JSON line ends stand between tokens alone.
            out.extend(text.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
        } else {
            out.extend_from_slice(serde_json::Value::from(text).to_string().as_bytes());
        }
    }
}

/// The values of a column as text; NULL stays NULL.
pub(crate) fn texts(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let options = format_options("");
    let formatter = formatter(column.as_ref(), &options)?;
    let nulls = column.logical_nulls();
    let texts = (0..column.len())
        .map(|row| {
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                return Ok(None);
            }
            formatter.value(row).try_to_string().map(Some)
        })
        .collect::<Result<StringArray, _>>()?;
    Ok(Arc::new(texts))
}

/// Escapes control characters, except newlines, in `text`.
fn printable(text: &str) -> String {
    if !text.contains(|c: char| c.is_control() && c != '\n') {
        return text.to_string();
    }
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => clean.push('\n'),
            '\t' => clean.push_str("\\t"),
            '\r' => clean.push_str("\\r"),
            c if c.is_control() => {
                let _ = write!(clean, "\\x{:02X}", u32::from(c));
            }
            c => clean.push(c),
        }
    }
    clean
}

/// Display width of the widest line of `text`, in terminal columns.
fn width_of(text: &str) -> usize {
    text.split('\n').map(UnicodeWidthStr::width).max().unwrap_or(0)
}

fn is_right_aligned(field: &Field) -> bool {
    field.data_type().is_numeric()
}

fn pad(text: &mut String, columns: usize) {
    text.extend(std::iter::repeat_n(' ', columns));
}

/// Ends the line that began at `from`, without trailing blanks.
fn end_line(text: &mut String, from: usize) {
    let length = text[from..].trim_end_matches(' ').len();
    text.truncate(from + length);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use arrow::array::{BooleanArray, Float64Array, Int32Array, ListArray, TimestampMicrosecondArray};
    use arrow::datatypes::Int32Type;

    use super::*;

    fn render(format: Format, batches: &[RecordBatch]) -> String {
        let mut out = Vec::new();
        let mut writer = row_writer(format, &batches[0].schema(), "NULL");
        for batch in batches {
            writer.batch(&mut out, batch).unwrap();
        }
        writer.end(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn sample() -> RecordBatch {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("id", Arc::new(Int32Array::from(vec![Some(1), Some(-20), None]))),
            ("na,me", Arc::new(StringArray::from(vec![Some("a \"b\", c"), Some(""), None]))),
            ("x", Arc::new(Float64Array::from(vec![1.5, 2.0, f64::NAN]))),
            ("ok", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None]))),
            (
                "at",
                Arc::new(TimestampMicrosecondArray::from(vec![
                    Some(1_700_000_000_000_000),
                    Some(1_700_000_000_500_000),
                    None,
                ])),
            ),
        ];
        RecordBatch::try_from_iter_with_nullable(
            columns.into_iter().map(|(name, column)| (name, column, true)),
        )
        .unwrap()
    }

    #[test]
    fn titles() {
        for (name, expected) in [
            ("Int64(1)", "1"),
            ("Int64(1) + Int64(-2)", "1 + -2"),
            ("sum(t.x)", "sum(t.x)"),
            ("concat(Utf8(\"a)b\"),t.x)", "concat('a)b',t.x)"),
            ("round(t.x,Int64(2))", "round(t.x,2)"),
            ("MyInt64(1)", "MyInt64(1)"),
            ("Boolean(true)", "true"),
            ("é(Int64(3))", "é(3)"),
            ("Utf8(\"open", "Utf8(\"open"),
            ("(", "("),
        ] {
            assert_eq!(title(name), expected);
        }
    }

    #[test]
    fn csv() {
        assert_eq!(
            render(Format::Csv, &[sample()]),
            "id,\"na,me\",x,ok,at\n\
             1,\"a \"\"b\"\", c\",1.5,true,2023-11-14 22:13:20\n\
             -20,\"\",2.0,false,2023-11-14 22:13:20.500\n\
             ,,NaN,,\n"
        );
        assert_eq!(render(Format::Csv, &[sample().slice(0, 0)]), "id,\"na,me\",x,ok,at\n");
    }

    #[test]
    fn json() {
        assert_eq!(
            render(Format::Json, &[sample()]),
            "{\"id\":1,\"na,me\":\"a \\\"b\\\", c\",\"x\":1.5,\"ok\":true,\"at\":\"2023-11-14 22:13:20\"}\n\
             {\"id\":-20,\"na,me\":\"\",\"x\":2.0,\"ok\":false,\"at\":\"2023-11-14 22:13:20.500\"}\n\
             {\"id\":null,\"na,me\":null,\"x\":\"NaN\",\"ok\":null,\"at\":null}\n"
        );
    }

    #[test]
    fn json_of_intervals_and_json() {
        use arrow::datatypes::IntervalMonthDayNano;
        let days = IntervalMonthDayNano::new(0, 1, 0);
        let intervals: ArrayRef =
            Arc::new(arrow::array::IntervalMonthDayNanoArray::from(vec![Some(days), None]));
        let json: ArrayRef = Arc::new(StringArray::from(vec![Some("{\"a\":\n[1, \"x\"]}"), None]));
        let tag = [(TYPE_KEY.to_string(), "jsonb".to_string())];
        let fields = vec![
            Field::new("i", intervals.data_type().clone(), true),
            Field::new("j", DataType::Utf8, true).with_metadata(tag.into()),
            Field::new("t", DataType::Utf8, true),
        ];
        let columns = vec![intervals, Arc::clone(&json), json];
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
        assert_eq!(
            render(Format::Json, &[batch]),
            "{\"i\":\"1 day\",\"j\":{\"a\": [1, \"x\"]},\"t\":\"{\\\"a\\\":\\n[1, \\\"x\\\"]}\"}\n\
             {\"i\":null,\"j\":null,\"t\":null}\n"
        );
    }

    #[test]
    fn table() {
        assert_eq!(
            render(Format::Table, &[sample().project(&[0, 1, 3]).unwrap()]),
            "  id  |  na,me   |  ok\n\
             ------+----------+-------\n\
             \x20   1 | a \"b\", c | true\n\
             \x20 -20 |          | false\n\
             \x20NULL | NULL     | NULL\n\
             (3 rows)\n"
        );
        assert_eq!(
            render(Format::Table, &[sample().project(&[0]).unwrap().slice(0, 0)]),
            " id\n----\n(0 rows)\n"
        );
    }

    #[test]
    fn a_value_of_several_lines_continues_below() {
        let batch = RecordBatch::try_from_iter([
            ("a", Arc::new(StringArray::from(vec!["x\nyy", "é\tz"])) as ArrayRef),
            ("b", Arc::new(StringArray::from(vec!["1", "日本"])) as ArrayRef),
        ])
        .unwrap();
        assert_eq!(
            render(Format::Table, &[batch]),
            "  a   |  b\n\
             ------+------\n\
             \x20x   +| 1\n\
             \x20yy   |\n\
             \x20é\\tz | 日本\n\
             (2 rows)\n"
        );
    }

    #[test]
    fn vertical() {
        assert_eq!(
            render(Format::Vertical, &[sample().project(&[0, 1]).unwrap().slice(1, 2)]),
            "-[ RECORD 1 ]\n\
             id    | -20\n\
             na,me |\n\
             -[ RECORD 2 ]\n\
             id    | NULL\n\
             na,me | NULL\n"
        );
    }

    #[test]
    fn many_rows_stream_with_the_widths_of_the_first() {
        let narrow = RecordBatch::try_from_iter([(
            "n",
            Arc::new(Int32Array::from_iter_values(0..MEASURED_ROWS as i32)) as ArrayRef,
        )])
        .unwrap();
        let wide = RecordBatch::try_from_iter([("n", Arc::new(Int32Array::from(vec![123_456])) as ArrayRef)])
            .unwrap();
        let text = render(Format::Table, &[narrow, wide]);
        assert!(text.starts_with("  n\n-----\n   0\n"), "{text}");
        assert!(text.ends_with(" 999\n 123456\n(1001 rows)\n"), "{text}");
    }

    #[test]
    fn no_columns() {
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(2));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
        assert_eq!(render(Format::Json, std::slice::from_ref(&batch)), "{}\n{}\n");
        assert_eq!(render(Format::Csv, std::slice::from_ref(&batch)), "\n\n\n");
        assert!(render(Format::Table, &[batch]).ends_with("(2 rows)\n"));
    }

    #[test]
    fn nested_values() {
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None])]);
        let batch = RecordBatch::try_from_iter([("l", Arc::new(list) as ArrayRef)]).unwrap();
        assert_eq!(render(Format::Json, std::slice::from_ref(&batch)), "{\"l\":[1,null]}\n");
        assert_eq!(render(Format::Csv, &[batch]), "l\n\"[1, ]\"\n");
    }
}
