//! Pending background work that a process waits for at exit: aborting the uploads and files of failed
//! statements, which would otherwise be left behind.

use std::sync::LazyLock;
use std::time::Duration;

use tokio::sync::watch;

/// The longest wait at exit.
const EXIT_WAIT_MAX: Duration = Duration::from_secs(10);

static COUNT: LazyLock<watch::Sender<usize>> = LazyLock::new(|| watch::Sender::new(0));

/// Marks work as pending until it is dropped. Begin it together with the upload, as the task that aborts it
/// may not have been notified yet.
#[derive(Debug)]
pub struct PendingWork(());

impl PendingWork {
    pub fn begin() -> Self {
        COUNT.send_modify(|count| *count += 1);
        Self(())
    }
}

impl Drop for PendingWork {
    fn drop(&mut self) {
        COUNT.send_modify(|count| *count -= 1);
    }
}

/// Waits until no work is pending, for a process that is about to exit; at most [`EXIT_WAIT_MAX`], after
/// which some may be left.
pub async fn wait_for_pending_work() {
    let mut count = COUNT.subscribe();
    let none = count.wait_for(|count| *count == 0);
    if tokio::time::timeout(EXIT_WAIT_MAX, none).await.is_err() {
        tracing::warn!("uploads of statements that have failed stay");
    }
}
