//! Half round trips: measured sequentially, reported as median and 99th percentile.

use std::time::Instant;

use crate::measure::quantile;
use crate::protocol::Latency;

/// Clock of consecutive round trips: some to warm up, then the counted ones.
pub struct Clock {
    warm_up: u64,
    count: u64,
    start: Instant,
    halves_ns: Vec<f64>,
}

impl Clock {
    pub fn new(warm_up: u64, count: u64) -> Self {
        Self { warm_up, count, start: Instant::now(), halves_ns: Vec::with_capacity(count as usize) }
    }

    /// Starts a round trip; returns false if enough were made.
    pub fn start(&mut self) -> bool {
        self.start = Instant::now();
        self.warm_up > 0 || (self.halves_ns.len() as u64) < self.count
    }

    /// Ends a round trip.
    pub fn stop(&mut self) {
        let half_ns = self.start.elapsed().as_nanos() as f64 / 2.0;
        match self.warm_up {
            0 => self.halves_ns.push(half_ns),
            _ => self.warm_up -= 1,
        }
    }

    /// Errors: nothing was measured.
    pub fn latency(self) -> Result<Latency, String> {
        of(self.halves_ns).ok_or_else(|| "no round trip was asked for".to_owned())
    }
}

/// Percentiles of half round trips in nanoseconds; `None` if there are none.
pub fn of(mut halves_ns: Vec<f64>) -> Option<Latency> {
    halves_ns.sort_by(f64::total_cmp);
    Some(Latency { p50_ns: quantile(&halves_ns, 0.50)?, p99_ns: quantile(&halves_ns, 0.99)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_to_warm_up_do_not_count() {
        let mut clock = Clock::new(3, 2);
        let mut made = 0;
        while clock.start() {
            made += 1;
            clock.stop();
        }
        assert_eq!((made, clock.halves_ns.len()), (5, 2));
        assert!(clock.latency().is_ok());
        assert!(Clock::new(0, 0).latency().is_err());
    }

    #[test]
    fn percentiles_are_of_the_sorted_values() {
        assert_eq!(of(vec![]), None);
        assert_eq!(of(vec![3.0]), Some(Latency { p50_ns: 3.0, p99_ns: 3.0 }));
        let hundred = (1..=100).rev().map(f64::from).collect();
        assert_eq!(of(hundred), Some(Latency { p50_ns: 50.0, p99_ns: 99.0 }));
    }
}
