//! Checkpoint of a job: a log of received pairs, so that after a crash only unfinished O tasks run again.
//!
//! # Invariants
//! - Write-ahead: every block is in the log of its A task before its pairs are used.
//! - An O task is committed once every A task has logged all of it, and its end mark; only then is it not
//!   rerun. Rank 0 alone writes commits. A log without the end mark of a committed O task is truncated or was
//!   replaced.
//! - A run of a job that resumes from a checkpoint is a new generation, with logs of its own. The logs may
//!   hold blocks of an O task from several generations; only those of the committed generation count. So a
//!   rank that was declared lost but still writes does no harm: none of its writes is committed any more, and
//!   it writes to files that are now only read.
//!
//! - A checkpoint belongs to one program with its arguments, in one working directory, and to one run of it
//!   at a time. A changed program counts as another one: its output need not be consistent with the log.
//!
//! # Order of calls
//! Rank 0: [`Commits::open`]. Then every rank: [`Log::open`] for each of its A tasks, which replays the
//! committed blocks; then [`Log::append`], [`Log::flush`] when an O task has ended, and [`Commits::commit`]
//! on rank 0. Last, [`Commits::remove`].
//!
//! # Crash
//! A truncated record fails its checksum, and the rest of its file is ignored. Files are written without
//! fsync: they survive a crash of processes, not of the machine.

use crate::records::{BLOCK_HEADER_BYTES, BlockHeader, BlockKind};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Committed O tasks, each with the generation whose blocks count.
pub(crate) type Committed = HashMap<u32, u32>;

/// Time to wait for the lock of a checkpoint in use: a killed process holds its lock for a moment longer.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(10);

/// The commit log, in a job's folder. Its file lock protects the folder.
const COMMITS: &str = "commits";

/// A record of the commit log: kind, number, and a checksum of both.
const RECORD_BYTES: usize = 12;

const KIND_SHAPE: u32 = 1;
const KIND_GENERATION: u32 = 2;
const KIND_COMMIT: u32 = 3;

/// Folder of a job's checkpoint.
pub(crate) fn folder(checkpoint: &Path, job: u32, name: &str) -> PathBuf {
    let name: String =
        name.chars().map(|character| if character.is_alphanumeric() { character } else { '-' }).collect();
    checkpoint.join(format!("{job}-{name}"))
}

/// Identity of the program that a checkpoint belongs to: the same after a restart of the ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The program and its arguments, quoted unambiguously, without the launcher's arguments.
    pub words: String,
    /// Size and checksum of the executable and, for Python, of its script; modules and libraries are not
    /// included.
    pub content: String,
    /// Working directory, which relative file names depend on.
    folder: String,
}

impl Program {
    /// Identity of this process.
    pub fn this() -> &'static Program {
        static THIS: OnceLock<Program> = OnceLock::new();
        THIS.get_or_init(|| {
            let words: Vec<OsString> = std::env::args_os().collect();
            let folder = std::env::current_dir().unwrap_or_default();
            Program::of(Path::new("/proc/self/exe"), &words, &folder)
        })
    }

    fn of(executable: &Path, words: &[OsString], folder: &Path) -> Program {
        // The same program may be called by another path.
        let name = words.first().map(|word| Path::new(word).file_name().unwrap_or(word));
        let shown = name.into_iter().chain(words.iter().skip(1).map(OsString::as_os_str));
        let shown: Vec<String> = shown.map(|word| format!("{word:?}")).collect();
        let mut content = fingerprint(executable);
        if let Some(script) = script(executable, words) {
            content += "-";
            content += &fingerprint(&folder.join(script));
        }
        Program { words: shown.join(" "), content, folder: format!("{folder:?}") }
    }

    /// Content of the checkpoint's file `program`.
    fn text(&self) -> String {
        format!("{} in {}\n{}\n", self.words, self.folder, self.content)
    }

    /// Errors: how this program differs from the one of the checkpoint in `folder`, whose file contains
    /// `before`.
    fn check(&self, before: &str, folder: &Path) -> io::Result<()> {
        let now = self.text();
        if before == now {
            return Ok(());
        }
        let (shown, shown_before) = (now.lines().next(), before.lines().next());
        let (shown, shown_before) = (shown.unwrap_or_default(), shown_before.unwrap_or_default());
        let why = match shown == shown_before {
            true => format!("of {shown} as it was before the program was changed"),
            false => format!("of another program, or of other arguments: of {shown_before}, not of {shown}"),
        };
        let folder = folder.display();
        Err(io::Error::other(format!("\"{folder}\" is {why}; with the folder gone the job begins anew")))
    }
}

