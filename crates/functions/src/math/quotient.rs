//! Quotients of decimals with PostgreSQL's precision, rounded, and products of decimals of high scale.
//!
//! DataFusion's quotient has a scale four digits larger than the dividend's, and is truncated. PostgreSQL's
//! has at least sixteen significant digits, and at least the scales of both operands. Here a column has one
//! scale: twenty digits, which is what PostgreSQL has for most numbers below one, or sixteen if the integer
//! digits need the room, of 38 in all.
//!
//! The scale of a product is the sum of its factors' scales, which leaves DataFusion no integer digits if
//! both are quotients: then it is rounded to the scale of a quotient.
//!
//! Ranks know the functions by their names ([`functions`]).

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Decimal256Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Decimal128Type, Decimal256Type, Field,
    FieldRef, i256,
};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// Preferred scale.
const SCALE: i8 = 20;

/// Minimum scale.
const SCALE_MIN: i8 = 16;

/// Maximum scale up to which a product of 38 digits keeps all of them.
const PRODUCT_SCALE_MAX: i8 = 24;

/// The replaced operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Computation {
    /// Fails with 22012 if the divisor is zero, and with 22003 if the quotient has too many digits.
    Quotient,
    /// Fails with 22003 if the product has too many digits.
    Product,
}

impl Computation {
    /// The function as plans have it: (decimal, decimal) → decimal.
    pub fn function(self) -> Arc<ScalarUDF> {
        let signature = Signature::any(2, Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(Decimals { computation: self, signature }))
    }

    /// The result type for these operand types; `None`: the operator is right.
    pub fn kind(self, left: &DataType, right: &DataType) -> Option<DataType> {
        let is_wide = [left, right].into_iter().any(|kind| matches!(kind, DataType::Decimal256(..)));
        let ((precision, scale), (other_precision, other_scale)) = (parts(left)?, parts(right)?);
        let digits = if is_wide { DECIMAL256_MAX_PRECISION } else { DECIMAL128_MAX_PRECISION } as i16;
        let (before, scales) = match self {
            Self::Quotient => {
                let before = i16::from(precision) - i16::from(scale) + i16::from(other_scale);
                (before, (SCALE_MIN.max(scale).max(other_scale), SCALE.max(scale).max(other_scale)))
            }
            Self::Product => {
                let all = i16::from(scale) + i16::from(other_scale);
                let precision = i16::from(precision) + i16::from(other_precision);
                if precision < digits || all <= i16::from(PRODUCT_SCALE_MAX) {
                    return None;
                }
                (precision - all, (SCALE.max(scale.min(other_scale)), all.min(digits) as i8))
            }
        };
        let room = digits - before.max(0);
        let scale = room.clamp(i16::from(scales.0), i16::from(scales.1));
        let precision = (before.max(1) + scale).min(digits);
        Some(match is_wide {
            true => DataType::Decimal256(precision as u8, scale as i8),
            false => DataType::Decimal128(precision as u8, scale as i8),
        })
    }
}

/// Both, for sessions that decode plans.
pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [Computation::Quotient, Computation::Product].into_iter().map(Computation::function)
}

/// The scale of an average of decimals: that of a quotient by an integer.
pub(crate) fn scale_of_mean(precision: u8, scale: i8) -> i8 {
    let room = i16::from(DECIMAL128_MAX_PRECISION) - (i16::from(precision) - i16::from(scale)).max(0);
    room.clamp(i16::from(SCALE_MIN.max(scale)), i16::from(SCALE.max(scale))) as i8
}

/// Precision and scale.
fn parts(kind: &DataType) -> Option<(u8, i8)> {
    match kind {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale)
            if *scale >= 0 =>
        {
            Some((*precision, *scale))
        }
        _ => None,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Decimals {
    computation: Computation,
    signature: Signature,
}

impl Decimals {
    fn sign(&self) -> char {
        match self.computation {
            Computation::Quotient => '/',
            Computation::Product => '*',
        }
    }
}

impl ScalarUDFImpl for Decimals {
    fn name(&self) -> &str {
        match self.computation {
            Computation::Quotient => "harrier_quotient",
            Computation::Product => "harrier_product",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [left, right] => self.computation.kind(left, right),
            _ => None,
        }
        .map_or_else(|| plan_err!("{} does not take {arguments:?}", self.name()), Ok)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let kinds: Vec<_> = arguments.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let is_nullable = arguments.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&kinds)?, is_nullable)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = arguments.args.as_slice() else {
            return internal_err!("{} has two arguments", self.name());
        };
        let is_value = matches!((left, right), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
        let rows = if is_value { 1 } else { arguments.number_rows };
        let kind = arguments.return_field.data_type();
        let (left, right) = (left.to_array(rows)?, right.to_array(rows)?);
        let computed = compute(self.computation, &left, &right, kind)?;
        Ok(match is_value {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&computed, 0)?),
            false => ColumnarValue::Array(computed),
        })
    }

    #[allow(deprecated, reason = "plans are shown by it")]
    fn display_name(&self, arguments: &[Expr]) -> Result<String> {
        match arguments {
            [left, right] => Ok(format!("{left} {} {right}", self.sign())),
            _ => internal_err!("{} has two arguments", self.name()),
        }
    }

    /// The column is named as if the operator were still in its place.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        match arguments {
            [left, right] => Ok(format!("{} {} {}", left.schema_name(), self.sign(), right.schema_name())),
            _ => internal_err!("{} has two arguments", self.name()),
        }
    }
}

