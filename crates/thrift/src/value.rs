//! Values, and their encoding.

use bytes::{BufMut, Bytes, BytesMut};

/// The number of a type on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Type {
    Bool = 2,
    Byte = 3,
    Double = 4,
    I16 = 6,
    I32 = 8,
    I64 = 10,
    Binary = 11,
    Struct = 12,
    Map = 13,
    Set = 14,
    List = 15,
}

/// The type that ends a struct.
pub(crate) const STOP: u8 = 0;

impl Type {
    pub(crate) fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            2 => Self::Bool,
            3 => Self::Byte,
            4 => Self::Double,
            6 => Self::I16,
            8 => Self::I32,
            10 => Self::I64,
            11 => Self::Binary,
            12 => Self::Struct,
            13 => Self::Map,
            14 => Self::Set,
            15 => Self::List,
            _ => return None,
        })
    }
}

/// A value without its type's name, which the reader knows.
#[derive(Debug, Clone, PartialEq)]
pub enum ThriftValue {
    Bool(bool),
    Byte(i8),
    I16(i16),
    I32(i32),
    I64(i64),
    Double(f64),
    /// A text, or bytes.
    Binary(Bytes),
    /// Fields by number.
    Struct(Vec<(i16, Self)>),
    /// A set is decoded as a list.
    List(Vec<Self>),
    Map(Vec<(Self, Self)>),
    /// An empty list of this type; [`Self::List`] without values is one of structs.
    EmptyList(Type),
    /// Encoded before; never decoded.
    Encoded(Type, Bytes),
}

impl ThriftValue {
    pub fn text(text: impl AsRef<str>) -> Self {
        Self::Binary(Bytes::copy_from_slice(text.as_ref().as_bytes()))
    }

    fn kind(&self) -> Type {
        match self {
            Self::Bool(_) => Type::Bool,
            Self::Byte(_) => Type::Byte,
            Self::Double(_) => Type::Double,
            Self::I16(_) => Type::I16,
            Self::I32(_) => Type::I32,
            Self::I64(_) => Type::I64,
            Self::Binary(_) => Type::Binary,
            Self::Struct(_) => Type::Struct,
            Self::Map(_) => Type::Map,
            Self::List(_) | Self::EmptyList(_) => Type::List,
            Self::Encoded(kind, _) => *kind,
        }
    }

    /// A field of a struct.
    pub fn field(&self, number: i16) -> Option<&Self> {
        match self {
            Self::Struct(fields) => fields.iter().find(|(id, _)| *id == number).map(|(_, value)| value),
            _ => None,
        }
    }

    pub fn bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// An integer of any width.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Byte(value) => Some(i64::from(*value)),
            Self::I16(value) => Some(i64::from(*value)),
            Self::I32(value) => Some(i64::from(*value)),
            Self::I64(value) => Some(*value),
            _ => None,
        }
    }

    pub fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Binary(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// A text; bytes that are no UTF-8 are replaced.
    pub fn string(&self) -> Option<String> {
        self.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// The values of a list; none for others.
    pub fn items(&self) -> &[Self] {
        match self {
            Self::List(values) => values,
            _ => &[],
        }
    }

    /// The pairs of a map of texts; none for others.
    pub fn pairs(&self) -> Vec<(String, String)> {
        let Self::Map(pairs) = self else { return Vec::new() };
        pairs.iter().filter_map(|(key, value)| Some((key.string()?, value.string()?))).collect()
    }

    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Bool(value) => out.put_u8(u8::from(*value)),
            Self::Byte(value) => out.put_i8(*value),
            Self::I16(value) => out.put_i16(*value),
            Self::I32(value) => out.put_i32(*value),
            Self::I64(value) => out.put_i64(*value),
            Self::Double(value) => out.put_f64(*value),
            Self::Binary(bytes) => {
                out.put_i32(bytes.len() as i32);
                out.put_slice(bytes);
            }
            Self::Struct(fields) => {
                for (number, value) in fields {
                    out.put_u8(value.kind() as u8);
                    out.put_i16(*number);
                    value.encode(out);
                }
                out.put_u8(STOP);
            }
            Self::List(values) => {
                out.put_u8(values.first().map_or(Type::Struct, Self::kind) as u8);
                out.put_i32(values.len() as i32);
                values.iter().for_each(|value| value.encode(out));
            }
            Self::EmptyList(of) => {
                out.put_u8(*of as u8);
                out.put_i32(0);
            }
            Self::Map(pairs) => {
                let (key, value) = pairs
                    .first()
                    .map_or((Type::Binary, Type::Binary), |(key, value)| (key.kind(), value.kind()));
                out.put_u8(key as u8);
                out.put_u8(value as u8);
                out.put_i32(pairs.len() as i32);
                for (key, value) in pairs {
                    key.encode(out);
                    value.encode(out);
                }
            }
            Self::Encoded(_, bytes) => out.put_slice(bytes),
        }
    }
}
