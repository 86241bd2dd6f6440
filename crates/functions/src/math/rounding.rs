//! `ceil` (alias `ceiling`) and `floor` of decimals, which are integers with one more digit than before, and
//! `round` and `trunc` to a given scale. DataFusion's keep the type of their argument, into which 100 does
//! not fit if that is `numeric(4, 2)`.
//!
//! Ranks know them by their names, which are DataFusion's.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Decimal128Array, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef, Int64Type,
};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::functions::math;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
};

use crate::delegation::delegate_scalar;
use crate::math::checked::{DECIMAL_LIMIT, decimal_out_of_range};
use harrier_sqlstate::IntoDataFusionError;

pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [(math::ceil(), true), (math::floor(), false)]
        .into_iter()
        .map(|(inner, is_up)| {
            let aliases = if is_up { vec!["ceiling".to_string()] } else { vec![] };
            Arc::new(ScalarUDF::new_from_impl(Whole { inner, is_up, aliases }))
        })
        .chain(
            [(math::round(), true), (math::trunc(), false)]
                .map(|(inner, is_nearest)| Arc::new(ScalarUDF::new_from_impl(Rescale { inner, is_nearest }))),
        )
}

/// (decimal) or (decimal, scale)
#[derive(Debug, PartialEq, Eq, Hash)]
struct Rescale {
    inner: Arc<ScalarUDF>,
    /// Rounds half away from zero; otherwise truncates.
    is_nearest: bool,
}

impl Rescale {
    /// The decimal type for a scale; `None` keeps the scale.
    fn kind(&self, of: &DataType, digits: Option<i64>) -> Option<DataType> {
        let DataType::Decimal128(precision, scale @ 0..) = *of else { return None };
        let most = i16::from(DECIMAL128_MAX_PRECISION);
        let whole = i16::from(precision) - i16::from(scale) + i16::from(self.is_nearest);
        let digits = digits.map_or(i16::from(scale), |digits| digits.clamp(0, 38) as i16);
        let digits = digits.min(i16::from(scale).max(most - whole));
        Some(DataType::Decimal128((whole + digits).clamp(1, most) as u8, digits as i8))
    }

    /// Errors: the result does not fit (22003).
    fn rescale(&self, value: i128, scale: i8, digits: i64, kept: i8) -> Result<i128> {
        let digits = digits.clamp(-39, i64::from(kept));
        let one = match u32::try_from(i64::from(scale) - digits).map(|zeros| 10_i128.checked_pow(zeros)) {
            Err(_) => 1,
            Ok(Some(one)) => one,
            // The unit is larger than any number.
            Ok(None) => return Ok(0),
        };
        let rest = value % one;
        let up = self.is_nearest && rest.unsigned_abs() >= (one as u128).div_ceil(2) && one > 1;
        let value = value - rest + if up { one * value.signum() } else { 0 };
        let shift = i32::from(kept) - i32::from(scale);
        let power = 10_i128.pow(shift.unsigned_abs());
        let value = if shift < 0 { Some(value / power) } else { value.checked_mul(power) };
        let value = value.filter(|value| value.unsigned_abs() < DECIMAL_LIMIT);
        value.ok_or_else(|| decimal_out_of_range().into_datafusion())
    }
}

fn digits_of(value: &ScalarValue) -> Option<i64> {
    match value.cast_to(&DataType::Int64) {
        Ok(ScalarValue::Int64(digits)) => digits,
        _ => None,
    }
}