/// Numbers of one of the two widths, with their scale.
enum Numbers {
    Narrow(Decimal128Array, i8),
    Wide(Decimal256Array, i8),
}

impl Numbers {
    fn of(values: &ArrayRef) -> Result<Self> {
        Ok(match values.data_type() {
            DataType::Decimal128(_, scale) => {
                Self::Narrow(values.as_primitive::<Decimal128Type>().clone(), *scale)
            }
            DataType::Decimal256(_, scale) => {
                Self::Wide(values.as_primitive::<Decimal256Type>().clone(), *scale)
            }
            DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
                let values = cast(values, &DataType::Decimal128(*precision, *scale))?;
                Self::Narrow(values.as_primitive::<Decimal128Type>().clone(), *scale)
            }
            other => return internal_err!("{other} is no decimal"),
        })
    }

    fn scale(&self) -> i8 {
        match self {
            Self::Narrow(_, scale) | Self::Wide(_, scale) => *scale,
        }
    }

    fn get(&self, row: usize) -> Option<i256> {
        match self {
            Self::Narrow(values, _) => values.is_valid(row).then(|| i256::from_i128(values.value(row))),
            Self::Wide(values, _) => values.is_valid(row).then(|| values.value(row)),
        }
    }
}

fn compute(computation: Computation, left: &ArrayRef, right: &ArrayRef, kind: &DataType) -> Result<ArrayRef> {
    let Some((precision, scale)) = parts(kind) else { return internal_err!("{kind} is no decimal") };
    let (numbers, others) = (Numbers::of(left)?, Numbers::of(right)?);
    let (scale_of, scale_by) = (i32::from(numbers.scale()), i32::from(others.scale()));
    let one = |number: i256, other: i256| match computation {
        Computation::Quotient if other == i256::ZERO => {
            Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero"))
        }
        Computation::Quotient => {
            quotient(number, i32::from(scale) + scale_by - scale_of, other).ok_or_else(out_of_range)
        }
        Computation::Product => number
            .checked_mul(other)
            .and_then(|product| quotient(product, i32::from(scale) - scale_of - scale_by, i256::ONE))
            .ok_or_else(out_of_range),
    };
    let limit = power(u32::from(precision)).ok_or_else(out_of_range).map_err(harrier_sqlstate::external)?;
    let values = (0..left.len()).map(|row| match (numbers.get(row), others.get(row)) {
        (Some(number), Some(other)) => match one(number, other) {
            Ok(value) if value < limit && value > -limit => Ok(Some(value)),
            Ok(_) => Err(out_of_range().into_datafusion()),
            Err(error) => Err(error.into_datafusion()),
        },
        _ => Ok(None),
    });
    match kind {
        DataType::Decimal256(..) => {
            let values: Decimal256Array = values.collect::<Result<_>>()?;
            Ok(Arc::new(values.with_data_type(kind.clone())))
        }
        _ => {
            // Within the limit, which fits into 128 bits.
            let values = values.map(|value| Ok(value?.and_then(i256::to_i128)));
            let values: Decimal128Array = values.collect::<Result<_>>()?;
            Ok(Arc::new(values.with_data_type(kind.clone())))
        }
    }
}

/// `number * 10^shift / by`, rounded half away from zero; `None`: it has too many digits. `by` is not zero.
pub(crate) fn quotient(number: i256, shift: i32, by: i256) -> Option<i256> {
    if let (Some(number), Some(by), 0..=38) = (number.to_i128(), by.to_i128(), shift)
        && let Some(number) = number.checked_mul(10_i128.pow(shift as u32))
    {
        let (whole, rest) = (number.checked_div(by)?, number.checked_rem(by)?);
        // The remainder is at least half of the divisor.
        let is_up = rest.unsigned_abs() >= by.unsigned_abs() - rest.unsigned_abs();
        let up = if (number < 0) == (by < 0) { 1 } else { -1 };
        return Some(i256::from_i128(if is_up { whole + up } else { whole }));
    }
    let (number, by) = match shift {
        0.. => (number.checked_mul(power(shift as u32)?)?, by),
        _ => (number, by.checked_mul(power(shift.unsigned_abs())?)?),
    };
    let (whole, rest) = (number.checked_div(by)?, number.checked_rem(by)?);
    let (rest, all) = (rest.wrapping_abs(), by.wrapping_abs());
    let is_up = rest >= all.wrapping_sub(rest);
    let up = if (number < i256::ZERO) == (by < i256::ZERO) { i256::ONE } else { i256::MINUS_ONE };
    Some(if is_up { whole.checked_add(up)? } else { whole })
}

