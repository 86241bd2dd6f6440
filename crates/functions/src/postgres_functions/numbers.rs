//! Trigonometry in degrees, quotients, digits of decimals, and histogram buckets.

use std::cmp::Ordering;
use std::f64::consts::PI;

use datafusion::arrow::array::Array;
use datafusion::common::{Result, ScalarValue};

use super::{Any, Definition, Double, Int, List, Number, Text, Whole, double, int};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// Maximum digits of a decimal.
const DIGITS: u8 = 38;

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition::new("sind", &[Double], Double, |values| angle(&values[0], sind)),
    Definition::new("cosd", &[Double], Double, |values| angle(&values[0], cosd)),
    Definition::new("tand", &[Double], Double, |values| angle(&values[0], |x| ratio(sind(x), cosd(x)))),
    Definition::new("cotd", &[Double], Double, |values| angle(&values[0], |x| ratio(cosd(x), sind(x)))),
    Definition::new("asind", &[Double], Double, |values| part(&values[0], asind)),
    Definition::new("acosd", &[Double], Double, |values| part(&values[0], acosd)),
    Definition::new("atand", &[Double], Double, |values| {
        Ok((double(&values[0]).atan() / 1_f64.atan() * 45.0).into())
    }),
    Definition::new("atan2d", &[Double, Double], Double, |values| {
        Ok((double(&values[0]).atan2(double(&values[1])) / 1_f64.atan() * 45.0).into())
    }),
    Definition::new("sign", &[Double], Double, |values| match double(&values[0]) {
        // Also for NaN.
        value if value > 0.0 => Ok(1.0.into()),
        value if value < 0.0 => Ok((-1.0).into()),
        _ => Ok(0.0.into()),
    }),
    Definition::new("div", &[Number, Number], Whole, |values| match (exact(&values[0]), exact(&values[1])) {
        (Some(left), Some(right)) => quotient(left, right),
        _ => Err(out_of_range()),
    }),
    Definition::new("div", &[Double, Double], Double, |values| match double(&values[1]) {
        0.0 => Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero").into_datafusion()),
        divisor => Ok((double(&values[0]) / divisor).trunc().into()),
    }),
    Definition::new("harrier_bitwise_not", &[Number], Number, |values| {
        use ScalarValue::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
        Ok(match &values[0] {
            Int8(Some(value)) => Int8(Some(!value)),
            Int16(Some(value)) => Int16(Some(!value)),
            Int32(Some(value)) => Int32(Some(!value)),
            Int64(Some(value)) => Int64(Some(!value)),
            UInt8(Some(value)) => UInt8(Some(!value)),
            UInt16(Some(value)) => UInt16(Some(!value)),
            UInt32(Some(value)) => UInt32(Some(!value)),
            UInt64(Some(value)) => UInt64(Some(!value)),
            _ => {
                let message = "operator does not exist: ~ numeric";
                return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message).into_datafusion());
            }
        })
    }),
    Definition::new("gcd", &[Number, Number], Number, |values| {
        let (left, right, scale) = of_one_scale(values)?;
        to_scalar(divisor(left, right), scale)
    }),
    Definition::new("lcm", &[Number, Number], Number, |values| {
        let (left, right, scale) = of_one_scale(values)?;
        match divisor(left, right) {
            0 => to_scalar(0, scale),
            divisor => {
                let product = (left / divisor).checked_mul(right).and_then(i128::checked_abs);
                to_scalar(product.ok_or_else(out_of_range)?, scale)
            }
        }
    }),
    Definition::new("trim_scale", &[Number], Number, |values| match exact(&values[0]) {
        Some((_, 0)) => Ok(values[0].clone()),
        _ => {
            let message = "trim_scale of a column is not supported: all of its numbers have as many digits";
            Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("its text has each number by itself: trim_scale(n)::text")
                .into_datafusion())
        }
    }),
    Definition::new("harrier_trimmed_text", &[Number], Text, |values| {
        let Some((value, scale)) = exact(&values[0]) else { return Err(out_of_range()) };
        let (mut value, mut scale) = (value, scale);
        while scale > 0 && value % 10 == 0 {
            (value, scale) = (value / 10, scale - 1);
        }
        ScalarValue::Decimal128(Some(value), DIGITS, scale as i8)
            .cast_to(&datafusion::arrow::datatypes::DataType::Utf8)
    }),
    Definition::new("to_hex", &[Number], Text, |values| {
        let is_short =
            matches!(values[0], ScalarValue::Int8(_) | ScalarValue::Int16(_) | ScalarValue::Int32(_));
        let digits = match exact(&values[0]) {
            Some((value, 0)) if is_short => i32::try_from(value).map(|value| format!("{value:x}")),
            Some((value, 0)) => i64::try_from(value).map(|value| format!("{value:x}")),
            _ => return Err(out_of_range()),
        };
        digits.map(ScalarValue::from).map_err(|_| out_of_range())
    }),
    Definition::new("factorial", &[Int], Whole, |values| match int(&values[0]) {
        ..0 => Err(SqlError::new(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            "factorial of a negative number is undefined",
        )
        .into_datafusion()),
        number => {
            let product =
                (1..=number.min(40)).try_fold(1_i128, |product, one| product.checked_mul(one.into()));
            let fits = product.filter(|product| *product < 10_i128.pow(u32::from(DIGITS)));
            Ok(ScalarValue::Decimal128(Some(fits.ok_or_else(out_of_range)?), DIGITS, 0))
        }
    }),
    Definition::new("scale", &[Number], Int, |values| match exact(&values[0]) {
        Some((_, scale)) => Ok(ScalarValue::from(i64::from(scale))),
        None => Ok(ScalarValue::Int64(None)),
    }),
    Definition::new("min_scale", &[Number], Int, |values| match exact(&values[0]) {
        Some((value, scale)) => {
            let zeros =
                (0..scale).take_while(|place| value % 10_i128.pow(u32::from(*place) + 1) == 0).count();
            Ok(ScalarValue::from(i64::from(scale) - zeros as i64))
        }
        None => Ok(ScalarValue::Int64(None)),
    }),
    Definition::new("width_bucket", &[Number, Number, Number, Int], Int, |values| {
        let [value, low, high] = [0, 1, 2].map(|at| exact(&values[at]));
        let (Some(value), Some(low), Some(high)) = (value, low, high) else { return Err(out_of_range()) };
        exact_bucket(value, low, high, int(&values[3]))
    }),
    Definition::new("width_bucket", &[Double, Double, Double, Int], Int, |values| {
        bucket(double(&values[0]), double(&values[1]), double(&values[2]), int(&values[3]))
    }),
    Definition::new("width_bucket", &[Any, List], Int, |values| bucket_of_list(&values[0], &values[1])),
];

