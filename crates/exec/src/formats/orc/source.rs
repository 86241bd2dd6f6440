//! Scan of ORC files.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileOpenFuture, FileOpener};
use datafusion::object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryFutureExt};
use orc_rust::ArrowReaderBuilder;
use orc_rust::projection::ProjectionMask;
use orc_rust::reader::AsyncChunkReader;
use orc_rust::schema::TimestampPrecision;

use super::{exact, explain, explain_rows, footer};
use crate::formats::damaged_files;
use crate::formats::format_adapter::OwnScan;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

const EXACT: CastOptions<'static> =
    CastOptions { safe: false, format_options: datafusion::arrow::util::display::FormatOptions::new() };

/// Stable versions of the format, and the empty one of files without a version. The next version is not
/// stable yet.
const VERSIONS: [&str; 3] = ["", "0.11", "0.12"];

/// Bytes at the end of a file that are read first, as the library does.
const TAIL_BYTES: u64 = 16 * 1024;

/// The opener of ORC files: reads the stripes in the requested range.
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
    /// The table's columns without partition columns.
    file_schema: SchemaRef,
    /// The projected columns.
    columns: Vec<usize>,
}

impl FileOpener for OrcOpener {
    fn open(&self, file: PartitionedFile) -> Result<FileOpenFuture> {
        let store = Arc::clone(&self.store);
        let batch_rows = self.batch_rows;
        let file_schema = Arc::clone(&self.file_schema);
        let columns = self.columns.clone();
        Ok(async move {
            let (builder, wide) = open_wide(store, file.object_meta.clone()).await?;
            let root = builder.file_metadata().root_data_type();
            let names: Vec<&str> = root.children().iter().map(|column| column.name()).collect();
            // The index of each projected column in the file.
            let places: Vec<Option<usize>> =
                columns.iter().map(|column| place(*column, &file_schema, &names)).collect();
            let mut read: Vec<usize> = places.iter().flatten().copied().collect();
            // Rows are counted by reading a column.
            if read.is_empty() && !names.is_empty() {
                read.push(0);
            }
            let read_names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            let mask = ProjectionMask::roots(
                root,
                read.iter().map(|at| root.children()[*at].data_type().column_index()),
            );
            let told = builder.with_projection(mask.clone()).schema();
            let mut reader = wide.with_batch_size(batch_rows).with_projection(mask);
            if let Some(range) = &file.range {
                reader = reader.with_file_byte_range(range.start as usize..range.end as usize);
            }
            let read = exact::schema(&reader.schema());
            let batches = reader.with_schema(read).build_async();
            let wanted: SchemaRef = Arc::new(file_schema.project(&columns)?);
            let batches = batches
                .map(move |batch| {
                    let batch = exact::narrow_batch(&batch.map_err(explain_rows)?, &told)?;
                    shape(&batch, &wanted, &places, &read_names)
                })
                .boxed();
            let name = file.object_meta.location.filename().unwrap_or_default().to_string();
            Ok(damaged_files::stream(name, batches))
        }
        .boxed())
    }
}

/// The index of column `at` of a table in a file with columns `names`.
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

/// Maps the columns read to those of `wanted`; missing ones are NULL.
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
///
/// Errors: it is damaged (XX001), or of an unsupported version, or its rows are no structs (0A000).
pub(super) async fn open(
    store: Arc<dyn ObjectStore>,
    file: ObjectMeta,
) -> Result<ArrowReaderBuilder<Chunks>> {
    open_chunks(&Chunks::new(store, file).await?).await
}

/// Returns two forms: with the types of the file, and with 64-bit integers, for reading its rows.
async fn open_wide(
    store: Arc<dyn ObjectStore>,
    file: ObjectMeta,
) -> Result<(ArrowReaderBuilder<Chunks>, ArrowReaderBuilder<Chunks>)> {
    let chunks = Chunks::new(store, file).await?;
    let builder = open_chunks(&chunks).await?;
    let tail = footer::widen_integers(&chunks.tail, builder.file_metadata().compression());
    let wide = open_chunks(&Chunks { tail: tail.unwrap_or_else(|| chunks.tail.clone()), ..chunks }).await?;
    Ok((builder, wide))
}

async fn open_chunks(chunks: &Chunks) -> Result<ArrowReaderBuilder<Chunks>> {
    let name = chunks.file.location.filename().unwrap_or_default().to_string();
    let opening = ArrowReaderBuilder::try_new_async(chunks.clone()).map_err(explain);
    let builder = damaged_files::open(&name, opening).await.map_err(|error| match is_of_root(&error) {
        true => SqlError::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            "ORC files whose rows are no structs are not supported",
        )
        .into_datafusion(),
        false => error,
    })?;
    let version = builder.file_metadata().file_format_version().to_string();
    if !VERSIONS.contains(&version.as_str()) {
        let message = format!("ORC files of version {version} are not supported");
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
    }
    Ok(builder.with_timestamp_precision(TimestampPrecision::Microsecond))
}

/// Whether an error is the library's assertion that rows are structs, which the format does not require.
fn is_of_root(error: &DataFusionError) -> bool {
    let DataFusionError::External(source) = error else { return false };
    let detail = source.downcast_ref::<SqlError>().and_then(|error| error.detail.as_deref());
    detail.is_some_and(|detail| detail.contains("Kind::Struct"))
}

/// The library's view of a file: bytes from `start` on are replaced by `tail`.
#[derive(Clone)]
pub(super) struct Chunks {
    store: Arc<dyn ObjectStore>,
    file: ObjectMeta,
    start: u64,
    tail: Bytes,
}

impl Chunks {
    /// Reads the metadata at the end of a file, with a second request if it is long.
    async fn new(store: Arc<dyn ObjectStore>, file: ObjectMeta) -> Result<Self> {
        let read = |start: u64| {
            let (store, file) = (&store, &file);
            async move {
                match start == file.size {
                    // Stores reject empty ranges.
                    true => Ok(Bytes::new()),
                    false => store.get_range(&file.location, start..file.size).await,
                }
            }
        };
        let mut start = file.size.saturating_sub(TAIL_BYTES);
        let mut tail = read(start).await?;
        if let Some(length) = footer::length(&tail).filter(|length| *length > file.size - start)
            && length <= file.size
        {
            start = file.size - length;
            tail = read(start).await?;
        }
        Ok(Self { store, file, start, tail })
    }
}

impl AsyncChunkReader for Chunks {
    fn len(&mut self) -> BoxFuture<'_, std::io::Result<u64>> {
        futures::future::ready(Ok(self.start + self.tail.len() as u64)).boxed()
    }

    fn get_bytes(&mut self, offset: u64, length: u64) -> BoxFuture<'_, std::io::Result<Bytes>> {
        async move {
            let end = offset.checked_add(length).ok_or(std::io::ErrorKind::UnexpectedEof)?;
            // Stores reject empty ranges, which streams of empty texts have.
            if length == 0 {
                return Ok(Bytes::new());
            }
            let stored = match offset < self.start {
                true => {
                    let range = offset..end.min(self.start);
                    self.store.get_range(&self.file.location, range).await.map_err(std::io::Error::from)?
                }
                false => Bytes::new(),
            };
            if end <= self.start {
                return Ok(stored);
            }
            let within = (offset.max(self.start) - self.start) as usize..(end - self.start) as usize;
            if within.end > self.tail.len() {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let tail = self.tail.slice(within);
            match stored.is_empty() {
                true => Ok(tail),
                false => Ok([stored, tail].concat().into()),
            }
        }
        .boxed()
    }
}
