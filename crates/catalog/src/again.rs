//! Work that is done again where its connection to the database was lost before it had an effect.
//!
//! A server of PostgreSQL that is started again, or whose place another one takes, ends every connection, and whoever has one hears of it at
//! the next message. What only reads has lost nothing by that, and neither has a commit that is known not to have happened: both begin
//! anew, on a connection that waits for the server (`database.rs` says for how long). A COMMIT whose outcome nobody knows is not begun
//! anew but looked up (`commit.rs`).
//!
//! What changes roles and queues, keeps what ANALYZE found, or expires snapshots fails with its connection: nobody looks up whether it has
//! happened.

use std::time::Duration;

use crate::database::is_lost;
use crate::error::Result;

/// How often work is begun. A server that goes away each time in the middle of it is not waited for.
pub(crate) const BEGUN_MAX: u32 = 4;
/// The wait before it is begun a second time: a server that ends may listen a little longer. Each is four times as long as the last.
const WAIT_FIRST: Duration = Duration::from_millis(5);

/// Does work, and does it again where its connection was lost. It has to be such that this does no harm, whatever of it was done before.
pub(crate) async fn again_if_lost<T, F: Future<Output = Result<T>>>(work: impl Fn() -> F) -> Result<T> {
    let mut begun = 1;
    loop {
        match work().await {
            Err(error) if begun < BEGUN_MAX && is_lost(&error) => {
                tracing::debug!(begun, %error, "the connection to the catalog was lost; beginning anew");
                tokio::time::sleep(wait(begun)).await;
                begun += 1;
            }
            outcome => return outcome,
        }
    }
}

/// The wait before work is begun once more.
pub(crate) fn wait(begun: u32) -> Duration {
    WAIT_FIRST * 4_u32.pow(begun - 1)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::error::Error;

    fn lost() -> Error {
        Error::Database(sqlx::Error::Io(io::ErrorKind::ConnectionReset.into()))
    }

    async fn begun(failing: u32, error: fn() -> Error) -> (u32, bool) {
        let begun = AtomicU32::new(0);
        let outcome = again_if_lost(|| async {
            match begun.fetch_add(1, Ordering::Relaxed) < failing {
                true => Err(error()),
                false => Ok(()),
            }
        });
        let is_done = outcome.await.is_ok();
        (begun.into_inner(), is_done)
    }

    #[tokio::test]
    async fn work_is_begun_again_a_few_times() {
        assert_eq!(begun(0, lost).await, (1, true));
        assert_eq!(begun(2, lost).await, (3, true));
        assert_eq!(begun(BEGUN_MAX, lost).await, (BEGUN_MAX, false));
    }

    #[tokio::test]
    async fn what_failed_otherwise_is_not_begun_again() {
        let refused = || Error::Database(sqlx::Error::Io(io::ErrorKind::ConnectionRefused.into()));
        assert_eq!(begun(1, refused).await, (1, false));
        assert_eq!(begun(1, || Error::Conflict("taken".to_string())).await, (1, false));
        assert_eq!(begun(1, || Error::Database(sqlx::Error::PoolTimedOut)).await, (1, false));
    }
}
