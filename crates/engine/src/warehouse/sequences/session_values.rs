//! What a session remembers of the sequences that it has taken values from.

use std::collections::HashMap;

use harrier_catalog::sequences::ValueRange;
use parking_lot::Mutex;

/// What a session remembers of sequences, by their UUIDs.
#[derive(Debug, Default)]
pub(crate) struct SessionSequences(pub(crate) Mutex<Remembered>);

#[derive(Debug, Default)]
pub(crate) struct Remembered {
    /// The value that was given out last, of each.
    pub(crate) last: HashMap<String, i64>,
    /// Whose value was given out last of all.
    pub(crate) latest: Option<String>,
    /// Values that were taken for calls to come, of those with a CACHE.
    pub(crate) cached: HashMap<String, Cached>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Cached {
    pub(crate) taken: ValueRange,
    /// Of the catalog, when they were taken: [`Catalog::histories`].
    pub(crate) histories: u64,
}

impl SessionSequences {
    /// Gives up values that were taken for calls to come.
    pub(crate) fn forget_cached(&self, uuid: &str) {
        self.0.lock().cached.remove(uuid);
    }

    /// Forgets everything, as DISCARD SEQUENCES does.
    pub(crate) fn discard(&self) {
        *self.0.lock() = Remembered::default();
    }
}
