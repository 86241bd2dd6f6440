//! Type coercion of timestamps with dates, texts and other timestamps, as in PostgreSQL.
//!
//! DataFusion coerces dates and texts to 64-bit nanoseconds, which end in 2262, while many warehouses use
//! `9999-12-31` as an open end. Tables have microseconds, so dates and texts become microseconds, and so does
//! the current time.
//!
//! When a column has a coarser unit than the value it is compared with, DataFusion truncates the value to
//! that unit, which changes the result of the comparison. And DataFusion types date + interval as a date,
//! dropping the interval's hours: an earlier planner types it as a timestamp
//! (`binder/interval_arithmetic.rs`), and comparisons with dates are rewritten back to dates.
//!
//! ```text
//! ts = day                               ─►  ts = CAST(day AS Timestamp(µs))
//! ts = '9999-12-31'                      ─►  ts = CAST('9999-12-31' AS Timestamp(µs))
//! day + INTERVAL '1 hour'                ─►  CAST(day AS Timestamp(µs)) + INTERVAL '1 hour'
//! day < CAST(e AS Timestamp(µs)) + i     ─►  day < e + i, i an interval of whole days
//! day + 3                                ─►  day + INTERVAL '3 days'
//! s < t, s in whole seconds, t constant  ─►  s < harrier_ceiling_s(t)   (TimestampPrecisionComparisons, too)
//! s = t                                  ─►  s = harrier_floor_s(t) AND s = harrier_ceiling_s(t)
//! ```
//!
//! `TimestampPrecisionComparisons` can go when a comparison with a finer constant is unwrapped by the
//! preimage of the cast (apache/datafusion#22906, open); related: apache/datafusion#22142,
//! apache/datafusion#22837.
//!
//! `TimestampCoercion` can go when dates, texts and now() are coerced to microseconds next to timestamps, and
//! date + interval is a timestamp (apache/datafusion#19527, open); PostgreSQL 9.9 and 8.5.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Between, Cast, InList, InSubquery, ScalarFunction, SetComparison};
use datafusion::logical_expr::expr_schema::cast_subquery;
use datafusion::logical_expr::utils::{conjunction, disjunction};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, Union, binary_expr,
    cast, not,
};
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};
use harrier_functions::datetime::time_unit::{self, Side};
use harrier_functions::guard::opaque;
use harrier_functions::math::checked::Operation;

use crate::rewrite::{
    has_stale_schema, input_schema, is_comparison, map_comparison_sides, map_join_keys, rewrite_expressions,
};

/// The analyzer rule; runs before type coercion.
#[derive(Debug)]
pub struct TimestampCoercion;

impl AnalyzerRule for TimestampCoercion {
    fn name(&self) -> &str {
        "timestamp_coercion"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(coerce_node)?.data)
    }
}

/// The optimizer rule for comparisons that only become comparisons with a coarser column by filter pushdown.
#[derive(Debug)]
pub struct TimestampPrecisionComparisons;

impl OptimizerRule for TimestampPrecisionComparisons {
    fn name(&self) -> &str {
        "timestamp_precision_comparisons"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if !matches!(plan, LogicalPlan::Filter(_) | LogicalPlan::TableScan(_) | LogicalPlan::Join(_)) {
            return Ok(Transformed::no(plan));
        }
        let scope = Scope { schema: &input_schema(&plan)? };
        plan.map_expressions(|expr| {
            expr.transform_up(|expr| {
                Ok(match scope.in_column_unit(&expr) {
                    Some(exact) => Transformed::yes(exact),
                    None => Transformed::no(expr),
                })
            })
        })
    }
}

/// Applies the rule to one node.
pub fn coerce_node(mut plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if let LogicalPlan::Union(union) = plan {
        return coerce_union(union);
    }
    // Types of expressions below may have changed.
    plan = plan.recompute_schema()?;
    let scope = Scope { schema: &input_schema(&plan)? };
    let is_changed =
        map_join_keys(&mut plan, |keys| scope.compare_as_days(keys) || scope.coerce_sides(keys, Texts::All));
    let mut changed = rewrite_expressions(plan, |expr| scope.coerce_expr(expr))?;
    changed.transformed |= is_changed;
    Ok(changed)
}

