//! Doubles and reals as texts in PostgreSQL's format: a plain cast writes `5.0`, `1e300` and `inf`.

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

/// From here on all floats are integers, and the midpoint of two of them may have as few digits as they.
const REAL_WHOLE: f32 = 16_777_216.0;
const DOUBLE_WHOLE: f64 = 9_007_199_254_740_992.0;

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
                let texts = format_array(value.to_array()?.as_ref())?;
                ScalarValue::try_from_array(&texts, 0).map(ColumnarValue::Scalar)
            }
            [ColumnarValue::Array(values)] => {
                Ok(ColumnarValue::Array(Arc::new(format_array(values.as_ref())?)))
            }
            _ => internal_err!("{} has one argument", self.name()),
        }
    }
}

pub(crate) fn format_array(values: &dyn Array) -> Result<StringArray> {
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
        let bits = value.abs().to_bits();
        let bounds = halves(u128::from(bits & 0x7f_ffff), 23, (bits >> 23) as i32 - 150);
        let of_digits = |digits: usize| format!("{value:.digits$e}");
        text = inside(text, of_digits, |text| text.parse() == Ok(value), bounds);
    }
    put(out, value.into(), &text, REAL_DIGITS);
}

/// Writes a double as its text.
pub fn put_double(out: &mut impl BufMut, value: f64) {
    let mut text = format!("{value:e}");
    if value.abs() > DOUBLE_WHOLE && value.is_finite() {
        let bits = value.abs().to_bits();
        let bounds = halves(u128::from(bits & 0xf_ffff_ffff_ffff), 52, (bits >> 52) as i32 - 1075);
        let of_digits = |digits: usize| format!("{value:.digits$e}");
        text = inside(text, of_digits, |text| text.parse() == Ok(value), bounds);
    }
    put(out, value, &text, DOUBLE_DIGITS);
}

/// An integer as an odd factor and a power of two.
type Whole = (u128, i32);

/// The midpoints between a float and its next smaller and larger neighbors. The number is `(2^fraction_bits +
/// fraction) * 2^exponent`.
fn halves(fraction: u128, fraction_bits: u32, exponent: i32) -> [Whole; 2] {
    let mantissa = 1_u128 << fraction_bits | fraction;
    // Below a power of two, floats are half as far apart.
    let below = match fraction {
        0 => (4 * mantissa - 1, exponent - 2),
        _ => (2 * mantissa - 1, exponent - 1),
    };
    [below, (2 * mantissa + 1, exponent - 1)]
}

/// The fewest digits that PostgreSQL accepts for the number: it rejects a text at the midpoint to a neighbor.
/// `text` is the shortest candidate: `1e23` is between two doubles.
fn inside(
    text: String,
    of_digits: impl Fn(usize) -> String,
    is_number: impl Fn(&str) -> bool,
    bounds: [Whole; 2],
) -> String {
    const DIGITS_MAX: usize = 17;
    let is_inside = |text: &str| whole(text).is_none_or(|read| !bounds.contains(&read));
    if is_inside(&text) {
        return text;
    }
    let more = (1..DIGITS_MAX).map(of_digits).find(|more| is_number(more) && is_inside(more));
    more.unwrap_or(text)
}

/// The absolute value of a text such as `1.25e30`; `None`: not an integer, or with a power of five too large
/// for a midpoint.
fn whole(text: &str) -> Option<Whole> {
    // 5^24 has more bits than the odd factor of a midpoint of doubles.
    const ZEROS_MAX: u32 = 23;
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (first, rest) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: u128 = format!("{}{rest}", first.trim_start_matches('-')).parse().ok()?;
    let zeros = exponent.parse::<u32>().ok()?.checked_sub(rest.len() as u32)?;
    if zeros > ZEROS_MAX || digits == 0 {
        return None;
    }
    let number = digits.checked_mul(5_u128.pow(zeros))?;
    let twos = number.trailing_zeros();
    Some((number >> twos, (twos + zeros) as i32))
}

/// Writes a number: the fewest digits that distinguish it from others, with an exponent where PostgreSQL
/// writes one. `scientific`: Rust's notation with one digit before the point.
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
            // 2^73 * 5^23, and 5^23 is a midpoint.
            (1.125_899_906_842_624e38, "1.1258999068426239e+38"),
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
