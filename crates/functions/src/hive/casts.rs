//! Casts: `hive_string(x)`, and `hive_cast(x, 'TYPE')` with the name of an Arrow type. A value that the type
//! does not have is NULL; numbers that are too large for an integer type lose their upper bits, as in Java.
//!
//! Source: `PrimitiveObjectInspectorUtils` and `UDFToInteger` and its like of Hive 4.0.1; Java SE 8,
//! `Double.toString`.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray, new_null_array};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit,
};
use datafusion::arrow::util::display::FormatOptions;
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};

use super::java_dates::{date_of, moment_text, parse_moment, us_of};
use super::times;
use crate::interruptible::flag;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Purpose {
    /// (value) → text
    Text,
    /// (value) → the value, a double for a text
    Number,
    /// (value) → the same, a double for an integer, too
    Averaged,
    /// (value, name of an Arrow type) → the value in that type
    Type,
}

pub(super) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [Purpose::Text, Purpose::Number, Purpose::Averaged, Purpose::Type].into_iter().map(|purpose| {
        let count = if purpose == Purpose::Type { 2 } else { 1 };
        let signature = Signature::any(count, Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(Cast { purpose, signature }))
    })
}

/// The cast to a type.
pub fn to_type(expr: Expr, data_type: &DataType) -> Expr {
    let signature = Signature::any(2, Volatility::Immutable);
    let function = ScalarUDF::new_from_impl(Cast { purpose: Purpose::Type, signature });
    function.call(vec![expr, datafusion::logical_expr::lit(data_type.to_string())])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Cast {
    purpose: Purpose,
    signature: Signature,
}

fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8)
}

fn is_nested(kind: &DataType) -> bool {
    matches!(kind, DataType::List(_) | DataType::Map(..) | DataType::Struct(_))
}

/// Errors: Hive casts no numbers to times, and no times to numbers.
fn check(given: &DataType, target: &DataType) -> Result<()> {
    let is_time = |kind: &DataType| matches!(kind, DataType::Timestamp(..) | DataType::Date32);
    match (given, target) {
        (given, target) if is_nested(given) => plan_err!("cannot cast type {given} to {target}"),
        (given, target) if given.is_numeric() && is_time(target) || is_time(given) && target.is_numeric() => {
            plan_err!("casting numbers to times, and times to numbers, is prohibited")
        }
        _ => Ok(()),
    }
}

impl Cast {
    /// The type of the result.
    fn target(&self, given: &DataType, name: Option<&ScalarValue>) -> Result<DataType> {
        match self.purpose {
            Purpose::Text if is_text(given) => Ok(given.clone()),
            Purpose::Text if is_nested(given) => plan_err!("a text of type {given} is not supported"),
            Purpose::Text => Ok(DataType::Utf8),
            Purpose::Number | Purpose::Averaged if is_text(given) => Ok(DataType::Float64),
            Purpose::Averaged if given.is_integer() => Ok(DataType::Float64),
            Purpose::Number | Purpose::Averaged => Ok(given.clone()),
            Purpose::Type => match name.and_then(|name| name.try_as_str().flatten()) {
                Some(name) => {
                    let target: DataType = name.parse()?;
                    check(given, &target)?;
                    Ok(target)
                }
                None => plan_err!("hive_cast needs the name of a type"),
            },
        }
    }
}

