//! Rewrites lateral `aclexplode` in FROM to an unnested column of its relation.
//!
//! ```text
//! SELECT c.relname, a.grantee FROM pg_class c, aclexplode(c.relacl) a
//!   ──►  SELECT c.relname, get_field(c.__set_1, 'grantee') FROM (SELECT c.*, unnest(aclexplode(c.relacl)) AS __set_1 FROM pg_class c) AS c
//! ```

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, JoinConstraint, JoinOperator, ObjectName, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableFactor, TableWithJoins, Value, ValueWithSpan,
    Visit, VisitMut, Visitor, VisitorMut, WildcardAdditionalOptions,
};

use super::sets::no_query;
use crate::CATALOG_SCHEMA;
use crate::functions::ACL_COLUMNS;
use crate::rewrite::expressions::{call, table_alias};
use crate::system::SYSTEM;
use harrier_sql::column_names::parts;
use harrier_sql::identifier::plain;

/// Rewrites the FROM of a SELECT and references to it.
pub(super) fn unfold(select: &mut Select, made_up: &mut usize) {
    while let Some((place, is_outer, unfolded)) = find(select) {
        *made_up += 1;
        let column = Ident::with_quote('"', format!("__set_{made_up}"));
        let Some(owner) = owner(&select.from, &unfolded.argument) else { return };
        remove(&mut select.from, place);
        let function = if is_outer { "aclexplode_or_null" } else { "aclexplode" };
        let rows = call("unnest", vec![call(function, vec![unfolded.argument])]);
        let name = Ident::with_quote('"', owner.clone());
        let is_owner =
            |factor: &&mut TableFactor| relation_columns(factor).is_some_and(|(name, _)| name == owner);
        let Some(owner) = factors(&mut select.from).find(is_owner) else { return };
        let relation = std::mem::replace(
            owner,
            TableFactor::Derived {
                lateral: false,
                subquery: Box::new(no_query()),
                alias: Some(table_alias(&name.value)),
                sample: None,
            },
        );
        if let TableFactor::Derived { subquery, .. } = owner
            && let SetExpr::Select(inner) = &mut *subquery.body
        {
            let all = SelectItemQualifiedWildcardKind::ObjectName(ObjectName::from(vec![name.clone()]));
            inner.projection = vec![
                SelectItem::QualifiedWildcard(all, WildcardAdditionalOptions::default()),
                SelectItem::ExprWithAlias { expr: rows, alias: column.clone() },
            ];
            inner.from = vec![TableWithJoins { relation, joins: vec![] }];
        }
        let row = Expr::CompoundIdentifier(vec![name, column]);
        let mut fields = Fields { alias: unfolded.alias, columns: unfolded.columns, row };
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) = item
                && let Some((place, _)) = fields.field(expr)
            {
                let alias = Ident::with_quote('"', fields.columns[place].clone());
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
            }
        }
        let _ = VisitMut::visit(select, &mut fields);
    }
}

/// A call in FROM.
struct Unfolded {
    argument: Expr,
    alias: String,
    /// Names of its columns.
    columns: Vec<String>,
}

/// The position of the first call, as an entry and its join, and whether it is an outer join.
fn find(select: &Select) -> Option<((usize, Option<usize>), bool, Unfolded)> {
    for (at, entry) in select.from.iter().enumerate() {
        if let Some(unfolded) = find_call(&entry.relation).filter(|_| entry.joins.is_empty()) {
            return Some(((at, None), false, unfolded));
        }
        for (join_at, join) in entry.joins.iter().enumerate() {
            let Some(unfolded) = find_call(&join.relation) else { continue };
            let is_outer = match &join.join_operator {
                JoinOperator::CrossJoin(_) => false,
                JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) if is_true(constraint) => {
                    false
                }
                JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint)
                    if is_true(constraint) =>
                {
                    true
                }
                _ => return None,
            };
            return Some(((at, Some(join_at)), is_outer, unfolded));
        }
    }
    None
}

fn is_true(constraint: &JoinConstraint) -> bool {
    match constraint {
        JoinConstraint::None => true,
        JoinConstraint::On(Expr::Value(ValueWithSpan { value, .. })) => *value == Value::Boolean(true),
        _ => false,
    }
}

