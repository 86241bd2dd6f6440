//! Untyped values of Thrift's compact protocol: parse, modify, serialize.
//!
//! Source: Apache Thrift, "Thrift Compact protocol encoding"; type numbers are those of fields and lists
//! there.

/// The deepest nesting of structs and lists. Parquet needs seven.
const DEPTH_MAX: usize = 32;

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const STRUCT: u8 = 12;

/// A list whose length follows its header.
const LONG_LIST: u8 = 15;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Bool(bool),
    Byte(u8),
    /// 16, 32 or 64 bits: the type's number, and the value.
    Int(u8, i64),
    Double([u8; 8]),
    Binary(Vec<u8>),
    /// A list or a set: its type's number, that of its elements, and these.
    List(u8, u8, Vec<Value>),
    Struct(Struct),
}

/// Fields by id, in file order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Struct(pub(super) Vec<(i16, Value)>);

impl Value {
    pub(super) fn i32(value: i32) -> Self {
        Self::Int(I32, value.into())
    }

    /// An integer of any width.
    pub(super) fn number(&self) -> Option<i64> {
        match self {
            Self::Int(_, value) => Some(*value),
            _ => None,
        }
    }

    fn type_number(&self) -> u8 {
        match self {
            Self::Bool(true) => TRUE,
            Self::Bool(false) => FALSE,
            Self::Byte(_) => BYTE,
            Self::Int(kind, _) => *kind,
            Self::Double(_) => DOUBLE,
            Self::Binary(_) => BINARY,
            Self::List(kind, ..) => *kind,
            Self::Struct(_) => STRUCT,
        }
    }

    /// Whether it has a type of [`Kind`].
    pub(super) fn is(&self, kind: Kind) -> bool {
        match (self, kind) {
            (Self::Bool(_), Kind::Bool)
            | (Self::Int(I32, _), Kind::I32)
            | (Self::Int(I64, _), Kind::I64)
            | (Self::Int(I16, _), Kind::I16)
            | (Self::Binary(_), Kind::Binary)
            | (Self::Struct(_), Kind::Struct) => true,
            (Self::List(LIST, element, elements), Kind::ListOf(kind)) => {
                elements.is_empty() || *element == kind.number()
            }
            _ => false,
        }
    }
}

/// A type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    I16,
    I32,
    I64,
    Binary,
    Struct,
    ListOf(Element),
}

/// A type of the elements of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    I32,
    Binary,
    Struct,
}

impl Element {
    fn number(self) -> u8 {
        match self {
            Self::I32 => I32,
            Self::Binary => BINARY,
            Self::Struct => STRUCT,
        }
    }
}

impl Struct {
    pub(super) fn get(&self, id: i16) -> Option<&Value> {
        self.0.iter().find(|(known, _)| *known == id).map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, id: i16) -> Option<&mut Value> {
        self.0.iter_mut().find(|(known, _)| *known == id).map(|(_, value)| value)
    }

    pub(super) fn number(&self, id: i16) -> Option<i64> {
        self.get(id)?.number()
    }

    pub(super) fn set(&mut self, id: i16, value: Value) {
        self.remove(id);
        self.0.push((id, value));
        self.0.sort_by_key(|(id, _)| *id);
    }

    pub(super) fn remove(&mut self, id: i16) {
        self.0.retain(|(known, _)| *known != id);
    }

    /// The structs of a list.
    pub(super) fn structs_mut(&mut self, id: i16) -> impl Iterator<Item = &mut Struct> {
        let elements: &mut [Value] = match self.get_mut(id) {
            Some(Value::List(_, _, elements)) => elements,
            _ => &mut [],
        };
        elements.iter_mut().filter_map(|element| match element {
            Value::Struct(element) => Some(element),
            _ => None,
        })
    }

    /// Parses a struct at the start of `bytes`, and returns the number of bytes left; `None` if invalid.
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let mut rest = bytes;
        let read = read_struct(&mut rest, 0)?;
        Some((read, rest.len()))
    }

    pub(super) fn serialize(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_struct(self, &mut bytes);
        bytes
    }
}

fn read_byte(bytes: &mut &[u8]) -> Option<u8> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*first)
}

fn read_bytes<'b>(bytes: &mut &'b [u8], count: usize) -> Option<&'b [u8]> {
    let (read, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(read)
}

fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = read_byte(bytes)?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn read_zigzag(bytes: &mut &[u8]) -> Option<i64> {
    let value = read_varint(bytes)?;
    Some((value >> 1) as i64 ^ -((value & 1) as i64))
}

fn read_struct(bytes: &mut &[u8], depth: usize) -> Option<Struct> {
    if depth > DEPTH_MAX {
        return None;
    }
    let (mut fields, mut id) = (Vec::new(), 0_i16);
    loop {
        let head = read_byte(bytes)?;
        if head == 0 {
            return Some(Struct(fields));
        }
        id = match head >> 4 {
            0 => i16::try_from(read_zigzag(bytes)?).ok()?,
            step => id.checked_add(step.into())?,
        };
        let value = match head & 0x0f {
            TRUE => Value::Bool(true),
            FALSE => Value::Bool(false),
            kind => read_value(bytes, kind, depth)?,
        };
        fields.push((id, value));
    }
}

