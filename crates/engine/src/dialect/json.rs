//! Functions of JSON that give rows, in FROM and in the list of a SELECT, and aggregates that write JSON.
//!
//! ```text
//! FROM t, jsonb_each(t.j) e        ──►  FROM t, LATERAL (SELECT unnest(harrier_jsonb_each_key(t.j)) AS key, unnest(harrier_jsonb_each(t.j)) AS value) AS e
//! SELECT jsonb_object_keys(j)      ──►  SELECT unnest(harrier_jsonb_object_keys(j)) AS jsonb_object_keys
//! json_agg(x ORDER BY y)           ──►  json_agg_items(array_agg(json_agg_item(x) ORDER BY y))
//! ```

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName,
    Query, SelectItem, SetExpr, TableAlias, TableFactor, TableWithJoins, Value, Values, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use harrier_pgcatalog::function_call;

use crate::names::plain;

/// The functions that give rows, with the columns of these; where there is none, it is called as the relation is.
const OF_ROWS: [(&str, &[&str]); 10] = [
    ("json_array_elements", &["value"]),
    ("json_array_elements_text", &["value"]),
    ("json_each", &["key", "value"]),
    ("json_each_text", &["key", "value"]),
    ("json_object_keys", &[]),
    ("jsonb_array_elements", &["value"]),
    ("jsonb_array_elements_text", &["value"]),
    ("jsonb_each", &["key", "value"]),
    ("jsonb_each_text", &["key", "value"]),
    ("jsonb_object_keys", &[]),
];

/// Has texts in a list of VALUES be JSON where another row has a cast to that in the same column.
fn level_values(values: &mut Values) {
    let columns = values.rows.first().map_or(0, |row| row.content.len());
    for at in 0..columns {
        let kind = values.rows.iter().find_map(|row| match row.content.get(at)? {
            Expr::Cast { data_type: data_type @ (DataType::JSON | DataType::JSONB), .. } => {
                Some(data_type.clone())
            }
            _ => None,
        });
        let Some(data_type) = kind else { continue };
        for value in values.rows.iter_mut().filter_map(|row| row.content.get_mut(at)) {
            if matches!(value, Expr::Value(_)) {
                *value = Expr::Cast {
                    kind: CastKind::Cast,
                    expr: Box::new(value.clone()),
                    data_type: data_type.clone(),
                    array: false,
                    format: None,
                };
            }
        }
    }
}

/// Rewrites the functions of rows in one query, those in its subqueries aside.
pub(super) fn unfold(query: &mut Query) {
    unfold_body(&mut query.body);
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let mut aliases = Vec::new();
    for table in &mut select.from {
        let factors =
            std::iter::once(&mut table.relation).chain(table.joins.iter_mut().map(|join| &mut join.relation));
        for factor in factors {
            if let Some((relation, column)) = unfold_factor(factor) {
                aliases.push((relation, column));
            }
        }
    }
    if !aliases.is_empty() {
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) = item
                && let Expr::Identifier(name) = &*expr
                && aliases.iter().any(|(relation, _)| *relation == plain(name))
            {
                *item = SelectItem::ExprWithAlias { alias: name.clone(), expr: expr.clone() };
            }
        }
        let mut rows = Rows { aliases: &aliases, depth: 0 };
        let _ = VisitMut::visit(query, &mut rows);
    }
}

