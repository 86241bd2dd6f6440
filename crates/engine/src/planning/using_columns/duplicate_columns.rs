//! Relations with several columns of one name, as in `FROM (SELECT 1 AS b, 2 AS b) q`. `SELECT *` shows both;
//! the name is ambiguous. The planner renames the second column, so that the name would mean the first.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Query, Select, SelectItem, SetExpr, TableAlias, TableFactor, TableWithJoins, Visit, Visitor,
};
use harrier_sql::column_names::{client_name, column_count};
use harrier_sql::identifier::{plain, without_casts};

use crate::planning::using_columns::from_clause::relations;
use crate::planning::using_columns::marks::is_mark;

/// Names that several columns may have, as far as the statement's text shows.
#[derive(Debug, Clone, Default)]
pub(super) struct DuplicateNames {
    /// Any name may be duplicated.
    any: bool,
    names: HashSet<String>,
}

/// Duplicate names of common table expressions, by their name.
pub(super) type CteNames = HashMap<String, DuplicateNames>;

impl DuplicateNames {
    fn any() -> Self {
        Self { any: true, names: HashSet::new() }
    }

    fn and(mut self, other: Self) -> Self {
        self.any |= other.any;
        self.names.extend(other.names);
        self
    }

    /// Whether there may be duplicate names.
    pub(super) fn are_any(&self) -> bool {
        self.any || !self.names.is_empty()
    }

    /// Whether a query mentions one of the names.
    pub(super) fn are_mentioned(&self, query: &Query) -> bool {
        self.any || !self.names.is_empty() && query.visit(&mut Mentions(self)).is_break()
    }
}

/// Adds the common table expressions of a query.
pub(super) fn define(query: &Query, common: &mut CteNames) {
    for table in query.with.iter().flat_map(|with| &with.cte_tables) {
        let duplicates =
            with_alias(of_query(&table.query, common), Some(&table.alias), column_count(&table.query.body));
        common.insert(plain(&table.alias.name), duplicates);
    }
}

/// Duplicate names in a FROM clause.
pub(super) fn of_from(from: &[TableWithJoins], common: &CteNames) -> DuplicateNames {
    let factors = from.iter().flat_map(relations);
    factors.map(|factor| of_factor(factor, common)).fold(DuplicateNames::default(), DuplicateNames::and)
}

/// Duplicate names of a relation.
pub(super) fn of_factor(factor: &TableFactor, common: &CteNames) -> DuplicateNames {
    match factor {
        TableFactor::Derived { subquery, alias, .. } => {
            with_alias(of_query(subquery, common), alias.as_ref(), column_count(&subquery.body))
        }
        TableFactor::Table { name, alias, args, .. } => {
            let own = match (name.0.as_slice(), args) {
                ([part], None) => part.as_ident().and_then(|name| common.get(&plain(name))),
                _ => None,
            };
            let has_names = args.is_none() && alias.as_ref().is_some_and(|alias| !alias.columns.is_empty());
            match (own, has_names) {
                // Columns without an alias may have the name of a renamed one.
                (_, true) => with_alias(DuplicateNames::any(), alias.as_ref(), None),
                (Some(own), false) => own.clone(),
                (None, false) => with_alias(DuplicateNames::default(), alias.as_ref(), None),
            }
        }
        TableFactor::NestedJoin { alias: Some(alias), .. } if !is_mark(alias) => DuplicateNames::any(),
        TableFactor::NestedJoin { table_with_joins, .. } => {
            let inside = relations(table_with_joins).into_iter();
            inside
                .map(|factor| of_factor(factor, common))
                .fold(DuplicateNames::default(), DuplicateNames::and)
        }
        TableFactor::UNNEST { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::TableFunction { alias, .. } => {
            with_alias(DuplicateNames::default(), alias.as_ref(), None)
        }
        _ => DuplicateNames::default(),
    }
}

/// Duplicate names under an alias that may rename all columns, or the first few.
fn with_alias(own: DuplicateNames, alias: Option<&TableAlias>, count: Option<usize>) -> DuplicateNames {
    let Some(alias) = alias.filter(|alias| !alias.columns.is_empty()) else { return own };
    let given = alias.columns.iter().map(|column| plain(&column.name));
    let duplicates = DuplicateNames {
        any: false,
        names: given
            .filter(|name| client_name(name) != name)
            .map(|name| client_name(&name).to_string())
            .collect(),
    };
    match count {
        Some(count) if count <= alias.columns.len() => duplicates,
        _ => duplicates.and(own).and(DuplicateNames::any()),
    }
}

fn of_query(query: &Query, common: &CteNames) -> DuplicateNames {
    if query.with.is_some() {
        let mut common = common.clone();
        define(query, &mut common);
        return of_body(&query.body, &common);
    }
    of_body(&query.body, common)
}

fn of_body(body: &SetExpr, common: &CteNames) -> DuplicateNames {
    match body {
        SetExpr::SetOperation { left, .. } => of_body(left, common),
        SetExpr::Query(query) => of_query(query, common),
        SetExpr::Select(select) => of_select(select, common),
        _ => DuplicateNames::default(),
    }
}

fn of_select(select: &Select, common: &CteNames) -> DuplicateNames {
    let mut seen = HashSet::new();
    let mut duplicates = DuplicateNames::default();
    let mut stars = 0;
    for item in &select.projection {
        match name_of(item) {
            Some(name) => {
                let own = client_name(&name);
                if own != name || !seen.insert(own.to_string()) {
                    duplicates.names.insert(own.to_string());
                }
            }
            None if matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)) => stars += 1,
            None => {}
        }
    }
    let of_one = || select.from.iter().flat_map(relations).nth(1).is_none();
    match stars {
        0 => duplicates,
        // A column beside the star may have the name of one of its columns.
        1 if of_one() => {
            duplicates.names.extend(seen);
            duplicates.and(of_from(&select.from, common))
        }
        _ => DuplicateNames::any(),
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

struct Mentions<'t>(&'t DuplicateNames);

impl Visitor for Mentions<'_> {
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
