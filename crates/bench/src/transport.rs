//! What part of a statement's processor time went into moving its rows between ranks.
//!
//! Counted are making blocks, reading them, and the threads that send and receive them, on all ranks
//! together. The first two are clocked, not processor time: where more threads want to run than there are
//! cores, they are counted too high. gRPC does its work on the threads of the operators, where nobody tells
//! it from theirs: its share is not known.

use harrier_engine::{Engine, Session};

/// Processor time of all ranks so far, nanoseconds.
pub(super) struct Used {
    processes_ns: u64,
    drivers_ns: u64,
}

/// What all ranks have used; `None` where shares are not counted. To be called before a statement.
pub(super) async fn used(engine: &Engine, session: &Session) -> Option<Used> {
    let gang = engine.gang().filter(|_| session.settings().interconnect != "grpc")?;
    let reports = gang.reports().await.ok()?;
    // Workers inside one process hand rows from task to task.
    reports.iter().all(|report| report.counts.epoch > 0).then(|| Used {
        processes_ns: reports.iter().map(|report| report.process_cpu_ns).sum(),
        drivers_ns: reports.iter().map(|report| report.mpi_cpu_ns).sum(),
    })
}

/// The share of the statement that has run since, from 0 to 1.
pub(super) async fn share(engine: &Engine, session: &Session, before: Option<Used>) -> Option<f64> {
    let before = before?;
    let past = engine.history()?.past().await;
    let after = used(engine, session).await?;
    let streams = past.last()?.look.slices.iter().flat_map(|slice| &slice.operators);
    let blocks_ns: u64 = streams
        .flat_map(|operator| &operator.streams)
        .map(|stream| stream.encode_ns + stream.decode_ns)
        .sum();
    let drivers_ns = after.drivers_ns.saturating_sub(before.drivers_ns);
    let all_ns = after.processes_ns.saturating_sub(before.processes_ns);
    (all_ns > 0).then(|| ((blocks_ns + drivers_ns) as f64 / all_ns as f64).min(1.0))
}
