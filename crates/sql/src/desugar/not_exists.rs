//! `NOT EXISTS (…) IS NULL` and `NOT EXISTS (…) = a`: as in PostgreSQL, NOT applies to the whole expression.
//! The parser takes NOT EXISTS for one operator.

use datafusion::sql::sqlparser::ast::{BinaryOperator, CastKind, Expr, UnaryOperator};

/// Rewrites such an expression in place.
pub(super) fn rewrite(expr: &mut Expr) {
    if matches!(expr, Expr::Exists { .. }) {
        return;
    }
    if let Some(Expr::Exists { negated: negated @ true, .. }) = leftmost_operand(expr) {
        *negated = false;
        let all = std::mem::replace(expr, Expr::Tuple(vec![]));
        *expr = Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(Expr::Nested(Box::new(all))) };
    }
}

/// The leftmost operand of an expression whose operators bind more tightly than NOT.
fn leftmost_operand(expr: &mut Expr) -> Option<&mut Expr> {
    match expr {
        Expr::Exists { .. } => Some(expr),
        Expr::BinaryOp { op: BinaryOperator::And | BinaryOperator::Or | BinaryOperator::Xor, .. } => None,
        Expr::BinaryOp { left: begin, .. }
        | Expr::IsNull(begin)
        | Expr::IsNotNull(begin)
        | Expr::IsTrue(begin)
        | Expr::IsNotTrue(begin)
        | Expr::IsFalse(begin)
        | Expr::IsNotFalse(begin)
        | Expr::IsUnknown(begin)
        | Expr::IsNotUnknown(begin)
        | Expr::IsDistinctFrom(begin, _)
        | Expr::IsNotDistinctFrom(begin, _)
        | Expr::InList { expr: begin, .. }
        | Expr::InSubquery { expr: begin, .. }
        | Expr::Between { expr: begin, .. }
        | Expr::AnyOp { left: begin, .. }
        | Expr::AllOp { left: begin, .. } => leftmost_operand(begin),
        Expr::Cast { kind: CastKind::DoubleColon, expr: begin, .. } => leftmost_operand(begin),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    #[test]
    fn not_has_low_precedence() {
        for (sql, expected) in [
            ("NOT EXISTS (SELECT 1) IS NULL", "NOT (EXISTS (SELECT 1) IS NULL)"),
            ("NOT EXISTS (SELECT 1) = a IS TRUE", "NOT (EXISTS (SELECT 1) = a IS TRUE)"),
            ("NOT EXISTS (SELECT 1) IN (a, b)", "NOT (EXISTS (SELECT 1) IN (a, b))"),
        ] {
            let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(sql).unwrap();
            let mut expr = parser.parse_expr().unwrap();
            super::rewrite(&mut expr);
            assert_eq!(expr.to_string(), expected);
            assert!(matches!(expr, super::Expr::UnaryOp { .. }), "{sql}");
        }
        for sql in ["NOT EXISTS (SELECT 1)", "(NOT EXISTS (SELECT 1)) IS NULL", "NOT EXISTS (SELECT 1) AND a"]
        {
            let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(sql).unwrap();
            let mut expr = parser.parse_expr().unwrap();
            let before = expr.clone();
            super::rewrite(&mut expr);
            assert_eq!(expr, before);
        }
    }
}
