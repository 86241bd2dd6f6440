//! Input of floats: fails for numbers out of the type's range, where a cast returns infinity or zero.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringArray};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options, nullif};
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::common::format::DEFAULT_CAST_OPTIONS;
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::delegation::show_as_argument;

/// (text) → double precision; `None`: the type is not a float.
pub fn function(kind: &DataType) -> Option<Arc<ScalarUDF>> {
    let name = match kind {
        DataType::Float64 => "harrier_double_of_text",
        DataType::Float32 => "harrier_real_of_text",
        _ => return None,
    };
    let signature = Signature::any(1, Volatility::Immutable);
    Some(Arc::new(ScalarUDF::new_from_impl(FloatOfText { name, kind: kind.clone(), signature })))
}

/// All of them, for sessions that decode plans.
pub fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [DataType::Float32, DataType::Float64].into_iter().filter_map(|kind| function(&kind))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct FloatOfText {
    name: &'static str,
    kind: DataType,
    signature: Signature,
}

impl ScalarUDFImpl for FloatOfText {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [text] if text.is_string() => Ok(self.kind.clone()),
            _ => plan_err!("{} does not take {arguments:?}", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.as_slice() {
            [ColumnarValue::Array(texts)] => floats(texts, &self.kind).map(ColumnarValue::Array),
            [ColumnarValue::Scalar(text)] => {
                let value = floats(&text.to_array()?, &self.kind)?;
                ScalarValue::try_from_array(&value, 0).map(ColumnarValue::Scalar)
            }
            _ => internal_err!("{} has one argument", self.name()),
        }
    }

    show_as_argument!();
}

/// Errors: a text is not a number (22P02), or one that is too large or too small (22003).
fn floats(texts: &ArrayRef, kind: &DataType) -> Result<ArrayRef> {
    let options = CastOptions { safe: false, ..DEFAULT_CAST_OPTIONS };
    let floats = cast_with_options(texts, kind, &options)?;
    let odd = odd_rows(&floats);
    if odd.is_empty() {
        return Ok(floats);
    }
    let texts = cast(texts, &DataType::Utf8)?;
    let texts = texts.as_string::<i32>();
    for at in odd.into_iter().filter(|at| texts.is_valid(*at)) {
        let text = texts.value(at);
        if is_nonzero_number(text) {
            return Err(out_of_range(text, kind).into_datafusion());
        }
    }
    Ok(floats)
}

/// A text that [`parse`] refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misfit {
    pub row: usize,
    /// It is a number, and none of the type.
    pub is_out_of_range: bool,
}

/// Texts as floats of the type `kind`.
///
/// Errors: the first text that is none.
pub fn parse(texts: &StringArray, kind: &DataType) -> std::result::Result<ArrayRef, Misfit> {
    let safe = CastOptions { safe: true, ..DEFAULT_CAST_OPTIONS };
    // No cast of texts to numbers fails then.
    let values =
        cast_with_options(texts, kind, &safe).map_err(|_| Misfit { row: 0, is_out_of_range: false })?;
    if values.null_count() > texts.null_count() {
        let row = (0..texts.len()).find(|row| texts.is_valid(*row) && values.is_null(*row));
        return Err(Misfit { row: row.unwrap_or(0), is_out_of_range: false });
    }
    let is_out = |row: &usize| texts.is_valid(*row) && is_nonzero_number(texts.value(*row));
    match odd_rows(&values).into_iter().find(is_out) {
        Some(row) => Err(Misfit { row, is_out_of_range: true }),
        None => Ok(values),
    }
}

/// The floats that the texts were cast to, with NULL for texts out of the type's range.
pub fn in_range(texts: &StringArray, floats: ArrayRef) -> Result<ArrayRef> {
    let odd = odd_rows(&floats);
    let mut out = odd.into_iter().filter(|at| texts.is_valid(*at) && is_nonzero_number(texts.value(*at)));
    let Some(first) = out.next() else { return Ok(floats) };
    let mut is_out = vec![false; floats.len()];
    std::iter::once(first).chain(out).for_each(|at| is_out[at] = true);
    Ok(nullif(&floats, &BooleanArray::from(is_out))?)
}

