//! Parsing of dates and timestamps in the catalog that a cast does not support: `infinity`, and years before
//! 1 or after 9999.

use chrono::{NaiveDate, NaiveTime};
use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Int64Array, StringArray,
};
use datafusion::arrow::compute::kernels::zip::zip;
use datafusion::arrow::compute::{cast, is_null, nullif};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use datafusion::common::{Result, ScalarValue};

use crate::datetime::time_unit::in_a_second;

/// Completes `values`, the result of casting `texts`, with the dates or timestamps that the cast could not
/// parse.
pub fn with_far(values: ArrayRef, texts: &StringArray) -> Result<ArrayRef> {
    let kind = values.data_type();
    let is_time = matches!(kind, DataType::Date32 | DataType::Timestamp(..));
    if !is_time || values.null_count() == texts.null_count() {
        return Ok(values);
    }
    let far = texts.iter().enumerate().map(|(at, text)| count_of(text.filter(|_| values.is_null(at))?, kind));
    let far = far.collect::<Int64Array>();
    let far = match kind {
        DataType::Date32 => cast(&cast(&far, &DataType::Int32)?, kind)?,
        _ => cast(&far, kind)?,
    };
    Ok(zip(&is_null(&values)?, &far, &values)?)
}

/// The count that stands for infinity, negated for -infinity.
fn infinity(unit: TimeUnit) -> i64 {
    match unit {
        // Files store all units but nanoseconds as microseconds, and DuckDB's infinity is in those.
        TimeUnit::Second => i64::MAX / 1_000_000,
        TimeUnit::Millisecond => i64::MAX / 1_000,
        TimeUnit::Microsecond | TimeUnit::Nanosecond => i64::MAX,
    }
}

/// Days or units since 1970 of dates or timestamps.
pub fn counts_of(values: &dyn Array) -> Result<Int64Array> {
    let counts = match values.data_type() {
        DataType::Date32 => cast(&cast(values, &DataType::Int32)?, &DataType::Int64)?,
        _ => cast(values, &DataType::Int64)?,
    };
    Ok(counts.as_primitive().clone())
}

/// [`infinity`] of values of this type; for dates it is the largest date.
pub fn infinity_of(kind: &DataType) -> Option<i64> {
    match kind {
        DataType::Date32 => Some(i32::MAX.into()),
        DataType::Timestamp(unit, _) => Some(infinity(*unit)),
        _ => None,
    }
}

/// The rows of dates or timestamps that are infinite; `None`: there are none.
pub fn infinite_rows(values: &dyn Array) -> Option<BooleanArray> {
    fn rows<T: ArrowPrimitiveType>(
        values: &dyn Array,
        is_infinite: impl Fn(T::Native) -> bool,
    ) -> Option<BooleanArray> {
        let values = values.as_primitive::<T>();
        // Also of what stands at the place of a NULL.
        if !values.values().iter().any(|value| is_infinite(*value)) {
            return None;
        }
        let found = BooleanArray::from_iter(values.iter().map(|value| Some(value.is_some_and(&is_infinite))));
        (found.true_count() > 0).then_some(found)
    }
    let infinity = infinity_of(values.data_type())?;
    let is_infinite = |count: i64| count == infinity || count == -infinity;
    match values.data_type() {
        DataType::Date32 => rows::<Date32Type>(values, |day| is_infinite(day.into())),
        DataType::Timestamp(TimeUnit::Second, _) => rows::<TimestampSecondType>(values, is_infinite),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            rows::<TimestampMillisecondType>(values, is_infinite)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            rows::<TimestampMicrosecondType>(values, is_infinite)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => rows::<TimestampNanosecondType>(values, is_infinite),
        _ => None,
    }
}

/// Applies `compute` to the finite values; infinite ones stay as they are.
///
/// Errors: those of `compute`, whose result has the type of the values.
pub fn with_finite(
    values: &ArrayRef,
    compute: impl FnOnce(&ArrayRef) -> Result<ArrayRef>,
) -> Result<ArrayRef> {
    match infinite_rows(values.as_ref()) {
        None => compute(values),
        Some(rows) => Ok(zip(&rows, values, &compute(&nullif(values, &rows)?)?)?),
    }
}

/// The date or timestamp of this type for the words `infinity` and `-infinity`; `None` for other words, and
/// other types.
pub fn infinite(word: &str, kind: &DataType) -> Option<ScalarValue> {
    let word = word.trim();
    let is = |text: &str| word.eq_ignore_ascii_case(text);
    let count = match infinity_of(kind)? {
        count if is("infinity") || is("+infinity") => count,
        count if is("-infinity") => -count,
        _ => return None,
    };
    match kind {
        DataType::Date32 => i32::try_from(count).ok().map(|day| ScalarValue::Date32(Some(day))),
        _ => ScalarValue::Int64(Some(count)).cast_to(kind).ok(),
    }
}

