//! Serializable snapshot of a plan and its progress, by operator and rank.
//!
//! Far smaller than the operators' metrics: only the figures shown for a running statement, independent of
//! the number of files and output partitions.

use datafusion::physical_plan::ExecutionPlan;
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::monitor::slice_tree::{Motion, MotionKind, Operator, Slice, slices};
use crate::transport::clock_offset;
use crate::transport::stream_metrics::StreamMeasured;
use harrier_resources::statement_memory::ProcessMemory;

/// The longest operator description.
const TEXT_CHARS_MAX: usize = 400;

/// A plan as slices, the coordinator's first, each before those that feed it.
#[derive(Clone, PartialEq, Message)]
pub struct PlanSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub slices: Vec<SliceSnapshot>,
    /// Memory use of every process that reported.
    #[prost(message, repeated, tag = "2")]
    pub memory: Vec<ProcessMemory>,
}

/// The part of a plan between motions.
#[derive(Clone, PartialEq, Message)]
pub struct SliceSnapshot {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// Ranks that run it; slice 0 runs on the coordinator alone.
    #[prost(uint64, tag = "2")]
    pub ranks: u64,
    /// In pre-order.
    #[prost(message, repeated, tag = "3")]
    pub operators: Vec<OperatorSnapshot>,
}

#[derive(Clone, PartialEq, Message)]
pub struct OperatorSnapshot {
    /// Distance from the top of the slice.
    #[prost(uint64, tag = "1")]
    pub depth: u64,
    #[prost(string, tag = "2")]
    pub name: String,
    /// The description, without the name.
    #[prost(string, tag = "3")]
    pub detail: String,
    /// The slice whose rows it receives, if it is the receiving end of a motion.
    #[prost(uint64, optional, tag = "4")]
    pub feeder: Option<u64>,
    /// Set for a file scan.
    #[prost(message, optional, tag = "5")]
    pub scan: Option<ScanSnapshot>,
    /// By rank; without ranks that have no metrics yet.
    #[prost(message, repeated, tag = "6")]
    pub shares: Vec<Share>,
    /// Streams of a motion, between different ranks.
    #[prost(message, repeated, tag = "7")]
    pub streams: Vec<StreamSnapshot>,
}

/// The files of a scan, over all ranks.
#[derive(Clone, PartialEq, Message)]
pub struct ScanSnapshot {
    /// The name of the folder or file, for display.
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint64, tag = "2")]
    pub files: u64,
    /// Upper bound of the bytes read.
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
    #[prost(uint64, optional, tag = "4")]
    pub rows: Option<u64>,
}

/// One rank's share of an operator's work.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Share {
    #[prost(uint64, tag = "1")]
    pub rank: u64,
    /// Output rows.
    #[prost(uint64, optional, tag = "2")]
    pub rows: Option<u64>,
    /// Sum over the threads of the rank.
    #[prost(uint64, optional, tag = "3")]
    pub busy_ns: Option<u64>,
    /// From files.
    #[prost(uint64, tag = "4")]
    pub read_bytes: u64,
    /// Rows pruned by a filter inside the scan.
    #[prost(uint64, tag = "5")]
    pub pruned_rows: u64,
    /// Received by a motion.
    #[prost(uint64, tag = "6")]
    pub moved_bytes: u64,
    #[prost(uint64, tag = "7")]
    pub spilled_bytes: u64,
    /// Nanoseconds since 1970, by the clock of the rank's host, or of the coordinator's: see
    /// [`PlanSnapshot::align`].
    #[prost(uint64, optional, tag = "8")]
    pub began_ns: Option<u64>,
    #[prost(uint64, optional, tag = "9")]
    pub ended_ns: Option<u64>,
}

/// The stream from one sending rank to one receiving rank of one motion: see [`StreamMeasured`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct StreamSnapshot {
    #[prost(uint64, tag = "1")]
    pub from: u64,
    #[prost(uint64, tag = "2")]
    pub to: u64,
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
    #[prost(uint64, tag = "4")]
    pub blocks: u64,
    #[prost(uint64, tag = "5")]
    pub credit_waits: u64,
    #[prost(uint64, tag = "6")]
    pub credit_wait_ns: u64,
    #[prost(uint64, tag = "7")]
    pub encode_ns: u64,
    #[prost(uint64, tag = "8")]
    pub queue_ns: u64,
    #[prost(uint64, tag = "9")]
    pub decode_ns: u64,
    #[prost(uint64, optional, tag = "10")]
    pub began_ns: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub ended_ns: Option<u64>,
}

