//! Destinations of new files: a local folder or an object store, at final paths or staged, and their cleanup
//! after a failure.
//!
//! Crash: a completed local file is durable, including its directory entries. Files of a dead rank are found
//! by the statement's name.
//!
//! Cancellation: dropping [`CreatedFiles`] removes its files, including those that a thread is still
//! creating. Files that cannot be removed, as in an unreachable store, are swept later.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::common::{DataFusionError, Result, exec_datafusion_err};
use datafusion::execution::TaskContext;
use datafusion::object_store::buffered::BufWriter;
use datafusion::object_store::path::Path;
use datafusion::object_store::{self, ObjectStore};
use datafusion::parquet::arrow::async_writer::AsyncFileWriter;
use datafusion::parquet::errors::{ParquetError, Result as ParquetResult};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use harrier_committer::local::StagingPaths;
use harrier_committer::object_store::{Root, Staged, StagedPlacement, StagedWriter};
use harrier_storage::PendingWork;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;

use super::file_record::FileRecord;
use super::location::{local, locate};
use super::write_spec::WriteSpec;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// The staging place of files until they are published.
pub(super) enum StagingPlace {
    /// Not staged: written to the final path.
    None,
    Local(StagingPaths),
    Store(StagedPlacement),
}

impl StagingPlace {
    pub(super) fn of(spec: &WriteSpec, store: &Store) -> Result<Self> {
        let Some(staging) = &spec.staging else { return Ok(Self::None) };
        if let Store::Local(folder) = store {
            let places = StagingPaths::of(folder, staging.as_ref()).map_err(|error| cannot_stage(&error))?;
            return Ok(Self::Local(places));
        }
        Ok(Self::Store(StagedPlacement::of(store_root(&spec.folder)?, staging, spec.replaced_files.clone())))
    }
}

/// The table's folder in an object store, for staged files.
pub fn store_root(folder: &str) -> Result<Root> {
    let (store, table) = locate(folder)?;
    let root = Root::open(store.as_ref(), &table, &harrier_committer::object_store::Options::default())
        .map_err(|error| cannot_stage_in_store(&error))?;
    root.ok_or_else(|| {
        let message = format!("nothing can be staged in \"{folder}\"");
        SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion()
    })
}

/// How the publisher finds a written file.
pub(super) enum StagedOutput {
    Nothing,
    File(String),
    /// Set on completion.
    Upload(Arc<Mutex<Option<Staged>>>),
}

/// A file staged in an object store.
pub(super) struct Upload {
    pub(super) writer: Box<dyn StagedWriter>,
    pub(super) finished: Arc<Mutex<Option<Staged>>>,
}

impl AsyncFileWriter for Upload {
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, ParquetResult<()>> {
        async move { self.writer.write(bytes).await.map_err(|error| ParquetError::External(Box::new(error))) }
            .boxed()
    }

    fn complete(&mut self) -> BoxFuture<'_, ParquetResult<()>> {
        async move {
            let staged = self.writer.finish().await;
            *self.finished.lock() = Some(staged.map_err(|error| ParquetError::External(Box::new(error)))?);
            Ok(())
        }
        .boxed()
    }
}

/// The destination: a local folder, written directly, or an object store.
#[derive(Clone)]
pub(super) enum Store {
    Local(std::path::PathBuf),
    Objects { store: Arc<dyn ObjectStore>, folder: Path },
}

impl Store {
    pub(super) fn open(folder: &str, context: &TaskContext) -> Result<Self> {
        if let Some(path) = local(folder) {
            return Ok(Self::Local(path));
        }
        let (store, folder) = locate(folder)?;
        Ok(Self::Objects { store: context.runtime_env().object_store(&store)?, folder })
    }

    /// Creates a file. `path` is relative to the folder, percent-encoded where folders are named after
    /// values.
    pub(super) async fn create(&self, path: &str) -> Result<Box<dyn AsyncFileWriter>> {
        match self {
            Self::Local(folder) => {
                let path = folder.join(path);
                let folders = changed_folders(&path);
                let name = path.display().to_string();
                let making = tokio::task::spawn_blocking(move || create_file(path));
                let made = making.await.map_err(|error| exec_datafusion_err!("making a file: {error}"))?;
                let (file, removal) = made.map_err(|error| cannot_write(&name, error))?;
                removal.disarm();
                let file = tokio::fs::File::from_std(file);
                Ok(Box::new(Durable { file, folders }))
            }
            Self::Objects { store, folder } => {
                let path = self.object(folder, path);
                Ok(Box::new(BufWriter::new(Arc::clone(store), path)))
            }
        }
    }

    fn object(&self, folder: &Path, path: &str) -> Path {
        // Not parsed: a percent sign is part of the name.
        Path::parse(format!("{folder}/{path}")).unwrap_or_else(|_| folder.clone().join(path))
    }

    pub(super) fn explain(&self, error: DataFusionError) -> DataFusionError {
        let Self::Local(folder) = self else { return error };
        match io_error_in(&error) {
            Some(error) => cannot_write(&folder.display().to_string(), error),
            None => error,
        }
    }

