//! Formatting and parsing of timestamps and intervals by a pattern.

use chrono::{Datelike, NaiveDate, NaiveDateTime, NaiveTime, Timelike};

use super::template::{Case, Field, Piece};
use harrier_error::{SqlError, SqlState};

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
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const ROMAN: [&str; 12] = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

/// Offset between Julian day numbers and chrono's day numbers from 0001-01-01.
const JULIAN_DAYS: i32 = 1_721_425;

/// A value to format.
#[derive(Debug, Clone, Copy)]
pub(super) enum DateTimeValue<'z> {
    /// With seconds east of Greenwich and the name of the zone, if it has one.
    Moment(NaiveDateTime, Option<(i32, &'z str)>),
    /// Months, days, microseconds.
    Interval(i32, i32, i64),
}

/// The numbers of the fields.
struct Parts<'z> {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    us: i64,
    date: Option<NaiveDate>,
    zone: Option<(i32, &'z str)>,
}

impl<'z> Parts<'z> {
    fn of(shown: DateTimeValue<'z>) -> Self {
        match shown {
            DateTimeValue::Moment(moment, zone) => Self {
                year: moment.year().into(),
                month: moment.month().into(),
                day: moment.day().into(),
                hour: moment.hour().into(),
                minute: moment.minute().into(),
                second: moment.second().into(),
                us: (moment.nanosecond() / 1_000).into(),
                date: Some(moment.date()),
                zone,
            },
            DateTimeValue::Interval(months, days, us) => Self {
                year: (months / 12).into(),
                month: (months % 12).into(),
                day: days.into(),
                hour: us / 3_600_000_000,
                minute: us / 60_000_000 % 60,
                second: us / 1_000_000 % 60,
                us: us % 1_000_000,
                date: None,
                zone: None,
            },
        }
    }
}

/// Formats a value by a pattern.
///
/// Errors: the pattern has a field that intervals do not have (22007).
pub(super) fn write(pieces: &[Piece], shown: DateTimeValue<'_>, out: &mut String) -> Result<(), SqlError> {
    let parts = Parts::of(shown);
    for piece in pieces {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Sign(sign) => out.push(*sign),
            Piece::Field { field, is_short, ordinal, case } => {
                let begin = out.len();
                write_field(*field, *is_short, *case, &parts, out)?;
                if let Some(is_upper) = ordinal {
                    let suffix = suffix_of(&out[begin..]);
                    out.push_str(if *is_upper { suffix.0 } else { suffix.1 });
                }
            }
        }
    }
    Ok(())
}

fn suffix_of(number: &str) -> (&'static str, &'static str) {
    let mut digits = number.bytes().rev().filter(u8::is_ascii_digit);
    let (last, before) = (digits.next(), digits.next());
    match (last, before) {
        (_, Some(b'1')) => ("TH", "th"),
        (Some(b'1'), _) => ("ST", "st"),
        (Some(b'2'), _) => ("ND", "nd"),
        (Some(b'3'), _) => ("RD", "rd"),
        _ => ("TH", "th"),
    }
}

fn in_case(word: &str, case: Case) -> String {
    match case {
        Case::Upper => word.to_uppercase(),
        Case::Title => word.to_string(),
        Case::Lower => word.to_lowercase(),
    }
}

