//! Set-returning functions, in FROM and in select lists, as `unnest` of a function that returns a list.
//!
//! ```text
//! FROM t, jsonb_each(t.j) e           ──►  FROM t, LATERAL (SELECT unnest(harrier_jsonb_each_key(t.j)) AS key,
//!                                          unnest(harrier_jsonb_each(t.j)) AS value) AS e
//! FROM t, generate_series(1, t.n) g   ──►  FROM t, LATERAL (SELECT unnest(generate_series(1, t.n)) AS g)
//!                                          AS g
//! SELECT day + generate_series(0, 6)  ──►  SELECT day + unnest(generate_series(0, 6))
//! ```
//!
//! Inside of array functions (`array_length`, `list_sum`, `unnest`, …) `generate_series` stays the list
//! function of DataFusion and DuckDB.

use std::collections::HashSet;
use std::ops::ControlFlow;

use crate::ast_builder::{function_call, query_of, select_all};
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, CastKind, DataType, Expr, FunctionArg, FunctionArgExpr, FunctionArguments,
    GroupByExpr, Ident, Interval, ObjectName, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr,
    TableAlias, TableAliasColumnDef, TableFactor, TableWithJoins, UnaryOperator, Value, ValueWithSpan, Visit,
    VisitMut, VisitorMut, visit_expressions,
};

use super::json;
use crate::identifier::plain;

/// The set-returning functions with their result columns; without any, the column has the relation's name.
const SET_FUNCTIONS: [(&str, &[&str]); 16] = [
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
    ("generate_series", &[]),
    ("generate_subscripts", &[]),
    ("regexp_matches", &[]),
    ("regexp_split_to_table", &[]),
    ("string_to_table", &[]),
    ("unnest", &[]),
];

/// Functions of the planner that give relations.
const TABLE_FUNCTIONS: [&str; 1] = ["range"];

/// Catalog columns of type int2vector and oidvector, whose subscripts begin at 0.
const VECTORS: [&str; 6] = ["indkey", "indclass", "indcollation", "indoption", "proargtypes", "tgattr"];

/// Rewrites the set-returning functions of one query, but not of its subqueries.
pub(super) fn unfold(query: &mut Query) {
    unfold_body(&mut query.body);
    disambiguate_columns(query);
    let names = match query.body.as_ref() {
        SetExpr::Select(select) if has_series(select) => names_in(query),
        _ => HashSet::new(),
    };
    let SetExpr::Select(select) = query.body.as_mut() else { return unfold_members(&mut query.body) };
    let aliases = unfold_from(select, &names);
    if !aliases.is_empty() {
        let _ = VisitMut::visit(query, &mut WholeRowReferences { aliases: &aliases, depth: 0 });
    }
}

/// Rewrites them in the SELECTs of a set operation.
fn unfold_members(body: &mut SetExpr) {
    match body {
        SetExpr::SetOperation { left, right, .. } => {
            unfold_members(left);
            unfold_members(right);
        }
        SetExpr::Select(select) => {
            let names = if has_series(select) { names_in(select.as_ref()) } else { HashSet::new() };
            let aliases = unfold_from(select, &names);
            if !aliases.is_empty() {
                let _ = VisitMut::visit(select, &mut WholeRowReferences { aliases: &aliases, depth: 1 });
            }
        }
        _ => {}
    }
}

/// Rewrites calls in FROM to subqueries. Returns their names and those of their columns.
fn unfold_from(select: &mut Select, names: &HashSet<(Option<String>, String)>) -> Vec<(String, String)> {
    for table in &mut select.from {
        let factors =
            std::iter::once(&mut table.relation).chain(table.joins.iter_mut().map(|join| &mut join.relation));
        factors.for_each(|factor| name_series_value(factor, names));
    }
    let mut aliases = Vec::new();
    for table in &mut select.from {
        let factors =
            std::iter::once(&mut table.relation).chain(table.joins.iter_mut().map(|join| &mut join.relation));
        aliases.extend(factors.filter_map(unfold_factor));
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
    }
    aliases
}