/// The error of a text that is a number, and none of the type.
pub fn out_of_range(text: &str, kind: &DataType) -> SqlError {
    let name = if *kind == DataType::Float32 { "real" } else { "double precision" };
    let message = format!("\"{text}\" is out of range for type {name}");
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)
}

/// The rows with zeros and infinities, which a cast makes of numbers out of range.
fn odd_rows(floats: &ArrayRef) -> Vec<usize> {
    let is_odd = |number: f64| number == 0.0 || number.is_infinite();
    match floats.data_type() {
        DataType::Float32 => {
            let floats = floats.as_primitive::<Float32Type>().values().iter().enumerate();
            floats.filter(|(_, number)| is_odd(f64::from(**number))).map(|(at, _)| at).collect()
        }
        DataType::Float64 => {
            let floats = floats.as_primitive::<Float64Type>().values().iter().enumerate();
            floats.filter(|(_, number)| is_odd(**number)).map(|(at, _)| at).collect()
        }
        _ => vec![],
    }
}

/// Whether a text of a zero or infinity stands for another number: explicit `inf` and `0.00e5` do not.
fn is_nonzero_number(text: &str) -> bool {
    let digits = text.split(['e', 'E']).next().unwrap_or_default();
    digits.contains(|digit: char| matches!(digit, '1'..='9'))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::StringViewArray;

    use super::*;

    #[test]
    fn out_of_range_floats_are_errors() {
        let of = |text: &str, kind: &DataType| {
            let texts: ArrayRef = Arc::new(StringViewArray::from(vec![None, Some("1.5"), Some(text)]));
            floats(&texts, kind).map(|floats| cast(&floats, &DataType::Float64).unwrap())
        };
        let value =
            |text: &str, kind: &DataType| of(text, kind).unwrap().as_primitive::<Float64Type>().value(2);
        assert_eq!(value("inf", &DataType::Float64), f64::INFINITY);
        assert_eq!(value(" -Infinity ", &DataType::Float32), f64::NEG_INFINITY);
        assert_eq!(value("0.00e5", &DataType::Float64), 0.0);
        assert_eq!(value("1e300", &DataType::Float64), 1e300);
        assert!(value("NaN", &DataType::Float32).is_nan());
        for (text, kind) in [
            ("1e400", DataType::Float64),
            ("-1e400", DataType::Float64),
            ("1e-400", DataType::Float64),
            ("1e40", DataType::Float32),
            ("1e-46", DataType::Float32),
        ] {
            let error = of(text, &kind).unwrap_err().to_string();
            assert!(error.contains("is out of range for type"), "{text}: {error}");
        }
        assert!(of("x", &DataType::Float64).is_err());
    }

    #[test]
    fn the_first_text_that_is_none_is_found() {
        let of = |texts: Vec<Option<&str>>| parse(&StringArray::from(texts), &DataType::Float32);
        let floats = of(vec![None, Some("-inf"), Some("0.0"), Some("1e30")]).unwrap();
        assert_eq!(
            floats.as_primitive::<Float32Type>().iter().collect::<Vec<_>>(),
            [None, Some(f32::NEG_INFINITY), Some(0.0), Some(1e30)]
        );
        let misfit = |row, is_out_of_range| Err(Misfit { row, is_out_of_range });
        assert_eq!(of(vec![None, Some("inf"), Some("1e40"), Some("1e50")]).map(drop), misfit(2, true));
        assert_eq!(of(vec![Some("1e-60")]).map(drop), misfit(0, true));
        assert_eq!(of(vec![Some("1e40"), None, Some("x")]).map(drop), misfit(2, false));
    }
}
