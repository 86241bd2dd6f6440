//! HDFS: files are created at their final path, unless they are staged, and nothing waits for a NameNode without end.
//!
//! Reading, listing, copying are those of `hdfs-native-object-store`. Writing is not: that library writes each file beside its
//! place and renames it when it is complete, which costs two more calls of the NameNode for every file. Here a new file is created
//! where it will stay. Whoever lists the folder sees it from then on, empty or in part; those who know files by a catalog never do. Only
//! a file that takes the place of another one is written beside it and renamed, because readers of the old one must not see it go.
//!
//! Crash: a writer that dies leaves a file that nothing refers to, open; the NameNode closes it an hour later, and whoever sweeps
//! finds it by its path. A writer that fails or is dropped deletes it.
//!
//! Errors: a NameNode that cannot be reached is asked again with growing pauses; what may have reached it already is not, unless it
//! comes to the same.

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
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    RenameOptions, Result, UploadPart,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use url::Url;
use uuid::Uuid;

use crate::options::{Limits, Options, PAUSE_MAX, PAUSE_MIN, is_limit};
use crate::staging::{Shown, Staged, StagedWriter, Staging};

const STORE: &str = "HDFS";
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
    let root: Arc<str> = root_of(url).into();
    let settings: Vec<(String, String)> = options
        .iter()
        .filter(|(key, _)| !is_limit(key))
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    let client = ClientBuilder::new()
        .with_url(root.to_string())
        .with_config(settings)
        .build()
        .map_err(|error| explain(&root, "", error))?;
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
        let begun = Instant::now();
        let mut pause = PAUSE_MIN;
        let mut tries = 0;
        loop {
            let error = match tokio::time::timeout(self.limits.request, call()).await {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) => error,
                Err(_) => HdfsError::IOError(silent(self.limits.request)),
            };
            tries += 1;
            let over = tries > self.limits.retries || begun.elapsed() > self.limits.retry;
            if over || !may_help(&error, again) {
                return Err(explain(&self.root, location, error));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// The same for what the library's store does.
    async fn ask<T, F>(&self, location: &Path, again: Again, mut ask: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        // An error of HDFS is decided upon as such; others are as they are.
        let outcome = self.call(location.as_ref(), again, || {
            ask().map_ok(Ok).or_else(|error| async {
                match error {
                    Error::Generic { store, source } => match source.downcast::<HdfsError>() {
                        Ok(error) => Err(*error),
                        Err(source) => Ok(Err(Error::Generic { store, source })),
                    },
                    other => Ok(Err(other)),
                }
            })
        });
        outcome.await?
    }

    /// Creates a file that is not there yet.
    async fn create(&self, location: &Path) -> Result<FileWriter> {
        let path = absolute(location);
        self.call(location.as_ref(), Again::Wrong, || self.client.create(&path, WriteOptions::default()))
            .await
    }

    async fn write(&self, writer: &mut FileWriter, location: &Path, payload: PutPayload) -> Result<()> {
        for bytes in payload {
            self.once(location, writer.write(bytes)).await?;
        }
        Ok(())
    }

    /// Waits for one step of a writer, which cannot be made again.
    async fn once<T>(&self, location: &Path, step: impl Future<Output = Result<T, HdfsError>>) -> Result<T> {
        let outcome = match tokio::time::timeout(self.limits.request, step).await {
            Ok(outcome) => outcome,
            Err(_) => Err(HdfsError::IOError(silent(self.limits.request))),
        };
        outcome.map_err(|error| explain(&self.root, location.as_ref(), error))
    }

    /// Deletes what a writer has left; if that fails too, the file stays.
    async fn forget(&self, location: &Path) {
        let path = absolute(location);
        let deleted = tokio::time::timeout(self.limits.request, self.client.delete(&path, false)).await;
        if !matches!(deleted, Ok(Ok(_))) {
            tracing::warn!(%location, "a file that was not completed stays");
        }
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
        // A NameNode that has just started and does not know its blocks yet, or one that is no longer the active one: it has done nothing.
        HdfsError::RPCError(class, _) => ["RetriableException", "SafeModeException", "StandbyException"]
            .iter()
            .any(|refusal| class.ends_with(refusal)),
        _ => false,
    }
}

