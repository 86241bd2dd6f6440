//! Query profile: a statement's plan as slices and motions, with each rank's measurements per operator,
//! during and after execution. Ranks send it as a message; pages show it, and programs read it as JSON.

use std::collections::BTreeMap;

use prost::Message;
use serde::{Deserialize, Serialize};

/// A plan as slices, the coordinator's first, each before those that feed it; empty: unknown.
#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
pub struct QueryProfile {
    #[prost(message, repeated, tag = "1")]
    pub slices: Vec<Slice>,
    /// Of the processes that have reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[prost(message, repeated, tag = "2")]
    pub memory: Vec<Memory>,
}

/// Memory reserved by a statement on one process.
#[derive(Clone, Copy, PartialEq, Eq, Message, Serialize, Deserialize)]
pub struct Memory {
    /// `None`: the server itself.
    #[prost(uint64, optional, tag = "1")]
    pub rank: Option<u64>,
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    /// Peak reservation.
    #[prost(uint64, tag = "3")]
    pub peak_bytes: u64,
}

/// The part of a plan between motions.
#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
pub struct Slice {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// Ranks that run it; slice 0 runs on the coordinator alone.
    #[prost(uint64, tag = "2")]
    pub ranks: u64,
    /// In pre-order.
    #[prost(message, repeated, tag = "3")]
    pub operators: Vec<Operator>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
pub struct Operator {
    /// Distance from the top of the slice.
    #[prost(uint64, tag = "1")]
    pub depth: u64,
    #[prost(string, tag = "2")]
    pub name: String,
    /// Its description, without its name.
    #[prost(string, tag = "3")]
    pub detail: String,
    /// The sending slice, for the receiving end of a motion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[prost(uint64, optional, tag = "4")]
    pub feeder: Option<u64>,
    /// For operators that read files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[prost(message, optional, tag = "5")]
    pub scan: Option<Scan>,
    /// By rank; ranks that have not started are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[prost(message, repeated, tag = "6")]
    pub shares: Vec<Share>,
    /// Streams of a motion between different ranks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[prost(message, repeated, tag = "7")]
    pub streams: Vec<Stream>,
}

/// The input of a scan, over all ranks.
#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
pub struct Scan {
    /// The name of the folder or file, for display.
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint64, tag = "2")]
    pub files: u64,
    /// Upper bound; projection and pruning reduce it.
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
    /// Rows in the files, if all of them report it.
    #[prost(uint64, optional, tag = "4")]
    pub rows: Option<u64>,
}

/// One rank's measurements of one operator.
#[derive(Clone, Copy, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Share {
    #[prost(uint64, tag = "1")]
    pub rank: u64,
    /// Output rows.
    #[prost(uint64, optional, tag = "2")]
    pub rows: Option<u64>,
    /// Total over the threads of the rank.
    #[prost(uint64, optional, tag = "3")]
    pub busy_ns: Option<u64>,
    /// Bytes read from files.
    #[prost(uint64, tag = "4")]
    pub read_bytes: u64,
    /// Rows that the scan's own filter has dropped.
    #[prost(uint64, tag = "5")]
    pub pruned_rows: u64,
    /// Bytes received by a motion.
    #[prost(uint64, tag = "6")]
    pub moved_bytes: u64,
    #[prost(uint64, tag = "7")]
    pub spilled_bytes: u64,
    /// Nanoseconds since 1970, by the coordinator's clock.
    #[prost(uint64, optional, tag = "8")]
    pub began_ns: Option<u64>,
    #[prost(uint64, optional, tag = "9")]
    pub ended_ns: Option<u64>,
}

/// One rank's measurements of a stream from another rank.
#[derive(Clone, Copy, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Stream {
    #[prost(uint64, tag = "1")]
    pub from: u64,
    #[prost(uint64, tag = "2")]
    pub to: u64,
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
    #[prost(uint64, tag = "4")]
    pub blocks: u64,
    /// Number and total time of the sender's waits for credit.
    #[prost(uint64, tag = "5")]
    pub credit_waits: u64,
    #[prost(uint64, tag = "6")]
    pub credit_wait_ns: u64,
    /// The sender's time to encode blocks, and their time in its queue.
    #[prost(uint64, tag = "7")]
    pub encode_ns: u64,
    #[prost(uint64, tag = "8")]
    pub queue_ns: u64,
    /// The receiver's time to decode them.
    #[prost(uint64, tag = "9")]
    pub decode_ns: u64,
    /// When it was opened and last received data, in nanoseconds since 1970 by the coordinator's clock.
    #[prost(uint64, optional, tag = "10")]
    pub began_ns: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub ended_ns: Option<u64>,
}

