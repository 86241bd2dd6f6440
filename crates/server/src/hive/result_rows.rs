//! The rows of an operation on their way to the client: streamed, from a buffer, or again from the beginning.

use std::collections::VecDeque;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::DataType;
use harrier_error::{SqlError, SqlState};
use tokio::sync::mpsc;

use crate::backend::BufferedRows;

/// Maximum bytes of a reply's rows, roughly: the last batch may go beyond.
const REPLY_BYTES: usize = 16 << 20;

/// Rows from the first one on are kept up to this size, for clients that go back to the beginning.
const REPLAY_BYTES_MAX: usize = 16 << 20;

/// Rows handed over by a statement.
pub(super) enum Part {
    Batch(RecordBatch),
    /// The rest.
    Buffer(Box<dyn BufferedRows>),
}

/// Where the client wants to read, `TFetchOrientation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Orientation {
    Next,
    First,
}

impl Orientation {
    /// Errors: backwards (HYC00 in Hive).
    pub fn of(number: i64) -> Result<Self, SqlError> {
        match number {
            0 => Ok(Self::Next),
            4 => Ok(Self::First),
            _ => Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "rows are fetched forwards, or from the first one again",
            )),
        }
    }
}

pub(super) struct ResultRows {
    /// Ends with the statement.
    source: mpsc::Receiver<Result<Part, SqlError>>,
    buffer: Option<(Box<dyn BufferedRows>, u64)>,
    /// To be sent before what the source has.
    pending: VecDeque<RecordBatch>,
    /// All that has been sent, as long as it is small.
    replay: Option<Vec<RecordBatch>>,
    replay_bytes: usize,
    /// Number of the next row.
    next: u64,
    failure: Option<SqlError>,
}

impl ResultRows {
    pub fn new(source: mpsc::Receiver<Result<Part, SqlError>>) -> Self {
        Self {
            source,
            buffer: None,
            pending: VecDeque::new(),
            replay: Some(Vec::new()),
            replay_bytes: 0,
            next: 0,
            failure: None,
        }
    }

    /// The next rows, at most `most` and a reply's size, and the number of the first; none at the end.
    ///
    /// Errors: those of the statement; the first rows are no longer there (0A000).
    pub async fn fetch(
        &mut self,
        orientation: Orientation,
        most: usize,
    ) -> Result<(u64, Vec<RecordBatch>), SqlError> {
        if orientation == Orientation::First {
            self.rewind()?;
        }
        let (start, mut rows, mut bytes) = (self.next, 0, 0);
        let mut batches = Vec::new();
        while rows < most && bytes < REPLY_BYTES {
            // What is there is sent; only for the first rows is there something to wait for.
            let batch = match self.pending.pop_front() {
                Some(batch) => batch,
                None if batches.is_empty() => match self.pull().await? {
                    Some(batch) => batch,
                    None => break,
                },
                None => match self.pull_ready().await? {
                    Some(batch) => batch,
                    None => break,
                },
            };
            let batch = self.cut(batch, most - rows, REPLY_BYTES - bytes);
            rows += batch.num_rows();
            let size = size_of_rows(&batch);
            bytes += size;
            self.keep(&batch, size);
            batches.push(batch);
        }
        self.next += rows as u64;
        Ok((start, batches))
    }

    /// Takes the first rows of a batch; the rest becomes pending.
    fn cut(&mut self, batch: RecordBatch, rows_max: usize, bytes_max: usize) -> RecordBatch {
        let bytes_of_row = (size_of_rows(&batch) / batch.num_rows().max(1)).max(1);
        let rows = rows_max.min((bytes_max / bytes_of_row).max(1));
        if batch.num_rows() <= rows {
            return batch;
        }
        self.pending.push_front(batch.slice(rows, batch.num_rows() - rows));
        batch.slice(0, rows)
    }

