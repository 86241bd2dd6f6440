//! What a job has received, kept in files, so that after a death only the O tasks that were not done run
//! again.
//!
//! # Invariants
//! - Every block is in the log of its A task before its pairs are used.
//! - An O task is committed once every A task has logged all of it, and its end; then, and only then, does it
//!   not run again. Rank 0 alone writes commits. A log without the end of a committed O task has lost
//!   something, or is not the one that was written.
//! - A run of a job that goes on from a checkpoint is a new generation, with logs of its own. They may hold
//!   blocks of an O task of several generations; only those of the generation that was committed count. So a
//!   rank that was given up as lost and still writes does no harm: nothing of what it writes is committed any
//!   more, and it writes to files that are only read.
//!
//! - A checkpoint belongs to one program with its arguments, in one folder of work, and to one run of it at a
//!   time. A program that was changed is another one: what it would add need not fit what is there.
//!
//! # Order of calls
//! Rank 0: [`Commits::open`]. Then every rank: [`Log::open`] for each of its A tasks, which gives back what
//! counts; then [`Log::append`], [`Log::flush`] when an O task has ended, and [`Commits::commit`] on rank 0.
//! Last, [`Commits::remove`].
//!
//! # Crash
//! A record that was cut off is known by its checksum, and what follows it is not looked at. Files are
//! written, not synced: they survive the end of processes, not that of the machine.

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

/// O tasks that are committed, each with the generation whose blocks count.
pub(crate) type Committed = HashMap<u32, u32>;

/// How long a checkpoint is waited for that another process has: one that is killed has it for a moment
/// still.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// The list of commits, in the folder of a job. It has the lock of that.
const COMMITS: &str = "commits";

/// A record of the commit file: its kind, a number, and a checksum of both.
const RECORD_BYTES: usize = 12;

const KIND_SHAPE: u32 = 1;
const KIND_GENERATION: u32 = 2;
const KIND_COMMIT: u32 = 3;

/// The folder of a job's checkpoint.
pub(crate) fn folder(checkpoint: &Path, job: u32, name: &str) -> PathBuf {
    let name: String =
        name.chars().map(|character| if character.is_alphanumeric() { character } else { '-' }).collect();
    checkpoint.join(format!("{job}-{name}"))
}

/// What a checkpoint belongs to: the same when the ranks are started again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The program and its arguments, told apart whatever is in them. What a launcher was given is not among
    /// them.
    pub words: String,
    /// Of what is in the executable file and, if that is Python, in its script; modules and libraries are not
    /// looked at.
    pub content: String,
    /// Where it runs, on which names of files depend.
    folder: String,
}

impl Program {
    /// This process, as it was started.
    pub fn this() -> &'static Program {
        static THIS: OnceLock<Program> = OnceLock::new();
        THIS.get_or_init(|| {
            let words: Vec<OsString> = std::env::args_os().collect();
            let folder = std::env::current_dir().unwrap_or_default();
            Program::of(Path::new("/proc/self/exe"), &words, &folder)
        })
    }

    fn of(executable: &Path, words: &[OsString], folder: &Path) -> Program {
        // It may be called by another path.
        let name = words.first().map(|word| Path::new(word).file_name().unwrap_or(word));
        let shown = name.into_iter().chain(words.iter().skip(1).map(OsString::as_os_str));
        let shown: Vec<String> = shown.map(|word| format!("{word:?}")).collect();
        let mut content = content_of(executable);
        if let Some(script) = script(executable, words) {
            content += "-";
            content += &content_of(&folder.join(script));
        }
        Program { words: shown.join(" "), content, folder: format!("{folder:?}") }
    }

    /// As the file `program` of a checkpoint has it.
    fn text(&self) -> String {
        format!("{} in {}\n{}\n", self.words, self.folder, self.content)
    }

    /// Errors: why the checkpoint in `folder`, whose file has `before`, is another one's.
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

/// The script that an executable runs, if that is Python: the first argument that is no option, unless that
/// is a module's name or the text of the program itself.
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

/// Bytes of a file and their checksum. One that cannot be read is as any other that cannot.
fn content_of(path: &Path) -> String {
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

/// How many tasks a job has, and whether its program says so; if not, it goes on with as many as it had,
/// however many ranks are left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tasks {
    pub count: u32,
    pub fixed: bool,
}

