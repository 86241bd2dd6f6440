//! Atomic output of sinks (COPY … TO): all files are published after the statement's last row, or none.
//!
//! A DataFusion sink receives its rows through a channel. If they end with an error, the channel closes, the
//! sink completes its files, and only then returns the error: the files would look complete without being so,
//! in place of older ones. So a sink writes to a [`HoldingStore`], which completes files without publishing
//! them.
//!
//! ```text
//!   rows ──► sink ──► HoldingStore ──► hidden file (hidden.rs) ──┐
//!                                                                ├─ all rows, no failure: publish ─► result
//!   end or error of the statement ──────────────────────────────┘─ error, panic: abort ─► error
//!                                                                  canceled, dropped: abort in background
//! ```
//!
//! Invariants: no file is published before the statement's last row has come and every check that may fail
//! has passed. Each file is published atomically by its store. If one of several cannot be published, all are
//! removed: their names are unique and never used before. After publishing has begun, a cancel comes too
//! late.
//!
//! Memory bound: [`HELD_BYTES_MAX`] of small files for a store in which they would be uploads, plus the
//! buffers of sinks.
//!
//! Crash: unpublished files stay in the form of their store, in no table listing: on a disk with the suffix
//! `#` and a number, on HDFS as `harrier_storage::finished_name` recognizes them, on S3 as an upload.

mod hidden;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::config::ConfigNonZeroUsize;
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::object_store::local::LocalFileSystem;
use datafusion::object_store::path::Path;
use datafusion::object_store::{
    self, CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions,
    UploadPart,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::future::ready;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;
use harrier_storage::PendingWork;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use url::Url;

use hidden::{HdfsFile, HiddenFile, LocalFile, S3Put, StagingFolder, Upload};

pub(crate) use hidden::StagedFile;
pub use hidden::{StagingPlace, create_folders, keep_folders, remove_local, remove_new_folders};

/// Bytes of small files that a statement holds in memory; beyond that they are uploaded.
const HELD_BYTES_MAX: usize = 64 << 20;
/// Files published or aborted concurrently.
const CONCURRENT_MAX: usize = 8;

/// The files written by a statement's sinks. Dropping it aborts them: local files at once, others in the
/// background.
#[derive(Debug)]
pub struct AtomicSinkFiles(Arc<Files>);

impl AtomicSinkFiles {
    /// Returns the task context for a plan, and the files that its sinks will write; `None` for a plan
    /// without sinks, which keeps its context.
    ///
    /// Errors: `context` is shared.
    pub fn of(
        plan: &Arc<dyn ExecutionPlan>,
        context: Arc<TaskContext>,
    ) -> Result<(Arc<TaskContext>, Option<Self>)> {
        if !has_sink(plan) {
            return Ok((context, None));
        }
        let context =
            Arc::try_unwrap(context).map_err(|_| internal_datafusion_err!("a context that others use"))?;
        let files = Arc::new(Files::default());
        let process = context.runtime_env();
        let stores = HoldingStores {
            inner: Arc::clone(&process.object_store_registry),
            files: Arc::clone(&files),
            staging: None,
        };
        let runtime = RuntimeEnvBuilder::from_runtime_env(&process)
            .with_object_store_registry(Arc::new(stores))
            .build_arc()?;
        let config = context.session_config().clone().with_extension(Arc::clone(&files));
        Ok((Arc::new(context.with_session_config(config).with_runtime(runtime)), Some(Self(files))))
    }

    /// Returns the context of a sink whose files stay in a staging folder, and its files.
    pub(crate) fn in_staging(
        context: &TaskContext,
        staging: StagingPlace,
    ) -> Result<(Arc<TaskContext>, Self)> {
        let files = Arc::new(Files::default());
        let runtime = context.runtime_env();
        let stores = HoldingStores {
            inner: Arc::clone(&runtime.object_store_registry),
            files: Arc::clone(&files),
            staging: Some(staging),
        };
        let runtime = RuntimeEnvBuilder::from_runtime_env(&runtime)
            .with_object_store_registry(Arc::new(stores))
            .build_arc()?;
        let mut config = context.session_config().clone();
        // Every output partition has a sink.
        config.options_mut().execution.minimum_parallel_output_files = ConfigNonZeroUsize::try_new(1)?;
        let context = TaskContext::new(
            context.task_id(),
            context.session_id(),
            config,
            context.scalar_functions().clone(),
            context.higher_order_functions().clone(),
            context.aggregate_functions().clone(),
            context.window_functions().clone(),
            runtime,
        );
        Ok((Arc::new(context), Self(files)))
    }

    /// Leaves the complete files to whoever removes the staging folder.
    pub(crate) fn release(self) -> Result<Vec<StagedFile>> {
        let held = self.0.end();
        let released = held.iter().map(|file| match (file.is_open(), file.take()) {
            (false, Some(mut hidden)) => hidden.release(),
            _ => None,
        });
        let released: Option<Vec<StagedFile>> = released.collect();
        released.ok_or_else(|| internal_datafusion_err!("a file was not written to its end"))
    }

    /// Returns the rows of the plan after all of its files are published. `rows` must fail if the statement
    /// fails.
    ///
    /// Errors: as of `rows`, and of a store that cannot publish a file; then none is published.
    pub fn publish_after(self, rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let schema = rows.schema();
        let shown = async move {
            // The writers have ended here.
            let batches: Result<Vec<RecordBatch>> = rows.try_collect().await;
            match batches {
                Ok(batches) => {
                    self.publish().await?;
                    Ok(futures::stream::iter(batches.into_iter().map(Ok)))
                }
                Err(error) => {
                    self.0.abort(self.0.end()).await;
                    Err(error)
                }
            }
        };
        Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::once(shown).try_flatten()))
    }

    async fn publish(&self) -> Result<()> {
        let files = Arc::clone(&self.0);
        // Dropping the statement does not interrupt publishing.
        let shown = tokio::spawn(async move { files.publish().await }).await;
        Ok(shown.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))??)
    }
}