    fn keep(&mut self, batch: &RecordBatch, size: usize) {
        self.replay_bytes += size;
        if self.replay_bytes > REPLAY_BYTES_MAX {
            self.replay = None;
        }
        if let Some(kept) = &mut self.replay {
            kept.push(batch.clone());
        }
    }

    fn rewind(&mut self) -> Result<(), SqlError> {
        if self.next == 0 {
            return Ok(());
        }
        let Some(kept) = self.replay.replace(Vec::new()) else {
            self.replay = None;
            return Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "the first rows of a large result are no longer there",
            )
            .with_hint("Run the statement again."));
        };
        for batch in kept.into_iter().rev() {
            self.pending.push_front(batch);
        }
        (self.replay_bytes, self.next) = (0, 0);
        Ok(())
    }

    /// The next batch with rows; waits for it.
    async fn pull(&mut self) -> Result<Option<RecordBatch>, SqlError> {
        loop {
            if let Some(failure) = &self.failure {
                return Err(failure.clone());
            }
            if let Some((buffer, row)) = &mut self.buffer {
                if *row >= buffer.rows() {
                    return Ok(None);
                }
                let (first, batch) = buffer.batch(*row).await?;
                let batch = batch.slice((*row - first) as usize, batch.num_rows() - (*row - first) as usize);
                *row += batch.num_rows() as u64;
                return Ok(Some(batch));
            }
            let part = self.source.recv().await;
            match self.accept(part) {
                Some(Some(batch)) => return Ok(Some(batch)),
                Some(None) => return Ok(None),
                None => {}
            }
        }
    }

    /// The next batch, if there is one without waiting.
    async fn pull_ready(&mut self) -> Result<Option<RecordBatch>, SqlError> {
        if self.buffer.is_some() {
            return self.pull().await;
        }
        // An error is reported by the next fetch, after these rows.
        while let Ok(part) = self.source.try_recv() {
            match self.accept(Some(part)) {
                Some(batch) => return Ok(batch),
                None if self.buffer.is_some() => return self.pull().await,
                None if self.failure.is_some() => return Ok(None),
                None => {}
            }
        }
        Ok(None)
    }

    /// A batch to be sent, or the end; `None`: neither.
    fn accept(&mut self, part: Option<Result<Part, SqlError>>) -> Option<Option<RecordBatch>> {
        match part {
            None => Some(None),
            Some(Ok(Part::Batch(batch))) if batch.num_rows() == 0 => None,
            Some(Ok(Part::Batch(batch))) => Some(Some(batch)),
            Some(Ok(Part::Buffer(buffer))) => {
                self.buffer = Some((buffer, 0));
                None
            }
            Some(Err(failure)) => {
                self.failure = Some(failure);
                None
            }
        }
    }
}

/// Bytes of a batch's rows as they are sent, roughly: a slice may refer to much larger buffers, and a view to
/// text that it does not count.
pub(super) fn size_of_rows(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| size_of(column)).sum()
}

