//! Handles of sessions and operations: a public name and a secret, 16 bytes each.

use bytes::Bytes;
use harrier_thrift::ThriftValue;
use uuid::Uuid;

use crate::http::are_equal;

/// The name of a session or operation.
pub(super) type Guid = [u8; 16];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle {
    pub guid: Guid,
    secret: [u8; 16],
}

impl Handle {
    pub fn new() -> Self {
        Self { guid: *Uuid::new_v4().as_bytes(), secret: *Uuid::new_v4().as_bytes() }
    }

    /// Reads a `THandleIdentifier`.
    pub fn read(identifier: Option<&ThriftValue>) -> Option<Self> {
        let part = |number| identifier?.field(number)?.bytes()?.as_ref().try_into().ok();
        Some(Self { guid: part(1)?, secret: part(2)? })
    }

    /// A `THandleIdentifier`.
    pub fn write(&self) -> ThriftValue {
        let part = |bytes: &[u8]| ThriftValue::Binary(Bytes::copy_from_slice(bytes));
        ThriftValue::Struct(vec![(1, part(&self.guid)), (2, part(&self.secret))])
    }

    /// The name as text, as Hive's messages have it.
    pub fn name(&self) -> Uuid {
        Uuid::from_bytes(self.guid)
    }

    /// Compares secrets in constant time.
    pub fn is_same(&self, other: &Self) -> bool {
        self.guid == other.guid && are_equal(&self.secret, &other.secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_read_as_they_were_written() {
        let handle = Handle::new();
        let read = Handle::read(Some(&handle.write())).unwrap();
        assert!(read.is_same(&handle) && !read.is_same(&Handle::new()));
        assert!(!Handle { secret: [0; 16], ..handle }.is_same(&handle));
        let short = ThriftValue::Struct(vec![(1, ThriftValue::text("abc")), (2, ThriftValue::text("abc"))]);
        assert!(Handle::read(Some(&short)).is_none());
        assert!(Handle::read(None).is_none());
    }
}
