//! What ends a statement, or a session, before it is done: its client, somebody else, or its time limit.

use std::future::Future;
use std::io;
use std::time::Instant;

use harrier_error::{SqlError, SqlState};
use tokio::sync::watch;
use tokio::time::sleep_until;

use super::super::io::Io;
use super::Trouble;
use crate::registry::Stop;

/// What a session is asked to stop.
pub(super) type Stops = watch::Receiver<(u64, Option<Stop>)>;

/// What a session ends with when somebody ends it.
pub(in crate::pg) fn terminated() -> SqlError {
    SqlError::fatal(SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command")
}

fn canceled() -> SqlError {
    SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request")
}

fn timed_out() -> SqlError {
    SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to statement timeout")
}

/// Waits for a point in time; for ever if there is none.
pub(super) async fn expiry(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

/// The next thing that the session is asked to stop.
pub(super) async fn stopped(stops: &mut Stops) -> Stop {
    loop {
        if stops.changed().await.is_err() {
            return std::future::pending().await;
        }
        if let Some(stop) = stops.borrow_and_update().1 {
            return stop;
        }
    }
}

/// Waits for what ends a statement, and returns with what it ends.
pub(super) async fn interrupted(stops: &mut Stops, deadline: Option<Instant>) -> SqlError {
    let timer = expiry(deadline);
    tokio::pin!(timer);
    loop {
        tokio::select! {
            biased;
            stop = stopped(stops) => match stop {
                Stop::Statement => return canceled(),
                Stop::Session => return terminated(),
                Stop::Drain => {}
            },
            () = &mut timer => return timed_out(),
        }
    }
}

/// Does `work` unless it is interrupted, or the client goes.
pub(super) async fn until<T>(
    io: &mut Io,
    stops: &mut Stops,
    deadline: Option<Instant>,
    work: impl Future<Output = T>,
) -> Result<T, Trouble> {
    tokio::select! {
        biased;
        value = work => Ok(value),
        failure = interrupted(stops, deadline) => Err(failure.into()),
        error = io.watch() => Err(error.into()),
    }
}

/// Sends what a statement has written. What was begun to be sent cannot be taken back: if the statement is
/// interrupted meanwhile, `give_up` ends it at once, however slowly its client reads, and it fails when the
/// client has read the rest. A session that is ended does not wait for that.
pub(super) async fn send(
    io: &mut Io,
    stops: &mut Stops,
    deadline: Option<Instant>,
    give_up: impl FnOnce(&SqlError),
) -> Result<(), Trouble> {
    let flushed = io.flush();
    tokio::pin!(flushed);
    let failure = tokio::select! {
        biased;
        sent = &mut flushed => return Ok(sent?),
        failure = interrupted(stops, deadline) => failure,
    };
    if failure.is_fatal {
        return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into());
    }
    give_up(&failure);
    finish(flushed, stops).await?;
    Err(failure.into())
}

/// Sends what was written when no statement runs.
pub(super) async fn flush(io: &mut Io, stops: &mut Stops) -> Result<(), Trouble> {
    let flushed = io.flush();
    tokio::pin!(flushed);
    finish(flushed, stops).await
}

/// Waits for the end of sending, for as long as the session lasts.
async fn finish(
    mut flushed: impl Future<Output = io::Result<()>> + Unpin,
    stops: &mut Stops,
) -> Result<(), Trouble> {
    loop {
        tokio::select! {
            biased;
            sent = &mut flushed => return Ok(sent?),
            stop = stopped(stops) => if stop == Stop::Session {
                return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into());
            },
        }
    }
}
