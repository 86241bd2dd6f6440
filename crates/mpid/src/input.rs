//! Text files as input of O tasks, cut into splits of about equal size at line boundaries. A named pipe is
//! one split of unknown length, read as it is written. [`Share`] is one task's part of an input.
//!
//! # Memory bound
//! The current line, at most [`LINE_BYTES_MAX`], and one read buffer. A split in which no line begins is read
//! once, and not kept.

use crate::config::O_TASKS_MAX;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Default size of a split: an O task reads it in a fraction of a second, and it is large enough that
/// requesting the next one costs nothing.
pub const SPLIT_BYTES: u64 = 16 << 20;

/// Read buffer size.
const READ_BYTES: usize = 1 << 20;

/// Maximum line length, including the line ending. A longer line is not text, or cannot be a pair, whose
/// limit is 2 GiB; without a limit the process would be killed silently for lack of memory.
pub const LINE_BYTES_MAX: u64 = 1 << 30;

/// A byte range of a file. It owns the lines that begin in it; the last one may end after the range. From 0
/// to [`u64::MAX`] for inputs that are not regular files and can be read only once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    pub path: PathBuf,
    pub begin: u64,
    pub end: u64,
}

/// Returns the splits of files, and of all files in folders, in name order. Independent of where the files
/// are. Opens nothing.
///
/// Errors: a file cannot be inspected, and the message names it; more splits than a job may have O tasks.
pub fn splits(paths: &[PathBuf], split_bytes: u64) -> io::Result<Vec<Split>> {
    make_splits(files(paths)?, split_bytes)
}

/// Returns splits for this many tasks: of [`SPLIT_BYTES`], or smaller where tasks would otherwise have no
/// input.
///
/// Errors: as those of [`splits`].
pub fn splits_for(paths: &[PathBuf], tasks: usize) -> io::Result<Vec<Split>> {
    let files = files(paths)?;
    let bytes: u64 = files.iter().filter_map(|(_, length)| *length).sum();
    make_splits(files, bytes.div_ceil(tasks.max(1) as u64).clamp(1, SPLIT_BYTES))
}

/// Returns the part of task `index` of `count` in a range of bytes, rows or other units: the parts are
/// contiguous, in task order, and their sizes differ by at most one.
pub fn part(range: Range<u64>, index: usize, count: usize) -> Range<u64> {
    let length = u128::from(range.end.saturating_sub(range.start));
    let edge = |at: usize| range.start + (length * at as u128 / count.max(1) as u128) as u64;
    edge(index.min(count))..edge((index + 1).min(count))
}

fn make_splits(files: Vec<(PathBuf, Option<u64>)>, split_bytes: u64) -> io::Result<Vec<Split>> {
    let mut splits = Vec::new();
    for (path, length) in files {
        let Some(length) = length else {
            splits.push(Split { path, begin: 0, end: u64::MAX });
            continue;
        };
        let count = length.div_ceil(split_bytes.max(1));
        if splits.len() as u64 + count > O_TASKS_MAX as u64 {
            let message = format!(
                "{}: splits of {split_bytes} bytes are more than {O_TASKS_MAX}, which a job has at most",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        for at in 0..count as usize {
            // Even sizes, so that no split is a small remainder.
            let Range { start: begin, end } = part(0..length, at, count as usize);
            splits.push(Split { path: path.clone(), begin, end });
        }
    }
    Ok(splits)
}

/// Lists files, including those in folders, with their lengths if known.
fn files(paths: &[PathBuf]) -> io::Result<Vec<(PathBuf, Option<u64>)>> {
    let mut files = Vec::new();
    paths.iter().try_for_each(|path| collect(path, &mut files))?;
    Ok(files)
}

fn collect(path: &Path, files: &mut Vec<(PathBuf, Option<u64>)>) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let metadata = std::fs::metadata(path).map_err(named)?;
    if !metadata.is_dir() {
        files.push((path.to_path_buf(), metadata.is_file().then_some(metadata.len())));
        return Ok(());
    }
    let entries = std::fs::read_dir(path).map_err(named)?;
    let mut entries: Vec<PathBuf> =
        entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>().map_err(named)?;
    entries.sort();
    entries.iter().try_for_each(|entry| collect(entry, files))
}

/// Iterator over the lines of a split.
pub struct Lines {
    file: BufReader<File>,
    position: u64,
    end: u64,
    line: Vec<u8>,
    line_bytes_max: u64,
}

impl Split {
    /// Errors: the file cannot be read.
    pub fn lines(&self) -> io::Result<Lines> {
        let file = BufReader::with_capacity(READ_BYTES, File::open(&self.path)?);
        let line_bytes_max = LINE_BYTES_MAX;
        let mut lines = Lines { position: self.begin, end: self.end, line: Vec::new(), line_bytes_max, file };
        if self.begin > 0 {
            // Start one byte earlier: if that byte is a line ending, the first line begins here. Do not scan
            // beyond the range in which its lines may begin.
            lines.file.seek(SeekFrom::Start(self.begin - 1))?;
            lines.position = self.begin - 1;
            lines.skip_to_line()?;
        }
        Ok(lines)
    }

    /// Whether the input can be read again.
    pub fn is_file(&self) -> bool {
        self.end < u64::MAX
    }

    /// The file's name, for errors.
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }
}

