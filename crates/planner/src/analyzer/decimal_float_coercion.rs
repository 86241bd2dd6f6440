//! Type coercion between NUMERIC, DOUBLE and REAL as in PostgreSQL. A NUMERIC compared with a double is cast
//! to double. DataFusion casts both to decimals with fifteen fractional digits, which can hold neither
//! infinity nor many other values.
//!
//! A REAL with an integer or NUMERIC operand is cast to double too, in comparisons and arithmetic: a real has
//! a 24-bit mantissa, and DataFusion casts both to it (`16777216::real = 16777217`). The same holds for roots
//! and roundings of a REAL. A literal that a real represents exactly stays a real in comparisons, so that
//! pruning by file statistics still works.
//!
//! Literals with a decimal point, and expressions of them and of decimals, are NUMERIC in PostgreSQL and
//! doubles in DataFusion. Such a literal compared with a decimal or added to one becomes the decimal as
//! written. Expressions of them are left to DataFusion in comparisons, so that `price < 0.2 * average`
//! compares decimals.
//!
//! ```text
//! n = d                 ─►  CAST(n AS Float64) = d                           n numeric, d a double
//! r = 16777217          ─►  CAST(r AS Float64) = CAST(16777217 AS Float64)   r a real
//! n < 0.1               ─►  n < 0.1::decimal, as it is written
//! coalesce(d, n)        ─►  coalesce(d, CAST(n AS Float64))
//! CAST(n AS Float64)    ─►  CAST(harrier_nearest_double(n) AS Float64)       NearestDoubleCasts
//! CAST(0.1 AS Decimal)  ─►  CAST(0.1::decimal AS Decimal)                    NearestDoubleCasts
//! ```
//!
//! `DecimalDoubleComparisons` can go when DataFusion compares decimal and double as doubles
//! (apache/datafusion#14272, open) and real and integer as doubles (apache/datafusion#8302, open); PostgreSQL
//! 10.2.
//!
//! `NearestDoubleCasts` can go when a cast of a decimal to a double rounds once; no exact issue found;
//! related: apache/datafusion#7121; PostgreSQL 4.1.2.6.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, JoinType, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Cast, InList, InSubquery, ScalarFunction, SetComparison, TryCast};
use datafusion::logical_expr::expr_schema::cast_subquery;
use datafusion::logical_expr::{
    BinaryExpr, Distinct, Expr, ExprSchemable, LogicalPlan, Operator, Subquery, cast,
};
use datafusion::optimizer::AnalyzerRule;
use harrier_functions::math::decimal_to_double::{self, DIGITS_EXACT};
use harrier_functions::math::float_to_decimal;

use crate::rewrite::{input_schema, map_comparison_sides, map_join_keys, rewrite_expressions};

mod results;

/// The analyzer rule; runs before type coercion.
#[derive(Debug)]
pub struct DecimalDoubleComparisons;

impl AnalyzerRule for DecimalDoubleComparisons {
    fn name(&self) -> &str {
        "decimal_double_comparisons"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        // Above a changed node, column types differ.
        let mut is_changed = false;
        let changed = plan.transform_up_with_subqueries(|plan| {
            let plan = if is_changed { plan.recompute_schema()? } else { plan };
            let changed = coerce_node(plan)?;
            is_changed |= changed.transformed;
            Ok(changed)
        })?;
        Ok(changed.data)
    }
}

/// The analyzer rule that casts decimals to the nearest double, and literals to the decimal as written; runs
/// after type coercion, which adds casts.
#[derive(Debug)]
pub struct NearestDoubleCasts;

impl AnalyzerRule for NearestDoubleCasts {
    fn name(&self) -> &str {
        "nearest_double_casts"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|plan| {
            let schema = input_schema(&plan)?;
            rewrite_expressions(plan, |mut expr| {
                let is_changed = match &mut expr {
                    Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
                        match field.data_type() {
                            kind if kind.is_floating() => convert_to_double(expr, &schema),
                            kind if kind.is_decimal() => restore_decimal(expr),
                            _ => false,
                        }
                    }
                    _ => false,
                };
                Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
            })
        })?;
        Ok(changed.data)
    }
}

