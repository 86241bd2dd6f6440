//! A client of the PostgreSQL protocol that costs its machine little: it sends statements, counts rows, and
//! parses values only where they are asked for. It has no password to give: the servers it is for are the
//! benchmark's own.
//!
//! Cancellation: a future that is dropped while an answer is under way leaves the connection useless; drop it
//! too. Source: "Frontend/Backend Protocol" of PostgreSQL's manual, version 3.0.

use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::systems::Target;
use crate::answers::Rows;

/// Bytes that are read at once, at most.
const READ_MAX: usize = 256 << 10;

const PROTOCOL: i32 = 196_608;
const CANCEL: i32 = 80_877_102;

/// How long a server may take to let a client in, or to hear that one cancels.
const CONNECT_PATIENCE: Duration = Duration::from_secs(20);

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The statement failed; the connection goes on. SQLSTATE and message.
    Refused { sqlstate: String, message: String },
    /// The connection is of no more use.
    Broken(String),
}

impl Trouble {
    pub fn broken(what: impl ToString) -> Self {
        Self::Broken(what.to_string())
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused { sqlstate, message } => write!(f, "{sqlstate} {message}"),
            Self::Broken(what) => f.write_str(what),
        }
    }
}

/// What came back for one statement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    pub rows: u64,
    /// Of all messages, with their heads.
    pub bytes: u64,
}

/// One connection.
pub struct PgClient {
    stream: TcpStream,
    input: BytesMut,
    output: BytesMut,
    canceler: Canceler,
}

/// Asks a server to end what one connection runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Canceler {
    port: u16,
    process: i32,
    secret: i32,
}

impl Canceler {
    /// Returns when the server has taken notice, which says nothing about the statement.
    pub async fn cancel(self) -> std::io::Result<()> {
        let asked = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
            let parts = [16, CANCEL, self.process, self.secret];
            stream.write_all(&parts.map(i32::to_be_bytes).concat()).await?;
            // The server closes the connection when it is done.
            let _ = stream.read(&mut [0]).await;
            Ok(())
        };
        tokio::time::timeout(CONNECT_PATIENCE, asked).await.unwrap_or(Ok(()))
    }
}

impl PgClient {
    pub async fn connect(target: &Target) -> Result<Self, Trouble> {
        let connected = async {
            let stream = TcpStream::connect(("127.0.0.1", target.port)).await.map_err(Trouble::broken)?;
            stream.set_nodelay(true).map_err(Trouble::broken)?;
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
        match tokio::time::timeout(CONNECT_PATIENCE, connected).await {
            Ok(client) => client,
            Err(_) => Err(Trouble::broken("the server does not let the client in")),
        }
    }

    /// How to cancel what this connection runs, from outside.
    pub fn canceler(&self) -> Canceler {
        self.canceler
    }

    /// Runs a text in the simple protocol; values go to `keep`, where it is given.
    pub async fn query(&mut self, sql: &str, keep: Option<&mut Rows>) -> Result<Counted, Trouble> {
        let mut body = BytesMut::with_capacity(sql.len() + 1);
        put_text(&mut body, sql);
        self.put(b'Q', &body);
        self.answer(keep).await
    }

    /// Prepares a statement under a name.
    pub async fn prepare(&mut self, name: &str, sql: &str) -> Result<(), Trouble> {
        let mut body = BytesMut::new();
        put_text(&mut body, name);
        put_text(&mut body, sql);
        body.put_i16(0);
        self.put(b'P', &body);
        self.put(b'S', &[]);
        self.answer(None).await.map(|_| ())
    }

    /// Runs a prepared statement with one value as text; in text, or in binary if `binary`.
    pub async fn execute(
        &mut self,
        name: &str,
        values: &[&str],
        binary: bool,
        keep: Option<&mut Rows>,
    ) -> Result<Counted, Trouble> {
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
        self.put(b'B', &body);
        self.put(b'E', &[0, 0, 0, 0, 0]);
        self.put(b'S', &[]);
        self.answer(keep).await
    }

    fn put(&mut self, kind: u8, body: &[u8]) {
        self.output.put_u8(kind);
        self.output.put_i32(body.len() as i32 + 4);
        self.output.put_slice(body);
    }

    /// Sends what is to be sent, and reads until the server is ready again.
    async fn answer(&mut self, mut keep: Option<&mut Rows>) -> Result<Counted, Trouble> {
        self.stream.write_all(&self.output).await.map_err(Trouble::broken)?;
        self.output.clear();
        let mut counted = Counted::default();
        let mut refused = None;
        loop {
            while let Some((kind, length)) = head(&self.input) {
                // A row whose values nobody wants is let go with its head alone.
                if self.input.len() < 1 + length {
                    break;
                }
                counted.bytes += 1 + length as u64;
                let body = &self.input[5..1 + length];
                match kind {
                    b'D' => {
                        counted.rows += 1;
                        if let Some(rows) = keep.as_deref_mut() {
                            rows.push(row(body).ok_or_else(|| Trouble::broken("a row is cut short"))?);
                        }
                    }
                    b'E' => refused = Some(refusal(body)),
                    b'K' if body.len() >= 8 => {
                        self.canceler.process = (&body[..4]).get_i32();
                        self.canceler.secret = (&body[4..8]).get_i32();
                    }
                    b'R' if body != [0, 0, 0, 0] => {
                        return Err(Trouble::broken("the server asks for a password"));
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
            let read = self.stream.read_buf(&mut self.input).await.map_err(Trouble::broken)?;
            if read == 0 {
                let said = refused.map(|trouble| format!(": {trouble}")).unwrap_or_default();
                return Err(Trouble::broken(format!("the server has closed the connection{said}")));
            }
        }
    }
}

fn put_text(body: &mut BytesMut, text: &str) {
    body.put_slice(text.as_bytes());
    body.put_u8(0);
}

/// Kind and length of the message that the input begins with; the length has its own four bytes in it.
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

fn refusal(body: &[u8]) -> Trouble {
    let field = |code: u8| {
        let found = body.split(|byte| *byte == 0).find(|field| field.first() == Some(&code));
        found.map(|field| String::from_utf8_lossy(&field[1..]).into_owned()).unwrap_or_default()
    };
    Trouble::Refused { sqlstate: field(b'C'), message: field(b'M') }
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
        let trouble = refusal(b"SERROR\0C42P01\0Mno such table\0\0");
        assert_eq!(trouble.to_string(), "42P01 no such table");
    }
}
