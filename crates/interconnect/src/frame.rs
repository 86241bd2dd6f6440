//! The frame, the unit on the wire: a 64-byte little-endian header and a payload. It travels as one message
//! of MPI, one record of a QUIC stream, or with others in a bundle (`bundle.rs`).
//!
//! ```text
//!  0      4      5      6      8       12      16       24         32              40    48       64
//!  ┌──────┬──────┬──────┬──────┬───────┬───────┬────────┬──────────┬───────────────┬─────┬────────┐
//!  │magic │ kind │ flags│ zero │ epoch │ zero  │ stream │ sequence │ payload bytes │  a  │ counts │ payload …
//!  └──────┴──────┴──────┴──────┴───────┴───────┴────────┴──────────┴───────────────┴─────┴────────┘
//! ```
//! `a` is the single argument of kinds that need one (bytes of credit, rows, streams opened). `sequence`
//! numbers the blocks of a stream, and separately its credits, from 0 on, to detect duplicates and gaps.
//! `counts` are the stream's counters at its producer when a block or the end leaves: see [`stamp`].
//!
//! Errors: [`Header::decode`] rejects a message that is too short, has another magic, an unknown kind,
//! another epoch, or a payload length that does not match. The receiver declares the sender lost, and no
//! other rank: it is not a Harrier rank of this gang, or its memory is corrupt.

use crate::counts::StreamCounts;
use crate::limits::HEADER_BYTES;
use harrier_mpi::shared::Loan;
use std::fmt;

const MAGIC: u32 = u32::from_le_bytes(*b"HRR1");

/// The kind of a frame. The direction refers to the two ends of a stream: the opener, which reads it, and the
/// producer, which writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Opener to producer: open `a` consecutive streams from this id on. Sequence: the window of each, bytes.
    /// Payload: the request.
    Open = 1,
    /// Producer to opener: one block. Sequence: blocks sent before. `a`: rows. Flag [`Header::FLAG_SCHEMA`]:
    /// the payload is the stream's schema.
    Block = 2,
    /// Producer to opener: the stream is complete. Sequence: blocks sent.
    End = 3,
    /// Producer to opener: the stream failed. Payload: the failure, see `Failure`.
    Fail = 4,
    /// Opener to producer: `a` bytes of the window were read. Sequence: credits given before.
    Credit = 5,
    /// Opener to producer: no more blocks are wanted. The producer still answers with `End`.
    Stop = 6,
    /// Opener to producer: one message of a call. Takes no credit, see `MESSAGES_BYTES_MAX`.
    Message = 7,
    /// Opener to producer: no more messages of a call will follow.
    MessagesEnd = 8,
    /// To any rank: answer with `Alive`.
    Ping = 9,
    /// Answer to `Ping`.
    Alive = 10,
    /// To any rank: the sender leaves the gang in good order and sends nothing after this. `a`: its exit
    /// status.
    Leave = 11,
    /// Reader to lender: these loans were read. Payload: their offsets, `u64` each.
    Return = 12,
    /// To the coordinator: the sender declares rank `a` lost. From the coordinator: rank `a` is no longer a
    /// member; if it is the receiver, it exits. Payload: the reason, as text.
    Lost = 13,
    /// Several frames to the same rank. Payload: the frames, each padded to a multiple of the header's size.
    Bundle = 14,
}

impl Kind {
    fn from_u8(value: u8) -> Option<Kind> {
        use Kind::*;
        [Open, Block, End, Fail, Credit, Stop, Message, MessagesEnd, Ping, Alive, Leave, Return, Lost, Bundle]
            .into_iter()
            .find(|kind| *kind as u8 == value)
    }
}

/// The decoded header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    pub flags: u8,
    pub epoch: u32,
    /// Allocated by the opener, unique among the streams it opened in this epoch.
    pub stream: u64,
    pub sequence: u64,
    pub payload_bytes: u64,
    pub a: u64,
    /// Counters of the stream at its producer.
    pub counts: StreamCounts,
}

/// Why a message is not a frame of this gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    Short { bytes: usize },
    Magic(u32),
    Kind(u8),
    Epoch { got: u32, want: u32 },
    Length { header: u64, arrived: u64 },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Short { bytes } => write!(f, "frame of {bytes} bytes is shorter than a header"),
            Malformed::Magic(magic) => write!(f, "frame starts with {magic:#010x}, not with Harrier's magic"),
            Malformed::Kind(kind) => write!(f, "frame of unknown kind {kind}"),
            Malformed::Epoch { got, want } => write!(f, "frame of epoch {got} in epoch {want}"),
            Malformed::Length { header, arrived } => {
                write!(f, "frame announces {header} payload bytes but {arrived} arrived")
            }
        }
    }
}

