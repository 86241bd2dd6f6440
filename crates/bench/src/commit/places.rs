//! File operations in the target stores of `bench commit`: by the operating system in local folders, by the
//! object store elsewhere.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use datafusion::common::{DataFusionError, Result};
use datafusion::object_store::path::Path;
use datafusion::object_store::{ObjectStore, ObjectStoreExt};
use futures::{StreamExt, TryStreamExt};
use harrier_engine::Engine;
use harrier_exec::data_files::location::{local, locate};

/// Concurrent copies of one folder's objects in S3A (`RENAME_PARALLEL_LIMIT`).
const FOLDER_COPIES_MAX: usize = 10;

/// A folder of a store. Paths are relative to it.
pub enum Place {
    Local(PathBuf),
    /// Whether the store can rename. Otherwise it copies and deletes.
    Objects {
        store: Arc<dyn ObjectStore>,
        folder: Path,
        renames: bool,
    },
}

impl Place {
    /// `url` may be a path. Opens no connection.
    pub fn open(url: &str, engine: &Engine) -> Result<Self> {
        if let Some(folder) = local(url) {
            return Ok(Self::Local(std::path::absolute(folder)?));
        }
        let (store, folder) = locate(url)?;
        let renames = store.as_str().starts_with("hdfs:");
        Ok(Self::Objects { store: engine.runtime_env().object_store(&store)?, folder, renames })
    }

    /// Lists every file below a folder, by relative path.
    pub async fn files(&self, folder: &str) -> Result<Vec<String>> {
        match self {
            Self::Local(root) => {
                let mut found = Vec::new();
                files_below(&root.join(folder), &root.join(folder), &mut found);
                Ok(found)
            }
            Self::Objects { store, .. } => {
                let prefix = self.object(folder);
                let found: Vec<_> = store.list(Some(&prefix)).try_collect().await?;
                let name =
                    |path: &Path| path.as_ref()[prefix.as_ref().len()..].trim_start_matches('/').to_owned();
                Ok(found.iter().map(|file| name(&file.location)).collect())
            }
        }
    }

    /// Removes a folder and everything in it.
    pub async fn remove(&self, folder: &str) -> Result<()> {
        match self {
            Self::Local(root) => Ok(std::fs::remove_dir_all(root.join(folder))?),
            Self::Objects { store, .. } => {
                let found = store.list(Some(&self.object(folder))).map_ok(|file| file.location).boxed();
                store
                    .delete_stream(found)
                    .try_for_each(|_| async { Ok(()) })
                    .await
                    .map_err(DataFusionError::from)
            }
        }
    }

    /// Renames one file; on S3 a copy and a deletion.
    pub async fn rename_file(&self, from: &str, to: &str) -> Result<()> {
        match self {
            Self::Local(root) => rename_local(&root.join(from), &root.join(to)),
            Self::Objects { store, renames: true, .. } => {
                Ok(store.rename(&self.object(from), &self.object(to)).await?)
            }
            Self::Objects { store, renames: false, .. } => {
                store.copy(&self.object(from), &self.object(to)).await?;
                Ok(store.delete(&self.object(from)).await?)
            }
        }
    }

    /// Renames a folder to a name that does not exist yet; on S3 a listing, a copy of each object, and
    /// deletions of up to 1000 at a time.
    pub async fn rename_folder(&self, from: &str, to: &str) -> Result<()> {
        let (store, from_path, to_path) = match self {
            Self::Local(root) => return rename_local(&root.join(from), &root.join(to)),
            Self::Objects { store, renames, .. } => {
                let (from, to) = (self.object(from), self.object(to));
                if *renames {
                    return Ok(store.rename(&from, &to).await?);
                }
                (store, from, to)
            }
        };
        let found: Vec<Path> =
            store.list(Some(&from_path)).map_ok(|file| file.location).try_collect().await?;
        futures::stream::iter(&found)
            .map(|path| {
                let target = path.as_ref().replacen(from_path.as_ref(), to_path.as_ref(), 1);
                async move { store.copy(path, &Path::parse(target)?).await }
            })
            .buffer_unordered(FOLDER_COPIES_MAX)
            .try_for_each(|()| async { Ok(()) })
            .await?;
        let gone = futures::stream::iter(found.into_iter().map(Ok)).boxed();
        store.delete_stream(gone).try_for_each(|_| async { Ok(()) }).await.map_err(DataFusionError::from)
    }

    fn object(&self, path: &str) -> Path {
        match self {
            Self::Local(_) => Path::default(),
            // Not encoded: a percent sign is part of the name.
            Self::Objects { folder, .. } => {
                Path::parse(format!("{folder}/{path}")).unwrap_or_else(|_| folder.clone().join(path))
            }
        }
    }
}

fn rename_local(from: &FilePath, to: &FilePath) -> Result<()> {
    if let Some(parent) = to.parent() {
        std::fs::create_dir_all(parent)?;
    }
    Ok(std::fs::rename(from, to)?)
}

fn files_below(root: &FilePath, folder: &FilePath, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => files_below(root, &path, found),
            false => {
                let name = path.strip_prefix(root).unwrap_or(&path);
                found.push(name.to_string_lossy().into_owned());
            }
        }
    }
}

/// Reads a proxy's counters: names and numbers, one a line. `None` without a proxy, or if it does not answer.
pub fn requests(address: Option<&str>) -> Option<BTreeMap<String, u64>> {
    let mut stream = TcpStream::connect(address?).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(b"GET /-/proxy/requests HTTP/1.1\r\nHost: proxy\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = Vec::new();
    // The proxy keeps the connection open: the answer's header gives its length.
    let mut piece = [0; 4096];
    loop {
        let length = stream.read(&mut piece).ok()?;
        text.extend_from_slice(&piece[..length]);
        if length == 0 || is_complete(&text) {
            break;
        }
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let (head, body) = text.split_once("\r\n\r\n")?;
    if !head.starts_with("HTTP/1.1 200") {
        return None;
    }
    Some(
        body.lines()
            .filter_map(|line| {
                let (kind, count) = line.split_once(' ')?;
                Some((kind.to_owned(), count.parse().ok()?))
            })
            .collect(),
    )
}

fn is_complete(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    length.is_some_and(|length| body.len() >= length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn local_folders_are_renamed_and_listed() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::Local(folder.path().to_path_buf());
        std::fs::create_dir_all(folder.path().join("a/k=1")).unwrap();
        std::fs::write(folder.path().join("a/k=1/x"), "").unwrap();
        place.rename_file("a/k=1/x", "b/k=1/y").await.unwrap();
        place.rename_folder("b", "deep/c").await.unwrap();
        assert_eq!(place.files("deep").await.unwrap(), ["c/k=1/y"]);
        place.remove("deep").await.unwrap();
        assert!(place.files("deep").await.unwrap().is_empty());
    }

    #[test]
    fn responses_are_complete_with_their_body() {
        assert!(is_complete(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab"));
        assert!(!is_complete(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"));
        assert!(!is_complete(b"HTTP/1.1 200 OK\r\nContent-Le"));
    }
}