fn size_of(array: &dyn Array) -> usize {
    // A length or a value of a fixed width for each row.
    let own = 8 * array.len();
    let views = |views: &[u128]| views.iter().map(|view| *view as u32 as usize).sum::<usize>();
    let items = |values: &ArrayRef, first: usize, end: usize| size_of(&values.slice(first, end - first));
    own + match array.data_type() {
        DataType::Utf8View => views(array.as_string_view().views()),
        DataType::BinaryView => views(array.as_binary_view().views()),
        DataType::Dictionary(..) => {
            let values = array.as_any_dictionary().values();
            array.len() * (size_of(values) / values.len().max(1))
        }
        DataType::List(_) => {
            let offsets = array.as_list::<i32>().value_offsets();
            items(array.as_list::<i32>().values(), offsets[0] as usize, offsets[array.len()] as usize)
        }
        DataType::LargeList(_) => {
            let offsets = array.as_list::<i64>().value_offsets();
            items(array.as_list::<i64>().values(), offsets[0] as usize, offsets[array.len()] as usize)
        }
        DataType::Map(..) => {
            let (map, offsets) = (array.as_map(), array.as_map().value_offsets());
            let (first, end) = (offsets[0] as usize, offsets[array.len()] as usize);
            items(map.keys(), first, end) + items(map.values(), first, end)
        }
        DataType::Struct(_) => array.as_struct().columns().iter().map(|column| size_of(column)).sum(),
        _ => array.to_data().get_slice_memory_size().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int32Array, StringArray, StringViewArray};
    use arrow::datatypes::Int32Type;

    use super::*;

    fn batch(values: std::ops::Range<i32>) -> RecordBatch {
        let array = Arc::new(Int32Array::from_iter_values(values));
        RecordBatch::try_from_iter([("i", array as _)]).unwrap()
    }

    fn values(batches: &[RecordBatch]) -> Vec<i32> {
        batches.iter().flat_map(|it| it.column(0).as_primitive::<Int32Type>().values().to_vec()).collect()
    }

    async fn rows_of(parts: Vec<Result<Part, SqlError>>) -> ResultRows {
        let (sender, source) = mpsc::channel(parts.len().max(1));
        for part in parts {
            sender.send(part).await.unwrap();
        }
        ResultRows::new(source)
    }

    #[tokio::test]
    async fn rows_are_fetched_in_parts_and_again() {
        let parts =
            vec![Ok(Part::Batch(batch(0..3))), Ok(Part::Batch(batch(3..3))), Ok(Part::Batch(batch(3..7)))];
        let mut rows = rows_of(parts).await;
        let (start, first) = rows.fetch(Orientation::First, 2).await.unwrap();
        assert_eq!((start, values(&first)), (0, vec![0, 1]));
        let (start, second) = rows.fetch(Orientation::Next, 3).await.unwrap();
        assert_eq!((start, values(&second)), (2, vec![2, 3, 4]));
        let (start, again) = rows.fetch(Orientation::First, 100).await.unwrap();
        assert_eq!((start, values(&again)), (0, (0..7).collect::<Vec<_>>()));
        let (start, end) = rows.fetch(Orientation::Next, 100).await.unwrap();
        assert_eq!((start, values(&end)), (7, vec![]));
    }

    #[tokio::test]
    async fn an_error_comes_after_the_rows_before_it() {
        let failure = SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero");
        let mut rows = rows_of(vec![Ok(Part::Batch(batch(0..2))), Err(failure.clone())]).await;
        let (_, first) = rows.fetch(Orientation::Next, 100).await.unwrap();
        assert_eq!(values(&first), [0, 1]);
        for _ in 0..2 {
            assert_eq!(rows.fetch(Orientation::Next, 100).await.unwrap_err(), failure);
        }
    }

    #[tokio::test]
    async fn large_results_are_cut_by_size_and_not_kept() {
        let text = "x".repeat(1 << 20);
        let texts = StringArray::from_iter_values(std::iter::repeat_n(&text, 40));
        let views = StringViewArray::from_iter_values(std::iter::repeat_n(&text, 40));
        for column in [Arc::new(texts) as ArrayRef, Arc::new(views)] {
            check_large(RecordBatch::try_from_iter([("s", column)]).unwrap()).await;
        }
    }

    /// 40 rows of a MiB.
    async fn check_large(large: RecordBatch) {
        let mut rows = rows_of(vec![Ok(Part::Batch(large))]).await;
        let mut counts = Vec::new();
        loop {
            let (_, batches) = rows.fetch(Orientation::Next, 1_000_000).await.unwrap();
            match batches.iter().map(RecordBatch::num_rows).sum::<usize>() {
                0 => break,
                count => counts.push(count),
            }
        }
        assert_eq!(counts.iter().sum::<usize>(), 40);
        assert!(counts.iter().all(|count| *count <= 17), "{counts:?}");
        assert!(rows.fetch(Orientation::First, 1).await.is_err());
    }
}