/// Rewrites `SELECT unnest(a), n + 1 AS n`, in which `n` is ambiguous to the planner, to `SELECT __rows.__1
/// AS unnest, __rows.__2 AS n FROM (SELECT unnest(a) AS __1, n + 1 AS __2 …) AS __rows`. Only for queries
/// without grouping whose items all have names.
fn disambiguate_columns(query: &mut Query) {
    let is_by_name = |by: &OrderByExpr| matches!(&by.expr, Expr::Identifier(_) | Expr::Value(_));
    let is_ordered_by_names = match query.order_by.as_ref().map(|order| &order.kind) {
        None => true,
        Some(OrderByKind::Expressions(order)) => order.iter().all(is_by_name),
        Some(OrderByKind::All(_)) => false,
    };
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let is_grouped = !matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty());
    if !is_ordered_by_names || is_grouped || select.having.is_some() || select.distinct.is_some() {
        return;
    }
    let Some(names) = ambiguous_names(&select.projection) else { return };
    let relation = Ident::new("__rows");
    let mut outer = select_all(&ObjectName::from(vec![relation.clone()]));
    outer.projection.clear();
    for (at, (item, alias)) in select.projection.iter_mut().zip(names).enumerate() {
        let column = Ident::new(format!("__{}", at + 1));
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = &*item else { return };
        let expr = expr.clone();
        *item = SelectItem::ExprWithAlias { expr, alias: column.clone() };
        let expr = Expr::CompoundIdentifier(vec![relation.clone(), column]);
        outer.projection.push(SelectItem::ExprWithAlias { expr, alias });
    }
    let mut rows = query_of(vec![], vec![]);
    std::mem::swap(&mut rows.body, &mut query.body);
    let alias = TableAlias { explicit: true, name: relation, columns: vec![], at: None };
    let relation =
        TableFactor::Derived { lateral: false, subquery: Box::new(rows), alias: Some(alias), sample: None };
    outer.from = vec![TableWithJoins { relation, joins: vec![] }];
    *query.body = SetExpr::Select(Box::new(outer));
}

/// The item names of a select list with `unnest` in which an alias equals the name of a column that an item
/// reads; `None` if there is none, or an item has no name.
fn ambiguous_names(items: &[SelectItem]) -> Option<Vec<Ident>> {
    let mut names = Vec::with_capacity(items.len());
    let (mut columns, mut aliases) = (HashSet::new(), HashSet::new());
    let mut has_unnest = false;
    for item in items {
        let (expr, alias) = match item {
            SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias)),
            SelectItem::UnnamedExpr(expr) => (expr, None),
            _ => return None,
        };
        let column = match expr {
            Expr::Identifier(name) => Some(name),
            Expr::CompoundIdentifier(names) => names.last(),
            _ => None,
        };
        names.push(alias.or(column)?.clone());
        let mut own = HashSet::new();
        let mut is_unnest = false;
        let _: ControlFlow<()> = visit_expressions(expr, |part| {
            match part {
                Expr::Identifier(name) => drop(own.insert(plain(name))),
                Expr::CompoundIdentifier(names) => own.extend(names.last().map(plain)),
                Expr::Function(function) => {
                    let name = function.name.0.last().and_then(|part| part.as_ident());
                    is_unnest |= name.is_some_and(|name| plain(name) == "unnest");
                }
                _ => {}
            }
            ControlFlow::Continue(())
        });
        has_unnest |= is_unnest;
        if !is_unnest {
            columns.extend(own);
            let renames = |alias: &&Ident| column.is_none_or(|column| plain(column) != plain(alias));
            aliases.extend(alias.filter(renames).map(plain));
        }
    }
    (has_unnest && !columns.is_disjoint(&aliases)).then_some(names)
}