fn write_field(
    field: Field,
    is_short: bool,
    case: Case,
    parts: &Parts<'_>,
    out: &mut String,
) -> Result<(), SqlError> {
    let number = |out: &mut String, value: i64, width: usize| {
        let width = if is_short { 0 } else { width };
        if value < 0 {
            out.push('-');
        }
        out.push_str(&format!("{:0width$}", value.unsigned_abs()));
    };
    let word = |out: &mut String, word: &str, width: usize| {
        let word = in_case(word, case);
        let width = if is_short { 0 } else { width };
        out.push_str(&format!("{word:width$}"));
    };
    let date = || {
        parts.date.ok_or_else(|| {
            SqlError::new(
                SqlState::INVALID_DATETIME_FORMAT,
                "invalid format specification for an interval value",
            )
            .with_hint("Intervals are not tied to specific calendar dates.")
        })
    };
    let years = |year: i64| if year <= 0 && parts.date.is_some() { 1 - year } else { year };
    match field {
        Field::Hour12 => number(out, if parts.hour % 12 == 0 { 12 } else { parts.hour % 12 }, 2),
        Field::Hour24 => number(out, parts.hour, 2),
        Field::Minute => number(out, parts.minute, 2),
        Field::Second => number(out, parts.second, 2),
        Field::Millisecond | Field::Fraction(3) => out.push_str(&format!("{:03}", parts.us / 1_000)),
        Field::Microsecond | Field::Fraction(6) => out.push_str(&format!("{:06}", parts.us)),
        Field::Fraction(digits) => {
            let text = format!("{:06}", parts.us);
            out.push_str(&text[..usize::from(digits).min(6)]);
        }
        Field::SecondOfDay => {
            out.push_str(&(parts.hour * 3_600 + parts.minute * 60 + parts.second).to_string());
        }
        Field::Half(has_points) => {
            let is_afternoon = parts.hour.rem_euclid(24) >= 12;
            let text = match (is_afternoon, has_points) {
                (false, false) => "AM",
                (false, true) => "A.M.",
                (true, false) => "PM",
                (true, true) => "P.M.",
            };
            out.push_str(&if case == Case::Lower { text.to_lowercase() } else { text.to_string() });
        }
        Field::YearComma => {
            let year = years(parts.year);
            match is_short {
                true => out.push_str(&format!("{},{:03}", year / 1_000, year % 1_000)),
                false => out.push_str(&format!("{},{:03}", year / 1_000, year % 1_000)),
            }
        }
        Field::Year(4) => number(out, years(parts.year), 4),
        Field::Year(digits) => {
            number(out, years(parts.year) % 10_i64.pow(digits.into()), digits.into());
        }
        Field::IsoYear(digits) => {
            let year = i64::from(date()?.iso_week().year());
            match digits {
                4 => number(out, years(year), 4),
                digits => number(out, years(year) % 10_i64.pow(digits.into()), digits.into()),
            }
        }
        Field::Era(has_points) => {
            let text = match (date()?.year() <= 0, has_points) {
                (false, false) => "AD",
                (false, true) => "A.D.",
                (true, false) => "BC",
                (true, true) => "B.C.",
            };
            out.push_str(&if case == Case::Lower { text.to_lowercase() } else { text.to_string() });
        }
        Field::MonthName | Field::MonthShort | Field::MonthRoman => {
            let Some(at) = usize::try_from(parts.month).ok().and_then(|month| month.checked_sub(1)) else {
                return Ok(());
            };
            match field {
                Field::MonthName => word(out, MONTHS[at % 12], 9),
                Field::MonthShort => word(out, &MONTHS[at % 12][..3], 3),
                _ => word(out, ROMAN[at % 12], 4),
            }
        }
        Field::Month => number(out, parts.month, 2),
        Field::DayName => word(out, DAYS[date()?.weekday().num_days_from_sunday() as usize], 9),
        Field::DayShort => word(out, &DAYS[date()?.weekday().num_days_from_sunday() as usize][..3], 3),
        Field::DayOfYear => match parts.date {
            Some(date) => number(out, date.ordinal().into(), 3),
            None => number(out, parts.year * 360 + parts.month * 30 + parts.day, 3),
        },
        Field::IsoDayOfYear => {
            let date = date()?;
            let day =
                i64::from(date.iso_week().week() - 1) * 7 + i64::from(date.weekday().number_from_monday());
            number(out, day, 3);
        }
        Field::Day => number(out, parts.day, 2),
        Field::DayOfWeek => number(out, date()?.weekday().number_from_sunday().into(), 0),
        Field::IsoDayOfWeek => number(out, date()?.weekday().number_from_monday().into(), 0),
        Field::WeekOfMonth => number(out, (parts.day - 1) / 7 + 1, 0),
        Field::WeekOfYear => number(out, i64::from(date()?.ordinal() - 1) / 7 + 1, 2),
        Field::IsoWeek => number(out, date()?.iso_week().week().into(), 2),
        Field::Century => {
            let century = match (parts.date, parts.year) {
                (None, year) => year / 100,
                (Some(_), year) if year > 0 => (year - 1) / 100 + 1,
                (Some(_), year) => year / 100 - 1,
            };
            number(out, century, 2);
        }
        Field::Julian => out.push_str(&(date()?.num_days_from_ce() + JULIAN_DAYS).to_string()),
        Field::Quarter if parts.month > 0 => number(out, (parts.month - 1) / 3 + 1, 0),
        Field::Quarter => {}
        Field::Zone => {
            date()?;
            if let Some((_, name)) = parts.zone {
                out.push_str(&if case == Case::Lower { name.to_lowercase() } else { name.to_string() });
            }
        }
        Field::ZoneHours | Field::ZoneOffset | Field::ZoneMinutes => {
            date()?;
            let offset = parts.zone.map_or(0, |(offset, _)| offset);
            let (hours, minutes) = (offset.abs() / 3_600, offset.abs() / 60 % 60);
            let sign = if offset < 0 { '-' } else { '+' };
            match field {
                Field::ZoneMinutes => out.push_str(&format!("{minutes:02}")),
                Field::ZoneOffset if minutes > 0 => out.push_str(&format!("{sign}{hours:02}:{minutes:02}")),
                _ => out.push_str(&format!("{sign}{hours:02}")),
            }
        }
    }
    Ok(())
}

