//! A session's state of the sequences it has used.

use std::collections::HashMap;

use harrier_catalog::sequences::ValueRange;
use parking_lot::Mutex;

/// A session's sequence state, by UUID.
#[derive(Debug, Default)]
pub(crate) struct SessionSequences(pub(crate) Mutex<SequenceState>);

#[derive(Debug, Default)]
pub(crate) struct SequenceState {
    /// The last value returned by each sequence, for `currval`.
    pub(crate) last: HashMap<String, i64>,
    /// The sequence that returned the last value, for `lastval`.
    pub(crate) latest: Option<String>,
    /// Preallocated values of sequences with a CACHE option.
    pub(crate) cached: HashMap<String, CachedRange>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct CachedRange {
    pub(crate) range: ValueRange,
    /// The catalog's history count at allocation: [`Catalog::histories`].
    pub(crate) histories: u64,
}

impl SessionSequences {
    /// Drops the preallocated values of a sequence.
    pub(crate) fn forget_cached(&self, uuid: &str) {
        self.0.lock().cached.remove(uuid);
    }

    /// Forgets everything: DISCARD SEQUENCES.
    pub(crate) fn discard(&self) {
        *self.0.lock() = SequenceState::default();
    }
}
