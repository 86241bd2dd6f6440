//! Broadcast: encodes rows that several streams carry only once.
//!
//! The streams of a broadcast send the same batches in the same order, each at the pace of its reader. The
//! first stream to reach a piece of a batch encodes it; the others find it in this cache. Readers on this
//! host are lent the same block; for others its bytes are copied behind a header of their own, and compressed
//! once.
//!
//! # Memory bound
//! At most [`BROADCAST_BYTES_MAX`] of payload, besides unread blocks of the streams. A stream that lags
//! further encodes for itself.

use crate::encode::Piece;
use crate::limits::{BROADCAST_BYTES_MAX, HEADER_BYTES};
use crate::streams::{Budget, StreamSender};
use crate::{Body, Shared};
use arrow::array::{Array, RecordBatch};
use arrow::error::ArrowError;
use harrier_mpi::Block;
use harrier_mpi::shared::Published;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

/// The position of a piece: the batch in the stream, and the piece in the batch.
pub(crate) type Position = (u64, usize);

/// State shared by the streams that send one partition to several ranks.
pub struct Broadcast {
    /// Number of streams.
    streams: usize,
    /// Charged with the cached bytes.
    budget: Arc<dyn Budget>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    joined: usize,
    /// Last position sent, for every stream that has joined and not ended.
    sent: HashMap<usize, Option<Position>>,
    cached: BTreeMap<Position, Arc<EncodedPiece>>,
    cached_bytes: usize,
}

impl Broadcast {
    /// For at most `streams` streams. Cached pieces are charged to `budget`.
    pub fn new(streams: usize, budget: Arc<dyn Budget>) -> Broadcast {
        Broadcast { streams, budget, state: Mutex::default() }
    }

    /// Whether a stream other than `number` may still reach `position`.
    fn is_wanted(&self, state: &State, position: Position, number: usize) -> bool {
        let may_come =
            |(other, sent): (&usize, &Option<Position>)| *other != number && *sent < Some(position);
        state.joined < self.streams || state.sent.iter().any(may_come)
    }

    fn insert(&self, state: &mut State, position: Position, encoded: &Arc<EncodedPiece>) {
        self.budget.grow(encoded.payload_bytes());
        state.cached_bytes += encoded.payload_bytes();
        state.cached.insert(position, Arc::clone(encoded));
        while state.cached_bytes > BROADCAST_BYTES_MAX
            && let Some((_, oldest)) = state.cached.pop_first()
        {
            self.uncharge(state, &oldest);
        }
    }

    /// Evicts pieces that every stream has passed.
    fn evict_passed(&self, state: &mut State) {
        if state.joined < self.streams {
            return;
        }
        let behind = state.sent.values().min().copied();
        while let Some(first) = state.cached.first_entry()
            && behind.is_none_or(|behind| Some(*first.key()) <= behind)
        {
            let passed = first.remove();
            self.uncharge(state, &passed);
        }
    }

    fn uncharge(&self, state: &mut State, encoded: &EncodedPiece) {
        self.budget.shrink(encoded.payload_bytes());
        state.cached_bytes -= encoded.payload_bytes();
    }
}

impl Drop for Broadcast {
    fn drop(&mut self) {
        self.budget.shrink(self.state.get_mut().cached_bytes);
    }
}

/// One stream's membership in a broadcast, until it ends.
pub(crate) struct Share {
    broadcast: Arc<Broadcast>,
    number: usize,
}

impl Share {
    pub fn of(broadcast: Arc<Broadcast>) -> Share {
        let mut state = broadcast.state.lock();
        let number = state.joined;
        state.joined += 1;
        state.sent.insert(number, None);
        drop(state);
        Share { broadcast, number }
    }

    /// Returns the encoded form of `piece`, the stream's next one; calls `gather` on a cache miss.
    ///
    /// Streams that reach any piece meanwhile wait: encoding once takes less time than encoding twice.
    ///
    /// Errors: those of `gather`.
    pub fn get_or_encode(
        &self,
        position: Position,
        piece: &Piece,
        gather: impl FnOnce() -> Result<EncodedPiece, ArrowError>,
    ) -> Result<Arc<EncodedPiece>, ArrowError> {
        let mut state = self.broadcast.state.lock();
        let cached =
            state.cached.get(&position).filter(|encoded| same(&encoded.batch, piece.batch())).cloned();
        let encoded = match cached {
            Some(encoded) => encoded,
            None => {
                let encoded = Arc::new(gather()?);
                if !state.cached.contains_key(&position)
                    && self.broadcast.is_wanted(&state, position, self.number)
                {
                    self.broadcast.insert(&mut state, position, &encoded);
                }
                encoded
            }
        };
        state.sent.insert(self.number, Some(position));
        self.broadcast.evict_passed(&mut state);
        Ok(encoded)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.broadcast.state.lock();
        state.sent.remove(&self.number);
        self.broadcast.evict_passed(&mut state);
    }
}

