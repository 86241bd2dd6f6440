//! Scan of CSV files.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use datafusion::arrow::error::ArrowError;
use datafusion::common::config::CsvOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::listing::{FileRange, PartitionedFile};
use datafusion::datasource::physical_plan::{
    CsvSource, FileOpenFuture, FileOpener, FileScanConfig, FileSource,
};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_plan::DisplayFormatType;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt};

use super::csv_rows::{self, ReadOptions};
use super::one_file::InputFiles;
use super::quotes::{Quotes, SpecialBytes};
use super::row_starts::RowStarts;
use super::{compression_of, limit_line_length, unclosed_quote};
use crate::file_versions;
use crate::formats::compression;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// The most bytes after an unclosed quote before it is an error: the reader buffers them.
const QUOTED_BYTES_MAX: u64 = 256 << 20;

/// DataFusion's scan of CSV, split between rows. Its options are the format's, with session defaults.
#[derive(Clone)]
pub struct CsvScan {
    inner: Arc<dyn FileSource>,
    options: Arc<CsvOptions>,
    starts: Arc<RowStarts>,
    batch_rows: Option<usize>,
}

impl CsvScan {
    pub fn new(inner: CsvSource, options: CsvOptions) -> Self {
        let inner = Arc::new(inner.with_csv_options(options.clone()));
        Self { inner, options: Arc::new(options), starts: Arc::default(), batch_rows: None }
    }

    /// For a table with `schema`.
    pub fn of_table(schema: TableSchema, options: CsvOptions) -> Self {
        Self::new(CsvSource::new(schema), options)
    }

    pub fn options(&self) -> &CsvOptions {
        &self.options
    }

    fn rows(&self, has_header: bool) -> Result<ReadOptions<'_>> {
        let projection = self.inner.projection();
        Ok(ReadOptions {
            options: &self.options,
            schema: self.inner.table_schema().file_schema(),
            projection: projection.ok_or_else(|| internal_datafusion_err!("a scan of CSV has columns"))?,
            batch_rows: self.batch_rows,
            has_header,
        })
    }

    fn special_bytes(&self) -> SpecialBytes {
        let CsvOptions { delimiter, quote, escape, terminator, .. } = *self.options;
        SpecialBytes { delimiter, quote, escape, terminator }
    }

    fn with_inner(&self, inner: Arc<dyn FileSource>) -> Self {
        Self { inner, ..self.clone() }
    }
}

impl FileSource for CsvScan {
    fn create_file_opener(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        let scan = self.clone();
        let store = file_versions::pin_scan(store, config);
        let compression = config.file_compression_type;
        let mut config = config.clone();
        config.file_compression_type = FileCompressionType::UNCOMPRESSED;
        Ok(Arc::new(CsvOpener { scan, store, config, compression, partition }))
    }

    fn table_schema(&self) -> &TableSchema {
        self.inner.table_schema()
    }

    fn with_batch_size(&self, batch_rows: usize) -> Arc<dyn FileSource> {
        let inner = self.inner.with_batch_size(batch_rows);
        Arc::new(Self { batch_rows: Some(batch_rows), ..self.with_inner(inner) })
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        self.inner.projection()
    }

    fn try_pushdown_projection(&self, projection: &ProjectionExprs) -> Result<Option<Arc<dyn FileSource>>> {
        let inner = self.inner.try_pushdown_projection(projection)?;
        Ok(inner.map(|inner| Arc::new(self.with_inner(inner)) as _))
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        self.inner.metrics()
    }

    fn file_type(&self) -> &str {
        self.inner.file_type()
    }

    fn fmt_extra(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_extra(kind, f)
    }

    /// A line skipped as a comment may contain any quotes.
    fn supports_repartitioning(&self) -> bool {
        self.inner.supports_repartitioning() && self.options.comment.is_none()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.inner.apply_expressions(f)
    }
}

struct CsvOpener {
    scan: CsvScan,
    store: Arc<dyn ObjectStore>,
    /// For uncompressed files.
    config: FileScanConfig,
    compression: FileCompressionType,
    partition: usize,
}

