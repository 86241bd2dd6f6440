//! Replacements of DataFusion's operators that return a wrong value where PostgreSQL fails or rounds: `+`,
//! `-` and `*` of integers wrap around, those of decimals exceed 38 digits as long as 128 bits hold the
//! number, of which only the first 38 digits are shown, a cast to an integer truncates, and one to a 32-bit
//! float overflows to infinity. Also operations that DataFusion lacks: `mod`, and intervals times numbers.
//!
//! Ranks know them by their names ([`function`]).

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, Datum, PrimitiveArray};
use datafusion::arrow::compute::kernels::numeric::{add, div, mul, rem, sub};
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Decimal256Type, Float32Type, Float64Type,
    IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, i256,
};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// Operation on two integers of one type, on two decimals, or on a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Fails with 22003 if the sum is out of the type's range, as the next two do. Of decimals, it is for
    /// those whose digits do not ensure that the result has room ([`has_room`]).
    Add,
    Subtract,
    Multiply,
    /// Many integers, 64-bit floats, or decimals (whose sum has 38 digits already, and no product), added,
    /// subtracted and multiplied from left to right: `harrier_terms('+-*', a, b, c, d)` is `((a + b) - c) *
    /// d`. A chain of operators as one function, because DataFusion recomputes the type, and the name, of
    /// each level repeatedly (apache/datafusion#12604).
    Terms,
    /// The remainder of a division; fails with 22012 if the divisor is zero.
    Remainder,
    /// Rounds to the nearest integral number of the same type: half to even for floats, half away from zero
    /// for decimals.
    Round,
    /// Converts a 64-bit float to 32 bits; fails with 22003 on overflow of a finite number, and on underflow.
    Real,
    /// Clears the sign of NaN: processors produce a negative NaN for `inf - inf` and `0 * inf`, and by its
    /// bits it would be less than all numbers (the total order of IEEE 754, in which Arrow compares).
    UnsignedNan,
    /// An interval times a float: the remainder of months becomes days, thirty to the month, and that of days
    /// time.
    ScaleInterval,
    /// An interval divided by a float.
    DivideInterval,
    /// A float divided by one; fails with 22012 if the divisor is zero, unless the other one is NaN. NaN has
    /// no sign.
    Divide,
    /// The remainder of that division.
    Modulo,
}

impl Operation {
    const ALL: [Self; 12] = [
        Self::Add,
        Self::Subtract,
        Self::Multiply,
        Self::Terms,
        Self::Remainder,
        Self::Round,
        Self::Real,
        Self::UnsignedNan,
        Self::ScaleInterval,
        Self::DivideInterval,
        Self::Divide,
        Self::Modulo,
    ];

    /// Name of the function.
    pub fn name(self) -> &'static str {
        match self {
            Self::Add => "harrier_add",
            Self::Subtract => "harrier_subtract",
            Self::Multiply => "harrier_multiply",
            Self::Terms => "harrier_terms",
            // The user-visible name.
            Self::Remainder => "mod",
            Self::Round => "harrier_round",
            Self::Real => "harrier_real",
            Self::UnsignedNan => "harrier_unsigned_nan",
            Self::ScaleInterval => "harrier_scale_interval",
            Self::DivideInterval => "harrier_divide_interval",
            Self::Divide => "harrier_divide",
            Self::Modulo => "harrier_modulo",
        }
    }

    /// The function as plans have it.
    pub fn function(self) -> Arc<ScalarUDF> {
        let signature = match self {
            Self::Round | Self::Real | Self::UnsignedNan => Signature::any(1, Volatility::Immutable),
            Self::Terms => Signature::variadic_any(Volatility::Immutable),
            Self::Remainder => Signature::numeric(2, Volatility::Immutable),
            Self::ScaleInterval | Self::DivideInterval => {
                let types = vec![DataType::Interval(IntervalUnit::MonthDayNano), DataType::Float64];
                Signature::exact(types, Volatility::Immutable)
            }
            _ => Signature::any(2, Volatility::Immutable),
        };
        Arc::new(ScalarUDF::new_from_impl(Arithmetic { operation: self, signature }))
    }
}

/// All of them, for sessions that decode plans.
pub fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    Operation::ALL.into_iter().map(Operation::function)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Arithmetic {
    operation: Operation,
    signature: Signature,
}

