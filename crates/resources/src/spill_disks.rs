//! The spill disks of a process: several folders; a disk that fails is marked down and not used again.
//!
//! ```text
//!   operator ─► spill file ─► part on disk a ─┬─ full: the rest goes to the next disk, later here again
//!                             part on disk b ◄┴─ failed: likewise, and never again
//! ```
//!
//! # Invariants
//! - A file is unlinked once it is open: whatever ends the process, nothing of it remains.
//! - A write goes to one disk as a whole, or to the next one as a whole; parts of a file are read in the
//!   order in which they were written.
//! - A disk that is down stays down for the life of the process.
//!
//! # Errors
//! A write fails when no disk is left for it, with the error of the last one, so that full disks give 53100.
//! Beyond the spill limit of its statement (`resources/src/statement_limits.rs`) it fails with 53400
//! (configuration_limit_exceeded), beyond that of the process with 53100.
//! Data on a disk that failed after the write cannot be read back; the statement that reads it fails.
//!
//! # Crash
//! Spilled rows are lost with their process.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SpillFile, SpillWriter, TempFileFactory};
use futures::Stream;
use futures::stream::try_unfold;
use parking_lot::Mutex;
use prost::Message;

use harrier_error::{SqlError, SqlState};

/// The setting of [`SpillLimits::process_bytes`].
pub const BYTES_MAX_SETTING: &str = "datafusion.runtime.max_temp_directory_size";

/// Read chunk size. With less, wake-ups cost more than reading.
const READ_BYTES: usize = 128 << 10;

/// A full disk is used again once it has this much free space.
const ROOM_BYTES_MIN: u64 = 1 << 20;

/// The status of a disk, for system views.
#[derive(Clone, PartialEq, Message)]
pub struct DiskStatus {
    /// The folder as it was configured.
    #[prost(string, tag = "1")]
    pub folder: String,
    #[prost(enumeration = "DiskState", tag = "2")]
    pub state: i32,
    /// Why it is full or down.
    #[prost(string, optional, tag = "3")]
    pub reason: Option<String>,
    /// Size of its file system; `None` if unknown.
    #[prost(uint64, optional, tag = "4")]
    pub total_bytes: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub free_bytes: Option<u64>,
    /// Bytes spilled by this process.
    #[prost(uint64, tag = "6")]
    pub spilled_bytes: u64,
    #[prost(uint64, tag = "7")]
    pub spilled_files: u64,
}

/// The state of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
pub enum DiskState {
    Up = 0,
    /// Full; used again once it has space.
    Full = 1,
    /// Failed; not used again.
    Down = 2,
}

impl DiskState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Full => "full",
            Self::Down => "down",
        }
    }
}

/// A configured spill folder.
#[derive(Debug, Clone)]
pub struct Folder {
    /// As configured, for messages.
    pub configured: PathBuf,
    /// The folder for files, or why it could not be created.
    pub place: std::result::Result<PathBuf, String>,
}

/// The spill disks of a process. Cheap to clone.
#[derive(Clone)]
pub struct Disks {
    inner: Arc<Inner>,
    /// Spill limits of one statement.
    budget: Option<Arc<Budget>>,
}

/// Spilled bytes of one statement, and its limits.
struct Budget {
    bytes: AtomicU64,
    limits: SpillLimits,
}

/// Limits on a statement's writes. `None`: unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpillLimits {
    /// Bytes that the statement has on all disks together at a time.
    pub statement_bytes: Option<u64>,
    /// Bytes that all statements of the process have there.
    pub process_bytes: Option<u64>,
}

struct Inner {
    disks: Vec<Disk>,
    /// Round-robin counter.
    turn: AtomicUsize,
    /// Bytes on all disks.
    bytes: AtomicU64,
}

struct Disk {
    configured: PathBuf,
    place: PathBuf,
    state: Mutex<(DiskState, Option<String>)>,
    bytes: AtomicU64,
    files: AtomicU64,
}

