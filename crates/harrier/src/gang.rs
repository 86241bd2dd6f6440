//! This process as one rank of a gang: joins it when a launcher or a hosts file says so, and ends with it.
//!
//! Rank 0 reads, coordinates and prints. The other ranks work for it until it leaves, and take over its exit
//! status.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use harrier_exec::Carrier;
use harrier_exec::Departure;
use harrier_exec::Gang;
use harrier_exec::Launch;
use harrier_exec::StartError;

use harrier_error::exit;

/// How long the coordinator, when it is asked to end, waits for the reason: a launcher asks all ranks when
/// one has died, and the news of that death comes over another way. With [`STATEMENT_PATIENCE`] it is below
/// the second after which Open MPI's launcher kills who was asked to end.
const REASON_PATIENCE: Duration = Duration::from_millis(300);

/// How long a statement may take to fail because of a lost rank, before the coordinator tells of the loss
/// without it.
const STATEMENT_PATIENCE: Duration = Duration::from_millis(300);

/// How long a rank that is asked to end stays so that the coordinator, which is asked too, does not take it
/// for the reason.
const FOLLOWER_PATIENCE: Duration = Duration::from_millis(700);

/// How long ranks that have not met stay, so that each host's first can say which of them have come.
const NOT_MET_PATIENCE: Duration = Duration::from_millis(500);

/// What this process was started as; `None`: alone. `hosts`: the hosts file of the command line; `alone`: it
/// says so.
pub(crate) fn launch(hosts: Option<&Path>, alone: bool) -> Result<Option<Launch>, ExitCode> {
    harrier_exec::launch(hosts, alone).map_err(|error| {
        eprintln!("{}", error.report());
        ExitCode::from(error.exit_status())
    })
}

/// The gang this process was launched into; `None` when it runs alone.
pub(crate) fn join(launch: Option<Launch>, spares: usize) -> Result<Option<Gang>, ExitCode> {
    let rank = launch.as_ref().map_or(0, |launch| launch.rank);
    let enough = |ranks: usize| match spares >= ranks && spares > 0 {
        true if rank == 0 => {
            eprintln!("ERROR 22023: {spares} spares of {ranks} ranks leave none to work");
            Err(ExitCode::from(exit::USAGE))
        }
        true => Err(ExitCode::from(exit::USAGE)),
        false => Ok(()),
    };
    let ranks = launch.as_ref().map_or(Some(1), |launch| launch.ranks);
    ranks.map(enough).transpose()?;
    let Some(launch) = launch.filter(|_| ranks != Some(1)) else {
        return Ok(None);
    };
    if rank > 0 {
        drain_input();
    }
    let has_launcher = matches!(launch.carrier, Carrier::Mpi { .. });
    let gang = Gang::join(launch, spares).map_err(|error| failed(&error, rank, has_launcher))?;
    enough(gang.ranks())?;
    if gang.ranks() == 1 {
        // A launcher that did not say so.
        gang.leave(0);
        return Ok(None);
    }
    Ok(Some(gang))
}

/// Reads what the launcher passes to this rank, and drops it: `srun` hands its standard input to all tasks,
/// and waits for those that do not read it. Rank 0 reads for all.
fn drain_input() {
    if io::stdin().is_terminal() {
        return;
    }
    let drain = || io::copy(&mut io::stdin().lock(), &mut io::sink());
    let thread = std::thread::Builder::new().name("harrier-input".to_string()).spawn(drain);
    if let Err(error) = thread {
        tracing::warn!(%error, "nobody reads the input of this rank");
    }
}

/// Ranks that a launcher starts fail alike when a gang cannot be formed, and one of them says so. The others
/// wait for it: a launcher that sees one rank fail ends the rest. Without a launcher every rank has its own
/// reader.
fn failed(error: &StartError, rank: usize, has_launcher: bool) -> ExitCode {
    if !has_launcher || error.is_told_by(rank) {
        eprintln!("{}", error.report());
    }
    match error {
        // Those of other hosts have something to say, too, and launchers give them no time once one has
        // ended.
        StartError::NotMet { .. } => std::thread::sleep(NOT_MET_PATIENCE),
        _ if has_launcher && rank > 0 => std::thread::sleep(FOLLOWER_PATIENCE),
        _ => {}
    }
    ExitCode::from(exit::BROKEN)
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
