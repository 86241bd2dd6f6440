//! Intervals are compared by how long they are, as in PostgreSQL: a month is thirty days, a day 24 hours.
//! DataFusion compares months first, then days, then time, so that `'24:00:00'` is less than `'1 day'`. What
//! compares intervals, or rows and lists of them, compares numbers in their place; what shows one of several
//! that are equal shows the one with the fewest months and days, whatever the order of rows.
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
//! `IntervalSpans` and `IntervalOrders` can go when intervals are compared by their length; DataFusion, and
//! Arrow below it, order them by their fields on purpose (apache/arrow-rs#5654); PostgreSQL 8.5.4.

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

/// What columns are called from which an interval is made, with a number behind it.
const MEASURED: &str = "__interval_";

/// The rule; to stand behind the coercion of types, and before subqueries become joins.
#[derive(Debug)]
pub struct IntervalSpans;

impl AnalyzerRule for IntervalSpans {
    fn name(&self) -> &str {
        "interval_spans"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(by_span)?.data)
    }
}

/// The rule for the order of windows; to stand before the coercion of types, to which an interval is nothing
/// that a RANGE can be of.
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

/// One node with the rule applied.
fn by_span(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = input_schema(&plan)?;
    let plan = rewrite_expressions(plan, |expr| compared(expr, &schema))?;
    plan.transform_data(|plan| match plan {
        LogicalPlan::Join(_) => keyed(plan),
        LogicalPlan::Sort(mut sort) => {
            let is_changed = measure_keys(&mut sort.expr, &schema);
            let plan = LogicalPlan::Sort(sort);
            Ok(if is_changed { Transformed::yes(plan) } else { Transformed::no(plan) })
        }
        LogicalPlan::Distinct(Distinct::All(input)) if has_intervals(input.schema()) => {
            let columns = input.schema().columns().into_iter().map(Expr::Column).collect();
            grouped(Aggregate::try_new(input, columns, vec![])?, &schema)
        }
        LogicalPlan::Distinct(Distinct::On(mut on)) => {
            let mut is_changed = on.on_expr.iter_mut().fold(false, |is, key| measure(key, &schema) | is);
            is_changed |= on.sort_expr.as_mut().is_some_and(|keys| measure_keys(keys, &schema));
            let plan = LogicalPlan::Distinct(Distinct::On(on));
            Ok(if is_changed { Transformed::yes(plan) } else { Transformed::no(plan) })
        }
        LogicalPlan::Aggregate(aggregate) => grouped(aggregate, &schema),
        LogicalPlan::Window(_) => map_calls(plan, |call| coded_extreme(call, &schema)),
        other => Ok(Transformed::no(other)),
    })
}

fn has_intervals(schema: &DFSchema) -> bool {
    schema.fields().iter().any(|field| compared_as(field.data_type()).is_some())
}

