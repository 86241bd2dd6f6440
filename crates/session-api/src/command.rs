//! Statements about what a client's connection holds: cursors, prepared statements, and all that DISCARD
//! resets. The server runs them.

use crate::cursor::CursorStatement;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionCommand {
    Cursor(CursorStatement),
    Discard(Discard),
    /// Drops a prepared statement of the protocol, or else of SQL; `None`: all of both.
    Deallocate(Option<String>),
    Listen,
    Notify,
    Unlisten,
    Checkpoint,
}

/// What DISCARD resets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discard {
    /// Resets all parameters, and drops prepared statements, temporary tables and locks.
    All,
    /// Plans, which are not kept.
    Plans,
    /// Forgets the last values of sequences.
    Sequences,
    /// Drops temporary tables and views.
    Temporary,
}

impl SessionCommand {
    /// The command tag, without counts.
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Cursor(cursor) => cursor.tag(),
            Self::Discard(what) => what.tag(),
            Self::Deallocate(Some(_)) => "DEALLOCATE",
            Self::Deallocate(None) => "DEALLOCATE ALL",
            Self::Listen => "LISTEN",
            Self::Notify => "NOTIFY",
            Self::Unlisten => "UNLISTEN",
            Self::Checkpoint => "CHECKPOINT",
        }
    }
}

impl Discard {
    pub fn tag(self) -> &'static str {
        match self {
            Self::All => "DISCARD ALL",
            Self::Plans => "DISCARD PLANS",
            Self::Sequences => "DISCARD SEQUENCES",
            Self::Temporary => "DISCARD TEMP",
        }
    }
}
