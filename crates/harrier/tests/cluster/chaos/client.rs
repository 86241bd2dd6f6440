//! PostgreSQL client without reconnection that reports how each statement ended.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub type Rows = Vec<Vec<Option<String>>>;

/// Failure of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatementError {
    /// Error response: SQLSTATE and message; the connection works.
    Refused(String, String),
    /// The connection broke; the statement may have taken effect.
    Broken(String),
    /// No answer within the timeout.
    Silent,
}

pub struct Client {
    stream: TcpStream,
    process: i32,
    secret: i32,
    port: u16,
}

impl Client {
    /// `timeout`: maximum time to wait for an answer.
    pub fn connect(port: u16, timeout: Duration) -> Result<Self, StatementError> {
        let broken = |error: std::io::Error| StatementError::Broken(error.to_string());
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5)).map_err(broken)?;
        stream.set_read_timeout(Some(timeout)).map_err(broken)?;
        stream.set_write_timeout(Some(timeout)).map_err(broken)?;
        stream.set_nodelay(true).map_err(broken)?;
        let mut client = Self { stream, process: 0, secret: 0, port };
        let user = std::env::var("USER").unwrap_or_else(|_| "root".to_string());
        let mut body = 196_608_i32.to_be_bytes().to_vec();
        for text in ["user", &user, "database", "warehouse"] {
            body.extend(text.bytes());
            body.push(0);
        }
        body.push(0);
        let mut message = (body.len() as i32 + 4).to_be_bytes().to_vec();
        message.extend(body);
        client.stream.write_all(&message).map_err(broken)?;
        client.answer().map(|_| client)
    }

    pub fn query(&mut self, sql: &str) -> Result<Rows, StatementError> {
        self.send(b'Q', &[sql.as_bytes(), b"\0"].concat())?;
        self.answer()
    }

    /// First value of the first row.
    pub fn one(&mut self, sql: &str) -> Result<String, StatementError> {
        let rows = self.query(sql)?;
        Ok(rows.into_iter().next().and_then(|row| row.into_iter().next().flatten()).unwrap_or_default())
    }

    /// `COPY … FROM STDIN` with these lines.
    pub fn copy_in(&mut self, sql: &str, lines: &str) -> Result<(), StatementError> {
        self.send(b'Q', &[sql.as_bytes(), b"\0"].concat())?;
        loop {
            let (kind, body) = self.message()?;
            match kind {
                b'G' => break,
                b'E' => {
                    let error_response = refusal(&body);
                    self.answer()?;
                    return Err(error_response);
                }
                _ => {}
            }
        }
        self.send(b'd', lines.as_bytes())?;
        self.send(b'c', &[])?;
        self.answer().map(|_| ())
    }

    /// Returns a closure that sends a cancel request from another thread.
    pub fn canceler(&self) -> impl FnOnce() + Send + 'static {
        let (port, process, secret) = (self.port, self.process, self.secret);
        move || {
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            if let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(5)) {
                let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
                let parts = [16, 80_877_102, process, secret];
                let _ = stream.write_all(&parts.map(i32::to_be_bytes).concat());
                let _ = stream.read(&mut [0]);
            }
        }
    }

    fn send(&mut self, kind: u8, body: &[u8]) -> Result<(), StatementError> {
        let mut bytes = vec![kind];
        bytes.extend((body.len() as i32 + 4).to_be_bytes());
        bytes.extend(body);
        self.stream.write_all(&bytes).map_err(|error| StatementError::Broken(error.to_string()))
    }

    fn message(&mut self) -> Result<(u8, Vec<u8>), StatementError> {
        let io_error = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => StatementError::Silent,
            _ => StatementError::Broken(error.to_string()),
        };
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).map_err(io_error)?;
        let length = u32::from_be_bytes(head[1..].try_into().expect("four bytes")) as usize;
        let mut body = vec![0; length.saturating_sub(4)];
        self.stream.read_exact(&mut body).map_err(io_error)?;
        Ok((head[0], body))
    }

    /// Reads until ReadyForQuery. If an error is followed by the end of the connection, returns that error.
    fn answer(&mut self) -> Result<Rows, StatementError> {
        let mut rows = Vec::new();
        let mut error_response = None;
        loop {
            let (kind, body) = match self.message() {
                Ok(message) => message,
                Err(StatementError::Broken(why)) => {
                    let reason = match error_response {
                        Some(StatementError::Refused(state, message)) => format!("{state} {message}; {why}"),
                        _ => why,
                    };
                    return Err(StatementError::Broken(reason));
                }
                Err(other) => return Err(other),
            };
            match kind {
                b'K' if body.len() >= 8 => {
                    self.process = i32::from_be_bytes(body[..4].try_into().expect("four bytes"));
                    self.secret = i32::from_be_bytes(body[4..8].try_into().expect("four bytes"));
                }
                b'D' => rows.push(row(&body)),
                b'E' => error_response = Some(refusal(&body)),
                b'Z' => return error_response.map_or(Ok(rows), Err),
                _ => {}
            }
        }
    }
}

fn refusal(body: &[u8]) -> StatementError {
    let field = |code: u8| {
        let code_field = body.split(|byte| *byte == 0).find(|field| field.first() == Some(&code));
        code_field.map(|field| String::from_utf8_lossy(&field[1..]).into_owned()).unwrap_or_default()
    };
    StatementError::Refused(field(b'C'), field(b'M'))
}

fn row(body: &[u8]) -> Vec<Option<String>> {
    let mut rest = &body[2..];
    let mut values = Vec::new();
    while rest.len() >= 4 {
        let length = i32::from_be_bytes(rest[..4].try_into().expect("four bytes"));
        rest = &rest[4..];
        values.push(usize::try_from(length).ok().map(|length| {
            let (value, after) = rest.split_at(length);
            rest = after;
            String::from_utf8_lossy(value).into_owned()
        }));
    }
    values
}