/// Unfolds what is in the lists of its SELECTs.
fn unfold_body(body: &mut SetExpr) {
    match body {
        SetExpr::SetOperation { left, right, .. } => {
            unfold_body(left);
            unfold_body(right);
        }
        SetExpr::Values(values) => level_values(values),
        SetExpr::Select(select) => {
            for item in &mut select.projection {
                match item {
                    SelectItem::UnnamedExpr(expr) => {
                        let name = called(expr).map(|(name, _)| name);
                        if unfold_value(expr)
                            && let Some(name) = name
                        {
                            let alias = Ident::with_quote('"', name);
                            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                        }
                    }
                    SelectItem::ExprWithAlias { expr, .. } => {
                        unfold_value(expr);
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

/// Has a whole relation that has one column be that column: `e->>'a'` is of `jsonb_array_elements(j) e`.
struct Rows<'a> {
    aliases: &'a [(String, String)],
    depth: usize,
}

impl VisitorMut for Rows<'_> {
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
        // The relations that were made of functions are subqueries, with such names among their arguments.
        if let Expr::Identifier(name) = expr
            && self.depth <= 2
            && let Some((_, column)) = self.aliases.iter().find(|(relation, _)| *relation == plain(name))
        {
            *expr = Expr::CompoundIdentifier(vec![name.clone(), Ident::with_quote('"', column.clone())]);
        }
        ControlFlow::Continue(())
    }
}

/// The name of the function that an expression calls, if it is one of these, with its argument.
fn called(expr: &Expr) -> Option<(String, &Expr)> {
    let Expr::Function(function) = expr else { return None };
    let FunctionArguments::List(list) = &function.args else { return None };
    let argument = argument(&list.args)?;
    Some((of_rows(&function.name)?.0.to_string(), argument))
}

fn argument(arguments: &[FunctionArg]) -> Option<&Expr> {
    match arguments {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] => Some(argument),
        _ => None,
    }
}

fn of_rows(name: &ObjectName) -> Option<(&'static str, &'static [&'static str])> {
    let name = match name.0.as_slice() {
        [name] => plain(name.as_ident()?),
        [schema, name] if plain(schema.as_ident()?) == "pg_catalog" => plain(name.as_ident()?),
        _ => return None,
    };
    OF_ROWS.into_iter().find(|(known, _)| *known == name)
}

/// The list whose elements are the rows of a function, or one of their columns.
fn list_of(name: &str, column: usize, argument: &Expr) -> Expr {
    let function = match (name, column) {
        ("json_each" | "json_each_text", 0) => "harrier_json_each_key".to_string(),
        ("jsonb_each" | "jsonb_each_text", 0) => "harrier_jsonb_each_key".to_string(),
        _ => format!("harrier_{name}"),
    };
    Expr::Function(function_call(&function, vec![argument.clone()]))
}

fn unnested(list: Expr) -> Expr {
    Expr::Function(function_call("unnest", vec![list]))
}

/// Unfolds the calls in an expression of the list of a SELECT.
fn unfold_value(expr: &mut Expr) -> bool {
    struct Calls {
        depth: usize,
        found: bool,
    }
    impl VisitorMut for Calls {
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
                && let Some((name, argument)) = called(expr)
                // A row of two columns is no value here.
                && !name.contains("_each")
            {
                *expr = unnested(list_of(&name, 0, argument));
                self.found = true;
            }
            ControlFlow::Continue(())
        }
    }
    let mut calls = Calls { depth: 0, found: false };
    let _ = VisitMut::visit(expr, &mut calls);
    calls.found
}

/// Makes a call in FROM a subquery; returns its name and that of its column, if it has one column that is not called as it is.
fn unfold_factor(factor: &mut TableFactor) -> Option<(String, String)> {
    let (name, arguments, has_ordinality, alias) = match factor {
        TableFactor::Table { name, args: Some(args), with_ordinality, alias, .. } => {
            (name, args.args.as_slice(), *with_ordinality, alias.clone())
        }
        TableFactor::Function { name, args, with_ordinality, alias, .. } => {
            (name, args.as_slice(), *with_ordinality, alias.clone())
        }
        _ => return None,
    };
    let (function, columns) = of_rows(name)?;
    let argument = argument(arguments)?.clone();
    let mut alias = alias.unwrap_or_else(|| TableAlias {
        explicit: true,
        name: Ident::with_quote('"', function),
        columns: vec![],
        at: None,
    });
    let relation = plain(&alias.name);
    let own = [relation.as_str()];
    let columns = if columns.is_empty() { own.as_slice() } else { columns };
    let mut given = std::mem::take(&mut alias.columns).into_iter().map(|column| column.name);
    let mut names = Vec::new();
    let mut projection = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        let alias = given.next().unwrap_or_else(|| Ident::with_quote('"', *column));
        names.push(plain(&alias));
        projection
            .push(SelectItem::ExprWithAlias { expr: unnested(list_of(function, at, &argument)), alias });
    }
    if has_ordinality {
        let length = Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(Expr::Function(function_call(
                "cardinality",
                vec![list_of(function, 0, &argument)],
            ))),
            data_type: DataType::BigInt(None),
            array: false,
            format: None,
        };
        let first = Expr::value(Value::Number("1".to_string(), false));
        let numbers = Expr::Function(function_call("generate_series", vec![first, length]));
        let alias = given.next().unwrap_or_else(|| Ident::with_quote('"', "ordinality"));
        projection.push(SelectItem::ExprWithAlias { expr: unnested(numbers), alias });
    }
    let mut select = super::all_of(&ObjectName::from(vec![Ident::new("t")]))?;
    select.projection = projection;
    select.from = Vec::<TableWithJoins>::new();
    let mut query = query_of("SELECT 1")?;
    *query.body = SetExpr::Select(Box::new(select));
    *factor =
        TableFactor::Derived { lateral: true, subquery: Box::new(query), alias: Some(alias), sample: None };
    match names.as_slice() {
        [only] if *only != relation => Some((relation, only.clone())),
        _ => None,
    }
}

