//! `FETCH FIRST n ROWS ONLY` as LIMIT, and `WITH TIES` as a condition on the rank.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Fetch, Function, Ident, LimitClause, OrderByExpr, OrderByKind, Query, SelectItem,
    SetExpr, Value, ValueWithSpan, WindowSpec, WindowType,
};
use harrier_pgcatalog::function_call;

/// Rewrites the FETCH of a query. What stays is what cannot be said otherwise, and fails when it is planned.
pub(super) fn to_limit(query: &mut Query) {
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

/// The rows whose rank is not behind that of the last: OFFSET stays and leaves the first of them out.
fn with_ties(query: &mut Query, count: Expr) -> Option<()> {
    let offset = match &query.limit_clause {
        None => None,
        Some(LimitClause::LimitOffset { limit: None, offset, .. }) => {
            offset.as_ref().map(|offset| offset.value.clone())
        }
        Some(_) => return None,
    };
    let OrderByKind::Expressions(keys) = &query.order_by.as_ref()?.kind else { return None };
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    if select.qualify.is_some() || select.distinct.is_some() {
        return None;
    }
    let order_by = keys.iter().map(|key| of_row(key, &select.projection)).collect::<Option<Vec<_>>>()?;
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

/// A key of ORDER BY by what it means before there are columns of the result.
fn of_row(key: &OrderByExpr, items: &[SelectItem]) -> Option<OrderByExpr> {
    let expr = match &key.expr {
        Expr::Value(ValueWithSpan { value: Value::Number(number, _), .. }) => {
            let before = items.get(..number.parse::<usize>().ok()?)?;
            match before.last()? {
                // A `*` before it would move it.
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }
                    if before.iter().all(is_one) =>
                {
                    expr.clone()
                }
                _ => return None,
            }
        }
        Expr::Identifier(name) => {
            let named = items.iter().find_map(|item| match item {
                SelectItem::ExprWithAlias { expr, alias } if same(alias, name) => Some(expr),
                _ => None,
            });
            named.unwrap_or(&key.expr).clone()
        }
        other => other.clone(),
    };
    Some(OrderByExpr { expr, ..key.clone() })
}

fn is_one(item: &SelectItem) -> bool {
    matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
}

fn same(one: &Ident, other: &Ident) -> bool {
    crate::names::plain(one) == crate::names::plain(other)
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
        // Without an order there are no ties.
        let sql = "SELECT a FROM t FETCH FIRST 2 ROWS WITH TIES";
        check(sql, sql);
    }
}