impl ScalarUDFImpl for Cast {
    fn name(&self) -> &str {
        match self.purpose {
            Purpose::Text => "hive_string",
            Purpose::Number => "hive_number",
            Purpose::Averaged => "hive_averaged",
            Purpose::Type => "hive_cast",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match (self.purpose, given) {
            (Purpose::Text | Purpose::Number | Purpose::Averaged, [given]) => self.target(given, None),
            _ => plan_err!("{} has no type without its arguments", self.name()),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let Some(given) = arguments.arg_fields.first() else { return plan_err!("a value is missing") };
        let name = arguments.scalar_arguments.get(1).copied().flatten();
        let target = self.target(given.data_type(), name)?;
        Ok(Arc::new(Field::new(self.name(), target, true)))
    }

    fn simplify(&self, mut arguments: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let name = match arguments.get(1) {
            Some(Expr::Literal(name, _)) => Some(name.clone()),
            _ => None,
        };
        let Some(given) = arguments.first() else { return Ok(ExprSimplifyResult::Original(arguments)) };
        let given = given.get_type(context.schema())?;
        match self.target(&given, name.as_ref())? == given {
            true => Ok(ExprSimplifyResult::Simplified(arguments.swap_remove(0))),
            false => Ok(ExprSimplifyResult::Original(arguments)),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(value) = arguments.args.first() else { return exec_err!("a value is missing") };
        let is_constant = matches!(value, ColumnarValue::Scalar(_));
        let array = value.to_array(if is_constant { 1 } else { arguments.number_rows })?;
        flag(&arguments.config_options).check()?;
        let result = convert(&array, arguments.return_field.data_type())?;
        match is_constant {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?)),
            false => Ok(ColumnarValue::Array(result)),
        }
    }
}

/// Converts values.
fn convert(array: &ArrayRef, target: &DataType) -> Result<ArrayRef> {
    let given = array.data_type();
    if given == target {
        return Ok(Arc::clone(array));
    }
    if given.is_null() {
        return Ok(new_null_array(target, array.len()));
    }
    let options = CastOptions { safe: true, format_options: FormatOptions::default() };
    match (given, target) {
        (DataType::Dictionary(_, value), _) => convert(&cast(array, value)?, target),
        (given, target) if is_text(target) => {
            if is_text(given) {
                return Ok(cast(array, target)?);
            }
            let texts = (0..array.len()).map(|row| Ok(text_of(&ScalarValue::try_from_array(array, row)?)));
            let texts = texts.collect::<Result<Vec<_>>>()?;
            let texts: ArrayRef = Arc::new(texts.into_iter().collect::<StringArray>());
            Ok(cast(&texts, target)?)
        }
        (given, target) if is_text(given) => {
            let texts = cast(array, &DataType::Utf8)?;
            let null = ScalarValue::try_from(target)?;
            let read = texts
                .as_string::<i32>()
                .iter()
                .map(|text| text.and_then(|text| value_of(text, target)).unwrap_or_else(|| null.clone()));
            match array.is_empty() {
                true => Ok(new_null_array(target, 0)),
                false => ScalarValue::iter_to_array(read.collect::<Vec<_>>()),
            }
        }
        // Java's: the nearest integer of 32 or 64 bits, of which the lower bits are taken.
        (DataType::Float32 | DataType::Float64, target) if target.is_integer() => {
            let doubles = cast(array, &DataType::Float64)?;
            let is_long = *target == DataType::Int64;
            let wholes = doubles.as_primitive::<Float64Type>();
            let wholes: Int64Array =
                wholes.unary(|double| if is_long { double as i64 } else { i64::from(double as i32) });
            convert(&(Arc::new(wholes) as ArrayRef), target)
        }
        (given, target) if given.is_integer() && target.is_integer() => {
            let wholes = cast(array, &DataType::Int64)?;
            let wholes = wholes.as_primitive::<Int64Type>();
            let narrow: ArrayRef = match target {
                DataType::Int8 => Arc::new(wholes.unary::<_, Int8Type>(|whole| whole as i8)),
                DataType::Int16 => Arc::new(wholes.unary::<_, Int16Type>(|whole| whole as i16)),
                DataType::Int32 => Arc::new(wholes.unary::<_, Int32Type>(|whole| whole as i32)),
                _ => return Ok(cast_with_options(array, target, &options)?),
            };
            Ok(narrow)
        }
        // The integer part.
        (given, target) if given.is_decimal() && target.is_integer() => {
            let rows = (0..array.len()).map(|row| {
                let value = ScalarValue::try_from_array(array, row)?;
                let text = if value.is_null() { None } else { decimal_text(&value) };
                let whole = text.and_then(|text| whole_of(&text));
                Ok(whole)
            });
            let wholes = rows.collect::<Result<Int64Array>>()?;
            convert(&(Arc::new(wholes) as ArrayRef), target)
        }
        (DataType::Timestamp(..), DataType::Timestamp(..)) => Ok(cast_with_options(array, target, &options)?),
        (DataType::Boolean, target) if target.is_decimal() => {
            let whole = cast(array, &DataType::Int32)?;
            Ok(cast_with_options(&whole, target, &options)?)
        }
        (given, DataType::Boolean) if given.is_decimal() => {
            let double = cast(array, &DataType::Float64)?;
            Ok(cast(&double, target)?)
        }
        (DataType::Binary | DataType::BinaryView | DataType::LargeBinary, target) => {
            let texts = cast_with_options(array, &DataType::Utf8, &options)?;
            convert(&texts, target)
        }
        (_, target) => Ok(cast_with_options(array, target, &options)?),
    }
}

/// The integer part of a number in digits, as far as 64 bits have it.
fn whole_of(text: &str) -> Option<i64> {
    let text = text.trim();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_fraction = fraction.bytes().all(|digit| digit.is_ascii_digit());
    let whole = whole.strip_prefix('+').unwrap_or(whole);
    match whole {
        _ if !is_fraction => None,
        "" | "-" if !fraction.is_empty() => Some(0),
        whole => whole.parse().ok(),
    }
}

/// A text as a value of a type; `None`: it is none.
fn value_of(text: &str, target: &DataType) -> Option<ScalarValue> {
    let trimmed = text.trim();
    Some(match target {
        DataType::Int8 => ScalarValue::Int8(Some(whole_of(trimmed)?.try_into().ok()?)),
        DataType::Int16 => ScalarValue::Int16(Some(whole_of(trimmed)?.try_into().ok()?)),
        DataType::Int32 => ScalarValue::Int32(Some(whole_of(trimmed)?.try_into().ok()?)),
        DataType::Int64 => ScalarValue::Int64(Some(whole_of(trimmed)?)),
        DataType::Float32 => ScalarValue::Float32(Some(double_of(trimmed)? as f32)),
        DataType::Float64 => ScalarValue::Float64(Some(double_of(trimmed)?)),
        DataType::Boolean => {
            let is_false = ["", "false", "off", "no", "0"].iter().any(|word| word.eq_ignore_ascii_case(text));
            ScalarValue::Boolean(Some(!is_false))
        }
        DataType::Date32 => ScalarValue::Date32(Some(times::days(trimmed)?)),
        DataType::Timestamp(TimeUnit::Microsecond, None) => {
            ScalarValue::TimestampMicrosecond(Some(us_of(parse_moment(trimmed)?)), None)
        }
        DataType::Decimal128(precision, scale) => decimal_of(trimmed, *precision, *scale)?,
        target => ScalarValue::from(text).cast_to(target).ok()?,
    })
}

/// Rounds half up.
fn decimal_of(text: &str, precision: u8, scale: i8) -> Option<ScalarValue> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let is_negative = mantissa.starts_with('-');
    let digits = mantissa.strip_prefix(['-', '+']).unwrap_or(mantissa);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all: String = [whole, fraction].concat();
    if all.is_empty() || !all.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    // Digits that count: those before the point, moved by the exponent, and as many as the scale behind it.
    let kept = whole.len() as i32 + exponent + i32::from(scale);
    let value: i128 = match usize::try_from(kept) {
        Ok(kept) if kept <= all.len() => {
            let base: i128 = if kept == 0 { 0 } else { all[..kept].parse().ok()? };
            let is_up = all.as_bytes().get(kept).is_some_and(|digit| *digit >= b'5');
            base + i128::from(is_up)
        }
        Ok(kept) => {
            let zeros = u32::try_from(kept - all.len()).ok()?;
            all.parse::<i128>().ok()?.checked_mul(10_i128.checked_pow(zeros)?)?
        }
        Err(_) => 0,
    };
    let limit = 10_i128.checked_pow(u32::from(precision))?;
    (value < limit)
        .then(|| ScalarValue::Decimal128(Some(if is_negative { -value } else { value }), precision, scale))
}

