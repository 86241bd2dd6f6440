//! Messages: a call of a method, its reply, or an exception.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

use crate::decode::{DecodeError, DecodeLimits, Reader};
use crate::value::ThriftValue;

/// The version of strict messages, in the upper half of their first word.
const VERSION: u32 = 0x8001;

/// The field of a reply that has the method's result; of a call, field 1 has the request.
const RESULT: i16 = 0;
const REQUEST: i16 = 1;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Call = 1,
    Reply = 2,
    Exception = 3,
    /// A call that gets no reply.
    OneWay = 4,
}

/// An error of the protocol's own, `TApplicationException`; the connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplicationError {
    UnknownMethod = 1,
    InternalError = 6,
    ProtocolError = 7,
}

/// A message.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub kind: Kind,
    pub method: String,
    /// A reply has the number of its call.
    pub sequence: i32,
    /// A struct.
    pub body: ThriftValue,
}

impl Message {
    /// A call of a method with one argument.
    pub fn call(method: impl Into<String>, sequence: i32, request: ThriftValue) -> Self {
        let body = ThriftValue::Struct(vec![(REQUEST, request)]);
        Self { kind: Kind::Call, method: method.into(), sequence, body }
    }

    /// The reply to this call.
    pub fn reply(&self, result: ThriftValue) -> Self {
        self.answer(Kind::Reply, ThriftValue::Struct(vec![(RESULT, result)]))
    }

    /// The exception that this call gets in place of a reply.
    pub fn exception(&self, error: ApplicationError, message: impl fmt::Display) -> Self {
        let body = ThriftValue::Struct(vec![
            (1, ThriftValue::text(message.to_string())),
            (2, ThriftValue::I32(error as i32)),
        ]);
        self.answer(Kind::Exception, body)
    }

    fn answer(&self, kind: Kind, body: ThriftValue) -> Self {
        Self { kind, method: self.method.clone(), sequence: self.sequence, body }
    }

    /// The argument of a call; a struct without fields where there is none.
    pub fn request(&self) -> ThriftValue {
        self.body.field(REQUEST).cloned().unwrap_or(ThriftValue::Struct(Vec::new()))
    }

