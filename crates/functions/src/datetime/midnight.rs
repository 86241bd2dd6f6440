//! The beginning of a day as a timestamp, which an interval is added to. Infinite days become infinite
//! timestamps; a cast fails on them.
//!
//! Ranks know it by its name.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, TimestampMicrosecondArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Date32Type, TimeUnit};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::datetime::infinity::infinite_rows;

const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// (date) → timestamp.
pub fn function() -> Arc<ScalarUDF> {
    let signature = Signature::exact(vec![DataType::Date32], Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Midnight { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Midnight {
    signature: Signature,
}

impl ScalarUDFImpl for Midnight {
    fn name(&self) -> &str {
        "harrier_midnight"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(TIMESTAMP)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.as_slice() {
            [ColumnarValue::Array(days)] => begin(days).map(ColumnarValue::Array),
            [ColumnarValue::Scalar(day)] => {
                let moment = begin(&day.to_array()?)?;
                ScalarValue::try_from_array(&moment, 0).map(ColumnarValue::Scalar)
            }
            _ => internal_err!("{} has one argument", self.name()),
        }
    }

    /// The column is named as if the call were absent, like a cast's.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        Ok(arguments.first().map(|argument| argument.schema_name().to_string()).unwrap_or_default())
    }
}

fn begin(days: &ArrayRef) -> Result<ArrayRef> {
    let Some(infinite) = infinite_rows(days.as_ref()) else { return Ok(cast(days, &TIMESTAMP)?) };
    const DAY_US: i64 = 86_400_000_000;
    let days = days.as_primitive::<Date32Type>().iter().enumerate();
    let moments = days.map(|(row, day)| match (day, infinite.value(row)) {
        (Some(day), true) => Some(if day > 0 { i64::MAX } else { -i64::MAX }),
        (day, _) => day.map(|day| i64::from(day) * DAY_US),
    });
    Ok(Arc::new(moments.collect::<TimestampMicrosecondArray>()))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Date32Array;

    use super::*;

    #[test]
    fn infinite_days_begin_at_infinity() {
        let days: ArrayRef = Arc::new(Date32Array::from(vec![Some(1), None, Some(-i32::MAX)]));
        let expected = TimestampMicrosecondArray::from(vec![Some(86_400_000_000), None, Some(-i64::MAX)]);
        assert_eq!(begin(&days).unwrap().as_ref(), &expected as &dyn datafusion::arrow::array::Array);
    }
}
