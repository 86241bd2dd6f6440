//! `clock_timestamp()`: the current time, which advances while a statement runs.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use datafusion::arrow::array::TimestampMicrosecondArray;
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

const ZONE: &str = "+00:00";

/// () → timestamptz, another one for every batch of rows.
pub fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(ClockTimestamp { signature: Signature::nullary(Volatility::Volatile) }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ClockTimestamp {
    signature: Signature,
}

impl ScalarUDFImpl for ClockTimestamp {
    fn name(&self) -> &str {
        "clock_timestamp"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Timestamp(TimeUnit::Microsecond, Some(ZONE.into())))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_err(|e| exec_datafusion_err!("the clock is before 1970: {e}"))?;
        let now = i64::try_from(now.as_micros()).map_err(|e| exec_datafusion_err!("clock: {e}"))?;
        let times = TimestampMicrosecondArray::from_value(now, arguments.number_rows).with_timezone(ZONE);
        Ok(ColumnarValue::Array(Arc::new(times)))
    }
}
