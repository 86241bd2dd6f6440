//! Differences of dates and of timestamps, which there are none of with infinite ones: they would be numbers
//! that mean nothing. DataFusion's operators subtract the numbers that stand for infinity.
//!
//! Ranks know it by its name.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::kernels::arity::binary;
use datafusion::arrow::compute::kernels::numeric::sub;
use datafusion::arrow::datatypes::{DataType, Date32Type, Int64Type};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::datetime::infinity::infinite_rows;

/// (date, date) → bigint, (timestamp, timestamp) → duration.
pub fn function() -> Arc<ScalarUDF> {
    let signature = Signature::any(2, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Difference { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Difference {
    signature: Signature,
}

impl ScalarUDFImpl for Difference {
    fn name(&self) -> &str {
        "harrier_difference"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [DataType::Date32, DataType::Date32] => Ok(DataType::Int64),
            [DataType::Timestamp(unit, one), DataType::Timestamp(same, other)]
                if unit == same && one.is_some() == other.is_some() =>
            {
                Ok(DataType::Duration(*unit))
            }
            _ => plan_err!("{} does not take {arguments:?}", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = arguments.args.as_slice() else {
            return internal_err!("{} has two arguments", self.name());
        };
        let is_scalar = [left, right].iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { arguments.number_rows };
        let difference = subtract(&left.to_array(rows)?, &right.to_array(rows)?)?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&difference, 0)?),
            false => ColumnarValue::Array(difference),
        })
    }

    #[allow(deprecated, reason = "plans are shown by it")]
    fn display_name(&self, arguments: &[Expr]) -> Result<String> {
        match arguments {
            [left, right] => Ok(format!("{left} - {right}")),
            _ => internal_err!("{} has two arguments", self.name()),
        }
    }

    /// The column is named as if the operator were still in its place.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        match arguments {
            [left, right] => Ok(format!("{} - {}", left.schema_name(), right.schema_name())),
            _ => internal_err!("{} has two arguments", self.name()),
        }
    }
}

/// Errors: a value beside another one is infinite, or the difference is out of range (22008).
fn subtract(left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef> {
    let is_date = *left.data_type() == DataType::Date32;
    let overflow =
        |message: &str| SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, message).into_datafusion();
    for (values, other) in [(left, right), (right, left)] {
        let infinite = infinite_rows(values.as_ref());
        if infinite.is_some_and(|rows| (0..rows.len()).any(|row| rows.value(row) && other.is_valid(row))) {
            let kind = if is_date { "dates" } else { "timestamps" };
            return Err(overflow(&format!("cannot subtract infinite {kind}")));
        }
    }
    if is_date {
        let days = |days: &ArrayRef| -> Int64Array { days.as_primitive::<Date32Type>().unary(i64::from) };
        let difference =
            binary::<Int64Type, Int64Type, _, Int64Type>(&days(left), &days(right), |a, b| a - b)?;
        return Ok(Arc::new(difference));
    }
    sub(left, right).map_err(|_| overflow("interval out of range"))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Date32Array, TimestampMicrosecondArray};

    use super::*;

    #[test]
    fn infinite_values_have_no_difference() {
        let days = |days: [Option<i32>; 2]| Arc::new(Date32Array::from(days.to_vec())) as ArrayRef;
        let found = subtract(&days([Some(5), None]), &days([Some(2), Some(i32::MAX)])).unwrap();
        assert_eq!(found.as_primitive::<Int64Type>(), &Int64Array::from(vec![Some(3), None]));
        assert!(subtract(&days([Some(5), Some(1)]), &days([Some(2), Some(-i32::MAX)])).is_err());
        let moments = |us: i64| Arc::new(TimestampMicrosecondArray::from(vec![us])) as ArrayRef;
        assert!(subtract(&moments(i64::MAX), &moments(i64::MAX)).is_err());
        assert!(subtract(&moments(i64::MAX - 1), &moments(-5)).is_err());
        assert!(subtract(&moments(7), &moments(-5)).is_ok());
    }
}