/// Converts a decimal that a cast would round twice to a double first; returns whether it changed anything.
fn convert_to_double(expr: &mut Expr, schema: &DFSchema) -> bool {
    use DataType::{Decimal32, Decimal64, Decimal128};
    let is_long = match expr.get_type(schema) {
        Ok(Decimal32(precision, _) | Decimal64(precision, _) | Decimal128(precision, _)) => {
            precision > DIGITS_EXACT
        }
        _ => false,
    };
    if is_long {
        let decimal = std::mem::take(expr);
        *expr = Expr::ScalarFunction(ScalarFunction::new_udf(decimal_to_double::function(), vec![decimal]));
    }
    is_long
}

/// Functions that exist for doubles or NUMERIC; a REAL argument is cast to double.
const DOUBLE_FUNCTIONS: &[&str] = &[
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "cos", "cosh", "cot",
    "degrees", "exp", "floor", "ln", "log", "log10", "log2", "power", "radians", "round", "sign", "signum",
    "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
];

/// Casts the scale argument to the type that the function expects: the function's return type depends on its
/// value.
fn cast_scale(function: &mut ScalarFunction) -> bool {
    let Some(Expr::Literal(places, _)) = function.args.get_mut(1) else { return false };
    match places {
        ScalarValue::Int64(Some(count)) if i32::try_from(*count).is_ok() => {
            *places = ScalarValue::Int32(Some(*count as i32));
            true
        }
        _ => false,
    }
}

/// Replaces a literal with a decimal point by the decimal as written, of which a cast would round the last
/// digit; returns whether it changed anything.
fn restore_decimal(expr: &mut Expr) -> bool {
    let decimal = decimal_literal(expr).flatten();
    decimal.map(|decimal| *expr = Expr::Literal(decimal, None)).is_some()
}

/// Applies the rule to one node.
pub fn coerce_node(mut plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = input_schema(&plan)?;
    let inputs: Vec<LogicalPlan> = plan.inputs().into_iter().cloned().collect();
    let scope = Scope { schema: &schema, inputs: inputs.iter().collect() };
    let is_changed = map_join_keys(&mut plan, |keys| scope.coerce_sides(keys));
    let mut changed = rewrite_expressions(plan, |expr| scope.coerce_expr(expr))?;
    changed.transformed |= is_changed;
    changed.transform_data(results::coerce_union)
}

/// The input columns of a node.
struct Scope<'a> {
    schema: &'a DFSchema,
    inputs: Vec<&'a LogicalPlan>,
}

