//! `ceil`, which is `ceiling` too, and `floor` of decimals, which are whole numbers with a digit more before
//! the point than there was. DataFusion's have the type of what they are of, into which 100 does not fit if
//! that is `numeric(4, 2)`.
//!
//! They travel to ranks by their names, which are DataFusion's.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Decimal128Array};
use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::functions::math;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [(math::ceil(), true), (math::floor(), false)].into_iter().map(|(inner, is_up)| {
        let aliases = if is_up { vec!["ceiling".to_string()] } else { vec![] };
        Arc::new(ScalarUDF::new_from_impl(Whole { inner, is_up, aliases }))
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Whole {
    inner: Arc<ScalarUDF>,
    is_up: bool,
    /// PostgreSQL's.
    aliases: Vec<String>,
}

/// The type of the whole numbers of a decimal that has digits behind the point.
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
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_types(arguments)
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
        let numbers = rounded(&numbers, self.is_up, arguments.return_field.data_type())?;
        Ok(match is_value {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&numbers, 0)?),
            false => ColumnarValue::Array(numbers),
        })
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.inner().output_ordering(inputs)
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        match inputs.first().and_then(|input| whole(&input.data_type())) {
            Some(kind) => Interval::make_unbounded(&kind),
            None => self.inner.inner().evaluate_bounds(inputs),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

fn rounded(numbers: &ArrayRef, is_up: bool, kind: &DataType) -> Result<ArrayRef> {
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
    fn whole_numbers_have_room() {
        assert_eq!(whole(&DataType::Decimal128(4, 2)), Some(DataType::Decimal128(3, 0)));
        assert_eq!(whole(&DataType::Decimal128(2, 2)), Some(DataType::Decimal128(1, 0)));
        assert_eq!(whole(&DataType::Decimal128(4, 0)), None);
        let decimals = |values: Vec<i128>, precision, scale| -> ArrayRef {
            Arc::new(Decimal128Array::from(values).with_precision_and_scale(precision, scale).unwrap())
        };
        let numbers = decimals(vec![9999, -9999, 100, -101, 0], 4, 2);
        let up = rounded(&numbers, true, &DataType::Decimal128(3, 0)).unwrap();
        assert_eq!(&up, &decimals(vec![100, -99, 1, -1, 0], 3, 0));
        let down = rounded(&numbers, false, &DataType::Decimal128(3, 0)).unwrap();
        assert_eq!(&down, &decimals(vec![99, -100, 1, -2, 0], 3, 0));
    }
}
