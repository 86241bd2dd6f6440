//! A folder or an object store prefix that holds whole files; the storage interface of backups.
//!
//! A file appears atomically when it is finished. In a folder it is written under a temporary name and
//! fsynced before the rename; [`Store::sync_names`] makes the name durable.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use harrier_error::SqlState;
use object_store::buffered::BufWriter;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use url::Url;
use uuid::Uuid;

use crate::{Error, Result};

/// Read chunk size.
const READ_BYTES: usize = 1 << 20;
/// Part size of multipart uploads; an object up to this size is sent in one request.
const PART_BYTES: usize = 8 << 20;
/// Parts of an object in flight.
const PARTS_IN_FLIGHT: usize = 2;

/// Suffix of temporary files being written.
const TEMPORARY_SUFFIX: &str = ".unfinished";

#[derive(Debug, Clone)]
pub(crate) enum Store {
    Folder(PathBuf),
    Objects {
        store: Arc<dyn ObjectStore>,
        /// Without a trailing `/`; empty for the whole store.
        prefix: String,
        /// The URL of the store, without a trailing `/`.
        url: String,
    },
}

/// The local path of a location, if it is one.
pub(crate) fn local(location: &str) -> Option<PathBuf> {
    match location.split_once("://") {
        None => Some(PathBuf::from(location)),
        Some(("file", _)) => Url::parse(location).ok()?.to_file_path().ok(),
        Some(_) => None,
    }
}

impl Store {
    /// Opens the folder or prefix at a path or a URL, which need not exist.
    ///
    /// Errors: no store handles this URL (0A000), or its configuration is incomplete (22023).
    pub fn open(location: &str) -> Result<Self> {
        if let Some(folder) = local(location) {
            let absolute =
                std::path::absolute(&folder).map_err(|error| Error::io("find", location, error))?;
            return Ok(Self::Folder(absolute));
        }
        let begin = location.find("://").map_or(0, |at| at + 3);
        let end = location[begin..].find('/').map_or(location.len(), |slash| begin + slash);
        let wrong = |why: &dyn std::fmt::Display| {
            Error::refusal(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("cannot use {}…: {why}", &location[..begin]),
            )
        };
        let url = Url::parse(&location[..end]).map_err(|error| wrong(&error))?;
        let store = harrier_storage::open(&url).map_err(|error| wrong(&error))?;
        let store = store.ok_or_else(|| {
            Error::refusal(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!("no storage is known by the name \"{}\"", url.scheme()),
            )
            .with_hint("folders, s3://bucket/… and hdfs://host:port/… are")
        })?;
        let prefix = location[end..].trim_matches('/').to_string();
        Path::parse(&prefix).map_err(|error| wrong(&error))?;
        Ok(Self::Objects { store, prefix, url: location[..end].to_string() })
    }

    /// The path or URL of a file for messages; of the store itself for an empty name.
    pub fn display_name(&self, name: &str) -> String {
        match self {
            Self::Folder(folder) if name.is_empty() => folder.display().to_string(),
            Self::Folder(folder) => folder.join(name).display().to_string(),
            Self::Objects { prefix, url, .. } => {
                let parts = [url, prefix.as_str(), name].map(str::to_string);
                parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
            }
        }
    }

    fn path(&self, name: &str) -> Result<Path> {
        let Self::Objects { prefix, .. } = self else { return Ok(Path::default()) };
        let whole = if prefix.is_empty() { name.to_string() } else { format!("{prefix}/{name}") };
        Path::parse(whole.trim_end_matches('/')).map_err(|error| {
            Error::refusal(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("no object can be named \"{name}\": {error}"),
            )
        })
    }

