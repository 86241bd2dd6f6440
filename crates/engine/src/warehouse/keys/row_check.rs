//! CHECK constraints of a table, planned over its columns.

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::Expr;
use harrier_catalog::state::{CHECK, Table};

use crate::planning::stored_sql::{self, Condition, SessionUsers};
use crate::warehouse::keys::{Keys, Kind, TAG, expressions};

/// A planned CHECK constraint.
#[derive(Debug, Clone)]
pub(crate) struct RowCheck {
    pub(crate) name: String,
    pub(crate) condition: Expr,
}

/// The CHECK constraints of a table, sorted by name, the order in which PostgreSQL evaluates them.
///
/// Errors: one can no longer be planned, with the cause's code.
pub(crate) fn of_table(
    session: &SessionState,
    table: &Table,
    schema: &SchemaRef,
    asker: &SessionUsers,
) -> Result<Vec<RowCheck>> {
    // Fast path: every statement that reads a table calls this.
    if !table.tags.get(TAG).is_some_and(|keys| keys.contains(CHECK)) {
        return Ok(vec![]);
    }
    let mut found = vec![];
    for constraint in Keys::of(table).constraints {
        if let Kind::Check(check) = &constraint.kind {
            let text = expressions::text(&check.condition, table);
            let condition = stored_sql::condition(session, &text, schema, asker, Condition::Check)?;
            found.push(RowCheck { name: constraint.name, condition });
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}
