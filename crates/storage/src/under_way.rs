//! What is under way at stores and has to come to its end before the process does: uploads and files of
//! statements that fail are given up in the background, and a process that ended meanwhile would leave them.

use std::sync::LazyLock;
use std::time::Duration;

use tokio::sync::watch;

/// How long a process that ends waits for stores.
const WAITED_MAX: Duration = Duration::from_secs(10);

static COUNT: LazyLock<watch::Sender<usize>> = LazyLock::new(|| watch::Sender::new(0));

/// Something that is under way until this is dropped: from when it is begun, since what gives it up may not
/// have been told yet.
#[derive(Debug)]
pub struct UnderWay(());

impl UnderWay {
    pub fn begin() -> Self {
        COUNT.send_modify(|count| *count += 1);
        Self(())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        COUNT.send_modify(|count| *count -= 1);
    }
}

/// Waits until nothing is under way, for a process that is about to end; not for longer than [`WAITED_MAX`],
/// after which some may stay.
pub async fn settled() {
    let mut count = COUNT.subscribe();
    let none = count.wait_for(|count| *count == 0);
    if tokio::time::timeout(WAITED_MAX, none).await.is_err() {
        tracing::warn!("uploads of statements that have failed stay");
    }
}