    /// The lengths of all files below a folder, by name.
    pub async fn list(&self, below: &str) -> Result<BTreeMap<String, u64>> {
        match self {
            Self::Folder(root) => {
                let (root, below) = (root.clone(), below.to_string());
                let display_name = self.display_name(&below);
                blocking(move || {
                    let mut found = BTreeMap::new();
                    walk(&root, below.trim_end_matches('/'), &mut |name, metadata| {
                        if metadata.is_file() {
                            found.insert(name.to_string(), metadata.len());
                        }
                        Ok(())
                    })?;
                    Ok(found)
                })
                .await
                .map_err(|error| Error::io("list", display_name, error))
            }
            Self::Objects { store, prefix, .. } => {
                let path = self.path(below)?;
                let at = |error| Error::store("list", self.display_name(below), error);
                let found: Vec<_> = store.list(Some(&path)).try_collect().await.map_err(at)?;
                let cut = if prefix.is_empty() { 0 } else { prefix.len() + 1 };
                let named = |file: object_store::ObjectMeta| {
                    Some((file.location.as_ref().get(cut..)?.to_string(), file.size))
                };
                Ok(found.into_iter().filter_map(named).collect())
            }
        }
    }

    /// Opens a file for sequential reading.
    ///
    /// Errors: [`Error::Missing`].
    pub async fn reader(&self, name: &str) -> Result<Reader> {
        match self {
            Self::Folder(root) => {
                let opened = File::open(root.join(name)).await;
                let mut file = opened.map_err(|error| Error::io("open", self.display_name(name), error))?;
                file.set_max_buf_size(READ_BYTES);
                Ok(Reader { display_name: self.display_name(name), from: Source::File(file) })
            }
            Self::Objects { store, .. } => {
                let got = store.get(&self.path(name)?).await;
                let got = got.map_err(|error| Error::store("read", self.display_name(name), error))?;
                Ok(Reader { display_name: self.display_name(name), from: Source::Stream(got.into_stream()) })
            }
        }
    }

    /// The content of a small file; `None`: it does not exist, or its existence may not be checked.
    pub async fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let mut reader = match self.reader(name).await {
            Err(Error::Missing { .. }) => return Ok(None),
            // Without the permission to list, a missing object is reported as denied.
            Err(Error::Store { source: object_store::Error::PermissionDenied { .. }, .. }) => {
                return Ok(None);
            }
            // A component of its path is a file.
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotADirectory => {
                return Ok(None);
            }
            reader => reader?,
        };
        let mut all = Vec::new();
        while let Some(bytes) = reader.next().await? {
            all.extend_from_slice(&bytes);
        }
        Ok(Some(all))
    }

    /// Creates a file; finishing it replaces an existing one.
    pub async fn writer(&self, name: &str) -> Result<Writer> {
        let display_name = self.display_name(name);
        let to = match self {
            Self::Folder(root) => {
                let path = root.join(name);
                let folder = path.parent().unwrap_or(root);
                let made = tokio::fs::create_dir_all(folder).await;
                made.map_err(|error| Error::io("make folder", folder.display().to_string(), error))?;
                let staged = format!("{}.{}{TEMPORARY_SUFFIX}", path.display(), Uuid::new_v4().simple());
                let file = File::create_new(&staged).await;
                let mut file = file.map_err(|error| Error::io("write", &display_name, error))?;
                file.set_max_buf_size(READ_BYTES);
                Destination::File { file, staged: Staged(Some(staged.into())), path }
            }
            Self::Objects { store, .. } => {
                let writer = BufWriter::with_capacity(Arc::clone(store), self.path(name)?, PART_BYTES);
                Destination::Object(Box::new(writer.with_max_concurrency(PARTS_IN_FLIGHT)))
            }
        };
        Ok(Writer { display_name, to })
    }

    /// Writes a small file, replacing an existing one.
    pub async fn put(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        let mut writer = self.writer(name).await?;
        writer.write(bytes.into()).await?;
        writer.finish().await
    }

    /// Creates a small object in an object store if absent; false if it exists. A store without conditional
    /// puts is checked first.
    pub async fn put_new(&self, name: &str, bytes: Vec<u8>) -> Result<bool> {
        use object_store::Error as E;
        let Self::Objects { store, .. } = self else {
            return Err(Error::refusal(
                SqlState::FEATURE_NOT_SUPPORTED,
                "a folder has no conditional writes",
            ));
        };
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match store.put_opts(&self.path(name)?, bytes.clone().into(), options).await {
            Ok(_) => Ok(true),
            Err(E::AlreadyExists { .. } | E::Precondition { .. }) => Ok(false),
            Err(E::NotImplemented { .. } | E::NotSupported { .. }) => match self.get(name).await? {
                Some(_) => Ok(false),
                None => self.put(name, bytes).await.map(|()| true),
            },
            Err(error) => Err(Error::store("write", self.display_name(name), error)),
        }
    }

    /// Removes a file, if it exists.
    pub async fn delete(&self, name: &str) -> Result<()> {
        let removed = match self {
            Self::Folder(root) => {
                let removed = tokio::fs::remove_file(root.join(name)).await;
                removed.map_err(|error| Error::io("remove", self.display_name(name), error))
            }
            Self::Objects { store, .. } => {
                let removed = store.delete(&self.path(name)?).await;
                removed.map_err(|error| Error::store("remove", self.display_name(name), error))
            }
        };
        match removed {
            Err(Error::Missing { .. }) => Ok(()),
            removed => removed,
        }
    }

    /// Fsyncs the folders of all files finished so far.
    pub async fn sync_names(&self) -> Result<()> {
        let Self::Folder(root) = self else { return Ok(()) };
        let root = root.clone();
        let settled = blocking(move || {
            let sync = |folder: &FilePath| std::fs::File::open(folder)?.sync_all();
            walk(&root, "", &mut |name, metadata| match metadata.is_dir() {
                true => sync(&root.join(name)),
                false => Ok(()),
            })?;
            sync(&root)?;
            root.parent().map_or(Ok(()), sync)
        });
        settled.await.map_err(|error| Error::io("write", self.display_name(""), error))
    }

    /// Removes temporary files left by killed processes. No one else may be writing.
    pub async fn sweep(&self) -> Result<()> {
        let Self::Folder(_) = self else { return Ok(()) };
        for name in self.list("").await?.into_keys() {
            if is_temporary(&name) {
                self.delete(&name).await?;
            }
        }
        Ok(())
    }
}