impl Drop for AtomicSinkFiles {
    fn drop(&mut self) {
        let held = self.0.end();
        // Removing a local file does not wait, and the process may end at once.
        let (local, elsewhere): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|file| file.kind == Kind::Local);
        local.iter().for_each(|file| drop(file.take()));
        self.0.remove_staging();
        // A file being begun aborts itself; wait for that.
        let is_busy = *self.0.busy.borrow() > 0;
        if let Ok(runtime) = Handle::try_current()
            && (is_busy || !elsewhere.is_empty())
        {
            let files = Arc::clone(&self.0);
            let giving_up = PendingWork::begin();
            runtime.spawn(async move {
                files.abort(elsewhere).await;
                drop(giving_up);
            });
        }
    }
}

/// The operator whose files a statement publishes that ranks have written.
pub(crate) const PUBLISHES: &str = "PublishFilesExec";

/// With less free space a file system counts as full: a writer's last buffer did not fit.
const FREE_BYTES_MIN: u64 = 1 << 20;

/// Adds the cause to an error of writing to `target`, a local file or folder at `path`, where DataFusion only
/// reports that writing failed.
pub fn with_cause(error: DataFusionError, target: &str, path: Option<&std::path::Path>) -> DataFusionError {
    let root = error.find_root();
    let is_mute = matches!(root, DataFusionError::Internal(text) if text.contains("writ"));
    if !is_mute {
        return error;
    }
    let (state, why) = match path.is_some_and(is_full) || harrier_sqlstate::of(root) == SqlState::DISK_FULL {
        true => (SqlState::DISK_FULL, ": no space left on device"),
        false => (SqlState::IO_ERROR, ""),
    };
    SqlError::new(state, format!("could not write to \"{target}\"{why}")).into_datafusion()
}

fn is_full(path: &std::path::Path) -> bool {
    let existing = path.ancestors().find(|path| path.exists()).unwrap_or(std::path::Path::new("."));
    nix::sys::statvfs::statvfs(existing)
        .ok()
        .and_then(|fs| fs.blocks_available().checked_mul(fs.fragment_size()))
        .is_some_and(|free| free < FREE_BYTES_MIN)
}

fn has_sink(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<DataSinkExec>() || plan.name() == PUBLISHES || plan.children().into_iter().any(has_sink)
}

