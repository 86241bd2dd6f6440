//! `date_trunc` of timestamps of any year, and of intervals. DataFusion's computes in nanoseconds, which
//! range from 1677 to 2262, and does not support intervals.
//!
//! The calendar repeats, weekdays included, after 400 years, so other years are shifted into that range.

use std::sync::Arc;

use chrono::{DateTime, Datelike, NaiveDate, NaiveTime};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, PrimitiveArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::numeric::{add, sub};
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
    TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::functions::datetime;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::datetime::infinity::{infinite_rows, infinity_of, with_finite};
use crate::datetime::time_unit::in_a_second;
use crate::datetime::zone_offset::{offset_then, offset_there, zone_of};
use crate::delegation::delegate_scalar;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// Seconds of 400 years.
const CYCLE: i64 = 146_097 * 86_400;

/// Seconds since 1970 of the years 1700 to 2250, which are not shifted.
const NEAR: std::ops::Range<i64> = -8_520_336_000..8_835_955_200;

/// The function; ranks know it by its name, which is DataFusion's.
pub(crate) fn function() -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(AnyYear { inner: datetime::date_trunc(), signature }))
}

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

#[derive(Debug, PartialEq, Eq, Hash)]
struct AnyYear {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

/// Truncates an interval to a unit.
///
/// Errors: there is no such unit (22023), or intervals do not have it (0A000).
fn truncate_interval(unit: &str, interval: IntervalMonthDayNano) -> Result<IntervalMonthDayNano, SqlError> {
    let refused = |state, how| {
        let message = format!("unit \"{unit}\" not {how} for type interval");
        Err(SqlError::new(state, message))
    };
    let IntervalMonthDayNano { months, days, nanoseconds } = interval;
    let of_months = |size: i32| Ok(IntervalMonthDayNano::new(months / size * size, 0, 0));
    let of_time = |size: i64| Ok(IntervalMonthDayNano::new(months, days, nanoseconds / size * size));
    match unit.to_ascii_lowercase().as_str() {
        "millennium" | "millennia" | "mil" | "mils" => of_months(12_000),
        "century" | "centuries" | "cent" | "c" => of_months(1_200),
        "decade" | "decades" | "dec" | "decs" => of_months(120),
        "year" | "years" | "yr" | "yrs" | "y" => of_months(12),
        "quarter" | "quarters" | "qtr" => of_months(3),
        "month" | "months" | "mon" | "mons" => of_months(1),
        "day" | "days" | "d" => Ok(IntervalMonthDayNano::new(months, days, 0)),
        "hour" | "hours" | "hr" | "hrs" | "h" => of_time(3_600_000_000_000),
        "minute" | "minutes" | "min" | "mins" | "m" => of_time(60_000_000_000),
        "second" | "seconds" | "sec" | "secs" | "s" => of_time(1_000_000_000),
        "millisecond" | "milliseconds" | "msec" | "msecs" | "ms" => of_time(1_000_000),
        "microsecond" | "microseconds" | "usec" | "usecs" | "us" => of_time(1_000),
        "week" | "weeks" | "w" | "timezone" | "timezone_h" | "timezone_m" => {
            refused(SqlState::FEATURE_NOT_SUPPORTED, "supported")
        }
        _ => refused(SqlState::INVALID_PARAMETER_VALUE, "recognized"),
    }
}

/// (unit, interval) → interval
fn of_intervals(units: &ColumnarValue, intervals: &ColumnarValue, rows: usize) -> Result<ColumnarValue> {
    let is_scalar = [units, intervals].iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
    let rows = if is_scalar { 1 } else { rows };
    let units = cast(&units.to_array(rows)?, &DataType::Utf8)?;
    let intervals = intervals.to_array(rows)?;
    let pairs = units.as_string::<i32>().iter().zip(intervals.as_primitive::<IntervalMonthDayNanoType>());
    let whole = pairs.map(|pair| match pair {
        (Some(unit), Some(interval)) => truncate_interval(unit, interval).map(Some),
        _ => Ok(None),
    });
    let whole: PrimitiveArray<IntervalMonthDayNanoType> =
        whole.collect::<Result<_, SqlError>>().map_err(harrier_sqlstate::external)?;
    match is_scalar {
        true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&whole, 0)?)),
        false => Ok(ColumnarValue::Array(Arc::new(whole))),
    }
}

/// The nanoseconds of a unit that is no longer than an hour.
fn nanoseconds_of(unit: &str) -> Option<i64> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "hour" => 3_600_000_000_000,
        "minute" => 60_000_000_000,
        "second" => 1_000_000_000,
        "millisecond" => 1_000_000,
        "microsecond" => 1_000,
        _ => return None,
    })
}

