//! `FETCH FIRST n ROWS ONLY` as LIMIT, and `WITH TIES` as a filter on `rank()`.

use std::ops::ControlFlow;

use crate::ast_builder::{derived_table, function_call, query_of, select_star, table_alias};
use crate::column_names::item_name;
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, Expr, Fetch, Function, Ident, LimitClause, OrderByExpr, OrderByKind, Query,
    SelectItem, SetExpr, TableFactor, Value, ValueWithSpan, WindowSpec, WindowType,
};

/// Rewrites the FETCH of a query. One that cannot be rewritten stays, and fails in the planner.
pub(super) fn rewrite(query: &mut Query) {
    let Some(fetch) = query.fetch.take() else { return };
    let is_done = match (fetch.percent, fetch.with_ties) {
        (true, _) => false,
        (false, false) => limit(query, count(&fetch)),
        (false, true) => with_ties(query, count(&fetch)).is_some(),
    };
    if !is_done {
        query.fetch = Some(fetch);
    }
}

fn count(fetch: &Fetch) -> Expr {
    fetch.quantity.clone().unwrap_or_else(|| Expr::value(Value::Number("1".to_string(), false)))
}

fn limit(query: &mut Query, count: Expr) -> bool {
    match &mut query.limit_clause {
        clause @ None => {
            *clause =
                Some(LimitClause::LimitOffset { limit: Some(count), offset: None, limit_by: Vec::new() });
        }
        Some(LimitClause::LimitOffset { limit: limit @ None, .. }) => *limit = Some(count),
        Some(_) => return false,
    }
    true
}

/// Keeps the rows whose rank is at most that of the last one. OFFSET stays, and skips the first rows.
fn with_ties(query: &mut Query, count: Expr) -> Option<()> {
    let offset = match &query.limit_clause {
        None => None,
        Some(LimitClause::LimitOffset { limit: None, offset, .. }) => {
            offset.as_ref().map(|offset| offset.value.clone())
        }
        Some(_) => return None,
    };
    let has_places = match &query.order_by.as_ref()?.kind {
        OrderByKind::Expressions(keys) => keys.iter().any(|key| matches!(key.expr, Expr::Value(_))),
        OrderByKind::All(_) => return None,
    };
    if !has_row_ranks(&query.body, has_places) {
        wrap_in_subquery(query)?;
    }
    let OrderByKind::Expressions(keys) = &query.order_by.as_ref()?.kind else { return None };
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    let order_by = keys.iter().map(|key| resolve_key(key, &select.projection)).collect::<Option<Vec<_>>>()?;
    let last = match offset {
        Some(offset) => Expr::BinaryOp {
            left: Box::new(Expr::Nested(Box::new(count))),
            op: BinaryOperator::Plus,
            right: Box::new(Expr::Nested(Box::new(offset))),
        },
        None => count,
    };
    select.qualify = Some(Expr::BinaryOp {
        left: Box::new(rank(order_by)),
        op: BinaryOperator::LtEq,
        right: Box::new(last),
    });
    Some(())
}