/// A statement's progress, measured by its scans.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Progress {
    /// From 0 to 1: for each scan the larger of the finished shares of its bytes and of its rows, weighted by
    /// bytes.
    pub fraction: f64,
    pub read_bytes: u64,
    /// Upper bound.
    pub total_bytes: u64,
    /// Output rows of scans.
    pub rows: u64,
}

/// One rank's totals of a statement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RankTotals {
    pub rank: u64,
    /// Output rows of its scans.
    pub scanned_rows: u64,
    pub busy_ns: u64,
    pub read_bytes: u64,
    /// Bytes received from other ranks and from itself.
    pub moved_bytes: u64,
    pub spilled_bytes: u64,
    /// Peak memory reservation.
    pub peak_bytes: u64,
}

impl Operator {
    /// Total of all ranks; `None` if none counts them.
    pub fn rows(&self) -> Option<u64> {
        let mut counted = self.shares.iter().filter_map(|share| share.rows).peekable();
        counted.peek().is_some().then(|| counted.sum())
    }

    /// Total of all ranks and their threads; `None` if none reports it.
    pub fn busy_ns(&self) -> Option<u64> {
        let mut reported = self.shares.iter().filter_map(|share| share.busy_ns).peekable();
        reported.peek().is_some().then(|| reported.sum())
    }

    /// Total of one measurement over all ranks.
    pub fn total(&self, number: fn(&Share) -> u64) -> u64 {
        self.shares.iter().map(number).sum()
    }

    /// A scan's progress, from 0 to 1, once any rank has begun it.
    pub fn fraction(&self) -> Option<f64> {
        let scan = self.scan.as_ref().filter(|_| !self.shares.is_empty())?;
        let seen = self.rows().unwrap_or(0) + self.total(|share| share.pruned_rows);
        let of_rows = scan.rows.filter(|rows| *rows > 0).map_or(0.0, |rows| seen as f64 / rows as f64);
        let of_bytes = self.total(|share| share.read_bytes) as f64 / scan.bytes.max(1) as f64;
        Some(of_rows.max(of_bytes).min(1.0))
    }
}

impl QueryProfile {
    pub fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    fn operators(&self) -> impl Iterator<Item = &Operator> {
        self.slices.iter().flat_map(|slice| &slice.operators)
    }

    /// `None`: no scan reads files, so progress is unknown.
    pub fn progress(&self) -> Option<Progress> {
        let mut progress = Progress::default();
        let mut done_bytes = 0.0;
        for operator in self.operators() {
            let Some(scan) = &operator.scan else { continue };
            progress.total_bytes += scan.bytes;
            progress.read_bytes += operator.total(|share| share.read_bytes);
            progress.rows += operator.rows().unwrap_or(0);
            done_bytes += scan.bytes as f64 * operator.fraction().unwrap_or(0.0);
        }
        progress.fraction = done_bytes / progress.total_bytes.max(1) as f64;
        (progress.total_bytes > 0).then_some(progress)
    }

    /// All streams, with the numbers of the sending and the receiving slice.
    pub fn streams(&self) -> impl Iterator<Item = (u64, u64, &Stream)> {
        self.slices.iter().flat_map(|slice| {
            slice.operators.iter().flat_map(move |operator| {
                let from = operator.feeder.unwrap_or_default();
                operator.streams.iter().map(move |stream| (from, slice.number, stream))
            })
        })
    }

    /// Bytes moved between ranks.
    pub fn moved_bytes(&self) -> u64 {
        self.operators().map(|operator| operator.total(|share| share.moved_bytes)).sum()
    }

    pub fn read_bytes(&self) -> u64 {
        self.operators().map(|operator| operator.total(|share| share.read_bytes)).sum()
    }

    pub fn spilled_bytes(&self) -> u64 {
        self.operators().map(|operator| operator.total(|share| share.spilled_bytes)).sum()
    }

    /// Totals of every participating rank, by number, including ranks without measurements.
    pub fn by_rank(&self) -> Vec<RankTotals> {
        let mut ranks: BTreeMap<u64, RankTotals> = BTreeMap::new();
        for (operator, share) in
            self.operators().flat_map(|operator| operator.shares.iter().map(move |share| (operator, share)))
        {
            let rank =
                ranks.entry(share.rank).or_insert(RankTotals { rank: share.rank, ..RankTotals::default() });
            rank.busy_ns += share.busy_ns.unwrap_or(0);
            rank.read_bytes += share.read_bytes;
            rank.moved_bytes += share.moved_bytes;
            rank.spilled_bytes += share.spilled_bytes;
            if operator.scan.is_some() {
                rank.scanned_rows += share.rows.unwrap_or(0);
            }
        }
        for memory in &self.memory {
            if let Some(work) = memory.rank.and_then(|rank| ranks.get_mut(&rank)) {
                work.peak_bytes = memory.peak_bytes;
            }
        }
        ranks.into_values().collect()
    }

