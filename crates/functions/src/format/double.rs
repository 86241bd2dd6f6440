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
    put(out, value.into(), &format!("{value:e}"), REAL_DIGITS);
}

/// Writes a double as its text.
pub fn put_double(out: &mut impl BufMut, value: f64) {
    put(out, value, &format!("{value:e}"), DOUBLE_DIGITS);
}

/// Writes a number: the fewest digits that tell it from others, with an exponent where PostgreSQL has one. `scientific`: how it is written
/// with one digit before the point, as Rust does.
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
        ];
        for (value, text) in cases {
            let mut out = Vec::new();
            put_double(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
        let mut out = Vec::new();
        put_real(&mut out, 1e6);
        assert_eq!(out, b"1e+06");
    }
}