impl Scope<'_> {
    fn coerce_expr(&self, mut expr: Expr) -> Result<Transformed<Expr>> {
        let is_changed = match &mut expr {
            Expr::InSubquery(InSubquery { expr, subquery, .. })
            | Expr::SetComparison(SetComparison { expr, subquery, .. }) => {
                self.coerce_subquery(expr, subquery)?
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_arithmetic(*op) => {
                self.widen_real(left, right)
                    || matches!(op, Operator::Plus | Operator::Minus) && self.coerce_addition(left, right)
            }
            Expr::Cast(Cast { expr, field }) if field.data_type().is_decimal() => {
                self.convert_to_decimal(expr, field.data_type())
            }
            Expr::ScalarFunction(function) if DOUBLE_FUNCTIONS.contains(&function.name()) => {
                let is_scale_cast = matches!(function.name(), "round" | "trunc") && cast_scale(function);
                self.widen_arguments(function) || is_scale_cast
            }
            other => {
                let is_coerced = self.cast_list_to_real(other)
                    || map_comparison_sides(other, |sides| self.coerce_sides(sides));
                self.coerce_alternatives(other) || self.rewrite_nullif(other) || is_coerced
            }
        };
        Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
    }

    /// Casts operands of a comparison to double if one is a double and another a decimal, or one a real and
    /// another an integer; returns whether it changed anything.
    fn coerce_sides(&self, sides: &mut [&mut Expr]) -> bool {
        let types: Vec<Option<DataType>> = sides.iter().map(|side| side.get_type(self.schema).ok()).collect();
        if !types.iter().flatten().any(is_decimal) {
            let is_wider = |(side, kind): (&&mut Expr, &Option<DataType>)| {
                kind.as_ref().is_some_and(DataType::is_integer) && !is_exact_real(side)
            };
            let is_mixed = types.iter().flatten().any(is_real) && sides.iter().zip(&types).any(is_wider);
            return is_mixed && widen(sides, &types);
        }
        let literals = sides.iter().map(|side| decimal_literal(side)).collect::<Vec<_>>();
        let is_beyond = literals.iter().any(|literal| matches!(literal, Some(None)));
        if is_beyond || sides.iter().any(|side| self.is_double(side)) {
            return widen(sides, &types);
        }
        let mut is_changed = false;
        for (side, literal) in sides.iter_mut().zip(literals) {
            if let Some(Some(decimal)) = literal {
                **side = Expr::Literal(decimal, None);
                is_changed = true;
            }
        }
        is_changed
    }

    /// Casts the numbers of an IN list to real if the searched value is a real: PostgreSQL treats a list of
    /// several as an array. Returns whether it changed anything.
    fn cast_list_to_real(&self, list: &mut Expr) -> bool {
        let Expr::InList(InList { expr, list, .. }) = list else { return false };
        if list.len() < 2 || !expr.get_type(self.schema).is_ok_and(|kind| is_real(&kind)) {
            return false;
        }
        let real = |item: &Expr| match item {
            Expr::Literal(number, _) if number.is_null() || number.data_type().is_numeric() => {
                // A number out of range of a real keeps its type.
                let real = number.cast_to(&DataType::Float32).ok()?;
                (!matches!(real, ScalarValue::Float32(Some(real)) if real.is_infinite())).then_some(real)
            }
            _ => None,
        };
        let reals: Option<Vec<ScalarValue>> = list.iter().map(real).collect();
        let Some(reals) = reals else { return false };
        let is_same = list.iter().all(|item| matches!(item, Expr::Literal(ScalarValue::Float32(_), _)));
        for (item, real) in list.iter_mut().zip(reals) {
            *item = Expr::Literal(real, None);
        }
        !is_same
    }

    /// Casts both operands of arithmetic to double if one is a real and the other an integer or a decimal;
    /// returns whether it changed anything.
    fn widen_real(&self, left: &mut Expr, right: &mut Expr) -> bool {
        let mut sides = [left, right];
        let types: Vec<Option<DataType>> = sides.iter().map(|side| side.get_type(self.schema).ok()).collect();
        let is_whole = |kind: &DataType| kind.is_integer() || is_decimal(kind);
        let is_mixed = types.iter().flatten().any(is_real) && types.iter().flatten().any(is_whole);
        is_mixed && widen(&mut sides, &types)
    }

    /// Casts real arguments to double for functions that PostgreSQL does not define for reals; returns
    /// whether it changed anything.
    fn widen_arguments(&self, function: &mut ScalarFunction) -> bool {
        let mut is_changed = false;
        for argument in &mut function.args {
            if argument.get_type(self.schema).is_ok_and(|kind| is_real(&kind)) {
                *argument = cast(std::mem::take(argument), DataType::Float64);
                is_changed = true;
            }
        }
        is_changed
    }

    /// Converts a float to a decimal by its significant digits; returns whether it was a float. A value that
    /// is NUMERIC in PostgreSQL has more digits.
    fn convert_to_decimal(&self, expr: &mut Expr, kind: &DataType) -> bool {
        let is_float = matches!(kind, DataType::Decimal128(_, 0..)) && self.is_double(expr);
        match ScalarValue::try_from(kind) {
            Ok(null) if is_float => {
                let arguments = vec![std::mem::take(expr), Expr::Literal(null, None)];
                *expr =
                    Expr::ScalarFunction(ScalarFunction::new_udf(float_to_decimal::function(), arguments));
                true
            }
            _ => false,
        }
    }

    /// Replaces a literal added to or subtracted from a decimal by a decimal; returns whether it changed
    /// anything.
    fn coerce_addition(&self, left: &mut Expr, right: &mut Expr) -> bool {
        let is_decimal = |side: &Expr| side.get_type(self.schema).is_ok_and(|kind| is_decimal(&kind));
        let number = match (is_decimal(left), is_decimal(right)) {
            (true, false) => right,
            (false, true) => left,
            _ => return false,
        };
        match decimal_literal(number) {
            Some(Some(decimal)) => {
                *number = Expr::Literal(decimal, None);
                true
            }
            _ => false,
        }
    }

    /// The same as [`Self::coerce_sides`] for comparisons with subqueries.
    fn coerce_subquery(&self, expr: &mut Expr, subquery: &mut Subquery) -> Result<bool> {
        let Ok(kind) = expr.get_type(self.schema) else { return Ok(false) };
        let plan = subquery.subquery.as_ref();
        let other = plan.schema().field(0).data_type().clone();
        let is_mixed = is_decimal(&kind) && other.is_floating() && is_double_column(plan, 0)
            || is_decimal(&other) && self.is_double(expr)
            || is_real(&kind) && other.is_integer()
            || is_real(&other) && kind.is_integer();
        if !is_mixed {
            return Ok(false);
        }
        if kind != DataType::Float64 {
            *expr = cast(std::mem::take(expr), DataType::Float64);
        }
        *subquery = cast_subquery(subquery.clone(), &DataType::Float64)?;
        Ok(true)
    }

    /// Whether the expression is a double (or real) in PostgreSQL too.
    fn is_double(&self, expr: &Expr) -> bool {
        if !expr.get_type(self.schema).is_ok_and(|kind| kind.is_floating()) {
            return false;
        }
        let any = |arguments: &[Expr]| arguments.iter().any(|argument| self.is_double(argument));
        let has_number = |arguments: &[Expr]| {
            arguments
                .iter()
                .any(|argument| argument.get_type(self.schema).is_ok_and(|kind| kind.is_numeric()))
        };
        match expr {
            Expr::Literal(ScalarValue::Float64(Some(number)), _) => !number.is_finite(),
            Expr::Alias(alias) => self.is_double(&alias.expr),
            Expr::Negative(inner) => self.is_double(inner),
            Expr::BinaryExpr(BinaryExpr { left, right, .. }) => self.is_double(left) || self.is_double(right),
            Expr::Case(case) => {
                let mut results = case.when_then_expr.iter().map(|(_, then)| then).chain(&case.else_expr);
                results.any(|result| self.is_double(result))
            }
            // Most functions have a variant for NUMERIC.
            Expr::ScalarFunction(function) if has_number(&function.args) => any(&function.args),
            Expr::AggregateFunction(function) if has_number(&function.params.args) => {
                any(&function.params.args)
            }
            Expr::WindowFunction(function) if has_number(&function.params.args) => any(&function.params.args),
            Expr::ScalarSubquery(subquery) => is_double_column(&subquery.subquery, 0),
            Expr::Column(column) => self.is_double_input(column),
            _ => true,
        }
    }

    fn is_double_input(&self, column: &Column) -> bool {
        let found = self.inputs.iter().find_map(|input| {
            let at = input.schema().maybe_index_of_column(column)?;
            Some(is_double_column(input, at))
        });
        found.unwrap_or(true)
    }
}

