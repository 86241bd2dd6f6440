//! Verifies backups: reads every file and compares length and checksum.

use std::collections::BTreeMap;

use futures::StreamExt;

use crate::copy::{checksum_of, difference};
use crate::target::{FILES, Target};
use crate::{Error, FILES_AT_ONCE, Result, Stored};

/// The result of a check.
#[derive(Debug, Default)]
pub struct CheckReport {
    /// Ids of the backups that were checked.
    pub backups: Vec<String>,
    /// Number of files read, catalogs included.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Problems, one per file, with the backups that reference it.
    pub problems: Vec<String>,
}

/// Expected length and checksum of a file, with the backups that state them. More than one entry: the backups
/// disagree, and one is wrong.
type Expected = BTreeMap<(u64, String), Vec<String>>;

/// Checks one backup of a target, or all of them.
///
/// Errors: there are none; the target cannot be read. A damaged backup is a problem, not an error.
pub async fn check(target: &str, id: Option<&str>) -> Result<CheckReport> {
    let target = Target::open(target).await?;
    let ids = match id {
        None => target.ids().await?,
        // An unreadable backup is a problem; a backup that does not exist is an error.
        Some(id) => match target.manifest_or_newest(Some(id)).await {
            Err(error @ Error::Refused { .. }) => return Err(error),
            _ => vec![id.to_string()],
        },
    };
    let mut checked = CheckReport { backups: ids.clone(), ..CheckReport::default() };
    let mut files: BTreeMap<String, Expected> = BTreeMap::new();
    for id in ids {
        let manifest = match target.manifest(&id).await {
            Ok(manifest) => manifest,
            Err(error @ (Error::Damaged { .. } | Error::Missing { .. } | Error::Refused { .. })) => {
                checked.problems.push(format!("backup {id}: {error}"));
                continue;
            }
            Err(error) => return Err(error),
        };
        let stored = manifest.files.into_iter().map(|file| (format!("{FILES}{}", file.name), file));
        for (name, file) in stored.chain([(manifest.catalog.name.clone(), manifest.catalog)]) {
            files.entry(name).or_default().entry((file.bytes, file.sha256)).or_default().push(id.clone());
        }
    }
    let looks = files.iter().map(|(name, expected)| check_file(&target, name, expected));
    let mut looks = futures::stream::iter(looks).buffered(FILES_AT_ONCE);
    while let Some(looked) = looks.next().await {
        let (bytes, problems) = looked?;
        checked.files += 1;
        checked.bytes += bytes;
        checked.problems.extend(problems);
    }
    Ok(checked)
}

async fn check_file(target: &Target, name: &str, expected: &Expected) -> Result<(u64, Vec<String>)> {
    let shown = target.store.display_name(name);
    let found = match checksum_of(&target.store, name).await {
        Ok(found) => found,
        Err(Error::Missing { .. }) => {
            let of = expected.values().flatten().cloned().collect::<Vec<_>>().join(", ");
            return Ok((0, vec![format!("file \"{shown}\" is missing, of backup {of}")]));
        }
        Err(error) => return Err(error),
    };
    let problem = |((bytes, sha256), ids): (&(u64, String), &Vec<String>)| {
        let expected = Stored { name: name.to_string(), bytes: *bytes, sha256: sha256.clone() };
        let what = difference(&found, &expected)?;
        Some(format!("file \"{shown}\" {what}, of backup {}", ids.join(", ")))
    };
    Ok((found.bytes, expected.iter().filter_map(problem).collect()))
}