/// Whether two batches are the same rows in the same memory.
fn same(one: &RecordBatch, other: &RecordBatch) -> bool {
    let columns = one.columns().iter().zip(other.columns());
    one.num_rows() == other.num_rows()
        && one.num_columns() == other.num_columns()
        && columns.into_iter().all(|(one, other)| one.to_data().ptr_eq(&other.to_data()))
}

/// An encoded piece of a batch, which any stream can send.
pub(crate) struct EncodedPiece {
    /// The rows it encodes.
    batch: RecordBatch,
    block: EncodedBlock,
    /// `Some(None)`: compression does not pay off.
    compressed: OnceLock<Option<Block>>,
}

/// Payload behind room for a header.
enum EncodedBlock {
    Published(Published),
    Own(Block),
}

impl EncodedPiece {
    pub fn new(shared: &Shared, piece: &Piece) -> Result<EncodedPiece, ArrowError> {
        let mut block = shared.block_for_any(piece.payload_bytes());
        piece.encode(&mut block)?;
        let block = match shared.lending.arena() {
            Some(arena) => arena.publish(block).map_or_else(EncodedBlock::Own, EncodedBlock::Published),
            None => EncodedBlock::Own(block),
        };
        Ok(EncodedPiece { batch: piece.batch().clone(), block, compressed: OnceLock::new() })
    }

    fn payload(&self) -> &[u8] {
        let bytes = match &self.block {
            EncodedBlock::Published(published) => published.as_ref(),
            EncodedBlock::Own(block) => block.as_slice(),
        };
        &bytes[HEADER_BYTES..]
    }

    fn payload_bytes(&self) -> usize {
        self.payload().len()
    }

    /// The body that `sender` sends, and whether it is compressed.
    pub fn body(&self, sender: &StreamSender) -> (Body, bool) {
        let compressed = sender
            .codec()
            .and_then(|codec| self.compressed.get_or_init(|| codec.compress(self.payload())).as_ref());
        if let Some(compressed) = compressed {
            return (Body::Own(copy_behind_header(&compressed.as_slice()[HEADER_BYTES..])), true);
        }
        match &self.block {
            EncodedBlock::Published(published)
                if sender.shared_state().lending.arena_for(sender.to()).is_some() =>
            {
                (Body::Loan(published.lend(sender.to())), false)
            }
            _ => (Body::Own(copy_behind_header(self.payload())), false),
        }
    }
}