/// Whether a name is that of a temporary file: it ends in the 32 digits and the suffix that [`Store::writer`]
/// appends.
pub(crate) fn is_temporary(name: &str) -> bool {
    let random = name.strip_suffix(TEMPORARY_SUFFIX).and_then(|name| name.rsplit('.').next());
    random.is_some_and(|random| random.len() == 32 && random.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// Calls `each` for all entries below a folder, folders included, by names relative to `root`. A missing
/// folder has none.
fn walk(
    root: &FilePath,
    below: &str,
    each: &mut dyn FnMut(&str, &std::fs::Metadata) -> io::Result<()>,
) -> io::Result<()> {
    let entries = match std::fs::read_dir(root.join(below)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        // Names that are not UTF-8 are foreign.
        let Ok(own) = entry.file_name().into_string() else { continue };
        let name = if below.is_empty() { own } else { format!("{below}/{own}") };
        // It may have been removed meanwhile.
        let Ok(metadata) = entry.metadata() else { continue };
        each(&name, &metadata)?;
        if metadata.is_dir() {
            walk(root, &name, each)?;
        }
    }
    Ok(())
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// A sequential reader of a file.
pub(crate) struct Reader {
    display_name: String,
    from: Source,
}

enum Source {
    File(File),
    Stream(BoxStream<'static, object_store::Result<Bytes>>),
}

impl Reader {
    /// Reads an open file.
    pub fn of(file: std::fs::File, display_name: &str) -> Self {
        Self { display_name: display_name.to_string(), from: Source::File(File::from_std(file)) }
    }

    /// The next chunk; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        match &mut self.from {
            Source::File(file) => {
                let mut bytes = BytesMut::with_capacity(READ_BYTES);
                let read = file.read_buf(&mut bytes).await;
                let read = read.map_err(|error| Error::io("read", &self.display_name, error))?;
                Ok((read > 0).then(|| bytes.freeze()))
            }
            Source::Stream(stream) => {
                let next = stream.next().await.transpose();
                next.map_err(|error| Error::store("read", &self.display_name, error))
            }
        }
    }
}

/// A file being written. Dropping it before it is finished leaves nothing in a folder; in an object store, an
/// incomplete upload that the store's lifecycle rules or VACUUM remove.
pub(crate) struct Writer {
    display_name: String,
    to: Destination,
}

enum Destination {
    File { file: File, staged: Staged, path: PathBuf },
    Object(Box<BufWriter>),
}

/// A temporary file beside its final path; removed on drop.
struct Staged(Option<PathBuf>);

impl Drop for Staged {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Writer {
    pub async fn write(&mut self, bytes: Bytes) -> Result<()> {
        match &mut self.to {
            Destination::File { file, .. } => {
                file.write_all(&bytes).await.map_err(|error| Error::io("write", &self.display_name, error))
            }
            Destination::Object(writer) => {
                writer.put(bytes).await.map_err(|error| Error::store("write", &self.display_name, error))
            }
        }
    }

    /// Commits the file: it is visible when this returns.
    pub async fn finish(self) -> Result<()> {
        let Self { display_name, to } = self;
        match to {
            Destination::File { mut file, mut staged, path } => {
                let finished = async {
                    file.flush().await?;
                    file.sync_all().await?;
                    if let Some(staged) = &staged.0 {
                        tokio::fs::rename(staged, &path).await?;
                    }
                    io::Result::Ok(())
                };
                finished.await.map_err(|error| Error::io("write", display_name, error))?;
                staged.0 = None;
                Ok(())
            }
            Destination::Object(mut writer) => {
                let finished = writer.shutdown().await;
                finished.map_err(|error| Error::io("write", display_name, error))
            }
        }
    }

    /// Aborts the file.
    pub async fn abort(self) {
        if let Destination::Object(mut writer) = self.to
            && let Err(error) = writer.abort().await
        {
            tracing::debug!(%error, "an upload was not given up");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_are_copied_atomically() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_str().unwrap()).unwrap();
        assert!(store.list("").await.unwrap().is_empty());
        assert_eq!(store.get("a/b").await.unwrap(), None);
        store.put("a/b", b"one".to_vec()).await.unwrap();
        store.put("a/k=a%20b/ä", b"three".to_vec()).await.unwrap();
        store.put("a/b", b"two".to_vec()).await.unwrap();
        assert_eq!(store.get("a/b").await.unwrap().unwrap(), b"two");
        // There is nothing below a file.
        assert_eq!(store.get("a/b/c").await.unwrap(), None);
        let mut writer = store.writer("a/c").await.unwrap();
        writer.write(Bytes::from_static(b"left")).await.unwrap();
        let listed = store.list("").await.unwrap();
        assert_eq!(listed.keys().filter(|name| is_temporary(name)).count(), 1, "{listed:?}");
        drop(writer);
        let names = |listed: &BTreeMap<String, u64>| listed.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&store.list("a/").await.unwrap()), ["a/b", "a/k=a%20b/ä"]);
        let left = format!("x.{}{TEMPORARY_SUFFIX}", Uuid::new_v4().simple());
        store.put(&left, Vec::new()).await.unwrap();
        store.put("mine.unfinished", Vec::new()).await.unwrap();
        store.sync_names().await.unwrap();
        store.sweep().await.unwrap();
        assert_eq!(names(&store.list("").await.unwrap()), ["a/b", "a/k=a%20b/ä", "mine.unfinished"]);
        store.delete("a/b").await.unwrap();
        store.delete("a/b").await.unwrap();
        assert!(matches!(store.reader("a/b").await, Err(Error::Missing { .. })));
    }

    #[test]
    fn places_are_printed_as_given() {
        let folder = Store::open("/backups/lake").unwrap();
        assert_eq!(folder.display_name("files/x"), "/backups/lake/files/x");
        for (location, display_name) in
            [("s3://b", "s3://b/x"), ("s3://b/", "s3://b/x"), ("s3://b/a%20b/c/", "s3://b/a%20b/c/x")]
        {
            let Ok(store) = Store::open(location) else { continue };
            assert_eq!(store.display_name("x"), display_name);
        }
        let refused = Store::open("ftp://host/x").unwrap_err();
        assert!(
            matches!(refused, Error::Refused { state: SqlState::FEATURE_NOT_SUPPORTED, .. }),
            "{refused:?}"
        );
        let secret = Store::open("s3://KEYID:hush@bucket/x").unwrap_err().to_string();
        assert!(!secret.contains("hush"), "{secret}");
    }
}