impl ScalarUDFImpl for Arithmetic {
    fn name(&self) -> &str {
        self.operation.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match (self.operation, arguments) {
            (Operation::Round, [number]) => Ok(number.clone()),
            (Operation::Real, [DataType::Float64]) => Ok(DataType::Float32),
            (Operation::UnsignedNan, [kind @ (DataType::Float32 | DataType::Float64)]) => Ok(kind.clone()),
            (Operation::ScaleInterval | Operation::DivideInterval, [interval, _]) => Ok(interval.clone()),
            (Operation::Remainder, [left, right]) if left == right => Ok(left.clone()),
            (Operation::Terms, [DataType::Utf8, first, others @ ..])
                if (first.is_integer() || *first == DataType::Float64)
                    && others.iter().all(|other| other == first) =>
            {
                Ok(first.clone())
            }
            (
                Operation::Terms,
                [DataType::Utf8, first @ DataType::Decimal128(precision, scale), others @ ..],
            ) if *precision == DECIMAL128_MAX_PRECISION
                && others.iter().all(|other| is_added(other, *scale)) =>
            {
                Ok(first.clone())
            }
            (Operation::Divide | Operation::Modulo, [left, right]) if left == right && left.is_floating() => {
                Ok(left.clone())
            }
            (_, [left, right]) if left == right && left.is_integer() => Ok(left.clone()),
            (
                Operation::Add | Operation::Subtract,
                [DataType::Decimal128(_, scale), DataType::Decimal128(_, other)],
            ) => Ok(DataType::Decimal128(DECIMAL128_MAX_PRECISION, *scale.max(other))),
            (Operation::Multiply, [DataType::Decimal128(_, scale), DataType::Decimal128(_, other)]) => {
                Ok(DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale.saturating_add(*other)))
            }
            _ => plan_err!("{} does not take {arguments:?}", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let kernel = match (self.operation, arguments.args.as_slice()) {
            (Operation::Round | Operation::Real | Operation::UnsignedNan, [number]) => {
                let computed = match self.operation {
                    Operation::Round => round,
                    Operation::UnsignedNan => without_signed_nan,
                    _ => as_reals,
                };
                return match number {
                    ColumnarValue::Array(numbers) => computed(numbers).map(ColumnarValue::Array),
                    ColumnarValue::Scalar(number) => {
                        let value = computed(&number.to_array()?)?;
                        ScalarValue::try_from_array(&value, 0).map(ColumnarValue::Scalar)
                    }
                };
            }
            (Operation::ScaleInterval | Operation::DivideInterval, [interval, number]) => {
                let rows = arguments.number_rows;
                let (intervals, numbers) = (interval.to_array(rows)?, number.to_array(rows)?);
                let divides = self.operation == Operation::DivideInterval;
                return scale_intervals(&intervals, &numbers, divides).map(ColumnarValue::Array);
            }
            (Operation::Terms, [signs, first, others @ ..]) => {
                let ColumnarValue::Scalar(ScalarValue::Utf8(Some(signs))) = signs else {
                    return internal_err!("{} begins with its signs", self.name());
                };
                let kind = arguments.return_field.data_type();
                return signs
                    .chars()
                    .zip(others)
                    .try_fold(first.clone(), |sum, (sign, other)| {
                        let kernel = match sign {
                            '-' => sub,
                            '*' => mul,
                            _ => add,
                        };
                        apply_kernel(kernel, kind, &sum, other)
                    })
                    .and_then(|sum| check_digits(sum, kind));
            }
            (Operation::Add, _) => add,
            (Operation::Subtract, _) => sub,
            (Operation::Multiply, _) => mul,
            (Operation::Divide | Operation::Modulo | Operation::Remainder, [left, right])
                if arguments.return_field.data_type().is_floating() =>
            {
                let is_scalar = [left, right].iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
                let rows = if is_scalar { 1 } else { arguments.number_rows };
                let kernel = if self.operation == Operation::Divide { div } else { rem };
                let divided = divide_floats(kernel, &left.to_array(rows)?, &right.to_array(rows)?)?;
                return Ok(match is_scalar {
                    true => ColumnarValue::Scalar(ScalarValue::try_from_array(&divided, 0)?),
                    false => ColumnarValue::Array(divided),
                });
            }
            (Operation::Remainder, _) => rem,
            _ => return internal_err!("{} has other arguments", self.name()),
        };
        let [left, right] = arguments.args.as_slice() else {
            return internal_err!("{} has two arguments", self.name());
        };
        let kind = arguments.return_field.data_type();
        check_digits(apply_kernel(kernel, kind, left, right)?, kind)
    }

    #[allow(deprecated, reason = "plans are shown by it")]
    fn display_name(&self, arguments: &[Expr]) -> Result<String> {
        Ok(match (self.sign(), arguments) {
            (Some(sign), [left, right]) => format!("{left} {sign} {right}"),
            (_, [signs, terms @ ..]) if self.operation == Operation::Terms => {
                join_terms(signs, terms.iter().map(ToString::to_string))
            }
            (_, arguments) => {
                let shown = arguments.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                self.display(&shown)
            }
        })
    }

    /// The column is named as if the operator were still in its place.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        Ok(match (self.sign(), arguments) {
            (Some(sign), [left, right]) => {
                format!("{} {sign} {}", left.schema_name(), right.schema_name())
            }
            (_, [signs, terms @ ..]) if self.operation == Operation::Terms => {
                join_terms(signs, terms.iter().map(|term| term.schema_name().to_string()))
            }
            (_, arguments) => {
                let names = arguments.iter().map(|argument| argument.schema_name().to_string());
                self.display(&names.collect::<Vec<_>>().join(", "))
            }
        })
    }
}