impl Lines {
    /// Skips to the next line that begins in the split; without one, to the split's end.
    fn skip_to_line(&mut self) -> io::Result<()> {
        // The line ending before a line of the split lies before the split's last byte.
        while self.position + 1 < self.end {
            let read = self.file.fill_buf()?;
            if read.is_empty() {
                break;
            }
            let left = (self.end - 1 - self.position).min(read.len() as u64) as usize;
            let found = memchr::memchr(b'\n', &read[..left]);
            let taken = found.map_or(left, |at| at + 1);
            self.file.consume(taken);
            self.position += taken as u64;
            if found.is_some() {
                return Ok(());
            }
        }
        self.position = self.end;
        Ok(())
    }

    /// Reads through the end of the line into `line`. Returns the number of bytes.
    ///
    /// Errors: the line is too long.
    fn read_line(&mut self) -> io::Result<u64> {
        let room = self.line_bytes_max.saturating_sub(self.line.len() as u64);
        let bytes = (&mut self.file).take(room).read_until(b'\n', &mut self.line)? as u64;
        if bytes == room && !self.line.ends_with(b"\n") && !self.file.fill_buf()?.is_empty() {
            let within = memchr::memrchr(b'\n', &self.line).map_or(0, |at| at + 1);
            let (begin, most) = (self.position + within as u64, self.line_bytes_max);
            let message = format!("the line at {begin} has more than {most} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(bytes)
    }

    /// Returns the next line without its line ending, and its offset in the file.
    pub fn next_line(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        if self.position >= self.end {
            return Ok(None);
        }
        self.line.clear();
        let bytes = self.read_line()?;
        if bytes == 0 {
            return Ok(None);
        }
        self.position += bytes;
        Ok(Some(self.current()))
    }

    /// The line that was read last.
    fn current(&self) -> (u64, &[u8]) {
        // Without a newline, a trailing carriage return belongs to the line.
        let line = match self.line.strip_suffix(b"\n") {
            Some(line) => line.strip_suffix(b"\r").unwrap_or(line),
            None => &self.line[..],
        };
        (self.position - self.line.len() as u64, line)
    }

    /// Returns as many complete lines as one read contains, with line endings, and their offset in the file;
    /// for callers that scan words instead of lines.
    pub fn next_lines(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        if self.position >= self.end {
            return Ok(None);
        }
        self.line.clear();
        let wanted = (self.end - self.position).min(READ_BYTES as u64) as usize;
        while self.line.len() < wanted {
            let read = self.file.fill_buf()?;
            if read.is_empty() {
                break;
            }
            let taken = read.len().min(wanted - self.line.len());
            self.line.extend_from_slice(&read[..taken]);
            self.file.consume(taken);
        }
        if !self.line.ends_with(b"\n") {
            self.read_line()?;
        }
        let begin = self.position;
        self.position += self.line.len() as u64;
        Ok((!self.line.is_empty()).then_some((begin, &self.line[..])))
    }
}

/// One task's input, split by split and line by line.
#[derive(Default)]
pub struct Share {
    remaining: std::vec::IntoIter<Split>,
    current: Option<Split>,
    lines: Option<Lines>,
}

impl Share {
    /// The share of task `index` of `count`: splits are dealt round-robin.
    pub fn of(splits: Vec<Split>, index: usize, count: usize) -> Share {
        let own: Vec<Split> = splits.into_iter().skip(index).step_by(count.max(1)).collect();
        Share { remaining: own.into_iter(), current: None, lines: None }
    }

    /// Advances to the next split. `None`: no split is left.
    pub fn next_split(&mut self) -> Option<&Split> {
        self.lines = None;
        self.current = self.remaining.next();
        self.current.as_ref()
    }

    /// Returns the next line that begins in the current split, without its line ending, and its offset in the
    /// file. `None` after the last one, and without a split.
    ///
    /// Errors: the file cannot be read; the line is too long.
    pub fn next_line(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        let Some(split) = &self.current else { return Ok(None) };
        if self.lines.is_none() {
            self.lines = Some(split.lines()?);
        }
        self.lines.as_mut().map_or(Ok(None), Lines::next_line)
    }

    /// The last line that [`Share::next_line`] returned.
    pub(crate) fn line(&self) -> Option<(u64, &[u8])> {
        self.lines.as_ref().map(Lines::current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::seq::IndexedRandom;
    use rand::{Rng, SeedableRng};

    /// Reference: the whole file cut at line endings, as offset and content.
    fn plain_lines(text: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut at = 0;
        let whole = text.split_inclusive(|byte| *byte == b'\n').map(|line| {
            let begin = at;
            at += line.len() as u64;
            let bare = match line.strip_suffix(b"\n") {
                Some(line) => line.strip_suffix(b"\r").unwrap_or(line),
                None => line,
            };
            (begin, bare.to_vec())
        });
        whole.collect()
    }

    /// However a file is cut, the splits together contain each line once, even lines longer than many splits
    /// or than a read buffer.
    #[test]
    fn splits_have_each_line_once() {
        let seed: u64 =
            std::env::var("HARRIER_SEED").map_or_else(|_| rand::rng().random(), |seed| seed.parse().unwrap());
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        for case in 0..60 {
            let mut text = Vec::new();
            for _ in 0..random.random_range(0..40) {
                let length = match random.random_range(0..20) {
                    0 if case % 10 == 0 => 2 * READ_BYTES + random.random_range(0..3),
                    0..5 => random.random_range(0..5000),
                    _ => random.random_range(0..10),
                };
                text.extend((0..length).map(|_| b"ab \r"[random.random_range(0..4)]));
                text.extend(*[&b"\n"[..], b"\r\n", b"\n\n"].choose(&mut random).unwrap());
            }
            if random.random() {
                text.extend(*[&b"last"[..], b"last\r", b"\r"].choose(&mut random).unwrap());
            }
            std::fs::write(&path, &text).unwrap();
            let split_bytes = match random.random_range(0..4) {
                0 => random.random_range(1..8).max(text.len() as u64 / 10_000),
                1 => random.random_range(1..1000).max(text.len() as u64 / 10_000),
                2 => random.random_range(1..3 << 20).max(text.len() as u64 / 10_000),
                _ => u64::MAX,
            };
            let splits = splits(std::slice::from_ref(&path), split_bytes).unwrap();
            let (mut read, mut whole) = (Vec::new(), Vec::new());
            for split in &splits {
                let mut lines = split.lines().unwrap();
                while let Some((at, line)) = lines.next_line().unwrap() {
                    assert!((split.begin..split.end).contains(&at), "seed {seed}: {at} is not of {split:?}");
                    read.push((at, line.to_vec()));
                }
                let mut lines = split.lines().unwrap();
                while let Some((at, lines)) = lines.next_lines().unwrap() {
                    assert_eq!(at, whole.len() as u64, "seed {seed}");
                    whole.extend_from_slice(lines);
                }
            }
            let context =
                format!("seed {seed}, case {case}: {} splits of {} bytes", splits.len(), text.len());
            assert!(read == plain_lines(&text), "{context}");
            assert!(whole == text, "{context}");
        }
    }

    /// The tasks' shares together contain the whole input once.
    #[test]
    fn tasks_share_an_input() {
        let folder = tempfile::tempdir().unwrap();
        let text: Vec<String> =
            (0..1000).map(|number| format!("{number} {}", "x".repeat(number % 50))).collect();
        std::fs::write(folder.path().join("a"), text.join("\n")).unwrap();
        std::fs::write(folder.path().join("b"), "b\n").unwrap();
        let paths = [folder.path().to_path_buf()];
        for tasks in [1, 2, 3, 7, 64] {
            let all = splits_for(&paths, tasks).unwrap();
            let mut read = Vec::new();
            for task in 0..tasks {
                let mut share = Share::of(all.clone(), task, tasks);
                assert!(share.next_line().unwrap().is_none(), "there is no split yet");
                let mut count = 0;
                while let Some(split) = share.next_split() {
                    assert!(split.is_file());
                    while let Some((_, line)) = share.next_line().unwrap() {
                        read.push(String::from_utf8(line.to_vec()).unwrap());
                        count += 1;
                    }
                }
                assert!(count > 0, "task {task} of {tasks} has nothing");
            }
            let mut expected: Vec<String> = text.iter().cloned().chain(["b".to_string()]).collect();
            read.sort();
            expected.sort();
            assert_eq!(read, expected, "{tasks}");
        }
        // Large splits stay as they are, and a task may have none.
        assert_eq!(splits_for(&[], 3).unwrap(), []);
        assert_eq!(splits(&paths, SPLIT_BYTES).unwrap(), splits_for(&paths, 1).unwrap());
    }

    #[test]
    fn splits_cover_the_input() {
        for (begin, end, count) in
            [(0, 10, 3), (5, 5, 4), (7, 9, 8), (0, u64::MAX, 7), (u64::MAX - 3, u64::MAX, 2), (0, 10, 1)]
        {
            let parts: Vec<Range<u64>> = (0..count).map(|at| part(begin..end, at, count)).collect();
            assert_eq!((parts[0].start, parts[count - 1].end), (begin, end));
            assert!(parts.windows(2).all(|two| two[0].end == two[1].start), "{parts:?}");
            let sizes = parts.iter().map(|part| part.end - part.start);
            assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1, "{parts:?}");
        }
        assert_eq!(part(4..9, 0, 0), 4..4);
    }

    /// A split within a long line reads only its own bytes, not the line to its end.
    #[test]
    fn splits_within_a_long_line_are_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        std::fs::write(&path, [&vec![b'a'; 8 << 20][..], b"\nb\n"].concat()).unwrap();
        for split in &splits(std::slice::from_ref(&path), 1 << 20).unwrap()[1..8] {
            let mut lines = split.lines().unwrap();
            assert!(lines.next_line().unwrap().is_none());
            let read = lines.file.stream_position().unwrap();
            assert!(read <= split.end, "{read} is behind {split:?}");
            assert!(lines.line.capacity() == 0);
        }
    }

    #[test]
    fn too_long_lines_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        std::fs::write(&path, "four\nfour5\n6six66").unwrap();
        let split = &splits(&[path], u64::MAX).unwrap()[0];
        let read = |most: u64| -> io::Result<usize> {
            let mut lines = Lines { line_bytes_max: most, ..split.lines()? };
            let mut count = 0;
            while lines.next_line()?.is_some() {
                count += 1;
            }
            Ok(count)
        };
        assert_eq!([read(6).unwrap(), read(100).unwrap()], [3, 3]);
        let error = read(5).unwrap_err().to_string();
        assert_eq!(error, "the line at 5 has more than 5 bytes");
        let mut lines = Lines { line_bytes_max: 5, ..split.lines().unwrap() };
        assert!(lines.next_lines().unwrap().is_some());
    }

    #[test]
    fn every_line_is_read_once_for_any_split() {
        let folder = tempfile::tempdir().unwrap();
        let text = "one\ntwo\n\nfour is longer\r\nfive\nlast without end";
        std::fs::write(folder.path().join("b"), text).unwrap();
        std::fs::write(folder.path().join("a"), "").unwrap();
        std::fs::write(folder.path().join("c"), "c\n").unwrap();
        for split_bytes in 1..60 {
            let splits = splits(&[folder.path().to_path_buf()], split_bytes).unwrap();
            let mut read = Vec::new();
            let mut whole = Vec::new();
            for split in &splits {
                let mut lines = split.lines().unwrap();
                while let Some((at, line)) = lines.next_line().unwrap() {
                    if split.path.ends_with("b") {
                        assert!(text.as_bytes()[at as usize..].starts_with(line));
                    }
                    read.push(String::from_utf8(line.to_vec()).unwrap());
                }
                let mut lines = split.lines().unwrap();
                while let Some((_, lines)) = lines.next_lines().unwrap() {
                    whole.extend_from_slice(lines);
                }
            }
            assert_eq!(read, ["one", "two", "", "four is longer", "five", "last without end", "c"]);
            assert_eq!(String::from_utf8(whole).unwrap(), format!("{text}c\n"));
        }
    }
}
