//! Durations, the differences of timestamps, as intervals: whole days, and the remaining time, as PostgreSQL
//! subtracts them.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, PrimitiveArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::delegation::show_as_argument;

use harrier_error::{SqlError, SqlState};

/// Name of the function.
pub const NAME: &str = "harrier_day_time";

/// (duration) → interval.
pub fn function() -> Arc<ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(DayTimes { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DayTimes {
    signature: Signature,
}

impl ScalarUDFImpl for DayTimes {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [DataType::Duration(_)] => Ok(DataType::Interval(IntervalUnit::MonthDayNano)),
            _ => plan_err!("{} does not take {arguments:?}", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [durations] = arguments.args.as_slice() else {
            return internal_err!("{} has one argument", self.name());
        };
        let is_value = matches!(durations, ColumnarValue::Scalar(_));
        let durations = durations.to_array(if is_value { 1 } else { arguments.number_rows })?;
        let DataType::Duration(unit) = durations.data_type() else {
            return internal_err!("{} is no duration", durations.data_type());
        };
        let parts = cast(&durations, &DataType::Int64)?;
        let intervals = parts
            .as_primitive::<Int64Type>()
            .try_unary(|parts| day_time(parts, *unit))
            .map_err(harrier_sqlstate::external)?;
        let intervals: PrimitiveArray<IntervalMonthDayNanoType> = intervals;
        match is_value {
            true => ScalarValue::try_from_array(&intervals, 0).map(ColumnarValue::Scalar),
            false => Ok(ColumnarValue::Array(Arc::new(intervals))),
        }
    }

    show_as_argument!();
}

/// An interval of so many seconds, or fractions of them.
pub(crate) fn day_time(parts: i64, unit: TimeUnit) -> std::result::Result<IntervalMonthDayNano, SqlError> {
    let second = per_second(unit);
    let day = 86_400 * second;
    let days = i32::try_from(parts / day)
        .map_err(|_| SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "interval out of range"))?;
    Ok(IntervalMonthDayNano::new(0, days, parts % day * (1_000_000_000 / second)))
}

fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_separate_from_time() {
        let check = |parts: i64, days: i32, nanoseconds: i64| {
            let found = day_time(parts, TimeUnit::Microsecond).unwrap();
            assert_eq!(found, IntervalMonthDayNano::new(0, days, nanoseconds));
        };
        let hour = 3_600_000_000;
        check(53 * hour, 2, 5 * hour * 1_000);
        check(-25 * hour, -1, -hour * 1_000);
        check(1, 0, 1_000);
        assert!(day_time(i64::MAX, TimeUnit::Second).is_err());
    }
}
