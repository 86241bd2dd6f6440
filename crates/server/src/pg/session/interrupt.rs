//! Interruptions of a statement or session: client disconnect, cancel request, termination, time limit.

use std::future::Future;
use std::io;
use std::time::Instant;

use harrier_error::{SqlError, SqlState};
use tokio::sync::watch;
use tokio::time::sleep_until;

use super::super::io::Io;
use super::RequestError;
use crate::registry::Stop;

/// The channel of stop requests for a session.
pub(super) type Stops = watch::Receiver<(u64, Option<Stop>)>;

/// The error of a terminated session.
pub(in crate::pg) fn terminated_error() -> SqlError {
    SqlError::fatal(SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command")
}

fn canceled_error() -> SqlError {
    SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request")
}

fn timed_out() -> SqlError {
    SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to statement timeout")
}

/// Waits for a deadline; forever without one.
pub(super) async fn expiry(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

/// The next stop request.
pub(super) async fn next_stop(stops: &mut Stops) -> Stop {
    loop {
        if stops.changed().await.is_err() {
            return std::future::pending().await;
        }
        if let Some(stop) = stops.borrow_and_update().1 {
            return stop;
        }
    }
}

/// Waits for an interruption; returns its error.
pub(super) async fn next_interruption(stops: &mut Stops, deadline: Option<Instant>) -> SqlError {
    let timer = expiry(deadline);
    tokio::pin!(timer);
    loop {
        tokio::select! {
            biased;
            stop = next_stop(stops) => match stop {
                Stop::Statement => return canceled_error(),
                Stop::Session => return terminated_error(),
                Stop::Drain => {}
            },
            () = &mut timer => return timed_out(),
        }
    }
}

/// Runs `work` unless it is interrupted or the client disconnects.
pub(super) async fn run_interruptible<T>(
    io: &mut Io,
    stops: &mut Stops,
    deadline: Option<Instant>,
    work: impl Future<Output = T>,
) -> Result<T, RequestError> {
    tokio::select! {
        biased;
        value = work => Ok(value),
        failure = next_interruption(stops, deadline) => Err(failure.into()),
        error = io.watch() => Err(error.into()),
    }
}

/// Sends a statement's output. A partially sent message cannot be taken back: if the statement is interrupted
/// meanwhile, `give_up` ends it at once, however slowly its client reads, and it fails when the client has
/// read the rest. A terminated session does not wait for that.
pub(super) async fn send(
    io: &mut Io,
    stops: &mut Stops,
    deadline: Option<Instant>,
    give_up: impl FnOnce(&SqlError),
) -> Result<(), RequestError> {
    let flushed = io.flush();
    tokio::pin!(flushed);
    let failure = tokio::select! {
        biased;
        sent = &mut flushed => return Ok(sent?),
        failure = next_interruption(stops, deadline) => failure,
    };
    if failure.is_fatal {
        return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into());
    }
    give_up(&failure);
    finish(flushed, stops).await?;
    Err(failure.into())
}

/// Flushes the output when no statement runs.
pub(super) async fn flush(io: &mut Io, stops: &mut Stops) -> Result<(), RequestError> {
    let flushed = io.flush();
    tokio::pin!(flushed);
    finish(flushed, stops).await
}

/// Waits until the output is sent, or the session is terminated.
async fn finish(
    mut flushed: impl Future<Output = io::Result<()>> + Unpin,
    stops: &mut Stops,
) -> Result<(), RequestError> {
    loop {
        tokio::select! {
            biased;
            sent = &mut flushed => return Ok(sent?),
            stop = next_stop(stops) => if stop == Stop::Session {
                return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into());
            },
        }
    }
}
