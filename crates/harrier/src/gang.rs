//! Gang membership of this process: joins when a launcher or a hosts file says so, and leaves at exit.
//!
//! Rank 0 reads input, coordinates and prints. The other ranks work for it until it leaves, and take over its
//! exit status.

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

/// How long the coordinator, asked to end, waits for the reason: a launcher signals all ranks when one has
/// died, and the news of that death arrives over another channel. The sum with [`STATEMENT_PATIENCE`] is
/// below the one second after which Open MPI's launcher kills processes that it has asked to end.
const REASON_PATIENCE: Duration = Duration::from_millis(300);

/// How long a statement may take to fail because of a lost rank, before the coordinator reports the loss
/// itself.
const STATEMENT_PATIENCE: Duration = Duration::from_millis(300);

/// How long a rank that is asked to end stays alive, so that the coordinator, which is asked too, does not
/// report this rank as the cause.
const FOLLOWER_PATIENCE: Duration = Duration::from_millis(700);

/// How long ranks that failed to meet stay alive, so that the first rank of each host can report which ranks
/// arrived.
const NOT_MET_PATIENCE: Duration = Duration::from_millis(500);

/// How this process was launched; `None`: alone. `hosts`: the hosts file of the command line; `alone`: the
/// command line forces a single process.
pub(crate) fn launch(hosts: Option<&Path>, alone: bool) -> Result<Option<Launch>, ExitCode> {
    harrier_exec::launch(hosts, alone).map_err(|error| {
        eprintln!("{}", error.report());
        ExitCode::from(error.exit_status())
    })
}

/// Joins the gang of this launch; `None` when the process runs alone.
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
    let gang = Gang::join(launch, spares).map_err(|error| report_start_error(&error, rank, has_launcher))?;
    enough(gang.ranks())?;
    if gang.ranks() == 1 {
        // The launcher did not announce the number of ranks.
        gang.leave(0);
        return Ok(None);
    }
    Ok(Some(gang))
}

/// Reads and discards the standard input of this rank: `srun` copies its input to all tasks and blocks on
/// those that do not read it. Rank 0 reads for all.
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

/// Reports a failure to form the gang. Under a launcher all ranks fail alike: one rank reports it, the others
/// wait, because a launcher ends the rest as soon as one rank fails. Without a launcher every rank reports.
fn report_start_error(error: &StartError, rank: usize, has_launcher: bool) -> ExitCode {
    if !has_launcher || error.is_reported_by(rank) {
        eprintln!("{}", error.report());
    }
    match error {
        // Ranks on other hosts report as well; a launcher gives them no time once one rank has exited.
        StartError::StartTimeout { .. } => std::thread::sleep(NOT_MET_PATIENCE),
        _ if has_launcher && rank > 0 => std::thread::sleep(FOLLOWER_PATIENCE),
        _ => {}
    }
    ExitCode::from(exit::BROKEN)
}

/// Number of working ranks on this rank's host.
pub(crate) fn ranks_here(gang: &Gang) -> usize {
    let peers = gang.peers();
    gang.members().into_iter().filter(|member| peers[*member].here).count().max(1)
}

/// Works as a rank other than 0 until the coordinator leaves or is lost. Returns the exit status.
pub(crate) async fn follow(gang: &Gang) -> u8 {
    match gang.follow().await {
        Departure::Exited { status } => {
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

/// Ends the gang from rank 0. Returns the exit status: `BROKEN` if a rank was lost.
pub(crate) async fn dismiss(gang: &Gang, status: u8) -> u8 {
    let status = if gang.has_new_loss() { exit::BROKEN } else { status };
    let leaving = gang.clone();
    let _ = tokio::task::spawn_blocking(move || leaving.leave(status.into())).await;
    status
}

/// The error message for the user when rank 0 is asked to end because a rank died.
pub(crate) async fn reason_to_end(gang: &Gang) -> Option<String> {
    let (rank, reason) = tokio::time::timeout(REASON_PATIENCE, gang.next_loss()).await.ok()?;
    // A running statement fails by itself with a better message, unless it is in a long computation.
    tokio::time::sleep(STATEMENT_PATIENCE).await;
    Some(format!("ERROR 57P02: rank {rank} is lost: {reason}"))
}

/// Waits on a rank other than 0 until the coordinator has ended, at most [`FOLLOWER_PATIENCE`].
pub(crate) async fn wait_for_coordinator(gang: &Gang) {
    let _ = tokio::time::timeout(FOLLOWER_PATIENCE, gang.follow()).await;
}
