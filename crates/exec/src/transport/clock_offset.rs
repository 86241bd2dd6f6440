//! By how much the clocks of ranks differ from the coordinator's, so that what they have timed stands on one
//! line.
//!
//! Ranks on one host have one clock. Others are asked a few times what time it is; the answer that came back
//! soonest is the one that was least delayed, and half of its way is taken for the way back. What is left of
//! the error is at most half of that round trip. Clocks that drift apart or are set while the gang lives are
//! not followed.
//!
//! Source: F. Cristian, "Probabilistic clock synchronization" (1989).

use std::time::{SystemTime, UNIX_EPOCH};

/// How many times a rank is asked.
pub(crate) const QUESTIONS: usize = 8;

/// A question and its answer, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// By the clock of who asked.
    pub asked: u64,
    /// By the clock of who was asked.
    pub told: u64,
    /// By the clock of who asked.
    pub heard: u64,
}

/// Nanoseconds by which the clock of who was asked is ahead; `None` without an answer.
pub(crate) fn ahead(answers: &[Answer]) -> Option<i64> {
    let soonest = answers.iter().min_by_key(|answer| answer.heard.saturating_sub(answer.asked))?;
    let middle = soonest.asked + soonest.heard.saturating_sub(soonest.asked) / 2;
    Some(soonest.told.wrapping_sub(middle) as i64)
}

/// Nanoseconds since 1970 by the clock of this host.
pub fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// A time by a clock that is so far ahead, by the coordinator's.
pub(crate) fn aligned(ns: u64, ahead: i64) -> u64 {
    ns.saturating_add_signed(-ahead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soonest_answer_counts() {
        assert_eq!(ahead(&[]), None);
        // 1000 ahead; the first answer was long under way on its way back.
        let late = Answer { asked: 100, told: 1110, heard: 900 };
        let soon = Answer { asked: 1000, told: 2010, heard: 1020 };
        assert_eq!(ahead(&[late, soon]), Some(1000));
        let behind = Answer { asked: 5000, told: 4010, heard: 5020 };
        assert_eq!(ahead(&[behind]), Some(-1000));
        assert_eq!((aligned(2010, 1000), aligned(4010, -1000)), (1010, 5010));
    }
}