/// Casts the inputs of a UNION to a common timestamp type, where their columns are dates or timestamps of
/// several types. An uncoerced union has the type of its first input.
fn coerce_union(mut union: Union) -> Result<Transformed<LogicalPlan>> {
    let width = union.inputs.iter().map(|input| input.schema().fields().len()).min().unwrap_or(0);
    let wanted = (0..width).map(|at| {
        let types = union.inputs.iter().map(|input| input.schema().field(at).data_type().clone());
        let types: Vec<DataType> = types.collect();
        union_type(&types)
    });
    let wanted: Vec<Option<DataType>> = wanted.collect();
    if wanted.iter().all(Option::is_none) {
        return match has_stale_schema(&union) {
            true => Ok(Transformed::yes(LogicalPlan::Union(Union::try_new_with_loose_types(union.inputs)?))),
            false => Ok(Transformed::no(LogicalPlan::Union(union))),
        };
    }
    for input in &mut union.inputs {
        let columns = input.schema().iter().enumerate().map(|(at, (table, field))| {
            let column = Expr::Column(Column::from((table, field)));
            let wanted = wanted.get(at).cloned().flatten();
            match wanted.filter(|kind| !field.data_type().is_null() && field.data_type() != kind) {
                Some(kind) => cast(column, kind).alias_qualified(table.cloned(), field.name()),
                None => column,
            }
        });
        let columns: Vec<Expr> = columns.collect();
        let coerced = LogicalPlanBuilder::from(LogicalPlan::clone(input)).project(columns)?.build()?;
        *input = Arc::new(coerced);
    }
    Ok(Transformed::yes(LogicalPlan::Union(Union::try_new_with_loose_types(union.inputs)?)))
}

/// The common type of dates and timestamps of several types; `None` for other types.
fn union_type(types: &[DataType]) -> Option<DataType> {
    let is_known = |kind: &DataType| matches!(kind, DataType::Timestamp(..) | DataType::Null) || is_day(kind);
    let (unit, zone) = finest_unit(types).filter(|_| types.iter().all(is_known))?;
    let wanted = DataType::Timestamp(unit, zone);
    types.iter().any(|kind| !kind.is_null() && *kind != wanted).then_some(wanted)
}

/// The texts that are cast to timestamps.
#[derive(Clone, Copy, PartialEq)]
enum Texts {
    All,
    /// Only string literals, whose type PostgreSQL infers.
    Literals,
}

/// The input columns of a node.
struct Scope<'a> {
    schema: &'a DFSchema,
}

