//! Converts set-returning functions and array subqueries to DataFusion's `unnest` and aggregates.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArgumentList, FunctionArguments, GroupByExpr, Ident, OrderByKind, Query,
    SelectItem, SetExpr, Subscript, TableAlias, TableAliasColumnDef, TableFactor, TableWithJoins, Value,
    ValueWithSpan, visit_expressions,
};

use crate::rewrite::expressions::{array_of_text, call, cast_to, table_alias};
use crate::system::SYSTEM;
use harrier_sql::ast_builder::{argument_list, function_call, query_of};
use harrier_sql::column_names::parts;
use harrier_sql::identifier::plain;

/// Converts `(information_schema._pg_expandarray(x)).n` to a field of the function's rows.
pub(super) fn field_access(expr: &mut Expr) {
    let Expr::CompoundFieldAccess { root, access_chain } = expr else { return };
    let [AccessExpr::Dot(Expr::Identifier(field))] = access_chain.as_slice() else { return };
    let field = Expr::value(Value::SingleQuotedString(plain(field)));
    let root = match &**root {
        Expr::Nested(inner) => (**inner).clone(),
        other => other.clone(),
    };
    let root = match &root {
        Expr::Function(function)
            if parts(&function.name)
                .last()
                .is_some_and(|name| name == "_pg_expandarray" || name == "aclexplode") =>
        {
            call("unnest", vec![root])
        }
        Expr::Function(_) | Expr::CompoundIdentifier(_) | Expr::Identifier(_) => root,
        _ => return,
    };
    *expr = call("get_field", vec![root, field]);
}

/// Converts zero-based subscripts of names and vectors: `typname[0]`, `proargtypes[0]`.
pub(super) fn from_zero(expr: &mut Expr) {
    let Expr::CompoundFieldAccess { root, access_chain } = expr else { return };
    let (before, index) = match access_chain.as_slice() {
        [before @ .., AccessExpr::Subscript(Subscript::Index { index })] => (before, index),
        _ => return,
    };
    // A qualified column is an access, too.
    let (root, column) = match (&**root, before) {
        (Expr::Identifier(name), []) => ((**root).clone(), name.clone()),
        (Expr::CompoundIdentifier(parts), []) => match parts.last() {
            Some(name) => ((**root).clone(), name.clone()),
            None => return,
        },
        (Expr::Identifier(relation), [AccessExpr::Dot(Expr::Identifier(name))]) => {
            (Expr::CompoundIdentifier(vec![relation.clone(), name.clone()]), name.clone())
        }
        _ => return,
    };
    // The JDBC driver says `i_indoption` where it selects from its own subquery.
    let named = |name: &str| type_of(name).or_else(|| type_of(name.strip_prefix("i_")?));
    let Some(type_name) = named(&plain(&column)) else { return };
    if type_name == "name" {
        *expr = call("name_letter", vec![root, index.clone()]);
    } else if type_name.ends_with("vector") {
        let one = Expr::value(Value::Number("1".to_string(), false));
        let index = Expr::Nested(Box::new(Expr::BinaryOp {
            left: Box::new(index.clone()),
            op: BinaryOperator::Plus,
            right: Box::new(one),
        }));
        *expr = call("array_element", vec![root, index]);
    }
}

/// Whether an expression is a vector column of a system relation.
fn is_vector(expr: &Expr) -> bool {
    let column = match expr {
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(parts) => parts.last(),
        _ => None,
    };
    column.and_then(|name| type_of(&plain(name))).is_some_and(|type_name| type_name.ends_with("vector"))
}

/// The type of a system relation's column; columns of one name agree on zero-based subscripts.
fn type_of(name: &str) -> Option<&'static str> {
    let mut columns = SYSTEM.relations.iter().flat_map(|relation| &relation.columns);
    columns.find(|column| column.name == name).map(|column| column.type_name)
}

/// Converts `substring(x FROM 'a(.*)')`: the match, or its first group if there is one.
pub(super) fn substring_match(expr: &mut Expr) {
    let Expr::Substring { expr: text, substring_from: Some(from), substring_for: None, .. } = expr else {
        return;
    };
    let is_text = match &**from {
        Expr::Value(ValueWithSpan { value, .. }) => {
            matches!(value, Value::SingleQuotedString(_) | Value::EscapedStringLiteral(_))
        }
        _ => false,
    };
    if is_text {
        let matches = call("regexp_match", vec![(**text).clone(), (**from).clone()]);
        let first = Expr::value(Value::Number("1".to_string(), false));
        *expr = call("array_element", vec![matches, first]);
    }
}

