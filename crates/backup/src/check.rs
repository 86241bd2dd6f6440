//! Every file of backups is read and compared with what was written.

use std::collections::BTreeMap;

use futures::StreamExt;

use crate::copying::{difference, look};
use crate::target::{FILES, Target};
use crate::{Error, FILES_AT_ONCE, Result, Stored};

/// What was found.
#[derive(Debug, Default)]
pub struct Checked {
    /// The backups that were checked.
    pub backups: Vec<String>,
    /// Files that were read, catalogs too.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// What is wrong, a file each, with the backups that have it.
    pub problems: Vec<String>,
}

/// A file, with what it should be by some backups. More than one: backups disagree, and one of them is wrong.
type Expected = BTreeMap<(u64, String), Vec<String>>;

/// Checks one backup of a target, or all of them.
///
/// Errors: there are none; the target cannot be read. What is wrong with what is there is no error, but a
/// problem.
pub async fn check(target: &str, id: Option<&str>) -> Result<Checked> {
    let target = Target::open(target).await?;
    let ids = match id {
        None => target.ids().await?,
        // One that cannot be read is a problem, and one that nobody has made an error.
        Some(id) => match target.wanted(Some(id)).await {
            Err(error @ Error::Refused { .. }) => return Err(error),
            _ => vec![id.to_string()],
        },
    };
    let mut checked = Checked { backups: ids.clone(), ..Checked::default() };
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
    let looks = files.iter().map(|(name, expected)| one(&target, name, expected));
    let mut looks = futures::stream::iter(looks).buffered(FILES_AT_ONCE);
    while let Some(looked) = looks.next().await {
        let (bytes, problems) = looked?;
        checked.files += 1;
        checked.bytes += bytes;
        checked.problems.extend(problems);
    }
    Ok(checked)
}

async fn one(target: &Target, name: &str, expected: &Expected) -> Result<(u64, Vec<String>)> {
    let shown = target.store.shown(name);
    let found = match look(&target.store, name).await {
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
