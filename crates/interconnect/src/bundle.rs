//! Batching of small frames to one rank into one message, so that many small blocks cost only their bytes.
//!
//! A bundle is a frame whose payload is frames, each padded to a multiple of [`HEADER_BYTES`] for alignment.
//! Only frames that are queued at the same time are bundled: none waits for another.
//!
//! # Invariants
//! - Frames of one channel to one rank keep their order, bundled or not.
//! - A bundle holds at least two frames, and no nested bundle.
//! - Payloads that a reader may retain are copied out of the bundle: a retained batch would otherwise keep
//!   the whole bundle alive.

use crate::frame::{Header, Kind, Malformed};
use crate::limits::*;
use bytes::Bytes;
use harrier_mpi::{Block, Channel};
use std::sync::Arc;

/// Pending frames by rank and channel, until they are sent.
pub(crate) struct Bundles {
    epoch: u32,
    /// By rank and channel.
    pending: Vec<[Option<PendingMessage>; 2]>,
    /// Ranks and channels with pending frames.
    with_pending: Vec<(usize, Channel)>,
}

enum PendingMessage {
    One(Arc<Block>),
    Bundle(Block),
}

/// A message for the transport.
pub(crate) type Message = (usize, Channel, Arc<Block>);

impl Bundles {
    pub fn new(ranks: usize, epoch: u32) -> Bundles {
        Bundles { epoch, pending: (0..ranks).map(|_| [None, None]).collect(), with_pending: Vec::new() }
    }

    /// Adds `frame`. Messages that are full are passed to `send`, in order.
    pub fn add<E>(
        &mut self,
        (to, channel, frame): Message,
        send: &mut impl FnMut(Message) -> Result<(), E>,
    ) -> Result<(), E> {
        let pending = &mut self.pending[to][channel as usize];
        if frame.len() > BUNDLED_FRAME_BYTES_MAX {
            let before = pending.take().map(|before| (to, channel, before.finish(self.epoch)));
            before.map_or(Ok(()), &mut *send)?;
            return send((to, channel, frame));
        }
        match pending.take() {
            None => {
                self.with_pending.push((to, channel));
                *pending = Some(PendingMessage::One(frame));
            }
            Some(before) if before.len() + frame.len() > BUNDLE_BYTES_MAX => {
                *pending = Some(PendingMessage::One(frame));
                send((to, channel, before.finish(self.epoch)))?;
            }
            Some(before) => *pending = Some(PendingMessage::Bundle(before.append(&frame))),
        }
        Ok(())
    }

    /// Flushes all pending frames to `send`.
    pub fn finish<E>(&mut self, send: &mut impl FnMut(Message) -> Result<(), E>) -> Result<(), E> {
        for (to, channel) in self.with_pending.drain(..) {
            if let Some(pending) = self.pending[to][channel as usize].take() {
                send((to, channel, pending.finish(self.epoch)))?;
            }
        }
        Ok(())
    }
}

impl PendingMessage {
    /// Length of the message so far, bytes.
    fn len(&self) -> usize {
        match self {
            PendingMessage::One(frame) => HEADER_BYTES + frame.len().next_multiple_of(HEADER_BYTES),
            PendingMessage::Bundle(bundle) => bundle.len(),
        }
    }

    fn append(self, frame: &Block) -> Block {
        let mut bundle = match self {
            PendingMessage::Bundle(bundle) => bundle,
            PendingMessage::One(first) => {
                let mut bundle = Block::with_capacity(BUNDLE_BYTES_MAX + HEADER_BYTES);
                bundle.push_zeros(HEADER_BYTES);
                bundle.extend_from_slice(first.as_slice());
                bundle.pad_to(HEADER_BYTES);
                bundle
            }
        };
        bundle.extend_from_slice(frame.as_slice());
        bundle.pad_to(HEADER_BYTES);
        bundle
    }

    fn finish(self, epoch: u32) -> Arc<Block> {
        match self {
            PendingMessage::One(frame) => frame,
            PendingMessage::Bundle(mut bundle) => {
                let mut header = Header::new(Kind::Bundle, epoch, 0);
                header.payload_bytes = (bundle.len() - HEADER_BYTES) as u64;
                bundle.as_mut_slice()[..HEADER_BYTES].copy_from_slice(&header.encode());
                Arc::new(bundle)
            }
        }
    }
}