/// Truncates points in time to a unit of that many nanoseconds, as the clocks of their zone show it. Both of
/// two hours with the same name stay what they are, as in PostgreSQL.
///
/// Errors: the year is out of range (22008).
fn truncate_by_local_time(timestamps: &ArrayRef, nanoseconds: i64) -> Result<ArrayRef> {
    let kind = timestamps.data_type();
    let DataType::Timestamp(unit, Some(zone)) = kind else { return internal_err!("clocks of {kind}") };
    let (zone, second) = (zone_of(zone)?, in_a_second(*unit));
    // Shorter units are there already.
    let size = (i128::from(nanoseconds) * i128::from(second) / 1_000_000_000).max(1) as i64;
    let infinity = infinity_of(kind);
    let counts = cast(timestamps, &DataType::Int64)?;
    let whole = counts.as_primitive::<Int64Type>().iter().map(|count| {
        let Some(count) = count else { return Ok(None) };
        if infinity.is_some_and(|infinity| count == infinity || count == -infinity) {
            return Ok(Some(count));
        }
        let ahead = offset_then(&zone, count.div_euclid(second));
        let local = ahead.and_then(|ahead| count.checked_add(ahead * second));
        let whole = local.and_then(|local| count.checked_sub(local.rem_euclid(size)));
        whole.map(Some).ok_or_else(|| {
            SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range").into_datafusion()
        })
    });
    Ok(cast(&whole.collect::<Result<Int64Array>>()?, kind)?)
}

/// The number of years of a multi-year unit, and the first year of its count.
fn years_of(unit: &str) -> Option<(i32, i32)> {
    match unit.to_ascii_lowercase().as_str() {
        "decade" | "decades" | "dec" | "decs" => Some((10, 0)),
        "century" | "centuries" | "cent" | "c" => Some((100, 1)),
        "millennium" | "millennia" | "mil" | "mils" => Some((1000, 1)),
        _ => None,
    }
}

impl AnyYear {
    /// Truncates to decades, centuries or millennia, which DataFusion's does not support.
    fn of_years(
        &self,
        (years, first): (i32, i32),
        mut arguments: ScalarFunctionArgs,
        rows: usize,
    ) -> Result<ArrayRef> {
        let microseconds = match arguments.args[1].data_type() {
            DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone),
            other => return internal_err!("years of {other}"),
        };
        let out_of_range =
            || SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range").into_datafusion();
        arguments.args[0] = ColumnarValue::Scalar(ScalarValue::from("year"));
        let whole = self.invoke_with_args(arguments)?.into_array(rows)?;
        let zone = match whole.data_type() {
            DataType::Timestamp(_, Some(zone)) => Some(zone_of(zone)?),
            _ => None,
        };
        let cut = |us: i64| -> Result<i64> {
            let seconds = us.div_euclid(1_000_000);
            let offset = zone.as_ref().map_or(Some(0), |zone| offset_then(zone, seconds));
            let local = offset.and_then(|offset| DateTime::from_timestamp(seconds + offset, 0));
            let year = local.ok_or_else(out_of_range)?.year();
            let day = NaiveDate::from_ymd_opt((year - first).div_euclid(years) * years + first, 1, 1);
            let midnight = day.ok_or_else(out_of_range)?.and_time(NaiveTime::MIN).and_utc().timestamp();
            let offset = zone.as_ref().map_or(Some(0), |zone| offset_there(zone, midnight));
            Ok((midnight - offset.ok_or_else(out_of_range)?) * 1_000_000)
        };
        let timestamps = cast(&cast(&whole, &microseconds)?, &DataType::Int64)?;
        let timestamps = timestamps.as_primitive::<Int64Type>().iter();
        let cut = timestamps.map(|us| us.map(cut).transpose()).collect::<Result<Int64Array>>()?;
        let cut = cut.reinterpret_cast::<TimestampMicrosecondType>();
        let cut = match whole.data_type() {
            DataType::Timestamp(_, Some(zone)) => cut.with_timezone(Arc::clone(zone)),
            _ => cut,
        };
        Ok(cast(&cut, whole.data_type())?)
    }
}

