//! Displays object columns of derived tables and common table expressions by name in the result, and in texts
//! made from them. Inside, they stay oids for comparison.
//!
//! ```text
//! SELECT r, r || '!' FROM (SELECT conrelid::regclass AS r FROM pg_constraint) s
//!   ──►  SELECT regclassout(r) AS "r", regclassout(r) || '!' FROM (SELECT regclassin(conrelid) AS r FROM pg_constraint) AS s
//! ```

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Query,
    SelectItem, SetExpr, TableFactor, VisitMut, VisitorMut,
};

use super::json;
use super::objects::{MAKE_TEXT, names_of};
use crate::rewrite::expressions::call;
use harrier_sql::column_names::parts;
use harrier_sql::identifier::plain;

/// A relation of FROM, with its columns and the functions that convert them to names.
struct Relation {
    name: String,
    columns: Vec<(String, Option<String>)>,
}

/// Rewrites the list of a top-level query, and the texts in its conditions, groups and order.
pub(super) fn show(query: &mut Query) {
    let common: Vec<Relation> = query
        .with
        .iter()
        .flat_map(|with| &with.cte_tables)
        .filter(|common| common.alias.columns.is_empty())
        .filter_map(|common| relation(plain(&common.alias.name), &common.query))
        .collect();
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let factors = select.from.iter().flat_map(|entry| {
        std::iter::once(&entry.relation).chain(entry.joins.iter().map(|join| &join.relation))
    });
    let factors: Vec<Option<Relation>> = factors.map(|factor| derived_relation(factor, &common)).collect();
    let is_shown = |relation: &Relation| relation.columns.iter().any(|(_, out)| out.is_some());
    if !factors.iter().flatten().any(is_shown) {
        return;
    }
    if let ([Some(only)], [SelectItem::Wildcard(star)]) = (factors.as_slice(), select.projection.as_slice())
        && *star == Default::default()
    {
        let item = |(name, _): &(String, _)| {
            SelectItem::UnnamedExpr(Expr::Identifier(Ident::with_quote('"', name.clone())))
        };
        select.projection = only.columns.iter().map(item).collect();
    }
    let mut texts = Texts { scope: Scope(&factors), depth: 0 };
    let conditions = [&mut select.selection, &mut select.having, &mut select.qualify];
    for condition in conditions.into_iter().flatten() {
        let _ = VisitMut::visit(condition, &mut texts);
    }
    let _ = VisitMut::visit(&mut select.group_by, &mut texts);
    let _ = VisitMut::visit(&mut query.order_by, &mut texts);
    let names: Vec<Option<String>> = select.projection.iter().map(name).collect();
    let is_twin = |name: &String| names.iter().flatten().filter(|other| *other == name).count() > 1;
    for (at, item) in select.projection.iter_mut().enumerate() {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = &mut *item else {
            continue;
        };
        let _ = VisitMut::visit(expr, &mut texts);
        let Some(shown) = texts.scope.object_name(expr) else { continue };
        // Keeps the client's own column names; generated ones only qualify columns.
        let name = match &names[at] {
            Some(name) if !is_twin(name) => name.clone(),
            _ => format!("__object_{at}"),
        };
        let alias = match item {
            SelectItem::ExprWithAlias { alias, .. } if plain(alias) == name => alias.clone(),
            _ => Ident::with_quote('"', name),
        };
        *item = SelectItem::ExprWithAlias { expr: shown, alias };
    }
}

/// The name of an item, if it is a column or has an alias.
fn name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(plain(alias)),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(plain(name)),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last().map(plain),
        _ => None,
    }
}

/// A derived table as a relation; `None` if its column names are unknown.
fn relation(name: String, query: &Query) -> Option<Relation> {
    let (columns, outs) = (json::columns(query)?, names_of(&query.body));
    (columns.len() == outs.len()).then(|| Relation { name, columns: columns.into_iter().zip(outs).collect() })
}

fn derived_relation(factor: &TableFactor, common: &[Relation]) -> Option<Relation> {
    match factor {
        TableFactor::Derived { subquery, alias: Some(alias), .. } if alias.columns.is_empty() => {
            relation(plain(&alias.name), subquery)
        }
        TableFactor::Table { name, alias, args: None, .. } => {
            let [name] = <[String; 1]>::try_from(parts(name)).ok()?;
            let common = common.iter().find(|common| common.name == name)?;
            let name = match alias {
                Some(alias) if alias.columns.is_empty() => plain(&alias.name),
                Some(_) => return None,
                None => name,
            };
            Some(Relation { name, columns: common.columns.clone() })
        }
        _ => None,
    }
}

/// The relations of FROM; `None` for one with unknown columns.
struct Scope<'a>(&'a [Option<Relation>]);

impl Scope<'_> {
    /// Converts an object column to the object's name.
    fn object_name(&self, expr: &Expr) -> Option<Expr> {
        let (relation, column) = match expr {
            Expr::Nested(inner) => return self.object_name(inner),
            Expr::Identifier(column) => (None, plain(column)),
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [relation, column] => (Some(plain(relation)), plain(column)),
                _ => return None,
            },
            _ => return None,
        };
        // An unqualified column may belong to the unknown relation.
        if relation.is_none() && self.0.iter().any(Option::is_none) {
            return None;
        }
        let relations =
            self.0.iter().flatten().filter(|known| relation.as_ref().is_none_or(|name| *name == known.name));
        let mut columns = relations.flat_map(|known| &known.columns).filter(|(name, _)| *name == column);
        let out = columns.next()?.1.clone()?;
        columns.next().is_none().then(|| call(&out, vec![expr.clone()]))
    }
}

/// Converts object columns in texts to names.
struct Texts<'a> {
    scope: Scope<'a>,
    depth: usize,
}

impl VisitorMut for Texts<'_> {
    type Break = ();

    harrier_sql::count_query_depth!(depth, mut);

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        let show = |part: &mut Expr| {
            if let Some(shown) = self.scope.object_name(part) {
                *part = shown;
            }
        };
        match expr {
            Expr::Cast { expr: inner, data_type: DataType::Text | DataType::Varchar(_), .. } => show(inner),
            Expr::BinaryOp { left, op: BinaryOperator::StringConcat, right } => {
                show(left);
                show(right);
            }
            Expr::Function(function) => {
                let name = parts(&function.name).pop().unwrap_or_default();
                if let FunctionArguments::List(list) = &mut function.args
                    && MAKE_TEXT.contains(&name.as_str())
                {
                    for argument in &mut list.args {
                        if let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = argument {
                            show(expr);
                        }
                    }
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
