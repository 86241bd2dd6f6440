//! Files that sinks write (COPY … TO), which are shown when all rows of the statement have come, or never.
//!
//! A sink of DataFusion's hears of its rows through a channel. Where they end by an error, the channel ends,
//! the sink completes its files, and only then tells the error: files would be there that look complete and
//! are not, in the place of older ones. So a sink writes through a [`HoldingStore`], which completes files
//! without showing them.
//!
//! ```text
//!   rows ──► sink ──► HoldingStore ──► a file that nobody sees (hidden.rs) ──┐
//!                                                                            ├─ all rows came, nothing failed: shown ─► the answer
//!   the statement's end, or its error ───────────────────────────────────────┘─ an error, a panic: given up ─► the error
//!                                                                               canceled, dropped: given up in the background
//! ```
//!
//! Invariants: no file is shown before the statement's last row has come and everything that may fail it has
//! been checked. Each file is shown by one step of its store. Where one of several cannot be shown, none
//! stays: they have names of their own, which nobody has had before. Once the first is being shown, a cancel
//! comes too late.
//!
//! Memory bound: [`HELD_BYTES_MAX`] of small files for a store in which they would be uploads, beside what
//! sinks buffer.
//!
//! Crash: what was not shown stays as the store keeps such files, in no listing of tables: on a disk with `#`
//! and a number at the end of its name, on HDFS as `harrier_storage::finished_name` knows them, on S3 as an
//! upload.

mod hidden;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
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
use harrier_storage::PendingWork;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use url::Url;

use hidden::{Beside, Hidden, LocalFile, Small, Upload};

pub use hidden::remove_local;

/// Bytes of small files that a statement holds in memory; what is more is uploaded.
const HELD_BYTES_MAX: usize = 64 << 20;
/// Files that are shown, or given up, at the same time.
const AT_ONCE: usize = 8;

/// The files that a statement writes by sinks. Dropped, it gives them up: local files at once, others in the
/// background.
#[derive(Debug)]
pub struct WholeFiles(Arc<Files>);

impl WholeFiles {
    /// What a plan is to run with, and the files that its sinks then write; `None` for a plan without sinks,
    /// which runs with what it has.
    ///
    /// Errors: `context` is used by others.
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
        let stores =
            HoldingStores { inner: Arc::clone(&process.object_store_registry), files: Arc::clone(&files) };
        let runtime = RuntimeEnvBuilder::from_runtime_env(&process)
            .with_object_store_registry(Arc::new(stores))
            .build_arc()?;
        Ok((Arc::new(context.with_runtime(runtime)), Some(Self(files))))
    }

    /// The rows of the plan, which come when all of its files are shown. `rows` is whatever decides that the
    /// statement has not failed.
    ///
    /// Errors: as of `rows`, and of the store in which a file cannot be shown; then none of them is.
    pub fn after(self, rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let schema = rows.schema();
        let shown = async move {
            // What writes is gone behind this.
            let batches: Result<Vec<RecordBatch>> = rows.try_collect().await;
            match batches {
                Ok(batches) => {
                    self.show().await?;
                    Ok(futures::stream::iter(batches.into_iter().map(Ok)))
                }
                Err(error) => {
                    self.0.give_up(self.0.end()).await;
                    Err(error)
                }
            }
        };
        Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::once(shown).try_flatten()))
    }

    async fn show(&self) -> Result<()> {
        let files = Arc::clone(&self.0);
        // Who drops the statement now does not end this half-way.
        let shown = tokio::spawn(async move { files.show().await }).await;
        Ok(shown.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))??)
    }
}

impl Drop for WholeFiles {
    fn drop(&mut self) {
        let held = self.0.end();
        // Removing a local file waits for nobody, and the process may end at once.
        let (local, elsewhere): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|file| file.kind == Kind::Local);
        local.iter().for_each(|file| drop(file.take()));
        // What is being begun gives itself up, which is waited for.
        let is_busy = *self.0.busy.borrow() > 0;
        if let Ok(runtime) = Handle::try_current()
            && (is_busy || !elsewhere.is_empty())
        {
            let files = Arc::clone(&self.0);
            let giving_up = PendingWork::begin();
            runtime.spawn(async move {
                files.give_up(elsewhere).await;
                drop(giving_up);
            });
        }
    }
}

