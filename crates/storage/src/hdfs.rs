//! HDFS object store: creates files at their final path unless they are staged; every call has a timeout.
//!
//! Reading, listing and copying use `hdfs-native-object-store`, with timeouts and retries (`reading.rs`).
//! Writing does not: that library writes each file under a temporary name and renames it when complete, which
//! costs two more NameNode calls per file. Here a new file is created at its final path. From then on it is
//! visible to directory listings, empty or partial; readers that find files by a catalog never see it early.
//! Only a file that replaces another one is written under a temporary name and renamed, because readers of
//! the old one must not lose it.
//!
//! Crash: a writer that dies leaves an open, unreferenced file; the NameNode closes it an hour later, and a
//! sweep finds it by its path ([`finished_name`]). A writer that fails or is dropped deletes it.
//!
//! Errors: calls to an unreachable NameNode are retried with exponential backoff; calls that may have been
//! executed only if they are idempotent. A put of a whole file that fails midway, because its DataNode or the
//! NameNode is gone, restarts from the beginning; a multipart upload does not, as its earlier parts are gone.

mod reading;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryFutureExt};
use hdfs_native::file::FileWriter;
use hdfs_native::{Client, ClientBuilder, HdfsError, WriteOptions};
use hdfs_native_object_store::HdfsObjectStore;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions,
    RenameTargetMode, Result, UploadPart,
};
use tokio::sync::{mpsc, oneshot};
use url::Url;
use uuid::Uuid;

use crate::options::{Limits, Options, is_limit};
use crate::retry::Retry;
use crate::staging::{PublishOutcome, Staged, StagedWriter, Staging};

const STORE: &str = "HDFS";
/// Hadoop's default port of a NameNode.
const PORT: u16 = 8020;
/// Suffix of temporary files that are renamed at once.
const UNFINISHED: &str = ".unfinished";
/// Concurrent deletions.
const DELETING_MAX: usize = 10;
/// Mode of created folders, before the umask of the file system.
const FOLDER_MODE: u32 = 0o755;

pub(crate) fn open(url: &Url, options: &Options) -> Result<Arc<dyn ObjectStore>> {
    Ok(Arc::new(connect(url, options)?))
}

pub(crate) fn open_staging(url: &Url, options: &Options) -> Result<Arc<dyn Staging>> {
    let hdfs = connect(url, options)?;
    Ok(Arc::new(RenameStaging { store: Arc::new(hdfs.clone()), hdfs }))
}

fn connect(url: &Url, options: &Options) -> Result<Hdfs> {
    let limits = options.limits()?;
    let mut root = root_of(url);
    let settings: Vec<(String, String)> = options
        .iter()
        .filter(|(key, _)| !is_limit(key))
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    let client =
        |root: &str| ClientBuilder::new().with_url(root.to_string()).with_config(settings.clone()).build();
    let client = client(&root).or_else(|error| {
        // A name that no name service has is a host name.
        if url.port().is_some() {
            return Err(error);
        }
        let on_host = format!("{root}:{PORT}");
        let opened = client(&on_host)?;
        root = on_host;
        Ok(opened)
    });
    let root: Arc<str> = root.into();
    let client = client.map_err(|error| explain(&root, "", error))?;
    let inner = Arc::new(HdfsObjectStore::new(client.clone()));
    Ok(Hdfs { client, inner, root, limits })
}

fn root_of(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())
}

#[derive(Clone)]
struct Hdfs {
    client: Client,
    inner: Arc<HdfsObjectStore>,
    root: Arc<str>,
    limits: Limits,
}

impl fmt::Debug for Hdfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hdfs({})", self.root)
    }
}

impl fmt::Display for Hdfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.root)
    }
}

/// Whether a call whose outcome is unknown may be retried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Idempotence {
    Idempotent,
    NotIdempotent,
}

