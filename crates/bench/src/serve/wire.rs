//! Lightweight client of the PostgreSQL protocol: sends statements, counts rows, and parses values only on
//! request. It supports no passwords, since it only connects to the benchmark's own servers.
//!
//! Cancellation: dropping a future with a pending answer makes the connection unusable; drop it too.
//! Source: "Frontend/Backend Protocol" of PostgreSQL's manual, version 3.0.

use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::systems::Target;
use crate::answers::Rows;

/// Maximum bytes per read.
const READ_MAX: usize = 256 << 10;

const PROTOCOL: i32 = 196_608;
const CANCEL: i32 = 80_877_102;

/// Timeout for connecting and for sending a cancel request.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientError {
    /// The statement failed; the connection stays usable. SQLSTATE and message.
    Statement { sqlstate: String, message: String },
    /// The connection is unusable.
    Broken(String),
}

impl ClientError {
    pub fn unusable(what: impl ToString) -> Self {
        Self::Broken(what.to_string())
    }
}

impl std::fmt::Display for ClientError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Statement { sqlstate, message } => write!(f, "{sqlstate} {message}"),
            Self::Broken(what) => f.write_str(what),
        }
    }
}

/// Size of a statement's answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AnswerSize {
    pub rows: u64,
    /// Bytes of all messages, including headers.
    pub bytes: u64,
}

/// One connection.
pub struct PgClient {
    stream: TcpStream,
    input: BytesMut,
    output: BytesMut,
    canceler: Canceler,
}

/// Handle for canceling a connection's statement.
#[derive(Debug, Clone, Copy, Default)]
pub struct Canceler {
    port: u16,
    process: i32,
    secret: i32,
}

impl Canceler {
    /// Returns when the server has received the request, which does not mean that the statement has ended.
    pub async fn cancel(self) -> std::io::Result<()> {
        let request = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
            let parts = [16, CANCEL, self.process, self.secret];
            stream.write_all(&parts.map(i32::to_be_bytes).concat()).await?;
            // The server closes the connection when it is done.
            let _ = stream.read(&mut [0]).await;
            Ok(())
        };
        tokio::time::timeout(CONNECT_TIMEOUT, request).await.unwrap_or(Ok(()))
    }
}

impl PgClient {
    pub async fn connect(target: &Target) -> Result<Self, ClientError> {
        let connected = async {
            let stream =
                TcpStream::connect(("127.0.0.1", target.port)).await.map_err(ClientError::unusable)?;
            stream.set_nodelay(true).map_err(ClientError::unusable)?;
            let mut client = Self {
                stream,
                input: BytesMut::new(),
                output: BytesMut::new(),
                canceler: Canceler::default(),
            };
            let mut body = BytesMut::new();
            body.put_i32(PROTOCOL);
            for (name, value) in [("user", &target.user), ("database", &target.database)] {
                put_text(&mut body, name);
                put_text(&mut body, value);
            }
            body.put_u8(0);
            client.output.put_i32(body.len() as i32 + 4);
            client.output.put_slice(&body);
            client.answer(None).await?;
            client.canceler.port = target.port;
            Ok(client)
        };
        match tokio::time::timeout(CONNECT_TIMEOUT, connected).await {
            Ok(client) => client,
            Err(_) => Err(ClientError::unusable("the server does not let the client in")),
        }
    }

    /// Returns a handle for canceling this connection's statement.
    pub fn canceler(&self) -> Canceler {
        self.canceler
    }

    /// Runs a text in the simple protocol; appends the values to `keep` if given.
    pub async fn query(&mut self, sql: &str, keep: Option<&mut Rows>) -> Result<AnswerSize, ClientError> {
        let mut body = BytesMut::with_capacity(sql.len() + 1);
        put_text(&mut body, sql);
        self.push_message(b'Q', &body);
        self.answer(keep).await
    }

    /// Prepares a statement under a name.
    pub async fn prepare(&mut self, name: &str, sql: &str) -> Result<(), ClientError> {
        let mut body = BytesMut::new();
        put_text(&mut body, name);
        put_text(&mut body, sql);
        body.put_i16(0);
        self.push_message(b'P', &body);
        self.push_message(b'S', &[]);
        self.answer(None).await.map(|_| ())
    }