/// The frames of a bundle's payload, in order. Ends at the first malformed one.
pub(crate) fn unbundle(
    payload: Bytes,
    epoch: u32,
) -> impl Iterator<Item = Result<(Header, Bytes), Malformed>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = payload.get(at..).filter(|rest| !rest.is_empty())?;
        let header = match Header::decode_first(rest, epoch) {
            Ok(Header { kind: Kind::Bundle, .. }) => Err(Malformed::Kind(Kind::Bundle as u8)),
            decoded => decoded,
        };
        let end = header.map_or(payload.len(), |header| at + HEADER_BYTES + header.payload_bytes as usize);
        let own = payload.slice((at + HEADER_BYTES).min(end)..end);
        at = end.next_multiple_of(HEADER_BYTES);
        Some(header.map(|header| (header, if header.may_be_kept() { copy_of(&own) } else { own })))
    })
}

fn copy_of(payload: &Bytes) -> Bytes {
    let mut block = Block::with_capacity(payload.len());
    block.extend_from_slice(payload);
    Bytes::from_owner(block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    const EPOCH: u32 = 3;

    /// A frame with this many payload bytes and its number in the header.
    fn frame(number: u64, bytes: usize) -> Arc<Block> {
        let mut header = Header::new(Kind::Block, EPOCH, number);
        header.payload_bytes = bytes as u64;
        let mut block = Block::with_capacity(HEADER_BYTES + bytes);
        block.extend_from_slice(&header.encode());
        block.extend_from_slice(&vec![number as u8; bytes]);
        Arc::new(block)
    }

    /// Sends frames with these payload lengths to rank 1; expects messages with these numbers of frames.
    fn check(payloads: &[usize], messages: &[usize]) {
        let mut bundles = Bundles::new(2, EPOCH);
        let mut sent: Vec<Arc<Block>> = Vec::new();
        let mut send = |(to, channel, message): Message| {
            assert_eq!((to, channel), (1, Channel::Data));
            sent.push(message);
            Ok::<_, Infallible>(())
        };
        for (number, bytes) in payloads.iter().enumerate() {
            let Ok(()) = bundles.add((1, Channel::Data, frame(number as u64, *bytes)), &mut send);
        }
        let Ok(()) = bundles.finish(&mut send);
        let mut next = 0;
        let mut counts = Vec::new();
        for message in sent {
            let header = Header::decode(message.as_slice(), EPOCH).unwrap();
            let payload = Bytes::copy_from_slice(&message.as_slice()[HEADER_BYTES..]);
            let frames: Vec<_> = match header.kind {
                Kind::Bundle => unbundle(payload, EPOCH).map(Result::unwrap).collect(),
                _ => vec![(header, payload)],
            };
            counts.push(frames.len());
            for (header, payload) in frames {
                assert_eq!(header.stream, next);
                assert_eq!(payload, vec![next as u8; payloads[next as usize]]);
                next += 1;
            }
        }
        assert_eq!(next as usize, payloads.len());
        assert_eq!(counts, messages, "{payloads:?}");
    }

    #[test]
    fn small_frames_are_bundled_in_order() {
        check(&[], &[]);
        check(&[0], &[1]);
        check(&[10, 0, 100], &[3]);
        check(&[10, BUNDLED_FRAME_BYTES_MAX, 10, 11], &[1, 1, 2]);
        check(&[BUNDLED_FRAME_BYTES_MAX - HEADER_BYTES; 7], &[3, 3, 1]);
        check(&[1000; 31], &[30, 1]);
    }

    #[test]
    fn malformed_bundles_are_refused() {
        let refused = |payload: &[u8]| {
            let frames = unbundle(Bytes::copy_from_slice(payload), EPOCH);
            frames.collect::<Vec<_>>().into_iter().filter_map(Result::err).collect::<Vec<_>>()
        };
        let one = frame(1, 10);
        assert_eq!(refused(&one.as_slice()[..63]), [Malformed::Short { bytes: 63 }]);
        assert_eq!(refused(&one.as_slice()[..70]), [Malformed::Length { header: 10, arrived: 6 }]);
        assert_eq!(refused(one.as_slice()), []);
        let nested = Header::new(Kind::Bundle, EPOCH, 0).encode();
        assert_eq!(refused(&nested), [Malformed::Kind(Kind::Bundle as u8)]);
        let mut damaged = frame(1, 64).as_slice().to_vec();
        damaged.extend_from_slice(&[0; HEADER_BYTES]);
        assert_eq!(refused(&damaged), [Malformed::Magic(0)]);
        let mut endless = Header::new(Kind::Block, EPOCH, 0);
        endless.payload_bytes = u64::MAX;
        assert_eq!(refused(&endless.encode()), [Malformed::Length { header: u64::MAX, arrived: 0 }]);
    }
}
