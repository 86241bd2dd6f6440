//! This process as one rank of a gang: joins it when a launcher or a hosts file says so, and ends with it.
//!
//! Rank 0 reads, coordinates and prints. The other ranks work for it until it leaves, and take over its exit status.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use harrier_exec::{Carrier, Departure, Gang, Launch, StartError};

use crate::exit;

/// How long the coordinator, when it is asked to end, waits for the reason: a launcher asks all ranks when one has died, and
/// the news of that death comes over another way. With [`STATEMENT_PATIENCE`] it is below the second after which Open
/// MPI's launcher kills who was asked to end.
const REASON_PATIENCE: Duration = Duration::from_millis(300);

/// How long a statement may take to fail because of a lost rank, before the coordinator tells of the loss without it.
const STATEMENT_PATIENCE: Duration = Duration::from_millis(300);

/// How long a rank that is asked to end stays so that the coordinator, which is asked too, does not take it for the reason.
const FOLLOWER_PATIENCE: Duration = Duration::from_millis(700);

/// What this process was started as; `None`: alone. `hosts`: the hosts file of the command line.
pub(crate) fn launch(hosts: Option<&Path>) -> Result<Option<Launch>, ExitCode> {
    harrier_exec::launch(hosts).map_err(|error| {
        report(&error);
        ExitCode::from(exit::USAGE)
    })
}

/// The gang this process was launched into; `None` when it runs alone.
pub(crate) fn join(launch: Option<Launch>, spares: usize) -> Result<Option<Gang>, ExitCode> {
    let (rank, ranks) = launch.as_ref().map_or((0, 1), |launch| (launch.rank, launch.ranks));
    if spares >= ranks && spares > 0 {
        if rank == 0 {
            eprintln!("ERROR 22023: {spares} spares of {ranks} ranks leave none to work");
        }
        return Err(ExitCode::from(exit::USAGE));
    }
    let Some(launch) = launch.filter(|_| ranks > 1) else {
        return Ok(None);
    };
    // Ranks that a launcher starts fail alike when a gang cannot be formed, and one of them says so. The others wait for it: a
    // launcher that sees one rank fail ends the rest. Without a launcher every rank has its own reader.
    let silent = rank > 0 && matches!(launch.carrier, Carrier::Mpi { .. });
    Gang::join(launch, spares).map(Some).map_err(|error| {
        match silent {
            true => std::thread::sleep(FOLLOWER_PATIENCE),
            false => report(&error),
        }
        ExitCode::from(exit::BROKEN)
    })
}

fn report(error: &StartError) {
    eprintln!("ERROR {}: {error}", error.sqlstate());
    if let Some(detail) = error.detail() {
        eprintln!("DETAIL: {detail}");
    }
    if let Some(hint) = error.hint() {
        eprintln!("HINT: {hint}");
    }
}

/// How many ranks that work at a time share this rank's host.
pub(crate) fn ranks_here(gang: &Gang) -> usize {
    let peers = gang.peers();
    gang.members().into_iter().filter(|member| peers[*member].here).count().max(1)
}

/// A rank other than 0: works until the coordinator leaves or is lost. Returns the exit status.
pub(crate) async fn follow(gang: &Gang) -> u8 {
    match gang.follow().await {
        Departure::Left { status } => {
            let gang = gang.clone();
            let leaving = tokio::task::spawn_blocking(move || gang.leave(status));
            let _ = leaving.await;
            u8::try_from(status).unwrap_or(exit::BROKEN)
        }
        Departure::Lost { reason } => {
            tracing::debug!(reason, "the coordinator is lost");
            exit::BROKEN
        }
    }
}

/// The end of rank 0: tells the others. If it ends because a rank was lost, the gang ends as broken.
pub(crate) async fn dismiss(gang: &Gang, status: u8) -> u8 {
    let status = if gang.has_new_loss() { exit::BROKEN } else { status };
    let leaving = gang.clone();
    let _ = tokio::task::spawn_blocking(move || leaving.leave(status.into())).await;
    status
}

/// What rank 0 tells the user when it is asked to end: a rank's death, if that is the reason.
pub(crate) async fn reason_to_end(gang: &Gang) -> Option<String> {
    let (rank, reason) = tokio::time::timeout(REASON_PATIENCE, gang.lost()).await.ok()?;
    // A statement that was running fails by itself and tells it better, unless it is deep in a computation.
    tokio::time::sleep(STATEMENT_PATIENCE).await;
    Some(format!("ERROR 57P02: rank {rank} is lost: {reason}"))
}

/// On a rank other than 0 that is asked to end: waits until the coordinator has, but not for long.
pub(crate) async fn coordinator_ended(gang: &Gang) {
    let _ = tokio::time::timeout(FOLLOWER_PATIENCE, gang.follow()).await;
}
