//! Names in ORDER BY. A name alone means a result column, if there is one. Within an expression it means a
//! column of FROM, as in PostgreSQL: `SELECT -id AS id FROM t ORDER BY id + 0`. The planner would take the
//! result column there, too. If FROM has no such column, the result column is used.
//!
//! The planner cannot keep the two columns apart, so the sort key becomes a separate column that is projected
//! away again:
//!
//! ```text
//! SELECT * EXCLUDE (key) FROM (SELECT -id AS id, t.id + 0 AS key FROM t) AS ordered ORDER BY key
//! ```

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, ObjectName, OrderBy, OrderByExpr, OrderByKind, Query, Select, SelectItem,
    SetExpr, Visit, VisitMut, Visitor, VisitorMut, WildcardAdditionalOptions,
};
use harrier_sql::ast_builder::{derived_table, query_of, table_alias};
use harrier_sql::identifier::plain;

use crate::planning::using_columns::column::Column;

/// Prefix of the names of sort key columns; a number follows.
const KEY: &str = "\u{1}key ";

/// Whether a name in ORDER BY has to be resolved in FROM first.
pub(super) fn needs_resolution(select: &Select, order_by: &OrderBy) -> bool {
    let results = results(select);
    // With DISTINCT, only result columns may order.
    if results.is_empty() || select.from.is_empty() || select.distinct.is_some() {
        return false;
    }
    let OrderByKind::Expressions(keys) = &order_by.kind else { return false };
    let is_found =
        |key: &OrderByExpr| key.expr.visit(&mut ResultNames { results: &results, depth: 0 }).is_break();
    keys.iter().any(|key| bare_key(&key.expr).is_none() && is_found(key))
}

/// Resolves names in ORDER BY expressions to columns of FROM. The sort keys become columns of the SELECT,
/// unless they are already.
pub(super) fn resolve_in_from(select: &mut Select, order_by: &mut OrderBy, columns: &[Column]) {
    let Some(names) = names(select, columns).filter(|_| select.distinct.is_none()) else { return };
    let results = results(select);
    let OrderByKind::Expressions(keys) = &mut order_by.kind else { return };
    let mut is_found = false;
    let replaced = keys.iter().map(|key| {
        let mut expr = key.expr.clone();
        let is_result = match bare_key(&expr) {
            Some(Expr::Identifier(name)) => names.contains(&plain(name)),
            Some(_) => true,
            None => false,
        };
        if !is_result {
            let mut substitution =
                ColumnSubstitution { results: &results, columns, depth: 0, is_found: false };
            let _: ControlFlow<()> = VisitMut::visit(&mut expr, &mut substitution);
            is_found |= substitution.is_found;
        }
        (!is_result).then_some(expr)
    });
    let replaced: Vec<Option<Expr>> = replaced.collect();
    if !is_found {
        return;
    }
    for (number, (key, replaced)) in keys.iter_mut().zip(replaced).enumerate() {
        if let Some(expr) = replaced {
            let alias = Ident::with_quote('"', format!("{KEY}{}", number + 1));
            key.expr = Expr::Identifier(alias.clone());
            select.projection.push(SelectItem::ExprWithAlias { expr, alias });
        }
    }
}

/// Removes sort key columns from a query's result.
pub(super) fn remove_keys(query: &mut Query) -> Result<()> {
    let SetExpr::Select(select) = query.body.as_ref() else { return Ok(()) };
    let keys: Vec<ObjectName> = select
        .projection
        .iter()
        .filter_map(|item| match item {
            SelectItem::ExprWithAlias { alias, .. } if alias.value.starts_with(KEY) => {
                Some(ObjectName::from(vec![alias.clone()]))
            }
            _ => None,
        })
        .collect();
    if keys.is_empty() {
        return Ok(());
    }
    let options = WildcardAdditionalOptions {
        opt_exclude: Some(ExcludeSelectItem::Multiple(keys)),
        ..WildcardAdditionalOptions::default()
    };
    let mut inner = std::mem::replace(query, query_of(vec![SelectItem::Wildcard(options)], vec![]));
    query.with = inner.with.take();
    query.order_by = inner.order_by.take();
    query.limit_clause = inner.limit_clause.take();
    query.fetch = inner.fetch.take();
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.from = vec![derived_table(inner, table_alias(Ident::new("ordered")))];
    }
    Ok(())
}

/// The names of a SELECT's columns; `None` if two are equal, which the columns of a derived relation cannot
/// be.
fn names(select: &Select, columns: &[Column]) -> Option<HashSet<String>> {
    let mut names = HashSet::new();
    let are_apart = select.projection.iter().all(|item| match item {
        SelectItem::ExprWithAlias { alias, .. } => names.insert(plain(alias)),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => names.insert(plain(name)),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
            parts.last().is_none_or(|name| names.insert(plain(name)))
        }
        SelectItem::Wildcard(_) => columns.iter().all(|column| names.insert(column.name.clone())),
        SelectItem::QualifiedWildcard(..) => false,
        _ => true,
    });
    are_apart.then_some(names)
}

/// The explicit column names of a SELECT.
fn results(select: &Select) -> HashSet<String> {
    let named = select.projection.iter().filter_map(|item| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(plain(alias)),
        _ => None,
    });
    named.collect()
}

/// A sort key that is a bare name or column number.
fn bare_key(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::Nested(inner) => bare_key(inner),
        Expr::Identifier(_) | Expr::Value(_) => Some(expr),
        _ => None,
    }
}

fn has_result(parts: &[Ident], results: &HashSet<String>) -> bool {
    parts.last().is_some_and(|name| results.contains(&plain(name)))
}

/// Finds a name of a result column outside subqueries.
struct ResultNames<'n> {
    results: &'n HashSet<String>,
    depth: usize,
}

impl Visitor for ResultNames<'_> {
    type Break = ();

    harrier_sql::count_query_depth!(depth);

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(name) if self.depth == 0 && self.results.contains(&plain(name)) => {
                ControlFlow::Break(())
            }
            // The planner confuses this with the result column of the same name.
            Expr::CompoundIdentifier(parts) if self.depth == 0 && has_result(parts, self.results) => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Replaces names by columns of FROM.
struct ColumnSubstitution<'n> {
    results: &'n HashSet<String>,
    columns: &'n [Column],
    depth: usize,
    is_found: bool,
}

impl ColumnSubstitution<'_> {
    /// The only column of FROM with this name.
    fn column(&self, name: &Ident) -> Option<Expr> {
        let name = plain(name);
        let mut found = self.columns.iter().filter(|column| column.name == name);
        match (found.next(), found.next()) {
            (Some(column), None) if self.results.contains(&name) => Some(column.value.clone()),
            _ => None,
        }
    }
}

impl VisitorMut for ColumnSubstitution<'_> {
    type Break = ();

    harrier_sql::count_query_depth!(depth, mut);

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Expr::Identifier(name) = expr
            && let Some(column) = self.column(name)
        {
            *expr = column;
            self.is_found = true;
        }
        if let Expr::CompoundIdentifier(parts) = expr
            && self.depth == 0
        {
            self.is_found |= has_result(parts, self.results);
        }
        ControlFlow::Continue(())
    }
}