/// Ten to a power that 256 bits hold.
fn power(exponent: u32) -> Option<i256> {
    (exponent <= u32::from(DECIMAL256_MAX_PRECISION)).then(|| i256::from_i128(10).wrapping_pow(exponent))
}

pub(crate) fn out_of_range() -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric out of range")
        .with_detail("A numeric has 38 digits, of which a quotient has sixteen behind the point.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn narrow(precision: u8, scale: i8) -> DataType {
        DataType::Decimal128(precision, scale)
    }

    #[test]
    fn quotients_have_the_largest_possible_scale() {
        let kind = |left: DataType, right: DataType| Computation::Quotient.kind(&left, &right).unwrap();
        assert_eq!(kind(narrow(10, 2), narrow(10, 0)), narrow(28, 20));
        assert_eq!(kind(narrow(15, 2), narrow(15, 2)), narrow(35, 20));
        assert_eq!(kind(narrow(25, 2), narrow(20, 0)), narrow(38, 16));
        assert_eq!(kind(narrow(38, 10), narrow(38, 10)), narrow(38, 16));
        assert_eq!(kind(narrow(38, 30), narrow(38, 0)), narrow(38, 30));
        assert_eq!(kind(narrow(20, 20), narrow(20, 0)), narrow(21, 20));
        assert_eq!(kind(narrow(10, 2), DataType::Decimal256(50, 2)), DataType::Decimal256(30, 20));
    }

    #[test]
    fn products_with_enough_precision_are_unchanged() {
        let kind = |left: DataType, right: DataType| Computation::Product.kind(&left, &right);
        assert_eq!(kind(narrow(15, 2), narrow(15, 2)), None);
        assert_eq!(kind(narrow(38, 10), narrow(38, 10)), None);
        assert_eq!(kind(narrow(35, 20), narrow(35, 20)), Some(narrow(38, 20)));
        assert_eq!(kind(narrow(20, 20), narrow(20, 18)), Some(narrow(38, 36)));
    }

    #[test]
    fn quotients_are_rounded() {
        let check = |number: i128, shift: i32, by: i128, expected: i128| {
            let found = quotient(i256::from_i128(number), shift, i256::from_i128(by));
            assert_eq!(found, Some(i256::from_i128(expected)), "{number} {shift} {by}");
        };
        check(2, 6, 3, 666_667);
        check(-2, 6, 3, -666_667);
        check(2, 6, -3, -666_667);
        check(1, 0, 2, 1);
        check(-1, 0, 2, -1);
        check(1, 0, 3, 0);
        check(1_234_500, -2, 1, 12_345);
        check(150, -2, 1, 2);
        check(149, -2, 1, 1);
        // The intermediate result exceeds 128 bits.
        check(10_i128.pow(37), 20, 10_i128.pow(30), 10_i128.pow(27));
        check(2 * 10_i128.pow(37), 20, 3 * 10_i128.pow(30), 66_666_666_666_666_666_666_666_667_i128 * 10 - 3);
        assert_eq!(quotient(i256::MAX, 20, i256::ONE), None);
    }

    #[test]
    fn columns_are_divided() {
        let numbers = |values: Vec<Option<i128>>, precision, scale| -> ArrayRef {
            let values = Decimal128Array::from(values).with_precision_and_scale(precision, scale);
            Arc::new(values.unwrap())
        };
        let (left, right) = (numbers(vec![Some(200), None], 10, 2), numbers(vec![Some(3), Some(0)], 10, 0));
        let found = compute(Computation::Quotient, &left, &right, &narrow(28, 20)).unwrap();
        assert_eq!(&found, &numbers(vec![Some(66_666_666_666_666_666_667), None], 28, 20));
        let zero = numbers(vec![Some(0), Some(0)], 10, 0);
        let error = compute(Computation::Quotient, &left, &zero, &narrow(28, 20)).unwrap_err();
        assert_eq!(harrier_sqlstate::of(&error), SqlState::DIVISION_BY_ZERO);
        let large = numbers(vec![Some(10_i128.pow(37)), None], 38, 0);
        let error = compute(Computation::Quotient, &large, &right, &narrow(38, 16)).unwrap_err();
        assert_eq!(harrier_sqlstate::of(&error), SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
    }
}
