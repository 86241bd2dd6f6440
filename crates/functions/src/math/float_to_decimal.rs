//! Conversion of floats to decimals with the digits that a float reliably has, as in PostgreSQL: 6 for 32
//! bits, 15 for 64. `1.005::float8` is 1.01 at scale two; its stored value is slightly less, and a cast by
//! multiplication with a power of ten returns 1.00.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Decimal128Array, PrimitiveArray};
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Float32Type, Float64Type,
};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use harrier_error::{SqlError, SqlState};

/// (float, NULL of a decimal type) → decimal of this type.
pub fn function() -> Arc<ScalarUDF> {
    let signature = Signature::any(2, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Digits { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Digits {
    signature: Signature,
}

impl ScalarUDFImpl for Digits {
    fn name(&self) -> &str {
        "harrier_float_to_decimal"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [DataType::Float32 | DataType::Float64, kind @ DataType::Decimal128(_, 0..)] => Ok(kind.clone()),
            _ => plan_err!("{} does not take {arguments:?}", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [numbers, _] = arguments.args.as_slice() else {
            return internal_err!("{} has two arguments", self.name());
        };
        let kind = arguments.return_field.data_type();
        let decimals = decimals(&numbers.to_array(1)?, kind)?;
        Ok(match numbers {
            ColumnarValue::Scalar(_) => ColumnarValue::Scalar(ScalarValue::try_from_array(&decimals, 0)?),
            ColumnarValue::Array(_) => ColumnarValue::Array(decimals),
        })
    }
}

/// Errors: a number does not fit (22003), or is NaN or infinite (0A000).
fn decimals(numbers: &ArrayRef, kind: &DataType) -> Result<ArrayRef> {
    let DataType::Decimal128(precision, scale) = *kind else {
        return internal_err!("{kind} is no decimal");
    };
    let all: PrimitiveArray<Decimal128Type> = match numbers.data_type() {
        DataType::Float32 => numbers
            .as_primitive::<Float32Type>()
            .try_unary(|number| decimal(number.into(), 6, precision, scale)),
        _ => numbers.as_primitive::<Float64Type>().try_unary(|number| decimal(number, 15, precision, scale)),
    }
    .map_err(harrier_sqlstate::external)?;
    let all: Decimal128Array = all.with_data_type(kind.clone());
    Ok(Arc::new(all))
}

/// Converts a float with so many significant digits to a decimal, rounding half away from zero.
fn decimal(number: f64, digits: usize, precision: u8, scale: i8) -> Result<i128, SqlError> {
    if !number.is_finite() {
        return Err(no_number(number, precision));
    }
    // Of the form -d.ddde-7.
    let text = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let significant: i128 = mantissa.replace('.', "").parse().unwrap_or_default();
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let shift = exponent - (digits as i32 - 1) + i32::from(scale);
    let power = 10_i128.checked_pow(shift.unsigned_abs());
    let scaled = match (shift >= 0, power) {
        _ if significant == 0 => Some(0),
        (true, Some(power)) => significant.checked_mul(power),
        (true, None) => None,
        (false, Some(power)) => {
            let up = (significant % power).abs() * 2 >= power;
            Some(significant / power + if up { significant.signum() } else { 0 })
        }
        (false, None) => Some(0),
    };
    let limit = 10_i128.pow(u32::from(precision));
    scaled.filter(|scaled| scaled.abs() < limit).ok_or_else(|| {
        SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow").with_detail(format!(
            "A field with precision {precision}, scale {scale} must round to an absolute value less than 10^{}.",
            i32::from(precision) - i32::from(scale)
        ))
    })
}

fn no_number(number: f64, precision: u8) -> SqlError {
    let is_limited = precision < DECIMAL128_MAX_PRECISION;
    match number.is_infinite() && is_limited {
        true => SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow")
            .with_detail("A field with a precision cannot hold an infinite value."),
        false => {
            SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("NUMERIC has no value \"{number}\" here"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_convert_by_their_significant_digits() {
        for (number, digits, precision, scale, expected) in [
            (1.005, 15, 8, 2, 101),
            (-1.005, 15, 8, 2, -101),
            (f64::from(0.285_f32), 6, 8, 2, 29),
            (f64::from(16_777_217_f32), 6, 38, 0, 16_777_200),
            (1e-300, 15, 38, 10, 0),
            (0.0, 15, 38, 38, 0),
            (1e22, 15, 38, 10, 10_i128.pow(32)),
            (0.123_456_789_012_345_68, 15, 30, 20, 12_345_678_901_234_600_000),
        ] {
            assert_eq!(decimal(number, digits, precision, scale).ok(), Some(expected), "{number}");
        }
        let code = |number, precision| decimal(number, 15, precision, 2).unwrap_err().sqlstate;
        assert_eq!(code(999_999.999, 8), SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
        assert_eq!(code(1e300, 38), SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
        assert_eq!(code(f64::INFINITY, 8), SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
        assert_eq!(code(f64::INFINITY, 38), SqlState::FEATURE_NOT_SUPPORTED);
        assert_eq!(code(f64::NAN, 8), SqlState::FEATURE_NOT_SUPPORTED);
    }
}
