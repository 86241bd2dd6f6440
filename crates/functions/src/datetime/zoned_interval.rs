//! `+` and `-` of a date or timestamp and an interval, as PostgreSQL computes them: infinite ones stay what
//! they are. For a timestamptz months and days are counted by the clocks of the session's zone, and the time
//! is added afterwards. A local time that clocks never show is taken with the offset before the change, and
//! of two the later one is meant. DataFusion's operators fail on both, and compute with the number that
//! stands for infinity.
//!
//! Ranks know them by their names ([`functions`]).

use std::sync::Arc;

use chrono::{DateTime, Months};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::kernels::numeric::{add, sub};
use datafusion::arrow::compute::{cast, is_null, nullif};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::common::{DataFusionError, Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::datetime::infinity::{infinity_of, with_finite};
use crate::datetime::time_unit::in_a_second;
use crate::datetime::zone_offset::{offset_then, offset_there, zone_of};

const DAY_SECONDS: i64 = 86_400;

/// The functions, for sessions that decode plans.
pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [true, false].into_iter().map(function)
}

/// (moment, interval) or (interval, moment) → moment, the sum; or, if not `adds`, (moment, interval) →
/// moment, the difference. A moment is a date or a timestamp.
fn function(adds: bool) -> Arc<ScalarUDF> {
    let signature = Signature::any(2, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Shifted { adds, signature }))
}

/// The function in place of an operator, for the types of its operands; `None`: the operator is right.
pub fn in_place_of(adds: bool, left: &DataType, right: &DataType) -> Option<Arc<ScalarUDF>> {
    let is_one = is_moment(left) && is_interval(right) || adds && is_interval(left) && is_moment(right);
    is_one.then(|| function(adds))
}

fn is_moment(kind: &DataType) -> bool {
    matches!(kind, DataType::Date32 | DataType::Timestamp(..))
}

/// Whether the clocks of a zone are changed. In UTC they never are.
fn changes_clocks(kind: &DataType) -> bool {
    match kind {
        DataType::Timestamp(_, Some(zone)) => !zone.eq_ignore_ascii_case("UTC") && zone.as_ref() != "+00:00",
        _ => false,
    }
}

fn is_interval(kind: &DataType) -> bool {
    *kind == DataType::Interval(IntervalUnit::MonthDayNano)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Shifted {
    adds: bool,
    signature: Signature,
}

impl Shifted {
    fn sign(&self) -> char {
        if self.adds { '+' } else { '-' }
    }
}

impl ScalarUDFImpl for Shifted {
    fn name(&self) -> &str {
        if self.adds { "harrier_later" } else { "harrier_earlier" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [moment, interval] if is_moment(moment) && is_interval(interval) => Ok(moment.clone()),
            [interval, moment] if self.adds && is_moment(moment) && is_interval(interval) => {
                Ok(moment.clone())
            }
            _ => plan_err!("{} does not take {arguments:?}", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (moments, intervals) = match arguments.args.as_slice() {
            [moments, intervals] if is_interval(&intervals.data_type()) => (moments, intervals),
            [intervals, moments] => (moments, intervals),
            _ => return internal_err!("{} has two arguments", self.name()),
        };
        let is_scalar = [moments, intervals].iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { arguments.number_rows };
        let (moments, intervals) = (moments.to_array(rows)?, intervals.to_array(rows)?);
        let shifted = match changes_clocks(moments.data_type()) {
            true => shift(&moments, &intervals, self.adds)?,
            false => with_finite(&moments, |moments| add_plainly(moments, &intervals, self.adds))?,
        };
        // Nothing added to infinity is NULL.
        let shifted = match intervals.null_count() {
            0 => shifted,
            _ => nullif(&shifted, &is_null(&intervals)?)?,
        };
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&shifted, 0)?),
            false => ColumnarValue::Array(shifted),
        })
    }

    #[allow(deprecated, reason = "plans are shown by it")]
    fn display_name(&self, arguments: &[Expr]) -> Result<String> {
        match arguments {
            [left, right] => Ok(format!("{left} {} {right}", self.sign())),
            _ => internal_err!("{} has two arguments", self.name()),
        }
    }

    /// The column is named as if the operator were still in its place.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        match arguments {
            [left, right] => Ok(format!("{} {} {}", left.schema_name(), self.sign(), right.schema_name())),
            _ => internal_err!("{} has two arguments", self.name()),
        }
    }
}

/// Errors: a result is out of range (22008).
fn add_plainly(moments: &ArrayRef, intervals: &ArrayRef, adds: bool) -> Result<ArrayRef> {
    let computed = if adds { add(moments, intervals) } else { sub(moments, intervals) };
    let computed = computed.map_err(|_| out_of_range(moments.data_type()))?;
    let least = least(moments.data_type());
    let is_before = match computed.data_type() {
        DataType::Date32 => {
            computed.as_primitive::<Date32Type>().iter().flatten().any(|day| i64::from(day) < least)
        }
        kind => {
            let counts = cast(&computed, &DataType::Int64)?;
            kind.is_temporal()
                && counts.as_primitive::<Int64Type>().iter().flatten().any(|count| count < least)
        }
    };
    if is_before { Err(out_of_range(moments.data_type())) } else { Ok(computed) }
}