impl PlanSnapshot {
    /// Converts the times of all ranks to the coordinator's clock. `ahead`: nanoseconds by which each rank's
    /// clock is ahead of it.
    pub fn align(&mut self, ahead: &[i64]) {
        let align = |rank: u64, times: [&mut Option<u64>; 2]| {
            let ahead = ahead.get(rank as usize).copied().unwrap_or(0);
            for time in times {
                *time = time.map(|ns| clock_offset::align_time(ns, ahead));
            }
        };
        for operator in self.slices.iter_mut().flat_map(|slice| &mut slice.operators) {
            for share in &mut operator.shares {
                align(share.rank, [&mut share.began_ns, &mut share.ended_ns]);
            }
            for stream in &mut operator.streams {
                align(stream.to, [&mut stream.began_ns, &mut stream.ended_ns]);
            }
        }
    }

    /// Takes a snapshot of a plan of this process with its current metrics. Reads counters; does not wait.
    pub fn at(plan: &Arc<dyn ExecutionPlan>) -> Self {
        Self::of(&slices(plan), &[])
    }

    /// `members`: the rank at each place of a slice, [`crate::Gang::members`]; empty: identical.
    pub fn of(slices: &[Slice], members: &[usize]) -> Self {
        let of_slice = |slice: &Slice| SliceSnapshot {
            number: slice.number as u64,
            ranks: slice.ranks as u64,
            operators: slice.operators.iter().map(|operator| operator_snapshot(operator, members)).collect(),
        };
        Self { slices: slices.iter().map(of_slice).collect(), memory: vec![] }
    }

    pub fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }
}

fn operator_snapshot(operator: &Operator, members: &[usize]) -> OperatorSnapshot {
    let (name, detail) = match &operator.motion {
        Some(motion) => motion_text(motion),
        None => {
            let (name, detail) = operator.text.split_once(": ").unwrap_or((&operator.text, ""));
            (name.to_string(), detail.to_string())
        }
    };
    let rank = |place: usize| members.get(place % members.len().max(1)).copied().unwrap_or(place) as u64;
    let busy: BTreeMap<usize, u64> = operator.busy_ns().into_iter().collect();
    let share = |(place, metrics): (usize, &BTreeMap<String, u64>)| {
        let get = |name: &str| metrics.get(name).copied();
        let times = operator.measured.times(place);
        Share {
            rank: rank(place),
            rows: get("output_rows"),
            busy_ns: busy.get(&place).copied(),
            read_bytes: if operator.scan.is_some() { get("bytes_scanned").unwrap_or(0) } else { 0 },
            pruned_rows: get("pushdown_rows_pruned").unwrap_or(0),
            moved_bytes: get("bytes_transferred").filter(|_| operator.motion.is_some()).unwrap_or(0),
            spilled_bytes: get("spilled_bytes").unwrap_or(0),
            began_ns: times.map(|(began, _)| began),
            ended_ns: times.map(|(_, ended)| ended),
        }
    };
    let stream = |(place, from, stream): (usize, usize, &StreamMeasured)| StreamSnapshot {
        from: from as u64,
        to: rank(place),
        bytes: stream.bytes,
        blocks: stream.blocks,
        credit_waits: stream.credit_waits,
        credit_wait_ns: stream.credit_wait_ns,
        encode_ns: stream.encode_ns,
        queue_ns: stream.queue_ns,
        decode_ns: stream.decode_ns,
        began_ns: stream.began_ns,
        ended_ns: stream.ended_ns,
    };
    OperatorSnapshot {
        depth: operator.depth as u64,
        name,
        detail: detail.chars().take(TEXT_CHARS_MAX).collect(),
        feeder: operator.motion.as_ref().map(|motion| motion.slice as u64),
        scan: operator.scan.as_ref().map(|scan| ScanSnapshot {
            name: scan.name.clone(),
            files: scan.files as u64,
            bytes: scan.extent.bytes,
            rows: scan.extent.rows,
        }),
        shares: operator.measured.each().map(share).collect(),
        streams: operator.measured.streams().map(stream).collect(),
    }
}

/// `gather 2→1`, and its keys.
fn motion_text(Motion { kind, from, to, .. }: &Motion) -> (String, String) {
    match kind {
        MotionKind::Gather => (format!("gather {from}→{to}"), String::new()),
        MotionKind::Redistribute(keys) => (format!("redistribute {from}→{to}"), format!("by {keys}")),
        MotionKind::Broadcast => (format!("broadcast {from}→{to}"), String::new()),
    }
}
