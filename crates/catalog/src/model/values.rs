//! Values stored as text in the catalog: comparison, and timestamps.

use std::cmp::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::model::types::ColumnType;

/// Compares two bounds of a column of this type; `None` if a text is not a value of the type.
pub(crate) fn compare(kind: ColumnType, left: &str, right: &str) -> Option<Ordering> {
    use ColumnType::*;
    if left == right {
        return Some(Ordering::Equal);
    }
    match kind {
        Boolean => Some(truth(left)?.cmp(&truth(right)?)),
        Int8
        | Int16
        | Int32
        | Int64
        | Int128
        | UInt8
        | UInt16
        | UInt32
        | UInt64
        | UInt128
        | Decimal { .. } => decimal(left, right),
        Float32 | Float64 => {
            let (left, right) = (left.parse::<f64>().ok()?, right.parse::<f64>().ok()?);
            // DuckDB's order: NaN is the greatest.
            Some(match (left.is_nan(), right.is_nan()) {
                (false, false) => left.partial_cmp(&right)?,
                (left, right) => left.cmp(&right),
            })
        }
        Date | Timestamp | TimestampTz | TimestampS | TimestampMs | TimestampNs => {
            Some(moment(left)?.cmp(&moment(right)?))
        }
        Time | Varchar | Json | Uuid => Some(left.cmp(right)),
        // Blobs are written as hex by some and escaped by others; the rest have no bounds.
        Blob | TimeTz | Interval | Struct | List | Map => None,
    }
}

fn truth(text: &str) -> Option<bool> {
    match text {
        "true" | "1" | "t" => Some(true),
        "false" | "0" | "f" => Some(false),
        _ => None,
    }
}

/// Numbers of any length, with or without a fraction.
fn decimal(left: &str, right: &str) -> Option<Ordering> {
    let parts = |text: &str| {
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let is_number = !(whole.is_empty() && fraction.is_empty())
            && whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
        let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
        let negative = negative && !(whole.is_empty() && fraction.is_empty());
        is_number.then(|| (negative, whole.to_string(), fraction.to_string()))
    };
    let (left, right) = (parts(left)?, parts(right)?);
    let size = || (left.1.len().cmp(&right.1.len())).then(left.1.cmp(&right.1)).then(left.2.cmp(&right.2));
    Some(match (left.0, right.0) {
        (false, true) => Ordering::Greater,
        (true, false) => Ordering::Less,
        (false, false) => size(),
        (true, true) => size().reverse(),
    })
}

/// Sort key of dates and times, of any year, BC too: the year, and the rest as ordered text.
fn moment(text: &str) -> Option<(i64, String)> {
    match text {
        "infinity" => return Some((i64::MAX, String::new())),
        "-infinity" => return Some((i64::MIN, String::new())),
        _ => {}
    }
    let before_christ = text.contains("(BC)");
    let (year, rest) =
        text.get(1..)?.split_once('-').map(|(year, rest)| (format!("{}{year}", &text[..1]), rest))?;
    let year: i64 = year.parse().ok()?;
    Some((if before_christ { 1 - year } else { year }, rest.replace(" (BC)", "")))
}

