//! `x = ANY (ARRAY[…])` of numbers with a point and of bytea as `x IN (…)`: the function that searches an
//! array finds no common type for decimals of different scales, nor for different Arrow layouts of bytea.
//!
//! ```text
//! n = ANY (ARRAY[1.5, m])           ─►  n IN (1.5, m)
//! b = ANY (ARRAY['\x01'::bytea])    ─►  b IN ('\x01'::bytea)
//! b <> ALL (ARRAY['\x01'::bytea])   ─►  b NOT IN ('\x01'::bytea)
//! ```
//!
//! Other arrays are searched by [`array_has`](harrier_functions::array_elements).

use datafusion::sql::sqlparser::ast::{BinaryOperator, DataType, Expr, UnaryOperator, Value};

use super::exact_number::exact_decimal;
use crate::ast_builder::function_call;

pub(super) fn rewrite(expr: &mut Expr) {
    let (left, right, negated) = match expr {
        Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => (left, right, false),
        Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => (left, right, true),
        _ => return,
    };
    let list = elements_of(right);
    if list.is_none() && !is_searched(right) {
        return;
    }
    let [left, right] = [left, right].map(|side| std::mem::replace(side, Box::new(Expr::value(Value::Null))));
    *expr = match list {
        Some(list) => Expr::InList { expr: left, list, negated },
        None => {
            let has = Expr::Function(function_call("array_has", vec![*right, exact_or_same(*left)]));
            match negated {
                true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(has) },
                false => has,
            }
        }
    };
}

/// Whether the planner has to search an array, which may be computed. The function that it takes itself finds
/// no common type for decimals of different scales, and takes NULL for an element that is not equal.
fn is_searched(array: &Expr) -> bool {
    match array {
        Expr::Nested(inner) => is_searched(inner),
        Expr::Array(_) => true,
        Expr::Cast { data_type, .. } => matches!(data_type, DataType::Array(_)),
        Expr::Identifier(_)
        | Expr::CompoundIdentifier(_)
        | Expr::CompoundFieldAccess { .. }
        | Expr::Function(_) => true,
        Expr::Value(value) => matches!(value.value, Value::Placeholder(_)),
        _ => false,
    }
}

fn exact_or_same(value: Expr) -> Expr {
    match &value {
        Expr::Value(number) => match &number.value {
            Value::Number(text, _) if text.contains('.') => exact_decimal(text).unwrap_or(value),
            _ => value,
        },
        _ => value,
    }
}

/// The elements of an array literal if one of them is of such a type.
fn elements_of(array: &Expr) -> Option<Vec<Expr>> {
    match array {
        Expr::Nested(inner) => elements_of(inner),
        Expr::Array(array) if array.elem.iter().any(needs_list) => Some(array.elem.clone()),
        _ => None,
    }
}

fn needs_list(expr: &Expr) -> bool {
    let is_wanted = |kind: &DataType| {
        matches!(kind, DataType::Bytea | DataType::Numeric(_) | DataType::Decimal(_) | DataType::Dec(_))
    };
    match expr {
        Expr::Nested(inner) => needs_list(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => needs_list(expr),
        Expr::Cast { data_type, .. } => is_wanted(data_type),
        Expr::TypedString(typed) => is_wanted(&typed.data_type),
        Expr::Value(value) => matches!(&value.value, Value::Number(text, _) if text.contains('.')),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    #[test]
    fn bytes_and_decimals_are_searched_in_lists() {
        let dialect = PostgreSqlDialect {};
        for (sql, expected) in [
            ("b = ANY(ARRAY['a'::BYTEA, c])", "b IN ('a'::BYTEA, c)"),
            ("b <> ALL(ARRAY['a'::BYTEA])", "b NOT IN ('a'::BYTEA)"),
            ("n = ANY(ARRAY[1, -2.5])", "n IN (1, -2.5)"),
            ("n = ANY(ARRAY[x::NUMERIC(5,2)])", "n IN (x::NUMERIC(5,2))"),
            ("b = ANY(ARRAY[1])", "array_has(ARRAY[1], b)"),
            ("1.5 = ANY(t.ns)", "array_has(t.ns, CAST('1.5' AS DECIMAL(2,1)))"),
            ("n <> ALL($1)", "NOT array_has($1, n)"),
            ("n = ANY('{1}')", "n = ANY('{1}')"),
            ("b < ANY(ARRAY['a'::BYTEA])", "b < ANY(ARRAY['a'::BYTEA])"),
        ] {
            let mut expr = Parser::new(&dialect).try_with_sql(sql).unwrap().parse_expr().unwrap();
            super::rewrite(&mut expr);
            assert_eq!(expr.to_string(), expected);
        }
    }
}
