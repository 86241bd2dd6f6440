//! The years that tables have moments of: those that the texts of a catalog can say to all who read it.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::{cast, max, min};
use datafusion::arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion::common::Result;

use crate::sqlstate::{CodedError, SqlState};

/// Days since 1970 of the years 1 to 9999.
const DAYS: std::ops::Range<i64> = -719_162..2_932_897;

/// Errors: a day or timestamp is of another year (22008).
pub fn check_years(values: &ArrayRef, column: &str) -> Result<()> {
    let in_a_day = match values.data_type() {
        DataType::Date32 => 1,
        DataType::Timestamp(TimeUnit::Second, _) => 86_400,
        DataType::Timestamp(TimeUnit::Millisecond, _) => 86_400_000,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 86_400_000_000,
        // The others do not reach that far.
        _ => return Ok(()),
    };
    let counts: ArrayRef = match values.data_type() {
        DataType::Date32 => cast(&cast(values, &DataType::Int32)?, &DataType::Int64)?,
        _ => cast(values, &DataType::Int64)?,
    };
    let counts: &Int64Array = counts.as_primitive::<Int64Type>();
    let years = DAYS.start * in_a_day..DAYS.end * in_a_day;
    let is_known = [min(counts), max(counts)].into_iter().flatten().all(|count| years.contains(&count));
    match is_known {
        true => Ok(()),
        false => {
            let message = format!("value is out of range for column \"{column}\"");
            Err(CodedError::new(SqlState::DATETIME_FIELD_OVERFLOW, message)
                .with_detail("tables have days and timestamps of the years 1 to 9999")
                .into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{Date32Array, StringArray};

    use super::*;

    #[test]
    fn years_have_four_digits() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![
            Some("0001-01-01T00:00:00"),
            None,
            Some("9999-12-31T23:59:59.999999"),
        ]));
        for unit in [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond] {
            let moments = cast(&texts, &DataType::Timestamp(unit, None)).unwrap();
            check_years(&moments, "t").unwrap();
        }
        let days = |days: i32| Arc::new(Date32Array::from(vec![Some(days), None])) as ArrayRef;
        for day in [-719_162, 2_932_896] {
            check_years(&days(day), "d").unwrap();
        }
        for day in [-719_163, 2_932_897, i32::MAX] {
            let error = check_years(&days(day), "d").unwrap_err();
            assert_eq!(crate::sqlstate::of(&error), SqlState::DATETIME_FIELD_OVERFLOW);
        }
    }
}