impl fmt::Debug for Disks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.inner.disks.iter().map(|disk| &disk.configured)).finish()
    }
}

impl Disks {
    pub fn new(folders: Vec<Folder>) -> Self {
        let disk = |folder: Folder| {
            let (place, state) = match folder.place {
                Ok(place) => (place, (DiskState::Up, None)),
                Err(reason) => (PathBuf::new(), (DiskState::Down, Some(reason))),
            };
            Disk {
                configured: folder.configured,
                place,
                state: Mutex::new(state),
                bytes: AtomicU64::new(0),
                files: AtomicU64::new(0),
            }
        };
        let disks = folders.into_iter().map(disk).collect();
        let inner = Inner { disks, turn: AtomicUsize::new(0), bytes: AtomicU64::new(0) };
        Self { inner: Arc::new(inner), budget: None }
    }

    /// The same disks with the limits of a statement.
    pub fn for_statement(&self, limits: SpillLimits) -> Self {
        let budget = Budget { bytes: AtomicU64::new(0), limits };
        Self { inner: Arc::clone(&self.inner), budget: Some(Arc::new(budget)) }
    }

    /// Releases reserved bytes.
    fn release(&self, bytes: u64) {
        self.inner.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(budget) = &self.budget {
            budget.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// The status of all disks, in the order of the configuration. Queries the file systems, and blocks as
    /// long as they take.
    pub fn status(&self) -> Vec<DiskStatus> {
        self.inner.disks.iter().map(Disk::status).collect()
    }

    /// The disks to try for a write, round-robin.
    fn candidates(&self) -> impl Iterator<Item = usize> {
        let disks = &self.inner.disks;
        let first = self.inner.turn.fetch_add(1, Ordering::Relaxed);
        let turns = (0..disks.len()).map(move |at| first.wrapping_add(at) % disks.len());
        turns.filter(|at| disks[*at].is_usable())
    }

    /// The error when no disk is usable.
    fn none_left(&self) -> io::Error {
        match self.inner.disks.iter().any(|disk| disk.state() == DiskState::Full) {
            true => io::Error::new(io::ErrorKind::StorageFull, "no disk for temporary files has room"),
            false => io::Error::other("no disk for temporary files is left: all have failed"),
        }
    }

    /// Starts a new part of a file that begins with `bytes`.
    ///
    /// Errors: no disk takes it; the error is that of the last one.
    fn begin_part(&self, bytes: &[u8]) -> io::Result<Part> {
        let mut last = None;
        for at in self.candidates() {
            let disk = &self.inner.disks[at];
            let written = create(&disk.place).and_then(|file| {
                file.write_all_at(bytes, 0)?;
                Ok(file)
            });
            match written {
                Ok(file) => {
                    disk.mark_up();
                    let part = Part::new(self.clone(), at, file);
                    part.grow(bytes.len() as u64);
                    return Ok(part);
                }
                Err(error) if disk.record_error(&error) => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| self.none_left()))
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let total = self.inner.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let Some(budget) = &self.budget else { return Ok(()) };
        let own = budget.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let SpillLimits { statement_bytes, process_bytes } = budget.limits;
        let error = match (statement_bytes, process_bytes) {
            (Some(bytes_max), _) if own > bytes_max => {
                let message = format!("temporary files exceed the statement's limit of {bytes_max} bytes");
                SqlError::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, message)
            }
            (_, Some(bytes_max)) if total > bytes_max => {
                let folders: Vec<String> = self
                    .inner
                    .disks
                    .iter()
                    .map(|disk| format!("\"{}\"", disk.configured.display()))
                    .collect();
                let message = format!(
                    "temporary files of this process in {} exceed the limit of {bytes_max} bytes",
                    folders.join(", ")
                );
                SqlError::new(SqlState::DISK_FULL, message).with_hint(format!(
                    "SET {BYTES_MAX_SETTING} = '…' raises it, for all statements together"
                ))
            }
            _ => return Ok(()),
        };
        self.release(bytes);
        Err(io::Error::other(error))
    }
}

impl Disk {
    fn state(&self) -> DiskState {
        self.state.lock().0
    }

