//! Numbers: rounding, remainders, digits in other bases, and functions that may have no value.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float64Array, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Float64Type, Int64Type};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::postgres_functions::Kind::{Any, Bytes, Double, Int, Text};
use crate::postgres_functions::{Definition, bytes, double, int, text};

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition::new("hive_bin", &[Int], Text, |values| text_value(format!("{:b}", int(&values[0])))),
    Definition::new("hive_conv", &[Text, Int, Int], Text, |values| {
        Ok(ScalarValue::Utf8(conv(text(&values[0]), int(&values[1]), int(&values[2]))))
    }),
    Definition::new("hive_factorial", &[Int], Int, |values| {
        let number = int(&values[0]);
        Ok(ScalarValue::Int64((0..=20).contains(&number).then(|| (1..=number).product())))
    }),
    Definition::new("hive_format_number", &[Double, Int], Text, |values| {
        let Ok(digits) = usize::try_from(int(&values[1])) else { return Ok(ScalarValue::Utf8(None)) };
        text_value(with_commas(double(&values[0]), digits.min(340)))
    }),
    Definition::new("hive_hex", &[Bytes], Text, |values| {
        text_value(bytes(&values[0]).iter().map(|byte| format!("{byte:02X}")).collect())
    }),
    Definition::new("hive_hex", &[Int], Text, |values| text_value(format!("{:X}", int(&values[0])))),
    Definition::new("hive_hex", &[Any], Text, |_| Ok(ScalarValue::Utf8(None))),
    Definition::new("hive_unhex", &[Text], Bytes, |values| Ok(ScalarValue::Binary(unhex(text(&values[0]))))),
    Definition::new("hive_ln", &[Double], Double, |values| positive(&values[0], f64::ln)),
    Definition::new("hive_log2", &[Double], Double, |values| positive(&values[0], f64::log2)),
    Definition::new("hive_log10", &[Double], Double, |values| positive(&values[0], f64::log10)),
    Definition::new("hive_log", &[Double, Double], Double, |values| {
        let (base, number) = (double(&values[0]), double(&values[1]));
        Ok(ScalarValue::Float64((base > 1.0 && number > 0.0).then(|| number.ln() / base.ln())))
    }),
    Definition::new("hive_pmod", &[Int, Int], Int, |values| {
        let (number, by) = (int(&values[0]), int(&values[1]));
        // As in Java: ((a % b) + b) % b, of which a negative divisor leaves a negative number.
        let rest = number.checked_rem(by).map(|rest| rest.wrapping_add(by) % by);
        Ok(ScalarValue::Int64(rest))
    }),
    Definition::new("hive_pmod", &[Double, Double], Double, |values| {
        let (number, by) = (double(&values[0]), double(&values[1]));
        Ok(ScalarValue::Float64((by != 0.0).then(|| (number % by + by) % by)))
    }),
    Definition::new("hive_power", &[Double, Double], Double, |values| {
        Ok(ScalarValue::Float64(Some(double(&values[0]).powf(double(&values[1])))))
    }),
    Definition::new("hive_sqrt", &[Double], Double, |values| {
        let number = double(&values[0]);
        Ok(ScalarValue::Float64((number >= 0.0).then(|| number.sqrt())))
    }),
];

fn text_value(text: String) -> Result<ScalarValue> {
    Ok(ScalarValue::Utf8(Some(text)))
}

fn positive(value: &ScalarValue, of: fn(f64) -> f64) -> Result<ScalarValue> {
    let number = double(value);
    Ok(ScalarValue::Float64((number > 0.0).then(|| of(number))))
}

/// Digits of one base in another, as unsigned numbers of 64 bits; signed ones if the new base is negative.
fn conv(digits: &str, from: i64, to: i64) -> Option<String> {
    let (base, radix) = (u32::try_from(from.abs()).ok()?, u32::try_from(to.abs()).ok()?);
    if !(2..=36).contains(&base) || !(2..=36).contains(&radix) || digits.is_empty() {
        return None;
    }
    let is_negative = digits.starts_with('-');
    let mut value: u64 = 0;
    for digit in digits.trim_start_matches('-').chars().map_while(|sign| sign.to_digit(base)) {
        let next = value.checked_mul(u64::from(base)).and_then(|value| value.checked_add(u64::from(digit)));
        match next {
            Some(next) => value = next,
            None => {
                value = u64::MAX;
                break;
            }
        }
    }
    if is_negative {
        value = value.wrapping_neg();
    }
    let is_signed = to < 0 && (value as i64) < 0;
    if is_signed {
        value = value.wrapping_neg();
    }
    let mut written = Vec::new();
    loop {
        written.push(char::from_digit((value % u64::from(radix)) as u32, radix)?.to_ascii_uppercase());
        value /= u64::from(radix);
        if value == 0 {
            break;
        }
    }
    if is_signed {
        written.push('-');
    }
    Some(written.into_iter().rev().collect())
}

