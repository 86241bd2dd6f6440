//! Correctly rounded conversion of decimals to doubles, as in PostgreSQL. A cast divides a number that a
//! double may not hold by a power of ten, which rounds twice: a literal of 17 digits would become another
//! double.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Float64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, DecimalType};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// A cast is exact up to so many digits: a double holds all numbers of them.
pub const DIGITS_EXACT: u8 = 15;

/// (decimal) → double precision.
pub fn function() -> Arc<ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Nearest { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Nearest {
    signature: Signature,
}

impl ScalarUDFImpl for Nearest {
    fn name(&self) -> &str {
        "harrier_nearest_double"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..)] => {
                Ok(DataType::Float64)
            }
            _ => plan_err!("{} does not take {arguments:?}", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [values] = arguments.args.as_slice() else {
            return internal_err!("{} has one argument", self.name());
        };
        let nearest: ArrayRef = Arc::new(nearest(values)?);
        Ok(match values {
            ColumnarValue::Scalar(_) => ColumnarValue::Scalar(ScalarValue::try_from_array(&nearest, 0)?),
            ColumnarValue::Array(_) => ColumnarValue::Array(nearest),
        })
    }
}

fn nearest(values: &ColumnarValue) -> Result<Float64Array> {
    let values = values.to_array(1)?;
    let values = match values.data_type() {
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            cast(&values, &DataType::Decimal128(*precision, *scale))?
        }
        _ => values,
    };
    let values = values.as_primitive::<Decimal128Type>();
    let (precision, scale) = (values.precision(), values.scale());
    let nearest = |value: i128| match quotient(value, scale) {
        Some(number) => Ok(number),
        None => {
            let text = Decimal128Type::format_decimal(value, precision, scale);
            text.parse().map_err(|_| exec_datafusion_err!("\"{text}\" is no number"))
        }
    };
    values.iter().map(|value| value.map(nearest).transpose()).collect()
}

/// The quotient of two exact doubles is correctly rounded.
fn quotient(value: i128, scale: i8) -> Option<f64> {
    const WHOLE_MAX: u128 = 1 << 53;
    const POWER_MAX: i8 = 22;
    ((0..=POWER_MAX).contains(&scale) && value.unsigned_abs() <= WHOLE_MAX)
        .then(|| value as f64 / 10_f64.powi(i32::from(scale)))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Decimal128Array;

    use super::*;

    #[test]
    fn doubles_are_those_of_the_text() {
        for (value, scale, text) in [
            (24_580_338_977_940_386, 11, "245803.38977940386"),
            (-9_419_895_434_327_705, 14, "-94.19895434327705"),
            (9_813_189_190_236_171, 16, "0.9813189190236171"),
            (15, 1, "1.5"),
            (i128::pow(10, 38) - 1, 38, "0.99999999999999999999999999999999999999"),
            (7, -3, "7000"),
        ] {
            let decimals = Decimal128Array::from(vec![Some(value), None]);
            let decimals = decimals.with_precision_and_scale(38, scale).unwrap();
            let doubles = nearest(&ColumnarValue::Array(Arc::new(decimals))).unwrap();
            let expected: f64 = text.parse().unwrap();
            assert_eq!(doubles, Float64Array::from(vec![Some(expected), None]), "{text}");
        }
    }
}