fn out_of_range() -> datafusion::error::DataFusionError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range").into_datafusion()
}

fn angle(value: &ScalarValue, of: fn(f64) -> f64) -> Result<ScalarValue> {
    match double(value) {
        value if value.is_infinite() => {
            Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "input is out of range")
                .into_datafusion())
        }
        value => Ok(of(value).into()),
    }
}

fn part(value: &ScalarValue, of: fn(f64) -> f64) -> Result<ScalarValue> {
    match double(value) {
        value if value.abs() > 1.0 => {
            Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "input is out of range")
                .into_datafusion())
        }
        value => Ok(of(value).into()),
    }
}

/// Scaled such that the value for 45 degrees is 1.
fn ratio(one: f64, other: f64) -> f64 {
    one / other / (first_sine(45.0) / first_cosine(45.0))
}

fn radians(degrees: f64) -> f64 {
    degrees * (PI / 180.0)
}

/// Sine of 0 to 90 degrees, exact where it is one half.
fn first_sine(degrees: f64) -> f64 {
    match degrees <= 30.0 {
        true => radians(degrees).sin() / radians(30.0).sin() / 2.0,
        false => first_cosine_to_60(90.0 - degrees),
    }
}

fn first_cosine_to_60(degrees: f64) -> f64 {
    1.0 - (1.0 - radians(degrees).cos()) / (1.0 - radians(60.0).cos()) / 2.0
}

fn first_cosine(degrees: f64) -> f64 {
    match degrees <= 60.0 {
        true => first_cosine_to_60(degrees),
        false => first_sine(90.0 - degrees),
    }
}

fn sind(degrees: f64) -> f64 {
    let turned = degrees % 360.0;
    let (sign, turned) = if turned < 0.0 { (-1.0, -turned) } else { (1.0, turned) };
    let (sign, turned) = if turned > 180.0 { (-sign, 360.0 - turned) } else { (sign, turned) };
    sign * first_sine(turned.min(180.0 - turned))
}

fn cosd(degrees: f64) -> f64 {
    let turned = (degrees % 360.0).abs();
    let turned = if turned > 180.0 { 360.0 - turned } else { turned };
    match turned > 90.0 {
        true => -first_cosine(180.0 - turned),
        false => first_cosine(turned),
    }
}