fn find_call(factor: &TableFactor) -> Option<Unfolded> {
    let (name, args, alias) = match factor {
        TableFactor::Table { name, args: Some(args), alias, with_ordinality: false, .. } => {
            (name, &args.args, alias)
        }
        TableFactor::Function { name, args, alias, with_ordinality: false, .. } => (name, args, alias),
        _ => return None,
    };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] = args.as_slice() else { return None };
    if parts(name).last()? != "aclexplode" {
        return None;
    }
    let named = alias.as_ref().map_or(&[][..], |alias: &TableAlias| &alias.columns);
    let column = |(place, name): (usize, &&str)| {
        named.get(place).map_or_else(|| name.to_string(), |column| plain(&column.name))
    };
    Some(Unfolded {
        argument: argument.clone(),
        alias: alias.as_ref().map_or_else(|| "aclexplode".to_string(), |alias| plain(&alias.name)),
        columns: ACL_COLUMNS.iter().enumerate().map(column).collect(),
    })
}

fn remove(from: &mut Vec<TableWithJoins>, place: (usize, Option<usize>)) {
    match place {
        (at, None) => drop(from.remove(at)),
        (at, Some(join)) => drop(from[at].joins.remove(join)),
    }
}

fn factors(from: &mut [TableWithJoins]) -> impl Iterator<Item = &mut TableFactor> {
    from.iter_mut().flat_map(|entry| {
        std::iter::once(&mut entry.relation).chain(entry.joins.iter_mut().map(|join| &mut join.relation))
    })
}

/// The name and columns of a relation, if known here.
fn relation_columns(factor: &TableFactor) -> Option<(String, Vec<String>)> {
    match factor {
        TableFactor::Table { name, alias, args: None, .. } => {
            let relation = match parts(name).as_slice() {
                [schema, relation] if schema == CATALOG_SCHEMA => SYSTEM.catalog(relation)?,
                _ => return None,
            };
            let name = alias.as_ref().map_or_else(|| relation.name.to_string(), |alias| plain(&alias.name));
            Some((name, relation.columns.iter().map(|column| column.name.to_string()).collect()))
        }
        TableFactor::Derived { subquery, alias: Some(alias), .. } if alias.columns.is_empty() => {
            Some((plain(&alias.name), super::json::columns(subquery)?))
        }
        _ => None,
    }
}

/// The relation that an argument's columns belong to, if it is a single one.
fn owner(from: &[TableWithJoins], argument: &Expr) -> Option<String> {
    struct Columns(Vec<(Option<String>, String)>);
    impl Visitor for Columns {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Identifier(name) => self.0.push((None, plain(name))),
                Expr::CompoundIdentifier(parts) => {
                    if let [.., relation, name] = parts.as_slice() {
                        self.0.push((Some(plain(relation)), plain(name)));
                    }
                }
                _ => {}
            }
            ControlFlow::Continue(())
        }
    }
    let mut columns = Columns(vec![]);
    let _ = argument.visit(&mut columns);
    let all = from.iter().flat_map(|entry| {
        std::iter::once(&entry.relation).chain(entry.joins.iter().map(|join| &join.relation))
    });
    let has_all = |(name, known): &(String, Vec<String>)| {
        columns.0.iter().all(|(of, column)| match of {
            Some(of) => of == name,
            None => known.contains(column),
        })
    };
    all.filter_map(relation_columns).find(has_all).map(|found| found.0)
}

/// Replaces the call's columns by fields of its rows.
struct Fields {
    alias: String,
    columns: Vec<String>,
    row: Expr,
}

impl Fields {
    fn field(&self, expr: &Expr) -> Option<(usize, &'static str)> {
        let name = match expr {
            Expr::Identifier(name) => name,
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [relation, name] if plain(relation) == self.alias => name,
                _ => return None,
            },
            _ => return None,
        };
        let place = self.columns.iter().position(|column| *column == plain(name))?;
        Some((place, ACL_COLUMNS[place]))
    }
}

impl VisitorMut for Fields {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Some((_, field)) = self.field(expr) {
            let field = Expr::value(Value::SingleQuotedString(field.to_string()));
            *expr = call("get_field", vec![self.row.clone(), field]);
        }
        ControlFlow::Continue(())
    }
}