/// How a store holds files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Local,
    /// Under a temporary name, to be renamed.
    Renamed,
    /// As a multipart upload, to be completed.
    Uploaded,
}

impl Kind {
    fn of(url: &Url) -> Self {
        match url.scheme() {
            "file" => Self::Local,
            "hdfs" => Self::Renamed,
            _ => Self::Uploaded,
        }
    }
}

/// The files of a statement, an extension of the context of [`AtomicSinkFiles::of`].
#[derive(Debug)]
pub(crate) struct Files {
    /// `None` after the statement has ended.
    held_files: Mutex<Option<Vec<Arc<HeldFile>>>>,
    /// Number of running steps of writers.
    busy: watch::Sender<usize>,
    /// Bytes of small files.
    held_bytes: AtomicUsize,
    /// The folder of files that ranks have written.
    staging: Mutex<Option<StagingFolder>>,
}

impl Default for Files {
    fn default() -> Self {
        Self {
            held_files: Mutex::new(Some(Vec::new())),
            busy: watch::Sender::new(0),
            held_bytes: AtomicUsize::new(0),
            staging: Mutex::new(None),
        }
    }
}

/// Decrements a counter when dropped.
struct BusyGuard(watch::Sender<usize>);

impl BusyGuard {
    fn new(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Files {
    fn begin(&self) -> BusyGuard {
        BusyGuard::new(&self.busy)
    }

    /// Adds a file; after the end of the statement, the file is aborted.
    async fn add(&self, file: HeldFile) -> object_store::Result<Arc<HeldFile>> {
        let file = Arc::new(file);
        let is_over = match &mut *self.held_files.lock() {
            Some(held) => {
                held.push(Arc::clone(&file));
                false
            }
            None => true,
        };
        match is_over {
            true => {
                file.abort().await;
                Err(statement_ended())
            }
            false => Ok(file),
        }
    }

    /// Makes the staging folder of the statement. Blocks.
    pub(crate) fn begin_staging(&self, staging: &StagingPlace) -> std::io::Result<()> {
        *self.staging.lock() = Some(StagingFolder::create(staging)?);
        Ok(())
    }

    /// Adds a file that a rank has written.
    pub(crate) fn add_staged(&self, file: StagedFile) -> Result<()> {
        let location = Path::from_absolute_path(&file.path)?;
        let slot = Slot { hidden: Some(Box::new(LocalFile::adopt(file))), is_closed: true };
        let store: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new());
        let held = Arc::new(HeldFile { store, kind: Kind::Local, location, slot: Mutex::new(slot) });
        match &mut *self.held_files.lock() {
            Some(files) => {
                files.push(held);
                Ok(())
            }
            None => Err(statement_ended().into()),
        }
    }

    /// Removes the staging folder. Blocks.
    fn remove_staging(&self) {
        drop(self.staging.lock().take());
    }

    /// Stops accepting files and returns those begun.
    fn end(&self) -> Vec<Arc<HeldFile>> {
        self.held_files.lock().take().unwrap_or_default()
    }

    async fn publish(&self) -> object_store::Result<()> {
        let held = self.end();
        if let Some(open) = held.iter().find(|file| file.is_open()) {
            let error = hidden::state_error(format!("\"{}\" was not written to its end", open.location));
            self.abort(held).await;
            return Err(error);
        }
        let steps = held.clone().into_iter().map(|file| async move { file.publish().await });
        let shown: Vec<object_store::Result<()>> =
            futures::stream::iter(steps).buffered(CONCURRENT_MAX).collect().await;
        let Some(error) = shown.into_iter().find_map(Result::err) else {
            if let Some(staging) = &mut *self.staging.lock() {
                staging.is_published = true;
            }
            return Ok(());
        };
        // A single file is published or not. Several have unique names: no older file can be there.
        if held.len() > 1 {
            let steps = held.iter().cloned();
            futures::stream::iter(steps)
                .for_each_concurrent(CONCURRENT_MAX, |file| async move { file.remove().await })
                .await;
        } else {
            self.abort(held).await;
        }
        Err(error)
    }

    /// Aborts files after their writers have ended: a store might assign a late part to a new upload.
    async fn abort(&self, held: Vec<Arc<HeldFile>>) {
        // Fails only without a sender, and this is one.
        let _ = self.busy.subscribe().wait_for(|steps| *steps == 0).await;
        futures::stream::iter(held)
            .for_each_concurrent(CONCURRENT_MAX, |file| async move { file.abort().await })
            .await;
    }
}

fn statement_ended() -> object_store::Error {
    hidden::state_error("the file is complete or given up".to_string())
}

/// A statement's file that is not published yet.
#[derive(Debug)]
struct HeldFile {
    store: Arc<dyn ObjectStore>,
    kind: Kind,
    location: Path,
    slot: Mutex<Slot>,
}

#[derive(Debug)]
struct Slot {
    /// `None` while in use, and after an abort.
    hidden: Option<Box<dyn HiddenFile>>,
    is_closed: bool,
}

impl HeldFile {
    fn take(&self) -> Option<Box<dyn HiddenFile>> {
        self.slot.lock().hidden.take()
    }