impl FileOpener for CsvOpener {
    fn open(&self, file: PartitionedFile) -> Result<FileOpenFuture> {
        let (scan, store) = (self.scan.clone(), Arc::clone(&self.store));
        let (config, compression, partition) = (self.config.clone(), self.compression, self.partition);
        Ok(async move {
            let mut file = file;
            let meta = file.object_meta.clone();
            let compression = compression_of(compression, &meta);
            let range = file.range.take();
            // A compressed file cannot be split: its first range reads all of it.
            let range = match compression.is_compressed() {
                true if range.as_ref().is_some_and(|range| range.start > 0) => {
                    return Ok(futures::stream::empty().boxed());
                }
                true => None,
                false => range,
            };
            let (begin, end) = scan.part(&store, &meta, range).await?;
            if begin.offset() >= end {
                return Ok(futures::stream::empty().boxed());
            }
            let is_first = begin.offset() == 0;
            let first_line = begin.line();
            let told = move |error| with_line_of_file(own_error(error), first_line);
            let is_whole = is_first && end == meta.size;
            let options = GetOptions {
                range: (!is_whole).then(|| GetRange::Bounded(begin.offset()..end)),
                ..GetOptions::default()
            };
            let bytes = compression::pieces(store.get_opts(&meta.location, options).await?);
            let name = meta.location.filename().unwrap_or_default();
            let bytes = match compression.is_compressed() && scan.options.terminator.is_none() {
                true => limit_line_length(compression::decompress(bytes, compression, name), name),
                false => compression::decompress(bytes, compression, name),
            };
            let bytes = match scan.options.comment {
                None => check_quotes(bytes, begin, meta.clone(), scan.blank_row()),
                Some(_) => bytes,
            };
            let reading = scan.rows(is_first && scan.options.has_header.unwrap_or(true))?;
            if reading.is_own() {
                let batches = csv_rows::opener(reading, bytes)?.open(file)?.await?;
                return Ok(batches.map_err(told).boxed());
            }
            let one: Arc<dyn ObjectStore> = Arc::new(InputFiles::single(meta, bytes));
            let inner = match is_first {
                true => Arc::clone(&scan.inner),
                false => scan.without_header()?,
            };
            let batches = inner.create_file_opener(one, &config, partition)?.open(file)?.await?;
            Ok(batches.map_err(told).boxed())
        }
        .boxed())
    }
}

impl CsvScan {
    /// The range of rows to read of a file.
    async fn part(
        &self,
        store: &Arc<dyn ObjectStore>,
        file: &ObjectMeta,
        range: Option<FileRange>,
    ) -> Result<(Quotes, u64)> {
        let signs = self.special_bytes();
        let Some(FileRange { start, end }) = range else { return Ok((Quotes::new(signs), file.size)) };
        let place =
            |at: i64| u64::try_from(at).map_err(|_| internal_datafusion_err!("a range before a file"));
        let (start, end) = (place(start)?, place(end)?);
        let begin = self.starts.first(store, file, signs, start).await?;
        if end >= file.size || begin.offset() >= end {
            let end = if end >= file.size { file.size } else { begin.offset() };
            return Ok((begin, end));
        }
        let end = self.starts.first(store, file, signs, end).await?;
        Ok((begin, end.offset()))
    }

    /// The replacement of an empty line in a file with one column, where it is a row with NULL. The reader
    /// would skip it.
    fn blank_row(&self) -> Option<[u8; 2]> {
        let is_one = self.inner.table_schema().file_schema().fields().len() == 1;
        (is_one && self.options.terminator.is_none()).then_some([self.options.quote; 2])
    }

    fn without_header(&self) -> Result<Arc<dyn FileSource>> {
        let source = self.inner.downcast_ref::<CsvSource>();
        let source = source.ok_or_else(|| internal_datafusion_err!("a scan of CSV that is none"))?;
        let options = CsvOptions { has_header: Some(false), ..self.options.as_ref().clone() };
        Ok(Arc::new(source.clone().with_csv_options(options)))
    }
}

/// The input error behind a reader's error, if there is one.
fn own_error(error: DataFusionError) -> DataFusionError {
    let mut next: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(cause) = next {
        if let Some(coded) = cause.downcast_ref::<SqlError>() {
            return coded.clone().into_datafusion();
        }
        next = cause.source();
    }
    error
}

/// A reader's error about a value, with the line of the file: the reader counts rows from 0, in its part of
/// the file. Values of several lines are not counted as such.
fn with_line_of_file(error: DataFusionError, first_line: u64) -> DataFusionError {
    let in_file = |text: &str| -> Option<String> {
        const PLACE: &str = " at line ";
        let (before, rest) = text.rsplit_once(PLACE)?;
        let digits = rest.len() - rest.trim_start_matches(|digit: char| digit.is_ascii_digit()).len();
        let row: u64 = rest[..digits].parse().ok()?;
        Some(format!("{before}{PLACE}{}{}", first_line + row, &rest[digits..]))
    };
    match error {
        DataFusionError::External(error) => match error.downcast::<SqlError>() {
            Ok(error) => {
                let mut error = *error;
                error.detail = error.detail.map(|text| in_file(&text).unwrap_or(text));
                error.into_datafusion()
            }
            Err(error) => DataFusionError::External(error),
        },
        DataFusionError::ArrowError(error, backtrace) => {
            let error = match *error {
                ArrowError::ParseError(text) => ArrowError::ParseError(in_file(&text).unwrap_or(text)),
                ArrowError::CsvError(text) => ArrowError::CsvError(in_file(&text).unwrap_or(text)),
                other => other,
            };
            DataFusionError::ArrowError(Box::new(error), backtrace)
        }
        other => other,
    }
}

