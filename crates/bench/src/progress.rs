//! Progress display on standard error, and the table printed line by line.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Progress on standard error: one changing line on a terminal, otherwise a line when nothing has been
/// printed for [`SILENT_S_MAX`].
pub struct Progress<'a> {
    out: &'a mut dyn Write,
    /// Printed before every step.
    pub prefix: String,
    step: String,
    since: Instant,
    printed: Instant,
    terminal: bool,
}

/// Maximum time without output, in seconds.
const SILENT_S_MAX: u64 = 9;

/// Prints a line to standard output, which its reader may have closed: the JSON file may still be wanted.
pub fn print_line(text: impl Display) {
    let _ = writeln!(io::stdout(), "{text}");
}

impl<'a> Progress<'a> {
    pub fn new(out: &'a mut dyn Write) -> Self {
        let now = Instant::now();
        Self {
            out,
            prefix: String::new(),
            step: String::new(),
            since: now,
            printed: now,
            terminal: io::stderr().is_terminal(),
        }
    }

    pub fn step(&mut self, step: String) {
        self.step = step;
        self.since = Instant::now();
        if self.terminal {
            self.show();
        }
    }

    pub fn tick(&mut self) {
        if self.terminal || self.printed.elapsed() >= Duration::from_secs(SILENT_S_MAX) {
            self.show();
        }
    }

    fn show(&mut self) {
        let comma = if self.prefix.is_empty() { "" } else { ": " };
        let text = format!("{}{comma}{}, {} s", self.prefix, self.step, self.since.elapsed().as_secs());
        match self.terminal {
            true => eprint!("\r\x1b[K{text}"),
            false => eprintln!("{text}"),
        }
        self.printed = Instant::now();
    }

    pub fn print(&mut self, text: &str) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
        // A closed standard output does not end the measurement: the JSON file may still be wanted.
        let _ = writeln!(self.out, "{text}").and_then(|()| self.out.flush());
        self.printed = Instant::now();
    }
}
