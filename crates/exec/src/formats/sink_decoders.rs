//! Sinks of our own formats on ranks: made again from the bytes that [`OwnSink::encode`] gave.
//!
//! [`OwnSink::encode`]: crate::formats::format_adapter::OwnSink::encode

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::{Result, internal_datafusion_err};
use datafusion::datasource::physical_plan::FileSinkConfig;
use datafusion::datasource::sink::DataSink;
use parking_lot::RwLock;

use crate::formats::text_scan::json_sink;
use crate::formats::threaded_encoder::{self, Encoding};
use crate::formats::{avro, orc};

/// Makes a sink from the bytes of an [`EncodedSink`].
///
/// [`EncodedSink`]: crate::formats::format_adapter::EncodedSink
pub type SinkDecoder = fn(&[u8], FileSinkConfig) -> Result<Arc<dyn DataSink>>;

/// Decoders of the formats of other crates, by kind.
static DECODERS: RwLock<BTreeMap<&'static str, SinkDecoder>> = RwLock::new(BTreeMap::new());

/// Adds the decoder of a format of another crate. Call it before any plan is decoded.
pub fn register_sink(kind: &'static str, decoder: SinkDecoder) {
    DECODERS.write().insert(kind, decoder);
}

/// Errors: nobody has registered the format (XX000).
pub(crate) fn decode_sink(kind: &str, bytes: &[u8], config: FileSinkConfig) -> Result<Arc<dyn DataSink>> {
    let codec = || String::from_utf8_lossy(bytes);
    if kind == <orc::Codec as Encoding>::SINK {
        return threaded_encoder::sink(config, orc::Codec::of(&codec())?);
    }
    if kind == <avro::Codec as Encoding>::SINK {
        return threaded_encoder::sink(config, avro::Codec::of(&codec())?);
    }
    if kind == json_sink::NAME {
        return json_sink::decode_sink(bytes, config);
    }
    let decoder = DECODERS.read().get(kind).copied();
    decoder.ok_or_else(|| internal_datafusion_err!("no sink of format {kind}"))?(bytes, config)
}
