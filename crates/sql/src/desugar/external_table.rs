//! Compression option of CREATE EXTERNAL TABLE.

use datafusion::sql::parser::CreateExternalTable;

/// Internal option for compression inside of a file format, on its way through the planner.
pub const CODEC_OPTION: &str = "format.codec";

pub const COMPRESSION_OPTION: &str = "format.compression";

/// Renames the compression option of Parquet, ORC and Avro files in CREATE EXTERNAL TABLE. Under its own name
/// the planner would take it for the compression of whole files, know few codecs, and reject it.
pub fn rename_codec(create: &mut CreateExternalTable) {
    let formats = ["parquet", "orc", "avro"];
    if formats.iter().any(|format| create.file_type.eq_ignore_ascii_case(format)) {
        for (name, _) in &mut create.options {
            if ["compression", COMPRESSION_OPTION].iter().any(|own| name.eq_ignore_ascii_case(own)) {
                *name = CODEC_OPTION.to_string();
            }
        }
    }
}
