//! Retry limits and backoff of requests.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

use crate::options::{Limits, PAUSE_MAX, PAUSE_MIN};

/// Retry state of one request, from its first attempt.
pub(crate) struct Retry {
    longest: Duration,
    start: Instant,
    backoff: ExponentialBackoff,
}

impl Retry {
    pub(crate) fn new(limits: Limits) -> Self {
        let backoff = ExponentialBuilder::default()
            .with_min_delay(PAUSE_MIN)
            .with_max_delay(PAUSE_MAX)
            .with_max_times(limits.retries)
            .build();
        Self { longest: limits.retry, start: Instant::now(), backoff }
    }

    /// Call it after a failure: waits for the backoff and returns true if a retry is due; returns false at
    /// once if the limits are exhausted.
    pub(crate) async fn wait(&mut self) -> bool {
        if self.start.elapsed() > self.longest {
            return false;
        }
        match self.backoff.next() {
            Some(pause) => tokio::time::sleep(pause).await,
            None => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    #[tokio::test]
    async fn retries_end_by_count_and_by_time() {
        let limits = |retries: &str, seconds: &str| {
            Options::default().with("retries", retries).with("retry_seconds", seconds).limits().unwrap()
        };
        let mut few = Retry::new(limits("2", "1000"));
        assert!(few.wait().await && few.wait().await);
        assert!(!few.wait().await);
        let begun = Instant::now();
        let mut short = Retry::new(limits("1000", "1"));
        while short.wait().await {}
        assert!(begun.elapsed() > Duration::from_secs(1), "{:?}", begun.elapsed());
        assert!(!Retry::new(limits("0", "10")).wait().await);
    }
}
