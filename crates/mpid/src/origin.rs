//! Record positions for error messages: an O task's position in its input, and the keys a thread was
//! processing when it panicked.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Maximum number of key bytes in messages.
const FORMATTED_KEY_BYTES_MAX: usize = 32;

/// An O task's position in its input.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    pub o_task: u32,
    /// Name of the input, if set.
    pub source: Option<Arc<str>>,
    pub position: Option<u64>,
}

impl Origin {
    pub fn place(&self) -> String {
        self.describe(self.position.map(|position| format!("at {position}")))
    }

    /// Describes a record read at this position or later, up to `until` if known.
    pub fn place_until(&self, until: Option<u64>) -> String {
        self.describe(self.position.map(|position| match until {
            Some(until) if until == position => format!("at {position}"),
            Some(until) => format!("at {position} to {until}"),
            None => format!("at {position} or later"),
        }))
    }

    fn describe(&self, position: Option<String>) -> String {
        match (&self.source, position) {
            (None, position) => position.unwrap_or_default(),
            (Some(source), None) => source.to_string(),
            (Some(source), Some(position)) => format!("{source} {position}"),
        }
    }

    /// Whether both belong to one task and the same input.
    pub fn same_input(&self, other: &Origin) -> bool {
        let same_source = match (&self.source, &other.source) {
            (Some(left), Some(right)) => Arc::ptr_eq(left, right),
            (left, right) => left.is_none() && right.is_none(),
        };
        self.o_task == other.o_task && same_source
    }
}

/// Formats a key for errors: its first bytes as quoted text.
pub fn format_key(key: &[u8]) -> String {
    let text: String =
        String::from_utf8_lossy(&key[..key.len().min(FORMATTED_KEY_BYTES_MAX)]).escape_debug().collect();
    let more = if key.len() > FORMATTED_KEY_BYTES_MAX { "…" } else { "" };
    format!("\"{text}{more}\"")
}

/// Current work item of a merger.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    pub a_task: u32,
    /// Start of the window, when streaming.
    pub window: Option<u64>,
}

impl Work {
    /// Describes the position of an error.
    pub fn place(&self, what: &str) -> String {
        match self.window {
            None => what.to_string(),
            Some(begin) => format!("window from {begin}, {what}"),
        }
    }
}

thread_local! {
    static WORK: Cell<Work> = Cell::default();
    static PANICKED_AT: RefCell<Option<String>> = RefCell::default();
}

/// Sets this thread's current work item.
pub fn set_work(work: Work) {
    WORK.set(work);
}

pub fn current_work() -> Work {
    WORK.get()
}

/// Guard: a panic of this thread during its lifetime is attributed to these keys, see [`take_panic_place`].
pub struct PanicKeys<'a> {
    pub what: &'static str,
    pub keys: [&'a [u8]; 2],
}

impl Drop for PanicKeys<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let [left, right] = self.keys;
            let keys = if left == right {
                format!("key {}", format_key(left))
            } else {
                format!("keys {} and {}", format_key(left), format_key(right))
            };
            // The innermost guard is the most specific.
            let at = || format!("while {} ({keys})", self.what);
            PANICKED_AT.with_borrow_mut(|place| {
                place.get_or_insert_with(at);
            });
        }
    }
}

/// Takes the description of the operation and keys at which this thread last panicked.
pub fn take_panic_place() -> Option<String> {
    PANICKED_AT.take()
}