/// Copies `payload` behind room for a header.
fn copy_behind_header(payload: &[u8]) -> Block {
    let mut block = StreamSender::block(payload.len());
    block.extend_from_slice(payload);
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::split;
    use arrow::array::{ArrayRef, Int64Array};
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Charged(AtomicUsize);

    impl Budget for Charged {
        fn grow(&self, bytes: usize) {
            self.0.fetch_add(bytes, Ordering::SeqCst);
        }

        fn shrink(&self, bytes: usize) {
            self.0.fetch_sub(bytes, Ordering::SeqCst);
        }
    }

    struct Partition {
        broadcast: Arc<Broadcast>,
        charged: Arc<Charged>,
        encoded: AtomicUsize,
    }

    impl Partition {
        fn of(streams: usize) -> Partition {
            let charged = Arc::new(Charged::default());
            let broadcast = Arc::new(Broadcast::new(streams, Arc::clone(&charged) as _));
            Partition { broadcast, charged, encoded: AtomicUsize::new(0) }
        }

        fn join(&self) -> Share {
            Share::of(Arc::clone(&self.broadcast))
        }

        fn charged_bytes(&self) -> usize {
            self.charged.0.load(Ordering::SeqCst)
        }

        /// Sends all of `batches`, and returns how many pieces had to be encoded.
        fn send(&self, share: &Share, batches: std::ops::Range<usize>, of: &[RecordBatch]) -> usize {
            let before = self.encoded.load(Ordering::SeqCst);
            for at in batches {
                for (number, piece) in split(of[at].clone()).unwrap().iter().enumerate() {
                    let encoded =
                        share.get_or_encode((at as u64, number), piece, || Ok(self.gather(piece))).unwrap();
                    let mut expected = StreamSender::block(piece.payload_bytes());
                    piece.encode(&mut expected).unwrap();
                    assert_eq!(encoded.payload(), &expected.as_slice()[HEADER_BYTES..]);
                }
            }
            self.encoded.load(Ordering::SeqCst) - before
        }

        fn gather(&self, piece: &Piece) -> EncodedPiece {
            self.encoded.fetch_add(1, Ordering::SeqCst);
            let mut block = StreamSender::block(piece.payload_bytes());
            piece.encode(&mut block).unwrap();
            EncodedPiece {
                batch: piece.batch().clone(),
                block: EncodedBlock::Own(block),
                compressed: OnceLock::new(),
            }
        }
    }

    fn batches(count: i64, rows: i64) -> Vec<RecordBatch> {
        let batch = |at: i64| {
            let values = Int64Array::from_iter_values(at * rows..(at + 1) * rows);
            RecordBatch::try_from_iter([("n", Arc::new(values) as ArrayRef)]).unwrap()
        };
        (0..count).map(batch).collect()
    }

    #[test]
    fn pieces_are_cached_until_every_reader_has_sent_them() {
        let batches = batches(4, 1000);
        let partition = Partition::of(3);
        let shares = [(); 3].map(|()| partition.join());
        assert_eq!(partition.send(&shares[0], 0..2, &batches), 2);
        assert_eq!(partition.send(&shares[1], 0..4, &batches), 2);
        assert!(partition.charged_bytes() > 4 * 8000);
        assert_eq!(partition.send(&shares[0], 2..4, &batches), 0);
        assert_eq!(partition.send(&shares[2], 0..3, &batches), 0);
        assert!((8000..16000).contains(&partition.charged_bytes()), "the last one is kept for one stream");
        drop(shares);
        assert_eq!(partition.charged_bytes(), 0);
    }

    #[test]
    fn late_readers_use_the_cache_and_ended_ones_are_skipped() {
        let batches = batches(3, 1000);
        let partition = Partition::of(3);
        let first = partition.join();
        assert_eq!(partition.send(&first, 0..3, &batches), 3);
        let second = partition.join();
        assert_eq!(partition.send(&second, 0..1, &batches), 0);
        let third = partition.join();
        drop(second);
        assert_eq!(partition.send(&third, 0..2, &batches), 0);
        assert!((8000..16000).contains(&partition.charged_bytes()));
        drop(third);
        assert_eq!(partition.charged_bytes(), 0);
        assert_eq!(partition.send(&first, 0..1, &batches), 1);
        assert_eq!(partition.charged_bytes(), 0, "nobody else comes");
    }

    /// Also for batches that are split.
    #[test]
    fn slow_readers_gather_again_in_bounded_memory() {
        let batches = batches(20, 200_000);
        let partition = Partition::of(2);
        let shares = [(); 2].map(|()| partition.join());
        let pieces = partition.send(&shares[0], 0..20, &batches);
        assert!(pieces > 20, "batches of 1.6 MB are cut");
        assert!(partition.charged_bytes() <= BROADCAST_BYTES_MAX);
        let again = partition.send(&shares[1], 0..20, &batches);
        assert!(again > 0 && again < pieces, "{again} of {pieces}");
        drop(shares);
        assert_eq!(partition.charged_bytes(), 0);
    }

    #[test]
    fn different_rows_do_not_hit_the_cache() {
        let (batches, others) = (batches(2, 1000), batches(2, 1000));
        let partition = Partition::of(2);
        let shares = [(); 2].map(|()| partition.join());
        assert_eq!(partition.send(&shares[0], 0..2, &batches), 2);
        assert_eq!(partition.send(&shares[1], 0..2, &others), 2);
    }

    #[test]
    fn broadcast_cache_is_released_at_the_end() {
        let batches = batches(2, 1000);
        let Partition { broadcast, charged, .. } = {
            let partition = Partition::of(3);
            let share = partition.join();
            partition.send(&share, 0..2, &batches);
            drop(share);
            partition
        };
        assert!(charged.0.load(Ordering::SeqCst) > 0, "two more may come");
        drop(broadcast);
        assert_eq!(charged.0.load(Ordering::SeqCst), 0);
    }
}
