//! Retries work whose connection to the database was lost before it had an effect.
//!
//! When a PostgreSQL server restarts or fails over, every connection ends, which clients notice at the next
//! message. Reads are then retried, and so are commits known not to have happened, on a connection that waits
//! for the server (`database.rs` bounds the wait). A COMMIT with unknown outcome is not retried but looked up
//! (`commit.rs`).
//!
//! Changes of roles and queues, ANALYZE results, and the expiry of snapshots fail with their connection:
//! their outcome is not looked up.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};

use crate::database::errors::is_lost;
use crate::error::Result;

/// Maximum number of attempts. A server that fails each time is not waited for.
const ATTEMPTS_MAX: usize = 4;

/// Backoff between attempts: a server that shuts down may accept connections a little longer.
pub(crate) fn reconnect_backoff() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(5))
        .with_factor(4.0)
        .with_max_times(ATTEMPTS_MAX - 1)
}

/// Runs `work`, and retries it if its connection was lost. It must be idempotent.
pub(crate) async fn retry_if_lost<T, F: Future<Output = Result<T>>>(work: impl Fn() -> F) -> Result<T> {
    work.retry(reconnect_backoff())
        .when(is_lost)
        .notify(
            |error, wait| tracing::debug!(?wait, %error, "the connection to the catalog was lost; retrying"),
        )
        .await
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::error::Error;

    fn lost_connection() -> Error {
        Error::Database(sqlx::Error::Io(io::ErrorKind::ConnectionReset.into()))
    }

    async fn attempts(failing: u32, error: fn() -> Error) -> (u32, bool) {
        let count = AtomicU32::new(0);
        let outcome = retry_if_lost(|| async {
            match count.fetch_add(1, Ordering::Relaxed) < failing {
                true => Err(error()),
                false => Ok(()),
            }
        });
        let is_done = outcome.await.is_ok();
        (count.into_inner(), is_done)
    }

    #[tokio::test]
    async fn lost_connections_are_retried_a_few_times() {
        assert_eq!(attempts(0, lost_connection).await, (1, true));
        assert_eq!(attempts(2, lost_connection).await, (3, true));
        assert_eq!(attempts(ATTEMPTS_MAX as u32, lost_connection).await, (ATTEMPTS_MAX as u32, false));
    }

    #[tokio::test]
    async fn other_errors_are_not_retried() {
        let refused = || Error::Database(sqlx::Error::Io(io::ErrorKind::ConnectionRefused.into()));
        assert_eq!(attempts(1, refused).await, (1, false));
        assert_eq!(attempts(1, || Error::Conflict("taken".to_string())).await, (1, false));
        assert_eq!(attempts(1, || Error::Database(sqlx::Error::PoolTimedOut)).await, (1, false));
    }
}
