//! The option of an external table that says how its files are compressed.

use datafusion::sql::parser::CreateExternalTable;

/// How files are compressed that are not so as a whole, on its way through the planner.
pub const CODEC_OPTION: &str = "format.codec";

pub const COMPRESSION_OPTION: &str = "format.compression";

/// Gives the compression of Parquet, ORC and Avro files another name in CREATE EXTERNAL TABLE. By its own the
/// planner takes it for that of whole files, knows few codecs, and refuses it.
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
