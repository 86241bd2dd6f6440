//! Expressions that are always NULL or empty here: array columns of system relations, and functions that
//! unnest them.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, Expr, FunctionArg, Ident, Join, JoinOperator, Query, SelectItem, SetExpr,
    TableAlias, TableFactor, Value, Visit, Visitor,
};

use super::sets::no_query;
use crate::CATALOG_SCHEMA;
use crate::rewrite::expressions::{cast_to, null, table_alias};
use crate::system::SYSTEM;
use harrier_sql::column_names::parts;
use harrier_sql::identifier::plain;

/// Array columns that are always NULL here: those of empty relations, and options.
pub(super) fn is_empty_array(name: &str) -> bool {
    static COLUMNS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
        let is_array = |type_name: &str| type_name.starts_with('_') || type_name.ends_with("vector");
        let never = SYSTEM.relations.iter().filter(|relation| relation.is_always_empty());
        let columns =
            never.flat_map(|relation| &relation.columns).filter(|column| is_array(column.type_name));
        columns
            .map(|column| column.name)
            .chain(["reloptions", "attoptions", "attfdwoptions", "spcoptions"])
            .collect()
    });
    COLUMNS.contains(name)
}

/// Whether an expression is such a column.
pub(super) fn is_never(expr: &Expr) -> bool {
    let name = match expr {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => return is_never(inner),
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(parts) => parts.last(),
        _ => None,
    };
    name.is_some_and(|name| is_empty_array(&plain(name)))
}

/// Whether a node contains such a column.
fn has_empty_array<N: Visit>(node: &N) -> bool {
    struct Finder;
    impl Visitor for Finder {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            let name = match expr {
                Expr::Identifier(name) => Some(name),
                Expr::CompoundIdentifier(parts) => parts.last(),
                _ => None,
            };
            match name.is_some_and(|name| is_empty_array(&plain(name))) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    node.visit(&mut Finder).is_break()
}

/// Whether an entry of FROM is a set-returning function over features that do not exist here.
pub(super) fn gives_nothing(factor: &TableFactor) -> bool {
    const FUNCTIONS: [&str; 6] = [
        "pg_partition_ancestors",
        "pg_partition_tree",
        "pg_listening_channels",
        "pg_prepared_xact",
        "pg_lock_status",
        "pg_get_publication_tables",
    ];
    function_of(factor).is_some_and(|(name, _)| FUNCTIONS.contains(&name.as_str()))
}

fn function_of(factor: &TableFactor) -> Option<(String, &Vec<FunctionArg>)> {
    match factor {
        TableFactor::Table { name, args: Some(args), .. } => Some((parts(name).pop()?, &args.args)),
        TableFactor::Function { name, args, .. } => Some((parts(name).pop()?, args)),
        _ => None,
    }
}

/// Whether an entry of FROM is a function of such an array.
pub(super) fn is_empty_function(factor: &TableFactor) -> bool {
    match factor {
        TableFactor::UNNEST { array_exprs, .. } => has_empty_array(array_exprs),
        // `aclexplode` has several columns: `lateral.rs`.
        _ => match function_of(factor) {
            Some((name, args)) => name != "aclexplode" && (gives_nothing(factor) || has_empty_array(args)),
            None => false,
        },
    }
}

/// Whether an entry of FROM is an always empty system relation.
fn is_empty_relation(factor: &TableFactor) -> bool {
    let TableFactor::Table { name, args: None, .. } = factor else { return false };
    let relation = match parts(name).as_slice() {
        [relation] => SYSTEM.catalog(relation),
        [schema, relation] if schema == CATALOG_SCHEMA => SYSTEM.catalog(relation),
        _ => None,
    };
    relation.is_some_and(|relation| relation.is_always_empty())
}

/// Whether a subquery is empty because it unnests such an array, or compares with its elements.
pub(super) fn unfolds_nothing(query: &Query) -> bool {
    let SetExpr::Select(select) = &*query.body else { return false };
    // The other side of an outer join may be empty.
    let inner = |join: &&Join| {
        matches!(
            join.join_operator,
            JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_)
        )
    };
    let from = select.from.iter().flat_map(|from| {
        std::iter::once(&from.relation).chain(from.joins.iter().filter(inner).map(|join| &join.relation))
    });
    if from.into_iter().any(|factor| is_empty_function(factor) || is_empty_relation(factor)) {
        return true;
    }
    fn needs(expr: &Expr) -> bool {
        match expr {
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => needs(left) || needs(right),
            Expr::Nested(inner) => needs(inner),
            Expr::AnyOp { right, .. } => has_empty_array(&**right),
            _ => false,
        }
    }
    select.selection.as_ref().is_some_and(needs)
}

/// Whether a subquery is a count, so that no rows give zero instead of NULL.
pub(super) fn is_count(query: &Query) -> bool {
    match &*query.body {
        SetExpr::Select(select) => select.projection.iter().any(|item| match item {
            SelectItem::UnnamedExpr(Expr::Function(function))
            | SelectItem::ExprWithAlias { expr: Expr::Function(function), .. } => {
                parts(&function.name).last().is_some_and(|name| name == "count")
            }
            _ => false,
        }),
        _ => false,
    }
}

/// An empty relation with the columns of an entry of FROM.
pub(super) fn empty_relation(factor: &TableFactor) -> TableFactor {
    let (alias, ordinality) = match factor {
        TableFactor::Table { alias, with_ordinality, .. }
        | TableFactor::Function { alias, with_ordinality, .. }
        | TableFactor::UNNEST { alias, with_ordinality, .. } => (alias.clone(), *with_ordinality),
        _ => (None, false),
    };
    let alias = alias.unwrap_or_else(|| table_alias("unnest"));
    let mut columns: Vec<Ident> = alias.columns.iter().map(|column| column.name.clone()).collect();
    if columns.is_empty() {
        columns.push(alias.name.clone());
    }
    if ordinality && columns.len() < 2 {
        columns.push(Ident::new("ordinality"));
    }
    let mut query = no_query();
    if let SetExpr::Select(select) = &mut *query.body {
        let integer = cast_to(null(), DataType::Integer(None));
        select.projection = columns
            .into_iter()
            .map(|alias| SelectItem::ExprWithAlias { expr: integer.clone(), alias })
            .collect();
        select.selection = Some(Expr::value(Value::Boolean(false)));
    }
    let alias = TableAlias { columns: vec![], ..alias };
    TableFactor::Derived { lateral: false, subquery: Box::new(query), alias: Some(alias), sample: None }
}