impl Hdfs {
    /// Retries a call until it is answered, within the limits.
    async fn call<T, F>(
        &self,
        location: &str,
        idempotence: Idempotence,
        mut call: impl FnMut() -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T, HdfsError>>,
    {
        let mut retry = Retry::new(self.limits);
        loop {
            let error = match self.within(call()).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            if !is_retriable(&error, idempotence) || !retry.wait().await {
                return Err(explain(&self.root, location, error));
            }
        }
    }

    /// The same for calls of the library's object store.
    async fn call_store<T, F>(
        &self,
        location: &Path,
        idempotence: Idempotence,
        mut ask: impl FnMut() -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        // Errors of HDFS decide about retries; others pass through.
        let outcome = self.call(location.as_ref(), idempotence, || {
            ask()
                .map_ok(Ok)
                .or_else(|error| async { hdfs_error(error).map_or_else(|other| Ok(Err(other)), Err) })
        });
        outcome.await?
    }

    /// Applies the request timeout to a call, or to one step of a writer.
    async fn within<T>(&self, step: impl Future<Output = Result<T, HdfsError>>) -> Result<T, HdfsError> {
        match tokio::time::timeout(self.limits.request, step).await {
            Ok(outcome) => outcome,
            Err(_) => Err(HdfsError::IOError(timeout_error(self.limits.request))),
        }
    }

    /// Creates a file that must not exist, unless `overwrite`.
    async fn create(&self, location: &Path, overwrite: bool) -> Result<FileWriter> {
        let path = absolute(location);
        let options = WriteOptions::default().overwrite(overwrite);
        self.call(location.as_ref(), Idempotence::NotIdempotent, || self.client.create(&path, &options)).await
    }

    async fn write(&self, writer: &mut FileWriter, payload: PutPayload) -> Result<(), HdfsError> {
        for bytes in payload {
            self.within(writer.write(bytes)).await?;
        }
        Ok(())
    }

    /// Completes the file at `at`, and renames it to `to` if given, replacing the file there.
    async fn complete(&self, writer: &mut FileWriter, at: &Path, to: Option<&Path>) -> Result<()> {
        self.within(writer.close()).await.map_err(|error| explain(&self.root, at.as_ref(), error))?;
        match to {
            Some(to) => self.rename_own(at, to, true).await,
            None => Ok(()),
        }
    }

    /// Renames a file that nobody else knows of: if it is not found, an earlier attempt has renamed it.
    async fn rename_own(&self, from: &Path, to: &Path, overwrite: bool) -> Result<()> {
        let (old, new) = (absolute(from), absolute(to));
        let rename = || self.client.rename(&old, &new, overwrite);
        match self.call(to.as_ref(), Idempotence::Idempotent, rename).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Puts a file atomically; false if one exists and `overwrite` is not set.
    async fn put_renamed(&self, path: &Path, payload: PutPayload, overwrite: bool) -> Result<bool> {
        let unfinished = temporary_path(path)?;
        self.put_opts(&unfinished, payload, PutOptions::default()).await?;
        match self.rename_own(&unfinished, path, overwrite).await {
            Ok(()) => Ok(true),
            Err(error) => {
                self.delete_incomplete(&unfinished).await;
                match error {
                    Error::AlreadyExists { .. } if !overwrite => Ok(false),
                    error => Err(error),
                }
            }
        }
    }

    /// Deletes the file of an incomplete write; if that fails too, the file stays.
    async fn delete_incomplete(&self, location: &Path) {
        let path = absolute(location);
        if self.within(self.client.delete(&path, false)).await.is_err() {
            tracing::warn!(%location, "a file that was not completed stays");
        }
    }
}

/// A unique temporary path for a file that will be renamed to `path`.
///
/// Errors: `path` is not a valid file path.
pub fn temporary_path(path: &Path) -> Result<Path> {
    Ok(Path::parse(format!("{path}.{}{UNFINISHED}", Uuid::new_v4().simple()))?)
}

/// The final name of the file with the temporary name `name`; `None` if it is not a temporary name.
pub fn finished_name(name: &str) -> Option<&str> {
    let (finished, id) = name.strip_suffix(UNFINISHED)?.rsplit_once('.')?;
    let is_id = id.len() == Uuid::nil().simple().to_string().len() && Uuid::try_parse(id).is_ok();
    is_id.then_some(finished)
}

/// The error of HDFS within, if it is one.
fn hdfs_error(error: Error) -> Result<HdfsError> {
    match error {
        Error::Generic { store, source } => match source.downcast::<HdfsError>() {
            Ok(error) => Ok(*error),
            Err(source) => Err(Error::Generic { store, source }),
        },
        other => Err(other),
    }
}

fn timeout_error(limit: Duration) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::TimedOut, format!("no answer within {} s", limit.as_secs()))
}

