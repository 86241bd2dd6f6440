//! Adaptive busy polling: how long an idle driver polls before it sleeps.
//!
//! Waking a thread takes longer than a small message: a system call on one side, and on the other a core that
//! has to reschedule the thread or leave a sleep state. So while small messages arrive in close succession
//! the driver polls for about as long as a wake-up takes. It sleeps at once
//! - if the last messages were far apart: none is expected soon;
//! - if many bytes were moved at a time: processor time matters then, and blocks do not wait for an answer;
//! - if other threads want the processor. Between two polls it yields; if the yield takes long and there is
//!   still nothing to do, others had better use for that time, and polling is suspended: with exponential
//!   backoff, halved after each message that polling caught.
//!
//! Time is passed in, so that tests do not depend on the clock.

use crate::limits::*;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct BusyPoll {
    /// Whether there are enough cores for busy polling.
    is_enabled: bool,
    /// Moving average of the idle time before a small message, weighted to recent ones.
    gap_ns: u64,
    /// Start of the current idle time.
    idle_since: Option<Instant>,
    /// Time of the last poll.
    last_poll: Option<Instant>,
    suspended_until: Option<Instant>,
    /// Duration of the next suspension.
    suspension_ns: u64,
    /// Bytes moved since the last idle time.
    moved_bytes: u64,
}

impl BusyPoll {
    /// Initially expects no messages.
    pub fn new(is_enabled: bool) -> Self {
        BusyPoll {
            is_enabled,
            gap_ns: GAP_NS_MAX,
            idle_since: None,
            last_poll: None,
            suspended_until: None,
            suspension_ns: SUSPENSION_NS_MIN,
            moved_bytes: 0,
        }
    }

    /// Records that `bytes` bytes were moved.
    pub fn record_moved(&mut self, now: impl FnOnce() -> Instant, bytes: u64) {
        if let Some(since) = self.idle_since.take() {
            let gap_ns = now().saturating_duration_since(since).as_nanos().min(u128::from(GAP_NS_MAX)) as u64;
            let gap_ns = if self.moved_bytes > SMALL_MESSAGE_BYTES_MAX { GAP_NS_MAX } else { gap_ns };
            self.gap_ns = self.gap_ns - self.gap_ns / GAP_WEIGHT + gap_ns / GAP_WEIGHT;
            self.moved_bytes = 0;
        }
        self.moved_bytes += bytes;
        if self.last_poll.take().is_some() {
            self.suspension_ns = (self.suspension_ns / 2).max(SUSPENSION_NS_MIN);
        }
    }

    /// Called when nothing moved: whether to poll again after a yield instead of sleeping.
    pub fn should_poll(&mut self, now: impl FnOnce() -> Instant) -> bool {
        if !self.is_enabled {
            return false;
        }
        let now = now();
        let since = *self.idle_since.get_or_insert(now);
        let nanoseconds = |ns: u64| Duration::from_nanos(ns);
        if self.last_poll.replace(now).is_some_and(|last_poll| now - last_poll > nanoseconds(YIELD_NS_MAX)) {
            self.suspended_until = Some(now + nanoseconds(self.suspension_ns));
            self.suspension_ns = (2 * self.suspension_ns).min(SUSPENSION_NS_MAX);
        }
        let is_suspended = self.suspended_until.is_some_and(|until| now < until);
        let should_poll =
            !is_suspended && self.gap_ns <= BUSY_POLL_NS_MAX && now - since < nanoseconds(BUSY_POLL_NS_MAX);
        if !should_poll {
            // It sleeps, and that time does not measure contention.
            self.last_poll = None;
        }
        should_poll
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: u64 = 128;

    /// A driver with a simulated clock.
    struct Watched {
        busy_poll: BusyPoll,
        now: Instant,
    }

    impl Watched {
        fn new(is_enabled: bool) -> Self {
            Watched { busy_poll: BusyPoll::new(is_enabled), now: Instant::now() }
        }

        fn should_poll(&mut self) -> bool {
            let now = self.now;
            self.busy_poll.should_poll(|| now)
        }

        /// Simulates `count` idle times of `gap_ns`, with polls of a microsecond, each followed by `bytes`.
        /// Returns whether it polled until the last message.
        fn talks(&mut self, count: u32, gap_ns: u64, bytes: u64) -> bool {
            let mut polled = false;
            for _ in 0..count {
                let comes = self.now + Duration::from_nanos(gap_ns);
                polled = self.should_poll();
                while polled && self.now < comes {
                    self.now += Duration::from_micros(1);
                    polled = self.should_poll();
                }
                self.now = comes;
                let now = self.now;
                self.busy_poll.record_moved(|| now, bytes);
            }
            polled
        }
    }

    #[test]
    fn busy_polling_for_frequent_small_messages() {
        let mut watched = Watched::new(true);
        assert!(!watched.should_poll(), "nothing is known yet");
        assert!(watched.talks(50, 10_000, SMALL));
        // Messages become rare, and frequent again.
        assert!(!watched.talks(50, 2_000_000, SMALL));
        assert!(watched.talks(50, 10_000, SMALL));
        // No message follows.
        let mut looks = 0;
        while watched.should_poll() {
            watched.now += Duration::from_micros(1);
            looks += 1;
        }
        assert_eq!(looks, BUSY_POLL_NS_MAX / 1000);
        assert!(!watched.should_poll());
    }

    #[test]
    fn busy_polling_stops_for_blocks_and_rare_messages() {
        assert!(!Watched::new(true).talks(200, 10_000, 4 * SMALL_MESSAGE_BYTES_MAX));
        assert!(!Watched::new(true).talks(200, 2 * BUSY_POLL_NS_MAX, SMALL));
        assert!(!Watched::new(false).talks(200, 10_000, SMALL));
    }

    #[test]
    fn busy_polling_yields_the_cpu() {
        let mut watched = Watched::new(true);
        assert!(watched.talks(50, 10_000, SMALL));
        let mut pause_ns = SUSPENSION_NS_MIN;
        for _ in 0..20 {
            assert!(watched.should_poll());
            watched.now += Duration::from_nanos(YIELD_NS_MAX + 1);
            assert!(!watched.should_poll(), "somebody else ran meanwhile");
            watched.now += Duration::from_nanos(pause_ns - 1);
            assert!(!watched.should_poll(), "and may still want to");
            watched.now += Duration::from_nanos(1);
            // Not counted in the average gap.
            watched.busy_poll.idle_since = None;
            pause_ns = (2 * pause_ns).min(SUSPENSION_NS_MAX);
        }
        assert_eq!((pause_ns, watched.busy_poll.suspension_ns), (SUSPENSION_NS_MAX, SUSPENSION_NS_MAX));
        assert!(watched.talks(50, 10_000, SMALL));
        assert_eq!(watched.busy_poll.suspension_ns, SUSPENSION_NS_MIN);
        // A task of this process had the processor, and gave the driver work.
        assert!(watched.should_poll());
        watched.now += Duration::from_nanos(YIELD_NS_MAX + 1);
        let now = watched.now;
        watched.busy_poll.record_moved(|| now, SMALL);
        assert!(watched.should_poll());
    }
}