    async fn remove(&self, paths: Vec<String>) {
        match self {
            Self::Local(folder) => {
                for path in paths {
                    drop(std::fs::remove_file(folder.join(path)));
                }
            }
            Self::Objects { store, folder } => {
                let objects = paths.iter().map(|path| self.object(folder, path)).collect();
                if let Err(error) = remove_objects(store.as_ref(), objects).await {
                    tracing::warn!(%folder, %error, "files that nothing refers to stay");
                }
            }
        }
    }
}

/// Removes objects; missing ones are not an error.
///
/// Errors: the first one; when a store's retries are exhausted, the remaining objects are not tried.
pub async fn remove_objects(store: &dyn ObjectStore, paths: Vec<Path>) -> object_store::Result<()> {
    let mut removed = store.delete_stream(futures::stream::iter(paths.into_iter().map(Ok)).boxed());
    while let Some(outcome) = removed.next().await {
        match outcome {
            Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Finds an operating system error within nested errors.
fn io_error_in(error: &DataFusionError) -> Option<std::io::Error> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return Some(match error.raw_os_error() {
                Some(number) => std::io::Error::from_raw_os_error(number),
                None => error.kind().into(),
            });
        }
        source = match error.downcast_ref::<ParquetError>() {
            Some(ParquetError::External(inner)) => Some(inner.as_ref() as _),
            _ => error.source(),
        };
    }
    None
}

/// Maps an error of staged local files to its SQLSTATE.
pub fn cannot_stage(error: &harrier_committer::local::Error) -> DataFusionError {
    let state = match (error, error.io().map(std::io::Error::kind)) {
        (harrier_committer::local::Error::Conflict { .. }, _) => SqlState::SERIALIZATION_FAILURE,
        (_, Some(kind)) => state_of(kind),
        (_, None) => SqlState::DATA_CORRUPTED,
    };
    let coded = SqlError::new(state, error.to_string());
    match error.is_undone() {
        true => coded.into_datafusion(),
        false => coded
            .with_detail("The statement has happened; the next one that reads or writes here completes it.")
            .into_datafusion(),
    }
}

/// Maps an error of files staged in an object store to its SQLSTATE.
pub fn cannot_stage_in_store(error: &harrier_committer::object_store::Error) -> DataFusionError {
    use harrier_committer::object_store::Error as E;
    let state = match error {
        E::Unknown { .. } => SqlState::COMPLETION_UNKNOWN,
        E::Conflict { .. } | E::LeaseExpired { .. } => SqlState::SERIALIZATION_FAILURE,
        E::Canceled { .. } => SqlState::QUERY_CANCELED,
        E::NoConditions { .. } => SqlState::FEATURE_NOT_SUPPORTED,
        E::Journal { .. } => SqlState::DATA_CORRUPTED,
        error => error.store().map_or(SqlState::IO_ERROR, harrier_sqlstate::of_object_store),
    };
    let coded = SqlError::new(state, error.to_string());
    match error {
        E::Unfinished { .. } => coded
            .with_detail("The statement has happened; the next one that reads or writes here completes it.")
            .into_datafusion(),
        E::Unknown { .. } => coded
            .with_detail(
                "If the statement has happened, the next one that reads or writes here completes it.",
            )
            .into_datafusion(),
        E::Conflict { .. } => coded.with_hint("The statement can be tried again.").into_datafusion(),
        _ => coded.into_datafusion(),
    }
}

fn state_of(kind: std::io::ErrorKind) -> SqlState {
    match kind {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => SqlState::DISK_FULL,
        std::io::ErrorKind::PermissionDenied => SqlState::INSUFFICIENT_PRIVILEGE,
        std::io::ErrorKind::ReadOnlyFilesystem => SqlState::READ_ONLY,
        _ => SqlState::IO_ERROR,
    }
}

fn cannot_write(path: &str, error: std::io::Error) -> DataFusionError {
    let state = state_of(error.kind());
    SqlError::new(state, format!("could not write to \"{path}\": {error}")).into_datafusion()
}

/// Creates a new file and its parent folders. Blocks.
fn create_file(path: std::path::PathBuf) -> std::io::Result<(std::fs::File, Removal)> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let file = std::fs::OpenOptions::new().write(true).create_new(true).open(&path)?;
    Ok((file, Removal(Some(path))))
}

/// Removes a file when dropped. A thread that creates a file runs on after cancellation, when its writer has
/// already removed the files that it knew of: this guard then removes the new one.
struct Removal(Option<std::path::PathBuf>);

impl Removal {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            drop(std::fs::remove_file(path));
        }
    }
}

/// Files that are removed when this is dropped.
pub(super) struct CreatedFiles {
    pub(super) store: Store,
    pub(super) paths: Vec<String>,
    /// Files still being uploaded: a sent request completes even if nobody waits for it.
    pub(super) closing: JoinSet<Result<FileRecord>>,
    pending_work: Option<PendingWork>,
}

impl CreatedFiles {
    pub(super) fn new(store: Store, paths: Vec<String>) -> Self {
        // Local files are removed synchronously.
        let pending_work = matches!(store, Store::Objects { .. }).then(PendingWork::begin);
        Self { store, paths, closing: JoinSet::new(), pending_work }
    }
}

