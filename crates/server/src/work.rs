//! What a statement does: its plan as slices and motions, and what every rank has done of every operator,
//! while it runs and after it.
//!
//! This is what pages show and telemetry exports. Who runs statements fills it in through [`Probe`].

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// A way to look at a statement while it runs. What it holds on to is let go when the statement ends.
#[async_trait]
pub trait Probe: std::fmt::Debug + Send + Sync + 'static {
    /// What is known here. Is called once more when the statement has ended, on the thread that ends it: it
    /// must not wait.
    fn told(&self) -> Work;

    /// What the statement takes of every process that has told, as far as that is known here. It must not
    /// wait.
    fn memory(&self) -> Vec<Memory>;

    /// The same as [`Probe::told`], asked anew of whoever runs it. Cancel-safe.
    async fn look(&self) -> Work;
}

/// A plan as slices, the coordinator's first, each before those that feed it; empty: nothing is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    pub slices: Vec<Slice>,
    /// Of the processes that have told what they reserved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<Memory>,
}

/// Memory that a statement has reserved on one process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// `None`: the server itself.
    pub rank: Option<usize>,
    pub bytes: u64,
    /// The most that there were at once.
    pub peak_bytes: u64,
}

/// The part of a plan between motions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    pub number: usize,
    /// Ranks that run it; slice 0 runs on the coordinator alone.
    pub ranks: usize,
    /// In pre-order.
    pub operators: Vec<Operator>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operator {
    /// Distance from the top of the slice.
    pub depth: usize,
    pub name: String,
    /// What it does, without its name.
    pub detail: String,
    /// The slice whose rows it receives, if it is the receiving end of a motion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feeder: Option<usize>,
    /// Set if it reads files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan: Option<Scan>,
    /// By rank; one that has done nothing yet is not among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<Share>,
    /// Of a motion, those between different ranks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<Stream>,
}

/// What a scan reads, over all ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scan {
    /// The name of the folder or file, for people.
    pub name: String,
    pub files: u64,
    /// The most that can be read: choosing columns and leaving out parts of files make it less.
    pub bytes: u64,
    /// In the files, if all of them say so.
    pub rows: Option<u64>,
}

/// What one rank has done of one operator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Share {
    pub rank: usize,
    /// That came out of it.
    pub rows: Option<u64>,
    /// Summed over the threads of the rank.
    pub busy_ns: Option<u64>,
    /// From files.
    pub read_bytes: u64,
    /// Rows that the scan itself has left out by a filter.
    pub pruned_rows: u64,
    /// That a motion has received.
    pub moved_bytes: u64,
    pub spilled_bytes: u64,
    /// Nanoseconds since 1970, by the coordinator's clock.
    pub began_ns: Option<u64>,
    pub ended_ns: Option<u64>,
}

/// What one rank has received of one motion from another one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stream {
    pub from: usize,
    pub to: usize,
    pub bytes: u64,
    pub blocks: u64,
    /// Times that the sender might not send, and how long.
    pub credit_waits: u64,
    pub credit_wait_ns: u64,
    /// That the sender took to make blocks, and that these waited to be sent.
    pub encode_ns: u64,
    pub queue_ns: u64,
    /// That the receiver took to read them.
    pub decode_ns: u64,
    /// When it was opened and when something came last, in nanoseconds since 1970 by the coordinator's clock.
    pub began_ns: Option<u64>,
    pub ended_ns: Option<u64>,
}

/// How far a statement is, by what its scans have read.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Progress {
    /// From 0 to 1: for each scan the larger of the shares of its bytes and of its rows that are done,
    /// weighted by bytes.
    pub fraction: f64,
    pub read_bytes: u64,
    /// The most that can be read.
    pub total_bytes: u64,
    /// That came out of scans.
    pub rows: u64,
}

/// What one rank has done of a whole statement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RankWork {
    pub rank: usize,
    /// That came out of its scans.
    pub scanned_rows: u64,
    pub busy_ns: u64,
    pub read_bytes: u64,
    /// That it has received from other ranks and from itself.
    pub moved_bytes: u64,
    pub spilled_bytes: u64,
    /// The most that it had reserved at once.
    pub peak_bytes: u64,
}

impl Operator {
    /// Over all ranks; `None` if none counts them.
    pub fn rows(&self) -> Option<u64> {
        let mut counted = self.shares.iter().filter_map(|share| share.rows).peekable();
        counted.peek().is_some().then(|| counted.sum())
    }

