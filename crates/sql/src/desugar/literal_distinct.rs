//! `a IS DISTINCT FROM 'x'`: a literal in quotes takes the type of the other side, as beside `=`. The planner
//! resolves the types of `=` only.
//!
//! ```text
//! a IS NOT DISTINCT FROM 'x'  ─►  (a = 'x') IS TRUE
//! a IS DISTINCT FROM 'x'      ─►  (a = 'x') IS NOT TRUE
//! ```

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};

use crate::ast_builder::{binary, parentheses, text_of};

/// Rewrites such an expression in place. The literal is not NULL, so both forms say the same.
pub(super) fn rewrite(expr: &mut Expr) {
    let (Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right)) = &*expr else { return };
    if text_of(left).is_some() == text_of(right).is_some() {
        return;
    }
    *expr = match std::mem::replace(expr, Expr::Tuple(vec![])) {
        Expr::IsDistinctFrom(left, right) => Expr::IsNotTrue(Box::new(equal(*left, *right))),
        Expr::IsNotDistinctFrom(left, right) => Expr::IsTrue(Box::new(equal(*left, *right))),
        other => other,
    };
}

fn equal(left: Expr, right: Expr) -> Expr {
    parentheses(binary(parentheses(left), BinaryOperator::Eq, parentheses(right)))
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    #[test]
    fn literals_are_compared_by_equality() {
        for (sql, expected) in [
            ("a IS DISTINCT FROM 'x'", "((a) = ('x')) IS NOT TRUE"),
            ("'x' IS NOT DISTINCT FROM a", "(('x') = (a)) IS TRUE"),
            ("a IS DISTINCT FROM b", "a IS DISTINCT FROM b"),
            ("'a' IS DISTINCT FROM 'b'", "'a' IS DISTINCT FROM 'b'"),
        ] {
            let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(sql).unwrap();
            let mut expr = parser.parse_expr().unwrap();
            super::rewrite(&mut expr);
            assert_eq!(expr.to_string(), expected);
        }
    }
}
