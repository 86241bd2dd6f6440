//! Compares intervals by their total length, as in PostgreSQL: a month is thirty days, a day 24 hours.
//! DataFusion compares months first, then days, then time, so that `'24:00:00'` is less than `'1 day'`.
//! Comparisons of intervals, and of structs and lists that contain them, use numbers (spans) instead.
//! Operators that return one of several equal intervals return the one with the fewest months and days,
//! regardless of row order.
//!
//! ```text
//! i > j, i IN (j, k)             ─►  span(i) > span(j), span(i) IN (span(j), span(k))
//! Sort: i                        ─►  Sort: span(i)
//! Join: l.i = r.j                ─►  Join: span(l.i) = span(r.j)
//! OVER (PARTITION BY i)          ─►  OVER (PARTITION BY span(i))
//! greatest(i, j)                 ─►  coded(greatest(code(i), code(j)))
//! Aggregate: groupBy=[i],        ─►  Projection: coded(first) AS i, coded(last) AS max(i)
//!   aggr=[max(i)]                      Aggregate: groupBy=[span(i)],
//!                                        aggr=[max(code(i)) AS last, min(code(i)) AS first]
//! OVER (ORDER BY i RANGE         ─►  OVER (ORDER BY span(i) RANGE                        IntervalOrders
//!   BETWEEN '1 day' PRECEDING …)       BETWEEN 86400000000000 PRECEDING …)
//! ```
//! Spans and codes: [`harrier_functions::datetime::interval_span`]. DISTINCT is an aggregate of all columns.
//!
//! `IntervalSpans` and `IntervalOrders` can go when intervals are compared by their length; DataFusion and
//! Arrow order them by their fields on purpose (apache/arrow-rs#5654); PostgreSQL 8.5.4.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::functions::expr_fn::coalesce;
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::functions_aggregate::min_max::min_udaf;
use datafusion::logical_expr::expr::{
    Case, GroupingSet, InSubquery, ScalarFunction, SetComparison, Sort as SortKey, WindowFunction,
};
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprSchemable, JoinConstraint, LogicalPlan, LogicalPlanBuilder, Projection,
    Subquery, WindowFrameBound, WindowFrameUnits, lit, when,
};
use datafusion::optimizer::AnalyzerRule;
use harrier_functions::datetime::interval_span::{
    code_function, coded_function, compared_as, span, span_function,
};

use crate::rewrite::{
    ResultRewrite, input_schema, map_calls, map_comparison_sides, map_join_keys, rewrite_expressions,
    unaliased_mut,
};

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// The prefix of columns from which intervals are restored, followed by an index.
const COLUMN_PREFIX: &str = "__interval_";

/// The analyzer rule; runs after type coercion, and before subqueries become joins.
#[derive(Debug)]
pub struct IntervalSpans;

impl AnalyzerRule for IntervalSpans {
    fn name(&self) -> &str {
        "interval_spans"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(rewrite_node)?.data)
    }
}

/// The analyzer rule for window orders; runs before type coercion, which does not support RANGE over
/// intervals.
#[derive(Debug)]
pub struct IntervalOrders;

impl AnalyzerRule for IntervalOrders {
    fn name(&self) -> &str {
        "interval_orders"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Window(_) => {
                let schema = input_schema(&plan)?;
                rewrite_expressions(plan, |mut expr| {
                    let is_changed = match &mut expr {
                        Expr::WindowFunction(call) => measure_window(call, &schema),
                        _ => false,
                    };
                    Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
                })
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(changed.data)
    }
}

/// Applies the rule to one node.
fn rewrite_node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = input_schema(&plan)?;
    let plan = rewrite_expressions(plan, |expr| rewrite_expr(expr, &schema))?;
    plan.transform_data(|plan| match plan {
        LogicalPlan::Join(_) => rewrite_join(plan),
        LogicalPlan::Sort(mut sort) => {
            let is_changed = measure_keys(&mut sort.expr, &schema);
            let plan = LogicalPlan::Sort(sort);
            Ok(if is_changed { Transformed::yes(plan) } else { Transformed::no(plan) })
        }
        LogicalPlan::Distinct(Distinct::All(input)) if has_intervals(input.schema()) => {
            let columns = input.schema().columns().into_iter().map(Expr::Column).collect();
            rewrite_aggregate(Aggregate::try_new(input, columns, vec![])?, &schema)
        }
        LogicalPlan::Distinct(Distinct::On(mut on)) => {
            let mut is_changed = on.on_expr.iter_mut().fold(false, |is, key| measure(key, &schema) | is);
            is_changed |= on.sort_expr.as_mut().is_some_and(|keys| measure_keys(keys, &schema));
            let plan = LogicalPlan::Distinct(Distinct::On(on));
            Ok(if is_changed { Transformed::yes(plan) } else { Transformed::no(plan) })
        }
        LogicalPlan::Aggregate(aggregate) => rewrite_aggregate(aggregate, &schema),
        LogicalPlan::Window(_) => map_calls(plan, |call| encode_extreme(call, &schema)),
        other => Ok(Transformed::no(other)),
    })
}

