//! HDFS: files are created at their final path, unless they are staged, and nothing waits for a NameNode
//! without end.
//!
//! Reading, listing, copying are those of `hdfs-native-object-store`, within limits (`reading.rs`). Writing
//! is not: that library writes each file beside its place and renames it when it is complete, which costs two
//! more calls of the NameNode for every file. Here a new file is created where it will stay. Whoever lists
//! the folder sees it from then on, empty or in part; those who know files by a catalog never do. Only a file
//! that takes the place of another one is written beside it and renamed, because readers of the old one must
//! not see it go.
//!
//! Crash: a writer that dies leaves a file that nothing refers to, open; the NameNode closes it an hour
//! later, and whoever sweeps finds it by its path ([`finished_name`]). A writer that fails or is dropped
//! deletes it.
//!
//! Errors: a NameNode that cannot be reached is asked again with growing pauses; what may have reached it
//! already is not, unless it comes to the same. A file that is put whole and breaks off, as its DataNode or
//! the NameNode is gone, is written again from its beginning; one that comes in parts is not, as those are
//! gone.

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
use crate::staging::{Shown, Staged, StagedWriter, Staging};

const STORE: &str = "HDFS";
/// Of a NameNode whose URL names none, as Hadoop has it.
const PORT: u16 = 8020;
/// The end of the names of files that are written to be renamed at once.
const UNFINISHED: &str = ".unfinished";
/// Files that are deleted at the same time.
const DELETING_MAX: usize = 10;
/// Of folders that are made, before the file system takes away what its mask says.
const FOLDER_MODE: u32 = 0o755;

pub(crate) fn open(url: &Url, options: &Options) -> Result<Arc<dyn ObjectStore>> {
    Ok(Arc::new(connect(url, options)?))
}

pub(crate) fn open_staging(url: &Url, options: &Options) -> Result<Arc<dyn Staging>> {
    let hdfs = connect(url, options)?;
    Ok(Arc::new(Beside { store: Arc::new(hdfs.clone()), hdfs }))
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
        // Where no name service has this name it is a host's.
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

/// Whether a call may be made again when nobody knows what became of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    /// It comes to the same.
    Fine,
    Wrong,
}

