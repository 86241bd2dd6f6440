//! `ln`, `log`, `log10` and `log2` with PostgreSQL's errors for zero and negative numbers, of which
//! DataFusion's are -Infinity and NaN.
//!
//! Ranks know them by their names, which are DataFusion's.

use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::Result;
use datafusion::functions::math;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [math::ln(), math::log(), math::log10(), math::log2()]
        .map(|inner| Arc::new(ScalarUDF::new_from_impl(Logarithm { inner })))
        .into_iter()
}

/// (number) or (base, number)
#[derive(Debug, PartialEq, Eq, Hash)]
struct Logarithm {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Logarithm {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_types(arguments)
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.inner().return_type(arguments)
    }

    fn simplify(&self, arguments: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner.inner().simplify(arguments, info)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        arguments.args.iter().try_for_each(check)?;
        self.inner.inner().invoke_with_args(arguments)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.inner().output_ordering(inputs)
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        self.inner.inner().evaluate_bounds(inputs)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// Errors: a number has no logarithm (2201E).
fn check(numbers: &ColumnarValue) -> Result<()> {
    let numbers = match numbers {
        ColumnarValue::Array(numbers) => cast(numbers, &DataType::Float64)?,
        ColumnarValue::Scalar(number) => cast(&number.to_array()?, &DataType::Float64)?,
    };
    let message = match numbers.as_primitive::<Float64Type>().iter().flatten().find(|number| *number <= 0.0) {
        None => return Ok(()),
        Some(0.0) => "cannot take logarithm of zero",
        Some(_) => "cannot take logarithm of a negative number",
    };
    Err(SqlError::new(SqlState::INVALID_ARGUMENT_FOR_LOGARITHM, message).into_datafusion())
}

#[cfg(test)]
mod tests {
    use datafusion::common::ScalarValue;

    use super::*;

    #[test]
    fn logarithms_of_nonpositive_numbers_are_errors() {
        for (number, expected) in [
            (ScalarValue::Float64(Some(2.0)), None),
            (ScalarValue::Float64(Some(f64::NAN)), None),
            (ScalarValue::Float64(None), None),
            (ScalarValue::Float32(Some(-0.0)), Some(SqlState::INVALID_ARGUMENT_FOR_LOGARITHM)),
            (ScalarValue::Decimal128(Some(-1), 5, 2), Some(SqlState::INVALID_ARGUMENT_FOR_LOGARITHM)),
        ] {
            let text = number.to_string();
            let code = check(&ColumnarValue::Scalar(number)).err().map(|error| harrier_sqlstate::of(&error));
            assert_eq!(code, expected, "{text}");
        }
    }
}
