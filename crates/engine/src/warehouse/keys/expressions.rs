//! Index expressions and CHECK conditions, with the columns their names refer to. Index expressions are never
//! evaluated.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{Expr, Ident, Query, Visit, VisitMut, Visitor, VisitorMut};
use harrier_catalog::state::Table;
use harrier_error::{SqlError, SqlState};
use harrier_sql::parser;
use harrier_sqlstate::IntoDataFusionError;

use super::{Expression, column_named, name_of};
use harrier_sql::identifier::plain;

/// Parses a text and resolves its columns. `what`: the kind of expression, for errors.
///
/// Errors: syntax error (42601), and those of [`of`].
pub(crate) fn of_text(sql: &str, table: &Table, what: &'static str) -> Result<Expression> {
    let parsed = parser::expression(sql)?;
    let found = resolve_columns(&parsed, table, what)?;
    Ok(Expression { sql: sql.to_string(), ..found })
}

/// The expression of an index of `table`.
///
/// Errors: no such column (42703), or a subquery (0A000).
pub(crate) fn of(expr: &Expr, table: &Table) -> Result<Expression> {
    resolve_columns(expr, table, "index expression")
}

fn resolve_columns(expr: &Expr, table: &Table, what: &'static str) -> Result<Expression> {
    struct Columns<'t>(&'t Table, BTreeMap<String, i64>, &'static str);
    impl Visitor for Columns<'_> {
        type Break = SqlError;

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<SqlError> {
            let message = format!("cannot use subquery in {}", self.2);
            ControlFlow::Break(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
            let name = match expr {
                Expr::Identifier(name) => plain(name),
                Expr::CompoundIdentifier(names) => match names.last() {
                    Some(name) => plain(name),
                    None => return ControlFlow::Continue(()),
                },
                _ => return ControlFlow::Continue(()),
            };
            match column_named(self.0, &name) {
                Some(column) => {
                    self.1.insert(name, column.id);
                    ControlFlow::Continue(())
                }
                None => {
                    let message = format!("column \"{name}\" does not exist");
                    ControlFlow::Break(SqlError::new(SqlState::UNDEFINED_COLUMN, message))
                }
            }
        }
    }
    let mut columns = Columns(table, BTreeMap::new(), what);
    match Visit::visit(expr, &mut columns) {
        ControlFlow::Continue(()) => Ok(Expression { sql: expr.to_string(), columns: columns.1 }),
        ControlFlow::Break(error) => Err(error.into_datafusion()),
    }
}

/// The text of an expression with the current names of its columns.
pub(crate) fn text(expression: &Expression, table: &Table) -> String {
    let renamed: HashMap<&str, &str> = expression
        .columns
        .iter()
        .map(|(name, id)| (name.as_str(), name_of(table, *id)))
        .filter(|(name, now)| name != now)
        .collect();
    if renamed.is_empty() {
        return expression.sql.clone();
    }
    struct Rename<'n>(HashMap<&'n str, &'n str>);
    impl VisitorMut for Rename<'_> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            let name = match expr {
                Expr::Identifier(name) => Some(name),
                Expr::CompoundIdentifier(names) => names.last_mut(),
                _ => None,
            };
            if let Some(name) = name
                && let Some(now) = self.0.get(plain(name).as_str())
            {
                *name = Ident::with_quote('"', *now);
            }
            ControlFlow::Continue(())
        }
    }
    let parsed = parser::expression(&expression.sql);
    match parsed {
        Ok(mut expr) => {
            let _ = VisitMut::visit(&mut expr, &mut Rename(renamed));
            expr.to_string()
        }
        // It was valid when it was created.
        Err(_) => expression.sql.clone(),
    }
}