impl ScalarUDFImpl for AnyYear {
    delegate_scalar!(name, aliases, documentation);

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match arguments {
            [unit, DataType::Interval(_) | DataType::Duration(_)] if unit.is_string() || unit.is_null() => {
                Ok(vec![DataType::Utf8, INTERVAL])
            }
            _ => {
                let fields = arguments.iter().map(|kind| Arc::new(Field::new("", kind.clone(), true)));
                let fields = fields_with_udf(&fields.collect::<Vec<_>>(), self.inner.as_ref())?;
                Ok(fields.iter().map(|field| field.data_type().clone()).collect())
            }
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [_, INTERVAL] => Ok(INTERVAL),
            _ => self.inner.inner().return_type(arguments),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match arguments.arg_fields {
            [_, timestamp] if *timestamp.data_type() == INTERVAL => {
                Ok(Arc::new(Field::new(self.name(), INTERVAL, true)))
            }
            _ => self.inner.inner().return_field_from_args(arguments),
        }
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(timestamps) = arguments.args.get(1) else {
            return internal_err!("{} of {} arguments", self.name(), arguments.args.len());
        };
        if timestamps.data_type() == INTERVAL {
            return of_intervals(&arguments.args[0], timestamps, arguments.number_rows);
        }
        let is_scalar = matches!(timestamps, ColumnarValue::Scalar(_));
        let rows = if is_scalar { 1 } else { arguments.number_rows };
        if matches!(timestamps.data_type(), DataType::Timestamp(..)) {
            let timestamps = timestamps.to_array(rows)?;
            if infinite_rows(timestamps.as_ref()).is_some() {
                let whole = with_finite(&timestamps, |timestamps| {
                    arguments.args[1] = ColumnarValue::Array(Arc::clone(timestamps));
                    arguments.number_rows = rows;
                    self.invoke_with_args(arguments)?.into_array(rows)
                })?;
                return Ok(match is_scalar {
                    true => ColumnarValue::Scalar(ScalarValue::try_from_array(&whole, 0)?),
                    false => ColumnarValue::Array(whole),
                });
            }
        }
        if let (ColumnarValue::Scalar(unit), DataType::Timestamp(_, Some(_))) =
            (&arguments.args[0], timestamps.data_type())
            && let Some(nanoseconds) = unit.try_as_str().flatten().and_then(nanoseconds_of)
        {
            let is_scalar = matches!(timestamps, ColumnarValue::Scalar(_));
            let whole = truncate_by_local_time(
                &timestamps.to_array(if is_scalar { 1 } else { arguments.number_rows })?,
                nanoseconds,
            )?;
            return Ok(match is_scalar {
                true => ColumnarValue::Scalar(ScalarValue::try_from_array(&whole, 0)?),
                false => ColumnarValue::Array(whole),
            });
        }
        if let ColumnarValue::Scalar(unit) = &arguments.args[0]
            && let Some(years) = unit.try_as_str().flatten().and_then(years_of)
            && matches!(timestamps.data_type(), DataType::Timestamp(..))
        {
            let is_scalar = matches!(timestamps, ColumnarValue::Scalar(_));
            let rows = if is_scalar { 1 } else { arguments.number_rows };
            let whole = self.of_years(years, arguments, rows)?;
            return Ok(match is_scalar {
                true => ColumnarValue::Scalar(ScalarValue::try_from_array(&whole, 0)?),
                false => ColumnarValue::Array(whole),
            });
        }
        let second = match timestamps.data_type() {
            DataType::Timestamp(TimeUnit::Second, _) => 1,
            DataType::Timestamp(TimeUnit::Millisecond, _) => 1_000,
            DataType::Timestamp(TimeUnit::Microsecond, _) => 1_000_000,
            _ => return self.inner.inner().invoke_with_args(arguments),
        };
        let is_scalar = matches!(timestamps, ColumnarValue::Scalar(_));
        let timestamps = timestamps.to_array(if is_scalar { 1 } else { arguments.number_rows })?;
        let kind = timestamps.data_type().clone();
        let counts = cast(&timestamps, &DataType::Int64)?;
        let counts = counts.as_primitive::<Int64Type>();
        let Some(cycles) = cycles(counts, second) else {
            return self.inner.inner().invoke_with_args(arguments);
        };
        arguments.number_rows = timestamps.len();
        arguments.args[1] = ColumnarValue::Array(cast(&sub(counts, &cycles)?, &kind)?);
        let whole = self.inner.inner().invoke_with_args(arguments)?.into_array(timestamps.len())?;
        let whole = cast(&add(&cast(&whole, &DataType::Int64)?, &cycles)?, &kind)?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&whole, 0)?),
            false => ColumnarValue::Array(whole),
        })
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        match inputs {
            [_, timestamp] if timestamp.range.data_type() == INTERVAL => Ok(SortProperties::Unordered),
            _ => self.inner.inner().output_ordering(inputs),
        }
    }
}

