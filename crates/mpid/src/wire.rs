//! Encoding of numbers and strings in control messages.

/// Message writer.
#[derive(Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.u64(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    pub fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }
}

/// Reader of a [`Writer`]'s messages.
pub struct Reader<'a>(pub &'a [u8]);

const SHORT: Damaged = Damaged("a message that ends too early");

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Damaged> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn u8(&mut self) -> Result<u8, Damaged> {
        Ok(self.take(1)?[0])
    }

    pub fn u32(&mut self) -> Result<u32, Damaged> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    pub fn u64(&mut self) -> Result<u64, Damaged> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().expect("eight bytes")))
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], Damaged> {
        let bytes = usize::try_from(self.u64()?).map_err(|_| SHORT)?;
        self.take(bytes)
    }

    pub fn text(&mut self) -> Result<String, Damaged> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }
}

/// Bytes that this library did not write: a bug, or corrupted memory or disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Damaged(pub &'static str);
