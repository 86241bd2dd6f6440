//! CHECK constraints: conditions are stored as SQL and evaluated for every written row.

use std::ops::ControlFlow;

use datafusion::common::{ScalarValue, TableReference};
use datafusion::error::Result;
use datafusion::logical_expr::{cast, lit, not};
use datafusion::sql::sqlparser::ast::{self, VisitMut, VisitorMut};
use harrier_catalog::state::{ColumnId, State, Table};
use harrier_error::{SqlError, SqlState};
use harrier_sql::parser;
use harrier_sqlstate::IntoDataFusionError;

use crate::planning::stored_sql::{self, Condition};
use crate::statement::ddl::Ddl;
use crate::types::columns::{schema_of, type_of};
use crate::warehouse::keys::{Check, Constraint, Keys, Kind, change, expressions};
use harrier_sql::identifier::plain;

impl Ddl<'_> {
    /// Declares a CHECK constraint of a table that has no rows yet, or whose rows [`Ddl::check_rows`] checks;
    /// returns its name.
    ///
    /// Errors: the name is taken (42710); the condition is invalid for the table's columns (42703, 42804), or
    /// contains what conditions may not contain (0A000, 42803, 42P20).
    pub(crate) fn add_check(
        &self,
        state: &State,
        table: &mut Table,
        name: Option<&str>,
        condition: &ast::Expr,
        not_valid: bool,
    ) -> Result<String> {
        let sql = own_columns(stored_sql::check_text(condition, self.text)?, &table.name)?;
        stored_sql::check_order(&self.context.state(), &sql)?;
        let condition = expressions::of_text(&sql, table, "check constraint")?;
        let schema = schema_of(&table.columns)?;
        let asker = &self.names.snapshot().asker;
        stored_sql::condition(&self.context.state(), &sql, &schema, asker, Condition::Check)?;
        let mut columns: Vec<ColumnId> = condition.columns.values().copied().collect();
        columns.sort_unstable();
        columns.dedup();
        change::add_check(state, table, name, columns, Check { condition, not_valid })
    }

    /// Checks the existing rows against a new constraint of `table`, the table's new definition. `written`:
    /// the table's name in the statement.
    ///
    /// Errors: a row violates it (23514).
    pub(crate) async fn check_rows(
        &self,
        table: &Table,
        constraint: &str,
        written: &TableReference,
    ) -> Result<()> {
        let keys = Keys::of(table);
        let Some(Constraint { kind: Kind::Check(check), .. }) = keys.constraint(constraint) else {
            return Ok(());
        };
        let text = expressions::text(&check.condition, table);
        let schema = schema_of(&table.columns)?;
        let snapshot = self.names.snapshot();
        let condition =
            stored_sql::condition(&self.context.state(), &text, &schema, &snapshot.asker, Condition::Check)?;
        let mut rows = self.context.table(written.clone()).await?;
        // Existing rows have the initial default of a new column.
        for column in &table.columns {
            if rows.schema().field_with_unqualified_name(&column.name).is_err() {
                let kind = type_of(column, false)?;
                rows = rows.with_column(
                    &column.name,
                    cast(lit(ScalarValue::Utf8(column.initial_default.clone())), kind),
                )?;
            }
        }
        let refused = rows.filter(not(condition))?.limit(0, Some(1))?.collect().await?;
        if refused.iter().any(|batch| batch.num_rows() > 0) {
            let message = format!(
                "check constraint \"{constraint}\" of relation \"{}\" is violated by some row",
                table.name
            );
            return Err(SqlError::new(SqlState::CHECK_VIOLATION, message).into_datafusion());
        }
        Ok(())
    }
}

/// Removes the table qualifier from the columns of a condition.
fn own_columns(sql: String, table: &str) -> Result<String> {
    struct Own<'t> {
        table: &'t str,
        is_changed: bool,
    }
    impl VisitorMut for Own<'_> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
            if let ast::Expr::CompoundIdentifier(names) = expr
                && let [table, column] = names.as_slice()
                && plain(table) == self.table
            {
                *expr = ast::Expr::Identifier(column.clone());
                self.is_changed = true;
            }
            ControlFlow::Continue(())
        }
    }
    let mut parsed = parser::expression(&sql)?;
    let mut own = Own { table, is_changed: false };
    // The visitor never breaks.
    let _ = VisitMut::visit(&mut parsed, &mut own);
    Ok(if own.is_changed { parsed.to_string() } else { sql })
}
