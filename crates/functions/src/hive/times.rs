//! Dates and times.

use chrono::{Datelike, Days, Months, NaiveDate, NaiveDateTime, Timelike, Weekday};
use datafusion::common::{Result, ScalarValue};

use super::java_dates::{date_of, days_of, format, moment_of, moment_text, parse, us_of};
use crate::datetime::zone_offset::{offset_then, offset_there, zone_of};
use crate::postgres_functions::Kind::{Any, Date, Double, Int, Int4, Text, Timestamp};
use crate::postgres_functions::{Definition, int, text};

const SECOND_US: i64 = 1_000_000;

/// The form of timestamps without a pattern.
const PLAIN: &str = "yyyy-MM-dd HH:mm:ss";

pub(super) const DEFINITIONS: &[Definition] = &[
    // Date, months, pattern.
    Definition::new("hive_add_months", &[Timestamp, Int, Text], Text, |values| {
        let pattern = values.get(2).map_or("yyyy-MM-dd", text);
        as_text(moment(&values[0]).and_then(|moment| {
            let date = months_later(moment.date(), int(&values[1]))?;
            format(date.and_time(moment.time()), pattern)
        }))
    })
    .from(2),
    Definition::new("hive_date_add", &[Date, Int], Date, |values| {
        Ok(days_later(&values[0], int(&values[1])))
    }),
    Definition::new("hive_date_sub", &[Date, Int], Date, |values| {
        Ok(days_later(&values[0], int(&values[1]).wrapping_neg()))
    }),
    Definition::new("hive_date_format", &[Timestamp, Text], Text, |values| {
        as_text(moment(&values[0]).and_then(|moment| format(moment, text(&values[1]))))
    }),
    Definition::new("hive_datediff", &[Date, Date], Int4, |values| {
        let days = |value: &ScalarValue| match value {
            ScalarValue::Date32(days) => *days,
            _ => None,
        };
        let between = days(&values[0]).zip(days(&values[1])).map(|(end, start)| end.wrapping_sub(start));
        Ok(ScalarValue::Int32(between))
    }),
    Definition::new("hive_day", &[Timestamp], Int4, |values| field(values, |moment| moment.day())),
    Definition::new("hive_dayofweek", &[Timestamp], Int4, |values| {
        field(values, |moment| moment.weekday().number_from_sunday())
    }),
    Definition::new("hive_hour", &[Timestamp], Int4, |values| field(values, |moment| moment.hour())),
    Definition::new("hive_minute", &[Timestamp], Int4, |values| field(values, |moment| moment.minute())),
    Definition::new("hive_month", &[Timestamp], Int4, |values| field(values, |moment| moment.month())),
    Definition::new("hive_quarter", &[Timestamp], Int4, |values| {
        field(values, |moment| moment.month0() / 3 + 1)
    }),
    Definition::new("hive_second", &[Timestamp], Int4, |values| field(values, |moment| moment.second())),
    Definition::new("hive_weekofyear", &[Timestamp], Int4, |values| {
        field(values, |moment| moment.iso_week().week())
    }),
    Definition::new("hive_year", &[Timestamp], Int4, |values| {
        Ok(ScalarValue::Int32(moment(&values[0]).map(|moment| moment.year())))
    }),
    Definition::new("hive_from_unixtime", &[Int, Text], Text, |values| {
        let moment = int(&values[0]).checked_mul(SECOND_US).and_then(moment_of);
        as_text(moment.and_then(|moment| format(moment, values.get(1).map_or(PLAIN, text))))
    })
    .from(1),
    Definition::new("hive_from_utc_timestamp", &[Timestamp, Text], Timestamp, |values| {
        Ok(at_zone(&values[0], text(&values[1]), true))
    }),
    Definition::new("hive_to_utc_timestamp", &[Timestamp, Text], Timestamp, |values| {
        Ok(at_zone(&values[0], text(&values[1]), false))
    }),
    Definition::new("hive_last_day", &[Date], Text, |values| {
        let date = date(&values[0]).and_then(last_day);
        as_text(date.map(|date| date.to_string()))
    }),
    Definition::new("hive_months_between", &[Timestamp, Timestamp], Double, |values| {
        let both = moment(&values[0]).zip(moment(&values[1]));
        Ok(ScalarValue::Float64(both.map(|(later, earlier)| months_between(later, earlier))))
    }),
    Definition::new("hive_next_day", &[Date, Text], Text, |values| {
        let day = weekday(text(&values[1]));
        let found = date(&values[0]).zip(day).and_then(|(date, day)| {
            let ahead = (7 + day.num_days_from_monday() - date.weekday().num_days_from_monday()) % 7;
            date.checked_add_days(Days::new(if ahead == 0 { 7 } else { u64::from(ahead) }))
        });
        as_text(found.map(|date| date.to_string()))
    }),
    Definition::new("hive_trunc", &[Date, Text], Text, |values| {
        let first = date(&values[0]).and_then(|date| {
            let month = match text(&values[1]).to_ascii_uppercase().as_str() {
                "MONTH" | "MON" | "MM" => date.month(),
                "YEAR" | "YYYY" | "YY" => 1,
                "QUARTER" | "Q" => date.month0() / 3 * 3 + 1,
                _ => return None,
            };
            NaiveDate::from_ymd_opt(date.year(), month, 1)
        });
        as_text(first.map(|date| date.to_string()))
    }),
    // Moment, or text and pattern.
    Definition::new("hive_unix_timestamp", &[Timestamp], Int, |values| {
        let ScalarValue::TimestampMicrosecond(us, _) = &values[0] else {
            return Ok(ScalarValue::Int64(None));
        };
        Ok(ScalarValue::Int64(us.map(|us| us.div_euclid(SECOND_US))))
    }),
    Definition::new("hive_unix_timestamp", &[Text, Text], Int, |values| {
        let moment = parse(text(&values[0]), text(&values[1]));
        Ok(ScalarValue::Int64(moment.map(|moment| us_of(moment).div_euclid(SECOND_US))))
    }),
    Definition::new("hive_unix_timestamp", &[Any, Text], Int, |values| {
        let us = match &values[0] {
            ScalarValue::TimestampMicrosecond(us, _) => *us,
            ScalarValue::Date32(days) => days.map(|days| i64::from(days) * 86_400 * SECOND_US),
            _ => None,
        };
        Ok(ScalarValue::Int64(us.map(|us| us.div_euclid(SECOND_US))))
    }),
];