fn read_value(bytes: &mut &[u8], kind: u8, depth: usize) -> Option<Value> {
    Some(match kind {
        BYTE => Value::Byte(read_byte(bytes)?),
        I16 | I32 | I64 => Value::Int(kind, read_zigzag(bytes)?),
        DOUBLE => Value::Double(read_bytes(bytes, 8)?.try_into().ok()?),
        BINARY => {
            let count = usize::try_from(read_varint(bytes)?).ok()?;
            Value::Binary(read_bytes(bytes, count)?.to_vec())
        }
        LIST | SET => {
            let head = read_byte(bytes)?;
            let count = match head >> 4 {
                LONG_LIST => usize::try_from(read_varint(bytes)?).ok()?,
                count => count.into(),
            };
            // An element has at least one byte.
            if count > bytes.len() {
                return None;
            }
            let element = head & 0x0f;
            let elements = (0..count).map(|_| match element {
                TRUE | FALSE => Some(Value::Bool(read_byte(bytes)? == TRUE)),
                element => read_value(bytes, element, depth + 1),
            });
            Value::List(kind, element, elements.collect::<Option<_>>()?)
        }
        STRUCT => Value::Struct(read_struct(bytes, depth + 1)?),
        _ => return None,
    })
}

fn write_varint(mut value: u64, bytes: &mut Vec<u8>) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn write_zigzag(value: i64, bytes: &mut Vec<u8>) {
    write_varint(((value << 1) ^ (value >> 63)) as u64, bytes);
}

fn write_struct(of: &Struct, bytes: &mut Vec<u8>) {
    let mut last = 0_i16;
    for (id, value) in &of.0 {
        let kind = value.type_number();
        match id.checked_sub(last) {
            Some(step @ 1..=15) => bytes.push((step as u8) << 4 | kind),
            _ => {
                bytes.push(kind);
                write_zigzag((*id).into(), bytes);
            }
        }
        last = *id;
        if !matches!(value, Value::Bool(_)) {
            write_value(value, bytes);
        }
    }
    bytes.push(0);
}

fn write_value(value: &Value, bytes: &mut Vec<u8>) {
    match value {
        Value::Bool(value) => bytes.push(if *value { TRUE } else { FALSE }),
        Value::Byte(value) => bytes.push(*value),
        Value::Int(_, value) => write_zigzag(*value, bytes),
        Value::Double(value) => bytes.extend(value),
        Value::Binary(value) => {
            write_varint(value.len() as u64, bytes);
            bytes.extend(value);
        }
        Value::List(_, element, elements) => {
            match u8::try_from(elements.len()) {
                Ok(count) if count < LONG_LIST => bytes.push(count << 4 | element),
                _ => {
                    bytes.push(LONG_LIST << 4 | element);
                    write_varint(elements.len() as u64, bytes);
                }
            }
            elements.iter().for_each(|element| write_value(element, bytes));
        }
        Value::Struct(of) => write_struct(of, bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip() {
        let inner = Struct(vec![(1, Value::Bool(false)), (2, Value::Bool(true)), (40, Value::Byte(7))]);
        let long = (0..20).map(|number| Value::Int(I64, number * 1_000_000_007 - 9)).collect();
        let of = Struct(vec![
            (1, Value::i32(-5)),
            (3, Value::Binary(b"text".to_vec())),
            (4, Value::List(LIST, I64, long)),
            (5, Value::List(LIST, STRUCT, vec![Value::Struct(inner.clone())])),
            (6, Value::List(SET, TRUE, vec![Value::Bool(true), Value::Bool(false)])),
            (7, Value::Double(1.5_f64.to_le_bytes())),
            (700, Value::Struct(inner)),
            (701, Value::Int(I64, i64::MIN)),
        ]);
        let bytes = of.serialize();
        assert_eq!(Struct::read(&bytes), Some((of.clone(), 0)));
        // A prefix is invalid, and the number of trailing bytes is returned.
        assert!((0..bytes.len()).all(|end| Struct::read(&bytes[..end]).is_none()));
        let more = [bytes.as_slice(), b"more"].concat();
        assert_eq!(Struct::read(&more), Some((of, 4)));
    }

    #[test]
    fn invalid_input_is_rejected() {
        // A list with more elements than bytes, unterminated structs, an unknown type.
        assert_eq!(Struct::read(&[0x19, 0xf6, 0xff, 0xff, 0xff, 0xff, 0x0f]), None);
        assert_eq!(Struct::read(&[0x1c; 1 << 20]), None);
        assert_eq!(Struct::read(&[0x1e, 0]), None);
    }
}
