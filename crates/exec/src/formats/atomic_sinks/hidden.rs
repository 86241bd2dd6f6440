//! Hidden files: written but not visible yet, by kind of store.
//!
//! | store | unpublished form | published by |
//! |---|---|---|
//! | local disk | a file beside the target, with the suffix `#` and a number, not listed | a rename |
//! | HDFS | a file beside the target, with the suffix `.unfinished` | a rename |
//! | S3 | parts of an upload, which no listing shows; in memory, if small | completing the upload; a put |
//!
//! Folders that are made for files are removed with the last of them, unless one was published.
//!
//! Cancellation: dropping an unpublished file removes it, a local one at once, others in the background.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::object_store::path::Path;
use datafusion::object_store::{
    Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, Result,
    UploadPart,
};
use futures::FutureExt;
use futures::future::ready;
use parking_lot::Mutex;
use tokio::runtime::Handle;

const LOCAL: &str = "local file system";

/// Unpublished local files of this process.
static UNPUBLISHED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Local folders that this process made for files that are not published yet.
static NEW_FOLDERS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Removes the unpublished local files of this process and their new folders, for an exit without drops.
pub fn remove_local() {
    for path in std::mem::take(&mut *UNPUBLISHED.lock()) {
        let _ = fs::remove_file(path);
    }
    // What is inside of a folder comes behind it.
    for folder in std::mem::take(&mut *NEW_FOLDERS.lock()).iter().rev() {
        let _ = fs::remove_dir(folder);
    }
}

/// Makes a folder and those above it, until [`keep_folders`] or [`remove_new_folders`]. Blocks.
pub fn create_folders(folder: &std::path::Path) -> io::Result<()> {
    let is_missing = |folder: &&std::path::Path| !folder.as_os_str().is_empty() && !folder.exists();
    let missing: Vec<PathBuf> = folder.ancestors().take_while(is_missing).map(PathBuf::from).collect();
    fs::create_dir_all(folder)?;
    NEW_FOLDERS.lock().extend(missing);
    Ok(())
}

/// `folder` has a file now, or may stay empty.
pub fn keep_folders(folder: &std::path::Path) {
    let mut new = NEW_FOLDERS.lock();
    for folder in folder.ancestors() {
        new.remove(folder);
    }
}

/// Removes `folder` and those above it that this process made and that are empty. Blocks.
pub fn remove_new_folders(folder: &std::path::Path) {
    let mut new = NEW_FOLDERS.lock();
    for folder in folder.ancestors() {
        if !new.contains(folder) || fs::remove_dir(folder).is_err() {
            return;
        }
        new.remove(folder);
    }
}

/// A file that is written but not visible yet.
#[async_trait]
pub(super) trait HiddenFile: fmt::Debug + Send {
    /// Appends to the file; parts are in call order. Await it before closing the file.
    fn put_part(&mut self, data: PutPayload) -> UploadPart;

    /// Completes the writing.
    async fn close(&mut self) -> Result<()>;

    /// Publishes a closed file, replacing an older one. After an error it may be visible or not.
    async fn publish(&mut self) -> Result<()>;

    /// Removes the unpublished file. It cannot be used afterwards.
    async fn abort(&mut self) -> Result<()>;
}

/// An error that does not come from a store.
pub(super) fn state_error(what: String) -> Error {
    Error::Generic { store: "files of a statement", source: what.into() }
}

/// A file on a local disk.
#[derive(Debug)]
pub(super) struct LocalFile {
    path: PathBuf,
    /// The temporary path; `None` after publishing or aborting.
    temporary: Option<PathBuf>,
    /// `None` when closed.
    file: Option<Arc<File>>,
    bytes: u64,
}

impl LocalFile {
    /// Creates a file for `location`, and its parent folders.
    pub(super) async fn create(location: &Path) -> Result<Self> {
        let path = LocalFileSystem::new().path_to_filesystem(location)?;
        blocking(move || Self::create_beside(&path).map_err(|error| file_error(&path, error))).await
    }

