//! A folder or a place in an object store, with what a backup asks of one: whole files, one after the other.
//!
//! A file comes into being in one step, when it is finished. In a folder it is written beside its place until
//! then, and is on the disk before it gets its name; the name is after [`Store::settle`].

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

/// What is read of a file at once.
const READ_BYTES: usize = 1 << 20;
/// What is sent to an object store at once; an object of no more is sent whole.
const SENT_BYTES: usize = 8 << 20;
/// How many parts of an object are on their way at the same time.
const SENT_AT_ONCE: usize = 2;

/// The end of the names of files that are being written.
const UNFINISHED: &str = ".unfinished";

#[derive(Debug, Clone)]
pub(crate) enum Store {
    Folder(PathBuf),
    Objects {
        store: Arc<dyn ObjectStore>,
        /// Without a `/` at its end; empty for all of the store.
        prefix: String,
        /// The URL of the store, without a `/` at its end.
        url: String,
    },
}

/// The local path that a location is, if it is one.
pub(crate) fn local(location: &str) -> Option<PathBuf> {
    match location.split_once("://") {
        None => Some(PathBuf::from(location)),
        Some(("file", _)) => Url::parse(location).ok()?.to_file_path().ok(),
        Some(_) => None,
    }
}

impl Store {
    /// The folder or place at a path or a URL, which need not be there.
    ///
    /// Errors: no store is known by this URL (0A000), or not enough is said about it (22023).
    pub fn open(location: &str) -> Result<Self> {
        if let Some(folder) = local(location) {
            let absolute =
                std::path::absolute(&folder).map_err(|error| Error::io("find", location, error))?;
            return Ok(Self::Folder(absolute));
        }
        let begin = location.find("://").map_or(0, |at| at + 3);
        let end = location[begin..].find('/').map_or(location.len(), |slash| begin + slash);
        let wrong = |why: &dyn std::fmt::Display| {
            Error::refused(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("cannot use {}…: {why}", &location[..begin]),
            )
        };
        let url = Url::parse(&location[..end]).map_err(|error| wrong(&error))?;
        let store = harrier_storage::open(&url).map_err(|error| wrong(&error))?;
        let store = store.ok_or_else(|| {
            Error::refused(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!("no storage is known by the name \"{}\"", url.scheme()),
            )
            .with_hint("folders, s3://bucket/… and hdfs://host:port/… are")
        })?;
        let prefix = location[end..].trim_matches('/').to_string();
        Path::parse(&prefix).map_err(|error| wrong(&error))?;
        Ok(Self::Objects { store, prefix, url: location[..end].to_string() })
    }