impl ScalarUDFImpl for Rescale {
    delegate_scalar!(name, aliases, signature, coerce_types, output_ordering, documentation);

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [of] if let Some(kind) = self.kind(of, Some(0)) => Ok(kind),
            [of, _] if let Some(kind) = self.kind(of, None) => Ok(kind),
            _ => self.inner.inner().return_type(arguments),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let digits = match arguments.scalar_arguments {
            [_] => Some(0),
            [_, Some(digits)] => digits_of(digits),
            _ => None,
        };
        let of = arguments.arg_fields.first();
        match of.and_then(|of| self.kind(of.data_type(), digits)) {
            Some(kind) => Ok(Arc::new(Field::new(self.name(), kind, true))),
            None => self.inner.inner().return_field_from_args(arguments),
        }
    }

    fn simplify(&self, arguments: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let is_decimal = match arguments.first() {
            Some(first) => info.get_data_type(first)?.is_decimal(),
            None => false,
        };
        match is_decimal {
            true => Ok(ExprSimplifyResult::Original(arguments)),
            false => self.inner.inner().simplify(arguments, info),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (Some(first), DataType::Decimal128(_, kept)) =
            (arguments.args.first(), arguments.return_field.data_type().clone())
        else {
            return self.inner.inner().invoke_with_args(arguments);
        };
        let DataType::Decimal128(_, scale @ 0..) = first.data_type() else {
            return self.inner.inner().invoke_with_args(arguments);
        };
        let is_value = arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_value { 1 } else { arguments.number_rows };
        let values = first.to_array(rows)?;
        let digits = match arguments.args.get(1) {
            Some(digits) => cast(&digits.to_array(rows)?, &DataType::Int64)?,
            None => Arc::new(Int64Array::from_value(0, rows)),
        };
        let pairs = values.as_primitive::<Decimal128Type>().iter().zip(digits.as_primitive::<Int64Type>());
        let cut = pairs.map(|pair| match pair {
            (Some(value), Some(digits)) => self.rescale(value, scale, digits, kept).map(Some),
            _ => Ok(None),
        });
        let cut = cut.collect::<Result<Decimal128Array>>()?;
        let cut: ArrayRef = Arc::new(cut.with_data_type(arguments.return_field.data_type().clone()));
        Ok(match is_value {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&cut, 0)?),
            false => ColumnarValue::Array(cut),
        })
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        match inputs.first().map(|input| input.data_type()) {
            Some(DataType::Decimal128(..)) => Interval::make_unbounded(&DataType::Null),
            _ => self.inner.inner().evaluate_bounds(inputs),
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Whole {
    inner: Arc<ScalarUDF>,
    is_up: bool,
    /// PostgreSQL's aliases.
    aliases: Vec<String>,
}

/// The integer type of a decimal with fractional digits.
fn whole(kind: &DataType) -> Option<DataType> {
    match kind {
        DataType::Decimal128(precision, scale @ 1..) => {
            let digits = i16::from(*precision) - i16::from(*scale) + 1;
            Some(DataType::Decimal128(digits.clamp(1, i16::from(DECIMAL128_MAX_PRECISION)) as u8, 0))
        }
        _ => None,
    }
}

impl ScalarUDFImpl for Whole {
    delegate_scalar!(name, signature, coerce_types, output_ordering, documentation);

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments.first().and_then(whole) {
            Some(kind) => Ok(kind),
            None => self.inner.inner().return_type(arguments),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let numbers = match arguments.args.as_slice() {
            [numbers] if whole(&numbers.data_type()).is_some() => numbers,
            _ => return self.inner.inner().invoke_with_args(arguments),
        };
        let is_value = matches!(numbers, ColumnarValue::Scalar(_));
        let numbers = numbers.to_array(if is_value { 1 } else { arguments.number_rows })?;
        let numbers = round(&numbers, self.is_up, arguments.return_field.data_type())?;
        Ok(match is_value {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&numbers, 0)?),
            false => ColumnarValue::Array(numbers),
        })
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        match inputs.first().and_then(|input| whole(&input.data_type())) {
            Some(kind) => Interval::make_unbounded(&kind),
            None => self.inner.inner().evaluate_bounds(inputs),
        }
    }
}

fn round(numbers: &ArrayRef, is_up: bool, kind: &DataType) -> Result<ArrayRef> {
    let DataType::Decimal128(_, scale @ 1..) = numbers.data_type() else {
        return internal_err!("{} is no decimal with digits behind the point", numbers.data_type());
    };
    let one = 10_i128.pow(*scale as u32);
    let whole: Decimal128Array = numbers.as_primitive::<Decimal128Type>().unary(|number| {
        let below = number.div_euclid(one);
        below + i128::from(is_up && number.rem_euclid(one) != 0)
    });
    Ok(Arc::new(whole.with_data_type(kind.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_the_requested_digits() {
        let of = |is_nearest, value, digits| {
            let inner = if is_nearest { math::round() } else { math::trunc() };
            let cut = Rescale { inner, is_nearest };
            let kind = cut.kind(&DataType::Decimal128(12, 3), Some(digits)).unwrap();
            let DataType::Decimal128(_, kept) = kind else { panic!("{kind}") };
            (cut.rescale(value, 3, digits, kept).unwrap(), kept)
        };
        for (value, digits, nearest, cut) in [
            (12_345, 2, (1_235, 2), (1_234, 2)),
            (-12_345, 2, (-1_235, 2), (-1_234, 2)),
            (12_345, 0, (12, 0), (12, 0)),
            (12_500, 0, (13, 0), (12, 0)),
            (15_000, -1, (20, 0), (10, 0)),
            (15_000, -40, (0, 0), (0, 0)),
            (1_500, 5, (150_000, 5), (150_000, 5)),
        ] {
            assert_eq!(of(true, value, digits), nearest, "{value} {digits}");
            assert_eq!(of(false, value, digits), cut, "{value} {digits}");
        }
    }

    #[test]
    fn floor_and_ceil_of_decimals_are_integers() {
        assert_eq!(whole(&DataType::Decimal128(4, 2)), Some(DataType::Decimal128(3, 0)));
        assert_eq!(whole(&DataType::Decimal128(2, 2)), Some(DataType::Decimal128(1, 0)));
        assert_eq!(whole(&DataType::Decimal128(4, 0)), None);
        let decimals = |values: Vec<i128>, precision, scale| -> ArrayRef {
            Arc::new(Decimal128Array::from(values).with_precision_and_scale(precision, scale).unwrap())
        };
        let numbers = decimals(vec![9999, -9999, 100, -101, 0], 4, 2);
        let up = round(&numbers, true, &DataType::Decimal128(3, 0)).unwrap();
        assert_eq!(&up, &decimals(vec![100, -99, 1, -1, 0], 3, 0));
        let down = round(&numbers, false, &DataType::Decimal128(3, 0)).unwrap();
        assert_eq!(&down, &decimals(vec![99, -100, 1, -2, 0], 3, 0));
    }
}
