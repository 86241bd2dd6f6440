//! Unnests arrays of constraints and indexes in FROM, per row of their relation in this or the enclosing
//! query, by joining that relation again.
//!
//! ```text
//! FROM pg_constraint c, unnest(c.conkey) WITH ORDINALITY u(x, n)
//!   ──►  FROM pg_constraint c, (SELECT oid AS __of, unnest(conkey) AS x, unnest(generate_series(1, array_upper(conkey, 1))) AS n
//!                               FROM pg_catalog.pg_constraint) AS u WHERE u.__of = c.oid
//! ```

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, Select, SelectItem, SetExpr,
    TableAlias, TableFactor, TableWithJoins, Value, VisitMut, VisitorMut,
};

use super::sets::{no_query, unfold};
use crate::CATALOG_SCHEMA;
use crate::rewrite::expressions::{call, table_alias};
use harrier_sql::ast_builder::table_named;
use harrier_sql::column_names::parts;
use harrier_sql::identifier::plain;

/// An unnested array of a relation, by the relation's name in that scope.
struct Array {
    /// The relation's alias; `None`: its own name.
    of: Option<Ident>,
    column: Ident,
}

/// The relation of an array, and its key column.
fn relation_of(column: &str) -> Option<(&'static str, &'static str)> {
    match column {
        "conkey" | "confkey" => Some(("pg_constraint", "oid")),
        "indkey" | "indoption" | "indclass" | "indcollation" => Some(("pg_index", "indexrelid")),
        _ => None,
    }
}

/// Rewrites the FROM of a SELECT and references to it.
pub(super) fn unfold_in_from(select: &mut Select, made_up: &mut usize) {
    let mut conditions = vec![];
    let mut same = vec![];
    let factors = select.from.iter().flat_map(|entry| {
        std::iter::once(&entry.relation).chain(entry.joins.iter().map(|join| &join.relation))
    });
    let aliases: Vec<(String, Ident)> = factors.filter_map(aliased_relation).collect();
    for entry in &mut select.from {
        let joined = entry.joins.iter_mut().map(|join| &mut join.relation);
        for factor in std::iter::once(&mut entry.relation).chain(joined) {
            let Some((arrays, alias, lists)) = unnested_arrays(factor) else { continue };
            let Some((relation, key)) = relation_of(&plain(&arrays[0].column)) else { continue };
            *made_up += 1;
            let of = Ident::with_quote('"', format!("__of_{made_up}"));
            let mut items = vec![SelectItem::ExprWithAlias {
                expr: Expr::Identifier(Ident::new(key)),
                alias: of.clone(),
            }];
            for (list, name) in lists.into_iter().zip(names(&alias, &arrays)) {
                items.push(SelectItem::ExprWithAlias { expr: list, alias: name });
            }
            let mut query = no_query();
            if let SetExpr::Select(inner) = &mut *query.body {
                inner.projection = items;
                let Some(table) = table(relation) else { continue };
                inner.from = vec![TableWithJoins { relation: table, joins: vec![] }];
            }
            let alone = aliases.iter().find(|(known, _)| known == relation).map(|(_, alias)| alias.clone());
            let owner = arrays[0].of.clone().or(alone).unwrap_or_else(|| Ident::new(relation));
            let outside = vec![owner, Ident::new(key)];
            let own = vec![alias.name.clone(), of];
            conditions.push(Expr::BinaryOp {
                left: Box::new(Expr::CompoundIdentifier(own.clone())),
                op: BinaryOperator::Eq,
                right: Box::new(Expr::CompoundIdentifier(outside.clone())),
            });
            same.push((outside, own));
            let alias = Some(TableAlias { columns: vec![], ..alias });
            *factor = TableFactor::Derived { lateral: false, subquery: Box::new(query), alias, sample: None };
        }
    }
    // The list need not refer to the enclosing query.
    let _ = VisitMut::visit(&mut select.projection, &mut Same(same));
    for condition in conditions {
        select.selection = Some(match select.selection.take() {
            Some(selection) => Expr::BinaryOp {
                left: Box::new(Expr::Nested(Box::new(selection))),
                op: BinaryOperator::And,
                right: Box::new(condition),
            },
            None => condition,
        });
    }
}

