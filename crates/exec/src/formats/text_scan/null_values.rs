//! CSV rows with a NULL pattern (`null_regex`). DataFusion applies the pattern when it infers types, but not
//! when it reads rows.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::csv::ReaderBuilder;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::config::CsvOptions;
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::datasource::file_format::csv::CsvDecoder;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileOpenFuture, FileOpener};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion_datasource::decoder::{DecoderDeserializer, deserialize_stream};
use datafusion_datasource::projection::{ProjectionOpener, SplitProjection};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;
use parking_lot::Mutex;
use regex::Regex;

/// Default rows per batch.
const BATCH_ROWS: usize = 8192;

/// Read options of a file.
pub(super) struct ReadOptions<'a> {
    pub(super) options: &'a CsvOptions,
    /// The file's columns, without partition columns.
    pub(super) schema: &'a SchemaRef,
    pub(super) projection: &'a ProjectionExprs,
    pub(super) batch_rows: Option<usize>,
    /// Whether the bytes begin with a header.
    pub(super) has_header: bool,
}

/// Opens one file with this content, once.
///
/// Errors: the pattern is not a valid regular expression (2201B).
pub(super) fn opener(
    reading: ReadOptions<'_>,
    pattern: &str,
    bytes: BoxStream<'static, Result<Bytes>>,
) -> Result<Arc<dyn FileOpener>> {
    let ReadOptions { options, schema, projection, batch_rows, has_header } = reading;
    // Empty values are NULL regardless of the pattern.
    let pattern = Regex::new(&format!("^$|(?:{pattern})")).map_err(|error| {
        SqlError::new(SqlState::INVALID_REGULAR_EXPRESSION, format!("null_regex: {error}")).into_datafusion()
    })?;
    let projection = SplitProjection::new(schema, projection);
    let mut builder = ReaderBuilder::new(Arc::clone(schema))
        .with_null_regex(pattern)
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
    let rows = Rows(Mutex::new(Some((builder, bytes))));
    ProjectionOpener::try_new(projection, Arc::new(rows), schema)
}

/// The reader and its input.
struct Rows(Mutex<Option<(ReaderBuilder, BoxStream<'static, Result<Bytes>>)>>);

impl FileOpener for Rows {
    fn open(&self, _: PartitionedFile) -> Result<FileOpenFuture> {
        let Some((builder, bytes)) = self.0.lock().take() else {
            return internal_err!("a part of a CSV file is read once");
        };
        let decoder = builder.build_decoder();
        Ok(async move {
            let batches =
                deserialize_stream(bytes.fuse(), DecoderDeserializer::new(CsvDecoder::new(decoder)));
            Ok(batches.map_err(DataFusionError::from).boxed())
        }
        .boxed())
    }
}
