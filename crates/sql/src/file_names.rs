//! Table names in FROM that denote files.

/// Format options: names and values.
pub type FormatOptions = &'static [(&'static str, &'static str)];

/// File name extension, DataFusion's format name, and the options that the extension implies.
pub const EXTENSIONS: &[(&str, &str, FormatOptions)] = &[
    ("parquet", "parquet", &[]),
    ("csv", "csv", &[]),
    ("tsv", "csv", &[("format.delimiter", "\t")]),
    ("json", "json", &[]),
    ("jsonl", "json", &[]),
    ("ndjson", "json", &[]),
    ("orc", "orc", &[]),
    ("avro", "avro", &[]),
    ("arrow", "arrow", &[]),
    ("feather", "arrow", &[]),
    ("ipc", "arrow", &[]),
    (STREAM, "arrow", &[]),
];

/// Extension of Arrow's streams, which are read, and not written.
pub const STREAM: &str = "arrows";

pub const COMPRESSIONS: &[&str] = &["gz", "bz2", "xz", "zst"];

/// Whether files with this extension can be queried by name.
pub fn is_file_extension(extension: &str) -> bool {
    EXTENSIONS.iter().any(|(known, ..)| extension.eq_ignore_ascii_case(known))
}

/// Whether an unquoted or double-quoted name denotes a file.
pub fn looks_like_file(name: &str) -> bool {
    if name.contains('/') || has_wildcard(name) {
        return true;
    }
    let (stem, extension) = match name.rsplit_once('.') {
        Some((rest, last)) if is_compression(last) => match rest.rsplit_once('.') {
            Some(parts) => parts,
            None => return false,
        },
        Some(parts) => parts,
        None => return false,
    };
    !stem.is_empty() && is_file_extension(extension)
}

/// Prefixes a single-quoted file name so that [`looks_like_file`] recognizes it; `None` if it does already.
pub fn quoted_file_name(name: &str) -> Option<String> {
    (!looks_like_file(name)).then(|| format!("./{name}"))
}

pub fn is_compression(extension: &str) -> bool {
    COMPRESSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known))
}

pub fn has_wildcard(name: &str) -> bool {
    name.contains(['*', '?', '['])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_recognized() {
        for (name, expected) in [
            ("lineitem", false),
            ("a.b", false),
            ("data.parquet", true),
            ("data.PARQUET", true),
            ("data.csv.gz", true),
            ("data.gz", false),
            (".parquet", false),
            ("folder/", true),
            ("./lineitem", true),
            ("*.x", true),
            ("s3://bucket/x", true),
        ] {
            assert_eq!(looks_like_file(name), expected, "{name}");
        }
        assert_eq!(quoted_file_name("data"), Some("./data".to_string()));
        assert_eq!(quoted_file_name("data.csv"), None);
    }
}