fn double_of(text: &str) -> Option<f64> {
    let digits = text
        .strip_suffix(['d', 'D', 'f', 'F'])
        .filter(|rest| rest.ends_with(|sign: char| sign.is_ascii_digit()));
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" | "+Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ if text.contains(|sign: char| sign.is_ascii_alphabetic() && !"eEdDfF".contains(sign)) => None,
        _ => digits.unwrap_or(text).parse().ok(),
    }
}

fn decimal_text(value: &ScalarValue) -> Option<String> {
    match value {
        value if value.is_null() => None,
        ScalarValue::Decimal128(..)
        | ScalarValue::Decimal256(..)
        | ScalarValue::Decimal64(..)
        | ScalarValue::Decimal32(..) => {
            let text = value.cast_to(&DataType::Utf8).ok()?;
            text.try_as_str().flatten().map(str::to_string)
        }
        _ => None,
    }
}

/// A value as Hive writes it; `None` for NULL.
pub(super) fn text_of(value: &ScalarValue) -> Option<String> {
    if value.is_null() {
        return None;
    }
    Some(match value {
        ScalarValue::Float32(Some(float)) => java_double(f64::from(*float), &float.to_string()),
        ScalarValue::Float64(Some(double)) => java_double(*double, &double.to_string()),
        ScalarValue::Boolean(Some(truth)) => if *truth { "TRUE" } else { "FALSE" }.to_string(),
        ScalarValue::Date32(Some(days)) => date_of(*days)?.to_string(),
        ScalarValue::TimestampMicrosecond(Some(us), None) => times::text_of(*us)?,
        ScalarValue::TimestampNanosecond(Some(ns), None) => {
            moment_text(chrono::DateTime::from_timestamp_nanos(*ns).naive_utc())
        }
        ScalarValue::Binary(Some(bytes)) | ScalarValue::BinaryView(Some(bytes)) => {
            String::from_utf8_lossy(bytes).into_owned()
        }
        other => match other.try_as_str() {
            Some(text) => text?.to_string(),
            None => {
                let text = other.cast_to(&DataType::Utf8).ok()?;
                text.try_as_str().flatten()?.to_string()
            }
        },
    })
}