/// With commas between thousands.
fn with_commas(number: f64, digits: usize) -> String {
    let plain = format!("{:.digits$}", number.abs());
    let (whole, fraction) = plain.split_once('.').map_or((plain.as_str(), None), |(w, f)| (w, Some(f)));
    let mut written = String::new();
    if number < 0.0 && plain.bytes().any(|digit| matches!(digit, b'1'..=b'9')) {
        written.push('-');
    }
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            written.push(',');
        }
        written.push(digit);
    }
    if let Some(fraction) = fraction {
        written.push('.');
        written.push_str(fraction);
    }
    written
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let digits = match digits.len() % 2 {
        1 => format!("0{digits}"),
        _ => digits.to_string(),
    };
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// Half away from zero.
pub(super) fn round() -> Arc<ScalarUDF> {
    rounding(false)
}

/// Half to the even neighbour.
pub(super) fn bround() -> Arc<ScalarUDF> {
    rounding(true)
}

fn rounding(is_even: bool) -> Arc<ScalarUDF> {
    let signature = Signature::variadic_any(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Round { is_even, signature }))
}

/// (number, digits) → the rounded number: integers stay, decimals have as many digits behind the point.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Round {
    is_even: bool,
    signature: Signature,
}

fn digits_of(value: Option<&ScalarValue>) -> i64 {
    let whole = value.and_then(|value| value.cast_to(&DataType::Int64).ok());
    match whole {
        Some(ScalarValue::Int64(Some(digits))) => digits,
        _ => 0,
    }
}

impl Round {
    fn kind(given: &DataType, digits: i64) -> DataType {
        match given {
            given if given.is_integer() => given.clone(),
            DataType::Decimal128(precision, scale) => {
                let digits = i8::try_from(digits.clamp(0, 38)).unwrap_or_default();
                match digits >= *scale {
                    true => given.clone(),
                    false => {
                        let whole = i16::from(*precision) - i16::from(*scale);
                        let precision = (whole + 1 + i16::from(digits)).clamp(1, 38);
                        DataType::Decimal128(u8::try_from(precision).unwrap_or(38), digits)
                    }
                }
            }
            _ => DataType::Float64,
        }
    }
}