/// Rank 0's list of what is done.
pub(crate) struct Commits {
    folder: PathBuf,
    file: File,
    pub generation: u32,
    /// O and A tasks of the job.
    pub tasks: (u32, u32),
}

impl Commits {
    /// Opens the checkpoint in `folder`, or makes it for a job of `program` with so many tasks. Returns what
    /// is done already.
    ///
    /// Errors: the folder cannot be used, or another program uses it, or it belongs to another program, or to
    /// a job with other numbers of tasks, of which the program has said one.
    pub fn open(
        folder: &Path,
        program: &Program,
        o_tasks: Tasks,
        a_tasks: Tasks,
    ) -> io::Result<(Commits, Committed)> {
        let path = folder.join(COMMITS);
        let mut file = open_locked(folder, &path).map_err(named(&path))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(named(&path))?;
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
        file.set_len(valid).map_err(named(&path))?;
        file.seek(SeekFrom::Start(valid)).map_err(named(&path))?;
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
            std::fs::write(&known, program.text()).map_err(named(&known))?;
            commits.file.set_len(0).map_err(named(&path))?;
            commits.file.seek(SeekFrom::Start(0)).map_err(named(&path))?;
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
        // One call: either all of it is there after a death, or the checksum tells.
        self.file.write_all(&record).map_err(named(&self.folder.join(COMMITS)))
    }

    /// Every A task has logged all of `o_task`.
    pub fn commit(&mut self, o_task: u32) -> io::Result<()> {
        self.write(KIND_COMMIT, o_task)
    }

    /// The job is done.
    pub fn remove(self) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if !path.ends_with(COMMITS) {
                std::fs::remove_file(&path).map_err(named(&path))?;
            }
        }
        // The last one, as it has the lock: whoever has that has the folder's files.
        std::fs::remove_file(self.folder.join(COMMITS))?;
        // On NFS, a file that is removed is in its folder under another name until it is closed.
        let Self { folder, file, .. } = self;
        drop(file);
        match std::fs::remove_dir(&folder) {
            // Another run has begun, or has come to its end as well.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound) =>
            {
                Ok(())
            }
            removed => removed,
        }
    }
}

/// Opens the list of commits, and makes sure that no other run of a job uses the checkpoint: both would write
/// to the same files.
///
/// Errors: another process has it, and keeps it.
fn open_locked(folder: &Path, path: &Path) -> io::Result<File> {
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        std::fs::create_dir_all(folder)?;
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = match opened {
            // Its folder was just removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound && Instant::now() < deadline => continue,
            opened => opened?,
        };
        lock(&file, deadline)?;
        // The run that had the lock may have ended well, and have removed the file.
        let (mine, there) = (file.metadata()?, std::fs::metadata(path));
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (mine.dev(), mine.ino())) {
            return Ok(file);
        }
    }
}

/// Errors: another process has it until `deadline`.
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

