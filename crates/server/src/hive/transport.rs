//! The binary transports: messages one after the other, with or without SASL.

use std::io;

use bytes::{Buf, BytesMut};
use harrier_thrift::{
    DecodeError, DecodeLimits, FRAME_BYTES, Message, Negotiation, SaslStatus, frame, frame_length,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::pg::io::Stream;

/// Maximum values in a message: calls have few, and one that arrives in parts is decoded several times.
pub(super) const VALUES_MAX: usize = 1 << 14;

/// Bytes per read.
const READ_BYTES: usize = 64 << 10;

/// Read-ahead while a call is answered, in bytes.
const AHEAD_BYTES_MAX: usize = 64 << 10;

/// Buffers beyond this size are released once they are empty.
const BUFFER_BYTES_MAX: usize = 1 << 20;

/// A connection's bytes.
pub(super) struct Transport {
    stream: Box<dyn Stream>,
    input: BytesMut,
    has_frames: bool,
}

fn invalid(error: DecodeError) -> io::Error {
    let text = match error {
        DecodeError::TooLarge => "a message is too large",
        DecodeError::Incomplete(_) | DecodeError::Invalid => "the client does not speak this protocol",
    };
    io::Error::new(io::ErrorKind::InvalidData, text)
}

impl Transport {
    pub fn new(stream: Box<dyn Stream>) -> Self {
        Self { stream, input: BytesMut::new(), has_frames: false }
    }

    /// The first byte, which is read again later.
    pub async fn first_byte(&mut self) -> io::Result<u8> {
        self.fill(1).await?;
        Ok(self.input[0])
    }

    /// The stream and what has been read of it.
    pub fn into_parts(self) -> (Box<dyn Stream>, BytesMut) {
        (self.stream, self.input)
    }

    /// Reads until there are so many bytes. Holds no buffer while it waits for the first one.
    ///
    /// Errors: the client has disconnected.
    async fn fill(&mut self, needed: usize) -> io::Result<()> {
        while self.input.len() < needed {
            if self.input.is_empty() && self.input.capacity() > BUFFER_BYTES_MAX {
                self.input = BytesMut::new();
            }
            self.input.reserve(READ_BYTES.min(needed - self.input.len()).max(1024));
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Reads a message of SASL's negotiation.
    pub async fn negotiation(&mut self, bytes_max: usize) -> io::Result<Negotiation> {
        loop {
            match Negotiation::decode(&self.input, bytes_max) {
                Ok((message, length)) => {
                    self.input.advance(length);
                    return Ok(message);
                }
                Err(DecodeError::Incomplete(needed)) => self.fill(needed).await?,
                Err(error) => return Err(invalid(error)),
            }
        }
    }

    /// Sends a message of SASL's negotiation. After `Complete` messages are in frames.
    pub async fn negotiate(&mut self, status: SaslStatus, payload: &str) -> io::Result<()> {
        let mut out = BytesMut::new();
        Negotiation::new(status, payload).encode(&mut out);
        self.stream.write_all(&out).await?;
        self.stream.flush().await?;
        self.has_frames |= status == SaslStatus::Complete;
        Ok(())
    }

    /// Reads the next message. Cancel-safe.
    ///
    /// Errors: the client has disconnected, or sends no message of this protocol.
    pub async fn message(&mut self, limits: DecodeLimits) -> io::Result<Message> {
        loop {
            match self.decode(limits) {
                Ok((message, length)) => {
                    self.input.advance(length);
                    return Ok(message);
                }
                Err(DecodeError::Incomplete(needed)) => self.fill(needed).await?,
                Err(error) => return Err(invalid(error)),
            }
        }
    }

    fn decode(&self, limits: DecodeLimits) -> Result<(Message, usize), DecodeError> {
        if !self.has_frames {
            return Message::decode(&self.input, limits);
        }
        let length = frame_length(&self.input, limits.bytes)?;
        let whole = &self.input[FRAME_BYTES..FRAME_BYTES + length];
        match Message::decode(whole, limits) {
            Ok((message, _)) => Ok((message, FRAME_BYTES + length)),
            // A message in several frames: no client sends one.
            Err(DecodeError::Incomplete(_)) => Err(DecodeError::Invalid),
            Err(error) => Err(error),
        }
    }

    pub async fn send(&mut self, message: &Message) -> io::Result<()> {
        let mut out = BytesMut::new();
        if self.has_frames {
            out.resize(FRAME_BYTES, 0);
        }
        message.encode(&mut out);
        if self.has_frames {
            frame(&mut out, 0);
        }
        self.stream.write_all(&out).await?;
        self.stream.flush().await
    }

    /// Reads ahead while a call is answered. Returns when the client has disconnected.
    pub async fn wait_for_disconnect(&mut self) -> io::Error {
        loop {
            let length = self.input.len();
            if length >= AHEAD_BYTES_MAX {
                return std::future::pending().await;
            }
            if let Err(error) = self.fill(length + 1).await {
                return error;
            }
        }
    }
}