fn has_intervals(schema: &DFSchema) -> bool {
    schema.fields().iter().any(|field| compared_as(field.data_type()).is_some())
}

fn rewrite_expr(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut is_changed = map_comparison_sides(&mut expr, |sides| measure_all(sides, schema));
    is_changed |= match &mut expr {
        Expr::InSubquery(InSubquery { expr, subquery, .. })
        | Expr::SetComparison(SetComparison { expr, subquery, .. }) => {
            let is_of_intervals = compared_type(expr, schema).is_some();
            is_of_intervals && measure_rows(subquery)? && measure(expr, schema)
        }
        Expr::WindowFunction(call) => measure_window(call, schema),
        Expr::ScalarFunction(call) => match call.func.name() {
            "array_has" | "array_has_any" | "array_has_all" | "array_position" | "array_positions" => {
                call.args.iter_mut().fold(false, |is, argument| measure(argument, schema) | is)
            }
            "greatest" | "least" if call.args.iter().all(|side| is_interval(side, schema)) => {
                let args = std::mem::take(&mut call.args).into_iter().map(encode).collect();
                let func = Arc::clone(&call.func);
                expr = decode(Expr::ScalarFunction(ScalarFunction { func, args }));
                true
            }
            "nullif" => match call.args.as_slice() {
                [value, other] if compared_type(value, schema).is_some() && !value.is_volatile() => {
                    let same = span_call(value.clone()).eq(span_call(other.clone()));
                    let null = Expr::Literal(ScalarValue::try_from(value.get_type(schema)?)?, None);
                    let branches = vec![(Box::new(same), Box::new(null))];
                    expr = Expr::Case(Case::new(None, branches, Some(Box::new(value.clone()))));
                    true
                }
                _ => false,
            },
            _ => false,
        },
        _ => false,
    };
    Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
}

/// The type that is compared instead, if the expression's type contains intervals.
fn compared_type(expr: &Expr, schema: &DFSchema) -> Option<DataType> {
    compared_as(&expr.get_type(schema).ok()?)
}

fn is_interval(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|kind| kind == INTERVAL)
}

/// Replaces an expression of interval type by its span; returns whether it is one.
fn measure(expr: &mut Expr, schema: &DFSchema) -> bool {
    let is_of_intervals = compared_type(expr, schema).is_some();
    if is_of_intervals {
        *expr = span_call(std::mem::take(expr));
    }
    is_of_intervals
}

/// The same for the sides of a comparison, if all are intervals or NULL.
fn measure_all(sides: &mut [&mut Expr], schema: &DFSchema) -> bool {
    let is_null = |side: &Expr| side.get_type(schema).is_ok_and(|kind| kind.is_null());
    let fits = sides.iter().all(|side| compared_type(side, schema).is_some() || is_null(side));
    fits && sides.iter_mut().fold(false, |is, side| measure(side, schema) | is)
}

fn measure_keys(keys: &mut [SortKey], schema: &DFSchema) -> bool {
    keys.iter_mut().fold(false, |is, key| measure(&mut key.expr, schema) | is)
}

