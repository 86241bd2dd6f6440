//! The query profile of a plan as its metrics are now.
//!
//! Far smaller than the operators' metrics: only the figures shown for a running statement, independent of
//! the number of files and output partitions.

use datafusion::physical_plan::ExecutionPlan;
use harrier_session_api::query_profile::{self, QueryProfile, Scan, Share, Stream};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::monitor::slice_tree::{Motion, MotionKind, OperatorNode, SliceNode, slices};
use crate::transport::clock_offset;
use crate::transport::stream_metrics::StreamMeasured;

/// The longest operator description.
const TEXT_CHARS_MAX: usize = 400;

/// Converts the times of all ranks to the coordinator's clock. `ahead`: nanoseconds by which each rank's
/// clock is ahead of it.
pub fn align(profile: &mut QueryProfile, ahead: &[i64]) {
    let align = |rank: u64, times: [&mut Option<u64>; 2]| {
        let ahead = ahead.get(rank as usize).copied().unwrap_or(0);
        for time in times {
            *time = time.map(|ns| clock_offset::align_time(ns, ahead));
        }
    };
    for operator in profile.slices.iter_mut().flat_map(|slice| &mut slice.operators) {
        for share in &mut operator.shares {
            align(share.rank, [&mut share.began_ns, &mut share.ended_ns]);
        }
        for stream in &mut operator.streams {
            align(stream.to, [&mut stream.began_ns, &mut stream.ended_ns]);
        }
    }
}

/// Takes a snapshot of a plan of this process with its current metrics. Reads counters; does not wait.
pub fn at(plan: &Arc<dyn ExecutionPlan>) -> QueryProfile {
    of(&slices(plan), &[])
}

/// `members`: the rank at each place of a slice, [`crate::Gang::members`]; empty: identical.
pub fn of(slices: &[SliceNode], members: &[usize]) -> QueryProfile {
    let of_slice = |slice: &SliceNode| query_profile::Slice {
        number: slice.number as u64,
        ranks: slice.ranks as u64,
        operators: slice.operators.iter().map(|operator| operator_snapshot(operator, members)).collect(),
    };
    QueryProfile { slices: slices.iter().map(of_slice).collect(), memory: vec![] }
}

fn operator_snapshot(operator: &OperatorNode, members: &[usize]) -> query_profile::Operator {
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
    let stream = |(place, from, stream): (usize, usize, &StreamMeasured)| Stream {
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
    query_profile::Operator {
        depth: operator.depth as u64,
        name,
        detail: detail.chars().take(TEXT_CHARS_MAX).collect(),
        feeder: operator.motion.as_ref().map(|motion| motion.slice as u64),
        scan: operator.scan.as_ref().map(|scan| Scan {
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