    fn put_back(&self, hidden: Box<dyn HiddenFile>, is_closed: bool) {
        *self.slot.lock() = Slot { hidden: Some(hidden), is_closed };
    }

    /// Whether it was begun, and neither completed nor aborted.
    fn is_open(&self) -> bool {
        let slot = self.slot.lock();
        slot.hidden.is_some() && !slot.is_closed
    }

    async fn close(&self) -> object_store::Result<()> {
        let mut hidden = self.take().ok_or_else(statement_ended)?;
        let closed = hidden.close().await;
        self.put_back(hidden, closed.is_ok());
        closed
    }

    async fn publish(&self) -> object_store::Result<()> {
        let Some(mut hidden) = self.take() else { return Ok(()) };
        let shown = hidden.publish().await;
        self.put_back(hidden, true);
        shown
    }

    /// Removes the written file. If that fails too, it stays.
    async fn abort(&self) {
        if let Some(mut hidden) = self.take()
            && let Err(error) = hidden.abort().await
        {
            tracing::warn!(location = %self.location, %error, "a file that was given up stays");
        }
    }

    /// The same for a file that may have been published.
    async fn remove(&self) {
        self.abort().await;
        match self.store.delete(&self.location).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => {
                tracing::warn!(location = %self.location, %error, "a file of a statement that failed stays");
            }
        }
    }
}

/// An object store registry that holds the files of one statement.
#[derive(Debug)]
struct HoldingStores {
    inner: Arc<dyn ObjectStoreRegistry>,
    files: Arc<Files>,
    /// Where local files are written, if not beside their targets.
    staging: Option<StagingPlace>,
}

impl ObjectStoreRegistry for HoldingStores {
    fn register_store(&self, url: &Url, store: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        self.inner.register_store(url, store)
    }

    fn deregister_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        self.inner.deregister_store(url)
    }

    fn get_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        let inner = self.inner.get_store(url)?;
        let (files, staging) = (Arc::clone(&self.files), self.staging.clone());
        Ok(Arc::new(HoldingStore { inner, kind: Kind::of(url), files, staging }))
    }
}

/// A store that completes files without making them visible, until their statement publishes them. Everything
/// else is delegated.
#[derive(Debug)]
struct HoldingStore {
    inner: Arc<dyn ObjectStore>,
    kind: Kind,
    files: Arc<Files>,
    staging: Option<StagingPlace>,
}

impl fmt::Display for HoldingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// How a sink writes a file.
enum Content {
    Parts(PutMultipartOptions),
    /// In one put.
    Whole(PutPayload, PutOptions),
}