    /// Whether it may be tried: it has not failed, and if it was full it has space again.
    fn is_usable(&self) -> bool {
        match self.state() {
            DiskState::Up => true,
            DiskState::Down => false,
            DiskState::Full => space(&self.place).is_some_and(|(_, free)| free >= ROOM_BYTES_MIN),
        }
    }

    /// Records an error. Returns false if the error does not concern the disk, so that another one would not
    /// help.
    fn record_error(&self, error: &io::Error) -> bool {
        let mut state = self.state.lock();
        let folder = self.configured.display();
        match error.kind() {
            // A limit of the process.
            io::ErrorKind::FileTooLarge => return false,
            _ if is_of_process(error) => return false,
            _ if state.0 == DiskState::Down => {}
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                if state.0 == DiskState::Up {
                    tracing::warn!(%folder, %error, "a disk for temporary files is full");
                }
                *state = (DiskState::Full, Some(error.to_string()));
            }
            _ => {
                tracing::error!(%folder, %error, "a disk for temporary files has failed and is not used again");
                *state = (DiskState::Down, Some(error.to_string()));
            }
        }
        true
    }

    fn mark_up(&self) {
        let mut state = self.state.lock();
        if state.0 == DiskState::Full {
            tracing::info!(folder = %self.configured.display(), "a disk for temporary files has room again");
            *state = (DiskState::Up, None);
        }
    }

    fn status(&self) -> DiskStatus {
        let (state, reason) = self.state.lock().clone();
        let place = if self.place.as_os_str().is_empty() { &self.configured } else { &self.place };
        let space = space(place);
        DiskStatus {
            folder: self.configured.display().to_string(),
            state: state.into(),
            reason,
            total_bytes: space.map(|(total, _)| total),
            free_bytes: space.map(|(_, free)| free),
            spilled_bytes: self.bytes.load(Ordering::Relaxed),
            spilled_files: self.files.load(Ordering::Relaxed),
        }
    }
}

/// Whether the error is the process's own, such as too many open files.
fn is_of_process(error: &io::Error) -> bool {
    use nix::errno::Errno;
    matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM))
}

/// Total bytes of a file system, and those available to this user.
fn space(folder: &Path) -> Option<(u64, u64)> {
    let found = nix::sys::statvfs::statvfs(folder).ok()?;
    let unit = found.fragment_size();
    Some((found.blocks().checked_mul(unit)?, found.blocks_available().checked_mul(unit)?))
}

/// Creates an unlinked file.
fn create(folder: &Path) -> io::Result<File> {
    let path = folder.join(uuid::Uuid::new_v4().simple().to_string());
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// The part of a spill file on one disk.
struct Part {
    disks: Disks,
    disk: usize,
    file: File,
    bytes: AtomicU64,
}

impl Part {
    fn new(disks: Disks, disk: usize, file: File) -> Self {
        disks.inner.disks[disk].files.fetch_add(1, Ordering::Relaxed);
        Self { disks, disk, file, bytes: AtomicU64::new(0) }
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    fn disk(&self) -> &Disk {
        &self.disks.inner.disks[self.disk]
    }

    fn grow(&self, bytes: u64) {
        self.disk().bytes.fetch_add(bytes, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Release);
    }

    /// Appends all of `bytes` or nothing.
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.bytes())?;
        self.grow(bytes.len() as u64);
        Ok(())
    }

    fn read(&self, at: u64, bytes_max: usize) -> io::Result<Bytes> {
        let left = self.bytes().saturating_sub(at);
        let mut bytes = vec![0; usize::try_from(left).unwrap_or(usize::MAX).min(bytes_max)];
        self.file.read_exact_at(&mut bytes, at).inspect_err(|error| {
            self.disk().record_error(error);
        })?;
        Ok(bytes.into())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let bytes = self.bytes();
        self.disk().bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.disk().files.fetch_sub(1, Ordering::Relaxed);
        self.disks.release(bytes);
    }
}

