//! Doubles and reals as texts, as PostgreSQL writes them: a cast by itself writes `5.0`, `1e300` and `inf`.

use std::sync::Arc;

use bytes::BufMut;
use datafusion::arrow::array::{Array, AsArray, StringArray, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// From so many digits before the point on, a number has an exponent.
const REAL_DIGITS: i32 = 6;
const DOUBLE_DIGITS: i32 = 15;

/// From here on all numbers are whole, and what is between two of them may have as few digits as they.
const REAL_WHOLE: f32 = 16_777_216.0;
const DOUBLE_WHOLE: f64 = 9_007_199_254_740_992.0;

/// What is between larger numbers has more digits than they.
const WHOLE_MAX: f64 = 1e38;

/// (double or real) → text, such as `5`, `1e+300` and `Infinity`.
pub fn function() -> Arc<ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Shown { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Shown {
    signature: Signature,
}

impl ScalarUDFImpl for Shown {
    fn name(&self) -> &str {
        "harrier_shown_double"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [DataType::Float32 | DataType::Float64] => Ok(DataType::Utf8),
            _ => plan_err!("{} does not take {arguments:?}", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.as_slice() {
            [ColumnarValue::Scalar(value)] => {
                let texts = shown(value.to_array()?.as_ref())?;
                ScalarValue::try_from_array(&texts, 0).map(ColumnarValue::Scalar)
            }
            [ColumnarValue::Array(values)] => Ok(ColumnarValue::Array(Arc::new(shown(values.as_ref())?))),
            _ => internal_err!("{} has one argument", self.name()),
        }
    }
}

pub(crate) fn shown(values: &dyn Array) -> Result<StringArray> {
    let mut texts = StringBuilder::with_capacity(values.len(), 8 * values.len());
    let mut text = Vec::new();
    for at in 0..values.len() {
        if values.is_null(at) {
            texts.append_null();
            continue;
        }
        text.clear();
        match values.data_type() {
            DataType::Float32 => put_real(&mut text, values.as_primitive::<Float32Type>().value(at)),
            DataType::Float64 => put_double(&mut text, values.as_primitive::<Float64Type>().value(at)),
            other => return internal_err!("{other} is no double"),
        }
        texts.append_value(String::from_utf8_lossy(&text));
    }
    Ok(texts.finish())
}

/// Writes a real as its text.
pub fn put_real(out: &mut impl BufMut, value: f32) {
    let mut text = format!("{value:e}");
    if value.abs() >= REAL_WHOLE && value.is_finite() {
        let between = |other: f32| (f64::from(value) + f64::from(other)) / 2.0;
        let bounds = [between(value.next_down()), between(value.next_up())];
        let is_inside = |text: &str| text.parse().is_ok_and(|read: f64| !bounds.contains(&read));
        text =
            inside(text, |digits| format!("{value:.digits$e}"), |text| text.parse() == Ok(value), is_inside);
    }
    put(out, value.into(), &text, REAL_DIGITS);
}

/// Writes a double as its text.
pub fn put_double(out: &mut impl BufMut, value: f64) {
    let mut text = format!("{value:e}");
    if value.abs() > DOUBLE_WHOLE && value.is_finite() {
        let size = value.abs();
        let exact = |number: f64| (number < WHOLE_MAX).then_some(number as u128);
        let below = exact(size).zip(exact((size - size.next_down()) / 2.0)).map(|(size, half)| size - half);
        let above = exact(size).zip(exact((size.next_up() - size) / 2.0)).map(|(size, half)| size + half);
        let bounds = [below, above];
        let is_inside = |text: &str| whole(text).is_none_or(|read| !bounds.contains(&Some(read)));
        text =
            inside(text, |digits| format!("{value:.digits$e}"), |text| text.parse() == Ok(value), is_inside);
    }
    put(out, value, &text, DOUBLE_DIGITS);
}

/// The fewest digits that are the number's, which a text half the way to another number is not to PostgreSQL.
/// `text` is one that may be: `1e23` is between two doubles.
fn inside(
    text: String,
    of_digits: impl Fn(usize) -> String,
    is_number: impl Fn(&str) -> bool,
    is_inside: impl Fn(&str) -> bool,
) -> String {
    const DIGITS_MAX: usize = 17;
    if is_inside(&text) {
        return text;
    }
    let more = (1..DIGITS_MAX).map(of_digits).find(|more| is_number(more) && is_inside(more));
    more.unwrap_or(text)
}

/// What a text such as `1.25e30` says without its sign, if that is a whole number.
fn whole(text: &str) -> Option<u128> {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (first, rest) = mantissa.trim_start_matches('-').split_once('.').unwrap_or((mantissa, ""));
    let digits: u128 = format!("{}{rest}", first.trim_start_matches('-')).parse().ok()?;
    let zeros = exponent.parse::<u32>().ok()?.checked_sub(rest.len() as u32)?;
    digits.checked_mul(10_u128.checked_pow(zeros)?)
}

/// Writes a number: the fewest digits that tell it from others, with an exponent where PostgreSQL has one.
/// `scientific`: how it is written with one digit before the point, as Rust does.
fn put(out: &mut impl BufMut, value: f64, scientific: &str, digits_max: i32) {
    if value.is_nan() {
        return out.put_slice(b"NaN");
    }
    if value.is_infinite() {
        return out.put_slice(if value > 0.0 { b"Infinity" } else { b"-Infinity" });
    }
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    out.put_slice(sign.as_bytes());
    if !(-4..digits_max).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return out.put_slice(format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs()).as_bytes());
    }
    let number: Vec<u8> = mantissa.bytes().filter(u8::is_ascii_digit).collect();
    if exponent < 0 {
        out.put_slice(b"0.");
        (1..-exponent).for_each(|_| out.put_u8(b'0'));
        return out.put_slice(&number);
    }
    let whole = exponent as usize + 1;
    for at in 0..whole.max(number.len()) {
        if at == whole {
            out.put_u8(b'.');
        }
        out.put_u8(number.get(at).copied().unwrap_or(b'0'));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_written() {
        let cases = [
            (1.0, "1"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (1e15, "1e+15"),
            (123_456_789_012_345.0, "123456789012345"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (1.5e300, "1.5e+300"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
            (0.0, "0"),
            (-0.0, "-0"),
            (1e23, "9.999999999999999e+22"),
            (-1e23, "-9.999999999999999e+22"),
            (2e23, "1.9999999999999998e+23"),
            (8.41e21, "8.409999999999999e+21"),
            (9_007_199_254_740_992.0, "9.007199254740992e+15"),
            (1e22, "1e+22"),
            (1e38, "1e+38"),
            (1e300, "1e+300"),
        ];
        for (value, text) in cases {
            let mut out = Vec::new();
            put_double(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
        for (value, text) in [
            (1e6, "1e+06"),
            (50_331_648.0, "5.0331648e+07"),
            (-3e10, "-3.0000001e+10"),
            (16_777_216.0, "1.6777216e+07"),
            (1e10, "1e+10"),
            (f32::MAX, "3.4028235e+38"),
        ] {
            let mut out = Vec::new();
            put_real(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}
