//! Names in ORDER BY. One that stands alone means a column of the result, if there is one. In an expression
//! it means a column of what is in FROM, as in PostgreSQL: `SELECT -id AS id FROM t ORDER BY id + 0`. The
//! planner takes the result's there, too. Where FROM has no such column the result's is what is left.
//!
//! To the planner the two columns would be one, so what is ordered by is a column of its own, which is left
//! out again:
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

/// What the names of columns that are ordered by begin with; behind it is a number.
const KEY: &str = "\u{1}key ";

/// Whether a name in ORDER BY has to be looked up in FROM first.
pub(super) fn is_in_doubt(select: &Select, order_by: &OrderBy) -> bool {
    let results = results(select);
    // Of different rows, only what is in the result orders.
    if results.is_empty() || select.from.is_empty() || select.distinct.is_some() {
        return false;
    }
    let OrderByKind::Expressions(keys) = &order_by.kind else { return false };
    let is_met = |key: &OrderByExpr| key.expr.visit(&mut Names { results: &results, depth: 0 }).is_break();
    keys.iter().any(|key| alone(&key.expr).is_none() && is_met(key))
}

/// Has names in expressions mean columns of FROM. What is ordered by is a column of the SELECT then, unless
/// it is one already.
pub(super) fn from_first(select: &mut Select, order_by: &mut OrderBy, columns: &[Column]) {
    let Some(names) = names(select, columns).filter(|_| select.distinct.is_none()) else { return };
    let results = results(select);
    let OrderByKind::Expressions(keys) = &mut order_by.kind else { return };
    let mut is_met = false;
    let replaced = keys.iter().map(|key| {
        let mut expr = key.expr.clone();
        let is_result = match alone(&expr) {
            Some(Expr::Identifier(name)) => names.contains(&plain(name)),
            Some(_) => true,
            None => false,
        };
        if !is_result {
            let mut replaced = Replaced { results: &results, columns, depth: 0, is_met: false };
            let _: ControlFlow<()> = VisitMut::visit(&mut expr, &mut replaced);
            is_met |= replaced.is_met;
        }
        (!is_result).then_some(expr)
    });
    let replaced: Vec<Option<Expr>> = replaced.collect();
    if !is_met {
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

/// Leaves out the columns of a query that only order it.
pub(super) fn leave_out_keys(query: &mut Query) -> Result<()> {
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

/// The names of the columns of a SELECT, as far as there are some; `None`: two have the same one, which those
/// of a relation have not.
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

/// The names that a SELECT gives to its columns.
fn results(select: &Select) -> HashSet<String> {
    let named = select.projection.iter().filter_map(|item| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(plain(alias)),
        _ => None,
    });
    named.collect()
}

/// A key that is nothing but a name, or the number of a column.
fn alone(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::Nested(inner) => alone(inner),
        Expr::Identifier(_) | Expr::Value(_) => Some(expr),
        _ => None,
    }
}

fn has_result(parts: &[Ident], results: &HashSet<String>) -> bool {
    parts.last().is_some_and(|name| results.contains(&plain(name)))
}

/// Finds a name of a column of the result, subqueries apart.
struct Names<'n> {
    results: &'n HashSet<String>,
    depth: usize,
}

impl Visitor for Names<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(name) if self.depth == 0 && self.results.contains(&plain(name)) => {
                ControlFlow::Break(())
            }
            // The planner does not tell this from the column of the result that is called so.
            Expr::CompoundIdentifier(parts) if self.depth == 0 && has_result(parts, self.results) => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Puts columns of FROM in the place of their names.
struct Replaced<'n> {
    results: &'n HashSet<String>,
    columns: &'n [Column],
    depth: usize,
    is_met: bool,
}

impl Replaced<'_> {
    /// The one column of FROM that is called so.
    fn column(&self, name: &Ident) -> Option<Expr> {
        let name = plain(name);
        let mut found = self.columns.iter().filter(|column| column.name == name);
        match (found.next(), found.next()) {
            (Some(column), None) if self.results.contains(&name) => Some(column.value.clone()),
            _ => None,
        }
    }
}

impl VisitorMut for Replaced<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Expr::Identifier(name) = expr
            && let Some(column) = self.column(name)
        {
            *expr = column;
            self.is_met = true;
        }
        if let Expr::CompoundIdentifier(parts) = expr
            && self.depth == 0
        {
            self.is_met |= has_result(parts, self.results);
        }
        ControlFlow::Continue(())
    }
}
