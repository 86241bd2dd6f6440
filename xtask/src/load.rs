//! Idle share of the CPUs, from `/proc/stat` (Linux, proc(5)).

use std::time::{Duration, Instant};

/// Shorter spans are meaningless: the kernel counts in hundredths of a second.
const SPAN_MIN: Duration = Duration::from_millis(1500);

/// CPU load since the last measurement.
pub struct Load {
    since: Instant,
    idle: u64,
    total: u64,
    share: f64,
}

impl Load {
    pub fn new() -> Self {
        let (idle, total) = ticks().unwrap_or_default();
        Self { since: Instant::now(), idle, total, share: 0.0 }
    }

    /// Restarts the measurement after a job has started: reports no idle time until the next span is over.
    pub fn restart(&mut self) {
        *self = Self::new();
    }

    /// The idle share of all CPUs in the last complete span, from 0 to 1; 0 before the first one.
    pub fn idle_share(&mut self) -> f64 {
        if self.since.elapsed() >= SPAN_MIN
            && let Some((idle, total)) = ticks()
        {
            self.share = (idle - self.idle) as f64 / (total - self.total).max(1) as f64;
            (self.since, self.idle, self.total) = (Instant::now(), idle, total);
        }
        self.share
    }
}

/// Ticks of all CPUs since boot: idle, and total.
fn ticks() -> Option<(u64, u64)> {
    ticks_in(&std::fs::read_to_string("/proc/stat").ok()?)
}

/// Parses the first line: `cpu`, then user, nice, system, idle, iowait, irq, softirq, steal, …
fn ticks_in(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let idle = numbers.get(3)? + numbers.get(4)?;
    Some((idle, numbers.iter().take(8).sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read() {
        assert_eq!(ticks_in("cpu  10 1 5 70 10 1 2 1 0 0\ncpu0 1 2"), Some((80, 100)));
        assert_eq!(ticks_in("nothing"), None);
    }

    #[test]
    fn nothing_is_idle_before_it_was_measured() {
        assert_eq!(Load::new().idle_share(), 0.0);
    }
}
