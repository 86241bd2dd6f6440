//! Formats of numbers, sizes and times on pages.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use maud::{Markup, html};

/// Formats `1,234,567`.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats `1.2 MiB`.
pub(crate) fn bytes(value: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut shown = value as f64;
    let mut unit = 0;
    while shown >= 1024.0 && unit + 1 < UNITS.len() {
        shown /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value} B") } else { format!("{shown:.1} {}", UNITS[unit]) }
}

/// Formats `1.2 ms`, `3.4 s`, `2 min 5 s`, `3 h 2 min`, `5 d 1 h`.
pub(crate) fn duration(value: Duration) -> String {
    let seconds = value.as_secs();
    match seconds {
        0..60 => nanoseconds(value.as_nanos() as f64),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

pub(crate) fn nanoseconds(value: f64) -> String {
    match value {
        value if value < 1e3 => format!("{value:.0} ns"),
        value if value < 1e6 => format!("{:.1} µs", value / 1e3),
        value if value < 1e9 => format!("{:.1} ms", value / 1e6),
        value => format!("{:.1} s", value / 1e9),
    }
}

/// Formats `2026-01-31 23:59:59` in UTC.
pub(crate) fn date_and_time(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days from March 1 of the year 0, so that a leap day ends a year: 400 years have 146097 days.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months from March on have 153 days in five.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// The duration without fractions of a second.
pub(crate) fn seconds(value: Duration) -> String {
    match value.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => duration(Duration::from_secs(seconds)),
    }
}

/// Formats `3 min 2 s ago`, with the time itself as tooltip.
pub(crate) fn ago(at: SystemTime) -> Markup {
    let exact = date_and_time(at);
    let passed = at.elapsed().unwrap_or_default();
    html! {
        time datetime={(exact.replace(' ', "T")) "Z"} title={(exact) " UTC"} {
            @if passed.as_secs() == 0 { "now" } @else { (seconds(passed)) " ago" }
        }
    }
}

/// A bar of length `value` out of `most`; the content security policy forbids inline styles.
pub(crate) fn bar(value: u64, most: u64) -> Markup {
    let width = if most == 0 { 0.0 } else { 100.0 * value as f64 / most as f64 };
    html! {
        svg.bar width="100" height="4" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true" {
            rect width=(format!("{width:.1}")) height="4" {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_readable() {
        for (value, expected) in [(0, "0"), (999, "999"), (1000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(count(value), expected);
        }
        for (value, expected) in [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (u64::MAX, "16384.0 PiB")]
        {
            assert_eq!(bytes(value), expected);
        }
        for (ms, expected) in [
            (0, "0 ns"),
            (3, "3.0 ms"),
            (59_900, "59.9 s"),
            (125_000, "2 min 5 s"),
            (10_920_000, "3 h 2 min"),
            (435_600_000, "5 d 1 h"),
        ] {
            assert_eq!(duration(Duration::from_millis(ms)), expected);
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_709_251_199, "2024-02-29 23:59:59"),
            (1_767_225_600, "2026-01-01 00:00:00"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(date_and_time(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }
}
