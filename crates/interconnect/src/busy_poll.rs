//! How long a driver with nothing to do polls busily before it sleeps.
//!
//! To be woken takes longer than a small message: a call into the kernel on the one side, and on the other a
//! core that has to take the thread up again, or that has fallen asleep itself. So while small messages
//! follow each other closely the driver polls for about as long as being woken would take. It sleeps at once
//! - when the last messages lay far apart: nothing is to be expected soon;
//! - when much was moved at a time: there its processor time counts, and blocks do not wait for an answer;
//! - when others want the processor. Between two polls it yields; if it has it back late and still has
//!   nothing to do, others had better use for that time, and for a while it does not poll busily at all:
//!   twice as long each time, and half as long after each message that it did see come.
//!
//! Time is passed in, so that no clock decides a test.

use crate::limits::*;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct BusyPoll {
    /// Whether there are enough cores for it at all.
    may: bool,
    /// How long nothing was to be done before a small message came, on average; the newest count most.
    gap_ns: u64,
    /// Since when nothing is to be done.
    idle_since: Option<Instant>,
    /// The last poll.
    looked: Option<Instant>,
    crowded_until: Option<Instant>,
    /// How long it does not poll busily when others want the processor the next time.
    crowded_ns: u64,
    /// Moved since something was to be done again, bytes.
    moved_bytes: u64,
}

impl BusyPoll {
    /// Expects nothing yet.
    pub fn new(may: bool) -> Self {
        BusyPoll {
            may,
            gap_ns: GAP_NS_MAX,
            idle_since: None,
            looked: None,
            crowded_until: None,
            crowded_ns: CROWDED_NS_MIN,
            moved_bytes: 0,
        }
    }

    /// Something moved: so many bytes.
    pub fn moved(&mut self, now: impl FnOnce() -> Instant, bytes: u64) {
        if let Some(since) = self.idle_since.take() {
            let gap_ns = now().saturating_duration_since(since).as_nanos().min(u128::from(GAP_NS_MAX)) as u64;
            let gap_ns = if self.moved_bytes > SMALL_TALK_BYTES_MAX { GAP_NS_MAX } else { gap_ns };
            self.gap_ns = self.gap_ns - self.gap_ns / GAP_WEIGHT + gap_ns / GAP_WEIGHT;
            self.moved_bytes = 0;
        }
        self.moved_bytes += bytes;
        if self.looked.take().is_some() {
            self.crowded_ns = (self.crowded_ns / 2).max(CROWDED_NS_MIN);
        }
    }

    /// Nothing moved: whether to look again at once, after a yield, instead of sleeping.
    pub fn polls_busily(&mut self, now: impl FnOnce() -> Instant) -> bool {
        if !self.may {
            return false;
        }
        let now = now();
        let since = *self.idle_since.get_or_insert(now);
        let nanoseconds = |ns: u64| Duration::from_nanos(ns);
        if self.looked.replace(now).is_some_and(|looked| now - looked > nanoseconds(YIELD_NS_MAX)) {
            self.crowded_until = Some(now + nanoseconds(self.crowded_ns));
            self.crowded_ns = (2 * self.crowded_ns).min(CROWDED_NS_MAX);
        }
        let is_crowded = self.crowded_until.is_some_and(|until| now < until);
        let polls_busily =
            !is_crowded && self.gap_ns <= LOOK_ON_NS_MAX && now - since < nanoseconds(LOOK_ON_NS_MAX);
        if !polls_busily {
            // It sleeps, and that time says nothing about others.
            self.looked = None;
        }
        polls_busily
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: u64 = 128;

    /// A driver on a clock of its own.
    struct Watched {
        busy_poll: BusyPoll,
        now: Instant,
    }

    impl Watched {
        fn new(may: bool) -> Self {
            Watched { busy_poll: BusyPoll::new(may), now: Instant::now() }
        }

        fn polls_busily(&mut self) -> bool {
            let now = self.now;
            self.busy_poll.polls_busily(|| now)
        }

        /// `count` times nothing for `gap_ns`, as the driver sees it when each look takes a microsecond, and
        /// then `bytes`. Returns whether it polled until the last of them came.
        fn talks(&mut self, count: u32, gap_ns: u64, bytes: u64) -> bool {
            let mut polled = false;
            for _ in 0..count {
                let comes = self.now + Duration::from_nanos(gap_ns);
                polled = self.polls_busily();
                while polled && self.now < comes {
                    self.now += Duration::from_micros(1);
                    polled = self.polls_busily();
                }
                self.now = comes;
                let now = self.now;
                self.busy_poll.moved(|| now, bytes);
            }
            polled
        }
    }

    #[test]
    fn it_polls_while_small_messages_follow_closely() {
        let mut watched = Watched::new(true);
        assert!(!watched.polls_busily(), "nothing is known yet");
        assert!(watched.talks(50, 10_000, SMALL));
        // They become rare, and many again.
        assert!(!watched.talks(50, 2_000_000, SMALL));
        assert!(watched.talks(50, 10_000, SMALL));
        // The last one was the last.
        let mut looks = 0;
        while watched.polls_busily() {
            watched.now += Duration::from_micros(1);
            looks += 1;
        }
        assert_eq!(looks, LOOK_ON_NS_MAX / 1000);
        assert!(!watched.polls_busily());
    }

    #[test]
    fn it_sleeps_between_blocks_and_rare_messages_and_where_it_may_not_look() {
        assert!(!Watched::new(true).talks(200, 10_000, 4 * SMALL_TALK_BYTES_MAX));
        assert!(!Watched::new(true).talks(200, 2 * LOOK_ON_NS_MAX, SMALL));
        assert!(!Watched::new(false).talks(200, 10_000, SMALL));
    }

    #[test]
    fn it_leaves_the_processor_to_those_who_want_it() {
        let mut watched = Watched::new(true);
        assert!(watched.talks(50, 10_000, SMALL));
        let mut pause_ns = CROWDED_NS_MIN;
        for _ in 0..20 {
            assert!(watched.polls_busily());
            watched.now += Duration::from_nanos(YIELD_NS_MAX + 1);
            assert!(!watched.polls_busily(), "somebody else ran meanwhile");
            watched.now += Duration::from_nanos(pause_ns - 1);
            assert!(!watched.polls_busily(), "and may still want to");
            watched.now += Duration::from_nanos(1);
            // Not one of the times that say how closely messages follow each other.
            watched.busy_poll.idle_since = None;
            pause_ns = (2 * pause_ns).min(CROWDED_NS_MAX);
        }
        assert_eq!((pause_ns, watched.busy_poll.crowded_ns), (CROWDED_NS_MAX, CROWDED_NS_MAX));
        assert!(watched.talks(50, 10_000, SMALL));
        assert_eq!(watched.busy_poll.crowded_ns, CROWDED_NS_MIN);
        // A task of this process had the processor, and gave the driver something to do.
        assert!(watched.polls_busily());
        watched.now += Duration::from_nanos(YIELD_NS_MAX + 1);
        let now = watched.now;
        watched.busy_poll.moved(|| now, SMALL);
        assert!(watched.polls_busily());
    }
}
