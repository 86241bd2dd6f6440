//! The scan of ORC files.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileOpenFuture, FileOpener};
use datafusion::object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryFutureExt};
use orc_rust::ArrowReaderBuilder;
use orc_rust::projection::ProjectionMask;
use orc_rust::reader::AsyncChunkReader;
use orc_rust::schema::TimestampPrecision;

use super::{explain, explain_rows, times};
use crate::damaged;
use crate::file_formats::OwnScan;
use crate::sqlstate::{CodedError, SqlState};

const EXACT: CastOptions<'static> =
    CastOptions { safe: false, format_options: datafusion::arrow::util::display::FormatOptions::new() };

/// Versions of the format that are settled, and that of files which say none. What writers of the next one make is not settled yet.
const VERSIONS: [&str; 3] = ["", "0.11", "0.12"];

/// How ORC files are opened: at those of their stripes that are asked for.
#[derive(Debug, Clone, Copy)]
pub struct Stripes;

impl OwnScan for Stripes {
    const NAME: &'static str = "orc";
    const CUTS_FILES: bool = true;

    fn opener(
        &self,
        store: Arc<dyn ObjectStore>,
        file_schema: &SchemaRef,
        columns: &[usize],
        batch_rows: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        let (file_schema, columns) = (Arc::clone(file_schema), columns.to_vec());
        Ok(Arc::new(OrcOpener { store, batch_rows, file_schema, columns }))
    }
}

struct OrcOpener {
    store: Arc<dyn ObjectStore>,
    batch_rows: usize,
    /// Of the table, without its partition columns.
    file_schema: SchemaRef,
    /// Those of them that are read.
    columns: Vec<usize>,
}

impl FileOpener for OrcOpener {
    fn open(&self, file: PartitionedFile) -> Result<FileOpenFuture> {
        let store = Arc::clone(&self.store);
        let batch_rows = self.batch_rows;
        let file_schema = Arc::clone(&self.file_schema);
        let columns = self.columns.clone();
        Ok(async move {
            let mut builder = open(store, file.object_meta.clone()).await?;
            let root = builder.file_metadata().root_data_type();
            let names: Vec<&str> = root.children().iter().map(|column| column.name()).collect();
            // Where each column that is read is in the file.
            let places: Vec<Option<usize>> =
                columns.iter().map(|column| place(*column, &file_schema, &names)).collect();
            let mut read: Vec<usize> = places.iter().flatten().copied().collect();
            // Rows are counted by a column.
            if read.is_empty() && !names.is_empty() {
                read.push(0);
            }
            let read_names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            let mask = ProjectionMask::roots(
                root,
                read.iter().map(|at| root.children()[*at].data_type().column_index()),
            );
            if let Some(range) = &file.range {
                builder = builder.with_file_byte_range(range.start as usize..range.end as usize);
            }
            let builder = builder.with_batch_size(batch_rows).with_projection(mask);
            let told = builder.schema();
            let batches = builder.with_schema(times::exact(&told)).build_async();
            let wanted: SchemaRef = Arc::new(file_schema.project(&columns)?);
            let batches = batches
                .map(move |batch| {
                    let batch = times::in_batch(&batch.map_err(explain_rows)?, &told)?;
                    shape(&batch, &wanted, &places, &read_names)
                })
                .boxed();
            let name = file.object_meta.location.filename().unwrap_or_default().to_string();
            Ok(damaged::stream(name, batches))
        }
        .boxed())
    }
}

/// Where column `at` of a table is in a file with columns `names`.
fn place(at: usize, schema: &SchemaRef, names: &[&str]) -> Option<usize> {
    let is_unnamed =
        |name: &&str| name.strip_prefix("_col").is_some_and(|number| number.parse::<usize>().is_ok());
    let name = schema.field(at).name();
    let exact = names.iter().position(|own| own == name);
    exact.or_else(|| names.iter().position(|own| own.eq_ignore_ascii_case(name))).or_else(|| {
        let by_place = names.iter().all(is_unnamed) && at < names.len();
        by_place.then_some(at)
    })
}

/// What was read, as the columns of `wanted`; those that the file has not are NULL.
fn shape(
    batch: &RecordBatch,
    wanted: &SchemaRef,
    places: &[Option<usize>],
    names: &[String],
) -> Result<RecordBatch> {
    let columns: Vec<ArrayRef> = wanted
        .fields()
        .iter()
        .zip(places)
        .map(|(field, place)| match place.and_then(|place| batch.column_by_name(&names[place])) {
            Some(column) => Ok(cast_with_options(column, field.data_type(), &EXACT)?),
            None => Ok(new_null_array(field.data_type(), batch.num_rows())),
        })
        .collect::<Result<_>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(wanted), columns, &options)?)
}

/// Reads the footer of a file.
pub(super) async fn open(
    store: Arc<dyn ObjectStore>,
    file: ObjectMeta,
) -> Result<ArrowReaderBuilder<Chunks>> {
    let name = file.location.filename().unwrap_or_default().to_string();
    let opening = ArrowReaderBuilder::try_new_async(Chunks { store, file }).map_err(explain);
    let builder = damaged::opened(&name, opening).await?;
    let version = builder.file_metadata().file_format_version().to_string();
    if !VERSIONS.contains(&version.as_str()) {
        let message = format!("ORC files of version {version} are not supported");
        return Err(CodedError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into());
    }
    Ok(builder.with_timestamp_precision(TimestampPrecision::Microsecond))
}

/// A file, as the library reads it.
pub(super) struct Chunks {
    store: Arc<dyn ObjectStore>,
    file: ObjectMeta,
}

impl AsyncChunkReader for Chunks {
    fn len(&mut self) -> BoxFuture<'_, std::io::Result<u64>> {
        futures::future::ready(Ok(self.file.size)).boxed()
    }

    fn get_bytes(&mut self, offset: u64, length: u64) -> BoxFuture<'_, std::io::Result<Bytes>> {
        // Stores refuse to be asked for nothing, which streams of empty texts have.
        if length == 0 {
            return async { Ok(Bytes::new()) }.boxed();
        }
        let range = offset..offset + length;
        async move { self.store.get_range(&self.file.location, range).await.map_err(std::io::Error::from) }
            .boxed()
    }
}
