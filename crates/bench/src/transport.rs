//! Share of a statement's CPU time spent on moving its rows between ranks.
//!
//! Includes encoding and decoding blocks, and the threads that send and receive them, summed over all ranks.
//! Encoding and decoding are measured by wall clock: with more runnable threads than cores they are
//! overestimated. gRPC works on the threads of the operators and cannot be separated from them: its share is
//! unknown.

use harrier_engine::{Engine, Session};

/// CPU time of all ranks so far, in nanoseconds.
pub(super) struct Usage {
    processes_ns: u64,
    drivers_ns: u64,
}

/// Returns the usage of all ranks so far; `None` if it is not measured. Call before a statement.
pub(super) async fn usage(engine: &Engine, session: &Session) -> Option<Usage> {
    let gang = engine.gang().filter(|_| session.settings().interconnect != "grpc")?;
    let reports = gang.reports().await.ok()?;
    // Workers inside one process pass rows from task to task.
    reports.iter().all(|report| report.counts.epoch > 0).then(|| Usage {
        processes_ns: reports.iter().map(|report| report.process_cpu_ns).sum(),
        drivers_ns: reports.iter().map(|report| report.mpi_cpu_ns).sum(),
    })
}

/// Returns the share for the statement since `before`, from 0 to 1.
pub(super) async fn share(engine: &Engine, session: &Session, before: Option<Usage>) -> Option<f64> {
    let before = before?;
    let past = engine.history()?.past().await;
    let after = usage(engine, session).await?;
    let streams = past.last()?.snapshot.slices.iter().flat_map(|slice| &slice.operators);
    let blocks_ns: u64 = streams
        .flat_map(|operator| &operator.streams)
        .map(|stream| stream.encode_ns + stream.decode_ns)
        .sum();
    let drivers_ns = after.drivers_ns.saturating_sub(before.drivers_ns);
    let all_ns = after.processes_ns.saturating_sub(before.processes_ns);
    (all_ns > 0).then(|| ((blocks_ns + drivers_ns) as f64 / all_ns as f64).min(1.0))
}
