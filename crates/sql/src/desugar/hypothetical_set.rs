//! Hypothetical-set aggregates: the rank that a row would have among others.
//!
//! ```text
//! rank(v) WITHIN GROUP (ORDER BY x)          ──►  count(*) FILTER (WHERE x < v) + 1
//! dense_rank(v) WITHIN GROUP (ORDER BY x)    ──►  count(DISTINCT x) FILTER (WHERE x < v) + 1
//! percent_rank(v) WITHIN GROUP (ORDER BY x)  ──►  count(*) FILTER (WHERE x < v) / count(*), 0 of no rows
//! cume_dist(v) WITHIN GROUP (ORDER BY x)     ──►  (count(*) FILTER (WHERE x <= v) + 1) / (count(*) + 1)
//! ```
//!
//! An argument may refer to grouping columns, which are constant in a group. In a grouping set without such a
//! column, it is NULL in the argument, but not in the rows.

use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, DataType, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, GroupByExpr, OrderByExpr, Query, Select, SelectItem, SetExpr, Value, ValueWithSpan,
    VisitMut, VisitorMut,
};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::ast_builder::{binary, boolean, case, cast, function_call, number, operator_chain, parentheses};
use crate::identifier::plain;

/// The hypothetical-set aggregates.
const NAMES: [&str; 4] = ["rank", "dense_rank", "percent_rank", "cume_dist"];

/// Rewrites a call, if it is one.
///
/// Errors: its arguments are not constant in the group (0A000).
pub(super) fn rewrite(expr: &mut Expr) -> Result<()> {
    rewrite_with(expr, &Keys::default())
}

