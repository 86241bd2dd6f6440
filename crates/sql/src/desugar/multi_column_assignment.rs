//! `SET (a, b) = …` of UPDATE, MERGE and ON CONFLICT DO UPDATE, as single-column assignments, which the
//! planner supports.

use std::ops::ControlFlow;

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident,
    MergeAction, Query, Select, SelectItem, SetExpr, Statement, visit_expressions,
};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::ast_builder::{derived_table, query_of, table_alias_of};
use crate::on_conflict;

/// Rewrites such a statement in place. A subquery is evaluated once per column.
/// Errors: the numbers of columns and values differ (42601).
pub(super) fn rewrite(statement: &mut Statement) -> Result<()> {
    match statement {
        Statement::Prepare { statement, .. } => rewrite(statement),
        Statement::Update(update) => split_assignments(&mut update.assignments),
        Statement::Insert(insert) => on_conflict::assignments_mut(insert).map_or(Ok(()), split_assignments),
        Statement::Merge(merge) => merge.clauses.iter_mut().try_for_each(|clause| match &mut clause.action {
            MergeAction::Update(update) => split_assignments(&mut update.assignments),
            MergeAction::Insert(_) | MergeAction::Delete { .. } => Ok(()),
        }),
        _ => Ok(()),
    }
}

fn split_assignments(assignments: &mut Vec<Assignment>) -> Result<()> {
    if !assignments.iter().any(|one| matches!(one.target, AssignmentTarget::Tuple(_))) {
        return Ok(());
    }
    let mut all = Vec::with_capacity(assignments.len());
    for Assignment { target, value } in std::mem::take(assignments) {
        match target {
            AssignmentTarget::Tuple(columns) => {
                let values = values_of(value, columns.len())?;
                let targets = columns.into_iter().map(AssignmentTarget::ColumnName);
                all.extend(targets.zip(values).map(|(target, value)| Assignment { target, value }));
            }
            target => all.push(Assignment { target, value }),
        }
    }
    *assignments = all;
    Ok(())
}

/// Splits the source into one value per column.
fn values_of(value: Expr, columns: usize) -> Result<Vec<Expr>> {
    let values = match value {
        Expr::Tuple(values) => values,
        Expr::Nested(value) => vec![*value],
        Expr::Subquery(query) => subquery_columns(&query, columns)?,
        Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("row") => {
            let FunctionArguments::List(list) = function.args else { return Err(not_a_row_error()) };
            let value = |argument| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Ok(value),
                _ => Err(not_a_row_error()),
            };
            list.args.into_iter().map(value).collect::<Result<_>>()?
        }
        _ => return Err(not_a_row_error()),
    };
    match values.len() == columns {
        true => Ok(values),
        false => Err(column_count_error()),
    }
}

/// The columns of a single-row subquery, each as a scalar subquery.
fn subquery_columns(query: &Query, columns: usize) -> Result<Vec<Expr>> {
    let is_column =
        |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
    if let SetExpr::Select(select) = query.body.as_ref()
        && select.projection.iter().all(is_column)
    {
        if select.projection.len() != columns {
            return Err(column_count_error());
        }
        // Projecting the column directly gives the best join. In other queries a column alone may have other
        // rows: beside an aggregate it has none.
        if is_plain(query, select) {
            let part = |at: usize| {
                let mut query = query.clone();
                if let SetExpr::Select(select) = query.body.as_mut() {
                    select.projection = vec![select.projection.swap_remove(at)];
                }
                Expr::Subquery(Box::new(query))
            };
            return Ok((0..columns).map(part).collect());
        }
    }
    Ok((0..columns).map(|at| column_of(query, at, columns)).collect())
}

/// Whether projecting a single column keeps the query's rows and their order.
fn is_plain(query: &Query, select: &Select) -> bool {
    let is_grouped = match &select.group_by {
        GroupByExpr::Expressions(keys, modifiers) => !keys.is_empty() || !modifiers.is_empty(),
        GroupByExpr::All(_) => true,
    };
    let has_function = select.projection.iter().any(|item| {
        visit_expressions(item, |part| match part {
            Expr::Function(_) | Expr::Subquery(_) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        })
        .is_break()
    });
    select.distinct.is_none()
        && select.having.is_none()
        && !is_grouped
        && !has_function
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
}

/// One column of any query, as a scalar subquery over a derived table.
fn column_of(query: &Query, at: usize, columns: usize) -> Expr {
    let name = |at: usize| Ident::new(format!("c{at}"));
    let alias = table_alias_of(Ident::new("parts"), (0..columns).map(name));
    let item = SelectItem::UnnamedExpr(Expr::Identifier(name(at)));
    Expr::Subquery(Box::new(query_of(vec![item], vec![derived_table(query.clone(), alias)])))
}

fn not_a_row_error() -> datafusion::error::DataFusionError {
    let message = "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression";
    SqlError::new(SqlState::SYNTAX_ERROR, message).into_datafusion()
}

fn column_count_error() -> datafusion::error::DataFusionError {
    SqlError::new(SqlState::SYNTAX_ERROR, "number of columns does not match number of values")
        .into_datafusion()
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn rewritten(sql: &str) -> Result<String> {
        let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql)?;
        rewrite(&mut statements[0])?;
        Ok(statements[0].to_string())
    }

    #[test]
    fn columns_are_assigned_one_by_one() {
        for (sql, expected) in [
            ("UPDATE t SET (a, b) = (1, b + 1), c = 3", "UPDATE t SET a = 1, b = b + 1, c = 3"),
            ("UPDATE t SET (a, b) = ROW(1, DEFAULT)", "UPDATE t SET a = 1, b = DEFAULT"),
            ("UPDATE t SET (a) = (1)", "UPDATE t SET a = 1"),
            (
                "UPDATE t SET (a, b) = (SELECT x, y AS z FROM u WHERE u.k = t.k)",
                "UPDATE t SET a = (SELECT x FROM u WHERE u.k = t.k), b = (SELECT y AS z FROM u WHERE u.k = t.k)",
            ),
            (
                "UPDATE t SET (a, b) = (SELECT max(x), 1 FROM u)",
                "UPDATE t SET a = (SELECT c0 FROM (SELECT max(x), 1 FROM u) AS parts (c0, c1)), \
                 b = (SELECT c1 FROM (SELECT max(x), 1 FROM u) AS parts (c0, c1))",
            ),
            (
                "UPDATE t SET (a, b) = (SELECT * FROM u)",
                "UPDATE t SET a = (SELECT c0 FROM (SELECT * FROM u) AS parts (c0, c1)), \
                 b = (SELECT c1 FROM (SELECT * FROM u) AS parts (c0, c1))",
            ),
            (
                "PREPARE p AS MERGE INTO t USING u ON t.k = u.k WHEN MATCHED THEN UPDATE SET (a, b) = (u.a, $1)",
                "PREPARE p AS MERGE INTO t USING u ON t.k = u.k WHEN MATCHED THEN UPDATE SET a = u.a, b = $1",
            ),
        ] {
            assert_eq!(rewritten(sql).unwrap(), expected);
        }
    }

    #[test]
    fn other_numbers_are_errors() {
        for sql in
            ["UPDATE t SET (a, b) = (1, 2, 3)", "UPDATE t SET (a, b) = (SELECT 1)", "UPDATE t SET (a, b) = 1"]
        {
            assert!(
                rewritten(sql).unwrap_err().to_string().contains("multiple-column")
                    || rewritten(sql).unwrap_err().to_string().contains("does not match"),
                "{sql}"
            );
        }
    }
}
