//! Doubles and REAL in the JSON of files and clients: JSON has no numbers for NaN and the infinities, which
//! are the texts "NaN", "Infinity" and "-Infinity" there, as to_json makes them. Readers take these for
//! numbers in a column of numbers.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, FieldRef, Float32Type, Float64Type};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::writer::{
    Encoder, EncoderFactory, LineDelimited, NullableEncoder, make_encoder,
};
use datafusion::arrow::json::{EncoderOptions, WriterBuilder};

/// The texts that stand for numbers.
pub const NUMBERS_AS_TEXT: [&str; 3] = ["NaN", "Infinity", "-Infinity"];

static DEFAULT: LazyLock<EncoderOptions> = LazyLock::new(EncoderOptions::default);

/// Writes numbers as Arrow does, but those that are texts.
#[derive(Debug)]
pub struct FloatTexts;

impl EncoderFactory for FloatTexts {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        _: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        float_encoder(field, array)
    }
}

/// The encoder of an array with such numbers; `None`: Arrow's own writes all of its values.
pub fn float_encoder<'a>(
    field: &'a FieldRef,
    array: &'a dyn Array,
) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
    let values: Vec<f64> = match array.data_type() {
        DataType::Float32 => {
            array.as_primitive::<Float32Type>().values().iter().copied().map(f64::from).collect()
        }
        DataType::Float64 => array.as_primitive::<Float64Type>().values().to_vec(),
        _ => return Ok(None),
    };
    if values.iter().all(|value| value.is_finite()) {
        return Ok(None);
    }
    let numbers = make_encoder(field, array, &DEFAULT)?;
    Ok(Some(NullableEncoder::new(Box::new(FloatEncoder { values, numbers }), array.logical_nulls())))
}

struct FloatEncoder<'a> {
    values: Vec<f64>,
    numbers: NullableEncoder<'a>,
}

impl Encoder for FloatEncoder<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let [nan, infinity, negative] = NUMBERS_AS_TEXT;
        let text = match self.values[row] {
            value if value.is_finite() => return self.numbers.encode(row, out),
            value if value.is_nan() => nan,
            value if value > 0.0 => infinity,
            _ => negative,
        };
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    }
}

/// One object in a line for each row. Keys with NULL values are left out.
pub fn json_lines(batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let mut text = Vec::with_capacity(batch.num_rows() * batch.num_columns() * 8);
    let mut writer =
        WriterBuilder::new().with_encoder_factory(Arc::new(FloatTexts)).build::<_, LineDelimited>(&mut text);
    writer.write(batch)?;
    writer.finish()?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{ArrayRef, Float32Array, Float64Array, ListArray};
    use datafusion::arrow::datatypes::Field;

    #[test]
    fn numbers_without_a_form_in_json_are_texts() {
        let doubles = Float64Array::from(vec![Some(1.5), Some(f64::NAN), None]);
        let reals = Float32Array::from(vec![f32::INFINITY, 2.0, f32::NEG_INFINITY]);
        let lists = ListArray::from_iter_primitive::<Float64Type, _, _>([
            Some(vec![Some(f64::NEG_INFINITY), Some(0.1)]),
            None,
            Some(vec![None]),
        ]);
        let columns: [(&str, ArrayRef); 3] =
            [("d", Arc::new(doubles)), ("r", Arc::new(reals)), ("l", Arc::new(lists))];
        let batch =
            RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)));
        assert_eq!(
            String::from_utf8(json_lines(&batch.unwrap()).unwrap()).unwrap(),
            "{\"d\":1.5,\"r\":\"Infinity\",\"l\":[\"-Infinity\",0.1]}\n\
             {\"d\":\"NaN\",\"r\":2.0}\n\
             {\"r\":\"-Infinity\",\"l\":[null]}\n"
        );
        let field = Arc::new(Field::new("x", DataType::Float64, true));
        assert!(float_encoder(&field, &Float64Array::from(vec![1.0])).unwrap().is_none());
    }
}