/// A spill file, with parts on one or several disks.
struct MultiDiskFile {
    disks: Disks,
    parts: Arc<Mutex<Vec<Arc<Part>>>>,
}

impl TempFileFactory for Disks {
    fn create_temp_file(&self, _: &str) -> Result<Arc<dyn SpillFile>> {
        // The first write picks a disk: an operator may never write.
        Ok(Arc::new(MultiDiskFile { disks: self.clone(), parts: Arc::default() }))
    }
}

impl SpillFile for MultiDiskFile {
    fn size(&self) -> Option<u64> {
        Some(self.parts.lock().iter().map(|part| part.bytes()).sum())
    }

    fn read_stream(&self) -> Result<Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>> {
        // Operators read files while they are written.
        let stream = try_unfold((Arc::clone(&self.parts), 0, 0), |(parts, mut number, mut at)| async move {
            loop {
                let (part, is_last) = {
                    let parts = parts.lock();
                    (parts.get(number).cloned(), number + 1 >= parts.len())
                };
                let Some(part) = part else {
                    return Ok(None);
                };
                if at >= part.bytes() {
                    if is_last {
                        return Ok(None);
                    }
                    (number, at) = (number + 1, 0);
                    continue;
                }
                let bytes = tokio::task::spawn_blocking(move || part.read(at, READ_BYTES))
                    .await
                    .map_err(|error| DataFusionError::IoError(io::Error::other(error)))?
                    .map_err(DataFusionError::IoError)?;
                at += bytes.len() as u64;
                return Ok(Some((bytes, (parts, number, at))));
            }
        });
        Ok(Box::pin(stream))
    }

    fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
        Ok(Box::new(Writer { disks: self.disks.clone(), parts: Arc::clone(&self.parts) }))
    }
}

/// Appends to a spill file.
struct Writer {
    disks: Disks,
    parts: Arc<Mutex<Vec<Arc<Part>>>>,
}

