//! Buffered result rows with random access, for scrollable cursors.
//!
//! # Memory bound
//! The statement's memory limit, reserved before use. Above it the rows spill to disk, in chunks of about
//! [`CHUNK_BYTES`], which are read back one at a time.
//!
//! # Errors
//! Neither memory nor disk is left (53200, 53100, 53400).

use std::io::{BufWriter, Cursor, Write};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::error::Result;
use datafusion::execution::disk_manager::DiskManager;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SpillFile, TaskContext};
use futures::TryStreamExt;

use crate::SqlError;
use crate::session::Session;

/// Approximate size of a spill file. Each stays open, so there should be few.
const CHUNK_BYTES: usize = 16 << 20;

/// The rows in their original order.
pub struct ScrollableRows {
    reservation: MemoryReservation,
    disks: Arc<DiskManager>,
    chunks: Vec<Chunk>,
    rows: usize,
    /// Index and rows of the chunk that was read back.
    read_chunk: Option<(usize, Vec<RecordBatch>)>,
}

struct Chunk {
    /// Number of its first row.
    first: usize,
    /// Reserved memory.
    bytes: usize,
    place: Place,
}

enum Place {
    Memory(Vec<RecordBatch>),
    Disk(Arc<dyn SpillFile>),
}

impl Session {
    /// A buffer for the rows of the last executed statement, within its limits.
    ///
    /// Errors: the task context cannot be created.
    pub fn scrollable_rows(&self) -> Result<ScrollableRows, SqlError> {
        let context = self.task_ctx(&self.context().state());
        let context = context.map_err(|error| crate::error::in_statement(&error, ""))?;
        Ok(ScrollableRows::new(&context))
    }
}