/// Returns the script of a Python executable: the first argument that is not an option, unless that is a
/// module's name or program text.
fn script<'a>(executable: &Path, words: &'a [OsString]) -> Option<&'a Path> {
    let executable = executable.canonicalize().ok()?;
    if !executable.file_name()?.to_string_lossy().starts_with("python") {
        return None;
    }
    let mut words = words.iter().skip(1);
    while let Some(word) = words.next() {
        match word.to_string_lossy().as_ref() {
            "-c" | "-m" | "-" => return None,
            "-W" | "-X" | "--check-hash-based-pycs" => drop(words.next()),
            option if option.starts_with('-') => {}
            _ => return Some(Path::new(word)),
        }
    }
    None
}

/// Returns a file's size and checksum. All unreadable files count as equal.
fn fingerprint(path: &Path) -> String {
    let mut checksum = crc32fast::Hasher::new();
    let mut length = 0;
    let read = File::open(path).and_then(|mut file| {
        let mut piece = vec![0; 1 << 20];
        loop {
            match file.read(&mut piece)? {
                0 => return Ok(()),
                bytes => {
                    checksum.update(&piece[..bytes]);
                    length += bytes;
                }
            }
        }
    });
    match read {
        Ok(()) => format!("{length}:{:08x}", checksum.finalize()),
        Err(_) => "unknown".to_string(),
    }
}

/// A job's number of tasks. Unless fixed by its program, a resumed job keeps its number, however many ranks
/// are left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tasks {
    pub count: u32,
    pub fixed: bool,
}

/// Commit log of rank 0.
pub(crate) struct Commits {
    folder: PathBuf,
    file: File,
    pub generation: u32,
    /// Numbers of O and A tasks.
    pub tasks: (u32, u32),
}