/// The same for the only column of a subquery.
fn measure_rows(subquery: &mut Subquery) -> Result<bool> {
    let plan = subquery.subquery.as_ref();
    let (relation, field) = plan.schema().qualified_field(0);
    if plan.schema().fields().len() != 1 || compared_as(field.data_type()).is_none() {
        return Ok(false);
    }
    let column = span_call(Expr::Column(Column::from((relation, field))));
    let column = column.alias_qualified(relation.cloned(), field.name());
    subquery.subquery = Arc::new(LogicalPlanBuilder::from(plan.clone()).project([column])?.build()?);
    Ok(true)
}

/// Rewrites a join to use spans as keys.
fn rewrite_join(mut plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Join(join) = &plan else { return Ok(Transformed::no(plan)) };
    let mut schema = join.left.schema().as_ref().clone();
    schema.merge(join.right.schema());
    if !map_join_keys(&mut plan, |keys| measure_all(keys, &schema)) {
        return Ok(Transformed::no(plan));
    }
    if let LogicalPlan::Join(join) = &mut plan {
        // USING only accepts columns.
        join.join_constraint = JoinConstraint::On;
    }
    Ok(Transformed::yes(plan))
}

/// Rewrites a window over intervals to spans.
fn measure_window(call: &mut WindowFunction, schema: &DFSchema) -> bool {
    let parameters = &mut call.params;
    let is_ordered =
        parameters.order_by.first().is_some_and(|key| compared_type(&key.expr, schema).is_some());
    if is_ordered && parameters.window_frame.units == WindowFrameUnits::Range {
        for bound in [&mut parameters.window_frame.start_bound, &mut parameters.window_frame.end_bound] {
            match bound {
                WindowFrameBound::Preceding(value) | WindowFrameBound::Following(value) => {
                    *value = span_value(value);
                }
                WindowFrameBound::CurrentRow => {}
            }
        }
    }
    let is_parted = parameters.partition_by.iter_mut().fold(false, |is, key| measure(key, schema) | is);
    measure_keys(&mut parameters.order_by, schema) | is_parted
}

/// Converts a constant interval, or the text of one, to a span; returns other values unchanged.
fn span_value(value: &ScalarValue) -> ScalarValue {
    match value.cast_to(&INTERVAL) {
        Ok(ScalarValue::IntervalMonthDayNano(Some(interval))) if !value.data_type().is_integer() => {
            ScalarValue::Decimal128(Some(span(interval)), 38, 0)
        }
        _ => value.clone(),
    }
}

/// Rewrites an aggregate to spans, below a projection that restores its original output.
fn rewrite_aggregate(aggregate: Aggregate, schema: &DFSchema) -> Result<Transformed<LogicalPlan>> {
    let keys: Vec<Expr> = grouping_set_to_exprlist(&aggregate.group_expr)?.into_iter().cloned().collect();
    let is_set = matches!(aggregate.group_expr.as_slice(), [Expr::GroupingSet(_)]);
    let mut group_expr = aggregate.group_expr.clone();
    let mut is_changed = group_expr.iter_mut().fold(false, |is, key| measure_group(key, schema) | is);
    let mut functions = Vec::with_capacity(aggregate.aggr_expr.len());
    let mut coded = Vec::with_capacity(functions.len());
    for (at, function) in aggregate.aggr_expr.iter().enumerate() {
        let (function, change) = rewrite_aggregate_call(function.clone(), schema);
        is_changed |= change != Change::None;
        coded.push(change == Change::Coded);
        functions.push(match change {
            Change::None => function,
            _ => std::mem::take(unaliased_mut(&mut { function })).alias(format!("{COLUMN_PREFIX}{at}")),
        });
    }
    if !is_changed {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    // After the original columns: the interval of each key.
    let before = &aggregate.schema;
    let keys_from = before.fields().len();
    let mut key_columns = Vec::with_capacity(keys.len());
    for key in &keys {
        key_columns.push(match compared_type(key, schema) {
            None => None,
            Some(_) => {
                let value = match is_interval(key, schema) {
                    true => min_udaf().call(vec![encode(key.clone())]),
                    false => first_value_udaf().call(vec![key.clone()]),
                };
                functions.push(value.alias(format!("{COLUMN_PREFIX}{}", functions.len())));
                Some(keys_from + key_columns.iter().flatten().count())
            }
        });
    }
    let plan = LogicalPlan::Aggregate(Aggregate::try_new(aggregate.input, group_expr, functions)?);
    let functions_from = keys_from - coded.len();
    let column = |at: usize| Expr::Column(Column::from(plan.schema().qualified_field(at)));
    let columns = before.iter().enumerate().map(|(at, (relation, field))| {
        let value = match key_columns.get(at) {
            Some(Some(value)) => {
                let is_coded = *plan.schema().field(*value).data_type() != *field.data_type();
                let value = if is_coded { decode(column(*value)) } else { column(*value) };
                match is_set {
                    // In rows of other grouping sets it is NULL.
                    true => when(column(at).is_not_null(), value).end()?,
                    // Operators above expect a non-nullable column.
                    false if !field.is_nullable() && is_coded => coalesce(vec![value, zero_interval()]),
                    false => value,
                }
            }
            _ if at >= functions_from && coded[at - functions_from] => decode(column(at)),
            _ => column(at),
        };
        Ok(value.alias_qualified(relation.cloned(), field.name()))
    });
    let columns = columns.collect::<Result<Vec<Expr>>>()?;
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?)))
}

