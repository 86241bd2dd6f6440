//! Reads rows of CSV or PostgreSQL's text format into batches of a table's types. One thread reads them in
//! order, so that errors name their line and rows with errors can be skipped and counted.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use datafusion::arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, RecordBatch, StringArray, StringBuilder,
};
use datafusion::arrow::compute::{CastOptions, cast_with_options, filter_record_batch};
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef, TimeUnit};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::StreamExt;
use harrier_error::{SqlError, SqlState};
use harrier_exec::formats::compression;
use harrier_functions::datetime::time_zone::moments_or_null;
use harrier_functions::parse::bytea::bytes_of;
use harrier_functions::parse::datetime::{self, Kind};
use harrier_functions::parse::float;
use harrier_sql::parser::copy::{CopyOptions, Header, OnError};
use harrier_sqlstate::{IntoDataFusionError, date_style_hint, is_day};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::copy_format::layout::Layout;
use crate::copy_format::list_reader;

const BATCH_ROWS: usize = 8192;
/// Capacity of the queue of input chunks.
const CHUNKS_MAX: usize = 16;
const BUFFER: usize = 1 << 16;
/// Longest record: limits what an unclosed quote may consume.
const RECORD_BYTES_MAX: usize = 256 << 20;

/// Source of the text.
pub(crate) enum Source {
    /// Data sent by a client.
    Client(mpsc::Receiver<Bytes>),
    /// Files, one after the other, each with its own header.
    Files { store: Arc<dyn ObjectStore>, files: Vec<ObjectMeta>, compression: FileCompressionType },
}

/// The rows of a source as batches with the columns of `schema`. Can be read once.
pub(crate) struct TextRows {
    schema: SchemaRef,
    layout: Layout,
    on_error: OnError,
    /// Fails if more rows are skipped.
    reject_limit: Option<u64>,
    /// For error messages.
    table: String,
    source: Mutex<Option<Source>>,
    skipped: Arc<AtomicU64>,
}

impl fmt::Debug for TextRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("table", &self.table).field("layout", &self.layout).finish()
    }
}

impl TextRows {
    pub(crate) fn new(
        columns: Vec<FieldRef>,
        layout: Layout,
        options: &CopyOptions,
        table: String,
        source: Source,
    ) -> Self {
        let CopyOptions { on_error, reject_limit, .. } = *options;
        let source = Mutex::new(Some(source));
        let skipped = Arc::new(AtomicU64::new(0));
        Self {
            schema: Arc::new(Schema::new(columns)),
            layout,
            on_error,
            reject_limit,
            table,
            source,
            skipped,
        }
    }

    /// Number of rows skipped so far.
    pub(crate) fn skipped_rows(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.skipped)
    }
}

impl PartitionStream for TextRows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStream::builder(Arc::clone(&self.schema), 2);
        let output = builder.tx();
        let source = self.source.lock().take();
        let parser = RowParser {
            schema: Arc::clone(&self.schema),
            layout: self.layout.clone(),
            on_error: self.on_error,
            reject_limit: self.reject_limit,
            table: self.table.clone(),
            file: None,
            skipped: Arc::clone(&self.skipped),
        };
        let handle = Handle::current();
        builder.spawn_blocking(move || {
            let send = |batch| match output.blocking_send(Ok(batch)) {
                Ok(()) => Ok(()),
                // The receiver was dropped.
                Err(_) => Err(receiver_dropped()),
            };
            match parser.read_all(source, &handle, send) {
                Err(error) if is_receiver_dropped(&error) => Ok(()),
                result => result,
            }
        });
        builder.build()
    }
}

const RECEIVER_DROPPED: &str = "nobody reads the rows";

fn receiver_dropped() -> DataFusionError {
    DataFusionError::Internal(RECEIVER_DROPPED.to_string())
}

fn is_receiver_dropped(error: &DataFusionError) -> bool {
    matches!(error, DataFusionError::Internal(text) if text == RECEIVER_DROPPED)
}

struct RowParser {
    schema: SchemaRef,
    layout: Layout,
    on_error: OnError,
    reject_limit: Option<u64>,
    table: String,
    /// The current file, for error messages.
    file: Option<String>,
    skipped: Arc<AtomicU64>,
}