/// The name and alias of a relation in FROM.
fn aliased_relation(factor: &TableFactor) -> Option<(String, Ident)> {
    match factor {
        TableFactor::Table { name, alias: Some(alias), args: None, .. } => {
            Some((parts(name).pop()?, alias.name.clone()))
        }
        _ => None,
    }
}

/// The arrays that an entry of FROM unnests, its alias, and its columns as lists.
fn unnested_arrays(factor: &TableFactor) -> Option<(Vec<Array>, TableAlias, Vec<Expr>)> {
    match factor {
        TableFactor::UNNEST { array_exprs, alias, with_ordinality, with_offset: false, .. } => {
            let arrays = array_exprs.iter().map(array).collect::<Option<Vec<_>>>()?;
            let alias = alias.clone().unwrap_or_else(|| table_alias("unnest"));
            let own = |array: &Array| Expr::Identifier(array.column.clone());
            let mut lists: Vec<Expr> = arrays.iter().map(|array| call("unnest", vec![own(array)])).collect();
            if *with_ordinality {
                let number = |text: &str| Expr::value(Value::Number(text.to_string(), false));
                let end = call("array_upper", vec![own(arrays.first()?), number("1")]);
                lists.push(call("unnest", vec![call("generate_series", vec![number("1"), end])]));
            }
            Some((arrays, alias, lists))
        }
        TableFactor::Table { name, alias, args: Some(args), .. }
            if parts(name).last().is_some_and(|name| name == "generate_subscripts") =>
        {
            let arguments = args.args.iter().map(|argument| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
                _ => None,
            });
            let [of, dimension] = <[Expr; 2]>::try_from(arguments.collect::<Option<Vec<_>>>()?).ok()?;
            let found = array(&of)?;
            let mut list =
                call("generate_subscripts", vec![Expr::Identifier(found.column.clone()), dimension]);
            unfold(&mut list);
            let alias = alias.clone().unwrap_or_else(|| table_alias("generate_subscripts"));
            Some((vec![found], alias, vec![list]))
        }
        _ => None,
    }
}

fn array(expr: &Expr) -> Option<Array> {
    let found = match expr {
        Expr::Identifier(column) => Array { of: None, column: column.clone() },
        Expr::CompoundIdentifier(parts) => match parts.as_slice() {
            [.., of, column] => Array { of: Some(of.clone()), column: column.clone() },
            _ => return None,
        },
        Expr::Nested(inner) => return array(inner),
        _ => return None,
    };
    relation_of(&plain(&found.column)).map(|_| found)
}

/// The column names: the given ones, or PostgreSQL's.
fn names(alias: &TableAlias, arrays: &[Array]) -> Vec<Ident> {
    let given = |at: usize| alias.columns.get(at).map(|column| column.name.clone());
    let own = |at: usize| match arrays.len() {
        1 => alias.name.clone(),
        _ => Ident::new(if at == 0 { "unnest".to_string() } else { format!("unnest_{at}") }),
    };
    let mut names: Vec<Ident> = (0..arrays.len()).map(|at| given(at).unwrap_or_else(|| own(at))).collect();
    names.push(given(arrays.len()).unwrap_or_else(|| Ident::new("ordinality")));
    names
}

/// A table in FROM.
fn table(relation: &str) -> Option<TableFactor> {
    let name = ObjectName::from([CATALOG_SCHEMA, relation].map(Ident::new).to_vec());
    table_named(&name).pop().map(|table| table.relation)
}

/// Replaces columns by equal ones.
struct Same(Vec<(Vec<Ident>, Vec<Ident>)>);

impl VisitorMut for Same {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(parts) = expr {
            let is = |other: &[Ident]| {
                parts.len() == other.len()
                    && parts.iter().zip(other).all(|(one, other)| plain(one) == plain(other))
            };
            if let Some((_, own)) = self.0.iter().find(|(outside, _)| is(outside)) {
                *parts = own.clone();
            }
        }
        ControlFlow::Continue(())
    }
}
