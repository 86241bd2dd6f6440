//! Constructors of expressions that several rewrites of Hive use.

use datafusion::sql::sqlparser::ast::{Expr, OrderByExpr, OrderByOptions, Value, ValueWithSpan};

use crate::ast_builder::function_call;

/// A call of a function.
pub(super) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    Expr::Function(function_call(name, arguments))
}

/// An item of ORDER BY.
pub(super) fn ascending(expr: Expr) -> OrderByExpr {
    OrderByExpr { expr, options: OrderByOptions { asc: None, nulls_first: None }, with_fill: None }
}

/// A string literal.
pub(super) fn text(text: &str) -> Expr {
    Expr::value(Value::SingleQuotedString(text.to_string()))
}

/// `expr` as text.
pub(super) fn as_text(expr: Expr) -> Expr {
    match &expr {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(_), .. }) => expr,
        _ => call("hive_string", vec![expr]),
    }
}

/// `expr` as the Arrow type of this name; NULL where it has no such value.
pub(super) fn as_type(expr: Expr, arrow_type: &str) -> Expr {
    call("hive_cast", vec![expr, text(arrow_type)])
}