impl Commits {
    /// Opens the checkpoint in `folder`, or creates it for a job of `program` with these numbers of tasks.
    /// Returns the committed O tasks.
    ///
    /// Errors: the folder cannot be used, or another process uses it, or it belongs to another program, or to
    /// a job with a different number of tasks where the program fixes one.
    pub fn open(
        folder: &Path,
        program: &Program,
        o_tasks: Tasks,
        a_tasks: Tasks,
    ) -> io::Result<(Commits, Committed)> {
        let path = folder.join(COMMITS);
        let mut file = open_locked(folder, &path).map_err(with_path(&path))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(with_path(&path))?;
        let (mut committed, mut generation, mut valid) = (Committed::new(), 0, 0);
        let mut shape = Vec::new();
        for record in bytes.chunks_exact(RECORD_BYTES) {
            let number = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().expect("four bytes"));
            if crc32fast::hash(&record[..8]) != number(8) {
                break;
            }
            valid += RECORD_BYTES as u64;
            match number(0) {
                KIND_SHAPE => shape.push(number(4)),
                KIND_GENERATION => generation = number(4),
                KIND_COMMIT => {
                    committed.insert(number(4), generation);
                }
                _ => return Err(io::Error::other("a record of no kind in the list of commits")),
            }
        }
        file.set_len(valid).map_err(with_path(&path))?;
        file.seek(SeekFrom::Start(valid)).map_err(with_path(&path))?;
        let tasks = (o_tasks.count, a_tasks.count);
        let mut commits = Commits { folder: folder.to_path_buf(), file, generation: generation + 1, tasks };
        let known = folder.join("program");
        if let [o_before, a_before] = shape[..] {
            let before = std::fs::read_to_string(&known).unwrap_or_default();
            program.check(&before, folder)?;
            let fits = |now: Tasks, before: u32| !now.fixed || now.count == before;
            if !fits(o_tasks, o_before) || !fits(a_tasks, a_before) {
                return Err(io::Error::other(format!(
                    "it is of a job with {o_before} O tasks and {a_before} A tasks, not {} and {}",
                    o_tasks.count, a_tasks.count
                )));
            }
            commits.tasks = (o_before, a_before);
        } else {
            std::fs::write(&known, program.text()).map_err(with_path(&known))?;
            commits.file.set_len(0).map_err(with_path(&path))?;
            commits.file.seek(SeekFrom::Start(0)).map_err(with_path(&path))?;
            commits.write(KIND_SHAPE, o_tasks.count)?;
            commits.write(KIND_SHAPE, a_tasks.count)?;
        }
        commits.write(KIND_GENERATION, commits.generation)?;
        Ok((commits, committed))
    }

    fn write(&mut self, kind: u32, number: u32) -> io::Result<()> {
        let mut record = [0; RECORD_BYTES];
        record[..4].copy_from_slice(&kind.to_le_bytes());
        record[4..8].copy_from_slice(&number.to_le_bytes());
        let checksum = crc32fast::hash(&record[..8]);
        record[8..].copy_from_slice(&checksum.to_le_bytes());
        // A single write: after a crash either all of it is there, or the checksum fails.
        self.file.write_all(&record).map_err(with_path(&self.folder.join(COMMITS)))
    }

    /// Commits `o_task`: every A task has logged all of it.
    pub fn commit(&mut self, o_task: u32) -> io::Result<()> {
        self.write(KIND_COMMIT, o_task)
    }

    /// Removes the checkpoint of a finished job.
    pub fn remove(self) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if !path.ends_with(COMMITS) {
                std::fs::remove_file(&path).map_err(with_path(&path))?;
            }
        }
        // Remove the commit log last, as its lock protects the folder's files.
        std::fs::remove_file(self.folder.join(COMMITS))?;
        // On NFS, a removed file stays in its folder under another name until it is closed.
        let Self { folder, file, .. } = self;
        drop(file);
        match std::fs::remove_dir(&folder) {
            // Another run has begun, or has finished as well.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound) =>
            {
                Ok(())
            }
            removed => removed,
        }
    }
}

/// Opens and locks the commit log, so that no other run of the job uses the checkpoint: both would write to
/// the same files.
///
/// Errors: another process holds the lock for too long.
fn open_locked(folder: &Path, path: &Path) -> io::Result<File> {
    let deadline = Instant::now() + LOCK_WAIT_MAX;
    loop {
        std::fs::create_dir_all(folder)?;
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = match opened {
            // The folder was just removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound && Instant::now() < deadline => continue,
            opened => opened?,
        };
        lock(&file, deadline)?;
        // The previous lock holder may have finished, and have removed the file.
        let (mine, there) = (file.metadata()?, std::fs::metadata(path));
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (mine.dev(), mine.ino())) {
            return Ok(file);
        }
    }
}

/// Errors: another process holds the lock until `deadline`.
fn lock(file: &File, deadline: Instant) -> io::Result<()> {
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(TryLockError::WouldBlock) => return Err(io::Error::other("another run of the job uses it")),
            Err(TryLockError::Error(error)) => {
                tracing::warn!(%error, "a checkpoint cannot be locked: nobody must start the job twice");
                return Ok(());
            }
        }
    }
}