fn asind(value: f64) -> f64 {
    let degrees = match value.abs() <= 0.5 {
        true => value.abs().asin() / 0.5_f64.asin() * 30.0,
        false => 90.0 - value.abs().acos() / 0.5_f64.acos() * 60.0,
    };
    degrees.copysign(value)
}

fn acosd(value: f64) -> f64 {
    let degrees = match value.abs() <= 0.5 {
        true => 90.0 - value.abs().asin() / 0.5_f64.asin() * 30.0,
        false => value.abs().acos() / 0.5_f64.acos() * 60.0,
    };
    if value < 0.0 { 180.0 - degrees } else { degrees }
}

/// The unscaled value and scale of an integer or decimal; `None`: another type.
fn exact(value: &ScalarValue) -> Option<(i128, u8)> {
    Some(match value {
        ScalarValue::Decimal128(Some(value), _, scale) => match u8::try_from(*scale) {
            Ok(scale) => (*value, scale),
            Err(_) => (value.checked_mul(10_i128.checked_pow(u32::from(scale.unsigned_abs()))?)?, 0),
        },
        ScalarValue::Decimal32(Some(value), _, scale) => (i128::from(*value), u8::try_from(*scale).ok()?),
        ScalarValue::Decimal64(Some(value), _, scale) => (i128::from(*value), u8::try_from(*scale).ok()?),
        ScalarValue::Int8(Some(value)) => (i128::from(*value), 0),
        ScalarValue::Int16(Some(value)) => (i128::from(*value), 0),
        ScalarValue::Int32(Some(value)) => (i128::from(*value), 0),
        ScalarValue::Int64(Some(value)) => (i128::from(*value), 0),
        ScalarValue::UInt8(Some(value)) => (i128::from(*value), 0),
        ScalarValue::UInt16(Some(value)) => (i128::from(*value), 0),
        ScalarValue::UInt32(Some(value)) => (i128::from(*value), 0),
        ScalarValue::UInt64(Some(value)) => (i128::from(*value), 0),
        _ => return None,
    })
}

/// Rescales a number.
fn rescale((value, own): (i128, u8), scale: u8) -> Option<i128> {
    value.checked_mul(10_i128.checked_pow(u32::from(scale - own))?)
}

/// Two numbers at a common scale, and that scale.
fn of_one_scale(values: &[ScalarValue]) -> Result<(i128, i128, u8)> {
    let (Some(left), Some(right)) = (exact(&values[0]), exact(&values[1])) else {
        return Err(out_of_range());
    };
    let scale = left.1.max(right.1);
    match (rescale(left, scale), rescale(right, scale)) {
        (Some(left), Some(right)) => Ok((left, right, scale)),
        _ => Err(out_of_range()),
    }
}

fn divisor(mut left: i128, mut right: i128) -> i128 {
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left.abs()
}

fn to_scalar(value: i128, scale: u8) -> Result<ScalarValue> {
    match scale {
        0 => i64::try_from(value).map(ScalarValue::from).map_err(|_| out_of_range()),
        _ => Ok(ScalarValue::Decimal128(Some(value), DIGITS, scale as i8)),
    }
}

fn quotient(left: (i128, u8), right: (i128, u8)) -> Result<ScalarValue> {
    if right.0 == 0 {
        return Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero").into_datafusion());
    }
    let scale = left.1.max(right.1);
    let (Some(left), Some(right)) = (rescale(left, scale), rescale(right, scale)) else {
        return Err(out_of_range());
    };
    Ok(ScalarValue::Decimal128(Some(left / right), DIGITS, 0))
}

fn wrong_bounds(message: &str) -> datafusion::error::DataFusionError {
    SqlError::new(SqlState::INVALID_ARGUMENT_FOR_WIDTH_BUCKET, message).into_datafusion()
}

fn check_bounds(count: i64, are_equal: bool) -> Result<()> {
    match count {
        ..1 => Err(wrong_bounds("count must be greater than zero")),
        _ if are_equal => Err(wrong_bounds("lower bound cannot equal upper bound")),
        _ => Ok(()),
    }
}

fn exact_bucket(value: (i128, u8), low: (i128, u8), high: (i128, u8), count: i64) -> Result<ScalarValue> {
    let scale = value.1.max(low.1).max(high.1);
    let places = [value, low, high].map(|number| rescale(number, scale));
    let [Some(value), Some(low), Some(high)] = places else { return Err(out_of_range()) };
    check_bounds(count, low == high)?;
    let (from, to) = if low < high { (value, low) } else { (low, value) };
    let (Some(above), Some(width)) = (from.checked_sub(to), high.checked_sub(low).map(i128::abs)) else {
        return Err(out_of_range());
    };
    Ok(ScalarValue::from(match above {
        ..0 => 0,
        _ if above >= width => count.checked_add(1).ok_or_else(out_of_range)?,
        _ => {
            let class = above.checked_mul(i128::from(count)).ok_or_else(out_of_range)? / width;
            i64::try_from(class).map_err(|_| out_of_range())? + 1
        }
    }))
}

