//! Small frames to one rank go as one message: many streams of small blocks, or one, cost what their bytes
//! cost.
//!
//! A bundle is a frame whose payload is frames, each padded to a multiple of [`HEADER_BYTES`] so that what
//! follows is aligned. Only frames that are queued at the same time travel together: none waits for another.
//!
//! # Invariants
//! - Frames of one channel to one rank keep their order, whether they travel alone or not.
//! - A bundle holds at least two frames, and no bundle.
//! - What a reader may keep is copied out of the bundle: a batch that is kept would otherwise keep all that
//!   came with it.

use crate::frame::{Header, Kind, Malformed};
use crate::limits::*;
use bytes::Bytes;
use harrier_mpi::{Block, Channel};
use std::sync::Arc;

/// What is gathered for each rank and channel, until it is taken.
pub(crate) struct Bundles {
    epoch: u32,
    /// By rank and channel.
    gathered: Vec<[Option<Gathered>; 2]>,
    /// Ranks and channels that something is gathered for.
    begun: Vec<(usize, Channel)>,
}

enum Gathered {
    One(Arc<Block>),
    Bundle(Block),
}

/// A message to hand to the transport.
pub(crate) type Message = (usize, Channel, Arc<Block>);

impl Bundles {
    pub fn new(ranks: usize, epoch: u32) -> Bundles {
        Bundles { epoch, gathered: (0..ranks).map(|_| [None, None]).collect(), begun: Vec::new() }
    }

    /// Adds `frame`. What cannot wait any more is handed to `send`, in order.
    pub fn add<E>(
        &mut self,
        (to, channel, frame): Message,
        send: &mut impl FnMut(Message) -> Result<(), E>,
    ) -> Result<(), E> {
        let gathered = &mut self.gathered[to][channel as usize];
        if frame.len() > BUNDLED_FRAME_BYTES_MAX {
            let before = gathered.take().map(|before| (to, channel, before.finish(self.epoch)));
            before.map_or(Ok(()), &mut *send)?;
            return send((to, channel, frame));
        }
        match gathered.take() {
            None => {
                self.begun.push((to, channel));
                *gathered = Some(Gathered::One(frame));
            }
            Some(before) if before.len() + frame.len() > BUNDLE_BYTES_MAX => {
                *gathered = Some(Gathered::One(frame));
                send((to, channel, before.finish(self.epoch)))?;
            }
            Some(before) => *gathered = Some(Gathered::Bundle(before.and(&frame))),
        }
        Ok(())
    }

    /// Hands all that is gathered to `send`.
    pub fn finish<E>(&mut self, send: &mut impl FnMut(Message) -> Result<(), E>) -> Result<(), E> {
        for (to, channel) in self.begun.drain(..) {
            if let Some(gathered) = self.gathered[to][channel as usize].take() {
                send((to, channel, gathered.finish(self.epoch)))?;
            }
        }
        Ok(())
    }
}

impl Gathered {
    /// Bytes of the message that it is now.
    fn len(&self) -> usize {
        match self {
            Gathered::One(frame) => HEADER_BYTES + frame.len().next_multiple_of(HEADER_BYTES),
            Gathered::Bundle(bundle) => bundle.len(),
        }
    }

    fn and(self, frame: &Block) -> Block {
        let mut bundle = match self {
            Gathered::Bundle(bundle) => bundle,
            Gathered::One(first) => {
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
            Gathered::One(frame) => frame,
            Gathered::Bundle(mut bundle) => {
                let mut header = Header::new(Kind::Bundle, epoch, 0);
                header.payload_bytes = (bundle.len() - HEADER_BYTES) as u64;
                bundle.as_mut_slice()[..HEADER_BYTES].copy_from_slice(&header.encode());
                Arc::new(bundle)
            }
        }
    }
}

/// The frames of a bundle's payload, in order. Ends with the first that is none.
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
        Some(header.map(|header| (header, if header.may_be_kept() { copied(&own) } else { own })))
    })
}

fn copied(payload: &Bytes) -> Bytes {
    let mut block = Block::with_capacity(payload.len());
    block.extend_from_slice(payload);
    Bytes::from_owner(block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    const EPOCH: u32 = 3;

    /// A frame of this many payload bytes, its number in its header.
    fn frame(number: u64, bytes: usize) -> Arc<Block> {
        let mut header = Header::new(Kind::Block, EPOCH, number);
        header.payload_bytes = bytes as u64;
        let mut block = Block::with_capacity(HEADER_BYTES + bytes);
        block.extend_from_slice(&header.encode());
        block.extend_from_slice(&vec![number as u8; bytes]);
        Arc::new(block)
    }

    /// Frames of these payload bytes go to rank 1; the messages have these many frames.
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
    fn small_frames_travel_together_and_keep_their_order() {
        check(&[], &[]);
        check(&[0], &[1]);
        check(&[10, 0, 100], &[3]);
        check(&[10, BUNDLED_FRAME_BYTES_MAX, 10, 11], &[1, 1, 2]);
        check(&[BUNDLED_FRAME_BYTES_MAX - HEADER_BYTES; 7], &[3, 3, 1]);
        check(&[1000; 31], &[30, 1]);
    }

    #[test]
    fn what_is_no_bundle_is_refused() {
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
