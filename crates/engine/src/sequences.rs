//! Sequences, and the columns whose values come from them: serial and identity columns, and those with
//! `DEFAULT nextval('s')`.
//!
//! ```text
//!   CREATE, ALTER, DROP SEQUENCE; ALTER TABLE … IDENTITY ─► parse.rs ─► warehouse/ddl/sequences.rs ─► Transaction
//!   serial, GENERATED … AS IDENTITY of a column ─► warehouse/clauses/generated.rs ─► the same
//!   nextval, currval, lastval, setval ─► functions.rs ─► values.rs ─► the catalog, or the transaction
//!   a value for GENERATED ALWAYS, OVERRIDING ─► written.rs
//! ```
//!
//! A column says by its tags which sequence it takes values from, so that another program that opens the
//! warehouse finds no default that it cannot compute. `docs/decisions/0036-sequences.md` tells what was
//! chosen and what was not.

use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::ObjectName;
use harrier_catalog::sequences::{Sequence, SequenceType};
use harrier_catalog::state::{Column, State};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

mod functions;
mod options;
mod parse;
mod relation;
mod values;
mod written;

pub(crate) use functions::{
    add_rule, bare_name, is_called, named_in, named_in_text, next_of, register, settings,
};
pub(crate) use options::{altered, defined};
pub(crate) use parse::{options_of, parse};
pub(crate) use relation::table_of;
pub(crate) use values::SessionSequences;
pub(crate) use written::{Overriding, check_written, without_values};

/// The tag of a column whose default is the next value of a sequence: that sequence's UUID.
pub(crate) const SEQUENCE_TAG: &str = "harrier.sequence";
/// The tag of an identity column: what may be written to it.
pub(crate) const IDENTITY_TAG: &str = "harrier.identity";

/// A statement about sequences.
#[derive(Debug, Clone)]
pub(crate) enum SequenceStatement {
    Create { name: ObjectName, if_not_exists: bool, options: SequenceOptions },
    Alter { name: ObjectName, if_exists: bool, options: SequenceOptions },
    Rename { name: ObjectName, if_exists: bool, to: String },
    Drop { names: Vec<ObjectName>, if_exists: bool, cascade: bool },
    AlterIdentity { table: ObjectName, if_exists: bool, column: String, change: IdentityChange },
}

/// What is said of a sequence; `None`: nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SequenceOptions {
    pub kind: Option<SequenceType>,
    pub increment: Option<i64>,
    /// Inner `None`: NO MINVALUE.
    pub min: Option<Option<i64>>,
    pub max: Option<Option<i64>>,
    pub start: Option<i64>,
    pub cache: Option<i64>,
    pub cycles: Option<bool>,
    /// Inner `None`: OWNED BY NONE.
    pub owned_by: Option<Option<ObjectName>>,
    /// Inner `None`: at its start.
    pub restart: Option<Option<i64>>,
    /// SEQUENCE NAME, of an identity column.
    pub name: Option<ObjectName>,
}

/// What may be written to an identity column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity {
    Always,
    ByDefault,
}

impl Identity {
    /// As the tag says it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::ByDefault => "by default",
        }
    }

    /// Of a column, if it is one.
    pub(crate) fn of(column: &Column) -> Option<Self> {
        let tag = column.tags.get(IDENTITY_TAG)?;
        Some(if *tag == Self::Always.name() { Self::Always } else { Self::ByDefault })
    }
}

/// What ALTER COLUMN does to an identity column.
#[derive(Debug, Clone)]
pub(crate) enum IdentityChange {
    Add(Identity, SequenceOptions),
    Drop { if_exists: bool },
    Set(Option<Identity>, SequenceOptions),
}

/// A column of a new table, or a new one, that has a sequence of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GeneratedColumn {
    pub column: String,
    /// `None`: a serial column.
    pub identity: Option<Identity>,
    pub options: SequenceOptions,
}

/// The sequence that a column takes values from.
pub(crate) fn sequence_of<'s>(state: &'s State, column: &Column) -> Option<&'s Sequence> {
    let uuid = column.tags.get(SEQUENCE_TAG)?;
    state.sequences.values().find(|sequence| sequence.uuid == *uuid).map(|sequence| &**sequence)
}

fn error(state: SqlState, message: impl Into<String>) -> DataFusionError {
    SqlError::new(state, message).into_datafusion()
}