/// Fields parsed from a text.
#[derive(Debug, Default)]
struct ParsedFields {
    /// Years as written, with the number of their digits.
    year: Option<i64>,
    iso_year: Option<i64>,
    is_before: bool,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    iso_week: Option<i64>,
    iso_day: Option<i64>,
    week: Option<i64>,
    week_of_month: Option<i64>,
    century: Option<i64>,
    julian: Option<i64>,
    hour: Option<i64>,
    is_of_half: bool,
    is_afternoon: Option<bool>,
    minute: i64,
    second: i64,
    us: i64,
    second_of_day: Option<i64>,
    /// Seconds east of Greenwich.
    zone: Option<i64>,
}

/// Parses a text by a pattern: local time, and seconds east of Greenwich if given.
///
/// Errors: it does not match the pattern (22007), or there is no such time (22008).
pub(super) fn parse(pieces: &[Piece], text: &str) -> Result<(NaiveDateTime, Option<i64>), SqlError> {
    let mut read = ParsedFields::default();
    let mut input = Input { text, rest: text };
    for (at, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Sign(sign) => input.sign(*sign),
            Piece::Text(text) => input.pass(text.chars().count()),
            Piece::Field { field, is_short, .. } => {
                // Digits end where the next field begins, if that has digits too.
                let is_followed = matches!(pieces.get(at + 1), Some(Piece::Field { field, .. }) if field.digits().is_some());
                input.field(*field, is_followed && !is_short, &mut read)?;
            }
        }
    }
    moment(&read, text)
}

fn out_of_range(text: &str) -> SqlError {
    let message = format!("date/time field value out of range: \"{text}\"");
    SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, message)
}

fn moment(read: &ParsedFields, text: &str) -> Result<(NaiveDateTime, Option<i64>), SqlError> {
    let wrong = || out_of_range(text);
    let date = date(read).ok_or_else(wrong)?;
    let mut hour = read.hour.unwrap_or(0);
    if read.is_of_half {
        if !(1..=12).contains(&hour) {
            let message = format!("hour \"{hour}\" is invalid for the 12-hour clock");
            return Err(SqlError::new(SqlState::INVALID_DATETIME_FORMAT, message)
                .with_hint("Use the 24-hour clock, or give an hour between 1 and 12."));
        }
        hour = match read.is_afternoon {
            Some(true) if hour < 12 => hour + 12,
            Some(false) if hour == 12 => 0,
            _ => hour,
        };
    }
    let (mut hour, mut minute, mut second) = (hour, read.minute, read.second);
    if let Some(of_day) = read.second_of_day {
        (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    }
    if !(0..=24).contains(&hour) || !(0..60).contains(&minute) || !(0..=60).contains(&second) {
        return Err(wrong());
    }
    let seconds = hour * 3_600 + minute * 60 + second;
    if seconds > 86_400 {
        return Err(wrong());
    }
    let span = chrono::Duration::seconds(seconds) + chrono::Duration::microseconds(read.us);
    let moment = date.and_time(NaiveTime::MIN).checked_add_signed(span).ok_or_else(wrong)?;
    Ok((moment, read.zone))
}

fn date(read: &ParsedFields) -> Option<NaiveDate> {
    if let Some(julian) = read.julian {
        return NaiveDate::from_num_days_from_ce_opt(i32::try_from(julian).ok()? - JULIAN_DAYS);
    }
    let mut year = read.year;
    if let Some(century) = read.century {
        year = Some(match year {
            Some(year) => (century - 1) * 100 + if year % 100 == 0 { 100 } else { year % 100 },
            None => (century - 1) * 100 + 1,
        });
    }
    let year = match year {
        Some(year) if read.is_before => 1 - year.abs(),
        Some(0) => 1,
        Some(year) => year,
        None => 0,
    };
    let as_year = |year: i64| i32::try_from(year).ok();
    if let Some(iso_year) = read.iso_year.or(read.iso_week.and(Some(year))) {
        let week = u32::try_from(read.iso_week.unwrap_or(1)).ok()?;
        let weekdays = [
            chrono::Weekday::Mon,
            chrono::Weekday::Tue,
            chrono::Weekday::Wed,
            chrono::Weekday::Thu,
            chrono::Weekday::Fri,
            chrono::Weekday::Sat,
            chrono::Weekday::Sun,
        ];
        let day = usize::try_from(read.iso_day.unwrap_or(1)).ok()?.checked_sub(1)?;
        return NaiveDate::from_isoywd_opt(as_year(iso_year)?, week, *weekdays.get(day)?);
    }
    // Without a year, it is 1 BC, as in PostgreSQL.
    let year = as_year(year)?;
    if let Some(day) = read.day_of_year {
        return NaiveDate::from_yo_opt(year, u32::try_from(day).ok()?);
    }
    if let Some(week) = read.week {
        return NaiveDate::from_yo_opt(year, u32::try_from((week - 1) * 7 + 1).ok()?);
    }
    let month = u32::try_from(read.month.unwrap_or(1)).ok()?;
    let day = match (read.day, read.week_of_month) {
        (Some(day), _) => day,
        (None, Some(week)) => (week - 1) * 7 + 1,
        (None, None) => 1,
    };
    NaiveDate::from_ymd_opt(year, month, u32::try_from(day).ok()?)
}

struct Input<'t> {
    text: &'t str,
    rest: &'t str,
}

