//! Sequences, and columns that take values from them: serial and identity columns, and those with `DEFAULT
//! nextval('s')`.
//!
//! ```text
//!   CREATE, ALTER, DROP SEQUENCE; ALTER TABLE … IDENTITY ─► crate sql ─► statement/ddl/sequences.rs ─► Transaction
//!   serial, GENERATED … AS IDENTITY of a column ─► crate sql ─► the same
//!   nextval, currval, lastval, setval ─► functions.rs ─► values.rs ─► the catalog, or the transaction
//!   a value for GENERATED ALWAYS, OVERRIDING ─► written_columns.rs
//! ```
//!
//! A column's tags name the sequence it takes values from, so that another program that opens the warehouse
//! finds no default that it cannot compute. Design: `docs/decisions/0036-sequences.md`.

use harrier_catalog::sequences::Sequence;
use harrier_catalog::state::{Column, State};
use harrier_sql::parser::sequence::IdentityKind;

pub(crate) mod calls;
pub(crate) mod functions;
pub(crate) mod options;
pub(crate) mod sequence_table;
pub(crate) mod session_values;
pub(crate) mod values;
pub(crate) mod written_columns;

pub(crate) use calls::{contains_call, next_of, nextval_sequence, nextval_sequence_in_ast};
pub(crate) use functions::{add_rule, register, settings};
pub(crate) use options::{alter_sequence, catalog_type, new_sequence};
pub(crate) use sequence_table::table_of;
pub(crate) use session_values::SessionSequences;
pub(crate) use written_columns::{check_identity_values, with_identity_defaults};

/// Tag of a column whose default is the next value of a sequence: the sequence's UUID.
pub(crate) const SEQUENCE_TAG: &str = "harrier.sequence";
/// Tag of an identity column: ALWAYS or BY DEFAULT.
pub(crate) const IDENTITY_TAG: &str = "harrier.identity";

/// The identity kind of a column; `None` if it is not an identity column.
pub(crate) fn identity_of(column: &Column) -> Option<IdentityKind> {
    let tag = column.tags.get(IDENTITY_TAG)?;
    Some(if *tag == IdentityKind::Always.name() { IdentityKind::Always } else { IdentityKind::ByDefault })
}

/// The sequence that a column takes values from.
pub(crate) fn sequence_of<'s>(state: &'s State, column: &Column) -> Option<&'s Sequence> {
    let uuid = column.tags.get(SEQUENCE_TAG)?;
    state.sequences.values().find(|sequence| sequence.uuid == *uuid).map(|sequence| &**sequence)
}