    /// Each rank's start and end times of a slice, in nanoseconds since 1970.
    pub fn times(&self, slice: &Slice) -> Vec<(u64, u64, u64)> {
        let mut times: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for share in slice.operators.iter().flat_map(|operator| &operator.shares) {
            let Some((began, ended)) = share.began_ns.zip(share.ended_ns) else { continue };
            let (first, last) = times.entry(share.rank).or_insert((began, ended));
            (*first, *last) = ((*first).min(began), (*last).max(ended));
        }
        times.into_iter().map(|(rank, (began, ended))| (rank, began, ended)).collect()
    }

    /// Approximate memory of the profile.
    pub fn memory_bytes(&self) -> usize {
        let of_one = |operator: &Operator| {
            size_of::<Operator>()
                + operator.name.len()
                + operator.detail.len()
                + operator.shares.len() * size_of::<Share>()
                + operator.streams.len() * size_of::<Stream>()
        };
        size_of::<Self>()
            + self.memory.len() * size_of::<Memory>()
            + self.operators().map(of_one).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(bytes: u64, rows: Option<u64>, shares: Vec<Share>) -> Operator {
        let scan = Scan { name: "t".to_string(), files: 1, bytes, rows };
        Operator { scan: Some(scan), shares, ..Operator::default() }
    }

    fn share(rank: u64, rows: u64, read_bytes: u64) -> Share {
        Share { rank, rows: Some(rows), read_bytes, busy_ns: Some(rows * 10), ..Share::default() }
    }

    fn work(operators: Vec<Operator>) -> QueryProfile {
        let slices = vec![Slice { number: 1, ranks: 2, operators }];
        QueryProfile { slices, ..QueryProfile::default() }
    }

    #[test]
    fn progress_is_the_larger_of_bytes_and_rows_weighted_by_bytes() {
        assert_eq!(QueryProfile::default().progress(), None);
        assert_eq!(work(vec![Operator::default()]).progress(), None);
        let fraction = |operators| work(operators).progress().unwrap().fraction;
        assert_eq!(fraction(vec![scan(100, None, vec![])]), 0.0);
        assert_eq!(fraction(vec![scan(100, Some(10), vec![share(0, 2, 50)])]), 0.5);
        assert_eq!(fraction(vec![scan(100, Some(10), vec![share(0, 2, 10), share(1, 6, 0)])]), 0.8);
        // More rows than announced count as all.
        assert_eq!(fraction(vec![scan(100, Some(10), vec![share(0, 20, 0)])]), 1.0);
        let pruned = Share { pruned_rows: 5, ..share(0, 0, 0) };
        assert_eq!(fraction(vec![scan(100, Some(10), vec![pruned])]), 0.5);
        assert_eq!(
            fraction(vec![scan(300, None, vec![share(0, 1, 300)]), scan(100, None, vec![share(0, 1, 0)])]),
            0.75
        );
    }

    #[test]
    fn ranks_are_added_up_over_slices() {
        let motion = Operator {
            feeder: Some(2),
            shares: vec![
                Share { moved_bytes: 7, ..share(0, 3, 0) },
                Share { moved_bytes: 9, ..share(1, 4, 0) },
            ],
            ..Operator::default()
        };
        let mut work = work(vec![motion, scan(100, None, vec![share(1, 40, 60)])]);
        let memory = |rank, peak_bytes| Memory { rank, bytes: 0, peak_bytes };
        work.memory = vec![memory(None, 1), memory(Some(1), 30)];
        let ranks = work.by_rank();
        assert_eq!(ranks.len(), 2);
        assert_eq!((ranks[0].moved_bytes, ranks[0].scanned_rows, ranks[0].busy_ns), (7, 0, 30));
        assert_eq!((ranks[1].moved_bytes, ranks[1].scanned_rows, ranks[1].read_bytes), (9, 40, 60));
        assert_eq!((ranks[0].peak_bytes, ranks[1].peak_bytes), (0, 30));
        assert_eq!((work.moved_bytes(), work.read_bytes()), (16, 60));
    }

    #[test]
    fn a_slice_begins_with_its_first_operator_and_ends_with_its_last() {
        let timed = |rank, began, ended| Share {
            rank,
            began_ns: Some(began),
            ended_ns: Some(ended),
            ..Share::default()
        };
        let open = Share { rank: 2, began_ns: Some(1), ..Share::default() };
        let one = Operator { shares: vec![timed(0, 10, 20), timed(1, 5, 6), open], ..Operator::default() };
        let other = Operator { shares: vec![timed(0, 8, 12)], ..Operator::default() };
        let work = work(vec![one, other]);
        assert_eq!(work.times(&work.slices[0]), [(0, 8, 20), (1, 5, 6)]);
    }
}