/// Adds the file's path to an error.
fn with_path(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Log of the blocks that one A task has received.
pub(crate) struct Log {
    file: BufWriter<File>,
    path: PathBuf,
}

/// Length and checksum before a block.
const BLOCK_RECORD_BYTES: usize = 8;

impl Log {
    /// Creates the log of `a_task` for this generation, and passes every block of a committed O task from
    /// earlier generations to `replay`.
    ///
    /// Errors: earlier logs do not contain all committed blocks.
    pub fn open<E: From<io::Error>>(
        folder: &Path,
        a_task: u32,
        generation: u32,
        committed: &Committed,
        mut replay: impl FnMut(BlockHeader, Bytes) -> Result<(), E>,
    ) -> Result<Log, E> {
        std::fs::create_dir_all(folder).map_err(with_path(folder))?;
        let path = |generation: u32| folder.join(format!("a{a_task}.{generation}.pairs"));
        let mut missing: HashSet<u32> = committed.keys().copied().collect();
        for earlier in 1..generation {
            match File::open(path(earlier)) {
                Ok(file) => read_log(file, &path(earlier), committed, &mut missing, &mut replay)?,
                // The generation had no blocks for this A task, or ended before creating its log.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(with_path(&path(earlier))(error).into()),
            }
        }
        if let Some(o_task) = missing.iter().min() {
            let message = format!(
                "\"{}\" does not have all that A task {a_task} has received of O task {o_task}: it is not the same folder on every host, \
                 or has lost files",
                folder.display()
            );
            return Err(io::Error::other(message).into());
        }
        let path = path(generation);
        let opened = OpenOptions::new().write(true).create(true).truncate(true).open(&path);
        let file = opened.map_err(with_path(&path))?;
        Ok(Log { file: BufWriter::with_capacity(1 << 16, file), path })
    }

    pub fn append(&mut self, header: BlockHeader, pairs: &[u8]) -> io::Result<()> {
        let header = header.encode();
        let length =
            u32::try_from(header.len() + pairs.len()).map_err(|_| io::Error::other("a block of 4 GiB"))?;
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(&header);
        checksum.update(pairs);
        let mut write = || {
            self.file.write_all(&length.to_le_bytes())?;
            self.file.write_all(&checksum.clone().finalize().to_le_bytes())?;
            self.file.write_all(&header)?;
            self.file.write_all(pairs)
        };
        write().map_err(with_path(&self.path))
    }

    /// Writes all appended blocks to the operating system.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(with_path(&self.path))
    }
}

