//! ORDER BY a number inside of calls: `array_agg(v ORDER BY 1)` orders by a constant in PostgreSQL, but by
//! the position of an argument in the planner.

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArgumentClause, FunctionArguments, OrderByExpr, Value,
    ValueWithSpan,
};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// Drops constant sort keys of a call.
///
/// Errors: an aggregate with DISTINCT is ordered by a constant (42P10).
pub(super) fn rewrite(expr: &mut Expr) -> Result<()> {
    let Expr::Function(Function { args, within_group, .. }) = expr else { return Ok(()) };
    // The key of WITHIN GROUP is the aggregate's input, so it must stay.
    for key in within_group.iter_mut().filter(|key| is_number(key)) {
        let number = std::mem::replace(&mut key.expr, Expr::value(Value::Null));
        key.expr = Expr::Nested(Box::new(number));
    }
    let FunctionArguments::List(list) = args else { return Ok(()) };
    let is_distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
    for clause in &mut list.clauses {
        let FunctionArgumentClause::OrderBy(keys) = clause else { continue };
        if is_distinct && keys.iter().any(is_number) {
            let message = "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list";
            return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message).into_datafusion());
        }
        keys.retain(|key| !is_number(key));
    }
    list.clauses.retain(|clause| !matches!(clause, FunctionArgumentClause::OrderBy(keys) if keys.is_empty()));
    Ok(())
}

fn is_number(key: &OrderByExpr) -> bool {
    let mut expr = &key.expr;
    while let Expr::UnaryOp { expr: inner, .. } = expr {
        expr = inner;
    }
    matches!(expr, Expr::Value(ValueWithSpan { value: Value::Number(..), .. }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::rewritten;

    #[test]
    fn numbers_order_nothing() {
        for (sql, expected) in [
            ("SELECT array_agg(v ORDER BY 1)", "SELECT array_agg(v)"),
            ("SELECT array_agg(v ORDER BY 1 DESC, w, 2)", "SELECT array_agg(v ORDER BY w)"),
            ("SELECT array_agg(DISTINCT v ORDER BY v)", "SELECT array_agg(DISTINCT v ORDER BY v)"),
            (
                "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY 1)",
                "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY (1))",
            ),
        ] {
            assert_eq!(rewritten(sql).unwrap(), expected);
        }
        assert!(rewritten("SELECT array_agg(DISTINCT v ORDER BY 1)").is_err());
    }
}
