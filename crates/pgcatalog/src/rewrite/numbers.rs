//! Casts integer literals in catalog queries to `integer`, PostgreSQL's type: clients compare them as
//! numbers, and would get a bigint as text.
//!
//! ```text
//! SELECT CASE WHEN c.conname IS NOT NULL THEN 1 ELSE 0 END AS of_key  ──►  SELECT CAST(CASE … END AS INTEGER) AS of_key
//! ```

use datafusion::sql::sqlparser::ast::{
    DataType, Expr, Select, SelectItem, TableFactor, UnaryOperator, Value, ValueWithSpan,
};

use crate::rewrite::expressions::{cast_to, null};
use crate::{CATALOG_SCHEMA, INFORMATION_SCHEMA};
use harrier_sql::column_names::parts;

/// Casts list items that are plain integer literals in `integer`'s range. Skips unnamed ones, whose name a
/// cast would change.
pub(super) fn shorten(select: &mut Select) {
    let mut factors = select.from.iter().flat_map(|entry| {
        std::iter::once(&entry.relation).chain(entry.joins.iter().map(|join| &join.relation))
    });
    if !factors.any(is_system) {
        return;
    }
    for item in &mut select.projection {
        if let SelectItem::ExprWithAlias { expr, .. } = item
            && is_short(expr)
        {
            *expr = cast_to(std::mem::replace(expr, null()), DataType::Integer(None));
        }
    }
}

/// Whether an entry of FROM is a qualified system relation.
fn is_system(factor: &TableFactor) -> bool {
    let TableFactor::Table { name, .. } = factor else { return false };
    matches!(parts(name).as_slice(), [.., schema, _] if schema == CATALOG_SCHEMA || schema == INFORMATION_SCHEMA)
}

fn is_short(expr: &Expr) -> bool {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => digits.parse::<i32>().is_ok(),
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => is_short(expr),
        Expr::Nested(inner) => is_short(inner),
        Expr::Case { conditions, else_result, .. } => {
            let is_null = |expr: &Expr| matches!(expr, Expr::Value(value) if value.value == Value::Null);
            let mut results =
                conditions.iter().map(|case| &case.result).chain(else_result.iter().map(AsRef::as_ref));
            results.clone().any(is_short) && results.all(|result| is_short(result) || is_null(result))
        }
        _ => false,
    }
}
