//! Files that are written and not seen yet, as each kind of store lets them be.
//!
//! | store | where a file is until it is shown | it is shown by |
//! |---|---|---|
//! | local disk | beside its place, with `#` and a number at the end of its name, which listings leave out | a rename |
//! | HDFS | beside its place, with `.unfinished` at the end of its name | a rename |
//! | S3 | parts of an upload, which nothing lists; in memory, if it is small | the upload's completion; a put |
//!
//! Cancellation: a file that is dropped before it is shown is removed, a local one at once, others in the
//! background.

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

/// Local files of this process that are not shown.
static UNSEEN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Removes the local files that no statement of this process has shown yet, for a process that ends without
/// dropping everything.
pub fn remove_local() {
    for path in std::mem::take(&mut *UNSEEN.lock()) {
        let _ = fs::remove_file(path);
    }
}

/// A file that is written and not seen yet.
#[async_trait]
pub(super) trait Hidden: fmt::Debug + Send {
    /// Appends to the file; the parts are in the order of the calls. To be awaited before the file is closed.
    fn put_part(&mut self, data: PutPayload) -> UploadPart;

    /// All is written.
    async fn close(&mut self) -> Result<()>;

    /// Shows a file that is closed, in the place of another one. After an error it may be seen or not.
    async fn show(&mut self) -> Result<()>;

    /// Removes what has not been shown. Nothing else is to be done with it then.
    async fn give_up(&mut self) -> Result<()>;
}

/// An error that no store has told.
pub(super) fn failed(what: String) -> Error {
    Error::Generic { store: "files of a statement", source: what.into() }
}

/// A file on a local disk.
#[derive(Debug)]
pub(super) struct LocalFile {
    path: PathBuf,
    /// Where it is until it is shown; empty afterwards, and when it is given up.
    unseen: Option<PathBuf>,
    /// `None` when it is closed.
    file: Option<Arc<File>>,
    bytes: u64,
}

impl LocalFile {
    /// Creates a file that will be at `location`, and the folders above it.
    pub(super) async fn create(location: &Path) -> Result<Self> {
        let path = LocalFileSystem::new().path_to_filesystem(location)?;
        blocking(move || Self::create_beside(&path).map_err(|error| about(&path, error))).await
    }

