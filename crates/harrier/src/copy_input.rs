//! COPY … FROM STDIN in scripts and shells: the lines after the statement are its rows, up to `\.` or the end
//! of input.

use std::io::{self, Read};
use std::time::Instant;

use bytes::Bytes;
use harrier_engine::{CopyIn, SqlError};
use harrier_session_api::statement::Completion;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::interrupt::Watch;

/// Terminator line.
const END: &str = "\\.";
const PIECE_BYTES: usize = 1 << 16;

/// A running COPY FROM STDIN. Dropping it cancels the statement.
pub(crate) struct CopyInput {
    /// `None` after a failure: further rows are skipped.
    input: Option<mpsc::Sender<Bytes>>,
    writing: JoinHandle<Result<Completion, SqlError>>,
    /// Text of the statement, for error positions.
    pub(crate) text: String,
    pub(crate) started: Instant,
    buffer: Vec<u8>,
    /// Cancellation watch of the statement.
    pub(crate) watch: Option<Watch>,
}

impl CopyInput {
    pub(crate) fn begin(copy: CopyIn, text: String, started: Instant) -> Self {
        let CopyIn { input, write, .. } = copy;
        let writing = tokio::spawn(write.finish());
        Self { input: Some(input), writing, text, started, buffer: Vec::new(), watch: None }
    }

    /// Adds a line with its line end. Returns whether it was the terminator.
    pub(crate) async fn push_line(&mut self, line: &str) -> bool {
        if line.trim_end_matches(['\r', '\n']) == END {
            return true;
        }
        self.buffer.extend_from_slice(line.as_bytes());
        if self.buffer.len() >= PIECE_BYTES {
            self.send().await;
        }
        false
    }

    async fn send(&mut self) {
        let piece = Bytes::from(std::mem::take(&mut self.buffer));
        if let Some(input) = &self.input
            && input.send(piece).await.is_err()
        {
            self.input = None;
        }
    }

    /// Feeds all of standard input.
    pub(crate) async fn feed_stdin(&mut self) -> io::Result<()> {
        let (sender, mut pieces) = mpsc::channel(4);
        // Blocked reads end with the process.
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

    /// Ends the input and waits for the statement. Call it after the last row.
    pub(crate) async fn finish(mut self) -> Result<Completion, SqlError> {
        self.send().await;
        self.input = None;
        match (&mut self.writing).await {
            Ok(written) => written,
            Err(_) => Err(SqlError::canceled_by_user()),
        }
    }
}

impl Drop for CopyInput {
    fn drop(&mut self) {
        self.writing.abort();
    }
}