/// Java's form of a double: a point always, and an exponent from 10 million on and below a thousandth.
/// `plain`: its shortest digits without an exponent, as Rust writes them.
fn java_double(double: f64, plain: &str) -> String {
    let size = double.abs();
    if double.is_nan() {
        return "NaN".to_string();
    }
    if double.is_infinite() {
        return if double > 0.0 { "Infinity" } else { "-Infinity" }.to_string();
    }
    if size == 0.0 || (1e-3..1e7).contains(&size) {
        return if plain.contains('.') { plain.to_string() } else { format!("{plain}.0") };
    }
    let sign = if double < 0.0 { "-" } else { "" };
    let plain = plain.trim_start_matches('-');
    let (whole, fraction) = plain.split_once('.').unwrap_or((plain, ""));
    let all = [whole, fraction].concat();
    let leading = all.bytes().take_while(|digit| *digit == b'0').count();
    let digits = all[leading..].trim_end_matches('0');
    let exponent = whole.len() as i64 - leading as i64 - 1;
    let (first, rest) = digits.split_at(1);
    format!("{sign}{first}.{}E{exponent}", if rest.is_empty() { "0" } else { rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_hive_does() {
        let read = |text: &str, kind: &DataType| value_of(text, kind).map(|value| value.to_string());
        for (text, kind, expected) in [
            ("12", DataType::Int32, Some("12")),
            (" 12.7 ", DataType::Int32, Some("12")),
            ("12abc", DataType::Int32, None),
            ("300", DataType::Int8, None),
            ("1e3", DataType::Float64, Some("1000")),
            ("inf", DataType::Float64, None),
            ("0.1255", DataType::Decimal128(10, 3), Some("0.126")),
            ("-1.5e2", DataType::Decimal128(10, 0), Some("-150")),
            ("12345", DataType::Decimal128(3, 0), None),
            ("2020-1-5", DataType::Date32, Some("2020-01-05")),
            ("2020-13-05", DataType::Date32, None),
            ("no", DataType::Boolean, Some("false")),
        ] {
            assert_eq!(read(text, &kind).as_deref(), expected, "{text} {kind}");
        }
    }

    #[test]
    fn doubles_are_written_as_in_java() {
        for (double, expected) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e10, "1.0E10"),
            (1.25e-5, "1.25E-5"),
            (-12_345_678.9, "-1.23456789E7"),
            (100.0, "100.0"),
            (0.0, "0.0"),
        ] {
            assert_eq!(text_of(&ScalarValue::from(double)).unwrap(), expected);
        }
    }
}
