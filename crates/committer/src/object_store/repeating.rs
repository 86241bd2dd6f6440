//! What is done again and again while its owner lives, and never broken off within.

use std::future::Future;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Who ends it waits no longer for what is under way.
const END_MAX: Duration = Duration::from_secs(5);

/// Dropped, it ends after what is under way.
#[derive(Debug, Default)]
pub(crate) struct Repeating(Option<(oneshot::Sender<()>, JoinHandle<()>)>);

impl Repeating {
    /// Calls `work` with 1, 2, … after a `pause` each, until it says that this is over.
    pub(crate) fn every<F: Future<Output = bool> + Send + 'static>(
        pause: Duration,
        work: impl Fn(u64) -> F + Send + 'static,
    ) -> Self {
        let (owner, mut ended) = oneshot::channel();
        let task = tokio::spawn(async move {
            for count in 1.. {
                tokio::select! {
                    _ = &mut ended => return,
                    () = tokio::time::sleep(pause) => {}
                }
                if !work(count).await {
                    return;
                }
            }
        });
        Self(Some((owner, task)))
    }

    /// Waits for what is under way; nothing is done afterwards.
    pub(crate) async fn end(&mut self) {
        if let Some((owner, task)) = self.0.take() {
            drop(owner);
            let _ = tokio::time::timeout(END_MAX, task).await;
        }
    }
}
