//! Looks, whenever a gang has nothing to do, whether its statements have given back all that they took on
//! every rank.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::transport::messages::{Kept, RankReport};

/// So many looks in a row have to find something left: the ends of streams cross the network, and tasks are
/// dropped at their next await.
const LOOKS_MIN: u32 = 3;

/// The ledger of a gang that serves. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Audit(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    running: usize,
    /// Statements that have begun, as many as there were at the last look, and how often something was left
    /// since.
    begun: u64,
    looked_at: u64,
    unclear: u32,
}

/// A statement that runs, until this is dropped.
pub(crate) struct Busy(Audit);

impl Audit {
    pub fn begin(&self) -> Busy {
        let mut state = self.0.lock();
        state.running += 1;
        state.begun += 1;
        drop(state);
        Busy(self.clone())
    }

    /// Takes the newest reports of all members. Returns one that still holds something although nothing has
    /// run for several looks: once, until something has run again.
    pub fn look<'a>(&self, reports: &'a [RankReport]) -> Option<(usize, &'a RankReport)> {
        let mut state = self.0.lock();
        if state.running > 0 || state.looked_at != state.begun {
            state.looked_at = state.begun;
            state.unclear = 0;
            return None;
        }
        let left = reports.iter().enumerate().find(|(_, report)| !report.is_clear(Kept::Nothing));
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
    fn what_is_left_is_told_once_when_nothing_runs() {
        let audit = Audit::default();
        let clear = [RankReport::default(), RankReport::default()];
        let left = [RankReport::default(), RankReport { streams_open: 1, ..RankReport::default() }];
        let looks = |reports: &[RankReport], times| -> Vec<Option<usize>> {
            (0..times).map(|_| audit.look(reports).map(|(rank, _)| rank)).collect()
        };
        let running = audit.begin();
        assert_eq!(looks(&left, 5), [None; 5]);
        drop(running);
        assert_eq!(looks(&left, 6), [None, None, Some(1), None, None, None]);
        drop(audit.begin());
        // The first look after it only sees that it was.
        assert_eq!(looks(&left, 2), [None; 2]);
        assert_eq!(looks(&clear, 1), [None]);
        assert_eq!(looks(&left, 4), [None, None, Some(1), None]);
    }
}
