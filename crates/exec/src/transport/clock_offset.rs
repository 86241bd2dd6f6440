//! Clock offsets of ranks relative to the coordinator, to align their timestamps.
//!
//! Ranks on one host share a clock. Others are asked for the time repeatedly; the response with the shortest
//! round trip was delayed least, and half of the round trip is taken as the way back. The remaining error is
//! at most half of that round trip. Clock drift and adjustments during the life of the gang are not tracked.
//!
//! Source: F. Cristian, "Probabilistic clock synchronization" (1989).

use std::time::{SystemTime, UNIX_EPOCH};

/// Requests per rank.
pub(crate) const SAMPLES: usize = 8;

/// A request and its response, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockSample {
    /// Time of the request, by the requester's clock.
    pub sent_at: u64,
    /// By the responder's clock.
    pub remote_at: u64,
    /// Time of the response, by the requester's clock.
    pub received_at: u64,
}

/// Nanoseconds by which the responder's clock is ahead; `None` without a response.
pub(crate) fn ahead(answers: &[ClockSample]) -> Option<i64> {
    let soonest = answers.iter().min_by_key(|answer| answer.received_at.saturating_sub(answer.sent_at))?;
    let middle = soonest.sent_at + soonest.received_at.saturating_sub(soonest.sent_at) / 2;
    Some(soonest.remote_at.wrapping_sub(middle) as i64)
}

/// Nanoseconds since 1970 by the clock of this host.
pub fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Converts a time of a clock that is `ahead` to the coordinator's.
pub(crate) fn align_time(ns: u64, ahead: i64) -> u64 {
    ns.saturating_add_signed(-ahead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_round_trip_determines_the_offset() {
        assert_eq!(ahead(&[]), None);
        // 1000 ahead; the first response was delayed on its way back.
        let late = ClockSample { sent_at: 100, remote_at: 1110, received_at: 900 };
        let soon = ClockSample { sent_at: 1000, remote_at: 2010, received_at: 1020 };
        assert_eq!(ahead(&[late, soon]), Some(1000));
        let behind = ClockSample { sent_at: 5000, remote_at: 4010, received_at: 5020 };
        assert_eq!(ahead(&[behind]), Some(-1000));
        assert_eq!((align_time(2010, 1000), align_time(4010, -1000)), (1010, 5010));
    }
}