impl ScrollableRows {
    /// An empty buffer within a statement's limits.
    fn new(context: &TaskContext) -> Self {
        Self {
            reservation: MemoryConsumer::new("rows of a cursor").register(context.memory_pool()),
            disks: Arc::clone(&context.runtime_env().disk_manager),
            chunks: vec![],
            rows: 0,
            read_chunk: None,
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Appends rows.
    pub fn push(&mut self, batch: RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let bytes = batch.get_array_memory_size();
        self.reserve(bytes)?;
        let (first, rows) = (self.rows, batch.num_rows());
        match self.chunks.last_mut() {
            Some(Chunk { bytes: before, place: Place::Memory(batches), .. }) if *before < CHUNK_BYTES => {
                *before += bytes;
                batches.push(batch);
            }
            _ => self.chunks.push(Chunk { first, bytes, place: Place::Memory(vec![batch]) }),
        }
        self.rows += rows;
        Ok(())
    }

    /// The batch that contains row `row`, and the number of its first row.
    pub async fn batch(&mut self, row: usize) -> Result<(usize, RecordBatch)> {
        let at = self.chunks.partition_point(|chunk| chunk.first <= row).saturating_sub(1);
        let Some(Chunk { first, bytes, place }) = self.chunks.get(at) else {
            return datafusion::common::internal_err!("row {row} of none");
        };
        let (first, bytes) = (*first, *bytes);
        let batches = match place {
            Place::Memory(batches) => batches,
            Place::Disk(file) => {
                if self.read_chunk.as_ref().is_none_or(|(known, _)| *known != at) {
                    let file = Arc::clone(file);
                    self.evict_chunk();
                    self.reserve(bytes)?;
                    match read_spill_file(&*file).await {
                        Ok(batches) => self.read_chunk = Some((at, batches)),
                        Err(error) => {
                            self.reservation.shrink(bytes);
                            return Err(error);
                        }
                    }
                }
                self.read_chunk.as_ref().map_or(&[] as &[RecordBatch], |(_, batches)| batches)
            }
        };
        let mut begin = first;
        for batch in batches {
            if row < begin + batch.num_rows() {
                return Ok((begin, batch.clone()));
            }
            begin += batch.num_rows();
        }
        datafusion::common::internal_err!("row {row} of {}", self.rows)
    }

    fn evict_chunk(&mut self) {
        if let Some((at, _)) = self.read_chunk.take() {
            self.reservation.shrink(self.chunks[at].bytes);
        }
    }

    /// Reserves memory, and spills rows to disk if necessary.
    fn reserve(&mut self, bytes: usize) -> Result<()> {
        if self.reservation.try_grow(bytes).is_ok() {
            return Ok(());
        }
        self.evict_chunk();
        for chunk in &mut self.chunks {
            let Place::Memory(batches) = &chunk.place else { continue };
            chunk.place = Place::Disk(write_spill_file(&self.disks, batches)?);
            self.reservation.shrink(chunk.bytes);
        }
        self.reservation.try_grow(bytes)
    }
}

fn write_spill_file(disks: &Arc<DiskManager>, batches: &[RecordBatch]) -> Result<Arc<dyn SpillFile>> {
    let file = disks.create_tmp_file("rows of a cursor")?;
    if let Some(first) = batches.first() {
        let mut writer = StreamWriter::try_new(BufWriter::new(file.open_writer()?), &first.schema())?;
        for batch in batches {
            writer.write(batch)?;
        }
        writer.finish()?;
        let mut inner = writer.into_inner()?;
        inner.flush()?;
        inner.into_inner().map_err(std::io::IntoInnerError::into_error)?.finish()?;
    }
    Ok(file)
}

async fn read_spill_file(file: &dyn SpillFile) -> Result<Vec<RecordBatch>> {
    let mut bytes = Vec::with_capacity(file.size().unwrap_or(0) as usize);
    let mut parts = file.read_stream()?;
    while let Some(part) = parts.try_next().await? {
        bytes.extend_from_slice(&part);
    }
    Ok(StreamReader::try_new(Cursor::new(bytes), None)?.collect::<std::result::Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{AsArray, Int64Array, StringViewArray};
    use datafusion::arrow::datatypes::Int64Type;
    use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use harrier_error::SqlState;

    use super::*;

    const ROWS: usize = 1000;

    fn batch(first: usize) -> RecordBatch {
        let numbers = Int64Array::from_iter_values((first..first + ROWS).map(|row| row as i64));
        let texts = StringViewArray::from_iter_values((first..first + ROWS).map(|row| format!("{row:050}")));
        RecordBatch::try_from_iter([("n", Arc::new(numbers) as _), ("t", Arc::new(texts) as _)]).unwrap()
    }

    fn within(batches: usize, mode: DiskManagerMode) -> ScrollableRows {
        let pool = GreedyMemoryPool::new(batches * batch(0).get_array_memory_size());
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(pool))
            .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(mode))
            .build_arc()
            .unwrap();
        ScrollableRows::new(&TaskContext::default().with_runtime(runtime))
    }

    #[tokio::test]
    async fn cursors_scroll_in_memory_and_on_disk() {
        for (batches, on_disk) in [(40, false), (5, true)] {
            let mut buffer = within(batches, DiskManagerMode::OsTmpDirectory);
            for at in 0..20 {
                buffer.push(batch(at * ROWS)).unwrap();
            }
            let disk = |chunk: &Chunk| matches!(chunk.place, Place::Disk(_));
            assert_eq!(buffer.chunks.iter().any(disk), on_disk);
            assert_eq!(buffer.rows(), 20 * ROWS);
            for row in [0, 19_999, 7, 10_000, 9_999, 12_345, 12_346, 999, 1000] {
                let (first, batch) = buffer.batch(row).await.unwrap();
                assert_eq!(batch.column(0).as_primitive::<Int64Type>().value(row - first), row as i64);
                assert_eq!(batch.column(1).as_string_view().value(row - first), format!("{row:050}"));
            }
            assert!(buffer.batch(20 * ROWS).await.is_err());
            buffer.push(batch(20 * ROWS)).unwrap();
            assert_eq!(buffer.batch(20 * ROWS + 5).await.unwrap().0, 20 * ROWS);
        }
    }

    #[tokio::test]
    async fn scrolling_without_memory_and_disk_fails() {
        let mut buffer = within(2, DiskManagerMode::Disabled);
        buffer.push(batch(0)).unwrap();
        buffer.push(batch(ROWS)).unwrap();
        let error = buffer.push(batch(2 * ROWS)).unwrap_err();
        assert_eq!(harrier_sqlstate::of(&error), SqlState::OUT_OF_MEMORY);
        // The rows pushed before remain.
        assert_eq!(buffer.rows(), 2 * ROWS);
        assert_eq!(buffer.batch(ROWS).await.unwrap().0, ROWS);
    }
}