fn as_text(text: Option<String>) -> Result<ScalarValue> {
    Ok(ScalarValue::Utf8(text))
}

fn date(value: &ScalarValue) -> Option<NaiveDate> {
    match value {
        ScalarValue::Date32(Some(days)) => date_of(*days),
        _ => None,
    }
}

fn moment(value: &ScalarValue) -> Option<NaiveDateTime> {
    match value {
        ScalarValue::TimestampMicrosecond(Some(us), _) => moment_of(*us),
        _ => None,
    }
}

fn field(values: &[ScalarValue], of: fn(NaiveDateTime) -> u32) -> Result<ScalarValue> {
    Ok(ScalarValue::Int32(moment(&values[0]).map(|moment| of(moment) as i32)))
}

fn days_later(value: &ScalarValue, days: i64) -> ScalarValue {
    let later = match value {
        ScalarValue::Date32(Some(first)) => i32::try_from(i64::from(*first).saturating_add(days)).ok(),
        _ => None,
    };
    ScalarValue::Date32(later)
}

fn last_day(date: NaiveDate) -> Option<NaiveDate> {
    date.with_day(1)?.checked_add_months(Months::new(1))?.pred_opt()
}

/// The last day of a month stays the last day.
fn months_later(date: NaiveDate, months: i64) -> Option<NaiveDate> {
    let is_last = last_day(date) == Some(date);
    let count = Months::new(u32::try_from(months.unsigned_abs()).ok()?);
    let moved = match months >= 0 {
        true => date.checked_add_months(count)?,
        false => date.checked_sub_months(count)?,
    };
    if is_last { last_day(moved) } else { Some(moved) }
}

/// Whole months between equal days or last days; otherwise with months of 31 days, to eight digits.
fn months_between(later: NaiveDateTime, earlier: NaiveDateTime) -> f64 {
    let months = (later.year() - earlier.year()) * 12 + later.month() as i32 - earlier.month() as i32;
    let is_last = |moment: &NaiveDateTime| last_day(moment.date()) == Some(moment.date());
    if later.day() == earlier.day() || is_last(&later) && is_last(&earlier) {
        return f64::from(months);
    }
    let seconds = |moment: &NaiveDateTime| {
        i64::from(moment.day()) * 86_400 + i64::from(moment.num_seconds_from_midnight())
    };
    let part = (seconds(&later) - seconds(&earlier)) as f64 / (31.0 * 86_400.0);
    ((f64::from(months) + part) * 1e8).round() / 1e8
}

fn weekday(name: &str) -> Option<Weekday> {
    let day = match name.to_ascii_uppercase().as_str() {
        "MO" | "MON" | "MONDAY" => Weekday::Mon,
        "TU" | "TUE" | "TUESDAY" => Weekday::Tue,
        "WE" | "WED" | "WEDNESDAY" => Weekday::Wed,
        "TH" | "THU" | "THURSDAY" => Weekday::Thu,
        "FR" | "FRI" | "FRIDAY" => Weekday::Fri,
        "SA" | "SAT" | "SATURDAY" => Weekday::Sat,
        "SU" | "SUN" | "SUNDAY" => Weekday::Sun,
        _ => return None,
    };
    Some(day)
}

/// The time of a zone at a time in UTC, or the other way round; NULL for a zone that is not known.
fn at_zone(value: &ScalarValue, zone: &str, is_from_utc: bool) -> ScalarValue {
    let moved = match (value, zone_of(zone)) {
        (ScalarValue::TimestampMicrosecond(Some(us), _), Ok(zone)) => {
            let seconds = us.div_euclid(SECOND_US);
            match is_from_utc {
                true => offset_then(&zone, seconds).map(|ahead| us + ahead * SECOND_US),
                false => offset_there(&zone, seconds).map(|ahead| us - ahead * SECOND_US),
            }
        }
        _ => None,
    };
    ScalarValue::TimestampMicrosecond(moved, None)
}

/// A timestamp as Hive writes it.
pub(super) fn text_of(us: i64) -> Option<String> {
    moment_of(us).map(moment_text)
}

/// The days of a date.
pub(super) fn days(text: &str) -> Option<i32> {
    super::java_dates::parse_date(text).map(days_of)
}

#[cfg(test)]
mod tests {
    use super::super::java_dates::parse_moment;
    use super::*;

    #[test]
    fn months_are_hives() {
        let day = |text: &str| days(text).and_then(date_of).unwrap();
        for (from, months, expected) in [
            ("2015-01-31", 1, "2015-02-28"),
            ("2015-02-28", 1, "2015-03-31"),
            ("2015-03-15", -3, "2014-12-15"),
        ] {
            assert_eq!(months_later(day(from), months).unwrap().to_string(), expected);
        }
        let moment = |text: &str| parse_moment(text).unwrap();
        assert_eq!(months_between(moment("1997-02-28 10:30:00"), moment("1996-10-30")), 3.949_596_77);
        assert_eq!(months_between(moment("2015-02-28"), moment("2015-01-31")), 1.0);
    }
}