/// Says which file an error is of.
fn named(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// What one A task has received.
pub(crate) struct Log {
    file: BufWriter<File>,
    path: PathBuf,
}

/// Length and checksum before a block.
const BLOCK_RECORD_BYTES: usize = 8;

impl Log {
    /// Makes the log of `a_task` for this generation, and gives `replay` every block of a committed O task
    /// that earlier ones have.
    ///
    /// Errors: earlier ones do not have all of what was committed.
    pub fn open<E: From<io::Error>>(
        folder: &Path,
        a_task: u32,
        generation: u32,
        committed: &Committed,
        mut replay: impl FnMut(BlockHeader, Bytes) -> Result<(), E>,
    ) -> Result<Log, E> {
        std::fs::create_dir_all(folder).map_err(named(folder))?;
        let path = |generation: u32| folder.join(format!("a{a_task}.{generation}.pairs"));
        let mut missing: HashSet<u32> = committed.keys().copied().collect();
        for earlier in 1..generation {
            match File::open(path(earlier)) {
                Ok(file) => read_log(file, &path(earlier), committed, &mut missing, &mut replay)?,
                // It had no blocks for this A task, or ended before it began.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(named(&path(earlier))(error).into()),
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
        let file = opened.map_err(named(&path))?;
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
        write().map_err(named(&self.path))
    }

    /// Everything that was appended is with the system.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(named(&self.path))
    }
}

/// Gives `replay` the blocks of a log that count, and takes O tasks whose end it has out of `missing`. A
/// record that was cut off, or is being written, ends it.
fn read_log<E: From<io::Error>>(
    file: File,
    path: &Path,
    committed: &Committed,
    missing: &mut HashSet<u32>,
    replay: &mut impl FnMut(BlockHeader, Bytes) -> Result<(), E>,
) -> Result<(), E> {
    let length = file.metadata().map_err(named(path))?.len();
    let mut input = BufReader::with_capacity(1 << 20, file);
    let mut at = 0;
    while at + BLOCK_RECORD_BYTES as u64 <= length {
        let mut head = [0; BLOCK_RECORD_BYTES];
        input.read_exact(&mut head).map_err(named(path))?;
        let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let block_bytes = number(0) as usize;
        at += (BLOCK_RECORD_BYTES + block_bytes) as u64;
        if at > length {
            break;
        }
        let mut block = vec![0; block_bytes];
        input.read_exact(&mut block).map_err(named(path))?;
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

    fn replayed(folder: &Path, generation: u32, committed: &Committed) -> Vec<(u32, Vec<u8>)> {
        let mut blocks = Vec::new();
        Log::open::<io::Error>(folder, 0, generation, committed, |header, pairs| {
            blocks.push((header.o_task, pairs.to_vec()));
            Ok(())
        })
        .unwrap();
        blocks
    }

    #[test]
    fn what_was_committed_comes_back_and_nothing_else() {
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
        // A death in the middle of a record, in both files.
        for (name, bytes) in
            [("commits", &[3u8, 0, 0, 0, 2][..]), ("a0.1.pairs", &[200, 0, 0, 0, 1, 2, 3, 4, 5])]
        {
            let mut file = OpenOptions::new().append(true).open(folder.path().join(name)).unwrap();
            file.write_all(bytes).unwrap();
        }
        let (mut commits, committed) = open(folder.path(), "grep this", FIXED_3, FIXED_1).unwrap();
        assert_eq!(committed, Committed::from([(0, first)]));
        let second = commits.generation;
        assert_eq!(replayed(folder.path(), second, &committed), [(0, b"zero".to_vec())]);
        assert_ne!(first, second);
        let mut log = Log::open::<io::Error>(folder.path(), 0, second, &committed, |_, _| Ok(())).unwrap();
        log.append(header(1, second), b"one").unwrap();
        log.append(end(1, second), b"").unwrap();
        log.flush().unwrap();
        commits.commit(1).unwrap();
        drop((commits, log));
        let (commits, committed) = open(folder.path(), "grep this", FIXED_3, FIXED_1).unwrap();
        assert_eq!(
            replayed(folder.path(), commits.generation, &committed),
            [(0, b"zero".to_vec()), (1, b"one".to_vec())]
        );
        commits.remove().unwrap();
        assert!(!folder.path().exists());
    }

    #[test]
    fn a_log_that_has_lost_something_is_no_checkpoint() {
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
        // Numbers that nobody has said are those of the checkpoint.
        let any = Tasks { count: 4, fixed: false };
        assert_eq!(open(folder.path(), "grep this", any, any).unwrap().0.tasks, (3, 1));
    }

    #[test]
    fn a_program_is_known_by_its_words_and_its_content() {
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

    /// The script counts, and not what it reads; of other programs no argument does.
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

    /// Who waits for a checkpoint whose job comes to its end has a new one, and not the file that is gone.
    #[test]
    fn a_checkpoint_that_is_removed_is_made_anew() {
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
    fn a_disk_that_is_full_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/full", folder.path().join("a0.1.pairs")).unwrap();
        let mut log = Log::open::<io::Error>(folder.path(), 0, 1, &Committed::new(), |_, _| Ok(())).unwrap();
        let written = log.append(header(0, 1), b"zero").and_then(|()| log.flush());
        let error = written.unwrap_err().to_string();
        assert!(error.contains("a0.1.pairs") && error.contains("No space left"), "{error}");
    }
}