/// Rewrites a grouping key or a grouping set.
fn measure_group(key: &mut Expr, schema: &DFSchema) -> bool {
    match key {
        Expr::GroupingSet(GroupingSet::Rollup(keys) | GroupingSet::Cube(keys)) => {
            keys.iter_mut().fold(false, |is, key| measure(key, schema) | is)
        }
        Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => {
            sets.iter_mut().flatten().fold(false, |is, key| measure(key, schema) | is)
        }
        key => measure(key, schema),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    /// The result type is unchanged.
    Measured,
    /// The result is a code.
    Coded,
}

/// Rewrites an aggregate that compares intervals to spans or codes.
fn rewrite_aggregate_call(mut expr: Expr, schema: &DFSchema) -> (Expr, Change) {
    let mut change = Change::None;
    if let Expr::AggregateFunction(call) = unaliased_mut(&mut expr) {
        let parameters = &mut call.params;
        // With DISTINCT, ORDER BY keys must match the arguments.
        if !parameters.distinct && measure_keys(&mut parameters.order_by, schema) {
            change = Change::Measured;
        }
        let is_of_interval = matches!(parameters.args.as_slice(), [one] if is_interval(one, schema));
        if is_of_interval && is_extreme(call.func.name()) {
            encode_first(&mut parameters.args);
            change = Change::Coded;
        } else if call.func.name() == "count" && parameters.distinct && parameters.order_by.is_empty() {
            let arguments = parameters.args.iter_mut();
            if arguments.fold(false, |is, value| measure(value, schema) | is) {
                change = Change::Measured;
            }
        }
    }
    (expr, change)
}

/// Rewrites `min` or `max` over a window to codes; returns the function that restores the interval.
fn encode_extreme(call: &mut Expr, schema: &DFSchema) -> Option<ResultRewrite> {
    let Expr::WindowFunction(call) = call else { return None };
    let arguments = &mut call.params.args;
    let is_of_interval = matches!(arguments.as_slice(), [one] if is_interval(one, schema));
    if !is_of_interval || !is_extreme(call.fun.name()) {
        return None;
    }
    encode_first(arguments);
    Some(decode)
}

fn is_extreme(aggregate: &str) -> bool {
    matches!(aggregate, "min" | "max")
}

fn encode_first(arguments: &mut [Expr]) {
    if let Some(first) = arguments.first_mut() {
        *first = encode(std::mem::take(first));
    }
}

/// The zero interval.
fn zero_interval() -> Expr {
    lit(ScalarValue::new_interval_mdn(0, 0, 0))
}

fn span_call(expr: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(span_function(), vec![expr]))
}

fn encode(expr: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(code_function(), vec![expr]))
}

fn decode(code: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(coded_function(), vec![code]))
}
