//! Conversion of the engine's plan snapshots to the types of the server's pages.

use futures::FutureExt;
use futures::future::BoxFuture;
use harrier_engine::Progress;
use harrier_exec::monitor::plan_snapshot::{
    OperatorSnapshot, PlanSnapshot, ScanSnapshot, Share as ShareLook, SliceSnapshot, StreamSnapshot,
};
use harrier_resources::statement_memory::ProcessMemory;
use harrier_server::query_profile::{Memory, Operator, Probe, QueryProfile, Scan, Share, Slice, Stream};

/// Samples the plan of one statement, and keeps it until the statement has ended.
#[derive(Debug)]
pub(super) struct PlanProbe(pub(super) Progress);

impl PlanProbe {
    fn boxed_look(&self) -> BoxFuture<'_, QueryProfile> {
        async move { work(self.0.poll_snapshot().await) }.boxed()
    }
}

// Methods are written out to keep compile times low: docs/decisions/0025-boxed-futures-behind-traits.md
impl Probe for PlanProbe {
    fn snapshot(&self) -> QueryProfile {
        work(self.0.last_snapshot())
    }

    fn memory(&self) -> Vec<Memory> {
        self.0.memory().into_iter().map(memory).collect()
    }

    fn refresh<'a: 'f, 'f>(&'a self) -> BoxFuture<'f, QueryProfile> {
        self.boxed_look()
    }
}

/// Converts the ranks' report.
pub(crate) fn work(PlanSnapshot { slices, memory }: PlanSnapshot) -> QueryProfile {
    QueryProfile {
        slices: slices.into_iter().map(slice).collect(),
        memory: memory.into_iter().map(self::memory).collect(),
    }
}

fn memory(ProcessMemory { rank, used }: ProcessMemory) -> Memory {
    Memory { rank: rank.map(|rank| rank as usize), bytes: used.bytes, peak_bytes: used.peak_bytes }
}

fn slice(SliceSnapshot { number, ranks, operators }: SliceSnapshot) -> Slice {
    Slice {
        number: number as usize,
        ranks: ranks as usize,
        operators: operators.into_iter().map(operator).collect(),
    }
}

fn operator(look: OperatorSnapshot) -> Operator {
    let OperatorSnapshot { depth, name, detail, feeder, scan, shares, streams } = look;
    Operator {
        depth: depth as usize,
        name,
        detail,
        feeder: feeder.map(|feeder| feeder as usize),
        scan: scan.map(|ScanSnapshot { name, files, bytes, rows }| Scan { name, files, bytes, rows }),
        shares: shares.into_iter().map(share).collect(),
        streams: streams.into_iter().map(stream).collect(),
    }
}

fn stream(stream: StreamSnapshot) -> Stream {
    Stream {
        from: stream.from as usize,
        to: stream.to as usize,
        bytes: stream.bytes,
        blocks: stream.blocks,
        credit_waits: stream.credit_waits,
        credit_wait_ns: stream.credit_wait_ns,
        encode_ns: stream.encode_ns,
        queue_ns: stream.queue_ns,
        decode_ns: stream.decode_ns,
        began_ns: stream.began_ns,
        ended_ns: stream.ended_ns,
    }
}

fn share(share: ShareLook) -> Share {
    Share {
        rank: share.rank as usize,
        rows: share.rows,
        busy_ns: share.busy_ns,
        read_bytes: share.read_bytes,
        pruned_rows: share.pruned_rows,
        moved_bytes: share.moved_bytes,
        spilled_bytes: share.spilled_bytes,
        began_ns: share.began_ns,
        ended_ns: share.ended_ns,
    }
}
