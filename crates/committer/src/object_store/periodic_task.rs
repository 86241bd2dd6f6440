//! A periodic background task that ends with its owner and is never interrupted within a step.

use std::future::Future;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The longest wait for the current step at the end.
const END_MAX: Duration = Duration::from_secs(5);

/// Dropping it ends it after the current step.
#[derive(Debug, Default)]
pub(crate) struct PeriodicTask(Option<(oneshot::Sender<()>, JoinHandle<()>)>);

impl PeriodicTask {
    /// Calls `work` with 1, 2, … after a `pause` each, until it returns false.
    pub(crate) fn spawn<F: Future<Output = bool> + Send + 'static>(
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

    /// Waits for the current step; no other follows.
    pub(crate) async fn stop(&mut self) {
        if let Some((owner, task)) = self.0.take() {
            drop(owner);
            let _ = tokio::time::timeout(END_MAX, task).await;
        }
    }
}
