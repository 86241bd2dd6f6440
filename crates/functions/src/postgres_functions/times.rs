//! Ages, normalization of intervals, and timestamps from their fields.

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, Timelike};
use datafusion::arrow::datatypes::IntervalMonthDayNano;
use datafusion::common::{DataFusionError, Result, ScalarValue};

use super::{
    Any, Bool, Definition, Double, Int, Interval, SECOND_US, Time, Timestamp, double, int, interval,
    timestamp,
};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

const DAY_US: i64 = 86_400 * SECOND_US;
const DAY_NS: i64 = 1_000 * DAY_US;
const MONTH_DAYS: i32 = 30;
const YEAR_MONTHS: i32 = 12;

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition::new("age", &[Timestamp, Timestamp], Interval, |values| {
        age(timestamp(&values[0])?, timestamp(&values[1])?)
    }),
    Definition::new("justify_hours", &[Interval], Interval, |values| {
        let (months, days, ns) = interval(&values[0]);
        let (days, ns) = justified_hours(days, ns)?;
        interval_value(months, days, ns)
    }),
    Definition::new("justify_days", &[Interval], Interval, |values| {
        let (months, days, ns) = interval(&values[0]);
        let (months, days) = justified_days(months, days)?;
        interval_value(months, days, ns)
    }),
    Definition::new("justify_interval", &[Interval], Interval, |values| justify(interval(&values[0]))),
    // Years, months, weeks, days, hours, minutes, seconds.
    Definition::new("make_interval", &[Int, Int, Int, Int, Int, Int, Double], Interval, make_interval)
        .from(1),
    Definition::new("make_timestamp", &[Int, Int, Int, Int, Int, Double], Timestamp, |values| {
        let day = day_of(int(&values[0]), int(&values[1]), int(&values[2]))?;
        let time = time_of(int(&values[3]), int(&values[4]), double(&values[5]))?;
        let midnight = NaiveDateTime::from(day).and_utc().timestamp_micros();
        Ok(ScalarValue::TimestampMicrosecond(Some(midnight + time), None))
    }),
    Definition::new("make_time", &[Int, Int, Double], Time, |values| {
        let time = time_of(int(&values[0]), int(&values[1]), double(&values[2]))?;
        Ok(ScalarValue::Time64Microsecond(Some(time)))
    }),
    Definition::new("isfinite", &[Interval], Bool, |_| Ok(ScalarValue::from(true))),
    Definition::new("isfinite", &[Any], Bool, |values| {
        let is_infinite = match &values[0] {
            ScalarValue::Date32(Some(days)) => i64::from(*days).abs() == i64::from(i32::MAX),
            ScalarValue::TimestampMicrosecond(Some(us), _) => us.abs() == i64::MAX,
            _ => false,
        };
        Ok(ScalarValue::from(!is_infinite))
    }),
];

fn overflow(message: &str) -> DataFusionError {
    SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, message).into_datafusion()
}

fn out_of_range() -> DataFusionError {
    overflow("interval out of range")
}

fn interval_value(months: i32, days: i32, ns: i64) -> Result<ScalarValue> {
    Ok(ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano::new(months, days, ns))))
}

/// Elapsed years, months and days, and the remaining time: a month is as long as that of the earlier date.
fn age(later: i64, earlier: i64) -> Result<ScalarValue> {
    let (sign, later, earlier) = if later < earlier { (-1, earlier, later) } else { (1, later, earlier) };
    let at =
        |us: i64| DateTime::from_timestamp_micros(us).map(|time| time.naive_utc()).ok_or_else(out_of_range);
    let (to, from) = (at(later)?, at(earlier)?);
    let of_day = |time: &NaiveDateTime| {
        i64::from(time.num_seconds_from_midnight()) * SECOND_US + i64::from(time.nanosecond() / 1_000)
    };
    let mut months = (to.year() - from.year()) * YEAR_MONTHS + to.month() as i32 - from.month() as i32;
    let mut days = to.day() as i32 - from.day() as i32;
    let mut us = of_day(&to) - of_day(&from);
    if us < 0 {
        us += DAY_US;
        days -= 1;
    }
    if days < 0 {
        let first = from.date().with_day(1).ok_or_else(out_of_range)?;
        let next = first.checked_add_months(chrono::Months::new(1)).ok_or_else(out_of_range)?;
        days += (next - first).num_days() as i32;
        months -= 1;
    }
    interval_value(sign * months, sign * days, i64::from(sign) * us * 1_000)
}

