//! Dates and timestamps as texts: Hive's own forms, and patterns of Java's `SimpleDateFormat`.
//!
//! Source: Java SE 8, `java.text.SimpleDateFormat`; `org.apache.hive.common.util.DateParser`.

use chrono::{Datelike, NaiveDate, NaiveDateTime, NaiveTime, Timelike};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// Days from 0001-01-01 to 1970-01-01.
const EPOCH_DAYS: i32 = 719_163;

pub(super) fn date_of(days: i32) -> Option<NaiveDate> {
    NaiveDate::from_num_days_from_ce_opt(days.checked_add(EPOCH_DAYS)?)
}

pub(super) fn days_of(date: NaiveDate) -> i32 {
    date.num_days_from_ce() - EPOCH_DAYS
}

pub(super) fn moment_of(us: i64) -> Option<NaiveDateTime> {
    chrono::DateTime::from_timestamp_micros(us).map(|moment| moment.naive_utc())
}

pub(super) fn us_of(moment: NaiveDateTime) -> i64 {
    moment.and_utc().timestamp_micros()
}

/// The number at the start of a text, and what follows.
fn number(text: &str, digits_max: usize) -> Option<(u32, &str)> {
    let digits = text.bytes().take(digits_max).take_while(u8::is_ascii_digit).count();
    Some((text[..digits].parse().ok()?, &text[digits..]))
}

/// `2020-1-5`, and what follows.
fn date_and_rest(text: &str) -> Option<(NaiveDate, &str)> {
    let (year, rest) = number(text, 4)?;
    let (month, rest) = number(rest.strip_prefix('-')?, 2)?;
    let (day, rest) = number(rest.strip_prefix('-')?, 2)?;
    Some((NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)?, rest))
}

/// A date, which a time may follow.
pub(super) fn parse_date(text: &str) -> Option<NaiveDate> {
    let (date, rest) = date_and_rest(text.trim())?;
    (rest.is_empty() || rest.starts_with([' ', 'T'])).then_some(date)
}

/// A timestamp; midnight of a date whose time is none.
pub(super) fn parse_moment(text: &str) -> Option<NaiveDateTime> {
    let (date, rest) = date_and_rest(text.trim())?;
    match rest.strip_prefix([' ', 'T']) {
        Some(time) => Some(date.and_time(parse_time(time.trim_start()).unwrap_or(NaiveTime::MIN))),
        None => rest.is_empty().then(|| date.and_time(NaiveTime::MIN)),
    }
}

/// `12:34:56`, with a fraction or without.
fn parse_time(text: &str) -> Option<NaiveTime> {
    let (hour, rest) = number(text, 2)?;
    let (minute, rest) = number(rest.strip_prefix(':')?, 2)?;
    let (second, rest) = number(rest.strip_prefix(':')?, 2)?;
    let nanos = match rest.strip_prefix('.') {
        None if rest.is_empty() => 0,
        Some(fraction) if !fraction.is_empty() && fraction.bytes().all(|digit| digit.is_ascii_digit()) => {
            let nine: String = fraction.chars().chain("000000000".chars()).take(9).collect();
            nine.parse().ok()?
        }
        _ => return None,
    };
    NaiveTime::from_hms_nano_opt(hour, minute, second, nanos)
}

/// Hive's form of a timestamp: a fraction without zeros at its end.
pub(super) fn moment_text(moment: NaiveDateTime) -> String {
    let whole = moment.format("%Y-%m-%d %H:%M:%S").to_string();
    match moment.nanosecond() {
        0 => whole,
        nanos => format!("{whole}.{}", format!("{nanos:09}").trim_end_matches('0')),
    }
}

/// A part of a pattern: a letter so many times, or a text.
enum Part {
    Field(char, usize),
    Text(String),
}

/// `None`: a letter that has no meaning.
fn parts(pattern: &str) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    let mut signs = pattern.chars().peekable();
    while let Some(sign) = signs.next() {
        match sign {
            '\'' => {
                let mut text = String::new();
                if signs.next_if_eq(&'\'').is_some() {
                    text.push('\'');
                } else {
                    loop {
                        match signs.next()? {
                            '\'' if signs.next_if_eq(&'\'').is_some() => text.push('\''),
                            '\'' => break,
                            other => text.push(other),
                        }
                    }
                }
                parts.push(Part::Text(text));
            }
            letter if letter.is_ascii_alphabetic() => {
                let mut count = 1;
                while signs.next_if_eq(&letter).is_some() {
                    count += 1;
                }
                "yYuMLdDEaHkKhmsSzZXwWFe".contains(letter).then_some(())?;
                parts.push(Part::Field(letter, count));
            }
            other => parts.push(Part::Text(other.to_string())),
        }
    }
    Some(parts)
}

