//! Text files as the input of O tasks: cut into splits of about the same size, each beginning and ending with a line. A named pipe is one
//! split without an end, which is read as it is written.

use crate::config::O_TASKS_MAX;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Bytes of a split if nobody says otherwise: what an O task reads in a fraction of a second, and large enough that asking for the
/// next one costs nothing.
pub const SPLIT_BYTES: u64 = 16 << 20;

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// A range of bytes of a file. The lines that begin in it are its own, also the end of the last one, which may lie behind it. From 0 to
/// [`u64::MAX`] for what is no file and can be read only once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    pub path: PathBuf,
    pub begin: u64,
    pub end: u64,
}

/// The splits of files and of all files in folders, in the order of their names. The same wherever the files are. Nothing is opened.
///
/// Errors: a file that cannot be looked at, named in the text; more splits than a job may have O tasks.
pub fn splits(paths: &[PathBuf], split_bytes: u64) -> io::Result<Vec<Split>> {
    let mut files = Vec::new();
    for path in paths {
        collect(path, &mut files)?;
    }
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
        for at in 0..count {
            // Evenly, so that no split is a small rest.
            let edge = |at: u64| (u128::from(length) * u128::from(at) / u128::from(count)) as u64;
            splits.push(Split { path: path.clone(), begin: edge(at), end: edge(at + 1) });
        }
    }
    Ok(splits)
}

/// With their lengths, if they have one.
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

/// The lines of a split, one at a time.
pub struct Lines {
    file: BufReader<File>,
    position: u64,
    end: u64,
    line: Vec<u8>,
}

impl Split {
    /// Errors: the file cannot be read.
    pub fn lines(&self) -> io::Result<Lines> {
        let file = BufReader::with_capacity(READ_BYTES, File::open(&self.path)?);
        let mut lines = Lines { position: self.begin, end: self.end, line: Vec::new(), file };
        if self.begin > 0 {
            // One byte before: if that is the end of a line, the first line begins here.
            lines.file.seek(SeekFrom::Start(self.begin - 1))?;
            let mut rest = Vec::new();
            lines.position = self.begin - 1 + lines.file.read_until(b'\n', &mut rest)? as u64;
        }
        Ok(lines)
    }

    /// Whether it can be read once more.
    pub fn is_file(&self) -> bool {
        self.end < u64::MAX
    }

    /// The file's name, for errors.
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }
}

impl Lines {
    /// The next line without its end, and where it begins in the file.
    pub fn next_line(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        if self.position >= self.end {
            return Ok(None);
        }
        self.line.clear();
        let bytes = self.file.read_until(b'\n', &mut self.line)?;
        if bytes == 0 {
            return Ok(None);
        }
        let begin = self.position;
        self.position += bytes as u64;
        let mut line = &self.line[..];
        line = line.strip_suffix(b"\n").unwrap_or(line);
        line = line.strip_suffix(b"\r").unwrap_or(line);
        Ok(Some((begin, line)))
    }

    /// As many whole lines as are read at once, with their ends, and where they begin in the file; for those who look for words and
    /// do not mind lines.
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
            self.file.read_until(b'\n', &mut self.line)?;
        }
        let begin = self.position;
        self.position += self.line.len() as u64;
        Ok((!self.line.is_empty()).then_some((begin, &self.line[..])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read_once_however_it_is_cut() {
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
