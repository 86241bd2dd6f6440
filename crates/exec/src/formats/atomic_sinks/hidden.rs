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

/// Where the files of ranks are until they are published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagingPlace {
    /// The target, a local folder.
    pub folder: PathBuf,
    /// A folder in it, which only the coordinator makes and removes.
    pub root: PathBuf,
}

/// A complete file in a staging folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StagedFile {
    /// Where it is published.
    pub path: PathBuf,
    pub staged: PathBuf,
}

/// Unpublished local files of this process.
static UNPUBLISHED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Staging folders of statements that this process coordinates.
static STAGING: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Local folders that this process made for files that are not published yet.
static NEW_FOLDERS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Removes the unpublished local files of this process and their new folders, for an exit without drops.
pub fn remove_local() {
    for path in std::mem::take(&mut *UNPUBLISHED.lock()) {
        let _ = fs::remove_file(path);
    }
    for root in std::mem::take(&mut *STAGING.lock()) {
        remove_staging(&root);
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

    /// Leaves a closed file where it is; `None` for one that cannot be left.
    fn release(&mut self) -> Option<StagedFile> {
        None
    }
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
    pub(super) async fn create(location: &Path, staging: Option<&StagingPlace>) -> Result<Self> {
        let path = LocalFileSystem::new().path_to_filesystem(location)?;
        let staging = staging.cloned();
        blocking(move || {
            Self::create_hidden(&path, staging.as_ref()).map_err(|error| file_error(&path, error))
        })
        .await
    }

    /// Creates a file with its whole content, and closes it.
    pub(super) async fn put(
        location: &Path,
        payload: PutPayload,
        staging: Option<&StagingPlace>,
    ) -> Result<Self> {
        let path = LocalFileSystem::new().path_to_filesystem(location)?;
        let staging = staging.cloned();
        blocking(move || {
            let put = || {
                let mut created = Self::create_hidden(&path, staging.as_ref())?;
                if let Some(file) = created.file.take() {
                    write_at(&file, &payload, 0)?;
                }
                Ok(created)
            };
            put().map_err(|error| file_error(&path, error))
        })
        .await
    }

    /// The file that a rank has written, to be published.
    pub(super) fn adopt(StagedFile { path, staged }: StagedFile) -> Self {
        UNPUBLISHED.lock().insert(staged.clone());
        Self { path, temporary: Some(staged), file: None, bytes: 0 }
    }

    fn create_hidden(path: &std::path::Path, staging: Option<&StagingPlace>) -> io::Result<Self> {
        match staging {
            Some(staging) => Self::create_staged(path, staging),
            None => Self::create_beside(path),
        }
    }

    fn create_staged(path: &std::path::Path, staging: &StagingPlace) -> io::Result<Self> {
        let name = path.strip_prefix(&staging.folder).map_err(io::Error::other)?;
        // Only the coordinator makes the staging folder: without it, the statement has ended, or this host
        // has another file system.
        if !staging.root.is_dir() {
            let message = "the folder is not the one in which rank 0 publishes files: COPY to a folder of \
                           local files needs a file system that all ranks share";
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        }
        let mut folder = staging.root.clone();
        for part in name.parent().into_iter().flat_map(std::path::Path::components) {
            folder.push(part);
            match fs::create_dir(&folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        // DuckDB looks into hidden folders.
        let mut temporary = staging.root.join(name).into_os_string();
        temporary.push(".staged");
        let temporary = PathBuf::from(temporary);
        let mut known = UNPUBLISHED.lock();
        let file = File::options().write(true).create_new(true).open(&temporary)?;
        known.insert(temporary.clone());
        Ok(Self {
            path: path.to_path_buf(),
            temporary: Some(temporary),
            file: Some(Arc::new(file)),
            bytes: 0,
        })
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
            // Folders of keys may be in the staging folder alone.
            let parent = path.parent().filter(|folder| !folder.exists());
            parent
                .map_or(Ok(()), create_folders)
                .and_then(|()| rename_or_copy(&temporary, &path))
                .map_err(|error| file_error(&path, error))?;
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

    fn release(&mut self) -> Option<StagedFile> {
        let staged = self.temporary.take()?;
        UNPUBLISHED.lock().remove(&staged);
        Some(StagedFile { path: self.path.clone(), staged })
    }
}

/// The staging folder of a statement. Dropping it removes it with all files, and the new folders that it is
/// in, unless the statement has succeeded.
#[derive(Debug)]
pub(super) struct StagingFolder {
    root: PathBuf,
    pub is_published: bool,
}

impl StagingFolder {
    pub(super) fn create(staging: &StagingPlace) -> io::Result<Self> {
        create_folders(&staging.folder)?;
        STAGING.lock().insert(staging.root.clone());
        let created = Self { root: staging.root.clone(), is_published: false };
        fs::create_dir(&staging.root)?;
        Ok(created)
    }
}

impl Drop for StagingFolder {
    fn drop(&mut self) {
        STAGING.lock().remove(&self.root);
        remove_staging(&self.root);
        match self.root.parent() {
            // Without rows, there is no file in them.
            Some(folder) if self.is_published => keep_folders(folder),
            Some(folder) => remove_new_folders(folder),
            None => {}
        }
    }
}

fn remove_staging(root: &std::path::Path) {
    // Under another name no rank creates a file in it any more.
    let mut gone = root.as_os_str().to_owned();
    gone.push("-gone");
    let gone = PathBuf::from(gone);
    let removed = fs::rename(root, &gone).and_then(|()| fs::remove_dir_all(&gone));
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %gone.display(), %error, "files of a statement that are not completed stay");
    }
}

/// Renames a file, or copies it beside `to` first, if that is on another mount.
fn rename_or_copy(from: &std::path::Path, to: &std::path::Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {}
        renamed => return renamed,
    }
    let mut beside = to.as_os_str().to_owned();
    beside.push("#1");
    let copied = fs::copy(from, &beside).and_then(|_| fs::rename(&beside, to));
    if copied.is_err() {
        let _ = fs::remove_file(&beside);
    }
    copied.and_then(|()| fs::remove_file(from))
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
