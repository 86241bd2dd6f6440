//! Output files, and the comparison of results.

use crate::InOut;
use harrier_mpid::{BoxError, Config, Error, World, hash};
use std::fmt;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// File name prefixes of results.
const PREFIXES: [&str; 2] = ["part-", "window-"];

/// Marker in the folder of an unfinished job with a checkpoint; contains the job's command line.
const UNFINISHED: &str = ".mpid-unfinished";

/// Creates the output folder before the job starts. Collective.
///
/// A restarted job with a checkpoint finds its own files there and rewrites them.
///
/// Errors: the folder has files of another job, is in the input, or cannot be created. The same on every
/// rank.
pub fn begin(world: &World, config: &Config, folder: &Path, inputs: &[&Path]) -> Result<(), BoxError> {
    let created = make(folder, inputs, config.checkpoint.is_some(), world.rank() == 0);
    let wrong = created.err().map_or(String::new(), |error| error.to_string());
    match world.gather(wrong.as_bytes())?.into_iter().find(|wrong| !wrong.is_empty()) {
        Some(wrong) => Err(String::from_utf8_lossy(&wrong).into()),
        None => Ok(()),
    }
}

fn make(folder: &Path, inputs: &[&Path], has_checkpoint: bool, is_first: bool) -> Result<(), BoxError> {
    let path = resolve(folder);
    if let Some(input) = inputs.iter().find(|input| path.starts_with(resolve(input))) {
        let (folder, input) = (folder.display(), input.display());
        return Err(format!("--output {folder} is the input {input}, or in it").into());
    }
    let named = |error: std::io::Error| format!("--output {}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(named)?;
    let mut earlier = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(named)? {
        earlier.push(entry.map_err(named)?.file_name().to_string_lossy().into_owned());
    }
    let begins = |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let mark = folder.join(UNFINISHED);
    let goes_on = has_checkpoint && std::fs::read_to_string(&mark).is_ok_and(|job| job == this_job());
    if let Some(name) = earlier.iter().filter(|name| begins(name) && !goes_on).min() {
        let folder = folder.display();
        return Err(format!(
            "--output {folder} has files of an earlier job, such as {name}: remove them, or say another folder"
        )
        .into());
    }
    if has_checkpoint && is_first {
        // Including partial files. There may be fewer tasks or windows now.
        for name in earlier.iter().filter(|name| begins(name.trim_start_matches('.'))) {
            std::fs::remove_file(folder.join(name)).map_err(named)?;
        }
        // Atomically: other ranks may be reading the marker of an earlier job.
        let staged = folder.join(format!("{UNFINISHED}-{:016x}", rand::random::<u64>()));
        std::fs::write(&staged, this_job()).and_then(|()| std::fs::rename(&staged, &mark)).map_err(named)?;
    }
    Ok(())
}

/// Marks the job of the folder as finished.
pub fn end(folder: &Path) {
    // Without a checkpoint there is no marker.
    let _ = std::fs::remove_file(folder.join(UNFINISHED));
}

/// The program and its arguments.
fn this_job() -> String {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    words.collect::<Vec<_>>().join("\n")
}

/// Resolves a path, even if it does not exist yet.
fn resolve(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        match (absolute.parent(), absolute.file_name()) {
            (Some(parent), Some(name)) => resolve(parent).join(name),
            _ => absolute,
        }
    })
}

/// Result of one A task: lines to a file, if there is one, and their sums.
pub struct Part {
    file: Option<Staged>,
    pub lines: u64,
    /// Sum of the lines' hashes: independent of order and parts.
    pub checksum: u64,
}

/// A file that is renamed to its final name once complete: the A task's previous rank, if declared lost, may
/// still be writing its own.
struct Staged {
    file: BufWriter<File>,
    staged: PathBuf,
    path: PathBuf,
}

impl Staged {
    fn create(path: PathBuf) -> Result<Staged, BoxError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let staged = path.with_file_name(format!(".{name}-{:016x}", rand::random::<u64>()));
        let file = File::create(&staged).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Staged { file: BufWriter::with_capacity(1 << 18, file), staged, path })
    }

    fn finish(mut self) -> Result<(), BoxError> {
        self.file.flush()?;
        std::fs::rename(&self.staged, &self.path)
            .map_err(|error| format!("{}: {error}", self.path.display()).into())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // Already renamed, or to be discarded.
        let _ = std::fs::remove_file(&self.staged);
    }
}

