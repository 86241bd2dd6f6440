//! How often a request is made again, and how long until then.

use std::time::Duration;

use tokio::time::Instant;

use crate::options::{Limits, PAUSE_MAX, PAUSE_MIN};

/// Of one request, from when it was first made.
pub(crate) struct Patience {
    limits: Limits,
    begun: Instant,
    pause: Duration,
    failures: usize,
}

impl Patience {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, begun: Instant::now(), pause: PAUSE_MIN, failures: 0 }
    }

    /// To be called when it has failed: waits until it is to be made again; false, at once, if it is not any more.
    pub(crate) async fn again(&mut self) -> bool {
        self.failures += 1;
        if self.failures > self.limits.retries || self.begun.elapsed() > self.limits.retry {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    #[tokio::test]
    async fn it_ends_by_number_and_by_time() {
        let limits = |retries: &str, seconds: &str| {
            Options::default().with("retries", retries).with("retry_seconds", seconds).limits().unwrap()
        };
        let mut few = Patience::new(limits("2", "1000"));
        assert!(few.again().await && few.again().await);
        assert!(!few.again().await);
        let begun = Instant::now();
        let mut short = Patience::new(limits("1000", "1"));
        while short.again().await {}
        assert!(begun.elapsed() > Duration::from_secs(1), "{:?}", begun.elapsed());
        assert!(!Patience::new(limits("0", "10")).again().await);
    }
}
