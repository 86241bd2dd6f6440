//! Leak detection: checks on an idle gang that its statements have released all resources on every rank.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::transport::messages::{RankReport, Retained};

/// Consecutive checks that must find something left: the ends of streams cross the network, and tasks are
/// dropped at their next await.
const LOOKS_MIN: u32 = 3;

/// The audit of a serving gang. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Audit(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    running: usize,
    /// Statements started, the same at the last check, and the number of checks since that found something
    /// left.
    statements: u64,
    checked_at: u64,
    unclear: u32,
}

/// A running statement, until this is dropped.
pub(crate) struct Busy(Audit);

impl Audit {
    pub fn begin(&self) -> Busy {
        let mut state = self.0.lock();
        state.running += 1;
        state.statements += 1;
        drop(state);
        Busy(self.clone())
    }

    /// Checks the newest reports of all members. Returns one that still holds something after several idle
    /// checks: once, until something has run again.
    pub fn check<'a>(&self, reports: &'a [RankReport]) -> Option<(usize, &'a RankReport)> {
        let mut state = self.0.lock();
        if state.running > 0 || state.checked_at != state.statements {
            state.checked_at = state.statements;
            state.unclear = 0;
            return None;
        }
        let left = reports.iter().enumerate().find(|(_, report)| !report.is_clear(Retained::Nothing));
        state.unclear = match left {
            Some(_) => state.unclear.saturating_add(1),
            None => 0,
        };
        left.filter(|_| state.unclear == LOOKS_MIN)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.0.lock().running -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaks_are_reported_once() {
        let audit = Audit::default();
        let clear = [RankReport::default(), RankReport::default()];
        let left = [RankReport::default(), RankReport { streams_open: 1, ..RankReport::default() }];
        let looks = |reports: &[RankReport], times| -> Vec<Option<usize>> {
            (0..times).map(|_| audit.check(reports).map(|(rank, _)| rank)).collect()
        };
        let running = audit.begin();
        assert_eq!(looks(&left, 5), [None; 5]);
        drop(running);
        assert_eq!(looks(&left, 6), [None, None, Some(1), None, None, None]);
        drop(audit.begin());
        // The first check afterwards only notices that.
        assert_eq!(looks(&left, 2), [None; 2]);
        assert_eq!(looks(&clear, 1), [None]);
        assert_eq!(looks(&left, 4), [None, None, Some(1), None]);
    }
}