/// Whether a double column of a plan is a double in PostgreSQL too: traces it to the expression that computes
/// it.
pub(crate) fn is_double_column(plan: &LogicalPlan, at: usize) -> bool {
    let is_double = |expr: Option<&Expr>, input: &LogicalPlan| {
        let scope = Scope { schema: input.schema(), inputs: vec![input] };
        expr.is_none_or(|expr| scope.is_double(expr))
    };
    match plan {
        LogicalPlan::Projection(projection) => is_double(projection.expr.get(at), &projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_double_column(&alias.input, at),
        LogicalPlan::Filter(filter) => is_double_column(&filter.input, at),
        LogicalPlan::Sort(sort) => is_double_column(&sort.input, at),
        LogicalPlan::Limit(limit) => is_double_column(&limit.input, at),
        LogicalPlan::Distinct(Distinct::All(input)) => is_double_column(input, at),
        LogicalPlan::Aggregate(aggregate) => {
            let keys = &aggregate.group_expr;
            if matches!(keys.as_slice(), [Expr::GroupingSet(_)]) {
                return true;
            }
            is_double(keys.iter().chain(&aggregate.aggr_expr).nth(at), &aggregate.input)
        }
        LogicalPlan::Window(window) => match at.checked_sub(window.input.schema().fields().len()) {
            Some(at) => is_double(window.window_expr.get(at), &window.input),
            None => is_double_column(&window.input, at),
        },
        LogicalPlan::Join(join) => {
            let left = join.left.schema().fields().len();
            match join.join_type {
                JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
                    match at.checked_sub(left) {
                        Some(at) => is_double_column(&join.right, at),
                        None => is_double_column(&join.left, at),
                    }
                }
                JoinType::LeftSemi | JoinType::LeftAnti => is_double_column(&join.left, at),
                _ => true,
            }
        }
        LogicalPlan::Union(union) => union.inputs.iter().any(|input| {
            input.schema().fields().get(at).is_none_or(|field| field.data_type().is_floating())
                && is_double_column(input, at)
        }),
        LogicalPlan::Values(values) => {
            let scope = Scope { schema: &DFSchema::empty(), inputs: Vec::new() };
            values.values.iter().any(|row| row.get(at).is_none_or(|expr| scope.is_double(expr)))
        }
        _ => true,
    }
}

