//! Aliases of a table partition's folder: other programs write `month=03` for `month=3`, `p=1.5` for
//! `p=1.500`, or percent-encode other characters than Harrier does.
//!
//! Rows of all these folders have equal keys, so INSERT OVERWRITE replaces all of them.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use futures::{FutureExt, StreamExt, TryStreamExt};
use harrier_committer::local::{Error, Result};
use harrier_committer::object_store::Root as StoreRoot;
use harrier_exec::data_files::NULL_FOLDER;

/// Maximum number of concurrent folder listings in a store.
const CONCURRENT_LISTINGS_MAX: usize = 16;

/// Table partitions that a statement replaces, by their key values.
#[derive(Debug)]
pub(super) struct ReplacedPartitions {
    keys: Vec<(String, DataType)>,
    /// Relative to the table's folder, without a trailing `/`.
    folders: HashSet<String>,
    /// Values of all keys, and of each prefix of the keys.
    values: HashSet<Vec<ScalarValue>>,
}

impl ReplacedPartitions {
    /// The partitions in `folders`, which have canonical names: `k=v/…`.
    pub(super) fn of<'a>(keys: &[(String, DataType)], folders: impl Iterator<Item = &'a str>) -> Self {
        let mut replaced =
            Self { keys: keys.to_vec(), folders: HashSet::new(), values: HashSet::from([vec![]]) };
        for folder in folders.map(|folder| folder.trim_end_matches('/')) {
            if !replaced.folders.insert(folder.to_string()) {
                continue;
            }
            let mut values = Vec::with_capacity(keys.len());
            for (part, (key, kind)) in folder.split('/').zip(keys) {
                let Some(value) = value_of(part, key, kind) else { break };
                values.push(normalize(value));
                if !replaced.values.contains(&values) {
                    replaced.values.insert(values.clone());
                }
            }
        }
        replaced
    }

    /// The key values of a folder `name` below one with the values `above`, if a replaced partition has them.
    fn values_below(&self, above: &[ScalarValue], name: &str) -> Option<Vec<ScalarValue>> {
        let (key, kind) = self.keys.get(above.len())?;
        let mut values = above.to_vec();
        values.push(normalize(value_of(name, key, kind)?));
        self.values.contains(&values).then_some(values)
    }

    /// Finds other folders of the same table partitions in the local folder `root`. Blocks.
    pub(super) fn find_aliases(&self, root: &Path) -> Result<Vec<String>> {
        let mut others = Vec::new();
        let mut real: HashSet<PathBuf> =
            self.folders.iter().filter_map(|folder| fs::canonicalize(root.join(folder)).ok()).collect();
        let mut above = vec![(String::new(), vec![])];
        while let Some((folder, values)) = above.pop() {
            let path = root.join(&folder);
            let failed = |error| Error::Io { doing: "list", path: path.clone(), error };
            let entries = match fs::read_dir(&path) {
                Ok(entries) => entries,
                Err(error) if is_no_folder(&error) => continue,
                Err(error) => return Err(failed(error)),
            };
            for entry in entries {
                let name = entry.map_err(failed)?.file_name();
                let Some(name) = name.to_str() else { continue };
                let Some(values) = self.values_below(&values, name) else { continue };
                let below = join(&folder, name);
                if values.len() < self.keys.len() {
                    above.push((below, values));
                } else if !self.folders.contains(&below) {
                    // A link may point to one of the other folders, which is exchanged only once.
                    match fs::canonicalize(root.join(&below)) {
                        Ok(end) if end.is_dir() && !real.contains(&end) => {
                            real.insert(end);
                            others.push(below);
                        }
                        Ok(_) => {}
                        Err(error) if is_no_folder(&error) => {}
                        Err(error) => return Err(failed(error)),
                    }
                }
            }
        }
        others.sort();
        Ok(others)
    }

    /// The same for a folder in a store.
    pub(super) async fn find_aliases_in_store(
        &self,
        root: &StoreRoot,
    ) -> harrier_committer::object_store::Result<Vec<String>> {
        let mut others = Vec::new();
        let mut above = vec![(String::new(), vec![])];
        while !above.is_empty() {
            let listed: Vec<_> = std::mem::take(&mut above)
                .into_iter()
                .map(|(folder, values)| {
                    async move {
                        let names = root.folders_in(&folder).await;
                        names.map(|names| (folder, values, names))
                    }
                    .boxed()
                })
                .collect();
            let listed: Vec<(String, Vec<ScalarValue>, Vec<String>)> =
                futures::stream::iter(listed).buffer_unordered(CONCURRENT_LISTINGS_MAX).try_collect().await?;
            for (folder, values, names) in listed {
                for name in names {
                    let Some(values) = self.values_below(&values, &name) else { continue };
                    let below = join(&folder, &name);
                    if values.len() < self.keys.len() {
                        above.push((below, values));
                    } else if !self.folders.contains(&below) {
                        others.push(below);
                    }
                }
            }
        }
        others.sort();
        Ok(others)
    }
}