/// Rewrites the select lists of a query.
fn unfold_body(body: &mut SetExpr) {
    match body {
        SetExpr::SetOperation { left, right, .. } => {
            unfold_body(left);
            unfold_body(right);
        }
        SetExpr::Values(values) => json::cast_values(values),
        SetExpr::Select(select) => {
            for item in &mut select.projection {
                match item {
                    SelectItem::UnnamedExpr(expr) => {
                        let name =
                            set_function_call(expr).map(|(name, _)| name).filter(|name| *name != "unnest");
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
            disambiguate_lists(&mut select.projection);
        }
        _ => {}
    }
}

/// Makes lists distinguishable: in `SELECT unnest((SELECT a …)), unnest((SELECT b …))` the planner gives both
/// the same name and merges them. The second becomes `unnest(CASE 2 WHEN 2 THEN (SELECT b …) END)`. The same
/// holds for lists that differ in casts only.
fn disambiguate_lists(items: &mut [SelectItem]) {
    /// The visited lists, each with the expression that the planner's name shows.
    #[derive(Default)]
    struct Lists {
        depth: usize,
        visited: Vec<(Expr, Expr)>,
    }
    impl VisitorMut for Lists {
        type Break = ();

        crate::count_query_depth!(depth, mut);

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if self.depth > 0 {
                return ControlFlow::Continue(());
            }
            let Some(("unnest", arguments)) = set_function_call(expr) else {
                return ControlFlow::Continue(());
            };
            let [list] = arguments.as_slice() else { return ControlFlow::Continue(()) };
            let displayed = displayed_expr(list);
            let place = self.visited.iter().position(|(met, _)| met == list);
            let is_like = |(met, other): &(Expr, Expr)| *other == displayed && met != list;
            let at = place.unwrap_or(self.visited.len());
            if self.visited[..at].iter().any(is_like) {
                let count = number(&(at + 1).to_string());
                *expr = unnest_call(Expr::Case {
                    case_token: AttachedToken::empty(),
                    end_token: AttachedToken::empty(),
                    operand: Some(Box::new(count.clone())),
                    conditions: vec![CaseWhen { condition: count, result: list.clone() }],
                    else_result: None,
                });
            }
            if place.is_none() {
                self.visited.push((list.clone(), displayed));
            }
            ControlFlow::Continue(())
        }
    }
    let mut lists = Lists::default();
    for item in items {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            let _ = VisitMut::visit(expr, &mut lists);
        }
    }
}

/// An expression without what the planner's name omits: casts, and the contents of subqueries.
fn displayed_expr(expr: &Expr) -> Expr {
    struct Undisplayed;
    impl VisitorMut for Undisplayed {
        type Break = ();

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            let displayed = match expr {
                Expr::Cast { expr: inner, .. } | Expr::Nested(inner) => Some((**inner).clone()),
                Expr::Subquery(_) => Some(Expr::value(Value::Null)),
                Expr::Function(function) if matches!(function.args, FunctionArguments::Subquery(_)) => {
                    Some(Expr::value(Value::Null))
                }
                _ => None,
            };
            if let Some(displayed) = displayed {
                *expr = displayed;
            }
            ControlFlow::Continue(())
        }
    }
    let mut displayed = expr.clone();
    let _ = VisitMut::visit(&mut displayed, &mut Undisplayed);
    displayed
}

/// Replaces a whole-row reference to a single-column relation by the column: `e->>'a'` of
/// `jsonb_array_elements(j) e`.
struct WholeRowReferences<'a> {
    aliases: &'a [(String, String)],
    depth: usize,
}

impl VisitorMut for WholeRowReferences<'_> {
    type Break = ();

    crate::count_query_depth!(depth, mut);

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        // The rewritten function calls are subqueries whose arguments may contain such names.
        if let Expr::Identifier(name) = expr
            && self.depth <= 2
            && let Some((_, column)) = self.aliases.iter().find(|(relation, _)| *relation == plain(name))
        {
            *expr = Expr::CompoundIdentifier(vec![name.clone(), Ident::with_quote('"', column.clone())]);
        }
        ControlFlow::Continue(())
    }
}

/// The name and arguments of a call of one of these functions.
fn set_function_call(expr: &Expr) -> Option<(&'static str, Vec<Expr>)> {
    let Expr::Function(function) = expr else { return None };
    let FunctionArguments::List(list) = &function.args else { return None };
    let (name, _) = set_function(&function.name)?;
    Some((name, positional_arguments(&list.args)?))
}

/// `None` if an argument is named or is no expression.
fn positional_arguments(arguments: &[FunctionArg]) -> Option<Vec<Expr>> {
    let value = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    };
    arguments.iter().map(value).collect()
}

