//! Year range of dates and timestamps: values whose text every reader of the catalog understands.

use chrono::NaiveDate;
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;

use harrier_error::{SqlError, SqlState};
use harrier_functions::datetime::infinity::{counts_of, infinity_of};
use harrier_functions::datetime::time_unit::in_a_second;
use harrier_sqlstate::IntoDataFusionError;

/// Errors: a finite date or timestamp is out of the supported years (22008).
pub fn check_years(values: &ArrayRef, column: &str) -> Result<()> {
    check(values, column, NaiveDate::MIN)
}

/// The same for rows stored in the catalog, where PostgreSQL and SQLite write years before 1 differently.
///
/// Errors: a finite date or timestamp is before year 1 or beyond the supported years (22008).
pub fn check_catalog_years(values: &ArrayRef, column: &str) -> Result<()> {
    check(values, column, NaiveDate::from_ymd_opt(1, 1, 1).unwrap_or(NaiveDate::MIN))
}

fn check(values: &ArrayRef, column: &str, first: NaiveDate) -> Result<()> {
    let in_a_day = match values.data_type() {
        DataType::Date32 => 1,
        DataType::Timestamp(unit, _) => 86_400 * in_a_second(*unit),
        _ => return Ok(()),
    };
    let Some(infinity) = infinity_of(values.data_type()) else { return Ok(()) };
    let counts = counts_of(values)?;
    let epoch = NaiveDate::default();
    let days = |day: NaiveDate| (day - epoch).num_days();
    // The last day is included: its timestamps are before the next day.
    let known = days(first).saturating_mul(in_a_day)..days(NaiveDate::MAX).saturating_mul(in_a_day);
    let is_known = |count: i64| known.contains(&count) || count == infinity || count == -infinity;
    match counts.iter().flatten().all(is_known) {
        true => Ok(()),
        false => {
            let message = format!("value is out of range for column \"{column}\"");
            Err(SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, message).into_datafusion())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{Date32Array, StringArray, TimestampMicrosecondArray};
    use datafusion::arrow::compute::cast;
    use datafusion::arrow::datatypes::TimeUnit;

    use super::*;

    #[test]
    fn years_are_within_the_supported_range() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![
            Some("0001-01-01T00:00:00"),
            None,
            Some("9999-12-31T23:59:59.999999"),
        ]));
        for unit in [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond] {
            let moments = cast(&texts, &DataType::Timestamp(unit, None)).unwrap();
            check_catalog_years(&moments, "t").unwrap();
        }
        let days = |days: i32| Arc::new(Date32Array::from(vec![Some(days), None])) as ArrayRef;
        let code = |checked: Result<()>| checked.map_err(|error| harrier_sqlstate::of(&error));
        for day in [-719_162, 2_932_897, 90_000_000, i32::MAX, -i32::MAX] {
            assert_eq!(code(check_catalog_years(&days(day), "d")), Ok(()), "{day}");
        }
        assert_eq!(code(check_years(&days(-719_163), "d")), Ok(()));
        assert_eq!(code(check_catalog_years(&days(-719_163), "d")), Err(SqlState::DATETIME_FIELD_OVERFLOW));
        for day in [-100_000_000, 100_000_000, i32::MAX - 1] {
            assert_eq!(code(check_years(&days(day), "d")), Err(SqlState::DATETIME_FIELD_OVERFLOW), "{day}");
        }
        let moments = |count: i64| Arc::new(TimestampMicrosecondArray::from(vec![count])) as ArrayRef;
        assert_eq!(code(check_years(&moments(i64::MAX), "t")), Ok(()));
        assert_eq!(code(check_years(&moments(i64::MAX - 1), "t")), Err(SqlState::DATETIME_FIELD_OVERFLOW));
    }
}
