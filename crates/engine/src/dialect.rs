//! What PostgreSQL's SQL has and the planner has not, in words that it has: texts of intervals, FETCH, windows made of windows,
//! TABLE. Only what would fail, or be misunderstood, is rewritten.

mod fetch;
mod insert;
mod interval;
mod windows;

use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    self, DataType, Expr, Ident, Interval, ObjectName, Query, Select, SetExpr, Table, Value, ValueWithSpan,
    VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

pub(crate) use insert::{has_bare_rows, name_columns};

/// Rewrites a statement in place, before it is planned.
///
/// Errors: a window that another is made of is not defined (42704), or is changed where it must not be (42P20).
pub(crate) fn prepare(statement: &mut Statement) -> Result<()> {
    match statement {
        Statement::Statement(statement) => rewrite(statement.as_mut()),
        Statement::Explain(explain) => prepare(&mut explain.statement),
        Statement::CopyTo(copy) => match &mut copy.source {
            datafusion::sql::parser::CopyToSource::Query(query) => rewrite(query.as_mut()),
            datafusion::sql::parser::CopyToSource::Relation(_) => Ok(()),
        },
        Statement::CreateExternalTable(_) | Statement::Reset(_) => Ok(()),
    }
}

fn rewrite<N: VisitMut>(node: &mut N) -> Result<()> {
    match node.visit(&mut Dialect) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Dialect;

impl VisitorMut for Dialect {
    type Break = DataFusionError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<DataFusionError> {
        read_tables(&mut query.body);
        fetch::to_limit(query);
        match windows::complete(query) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<DataFusionError> {
        match expr {
            Expr::Interval(interval) => plain_interval(interval),
            Expr::Cast { expr: inner, data_type: DataType::Interval { .. }, .. } => {
                if let Some(text) = text_of(inner).and_then(interval::normal) {
                    *expr = Expr::Interval(Interval {
                        value: Box::new(Expr::value(Value::SingleQuotedString(text))),
                        leading_field: None,
                        leading_precision: None,
                        last_field: None,
                        fractional_seconds_precision: None,
                    });
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// `INTERVAL '1 day 02:03'` and `INTERVAL '1 02:03' DAY TO MINUTE`.
fn plain_interval(interval: &mut Interval) {
    if interval.leading_field.is_some() && interval.last_field.is_none() {
        return;
    }
    if let Some(text) = text_of(&interval.value).and_then(interval::normal) {
        interval.value = Box::new(Expr::value(Value::SingleQuotedString(text)));
        (interval.leading_field, interval.last_field) = (None, None);
    }
}

fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => Some(text),
        _ => None,
    }
}

/// `TABLE t` as `SELECT * FROM t`, wherever a query may be.
fn read_tables(body: &mut SetExpr) {
    match body {
        SetExpr::SetOperation { left, right, .. } => {
            read_tables(left);
            read_tables(right);
        }
        SetExpr::Table(table) => {
            if let Some(select) = all_of(table) {
                *body = SetExpr::Select(Box::new(select));
            }
        }
        _ => {}
    }
}

fn all_of(table: &Table) -> Option<Select> {
    let parts = table.schema_name.iter().chain(&table.table_name).map(|part| Ident::new(part.clone()));
    let sql = format!("SELECT * FROM {}", ObjectName::from(parts.collect::<Vec<_>>()));
    let statement = Parser::parse_sql(&PostgreSqlDialect {}, &sql).ok()?.pop()?;
    let ast::Statement::Query(query) = statement else { return None };
    match *query.body {
        SetExpr::Select(select) => Some(*select),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn rewritten(sql: &str) -> Result<String> {
        let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql)?;
        rewrite(&mut statements[0])?;
        Ok(statements[0].to_string())
    }

    #[test]
    fn statements_are_made_plannable() {
        let check = |sql: &str, expected: &str| assert_eq!(rewritten(sql).unwrap(), expected);
        check("SELECT 1 UNION ALL TABLE t", "SELECT 1 UNION ALL SELECT * FROM t");
        check("SELECT INTERVAL '1 day'", "SELECT INTERVAL '1 day'");
        check("SELECT '02:03'::interval", "SELECT INTERVAL '0 months 0 days 7380000000000 nanoseconds'");
        check(
            "SELECT INTERVAL '1 02:03' DAY TO MINUTE",
            "SELECT INTERVAL '0 months 1 days 7380000000000 nanoseconds'",
        );
        check("SELECT INTERVAL '5' DAY", "SELECT INTERVAL '5' DAY");
    }
}
