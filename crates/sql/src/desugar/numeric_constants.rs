//! Constants cast to NUMERIC without scale: `'1.50'::numeric` has scale 2, as it is written. The planner
//! would give all of them scale 10.
//!
//! Constants in recursive queries, and those that define a table's column, keep scale 10: later values may
//! have more digits.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    DataType, ExactNumberInfo, Expr, Query, Statement, Value, ValueWithSpan, VisitMut, VisitorMut,
};

use harrier_functions::parse::decimal;

use super::calls::numeric_of;

/// Rewrites such constants, if the statement is a query.
pub(super) fn rewrite(statement: &mut Statement) {
    match statement {
        Statement::Query(query) => {
            let is_recursive = query.visit(&mut Recursive).is_break();
            if !is_recursive {
                let _ = query.visit(&mut Constants);
            }
        }
        Statement::Explain { statement, .. } => rewrite(statement),
        _ => {}
    }
}

/// Stops at a recursive query.
struct Recursive;

impl VisitorMut for Recursive {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        match query.with.as_ref().is_some_and(|with| with.recursive) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

struct Constants;

impl VisitorMut for Constants {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let text = match &*expr {
            Expr::Cast { expr: inner, data_type, .. } if is_bare(data_type) => number_of(inner),
            Expr::TypedString(typed) if is_bare(&typed.data_type) => match &typed.value.value {
                Value::SingleQuotedString(text) => Some(text.as_str()),
                _ => None,
            },
            _ => None,
        };
        let plain = text.and_then(decimal::plain);
        if let Some(exact) = plain.as_deref().or(text).and_then(numeric_of) {
            *expr = exact;
        }
        ControlFlow::Continue(())
    }
}

fn is_bare(data_type: &DataType) -> bool {
    use DataType::{Dec, Decimal, Numeric};
    matches!(
        data_type,
        Numeric(ExactNumberInfo::None) | Decimal(ExactNumberInfo::None) | Dec(ExactNumberInfo::None)
    )
}

fn number_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Nested(inner) => number_of(inner),
        Expr::Value(ValueWithSpan {
            value: Value::SingleQuotedString(text) | Value::Number(text, _),
            ..
        }) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn numeric_constants_keep_their_scale() {
        let check = |sql: &str, expected: &str| {
            let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
            rewrite(&mut statements[0]);
            assert_eq!(statements[0].to_string(), expected);
        };
        check("SELECT '1.50'::numeric", "SELECT CAST('1.50' AS NUMERIC(3,2))");
        check(
            "SELECT numeric '-7', 2.5::numeric",
            "SELECT CAST('-7' AS NUMERIC(1,0)), CAST('2.5' AS NUMERIC(2,1))",
        );
        check("SELECT '1e-3'::NUMERIC", "SELECT CAST('0.001' AS NUMERIC(4,3))");
        for same in [
            "SELECT a::NUMERIC, 'x'::NUMERIC, '1.5'::NUMERIC(4,2) FROM t",
            "WITH RECURSIVE r AS (SELECT 1::NUMERIC) SELECT * FROM r",
            "CREATE TABLE t AS SELECT 1::NUMERIC",
        ] {
            check(same, same);
        }
    }
}