/// A date or timestamp in ISO 8601, such as `+12024-01-15` and `-0043-03-15 10:00:00`, in DuckDB's format.
pub fn in_catalog(text: String) -> String {
    if let Some(rest) = text.strip_prefix('+') {
        return rest.to_string();
    }
    let Some((year, rest)) = text
        .strip_prefix('-')
        .or(text.strip_prefix("0000").map(|_| &text[..]))
        .and_then(|text| text.split_once('-'))
    else {
        return text;
    };
    let Ok(year) = year.parse::<i64>() else { return text };
    let (day, time) = rest.split_once(' ').map_or((rest, None), |(day, time)| (day, Some(time)));
    let time = time.map(|time| format!(" {time}")).unwrap_or_default();
    format!("{:04}-{day} (BC){time}", year + 1)
}

/// Days or units of a timestamp since 1970: parses `-infinity`, `12024-01-15 10:00:00`, `0044-03-15 (BC)`, or
/// `0044-03-15 BC`.
fn count_of(text: &str, kind: &DataType) -> Option<i64> {
    let infinity = infinity_of(kind)?;
    let in_a_second = match kind {
        DataType::Timestamp(unit, _) => Some(in_a_second(*unit)),
        _ => None,
    };
    match text {
        "infinity" => return Some(infinity),
        "-infinity" => return Some(-infinity),
        _ => {}
    }
    let before_christ = text.contains("BC");
    let text = text.replace(" (BC)", "").replace(" BC", "");
    let (day, time) = text.split_once(' ').unwrap_or((&text, "00:00:00"));
    let mut parts = day.splitn(3, '-');
    let year: i32 = parts.next()?.parse().ok()?;
    let (month, day) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let day = NaiveDate::from_ymd_opt(if before_christ { 1 - year } else { year }, month, day)?;
    let time = time.strip_suffix("+00").unwrap_or(time);
    let moment = day.and_time(NaiveTime::parse_from_str(time, "%H:%M:%S%.f").ok()?).and_utc();
    match in_a_second {
        None => Some(moment.timestamp().div_euclid(86_400)),
        Some(units) => {
            let part = i64::from(moment.timestamp_subsec_nanos()) / (1_000_000_000 / units);
            moment.timestamp().checked_mul(units)?.checked_add(part)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn infinite_dates_are_formatted_as_in_duckdb() {
        for (text, expected) in [
            ("+12024-01-15 10:00:00", "12024-01-15 10:00:00"),
            ("-0043-03-15", "0044-03-15 (BC)"),
            ("-0043-03-15 10:00:00.5+00", "0044-03-15 (BC) 10:00:00.5+00"),
            ("0000-12-31 10:00:00", "0001-12-31 (BC) 10:00:00"),
            ("0001-01-01 10:00:00", "0001-01-01 10:00:00"),
        ] {
            assert_eq!(in_catalog(text.to_string()), expected);
        }
    }

    #[test]
    fn infinite_dates_are_parsed() {
        let read = |texts: &[&str], kind: &DataType| {
            let texts = StringArray::from(texts.to_vec());
            let values = with_far(cast(&texts, kind).unwrap(), &texts).unwrap();
            let numbers = counts_of(&values).unwrap();
            numbers.iter().collect::<Vec<_>>()
        };
        let days =
            ["1970-01-02", "infinity", "-infinity", "12024-01-01", "0001-12-31 (BC)", "0001-12-31 BC", "no"];
        let last: i64 = i32::MAX.into();
        let expected =
            [Some(1), Some(last), Some(-last), Some(3_672_148), Some(-719_163), Some(-719_163), None];
        assert_eq!(read(&days, &DataType::Date32), expected);
        let moments =
            ["-infinity", "0044-03-15 (BC) 10:00:00.5+00", "12024-01-01 10:00:00", "2024-01-01 00:00:00"];
        let zone: Arc<str> = "UTC".into();
        let expected =
            [-i64::MAX, -63_517_788_000_000_000 + 500_000, 317_273_623_200_000_000, 1_704_067_200_000_000];
        let found = read(&moments, &DataType::Timestamp(TimeUnit::Microsecond, Some(zone)));
        assert_eq!(found, expected.map(Some));
    }
}
