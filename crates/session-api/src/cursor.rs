//! Statements about cursors: DECLARE, FETCH, MOVE and CLOSE.

use crate::statement::StatementPart;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CursorStatement {
    Declare {
        name: String,
        query: StatementPart,
        kind: CursorKind,
    },
    Fetch {
        name: String,
        step: Step,
        /// MOVE, which returns no rows.
        is_move: bool,
    },
    /// `None`: all cursors.
    Close(Option<String>),
}

impl CursorStatement {
    /// The command tag, without counts.
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Declare { .. } => "DECLARE CURSOR",
            Self::Fetch { is_move: false, .. } => "FETCH",
            Self::Fetch { is_move: true, .. } => "MOVE",
            Self::Close(Some(_)) => "CLOSE CURSOR",
            Self::Close(None) => "CLOSE CURSOR ALL",
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CursorKind {
    /// WITH HOLD: outlives its transaction.
    pub is_held: bool,
    pub is_binary: bool,
    /// SCROLL: FETCH may go backward.
    pub is_scrollable: bool,
}

/// The movement of FETCH, relative to the cursor's current row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// To the following rows; zero rows fetches the current row again.
    Forward(Count),
    /// To the preceding rows, the nearest first.
    Backward(Count),
    /// To one row, counted from 1, or from -1 at the end.
    Absolute(i64),
    /// To the row at this distance.
    Relative(i64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    Rows(u64),
    All,
}