/// Passes bytes through, with an error at the end if a quote is open (22P04). `blank`: replaces empty lines.
fn check_quotes(
    bytes: BoxStream<'static, Result<Bytes>>,
    begin: Quotes,
    file: ObjectMeta,
    blank: Option<[u8; 2]>,
) -> BoxStream<'static, Result<Bytes>> {
    futures::stream::try_unfold((bytes, begin, true), move |(mut bytes, mut place, mut is_blank)| {
        let file = file.clone();
        async move {
            let piece = bytes.next().await.transpose()?;
            if place.open_bytes() > QUOTED_BYTES_MAX {
                let name = file.location.filename().unwrap_or_default();
                let message = format!("a value has more than {} MiB", QUOTED_BYTES_MAX >> 20);
                return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
                    .with_detail(format!("file \"{name}\", line {}", place.open_since().unwrap_or_default()))
                    .into_datafusion());
            }
            match (piece, blank) {
                (Some(piece), None) => {
                    place.consume(&piece);
                    Ok(Some((piece, (bytes, place, true))))
                }
                (Some(piece), Some(blank)) => {
                    let piece = fill_blank_rows(&piece, &mut place, &mut is_blank, blank);
                    Ok(Some((piece, (bytes, place, is_blank))))
                }
                (None, _) => match place.open_since() {
                    Some(line) => Err(unclosed_quote(&file, line)),
                    None => Ok(None),
                },
            }
        }
    })
    .boxed()
}

/// Inserts `blank` into empty lines of a piece. `is_blank`: the current row is empty so far.
fn fill_blank_rows(piece: &Bytes, place: &mut Quotes, is_blank: &mut bool, blank: [u8; 2]) -> Bytes {
    let mut filled = BytesMut::with_capacity(piece.len() + 2);
    let mut rest = &piece[..];
    while let Some(end) = place.consume_row(rest) {
        let row = &rest[..end];
        if *is_blank && matches!(row, b"\n" | b"\r\n") {
            filled.extend_from_slice(&blank);
        }
        filled.extend_from_slice(row);
        *is_blank = true;
        rest = &rest[end..];
    }
    *is_blank &= rest.iter().all(|byte| *byte == b'\r');
    filled.extend_from_slice(rest);
    filled.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_line_of_the_file() {
        let told = |text: &str, first| {
            let error = ArrowError::ParseError(text.to_string());
            with_line_of_file(DataFusionError::ArrowError(Box::new(error), None), first).to_string()
        };
        let text = "Error while parsing value 'x' as type 'Int64' for column 0 at line 3. Row data: '[x]'";
        assert!(told(text, 1).contains(" at line 4. Row data: '[x]'"));
        assert!(told(text, 1000).contains(" at line 1003. Row data: '[x]'"));
        assert!(told("Error parsing column 1 at line 0: no time", 7).ends_with(" at line 7: no time"));
        assert!(told("no place", 7).ends_with("no place"));
    }

    #[test]
    fn empty_lines_are_rows_of_one_column() {
        let signs = SpecialBytes { delimiter: b',', quote: b'"', escape: None, terminator: None };
        for (text, expected) in
            [("a\n\nb\n\n", "a\n\"\"\nb\n\"\"\n"), ("\n\"x\n\n\"\n", "\"\"\n\"x\n\n\"\n"), ("a\nb", "a\nb")]
        {
            for size in [1, 2, 100] {
                let (mut place, mut is_blank) = (Quotes::new(signs), true);
                let pieces = text.as_bytes().chunks(size);
                let filled: Vec<Bytes> = pieces
                    .map(|piece| {
                        fill_blank_rows(&Bytes::copy_from_slice(piece), &mut place, &mut is_blank, [b'"'; 2])
                    })
                    .collect();
                assert_eq!(String::from_utf8(filled.concat()).unwrap(), expected, "in pieces of {size}");
            }
        }
    }
}