/// The value of `key` that readers parse from a folder's name; `None` if they fail or skip the folder.
pub(super) fn value_of(part: &str, key: &str, kind: &DataType) -> Option<ScalarValue> {
    let kind = match kind {
        DataType::Dictionary(_, value) => value.as_ref(),
        kind => kind,
    };
    let (_, text) = part.split_once('=').filter(|(name, _)| *name == key)?;
    if text == NULL_FOLDER {
        return ScalarValue::try_from(kind).ok();
    }
    // Readers take an invalid UTF-8 encoding literally.
    let text = percent_decode(text).unwrap_or_else(|| text.to_string());
    ScalarValue::try_from_string(text, kind).ok()
}

/// Normalizes values that are equal in SQL to the same value.
fn normalize(value: ScalarValue) -> ScalarValue {
    match value {
        ScalarValue::Float32(Some(value)) if value.is_nan() => ScalarValue::Float32(Some(f32::NAN)),
        ScalarValue::Float64(Some(value)) if value.is_nan() => ScalarValue::Float64(Some(f64::NAN)),
        // Turns -0 into 0.
        ScalarValue::Float32(Some(value)) => ScalarValue::Float32(Some(value + 0.0)),
        ScalarValue::Float64(Some(value)) => ScalarValue::Float64(Some(value + 0.0)),
        other => other,
    }
}

/// Decodes percent-encoding; `None` if the result is not UTF-8.
fn percent_decode(text: &str) -> Option<String> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        match (byte, digit(after.first()), digit(after.get(1))) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

fn join(folder: &str, name: &str) -> String {
    match folder {
        "" => name.to_string(),
        folder => format!("{folder}/{name}"),
    }
}

fn is_no_folder(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_equal_keys_are_found() {
        let root = tempfile::tempdir().unwrap();
        let keys = [("y".to_string(), DataType::Int32), ("p".to_string(), DataType::Utf8)];
        let folders = [
            "y=2020/p=a%3Ab",
            "y=2020/p=a:b",
            "y=2020/p=a%3ab",
            "y=2020/p=b",
            "y=02020/p=a:b",
            "y=2021/p=a:b",
            "y=x/p=a:b",
            "y=2020/q=a:b",
            "y=2020/p=__HIVE_DEFAULT_PARTITION__",
        ];
        for folder in folders {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        fs::write(root.path().join("y=2020/p=a%3aB"), "").unwrap();
        // Exchanged once, by its own name.
        std::os::unix::fs::symlink("p=a:b", root.path().join("y=2020/p=%61:b")).unwrap();
        let others =
            |own: &str| ReplacedPartitions::of(&keys, [own].into_iter()).find_aliases(root.path()).unwrap();
        assert_eq!(others("y=2020/p=b/"), [""; 0]);
        assert_eq!(others("y=2020/p=__HIVE_DEFAULT_PARTITION__"), [""; 0]);
        let found = others("y=2020/p=a:b/");
        assert_eq!(found, ["y=02020/p=a:b", "y=2020/p=a%3Ab", "y=2020/p=a%3ab"]);
        assert_eq!(others("y=2030/p=a:b"), [""; 0]);
    }

    #[test]
    fn names_stand_for_values() {
        let same = |one: &str, other: &str, kind: &DataType| {
            let value = |part| value_of(part, "p", kind).map(normalize);
            value(one).is_some() && value(one) == value(other)
        };
        for (one, other, kind, expected) in [
            ("p=3", "p=03", DataType::Int32, true),
            ("p=3", "p=4", DataType::Int32, false),
            ("p=3", "p=03", DataType::Utf8, false),
            ("p=1.500", "p=1.5", DataType::Decimal128(10, 3), true),
            ("p=0.0", "p=-0.0", DataType::Float64, true),
            ("p=1e300", "p=1E300", DataType::Float64, true),
            ("p=2024-01-01", "p=2024-01-02", DataType::Date32, false),
            ("p=a%3Ab", "p=a:b", DataType::Utf8View, true),
            ("p=%zz", "p=%25zz", DataType::Utf8, true),
            ("p=", "p=__HIVE_DEFAULT_PARTITION__", DataType::Utf8, false),
            ("p=x", "p=x", DataType::Int32, false),
        ] {
            assert_eq!(same(one, other, &kind), expected, "{one} {other} {kind}");
        }
    }
}
