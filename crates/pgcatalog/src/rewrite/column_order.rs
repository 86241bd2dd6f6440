//! Orders columns of relations by number, as PostgreSQL's index scans do for queries without ORDER BY:
//! clients rely on it.
//!
//! ```text
//! SELECT a.attname FROM pg_class c JOIN pg_attribute a ON …  ──►  SELECT … ORDER BY a.attrelid, a.attnum
//! ```

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, GroupByExpr, Ident, OrderBy, OrderByExpr, OrderByKind, OrderByOptions, Query, SelectItem,
    SetExpr, TableFactor,
};

use crate::CATALOG_SCHEMA;
use harrier_sql::column_names::parts;

/// Scalar functions in such queries, besides those named `pg_…`.
const OF_ROWS: [&str; 5] = ["coalesce", "col_description", "format_type", "nullif", "obj_description"];

/// Adds ORDER BY to a query that lists columns without an order.
pub(super) fn add_order(query: &mut Query) {
    if query.order_by.is_some() || query.limit_clause.is_some() || query.fetch.is_some() {
        return;
    }
    let SetExpr::Select(select) = &*query.body else { return };
    let is_grouped = !matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty());
    let is_distinct = matches!(select.distinct, Some(Distinct::Distinct | Distinct::On(_)));
    if is_grouped || is_distinct || select.having.is_some() || !select.projection.iter().all(is_of_row) {
        return;
    }
    let mut factors = select.from.iter().flat_map(|entry| {
        std::iter::once(&entry.relation).chain(entry.joins.iter().map(|join| &join.relation))
    });
    let Some(relation) = factors.find_map(attributes) else { return };
    let by = |column: &str| OrderByExpr {
        expr: Expr::CompoundIdentifier(vec![relation.clone(), Ident::new(column)]),
        options: OrderByOptions { asc: None, nulls_first: None },
        with_fill: None,
    };
    let kind = OrderByKind::Expressions(vec![by("attrelid"), by("attnum")]);
    query.order_by = Some(OrderBy { kind, interpolate: None });
}

/// The name of an entry of FROM, if it is the relation of columns.
fn attributes(factor: &TableFactor) -> Option<Ident> {
    let TableFactor::Table { name, alias, args: None, .. } = factor else { return None };
    let is_it = match parts(name).as_slice() {
        [relation] => relation == "pg_attribute",
        [schema, relation] => schema == CATALOG_SCHEMA && relation == "pg_attribute",
        _ => false,
    };
    is_it.then(|| alias.as_ref().map_or_else(|| Ident::new("pg_attribute"), |alias| alias.name.clone()))
}

/// Whether an item depends on one row: an aggregate has no order.
fn is_of_row(item: &SelectItem) -> bool {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => is_plain(expr),
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => true,
        _ => false,
    }
}

fn is_plain(expr: &Expr) -> bool {
    match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_) => true,
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => is_plain(inner),
        Expr::Function(function) => parts(&function.name).last().is_some_and(|name| {
            function.over.is_none() && (name.starts_with("pg_") || OF_ROWS.contains(&name.as_str()))
        }),
        _ => false,
    }
}