fn set_function(name: &ObjectName) -> Option<(&'static str, &'static [&'static str])> {
    let name = match name.0.as_slice() {
        [name] => plain(name.as_ident()?),
        [schema, name] if plain(schema.as_ident()?) == "pg_catalog" => plain(name.as_ident()?),
        _ => return None,
    };
    SET_FUNCTIONS.into_iter().find(|(known, _)| *known == name)
}

/// The list whose elements are the rows of a function or one of their columns; `None` for other arguments.
fn list_of(name: &str, column: usize, arguments: &[Expr]) -> Option<Expr> {
    let call = |name: &str| Expr::Function(function_call(name, arguments.to_vec()));
    Some(match (name, arguments) {
        ("json_each" | "json_each_text", [_]) if column == 0 => call("harrier_json_each_key"),
        ("jsonb_each" | "jsonb_each_text", [_]) if column == 0 => call("harrier_jsonb_each_key"),
        ("generate_series", [_, _]) => call(name),
        ("generate_series", [first, last, step]) => {
            let step = interval(step).unwrap_or_else(|| step.clone());
            Expr::Function(function_call(name, vec![first.clone(), last.clone(), step]))
        }
        ("generate_subscripts", [array, dimension]) => subscripts(array, dimension),
        ("regexp_matches", [_, _] | [_, _, _]) => call("harrier_regexp_matches"),
        ("regexp_split_to_table", [_, _] | [_, _, _]) => call("regexp_split_to_array"),
        ("string_to_table", [_, _] | [_, _, _]) => call("string_to_array"),
        ("unnest", [array]) => array.clone(),
        (_, [_]) if name.starts_with("json") => call(&format!("harrier_{name}")),
        _ => return None,
    })
}

/// Rewrites a string literal as the step of a series to an interval.
fn rewrite_step<'a>(mut arguments: impl Iterator<Item = &'a mut FunctionArg>) {
    if let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(step))) = arguments.nth(2)
        && let Some(interval) = interval(step)
    {
        *step = interval;
    }
}

/// A string literal as an interval.
fn interval(step: &Expr) -> Option<Expr> {
    let Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) = step else { return None };
    Some(Expr::Interval(Interval {
        value: Box::new(Expr::value(Value::SingleQuotedString(text.clone()))),
        leading_field: None,
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    }))
}

/// The subscripts of one dimension of an array.
fn subscripts(array: &Expr, dimension: &Expr) -> Expr {
    let column = match array {
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(names) => names.last(),
        _ => None,
    };
    let is_vector = column.is_some_and(|name| VECTORS.contains(&plain(name).as_str()));
    let length = Expr::Function(function_call("array_length", vec![array.clone(), dimension.clone()]));
    let (first, last) = match is_vector {
        true => (number("0"), less_one(length)),
        false => (number("1"), length),
    };
    Expr::Function(function_call("generate_series", vec![first, big(last)]))
}

fn less_one(value: Expr) -> Expr {
    let (left, right) = (Box::new(value), Box::new(number("1")));
    Expr::BinaryOp { left, op: BinaryOperator::Minus, right }
}

fn number(text: &str) -> Expr {
    Expr::value(Value::Number(text.to_string(), false))
}

fn big(value: Expr) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(value),
        data_type: DataType::BigInt(None),
        array: false,
        format: None,
    }
}

fn unnest_call(list: Expr) -> Expr {
    Expr::Function(function_call("unnest", vec![list]))
}

/// Rewrites the calls in an expression of a select list. Returns whether there were any.
fn unfold_value(expr: &mut Expr) -> bool {
    #[derive(Default)]
    struct Calls {
        /// Nesting depth of queries and array functions.
        depth: usize,
        found: bool,
    }
    impl VisitorMut for Calls {
        type Break = ();

        crate::count_query_depth!(depth, mut);

        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            self.depth += usize::from(takes_lists(expr));
            ControlFlow::Continue(())
        }

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            self.depth -= usize::from(takes_lists(expr));
            if self.depth == 0
                && let Some((name, arguments)) = set_function_call(expr)
                // A row of two columns cannot be a value here.
                && !name.contains("_each")
                // The planner supports it.
                && name != "unnest"
                && let Some(list) = list_of(name, 0, &arguments)
            {
                *expr = unnest_call(list);
                self.found = true;
            }
            ControlFlow::Continue(())
        }
    }
    let mut calls = Calls::default();
    let _ = VisitMut::visit(expr, &mut calls);
    calls.found
}

