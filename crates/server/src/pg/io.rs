//! A client's connection with its input and output buffers.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::reply::Reply;

/// Flush threshold of the reply buffer, in bytes.
pub(crate) const REPLY_BYTES: usize = 128 << 10;

/// Read-ahead while a statement runs, in bytes; more stays in the client's own buffers.
pub(crate) const AHEAD_BYTES_MAX: usize = 1 << 20;

/// Bytes per read.
const READ_BYTES: usize = 16 << 10;

/// A byte stream of a connection.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}

pub(crate) struct Io {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) input: BytesMut,
    pub(crate) reply: Reply,
}

impl Io {
    pub(crate) fn new(stream: Box<dyn Stream>) -> Self {
        Self { stream, input: BytesMut::new(), reply: Reply::default() }
    }

    /// Waits for more bytes. Holds no buffer while it waits: most clients are idle most of the time.
    ///
    /// Errors: the client has disconnected.
    pub(crate) async fn fill(&mut self) -> io::Result<()> {
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
        if self.reply.0.is_empty() {
            self.reply = Reply::default();
        }
        match poll_fn(|context| self.poll_read(context)).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Reads available bytes. Returns their number: 0 at the end.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut space = [const { MaybeUninit::uninit() }; READ_BYTES];
        let mut buffer = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
        self.input.extend_from_slice(buffer.filled());
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Reads ahead while a statement runs. Returns when the client has disconnected.
    pub(crate) async fn watch(&mut self) -> io::Error {
        loop {
            if self.input.len() >= AHEAD_BYTES_MAX {
                return std::future::pending().await;
            }
            if let Err(error) = self.fill().await {
                return error;
            }
        }
    }

    /// Reads the available bytes without waiting.
    pub(crate) async fn take_ready(&mut self) -> io::Result<()> {
        let read = poll_fn(|context| Poll::Ready(self.poll_read(context)));
        match read.await {
            Poll::Ready(Err(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Sends the reply buffer.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        if !self.reply.0.is_empty() {
            self.stream.write_all(&self.reply.0).await?;
            self.reply.0.clear();
        }
        self.stream.flush().await
    }

    pub(crate) fn is_full(&self) -> bool {
        self.reply.0.len() >= REPLY_BYTES
    }
}