/// Casts all numbers to double; returns whether it changed anything.
fn widen(sides: &mut [&mut Expr], types: &[Option<DataType>]) -> bool {
    let mut is_changed = false;
    for (side, kind) in sides.iter_mut().zip(types) {
        if kind.as_ref().is_some_and(|kind| kind.is_numeric() && *kind != DataType::Float64) {
            **side = cast(std::mem::take(*side), DataType::Float64);
            is_changed = true;
        }
    }
    is_changed
}

fn is_arithmetic(operator: Operator) -> bool {
    matches!(operator, Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide)
}

fn is_real(kind: &DataType) -> bool {
    matches!(kind, DataType::Float16 | DataType::Float32)
}

/// Whether an expression is an integer literal that a real represents exactly.
fn is_exact_real(expr: &Expr) -> bool {
    const EXACT_MAX: u64 = 1 << f32::MANTISSA_DIGITS;
    let number = match expr {
        Expr::Literal(number, _) => number,
        Expr::Negative(inner) => return is_exact_real(inner),
        _ => return false,
    };
    match number.cast_to(&DataType::Int64) {
        Ok(ScalarValue::Int64(number)) => number.is_none_or(|number| number.unsigned_abs() <= EXACT_MAX),
        _ => false,
    }
}

fn is_decimal(kind: &DataType) -> bool {
    use DataType::{Decimal32, Decimal64, Decimal128, Decimal256};
    matches!(kind, Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..))
}

/// The decimal value of a literal with a decimal point as written; `Some(None)` if it has too many digits. As
/// a double it would differ after the digits of a decimal column.
fn decimal_literal(expr: &Expr) -> Option<Option<ScalarValue>> {
    match expr {
        Expr::Literal(ScalarValue::Float64(Some(number)), _) if number.is_finite() => Some(decimal(*number)),
        Expr::Negative(inner) => match inner.as_ref() {
            Expr::Literal(ScalarValue::Float64(Some(number)), _) if number.is_finite() => {
                Some(decimal(-number))
            }
            _ => None,
        },
        _ => None,
    }
}

fn decimal(number: f64) -> Option<ScalarValue> {
    const DIGITS_MAX: usize = 38;
    let text = number.to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let digits = whole.trim_start_matches('-').len() + fraction.len();
    if digits > DIGITS_MAX {
        return None;
    }
    let value: i128 = format!("{whole}{fraction}").parse().ok()?;
    Some(ScalarValue::Decimal128(Some(value), digits as u8, fraction.len() as i8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_coerced_to_decimals() {
        assert_eq!(decimal(10_000_000.01), Some(ScalarValue::Decimal128(Some(1_000_000_001), 10, 2)));
        assert_eq!(decimal(0.05), Some(ScalarValue::Decimal128(Some(5), 3, 2)));
        let of = |number: f64| decimal(number).map(|decimal| decimal.to_string());
        assert_eq!(decimal(1e17), Some(ScalarValue::Decimal128(Some(10_i128.pow(17)), 18, 0)));
        assert_eq!(
            decimal(-2_000_000_000_000_000.5),
            Some(ScalarValue::Decimal128(Some(-20_000_000_000_000_005), 17, 1))
        );
        assert_eq!(of(1e38), None);
        assert_eq!(of(1e300), None);
    }
}
