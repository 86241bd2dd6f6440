//! Decoding, within limits: a peer is not trusted.

use bytes::Bytes;

use crate::value::{STOP, ThriftValue, Type};

/// Maximum nesting depth.
const DEPTH_MAX: usize = 32;

/// What a message may cost.
#[derive(Debug, Clone, Copy)]
pub struct DecodeLimits {
    /// Its maximum length.
    pub bytes: usize,
    /// Its maximum number of values, each of which takes some 40 bytes of memory.
    pub values: usize,
}

/// Why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// At least this many bytes are needed, from the message's first one on.
    Incomplete(usize),
    /// The bytes are no message of this protocol.
    Invalid,
    /// The message is larger than the limits allow.
    TooLarge,
}

/// Reads values one after the other.
pub(crate) struct Reader<'a> {
    input: &'a [u8],
    at: usize,
    limits: DecodeLimits,
    values: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(input: &'a [u8], limits: DecodeLimits) -> Self {
        Self { input, at: 0, limits, values: 0 }
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let end = self.at.saturating_add(length);
        if end > self.limits.bytes {
            return Err(DecodeError::TooLarge);
        }
        let taken = self.input.get(self.at..end).ok_or(DecodeError::Incomplete(end))?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.take(N)?.try_into().map_err(|_| DecodeError::Invalid)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    fn length(&mut self) -> Result<usize, DecodeError> {
        usize::try_from(i32::from_be_bytes(self.array()?)).map_err(|_| DecodeError::Invalid)
    }

    /// The length of a container. Each of its values takes a byte at least.
    fn count(&mut self) -> Result<usize, DecodeError> {
        let count = self.length()?;
        if count > self.limits.values || count > self.limits.bytes.saturating_sub(self.at) {
            return Err(DecodeError::TooLarge);
        }
        Ok(count)
    }

    pub(crate) fn bytes(&mut self) -> Result<Bytes, DecodeError> {
        let length = self.length()?;
        Ok(Bytes::copy_from_slice(self.take(length)?))
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    fn kind(&mut self) -> Result<Type, DecodeError> {
        Type::of(self.byte()?).ok_or(DecodeError::Invalid)
    }

    pub(crate) fn structure(&mut self) -> Result<ThriftValue, DecodeError> {
        self.value(Type::Struct, 0)
    }

    fn value(&mut self, kind: Type, depth: usize) -> Result<ThriftValue, DecodeError> {
        self.values += 1;
        if self.values > self.limits.values {
            return Err(DecodeError::TooLarge);
        }
        if depth > DEPTH_MAX {
            return Err(DecodeError::Invalid);
        }
        Ok(match kind {
            Type::Bool => ThriftValue::Bool(self.byte()? != 0),
            Type::Byte => ThriftValue::Byte(self.byte()? as i8),
            Type::Double => ThriftValue::Double(f64::from_be_bytes(self.array()?)),
            Type::I16 => ThriftValue::I16(i16::from_be_bytes(self.array()?)),
            Type::I32 => ThriftValue::I32(i32::from_be_bytes(self.array()?)),
            Type::I64 => ThriftValue::I64(i64::from_be_bytes(self.array()?)),
            Type::Binary => ThriftValue::Binary(self.bytes()?),
            Type::Struct => {
                let mut fields = Vec::new();
                loop {
                    let kind = self.byte()?;
                    if kind == STOP {
                        break ThriftValue::Struct(fields);
                    }
                    let kind = Type::of(kind).ok_or(DecodeError::Invalid)?;
                    let number = i16::from_be_bytes(self.array()?);
                    fields.push((number, self.value(kind, depth + 1)?));
                }
            }
            Type::Map => {
                // An empty map may have no types.
                let (key, value) = (self.byte()?, self.byte()?);
                let mut pairs = Vec::new();
                for _ in 0..self.count()? {
                    let kinds = (Type::of(key), Type::of(value));
                    let (Some(key), Some(value)) = kinds else { return Err(DecodeError::Invalid) };
                    pairs.push((self.value(key, depth + 1)?, self.value(value, depth + 1)?));
                }
                ThriftValue::Map(pairs)
            }
            Type::Set | Type::List => {
                let kind = self.kind()?;
                let mut values = Vec::new();
                for _ in 0..self.count()? {
                    values.push(self.value(kind, depth + 1)?);
                }
                ThriftValue::List(values)
            }
        })
    }
}