/// Rewrites the calls whose arguments refer to the grouping columns of the query.
///
/// Errors: as [`rewrite`].
pub(super) fn rewrite_groups(query: &mut Query) -> Result<()> {
    let SetExpr::Select(select) = query.body.as_mut() else { return Ok(()) };
    let keys = Keys::of(select);
    if keys.columns.is_empty() {
        return Ok(());
    }
    let mut calls = Calls { keys, depth: 0 };
    let mut visited = VisitMut::visit(&mut select.projection, &mut calls);
    if visited.is_continue() {
        visited = select.having.visit(&mut calls);
    }
    if visited.is_continue() {
        visited = query.order_by.visit(&mut calls);
    }
    match visited {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// The grouping columns of a query.
#[derive(Default)]
struct Keys {
    columns: Vec<Expr>,
    /// ROLLUP, CUBE or GROUPING SETS.
    has_grouping_sets: bool,
}

impl Keys {
    fn of(select: &Select) -> Self {
        let GroupByExpr::Expressions(given, modifiers) = &select.group_by else { return Self::default() };
        let mut keys = Self { columns: vec![], has_grouping_sets: !modifiers.is_empty() };
        for key in given {
            match key {
                Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets) => {
                    keys.has_grouping_sets = true;
                    keys.columns.extend(sets.iter().flatten().cloned());
                }
                Expr::Value(ValueWithSpan { value: Value::Number(place, _), .. }) => {
                    let item = place.parse::<usize>().ok().and_then(|place| place.checked_sub(1));
                    let item = item.and_then(|at| select.projection.get(at));
                    if let Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item
                    {
                        keys.columns.push(expr.clone());
                    }
                }
                other => keys.columns.push(other.clone()),
            }
        }
        keys.columns.retain(is_column);
        keys
    }

    /// The grouping columns in an expression; `None` if it refers to anything else.
    fn columns_in(&self, value: &Expr) -> Option<Vec<Expr>> {
        let mut found: Vec<Expr> = Vec::new();
        let visited = ast::visit_expressions(value, |part| match part {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => {
                match self.columns.iter().find(|key| last_part(key) == last_part(part)) {
                    Some(key) if !found.contains(key) => found.push(key.clone()),
                    Some(_) => {}
                    None => return ControlFlow::Break(()),
                }
                ControlFlow::Continue(())
            }
            Expr::Subquery(_) | Expr::Function(_) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        visited.is_continue().then_some(found)
    }
}

fn is_column(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
}

fn last_part(column: &Expr) -> Option<String> {
    match column {
        Expr::Identifier(name) => Some(plain(name)),
        Expr::CompoundIdentifier(parts) => parts.last().map(plain),
        _ => None,
    }
}

/// Visits the calls of a query, but not of its subqueries.
struct Calls {
    keys: Keys,
    depth: usize,
}

impl VisitorMut for Calls {
    type Break = DataFusionError;

    crate::count_query_depth!(depth, mut);

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<DataFusionError> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        match rewrite_with(expr, &self.keys) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

fn rewrite_with(expr: &mut Expr, grouped: &Keys) -> Result<()> {
    let Expr::Function(function) = expr else { return Ok(()) };
    let is_call = |name: &String| NAMES.contains(&name.as_str()) && !function.within_group.is_empty();
    let Some(name) = name_of(function).filter(is_call) else { return Ok(()) };
    let (keys, Some(values)) = (&function.within_group, arguments_of(function)) else { return Ok(()) };
    if keys.len() != values.len() || function.over.is_some() {
        return Ok(());
    }
    // In the argument a column is the group's, in FILTER each row's.
    let mut group_columns: Vec<Expr> = Vec::new();
    for value in &values {
        let Some(found) = grouped.columns_in(value) else { return reject(grouped) };
        group_columns.extend(found);
    }
    group_columns.dedup();
    let Some(call) = count_expression(function, &name, keys, &values) else { return Ok(()) };
    *expr = match (grouped.has_grouping_sets, group_columns.as_slice()) {
        (false, _) | (true, []) => call,
        (true, [key]) => {
            let missing = values.iter().map(|value| with_null(value, key)).collect::<Vec<_>>();
            let Some(otherwise) = count_expression(function, &name, keys, &missing) else { return Ok(()) };
            let is_missing = Expr::Function(function_call("GROUPING", vec![key.clone()]));
            case([(binary(is_missing, BinaryOperator::Eq, number("0")), call)], otherwise)
        }
        (true, _) => return reject(&Keys::default()),
    };
    Ok(())
}

/// Rejects an argument that is not constant in the group (0A000). With grouping columns it leaves the call as
/// it is: [`rewrite`] visits it later without them, and reports the error.
fn reject(grouped: &Keys) -> Result<()> {
    if !grouped.columns.is_empty() {
        return Ok(());
    }
    let message = "ranks of values that are neither constants nor columns of GROUP BY are not supported";
    Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion())
}

/// A copy of an expression with a column replaced by NULL.
fn with_null(value: &Expr, column: &Expr) -> Expr {
    let mut value = value.clone();
    let _: ControlFlow<()> = ast::visit_expressions_mut(&mut value, |part| {
        if is_column(part) && last_part(part) == last_part(column) {
            *part = Expr::value(Value::Null);
        }
        ControlFlow::Continue(())
    });
    value
}

/// The equivalent of a call in terms of `count`; `None` if it is none of these functions.
fn count_expression(function: &Function, name: &str, keys: &[OrderByExpr], values: &[Expr]) -> Option<Expr> {
    let own = function.filter.as_deref().map_or_else(|| boolean(true), |filter| parentheses(filter.clone()));
    let before = || precedes(keys, values);
    let count = |distinct: Option<&Expr>, filter: Expr| {
        let filter = binary(own.clone(), BinaryOperator::And, parentheses(filter));
        filtered_count(distinct, filter)
    };
    let all = || count(None, boolean(true));
    let plus = |left, right| binary(left, BinaryOperator::Plus, right);
    let by = |left, right| binary(left, BinaryOperator::Divide, right);
    let double = |expr| cast(expr, DataType::DoublePrecision);
    Some(match (name, keys) {
        ("rank", _) => parentheses(plus(count(None, before()), number("1"))),
        ("dense_rank", [key]) => {
            let x = &key.expr;
            let is_null = Expr::IsNull(Box::new(parentheses(x.clone())));
            let nulls = count(None, binary(is_null, BinaryOperator::And, parentheses(before())));
            let is_any = binary(nulls, BinaryOperator::Gt, number("0"));
            let one_more = case([(is_any, number("2"))], number("1"));
            parentheses(plus(count(Some(x), before()), one_more))
        }
        ("percent_rank", _) => {
            let is_none = binary(all(), BinaryOperator::Eq, number("0"));
            case([(is_none, double(number("0.0")))], by(double(count(None, before())), all()))
        }
        ("cume_dist", _) => {
            let peers = keys.iter().zip(values).map(|(key, value)| is_peer(key, value));
            let until = match operator_chain(peers, BinaryOperator::And) {
                Some(peers) => binary(before(), BinaryOperator::Or, parentheses(peers)),
                None => before(),
            };
            let rows = parentheses(plus(count(None, until), number("1")));
            parentheses(by(double(rows), parentheses(plus(all(), number("1")))))
        }
        _ => return None,
    })
}

/// `count(*)` or `count(DISTINCT x)` with a filter.
fn filtered_count(distinct: Option<&Expr>, filter: Expr) -> Expr {
    let mut call = function_call("count", vec![]);
    if let FunctionArguments::List(list) = &mut call.args {
        let argument = match distinct {
            Some(x) => FunctionArgExpr::Expr(x.clone()),
            None => FunctionArgExpr::Wildcard,
        };
        list.duplicate_treatment = distinct.map(|_| DuplicateTreatment::Distinct);
        list.args = vec![FunctionArg::Unnamed(argument)];
    }
    call.filter = Some(Box::new(filter));
    Expr::Function(call)
}

/// Whether a row sorts before the hypothetical one.
fn precedes(keys: &[OrderByExpr], values: &[Expr]) -> Expr {
    let mut ways = Vec::with_capacity(keys.len());
    let mut peers = Vec::new();
    for (key, value) in keys.iter().zip(values) {
        let (x, v) = (|| parentheses(key.expr.clone()), || parentheses(value.clone()));
        let descends = key.options.asc == Some(false);
        let operator = if descends { BinaryOperator::Gt } else { BinaryOperator::Lt };
        let is_null = |expr| Expr::IsNull(Box::new(expr));
        let is_not_null = |expr| Expr::IsNotNull(Box::new(expr));
        let nulls = match key.options.nulls_first.unwrap_or(descends) {
            true => binary(is_null(x()), BinaryOperator::And, is_not_null(v())),
            false => binary(is_not_null(x()), BinaryOperator::And, is_null(v())),
        };
        let here = parentheses(binary(binary(x(), operator, v()), BinaryOperator::Or, nulls));
        ways.extend(operator_chain(peers.iter().cloned().chain([here]), BinaryOperator::And));
        peers.push(is_peer(key, value));
    }
    operator_chain(ways, BinaryOperator::Or).unwrap_or_else(|| boolean(false))
}

fn is_peer(key: &OrderByExpr, value: &Expr) -> Expr {
    Expr::IsNotDistinctFrom(Box::new(parentheses(key.expr.clone())), Box::new(parentheses(value.clone())))
}

fn name_of(function: &Function) -> Option<String> {
    match function.name.0.as_slice() {
        [.., name] => name.as_ident().map(plain),
        [] => None,
    }
}

fn arguments_of(function: &Function) -> Option<Vec<Expr>> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let values = list.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    });
    values.collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::rewritten;

    #[test]
    fn ranks_are_counts() {
        let before = "((a) < (2) OR (a) IS NOT NULL AND (2) IS NULL)";
        assert_eq!(
            rewritten("SELECT rank(2) WITHIN GROUP (ORDER BY a)").unwrap(),
            format!("SELECT (count(*) FILTER (WHERE true AND ({before})) + 1)")
        );
        let window = "SELECT rank() OVER (ORDER BY a)";
        assert_eq!(rewritten(window).unwrap(), window);
    }
}