fn has_sink(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<DataSinkExec>().is_some() || plan.children().into_iter().any(has_sink)
}

/// How files of a store are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Local,
    /// Beside their places, to be renamed.
    Renamed,
    /// As uploads, to be completed.
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

#[derive(Debug)]
struct Files {
    /// `None` when the statement has ended.
    held: Mutex<Option<Vec<Arc<HeldFile>>>>,
    /// Steps of writers that are under way.
    busy: watch::Sender<usize>,
    /// Of small files.
    held_bytes: AtomicUsize,
}

impl Default for Files {
    fn default() -> Self {
        Self {
            held: Mutex::new(Some(Vec::new())),
            busy: watch::Sender::new(0),
            held_bytes: AtomicUsize::new(0),
        }
    }
}

/// Something that is under way until this is dropped.
struct Counted(watch::Sender<usize>);

impl Counted {
    fn new(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Files {
    fn begin(&self) -> Counted {
        Counted::new(&self.busy)
    }

    /// Adds a file; one that comes after the end of its statement is given up.
    async fn add(&self, file: HeldFile) -> object_store::Result<Arc<HeldFile>> {
        let file = Arc::new(file);
        let is_over = match &mut *self.held.lock() {
            Some(held) => {
                held.push(Arc::clone(&file));
                false
            }
            None => true,
        };
        match is_over {
            true => {
                file.give_up().await;
                Err(over())
            }
            false => Ok(file),
        }
    }

    /// From now on no file is begun. Returns those that were.
    fn end(&self) -> Vec<Arc<HeldFile>> {
        self.held.lock().take().unwrap_or_default()
    }

    async fn show(&self) -> object_store::Result<()> {
        let held = self.end();
        if let Some(open) = held.iter().find(|file| file.is_open()) {
            let error = hidden::failed(format!("\"{}\" was not written to its end", open.location));
            self.give_up(held).await;
            return Err(error);
        }
        let steps = held.clone().into_iter().map(|file| async move { file.show().await });
        let shown: Vec<object_store::Result<()>> =
            futures::stream::iter(steps).buffered(AT_ONCE).collect().await;
        let Some(error) = shown.into_iter().find_map(Result::err) else { return Ok(()) };
        // One file alone is shown or is not. Names of several are their own: nothing else can be there.
        if held.len() > 1 {
            let steps = held.iter().cloned();
            futures::stream::iter(steps)
                .for_each_concurrent(AT_ONCE, |file| async move { file.take_back().await })
                .await;
        } else {
            self.give_up(held).await;
        }
        Err(error)
    }

    /// Gives files up when what writes them is gone: a store might take a part for a new upload's.
    async fn give_up(&self, held: Vec<Arc<HeldFile>>) {
        // Fails when there is no sender, and this is one.
        let _ = self.busy.subscribe().wait_for(|steps| *steps == 0).await;
        futures::stream::iter(held)
            .for_each_concurrent(AT_ONCE, |file| async move { file.give_up().await })
            .await;
    }
}

fn over() -> object_store::Error {
    hidden::failed("the file is complete or given up".to_string())
}

/// A file of a statement, until it is shown.
#[derive(Debug)]
struct HeldFile {
    store: Arc<dyn ObjectStore>,
    kind: Kind,
    location: Path,
    slot: Mutex<Slot>,
}

#[derive(Debug)]
struct Slot {
    /// `None` while somebody has it, and when it is given up.
    hidden: Option<Box<dyn Hidden>>,
    is_closed: bool,
}

impl HeldFile {
    fn take(&self) -> Option<Box<dyn Hidden>> {
        self.slot.lock().hidden.take()
    }

    fn put_back(&self, hidden: Box<dyn Hidden>, is_closed: bool) {
        *self.slot.lock() = Slot { hidden: Some(hidden), is_closed };
    }

    /// Whether it was begun, and neither completed nor given up.
    fn is_open(&self) -> bool {
        let slot = self.slot.lock();
        slot.hidden.is_some() && !slot.is_closed
    }

    async fn close(&self) -> object_store::Result<()> {
        let mut hidden = self.take().ok_or_else(over)?;
        let closed = hidden.close().await;
        self.put_back(hidden, closed.is_ok());
        closed
    }

    async fn show(&self) -> object_store::Result<()> {
        let Some(mut hidden) = self.take() else { return Ok(()) };
        let shown = hidden.show().await;
        self.put_back(hidden, true);
        shown
    }

    /// Removes what was written. If that fails too, it stays.
    async fn give_up(&self) {
        if let Some(mut hidden) = self.take()
            && let Err(error) = hidden.give_up().await
        {
            tracing::warn!(location = %self.location, %error, "a file that was given up stays");
        }
    }

    /// The same for one that may have been shown.
    async fn take_back(&self) {
        self.give_up().await;
        match self.store.delete(&self.location).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => {
                tracing::warn!(location = %self.location, %error, "a file of a statement that failed stays");
            }
        }
    }
}

/// The stores of a process, whose files are held for one statement.
#[derive(Debug)]
struct HoldingStores {
    inner: Arc<dyn ObjectStoreRegistry>,
    files: Arc<Files>,
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
        Ok(Arc::new(HoldingStore { inner, kind: Kind::of(url), files: Arc::clone(&self.files) }))
    }
}