impl RowParser {
    fn read_all(
        mut self,
        source: Option<Source>,
        handle: &Handle,
        mut send: impl FnMut(RecordBatch) -> Result<()>,
    ) -> Result<()> {
        match source {
            None => Err(DataFusionError::Internal("rows of a COPY are read twice".to_string())),
            Some(Source::Client(chunks)) => self.read_input(ChunkReader::new(chunks), &mut send),
            Some(Source::Files { store, files, compression }) => {
                for file in files {
                    let (sender, chunks) = mpsc::channel(CHUNKS_MAX);
                    let download_task =
                        handle.spawn(download(Arc::clone(&store), file.clone(), compression, sender));
                    self.file = Some(file.location.filename().unwrap_or_default().to_string());
                    let read = self.read_input(ChunkReader::new(chunks), &mut send);
                    // An error of the download takes precedence over the parse error that its truncated data
                    // causes.
                    match handle.block_on(download_task) {
                        Ok(Err(error)) => return Err(error),
                        _ => read?,
                    }
                }
                Ok(())
            }
        }
    }

    fn read_input(&self, input: impl Read, send: &mut impl FnMut(RecordBatch) -> Result<()>) -> Result<()> {
        let columns = self.schema.fields().len();
        let mut records = Records::new(input, &self.layout);
        if self.layout.header != Header::Absent {
            let header = records.next(self)?;
            if let (Header::Matching, Some(line)) = (self.layout.header, header) {
                self.check_header(&records, line)?;
            }
        }
        loop {
            let mut builders: Vec<StringBuilder> = (0..columns).map(|_| StringBuilder::new()).collect();
            let mut lines = Vec::new();
            while lines.len() < BATCH_ROWS {
                let Some(line) = records.next(self)? else { break };
                self.append_fields(&records, line, &mut builders)?;
                lines.push(line);
            }
            if lines.is_empty() {
                return Ok(());
            }
            let texts = builders.into_iter().map(|mut builder| builder.finish()).collect();
            let batch = self.parse_values(texts, &lines)?;
            if batch.num_rows() > 0 {
                send(batch)?;
            }
        }
    }

    fn check_header(&self, records: &Records<impl Read>, line: u64) -> Result<()> {
        let names: Vec<String> = records
            .fields()
            .map(|field| field.map(|text| String::from_utf8_lossy(text).into_owned()).unwrap_or_default())
            .collect();
        let wanted: Vec<&String> = self.schema.fields().iter().map(|field| field.name()).collect();
        if names.iter().eq(wanted.iter().copied()) {
            return Ok(());
        }
        let message = format!(
            "the header names the columns ({}), not ({})",
            names.join(", "),
            wanted.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ")
        );
        Err(self.error(SqlState::BAD_COPY_FILE_FORMAT, message, line, None))
    }

    fn append_fields(
        &self,
        records: &Records<impl Read>,
        line: u64,
        builders: &mut [StringBuilder],
    ) -> Result<()> {
        let found = records.len();
        if found > builders.len() {
            let message = "extra data after last expected column";
            return Err(self.error(SqlState::BAD_COPY_FILE_FORMAT, message, line, None));
        }
        if let Some(missing) = self.schema.fields().get(found) {
            let message = format!("missing data for column \"{}\"", missing.name());
            return Err(self.error(SqlState::BAD_COPY_FILE_FORMAT, message, line, None));
        }
        for (at, (field, builder)) in records.fields().zip(builders).enumerate() {
            match field {
                None => builder.append_null(),
                Some(bytes) => match std::str::from_utf8(bytes) {
                    Ok(text) => builder.append_value(text),
                    Err(_) => {
                        let state = SqlState::CHARACTER_NOT_IN_REPERTOIRE;
                        let message = "invalid byte sequence for encoding \"UTF8\"";
                        return Err(self.error(state, message, line, Some(at)));
                    }
                },
            }
        }
        Ok(())
    }

