//! Parser of the PostgreSQL protocol's frontend messages, from untrusted bytes.
//!
//! Source: PostgreSQL's documentation, "Message Formats".

use bytes::{Buf, Bytes, BytesMut};
use harrier_error::{SqlError, SqlState};

/// Maximum message size in bytes, as in PostgreSQL.
const MESSAGE_BYTES_MAX: usize = 0x3fff_ffff;

/// Maximum size of a startup message.
const STARTUP_BYTES_MAX: usize = 10_000;

/// Maximum size of a password message.
const PASSWORD_BYTES_MAX: usize = 65_535;

const SSL_REQUEST: i32 = 80_877_103;
const GSS_REQUEST: i32 = 80_877_104;
const CANCEL_REQUEST: i32 = 80_877_102;

/// The first message of a connection, before or after encryption.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum First {
    Ssl,
    Gss,
    Cancel {
        process: i32,
        secret: i32,
    },
    Startup {
        /// The minor version of protocol 3.
        minor: u16,
        parameters: Vec<(String, String)>,
    },
}

/// Any later message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Query(String),
    Parse {
        name: String,
        text: String,
        types: Vec<u32>,
    },
    Bind(Bind),
    Describe {
        target: Target,
        name: String,
    },
    Execute {
        portal: String,
        rows_max: usize,
    },
    Close {
        target: Target,
        name: String,
    },
    Flush,
    Sync,
    Terminate,
    CopyData(Bytes),
    CopyDone,
    CopyFail(String),
    /// A password or a SASL message, depending on the authentication request.
    Password(Bytes),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Statement,
    Portal,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bind {
    pub(crate) portal: String,
    pub(crate) statement: String,
    pub(crate) formats: Vec<i16>,
    pub(crate) values: Vec<Option<Bytes>>,
    pub(crate) result_formats: Vec<i16>,
}

/// The first message, once complete.
///
/// Errors: malformed (08P01), or another protocol version (0A000). The connection must be closed then.
pub(crate) fn first(input: &mut BytesMut) -> Result<Option<First>, SqlError> {
    let Some(length) = length(input, 0, STARTUP_BYTES_MAX)? else {
        return Ok(None);
    };
    let mut body = Body(input.split_to(length).freeze());
    body.0.advance(4);
    let code = body.i32()?;
    Ok(Some(match code {
        SSL_REQUEST => First::Ssl,
        GSS_REQUEST => First::Gss,
        CANCEL_REQUEST => First::Cancel { process: body.i32()?, secret: body.i32()? },
        _ if code >> 16 == 3 => {
            let mut parameters = Vec::new();
            loop {
                let name = body.text()?;
                if name.is_empty() {
                    break;
                }
                parameters.push((name, body.text()?));
            }
            First::Startup { minor: (code & 0xffff) as u16, parameters }
        }
        _ => {
            let (major, minor) = (code >> 16, code & 0xffff);
            let message =
                format!("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.0");
            return Err(SqlError::fatal(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
    }))
}

/// The next message, once complete. `is_known`: the client is authenticated.
///
/// Errors: not a frontend message (08P01, fatal); its text is not UTF-8 (22021).
pub(crate) fn next(input: &mut BytesMut, is_known: bool) -> Result<Option<Message>, SqlError> {
    let Some(kind) = input.first().copied() else {
        return Ok(None);
    };
    let max = if is_known { MESSAGE_BYTES_MAX } else { PASSWORD_BYTES_MAX };
    if !b"QPBDECHSXdcfpF".contains(&kind) || (!is_known && kind != b'p' && kind != b'X') {
        return Err(SqlError::fatal(
            SqlState::PROTOCOL_VIOLATION,
            format!("invalid frontend message type {kind}"),
        ));
    }
    let Some(length) = length(input, 1, max)? else {
        return Ok(None);
    };
    let mut body = Body(input.split_to(length + 1).freeze());
    body.0.advance(5);
    let message = match kind {
        b'Q' => Message::Query(body.text()?),
        b'P' => {
            let (name, text) = (body.text()?, body.text()?);
            let count = body.count(4)?;
            let types = (0..count).map(|_| body.i32().map(|oid| oid as u32)).collect::<Result<_, _>>()?;
            Message::Parse { name, text, types }
        }
        b'B' => Message::Bind(bind(&mut body)?),
        b'D' => Message::Describe { target: body.target()?, name: body.text()? },
        b'C' => Message::Close { target: body.target()?, name: body.text()? },
        b'E' => {
            let portal = body.text()?;
            Message::Execute { portal, rows_max: usize::try_from(body.i32()?).unwrap_or(0) }
        }
        b'H' => Message::Flush,
        b'S' => Message::Sync,
        b'X' => Message::Terminate,
        b'd' => Message::CopyData(std::mem::take(&mut body.0)),
        b'c' => Message::CopyDone,
        b'f' => Message::CopyFail(body.text()?),
        b'p' => Message::Password(std::mem::take(&mut body.0)),
        _ => {
            return Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "fastpath function calls are not supported",
            ));
        }
    };
    if !body.0.is_empty() {
        return Err(malformed_message());
    }
    Ok(Some(message))
}

fn bind(body: &mut Body) -> Result<Bind, SqlError> {
    let (portal, statement) = (body.text()?, body.text()?);
    let formats = body.formats()?;
    let count = body.count(4)?;
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        let length = body.i32()?;
        values.push(match usize::try_from(length) {
            Err(_) if length == -1 => None,
            Ok(length) if length <= body.0.len() => Some(body.0.split_to(length)),
            _ => return Err(malformed_message()),
        });
    }
    Ok(Bind { portal, statement, formats, values, result_formats: body.formats()? })
}

