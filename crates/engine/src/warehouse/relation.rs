//! Names of relations, and errors about them.

use datafusion::common::TableReference;
use datafusion::error::{DataFusionError, Result};
use datafusion::sql::planner::object_name_to_table_reference;
use datafusion::sql::sqlparser::ast;
use harrier_error::SqlState;
use harrier_sqlstate::error;

/// The error for a relation that is not a `kind`: `table` or `view`.
pub(crate) fn wrong_kind(name: &TableReference, kind: &str) -> DataFusionError {
    error(SqlState::WRONG_OBJECT_TYPE, format!("\"{}\" is not a {kind}", name.table()))
}

pub(crate) fn no_relation(kind: &str, name: &TableReference) -> DataFusionError {
    error(SqlState::UNDEFINED_TABLE, format!("{kind} \"{}\" does not exist", name.table()))
}

/// Converts a name to the planner's form.
pub(crate) fn reference(name: &ast::ObjectName) -> Result<TableReference> {
    object_name_to_table_reference(name.clone(), true)
}