/// `None`: no pattern of Java.
pub(super) fn format(moment: NaiveDateTime, pattern: &str) -> Option<String> {
    let mut written = String::new();
    for part in parts(pattern)? {
        let (letter, count) = match part {
            Part::Text(text) => {
                written.push_str(&text);
                continue;
            }
            Part::Field(letter, count) => (letter, count),
        };
        let padded = |number: u32| format!("{number:0count$}");
        let short = |name: &str| if count >= 4 { name.to_string() } else { name[..3].to_string() };
        written += &match letter {
            'y' | 'Y' | 'u' if count == 2 => format!("{:02}", moment.year().rem_euclid(100)),
            'y' | 'Y' | 'u' => format!("{:0count$}", moment.year()),
            'M' | 'L' if count >= 3 => short(MONTHS[moment.month0() as usize]),
            'M' | 'L' => padded(moment.month()),
            'd' => padded(moment.day()),
            'D' => padded(moment.ordinal()),
            'E' => short(DAYS[moment.weekday().num_days_from_monday() as usize]),
            'e' => padded(moment.weekday().number_from_sunday()),
            'a' => if moment.hour() < 12 { "AM" } else { "PM" }.to_string(),
            'H' => padded(moment.hour()),
            'k' => padded(if moment.hour() == 0 { 24 } else { moment.hour() }),
            'K' => padded(moment.hour() % 12),
            'h' => padded(if moment.hour().is_multiple_of(12) { 12 } else { moment.hour() % 12 }),
            'm' => padded(moment.minute()),
            's' => padded(moment.second()),
            // A fraction in `java.time`: its first digits.
            'S' => format!("{:09}0000000000", moment.nanosecond()).chars().take(count).collect(),
            'z' => "UTC".to_string(),
            'Z' => "+0000".to_string(),
            'X' => "Z".to_string(),
            'w' => padded(moment.iso_week().week()),
            _ => return None,
        };
    }
    Some(written)
}

/// Reads a text by a pattern; `None`: it does not have that form.
pub(super) fn parse(text: &str, pattern: &str) -> Option<NaiveDateTime> {
    let parts = parts(pattern)?;
    let (mut year, mut month, mut day) = (1970, 1, 1);
    let (mut hour, mut minute, mut second, mut nanos) = (0, 0, 0, 0);
    let mut is_afternoon = None;
    let mut rest = text.trim();
    for (at, part) in parts.iter().enumerate() {
        let (letter, count) = match part {
            Part::Text(text) => {
                rest = rest.strip_prefix(text.as_str())?;
                continue;
            }
            Part::Field(letter, count) => (*letter, *count),
        };
        // Before another field, a number has as many digits as the pattern has letters.
        let is_closed = matches!(parts.get(at + 1), Some(Part::Field(..)));
        let digits = if is_closed { count } else { 9 };
        let mut of_number = || -> Option<u32> {
            let (value, after) = number(rest, digits)?;
            rest = after;
            Some(value)
        };
        match letter {
            'y' | 'Y' | 'u' => {
                let value = of_number()? as i32;
                year = if count == 2 && value < 100 {
                    if value < 70 { 2000 + value } else { 1900 + value }
                } else {
                    value
                };
            }
            'M' | 'L' if count >= 3 => {
                let is_start =
                    |name: &&str| rest.get(..3).is_some_and(|start| start.eq_ignore_ascii_case(&name[..3]));
                let place = MONTHS.iter().position(|name| is_start(&name))?;
                let full = MONTHS[place];
                let is_full = rest.get(..full.len()).is_some_and(|start| start.eq_ignore_ascii_case(full));
                rest = &rest[if is_full { full.len() } else { 3 }..];
                month = place as u32 + 1;
            }
            'M' | 'L' => month = of_number()?,
            'd' => day = of_number()?,
            'H' | 'k' => hour = of_number()? % 24,
            'h' | 'K' => hour = of_number()? % 12,
            'm' => minute = of_number()?,
            's' => second = of_number()?,
            'S' => {
                let count = rest.bytes().take_while(u8::is_ascii_digit).count().min(9);
                let value: u32 = rest[..count].parse().ok()?;
                nanos = value * 10_u32.pow(9 - count as u32);
                rest = &rest[count..];
            }
            'a' => {
                let half = rest.get(..2)?.to_ascii_uppercase();
                is_afternoon = Some(match half.as_str() {
                    "AM" => false,
                    "PM" => true,
                    _ => return None,
                });
                rest = &rest[2..];
            }
            'E' => rest = rest.trim_start_matches(|sign: char| sign.is_alphabetic()),
            'z' | 'Z' | 'X' => {
                rest = rest
                    .strip_prefix("UTC")
                    .or_else(|| rest.strip_prefix("+0000"))
                    .or_else(|| rest.strip_prefix('Z'))?;
            }
            _ => return None,
        }
    }
    if is_afternoon == Some(true) {
        hour += 12;
    }
    let date = NaiveDate::from_ymd_opt(year, month, day)?;
    Some(date.and_time(NaiveTime::from_hms_nano_opt(hour, minute, second, nanos)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_javas() {
        let moment = parse_moment("2015-04-08 13:05:09.25").unwrap();
        for (pattern, expected) in [
            ("y", "2015"),
            ("yyyy/MM/dd hh:mm:ss a", "2015/04/08 01:05:09 PM"),
            ("EEE, d MMM yy", "Wed, 8 Apr 15"),
            ("EEEE MMMM", "Wednesday April"),
            ("HH'h'''mm", "13h'05"),
            ("u D", "2015 98"),
        ] {
            assert_eq!(format(moment, pattern).unwrap(), expected, "{pattern}");
        }
        assert_eq!(moment_text(moment), "2015-04-08 13:05:09.25");
        assert_eq!(format(moment, "b"), None);
        for (text, pattern, expected) in [
            ("20150408", "yyyyMMdd", "2015-04-08 00:00:00"),
            ("8/Apr/2015:13:05", "d/MMM/yyyy:HH:mm", "2015-04-08 13:05:00"),
            ("01 PM", "hh a", "1970-01-01 13:00:00"),
        ] {
            assert_eq!(moment_text(parse(text, pattern).unwrap()), expected);
        }
        assert_eq!(parse("2015", "MM/dd"), None);
        for none in ["2015-02-30", "2015", "x", "2015-04-08x"] {
            assert_eq!(parse_moment(none), None, "{none}");
        }
    }
}