/// Microseconds since 1970 of a time such as `2026-11-22 07:30:28.6+00`, `2026-11-22T07:30:28Z` or
/// `2026-11-22`; without a zone, UTC.
pub(crate) fn parse_time(text: &str) -> Option<i64> {
    let text = text.trim();
    let (date, rest) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, ""),
    };
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    if !(1..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (clock, zone) = match rest.find(['Z', 'z', '+', '-']) {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let (clock, fraction) = clock.trim().split_once('.').unwrap_or((clock.trim(), ""));
    let (hour, minute, second) = sixtieths(clock)?;
    if hour > 24 || minute > 59 || second > 60 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits: String = fraction.chars().chain("000000".chars()).take(6).collect();
    let micros: i64 = digits.parse().ok()?;
    let (sign, zone) = match zone.as_bytes().first() {
        None | Some(b'Z' | b'z') => (0, ""),
        Some(b'-') => (-1, &zone[1..]),
        _ => (1, &zone[1..]),
    };
    let offset = if zone.len() == 4 && !zone.contains(':') {
        sixtieths(&format!("{}:{}", zone.get(..2)?, zone.get(2..)?))?
    } else {
        sixtieths(zone)?
    };
    let seconds = |(hours, minutes, seconds): (i64, i64, i64)| (hours * 60 + minutes) * 60 + seconds;
    let days = days_of(year, month, day);
    Some((days * 86_400 + seconds((hour, minute, second)) - sign * seconds(offset)) * 1_000_000 + micros)
}

fn sixtieths(text: &str) -> Option<(i64, i64, i64)> {
    let mut parts =
        text.splitn(3, ':').map(|part| if part.is_empty() { Some(0) } else { part.parse::<u32>().ok() });
    let mut next = || parts.next().unwrap_or(Some(0)).map(i64::from);
    Some((next()?, next()?, next()?))
}

/// DuckDB's format: UTC, without trailing zeros in the fraction.
pub(crate) fn format_time(micros: i64) -> String {
    let (days, of_day) = (micros.div_euclid(86_400_000_000), micros.rem_euclid(86_400_000_000));
    let (year, month, day) = date_of(days);
    let (seconds, fraction) = (of_day / 1_000_000, of_day % 1_000_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let fraction = if fraction == 0 { String::new() } else { format!(".{fraction:06}") };
    let fraction = fraction.trim_end_matches('0');
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{fraction}+00")
}

pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// Days since 1970 of a Gregorian date, with years that begin in March and so end with the leap day.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_compared_by_type() {
        use ColumnType::*;
        let decimal = Decimal { precision: 10, scale: 2 };
        for (kind, smaller, larger) in [
            (Int32, "9", "10"),
            (Int32, "-10", "-9"),
            (Int32, "-1", "1"),
            (UInt128, "340282366920938463463374607431768211454", "340282366920938463463374607431768211455"),
            (decimal, "9.50", "10.00"),
            (decimal, "-0.02", "-0.01"),
            (decimal, "1.05", "1.1"),
            (Float64, "9.5", "1e3"),
            (Float64, "-inf", "-1e300"),
            (Float64, "1e300", "inf"),
            (Float64, "inf", "nan"),
            (Date, "9999-12-31", "10000-01-01"),
            (Date, "0044-03-15 (BC)", "0001-01-01"),
            (Date, "0045-03-15 (BC)", "0044-03-15 (BC)"),
            (Date, "-infinity", "0001-01-01"),
            (Timestamp, "2020-01-01 10:00:00", "2020-01-01 10:00:00.5"),
            (TimestampTz, "2020-01-01 10:00:00.25+00", "2020-01-01 10:00:00.5+00"),
            (Timestamp, "9999-01-01 00:00:00", "infinity"),
            (Varchar, "10", "9"),
            (Boolean, "false", "true"),
            (Boolean, "0", "true"),
        ] {
            assert_eq!(compare(kind, smaller, larger), Some(Ordering::Less), "{kind}: {smaller} {larger}");
            assert_eq!(compare(kind, larger, smaller), Some(Ordering::Greater), "{kind}: {larger} {smaller}");
        }
        assert_eq!(compare(decimal, "1.5", "1.50"), Some(Ordering::Equal));
        assert_eq!(compare(decimal, "-0", "0.00"), Some(Ordering::Equal));
        assert_eq!(compare(Int32, "x", "1"), None);
        assert_eq!(compare(Blob, "aa", "bb"), None);
        assert_eq!(compare(Date, "é", "1"), None);
    }

    #[test]
    fn times_round_trip() {
        for text in [
            "2026-11-22 07:30:28.649688+00",
            "2026-11-22 07:30:28.79325+00",
            "2000-02-29 00:00:00+00",
            "1969-12-31 23:59:59.5+00",
            "0001-01-01 00:00:00+00",
        ] {
            assert_eq!(format_time(parse_time(text).unwrap()), text);
        }
        let same = parse_time("2026-11-22 07:30:28+00").unwrap();
        for text in [
            "2026-11-22T07:30:28Z",
            "2026-11-22 08:30:28+01",
            "2026-11-22 02:00:28-05:30",
            "2026-11-22 07:30:28",
            "2026-11-22T13:00:28+0530",
        ] {
            assert_eq!(parse_time(text), Some(same), "{text}");
        }
        assert_eq!(parse_time("2026-11-22").map(format_time).as_deref(), Some("2026-11-22 00:00:00+00"));
        for text in
            ["", "now", "2026-13-01", "2026-1", "2026-01-01 25:00", "2026-01-01 x", "2026-01-01 10:00+é"]
        {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
