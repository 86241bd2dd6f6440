//! `b = ANY (ARRAY[…])` of bytea as `b IN (…)`: a bytea column and an array of literals have different Arrow
//! layouts, so the planner would find no match.
//!
//! ```text
//! b = ANY (ARRAY['\x01'::bytea])    ─►  b IN ('\x01'::bytea)
//! b <> ALL (ARRAY['\x01'::bytea])   ─►  b NOT IN ('\x01'::bytea)
//! ```

use datafusion::sql::sqlparser::ast::{BinaryOperator, DataType, Expr, Value};

pub(super) fn rewrite(expr: &mut Expr) {
    let (left, right, negated) = match expr {
        Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => (left, right, false),
        Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => (left, right, true),
        _ => return,
    };
    let Some(list) = bytes_of(right) else { return };
    let left = std::mem::replace(left, Box::new(Expr::value(Value::Null)));
    *expr = Expr::InList { expr: left, list, negated };
}

/// The elements of an array literal if one of them is a cast to bytea.
fn bytes_of(array: &Expr) -> Option<Vec<Expr>> {
    match array {
        Expr::Nested(inner) => bytes_of(inner),
        Expr::Array(array) if array.elem.iter().any(is_bytes) => Some(array.elem.clone()),
        _ => None,
    }
}

fn is_bytes(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_bytes(inner),
        Expr::Cast { data_type, .. } => matches!(data_type, DataType::Bytea),
        Expr::TypedString(typed) => matches!(typed.data_type, DataType::Bytea),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    #[test]
    fn bytes_are_looked_for_in_lists() {
        let dialect = PostgreSqlDialect {};
        for (sql, expected) in [
            ("b = ANY(ARRAY['a'::BYTEA, c])", "b IN ('a'::BYTEA, c)"),
            ("b <> ALL(ARRAY['a'::BYTEA])", "b NOT IN ('a'::BYTEA)"),
            ("b = ANY(ARRAY[1])", "b = ANY(ARRAY[1])"),
            ("b < ANY(ARRAY['a'::BYTEA])", "b < ANY(ARRAY['a'::BYTEA])"),
        ] {
            let mut expr = Parser::new(&dialect).try_with_sql(sql).unwrap().parse_expr().unwrap();
            super::rewrite(&mut expr);
            assert_eq!(expr.to_string(), expected);
        }
    }
}