impl Hdfs {
    /// Makes a call until it is answered; within the limits.
    async fn call<T, F>(&self, location: &str, again: Again, mut call: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T, HdfsError>>,
    {
        let mut retry = Retry::new(self.limits);
        loop {
            let error = match self.within(call()).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            if !may_help(&error, again) || !retry.wait().await {
                return Err(explain(&self.root, location, error));
            }
        }
    }

    /// The same for what the library's store does.
    async fn ask<T, F>(&self, location: &Path, again: Again, mut ask: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        // An error of HDFS is decided upon as such; others are as they are.
        let outcome = self.call(location.as_ref(), again, || {
            ask().map_ok(Ok).or_else(|error| async { said(error).map_or_else(|other| Ok(Err(other)), Err) })
        });
        outcome.await?
    }

    /// Waits for a call, or for one step of a writer, but not without end.
    async fn within<T>(&self, step: impl Future<Output = Result<T, HdfsError>>) -> Result<T, HdfsError> {
        match tokio::time::timeout(self.limits.request, step).await {
            Ok(outcome) => outcome,
            Err(_) => Err(HdfsError::IOError(silent(self.limits.request))),
        }
    }

    /// Creates a file that is not there yet; with `overwrite`, one that may be.
    async fn create(&self, location: &Path, overwrite: bool) -> Result<FileWriter> {
        let path = absolute(location);
        let options = WriteOptions::default().overwrite(overwrite);
        self.call(location.as_ref(), Again::Wrong, || self.client.create(&path, &options)).await
    }

    async fn write(&self, writer: &mut FileWriter, payload: PutPayload) -> Result<(), HdfsError> {
        for bytes in payload {
            self.within(writer.write(bytes)).await?;
        }
        Ok(())
    }

    /// Completes a file that was written at `at`, and lays it over the one at `to` if it is to take that
    /// one's place.
    async fn complete(&self, writer: &mut FileWriter, at: &Path, to: Option<&Path>) -> Result<()> {
        self.within(writer.close()).await.map_err(|error| explain(&self.root, at.as_ref(), error))?;
        match to {
            Some(to) => self.rename_own(at, to, true).await,
            None => Ok(()),
        }
    }

    /// Renames a file that nobody else knows of: one that is not found was renamed by an earlier call.
    async fn rename_own(&self, from: &Path, to: &Path, overwrite: bool) -> Result<()> {
        let (old, new) = (absolute(from), absolute(to));
        let rename = || self.client.rename(&old, &new, overwrite);
        match self.call(to.as_ref(), Again::Fine, rename).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether a file is at `path` now, seen whole or not at all; with `overwrite`, over one that is there.
    async fn put_renamed(&self, path: &Path, payload: PutPayload, overwrite: bool) -> Result<bool> {
        let unfinished = beside(path)?;
        self.put_opts(&unfinished, payload, PutOptions::default()).await?;
        match self.rename_own(&unfinished, path, overwrite).await {
            Ok(()) => Ok(true),
            Err(error) => {
                self.forget(&unfinished).await;
                match error {
                    Error::AlreadyExists { .. } if !overwrite => Ok(false),
                    error => Err(error),
                }
            }
        }
    }

    /// Deletes what a writer has left; if that fails too, the file stays.
    async fn forget(&self, location: &Path) {
        let path = absolute(location);
        if self.within(self.client.delete(&path, false)).await.is_err() {
            tracing::warn!(%location, "a file that was not completed stays");
        }
    }
}

/// Where a file is written that is to be at `path`, perhaps in the place of another one: a name that nothing
/// else has.
///
/// Errors: `path` is not one of a file.
pub fn beside(path: &Path) -> Result<Path> {
    Ok(Path::parse(format!("{path}.{}{UNFINISHED}", Uuid::new_v4().simple()))?)
}

/// The name that a file will have which is called `name` while it is written beside its place; `None` if
/// `name` is that of no such file.
pub fn finished_name(name: &str) -> Option<&str> {
    let (finished, id) = name.strip_suffix(UNFINISHED)?.rsplit_once('.')?;
    let is_id = id.len() == Uuid::nil().simple().to_string().len() && Uuid::try_parse(id).is_ok();
    is_id.then_some(finished)
}

/// What HDFS has said, if it is that which is wrong.
fn said(error: Error) -> Result<HdfsError> {
    match error {
        Error::Generic { store, source } => match source.downcast::<HdfsError>() {
            Ok(error) => Ok(*error),
            Err(source) => Err(Error::Generic { store, source }),
        },
        other => Err(other),
    }
}

fn silent(limit: Duration) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::TimedOut, format!("no answer within {} s", limit.as_secs()))
}

/// Whether to make a call again that ended so.
fn may_help(error: &HdfsError, again: Again) -> bool {
    use std::io::ErrorKind as Kind;
    match error {
        HdfsError::IOError(error) => match error.kind() {
            // It was never made.
            Kind::ConnectionRefused | Kind::NetworkUnreachable | Kind::HostUnreachable => true,
            Kind::ConnectionReset
            | Kind::ConnectionAborted
            | Kind::BrokenPipe
            | Kind::UnexpectedEof
            | Kind::TimedOut => again == Again::Fine,
            _ => false,
        },
        // A NameNode that has just started and does not know its blocks yet, or one that is no longer the
        // active one: it has done nothing.
        HdfsError::RPCError(class, _) => ["RetriableException", "SafeModeException", "StandbyException"]
            .iter()
            .any(|refusal| class.ends_with(refusal)),
        _ => false,
    }
}