    /// Parses the texts into values. Rows with an invalid one are skipped or fail, depending on ON_ERROR.
    fn parse_values(&self, texts: Vec<StringArray>, lines: &[u64]) -> Result<RecordBatch> {
        let mut values: Vec<ArrayRef> = Vec::with_capacity(texts.len());
        let mut keep: Option<Vec<bool>> = None;
        let mut first: Option<(usize, usize)> = None;
        for (at, (text, field)) in texts.iter().zip(self.schema.fields()).enumerate() {
            let value = self.values(text, field.data_type())?;
            if value.logical_null_count() > text.null_count() {
                let nulls = value.logical_nulls();
                let is_bad =
                    |row: usize| text.is_valid(row) && nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
                let keep = keep.get_or_insert_with(|| vec![true; lines.len()]);
                for row in (0..lines.len()).filter(|row| is_bad(*row)) {
                    keep[row] = false;
                    if first.is_none_or(|known| (row, at) < known) {
                        first = Some((row, at));
                    }
                }
            }
            values.push(value);
        }
        let Some(keep) = keep else {
            return Ok(RecordBatch::try_new(Arc::clone(&self.schema), values)?);
        };
        if let (OnError::Stop, Some((row, at))) = (self.on_error, first) {
            let error = self.misfit(texts[at].value(row), self.schema.field(at).data_type());
            return Err(error.with_detail(self.place(lines[row], Some(at))).into_datafusion());
        }
        let skipped = keep.iter().filter(|keep| !**keep).count() as u64;
        let skipped = skipped + self.skipped.fetch_add(skipped, Ordering::Relaxed);
        if let Some(limit) = self.reject_limit.filter(|limit| skipped > *limit) {
            let message =
                format!("skipped more than REJECT_LIMIT ({limit}) rows due to data type incompatibility");
            let last = lines.last().copied().unwrap_or_default();
            return Err(self.error(SqlState::INVALID_TEXT_REPRESENTATION, message, last, None));
        }
        let all = RecordBatch::try_new(Arc::clone(&self.schema), values)?;
        Ok(filter_record_batch(&all, &BooleanArray::from(keep))?)
    }

    /// Texts as values of a type; those that do not fit are NULL.
    fn values(&self, text: &StringArray, kind: &DataType) -> Result<ArrayRef> {
        let safe = CastOptions { safe: true, ..CastOptions::default() };
        match kind {
            DataType::Binary | DataType::BinaryView | DataType::LargeBinary => {
                let bytes: BinaryArray =
                    text.iter().map(|text| text.and_then(|text| bytes_of(text).ok())).collect();
                Ok(cast_with_options(&bytes, kind, &safe)?)
            }
            _ if list_reader::element(kind).is_some() => {
                list_reader::lists(text, kind, |texts, kind| self.values(texts, kind))
            }
            kind => {
                let dates = self.layout.dates;
                let normal =
                    Kind::of(kind).and_then(|kind| datetime::normal_texts::<StringArray>(text, kind, dates));
                let text = normal.as_ref().unwrap_or(text);
                let value = cast_with_options(text, kind, &safe)?;
                match kind {
                    DataType::Float32 | DataType::Float64 => float::in_range(text, value),
                    // A local time that its zone does not have, or twice.
                    DataType::Timestamp(_, Some(zone)) if value.null_count() > text.null_count() => {
                        Ok(cast_with_options(&moments_or_null(text, zone)?, kind, &safe)?)
                    }
                    _ => Ok(value),
                }
            }
        }
    }

    /// Why `text` is no value of a type.
    fn misfit(&self, text: &str, kind: &DataType) -> SqlError {
        if list_reader::element(kind).is_none() {
            return value_error(text, kind);
        }
        let leaf = list_reader::leaf(kind);
        let is_value = |text: &str| {
            let values = self.values(&StringArray::from(vec![text]), leaf);
            values.is_ok_and(|values| values.logical_null_count() == 0)
        };
        match list_reader::misfit(text, kind, is_value) {
            Ok(Some(element)) => value_error(&element, leaf),
            Ok(None) => value_error(text, kind),
            Err(error) => error,
        }
    }

    fn error(
        &self,
        state: SqlState,
        message: impl Into<String>,
        line: u64,
        column: Option<usize>,
    ) -> DataFusionError {
        SqlError::new(state, message).with_detail(self.place(line, column)).into_datafusion()
    }

