//! Relations of which several columns have one name, as in `FROM (SELECT 1 AS b, 2 AS b) q`. `SELECT *` shows
//! both of them; the name means neither. To the planner the second has a name of its own, so that the first
//! would be meant.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Query, Select, SelectItem, SetExpr, TableAlias, TableFactor, TableWithJoins, Visit, Visitor,
};
use harrier_sql::column_names::{client_name, column_count};
use harrier_sql::identifier::{plain, without_casts};

use crate::planning::using_columns::from_clause::relations;
use crate::planning::using_columns::marks::is_mark;

/// The names that several columns may have, as far as a statement says it.
#[derive(Debug, Clone, Default)]
pub(super) struct Twins {
    /// Which names that would be is not said.
    any: bool,
    names: HashSet<String>,
}

/// Those of common table expressions, by name.
pub(super) type Common = HashMap<String, Twins>;

impl Twins {
    fn any() -> Self {
        Self { any: true, names: HashSet::new() }
    }

    fn and(mut self, other: Self) -> Self {
        self.any |= other.any;
        self.names.extend(other.names);
        self
    }

    /// Whether there may be some.
    pub(super) fn are_any(&self) -> bool {
        self.any || !self.names.is_empty()
    }

    /// Whether one of the names is said in a query.
    pub(super) fn are_said(&self, query: &Query) -> bool {
        self.any || !self.names.is_empty() && query.visit(&mut Said(self)).is_break()
    }
}

/// Adds those of what WITH defines.
pub(super) fn define(query: &Query, common: &mut Common) {
    for table in query.with.iter().flat_map(|with| &with.cte_tables) {
        let twins =
            named(of_query(&table.query, common), Some(&table.alias), column_count(&table.query.body));
        common.insert(plain(&table.alias.name), twins);
    }
}

/// Those of what a SELECT is from.
pub(super) fn of_from(from: &[TableWithJoins], common: &Common) -> Twins {
    let factors = from.iter().flat_map(relations);
    factors.map(|factor| of_factor(factor, common)).fold(Twins::default(), Twins::and)
}

/// Those of a relation.
pub(super) fn of_factor(factor: &TableFactor, common: &Common) -> Twins {
    match factor {
        TableFactor::Derived { subquery, alias, .. } => {
            named(of_query(subquery, common), alias.as_ref(), column_count(&subquery.body))
        }
        TableFactor::Table { name, alias, args, .. } => {
            let own = match (name.0.as_slice(), args) {
                ([part], None) => part.as_ident().and_then(|name| common.get(&plain(name))),
                _ => None,
            };
            let has_names = args.is_none() && alias.as_ref().is_some_and(|alias| !alias.columns.is_empty());
            match (own, has_names) {
                // Columns that are not named keep a name that others may have been given.
                (_, true) => named(Twins::any(), alias.as_ref(), None),
                (Some(own), false) => own.clone(),
                (None, false) => named(Twins::default(), alias.as_ref(), None),
            }
        }
        TableFactor::NestedJoin { alias: Some(alias), .. } if !is_mark(alias) => Twins::any(),
        TableFactor::NestedJoin { table_with_joins, .. } => {
            let inside = relations(table_with_joins).into_iter();
            inside.map(|factor| of_factor(factor, common)).fold(Twins::default(), Twins::and)
        }
        TableFactor::UNNEST { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::TableFunction { alias, .. } => named(Twins::default(), alias.as_ref(), None),
        _ => Twins::default(),
    }
}

/// Those of a relation with an alias, which may name its columns: all of them, or the first few.
fn named(own: Twins, alias: Option<&TableAlias>, count: Option<usize>) -> Twins {
    let Some(alias) = alias.filter(|alias| !alias.columns.is_empty()) else { return own };
    let given = alias.columns.iter().map(|column| plain(&column.name));
    let twins = Twins {
        any: false,
        names: given
            .filter(|name| client_name(name) != name)
            .map(|name| client_name(&name).to_string())
            .collect(),
    };
    match count {
        Some(count) if count <= alias.columns.len() => twins,
        _ => twins.and(own).and(Twins::any()),
    }
}

fn of_query(query: &Query, common: &Common) -> Twins {
    if query.with.is_some() {
        let mut common = common.clone();
        define(query, &mut common);
        return of_body(&query.body, &common);
    }
    of_body(&query.body, common)
}

fn of_body(body: &SetExpr, common: &Common) -> Twins {
    match body {
        SetExpr::SetOperation { left, .. } => of_body(left, common),
        SetExpr::Query(query) => of_query(query, common),
        SetExpr::Select(select) => of_select(select, common),
        _ => Twins::default(),
    }
}

fn of_select(select: &Select, common: &Common) -> Twins {
    let mut seen = HashSet::new();
    let mut twins = Twins::default();
    let mut stars = 0;
    for item in &select.projection {
        match name_of(item) {
            Some(name) => {
                let own = client_name(&name);
                if own != name || !seen.insert(own.to_string()) {
                    twins.names.insert(own.to_string());
                }
            }
            None if matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)) => stars += 1,
            None => {}
        }
    }
    let of_one = || select.from.iter().flat_map(relations).nth(1).is_none();
    match stars {
        0 => twins,
        // What is beside the star may be called as one of its columns.
        1 if of_one() => {
            twins.names.extend(seen);
            twins.and(of_from(&select.from, common))
        }
        _ => Twins::any(),
    }
}

fn name_of(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(plain(alias)),
        SelectItem::UnnamedExpr(expr) => match without_casts(expr) {
            Expr::Identifier(name) => Some(plain(name)),
            Expr::CompoundIdentifier(parts) => parts.last().map(plain),
            _ => None,
        },
        _ => None,
    }
}

struct Said<'t>(&'t Twins);

impl Visitor for Said<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let is_one = |name: &Ident| self.0.names.contains(&plain(name));
        let is_said = match expr {
            Expr::Identifier(name) => is_one(name),
            Expr::CompoundIdentifier(parts) => parts.last().is_some_and(is_one),
            _ => false,
        };
        if is_said { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