/// Whether to write a file again from its beginning whose writing ended so.
fn may_be_written_again(error: &HdfsError) -> bool {
    match error {
        // Of a DataNode, or the NameNode; or no DataNode has told the NameNode in time of what it has.
        HdfsError::IOError(_) | HdfsError::DataTransferError(_) | HdfsError::OperationFailed(_) => true,
        // By this class alone it says that there is no DataNode, as when it has just started.
        HdfsError::RPCError(class, _) => class == "java.io.IOException" || may_help(error, Again::Fine),
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
        // What is at its place then was begun here.
        let mut is_begun = false;
        loop {
            let mut writer = match self.create(location, is_begun).await {
                Ok(writer) => writer,
                Err(Error::AlreadyExists { .. }) if may_overwrite && !is_begun => {
                    return self.put_renamed(location, payload, true).await.map(|_| done);
                }
                Err(error) => {
                    if is_begun {
                        self.forget(location).await;
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
            // Somebody else may have put another file there since this one was deleted, if only one of them
            // may.
            if !may_overwrite || !may_be_written_again(&error) || !retry.wait().await {
                self.forget(location).await;
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
                let at = beside(location)?;
                (self.create(&at, false).await?, at, Some(location.clone()))
            }
            Err(error) => return Err(error),
        };
        let (parts, received) = mpsc::unbounded_channel();
        tokio::spawn(write_parts(self.clone(), writer, at, to, received));
        Ok(Box::new(Upload { parts: Some(parts), location: location.clone() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let mut found =
            self.ask(location, Again::Fine, || self.inner.get_opts(location, options.clone())).await?;
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
                    store.call(location.as_ref(), Again::Fine, || store.client.delete(&path, false)).await?;
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
        self.ask(&at, Again::Fine, || self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.ask(from, Again::Wrong, || self.inner.copy_opts(from, to, options.clone())).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        if finished_name(from.as_ref()).is_some() {
            let overwrite = options.target_mode == RenameTargetMode::Overwrite;
            return self.rename_own(from, to, overwrite).await;
        }
        self.ask(from, Again::Wrong, || self.inner.rename_opts(from, to, options.clone())).await
    }
}

/// What the holder of an upload tells its writer.
enum Step {
    Part(PutPayload, oneshot::Sender<Result<()>>),
    Complete(oneshot::Sender<Result<()>>),
    /// Answered when the file is deleted.
    GiveUp(oneshot::Sender<()>),
}

/// A file whose parts come one after the other. Memory bound: whoever puts parts waits for them; see
/// `BufWriter`.
struct Upload {
    /// `None` when it is completed or given up.
    parts: Option<mpsc::UnboundedSender<Step>>,
    location: Path,
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upload({})", self.location)
    }
}

/// Writes parts in the order in which they come, to a file at `at` that is to be at `to` if that is another
/// place. Deletes the file if they end before it is complete.
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
                    store.forget(&at).await;
                }
                let _ = answer.send(completed);
                return;
            }
            Step::GiveUp(answer) => {
                drop(writer);
                store.forget(&at).await;
                let _ = answer.send(());
                return;
            }
        }
    }
    drop(writer);
    store.forget(&at).await;
}

fn over() -> Error {
    crate::wrong(STORE, "the upload is completed, given up or failed")
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (answer, written) = oneshot::channel();
        let sent = self.parts.as_ref().is_some_and(|parts| parts.send(Step::Part(data, answer)).is_ok());
        Box::pin(
            async move { if sent { written.await.unwrap_or_else(|_| Err(over())) } else { Err(over()) } },
        )
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let (answer, closed) = oneshot::channel();
        let parts = self.parts.take().ok_or_else(over)?;
        parts.send(Step::Complete(answer)).map_err(|_| over())?;
        closed.await.unwrap_or_else(|_| Err(over()))?;
        Ok(PutResult { e_tag: None, version: None })
    }

    async fn abort(&mut self) -> Result<()> {
        let (answer, deleted) = oneshot::channel();
        let parts = self.parts.take().ok_or_else(over)?;
        // A writer that has failed deletes the file by itself.
        let _ = parts.send(Step::GiveUp(answer));
        let _ = deleted.await;
        Ok(())
    }
}

/// Files that are staged beside where they will be, and renamed.
#[derive(Debug)]
struct Beside {
    hdfs: Hdfs,
    store: Arc<dyn ObjectStore>,
}

#[async_trait]
impl Staging for Beside {
    fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    fn binds_names(&self) -> bool {
        false
    }

    fn lease(&self) -> Duration {
        self.hdfs.limits.lease
    }

    fn late(&self) -> Duration {
        self.hdfs.limits.late()
    }

    async fn begin(&self, staged: &Path, _: &Path) -> Result<Box<dyn StagedWriter>> {
        let writer = self.hdfs.create(staged, false).await?;
        let file = Staged { staged: staged.to_string(), ..Staged::default() };
        Ok(Box::new(StagedFile { hdfs: self.hdfs.clone(), writer, at: staged.clone(), file }))
    }

    async fn show(&self, file: &Staged, name: &Path) -> Result<Shown> {
        let from = absolute(&Path::parse(&file.staged)?);
        let to = absolute(name);
        if let Some((folder, _)) = to.rsplit_once('/').filter(|(folder, _)| !folder.is_empty()) {
            self.hdfs
                .call(name.as_ref(), Again::Fine, || self.hdfs.client.mkdirs(folder, FOLDER_MODE, true))
                .await?;
        }
        // Made again, it does not find the file: it is where it was to go.
        let renamed =
            self.hdfs.call(&file.staged, Again::Fine, || self.hdfs.client.rename(&from, &to, true)).await;
        match renamed {
            Ok(()) => Ok(Shown::Now),
            Err(Error::NotFound { .. }) => Ok(Shown::Gone),
            Err(error) => Err(error),
        }
    }