impl Input<'_> {
    /// Skips a literal of the pattern if the text has one; blanks before it are skipped in any case.
    fn sign(&mut self, sign: char) {
        let before = self.rest.len();
        self.rest = self.rest.trim_start();
        if sign.is_whitespace() && self.rest.len() < before {
            return;
        }
        if let Some(next) = self.rest.chars().next()
            && !next.is_alphanumeric()
            // A blank in the pattern does not consume the sign of a number.
            && !(sign.is_whitespace() && matches!(next, '-' | '+'))
        {
            self.rest = &self.rest[next.len_utf8()..];
        }
    }

    fn pass(&mut self, letters: usize) {
        let end = self.rest.char_indices().nth(letters).map_or(self.rest.len(), |(at, _)| at);
        self.rest = &self.rest[end..];
    }

    fn invalid(&self, found: &str) -> SqlError {
        let message = format!("invalid value \"{found}\" in \"{}\"", self.text);
        SqlError::new(SqlState::INVALID_DATETIME_FORMAT, message)
    }

    /// Parses a number, of at most `most` digits if a numeric field follows; also returns its number of
    /// digits.
    fn number(&mut self, most: Option<usize>) -> Result<(i64, usize), SqlError> {
        self.rest = self.rest.trim_start();
        let signed = usize::from(self.rest.starts_with(['-', '+']));
        let digits = self.rest[signed..].bytes().take_while(u8::is_ascii_digit).count();
        let digits = most.map_or(digits, |most| digits.min(most));
        let (number, rest) = self.rest.split_at(signed + digits);
        match number.parse() {
            Ok(value) if digits > 0 => {
                self.rest = rest;
                Ok((value, digits))
            }
            _ => Err(self.invalid(self.rest.split_whitespace().next().unwrap_or(self.rest))),
        }
    }

    /// Parses one of these words, ignoring case; returns its position.
    fn word<'w>(&mut self, words: impl IntoIterator<Item = &'w str>) -> Result<usize, SqlError> {
        self.rest = self.rest.trim_start();
        let begins =
            |word: &str| self.rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
        let found = words.into_iter().enumerate().filter(|(_, word)| begins(word));
        match found.max_by_key(|(_, word)| word.len()) {
            Some((at, word)) => {
                self.rest = &self.rest[word.len()..];
                Ok(at)
            }
            None => Err(self.invalid(self.rest.split_whitespace().next().unwrap_or(self.rest))),
        }
    }

    fn field(&mut self, field: Field, is_followed: bool, read: &mut ParsedFields) -> Result<(), SqlError> {
        if self.rest.trim().is_empty() {
            // A text that ends early ends the pattern.
            return Ok(());
        }
        let most = field.digits().filter(|_| is_followed);
        match field {
            Field::Hour12 => {
                read.hour = Some(self.number(most)?.0);
                read.is_of_half = true;
            }
            Field::Hour24 => read.hour = Some(self.number(most)?.0),
            Field::Minute => read.minute = self.number(most)?.0,
            Field::Second => read.second = self.number(most)?.0,
            Field::Millisecond => read.us += self.fraction(3)?,
            Field::Microsecond => read.us += self.fraction(6)?,
            Field::Fraction(digits) => read.us += self.fraction(digits.into())?,
            Field::SecondOfDay => read.second_of_day = Some(self.number(most)?.0),
            Field::Half(_) => {
                read.is_afternoon = Some(self.word(["AM", "A.M.", "PM", "P.M."])? >= 2);
                read.is_of_half |= read.hour.is_some_and(|hour| hour <= 12);
            }
            Field::YearComma => {
                let thousands = self.number(None)?.0;
                self.rest = self.rest.strip_prefix(',').unwrap_or(self.rest);
                read.year = Some(thousands * 1_000 + self.number(Some(3))?.0);
            }
            Field::Year(_) => {
                let (year, digits) = self.number(most)?;
                read.year = Some(complete_year(year, digits));
            }
            Field::IsoYear(_) => {
                let (year, digits) = self.number(most)?;
                read.iso_year = Some(complete_year(year, digits));
            }
            Field::Era(_) => read.is_before = self.word(["AD", "A.D.", "BC", "B.C."])? >= 2,
            Field::MonthName => {
                read.month = Some(self.word(MONTHS)? as i64 + 1);
            }
            Field::MonthShort => {
                read.month = Some(self.word(MONTHS.map(|month| &month[..3]))? as i64 + 1);
            }
            Field::MonthRoman => read.month = Some(self.word(ROMAN)? as i64 + 1),
            Field::Month => read.month = Some(self.number(most)?.0),
            Field::DayName => drop(self.word(DAYS)?),
            Field::DayShort => drop(self.word(DAYS.map(|day| &day[..3]))?),
            Field::DayOfYear | Field::IsoDayOfYear => read.day_of_year = Some(self.number(most)?.0),
            Field::Day => read.day = Some(self.number(most)?.0),
            Field::DayOfWeek => drop(self.number(Some(1))?),
            Field::IsoDayOfWeek => read.iso_day = Some(self.number(Some(1))?.0),
            Field::WeekOfMonth => read.week_of_month = Some(self.number(Some(1))?.0),
            Field::WeekOfYear => read.week = Some(self.number(most)?.0),
            Field::IsoWeek => read.iso_week = Some(self.number(most)?.0),
            Field::Century => read.century = Some(self.number(most)?.0),
            Field::Julian => read.julian = Some(self.number(most)?.0),
            Field::Quarter => drop(self.number(Some(1))?),
            Field::Zone | Field::ZoneOffset => {
                let message = "formatting field \"TZ\" is only supported in to_char";
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
            Field::ZoneHours => {
                let is_west = self.rest.trim_start().starts_with('-');
                let hours = self.number(most)?.0;
                read.zone = Some(hours * 3_600);
                // -00, followed by minutes.
                if is_west && hours == 0 {
                    read.zone = Some(-1);
                }
            }
            Field::ZoneMinutes => {
                let minutes = self.number(most)?.0 * 60;
                read.zone = Some(match read.zone {
                    Some(-1) => -minutes,
                    Some(zone) if zone < 0 => zone - minutes,
                    zone => zone.unwrap_or(0) + minutes,
                });
            }
        }
        Ok(())
    }

    /// Parses fraction digits to microseconds.
    fn fraction(&mut self, digits: usize) -> Result<i64, SqlError> {
        let (value, count) = self.number(Some(digits))?;
        // Digits beyond microseconds are skipped.
        let surplus = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        self.rest = &self.rest[surplus..];
        let scale = 6_usize.saturating_sub(count);
        Ok(value * 10_i64.pow(scale as u32))
    }
}

/// A year of two digits is the one nearest to 2020, as in PostgreSQL.
fn complete_year(year: i64, digits: usize) -> i64 {
    match year {
        year if digits > 3 || year < 0 => year,
        0..=69 if digits <= 2 => year + 2000,
        70..=99 if digits <= 2 => year + 1900,
        100..=519 => year + 2000,
        520..=999 => year + 1000,
        year => year,
    }
}
