//! Rows that several streams carry alike are gathered once.
//!
//! The streams of a broadcast send the same batches in the same order, each at the pace of its reader. The
//! first that comes to a piece of a batch gathers it; the others find it here. Readers on this host are lent
//! the same block; for others its bytes are copied behind a header of their own, and compressed once.
//!
//! # Memory bound
//! At most [`BROADCAST_BYTES_MAX`] of payload, beside what streams have sent and nobody has read. A stream
//! that is farther behind gathers for itself.

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

/// A piece of a batch: which batch of the stream, and which piece of that.
pub(crate) type Place = (u64, usize);

/// What the streams that send one partition to several ranks have in common.
pub struct Broadcast {
    /// How many there will be.
    streams: usize,
    /// Charged with what is kept.
    budget: Arc<dyn Budget>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    joined: usize,
    /// Of every stream that has joined and not ended, what it has sent last.
    sent: HashMap<usize, Option<Place>>,
    kept: BTreeMap<Place, Arc<Gathered>>,
    kept_bytes: usize,
}

impl Broadcast {
    /// For at most `streams` streams. What is kept for those that have not come to it is charged to `budget`.
    pub fn new(streams: usize, budget: Arc<dyn Budget>) -> Broadcast {
        Broadcast { streams, budget, state: Mutex::default() }
    }

    /// Whether some stream other than `number` may still come to `place`.
    fn is_wanted(&self, state: &State, place: Place, number: usize) -> bool {
        let may_come = |(other, sent): (&usize, &Option<Place>)| *other != number && *sent < Some(place);
        state.joined < self.streams || state.sent.iter().any(may_come)
    }

    fn keep(&self, state: &mut State, place: Place, gathered: &Arc<Gathered>) {
        self.budget.grow(gathered.payload_bytes());
        state.kept_bytes += gathered.payload_bytes();
        state.kept.insert(place, Arc::clone(gathered));
        while state.kept_bytes > BROADCAST_BYTES_MAX
            && let Some((_, oldest)) = state.kept.pop_first()
        {
            self.drop_kept(state, &oldest);
        }
    }

    /// Drops what nobody comes to any more.
    fn drop_passed(&self, state: &mut State) {
        if state.joined < self.streams {
            return;
        }
        let behind = state.sent.values().min().copied();
        while let Some(first) = state.kept.first_entry()
            && behind.is_none_or(|behind| Some(*first.key()) <= behind)
        {
            let passed = first.remove();
            self.drop_kept(state, &passed);
        }
    }

    fn drop_kept(&self, state: &mut State, gathered: &Gathered) {
        self.budget.shrink(gathered.payload_bytes());
        state.kept_bytes -= gathered.payload_bytes();
    }
}

impl Drop for Broadcast {
    fn drop(&mut self) {
        self.budget.shrink(self.state.get_mut().kept_bytes);
    }
}

/// One stream's part in a broadcast, until it ends.
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

    /// What `piece`, the stream's next one, is in bytes; from `gather`, if no other stream has done so.
    ///
    /// Streams that come to any piece meanwhile wait for it: gathering one takes less than gathering it
    /// twice.
    ///
    /// Errors: those of `gather`.
    pub fn gathered(
        &self,
        place: Place,
        piece: &Piece,
        gather: impl FnOnce() -> Result<Gathered, ArrowError>,
    ) -> Result<Arc<Gathered>, ArrowError> {
        let mut state = self.broadcast.state.lock();
        let kept = state.kept.get(&place).filter(|gathered| same(&gathered.batch, piece.batch())).cloned();
        let gathered = match kept {
            Some(gathered) => gathered,
            None => {
                let gathered = Arc::new(gather()?);
                if !state.kept.contains_key(&place) && self.broadcast.is_wanted(&state, place, self.number) {
                    self.broadcast.keep(&mut state, place, &gathered);
                }
                gathered
            }
        };
        state.sent.insert(self.number, Some(place));
        self.broadcast.drop_passed(&mut state);
        Ok(gathered)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.broadcast.state.lock();
        state.sent.remove(&self.number);
        self.broadcast.drop_passed(&mut state);
    }
}

/// Whether two batches are the same rows in the same memory.
fn same(one: &RecordBatch, other: &RecordBatch) -> bool {
    let columns = one.columns().iter().zip(other.columns());
    one.num_rows() == other.num_rows()
        && one.num_columns() == other.num_columns()
        && columns.into_iter().all(|(one, other)| one.to_data().ptr_eq(&other.to_data()))
}

/// A piece of a batch in bytes, from which any stream can send it.
pub(crate) struct Gathered {
    /// Its rows.
    batch: RecordBatch,
    whole: Whole,
    /// `None` in it: compressing does not pay.
    compressed: OnceLock<Option<Block>>,
}

/// Behind room for a header.
enum Whole {
    Published(Published),
    Own(Block),
}

impl Gathered {
    pub fn new(shared: &Shared, piece: &Piece) -> Result<Gathered, ArrowError> {
        let mut block = shared.block_for_any(piece.payload_bytes());
        piece.encode(&mut block)?;
        let whole = match shared.lending.arena() {
            Some(arena) => arena.publish(block).map_or_else(Whole::Own, Whole::Published),
            None => Whole::Own(block),
        };
        Ok(Gathered { batch: piece.batch().clone(), whole, compressed: OnceLock::new() })
    }