fn bucket(value: f64, low: f64, high: f64, count: i64) -> Result<ScalarValue> {
    if value.is_nan() || !low.is_finite() || !high.is_finite() {
        return Err(wrong_bounds(
            "operand, lower bound, and upper bound cannot be NaN, and bounds must be finite",
        ));
    }
    check_bounds(count, low == high)?;
    let (above, width) = if low < high { (value - low, high - low) } else { (low - value, low - high) };
    Ok(ScalarValue::from(match above {
        _ if above < 0.0 => 0,
        _ if above >= width => count.checked_add(1).ok_or_else(out_of_range)?,
        _ => ((above / width * count as f64) as i64).min(count - 1) + 1,
    }))
}

/// The number of sorted thresholds that are not above a value.
fn bucket_of_list(value: &ScalarValue, list: &ScalarValue) -> Result<ScalarValue> {
    let ScalarValue::List(list) = list else { return Err(wrong_bounds("thresholds must be a list")) };
    let thresholds = list.value(0);
    if thresholds.null_count() > 0 {
        return Err(SqlError::new(
            SqlState::NULL_VALUE_NOT_ALLOWED,
            "thresholds array must not contain NULLs",
        )
        .into_datafusion());
    }
    let kind = thresholds.data_type();
    let is_of_numbers = kind.is_numeric() && value.data_type().is_numeric();
    let mut count = 0;
    for at in 0..thresholds.len() {
        let threshold = ScalarValue::try_from_array(&thresholds, at)?;
        let order = match (exact(&threshold), exact(value)) {
            (Some(threshold), Some(value)) => {
                let scale = threshold.1.max(value.1);
                rescale(threshold, scale).partial_cmp(&rescale(value, scale))
            }
            _ if is_of_numbers => {
                let number =
                    |value: &ScalarValue| value.cast_to(&datafusion::arrow::datatypes::DataType::Float64);
                double(&number(&threshold)?).partial_cmp(&double(&number(value)?))
            }
            _ => threshold.partial_cmp(&value.cast_to(kind)?),
        };
        match order {
            Some(Ordering::Greater) => break,
            _ => count = at as i64 + 1,
        }
    }
    Ok(ScalarValue::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_known_angles_are_exact() {
        for (degrees, sine, cosine) in [
            (0.0, 0.0, 1.0),
            (30.0, 0.5, radians(30.0).cos()),
            (60.0, radians(60.0).sin(), 0.5),
            (90.0, 1.0, 0.0),
            (150.0, 0.5, -radians(30.0).cos()),
            (180.0, 0.0, -1.0),
            (-30.0, -0.5, radians(30.0).cos()),
            (270.0, -1.0, 0.0),
            (750.0, 0.5, radians(30.0).cos()),
        ] {
            assert!((sind(degrees) - sine).abs() < 1e-15, "{degrees} {}", sind(degrees));
            assert!((cosd(degrees) - cosine).abs() < 1e-15, "{degrees} {}", cosd(degrees));
        }
        assert_eq!((sind(30.0), cosd(60.0), ratio(sind(45.0), cosd(45.0))), (0.5, 0.5, 1.0));
        assert_eq!((asind(0.5), acosd(0.5), acosd(-0.5), asind(-1.0)), (30.0, 60.0, 120.0, -90.0));
    }

    #[test]
    fn classes_include_their_lower_bound() {
        let class = |value, low, high| exact_bucket((value, 1), (low, 0), (high, 0), 3).unwrap();
        for (value, low, high, expected) in [
            (-1, 0, 3, 0),
            (0, 0, 3, 1),
            (9, 0, 3, 1),
            (10, 0, 3, 2),
            (30, 0, 3, 4),
            (30, 3, 0, 1),
            (20, 3, 0, 2),
            (0, 3, 0, 4),
        ] {
            assert_eq!(class(value, low, high), ScalarValue::from(i64::from(expected)), "{value}");
            let double = bucket(value as f64 / 10.0, low as f64, high as f64, 3).unwrap();
            assert_eq!(double, ScalarValue::from(i64::from(expected)), "{value}");
        }
        assert!(exact_bucket((1, 0), (1, 0), (1, 0), 3).is_err());
        assert!(bucket(1.0, 0.0, 1.0, 0).is_err());
    }
}
