//! Doubles in nested values, which clients get as JSON: those that JSON has no numbers for are texts, as in
//! to_json.

use std::sync::LazyLock;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, FieldRef, Float32Type, Float64Type};
use arrow::error::ArrowError;
use arrow::json::EncoderOptions;
use arrow::json::writer::{Encoder, EncoderFactory, NullableEncoder, make_encoder};

static DEFAULT: LazyLock<EncoderOptions> = LazyLock::new(EncoderOptions::default);

/// Writes numbers as Arrow does, but NaN and the infinities.
#[derive(Debug)]
pub(super) struct FloatTexts;

impl EncoderFactory for FloatTexts {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        _: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let text = |value: f64| match value {
            value if value.is_finite() => None,
            value if value.is_nan() => Some("NaN"),
            value => Some(if value > 0.0 { "Infinity" } else { "-Infinity" }),
        };
        let texts: Vec<Option<&'static str>> = match array.data_type() {
            DataType::Float32 => array
                .as_primitive::<Float32Type>()
                .values()
                .iter()
                .map(|value| text((*value).into()))
                .collect(),
            DataType::Float64 => {
                array.as_primitive::<Float64Type>().values().iter().map(|value| text(*value)).collect()
            }
            _ => return Ok(None),
        };
        if texts.iter().all(Option::is_none) {
            return Ok(None);
        }
        let encoder = FloatEncoder { texts, numbers: make_encoder(field, array, &DEFAULT)? };
        Ok(Some(NullableEncoder::new(Box::new(encoder), array.logical_nulls())))
    }
}

struct FloatEncoder<'a> {
    texts: Vec<Option<&'static str>>,
    numbers: NullableEncoder<'a>,
}

impl Encoder for FloatEncoder<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        match self.texts[row] {
            Some(text) => {
                out.push(b'"');
                out.extend_from_slice(text.as_bytes());
                out.push(b'"');
            }
            None => self.numbers.encode(row, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Float64Array, StructArray};
    use arrow::datatypes::Field;

    use super::*;

    #[test]
    fn nested_numbers_may_be_texts() {
        let values: ArrayRef = Arc::new(Float64Array::from(vec![f64::NAN, f64::NEG_INFINITY, 1.5]));
        let field = Arc::new(Field::new("a", DataType::Float64, true));
        let rows = StructArray::from(vec![(field, values)]);
        let options = EncoderOptions::default().with_encoder_factory(Arc::new(FloatTexts));
        let field = Arc::new(Field::new("rows", rows.data_type().clone(), true));
        let mut encoder = make_encoder(&field, &rows, &options).unwrap();
        let mut out = Vec::new();
        (0..3).for_each(|row| encoder.encode(row, &mut out));
        assert_eq!(String::from_utf8(out).unwrap(), r#"{"a":"NaN"}{"a":"-Infinity"}{"a":1.5}"#);
    }
}