    /// The result in a reply.
    pub fn result(&self) -> Option<&ThriftValue> {
        self.body.field(RESULT)
    }

    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u32(VERSION << 16 | self.kind as u32);
        ThriftValue::text(&self.method).encode(out);
        out.put_i32(self.sequence);
        self.body.encode(out);
    }

    /// Decodes the message at the beginning of `input`. Returns its length, too.
    ///
    /// Errors: `input` ends before the message does, has none, or one beyond the limits.
    pub fn decode(input: &[u8], limits: DecodeLimits) -> Result<(Self, usize), DecodeError> {
        let mut reader = Reader::new(input, limits);
        let first = reader.u32()?;
        if first >> 16 != VERSION {
            return Err(DecodeError::Invalid);
        }
        let kind = match first & 0xff {
            1 => Kind::Call,
            2 => Kind::Reply,
            3 => Kind::Exception,
            4 => Kind::OneWay,
            _ => return Err(DecodeError::Invalid),
        };
        let method: Bytes = reader.bytes()?;
        let method = String::from_utf8(method.to_vec()).map_err(|_| DecodeError::Invalid)?;
        let sequence = reader.u32()? as i32;
        let body = reader.structure()?;
        Ok((Self { kind, method, sequence, body }, reader.position()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Type;

    const LIMITS: DecodeLimits = DecodeLimits { bytes: 1 << 20, values: 1000 };

    fn bytes_of(message: &Message) -> BytesMut {
        let mut out = BytesMut::new();
        message.encode(&mut out);
        out
    }

    #[test]
    fn messages_round_trip_and_are_incomplete_until_their_last_byte() {
        let value = ThriftValue::Struct(vec![
            (1, ThriftValue::text("a")),
            (2, ThriftValue::List(vec![ThriftValue::I64(-5), ThriftValue::I64(7)])),
            (3, ThriftValue::Struct(vec![(9, ThriftValue::Bool(true)), (10, ThriftValue::Double(0.5))])),
            (4, ThriftValue::Map(vec![(ThriftValue::text("k"), ThriftValue::text("v"))])),
            (5, ThriftValue::I16(-2)),
            (6, ThriftValue::Byte(3)),
            (7, ThriftValue::I32(1 << 30)),
        ]);
        let call = Message::call("Method", 3, value.clone());
        let bytes = bytes_of(&call);
        let (read, length) = Message::decode(&bytes, LIMITS).unwrap();
        assert_eq!((&read, length), (&call, bytes.len()));
        assert_eq!(read.request(), value);
        for cut in 0..bytes.len() {
            match Message::decode(&bytes[..cut], LIMITS) {
                Err(DecodeError::Incomplete(needed)) => assert!(needed > cut && needed <= bytes.len()),
                other => panic!("{cut} bytes: {other:?}"),
            }
        }
        let reply = call.reply(ThriftValue::I32(1));
        let (read, _) = Message::decode(&bytes_of(&reply), LIMITS).unwrap();
        assert_eq!((read.result(), read.sequence), (Some(&ThriftValue::I32(1)), 3));
    }

    #[test]
    fn what_is_encoded_before_is_decoded_as_its_type() {
        let mut list = BytesMut::new();
        ThriftValue::List(vec![ThriftValue::I64(1), ThriftValue::I64(2)]).encode(&mut list);
        let body = ThriftValue::Struct(vec![
            (1, ThriftValue::Encoded(Type::List, list.freeze())),
            (2, ThriftValue::EmptyList(Type::Binary)),
        ]);
        let bytes = bytes_of(&Message::call("M", 0, body));
        let (read, _) = Message::decode(&bytes, LIMITS).unwrap();
        assert_eq!(
            read.request().field(1),
            Some(&ThriftValue::List(vec![ThriftValue::I64(1), ThriftValue::I64(2)]))
        );
        assert_eq!(read.request().field(2), Some(&ThriftValue::List(vec![])));
    }

    #[test]
    fn hostile_messages_are_refused() {
        assert_eq!(Message::decode(b"HTTP/1.1", LIMITS), Err(DecodeError::Invalid));
        // A list that claims two thousand million values.
        let mut huge = bytes_of(&Message::call("M", 0, ThriftValue::List(vec![ThriftValue::I32(1)])));
        let at = huge.len() - 4 - 4 - 1;
        huge[at..at + 4].copy_from_slice(&i32::MAX.to_be_bytes());
        assert_eq!(Message::decode(&huge, LIMITS), Err(DecodeError::TooLarge));
        // A text longer than a message may be, of which nothing has arrived.
        let mut long = bytes_of(&Message::call("M", 0, ThriftValue::text("")));
        long.truncate(long.len() - 5);
        long.extend_from_slice(&i32::MAX.to_be_bytes());
        assert_eq!(Message::decode(&long, LIMITS), Err(DecodeError::TooLarge));
        let mut deep = ThriftValue::Bool(true);
        for _ in 0..40 {
            deep = ThriftValue::List(vec![deep]);
        }
        assert_eq!(
            Message::decode(&bytes_of(&Message::call("M", 0, deep)), LIMITS),
            Err(DecodeError::Invalid)
        );
        let many = ThriftValue::List(vec![ThriftValue::Bool(true); 999]);
        assert_eq!(
            Message::decode(&bytes_of(&Message::call("M", 0, many)), LIMITS),
            Err(DecodeError::TooLarge)
        );
    }

    #[test]
    fn damaged_messages_are_errors_and_never_panics() {
        let request = ThriftValue::Struct(vec![
            (
                1,
                ThriftValue::Struct(vec![
                    (1, ThriftValue::text("abc")),
                    (2, ThriftValue::List(vec![ThriftValue::text("x")])),
                ]),
            ),
            (4, ThriftValue::Map(vec![(ThriftValue::text("k"), ThriftValue::text("v"))])),
        ]);
        let bytes = bytes_of(&Message::call("OpenSession", 1, request));
        for at in 0..bytes.len() {
            for value in [0, 1, 2, 11, 12, 13, 15, 0x7f, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                let _ = Message::decode(&damaged, LIMITS);
            }
        }
    }
}