/// The length of a complete message, without its kind byte.
fn length(input: &BytesMut, at: usize, max: usize) -> Result<Option<usize>, SqlError> {
    let Some(bytes) = input.get(at..at + 4) else {
        return Ok(None);
    };
    let length = i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    match usize::try_from(length) {
        Ok(length) if (4..=max).contains(&length) => {
            // The first message has a code after its length.
            if at == 0 && length < 8 {
                return Err(SqlError::fatal(
                    SqlState::PROTOCOL_VIOLATION,
                    "invalid length of startup packet",
                ));
            }
            Ok((input.len() >= at + length).then_some(length))
        }
        _ => Err(SqlError::fatal(SqlState::PROTOCOL_VIOLATION, "invalid message length")),
    }
}

fn malformed_message() -> SqlError {
    SqlError::fatal(SqlState::PROTOCOL_VIOLATION, "invalid message format")
}

/// The unparsed rest of a message.
struct Body(Bytes);

impl Body {
    fn i16(&mut self) -> Result<i16, SqlError> {
        self.0.try_get_i16().map_err(|_| malformed_message())
    }

    fn i32(&mut self) -> Result<i32, SqlError> {
        self.0.try_get_i32().map_err(|_| malformed_message())
    }

    /// A count of items of at least `bytes` each.
    fn count(&mut self, bytes: usize) -> Result<usize, SqlError> {
        let count = usize::from(self.i16()? as u16);
        if count * bytes > self.0.len() { Err(malformed_message()) } else { Ok(count) }
    }

    fn formats(&mut self) -> Result<Vec<i16>, SqlError> {
        let count = self.count(2)?;
        (0..count)
            .map(|_| match self.i16()? {
                format @ (0 | 1) => Ok(format),
                other => Err(SqlError::new(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("unsupported format code: {other}"),
                )),
            })
            .collect()
    }

    fn text(&mut self) -> Result<String, SqlError> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or_else(malformed_message)?;
        let bytes = self.0.split_to(end);
        self.0.advance(1);
        String::from_utf8(bytes.into()).map_err(|_| {
            SqlError::new(
                SqlState::CHARACTER_NOT_IN_REPERTOIRE,
                "invalid byte sequence for encoding \"UTF8\"",
            )
        })
    }

    fn target(&mut self) -> Result<Target, SqlError> {
        match self.0.try_get_u8() {
            Ok(b'S') => Ok(Target::Statement),
            Ok(b'P') => Ok(Target::Portal),
            _ => Err(malformed_message()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<Option<Message>, String> {
        next(&mut BytesMut::from(bytes), true).map_err(|failure| failure.sqlstate.to_string())
    }

    #[test]
    fn messages_are_read() {
        assert_eq!(parse(b"Q\0\0\0\x0dSELECT 1\0"), Ok(Some(Message::Query("SELECT 1".into()))));
        assert_eq!(parse(b"S\0\0\0\x04"), Ok(Some(Message::Sync)));
        assert_eq!(
            parse(b"E\0\0\0\x09\0\0\0\0\x05"),
            Ok(Some(Message::Execute { portal: String::new(), rows_max: 5 }))
        );
        let bound = Bind {
            portal: String::new(),
            statement: "a".into(),
            formats: vec![1],
            values: vec![Some(Bytes::from_static(b"xy")), None],
            result_formats: vec![],
        };
        let bytes = b"B\0\0\0\x1b\0a\0\0\x01\0\x01\0\x02\0\0\0\x02xy\xff\xff\xff\xff\0\0";
        assert_eq!(parse(&[&b"B\0\0\0\x19"[..], &bytes[5..]].concat()), Ok(Some(Message::Bind(bound))));
    }

    #[test]
    fn incomplete_messages_wait() {
        for bytes in [&b""[..], b"Q", b"Q\0\0\0", b"Q\0\0\0\x09SEL"] {
            assert_eq!(parse(bytes), Ok(None), "{bytes:?}");
        }
    }

    #[test]
    fn malformed_messages_are_refused() {
        let cases: [(&[u8], &str); 8] = [
            (b"?\0\0\0\x04", "08P01"),
            (b"Q\0\0\0\x03", "08P01"),
            (b"Q\xff\xff\xff\xff", "08P01"),
            (b"Q\x7f\xff\xff\xff", "08P01"),
            (b"Q\0\0\0\x07ab\xff", "08P01"),
            (b"Q\0\0\0\x06\xff\0", "22021"),
            (b"S\0\0\0\x05x", "08P01"),
            (b"P\0\0\0\x08\0\0\x7f\xff", "08P01"),
        ];
        for (bytes, state) in cases {
            assert_eq!(parse(bytes), Err(state.to_string()), "{bytes:?}");
        }
    }
}