impl Scope<'_> {
    fn coerce_expr(&self, mut expr: Expr) -> Result<Transformed<Expr>> {
        let mut is_changed = map_comparison_sides(&mut expr, |sides| {
            self.compare_as_days(sides) || self.coerce_sides(sides, Texts::All)
        });
        is_changed |= match &mut expr {
            Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Plus | Operator::Minus), right }) => {
                (*op == Operator::Minus && self.coerce_days(&mut [left, right]))
                    || self.keep_time_parts(left, right)
                    || self.coerce_day_numbers(left, *op, right)
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
                self.hide_day_cast(left, right) || self.hide_day_cast(right, left)
            }
            Expr::Case(case) => {
                let results = case.when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
                let mut sides: Vec<&mut Expr> = results.collect();
                sides.extend(case.else_expr.as_deref_mut());
                self.coerce_sides(&mut sides, Texts::Literals)
            }
            Expr::Cast(Cast { expr: inner, field }) => match field.data_type() {
                DataType::Timestamp(unit, zone) => self.round(inner, *unit, zone.as_ref()),
                _ => false,
            },
            Expr::InSubquery(InSubquery { expr, subquery, .. })
            | Expr::SetComparison(SetComparison { expr, subquery, .. }) => {
                self.coerce_subquery(expr, subquery)?
            }
            Expr::ScalarFunction(function) => match function.name() {
                "coalesce" | "greatest" | "least" | "nullif" => {
                    let mut sides: Vec<&mut Expr> = function.args.iter_mut().collect();
                    self.coerce_sides(&mut sides, Texts::Literals)
                }
                "date_trunc" | "date_bin" => {
                    let is_changed = match function.args.get_mut(1) {
                        Some(day) if self.type_of(day).is_some_and(|kind| is_day(&kind)) => {
                            let kind = DataType::Timestamp(TimeUnit::Microsecond, None);
                            *day = cast(std::mem::take(day), kind);
                            true
                        }
                        _ => false,
                    };
                    match function.args.as_mut_slice() {
                        [_, moment, origin] => self.coerce_zones(moment, origin) || is_changed,
                        _ => is_changed,
                    }
                }
                "now" | "statement_timestamp" => match self.type_of(&expr) {
                    Some(DataType::Timestamp(TimeUnit::Nanosecond, zone)) => {
                        expr = cast(expr, DataType::Timestamp(TimeUnit::Microsecond, zone));
                        true
                    }
                    _ => false,
                },
                _ => false,
            },
            _ => false,
        };
        Ok(match self.in_column_unit(&expr) {
            Some(exact) => Transformed::yes(exact),
            None if is_changed => Transformed::yes(expr),
            None => Transformed::no(expr),
        })
    }

    /// Casts a local time next to an instant to that zone: DataFusion would interpret it as UTC. Returns
    /// whether it changed anything.
    fn coerce_zones(&self, one: &mut Expr, other: &mut Expr) -> bool {
        let zone = |kind: Option<DataType>| match kind {
            Some(DataType::Timestamp(_, zone)) => zone,
            _ => None,
        };
        let (side, zone) = match (zone(self.type_of(one)), zone(self.type_of(other))) {
            (Some(zone), None) => (other, zone),
            (None, Some(zone)) => (one, zone),
            _ => return false,
        };
        *side = cast(std::mem::take(side), DataType::Timestamp(TimeUnit::Microsecond, Some(zone)));
        true
    }

    fn type_of(&self, expr: &Expr) -> Option<DataType> {
        expr.get_type(self.schema).ok()
    }

    /// Casts dates and texts next to timestamps to timestamps; returns whether it changed anything.
    fn coerce_sides(&self, sides: &mut [&mut Expr], texts: Texts) -> bool {
        let types: Vec<Option<DataType>> = sides.iter().map(|side| self.type_of(side)).collect();
        let is_other = |(side, kind): (&&mut Expr, &Option<DataType>)| {
            texts == Texts::Literals && kind.as_ref().is_some_and(DataType::is_string) && !is_literal(side)
        };
        if sides.iter().zip(&types).any(is_other) {
            return false;
        }
        let known: Vec<DataType> = types.iter().flatten().cloned().collect();
        let Some(common) = common_type(&known) else { return false };
        for (side, kind) in sides.iter_mut().zip(types) {
            if kind.is_some_and(|kind| is_day(&kind) || kind.is_string()) {
                **side = cast(std::mem::take(*side), common.clone());
            }
        }
        true
    }

    /// The same where a text has another type, such as an interval.
    fn coerce_days(&self, sides: &mut [&mut Expr]) -> bool {
        let is_text = |side: &&mut Expr| self.type_of(side).is_some_and(|kind| kind.is_string());
        !sides.iter().any(is_text) && self.coerce_sides(sides, Texts::All)
    }

    /// The same for comparisons with subqueries.
    fn coerce_subquery(&self, expr: &mut Expr, subquery: &mut Subquery) -> Result<bool> {
        let Some(kind) = self.type_of(expr) else { return Ok(false) };
        let other = subquery.subquery.schema().field(0).data_type().clone();
        let Some(common) = common_type(&[kind.clone(), other]) else { return Ok(false) };
        match matches!(kind, DataType::Timestamp(..)) {
            true => *subquery = cast_subquery(subquery.clone(), &common)?,
            false => *expr = cast(std::mem::take(expr), common),
        }
        Ok(true)
    }

    /// Rounds a value cast to a coarser timestamp, where the cast would truncate.
    fn round(&self, expr: &mut Expr, unit: TimeUnit, zone: Option<&Arc<str>>) -> bool {
        let kind = self.type_of(expr);
        let is_text = kind.as_ref().is_some_and(DataType::is_string);
        match kind {
            Some(DataType::Timestamp(own, _)) if fineness(own) > fineness(unit) => {}
            _ if is_text && fineness(unit) < fineness(TimeUnit::Microsecond) => {
                let kind = DataType::Timestamp(TimeUnit::Microsecond, zone.cloned());
                *expr = cast(std::mem::take(expr), kind);
            }
            _ => return false,
        }
        let nearest = time_unit::function(unit, Side::Nearest);
        *expr = Expr::ScalarFunction(ScalarFunction::new_udf(nearest, vec![std::mem::take(expr)]));
        true
    }

    /// Casts a date to a timestamp in microseconds if an interval with hours is added or subtracted, and a
    /// coarse timestamp if the interval has smaller units.
    fn keep_time_parts(&self, left: &mut Expr, right: &mut Expr) -> bool {
        let is_interval = |expr: &Expr| matches!(self.type_of(expr), Some(DataType::Interval(_)));
        let (moment, interval) = match (is_interval(left), is_interval(right)) {
            (false, true) => (left, right),
            (true, false) => (right, left),
            _ => return false,
        };
        let (unit, zone) = match self.type_of(moment) {
            Some(DataType::Timestamp(TimeUnit::Second, zone)) => (1_000_000_000, zone),
            Some(DataType::Timestamp(TimeUnit::Millisecond, zone)) => (1_000_000, zone),
            // A date has no time of day, so even 24 hours are not whole.
            Some(kind) if is_day(&kind) => (i64::MAX, None),
            _ => return false,
        };
        if self.is_whole(interval, unit) {
            return false;
        }
        *moment = cast(std::mem::take(moment), DataType::Timestamp(TimeUnit::Microsecond, zone));
        true
    }

    /// Compares date plus interval of whole days with dates as dates, so that files can be pruned by their
    /// date bounds. Returns whether there are any.
    fn compare_as_days(&self, sides: &mut [&mut Expr]) -> bool {
        let is_day = |side: &Expr| self.type_of(side).as_ref().is_some_and(is_day);
        if !sides.iter().any(|side| is_day(side)) {
            return false;
        }
        let days: Vec<Option<Expr>> = sides.iter().map(|side| self.as_day(side)).collect();
        let fits = sides.iter().zip(&days).all(|(side, days)| days.is_some() || is_day(side));
        if !fits || days.iter().all(Option::is_none) {
            return false;
        }
        for (side, days) in sides.iter_mut().zip(days) {
            if let Some(days) = days {
                **side = days;
            }
        }
        true
    }

    /// The date that a date cast to a timestamp, plus intervals of whole days, amounts to.
    fn as_day(&self, expr: &Expr) -> Option<Expr> {
        let Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Plus | Operator::Minus), right }) = expr
        else {
            return None;
        };
        let day = |moment: &Expr| match moment {
            Expr::Cast(Cast { expr: day, field })
                if *field.data_type() == DataType::Timestamp(TimeUnit::Microsecond, None) =>
            {
                self.type_of(day).filter(is_day).map(|_| Expr::clone(day))
            }
            other => self.as_day(other),
        };
        let is_interval = |expr: &Expr| matches!(self.type_of(expr), Some(DataType::Interval(_)));
        match (is_interval(left), is_interval(right)) {
            (false, true) if self.is_whole(right, i64::MAX) => {
                Some(binary_expr(day(left)?, *op, Expr::clone(right)))
            }
            (true, false) if *op == Operator::Plus && self.is_whole(left, i64::MAX) => {
                Some(binary_expr(Expr::clone(left), *op, day(right)?))
            }
            _ => None,
        }
    }

    /// Casts a number added to or subtracted from a date to an interval of days, and both sides of date minus
    /// date to day numbers. DataFusion would use hours for the first, and treats the second as a duration in
    /// cardinality estimates.
    fn coerce_day_numbers(&self, left: &mut Expr, op: Operator, right: &mut Expr) -> bool {
        let is_day = |expr: &Expr| self.type_of(expr).as_ref().is_some_and(is_day);
        let is_number = |expr: &Expr| self.type_of(expr).as_ref().is_some_and(DataType::is_integer);
        let number = match (is_day(left), is_day(right)) {
            (true, true) if op == Operator::Minus => {
                for side in [left, right] {
                    let days = cast(std::mem::take(side), DataType::Date32);
                    *side = cast(cast(days, DataType::Int32), DataType::Int64);
                }
                return true;
            }
            (true, false) if is_number(right) => right,
            (false, true) if op == Operator::Plus && is_number(left) => left,
            _ => return false,
        };
        let days = |days| ScalarValue::new_interval_mdn(0, days, 0);
        *number = match number {
            Expr::Literal(ScalarValue::Int64(Some(count)), _) if i32::try_from(*count).is_ok() => {
                Expr::Literal(days(*count as i32), None)
            }
            _ => {
                let count = cast(std::mem::take(number), DataType::Float64);
                let arguments = vec![Expr::Literal(days(1), None), count];
                let scaled = ScalarFunction::new_udf(Operation::ScaleInterval.function(), arguments);
                Expr::ScalarFunction(scaled)
            }
        };
        true
    }

    /// Hides the date cast of a timestamp that is compared with a non-constant: DataFusion's cardinality
    /// estimate maps a date to a range of timestamps with more values than there are rows, and fails.
    fn hide_day_cast(&self, side: &mut Expr, other: &Expr) -> bool {
        let Expr::Cast(Cast { expr: moment, field }) = &*side else { return false };
        let is_moment = matches!(self.type_of(moment), Some(DataType::Timestamp(..)));
        if !is_moment || !is_day(field.data_type()) || !other.any_column_refs() || !side.any_column_refs() {
            return false;
        }
        let day = std::mem::take(side);
        *side = Expr::ScalarFunction(ScalarFunction::new_udf(opaque::function(), vec![day]));
        true
    }

    /// Whether the time part of an interval is known to be a multiple of `unit` nanoseconds.
    fn is_whole(&self, interval: &Expr, unit: i64) -> bool {
        match interval {
            Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), _) => {
                interval.nanoseconds % unit == 0
            }
            Expr::Literal(ScalarValue::IntervalDayTime(Some(interval)), _) => {
                i64::from(interval.milliseconds) * 1_000_000 % unit == 0
            }
            Expr::Literal(ScalarValue::IntervalYearMonth(_), _) => true,
            Expr::Literal(value, _) => value.is_null(),
            Expr::Alias(alias) => self.is_whole(&alias.expr, unit),
            Expr::Negative(interval) => self.is_whole(interval, unit),
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Plus | Operator::Minus, right }) => {
                self.is_whole(left, unit) && self.is_whole(right, unit)
            }
            // See `binder/interval_arithmetic.rs`.
            Expr::ScalarFunction(function) if function.func == Operation::ScaleInterval.function() => {
                let [interval, Expr::Cast(Cast { expr: factor, .. })] = function.args.as_slice() else {
                    return false;
                };
                self.type_of(factor).is_some_and(|kind| kind.is_integer()) && self.is_whole(interval, unit)
            }
            _ => false,
        }
    }

    /// Rewrites a comparison of a coarse timestamp column with a finer constant to the column's unit; `None`
    /// for other expressions.
    fn in_column_unit(&self, expr: &Expr) -> Option<Expr> {
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
                match (self.unit_if_finer(left, right), self.unit_if_finer(right, left)) {
                    (Some(unit), _) => compare_in_unit(unit, self.strip_finer_casts(left), *op, right),
                    (_, Some(unit)) => compare_in_unit(unit, self.strip_finer_casts(right), op.swap()?, left),
                    _ => None,
                }
            }
            Expr::Between(Between { expr, negated, low, high }) => {
                let unit = self.unit_if_finer(expr, low).or_else(|| self.unit_if_finer(expr, high))?;
                let bound = |op, bound: &Expr| match self.unit_if_finer(expr, bound) {
                    Some(_) => compare_in_unit(unit, self.strip_finer_casts(expr), op, bound),
                    None => Some(binary_expr(expr.as_ref().clone(), op, bound.clone())),
                };
                let between = bound(Operator::GtEq, low)?.and(bound(Operator::LtEq, high)?);
                Some(if *negated { not(between) } else { between })
            }
            Expr::InList(InList { expr, list, negated }) => {
                list.iter().find_map(|element| self.unit_if_finer(expr, element))?;
                let equal = |element: &Expr| match self.unit_if_finer(expr, element) {
                    Some(unit) => compare_in_unit(unit, self.strip_finer_casts(expr), Operator::Eq, element),
                    None => Some(expr.as_ref().clone().eq(element.clone())),
                };
                let any = disjunction(list.iter().map(equal).collect::<Option<Vec<_>>>()?)?;
                Some(if *negated { not(any) } else { any })
            }
            _ => None,
        }
    }

    /// Strips casts of a timestamp to finer units, as DataFusion does.
    fn strip_finer_casts<'e>(&self, expr: &'e Expr) -> &'e Expr {
        let Expr::Cast(Cast { expr: inner, field }) = expr else { return expr };
        match (self.type_of(inner), field.data_type()) {
            (Some(DataType::Timestamp(own, own_zone)), DataType::Timestamp(unit, zone))
                if own_zone == *zone && fineness(own) <= fineness(*unit) =>
            {
                self.strip_finer_casts(inner)
            }
            _ => expr,
        }
    }

    /// The unit of a timestamp column, if the constant's unit is finer.
    fn unit_if_finer(&self, column: &Expr, constant: &Expr) -> Option<TimeUnit> {
        let (DataType::Timestamp(unit, _), DataType::Timestamp(other, _)) =
            (self.type_of(self.strip_finer_casts(column))?, self.type_of(constant)?)
        else {
            return None;
        };
        let is_constant = !constant.any_column_refs() && !constant.is_volatile() && !has_query(constant);
        (fineness(other) > fineness(unit) && is_constant && column.any_column_refs() && !column.is_volatile())
            .then_some(unit)
    }
}