/// Whether the rank can be computed in the SELECT itself: it has one result row for each of its rows.
fn has_row_ranks(body: &SetExpr, has_places: bool) -> bool {
    let SetExpr::Select(select) = body else { return false };
    let has_window = ast::visit_expressions(&select.projection, |part| match part {
        Expr::Function(Function { over: Some(_), .. }) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    let is_known = !has_places || select.projection.iter().all(is_column);
    select.qualify.is_none() && select.distinct.is_none() && has_window.is_continue() && is_known
}

/// Wraps the query as `SELECT * FROM (…)` ordered by column names. `None` if a sort key is not a result
/// column, or its name is ambiguous.
fn wrap_in_subquery(query: &mut Query) -> Option<()> {
    let names = result_names(&query.body)?;
    let only = |name: &String| names.iter().filter(|other| *other == name).count() == 1;
    let OrderByKind::Expressions(keys) = &mut query.order_by.as_mut()?.kind else { return None };
    let mut named = Vec::with_capacity(keys.len());
    for key in keys.iter() {
        let name = match &key.expr {
            Expr::Value(ValueWithSpan { value: Value::Number(number, _), .. }) => {
                names.get(number.parse::<usize>().ok()?.checked_sub(1)?)?.clone()
            }
            Expr::Identifier(name) => crate::identifier::plain(name),
            _ => return None,
        };
        if !only(&name) {
            return None;
        }
        let expr = Expr::Identifier(Ident::with_quote('"', name));
        named.push(OrderByExpr { expr, ..key.clone() });
    }
    *keys = named;
    let body = std::mem::replace(&mut query.body, query_of(vec![], vec![]).body);
    let mut inner = query_of(vec![], vec![]);
    inner.body = body;
    query.body = select_star(vec![derived_table(inner, table_alias(Ident::new("_harrier_ties")))]).body;
    Some(())
}

/// The names of result columns; `None` if there is a star.
fn result_names(body: &SetExpr) -> Option<Vec<String>> {
    match body {
        SetExpr::Select(select) => match (select.projection.as_slice(), select.from.as_slice()) {
            ([SelectItem::Wildcard(_)], [table]) if table.joins.is_empty() => relation_names(&table.relation),
            (items, _) => items.iter().map(item_name).collect(),
        },
        SetExpr::SetOperation { left, .. } => result_names(left),
        SetExpr::Query(query) => result_names(&query.body),
        SetExpr::Values(values) => {
            let count = values.rows.first()?.len();
            Some((1..=count).map(|number| format!("column{number}")).collect())
        }
        _ => None,
    }
}

/// The column names of a subquery in FROM.
fn relation_names(factor: &TableFactor) -> Option<Vec<String>> {
    let TableFactor::Derived { subquery, alias, .. } = factor else { return None };
    let mut names = result_names(&subquery.body)?;
    let given = alias.iter().flat_map(|alias| &alias.columns);
    for (name, given) in names.iter_mut().zip(given) {
        *name = crate::identifier::plain(&given.name);
    }
    Some(names)
}

/// Resolves a sort key from the result columns to the expressions of the select list.
fn resolve_key(key: &OrderByExpr, items: &[SelectItem]) -> Option<OrderByExpr> {
    let expr = match &key.expr {
        Expr::Value(ValueWithSpan { value: Value::Number(number, _), .. }) => {
            let before = items.get(..number.parse::<usize>().ok()?)?;
            match before.last()? {
                // A `*` before it would shift the position.
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }
                    if before.iter().all(is_column) =>
                {
                    expr.clone()
                }
                _ => return None,
            }
        }
        Expr::Identifier(name) => {
            let named = items.iter().find_map(|item| match item {
                SelectItem::ExprWithAlias { expr, alias } if is_same_name(alias, name) => Some(expr),
                _ => None,
            });
            named.unwrap_or(&key.expr).clone()
        }
        other => other.clone(),
    };
    Some(OrderByExpr { expr, ..key.clone() })
}

fn is_column(item: &SelectItem) -> bool {
    matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
}

fn is_same_name(one: &Ident, other: &Ident) -> bool {
    crate::identifier::plain(one) == crate::identifier::plain(other)
}

fn rank(order_by: Vec<OrderByExpr>) -> Expr {
    let over = Some(WindowType::WindowSpec(WindowSpec {
        window_name: None,
        partition_by: Vec::new(),
        order_by,
        window_frame: None,
    }));
    Expr::Function(Function { over, ..function_call("rank", vec![]) })
}

#[cfg(test)]
mod tests {
    use super::super::tests::rewritten;

    #[test]
    fn fetch_is_limit_or_rank() {
        let check = |sql: &str, expected: &str| assert_eq!(rewritten(sql).unwrap(), expected);
        check("SELECT a FROM t FETCH FIRST 2 ROWS ONLY", "SELECT a FROM t LIMIT 2");
        check("SELECT a FROM t OFFSET 1 FETCH NEXT ROW ONLY", "SELECT a FROM t LIMIT 1 OFFSET 1");
        check(
            "SELECT a + 1 AS b FROM t ORDER BY b DESC, 1 OFFSET 3 FETCH FIRST 2 ROWS WITH TIES",
            "SELECT a + 1 AS b FROM t QUALIFY rank() OVER (ORDER BY a + 1 DESC, a + 1) <= (2) + (3) ORDER BY b DESC, 1 OFFSET 3",
        );
        // Without ORDER BY there are no ties.
        let sql = "SELECT a FROM t FETCH FIRST 2 ROWS WITH TIES";
        check(sql, sql);
    }
}
