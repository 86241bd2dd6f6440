//! The sink of JSON files: lines with one object each, in which no number is lost
//! ([`harrier_functions::json::floats`]).

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::parsers::CompressionTypeVariant;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::datasource::file_format::write::BatchSerializer;
use datafusion::datasource::file_format::write::demux::DemuxedStreamReceiver;
use datafusion::datasource::file_format::write::orchestration::spawn_writer_tasks_and_join;
use datafusion::datasource::physical_plan::FileSinkConfig;
use datafusion::datasource::sink::DataSink;
use datafusion::execution::TaskContext;
use datafusion::object_store::ObjectStore;
use futures::FutureExt;
use futures::future::BoxFuture;
use harrier_functions::json::floats::json_lines;

use crate::formats::format_adapter::{EncodedSink, FilesSink, OwnSink};

/// The sink's name, in plans and for ranks.
pub(crate) const NAME: &str = "JsonSink";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JsonFiles {
    pub compression: CompressionTypeVariant,
    pub level: Option<u32>,
}

impl JsonFiles {
    /// `GZIP 6` or `UNCOMPRESSED`.
    fn to_text(self) -> String {
        match self.level {
            Some(level) => format!("{} {level}", self.compression),
            None => self.compression.to_string(),
        }
    }

    fn of_text(text: &str) -> Result<Self> {
        let (name, level) = match text.split_once(' ') {
            Some((name, level)) => (name, Some(level)),
            None => (text, None),
        };
        let level = level.map(str::parse).transpose();
        let level = level.map_err(|_| internal_datafusion_err!("a sink of JSON files with \"{text}\""))?;
        Ok(Self { compression: name.parse()?, level })
    }
}

impl fmt::Display for JsonFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)
    }
}

impl OwnSink for JsonFiles {
    fn encode(&self) -> Option<EncodedSink> {
        Some(EncodedSink { kind: NAME, bytes: self.to_text().into_bytes() })
    }

    fn write<'a>(
        &'a self,
        context: &'a Arc<TaskContext>,
        demux: SpawnedTask<Result<()>>,
        files: DemuxedStreamReceiver,
        store: Arc<dyn ObjectStore>,
    ) -> BoxFuture<'a, Result<u64>> {
        let compression = self.compression.into();
        let rows = Arc::new(JsonRows);
        spawn_writer_tasks_and_join(context, rows, compression, self.level, store, demux, files).boxed()
    }
}

/// Makes the sink again on a rank.
pub(crate) fn decode_sink(bytes: &[u8], config: FileSinkConfig) -> Result<Arc<dyn DataSink>> {
    Ok(Arc::new(FilesSink::new(config, JsonFiles::of_text(&String::from_utf8_lossy(bytes))?)))
}

/// Serializes rows as JSON, one object in a line.
pub(crate) struct JsonRows;

impl BatchSerializer for JsonRows {
    fn serialize(&self, batch: RecordBatch, _: bool) -> Result<Bytes> {
        Ok(json_lines(&batch)?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sinks_are_made_again() {
        for (compression, level) in [
            (CompressionTypeVariant::UNCOMPRESSED, None),
            (CompressionTypeVariant::GZIP, Some(6)),
            (CompressionTypeVariant::ZSTD, None),
        ] {
            let sink = JsonFiles { compression, level };
            assert_eq!(JsonFiles::of_text(&sink.to_text()).unwrap(), sink);
        }
        assert!(JsonFiles::of_text("GZIP many").is_err());
    }
}