impl Arithmetic {
    /// These are part of a cast, which has no name.
    fn display(&self, arguments: &str) -> String {
        match self.operation {
            Operation::Round | Operation::Real | Operation::UnsignedNan => arguments.to_string(),
            _ => format!("{}({arguments})", self.name()),
        }
    }

    fn sign(&self) -> Option<char> {
        match self.operation {
            Operation::Add => Some('+'),
            Operation::Subtract => Some('-'),
            Operation::Multiply => Some('*'),
            Operation::ScaleInterval => Some('*'),
            Operation::DivideInterval | Operation::Divide => Some('/'),
            Operation::Modulo => Some('%'),
            Operation::Terms | Operation::Remainder => None,
            Operation::Round | Operation::Real | Operation::UnsignedNan => None,
        }
    }
}

/// Whether adding a term keeps the type of a decimal sum with all 38 digits and this scale.
fn is_added(term: &DataType, scale: i8) -> bool {
    matches!(term, DataType::Decimal128(_, own) if *own <= scale)
}

/// The terms of [`Operation::Terms`] joined by their operators.
fn join_terms(signs: &Expr, terms: impl Iterator<Item = String>) -> String {
    let signs = match signs {
        Expr::Literal(ScalarValue::Utf8(Some(signs)), _) => signs.as_str(),
        _ => "",
    };
    let mut signs = signs.chars();
    let mut shown = String::new();
    for term in terms {
        if !shown.is_empty() {
            shown.extend([' ', signs.next().unwrap_or('+'), ' ']);
        }
        shown += &term;
    }
    shown
}

/// Applies a kernel to two columns or values. Errors: the result is out of range (22003).
fn apply_kernel(
    kernel: fn(&dyn Datum, &dyn Datum) -> std::result::Result<ArrayRef, ArrowError>,
    kind: &DataType,
    left: &ColumnarValue,
    right: &ColumnarValue,
) -> Result<ColumnarValue> {
    let computed = |left: &dyn Datum, right: &dyn Datum| {
        kernel(left, right).map_err(|error| match error {
            ArrowError::ArithmeticOverflow(_) => out_of_range(kind).into_datafusion(),
            other => datafusion::error::DataFusionError::from(other),
        })
    };
    match (left, right) {
        (ColumnarValue::Array(left), ColumnarValue::Array(right)) => computed(left, right),
        (ColumnarValue::Array(left), ColumnarValue::Scalar(right)) => computed(left, &right.to_scalar()?),
        (ColumnarValue::Scalar(left), ColumnarValue::Array(right)) => computed(&left.to_scalar()?, right),
        (ColumnarValue::Scalar(left), ColumnarValue::Scalar(right)) => {
            let value = computed(&left.to_scalar()?, &right.to_scalar()?)?;
            return ScalarValue::try_from_array(&value, 0).map(ColumnarValue::Scalar);
        }
    }
    .map(ColumnarValue::Array)
}

/// Whether the result of `+`, `-` or `*` has 38 digits at most, whatever the operands, by their types. For
/// all other types than decimals of 128 bits it says so too.
pub fn has_room(operation: Operation, left: &DataType, right: &DataType) -> bool {
    let (DataType::Decimal128(precision, scale), DataType::Decimal128(other_precision, other_scale)) =
        (left, right)
    else {
        return true;
    };
    let [precision, other_precision] = [*precision, *other_precision].map(i16::from);
    let [scale, other_scale] = [*scale, *other_scale].map(i16::from);
    let digits = match operation {
        Operation::Multiply => precision + other_precision,
        _ => scale.max(other_scale) + (precision - scale).max(other_precision - other_scale) + 1,
    };
    digits <= i16::from(DECIMAL128_MAX_PRECISION)
}

