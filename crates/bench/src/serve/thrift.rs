//! Thrift binary protocol, the subset that HiveServer2 uses.
//!
//! Source: "Thrift Binary protocol encoding" of Apache Thrift's specification.

use bytes::{BufMut, BytesMut};

/// A value without its type's name, which the reader knows.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Bool(bool),
    Byte(i8),
    I16(i16),
    I32(i32),
    I64(i64),
    Double(f64),
    Bytes(Vec<u8>),
    /// Fields by number.
    Struct(Vec<(i16, Value)>),
    List(Vec<Value>),
    /// Map of strings, in requests; maps in answers are skipped.
    Map(Vec<(Value, Value)>),
}

const STOP: u8 = 0;
const STRUCT: u8 = 12;
const STRING: u8 = 11;

/// Maximum nesting depth; deeper answers are rejected.
const DEPTH_MAX: usize = 32;

impl Value {
    pub fn text(text: &str) -> Self {
        Self::Bytes(text.as_bytes().to_vec())
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Bool(_) => 2,
            Self::Byte(_) => 3,
            Self::Double(_) => 4,
            Self::I16(_) => 6,
            Self::I32(_) => 8,
            Self::I64(_) => 10,
            Self::Bytes(_) => STRING,
            Self::Struct(_) => STRUCT,
            Self::Map(_) => 13,
            Self::List(_) => 15,
        }
    }

    /// Returns a field of a struct.
    pub fn field(&self, number: i16) -> Option<&Self> {
        match self {
            Self::Struct(fields) => fields.iter().find(|(id, _)| *id == number).map(|(_, value)| value),
            _ => None,
        }
    }

    pub fn i32(&self) -> Option<i32> {
        match self {
            Self::I32(value) => Some(*value),
            _ => None,
        }
    }

    pub fn string(&self) -> Option<String> {
        match self {
            Self::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        }
    }

    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Bool(value) => out.put_u8(u8::from(*value)),
            Self::Byte(value) => out.put_i8(*value),
            Self::I16(value) => out.put_i16(*value),
            Self::I32(value) => out.put_i32(*value),
            Self::I64(value) => out.put_i64(*value),
            Self::Double(value) => out.put_f64(*value),
            Self::Bytes(bytes) => {
                out.put_i32(bytes.len() as i32);
                out.put_slice(bytes);
            }
            Self::Struct(fields) => {
                for (number, value) in fields {
                    out.put_u8(value.kind());
                    out.put_i16(*number);
                    value.encode(out);
                }
                out.put_u8(STOP);
            }
            Self::List(values) => {
                out.put_u8(values.first().map_or(STRUCT, Self::kind));
                out.put_i32(values.len() as i32);
                values.iter().for_each(|value| value.encode(out));
            }
            Self::Map(pairs) => {
                out.put_u8(STRING);
                out.put_u8(STRING);
                out.put_i32(pairs.len() as i32);
                for (key, value) in pairs {
                    key.encode(out);
                    value.encode(out);
                }
            }
        }
    }
}

/// Encodes a call of a method with one argument, the request.
pub fn call(method: &str, sequence: i32, request: Value, out: &mut BytesMut) {
    const VERSION_AND_CALL: u32 = 0x8001_0001;
    out.put_u32(VERSION_AND_CALL);
    Value::text(method).encode(out);
    out.put_i32(sequence);
    Value::Struct(vec![(1, request)]).encode(out);
}

/// Why bytes are not a message.
#[derive(Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// More bytes are needed.
    Incomplete,
    /// The bytes are invalid.
    Invalid,
}

/// Decodes a reply; returns its value and length. The value is field 0, the method's result, or an exception.
pub fn reply(input: &[u8]) -> Result<(Value, usize), DecodeError> {
    let mut reader = Reader { input, at: 0 };
    let version = reader.u32()?;
    if version >> 16 != 0x8001 {
        return Err(DecodeError::Invalid);
    }
    reader.bytes()?;
    reader.u32()?;
    let value = reader.value(STRUCT, 0)?;
    Ok((value, reader.at))
}

struct Reader<'a> {
    input: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, length: usize) -> Result<&[u8], DecodeError> {
        let taken = self.input.get(self.at..self.at.saturating_add(length)).ok_or(DecodeError::Incomplete)?;
        self.at += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.take(N)?.try_into().map_err(|_| DecodeError::Invalid)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    fn length(&mut self) -> Result<usize, DecodeError> {
        usize::try_from(i32::from_be_bytes(self.array()?)).map_err(|_| DecodeError::Invalid)
    }

    fn bytes(&mut self) -> Result<Vec<u8>, DecodeError> {
        let length = self.length()?;
        Ok(self.take(length)?.to_vec())
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    fn value(&mut self, kind: u8, depth: usize) -> Result<Value, DecodeError> {
        if depth > DEPTH_MAX {
            return Err(DecodeError::Invalid);
        }
        Ok(match kind {
            2 => Value::Bool(self.byte()? != 0),
            3 => Value::Byte(self.byte()? as i8),
            4 => Value::Double(f64::from_be_bytes(self.array()?)),
            6 => Value::I16(i16::from_be_bytes(self.array()?)),
            8 => Value::I32(i32::from_be_bytes(self.array()?)),
            10 => Value::I64(i64::from_be_bytes(self.array()?)),
            STRING => Value::Bytes(self.bytes()?),
            STRUCT => {
                let mut fields = Vec::new();
                loop {
                    let kind = self.byte()?;
                    if kind == STOP {
                        break Value::Struct(fields);
                    }
                    let number = i16::from_be_bytes(self.array()?);
                    fields.push((number, self.value(kind, depth + 1)?));
                }
            }
            13 => {
                let (key, value) = (self.byte()?, self.byte()?);
                let count = self.length()?;
                let pair =
                    |reader: &mut Self| Ok((reader.value(key, depth + 1)?, reader.value(value, depth + 1)?));
                Value::Map((0..count).map(|_| pair(self)).collect::<Result<_, DecodeError>>()?)
            }
            14 | 15 => {
                let kind = self.byte()?;
                let count = self.length()?;
                Value::List(
                    (0..count).map(|_| self.value(kind, depth + 1)).collect::<Result<_, DecodeError>>()?,
                )
            }
            _ => return Err(DecodeError::Invalid),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip() {
        let value = Value::Struct(vec![
            (1, Value::text("a")),
            (2, Value::List(vec![Value::I64(-5), Value::I64(7)])),
            (3, Value::Struct(vec![(9, Value::Bool(true)), (10, Value::Double(0.5))])),
            (4, Value::Map(vec![(Value::text("k"), Value::text("v"))])),
            (5, Value::I16(-2)),
            (6, Value::Byte(3)),
            (7, Value::I32(1 << 30)),
        ]);
        let mut out = BytesMut::new();
        call("Method", 3, value.clone(), &mut out);
        let (read, length) = reply(&out).unwrap();
        assert_eq!(length, out.len());
        assert_eq!(read.field(1), Some(&value));
        for cut in 0..out.len() {
            assert_eq!(reply(&out[..cut]), Err(DecodeError::Incomplete), "{cut} bytes");
        }
        assert_eq!(reply(b"HTTP/1.1"), Err(DecodeError::Invalid));
    }
}