/// Shift of each timestamp into the supported years, in whole cycles; `None`: no shift is needed. `second`: a
/// second in their unit.
fn cycles(timestamps: &Int64Array, second: i64) -> Option<Int64Array> {
    let near = NEAR.start * second..NEAR.end * second;
    if timestamps.iter().flatten().all(|timestamp| near.contains(&timestamp)) {
        return None;
    }
    let cycle = CYCLE * second;
    Some(timestamps.unary(|timestamp| match near.contains(&timestamp) {
        true => 0,
        false => timestamp.div_euclid(cycle) * cycle,
    }))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ArrayRef, StringArray, TimestampMicrosecondArray};
    use datafusion::arrow::datatypes::Field;
    use datafusion::config::ConfigOptions;

    use super::*;

    fn trunc(to: &str, texts: &[&str]) -> Vec<String> {
        let timestamps: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
        let kind = DataType::Timestamp(TimeUnit::Microsecond, None);
        let timestamps = cast(&timestamps, &kind).unwrap();
        let fields = [DataType::Utf8, kind.clone()].map(|kind| Arc::new(Field::new("a", kind, true)));
        let arguments = ScalarFunctionArgs {
            args: vec![ColumnarValue::Scalar(ScalarValue::from(to)), ColumnarValue::Array(timestamps)],
            arg_fields: fields.to_vec(),
            number_rows: texts.len(),
            return_field: Arc::clone(&fields[1]),
            config_options: Arc::new(ConfigOptions::new()),
        };
        let whole = function().invoke_with_args(arguments).unwrap().into_array(texts.len()).unwrap();
        let whole = cast(&whole, &DataType::Utf8).unwrap();
        whole.as_string::<i32>().iter().map(|text| text.unwrap().to_string()).collect()
    }

    #[test]
    fn years_are_those_of_the_calendar() {
        let texts = ["9999-12-31T23:59:59.999999", "0001-03-01T12:00:00", "2024-03-01T12:30:00"];
        let expected = ["9999-12-01T00:00:00", "0001-03-01T00:00:00", "2024-03-01T00:00:00"];
        assert_eq!(trunc("month", &texts), expected);
        // All three are Fridays, except the second, which is a Thursday.
        let expected = ["9999-12-27T00:00:00", "0001-02-26T00:00:00", "2024-02-26T00:00:00"];
        assert_eq!(trunc("week", &texts), expected);
        assert_eq!(trunc("hour", &texts)[0], "9999-12-31T23:00:00");
        assert_eq!(trunc("millisecond", &texts)[0], "9999-12-31T23:59:59.999");
    }

    #[test]
    fn hours_are_those_of_clocks() {
        let check = |zone: &str, unit: &str, text: &str, expected: &str| {
            let kind = |zone: &str| DataType::Timestamp(TimeUnit::Microsecond, Some(zone.into()));
            let texts: ArrayRef = Arc::new(StringArray::from(vec![text]));
            let timestamps = cast(&cast(&texts, &kind("UTC")).unwrap(), &kind(zone)).unwrap();
            let whole = truncate_by_local_time(&timestamps, nanoseconds_of(unit).unwrap()).unwrap();
            let whole = cast(&cast(&whole, &kind("UTC")).unwrap(), &DataType::Utf8).unwrap();
            assert_eq!(whole.as_string::<i32>().value(0), expected, "{text} {zone}");
        };
        check("America/New_York", "hour", "2024-11-03T05:30:00Z", "2024-11-03T05:00:00Z");
        check("America/New_York", "hour", "2024-11-03T06:30:00Z", "2024-11-03T06:00:00Z");
        check("Australia/Lord_Howe", "hour", "2024-04-06T15:10:00Z", "2024-04-06T14:30:00Z");
        check("Australia/Lord_Howe", "hour", "2024-10-05T15:45:00Z", "2024-10-05T15:00:00Z");
        check("Asia/Kolkata", "minute", "1969-12-31T23:59:59.5Z", "1969-12-31T23:59:00Z");
        check("UTC", "millisecond", "1969-12-31T23:59:59.1239Z", "1969-12-31T23:59:59.123Z");
    }

    #[test]
    fn near_years_are_left() {
        let at = |text: &str| {
            let texts: ArrayRef = Arc::new(StringArray::from(vec![text]));
            let timestamps = cast(&texts, &DataType::Timestamp(TimeUnit::Second, None)).unwrap();
            cast(&timestamps, &DataType::Int64).unwrap().as_primitive::<Int64Type>().value(0)
        };
        assert_eq!(NEAR, at("1700-01-01T00:00:00")..at("2250-01-01T00:00:00"));
        let timestamps = TimestampMicrosecondArray::from(vec![Some(0), None]);
        let counts = cast(&timestamps, &DataType::Int64).unwrap();
        assert_eq!(cycles(counts.as_primitive(), 1_000_000), None);
    }
}