/// A store whose files are complete, and not seen, until their statement shows them. Everything else is as in
/// the store itself.
#[derive(Debug)]
struct HoldingStore {
    inner: Arc<dyn ObjectStore>,
    kind: Kind,
    files: Arc<Files>,
}

impl fmt::Display for HoldingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// How a sink writes a file.
enum Content {
    Parts(PutMultipartOptions),
    /// All of it at once.
    Whole(PutPayload, PutOptions),
}

/// A file as its content says, and whether it is closed.
async fn hidden_file(
    store: &Arc<dyn ObjectStore>,
    kind: Kind,
    location: &Path,
    content: Content,
) -> object_store::Result<(Box<dyn Hidden>, bool)> {
    let (options, payload) = match content {
        Content::Parts(options) => (options, None),
        // One that breaks off is written again from its beginning.
        Content::Whole(payload, options) if kind == Kind::Renamed => {
            return Ok((Box::new(Beside::put(store, location, payload, options).await?), true));
        }
        // Open no longer than it is written: there may be thousands of them.
        Content::Whole(payload, _) if kind == Kind::Local => {
            return Ok((Box::new(LocalFile::put(location, payload).await?), true));
        }
        Content::Whole(payload, PutOptions { tags, attributes, extensions, .. }) => {
            (PutMultipartOptions { tags, attributes, extensions }, Some(payload))
        }
    };
    let mut hidden: Box<dyn Hidden> = match kind {
        Kind::Local => Box::new(LocalFile::create(location).await?),
        Kind::Renamed => Box::new(Beside::begin(store, location, options).await?),
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
            let _ = hidden.give_up().await;
            Err(error)
        }
    }
}

impl HoldingStore {
    /// Begins a file. What has been begun is among the files of the statement even if this is dropped.
    async fn begin(&self, location: &Path, content: Content) -> object_store::Result<Arc<HeldFile>> {
        let (store, kind, files) = (Arc::clone(&self.inner), self.kind, Arc::clone(&self.files));
        let location = location.clone();
        let busy = files.begin();
        let begun = tokio::spawn(async move {
            let _busy = busy;
            let (hidden, is_closed) = hidden_file(&store, kind, &location, content).await?;
            let slot = Mutex::new(Slot { hidden: Some(hidden), is_closed });
            files.add(HeldFile { store, kind, location, slot }).await
        });
        begun.await?
    }

    /// Whether there is room in memory for a small file, which it then has.
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
            // Whether its condition holds is not known before the end.
            return Err(object_store::Error::NotImplemented {
                operation: "a put on a condition, by a sink".to_string(),
                implementer: self.to_string(),
            });
        }
        if self.kind == Kind::Uploaded && self.holds(payload.content_length()) {
            let hidden = Box::new(Small::new(&self.inner, location, payload, options));
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

/// What a sink has of a file. Completed, the file is closed, and waits to be shown.
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
            None => ready(Err(over())).boxed(),
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
            Some(mut hidden) => hidden.give_up().await,
            None => Err(over()),
        }
    }
}
