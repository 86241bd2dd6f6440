//! Errors of backups. The call is dead; existing backups and warehouses are unchanged.

use std::{fmt, io};

use harrier_error::SqlState;

/// An error of a backup, a check or a restore.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The catalog could not be read or created.
    Catalog(harrier_catalog::Error),
    /// An I/O error of the operating system. `action`: the operation, as in `write`.
    Io {
        /// The operation that failed.
        action: &'static str,
        /// The file or folder.
        place: String,
        /// The cause.
        source: io::Error,
    },
    /// An error of the object store.
    Store {
        /// The operation that failed.
        action: &'static str,
        /// The object.
        place: String,
        /// The cause.
        source: object_store::Error,
    },
    /// A file is missing (58P01).
    Missing {
        /// The file.
        place: String,
    },
    /// A file is corrupt (XX001). `what`: how it differs, as in `has 5 bytes instead of 6`.
    Damaged {
        /// The file.
        place: String,
        /// How it differs.
        what: String,
    },
    /// The operation is not allowed; nothing was changed.
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
    pub(crate) fn refused(state: SqlState, message: impl Into<String>) -> Self {
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

    pub(crate) fn damaged(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Damaged { place: place.into(), what: what.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Catalog(error) => error.fmt(f),
            Self::Io { action, place, source } => write!(f, "cannot {action} \"{place}\": {source}"),
            Self::Store { action, place, source } => write!(f, "cannot {action} \"{place}\": {source}"),
            Self::Missing { place } => write!(f, "file \"{place}\" is missing"),
            Self::Damaged { place, what } => write!(f, "file \"{place}\" is damaged: it {what}"),
            Self::Refused { message, .. } => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Catalog(source) => Some(source),
            Self::Io { source, .. } => Some(source),
            Self::Store { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<harrier_catalog::Error> for Error {
    fn from(source: harrier_catalog::Error) -> Self {
        Self::Catalog(source)
    }
}
