//! Spill files of sorted pairs on local disks; a folder that fails is no longer used.
//!
//! # Invariants
//! - A file is unlinked right after it is opened: nothing remains of it however the process ends.
//! - A run is written completely to one file of one folder. A folder that fails a write is not used again,
//!   and the run is rewritten to the next.
//! - A file may hold several consecutive runs, written by one thread. Its space is freed when none of them is
//!   left.
//!
//! # Errors
//! [`SpillError`]: no folder is left, no file can be opened, or a run cannot be read back.
//!
//! # Crash
//! Runs disappear with their process; data that must survive belongs in a checkpoint.

use crate::records::{self, Place};
use crate::wire::Damaged;
use parking_lot::Mutex;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of pairs per write and read. A merge holds one such buffer for every run.
const PIECE_BYTES: usize = 256 * 1024;

/// Length and checksum before each piece.
const PIECE_HEADER_BYTES: usize = 8;

/// Size up to which small runs are appended to a shared file: small enough to free space while others are
/// written, large enough that a thousand windows of a stream need only one file, or few.
const SHARED_FILE_BYTES: u64 = 64 << 20;

/// Why pairs could not be spilled or read back.
#[derive(Debug, thiserror::Error)]
pub enum SpillError {
    /// Every folder has failed; the error of the last one.
    #[error("no folder is left to spill to: {0}")]
    NoFolder(String),
    /// Out of file descriptors, in this process or the system.
    #[error("a run cannot be spilled: {0} (see ulimit -n; fewer A tasks, or more memory, take fewer files)")]
    Descriptors(#[source] io::Error),
    #[error("a spilled run cannot be read: {0}")]
    Read(#[source] io::Error),
    #[error("a spilled run is damaged: {0}")]
    Damaged(#[source] Damaged),
}

/// A rank's spill folders.
pub struct SpillFolders {
    folders: Mutex<Vec<PathBuf>>,
    turn: AtomicU64,
    runs: AtomicU64,
    bytes: AtomicU64,
    dropped: AtomicU64,
}

impl SpillFolders {
    pub fn new(folders: Vec<PathBuf>) -> SpillFolders {
        SpillFolders {
            folders: Mutex::new(folders),
            turn: AtomicU64::new(0),
            runs: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// Number of runs written, their bytes, and failed folders, so far.
    pub fn totals(&self) -> (u64, u64, u64) {
        let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        (get(&self.runs), get(&self.bytes), get(&self.dropped))
    }

    /// Writes one run: appended to the file of another one, or to a new file. `write` is called again, from
    /// the beginning, if a folder fails.
    ///
    /// Errors: no folder is left; or those of `write` itself.
    pub fn write<E: From<SpillError>>(
        &self,
        behind: Option<&DiskRun>,
        mut write: impl FnMut(&mut RunWriter) -> Result<(), WriteError<E>>,
    ) -> Result<DiskRun, E> {
        let mut last = "none was given".to_string();
        loop {
            let (folder, behind) = {
                let folders = self.folders.lock();
                match behind.map(|run| &run.file).filter(|file| folders.contains(&file.folder)) {
                    Some(file) => (file.folder.clone(), Some(Arc::clone(file))),
                    None => {
                        let turn = self.turn.fetch_add(1, Ordering::Relaxed) as usize;
                        match folders.len() {
                            0 => return Err(SpillError::NoFolder(last).into()),
                            count => (folders[turn % count].clone(), None),
                        }
                    }
                }
            };
            let file = behind.map_or_else(|| RunFile::create(&folder), Ok);
            let written = file.map_err(WriteError::Folder).and_then(|file| {
                let mut writer = RunWriter::new(file);
                write(&mut writer)?;
                writer.finish().map_err(WriteError::Folder)
            });
            match written {
                Ok(run) => {
                    self.runs.fetch_add(1, Ordering::Relaxed);
                    self.bytes.fetch_add(run.bytes(), Ordering::Relaxed);
                    return Ok(run);
                }
                Err(WriteError::Other(error)) => return Err(error),
                // Another folder would fail alike.
                Err(WriteError::Folder(error)) if is_out_of_descriptors(&error) => {
                    return Err(SpillError::Descriptors(error).into());
                }
                Err(WriteError::Folder(error)) => {
                    last = format!("{}: {error}", folder.display());
                    tracing::warn!(folder = %folder.display(), %error, "a folder for spilled pairs is dropped");
                    let mut folders = self.folders.lock();
                    let before = folders.len();
                    folders.retain(|known| *known != folder);
                    self.dropped.fetch_add((before - folders.len()) as u64, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Why a run was not written: a failed folder, which is dropped and retried elsewhere, or another error,
/// which is final.
#[derive(Debug, thiserror::Error)]
pub enum WriteError<E> {
    #[error("a folder for spilled pairs cannot be written: {0}")]
    Folder(#[source] io::Error),
    #[error("{0}")]
    Other(#[source] E),
}

/// Whether the error means too many open files, in this process (EMFILE) or in the system (ENFILE).
fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}

const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// A file of consecutive runs.
struct RunFile {
    file: File,
    folder: PathBuf,
    /// Offset of the next run.
    end: AtomicU64,
}

impl RunFile {
    fn create(folder: &Path) -> io::Result<Arc<RunFile>> {
        static NAMES: AtomicU64 = AtomicU64::new(0);
        std::fs::create_dir_all(folder)?;
        let name = NAMES.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("mpid-{}-{name}.run", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(Arc::new(RunFile { file, folder: folder.to_path_buf(), end: AtomicU64::new(0) }))
    }
}

/// Spill writer of one thread.
pub struct Spiller {
    folders: Arc<SpillFolders>,
    /// File size up to which the next run is appended.
    shared_bytes: u64,
    /// The run to append after.
    last: Option<DiskRun>,
}

impl Spiller {
    /// Gives every run a file of its own, whose space is freed with it.
    pub fn new(folders: &Arc<SpillFolders>) -> Spiller {
        Spiller { folders: Arc::clone(folders), shared_bytes: 0, last: None }
    }

    /// For many small runs, freed in about the order in which they are written: they share files.
    pub fn sharing(folders: &Arc<SpillFolders>) -> Spiller {
        Spiller { shared_bytes: SHARED_FILE_BYTES, ..Spiller::new(folders) }
    }

    /// See [`SpillFolders::write`]; `behind`: a run of this thread to append after.
    pub fn write<E: From<SpillError>>(
        &mut self,
        behind: Option<&DiskRun>,
        write: impl FnMut(&mut RunWriter) -> Result<(), WriteError<E>>,
    ) -> Result<DiskRun, E> {
        let end = |run: &DiskRun| run.file.end.load(Ordering::Relaxed);
        self.last.take_if(|run| end(run) >= self.shared_bytes);
        let run = self.folders.write(behind.or(self.last.as_ref()), write)?;
        if end(&run) < self.shared_bytes {
            self.last = Some(run.clone());
        }
        Ok(run)
    }
}

/// Writer of a run's pairs, in order.
pub struct RunWriter {
    file: Arc<RunFile>,
    piece: Vec<u8>,
    begin: u64,
    end: u64,
}

impl RunWriter {
    fn new(file: Arc<RunFile>) -> RunWriter {
        let begin = file.end.load(Ordering::Relaxed);
        RunWriter { file, piece: Vec::with_capacity(PIECE_BYTES), begin, end: begin }
    }

    /// Errors: the folder's.
    #[inline]
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if self.piece.len() + records::pair_bytes(key.len(), value.len()) > PIECE_BYTES {
            self.flush()?;
        }
        records::push_pair(&mut self.piece, key, value);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let length = u32::try_from(self.piece.len()).map_err(|_| io::Error::other("a pair of 4 GiB"))?;
        let mut header = [0; PIECE_HEADER_BYTES];
        header[..4].copy_from_slice(&length.to_le_bytes());
        header[4..].copy_from_slice(&crc32fast::hash(&self.piece).to_le_bytes());
        self.file.file.write_all_at(&header, self.end)?;
        self.file.file.write_all_at(&self.piece, self.end + PIECE_HEADER_BYTES as u64)?;
        self.end += (PIECE_HEADER_BYTES + self.piece.len()) as u64;
        self.piece.clear();
        Ok(())
    }

    fn finish(mut self) -> io::Result<DiskRun> {
        self.flush()?;
        self.file.end.store(self.end, Ordering::Relaxed);
        Ok(DiskRun { file: self.file, begin: self.begin, end: self.end })
    }
}

/// A run on disk. Its file is freed when the last reference to the last of its runs is dropped.
#[derive(Clone)]
pub struct DiskRun {
    file: Arc<RunFile>,
    /// Offset in the file.
    begin: u64,
    end: u64,
}

impl DiskRun {
    pub fn bytes(&self) -> u64 {
        self.end - self.begin
    }

    pub fn read(&self) -> DiskCursor {
        DiskCursor { run: self.clone(), piece: Vec::new(), at: self.begin, place: Place::default() }
    }
}

/// Reader of a run's pairs, in order.
pub struct DiskCursor {
    run: DiskRun,
    piece: Vec<u8>,
    /// File offset of the next piece.
    at: u64,
    place: Place,
}

impl DiskCursor {
    /// Advances to the next pair. Returns whether there is one.
    ///
    /// Errors: the piece cannot be read, or its checksum fails.
    #[inline]
    pub fn advance(&mut self) -> Result<bool, SpillError> {
        if self.place.end == self.piece.len() && !self.next_piece()? {
            return Ok(false);
        }
        match records::place(&self.piece, self.place.end) {
            Some(place) => {
                self.place = place;
                Ok(true)
            }
            None => Err(SpillError::Damaged(Damaged("a pair that reaches past its piece"))),
        }
    }

    pub fn key(&self) -> &[u8] {
        &self.piece[self.place.key..self.place.value]
    }

    pub fn value(&self) -> &[u8] {
        &self.piece[self.place.value..self.place.end]
    }

    fn next_piece(&mut self) -> Result<bool, SpillError> {
        // Reset first, so that a failed read leaves no stale pair visible.
        self.place = Place::default();
        self.piece.clear();
        let more = self.read_piece();
        if more.is_err() {
            self.piece.clear();
        }
        more
    }

    fn read_piece(&mut self) -> Result<bool, SpillError> {
        if self.at == self.run.end {
            return Ok(false);
        }
        let mut header = [0; PIECE_HEADER_BYTES];
        self.run.file.file.read_exact_at(&mut header, self.at).map_err(SpillError::Read)?;
        let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let length = number(0) as usize;
        let begin = self.at + PIECE_HEADER_BYTES as u64;
        if begin + length as u64 > self.run.end {
            return Err(SpillError::Damaged(Damaged("a piece that reaches past its run")));
        }
        self.piece.resize(length, 0);
        self.run.file.file.read_exact_at(&mut self.piece, begin).map_err(SpillError::Read)?;
        if crc32fast::hash(&self.piece) != number(4) {
            return Err(SpillError::Damaged(Damaged("a piece with another checksum")));
        }
        self.at = begin + length as u64;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folders: &SpillFolders, pairs: usize) -> Result<DiskRun, SpillError> {
        write_behind(folders, None, pairs)
    }

    fn write_behind(
        folders: &SpillFolders,
        behind: Option<&DiskRun>,
        pairs: usize,
    ) -> Result<DiskRun, SpillError> {
        folders.write(behind, |run| {
            for number in 0..pairs {
                let key = number.to_string();
                run.push(key.as_bytes(), &vec![b'x'; number % 1000]).map_err(WriteError::Folder)?;
            }
            // Larger than a piece.
            run.push(b"large", &vec![b'y'; 3 * PIECE_BYTES]).map_err(WriteError::Folder)
        })
    }

    #[test]
    fn spilled_pairs_round_trip_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let folders = SpillFolders::new(vec![folder.path().join("a"), folder.path().join("b")]);
        let run = write(&folders, 5000).unwrap();
        let mut cursor = run.read();
        for number in 0..5000 {
            assert!(cursor.advance().unwrap());
            assert_eq!(cursor.key(), number.to_string().as_bytes());
            assert_eq!(cursor.value().len(), number % 1000);
        }
        assert!(cursor.advance().unwrap());
        assert_eq!((cursor.key(), cursor.value().len()), (&b"large"[..], 3 * PIECE_BYTES));
        assert!(!cursor.advance().unwrap());
        // All files are unlinked.
        assert_eq!(std::fs::read_dir(folder.path().join("a")).unwrap().count(), 0);
    }

    fn count(run: &DiskRun) -> usize {
        let mut cursor = run.read();
        let mut pairs = 0;
        while cursor.advance().unwrap() {
            pairs += 1;
        }
        pairs
    }

    #[test]
    fn runs_share_a_file_as_long_as_its_folder_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let folders = SpillFolders::new(vec![folder.path().join("a"), folder.path().join("b")]);
        let first = write(&folders, 10).unwrap();
        let second = write_behind(&folders, Some(&first), 2000).unwrap();
        let third = write_behind(&folders, Some(&first), 30).unwrap();
        assert!([&second, &third].iter().all(|run| Arc::ptr_eq(&run.file, &first.file)));
        assert_eq!([&first, &second, &third].map(count), [11, 2001, 31]);
        let bytes = [&first, &second, &third].map(DiskRun::bytes).iter().sum::<u64>();
        assert_eq!((folders.totals().1, third.end), (bytes, bytes));
        // Simulate a failed folder.
        folders.folders.lock().retain(|known| *known != first.file.folder);
        let other = write_behind(&folders, Some(&first), 40).unwrap();
        assert!(!Arc::ptr_eq(&other.file, &first.file));
        assert_eq!([&third, &other].map(count), [31, 41]);
    }

    #[test]
    fn shared_spill_files_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let folders = Arc::new(SpillFolders::new(vec![folder.path().to_path_buf()]));
        let mut spiller = Spiller { shared_bytes: 3 << 20, ..Spiller::sharing(&folders) };
        let write = |spiller: &mut Spiller| {
            let large = |run: &mut RunWriter| run.push(b"key", &[0; 1 << 20]).map_err(WriteError::Folder);
            spiller.write::<SpillError>(None, large).unwrap()
        };
        let runs: Vec<DiskRun> = (0..9).map(|_| write(&mut spiller)).collect();
        let same: Vec<bool> = runs.windows(2).map(|two| Arc::ptr_eq(&two[0].file, &two[1].file)).collect();
        assert_eq!(same, [true, true, false, true, true, false, true, true]);
        let mut spiller = Spiller::new(&folders);
        let runs: Vec<DiskRun> = (0..2).map(|_| write(&mut spiller)).collect();
        assert!(!Arc::ptr_eq(&runs[0].file, &runs[1].file) && spiller.last.is_none());
    }

    #[test]
    fn failed_spill_folders_are_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let not_a_folder = folder.path().join("file");
        std::fs::write(&not_a_folder, "").unwrap();
        let folders = SpillFolders::new(vec![not_a_folder.clone(), folder.path().to_path_buf()]);
        for _ in 0..3 {
            write(&folders, 10).unwrap();
        }
        let (files, _, dropped) = folders.totals();
        assert_eq!((files, dropped), (3, 1));
        let folders = SpillFolders::new(vec![not_a_folder]);
        let error = write(&folders, 1).err().unwrap().to_string();
        assert!(error.contains("no folder is left") && error.contains("file"), "{error}");
    }

    #[test]
    fn corruption_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let folders = SpillFolders::new(vec![folder.path().to_path_buf()]);
        let run = write(&folders, 1000).unwrap();
        run.file.file.write_all_at(b"?", 100_000).unwrap();
        let mut cursor = run.read();
        let failed = loop {
            match cursor.advance() {
                Ok(true) => {}
                Ok(false) => break false,
                Err(error) => break matches!(error, SpillError::Damaged(_)),
            }
        };
        assert!(failed);
        // The error is sticky.
        assert_eq!((cursor.key(), cursor.value()), (&b""[..], &b""[..]));
        assert!(cursor.advance().is_err());
    }
}
