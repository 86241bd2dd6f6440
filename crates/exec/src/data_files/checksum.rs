//! Whole-file checksums of Parquet files, stored in the footer, and their verification.
//!
//! Parquet's page checksums are known to the library's reader alone, and not in its build here.

use std::mem;

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::object_store::ObjectStore;
use datafusion::object_store::ObjectStoreExt;
use datafusion::object_store::path::Path;
use datafusion::parquet::arrow::arrow_writer::ArrowWriterOptions;
use datafusion::parquet::arrow::async_writer::AsyncFileWriter;
use datafusion::parquet::errors::Result as ParquetResult;
use datafusion::parquet::file::metadata::{KeyValue, ParquetMetaData};

use super::row_groups::RowGroups;

/// Footer key. Its value is `bytes:sum`: the length of the prefix, and its CRC-32 in hexadecimal.
const KEY: &str = "harrier.crc32";

/// Bytes read at a time.
const PIECE_BYTES: u64 = 4 << 20;

/// An incremental CRC-32.
#[derive(Default)]
struct RunningChecksum {
    bytes: u64,
    crc: crc32fast::Hasher,
}

impl RunningChecksum {
    fn update(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.crc.update(bytes);
    }

    fn text(self) -> String {
        format!("{}:{:08x}", self.bytes, self.crc.finalize())
    }
}

/// A Parquet writer whose bytes are sent on after every row group.
pub(super) struct ParquetWriter<S> {
    rows: RowGroups,
    sink: S,
    /// `None`: the file gets no checksum.
    sum: Option<RunningChecksum>,
}

impl<S: AsyncFileWriter> ParquetWriter<S> {
    pub(super) fn try_new(
        sink: S,
        schema: SchemaRef,
        options: ArrowWriterOptions,
        has_sum: bool,
    ) -> ParquetResult<Self> {
        let rows = RowGroups::try_new(schema, options)?;
        Ok(Self { rows, sink, sum: has_sum.then(RunningChecksum::default) })
    }

    /// Bytes in memory.
    pub(super) fn memory_size(&self) -> usize {
        self.rows.memory_size()
    }

    /// Bytes still to be written.
    pub(super) fn in_progress_size(&self) -> usize {
        self.rows.in_progress_size()
    }

    pub(super) async fn write(&mut self, batch: &RecordBatch) -> ParquetResult<()> {
        match self.rows.write(batch)? {
            true => self.hand_on().await,
            false => Ok(()),
        }
    }

    /// Completes the row group.
    pub(super) async fn flush(&mut self) -> ParquetResult<()> {
        self.rows.flush()?;
        self.hand_on().await
    }

    /// Completes the file; returns its footer, with the bounds omitted in the file.
    pub(super) async fn close(mut self) -> ParquetResult<ParquetMetaData> {
        self.rows.flush()?;
        self.hand_on().await?;
        if let Some(sum) = self.sum.take() {
            self.rows.append_key_value_metadata(KeyValue::new(KEY.to_string(), sum.text()));
        }
        let footer = self.rows.finish()?;
        self.hand_on().await?;
        self.sink.complete().await?;
        Ok(footer)
    }

    async fn hand_on(&mut self) -> ParquetResult<()> {
        let bytes = Bytes::from(mem::take(self.rows.bytes_mut()));
        if let Some(sum) = &mut self.sum {
            sum.update(&bytes);
        }
        self.sink.write(bytes).await
    }
}

/// Verifies a file of `size` bytes against the checksum in its footer; `None` if it has none. Reads the whole
/// file.
pub async fn is_intact(
    footer: &ParquetMetaData,
    store: &dyn ObjectStore,
    path: &Path,
    size: u64,
) -> Result<Option<bool>> {
    let told = footer.file_metadata().key_value_metadata().into_iter().flatten();
    let Some(told) = told.filter(|told| told.key == KEY).find_map(|told| told.value.as_deref()) else {
        return Ok(None);
    };
    let bytes = told.split_once(':').and_then(|(bytes, _)| bytes.parse::<u64>().ok());
    let Some(bytes) = bytes.filter(|bytes| *bytes <= size) else {
        return Ok(Some(false));
    };
    let mut sum = RunningChecksum::default();
    while sum.bytes < bytes {
        let end = bytes.min(sum.bytes + PIECE_BYTES);
        sum.update(&store.get_range(path, sum.bytes..end).await?);
    }
    Ok(Some(sum.text() == told))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, Int64Array};
    use datafusion::object_store::memory::InMemory;
    use datafusion::parquet::file::metadata::ParquetMetaDataReader;

    use super::*;

    /// With one row group or several; the checksum covers the bytes of all.
    #[tokio::test]
    async fn checksums_detect_a_changed_byte() {
        for (rows, has_sum) in [(10, true), (100_000, true), (10, false)] {
            let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
            let batch = RecordBatch::try_from_iter([("v", values)]).unwrap();
            let mut file = Vec::new();
            let options = ArrowWriterOptions::new();
            let mut writer = ParquetWriter::try_new(&mut file, batch.schema(), options, has_sum).unwrap();
            writer.write(&batch).await.unwrap();
            writer.flush().await.unwrap();
            writer.write(&batch).await.unwrap();
            let footer = writer.close().await.unwrap();
            let groups = footer.row_groups();
            assert_eq!(groups.len(), 2);
            let (start, length) = groups[1].column(0).byte_range();
            for at in [None, Some(4), Some(start + length - 1)] {
                let mut changed = file.clone();
                if let Some(at) = at {
                    changed[at as usize] ^= 1;
                }
                let changed = Bytes::from(changed);
                let footer = ParquetMetaDataReader::new().parse_and_finish(&changed).unwrap();
                let (store, path, size) = (InMemory::new(), Path::from("x"), changed.len() as u64);
                store.put(&path, changed.into()).await.unwrap();
                let intact = is_intact(&footer, &store, &path, size).await.unwrap();
                assert_eq!(intact, has_sum.then_some(at.is_none()), "{rows} rows, byte {at:?}");
            }
        }
    }
}