/// Passes the committed blocks of a log to `replay`, and removes O tasks from `missing` whose end mark it
/// finds. Stops at a truncated record.
fn read_log<E: From<io::Error>>(
    file: File,
    path: &Path,
    committed: &Committed,
    missing: &mut HashSet<u32>,
    replay: &mut impl FnMut(BlockHeader, Bytes) -> Result<(), E>,
) -> Result<(), E> {
    let length = file.metadata().map_err(with_path(path))?.len();
    let mut input = BufReader::with_capacity(1 << 20, file);
    let mut at = 0;
    while at + BLOCK_RECORD_BYTES as u64 <= length {
        let mut head = [0; BLOCK_RECORD_BYTES];
        input.read_exact(&mut head).map_err(with_path(path))?;
        let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let block_bytes = number(0) as usize;
        at += (BLOCK_RECORD_BYTES + block_bytes) as u64;
        if at > length {
            break;
        }
        let mut block = vec![0; block_bytes];
        input.read_exact(&mut block).map_err(with_path(path))?;
        if crc32fast::hash(&block) != number(4) {
            break;
        }
        let header = BlockHeader::decode(&block).map_err(|damaged| io::Error::other(damaged.to_string()))?;
        let counts = committed.get(&header.o_task) == Some(&header.generation);
        match header.kind {
            BlockKind::Pairs if counts => replay(header, Bytes::from(block).slice(BLOCK_HEADER_BYTES..))?,
            BlockKind::TaskEnd if counts => drop(missing.remove(&header.o_task)),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXED_3: Tasks = Tasks { count: 3, fixed: true };
    const FIXED_1: Tasks = Tasks { count: 1, fixed: true };

    fn program(words: &[&str]) -> Program {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        Program::of(Path::new("/proc/self/exe"), &words, Path::new("/"))
    }

    fn open(folder: &Path, words: &str, o_tasks: Tasks, a_tasks: Tasks) -> io::Result<(Commits, Committed)> {
        let words: Vec<&str> = words.split(' ').collect();
        Commits::open(folder, &program(&words), o_tasks, a_tasks)
    }

    fn header(o_task: u32, generation: u32) -> BlockHeader {
        BlockHeader { kind: BlockKind::Pairs, o_task, a_task: 0, pairs: 1, window: 0, generation }
    }

    fn end(o_task: u32, generation: u32) -> BlockHeader {
        BlockHeader { kind: BlockKind::TaskEnd, pairs: 0, ..header(o_task, generation) }
    }

    fn replay_log(folder: &Path, generation: u32, committed: &Committed) -> Vec<(u32, Vec<u8>)> {
        let mut blocks = Vec::new();
        Log::open::<io::Error>(folder, 0, generation, committed, |header, pairs| {
            blocks.push((header.o_task, pairs.to_vec()));
            Ok(())
        })
        .unwrap();
        blocks
    }

    #[test]
    fn checkpoints_restore_committed_tasks_only() {
        let folder = tempfile::tempdir().unwrap();
        let (mut commits, committed) = open(folder.path(), "grep this", FIXED_3, FIXED_1).unwrap();
        assert!(committed.is_empty());
        let first = commits.generation;
        let mut log = Log::open::<io::Error>(folder.path(), 0, first, &committed, |_, _| Ok(())).unwrap();
        log.append(header(0, first), b"zero").unwrap();
        log.append(end(0, first), b"").unwrap();
        log.append(header(1, first), b"one, not committed").unwrap();
        log.flush().unwrap();
        commits.commit(0).unwrap();
        drop((commits, log));
        // A crash in the middle of a record, in both files.
        for (name, bytes) in
            [("commits", &[3u8, 0, 0, 0, 2][..]), ("a0.1.pairs", &[200, 0, 0, 0, 1, 2, 3, 4, 5])]
        {
            let mut file = OpenOptions::new().append(true).open(folder.path().join(name)).unwrap();
            file.write_all(bytes).unwrap();
        }
        let (mut commits, committed) = open(folder.path(), "grep this", FIXED_3, FIXED_1).unwrap();
        assert_eq!(committed, Committed::from([(0, first)]));
        let second = commits.generation;
        assert_eq!(replay_log(folder.path(), second, &committed), [(0, b"zero".to_vec())]);
        assert_ne!(first, second);
        let mut log = Log::open::<io::Error>(folder.path(), 0, second, &committed, |_, _| Ok(())).unwrap();
        log.append(header(1, second), b"one").unwrap();
        log.append(end(1, second), b"").unwrap();
        log.flush().unwrap();
        commits.commit(1).unwrap();
        drop((commits, log));
        let (commits, committed) = open(folder.path(), "grep this", FIXED_3, FIXED_1).unwrap();
        assert_eq!(
            replay_log(folder.path(), commits.generation, &committed),
            [(0, b"zero".to_vec()), (1, b"one".to_vec())]
        );
        commits.remove().unwrap();
        assert!(!folder.path().exists());
    }

    #[test]
    fn truncated_logs_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let committed = Committed::from([(0, 1), (1, 1)]);
        let open = || Log::open::<io::Error>(folder.path(), 0, 2, &committed, |_, _| Ok(()));
        assert!(open().is_err_and(|error| error.to_string().contains("of O task 0")));
        let mut log = Log::open::<io::Error>(folder.path(), 0, 1, &Committed::new(), |_, _| Ok(())).unwrap();
        log.append(header(0, 1), b"zero").unwrap();
        log.append(end(0, 1), b"").unwrap();
        log.append(header(1, 1), b"one").unwrap();
        log.flush().unwrap();
        assert!(open().is_err_and(|error| error.to_string().contains("of O task 1")));
        log.append(end(1, 1), b"").unwrap();
        log.flush().unwrap();
        assert!(open().is_ok());
    }

    #[test]
    fn another_job_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path(), "grep this", FIXED_3, FIXED_1).unwrap());
        let four = Tasks { count: 4, fixed: true };
        let error = open(folder.path(), "grep this", four, FIXED_1).err().unwrap().to_string();
        assert!(error.contains("3 O tasks"), "{error}");
        let error = open(folder.path(), "grep that", FIXED_3, FIXED_1).err().unwrap().to_string();
        assert!(error.contains("\"grep\" \"this\"") && error.contains("\"grep\" \"that\""), "{error}");
        // Numbers that are not fixed are taken from the checkpoint.
        let any = Tasks { count: 4, fixed: false };
        assert_eq!(open(folder.path(), "grep this", any, any).unwrap().0.tasks, (3, 1));
    }

    #[test]
    fn programs_are_identified_by_arguments_and_content() {
        assert_eq!(program(&["/a/grep", "x"]), program(&["./grep", "x"]));
        for (one, other) in [
            (&["grep", "a b"][..], &["grep", "a", "b"][..]),
            (&["grep", "a\" \"b"], &["grep", "a", "b"]),
            (&["grep", "a", ""], &["grep", "a"]),
        ] {
            assert_ne!(program(one), program(other));
        }
        let folder = tempfile::tempdir().unwrap();
        let executable = folder.path().join("grep");
        let words = [OsString::from("grep")];
        let written = |bytes: &[u8]| {
            std::fs::write(&executable, bytes).unwrap();
            Program::of(&executable, &words, Path::new("/"))
        };
        let before = written(b"one");
        assert_eq!(written(b"one"), before);
        let changed = written(b"two");
        let checkpoint = folder.path().join("checkpoint");
        drop(Commits::open(&checkpoint, &before, FIXED_3, FIXED_1).unwrap());
        let error = Commits::open(&checkpoint, &changed, FIXED_3, FIXED_1).err().unwrap().to_string();
        assert!(error.contains("before the program was changed"), "{error}");
        assert!(Commits::open(&checkpoint, &before, FIXED_3, FIXED_1).is_ok());
    }

    /// Changing the script counts, changing its input does not; for other programs no argument is a script.
    #[test]
    fn the_script_of_python_counts() {
        let folder = tempfile::tempdir().unwrap();
        let (script, data) = (folder.path().join("count.py"), folder.path().join("data"));
        let files = [script.to_str().unwrap(), data.to_str().unwrap()];
        let content = |name: &str, options: &[&str]| {
            let executable = folder.path().join(name);
            std::fs::write(&executable, "").unwrap();
            let words: Vec<OsString> =
                ["python3"].iter().chain(options).chain(&files).map(OsString::from).collect();
            Program::of(&executable, &words, folder.path()).content
        };
        let contents = |script_text: &str, data_text: &str| {
            std::fs::write(&script, script_text).unwrap();
            std::fs::write(&data, data_text).unwrap();
            [content("python3.11", &[]), content("python3", &["-u", "-X", "dev"]), content("wordcount", &[])]
        };
        let before = contents("one", "1");
        assert_eq!(contents("one", "2"), before);
        let changed = contents("two", "1");
        assert!(changed[0] != before[0] && changed[1] != before[1] && changed[2] == before[2]);
    }

    /// A process that waits for a checkpoint whose job finishes gets a new one, not the removed file.
    #[test]
    fn removed_checkpoints_are_created_again() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = folder.path().join("checkpoint");
        let (commits, _) = open(&checkpoint, "grep", FIXED_3, FIXED_1).unwrap();
        let path = checkpoint.join(COMMITS);
        let waiting = {
            let checkpoint = checkpoint.clone();
            std::thread::spawn(move || open(&checkpoint, "grep", FIXED_3, FIXED_1).unwrap())
        };
        let holders = || {
            let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
            open.filter(|file| std::fs::read_link(file.path()).is_ok_and(|link| link == path)).count()
        };
        while holders() < 2 {
            std::thread::yield_now();
        }
        commits.remove().unwrap();
        let (second, committed) = waiting.join().unwrap();
        assert!(committed.is_empty() && path.exists());
        second.remove().unwrap();
        assert!(!checkpoint.exists());
    }

    #[test]
    fn full_disks_are_named() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/full", folder.path().join("a0.1.pairs")).unwrap();
        let mut log = Log::open::<io::Error>(folder.path(), 0, 1, &Committed::new(), |_, _| Ok(())).unwrap();
        let written = log.append(header(0, 1), b"zero").and_then(|()| log.flush());
        let error = written.unwrap_err().to_string();
        assert!(error.contains("a0.1.pairs") && error.contains("No space left"), "{error}");
    }
}
