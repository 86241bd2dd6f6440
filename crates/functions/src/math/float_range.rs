//! `exp`, `power` and `degrees`, which fail where the result is infinite because no float is that large
//! (22003), as in PostgreSQL; and `power` of a negative number to a fraction (2201F). What is too small is
//! zero, as it is of NUMERIC in PostgreSQL: these are the functions of both here.
//!
//! They travel to ranks by their names, which are DataFusion's.

use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{DataType, FieldRef, Float64Type};
use datafusion::common::Result;
use datafusion::functions::math;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature,
};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::math::checked::float_out_of_range;

pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [math::exp(), math::power(), math::degrees()]
        .into_iter()
        .map(|inner| Arc::new(ScalarUDF::new_from_impl(Ranged { inner })))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Ranged {
    inner: Arc<ScalarUDF>,
}

impl Ranged {
    /// Whether a result that is infinite is so because of an argument.
    fn is_infinite(&self, arguments: &[f64]) -> bool {
        arguments.iter().any(|argument| argument.is_infinite())
    }

    /// Errors: the result is out of range (22003), or none (2201F).
    fn check(&self, result: f64, arguments: &[f64]) -> Result<()> {
        let error = if result.is_infinite() && !self.is_infinite(arguments) {
            float_out_of_range("overflow")
        } else if result.is_nan() && !arguments.iter().any(|argument| argument.is_nan()) {
            SqlError::new(
                SqlState::INVALID_ARGUMENT_FOR_POWER,
                "a negative number raised to a non-integer power yields a complex result",
            )
        } else {
            return Ok(());
        };
        Err(error.into_datafusion())
    }
}

impl ScalarUDFImpl for Ranged {
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

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        self.inner.inner().return_field_from_args(arguments)
    }

    fn simplify(&self, arguments: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner.inner().simplify(arguments, info)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (given, rows) = (arguments.args.clone(), arguments.number_rows);
        let found = self.inner.inner().invoke_with_args(arguments)?;
        let is_double = |value: &ColumnarValue| value.data_type() == DataType::Float64;
        if !is_double(&found) || !given.iter().all(is_double) {
            return Ok(found);
        }
        let rows = if matches!(found, ColumnarValue::Scalar(_)) { 1 } else { rows };
        let results = found.to_array(rows)?;
        let is_plain = |number: &f64| number.is_finite();
        if results.as_primitive::<Float64Type>().values().iter().all(is_plain) {
            return Ok(found);
        }
        let columns = given.iter().map(|argument| argument.to_array(rows)).collect::<Result<Vec<_>>>()?;
        for (row, result) in results.as_primitive::<Float64Type>().iter().enumerate() {
            let Some(result) = result.filter(|result| !is_plain(result)) else { continue };
            let values = columns.iter().map(|column| column.as_primitive::<Float64Type>().value(row));
            self.check(result, &values.collect::<Vec<f64>>())?;
        }
        Ok(found)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_out_of_range_fail() {
        let check = |name: &str, result: f64, arguments: &[f64]| {
            let function =
                [math::exp(), math::power(), math::degrees()].into_iter().find(|f| f.name() == name);
            Ranged { inner: function.unwrap() }.check(result, arguments).is_ok()
        };
        let infinite = f64::INFINITY;
        assert!(!check("exp", infinite, &[1000.0]) && check("exp", infinite, &[infinite]));
        assert!(check("exp", 0.0, &[-1000.0]) && check("exp", 0.0, &[-infinite]));
        assert!(!check("power", infinite, &[10.0, 400.0]) && check("power", infinite, &[2.0, infinite]));
        assert!(check("power", 0.0, &[10.0, -400.0]) && check("power", 0.0, &[0.0, 2.0]));
        assert!(!check("power", f64::NAN, &[-1.0, 0.5]) && check("power", f64::NAN, &[f64::NAN, 2.0]));
        assert!(!check("degrees", infinite, &[1e308]) && check("degrees", 0.0, &[0.0]));
    }
}
