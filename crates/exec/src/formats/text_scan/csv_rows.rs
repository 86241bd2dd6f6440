//! CSV rows with a NULL pattern (`null_regex`), and rows with floats. DataFusion applies the pattern when it
//! infers types, but not when it reads rows. It reads a float out of range as infinity or zero; here floats
//! are read as texts, and are numbers of their type or an error.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::{AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::csv::ReaderBuilder;
use datafusion::arrow::datatypes::{DataType, FieldRef, Fields, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::common::config::CsvOptions;
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::datasource::file_format::csv::CsvDecoder;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileOpenFuture, FileOpener};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion_datasource::decoder::{DecoderDeserializer, deserialize_stream};
use datafusion_datasource::projection::{ProjectionOpener, SplitProjection};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use harrier_error::{SqlError, SqlState};
use harrier_functions::parse::float;
use harrier_sqlstate::IntoDataFusionError;
use parking_lot::Mutex;
use regex::Regex;

/// Default rows per batch.
const BATCH_ROWS: usize = 8192;

/// Read options of a file.
#[derive(Clone, Copy)]
pub(super) struct ReadOptions<'a> {
    pub(super) options: &'a CsvOptions,
    /// The file's columns, without partition columns.
    pub(super) schema: &'a SchemaRef,
    pub(super) projection: &'a ProjectionExprs,
    pub(super) batch_rows: Option<usize>,
    /// Whether the bytes begin with a header.
    pub(super) has_header: bool,
}

impl ReadOptions<'_> {
    /// Whether [`opener`] reads the rows, and not DataFusion's.
    pub(super) fn is_own(&self) -> bool {
        let columns = SplitProjection::new(self.schema, self.projection).file_indices;
        self.null_pattern().is_some()
            || columns.into_iter().any(|column| self.schema.field(column).data_type().is_floating())
    }

    fn null_pattern(&self) -> Option<&str> {
        self.options.null_regex.as_deref().filter(|pattern| !pattern.is_empty())
    }
}

/// Opens one file with this content, once.
///
/// Errors: the NULL pattern is not a valid regular expression (2201B).
pub(super) fn opener(
    reading: ReadOptions<'_>,
    bytes: BoxStream<'static, Result<Bytes>>,
) -> Result<Arc<dyn FileOpener>> {
    let ReadOptions { options, schema, projection, batch_rows, has_header } = reading;
    let projection = SplitProjection::new(schema, projection);
    let as_text = |field: &FieldRef| match field.data_type().is_floating() {
        true => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8)),
        false => Arc::clone(field),
    };
    let texts = Schema::new(schema.fields().iter().map(as_text).collect::<Fields>());
    let mut builder = ReaderBuilder::new(Arc::new(texts))
        .with_delimiter(options.delimiter)
        .with_quote(options.quote)
        .with_header(has_header)
        .with_truncated_rows(options.truncated_rows.unwrap_or(false))
        .with_batch_size(batch_rows.unwrap_or(BATCH_ROWS))
        .with_projection(projection.file_indices.clone());
    if let Some(terminator) = options.terminator {
        builder = builder.with_terminator(terminator);
    }
    if let Some(escape) = options.escape {
        builder = builder.with_escape(escape);
    }
    if let Some(comment) = options.comment {
        builder = builder.with_comment(comment);
    }
    if let Some(pattern) = reading.null_pattern() {
        // Empty values are NULL regardless of the pattern.
        let pattern = Regex::new(&format!("^$|(?:{pattern})")).map_err(|error| {
            let message = format!("null_regex: {error}");
            SqlError::new(SqlState::INVALID_REGULAR_EXPRESSION, message).into_datafusion()
        })?;
        builder = builder.with_null_regex(pattern);
    }
    let floats = Floats {
        schema: Arc::new(schema.project(&projection.file_indices)?),
        columns: projection.file_indices.clone(),
        line: u64::from(has_header),
    };
    let rows = Rows(Mutex::new(Some((builder, floats, bytes))));
    ProjectionOpener::try_new(projection, Arc::new(rows), schema)
}

/// The reader and its input.
struct Rows(Mutex<Option<(ReaderBuilder, Floats, BoxStream<'static, Result<Bytes>>)>>);

impl FileOpener for Rows {
    fn open(&self, _: PartitionedFile) -> Result<FileOpenFuture> {
        let Some((builder, mut floats, bytes)) = self.0.lock().take() else {
            return internal_err!("a part of a CSV file is read once");
        };
        let decoder = builder.build_decoder();
        Ok(async move {
            let batches =
                deserialize_stream(bytes.fuse(), DecoderDeserializer::new(CsvDecoder::new(decoder)));
            let batches = batches.map(move |batch| floats.convert(batch.map_err(DataFusionError::from)?));
            Ok(batches.boxed())
        }
        .boxed())
    }
}

/// The conversion of texts to floats.
struct Floats {
    /// The columns that are read.
    schema: SchemaRef,
    /// Their numbers in the file.
    columns: Vec<usize>,
    /// Rows so far, with the header.
    line: u64,
}

impl Floats {
    /// Errors: a text is no number (22P02), or none that its type has (22003).
    fn convert(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let mut columns = batch.columns().to_vec();
        let fields = self.schema.fields().iter().zip(&self.columns);
        for (column, (field, number)) in columns.iter_mut().zip(fields) {
            let kind = field.data_type();
            if kind.is_floating() {
                let texts = column.as_string::<i32>();
                *column = float::parse(texts, kind).map_err(|misfit| {
                    let line = self.line + misfit.row as u64;
                    let text = texts.value(misfit.row);
                    if misfit.is_out_of_range {
                        let detail = format!("column {number} at line {line}");
                        return float::out_of_range(text, kind).with_detail(detail).into_datafusion();
                    }
                    // Arrow's words for all other types.
                    ArrowError::ParseError(format!(
                        "Error while parsing value '{text}' as type '{kind}' for column {number} \
                         at line {line}"
                    ))
                    .into()
                })?;
            }
        }
        self.line += batch.num_rows() as u64;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}