    async fn take_back(&self, folder: &Path) -> Result<()> {
        let path = absolute(folder);
        let deleted =
            self.hdfs.call(folder.as_ref(), Again::Fine, || self.hdfs.client.delete(&path, true)).await;
        match deleted {
            Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn put_whole(&self, path: &Path, bytes: Bytes) -> Result<()> {
        self.hdfs.put_renamed(path, bytes.into(), true).await.map(drop)
    }

    async fn put_new(&self, path: &Path, bytes: Bytes) -> Result<bool> {
        self.hdfs.put_renamed(path, bytes.into(), false).await
    }

    async fn check_writable(&self, folder: &Path) -> Result<()> {
        let mut folder = absolute(folder).trim_end_matches('/').to_string();
        loop {
            let probe = format!("{folder}/.harrier-{}{UNFINISHED}", Uuid::new_v4().simple());
            let location = Path::parse(probe.trim_start_matches('/'))?;
            let options = || WriteOptions::default().create_parent(false);
            let created =
                self.hdfs.call(&probe, Again::Wrong, || self.hdfs.client.create(&probe, options())).await;
            match created {
                Ok(writer) => {
                    drop(writer);
                    self.hdfs.forget(&location).await;
                    return Ok(());
                }
                // It will be made in the one above.
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

/// A failure, with the file system that it is about.
#[derive(Debug)]
struct Failure {
    root: Arc<str>,
    error: HdfsError,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            HdfsError::IOError(error) => write!(f, "cannot talk to {}: {error}", self.root),
            // Behind the colon is all that is known of each of them.
            HdfsError::DataTransferError(text) => {
                let text = text.split(':').next().unwrap_or_default();
                write!(f, "cannot talk to a DataNode of {}: {text}", self.root)
            }
            // The first line says what is wrong; a stack of Java's follows.
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
    fn what_may_have_happened_is_not_done_again() {
        let broken = |kind: std::io::ErrorKind| HdfsError::IOError(kind.into());
        assert!(may_help(&broken(std::io::ErrorKind::ConnectionRefused), Again::Wrong));
        assert!(!may_help(&broken(std::io::ErrorKind::ConnectionReset), Again::Wrong));
        assert!(may_help(&broken(std::io::ErrorKind::ConnectionReset), Again::Fine));
        let refused = |class: &str| HdfsError::RPCError(format!("org.apache.hadoop.{class}"), String::new());
        assert!(may_help(&refused("hdfs.server.namenode.SafeModeException"), Again::Wrong));
        assert!(!may_help(&refused("security.AccessControlException"), Again::Fine));
    }

    #[test]
    fn what_breaks_off_is_written_again_and_what_is_refused_is_not() {
        let broken = |kind: std::io::ErrorKind| HdfsError::IOError(kind.into());
        assert!(may_be_written_again(&broken(std::io::ErrorKind::ConnectionReset)));
        assert!(may_be_written_again(&HdfsError::DataTransferError("All nodes failed for write".into())));
        let refused = |class: &str| HdfsError::RPCError(class.to_string(), String::new());
        assert!(may_be_written_again(&refused("java.io.IOException")));
        assert!(!may_be_written_again(&refused("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException")));
        assert!(!may_be_written_again(&HdfsError::AlreadyExists(String::new())));
    }

    #[test]
    fn files_beside_their_place_are_known_by_their_names() {
        let name = beside(&Path::from("t/k=1/x.parquet")).unwrap();
        let (_, name) = name.as_ref().rsplit_once('/').unwrap();
        assert_eq!(finished_name(name), Some("x.parquet"));
        for foreign in ["x.parquet", "x.unfinished", "x.parquet.7.unfinished", ".x.parquet.tmp.1"] {
            assert_eq!(finished_name(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_datanode_that_is_gone_is_told_in_short() {
        let root: Arc<str> = "hdfs://here:9000".into();
        let text = "All DataNodes failed: [DatanodeInfoProto { id: DatanodeIdProto { much } }]";
        let said = explain(&root, "x", HdfsError::DataTransferError(text.to_string())).to_string();
        assert!(
            said.ends_with("cannot talk to a DataNode of hdfs://here:9000: All DataNodes failed"),
            "{said}"
        );
    }
}