impl Part {
    pub fn create(folder: Option<&Path>, a_task: usize) -> Result<Part, BoxError> {
        Part::create_named(folder, &format!("part-{a_task:05}"))
    }

    /// Creates the file of one window of an A task, named by the window's end, so that names sort in window
    /// order.
    pub fn of_window(folder: Option<&Path>, end: u128, a_task: usize) -> Result<Part, BoxError> {
        Part::create_named(folder, &format!("window-{end:020}-part-{a_task:05}"))
    }

    fn create_named(folder: Option<&Path>, name: &str) -> Result<Part, BoxError> {
        let file = match folder {
            None => None,
            Some(folder) => {
                std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
                Some(Staged::create(folder.join(name))?)
            }
        };
        Ok(Part { file, lines: 0, checksum: 0 })
    }

    /// Writes one line or record, including its line ending if it has one.
    pub fn line(&mut self, line: &[u8]) -> Result<(), BoxError> {
        self.lines += 1;
        self.checksum = self.checksum.wrapping_add(hash(line));
        if let Some(staged) = &mut self.file {
            staged.file.write_all(line)?;
        }
        Ok(())
    }

    pub fn finish(self) -> Result<Sums, BoxError> {
        if let Some(staged) = self.file {
            staged.finish()?;
        }
        Ok(Sums { lines: self.lines, checksum: self.checksum })
    }
}

/// A result summarized in two numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub lines: u64,
    pub checksum: u64,
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lines, checksum {:016x}", self.lines, self.checksum)
    }
}

impl Sums {
    pub fn add(&mut self, line: &[u8]) {
        self.lines += 1;
        self.checksum = self.checksum.wrapping_add(hash(line));
    }

    pub fn add_all(&mut self, other: Sums) {
        self.lines += other.lines;
        self.checksum = self.checksum.wrapping_add(other.checksum);
    }
}

/// Sums over all ranks. Collective.
pub fn total(world: &World, parts: impl IntoIterator<Item = Sums>) -> Result<Sums, Error> {
    let mut mine = Sums::default();
    parts.into_iter().for_each(|part| mine.add_all(part));
    let mut bytes = mine.lines.to_le_bytes().to_vec();
    bytes.extend(mine.checksum.to_le_bytes());
    let mut sums = Sums::default();
    for theirs in world.gather(&bytes)? {
        let number = |at: usize| u64::from_le_bytes(theirs[at..at + 8].try_into().expect("eight bytes"));
        sums.lines += number(0);
        sums.checksum = sums.checksum.wrapping_add(number(8));
    }
    Ok(sums)
}

/// Returns the line that rank 0 prints. With `--check`, rank 0 computes `expected`, and all ranks learn
/// whether it matches. Collective.
pub fn conclude(
    world: &World,
    io: &InOut,
    what: &str,
    sums: Sums,
    expected: impl FnOnce() -> Result<Sums, BoxError>,
) -> Result<String, BoxError> {
    let mut line = format!("{what}: {sums}");
    if io.check {
        let wrong = match world.rank() {
            0 => match expected() {
                Ok(expected) if expected == sums => String::new(),
                Ok(expected) => format!("wrong answer: {sums} instead of {expected}"),
                Err(error) => format!("the answer could not be checked: {error}"),
            },
            _ => String::new(),
        };
        let wrong = String::from_utf8_lossy(&world.gather(wrong.as_bytes())?[0]).into_owned();
        if !wrong.is_empty() {
            return Err(wrong.into());
        }
        line += ", checked";
    }
    Ok(line)
}

/// Calls `each` for every line of the input, with the file and the line's offset; for reference results.
pub fn each_line(
    paths: &[std::path::PathBuf],
    mut work: impl FnMut(&Path, u64, &[u8]) -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    for split in harrier_mpid::input::splits(paths, u64::MAX)? {
        let mut lines = split.lines()?;
        while let Some((at, line)) = lines.next_line()? {
            work(&split.path, at, line)?;
        }
    }
    Ok(())
}
