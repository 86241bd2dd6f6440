//! ORDER BY of result columns.
//!
//! A bare name refers to a result column by its PostgreSQL name: `SELECT sum(x) … ORDER BY sum` becomes
//! `ORDER BY 1`. A name of several different columns is ambiguous.
//!
//! The planner resolves an unnamed expression that is sorted by its number against the result:
//! `SELECT max(x) + 1 … ORDER BY 1` would read a column x that is not a grouping key, and
//! `SELECT abs(x) … GROUP BY x ORDER BY 1` one that is not in the groups. So such an expression gets an
//! alias.

use std::ops::ControlFlow;

use crate::column_names::{duplicate_alias, item_name};
use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    self, Expr, GroupByExpr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, Value, ValueWithSpan,
};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::identifier::{plain, without_casts};

/// Rewrites the ORDER BY of a query in place.
///
/// Errors: an ambiguous name (42702).
pub(super) fn rewrite(query: &mut Query) -> Result<()> {
    let Some(order_by) = &mut query.order_by else { return Ok(()) };
    let OrderByKind::Expressions(keys) = &mut order_by.kind else { return Ok(()) };
    let Some(select) = first_select(&query.body) else { return Ok(()) };
    let is_one_of_many = matches!(query.body.as_ref(), SetExpr::SetOperation { .. });
    let has_star = select
        .projection
        .iter()
        .any(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)));
    for key in keys {
        let Expr::Identifier(name) = &key.expr else { continue };
        let name = plain(name);
        let items = select.projection.iter().enumerate();
        let mut met = items.filter_map(|(at, item)| {
            let own = item_name(item)?;
            (own == name).then(|| (at, item_expression(item)))
        });
        let Some((at, first)) = met.next() else { continue };
        if met.any(|(_, other)| is_one_of_many || are_different(first, other)) {
            let message = format!("ORDER BY \"{name}\" is ambiguous");
            return Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message).into_datafusion());
        }
        let has_name = matches!(&select.projection[at], SelectItem::ExprWithAlias { .. })
            || first.is_some_and(|expr| is_column(without_casts(expr)));
        if !has_name && !has_star {
            key.expr = Expr::value(Value::Number((at + 1).to_string(), false));
        }
    }
    name_expressions(query);
    Ok(())
}

/// Aliases expressions with nested calls that are sort keys; in grouped queries, all but columns.
fn name_expressions(query: &mut Query) {
    let Some(order_by) = &query.order_by else { return };
    let OrderByKind::Expressions(keys) = &order_by.kind else { return };
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let number = |expr: &Expr| match expr {
        Expr::Value(ValueWithSpan { value: Value::Number(number, _), .. }) => number.parse::<usize>().ok(),
        _ => None,
    };
    let is_grouped = match &select.group_by {
        GroupByExpr::All(_) => true,
        GroupByExpr::Expressions(keys, _) => !keys.is_empty(),
    };
    let names: Vec<Option<String>> = select.projection.iter().map(item_name).collect();
    for at in keys.iter().filter_map(|key| number(&key.expr)).filter_map(|number| number.checked_sub(1)) {
        let Some(item) = select.projection.get_mut(at) else { continue };
        let (SelectItem::UnnamedExpr(expr), Some(Some(name))) = (&*item, names.get(at)) else { continue };
        if !has_inner_call(expr) && (!is_grouped || is_column(without_casts(expr))) {
            continue;
        }
        let is_taken = names.iter().flatten().filter(|other| *other == name).count() > 1;
        let name = if is_taken { duplicate_alias(name, at) } else { name.clone() };
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', name) };
    }
}

/// Whether an expression contains a call and is not just that call.
fn has_inner_call(expr: &Expr) -> bool {
    let mut calls = 0;
    let _: ControlFlow<()> = ast::visit_expressions(expr, |part| {
        calls += usize::from(matches!(part, Expr::Function(_)));
        ControlFlow::Continue(())
    });
    calls > usize::from(matches!(expr, Expr::Function(_)))
}

fn first_select(body: &SetExpr) -> Option<&Select> {
    match body {
        SetExpr::Select(select) => Some(select),
        SetExpr::SetOperation { left, .. } => first_select(left),
        SetExpr::Query(query) => first_select(&query.body),
        _ => None,
    }
}

fn item_expression(item: &SelectItem) -> Option<&Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

/// Whether two items are different columns; `a` and `t.a` are taken to be the same.
fn are_different(one: Option<&Expr>, other: Option<&Expr>) -> bool {
    let last = |expr: &Expr| match expr {
        Expr::Identifier(name) => Some((plain(name), 1)),
        Expr::CompoundIdentifier(parts) => Some((parts.last().map(plain)?, parts.len())),
        _ => None,
    };
    match (one, other) {
        (Some(one), Some(other)) => match (last(one), last(other)) {
            (Some((one, parts)), Some((other, others))) if parts != others => one != other,
            (Some(_), Some(_)) | (None, None) => one != other,
            _ => true,
        },
        _ => false,
    }
}

fn is_column(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
}

#[cfg(test)]
mod tests {
    use super::super::tests::rewritten;

    #[test]
    fn names_of_results() {
        for (sql, expected) in [
            ("SELECT sum(a), b FROM t ORDER BY sum, b", "SELECT sum(a), b FROM t ORDER BY 1, b"),
            ("SELECT sum(a), sum(a) FROM t ORDER BY sum", "SELECT sum(a), sum(a) FROM t ORDER BY 1"),
            ("SELECT a AS b, t.a AS b FROM t ORDER BY b", "SELECT a AS b, t.a AS b FROM t ORDER BY b"),
            (
                "SELECT max(a) + 1, max(b) FROM t ORDER BY 1, 2",
                "SELECT max(a) + 1 AS \"?column?\", max(b) FROM t ORDER BY 1, 2",
            ),
            ("SELECT a::TEXT FROM t ORDER BY a", "SELECT a::TEXT FROM t ORDER BY a"),
        ] {
            assert_eq!(rewritten(sql).unwrap(), expected);
        }
        for sql in [
            "SELECT 1 AS b, 2 AS b ORDER BY b",
            "SELECT sum(a), sum(b) FROM t ORDER BY sum",
            "SELECT 1 AS b, 1 AS b UNION SELECT 2, 2 ORDER BY b",
        ] {
            assert!(rewritten(sql).is_err(), "{sql}");
        }
    }
}
