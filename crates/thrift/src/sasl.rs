//! SASL around a connection: a negotiation, then frames with their length in front.

use bytes::{BufMut, Bytes, BytesMut};

use crate::decode::DecodeError;

/// Bytes of a frame's length.
pub const FRAME_BYTES: usize = 4;

/// Bytes before the payload of a negotiation's message.
const HEADER_BYTES: usize = 5;

/// What a message of the negotiation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SaslStatus {
    /// The mechanism's name.
    Start = 1,
    Ok = 2,
    /// The mechanism or the credentials are refused.
    Bad = 3,
    Error = 4,
    Complete = 5,
}

/// A message of the negotiation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Negotiation {
    pub status: SaslStatus,
    pub payload: Bytes,
}

impl Negotiation {
    pub fn new(status: SaslStatus, payload: impl AsRef<[u8]>) -> Self {
        Self { status, payload: Bytes::copy_from_slice(payload.as_ref()) }
    }

    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u8(self.status as u8);
        out.put_i32(self.payload.len() as i32);
        out.put_slice(&self.payload);
    }

    /// Decodes the message at the beginning of `input`. Returns its length, too. `most`: maximum bytes of its
    /// payload.
    pub fn decode(input: &[u8], most: usize) -> Result<(Self, usize), DecodeError> {
        let Some((header, rest)) = input.split_at_checked(HEADER_BYTES) else {
            return Err(DecodeError::Incomplete(HEADER_BYTES));
        };
        let status = match header[0] {
            1 => SaslStatus::Start,
            2 => SaslStatus::Ok,
            3 => SaslStatus::Bad,
            4 => SaslStatus::Error,
            5 => SaslStatus::Complete,
            _ => return Err(DecodeError::Invalid),
        };
        let length = i32::from_be_bytes([header[1], header[2], header[3], header[4]]);
        let length = usize::try_from(length).map_err(|_| DecodeError::Invalid)?;
        if length > most {
            return Err(DecodeError::TooLarge);
        }
        let end = HEADER_BYTES + length;
        let payload = rest.get(..length).ok_or(DecodeError::Incomplete(end))?;
        Ok((Self::new(status, payload), end))
    }
}

/// The length of the frame at the beginning of `input`, without its header. `most`: its maximum.
///
/// Errors: `input` ends before the frame does; the frame is too large.
pub fn frame_length(input: &[u8], most: usize) -> Result<usize, DecodeError> {
    let Some(header) = input.first_chunk::<FRAME_BYTES>() else {
        return Err(DecodeError::Incomplete(FRAME_BYTES));
    };
    let length = usize::try_from(i32::from_be_bytes(*header)).map_err(|_| DecodeError::Invalid)?;
    if length > most {
        return Err(DecodeError::TooLarge);
    }
    let end = FRAME_BYTES + length;
    if input.len() < end { Err(DecodeError::Incomplete(end)) } else { Ok(length) }
}

/// Puts a frame's header before the bytes of `out` from `start` on, where [`FRAME_BYTES`] were left free.
pub fn frame(out: &mut BytesMut, start: usize) {
    let length = (out.len() - start - FRAME_BYTES) as i32;
    out[start..start + FRAME_BYTES].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negotiations_and_frames_are_complete_at_their_last_byte() {
        let mut bytes = BytesMut::new();
        let start = Negotiation::new(SaslStatus::Start, "PLAIN");
        start.encode(&mut bytes);
        assert_eq!(&bytes[..], b"\x01\0\0\0\x05PLAIN");
        assert_eq!(Negotiation::decode(&bytes, 100), Ok((start, 10)));
        assert_eq!(Negotiation::decode(&bytes[..4], 100), Err(DecodeError::Incomplete(5)));
        assert_eq!(Negotiation::decode(&bytes[..9], 100), Err(DecodeError::Incomplete(10)));
        assert_eq!(Negotiation::decode(&bytes, 4), Err(DecodeError::TooLarge));
        assert_eq!(Negotiation::decode(b"\x09\0\0\0\0", 4), Err(DecodeError::Invalid));
        let mut framed = BytesMut::from(&b"xx\0\0\0\0abc"[..]);
        frame(&mut framed, 2);
        assert_eq!(frame_length(&framed[2..], 10), Ok(3));
        assert_eq!(frame_length(&framed[2..8], 10), Err(DecodeError::Incomplete(7)));
        assert_eq!(frame_length(&framed[2..], 2), Err(DecodeError::TooLarge));
        assert_eq!(frame_length(&[0xff; 4], 2), Err(DecodeError::Invalid));
    }
}