impl Header {
    /// The payload of a `Block` is the Arrow IPC encoding of the stream's schema, and takes no credit.
    pub const FLAG_SCHEMA: u8 = 1;
    /// An `Open` is a call: both sides send messages rather than batches.
    pub const FLAG_CALL: u8 = 2;

    /// The payload of a `Block` is in the sender's shared memory; the frame's own payload is the loan, see
    /// [`encode_loan`].
    pub const FLAG_SHARED: u8 = 4;

    /// Blocks of the streams of an `Open` may be compressed with this codec.
    pub const FLAG_LZ4: u8 = 8;
    pub const FLAG_ZSTD: u8 = 16;

    /// The payload of a `Block` is compressed with the codec that its stream was opened with, see `codec.rs`.
    pub const FLAG_COMPRESSED: u8 = 32;

    pub fn new(kind: Kind, epoch: u32, stream: u64) -> Header {
        Header {
            kind,
            flags: 0,
            epoch,
            stream,
            sequence: 0,
            payload_bytes: 0,
            a: 0,
            counts: StreamCounts::default(),
        }
    }

    /// Encodes the header, for the start of a message.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4] = self.kind as u8;
        bytes[5] = self.flags;
        bytes[8..12].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.stream.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.a.to_le_bytes());
        stamp(&mut bytes, self.counts);
        bytes
    }

    /// Decodes the header of `message`, a complete message as it arrived, in `epoch`.
    pub fn decode(message: &[u8], epoch: u32) -> Result<Header, Malformed> {
        let header = Header::decode_first(message, epoch)?;
        let arrived = (message.len() - HEADER_BYTES) as u64;
        match header.payload_bytes == arrived {
            true => Ok(header),
            false => Err(Malformed::Length { header: header.payload_bytes, arrived }),
        }
    }

    /// Decodes the header of the frame at the start of `bytes`, which contain all of its payload.
    pub fn decode_first(bytes: &[u8], epoch: u32) -> Result<Header, Malformed> {
        let message = bytes;
        let Some(bytes) = message.first_chunk::<HEADER_BYTES>() else {
            return Err(Malformed::Short { bytes: message.len() });
        };
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if u32_at(0) != MAGIC {
            return Err(Malformed::Magic(u32_at(0)));
        }
        let kind = Kind::from_u8(bytes[4]).ok_or(Malformed::Kind(bytes[4]))?;
        if u32_at(8) != epoch {
            return Err(Malformed::Epoch { got: u32_at(8), want: epoch });
        }
        let arrived = (message.len() - HEADER_BYTES) as u64;
        if u64_at(32) > arrived {
            return Err(Malformed::Length { header: u64_at(32), arrived });
        }
        Ok(Header {
            kind,
            flags: bytes[5],
            epoch,
            stream: u64_at(16),
            sequence: u64_at(24),
            payload_bytes: u64_at(32),
            a: u64_at(40),
            counts: read_counts(bytes),
        })
    }

    /// Whether the frame's reader may retain its payload for long.
    pub fn may_be_kept(&self) -> bool {
        self.kind == Kind::Block && self.flags & Header::FLAG_SHARED == 0
    }
}

/// Offset of the counters in a header.
const COUNTS: usize = 48;

/// Writes `counts` into the header at the start of `frame`.
///
/// Times are nanoseconds as 32-bit floats: seven significant digits, from one nanosecond to any number of
/// days, in half the space.
pub(crate) fn stamp(frame: &mut [u8], counts: StreamCounts) {
    let StreamCounts { encode_ns, credit_waits, credit_wait_ns, queue_ns } = counts;
    let time = |ns: u64| (ns as f32).to_le_bytes();
    let waits = u32::try_from(credit_waits).unwrap_or(u32::MAX).to_le_bytes();
    let words = [time(encode_ns), waits, time(credit_wait_ns), time(queue_ns)];
    frame[COUNTS..HEADER_BYTES].copy_from_slice(words.as_flattened());
}