/// Passes on what is computed of integers, and decimals that have no more digits than their type.
///
/// Errors: a decimal has more than 38 digits (22003).
fn check_digits(computed: ColumnarValue, kind: &DataType) -> Result<ColumnarValue> {
    let is_within = match (kind, &computed) {
        (DataType::Decimal128(..), ColumnarValue::Array(values)) => {
            has_38_digits(values.as_primitive::<Decimal128Type>())
        }
        (DataType::Decimal128(..), ColumnarValue::Scalar(ScalarValue::Decimal128(Some(value), ..))) => {
            value.unsigned_abs() < DECIMAL_LIMIT
        }
        _ => true,
    };
    if is_within { Ok(computed) } else { Err(out_of_range(kind).into_datafusion()) }
}

/// The least number of 39 digits.
pub(crate) const DECIMAL_LIMIT: u128 = 10_u128.pow(DECIMAL128_MAX_PRECISION as u32);

/// Whether all numbers have 38 digits at most.
pub(crate) fn has_38_digits(values: &PrimitiveArray<Decimal128Type>) -> bool {
    // One look at the bits of all numbers, without a branch, is enough for all but the largest.
    bits_of(values.values()) < DECIMAL_LIMIT - 1
        || values.iter().flatten().all(|value| value.unsigned_abs() < DECIMAL_LIMIT)
}

/// The bits that any of the numbers has, or its complement if it is negative: no absolute value is larger
/// than this and one.
pub(crate) fn bits_of(values: &[i128]) -> u128 {
    values.iter().fold(0, |bits, value| bits | (value ^ (value >> 127)) as u128)
}

fn out_of_range(kind: &DataType) -> SqlError {
    let name = match kind {
        DataType::Decimal128(..) => return decimal_out_of_range(),
        DataType::Int8 => "tinyint".to_string(),
        DataType::Int16 => "smallint".to_string(),
        DataType::Int32 => "integer".to_string(),
        DataType::Int64 => "bigint".to_string(),
        DataType::Float32 => "real".to_string(),
        other => other.to_string().to_lowercase(),
    };
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{name} out of range"))
}

/// The error of a decimal without room.
pub(crate) fn decimal_out_of_range() -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric out of range")
        .with_detail("A numeric has 38 digits.")
}

/// Floats, with the sign of NaN cleared.
pub(crate) fn without_signed_nan(numbers: &ArrayRef) -> Result<ArrayRef> {
    Ok(match numbers.data_type() {
        DataType::Float32 => {
            let numbers = numbers.as_primitive::<Float32Type>();
            match numbers.values().iter().any(|number| number.is_nan()) {
                true => Arc::new(
                    numbers.unary::<_, Float32Type>(|number| if number.is_nan() { f32::NAN } else { number }),
                ),
                false => Arc::new(numbers.clone()),
            }
        }
        _ => {
            let numbers = numbers.as_primitive::<Float64Type>();
            match numbers.values().iter().any(|number| number.is_nan()) {
                true => Arc::new(
                    numbers.unary::<_, Float64Type>(|number| if number.is_nan() { f64::NAN } else { number }),
                ),
                false => Arc::new(numbers.clone()),
            }
        }
    })
}

type Kernel = fn(&dyn Datum, &dyn Datum) -> std::result::Result<ArrayRef, ArrowError>;

