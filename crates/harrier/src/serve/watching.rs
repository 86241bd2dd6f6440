//! What a plan of the engine does, in the words of the server's pages.

use async_trait::async_trait;
use harrier_engine::Progress;
use harrier_exec::look::{Look, OperatorLook, ScanLook, Share as ShareLook, SliceLook};
use harrier_server::work::{Operator, Probe, Scan, Share, Slice, Work};

/// Looks at the plan of one statement, and keeps it until the statement has ended.
#[derive(Debug)]
pub(super) struct Watched(pub(super) Progress);

#[async_trait]
impl Probe for Watched {
    fn told(&self) -> Work {
        work(self.0.told())
    }

    async fn look(&self) -> Work {
        work(self.0.look().await)
    }
}

fn work(Look { slices }: Look) -> Work {
    Work { slices: slices.into_iter().map(slice).collect() }
}

fn slice(SliceLook { number, ranks, operators }: SliceLook) -> Slice {
    Slice {
        number: number as usize,
        ranks: ranks as usize,
        operators: operators.into_iter().map(operator).collect(),
    }
}

fn operator(OperatorLook { depth, name, detail, feeder, scan, shares }: OperatorLook) -> Operator {
    Operator {
        depth: depth as usize,
        name,
        detail,
        feeder: feeder.map(|feeder| feeder as usize),
        scan: scan.map(|ScanLook { name, files, bytes, rows }| Scan { name, files, bytes, rows }),
        shares: shares.into_iter().map(share).collect(),
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