    /// Over all ranks and their threads; `None` if none tells.
    pub fn busy_ns(&self) -> Option<u64> {
        let mut told = self.shares.iter().filter_map(|share| share.busy_ns).peekable();
        told.peek().is_some().then(|| told.sum())
    }

    /// One number of all ranks.
    pub fn total(&self, number: fn(&Share) -> u64) -> u64 {
        self.shares.iter().map(number).sum()
    }

    /// How far a scan is, from 0 to 1, once any rank has begun it.
    pub fn fraction(&self) -> Option<f64> {
        let scan = self.scan.as_ref().filter(|_| !self.shares.is_empty())?;
        let seen = self.rows().unwrap_or(0) + self.total(|share| share.pruned_rows);
        let of_rows = scan.rows.filter(|rows| *rows > 0).map_or(0.0, |rows| seen as f64 / rows as f64);
        let of_bytes = self.total(|share| share.read_bytes) as f64 / scan.bytes.max(1) as f64;
        Some(of_rows.max(of_bytes).min(1.0))
    }
}

impl Work {
    pub fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    fn operators(&self) -> impl Iterator<Item = &Operator> {
        self.slices.iter().flat_map(|slice| &slice.operators)
    }

    /// `None`: no file is read, so that nobody knows.
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

    /// All streams: the number of the slice that sends, of the one that receives, and what is known.
    pub fn streams(&self) -> impl Iterator<Item = (usize, usize, &Stream)> {
        self.slices.iter().flat_map(|slice| {
            slice.operators.iter().flat_map(move |operator| {
                let from = operator.feeder.unwrap_or_default();
                operator.streams.iter().map(move |stream| (from, slice.number, stream))
            })
        })
    }

    /// Between ranks.
    pub fn moved_bytes(&self) -> u64 {
        self.operators().map(|operator| operator.total(|share| share.moved_bytes)).sum()
    }

    pub fn read_bytes(&self) -> u64 {
        self.operators().map(|operator| operator.total(|share| share.read_bytes)).sum()
    }

    pub fn spilled_bytes(&self) -> u64 {
        self.operators().map(|operator| operator.total(|share| share.spilled_bytes)).sum()
    }

    /// Every rank that takes part with what it has done, by number; ranks of a slice that have done nothing
    /// are among them.
    pub fn by_rank(&self) -> Vec<RankWork> {
        let mut ranks: BTreeMap<usize, RankWork> = BTreeMap::new();
        for (operator, share) in
            self.operators().flat_map(|operator| operator.shares.iter().map(move |share| (operator, share)))
        {
            let rank =
                ranks.entry(share.rank).or_insert(RankWork { rank: share.rank, ..RankWork::default() });
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

    /// When a rank began and ended its part of a slice, in nanoseconds since 1970.
    pub fn times(&self, slice: &Slice) -> Vec<(usize, u64, u64)> {
        let mut times: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        for share in slice.operators.iter().flat_map(|operator| &operator.shares) {
            let Some((began, ended)) = share.began_ns.zip(share.ended_ns) else { continue };
            let (first, last) = times.entry(share.rank).or_insert((began, ended));
            (*first, *last) = ((*first).min(began), (*last).max(ended));
        }
        times.into_iter().map(|(rank, (began, ended))| (rank, began, ended)).collect()
    }

    /// Memory that it takes, more or less.
    pub fn held_bytes(&self) -> usize {
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

    fn share(rank: usize, rows: u64, read_bytes: u64) -> Share {
        Share { rank, rows: Some(rows), read_bytes, busy_ns: Some(rows * 10), ..Share::default() }
    }

    fn work(operators: Vec<Operator>) -> Work {
        let slices = vec![Slice { number: 1, ranks: 2, operators }];
        Work { slices, ..Work::default() }
    }

    #[test]
    fn progress_is_the_larger_of_bytes_and_rows_weighted_by_bytes() {
        assert_eq!(Work::default().progress(), None);
        assert_eq!(work(vec![Operator::default()]).progress(), None);
        let fraction = |operators| work(operators).progress().unwrap().fraction;
        assert_eq!(fraction(vec![scan(100, None, vec![])]), 0.0);
        assert_eq!(fraction(vec![scan(100, Some(10), vec![share(0, 2, 50)])]), 0.5);
        assert_eq!(fraction(vec![scan(100, Some(10), vec![share(0, 2, 10), share(1, 6, 0)])]), 0.8);
        // More rows than there were said to be are all, not more.
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