impl ScalarUDFImpl for Round {
    fn name(&self) -> &str {
        if self.is_even { "hive_bround" } else { "hive_round" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        plan_err!("{} has no type without its arguments", self.name())
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let Some(given) = arguments.arg_fields.first() else { return plan_err!("a number is missing") };
        let digits = digits_of(arguments.scalar_arguments.get(1).copied().flatten());
        Ok(Arc::new(Field::new(self.name(), Self::kind(given.data_type(), digits), true)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(value) = arguments.args.first() else { return exec_err!("a number is missing") };
        let is_constant = matches!(value, ColumnarValue::Scalar(_));
        let array = value.to_array(if is_constant { 1 } else { arguments.number_rows })?;
        let digits = match arguments.args.get(1) {
            Some(ColumnarValue::Scalar(digits)) => digits_of(Some(digits)),
            Some(ColumnarValue::Array(_)) => {
                return exec_err!("the digits of {} are a constant", self.name());
            }
            None => 0,
        };
        let result = round_all(&array, arguments.return_field.data_type(), digits, self.is_even)?;
        match is_constant {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?)),
            false => Ok(ColumnarValue::Array(result)),
        }
    }
}

/// `value` divided by a power of ten and rounded.
fn drop_digits(value: i128, zeros: u32, is_even: bool) -> i128 {
    let Some(unit) = 10_i128.checked_pow(zeros) else { return 0 };
    let (whole, rest) = (value / unit, value % unit);
    let is_up = match (rest.unsigned_abs() * 2).cmp(&unit.unsigned_abs()) {
        std::cmp::Ordering::Greater => true,
        std::cmp::Ordering::Equal => unit > 1 && (!is_even || whole % 2 != 0),
        std::cmp::Ordering::Less => false,
    };
    whole + if is_up { value.signum() } else { 0 }
}

fn round_all(array: &ArrayRef, target: &DataType, digits: i64, is_even: bool) -> Result<ArrayRef> {
    let zeros = u32::try_from(digits.unsigned_abs()).unwrap_or(u32::MAX);
    let whole = |value: i128| {
        let unit = 10_i128.checked_pow(zeros);
        unit.map_or(0, |unit| drop_digits(value, zeros, is_even) * unit)
    };
    match (array.data_type(), target) {
        (given, _) if given.is_integer() => {
            if digits >= 0 {
                return Ok(Arc::clone(array));
            }
            let wide = cast(array, &DataType::Int64)?;
            let wide: Int64Array =
                wide.as_primitive::<Int64Type>().unary(|value| whole(i128::from(value)) as i64);
            Ok(cast(&(Arc::new(wide) as ArrayRef), target)?)
        }
        (DataType::Decimal128(_, scale), DataType::Decimal128(precision, kept)) => {
            let dropped = u32::try_from(i16::from(*scale) - i16::from(*kept)).unwrap_or_default();
            let values = array.as_primitive::<Decimal128Type>();
            let values: Decimal128Array = values.unary(|value| match digits < 0 {
                true => shortened_to_whole(value, dropped, zeros, is_even),
                false => drop_digits(value, dropped, is_even),
            });
            Ok(Arc::new(values.with_precision_and_scale(*precision, *kept)?))
        }
        _ => {
            let doubles = cast(array, &DataType::Float64)?;
            let doubles = doubles.as_primitive::<Float64Type>();
            let result: Float64Array = doubles.unary(|double| round_double(double, digits, is_even));
            Ok(Arc::new(result))
        }
    }
}

/// A decimal that is rounded before the point.
fn shortened_to_whole(value: i128, dropped: u32, zeros: u32, is_even: bool) -> i128 {
    let Some(unit) = 10_i128.checked_pow(zeros) else { return 0 };
    drop_digits(value, dropped + zeros, is_even) * unit
}

/// By its decimal digits, as Java's `BigDecimal.valueOf` has them.
fn round_double(double: f64, digits: i64, is_even: bool) -> f64 {
    if !double.is_finite() || digits > 300 {
        return double;
    }
    let plain = double.abs().to_string();
    let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
    let kept = whole.len() as i64 + digits;
    let all = [whole, fraction].concat();
    let Ok(kept) = usize::try_from(kept) else { return 0.0 };
    if kept >= all.len() {
        return double;
    }
    let rest = &all.as_bytes()[kept..];
    let is_half = rest[0] == b'5' && rest[1..].iter().all(|digit| *digit == b'0');
    let is_odd = kept > 0 && (all.as_bytes()[kept - 1] - b'0') % 2 == 1;
    let is_up = if is_half && is_even { is_odd } else { rest[0] >= b'5' };
    let mut number: Vec<u8> = all.as_bytes()[..kept].to_vec();
    if is_up {
        let mut at = kept;
        loop {
            match at.checked_sub(1) {
                None => {
                    number.insert(0, b'1');
                    break;
                }
                Some(before) if number[before] == b'9' => {
                    number[before] = b'0';
                    at = before;
                }
                Some(before) => {
                    number[before] += 1;
                    break;
                }
            }
        }
    }
    let number = String::from_utf8(number).unwrap_or_default();
    let size: f64 =
        format!("{}e{}", if number.is_empty() { "0" } else { &number }, -digits).parse().unwrap_or(double);
    size.copysign(double)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_by_their_digits() {
        for (double, digits, is_even, expected) in [
            (2.5, 0, false, 3.0),
            (-2.5, 0, false, -3.0),
            (2.5, 0, true, 2.0),
            (3.5, 0, true, 4.0),
            (1.005, 2, false, 1.01),
            (123.456, -1, false, 120.0),
            (99.99, 1, false, 100.0),
            (0.3, 0, false, 0.0),
        ] {
            assert_eq!(round_double(double, digits, is_even), expected, "{double} {digits}");
        }
        assert_eq!(drop_digits(-25, 1, false), -3);
        assert_eq!(drop_digits(25, 1, true), 2);
    }

    #[test]
    fn digits_are_converted() {
        assert_eq!(conv("4521", 10, 36).as_deref(), Some("3HL"));
        assert_eq!(conv("-10", 16, -10).as_deref(), Some("-16"));
        assert_eq!(conv("22", 10, 10).as_deref(), Some("22"));
        assert_eq!(conv("110011", 2, 16).as_deref(), Some("33"));
        assert_eq!(with_commas(-1_234_567.891, 2), "-1,234,567.89");
        assert_eq!(unhex("4D7953514C").as_deref(), Some(b"MySQL".as_slice()));
        assert_eq!(unhex("zz"), None);
    }
}