impl Drop for CreatedFiles {
    fn drop(&mut self) {
        if self.paths.is_empty() {
            return;
        }
        let paths = std::mem::take(&mut self.paths);
        let store = self.store.clone();
        let mut closing = std::mem::take(&mut self.closing);
        let pending_work = self.pending_work.take();
        let remove = async move {
            store.remove(paths).await;
            drop(pending_work);
        };
        match (&self.store, tokio::runtime::Handle::try_current()) {
            (Store::Objects { .. }, Ok(runtime)) => {
                // An object removed before its upload arrived would stay.
                drop(runtime.spawn(async move {
                    while closing.join_next().await.is_some() {}
                    remove.await;
                }));
            }
            // This future never waits.
            (Store::Local(_), _) => drop(remove.now_or_never()),
            (Store::Objects { .. }, Err(_)) => {}
        }
    }
}

/// Counts the bytes written and keeps the last eight: Parquet's footer length and magic.
#[derive(Default)]
pub(super) struct Tail {
    pub(super) bytes: u64,
    last: Vec<u8>,
}

impl Tail {
    fn update(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.last.extend_from_slice(&bytes[bytes.len().saturating_sub(8)..]);
        let surplus = self.last.len().saturating_sub(8);
        self.last.drain(..surplus);
    }

    /// Sizes of the file and of its footer.
    pub(super) fn sizes(&self) -> (i64, i64) {
        let footer = self.last.first_chunk::<4>().map_or(0, |length| u32::from_le_bytes(*length));
        (self.bytes as i64, i64::from(footer))
    }
}

pub(super) struct TailWriter {
    pub(super) sink: Box<dyn AsyncFileWriter>,
    pub(super) tail: Arc<Mutex<Tail>>,
}

impl AsyncFileWriter for TailWriter {
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, ParquetResult<()>> {
        self.tail.lock().update(&bytes);
        self.sink.write(bytes)
    }

    fn complete(&mut self) -> BoxFuture<'_, ParquetResult<()>> {
        self.sink.complete()
    }
}

/// A local file that is durable when completed: a commit that names it must not survive it.
struct Durable {
    file: tokio::fs::File,
    /// Folders with new directory entries to sync.
    folders: Vec<std::path::PathBuf>,
}

/// The folders that get a new entry when a file is created at `path`: its parent, and the parents of folders
/// that must be created first.
fn changed_folders(path: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut folders = Vec::new();
    for folder in path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()) {
        folders.push(folder.to_path_buf());
        if folder.exists() {
            break;
        }
    }
    folders
}

impl AsyncFileWriter for Durable {
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, ParquetResult<()>> {
        async move { self.file.write_all(&bytes).await.map_err(external) }.boxed()
    }

    fn complete(&mut self) -> BoxFuture<'_, ParquetResult<()>> {
        async move {
            self.file.flush().await.map_err(external)?;
            self.file.sync_all().await.map_err(external)?;
            for folder in &self.folders {
                let folder = tokio::fs::File::open(folder).await.map_err(external)?;
                folder.sync_all().await.map_err(external)?;
            }
            Ok(())
        }
        .boxed()
    }
}

fn external(error: std::io::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn created_folders_are_synced() {
        let root = std::env::temp_dir();
        let path = root.join("harrier-none/a=1/x.parquet");
        let expected = [root.join("harrier-none/a=1"), root.join("harrier-none"), root.clone()];
        assert_eq!(changed_folders(&path), expected);
        assert_eq!(changed_folders(&root.join("x.parquet")), [root]);
    }

    /// At every stage of creation. A single thread creates files, so its later work is done after them.
    #[test]
    fn files_of_canceled_creations_are_removed() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let folder = std::env::temp_dir().join(format!("harrier-files-{}", std::process::id()));
            let store = Store::Local(folder.clone());
            let path = folder.join("k=1/x.parquet");
            let settled = || tokio::task::spawn_blocking(|| ());
            let mut is_made = false;
            for (polls, settles) in [(1, false), (2, false), (1, true), (2, true), (3, true)] {
                let mut making = Box::pin(store.create("k=1/x.parquet"));
                for _ in 0..polls {
                    is_made = futures::poll!(&mut making).is_ready();
                    if is_made {
                        break;
                    }
                    if settles {
                        settled().await.unwrap();
                    }
                }
                drop(making);
                settled().await.unwrap();
                assert_eq!(path.exists(), is_made, "{polls} polls");
                if is_made {
                    std::fs::remove_file(&path).unwrap();
                }
            }
            assert!(is_made, "nobody gave up the last one");
            std::fs::remove_dir_all(&folder).unwrap();
        });
    }

    #[test]
    fn tail_spans_writes() {
        let mut tail = Tail::default();
        for bytes in [&b"PAR1....."[..], &[5, 1], &[0, 0, b'P', b'A'], b"R1"] {
            tail.update(bytes);
        }
        assert_eq!(tail.sizes(), (17, 261));
    }
}