/// Converts whole days of the time to days, both of one sign.
fn justified_hours(days: i32, ns: i64) -> Result<(i32, i64)> {
    let whole = i32::try_from(ns / DAY_NS).map_err(|_| out_of_range())?;
    let (mut days, mut ns) = (days.checked_add(whole).ok_or_else(out_of_range)?, ns % DAY_NS);
    match (days.signum(), ns.signum()) {
        (1, -1) => (days, ns) = (days - 1, ns + DAY_NS),
        (-1, 1) => (days, ns) = (days + 1, ns - DAY_NS),
        _ => {}
    }
    Ok((days, ns))
}

/// Converts every thirty days to a month, both of one sign.
fn justified_days(months: i32, days: i32) -> Result<(i32, i32)> {
    let (mut months, mut days) =
        (months.checked_add(days / MONTH_DAYS).ok_or_else(out_of_range)?, days % MONTH_DAYS);
    match (months.signum(), days.signum()) {
        (1, -1) => (months, days) = (months - 1, days + MONTH_DAYS),
        (-1, 1) => (months, days) = (months + 1, days - MONTH_DAYS),
        _ => {}
    }
    Ok((months, days))
}

fn justify((months, days, ns): (i32, i32, i64)) -> Result<ScalarValue> {
    let whole = i32::try_from(ns / DAY_NS).map_err(|_| out_of_range())?;
    let (days, mut ns) = (days.checked_add(whole).ok_or_else(out_of_range)?, ns % DAY_NS);
    let (mut months, mut days) =
        (months.checked_add(days / MONTH_DAYS).ok_or_else(out_of_range)?, days % MONTH_DAYS);
    if months > 0 && (days < 0 || days == 0 && ns < 0) {
        (months, days) = (months - 1, days + MONTH_DAYS);
    } else if months < 0 && (days > 0 || days == 0 && ns > 0) {
        (months, days) = (months + 1, days - MONTH_DAYS);
    }
    match (days.signum(), ns.signum()) {
        (1, -1) => (days, ns) = (days - 1, ns + DAY_NS),
        (-1, 1) => (days, ns) = (days + 1, ns - DAY_NS),
        _ => {}
    }
    interval_value(months, days, ns)
}

fn make_interval(values: &[ScalarValue]) -> Result<ScalarValue> {
    let number = |at: usize| values.get(at).map_or(0, int);
    let sum = |one: usize, times: i64, other: usize| {
        let sum = number(one).checked_mul(times).and_then(|sum| sum.checked_add(number(other)));
        sum.and_then(|sum| i32::try_from(sum).ok()).ok_or_else(out_of_range)
    };
    let (months, days) = (sum(0, i64::from(YEAR_MONTHS), 1)?, sum(2, 7, 3)?);
    let seconds = values.get(6).map_or(0.0, double);
    if !seconds.is_finite() {
        return Err(out_of_range());
    }
    let us = (seconds * SECOND_US as f64).round();
    let us = if us.abs() < 9e18 { us as i64 } else { return Err(out_of_range()) };
    let minutes = number(4).checked_mul(60).and_then(|minutes| minutes.checked_add(number(5)));
    let time = minutes.and_then(|minutes| minutes.checked_mul(60 * SECOND_US));
    let ns = time.and_then(|time| time.checked_add(us)).and_then(|us| us.checked_mul(1_000));
    interval_value(months, days, ns.ok_or_else(out_of_range)?)
}