impl Writer {
    /// Appends to the last part, or to a new part on another disk.
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let last = self.parts.lock().last().cloned();
        if let Some(part) = last.filter(|part| part.disk().state() != DiskState::Down) {
            match part.append(bytes) {
                Ok(()) => return Ok(()),
                Err(error) if part.disk().record_error(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let part = self.disks.begin_part(bytes)?;
        self.parts.lock().push(Arc::new(part));
        Ok(())
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.disks.reserve(bytes.len() as u64)?;
        self.append(bytes).inspect_err(|_| self.disks.release(bytes.len() as u64))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SpillWriter for Writer {
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;

    use super::*;

    fn folder() -> PathBuf {
        let path = std::env::temp_dir().join(format!("harrier-disks-{}", uuid::Uuid::new_v4().simple()));
        std::fs::create_dir(&path).unwrap();
        path
    }

    fn disks(paths: &[&PathBuf]) -> Disks {
        let folder =
            |path: &&PathBuf| Folder { configured: path.to_path_buf(), place: Ok(path.to_path_buf()) };
        Disks::new(paths.iter().map(folder).collect())
    }

    fn states(disks: &Disks) -> Vec<&'static str> {
        disks.status().iter().map(|disk| disk.state().name()).collect()
    }

    async fn read(file: &Arc<dyn SpillFile>) -> Vec<u8> {
        let pieces: Vec<Bytes> = file.read_stream().unwrap().try_collect().await.unwrap();
        pieces.concat()
    }

    #[tokio::test]
    async fn spilled_batches_round_trip_and_are_deleted() {
        let (a, b) = (folder(), folder());
        let disks = disks(&[&a, &b]);
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
        let files: Vec<_> = (0..4).map(|_| disks.create_temp_file("").unwrap()).collect();
        for file in &files {
            let mut writer = file.open_writer().unwrap();
            bytes.chunks(77_777).for_each(|piece| writer.write_all(piece).unwrap());
            writer.finish().unwrap();
        }
        for file in &files {
            assert_eq!(file.size(), Some(bytes.len() as u64));
            assert!(read(file).await == bytes);
        }
        let spilled: Vec<u64> = disks.status().iter().map(|disk| disk.spilled_bytes).collect();
        assert_eq!(spilled, [2_000_000, 2_000_000]);
        assert_eq!(std::fs::read_dir(&a).unwrap().count(), 0, "files have no names");
        drop(files);
        assert!(disks.status().iter().all(|disk| disk.spilled_bytes == 0 && disk.spilled_files == 0));
        assert_eq!(disks.inner.bytes.load(Ordering::Relaxed), 0);
        std::fs::remove_dir_all(a).unwrap();
        std::fs::remove_dir_all(b).unwrap();
    }

    #[tokio::test]
    async fn failed_spill_disks_are_skipped() {
        let (a, b) = (folder(), folder());
        let disks = disks(&[&a, &b]);
        std::fs::remove_dir_all(&a).unwrap();
        for _ in 0..3 {
            let file = disks.create_temp_file("").unwrap();
            file.open_writer().unwrap().write_all(b"rows").unwrap();
            assert_eq!(read(&file).await, b"rows");
        }
        assert_eq!(states(&disks), ["down", "up"]);
        // It is not used again even after it is back.
        std::fs::create_dir(&a).unwrap();
        let file = disks.create_temp_file("").unwrap();
        (0..3).for_each(|_| file.open_writer().unwrap().write_all(b"rows").unwrap());
        assert_eq!(disks.status()[0].spilled_files, 0);
        assert_eq!(states(&disks), ["down", "up"]);
        std::fs::remove_dir_all(&b).unwrap();
        let other = disks.create_temp_file("").unwrap();
        let error = other.open_writer().unwrap().write_all(b"rows").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(states(&disks), ["down", "down"]);
        let error = other.open_writer().unwrap().write_all(b"rows").unwrap_err();
        assert!(error.to_string().contains("no disk for temporary files is left"), "{error}");
        assert_eq!(read(&file).await, b"rowsrowsrows", "what is open can still be read");
        std::fs::remove_dir_all(&a).unwrap();
    }

    #[test]
    fn spill_limits_are_enforced() {
        let a = folder();
        let disks = disks(&[&a]);
        let within = |statement_bytes, process_bytes| {
            disks.for_statement(SpillLimits { statement_bytes, process_bytes })
        };
        let file = |disks: &Disks| {
            let file = disks.create_temp_file("").unwrap();
            (file.open_writer().unwrap(), file)
        };
        let state = |error: io::Error| harrier_sqlstate_of(&error);
        let (mut unlimited, mut small, mut all) =
            (file(&disks), file(&within(Some(5), Some(10))), file(&within(None, Some(10))));
        unlimited.0.write_all(b"1234").unwrap();
        small.0.write_all(b"12345").unwrap();
        assert_eq!(state(small.0.write_all(b"6").unwrap_err()), SqlState::CONFIGURATION_LIMIT_EXCEEDED);
        let error = all.0.write_all(b"12").unwrap_err();
        assert!(error.to_string().contains(&a.display().to_string()), "{error}");
        assert_eq!(state(error), SqlState::DISK_FULL);
        all.0.write_all(b"1").unwrap();
        // Without a limit of its own, a statement has what the disks have.
        unlimited.0.write_all(b"12345").unwrap();
        drop((unlimited, small));
        all.0.write_all(b"123456789").unwrap();
        assert_eq!(states(&disks), ["up"]);
        drop(all);
        assert_eq!(disks.inner.bytes.load(Ordering::Relaxed), 0);
        std::fs::remove_dir_all(a).unwrap();
    }

    fn harrier_sqlstate_of(error: &io::Error) -> SqlState {
        error.get_ref().and_then(|inner| inner.downcast_ref::<SqlError>()).unwrap().sqlstate
    }
}