    fn payload(&self) -> &[u8] {
        let bytes = match &self.whole {
            Whole::Published(published) => published.as_ref(),
            Whole::Own(block) => block.as_slice(),
        };
        &bytes[HEADER_BYTES..]
    }

    fn payload_bytes(&self) -> usize {
        self.payload().len()
    }

    /// What `sender` sends of it, and whether that is compressed.
    pub fn body(&self, sender: &StreamSender) -> (Body, bool) {
        let compressed = sender
            .codec()
            .and_then(|codec| self.compressed.get_or_init(|| codec.compress(self.payload())).as_ref());
        if let Some(compressed) = compressed {
            return (Body::Own(copied(&compressed.as_slice()[HEADER_BYTES..])), true);
        }
        match &self.whole {
            Whole::Published(published) if sender.shared().lending.arena_for(sender.to()).is_some() => {
                (Body::Lent(published.lend(sender.to())), false)
            }
            _ => (Body::Own(copied(self.payload())), false),
        }
    }
}

/// `payload` behind room for a header.
fn copied(payload: &[u8]) -> Block {
    let mut block = StreamSender::block(payload.len());
    block.extend_from_slice(payload);
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::cut;
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
        gathered: AtomicUsize,
    }

    impl Partition {
        fn of(streams: usize) -> Partition {
            let charged = Arc::new(Charged::default());
            let broadcast = Arc::new(Broadcast::new(streams, Arc::clone(&charged) as _));
            Partition { broadcast, charged, gathered: AtomicUsize::new(0) }
        }

        fn join(&self) -> Share {
            Share::of(Arc::clone(&self.broadcast))
        }

        fn charged(&self) -> usize {
            self.charged.0.load(Ordering::SeqCst)
        }

        /// Has a stream send all of `batches`, and says how many pieces had to be gathered for it.
        fn send(&self, share: &Share, batches: std::ops::Range<usize>, of: &[RecordBatch]) -> usize {
            let before = self.gathered.load(Ordering::SeqCst);
            for at in batches {
                for (number, piece) in cut(of[at].clone()).unwrap().iter().enumerate() {
                    let gathered =
                        share.gathered((at as u64, number), piece, || Ok(self.gather(piece))).unwrap();
                    let mut expected = StreamSender::block(piece.payload_bytes());
                    piece.encode(&mut expected).unwrap();
                    assert_eq!(gathered.payload(), &expected.as_slice()[HEADER_BYTES..]);
                }
            }
            self.gathered.load(Ordering::SeqCst) - before
        }

        fn gather(&self, piece: &Piece) -> Gathered {
            self.gathered.fetch_add(1, Ordering::SeqCst);
            let mut block = StreamSender::block(piece.payload_bytes());
            piece.encode(&mut block).unwrap();
            Gathered { batch: piece.batch().clone(), whole: Whole::Own(block), compressed: OnceLock::new() }
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
    fn each_piece_is_gathered_once_and_kept_until_all_have_sent_it() {
        let batches = batches(4, 1000);
        let partition = Partition::of(3);
        let shares = [(); 3].map(|()| partition.join());
        assert_eq!(partition.send(&shares[0], 0..2, &batches), 2);
        assert_eq!(partition.send(&shares[1], 0..4, &batches), 2);
        assert!(partition.charged() > 4 * 8000);
        assert_eq!(partition.send(&shares[0], 2..4, &batches), 0);
        assert_eq!(partition.send(&shares[2], 0..3, &batches), 0);
        assert!((8000..16000).contains(&partition.charged()), "the last one is kept for one stream");
        drop(shares);
        assert_eq!(partition.charged(), 0);
    }

    #[test]
    fn who_comes_late_finds_what_is_kept_and_who_ends_is_not_waited_for() {
        let batches = batches(3, 1000);
        let partition = Partition::of(3);
        let first = partition.join();
        assert_eq!(partition.send(&first, 0..3, &batches), 3);
        let second = partition.join();
        assert_eq!(partition.send(&second, 0..1, &batches), 0);
        let third = partition.join();
        drop(second);
        assert_eq!(partition.send(&third, 0..2, &batches), 0);
        assert!((8000..16000).contains(&partition.charged()));
        drop(third);
        assert_eq!(partition.charged(), 0);
        assert_eq!(partition.send(&first, 0..1, &batches), 1);
        assert_eq!(partition.charged(), 0, "nobody else comes");
    }

    /// Of batches that are cut, too.
    #[test]
    fn who_is_far_behind_gathers_again_and_memory_is_bounded() {
        let batches = batches(20, 200_000);
        let partition = Partition::of(2);
        let shares = [(); 2].map(|()| partition.join());
        let pieces = partition.send(&shares[0], 0..20, &batches);
        assert!(pieces > 20, "batches of 1.6 MB are cut");
        assert!(partition.charged() <= BROADCAST_BYTES_MAX);
        let again = partition.send(&shares[1], 0..20, &batches);
        assert!(again > 0 && again < pieces, "{again} of {pieces}");
        drop(shares);
        assert_eq!(partition.charged(), 0);
    }

    #[test]
    fn other_rows_at_the_same_place_are_not_taken_for_them() {
        let (batches, others) = (batches(2, 1000), batches(2, 1000));
        let partition = Partition::of(2);
        let shares = [(); 2].map(|()| partition.join());
        assert_eq!(partition.send(&shares[0], 0..2, &batches), 2);
        assert_eq!(partition.send(&shares[1], 0..2, &others), 2);
    }

    #[test]
    fn what_is_left_is_given_back_with_the_broadcast() {
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