/// Whether to retry a call after this error.
fn is_retriable(error: &HdfsError, idempotence: Idempotence) -> bool {
    use std::io::ErrorKind as Kind;
    match error {
        HdfsError::IOError(error) => match error.kind() {
            // The request was never sent.
            Kind::ConnectionRefused | Kind::NetworkUnreachable | Kind::HostUnreachable => true,
            Kind::ConnectionReset
            | Kind::ConnectionAborted
            | Kind::BrokenPipe
            | Kind::UnexpectedEof
            | Kind::TimedOut => idempotence == Idempotence::Idempotent,
            _ => false,
        },
        // The NameNode has just started and does not know its blocks yet, or is no longer active: it has done
        // nothing.
        HdfsError::RPCError(class, _) => ["RetriableException", "SafeModeException", "StandbyException"]
            .iter()
            .any(|refusal| class.ends_with(refusal)),
        _ => false,
    }
}

/// Whether to restart the write of a file after this error.
fn is_rewritable(error: &HdfsError) -> bool {
    match error {
        // A DataNode or the NameNode failed, or no DataNode reported its blocks to the NameNode in time.
        HdfsError::IOError(_) | HdfsError::DataTransferError(_) | HdfsError::OperationFailed(_) => true,
        // This class is the only sign that no DataNode is available, as right after a start.
        HdfsError::RPCError(class, _) => {
            class == "java.io.IOException" || is_retriable(error, Idempotence::Idempotent)
        }
        _ => false,
    }
}