    /// Executes a prepared statement with one text parameter; results in text, or in binary if `binary`.
    pub async fn execute(
        &mut self,
        name: &str,
        values: &[&str],
        binary: bool,
        keep: Option<&mut Rows>,
    ) -> Result<AnswerSize, ClientError> {
        let mut body = BytesMut::new();
        put_text(&mut body, "");
        put_text(&mut body, name);
        body.put_i16(0);
        body.put_i16(values.len() as i16);
        for value in values {
            body.put_i32(value.len() as i32);
            body.put_slice(value.as_bytes());
        }
        body.put_i16(1);
        body.put_i16(i16::from(binary));
        self.push_message(b'B', &body);
        self.push_message(b'E', &[0, 0, 0, 0, 0]);
        self.push_message(b'S', &[]);
        self.answer(keep).await
    }

    fn push_message(&mut self, kind: u8, body: &[u8]) {
        self.output.put_u8(kind);
        self.output.put_i32(body.len() as i32 + 4);
        self.output.put_slice(body);
    }

    /// Flushes the output, and reads until the server is ready for the next query.
    async fn answer(&mut self, mut keep: Option<&mut Rows>) -> Result<AnswerSize, ClientError> {
        self.stream.write_all(&self.output).await.map_err(ClientError::unusable)?;
        self.output.clear();
        let mut counted = AnswerSize::default();
        let mut refused = None;
        loop {
            while let Some((kind, length)) = head(&self.input) {
                // Skip a row's body if no values are wanted, as soon as its header is read.
                if self.input.len() < 1 + length {
                    break;
                }
                counted.bytes += 1 + length as u64;
                let body = &self.input[5..1 + length];
                match kind {
                    b'D' => {
                        counted.rows += 1;
                        if let Some(rows) = keep.as_deref_mut() {
                            rows.push(row(body).ok_or_else(|| ClientError::unusable("a row is cut short"))?);
                        }
                    }
                    b'E' => refused = Some(refusal(body)),
                    b'K' if body.len() >= 8 => {
                        self.canceler.process = (&body[..4]).get_i32();
                        self.canceler.secret = (&body[4..8]).get_i32();
                    }
                    b'R' if body != [0, 0, 0, 0] => {
                        return Err(ClientError::unusable("the server asks for a password"));
                    }
                    b'Z' => {
                        self.input.advance(1 + length);
                        return refused.map_or(Ok(counted), Err);
                    }
                    _ => {}
                }
                self.input.advance(1 + length);
            }
            self.input.reserve(READ_MAX.min(self.input.len().max(8 << 10)));
            let read = self.stream.read_buf(&mut self.input).await.map_err(ClientError::unusable)?;
            if read == 0 {
                let reason = refused.map(|client_error| format!(": {client_error}")).unwrap_or_default();
                return Err(ClientError::unusable(format!("the server has closed the connection{reason}")));
            }
        }
    }
}

fn put_text(body: &mut BytesMut, text: &str) {
    body.put_slice(text.as_bytes());
    body.put_u8(0);
}

/// Returns kind and length of the message at the start of the input; the length includes its own four bytes.
fn head(input: &[u8]) -> Option<(u8, usize)> {
    let (kind, rest) = input.split_first()?;
    let length = u32::from_be_bytes(rest.get(..4)?.try_into().ok()?);
    Some((*kind, length as usize))
}

fn row(body: &[u8]) -> Option<Vec<Option<String>>> {
    let mut rest = body.get(2..)?;
    let mut values = Vec::new();
    while !rest.is_empty() {
        let length = i32::from_be_bytes(rest.get(..4)?.try_into().ok()?);
        rest = &rest[4..];
        values.push(match usize::try_from(length) {
            Ok(length) => {
                let value = rest.get(..length)?;
                rest = &rest[length..];
                Some(String::from_utf8_lossy(value).into_owned())
            }
            Err(_) => None,
        });
    }
    Some(values)
}

fn refusal(body: &[u8]) -> ClientError {
    let field = |code: u8| {
        let found = body.split(|byte| *byte == 0).find(|field| field.first() == Some(&code));
        found.map(|field| String::from_utf8_lossy(&field[1..]).into_owned()).unwrap_or_default()
    };
    ClientError::Statement { sqlstate: field(b'C'), message: field(b'M') }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read() {
        assert_eq!(head(b"D\0\0\0"), None);
        assert_eq!(head(b"D\0\0\0\x0a"), Some((b'D', 10)));
        let body = b"\0\x02\0\0\0\x02ab\xff\xff\xff\xff";
        assert_eq!(row(body), Some(vec![Some("ab".to_owned()), None]));
        assert_eq!(row(b"\0\x01\0\0\0\x05ab"), None);
        let client_error = refusal(b"SERROR\0C42P01\0Mno such table\0\0");
        assert_eq!(client_error.to_string(), "42P01 no such table");
    }
}