    /// Creates a file with its whole content, and closes it.
    pub(super) async fn put(location: &Path, payload: PutPayload) -> Result<Self> {
        let path = LocalFileSystem::new().path_to_filesystem(location)?;
        blocking(move || {
            let put = || {
                let mut created = Self::create_beside(&path)?;
                if let Some(file) = created.file.take() {
                    write_at(&file, &payload, 0)?;
                }
                Ok(created)
            };
            put().map_err(|error| file_error(&path, error))
        })
        .await
    }

    fn create_beside(path: &std::path::Path) -> io::Result<Self> {
        let mut number = 1_u64;
        loop {
            let mut name = path.as_os_str().to_owned();
            name.push(format!("#{number}"));
            let temporary = PathBuf::from(name);
            // Registered for removal before anybody can look.
            let mut known = UNPUBLISHED.lock();
            match File::options().write(true).create_new(true).open(&temporary) {
                Ok(file) => {
                    known.insert(temporary.clone());
                    return Ok(Self {
                        path: path.to_path_buf(),
                        temporary: Some(temporary),
                        file: Some(Arc::new(file)),
                        bytes: 0,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => match path.parent() {
                    Some(folder) if !folder.exists() => create_folders(folder)?,
                    _ => return Err(error),
                },
                Err(error) => return Err(error),
            }
        }
    }

    fn remove(&mut self) -> io::Result<()> {
        let Some(temporary) = self.temporary.take() else { return Ok(()) };
        UNPUBLISHED.lock().remove(&temporary);
        match fs::remove_file(temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if let Some(folder) = self.path.parent() {
            remove_new_folders(folder);
        }
        Ok(())
    }
}

impl Drop for LocalFile {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::warn!(path = %self.path.display(), %error, "a file that was not completed stays");
        }
    }
}

#[async_trait]
impl HiddenFile for LocalFile {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let Some(file) = self.file.clone() else {
            return ready(Err(state_error(format!("\"{}\" is closed", self.path.display())))).boxed();
        };
        let path = self.path.clone();
        let at = self.bytes;
        self.bytes += data.content_length() as u64;
        blocking(move || write_at(&file, &data, at).map_err(|error| file_error(&path, error))).boxed()
    }

    async fn close(&mut self) -> Result<()> {
        self.file = None;
        Ok(())
    }

    async fn publish(&mut self) -> Result<()> {
        let Some(temporary) = self.temporary.clone() else { return Ok(()) };
        let path = self.path.clone();
        blocking(move || {
            fs::rename(&temporary, &path).map_err(|error| file_error(&path, error))?;
            UNPUBLISHED.lock().remove(&temporary);
            if let Some(folder) = path.parent() {
                keep_folders(folder);
            }
            Ok(())
        })
        .await?;
        self.temporary = None;
        Ok(())
    }

    async fn abort(&mut self) -> Result<()> {
        self.remove().map_err(|error| file_error(&self.path, error))
    }
}

fn write_at(file: &File, data: &PutPayload, mut at: u64) -> io::Result<()> {
    for piece in data.iter() {
        file.write_all_at(piece, at)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// An operating system error of a file.
#[derive(Debug)]
struct FileError {
    path: PathBuf,
    error: io::Error,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.error)
    }
}

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

fn file_error(path: &std::path::Path, error: io::Error) -> Error {
    Error::Generic { store: LOCAL, source: Box::new(FileError { path: path.to_path_buf(), error }) }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await?
}

/// A file of HDFS.
#[derive(Debug)]
pub(super) struct HdfsFile {
    store: Arc<dyn ObjectStore>,
    at: Path,
    to: Path,
    /// `None` when closed.
    upload: Option<Box<dyn MultipartUpload>>,
    is_over: bool,
}

impl HdfsFile {
    pub(super) async fn begin(
        store: &Arc<dyn ObjectStore>,
        to: &Path,
        options: PutMultipartOptions,
    ) -> Result<Self> {
        let at = harrier_storage::temporary_path(to)?;
        let upload = Some(store.put_multipart_opts(&at, options).await?);
        Ok(Self { store: Arc::clone(store), at, to: to.clone(), upload, is_over: false })
    }

