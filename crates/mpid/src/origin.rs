//! What errors say of a record's place: where an O task was in its input, and which keys a thread was at when
//! it panicked.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Bytes of a key that are shown.
const SHOWN_BYTES: usize = 32;

/// Where an O task is in its input.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    pub o_task: u32,
    /// What the task reads, if it has said so.
    pub source: Option<Arc<str>>,
    pub position: Option<u64>,
}

impl Origin {
    pub fn place(&self) -> String {
        self.placed(self.position.map(|position| format!("at {position}")))
    }

    /// Of a record that was read there, or later, but not after `until` if that is known.
    pub fn place_until(&self, until: Option<u64>) -> String {
        self.placed(self.position.map(|position| match until {
            Some(until) if until == position => format!("at {position}"),
            Some(until) => format!("at {position} to {until}"),
            None => format!("at {position} or later"),
        }))
    }

    fn placed(&self, position: Option<String>) -> String {
        match (&self.source, position) {
            (None, position) => position.unwrap_or_default(),
            (Some(source), None) => source.to_string(),
            (Some(source), Some(position)) => format!("{source} {position}"),
        }
    }

    /// Whether both are of one task that reads the same.
    pub fn is_of(&self, other: &Origin) -> bool {
        let same_source = match (&self.source, &other.source) {
            (Some(left), Some(right)) => Arc::ptr_eq(left, right),
            (left, right) => left.is_none() && right.is_none(),
        };
        self.o_task == other.o_task && same_source
    }
}

/// A key as errors show it: its first bytes as text, in quotes.
pub fn shown(key: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(&key[..key.len().min(SHOWN_BYTES)]).escape_debug().collect();
    let more = if key.len() > SHOWN_BYTES { "…" } else { "" };
    format!("\"{text}{more}\"")
}

/// What a merger works on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    pub a_task: u32,
    /// Where the window begins, when streaming.
    pub window: Option<u64>,
}

impl Work {
    /// Of what goes wrong with it.
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

/// Says what this thread works on from now on.
pub fn works_on(work: Work) {
    WORK.set(work);
}

pub fn work() -> Work {
    WORK.get()
}

/// While it lives, a panic of this thread is one at these keys: see [`panicked_at`].
pub struct AtKeys<'a> {
    pub what: &'static str,
    pub keys: [&'a [u8]; 2],
}

impl Drop for AtKeys<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let [left, right] = self.keys;
            let keys = if left == right {
                format!("key {}", shown(left))
            } else {
                format!("keys {} and {}", shown(left), shown(right))
            };
            // The innermost says most.
            let at = || format!("while {} ({keys})", self.what);
            PANICKED_AT.with_borrow_mut(|told| {
                told.get_or_insert_with(at);
            });
        }
    }
}

/// What this thread did with which keys when it panicked last. It is told once.
pub fn panicked_at() -> Option<String> {
    PANICKED_AT.take()
}
