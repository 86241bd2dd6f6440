//! Per-stream counters: waits for credit, encode time and queue time.
//!
//! The producer counts. Its totals are stamped into the header of every block and of the end of stream when
//! the driver takes the frame, so that the opener sees them while the stream runs without a request. Every
//! number is a total since the stream was opened.

use crate::CounterCells;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The producer's counters since the stream was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// Nanoseconds spent encoding batches into blocks.
    pub encode_ns: u64,
    /// Number of times that the producer had data and no credit.
    pub credit_waits: u64,
    /// Nanoseconds spent waiting for credit.
    pub credit_wait_ns: u64,
    /// Nanoseconds that blocks spent in the driver's queue, summed over blocks.
    pub queue_ns: u64,
}

impl StreamCounts {
    /// The increase since `before`.
    pub fn since(self, before: StreamCounts) -> StreamCounts {
        StreamCounts {
            encode_ns: self.encode_ns.saturating_sub(before.encode_ns),
            credit_waits: self.credit_waits.saturating_sub(before.credit_waits),
            credit_wait_ns: self.credit_wait_ns.saturating_sub(before.credit_wait_ns),
            queue_ns: self.queue_ns.saturating_sub(before.queue_ns),
        }
    }
}

/// Counters of one stream on its producer's side, updated by its task and the driver.
#[derive(Default)]
pub(crate) struct StreamCells {
    encode_ns: AtomicU64,
    credit_waits: AtomicU64,
    credit_wait_ns: AtomicU64,
    queue_ns: AtomicU64,
}

impl StreamCells {
    pub fn get(&self) -> StreamCounts {
        let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        StreamCounts {
            encode_ns: get(&self.encode_ns),
            credit_waits: get(&self.credit_waits),
            credit_wait_ns: get(&self.credit_wait_ns),
            queue_ns: get(&self.queue_ns),
        }
    }

    /// Adds to the stream's and the rank's counters.
    fn add(&self, rank: &CounterCells, what: fn(&StreamCells) -> &AtomicU64, by: u64) {
        what(self).fetch_add(by, Ordering::Relaxed);
        what(&rank.streams).fetch_add(by, Ordering::Relaxed);
    }

    pub fn add_encode_time(&self, rank: &CounterCells, ns: u64) {
        self.add(rank, |cells| &cells.encode_ns, ns);
    }
}

/// A producer that may be waiting for a credit.
#[derive(Default)]
pub(crate) struct CreditWait(Option<Instant>);

impl CreditWait {
    /// Called on every poll without credit; starts the wait if it has not started.
    pub fn begin(&mut self, stream: &StreamCells, rank: &CounterCells) {
        if self.0.is_none() {
            self.0 = Some(Instant::now());
            stream.add(rank, |cells| &cells.credit_waits, 1);
        }
    }

    /// Ends the wait, if any.
    pub fn end(&mut self, stream: &StreamCells, rank: &CounterCells) {
        if let Some(since) = self.0.take() {
            stream.add(rank, |cells| &cells.credit_wait_ns, nanoseconds(since.elapsed()));
        }
    }
}

/// A frame of a stream in the driver's queue.
pub(crate) struct InQueue {
    stream: Arc<StreamCells>,
    since: Instant,
}

impl InQueue {
    pub fn new(stream: &Arc<StreamCells>) -> Self {
        InQueue { stream: Arc::clone(stream), since: Instant::now() }
    }

    /// Called when the driver takes the frame; returns the stream's counters.
    pub fn dequeue(self, rank: &CounterCells) -> StreamCounts {
        self.stream.add(rank, |cells| &cells.queue_ns, nanoseconds(self.since.elapsed()));
        self.stream.get()
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wait_counts_once() {
        let (rank, stream) = (CounterCells::default(), Arc::new(StreamCells::default()));
        let mut wait = CreditWait::default();
        wait.end(&stream, &rank);
        assert_eq!(stream.get(), StreamCounts::default());
        for waits in 1..=2 {
            wait.begin(&stream, &rank);
            wait.begin(&stream, &rank);
            std::thread::sleep(Duration::from_millis(2));
            wait.end(&stream, &rank);
            wait.end(&stream, &rank);
            assert_eq!(stream.get().credit_waits, waits);
            assert!(stream.get().credit_wait_ns >= waits * 2_000_000, "{:?}", stream.get());
        }
        assert_eq!(rank.streams.get(), stream.get());
    }

    #[test]
    fn a_frame_counts_the_time_until_it_is_taken() {
        let (rank, stream) = (CounterCells::default(), Arc::new(StreamCells::default()));
        stream.add_encode_time(&rank, 5);
        let queued = InQueue::new(&stream);
        std::thread::sleep(Duration::from_millis(2));
        let counts = queued.dequeue(&rank);
        assert!(counts.queue_ns >= 2_000_000 && counts.encode_ns == 5, "{counts:?}");
        let more = StreamCounts { encode_ns: 7, credit_waits: 1, ..counts };
        assert_eq!(
            more.since(counts),
            StreamCounts { encode_ns: 2, credit_waits: 1, ..StreamCounts::default() }
        );
    }
}
