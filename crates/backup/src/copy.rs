//! Reads files with checksums, and copies them.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::manifest::hex;
use crate::store::{Reader, Store, local};
use crate::{Error, Result, Stored};

/// How a file differs from its manifest entry; `None`: it does not.
pub(crate) fn difference(found: &Stored, expected: &Stored) -> Option<String> {
    if found.bytes != expected.bytes {
        return Some(format!("has {} bytes instead of {}", found.bytes, expected.bytes));
    }
    (found.sha256 != expected.sha256)
        .then(|| "does not have the checksum that it was written with".to_string())
}

/// Reads a file to its end and passes the chunks to `each`.
pub(crate) async fn read_with_checksum(
    mut reader: Reader,
    name: &str,
    mut each: impl AsyncFnMut(bytes::Bytes) -> Result<()>,
) -> Result<Stored> {
    let (mut sum, mut bytes) = (Sha256::new(), 0);
    while let Some(part) = reader.next().await? {
        sum.update(&part);
        bytes += part.len() as u64;
        each(part).await?;
    }
    Ok(Stored { name: name.to_string(), bytes, sha256: hex(&sum.finalize()) })
}

/// Computes the length and checksum of a file.
pub(crate) async fn checksum_of(store: &Store, name: &str) -> Result<Stored> {
    read_with_checksum(store.reader(name).await?, name, async |_| Ok(())).await
}

/// Copies a file to `name` if `accept` returns `None`; otherwise `accept` describes the damage. `source`: the
/// origin, for errors.
///
/// Errors: it is damaged; it cannot be written.
pub(crate) async fn copy(
    reader: Reader,
    source: &str,
    to: &Store,
    name: &str,
    accept: impl FnOnce(&Stored) -> Option<String>,
) -> Result<Stored> {
    let mut writer = to.writer(name).await?;
    let copied = read_with_checksum(reader, name, async |part| writer.write(part).await).await;
    let checked = copied.and_then(|stored| match accept(&stored) {
        None => Ok(stored),
        Some(what) => Err(Error::damage(source, what)),
    });
    match checked {
        Ok(stored) => writer.finish().await.map(|()| stored),
        Err(error) => {
            writer.abort().await;
            Err(error)
        }
    }
}

/// Files at absolute paths and URLs.
#[derive(Default)]
pub(crate) struct Sources(BTreeMap<String, Store>);

impl Sources {
    /// Opens the stores of these locations.
    pub fn of<'a>(locations: impl Iterator<Item = &'a str>) -> Result<Self> {
        let mut stores = BTreeMap::new();
        for location in locations {
            let (root, _) = split(location);
            if !stores.contains_key(&root) {
                stores.insert(root.clone(), Store::open(&root)?);
            }
        }
        Ok(Self(stores))
    }

    /// Errors: it is missing.
    pub async fn reader(&self, location: &str) -> Result<Reader> {
        let (root, name) = split(location);
        match self.0.get(&root) {
            Some(store) => store.reader(&name).await.map_err(|error| match error {
                // The location as the catalog states it.
                Error::Missing { .. } => Error::Missing { place: location.to_string() },
                other => other,
            }),
            None => Err(Error::Missing { place: location.to_string() }),
        }
    }
}

/// Splits a location into the root of its store and a name below.
fn split(location: &str) -> (String, String) {
    if let Some(path) = local(location) {
        return ("/".to_string(), path.display().to_string().trim_start_matches('/').to_string());
    }
    let begin = location.find("://").map_or(0, |at| at + 3);
    let end = location[begin..].find('/').map_or(location.len(), |slash| begin + slash);
    (location[..end].to_string(), location[end..].trim_start_matches('/').to_string())
}
