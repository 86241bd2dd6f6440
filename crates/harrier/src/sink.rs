//! Output of rows other than standard output: a file, a command's standard input, or a pager.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

/// A file or `|command`, as named by `\o` and `\g`.
pub(crate) enum Sink {
    File(BufWriter<File>),
    Command { input: BufWriter<ChildStdin>, child: Child },
}

impl Sink {
    /// Errors: the file cannot be created, or the shell not started.
    pub(crate) fn open(target: &str) -> io::Result<Self> {
        let Some(command) = target.strip_prefix('|') else {
            return Ok(Self::File(BufWriter::new(File::create(target)?)));
        };
        let (input, child) = shell(command)?;
        Ok(Self::Command { input: BufWriter::new(input), child })
    }

    /// Flushes the output, and waits for a command to end.
    pub(crate) fn close(self) -> io::Result<()> {
        match self {
            Self::File(mut file) => file.flush(),
            Self::Command { mut input, mut child } => {
                let flushed = input.flush();
                drop(input);
                child.wait()?;
                flushed
            }
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.write(bytes),
            Self::Command { input, .. } => input.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.flush(),
            Self::Command { input, .. } => input.flush(),
        }
    }
}

/// Starts a shell command that reads from a pipe.
fn shell(command: &str) -> io::Result<(ChildStdin, Child)> {
    let _ = io::stdout().flush();
    let mut child = Command::new("sh").args(["-c", command]).stdin(Stdio::piped()).spawn()?;
    match child.stdin.take() {
        Some(input) => Ok((input, child)),
        None => Err(io::Error::other("the command has no standard input")),
    }
}

/// One result on a terminal, shown by a pager if it does not fit.
///
/// Memory bound: one screen; the pager holds the rest.
pub(crate) struct Pager {
    command: String,
    rows: usize,
    columns: usize,
    buffered: Vec<u8>,
    started: Option<(ChildStdin, Child)>,
    /// The pager has exited.
    is_closed: bool,
}

impl Pager {
    pub(crate) fn new(command: String, (rows, columns): (usize, usize)) -> Self {
        Self { command, rows, columns, buffered: Vec::new(), started: None, is_closed: false }
    }

    /// Whether the pager owns the terminal.
    pub(crate) fn is_started(&self) -> bool {
        self.started.is_some()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether the output has more lines, or longer ones, than the screen. One line is reserved for the
    /// prompt.
    fn is_too_large(&self) -> bool {
        let mut lines = 0;
        self.buffered.split(|byte| *byte == b'\n').any(|line| {
            lines += 1;
            let is_wide = || match std::str::from_utf8(line) {
                Ok(line) => unicode_width::UnicodeWidthStr::width(line) > self.columns,
                Err(_) => false,
            };
            lines >= self.rows || line.len() > self.columns && is_wide()
        })
    }

    /// Prints the output if it fits, otherwise waits for the pager to exit.
    pub(crate) fn close(mut self) -> io::Result<()> {
        let Some((input, mut child)) = self.started.take() else {
            let mut out = io::stdout().lock();
            out.write_all(&self.buffered)?;
            return out.flush();
        };
        drop(input);
        child.wait().map(drop)
    }
}

impl Write for Pager {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_closed {
            return Ok(bytes.len());
        }
        if self.started.is_none() {
            self.buffered.extend_from_slice(bytes);
            if !self.is_too_large() {
                return Ok(bytes.len());
            }
            self.started = Some(shell(&self.command)?);
        } else {
            self.buffered.extend_from_slice(bytes);
        }
        let held = std::mem::take(&mut self.buffered);
        if let Some((input, _)) = &mut self.started
            && let Err(error) = input.write_all(&held)
        {
            match error.kind() {
                io::ErrorKind::BrokenPipe => self.is_closed = true,
                _ => return Err(error),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