/// The first day that PostgreSQL has, 4714-11-24 BC, in days since 1970.
const FIRST_DAY: i64 = -2_440_588;

/// The least value of a date or timestamp but infinity, in its unit.
fn least(kind: &DataType) -> i64 {
    match kind {
        DataType::Timestamp(unit, _) => (FIRST_DAY * DAY_SECONDS).saturating_mul(in_a_second(*unit)),
        _ => FIRST_DAY,
    }
}

fn out_of_range(kind: &DataType) -> DataFusionError {
    let kind = if *kind == DataType::Date32 { "date" } else { "timestamp" };
    SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("{kind} out of range")).into_datafusion()
}

/// Errors: a result is out of range (22008).
fn shift(moments: &ArrayRef, intervals: &ArrayRef, adds: bool) -> Result<ArrayRef> {
    let kind = moments.data_type();
    let (DataType::Timestamp(unit, Some(zone)), Some(infinity)) = (kind, infinity_of(kind)) else {
        return internal_err!("an interval is added to {kind}");
    };
    let (zone, second, least) = (zone_of(zone)?, in_a_second(*unit), least(kind));
    let counts = cast(moments, &DataType::Int64)?;
    let pairs = counts.as_primitive::<Int64Type>().iter();
    let pairs = pairs.zip(intervals.as_primitive::<IntervalMonthDayNanoType>());
    let shifted = pairs.map(|pair| match pair {
        (Some(count), Some(_)) if count == infinity || count == -infinity => Ok(Some(count)),
        (Some(count), Some(interval)) => {
            let shifted = shift_one(&zone, count, second, interval, adds);
            shifted.filter(|count| *count >= least).map(Some).ok_or_else(|| out_of_range(kind))
        }
        _ => Ok(None),
    });
    Ok(cast(&shifted.collect::<Result<Int64Array>>()?, kind)?)
}

/// `count`: of units since 1970, of which a second has `second`; `None`: the result is out of range.
fn shift_one(zone: &Tz, count: i64, second: i64, interval: IntervalMonthDayNano, adds: bool) -> Option<i64> {
    let IntervalMonthDayNano { months, days, nanoseconds } = interval;
    let (mut seconds, rest) = (count.div_euclid(second), count.rem_euclid(second));
    let moment_of = |local: i64| local.checked_sub(offset_there(zone, local)?);
    if months != 0 {
        let local = seconds.checked_add(offset_then(zone, seconds)?)?;
        let (clock, months_count) = (DateTime::from_timestamp(local, 0)?, Months::new(months.unsigned_abs()));
        let clock = match (months > 0) == adds {
            true => clock.checked_add_months(months_count)?,
            false => clock.checked_sub_months(months_count)?,
        };
        seconds = moment_of(clock.timestamp())?;
    }
    if days != 0 {
        let days = i64::from(if adds { days } else { days.checked_neg()? });
        let local = seconds.checked_add(offset_then(zone, seconds)?)?;
        seconds = moment_of(local.checked_add(days * DAY_SECONDS)?)?;
    }
    let time = i128::from(nanoseconds) * i128::from(second) / 1_000_000_000;
    let time = i64::try_from(if adds { time } else { -time }).ok()?;
    seconds.checked_mul(second)?.checked_add(rest)?.checked_add(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_followed() {
        let check = |zone: &str, moment: &str, parts: (i32, i32, i64), adds: bool, expected: &str| {
            let zone = zone_of(zone).unwrap();
            let interval = IntervalMonthDayNano::new(parts.0, parts.1, parts.2 * 60_000_000_000);
            let count = DateTime::parse_from_rfc3339(moment).unwrap().timestamp_micros();
            let shifted = shift_one(&zone, count, 1_000_000, interval, adds).unwrap();
            let shifted = DateTime::from_timestamp_micros(shifted).unwrap();
            assert_eq!(shifted.format("%F %T%.f").to_string(), expected, "{moment} {parts:?}");
        };
        let new_york = "America/New_York";
        // Never: 02:30 on the tenth of March.
        check(new_york, "2024-03-09T02:30:00-05:00", (0, 1, 0), true, "2024-03-10 07:30:00");
        check(new_york, "2024-03-09T02:30:00-05:00", (0, 0, 24 * 60), true, "2024-03-10 07:30:00");
        check(new_york, "2024-02-10T02:30:00-05:00", (1, 0, 60), true, "2024-03-10 08:30:00");
        check(new_york, "2024-03-11T02:30:00.5-04:00", (0, 1, 0), false, "2024-03-10 07:30:00.500");
        check(new_york, "2024-04-10T02:30:00-04:00", (1, 0, 60), false, "2024-03-10 06:30:00");
        // Twice: 01:30 on the third of November.
        check(new_york, "2024-11-02T01:30:00-04:00", (0, 1, 0), true, "2024-11-03 06:30:00");
        check(new_york, "2024-11-04T01:30:00-05:00", (0, -1, 0), true, "2024-11-03 06:30:00");
        // The last of a shorter month.
        check("Europe/Berlin", "2024-01-31T12:00:00+01:00", (1, 0, 0), true, "2024-02-29 11:00:00");
        check("Europe/Berlin", "2024-03-31T02:00:00+02:00", (-1, 0, 0), false, "2024-04-29 23:00:00");
    }
}