/// Converts `x LIKE ANY (ARRAY['a%', 'b%'])` to one LIKE per pattern. NOT LIKE ANY is true if any pattern
/// does not match.
pub(super) fn like_any(expr: &mut Expr) {
    let (Expr::Like { pattern, .. } | Expr::ILike { pattern, .. }) = &*expr else { return };
    let mut patterns = &**pattern;
    while let Expr::Nested(inner) = patterns {
        patterns = inner;
    }
    let elements = match patterns {
        Expr::Array(array) => array.elem.clone(),
        Expr::Tuple(elements) => elements.clone(),
        _ => match array_of_text(patterns) {
            Some(Expr::Array(array)) => array.elem,
            _ => return,
        },
    };
    let each = elements.into_iter().map(|element| {
        let mut one = expr.clone();
        if let Expr::Like { any, pattern, .. } | Expr::ILike { any, pattern, .. } = &mut one {
            *any = false;
            **pattern = element;
        }
        one
    });
    if let Some(all) = each.reduce(|left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::Or,
        right: Box::new(right),
    }) {
        *expr = Expr::Nested(Box::new(all));
    }
}

/// The view for a function without arguments.
pub(super) fn view_of(function: &str) -> Option<(&'static str, &'static str)> {
    const FUNCTIONS: [(&str, &str); 6] = [
        ("pg_show_all_settings", "pg_settings"),
        ("pg_prepared_statement", "pg_prepared_statements"),
        ("pg_cursor", "pg_cursors"),
        ("pg_timezone_names", "pg_timezone_names"),
        ("pg_timezone_abbrevs", "pg_timezone_abbrevs"),
        ("pg_config", "pg_config"),
    ];
    FUNCTIONS.into_iter().find(|(name, _)| *name == function)
}

/// Replaces set-returning functions by `unnest` of their rows as a list. Only the outermost is considered.
pub(super) fn unfold(expr: &mut Expr) {
    let Expr::Function(function) = expr else { return };
    let FunctionArguments::List(arguments) = &function.args else { return };
    let arguments = arguments.args.iter().filter_map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    });
    let arguments = arguments.collect::<Vec<_>>();
    match (parts(&function.name).pop().as_deref(), arguments.as_slice()) {
        (Some("generate_series" | "_pg_expandarray" | "aclexplode" | "pg_partition_ancestors"), _) => {
            *expr = call("unnest", vec![expr.clone()]);
        }
        (Some("generate_subscripts"), [array, dimension]) => {
            let number = |text: &str| Expr::value(Value::Number(text.to_string(), false));
            let end = call("array_upper", vec![array.clone(), dimension.clone()]);
            let mut end = cast_to(end, DataType::BigInt(None));
            let mut start = number("1");
            // Vectors are zero-based.
            if is_vector(array) {
                let (left, right) = (Box::new(end), Box::new(number("1")));
                end = Expr::BinaryOp { left, op: BinaryOperator::Minus, right };
                start = number("0");
            }
            *expr = call("unnest", vec![call("generate_series", vec![start, end])]);
        }
        _ => {}
    }
}

pub(super) fn is_array_subquery(function: &Function) -> bool {
    parts(&function.name) == ["array"] && matches!(function.args, FunctionArguments::Subquery(_))
}

/// Converts `ARRAY(SELECT x … ORDER BY y)` to `array_or_empty((SELECT array_agg(x ORDER BY y) …))`.
pub(super) fn aggregate(mut query: Box<Query>) -> Expr {
    // `ARRAY(SELECT generate_series(1, n))` is the function's list, `ARRAY(SELECT unnest(a))` the array.
    if let SetExpr::Select(select) = &*query.body
        && select.from.is_empty()
        && select.selection.is_none()
        && let [SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }] =
            select.projection.as_slice()
        && let Expr::Function(function) = item
        && query.order_by.is_none()
    {
        match (parts(&function.name).pop().as_deref(), &function.args) {
            (Some("generate_series"), _) => return item.clone(),
            (Some("unnest"), FunctionArguments::List(arguments)) => {
                if let [FunctionArg::Unnamed(FunctionArgExpr::Expr(array))] = arguments.args.as_slice() {
                    return call("array_or_empty", vec![array.clone()]);
                }
            }
            _ => {}
        }
    }
    if let Some(collected) = aggregate_unnested(&query) {
        return collected;
    }
    if !is_plain(&query) {
        return aggregate_any(query);
    }
    let order = query.order_by.take();
    if let SetExpr::Select(select) = &mut *query.body
        && let [SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }] =
            select.projection.as_slice()
    {
        let item = item.clone();
        let mut arguments = argument_list(vec![item.clone()]);
        if let Some(OrderByKind::Expressions(mut order)) = order.map(|order| order.kind) {
            for by in &mut order {
                // `ORDER BY 1` refers to the item itself.
                if matches!(&by.expr, Expr::Value(ValueWithSpan { value: Value::Number(..), .. })) {
                    by.expr = item.clone();
                }
            }
            arguments.clauses.push(FunctionArgumentClause::OrderBy(order));
        }
        let args = FunctionArguments::List(arguments);
        let collected = Expr::Function(Function { args, ..function_call("array_agg", vec![]) });
        select.projection = vec![SelectItem::UnnamedExpr(collected)];
        return call("array_or_empty", vec![Expr::Subquery(query)]);
    }
    query.order_by = order;
    aggregate_any(query)
}

