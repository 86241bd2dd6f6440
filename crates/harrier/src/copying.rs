//! COPY … FROM STDIN in scripts and shells: the lines after the statement are its rows, up to `\.` or the
//! end.

use std::io::{self, Read};
use std::time::Instant;

use bytes::Bytes;
use harrier_engine::{CopyIn, SqlError, Written};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::interrupt::Watch;

/// The line after the last row.
const END: &str = "\\.";
const PIECE_BYTES: usize = 1 << 16;

/// A COPY that takes rows. Dropping it cancels the statement.
pub(crate) struct Copying {
    /// `None` once it failed: the other rows are read past.
    input: Option<mpsc::Sender<Bytes>>,
    writing: JoinHandle<Result<Written, SqlError>>,
    /// The statement, for its errors.
    pub(crate) text: String,
    pub(crate) started: Instant,
    gathered: Vec<u8>,
    /// Of the statement.
    pub(crate) watch: Option<Watch>,
}

impl Copying {
    pub(crate) fn begin(copy: CopyIn, text: String, started: Instant) -> Self {
        let CopyIn { input, write, .. } = copy;
        let writing = tokio::spawn(write.finish());
        Self { input: Some(input), writing, text, started, gathered: Vec::new(), watch: None }
    }

    /// Takes a line with its end; returns whether it was the last.
    pub(crate) async fn line(&mut self, line: &str) -> bool {
        if line.trim_end_matches(['\r', '\n']) == END {
            return true;
        }
        self.gathered.extend_from_slice(line.as_bytes());
        if self.gathered.len() >= PIECE_BYTES {
            self.send().await;
        }
        false
    }

    async fn send(&mut self) {
        let piece = Bytes::from(std::mem::take(&mut self.gathered));
        if let Some(input) = &self.input
            && input.send(piece).await.is_err()
        {
            self.input = None;
        }
    }

    /// Takes all of standard input.
    pub(crate) async fn stdin(&mut self) -> io::Result<()> {
        let (sender, mut pieces) = mpsc::channel(4);
        // Ends with the process if standard input does not.
        std::thread::spawn(move || {
            let mut stdin = io::stdin().lock();
            loop {
                let mut piece = vec![0; PIECE_BYTES];
                let read = stdin.read(&mut piece);
                let is_end = !matches!(read, Ok(1..));
                let read = read.map(|length| Bytes::from(piece).slice(..length));
                if sender.blocking_send(read).is_err() || is_end {
                    return;
                }
            }
        });
        while let (Some(input), Some(piece)) = (&self.input, pieces.recv().await) {
            if input.send(piece?).await.is_err() {
                self.input = None;
            }
        }
        Ok(())
    }

    /// To be called after the last row: waits for the statement's end.
    pub(crate) async fn end(mut self) -> Result<Written, SqlError> {
        self.send().await;
        self.input = None;
        match (&mut self.writing).await {
            Ok(written) => written,
            Err(_) => Err(SqlError::canceled()),
        }
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        self.writing.abort();
    }
}