/// Whether an expression calls an array function, in which `generate_series` is a list.
fn takes_lists(expr: &Expr) -> bool {
    let Expr::Function(function) = expr else { return false };
    let Some(name) = function.name.0.last().and_then(|part| part.as_ident()).map(plain) else { return false };
    matches!(name.as_str(), "unnest" | "cardinality" | "flatten" | "empty" | "make_array" | "arrow_typeof")
        || name.starts_with("array_")
        || name.starts_with("list_")
        || name.starts_with("map_")
}

/// Whether a call in FROM needs the rewrite. The planner's own table functions cannot refer to columns of
/// other relations; its `generate_series` takes constant integers only, and streams them instead of building
/// a list.
fn needs_unfolding(name: &str, arguments: &[Expr], is_lateral: bool) -> bool {
    match name {
        "unnest" => is_lateral,
        "generate_series" => is_lateral || !arguments.iter().all(is_whole),
        _ => true,
    }
}

/// Whether a value can be a constant integer.
fn is_whole(value: &Expr) -> bool {
    match value {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => digits.bytes().all(|digit| digit.is_ascii_digit()),
            Value::Null | Value::Placeholder(_) => true,
            _ => false,
        },
        Expr::Nested(inner) => is_whole(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => is_whole(expr),
        Expr::BinaryOp { left, op, right } => {
            let is_arithmetic = matches!(
                op,
                BinaryOperator::Plus
                    | BinaryOperator::Minus
                    | BinaryOperator::Multiply
                    | BinaryOperator::Divide
                    | BinaryOperator::Modulo
            );
            is_arithmetic && is_whole(left) && is_whole(right)
        }
        Expr::Cast { expr, data_type, .. } => {
            let is_whole_type = matches!(
                data_type,
                DataType::SmallInt(_)
                    | DataType::Int2(_)
                    | DataType::Int(_)
                    | DataType::Int4(_)
                    | DataType::Integer(_)
                    | DataType::BigInt(_)
                    | DataType::Int8(_)
            );
            let is_text =
                matches!(expr.as_ref(), Expr::Value(value) if value.value.clone().into_string().is_some());
            is_whole_type && (is_text || is_whole(expr))
        }
        _ => false,
    }
}

/// Whether FROM of the SELECT itself contains `generate_series`.
fn has_series(select: &Select) -> bool {
    let mut factors = select.from.iter().flat_map(|table| {
        std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation))
    });
    factors.any(|factor| match factor {
        TableFactor::Table { name, args: Some(_), .. } => {
            set_function(name).is_some_and(|(function, _)| function == "generate_series")
        }
        _ => false,
    })
}

