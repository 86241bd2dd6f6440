//! The base type of a domain, which clients query with a recursive scalar subquery: no plan can join that to
//! the outer query.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Query, SelectItem, SetExpr, TableFactor};
use harrier_sql::column_names::parts;
use harrier_sql::identifier::plain;

/// The type whose base a subquery finds, if it follows `pg_type.typbasetype` from there: `WITH RECURSIVE b AS
/// (SELECT typbasetype … FROM pg_type t2 WHERE t2.oid = … UNION ALL …) SELECT oid FROM b ORDER BY depth DESC
/// LIMIT 1`.
pub(super) fn base_type_of(query: &Query) -> Option<Expr> {
    let with = query.with.as_ref().filter(|with| with.recursive)?;
    let [common] = with.cte_tables.as_slice() else { return None };
    query.limit_clause.as_ref()?;
    let SetExpr::SetOperation { left, .. } = common.query.body.as_ref() else { return None };
    let SetExpr::Select(first) = left.as_ref() else { return None };
    let column = match first.projection.first()? {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => expr,
        _ => return None,
    };
    let is_column = |expr: &Expr, wanted: &str| match expr {
        Expr::Identifier(name) => plain(name) == wanted,
        Expr::CompoundIdentifier(names) => names.last().is_some_and(|name| plain(name) == wanted),
        _ => false,
    };
    if !is_column(column, "typbasetype") {
        return None;
    }
    let [from] = first.from.as_slice() else { return None };
    let TableFactor::Table { name, alias, args: None, .. } = &from.relation else { return None };
    if parts(name).last()? != "pg_type" || !from.joins.is_empty() {
        return None;
    }
    let own = alias.as_ref().map_or_else(|| "pg_type".to_string(), |alias| plain(&alias.name));
    let is_own = |expr: &Expr| match expr {
        Expr::CompoundIdentifier(names) => {
            names.len() >= 2 && plain(&names[names.len() - 2]) == own && is_column(expr, "oid")
        }
        _ => false,
    };
    match first.selection.as_ref()? {
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } if is_own(left) => {
            Some(right.as_ref().clone())
        }
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } if is_own(right) => {
            Some(left.as_ref().clone())
        }
        _ => None,
    }
}