/// Builds `column op constant` for a column in units of `unit`.
fn compare_in_unit(unit: TimeUnit, column: &Expr, op: Operator, constant: &Expr) -> Option<Expr> {
    let with = |op: Operator, side: Side| {
        let rounded = ScalarFunction::new_udf(time_unit::function(unit, side), vec![constant.clone()]);
        binary_expr(column.clone(), op, Expr::ScalarFunction(rounded))
    };
    let both = [Side::Floor, Side::Ceiling].map(|side| with(op, side));
    match op {
        Operator::Lt | Operator::GtEq => Some(with(op, Side::Ceiling)),
        Operator::LtEq | Operator::Gt => Some(with(op, Side::Floor)),
        Operator::Eq | Operator::IsNotDistinctFrom => conjunction(both),
        Operator::NotEq | Operator::IsDistinctFrom => disjunction(both),
        _ => None,
    }
}

/// The common type of timestamps, dates and texts, if they are of several kinds.
pub fn common_type_of(types: &[DataType]) -> Option<DataType> {
    let is_known = |kind: &DataType| {
        matches!(kind, DataType::Timestamp(..) | DataType::Null) || is_day(kind) || kind.is_string()
    };
    if types.iter().all(is_known) { common_type(types) } else { None }
}

/// The timestamp type that dates and texts are cast to; `None` without dates and texts, or without
/// timestamps.
fn common_type(types: &[DataType]) -> Option<DataType> {
    let has_texts = types.iter().any(DataType::is_string);
    if !has_texts && !types.iter().any(is_day) {
        return None;
    }
    let (unit, zone) = finest_unit(types)?;
    let unit = match unit {
        TimeUnit::Second | TimeUnit::Millisecond if has_texts => TimeUnit::Microsecond,
        other => other,
    };
    Some(DataType::Timestamp(unit, zone))
}

/// The finest unit of the timestamps, and the zone of any of them; `None` without timestamps.
fn finest_unit(types: &[DataType]) -> Option<(TimeUnit, Option<Arc<str>>)> {
    let timestamps = types.iter().filter_map(|kind| match kind {
        DataType::Timestamp(unit, zone) => Some((*unit, zone.clone())),
        _ => None,
    });
    timestamps.reduce(|one, other| {
        let unit = if fineness(other.0) > fineness(one.0) { other.0 } else { one.0 };
        (unit, one.1.or(other.1))
    })
}

fn fineness(unit: TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    }
}

fn is_day(kind: &DataType) -> bool {
    matches!(kind, DataType::Date32 | DataType::Date64)
}

fn is_literal(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(..))
}

/// Whether an expression contains a subquery or an outer reference.
fn has_query(expr: &Expr) -> bool {
    let is_query = |expr: &Expr| {
        matches!(
            expr,
            Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::SetComparison(_)
                | Expr::OuterReferenceColumn(..)
        )
    };
    expr.exists(|expr| Ok(is_query(expr))).unwrap_or(true)
}
