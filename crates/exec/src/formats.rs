//! External file formats: Parquet, ORC, Avro, Arrow, CSV, JSON and text, read and written.

pub mod arrow_ipc;
pub mod atomic_sinks;
pub mod avro;
pub mod compression;
pub mod damaged_files;
pub mod delimited;
pub mod distinct_names;
pub mod format_adapter;
pub mod interval_encoding;
pub(crate) mod merged_schemas;
pub(crate) mod nested_types;
pub mod orc;
pub mod parquet_scan;
pub mod sink_decoders;
pub mod staged_files;
pub mod text_scan;
pub(crate) mod threaded_encoder;