    /// Where something is wrong.
    fn place(&self, line: u64, column: Option<usize>) -> String {
        let file = self.file.as_ref().map(|file| format!("file \"{file}\", ")).unwrap_or_default();
        let column =
            column.map(|at| format!(", column \"{}\"", self.schema.field(at).name())).unwrap_or_default();
        format!("COPY {}, {file}line {line}{column}", self.table)
    }
}

/// PostgreSQL's error for a `text` that is not a value of a type.
fn value_error(text: &str, kind: &DataType) -> SqlError {
    let name = sql_name(kind);
    let is_number = text.trim().parse::<f64>().is_ok_and(f64::is_finite);
    let is_whole = text.trim().parse::<i128>().is_ok();
    if kind.is_integer() && is_whole || kind.is_decimal() && is_number {
        let message = format!("value \"{text}\" is out of range for type {name}");
        return SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message);
    }
    // Rust reads numbers that are too large as infinite.
    if kind.is_floating() && text.trim().parse::<f64>().is_ok() {
        return float::out_of_range(text, kind);
    }
    if kind.is_temporal() && is_day(text) {
        let message = format!("date/time field value out of range: \"{text}\"");
        let error = SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, message);
        return match date_style_hint(text) {
            Some(hint) => error.with_hint(hint),
            None => error,
        };
    }
    let state = match kind.is_temporal() {
        true => SqlState::INVALID_DATETIME_FORMAT,
        false => SqlState::INVALID_TEXT_REPRESENTATION,
    };
    SqlError::new(state, format!("invalid input syntax for type {name}: \"{text}\""))
}

/// PostgreSQL's name of a type; Arrow's if PostgreSQL lacks it.
fn sql_name(kind: &DataType) -> String {
    match kind {
        DataType::Boolean => "boolean".to_string(),
        DataType::Int16 => "smallint".to_string(),
        DataType::Int32 => "integer".to_string(),
        DataType::Int64 => "bigint".to_string(),
        DataType::Float32 => "real".to_string(),
        DataType::Float64 => "double precision".to_string(),
        DataType::Decimal128(precision, scale) => format!("numeric({precision},{scale})"),
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => "text".to_string(),
        DataType::Binary | DataType::BinaryView | DataType::LargeBinary => "bytea".to_string(),
        DataType::Date32 => "date".to_string(),
        DataType::Time64(TimeUnit::Microsecond) => "time".to_string(),
        DataType::Timestamp(_, None) => "timestamp".to_string(),
        DataType::Timestamp(_, Some(_)) => "timestamp with time zone".to_string(),
        DataType::Interval(_) => "interval".to_string(),
        other => other.to_string(),
    }
}