/// Errors: a divisor is zero, and what it divides neither NULL nor NaN (22012).
fn divide_floats(kernel: Kernel, left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef> {
    fn fails<T: ArrowPrimitiveType>(left: &ArrayRef, right: &ArrayRef) -> bool
    where
        T::Native: Into<f64>,
    {
        let (left, right) = (left.as_primitive::<T>(), right.as_primitive::<T>());
        // Most often no value is zero, which needs no look at what is NULL.
        right.values().iter().any(|divisor| (*divisor).into() == 0.0)
            && left.iter().zip(right).any(|pair| match pair {
                (Some(value), Some(divisor)) => divisor.into() == 0.0 && !value.into().is_nan(),
                _ => false,
            })
    }
    let fails = match left.data_type() {
        DataType::Float32 => fails::<Float32Type>(left, right),
        DataType::Float64 => fails::<Float64Type>(left, right),
        other => return internal_err!("a division of {other}"),
    };
    if fails {
        return Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero").into_datafusion());
    }
    without_signed_nan(&kernel(left, right)?)
}

/// 64-bit floats as 32-bit floats.
///
/// Errors: one is too large, or too small, for that (22003).
pub(crate) fn as_reals(numbers: &ArrayRef) -> Result<ArrayRef> {
    let numbers = numbers.as_primitive::<Float64Type>();
    let narrowed = numbers
        .try_unary::<_, Float32Type, SqlError>(|number| match number as f32 {
            narrow if narrow.is_infinite() && number.is_finite() || narrow == 0.0 && number != 0.0 => {
                Err(out_of_range(&DataType::Float32))
            }
            narrow => Ok(narrow),
        })
        .map_err(harrier_sqlstate::external)?;
    Ok(Arc::new(narrowed))
}

fn round(numbers: &ArrayRef) -> Result<ArrayRef> {
    Ok(match numbers.data_type() {
        DataType::Float32 => {
            Arc::new(numbers.as_primitive::<Float32Type>().unary::<_, Float32Type>(f32::round_ties_even))
        }
        DataType::Float64 => {
            Arc::new(numbers.as_primitive::<Float64Type>().unary::<_, Float64Type>(f64::round_ties_even))
        }
        DataType::Decimal128(_, scale @ 1..=38) => {
            let one = 10_i128.pow(*scale as u32);
            let numbers = numbers.as_primitive::<Decimal128Type>();
            let rounded = numbers.unary::<_, Decimal128Type>(|number| {
                let rest = number % one;
                let up = if rest.abs() * 2 >= one { one * number.signum() } else { 0 };
                number - rest + up
            });
            Arc::new(rounded.with_data_type(numbers.data_type().clone()))
        }
        DataType::Decimal256(_, scale @ 1..=76) => {
            let one = i256::from_i128(10).wrapping_pow(*scale as u32);
            let two = i256::from_i128(2);
            let numbers = numbers.as_primitive::<Decimal256Type>();
            let rounded = numbers.unary::<_, Decimal256Type>(|number| {
                let rest = number.wrapping_rem(one);
                let is_up = rest.wrapping_abs().wrapping_mul(two) >= one;
                let up = if is_up { one.wrapping_mul(number.signum()) } else { i256::ZERO };
                number.wrapping_sub(rest).wrapping_add(up)
            });
            Arc::new(rounded.with_data_type(numbers.data_type().clone()))
        }
        _ => Arc::clone(numbers),
    })
}

/// Each interval times its number, or divided by it, to the microsecond.
///
/// Errors: the number is zero (22012); the interval is out of range (22008).
fn scale_intervals(intervals: &ArrayRef, numbers: &ArrayRef, divides: bool) -> Result<ArrayRef> {
    let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
    let numbers = numbers.as_primitive::<Float64Type>();
    let pairs = intervals.iter().zip(numbers.iter());
    let scaled = pairs.map(|pair| match pair {
        (Some(interval), Some(number)) if !divides => times(interval, |amount| amount * number).map(Some),
        (Some(_), Some(0.0)) => {
            Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero").into_datafusion())
        }
        (Some(interval), Some(number)) => divide(interval, number).map(Some),
        _ => Ok(None),
    });
    let scaled: PrimitiveArray<IntervalMonthDayNanoType> = scaled.collect::<Result<_>>()?;
    Ok(Arc::new(scaled))
}

/// Errors: a part of it is out of the range of an interval (22008).
pub(crate) fn divide(interval: IntervalMonthDayNano, by: f64) -> Result<IntervalMonthDayNano> {
    times(interval, |amount| amount / by)
}

fn times(interval: IntervalMonthDayNano, of: impl Fn(f64) -> f64) -> Result<IntervalMonthDayNano> {
    const DAY_SECONDS: f64 = 86_400.0;
    // Rounds off the error of floating-point arithmetic, to a millionth.
    let exact = |number: f64| (number * 1e6).round_ties_even() / 1e6;
    let months = of(f64::from(interval.months));
    let days = of(f64::from(interval.days));
    let days_of_months = exact((months - months.trunc()) * 30.0);
    let rest = days - days.trunc() + days_of_months - days_of_months.trunc();
    let seconds = exact(rest * DAY_SECONDS);
    let more_days = (seconds / DAY_SECONDS).trunc();
    let seconds = seconds - more_days * DAY_SECONDS;
    let whole_days = days.trunc() + days_of_months.trunc() + more_days;
    let microseconds = (of(interval.nanoseconds as f64 / 1e3) + seconds * 1e6).round_ties_even();
    let fits = |number: f64, limit: f64| number.abs() < limit;
    if !(fits(months, 2_147_483_648.0)
        && fits(whole_days, 2_147_483_648.0)
        && fits(microseconds, 9_223_372_036_854_775.0))
    {
        return Err(
            SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "interval out of range").into_datafusion()
        );
    }
    Ok(IntervalMonthDayNano::new(months.trunc() as i32, whole_days as i32, microseconds as i64 * 1_000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Decimal128Array, Float64Array};

    #[test]
    fn numbers_are_rounded_as_postgresql_does() {
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![0.5, 1.5, -2.5, 2.6, -0.2]));
        let expected: ArrayRef = Arc::new(Float64Array::from(vec![0.0, 2.0, -2.0, 3.0, -0.0]));
        assert_eq!(&round(&floats).unwrap(), &expected);
        let decimals = |values: Vec<i128>| -> ArrayRef {
            Arc::new(Decimal128Array::from(values).with_precision_and_scale(10, 2).unwrap())
        };
        let found = round(&decimals(vec![50, 149, 150, -150, -149, 1200])).unwrap();
        assert_eq!(&found, &decimals(vec![100, 100, 200, -200, -100, 1200]));
    }

    #[test]
    fn decimals_have_38_digits() {
        let most = 10_i128.pow(38) - 1;
        let decimals = |values: Vec<Option<i128>>| {
            Decimal128Array::from(values).with_precision_and_scale(38, 0).unwrap()
        };
        assert!(has_38_digits(&decimals(vec![Some(most), None, Some(-most), Some(0)])));
        assert!(!has_38_digits(&decimals(vec![Some(1), None, Some(most + 1)])));
        assert!(!has_38_digits(&decimals(vec![Some(-most - 1)])));
        assert_eq!(bits_of(&[4, -3, 0]), 6);
        let kind = |precision, scale| DataType::Decimal128(precision, scale);
        assert!(has_room(Operation::Add, &kind(37, 2), &kind(10, 2)));
        assert!(!has_room(Operation::Add, &kind(37, 2), &kind(10, 3)));
        assert!(!has_room(Operation::Subtract, &kind(38, 0), &kind(1, 0)));
        assert!(has_room(Operation::Multiply, &kind(19, 0), &kind(19, 2)));
        assert!(!has_room(Operation::Multiply, &kind(20, 0), &kind(19, 0)));
        assert!(has_room(Operation::Add, &DataType::Int64, &DataType::Int64));
    }

    #[test]
    fn float_overflow_is_an_error() {
        let floats = |values: Vec<f64>| -> ArrayRef { Arc::new(Float64Array::from(values)) };
        let found = as_reals(&floats(vec![1.5, f64::INFINITY, -3.4e38])).unwrap();
        assert_eq!(found.as_primitive::<Float32Type>().values(), &[1.5, f32::INFINITY, -3.4e38]);
        assert!(as_reals(&floats(vec![f64::NAN])).unwrap().as_primitive::<Float32Type>().value(0).is_nan());
        assert!(as_reals(&floats(vec![1e300])).is_err());
        assert!(as_reals(&floats(vec![-3.5e38])).is_err());
        assert!(as_reals(&floats(vec![1e-60])).is_err());
    }

    #[test]
    fn intervals_are_scaled_as_postgresql_does() {
        let check = |parts: (i32, i32, i64), number: f64, expected: (i32, i32, i64)| {
            let interval = IntervalMonthDayNano::new(parts.0, parts.1, parts.2);
            let expected = IntervalMonthDayNano::new(expected.0, expected.1, expected.2);
            assert_eq!(times(interval, |amount| amount * number).unwrap(), expected);
        };
        let hour = 3_600_000_000_000;
        check((0, 1, 0), 3.0, (0, 3, 0));
        check((1, 0, 0), 1.5, (1, 15, 0));
        check((0, 1, 0), -0.5, (0, 0, -12 * hour));
        check((1, 1, hour), 2.0, (2, 2, 2 * hour));
        check((0, 0, hour), 1.0 / 3.0, (0, 0, hour / 3));
        assert!(times(IntervalMonthDayNano::new(2_000_000_000, 0, 0), |amount| amount * 2.0).is_err());
    }
}