fn read_counts(header: &[u8; HEADER_BYTES]) -> StreamCounts {
    let word = |at: usize| -> [u8; 4] {
        header[COUNTS + 4 * at..COUNTS + 4 * at + 4].try_into().expect("four bytes")
    };
    // Out-of-range values saturate.
    let time = |at: usize| f32::from_le_bytes(word(at)) as u64;
    StreamCounts {
        encode_ns: time(0),
        credit_waits: u32::from_le_bytes(word(1)).into(),
        credit_wait_ns: time(2),
        queue_ns: time(3),
    }
}

/// Encodes a loan: offset and length, `u64` each.
pub fn encode_loan(loan: Loan) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&loan.offset.to_le_bytes());
    bytes[8..].copy_from_slice(&loan.len.to_le_bytes());
    bytes
}

/// Decodes a loan; `None` if the payload is not one.
pub fn decode_loan(payload: &[u8]) -> Option<Loan> {
    let [offset, len] = decode_words(payload)?.collect::<Vec<_>>()[..] else { return None };
    Some(Loan { offset, len })
}

/// The `u64`s of a payload; `None` if its length is not a multiple of 8.
pub fn decode_words(payload: &[u8]) -> Option<impl Iterator<Item = u64> + '_> {
    let (words, rest) = payload.as_chunks::<8>();
    rest.is_empty().then(|| words.iter().map(|word| u64::from_le_bytes(*word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Header {
        let counts = StreamCounts { encode_ns: 12, credit_waits: 3, credit_wait_ns: 1 << 40, queue_ns: 5 };
        Header {
            flags: Header::FLAG_SCHEMA,
            sequence: 7,
            a: 9,
            counts,
            ..Header::new(Kind::Block, 3, 1 << 40)
        }
    }

    #[test]
    fn counts_are_patched_into_encoded_frames() {
        let mut bytes = sample().encode();
        let counts = StreamCounts {
            encode_ns: 123_456_789,
            credit_waits: u64::MAX,
            credit_wait_ns: 0,
            queue_ns: 86_400_000_000_000,
        };
        stamp(&mut bytes, counts);
        let read = Header::decode(&bytes, 3).unwrap();
        assert_eq!(Header { counts: sample().counts, ..read }, sample());
        assert!(read.counts.encode_ns.abs_diff(counts.encode_ns) < 100);
        assert_eq!((read.counts.credit_waits, read.counts.credit_wait_ns), (u64::from(u32::MAX), 0));
        assert!(read.counts.queue_ns.abs_diff(counts.queue_ns) < 10_000_000);
        for nonsense in [f32::NAN, f32::NEG_INFINITY, -1.0] {
            bytes[48..52].copy_from_slice(&nonsense.to_le_bytes());
            assert_eq!(Header::decode(&bytes, 3).unwrap().counts.encode_ns, 0);
        }
    }

    #[test]
    fn frames_of_every_kind_round_trip() {
        for kind in 1..=14u8 {
            let header = Header { kind: Kind::from_u8(kind).unwrap(), ..sample() };
            assert_eq!(Header::decode(&header.encode(), 3), Ok(header));
        }
    }

    #[test]
    fn loans_round_trip() {
        let loan = Loan { offset: 1 << 40, len: 77 };
        assert_eq!(decode_loan(&encode_loan(loan)), Some(loan));
        assert_eq!(decode_loan(&encode_loan(loan)[..15]), None);
        assert_eq!(decode_loan(&[0; 24]), None);
    }

    #[test]
    fn malformed_frames_are_refused() {
        let check = |change: &dyn Fn(&mut Vec<u8>), want: Malformed| {
            let mut bytes = sample().encode().to_vec();
            change(&mut bytes);
            assert_eq!(Header::decode(&bytes, 3), Err(want));
        };
        check(&|b| b.truncate(63), Malformed::Short { bytes: 63 });
        check(&|b| b[0] = b'X', Malformed::Magic(u32::from_le_bytes(*b"XRR1")));
        check(&|b| b[4] = 0, Malformed::Kind(0));
        check(&|b| b[4] = 200, Malformed::Kind(200));
        check(&|b| b[8] = 4, Malformed::Epoch { got: 4, want: 3 });
        check(&|b| b.push(0), Malformed::Length { header: 0, arrived: 1 });
        check(&|b| b[32] = 5, Malformed::Length { header: 5, arrived: 0 });
    }
}