fn query_of(sql: &str) -> Option<Query> {
    Parser::new(&PostgreSqlDialect {}).try_with_sql(sql).ok()?.parse_query().ok().map(|query| *query)
}

/// One of the aggregates, with what it is made of.
pub(super) fn aggregate(expr: &mut Expr) {
    let Expr::Function(function) = expr else { return };
    let name = match function.name.0.as_slice() {
        [name] => name.as_ident(),
        [schema, name] if schema.as_ident().is_some_and(|schema| plain(schema) == "pg_catalog") => {
            name.as_ident()
        }
        _ => None,
    };
    let (item, items) = match name.map(plain).unwrap_or_default().as_str() {
        "json_agg" => ("json_agg_item", "json_agg_items"),
        "jsonb_agg" => ("jsonb_agg_item", "jsonb_agg_items"),
        "json_object_agg" => ("json_object_agg_member", "json_object_agg_members"),
        "jsonb_object_agg" => ("jsonb_object_agg_member", "jsonb_object_agg_members"),
        _ => return,
    };
    collect(function, item, items);
}

fn collect(function: &mut Function, item: &str, items: &str) {
    let FunctionArguments::List(arguments) = &mut function.args else { return };
    let given = std::mem::take(&mut arguments.args);
    let values = given.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    });
    let Some(values) = values.collect::<Option<Vec<Expr>>>() else {
        arguments.args = given;
        return;
    };
    let item = Expr::Function(function_call(item, values));
    arguments.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(item))];
    function.name = ObjectName::from(vec![Ident::new("array_agg")]);
    let collected = std::mem::replace(function, function_call(items, vec![]));
    *function = function_call(items, vec![Expr::Function(collected)]);
}

#[cfg(test)]
mod tests {
    use super::super::tests::rewritten;

    #[test]
    fn functions_of_rows_are_unfolded() {
        for (sql, expected) in [
            (
                "SELECT e ->> 'a', e FROM t, jsonb_array_elements(t.j) AS e",
                "SELECT e.\"value\" ->> 'a', e.\"value\" AS e FROM t, \
                 LATERAL (SELECT unnest(harrier_jsonb_array_elements(t.j)) AS \"value\") AS e",
            ),
            (
                "SELECT jsonb_object_keys(j) FROM t",
                "SELECT unnest(harrier_jsonb_object_keys(j)) AS \"jsonb_object_keys\" FROM t",
            ),
            (
                "SELECT json_agg(x ORDER BY y) FROM t",
                "SELECT json_agg_items(array_agg(json_agg_item(x) ORDER BY y)) FROM t",
            ),
            ("SELECT a FROM t", "SELECT a FROM t"),
        ] {
            assert_eq!(rewritten(sql).unwrap(), expected);
        }
    }
}