#[async_trait]
impl ObjectStore for Hdfs {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let mut writer = match (self.create(location).await, &options.mode) {
            (_, PutMode::Update(_)) => {
                return Err(Error::NotImplemented {
                    operation: "put on the condition of a version".to_string(),
                    implementer: self.to_string(),
                });
            }
            (Err(Error::AlreadyExists { .. }), PutMode::Overwrite) => {
                return self
                    .ask(location, Again::Wrong, || {
                        self.inner.put_opts(location, payload.clone(), options.clone())
                    })
                    .await;
            }
            (created, _) => created?,
        };
        let written = async {
            self.write(&mut writer, location, payload).await?;
            self.once(location, writer.close()).await
        };
        if let Err(error) = written.await {
            drop(writer);
            self.forget(location).await;
            return Err(error);
        }
        Ok(PutResult { e_tag: None, version: None })
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        match self.create(location).await {
            Err(Error::AlreadyExists { .. }) => {
                self.ask(location, Again::Wrong, || self.inner.put_multipart_opts(location, options.clone()))
                    .await
            }
            Err(error) => Err(error),
            Ok(writer) => {
                let (parts, received) = mpsc::unbounded_channel();
                tokio::spawn(write_parts(self.clone(), writer, location.clone(), received));
                Ok(Box::new(Upload { parts: Some(parts), location: location.clone() }))
            }
        }
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let mut found =
            self.ask(location, Again::Fine, || self.inner.get_opts(location, options.clone())).await?;
        if let GetResultPayload::Stream(stream) = found.payload {
            found.payload = GetResultPayload::Stream(self.bounded(location.clone(), stream));
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
        let at = prefix.cloned().unwrap_or_default();
        self.bounded(at, self.inner.list(prefix))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let at = prefix.cloned().unwrap_or_default();
        self.ask(&at, Again::Fine, || self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.ask(from, Again::Wrong, || self.inner.copy_opts(from, to, options.clone())).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.ask(from, Again::Wrong, || self.inner.rename_opts(from, to, options.clone())).await
    }
}

impl Hdfs {
    /// The same stream, which fails when it has brought nothing for too long.
    fn bounded<T: Send + 'static>(
        &self,
        location: Path,
        stream: BoxStream<'static, Result<T>>,
    ) -> BoxStream<'static, Result<T>> {
        let (root, limit) = (Arc::clone(&self.root), self.limits.request);
        futures::stream::unfold(Some(stream), move |stream| {
            let (root, location) = (Arc::clone(&root), location.clone());
            async move {
                let mut stream = stream?;
                match tokio::time::timeout(limit, stream.next()).await {
                    Ok(None) => None,
                    Ok(Some(Ok(item))) => Some((Ok(item), Some(stream))),
                    Ok(Some(Err(Error::Generic { store, source }))) => {
                        let error = match source.downcast::<HdfsError>() {
                            Ok(error) => explain(&root, location.as_ref(), *error),
                            Err(source) => Error::Generic { store, source },
                        };
                        Some((Err(error), Some(stream)))
                    }
                    Ok(Some(Err(error))) => Some((Err(error), Some(stream))),
                    Err(_) => {
                        let error = HdfsError::IOError(silent(limit));
                        Some((Err(explain(&root, location.as_ref(), error)), None))
                    }
                }
            }
        })
        // Who collects an empty body asks once more after its end.
        .fuse()
        .boxed()
    }
}

/// What the holder of an upload tells its writer.
enum Step {
    Part(PutPayload, oneshot::Sender<Result<()>>),
    Complete(oneshot::Sender<Result<()>>),
}

/// A file whose parts come one after the other. Memory bound: whoever puts parts waits for them; see `BufWriter`.
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

/// Writes parts in the order in which they come. Deletes the file if they end before it is complete.
async fn write_parts(
    store: Hdfs,
    mut writer: FileWriter,
    location: Path,
    mut steps: mpsc::UnboundedReceiver<Step>,
) {
    while let Some(step) = steps.recv().await {
        match step {
            Step::Part(payload, answer) => {
                let written = store.write(&mut writer, &location, payload).await;
                let failed = written.is_err();
                let _ = answer.send(written);
                if failed {
                    break;
                }
            }
            Step::Complete(answer) => {
                let closed = store.once(&location, writer.close()).await;
                let failed = closed.is_err();
                if failed {
                    store.forget(&location).await;
                }
                let _ = answer.send(closed);
                return;
            }
        }
    }
    drop(writer);
    store.forget(&location).await;
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
        // The writer hears the end of the parts, and deletes the file.
        let parts = self.parts.take().ok_or_else(over)?;
        drop(parts);
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
        let writer = self.hdfs.create(staged).await?;
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
        self.put_renamed(path, bytes, true).await.map(drop)
    }

    async fn put_new(&self, path: &Path, bytes: Bytes) -> Result<bool> {
        self.put_renamed(path, bytes, false).await
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

impl Beside {
    /// Whether a small file is at `path` now; with `overwrite`, over one that is there.
    async fn put_renamed(&self, path: &Path, bytes: Bytes, overwrite: bool) -> Result<bool> {
        let unfinished = Path::parse(format!("{path}.{}{UNFINISHED}", Uuid::new_v4().simple()))?;
        self.store.put(&unfinished, bytes.into()).await?;
        let (from, to) = (absolute(&unfinished), absolute(path));
        let rename = || self.hdfs.client.rename(&from, &to, overwrite);
        match self.hdfs.call(path.as_ref(), Again::Fine, rename).await {
            // Nobody else knows of it: an earlier call was heard.
            Ok(()) | Err(Error::NotFound { .. }) => Ok(true),
            Err(error) => {
                self.hdfs.forget(&unfinished).await;
                match error {
                    Error::AlreadyExists { .. } if !overwrite => Ok(false),
                    error => Err(error),
                }
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
        self.hdfs.write(&mut self.writer, &self.at, bytes.into()).await
    }

    async fn finish(&mut self) -> Result<Staged> {
        self.hdfs.once(&self.at, self.writer.close()).await?;
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
}
