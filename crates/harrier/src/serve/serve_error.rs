//! Why a server did not start, or ended: what it says, and its exit status.

use harrier_error::exit;

/// Why the server did not start, or ended.
pub(super) struct ServeError {
    pub(super) message: String,
    pub(super) status: u8,
}

impl ServeError {
    pub(super) fn failure(message: String) -> Self {
        Self { message, status: exit::BROKEN }
    }

    pub(super) fn usage(message: String) -> Self {
        Self { message, status: exit::USAGE }
    }
}