/// The column names in a query, each with its qualifier.
fn names_in(query: &impl Visit) -> HashSet<(Option<String>, String)> {
    let mut names = HashSet::new();
    let _: ControlFlow<()> = visit_expressions(query, |expr| {
        match expr {
            Expr::Identifier(name) => {
                names.insert((None, plain(name)));
            }
            Expr::CompoundIdentifier(parts) => {
                if let [.., relation, name] = parts.as_slice() {
                    names.insert((Some(plain(relation)), plain(name)));
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    });
    names
}

/// Names the column of a series `value`, as DataFusion and DuckDB's `range` do, if the query refers to that
/// name and not to the column's own.
fn name_series_value(factor: &mut TableFactor, names: &HashSet<(Option<String>, String)>) {
    let TableFactor::Table { name, args: Some(_), alias, .. } = factor else { return };
    if set_function(name).is_none_or(|(function, _)| function != "generate_series")
        || alias.as_ref().is_some_and(|alias| !alias.columns.is_empty())
    {
        return;
    }
    let own = alias.as_ref().map_or_else(|| "generate_series".to_string(), |alias| plain(&alias.name));
    let is_named = |name: &str| {
        names.contains(&(None, name.to_string())) || names.contains(&(Some(own.clone()), name.to_string()))
    };
    if is_named("value") && !is_named(&own) {
        let alias = alias.get_or_insert_with(|| TableAlias {
            explicit: true,
            name: Ident::with_quote('"', own),
            columns: vec![],
            at: None,
        });
        alias.columns = vec![TableAliasColumnDef { name: Ident::new("value"), data_type: None }];
    }
}

/// Rewrites a call of another function in FROM with columns in its arguments to a lateral subquery of one
/// row. Without columns the planner of relations knows it.
fn unfold_scalar(factor: &mut TableFactor) -> Option<(String, String)> {
    let TableFactor::Table { name, args: Some(args), with_ordinality: false, alias, .. } = &*factor else {
        return None;
    };
    let names_column = |part: &Expr| match part {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let arguments = positional_arguments(&args.args)?;
    let function = plain(name.0.last()?.as_ident()?);
    // What gives relations among PostgreSQL's catalog functions, crate pgcatalog knows.
    let is_of_catalog = function.starts_with("pg_") || matches!(&*function, "aclexplode" | "_pg_expandarray");
    let is_scalar =
        set_function(name).is_none() && !is_of_catalog && !TABLE_FUNCTIONS.contains(&function.as_str());
    if !is_scalar || visit_expressions(&arguments, names_column).is_continue() {
        return None;
    }
    let mut call = function_call(&function, arguments);
    call.name = name.clone();
    let own = || TableAlias {
        explicit: true,
        name: Ident::with_quote('"', function.clone()),
        columns: vec![],
        at: None,
    };
    let mut alias = alias.clone().unwrap_or_else(own);
    if alias.columns.len() > 1 {
        return None;
    }
    let relation = plain(&alias.name);
    let column = alias.columns.pop().map_or_else(|| alias.name.clone(), |column| column.name);
    let only = plain(&column);
    let item = SelectItem::ExprWithAlias { expr: Expr::Function(call), alias: column };
    let subquery = Box::new(query_of(vec![item], vec![]));
    *factor = TableFactor::Derived { lateral: true, subquery, alias: Some(alias), sample: None };
    (only != relation).then_some((relation, only))
}

/// Rewrites a call in FROM to a subquery. Returns its name and its column's, if it has a single column with
/// another name.
fn unfold_factor(factor: &mut TableFactor) -> Option<(String, String)> {
    if let TableFactor::Table { name, args: Some(_), .. } = factor
        && set_function(name).is_none()
    {
        return unfold_scalar(factor);
    }
    let ((function, columns), arguments, has_ordinality, alias, is_lateral) = match factor {
        TableFactor::Table { name, args: Some(args), with_ordinality, alias, .. } => {
            let known = set_function(name)?;
            if known.0 == "generate_series" {
                rewrite_step(args.args.iter_mut());
            }
            let is_counted = known.0 == "generate_series" && *with_ordinality;
            (known, positional_arguments(&args.args)?, *with_ordinality, alias.clone(), is_counted)
        }
        TableFactor::Function { name, args, with_ordinality, alias, lateral } => {
            (set_function(name)?, positional_arguments(args)?, *with_ordinality, alias.clone(), *lateral)
        }
        TableFactor::UNNEST { alias, array_exprs, with_ordinality, with_offset: false, .. } => {
            (("unnest", &[] as &[&str]), array_exprs.clone(), *with_ordinality, alias.clone(), false)
        }
        _ => return None,
    };
    if !needs_unfolding(function, &arguments, is_lateral || has_ordinality) {
        return None;
    }
    // Each of several arrays is a column.
    let arrays = if function == "unnest" { arguments.len() } else { 0 };
    let mut alias = alias.unwrap_or_else(|| TableAlias {
        explicit: true,
        name: Ident::with_quote('"', function),
        columns: vec![],
        at: None,
    });
    let relation = plain(&alias.name);
    let own = vec![relation.as_str(); arrays.max(1)];
    let columns = if columns.is_empty() { own.as_slice() } else { columns };
    let mut given = std::mem::take(&mut alias.columns).into_iter().map(|column| column.name);
    let mut names = Vec::new();
    let mut projection = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        let alias = given.next().unwrap_or_else(|| Ident::with_quote('"', *column));
        names.push(plain(&alias));
        let list = match arrays {
            0 => list_of(function, at, &arguments)?,
            _ => arguments.get(at)?.clone(),
        };
        projection.push(SelectItem::ExprWithAlias { expr: unnest_call(list), alias });
    }
    if has_ordinality {
        let lists = match arrays {
            0 => vec![list_of(function, 0, &arguments)?],
            _ => arguments.clone(),
        };
        let mut lengths: Vec<Expr> = lists
            .into_iter()
            .map(|list| big(Expr::Function(function_call("cardinality", vec![list]))))
            .collect();
        let length = match lengths.len() {
            1 => lengths.remove(0),
            _ => Expr::Function(function_call("greatest", lengths)),
        };
        let numbers = Expr::Function(function_call("generate_series", vec![number("1"), length]));
        let alias = given.next().unwrap_or_else(|| Ident::with_quote('"', "ordinality"));
        projection.push(SelectItem::ExprWithAlias { expr: unnest_call(numbers), alias });
    }
    let subquery = Box::new(query_of(projection, vec![]));
    *factor = TableFactor::Derived { lateral: true, subquery, alias: Some(alias), sample: None };
    match names.as_slice() {
        [only] if *only != relation => Some((relation, only.clone())),
        _ => None,
    }
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
                "SELECT generate_series(1, 3), day + generate_series(0, n) FROM t",
                "SELECT unnest(generate_series(1, 3)) AS \"generate_series\", day + unnest(generate_series(0, n)) FROM t",
            ),
            (
                "SELECT g FROM t, generate_series(1, t.n) AS g",
                "SELECT g FROM t, LATERAL (SELECT unnest(generate_series(1, t.n)) AS \"g\") AS g",
            ),
            (
                "SELECT * FROM t, LATERAL unnest(t.a, t.b) WITH ORDINALITY AS u(x, y, n)",
                "SELECT * FROM t, LATERAL (SELECT unnest(t.a) AS x, unnest(t.b) AS y, \
                 unnest(generate_series(1, greatest(CAST(cardinality(t.a) AS BIGINT), CAST(cardinality(t.b) AS BIGINT)))) AS n) AS u",
            ),
            (
                "SELECT unnest(a) AS a, n + 1 AS n FROM t ORDER BY n",
                "SELECT __rows.__1 AS a, __rows.__2 AS n FROM (SELECT unnest(a) AS __1, n + 1 AS __2 FROM t) AS __rows ORDER BY n",
            ),
            ("SELECT unnest(a) AS a, n FROM t", "SELECT unnest(a) AS a, n FROM t"),
            (
                "SELECT unnest((SELECT a)), unnest((SELECT b)) AS b, unnest((SELECT a))",
                "SELECT unnest((SELECT a)), unnest(CASE 2 WHEN 2 THEN (SELECT b) END) AS b, unnest((SELECT a))",
            ),
            (
                "SELECT unnest(a::text[]), unnest(a), unnest(b::int[]) FROM t",
                "SELECT unnest(a::TEXT[]), unnest(CASE 2 WHEN 2 THEN a END), unnest(b::INT[]) FROM t",
            ),
            ("SELECT array_length(generate_series(1, 3))", "SELECT array_length(generate_series(1, 3))"),
            ("SELECT * FROM generate_series(1, 3) AS g", "SELECT * FROM generate_series(1, 3) AS g"),
            ("SELECT a FROM t", "SELECT a FROM t"),
            ("SELECT * FROM lower('A') AS l", "SELECT * FROM lower('A') AS l"),
            (
                "SELECT * FROM t, lower(t.a) AS l(x), range(t.b)",
                "SELECT * FROM t, LATERAL (SELECT lower(t.a) AS x) AS l, range(t.b)",
            ),
        ] {
            assert_eq!(rewritten(sql).unwrap(), expected);
        }
    }
}