#[async_trait]
impl ObjectStore for Hdfs {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        if let PutMode::Update(_) = options.mode {
            return Err(Error::NotImplemented {
                operation: "put on the condition of a version".to_string(),
                implementer: self.to_string(),
            });
        }
        let may_overwrite = options.mode == PutMode::Overwrite;
        let done = PutResult { e_tag: None, version: None };
        let mut retry = Retry::new(self.limits);
        // Whether a file at this path was created here.
        let mut is_begun = false;
        loop {
            let mut writer = match self.create(location, is_begun).await {
                Ok(writer) => writer,
                Err(Error::AlreadyExists { .. }) if may_overwrite && !is_begun => {
                    return self.put_renamed(location, payload, true).await.map(|_| done);
                }
                Err(error) => {
                    if is_begun {
                        self.delete_incomplete(location).await;
                    }
                    return Err(error);
                }
            };
            is_begun = true;
            let written = async {
                self.write(&mut writer, payload.clone()).await?;
                self.within(writer.close()).await
            };
            let Err(error) = written.await else { return Ok(done) };
            drop(writer);
            // With create-only, somebody else may have created another file there since this one was deleted.
            if !may_overwrite || !is_rewritable(&error) || !retry.wait().await {
                self.delete_incomplete(location).await;
                return Err(explain(&self.root, location.as_ref(), error));
            }
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let (writer, at, to) = match self.create(location, false).await {
            Ok(writer) => (writer, location.clone(), None),
            Err(Error::AlreadyExists { .. }) => {
                let at = temporary_path(location)?;
                (self.create(&at, false).await?, at, Some(location.clone()))
            }
            Err(error) => return Err(error),
        };
        let (parts, received) = mpsc::unbounded_channel();
        tokio::spawn(write_parts(self.clone(), writer, at, to, received));
        Ok(Box::new(Upload { parts: Some(parts), location: location.clone() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let mut found = self
            .call_store(location, Idempotence::Idempotent, || self.inner.get_opts(location, options.clone()))
            .await?;
        if let GetResultPayload::Stream(stream) = found.payload {
            let read = self.read_on(location, found.range.clone(), found.meta.e_tag.clone(), stream);
            found.payload = GetResultPayload::Stream(read);
        }
        Ok(found)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .map(move |location| {
                let store = store.clone();
                async move {
                    let location = location?;
                    let path = absolute(&location);
                    store
                        .call(location.as_ref(), Idempotence::Idempotent, || {
                            store.client.delete(&path, false)
                        })
                        .await?;
                    Ok(location)
                }
            })
            .buffered(DELETING_MAX)
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.files_below(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let at = prefix.cloned().unwrap_or_default();
        self.call_store(&at, Idempotence::Idempotent, || self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.call_store(from, Idempotence::NotIdempotent, || self.inner.copy_opts(from, to, options.clone()))
            .await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        if finished_name(from.as_ref()).is_some() {
            let overwrite = options.target_mode == RenameTargetMode::Overwrite;
            return self.rename_own(from, to, overwrite).await;
        }
        self.call_store(from, Idempotence::NotIdempotent, || {
            self.inner.rename_opts(from, to, options.clone())
        })
        .await
    }
}

/// Messages from an upload to its writer task.
enum Step {
    Part(PutPayload, oneshot::Sender<Result<()>>),
    Complete(oneshot::Sender<Result<()>>),
    /// Answered after the file is deleted.
    Abort(oneshot::Sender<()>),
}

/// A sequential multipart upload. Memory bound: callers wait for each part; see `BufWriter`.
struct Upload {
    /// `None` when completed or aborted.
    parts: Option<mpsc::UnboundedSender<Step>>,
    location: Path,
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upload({})", self.location)
    }
}

/// Writes parts in order to a file at `at`, to be renamed to `to` if given. Deletes the file if the parts end
/// before it is complete.
async fn write_parts(
    store: Hdfs,
    mut writer: FileWriter,
    at: Path,
    to: Option<Path>,
    mut steps: mpsc::UnboundedReceiver<Step>,
) {
    while let Some(step) = steps.recv().await {
        match step {
            Step::Part(payload, answer) => {
                let written = store.write(&mut writer, payload).await;
                let written = written.map_err(|error| explain(&store.root, at.as_ref(), error));
                let failed = written.is_err();
                let _ = answer.send(written);
                if failed {
                    break;
                }
            }
            Step::Complete(answer) => {
                let completed = store.complete(&mut writer, &at, to.as_ref()).await;
                if completed.is_err() {
                    drop(writer);
                    store.delete_incomplete(&at).await;
                }
                let _ = answer.send(completed);
                return;
            }
            Step::Abort(answer) => {
                drop(writer);
                store.delete_incomplete(&at).await;
                let _ = answer.send(());
                return;
            }
        }
    }
    drop(writer);
    store.delete_incomplete(&at).await;
}

fn upload_ended() -> Error {
    crate::store_error(STORE, "the upload is completed, given up or failed")
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (answer, written) = oneshot::channel();
        let sent = self.parts.as_ref().is_some_and(|parts| parts.send(Step::Part(data, answer)).is_ok());
        Box::pin(async move {
            if sent { written.await.unwrap_or_else(|_| Err(upload_ended())) } else { Err(upload_ended()) }
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let (answer, closed) = oneshot::channel();
        let parts = self.parts.take().ok_or_else(upload_ended)?;
        parts.send(Step::Complete(answer)).map_err(|_| upload_ended())?;
        closed.await.unwrap_or_else(|_| Err(upload_ended()))?;
        Ok(PutResult { e_tag: None, version: None })
    }

    async fn abort(&mut self) -> Result<()> {
        let (answer, deleted) = oneshot::channel();
        let parts = self.parts.take().ok_or_else(upload_ended)?;
        // A writer that has failed deletes the file itself.
        let _ = parts.send(Step::Abort(answer));
        let _ = deleted.await;
        Ok(())
    }
}

/// Stages files under temporary names and renames them.
#[derive(Debug)]
struct RenameStaging {
    hdfs: Hdfs,
    store: Arc<dyn ObjectStore>,
}

#[async_trait]
impl Staging for RenameStaging {
    fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    fn binds_names(&self) -> bool {
        false
    }

    fn lease(&self) -> Duration {
        self.hdfs.limits.lease
    }

    fn request_age_max(&self) -> Duration {
        self.hdfs.limits.request_age_max()
    }

    async fn begin(&self, staged: &Path, _: &Path) -> Result<Box<dyn StagedWriter>> {
        let writer = self.hdfs.create(staged, false).await?;
        let file = Staged { staged: staged.to_string(), ..Staged::default() };
        Ok(Box::new(StagedFile { hdfs: self.hdfs.clone(), writer, at: staged.clone(), file }))
    }

    async fn publish(&self, file: &Staged, name: &Path) -> Result<PublishOutcome> {
        let from = absolute(&Path::parse(&file.staged)?);
        let to = absolute(name);
        if let Some((folder, _)) = to.rsplit_once('/').filter(|(folder, _)| !folder.is_empty()) {
            self.hdfs
                .call(name.as_ref(), Idempotence::Idempotent, || {
                    self.hdfs.client.mkdirs(folder, FOLDER_MODE, true)
                })
                .await?;
        }
        // A retry does not find the file: the first attempt has renamed it.
        let renamed = self
            .hdfs
            .call(&file.staged, Idempotence::Idempotent, || self.hdfs.client.rename(&from, &to, true))
            .await;
        match renamed {
            Ok(()) => Ok(PublishOutcome::Published),
            Err(Error::NotFound { .. }) => Ok(PublishOutcome::Gone),
            Err(error) => Err(error),
        }
    }

    async fn discard(&self, folder: &Path) -> Result<()> {
        let path = absolute(folder);
        let deleted = self
            .hdfs
            .call(folder.as_ref(), Idempotence::Idempotent, || self.hdfs.client.delete(&path, true))
            .await;
        match deleted {
            Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn put_atomic(&self, path: &Path, bytes: Bytes) -> Result<()> {
        self.hdfs.put_renamed(path, bytes.into(), true).await.map(drop)
    }

    async fn put_if_absent(&self, path: &Path, bytes: Bytes) -> Result<bool> {
        self.hdfs.put_renamed(path, bytes.into(), false).await
    }

    async fn check_writable(&self, folder: &Path) -> Result<()> {
        let mut folder = absolute(folder).trim_end_matches('/').to_string();
        loop {
            let probe = format!("{folder}/.harrier-{}{UNFINISHED}", Uuid::new_v4().simple());
            let location = Path::parse(probe.trim_start_matches('/'))?;
            let options = || WriteOptions::default().create_parent(false);
            let created = self
                .hdfs
                .call(&probe, Idempotence::NotIdempotent, || self.hdfs.client.create(&probe, options()))
                .await;
            match created {
                Ok(writer) => {
                    drop(writer);
                    self.hdfs.delete_incomplete(&location).await;
                    return Ok(());
                }
                // Its parent folder will be created in the one above.
                Err(Error::NotFound { .. }) if folder.contains('/') => {
                    folder.truncate(folder.rfind('/').unwrap_or_default());
                }
                Err(error) => return Err(error),
            }
        }
    }
}

struct StagedFile {
    hdfs: Hdfs,
    writer: FileWriter,
    at: Path,
    file: Staged,
}

#[async_trait]
impl StagedWriter for StagedFile {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.file.bytes += bytes.len() as u64;
        let written = self.hdfs.write(&mut self.writer, bytes.into()).await;
        written.map_err(|error| explain(&self.hdfs.root, self.at.as_ref(), error))
    }

    async fn finish(&mut self) -> Result<Staged> {
        self.hdfs.complete(&mut self.writer, &self.at, None).await?;
        Ok(self.file.clone())
    }
}

fn absolute(location: &Path) -> String {
    format!("/{location}")
}

/// An error with the file system that it concerns.
#[derive(Debug)]
struct Failure {
    root: Arc<str>,
    error: HdfsError,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            HdfsError::IOError(error) => write!(f, "cannot talk to {}: {error}", self.root),
            // Details of each DataNode follow the colon.
            HdfsError::DataTransferError(text) => {
                let text = text.split(':').next().unwrap_or_default();
                write!(f, "cannot talk to a DataNode of {}: {text}", self.root)
            }
            // The first line is the message; a Java stack trace follows.
            HdfsError::RPCError(class, text) | HdfsError::FatalRPCError(class, text) => {
                let class = class.rsplit('.').next().unwrap_or(class);
                write!(f, "{} refuses: {} ({class})", self.root, text.lines().next().unwrap_or_default())
            }
            error => write!(f, "{}: {error}", self.root),
        }
    }
}

impl std::error::Error for Failure {}

fn explain(root: &Arc<str>, location: &str, error: HdfsError) -> Error {
    let path = location.to_string();
    let class = match &error {
        HdfsError::RPCError(class, _) | HdfsError::FatalRPCError(class, _) => class.clone(),
        _ => String::new(),
    };
    let missing = matches!(error, HdfsError::FileNotFound(_)) || class.ends_with(".FileNotFoundException");
    let exists =
        matches!(error, HdfsError::AlreadyExists(_)) || class.ends_with(".FileAlreadyExistsException");
    let source = Box::new(Failure { root: Arc::clone(root), error });
    match () {
        () if missing => Error::NotFound { path, source },
        () if exists => Error::AlreadyExists { path, source },
        () if class.ends_with(".AccessControlException") => Error::PermissionDenied { path, source },
        () => Error::Generic { store: STORE, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_has_neither_user_nor_path() {
        for (url, root) in
            [("hdfs://host:9000/a/b", "hdfs://host:9000"), ("hdfs://me@cluster/a", "hdfs://cluster")]
        {
            assert_eq!(root_of(&Url::parse(url).unwrap()), root);
        }
    }

    #[test]
    fn only_idempotent_calls_are_retried() {
        let broken = |kind: std::io::ErrorKind| HdfsError::IOError(kind.into());
        assert!(is_retriable(&broken(std::io::ErrorKind::ConnectionRefused), Idempotence::NotIdempotent));
        assert!(!is_retriable(&broken(std::io::ErrorKind::ConnectionReset), Idempotence::NotIdempotent));
        assert!(is_retriable(&broken(std::io::ErrorKind::ConnectionReset), Idempotence::Idempotent));
        let refused = |class: &str| HdfsError::RPCError(format!("org.apache.hadoop.{class}"), String::new());
        assert!(is_retriable(&refused("hdfs.server.namenode.SafeModeException"), Idempotence::NotIdempotent));
        assert!(!is_retriable(&refused("security.AccessControlException"), Idempotence::Idempotent));
    }

    #[test]
    fn interrupted_writes_restart_and_refused_ones_do_not() {
        let broken = |kind: std::io::ErrorKind| HdfsError::IOError(kind.into());
        assert!(is_rewritable(&broken(std::io::ErrorKind::ConnectionReset)));
        assert!(is_rewritable(&HdfsError::DataTransferError("All nodes failed for write".into())));
        let refused = |class: &str| HdfsError::RPCError(class.to_string(), String::new());
        assert!(is_rewritable(&refused("java.io.IOException")));
        assert!(!is_rewritable(&refused("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException")));
        assert!(!is_rewritable(&HdfsError::AlreadyExists(String::new())));
    }

    #[test]
    fn temporary_names_are_recognized() {
        let name = temporary_path(&Path::from("t/k=1/x.parquet")).unwrap();
        let (_, name) = name.as_ref().rsplit_once('/').unwrap();
        assert_eq!(finished_name(name), Some("x.parquet"));
        for foreign in ["x.parquet", "x.unfinished", "x.parquet.7.unfinished", ".x.parquet.tmp.1"] {
            assert_eq!(finished_name(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn datanode_errors_are_short() {
        let root: Arc<str> = "hdfs://here:9000".into();
        let text = "All DataNodes failed: [DatanodeInfoProto { id: DatanodeIdProto { much } }]";
        let said = explain(&root, "x", HdfsError::DataTransferError(text.to_string())).to_string();
        assert!(
            said.ends_with("cannot talk to a DataNode of hdfs://here:9000: All DataNodes failed"),
            "{said}"
        );
    }
}