/// Downloads and decompresses a file in chunks.
///
/// Errors: the file has changed since it was listed (40001).
async fn download(
    store: Arc<dyn ObjectStore>,
    file: ObjectMeta,
    compression: FileCompressionType,
    sender: mpsc::Sender<Bytes>,
) -> Result<()> {
    let found = store.get(&file.location).await?;
    if found.meta.size != file.size {
        let (path, bytes, listed) = (&file.location, found.meta.size, file.size);
        let message = format!("file \"{path}\" has {bytes} bytes, and had {listed} when it was listed");
        return Err(SqlError::new(SqlState::SERIALIZATION_FAILURE, message)
            .with_hint("The statement can be tried again.")
            .into_datafusion());
    }
    let name = file.location.filename().unwrap_or_default();
    let mut stream = compression::decompress(compression::pieces(found), compression, name);
    while let Some(bytes) = stream.next().await {
        if sender.send(bytes?).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// Blocking reader over a channel of chunks.
struct ChunkReader {
    chunks: mpsc::Receiver<Bytes>,
    present: Bytes,
}

impl ChunkReader {
    fn new(chunks: mpsc::Receiver<Bytes>) -> Self {
        Self { chunks, present: Bytes::new() }
    }
}

impl Read for ChunkReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.present.is_empty() {
            match self.chunks.blocking_recv() {
                Some(chunk) => self.present = chunk,
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.present.len());
        buffer[..length].copy_from_slice(&self.present.split_to(length));
        Ok(length)
    }
}

/// Iterator over records.
enum Records<R> {
    Csv(Box<CsvRecords<R>>),
    Text { reader: BufReader<R>, line: Vec<u8>, fields: Vec<Option<Vec<u8>>>, number: u64, layout: Layout },
}

impl<R: Read> Records<R> {
    fn new(input: R, layout: &Layout) -> Self {
        match layout.csv {
            true => Self::Csv(Box::new(CsvRecords::new(input, layout))),
            false => {
                let reader = BufReader::with_capacity(BUFFER, input);
                Self::Text { reader, line: vec![], fields: vec![], number: 0, layout: layout.clone() }
            }
        }
    }

    /// Reads the next record and returns its line; `None` at the end.
    fn next(&mut self, of: &RowParser) -> Result<Option<u64>> {
        match self {
            Self::Csv(records) => records.next(of),
            Self::Text { reader, line, fields, number, layout } => {
                line.clear();
                if reader.read_until(b'\n', line)? == 0 {
                    return Ok(None);
                }
                *number += 1;
                if line.last() == Some(&b'\n') {
                    line.pop();
                }
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                if line.as_slice() == b"\\." {
                    return Ok(None);
                }
                split(line, layout, fields);
                Ok(Some(*number))
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Csv(records) => records.fields.len(),
            Self::Text { fields, .. } => fields.len(),
        }
    }

    fn fields(&self) -> Box<dyn Iterator<Item = Option<&[u8]>> + '_> {
        match self {
            Self::Csv(records) => Box::new(records.fields()),
            Self::Text { fields, .. } => Box::new(fields.iter().map(Option::as_deref)),
        }
    }
}

/// CSV records. Unlike readers into strings, distinguishes `""` from an empty field: only the latter is NULL.
struct CsvRecords<R> {
    input: BufReader<R>,
    parser: csv_core::Reader,
    quote: u8,
    null: Vec<u8>,
    /// The concatenated fields of the current record.
    data: Vec<u8>,
    /// End offset of each field, and whether it was quoted.
    fields: Vec<(usize, bool)>,
    /// The previous byte of the input.
    last: u8,
    /// Whether the input has ended.
    ended: bool,
}

/// Terminator of a field.
enum FieldEnd {
    Field,
    Record,
    /// End of input before the field.
    Input,
    /// End of input within quotes.
    Unclosed,
}

impl<R: Read> CsvRecords<R> {
    fn new(input: R, layout: &Layout) -> Self {
        let mut builder = csv_core::ReaderBuilder::new();
        builder.delimiter(layout.delimiter).quote(layout.quote);
        if layout.escape != layout.quote {
            builder.escape(Some(layout.escape)).double_quote(false);
        }
        Self {
            input: BufReader::with_capacity(BUFFER, input),
            parser: builder.build(),
            quote: layout.quote,
            null: layout.null.clone().into_bytes(),
            data: Vec::new(),
            fields: Vec::new(),
            last: b'\n',
            ended: false,
        }
    }

    fn next(&mut self, of: &RowParser) -> Result<Option<u64>> {
        self.data.clear();
        self.fields.clear();
        // Skip line ends before the record, so that its first byte comes next.
        while let [end @ (b'\r' | b'\n'), ..] = *self.input.fill_buf()? {
            let line = self.parser.line();
            let mut output = [0];
            let input = &self.input.buffer()[..1];
            self.parser.read_field(input, &mut output);
            self.input.consume(1);
            let is_own = end == b'\n' && self.last == b'\r';
            self.last = end;
            // With a single column, an empty line is a row.
            if !is_own && of.schema.fields().len() == 1 {
                self.fields.push((0, false));
                return Ok(Some(line));
            }
        }
        let line = self.parser.line();
        loop {
            let is_quoted = self.input.fill_buf()?.first() == Some(&self.quote);
            let is_last = match self.field()? {
                FieldEnd::Field => false,
                FieldEnd::Record => true,
                FieldEnd::Input => return Ok(None),
                FieldEnd::Unclosed => {
                    let message = "unterminated CSV quoted field";
                    return Err(of.error(SqlState::BAD_COPY_FILE_FORMAT, message, line, None));
                }
            };
            self.fields.push((self.data.len(), is_quoted));
            if is_last {
                break;
            }
            if self.data.len() > RECORD_BYTES_MAX {
                let message = format!("a row has more than {} MiB", RECORD_BYTES_MAX >> 20);
                return Err(of.error(SqlState::PROGRAM_LIMIT_EXCEEDED, message, line, None));
            }
        }
        Ok(Some(line))
    }

    /// Reads a field.
    fn field(&mut self) -> Result<FieldEnd> {
        let mut output = [0; 4096];
        loop {
            let input = self.input.fill_buf()?;
            // Add the line end that the last line may lack. Within quotes it becomes part of the field.
            let adds_end = input.is_empty() && !self.ended;
            let input = if adds_end { &b"\n"[..] } else { input };
            let (result, read, written) = self.parser.read_field(input, &mut output);
            match adds_end {
                true => self.ended = true,
                false => {
                    self.last = read.checked_sub(1).map_or(self.last, |at| input[at]);
                    self.input.consume(read);
                }
            }
            match result {
                csv_core::ReadFieldResult::InputEmpty if adds_end && written > 0 => {
                    return Ok(FieldEnd::Unclosed);
                }
                _ => self.data.extend_from_slice(&output[..written]),
            }
            match result {
                csv_core::ReadFieldResult::Field { record_end: true } => return Ok(FieldEnd::Record),
                csv_core::ReadFieldResult::Field { record_end: false } => return Ok(FieldEnd::Field),
                csv_core::ReadFieldResult::End => return Ok(FieldEnd::Input),
                csv_core::ReadFieldResult::InputEmpty | csv_core::ReadFieldResult::OutputFull => {}
            }
        }
    }

    fn fields(&self) -> impl Iterator<Item = Option<&[u8]>> {
        let mut begin = 0;
        self.fields.iter().map(move |(end, is_quoted)| {
            let field = &self.data[begin..*end];
            begin = *end;
            (*is_quoted || field != self.null).then_some(field)
        })
    }
}

/// Splits a line of PostgreSQL's text format into fields.
fn split(line: &[u8], layout: &Layout, fields: &mut Vec<Option<Vec<u8>>>) {
    fields.clear();
    let mut field = Vec::new();
    let mut begin = 0;
    let mut at = 0;
    let mut end = |field: &mut Vec<u8>, raw: &[u8]| {
        let value = std::mem::take(field);
        fields.push((raw != layout.null.as_bytes()).then_some(value));
    };
    while at < line.len() {
        match line[at] {
            byte if byte == layout.delimiter => {
                end(&mut field, &line[begin..at]);
                begin = at + 1;
            }
            b'\\' if at + 1 < line.len() => {
                at += 1 + unescape(&line[at + 1..], &mut field);
                continue;
            }
            byte => field.push(byte),
        }
        at += 1;
    }
    end(&mut field, &line[begin..]);
}

/// Decodes the escape sequence after a backslash; `rest` is not empty. Returns the number of bytes consumed.
fn unescape(rest: &[u8], field: &mut Vec<u8>) -> usize {
    let digits = |from: usize, most: usize, radix: u32| {
        let length =
            rest[from..].iter().take(most).take_while(|byte| char::from(**byte).is_digit(radix)).count();
        let text = std::str::from_utf8(&rest[from..from + length]).unwrap_or_default();
        (length, u32::from_str_radix(text, radix).unwrap_or_default() as u8)
    };
    let (length, byte) = match rest[0] {
        b'b' => (1, 8),
        b'f' => (1, 12),
        b'n' => (1, b'\n'),
        b'r' => (1, b'\r'),
        b't' => (1, b'\t'),
        b'v' => (1, 11),
        b'0'..=b'7' => digits(0, 3, 8),
        b'x' if rest.get(1).is_some_and(u8::is_ascii_hexdigit) => {
            let (length, byte) = digits(1, 2, 16);
            (length + 1, byte)
        }
        other => (1, other),
    };
    field.push(byte);
    length
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{AsArray, Int32Array};
    use datafusion::arrow::datatypes::{Field, Int32Type};

    use super::*;
    use harrier_functions::parse::datetime::DateOrder;
    use harrier_functions::parse::interval::IntervalStyle;

    fn reading(csv: bool, on_error: OnError) -> RowParser {
        let fields = vec![Field::new("a", DataType::Int32, true), Field::new("b", DataType::Utf8View, true)];
        let layout = Layout {
            csv,
            delimiter: if csv { b',' } else { b'\t' },
            quote: b'"',
            escape: b'"',
            null: if csv { String::new() } else { "\\N".to_string() },
            header: Header::Absent,
            intervals: IntervalStyle::default(),
            dates: DateOrder::DayFirst,
            short_booleans: true,
        };
        RowParser {
            schema: Arc::new(Schema::new(fields)),
            layout,
            on_error,
            reject_limit: None,
            table: "t".to_string(),
            file: None,
            skipped: Arc::default(),
        }
    }

    fn read(reading: &RowParser, text: &[u8]) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        reading.read_input(text, &mut |batch| {
            batches.push(batch);
            Ok(())
        })?;
        Ok(batches)
    }

    #[test]
    fn text_is_unescaped() {
        let batches =
            read(&reading(false, OnError::Stop), b"1\ta\\tb\\\\\n\\N\t\\N\n3\t\\x41\\101\\n\n\\.\n9\tx\n")
                .unwrap();
        let ints: &Int32Array = batches[0].column(0).as_primitive::<Int32Type>();
        assert_eq!(ints.iter().collect::<Vec<_>>(), [Some(1), None, Some(3)]);
        let texts = batches[0].column(1).as_string_view();
        assert_eq!(texts.iter().collect::<Vec<_>>(), [Some("a\tb\\"), None, Some("AA\n")]);
    }

    #[test]
    fn csv_has_quotes_and_nulls() {
        let batches = read(&reading(true, OnError::Stop), b"1,\"x\n\"\"y\"\"\"\n,\n").unwrap();
        let texts = batches[0].column(1).as_string_view();
        assert_eq!(texts.iter().collect::<Vec<_>>(), [Some("x\n\"y\""), None]);
        let batches = read(&reading(true, OnError::Stop), b"1,\"\"\r\n\n2,\r\n3,x").unwrap();
        let texts = batches[0].column(1).as_string_view();
        assert_eq!(texts.iter().collect::<Vec<_>>(), [Some(""), None, Some("x")]);
        // The last line may lack its line end.
        for (text, expected) in [
            (&b"1,\"x\""[..], Some("x")),
            (b"1,\"x\"\"\"", Some("x\"")),
            (b"1,", None),
            (b"1,\"\"\r", Some("")),
        ] {
            let batches = read(&reading(true, OnError::Stop), text).unwrap();
            let texts = batches[0].column(1).as_string_view();
            assert_eq!(texts.iter().collect::<Vec<_>>(), [expected]);
        }
    }

    #[test]
    fn errors_name_the_line() {
        for (text, state, detail) in [
            (&b"1,a\n2,\"b\n\"\nx,c\n"[..], "22P02", "line 4, column \"a\""),
            (b"1,a\n2,b,c\n", "22P04", "line 2"),
            (b"1,a\n2\n", "22P04", "line 2"),
            (b"1,a\n3000000000,b\n", "22003", "line 2, column \"a\""),
            (b"1,a\n1,\xff\n", "22021", "line 2, column \"b\""),
            (b"1,a\n2,\"b\n3,c\n", "22P04", "line 2"),
            (b"1,a\n2,\"", "22P04", "line 2"),
            (b"1,a\n2,\"b\"\"", "22P04", "line 2"),
        ] {
            let error = read(&reading(true, OnError::Stop), text).unwrap_err();
            let error = crate::error::sql_error(error);
            assert_eq!(error.sqlstate.as_str(), state, "{error:?}");
            assert!(error.detail.as_deref().is_some_and(|text| text.ends_with(detail)), "{error:?}");
        }
    }

    #[test]
    fn rows_are_left_out_and_counted() {
        let reading = reading(true, OnError::Ignore);
        let batches = read(&reading, b"1,a\nx,b\n3,c\ny,d\n").unwrap();
        assert_eq!(batches[0].num_rows(), 2);
        assert_eq!(reading.skipped.load(Ordering::Relaxed), 2);
    }
}
