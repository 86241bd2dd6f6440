//! Converts whole-row references in JSON functions to structs of their columns.
//!
//! ```text
//! row_to_json(t)           ──►  row_to_json(named_struct('a', t.a, 'b', t.b))       where the columns of t are known here
//! ```

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Query, Select, SelectItem, SetExpr,
    TableFactor, TableWithJoins, Value, VisitMut, VisitorMut,
};

use crate::CATALOG_SCHEMA;
use crate::rewrite::expressions::call;
use crate::system::SYSTEM;
use harrier_sql::column_names::{client_name, expression_name, parts};
use harrier_sql::identifier::plain;

/// The columns of a name in FROM.
pub(super) type Known = (String, Option<Vec<String>>);

/// Replaces whole-row references by structs of the columns, in JSON functions.
pub(super) fn name_rows(select: &mut Select, common: &[Vec<Known>]) {
    struct Rows<'a>(&'a [Known]);
    impl VisitorMut for Rows<'_> {
        type Break = ();

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            const FUNCTIONS: [&str; 7] = [
                "row_to_json",
                "to_json",
                "to_jsonb",
                "json_agg_item",
                "jsonb_agg_item",
                "json_build_array",
                "jsonb_build_array",
            ];
            if let Expr::Function(function) = expr
                && parts(&function.name).last().is_some_and(|name| FUNCTIONS.contains(&name.as_str()))
                && let FunctionArguments::List(arguments) = &mut function.args
            {
                for argument in &mut arguments.args {
                    if let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = argument
                        && let Some(row) = self.row(argument)
                    {
                        *argument = row;
                    }
                }
            }
            ControlFlow::Continue(())
        }
    }
    impl Rows<'_> {
        fn row(&self, argument: &Expr) -> Option<Expr> {
            let Expr::Identifier(name) = argument else { return None };
            let named = plain(name);
            // A column takes precedence over a table.
            if self.0.iter().any(|(_, columns)| columns.as_ref().is_some_and(|all| all.contains(&named))) {
                return None;
            }
            let (_, columns) = self.0.iter().find(|(known, _)| *known == named)?;
            let columns = columns.as_ref()?;
            // Duplicates are handled where the planner's names are known.
            let mut seen = HashSet::new();
            if !columns.iter().all(|name| seen.insert(client_name(name))) {
                return None;
            }
            let members = columns.iter().flat_map(|column| {
                let key = Expr::value(Value::SingleQuotedString(column.clone()));
                let column = Ident::with_quote('"', column.clone());
                [key, Expr::CompoundIdentifier(vec![name.clone(), column])]
            });
            Some(call("named_struct", members.collect()))
        }
    }
    let known: Vec<Known> =
        select.from.iter().flat_map(factors).filter_map(|f| relation_columns(f, common)).collect();
    if !known.is_empty() {
        let _ = VisitMut::visit(&mut select.projection, &mut Rows(&known));
        let _ = select.selection.visit(&mut Rows(&known));
    }
}

fn factors(from: &TableWithJoins) -> impl Iterator<Item = &TableFactor> {
    std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation))
}

fn relation_columns(factor: &TableFactor, common: &[Vec<Known>]) -> Option<Known> {
    match factor {
        TableFactor::Derived { subquery, alias: Some(alias), .. } => {
            let columns = match alias.columns.is_empty() {
                true => columns(subquery),
                false => Some(alias.columns.iter().map(|column| plain(&column.name)).collect()),
            };
            Some((plain(&alias.name), columns))
        }
        TableFactor::Table { name, alias, args: None, .. } => {
            let known = parts(name);
            let columns = match known.as_slice() {
                [schema, relation] if schema == CATALOG_SCHEMA => SYSTEM
                    .catalog(relation)
                    .map(|relation| relation.columns.iter().map(|column| column.name.to_string()).collect()),
                [name] => common.iter().rev().flatten().find(|(common, _)| common == name)?.1.clone(),
                _ => None,
            };
            let name = alias.as_ref().map(|alias| plain(&alias.name)).or(known.last().cloned())?;
            Some((name, columns))
        }
        _ => None,
    }
}

/// The names of a query's columns; `None` if a star hides some.
pub(super) fn columns(query: &Query) -> Option<Vec<String>> {
    let mut body = &*query.body;
    let select = loop {
        match body {
            SetExpr::Select(select) => break select,
            SetExpr::SetOperation { left, .. } => body = left,
            SetExpr::Query(query) => body = &query.body,
            _ => return None,
        }
    };
    let name = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) => Some(expression_name(expr)),
        SelectItem::ExprWithAlias { alias, .. } => Some(plain(alias)),
        _ => None,
    };
    select.projection.iter().map(name).collect()
}