fn compared(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut is_changed = map_comparison_sides(&mut expr, |sides| measure_all(sides, schema));
    is_changed |= match &mut expr {
        Expr::InSubquery(InSubquery { expr, subquery, .. })
        | Expr::SetComparison(SetComparison { expr, subquery, .. }) => {
            let is_of_intervals = measured(expr, schema).is_some();
            is_of_intervals && measure_rows(subquery)? && measure(expr, schema)
        }
        Expr::WindowFunction(call) => measure_window(call, schema),
        Expr::ScalarFunction(call) => match call.func.name() {
            "array_has" | "array_has_any" | "array_has_all" | "array_position" | "array_positions" => {
                call.args.iter_mut().fold(false, |is, argument| measure(argument, schema) | is)
            }
            "greatest" | "least" if call.args.iter().all(|side| is_interval(side, schema)) => {
                let args = std::mem::take(&mut call.args).into_iter().map(code_of).collect();
                let func = Arc::clone(&call.func);
                expr = interval_of(Expr::ScalarFunction(ScalarFunction { func, args }));
                true
            }
            "nullif" => match call.args.as_slice() {
                [value, other] if measured(value, schema).is_some() && !value.is_volatile() => {
                    let same = span_of(value.clone()).eq(span_of(other.clone()));
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

/// The type that is compared in the place of an expression's, if there are intervals in it.
fn measured(expr: &Expr, schema: &DFSchema) -> Option<DataType> {
    compared_as(&expr.get_type(schema).ok()?)
}

fn is_interval(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|kind| kind == INTERVAL)
}

/// Puts the span into the place of an expression of intervals; tells whether it is one.
fn measure(expr: &mut Expr, schema: &DFSchema) -> bool {
    let is_of_intervals = measured(expr, schema).is_some();
    if is_of_intervals {
        *expr = span_of(std::mem::take(expr));
    }
    is_of_intervals
}

/// The same for what is compared with each other, if all of it is of intervals, or NULL.
fn measure_all(sides: &mut [&mut Expr], schema: &DFSchema) -> bool {
    let is_null = |side: &Expr| side.get_type(schema).is_ok_and(|kind| kind.is_null());
    let fits = sides.iter().all(|side| measured(side, schema).is_some() || is_null(side));
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
    let column = span_of(Expr::Column(Column::from((relation, field))));
    let column = column.alias_qualified(relation.cloned(), field.name());
    subquery.subquery = Arc::new(LogicalPlanBuilder::from(plan.clone()).project([column])?.build()?);
    Ok(true)
}

/// A join by spans.
fn keyed(mut plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Join(join) = &plan else { return Ok(Transformed::no(plan)) };
    let mut schema = join.left.schema().as_ref().clone();
    schema.merge(join.right.schema());
    if !map_join_keys(&mut plan, |keys| measure_all(keys, &schema)) {
        return Ok(Transformed::no(plan));
    }
    if let LogicalPlan::Join(join) = &mut plan {
        // Keys of USING are columns.
        join.join_constraint = JoinConstraint::On;
    }
    Ok(Transformed::yes(plan))
}

/// Has a window be of spans where it is of intervals.
fn measure_window(call: &mut WindowFunction, schema: &DFSchema) -> bool {
    let parameters = &mut call.params;
    let is_ordered = parameters.order_by.first().is_some_and(|key| measured(&key.expr, schema).is_some());
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

/// A constant interval, or the text of one, as a span; what is neither as it is.
fn span_value(value: &ScalarValue) -> ScalarValue {
    match value.cast_to(&INTERVAL) {
        Ok(ScalarValue::IntervalMonthDayNano(Some(interval))) if !value.data_type().is_integer() => {
            ScalarValue::Decimal128(Some(span(interval)), 38, 0)
        }
        _ => value.clone(),
    }
}

/// An aggregate by spans, below a projection to what it was.
fn grouped(aggregate: Aggregate, schema: &DFSchema) -> Result<Transformed<LogicalPlan>> {
    let keys: Vec<Expr> = grouping_set_to_exprlist(&aggregate.group_expr)?.into_iter().cloned().collect();
    let is_set = matches!(aggregate.group_expr.as_slice(), [Expr::GroupingSet(_)]);
    let mut group_expr = aggregate.group_expr.clone();
    let mut is_changed = group_expr.iter_mut().fold(false, |is, key| measure_group(key, schema) | is);
    let mut functions = Vec::with_capacity(aggregate.aggr_expr.len());
    let mut coded = Vec::with_capacity(functions.len());
    for (at, function) in aggregate.aggr_expr.iter().enumerate() {
        let (function, change) = measured_aggregate(function.clone(), schema);
        is_changed |= change != Change::None;
        coded.push(change == Change::Coded);
        functions.push(match change {
            Change::None => function,
            _ => std::mem::take(unaliased_mut(&mut { function })).alias(format!("{MEASURED}{at}")),
        });
    }
    if !is_changed {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    // Behind what there was, which interval each of the keys is.
    let before = &aggregate.schema;
    let shown_from = before.fields().len();
    let mut shown = Vec::with_capacity(keys.len());
    for key in &keys {
        shown.push(match measured(key, schema) {
            None => None,
            Some(_) => {
                let value = match is_interval(key, schema) {
                    true => min_udaf().call(vec![code_of(key.clone())]),
                    false => first_value_udaf().call(vec![key.clone()]),
                };
                functions.push(value.alias(format!("{MEASURED}{}", functions.len())));
                Some(shown_from + shown.iter().flatten().count())
            }
        });
    }
    let plan = LogicalPlan::Aggregate(Aggregate::try_new(aggregate.input, group_expr, functions)?);
    let functions_from = shown_from - coded.len();
    let column = |at: usize| Expr::Column(Column::from(plan.schema().qualified_field(at)));
    let columns = before.iter().enumerate().map(|(at, (relation, field))| {
        let value = match shown.get(at) {
            Some(Some(value)) => {
                let is_coded = *plan.schema().field(*value).data_type() != *field.data_type();
                let value = if is_coded { interval_of(column(*value)) } else { column(*value) };
                match is_set {
                    // In a row of another grouping set it is no key.
                    true => when(column(at).is_not_null(), value).end()?,
                    // What is above knows of none.
                    false if !field.is_nullable() && is_coded => coalesce(vec![value, none()]),
                    false => value,
                }
            }
            _ if at >= functions_from && coded[at - functions_from] => interval_of(column(at)),
            _ => column(at),
        };
        Ok(value.alias_qualified(relation.cloned(), field.name()))
    });
    let columns = columns.collect::<Result<Vec<Expr>>>()?;
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?)))
}

/// A key of a group, or a set of them.
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
    /// What it yields is as before.
    Measured,
    /// It yields a code.
    Coded,
}

/// An aggregate of spans or codes where it compares intervals.
fn measured_aggregate(mut expr: Expr, schema: &DFSchema) -> (Expr, Change) {
    let mut change = Change::None;
    if let Expr::AggregateFunction(call) = unaliased_mut(&mut expr) {
        let parameters = &mut call.params;
        // What DISTINCT is ordered by has to be its argument.
        if !parameters.distinct && measure_keys(&mut parameters.order_by, schema) {
            change = Change::Measured;
        }
        let is_of_interval = matches!(parameters.args.as_slice(), [one] if is_interval(one, schema));
        if is_of_interval && is_extreme(call.func.name()) {
            code_first(&mut parameters.args);
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

/// Has `min` or `max` over a window be of codes; tells what makes the interval of them.
fn coded_extreme(call: &mut Expr, schema: &DFSchema) -> Option<ResultRewrite> {
    let Expr::WindowFunction(call) = call else { return None };
    let arguments = &mut call.params.args;
    let is_of_interval = matches!(arguments.as_slice(), [one] if is_interval(one, schema));
    if !is_of_interval || !is_extreme(call.fun.name()) {
        return None;
    }
    code_first(arguments);
    Some(interval_of)
}

fn is_extreme(aggregate: &str) -> bool {
    matches!(aggregate, "min" | "max")
}

fn code_first(arguments: &mut [Expr]) {
    if let Some(first) = arguments.first_mut() {
        *first = code_of(std::mem::take(first));
    }
}

/// The interval that is no time.
fn none() -> Expr {
    lit(ScalarValue::new_interval_mdn(0, 0, 0))
}

fn span_of(expr: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(span_function(), vec![expr]))
}

fn code_of(expr: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(code_function(), vec![expr]))
}

fn interval_of(code: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(coded_function(), vec![code]))
}
