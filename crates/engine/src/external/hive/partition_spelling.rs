//! Folders of one table partition that have different names: others write `month=03` where `month=3` is
//! meant, `p=1.5` for `p=1.500`, and encode what Harrier does not, or not in the same way.
//!
//! Rows of all of them have the same keys, so that an INSERT OVERWRITE takes the place of all of them.

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

/// Folders of a store that are listed at the same time.
const LISTED_MAX: usize = 16;

/// Table partitions that a statement replaces, by the values of their keys.
#[derive(Debug)]
pub(super) struct Replaced {
    keys: Vec<(String, DataType)>,
    /// Below the table's folder, without a `/` at their ends.
    folders: HashSet<String>,
    /// Of their keys, and of the first of their keys.
    values: HashSet<Vec<ScalarValue>>,
}

impl Replaced {
    /// Those in `folders`, which are named as Harrier does: `k=v/…`.
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
                values.push(plain(value));
                if !replaced.values.contains(&values) {
                    replaced.values.insert(values.clone());
                }
            }
        }
        replaced
    }

    /// The values in a folder's name, which is below one with `above`, if a table partition that is replaced
    /// has them.
    fn values_below(&self, above: &[ScalarValue], name: &str) -> Option<Vec<ScalarValue>> {
        let (key, kind) = self.keys.get(above.len())?;
        let mut values = above.to_vec();
        values.push(plain(value_of(name, key, kind)?));
        self.values.contains(&values).then_some(values)
    }

    /// Other folders of the same table partitions in the local folder `root`. Blocks.
    pub(super) fn others(&self, root: &Path) -> Result<Vec<String>> {
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
                    // A link may have one of the others for its end: that is exchanged once.
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

    /// The same, of a folder in a store.
    pub(super) async fn others_in_store(
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
                futures::stream::iter(listed).buffer_unordered(LISTED_MAX).try_collect().await?;
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

/// The value of `key` that readers make of a folder's name; `None`: none, and they fail or pass over it.
pub(super) fn value_of(part: &str, key: &str, kind: &DataType) -> Option<ScalarValue> {
    let kind = match kind {
        DataType::Dictionary(_, value) => value.as_ref(),
        kind => kind,
    };
    let (_, text) = part.split_once('=').filter(|(name, _)| *name == key)?;
    if text == NULL_FOLDER {
        return ScalarValue::try_from(kind).ok();
    }
    // Readers take what is no UTF-8 as it is.
    let text = decoded(text).unwrap_or_else(|| text.to_string());
    ScalarValue::try_from_string(text, kind).ok()
}

/// Values that SQL holds for equal have equal ones.
fn plain(value: ScalarValue) -> ScalarValue {
    match value {
        ScalarValue::Float32(Some(value)) if value.is_nan() => ScalarValue::Float32(Some(f32::NAN)),
        ScalarValue::Float64(Some(value)) if value.is_nan() => ScalarValue::Float64(Some(f64::NAN)),
        // Less than nothing is nothing.
        ScalarValue::Float32(Some(value)) => ScalarValue::Float32(Some(value + 0.0)),
        ScalarValue::Float64(Some(value)) => ScalarValue::Float64(Some(value + 0.0)),
        other => other,
    }
}

/// A text without its percent-encoding, where there is any; `None`: it is no UTF-8 then.
fn decoded(text: &str) -> Option<String> {
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
        let others = |own: &str| Replaced::of(&keys, [own].into_iter()).others(root.path()).unwrap();
        assert_eq!(others("y=2020/p=b/"), [""; 0]);
        assert_eq!(others("y=2020/p=__HIVE_DEFAULT_PARTITION__"), [""; 0]);
        let found = others("y=2020/p=a:b/");
        assert_eq!(found, ["y=02020/p=a:b", "y=2020/p=a%3Ab", "y=2020/p=a%3ab"]);
        assert_eq!(others("y=2030/p=a:b"), [""; 0]);
    }

    #[test]
    fn names_stand_for_values() {
        let same = |one: &str, other: &str, kind: &DataType| {
            let value = |part| value_of(part, "p", kind).map(plain);
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