    /// How people know a file of it; of no name, itself.
    pub fn shown(&self, name: &str) -> String {
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
            Error::refused(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("no object can be named \"{name}\": {error}"),
            )
        })
    }

    /// The lengths of all files below a folder, by their names.
    pub async fn list(&self, below: &str) -> Result<BTreeMap<String, u64>> {
        match self {
            Self::Folder(root) => {
                let (root, below) = (root.clone(), below.to_string());
                let shown = self.shown(&below);
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
                .map_err(|error| Error::io("list", shown, error))
            }
            Self::Objects { store, prefix, .. } => {
                let path = self.path(below)?;
                let at = |error| Error::store("list", self.shown(below), error);
                let found: Vec<_> = store.list(Some(&path)).try_collect().await.map_err(at)?;
                let cut = if prefix.is_empty() { 0 } else { prefix.len() + 1 };
                let named = |file: object_store::ObjectMeta| {
                    Some((file.location.as_ref().get(cut..)?.to_string(), file.size))
                };
                Ok(found.into_iter().filter_map(named).collect())
            }
        }
    }

    /// A file to read from its begin.
    ///
    /// Errors: [`Error::Missing`].
    pub async fn reader(&self, name: &str) -> Result<Reader> {
        match self {
            Self::Folder(root) => {
                let opened = File::open(root.join(name)).await;
                let mut file = opened.map_err(|error| Error::io("open", self.shown(name), error))?;
                file.set_max_buf_size(READ_BYTES);
                Ok(Reader { shown: self.shown(name), from: Source::File(file) })
            }
            Self::Objects { store, .. } => {
                let got = store.get(&self.path(name)?).await;
                let got = got.map_err(|error| Error::store("read", self.shown(name), error))?;
                Ok(Reader { shown: self.shown(name), from: Source::Stream(got.into_stream()) })
            }
        }
    }

    /// All of a small file; `None`: there is none, or it may not be known whether there is.
    pub async fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let mut reader = match self.reader(name).await {
            Err(Error::Missing { .. }) => return Ok(None),
            // Who may not list is not told whether it is there.
            Err(Error::Store { source: object_store::Error::PermissionDenied { .. }, .. }) => {
                return Ok(None);
            }
            // A part of its path is a file.
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

    /// A new file, in the place of one that is there when it is finished.
    pub async fn writer(&self, name: &str) -> Result<Writer> {
        let shown = self.shown(name);
        let to = match self {
            Self::Folder(root) => {
                let path = root.join(name);
                let folder = path.parent().unwrap_or(root);
                let made = tokio::fs::create_dir_all(folder).await;
                made.map_err(|error| Error::io("make folder", folder.display().to_string(), error))?;
                let staged = format!("{}.{}{UNFINISHED}", path.display(), Uuid::new_v4().simple());
                let file = File::create_new(&staged).await;
                let mut file = file.map_err(|error| Error::io("write", &shown, error))?;
                file.set_max_buf_size(READ_BYTES);
                To::File { file, staged: Staged(Some(staged.into())), path }
            }
            Self::Objects { store, .. } => {
                let writer = BufWriter::with_capacity(Arc::clone(store), self.path(name)?, SENT_BYTES);
                To::Object(Box::new(writer.with_max_concurrency(SENT_AT_ONCE)))
            }
        };
        Ok(Writer { shown, to })
    }

    /// Writes a small file, in the place of one that is there.
    pub async fn put(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        let mut writer = self.writer(name).await?;
        writer.write(bytes.into()).await?;
        writer.finish().await
    }

    /// Makes a small object, in a store that is none of folders; false if there is one. Where a store cannot
    /// make only what is not there, it is looked for before.
    pub async fn put_new(&self, name: &str, bytes: Vec<u8>) -> Result<bool> {
        use object_store::Error as E;
        let Self::Objects { store, .. } = self else {
            return Err(Error::refused(
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
            Err(error) => Err(Error::store("write", self.shown(name), error)),
        }
    }

    /// Removes a file, if it is there.
    pub async fn delete(&self, name: &str) -> Result<()> {
        let removed = match self {
            Self::Folder(root) => {
                let removed = tokio::fs::remove_file(root.join(name)).await;
                removed.map_err(|error| Error::io("remove", self.shown(name), error))
            }
            Self::Objects { store, .. } => {
                let removed = store.delete(&self.path(name)?).await;
                removed.map_err(|error| Error::store("remove", self.shown(name), error))
            }
        };
        match removed {
            Err(Error::Missing { .. }) => Ok(()),
            removed => removed,
        }
    }

    /// The names of all files that have been finished so far are on the disk when this returns.
    pub async fn settle(&self) -> Result<()> {
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
        settled.await.map_err(|error| Error::io("write", self.shown(""), error))
    }

    /// Removes what processes that were killed have left of files. Nobody else may be writing.
    pub async fn sweep(&self) -> Result<()> {
        let Self::Folder(_) = self else { return Ok(()) };
        for name in self.list("").await?.into_keys() {
            if is_unfinished(&name) {
                self.delete(&name).await?;
            }
        }
        Ok(())
    }
}

/// Whether a file is what is left of one that was not finished: its name ends in the 32 digits and the word
/// that [`Store::writer`] has given it.
pub(crate) fn is_unfinished(name: &str) -> bool {
    let random = name.strip_suffix(UNFINISHED).and_then(|name| name.rsplit('.').next());
    random.is_some_and(|random| random.len() == 32 && random.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// Calls `each` with what is below a folder, folders too, by names relative to `root`. A folder that is not
/// there has nothing.
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
        // Names that are no text are nobody's that this crate knows.
        let Ok(own) = entry.file_name().into_string() else { continue };
        let name = if below.is_empty() { own } else { format!("{below}/{own}") };
        // It may have gone meanwhile.
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

/// A file that is read from its begin to its end.
pub(crate) struct Reader {
    shown: String,
    from: Source,
}

enum Source {
    File(File),
    Stream(BoxStream<'static, object_store::Result<Bytes>>),
}

impl Reader {
    /// Of a file that is open.
    pub fn of(file: std::fs::File, shown: &str) -> Self {
        Self { shown: shown.to_string(), from: Source::File(File::from_std(file)) }
    }

    /// What comes next; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        match &mut self.from {
            Source::File(file) => {
                let mut bytes = BytesMut::with_capacity(READ_BYTES);
                let read = file.read_buf(&mut bytes).await;
                let read = read.map_err(|error| Error::io("read", &self.shown, error))?;
                Ok((read > 0).then(|| bytes.freeze()))
            }
            Source::Stream(stream) => {
                let next = stream.next().await.transpose();
                next.map_err(|error| Error::store("read", &self.shown, error))
            }
        }
    }
}

/// A file that is being written. Dropped before it is finished, it leaves nothing in a folder; in an object
/// store what its rules for uploads that are not completed, or VACUUM there, remove.
pub(crate) struct Writer {
    shown: String,
    to: To,
}

enum To {
    File { file: File, staged: Staged, path: PathBuf },
    Object(Box<BufWriter>),
}

/// The file beside the place of the one that will be; removed with this.
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
            To::File { file, .. } => {
                file.write_all(&bytes).await.map_err(|error| Error::io("write", &self.shown, error))
            }
            To::Object(writer) => {
                writer.put(bytes).await.map_err(|error| Error::store("write", &self.shown, error))
            }
        }
    }

    /// The file is there when this returns.
    pub async fn finish(self) -> Result<()> {
        let Self { shown, to } = self;
        match to {
            To::File { mut file, mut staged, path } => {
                let finished = async {
                    file.flush().await?;
                    file.sync_all().await?;
                    if let Some(staged) = &staged.0 {
                        tokio::fs::rename(staged, &path).await?;
                    }
                    io::Result::Ok(())
                };
                finished.await.map_err(|error| Error::io("write", shown, error))?;
                staged.0 = None;
                Ok(())
            }
            To::Object(mut writer) => {
                let finished = writer.shutdown().await;
                finished.map_err(|error| Error::io("write", shown, error))
            }
        }
    }

    /// The file is not to be there.
    pub async fn give_up(self) {
        if let To::Object(mut writer) = self.to
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
    async fn files_come_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_str().unwrap()).unwrap();
        assert!(store.list("").await.unwrap().is_empty());
        assert_eq!(store.get("a/b").await.unwrap(), None);
        store.put("a/b", b"one".to_vec()).await.unwrap();
        store.put("a/k=a%20b/ä", b"three".to_vec()).await.unwrap();
        store.put("a/b", b"two".to_vec()).await.unwrap();
        assert_eq!(store.get("a/b").await.unwrap().unwrap(), b"two");
        // Of a file, nothing is below.
        assert_eq!(store.get("a/b/c").await.unwrap(), None);
        let mut writer = store.writer("a/c").await.unwrap();
        writer.write(Bytes::from_static(b"left")).await.unwrap();
        let listed = store.list("").await.unwrap();
        assert_eq!(listed.keys().filter(|name| is_unfinished(name)).count(), 1, "{listed:?}");
        drop(writer);
        let names = |listed: &BTreeMap<String, u64>| listed.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&store.list("a/").await.unwrap()), ["a/b", "a/k=a%20b/ä"]);
        let left = format!("x.{}{UNFINISHED}", Uuid::new_v4().simple());
        store.put(&left, Vec::new()).await.unwrap();
        store.put("mine.unfinished", Vec::new()).await.unwrap();
        store.settle().await.unwrap();
        store.sweep().await.unwrap();
        assert_eq!(names(&store.list("").await.unwrap()), ["a/b", "a/k=a%20b/ä", "mine.unfinished"]);
        store.delete("a/b").await.unwrap();
        store.delete("a/b").await.unwrap();
        assert!(matches!(store.reader("a/b").await, Err(Error::Missing { .. })));
    }

    #[test]
    fn places_are_told_as_they_were_given() {
        let folder = Store::open("/backups/lake").unwrap();
        assert_eq!(folder.shown("files/x"), "/backups/lake/files/x");
        for (location, shown) in
            [("s3://b", "s3://b/x"), ("s3://b/", "s3://b/x"), ("s3://b/a%20b/c/", "s3://b/a%20b/c/x")]
        {
            let Ok(store) = Store::open(location) else { continue };
            assert_eq!(store.shown("x"), shown);
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