/// Whether an aggregate can replace the item: the query has no groups, limits or set operations.
fn is_plain(query: &Query) -> bool {
    let Query { body, limit_clause: None, fetch: None, .. } = query else { return false };
    let SetExpr::Select(select) = body.as_ref() else { return false };
    let is_grouped = !matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty())
        || select.having.is_some();
    let is_of_rows = |item: &SelectItem| {
        let (SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }) = item else {
            return false;
        };
        let found = visit_expressions(item, |part| match part {
            Expr::Function(function) if is_of_several(function) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        found.is_continue()
    };
    select.distinct.is_none() && !is_grouped && select.projection.iter().all(is_of_rows)
}

/// Names of aggregate functions.
const AGGREGATES: [&str; 16] = [
    "array_agg",
    "avg",
    "bit_and",
    "bit_or",
    "bool_and",
    "bool_or",
    "count",
    "every",
    "json_agg",
    "jsonb_agg",
    "max",
    "min",
    "stddev",
    "string_agg",
    "sum",
    "variance",
];

fn is_of_several(function: &Function) -> bool {
    let is_aggregate = parts(&function.name).pop().is_some_and(|name| AGGREGATES.contains(&name.as_str()));
    is_aggregate || function.over.is_some() || !function.within_group.is_empty() || function.filter.is_some()
}

/// Aggregates the only column of any query to an array, in row order.
fn aggregate_any(query: Box<Query>) -> Expr {
    let column = Ident::new("__item");
    let items = argument_list(vec![Expr::Identifier(column.clone())]);
    of_rows(query, column, items)
}

/// `array_or_empty((SELECT array_agg(…) FROM (query) AS __rows (column)))`.
fn of_rows(subquery: Box<Query>, column: Ident, arguments: FunctionArgumentList) -> Expr {
    let mut collected = no_query();
    if let SetExpr::Select(select) = &mut *collected.body {
        let args = FunctionArguments::List(arguments);
        let items = Expr::Function(Function { args, ..function_call("array_agg", vec![]) });
        select.projection = vec![SelectItem::UnnamedExpr(items)];
        let mut alias = table_alias("__rows");
        alias.columns = vec![TableAliasColumnDef { name: column, data_type: None }];
        let relation = TableFactor::Derived { lateral: false, subquery, alias: Some(alias), sample: None };
        select.from = vec![TableWithJoins { relation, joins: vec![] }];
    }
    call("array_or_empty", vec![Expr::Subquery(Box::new(collected))])
}

/// Converts `ARRAY(SELECT unnest(a) + 1 ORDER BY 1)`, whose rows an aggregate at the same level cannot see,
/// to `array_or_empty((SELECT array_agg(__item ORDER BY __item) FROM (SELECT unnest(a) + 1) AS __rows
/// (__item)))`; `None` without `unnest`.
fn aggregate_unnested(query: &Query) -> Option<Expr> {
    let SetExpr::Select(select) = &*query.body else { return None };
    let [SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }] =
        select.projection.as_slice()
    else {
        return None;
    };
    let has_unnest = visit_expressions(item, |part| match part {
        Expr::Function(function) if parts(&function.name) == ["unnest"] => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    if has_unnest.is_continue() {
        return None;
    }
    let column = Ident::new("__item");
    let mut arguments = argument_list(vec![Expr::Identifier(column.clone())]);
    let mut rows = query.clone();
    if let Some(OrderByKind::Expressions(mut order)) = rows.order_by.take().map(|order| order.kind) {
        for by in &mut order {
            let is_item = by.expr == *item
                || matches!(&by.expr, Expr::Value(ValueWithSpan { value: Value::Number(..), .. }));
            // Other sort keys are not among the rows.
            if !is_item {
                return None;
            }
            by.expr = Expr::Identifier(column.clone());
        }
        arguments.clauses.push(FunctionArgumentClause::OrderBy(order));
    }
    Some(of_rows(Box::new(rows), column, arguments))
}

/// Converts `generate_series(1, array_upper(x, 1)) AS s (r)`, whose bounds DataFusion needs while planning,
/// to a subquery.
pub(super) fn series(factor: &TableFactor) -> Option<TableFactor> {
    let TableFactor::Table { name, alias, args: Some(args), .. } = factor else { return None };
    if parts(name).last()? != "generate_series" {
        return None;
    }
    let bounds = args.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    });
    let bounds = bounds.collect::<Option<Vec<_>>>()?;
    if bounds.iter().all(|bound| matches!(bound, Expr::Value(_))) {
        return None;
    }
    let alias = alias.clone().unwrap_or_else(|| table_alias("generate_series"));
    let column = alias.columns.first().map_or_else(|| alias.name.clone(), |column| column.name.clone());
    let bounds = bounds.into_iter().map(|bound| cast_to(bound, DataType::BigInt(None))).collect();
    let expr = call("unnest", vec![call("generate_series", bounds)]);
    let mut query = no_query();
    if let SetExpr::Select(select) = &mut *query.body {
        select.projection = vec![SelectItem::ExprWithAlias { expr, alias: column }];
    }
    let alias = Some(TableAlias { columns: vec![], ..alias });
    Some(TableFactor::Derived { lateral: false, subquery: Box::new(query), alias, sample: None })
}

/// An empty SELECT, to be filled.
pub(super) fn no_query() -> Query {
    query_of(vec![], vec![])
}
