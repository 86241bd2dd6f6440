//! Errors of backups. The call is dead; existing backups and warehouses are unchanged.

use std::io;

use harrier_error::SqlState;

/// An error of a backup, a check or a restore.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The catalog could not be read or created.
    #[error("{0}")]
    Catalog(#[from] harrier_catalog::Error),
    /// An I/O error of the operating system. `action`: the operation, as in `write`.
    #[error("cannot {action} \"{place}\": {source}")]
    Io {
        /// The operation that failed.
        action: &'static str,
        /// The file or folder.
        place: String,
        /// The cause.
        source: io::Error,
    },
    /// An error of the object store.
    #[error("cannot {action} \"{place}\": {source}")]
    Store {
        /// The operation that failed.
        action: &'static str,
        /// The object.
        place: String,
        /// The cause.
        source: object_store::Error,
    },
    /// A file is missing (58P01).
    #[error("file \"{place}\" is missing")]
    Missing {
        /// The file.
        place: String,
    },
    /// A file is corrupt (XX001). `what`: how it differs, as in `has 5 bytes instead of 6`.
    #[error("file \"{place}\" is damaged: it {what}")]
    Damaged {
        /// The file.
        place: String,
        /// How it differs.
        what: String,
    },
    /// The operation is not allowed; nothing was changed.
    #[error("{message}")]
    Refused {
        /// The SQLSTATE.
        state: SqlState,
        /// In PostgreSQL's style.
        message: String,
        /// How to resolve it.
        hint: Option<String>,
    },
}

impl Error {
    pub(crate) fn refusal(state: SqlState, message: impl Into<String>) -> Self {
        Self::Refused { state, message: message.into(), hint: None }
    }

    pub(crate) fn with_hint(mut self, text: impl Into<String>) -> Self {
        if let Self::Refused { hint, .. } = &mut self {
            *hint = Some(text.into());
        }
        self
    }

    /// An I/O error at a file or folder.
    pub(crate) fn io(action: &'static str, place: impl Into<String>, source: io::Error) -> Self {
        let place = place.into();
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing { place },
            _ => Self::Io { action, place, source },
        }
    }

    pub(crate) fn store(action: &'static str, place: impl Into<String>, source: object_store::Error) -> Self {
        let place = place.into();
        match source {
            object_store::Error::NotFound { .. } => Self::Missing { place },
            source => Self::Store { action, place, source },
        }
    }

    pub(crate) fn damage(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Damaged { place: place.into(), what: what.into() }
    }
}