    /// Creates a file with all that is in it, and closes it.
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
            put().map_err(|error| about(&path, error))
        })
        .await
    }

    fn create_beside(path: &std::path::Path) -> io::Result<Self> {
        let mut number = 1_u64;
        loop {
            let mut name = path.as_os_str().to_owned();
            name.push(format!("#{number}"));
            let unseen = PathBuf::from(name);
            // What is created is among those to be removed before anybody can look.
            let mut known = UNSEEN.lock();
            match File::options().write(true).create_new(true).open(&unseen) {
                Ok(file) => {
                    known.insert(unseen.clone());
                    return Ok(Self {
                        path: path.to_path_buf(),
                        unseen: Some(unseen),
                        file: Some(Arc::new(file)),
                        bytes: 0,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => match path.parent() {
                    Some(folder) if !folder.exists() => fs::create_dir_all(folder)?,
                    _ => return Err(error),
                },
                Err(error) => return Err(error),
            }
        }
    }

    fn remove(&mut self) -> io::Result<()> {
        let Some(unseen) = self.unseen.take() else { return Ok(()) };
        UNSEEN.lock().remove(&unseen);
        match fs::remove_file(unseen) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
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
impl Hidden for LocalFile {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let Some(file) = self.file.clone() else {
            return ready(Err(failed(format!("\"{}\" is closed", self.path.display())))).boxed();
        };
        let path = self.path.clone();
        let at = self.bytes;
        self.bytes += data.content_length() as u64;
        blocking(move || write_at(&file, &data, at).map_err(|error| about(&path, error))).boxed()
    }

    async fn close(&mut self) -> Result<()> {
        self.file = None;
        Ok(())
    }

    async fn show(&mut self) -> Result<()> {
        let Some(unseen) = self.unseen.clone() else { return Ok(()) };
        let path = self.path.clone();
        blocking(move || {
            fs::rename(&unseen, &path).map_err(|error| about(&path, error))?;
            UNSEEN.lock().remove(&unseen);
            Ok(())
        })
        .await?;
        self.unseen = None;
        Ok(())
    }

    async fn give_up(&mut self) -> Result<()> {
        self.remove().map_err(|error| about(&self.path, error))
    }
}

fn write_at(file: &File, data: &PutPayload, mut at: u64) -> io::Result<()> {
    for piece in data.iter() {
        file.write_all_at(piece, at)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// What the kernel said about a file.
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

fn about(path: &std::path::Path, error: io::Error) -> Error {
    Error::Generic { store: LOCAL, source: Box::new(FileError { path: path.to_path_buf(), error }) }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await?
}

/// A file of HDFS.
#[derive(Debug)]
pub(super) struct Beside {
    store: Arc<dyn ObjectStore>,
    at: Path,
    to: Path,
    /// `None` when it is closed.
    upload: Option<Box<dyn MultipartUpload>>,
    is_over: bool,
}

impl Beside {
    pub(super) async fn begin(
        store: &Arc<dyn ObjectStore>,
        to: &Path,
        options: PutMultipartOptions,
    ) -> Result<Self> {
        let at = harrier_storage::temporary_path(to)?;
        let upload = Some(store.put_multipart_opts(&at, options).await?);
        Ok(Self { store: Arc::clone(store), at, to: to.clone(), upload, is_over: false })
    }

    /// Writes all of a file, which is closed then.
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
impl Hidden for Beside {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        match &mut self.upload {
            Some(upload) => upload.put_part(data),
            None => ready(Err(failed(format!("\"{}\" is closed", self.to)))).boxed(),
        }
    }

    async fn close(&mut self) -> Result<()> {
        if let Some(mut upload) = self.upload.take() {
            upload.complete().await?;
        }
        Ok(())
    }

    async fn show(&mut self) -> Result<()> {
        self.store.rename(&self.at, &self.to).await?;
        self.is_over = true;
        Ok(())
    }

    async fn give_up(&mut self) -> Result<()> {
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

impl Drop for Beside {
    fn drop(&mut self) {
        // An upload that is dropped deletes its file.
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

/// A file of S3, which has been uploaded when it is closed.
#[derive(Debug)]
pub(super) struct Upload {
    location: Path,
    /// `None` when it is shown or given up. Dropped, it gives up itself.
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
impl Hidden for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        match &mut self.upload {
            Some(upload) => upload.put_part(data),
            None => ready(Err(failed(format!("\"{}\" is complete or given up", self.location)))).boxed(),
        }
    }

    async fn close(&mut self) -> Result<()> {
        Ok(())
    }

    async fn show(&mut self) -> Result<()> {
        if let Some(upload) = &mut self.upload {
            upload.complete().await?;
            self.upload = None;
        }
        Ok(())
    }

    async fn give_up(&mut self) -> Result<()> {
        match self.upload.take() {
            Some(mut upload) => upload.abort().await,
            None => Ok(()),
        }
    }
}

/// A file of S3 that is put at once.
#[derive(Debug)]
pub(super) struct Small {
    store: Arc<dyn ObjectStore>,
    location: Path,
    /// `None` when it is shown or given up.
    content: Option<(PutPayload, PutOptions)>,
}

impl Small {
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
impl Hidden for Small {
    fn put_part(&mut self, _: PutPayload) -> UploadPart {
        ready(Err(failed(format!("\"{}\" is complete", self.location)))).boxed()
    }

    async fn close(&mut self) -> Result<()> {
        Ok(())
    }

    async fn show(&mut self) -> Result<()> {
        if let Some((payload, options)) = self.content.take() {
            self.store.put_opts(&self.location, payload, options).await?;
        }
        Ok(())
    }

    async fn give_up(&mut self) -> Result<()> {
        self.content = None;
        Ok(())
    }
}