fn day_of(year: i64, month: i64, day: i64) -> Result<NaiveDate> {
    let wrong = || overflow(&format!("date field value out of range: {year}-{month:02}-{day:02}"));
    let parts = (i32::try_from(year), u32::try_from(month), u32::try_from(day));
    let (Ok(year), Ok(month), Ok(day)) = parts else { return Err(wrong()) };
    // There is no year 0; years BC are negative.
    let year = match year {
        0 => return Err(wrong()),
        ..0 => year + 1,
        _ => year,
    };
    NaiveDate::from_ymd_opt(year, month, day).ok_or_else(wrong)
}

/// Microseconds since midnight. 24:00 is valid.
fn time_of(hour: i64, minute: i64, seconds: f64) -> Result<i64> {
    let wrong = || overflow(&format!("time field value out of range: {hour}:{minute:02}:{seconds:02}"));
    let is_within = (0..=24).contains(&hour) && (0..60).contains(&minute) && (0.0..=60.0).contains(&seconds);
    if !is_within {
        return Err(wrong());
    }
    let us = (hour * 60 + minute) * 60 * SECOND_US + (seconds * SECOND_US as f64).round() as i64;
    if us > DAY_US {
        return Err(wrong());
    }
    Ok(us)
}

#[cfg(test)]
mod tests {
    use chrono::NaiveTime;

    use super::*;

    fn at(text: &str) -> i64 {
        let day: NaiveDateTime = match text.parse::<NaiveDate>() {
            Ok(day) => day.and_time(NaiveTime::MIN),
            Err(_) => text.parse().unwrap(),
        };
        day.and_utc().timestamp_micros()
    }

    #[test]
    fn age_counts_months_by_the_earlier_date() {
        let hour = 3_600_000_000_000;
        for (later, earlier, months, days, ns) in [
            ("2001-04-10", "1957-06-13", 43 * 12 + 9, 27, 0),
            ("2001-09-29T03:00:00", "2001-07-27T12:00:00", 2, 1, 15 * hour),
            ("2024-03-01", "2024-02-29", 0, 1, 0),
            ("2024-03-30", "2024-01-31", 1, 30, 0),
            ("2024-01-31", "2024-03-30", -1, -30, 0),
            ("2024-01-01", "2024-01-01T01:00:00", 0, 0, -hour),
        ] {
            assert_eq!(
                age(at(later), at(earlier)).unwrap(),
                interval_value(months, days, ns).unwrap(),
                "{later} {earlier}"
            );
        }
    }

    #[test]
    fn parts_of_intervals_get_one_sign() {
        let hour = 3_600_000_000_000;
        assert_eq!(justify((1, 0, -hour)).unwrap(), interval_value(0, 29, 23 * hour).unwrap());
        assert_eq!(justify((0, 35, 27 * hour)).unwrap(), interval_value(1, 6, 3 * hour).unwrap());
        assert_eq!(justify((-1, 1, hour)).unwrap(), interval_value(0, -28, -23 * hour).unwrap());
        assert_eq!(justified_hours(1, -hour).unwrap(), (0, 23 * hour));
        assert_eq!(justified_days(-1, 1).unwrap(), (0, -29));
        assert!(justified_hours(i32::MAX, 24 * hour).is_err());
    }

    #[test]
    fn times_of_day_end_with_24() {
        assert_eq!(time_of(24, 0, 0.0).unwrap(), DAY_US);
        assert!(
            time_of(24, 0, 0.1).is_err() && time_of(1, 60, 0.0).is_err() && time_of(1, 0, f64::NAN).is_err()
        );
        assert!(day_of(0, 1, 1).is_err() && day_of(2023, 2, 29).is_err());
        assert_eq!(day_of(-1, 1, 1).unwrap().year(), 0);
    }
}