    /// Writes a whole file, which is closed then.
    pub(super) async fn put(
        store: &Arc<dyn ObjectStore>,
        to: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<Self> {
        let at = harrier_storage::temporary_path(to)?;
        store.put_opts(&at, payload, options).await?;
        Ok(Self { store: Arc::clone(store), at, to: to.clone(), upload: None, is_over: false })
    }
}

#[async_trait]
impl HiddenFile for HdfsFile {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        match &mut self.upload {
            Some(upload) => upload.put_part(data),
            None => ready(Err(state_error(format!("\"{}\" is closed", self.to)))).boxed(),
        }
    }

    async fn close(&mut self) -> Result<()> {
        if let Some(mut upload) = self.upload.take() {
            upload.complete().await?;
        }
        Ok(())
    }

    async fn publish(&mut self) -> Result<()> {
        self.store.rename(&self.at, &self.to).await?;
        self.is_over = true;
        Ok(())
    }

    async fn abort(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_over, true) {
            return Ok(());
        }
        if let Some(mut upload) = self.upload.take() {
            // Its writer deletes the file as well.
            return upload.abort().await;
        }
        match self.store.delete(&self.at).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Drop for HdfsFile {
    fn drop(&mut self) {
        // Dropping an upload deletes its file.
        if self.is_over || self.upload.is_some() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let (store, at) = (Arc::clone(&self.store), self.at.clone());
        runtime.spawn(async move {
            if let Err(error) = store.delete(&at).await {
                tracing::warn!(location = %at, %error, "a file that was not completed stays");
            }
        });
    }
}

/// A file of S3, completely uploaded when closed.
#[derive(Debug)]
pub(super) struct Upload {
    location: Path,
    /// `None` when published or aborted. Dropping it aborts it.
    upload: Option<Box<dyn MultipartUpload>>,
}

impl Upload {
    pub(super) async fn begin(
        store: &Arc<dyn ObjectStore>,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Self> {
        let upload = Some(store.put_multipart_opts(location, options).await?);
        Ok(Self { location: location.clone(), upload })
    }
}

#[async_trait]
impl HiddenFile for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        match &mut self.upload {
            Some(upload) => upload.put_part(data),
            None => ready(Err(state_error(format!("\"{}\" is complete or given up", self.location)))).boxed(),
        }
    }

    async fn close(&mut self) -> Result<()> {
        Ok(())
    }

    async fn publish(&mut self) -> Result<()> {
        if let Some(upload) = &mut self.upload {
            upload.complete().await?;
            self.upload = None;
        }
        Ok(())
    }

    async fn abort(&mut self) -> Result<()> {
        match self.upload.take() {
            Some(mut upload) => upload.abort().await,
            None => Ok(()),
        }
    }
}

/// A file of S3 written by one put.
#[derive(Debug)]
pub(super) struct S3Put {
    store: Arc<dyn ObjectStore>,
    location: Path,
    /// `None` when published or aborted.
    content: Option<(PutPayload, PutOptions)>,
}

impl S3Put {
    pub(super) fn new(
        store: &Arc<dyn ObjectStore>,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Self {
        Self { store: Arc::clone(store), location: location.clone(), content: Some((payload, options)) }
    }
}

#[async_trait]
impl HiddenFile for S3Put {
    fn put_part(&mut self, _: PutPayload) -> UploadPart {
        ready(Err(state_error(format!("\"{}\" is complete", self.location)))).boxed()
    }

    async fn close(&mut self) -> Result<()> {
        Ok(())
    }

    async fn publish(&mut self) -> Result<()> {
        if let Some((payload, options)) = self.content.take() {
            self.store.put_opts(&self.location, payload, options).await?;
        }
        Ok(())
    }

    async fn abort(&mut self) -> Result<()> {
        self.content = None;
        Ok(())
    }
}
