//! Texts of NUMERIC with an exponent, as `1e-3`, which a cast does not read: the same number without one. It
//! travels to ranks by its name.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::delegation::show_as_argument;

/// No number of more digits fits into a NUMERIC.
const EXPONENT_MAX: i32 = 100;

/// The number without its exponent; `None`: it has none, or the text is no number.
pub fn plain(text: &str) -> Option<String> {
    let text = text.trim();
    let (mantissa, exponent) = text.split_once(['e', 'E'])?;
    let exponent: i32 = exponent.parse().ok()?;
    let digits = mantissa.strip_prefix(['-', '+']).unwrap_or(mantissa);
    let sign = if mantissa.starts_with('-') { "-" } else { "" };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{fraction}");
    if all.is_empty() || !all.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let exponent = exponent.clamp(-EXPONENT_MAX, EXPONENT_MAX);
    let point = i32::try_from(whole.len()).ok()?.checked_add(exponent)?;
    Some(match usize::try_from(point) {
        Ok(point) if point >= all.len() => format!("{sign}{all:0<point$}"),
        Ok(point) if point > 0 => format!("{sign}{}.{}", &all[..point], &all[point..]),
        _ => format!("{sign}0.{}{all}", "0".repeat(point.unsigned_abs() as usize)),
    })
}

/// (text) → the same text without an exponent.
pub fn function() -> Arc<ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(PlainNumber { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PlainNumber {
    signature: Signature,
}

impl ScalarUDFImpl for PlainNumber {
    fn name(&self) -> &str {
        "harrier_plain_number"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.as_slice() {
            [ColumnarValue::Array(texts)] => plain_all(texts).map(ColumnarValue::Array),
            [ColumnarValue::Scalar(text)] => {
                let text = plain_all(&text.to_array()?)?;
                ScalarValue::try_from_array(&text, 0).map(ColumnarValue::Scalar)
            }
            _ => internal_err!("{} has one argument", self.name()),
        }
    }

    show_as_argument!();
}

fn plain_all(texts: &ArrayRef) -> Result<ArrayRef> {
    let texts = cast(texts, &DataType::Utf8)?;
    let read = texts.as_string::<i32>();
    if !read.iter().flatten().any(|text| text.contains(['e', 'E'])) {
        return Ok(texts);
    }
    let plain_one = |text: &str| plain(text).unwrap_or_else(|| text.to_string());
    Ok(Arc::new(read.iter().map(|text| text.map(plain_one)).collect::<StringArray>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_move_the_point() {
        for (text, expected) in [
            ("1e-3", "0.001"),
            (" -1.5E2 ", "-150"),
            ("+2.5e-1", "0.25"),
            ("12.345e1", "123.45"),
            ("12.345e3", "12345"),
            (".5e1", "5"),
            ("5.e0", "5"),
            ("0e0", "0"),
            ("1e+2", "100"),
        ] {
            assert_eq!(plain(text).as_deref(), Some(expected), "{text}");
        }
        for other in ["1.5", "", "e", "e5", "1e", "1e5e5", "Infinity", "x1e5", "--1e5", "1e1.5"] {
            assert_eq!(plain(other), None, "{other}");
        }
        assert!(plain("1e999999").is_some_and(|text| text.len() == 101));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("1e2"), None, Some("x"), Some("7")]));
        let expected: ArrayRef = Arc::new(StringArray::from(vec![Some("100"), None, Some("x"), Some("7")]));
        assert_eq!(&plain_all(&texts).unwrap(), &expected);
    }
}