/// Writes a file, and returns whether it is closed.
async fn hidden_file(
    store: &Arc<dyn ObjectStore>,
    kind: Kind,
    location: &Path,
    content: Content,
    staging: Option<&StagingPlace>,
) -> object_store::Result<(Box<dyn HiddenFile>, bool)> {
    let (options, payload) = match content {
        Content::Parts(options) => (options, None),
        // Interrupted writes restart from the beginning.
        Content::Whole(payload, options) if kind == Kind::Renamed => {
            return Ok((Box::new(HdfsFile::put(store, location, payload, options).await?), true));
        }
        // Closed right after the write: there may be thousands of files.
        Content::Whole(payload, _) if kind == Kind::Local => {
            return Ok((Box::new(LocalFile::put(location, payload, staging).await?), true));
        }
        Content::Whole(payload, PutOptions { tags, attributes, extensions, .. }) => {
            (PutMultipartOptions { tags, attributes, extensions }, Some(payload))
        }
    };
    let mut hidden: Box<dyn HiddenFile> = match kind {
        Kind::Local => Box::new(LocalFile::create(location, staging).await?),
        Kind::Renamed => Box::new(HdfsFile::begin(store, location, options).await?),
        Kind::Uploaded => Box::new(Upload::begin(store, location, options).await?),
    };
    let Some(payload) = payload else { return Ok((hidden, false)) };
    let mut written = hidden.put_part(payload).await;
    if written.is_ok() {
        written = hidden.close().await;
    }
    match written {
        Ok(()) => Ok((hidden, true)),
        Err(error) => {
            let _ = hidden.abort().await;
            Err(error)
        }
    }
}

impl HoldingStore {
    /// Begins a file. It is registered with the statement even if this future is dropped.
    async fn begin(&self, location: &Path, content: Content) -> object_store::Result<Arc<HeldFile>> {
        let (store, kind, files) = (Arc::clone(&self.inner), self.kind, Arc::clone(&self.files));
        let (location, staging) = (location.clone(), self.staging.clone());
        let busy = files.begin();
        let begun = tokio::spawn(async move {
            let _busy = busy;
            let (hidden, is_closed) = hidden_file(&store, kind, &location, content, staging.as_ref()).await?;
            let slot = Mutex::new(Slot { hidden: Some(hidden), is_closed });
            files.add(HeldFile { store, kind, location, slot }).await
        });
        begun.await?
    }

    /// Reserves memory for a small file; false if there is no room.
    fn holds(&self, bytes: usize) -> bool {
        let add = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= HELD_BYTES_MAX);
        self.files.held_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }
}

#[async_trait]
impl ObjectStore for HoldingStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        if options.mode != PutMode::Overwrite {
            // The condition of a put cannot be checked before the end.
            return Err(object_store::Error::NotImplemented {
                operation: "a put on a condition, by a sink".to_string(),
                implementer: self.to_string(),
            });
        }
        if self.kind == Kind::Uploaded && self.holds(payload.content_length()) {
            let hidden = Box::new(S3Put::new(&self.inner, location, payload, options));
            let slot = Mutex::new(Slot { hidden: Some(hidden), is_closed: true });
            let (store, location) = (Arc::clone(&self.inner), location.clone());
            self.files.add(HeldFile { store, kind: self.kind, location, slot }).await?;
        } else {
            self.begin(location, Content::Whole(payload, options)).await?;
        }
        Ok(PutResult { e_tag: None, version: None })
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        let file = self.begin(location, Content::Parts(options)).await?;
        Ok(Box::new(HeldUpload { file, files: Arc::clone(&self.files) }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> object_store::Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> object_store::Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}

/// The sink's handle of a file. Completing it closes the file, which then waits to be published.
#[derive(Debug)]
struct HeldUpload {
    file: Arc<HeldFile>,
    files: Arc<Files>,
}

#[async_trait]
impl MultipartUpload for HeldUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let part = match &mut self.file.slot.lock().hidden {
            Some(hidden) => hidden.put_part(data),
            None => ready(Err(statement_ended())).boxed(),
        };
        let busy = self.files.begin();
        async move {
            let written = part.await;
            drop(busy);
            written
        }
        .boxed()
    }

    async fn complete(&mut self) -> object_store::Result<PutResult> {
        let _busy = self.files.begin();
        self.file.close().await?;
        Ok(PutResult { e_tag: None, version: None })
    }

    async fn abort(&mut self) -> object_store::Result<()> {
        let _busy = self.files.begin();
        match self.file.take() {
            Some(mut hidden) => hidden.abort().await,
            None => Err(statement_ended()),
        }
    }
}
