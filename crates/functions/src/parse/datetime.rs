//! Input of dates and times in PostgreSQL's formats, where the planner reads only ISO 8601: month names,
//! slashes, two-digit years, times without seconds, `am` and `pm`. Functions convert columns of texts before
//! they are cast; ranks know them by their names, with the session's date order as an argument.
//!
//! Source: PostgreSQL's `ParseDateTime`, `DecodeDateTime`, `DecodeDate`, `DecodeNumber` and `ValidateDate`.

use std::borrow::Cow;
use std::sync::Arc;

use chrono::{Datelike, NaiveDateTime, TimeDelta};
use datafusion::arrow::array::{
    Array, ArrayAccessor, ArrayIter, ArrayRef, AsArray, LargeStringArray, StringArray, StringViewArray,
};
use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::datetime::zone_offset;
use crate::delegation::show_as_argument;
use crate::parse;

/// Order of the numbers of an ambiguous date: the part of the parameter `DateStyle` besides ISO.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum DateOrder {
    /// `MDY`: 02/01/2025 is in February.
    #[default]
    MonthFirst,
    /// `DMY`: 02/01/2025 is in January.
    DayFirst,
    /// `YMD`: 02/01/25 is in 2002.
    YearFirst,
}

impl DateOrder {
    pub const ALL: [Self; 3] = [Self::MonthFirst, Self::DayFirst, Self::YearFirst];

    pub fn name(self) -> &'static str {
        match self {
            Self::MonthFirst => "MDY",
            Self::DayFirst => "DMY",
            Self::YearFirst => "YMD",
        }
    }

    /// Parses the stored form of `DateStyle`, or a name, by its ending.
    pub fn of_style(style: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|order| style.ends_with(order.name()))
    }
}

/// Target type of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Date,
    Timestamp,
    TimestampWithZone,
    Time,
    Interval,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Date, Self::Timestamp, Self::TimestampWithZone, Self::Time, Self::Interval];

    /// The kind for values of a type.
    pub fn of(kind: &DataType) -> Option<Self> {
        match kind {
            DataType::Date32 | DataType::Date64 => Some(Self::Date),
            DataType::Timestamp(_, None) => Some(Self::Timestamp),
            DataType::Timestamp(_, Some(_)) => Some(Self::TimestampWithZone),
            DataType::Time32(_) | DataType::Time64(_) => Some(Self::Time),
            DataType::Interval(IntervalUnit::MonthDayNano) => Some(Self::Interval),
            _ => None,
        }
    }

    /// (text, date order by name) → the same date or time in ISO 8601; the unchanged text if it cannot be
    /// parsed.
    pub fn function(self) -> Arc<ScalarUDF> {
        let signature = Signature::any(2, Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(Reading { kind: self, signature }))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Date => "harrier_date_text",
            Self::Timestamp => "harrier_timestamp_text",
            Self::TimestampWithZone => "harrier_timestamptz_text",
            Self::Time => "harrier_time_text",
            Self::Interval => "harrier_interval_text",
        }
    }

    /// Whether a text looks like ISO 8601, by a quick check; then a cast parses it.
    fn is_plain(self, text: &str) -> bool {
        let text = text.as_bytes();
        let is = |at: usize, byte: u8| text.get(at) == Some(&byte);
        match self {
            // There is no quick check for intervals.
            Self::Interval => false,
            Self::Time => is(2, b':') && text.iter().all(|byte| matches!(byte, b':' | b'.' | b'0'..=b'9')),
            _ if text.len() == 10 => is(4, b'-') && is(7, b'-'),
            Self::Date => false,
            // A cast would apply a zone to a timestamp without time zone.
            // A cast fails where the clocks of a named zone are changed.
            Self::TimestampWithZone if text.iter().skip(19).any(|byte| *byte == b'/') => false,
            Self::Timestamp if text.iter().skip(19).any(|byte| !matches!(byte, b'.' | b'0'..=b'9')) => false,
            _ => is(4, b'-') && is(7, b'-') && is(13, b':') && is(16, b':'),
        }
    }

    /// [`normal`], skipped for texts that a cast parses.
    pub fn normal(self, text: &str, order: DateOrder) -> Option<String> {
        if self.is_plain(text) { None } else { normal(text, self, order) }
    }
}

/// The functions of all kinds, for sessions that decode plans.
pub fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    Kind::ALL.into_iter().map(Kind::function)
}

/// Texts as [`Kind::function`] converts them; `None` if nothing changes.
pub fn normal_texts<'a, T>(
    texts: impl ArrayAccessor<Item = &'a str> + Copy,
    kind: Kind,
    order: DateOrder,
) -> Option<T>
where
    T: FromIterator<Option<Cow<'a, str>>>,
{
    if ArrayIter::new(texts).flatten().all(|text| kind.is_plain(text)) {
        return None;
    }
    let normal = |text: &'a str| kind.normal(text, order).map_or(Cow::Borrowed(text), Cow::Owned);
    Some(ArrayIter::new(texts).map(|text| text.map(normal)).collect())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Reading {
    kind: Kind,
    signature: Signature,
}

impl ScalarUDFImpl for Reading {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [text, DataType::Utf8] if text.is_string() => Ok(text.clone()),
            _ => plan_err!("{} does not take {arguments:?}", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [texts, ColumnarValue::Scalar(ScalarValue::Utf8(Some(order)))] = arguments.args.as_slice() else {
            return internal_err!("{} takes a text and an order", self.name());
        };
        let order = DateOrder::of_style(order).unwrap_or_default();
        match texts {
            ColumnarValue::Scalar(text) => {
                let texts = self.read(&text.to_array()?, order)?;
                ScalarValue::try_from_array(&texts, 0).map(ColumnarValue::Scalar)
            }
            ColumnarValue::Array(texts) => self.read(texts, order).map(ColumnarValue::Array),
        }
    }

    #[allow(deprecated, reason = "plans are shown by it")]
    fn display_name(&self, arguments: &[Expr]) -> Result<String> {
        Ok(arguments.first().map(ToString::to_string).unwrap_or_default())
    }

    show_as_argument!();
}

impl Reading {
    fn read(&self, texts: &ArrayRef, order: DateOrder) -> Result<ArrayRef> {
        let kind = self.kind;
        let read = match texts.data_type() {
            DataType::Utf8 => normal_texts::<StringArray>(texts.as_string::<i32>(), kind, order)
                .map(|read| Arc::new(read) as ArrayRef),
            DataType::LargeUtf8 => normal_texts::<LargeStringArray>(texts.as_string::<i64>(), kind, order)
                .map(|read| Arc::new(read) as ArrayRef),
            DataType::Utf8View => normal_texts::<StringViewArray>(texts.as_string_view(), kind, order)
                .map(|read| Arc::new(read) as ArrayRef),
            other => return internal_err!("{} does not take {other}", self.name()),
        };
        Ok(read.unwrap_or_else(|| Arc::clone(texts)))
    }
}

/// The same date or time in ISO 8601, or an interval in units; `None` if it is that already, or cannot be
/// parsed.
pub fn normal(text: &str, kind: Kind, order: DateOrder) -> Option<String> {
    if kind == Kind::Interval {
        return parse::interval::normal(text);
    }
    let mut fields = Fields { order, ..Fields::default() };
    let spaced = separate_time(text.trim());
    for word in spaced.split([' ', ',']).filter(|word| !word.is_empty()) {
        fields.read(word)?;
    }
    let day = fields.day();
    let time = fields.time();
    if fields.clock.is_some() != time.is_some() || (fields.is_afternoon.is_some() && time.is_none()) {
        return None;
    }
    let normal = match kind {
        Kind::Date => day?,
        // A date and a zone are ignored.
        Kind::Time => time?,
        Kind::Interval => return None,
        Kind::Timestamp => format!("{} {}", day?, time.unwrap_or_else(|| "00:00:00".to_string())),
        Kind::TimestampWithZone => {
            let local = format!("{} {}", day?, time.unwrap_or_else(|| "00:00:00".to_string()));
            let zone = fields.zone.unwrap_or_default();
            match zone.strip_prefix(' ').and_then(|name| in_utc(&local, name)) {
                Some(moment) => moment,
                None => local + &zone,
            }
        }
    };
    (normal != text).then_some(normal)
}

/// A local time of a named zone, in UTC. A cast, which knows names of zones too, fails for a time that clocks
/// show twice or never.
fn in_utc(local: &str, zone: &str) -> Option<String> {
    let local = NaiveDateTime::parse_from_str(local, "%Y-%m-%d %H:%M:%S%.f").ok()?;
    let ahead = zone_offset::offset_there(&zone_offset::zone_of(zone).ok()?, local.and_utc().timestamp())?;
    let moment = local.checked_sub_signed(TimeDelta::seconds(ahead))?;
    (1..=9999).contains(&moment.year()).then(|| moment.format("%Y-%m-%d %H:%M:%S%.fZ").to_string())
}

/// Replaces the T of `2024-01-05T10:00` by a blank.
fn separate_time(text: &str) -> String {
    let bytes = text.as_bytes();
    let is_digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let is_between = |at: usize| {
        matches!(bytes[at], b'T' | b't') && is_digit(at.checked_sub(1)) && is_digit(at.checked_add(1))
    };
    text.char_indices().map(|(at, c)| if c.is_ascii() && is_between(at) { ' ' } else { c }).collect()
}

#[derive(Debug, Default)]
struct Fields {
    order: DateOrder,
    year: Option<i32>,
    /// The year has one or two digits, and means 1970 to 2069.
    is_short_year: bool,
    month: Option<u32>,
    /// The month was given by name, which leaves two numbers.
    is_month_named: bool,
    day_of_month: Option<u32>,
    /// Hours, minutes, seconds, and fraction digits.
    clock: Option<(u32, u32, u32, String)>,
    is_afternoon: Option<bool>,
    zone: Option<String>,
}

impl Fields {
    fn read(&mut self, word: &str) -> Option<()> {
        let lower = word.to_lowercase();
        if lower.contains(':') {
            return self.read_clock(&lower);
        }
        if matches!(lower.as_str(), "am" | "pm") {
            return put(&mut self.is_afternoon, lower == "pm");
        }
        if matches!(lower.as_str(), "z" | "utc" | "gmt") {
            return put(&mut self.zone, "Z".to_string());
        }
        if DAYS.iter().any(|day| is_name(&lower, day)) {
            return Some(());
        }
        if let Some(zone) = named_zone(word) {
            return put(&mut self.zone, zone);
        }
        if let Some(month) = month_of(&lower) {
            // A number before it was taken for the month, and is the day: `8 Jan 1999`.
            if !self.is_month_named && self.day_of_month.is_none() {
                self.day_of_month = self.month.take();
            }
            return self.name_month(month);
        }
        match lower.find(['-', '/', '.']) {
            None => self.read_number(&lower),
            Some(at) => self.read_parts(&lower.split(&lower[at..=at]).collect::<Vec<_>>()),
        }
    }

    fn name_month(&mut self, month: u32) -> Option<()> {
        self.is_month_named = true;
        put(&mut self.month, month)
    }

    /// Parses a date whose parts are separated by one sign. Numbers are read after the name of a month.
    fn read_parts(&mut self, parts: &[&str]) -> Option<()> {
        // PostgreSQL does not look for a month name after two numbers.
        let is_cut = matches!(parts, [first, second, third]
            if is_number(first) && is_number(second) && !is_number(third));
        if self.has_day() || is_cut {
            return None;
        }
        for month in parts.iter().filter_map(|part| month_of(part)) {
            self.name_month(month)?;
        }
        for part in parts.iter().filter(|part| month_of(part).is_none()) {
            self.read_part(part)?;
        }
        self.has_day().then_some(())
    }

    /// Parses a plain number: 19990108 and 990108 have the year first in every order; 040506 is a time after
    /// a date.
    fn read_number(&mut self, digits: &str) -> Option<()> {
        if is_number(digits) && digits.len() == 6 && self.has_day() {
            return self.read_clock(&format!("{}:{}:{}", &digits[..2], &digits[2..4], &digits[4..]));
        }
        if !is_number(digits) || digits.len() < 6 || self.has_day() {
            return self.read_part(digits);
        }
        let (rest, day) = digits.split_at(digits.len() - 2);
        let (year, month) = rest.split_at(rest.len() - 2);
        self.set_year(year)?;
        put(&mut self.month, month.parse().ok()?)?;
        put(&mut self.day_of_month, day.parse().ok()?)
    }

    /// Parses one of the numbers of a date: its meaning depends on the fields already set.
    fn read_part(&mut self, digits: &str) -> Option<()> {
        let number: u32 = is_number(digits).then(|| digits.parse().ok())??;
        let is_long = digits.len() >= 3;
        match (self.year, self.month, self.day_of_month) {
            // A day of the year.
            (Some(year), None, None) if digits.len() == 3 && (1..=366).contains(&number) => {
                let (month, day) = in_year(year, number)?;
                put(&mut self.month, month)?;
                put(&mut self.day_of_month, day)
            }
            (None, None, None) if is_long || self.order == DateOrder::YearFirst => self.set_year(digits),
            (None, None, None) if self.order == DateOrder::DayFirst => put(&mut self.day_of_month, number),
            (None, None, None) | (Some(_), None, None) | (None, None, Some(_)) => {
                put(&mut self.month, number)
            }
            (None, Some(_), None)
                if self.is_month_named && (is_long || self.order == DateOrder::YearFirst) =>
            {
                self.set_year(digits)
            }
            (None, Some(_), None) => put(&mut self.day_of_month, number),
            // The supposed short year is the day: `08-Jan-1999` where years come first.
            (Some(day), Some(_), None) if self.is_month_named && is_long && self.is_short_year => {
                self.year = None;
                put(&mut self.day_of_month, day.try_into().ok()?)?;
                self.set_year(digits)
            }
            (Some(_), Some(_), None) => put(&mut self.day_of_month, number),
            (None, Some(_), Some(_)) => self.set_year(digits),
            (Some(_), Some(_), Some(_)) | (Some(_), None, Some(_)) => None,
        }
    }

    fn set_year(&mut self, digits: &str) -> Option<()> {
        self.is_short_year = digits.len() <= 2;
        put(&mut self.year, digits.parse().ok()?)
    }

    fn has_day(&self) -> bool {
        self.year.is_some() && self.month.is_some() && self.day_of_month.is_some()
    }

    /// Parses `10:00`, `10:00:01.5`, followed by a numeric zone or Z, or by `am` or `pm`.
    fn read_clock(&mut self, word: &str) -> Option<()> {
        let (word, zone) = match word.find(['+', '-', 'z']) {
            Some(at) => (&word[..at], Some(&word[at..])),
            None => (word, None),
        };
        if let Some(zone) = zone {
            put(&mut self.zone, zone_of(zone)?)?;
        }
        let (word, half) = match (word.strip_suffix("am"), word.strip_suffix("pm")) {
            (Some(rest), _) => (rest, Some(false)),
            (_, Some(rest)) => (rest, Some(true)),
            _ => (word, None),
        };
        if let Some(is_afternoon) = half {
            put(&mut self.is_afternoon, is_afternoon)?;
        }
        let parts: Vec<&str> = word.split(':').collect();
        let (hours, minutes, seconds) = match parts.as_slice() {
            [hours, minutes] => (*hours, *minutes, "0"),
            [hours, minutes, seconds] => (*hours, *minutes, *seconds),
            _ => return None,
        };
        let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
        if ![hours, minutes, seconds].into_iter().all(|part| part.len() <= 2 && is_number(part))
            || !(fraction.is_empty() || is_number(fraction))
        {
            return None;
        }
        let clock = (hours.parse().ok()?, minutes.parse().ok()?, seconds.parse().ok()?, fraction.to_string());
        (clock.1 < 60 && clock.2 < 60).then_some(())?;
        put(&mut self.clock, clock)
    }

    fn day(&self) -> Option<String> {
        let (year, month, day) = (self.year?, self.month?, self.day_of_month?);
        let year = match self.is_short_year {
            true if year < 70 => year + 2000,
            true => year + 1900,
            false => year,
        };
        let days = (1..=12).contains(&month).then(|| days_of(year, month))?;
        ((1..=9999).contains(&year) && (1..=days).contains(&day))
            .then(|| format!("{year:04}-{month:02}-{day:02}"))
    }

    fn time(&self) -> Option<String> {
        let (hours, minutes, seconds, fraction) = self.clock.as_ref()?;
        let hours = match self.is_afternoon {
            Some(_) if !(1..=12).contains(hours) => return None,
            Some(is_afternoon) => hours % 12 + if is_afternoon { 12 } else { 0 },
            None => *hours,
        };
        if hours > 23 {
            return None;
        }
        let point = if fraction.is_empty() { "" } else { "." };
        Some(format!("{hours:02}:{minutes:02}:{seconds:02}{point}{fraction}"))
    }
}

/// Number of days of a month, from 1 to 12.
fn days_of(year: i32, month: u32) -> u32 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The month and the day of month of a day of year, from 1.
fn in_year(year: i32, mut day: u32) -> Option<(u32, u32)> {
    for month in 1..=12 {
        let days = days_of(year, month);
        if day <= days {
            return Some((month, day));
        }
        day -= days;
    }
    None
}

/// Sets a field; `None` if it was set before.
fn put<T>(field: &mut Option<T>, value: T) -> Option<()> {
    field.is_none().then(|| *field = Some(value))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses `+01`, `-0130`, `+01:30` and `z`.
fn zone_of(zone: &str) -> Option<String> {
    if zone == "z" {
        return Some("Z".to_string());
    }
    let (sign, rest) = zone.split_at(1);
    let digits: String = rest.chars().filter(|c| *c != ':').collect();
    if !is_number(&digits) {
        return None;
    }
    match digits.len() {
        1 | 2 => Some(format!("{sign}{digits:0>2}:00")),
        4 => Some(format!("{sign}{}:{}", &digits[..2], &digits[2..])),
        _ => None,
    }
}

/// Zone abbreviations, with fixed hours ahead of UTC.
///
/// Source: PostgreSQL's default set, those of North America, Europe and the Pacific.
const ABBREVIATIONS: [(&str, i32); 25] = [
    ("akdt", -8),
    ("akst", -9),
    ("aedt", 11),
    ("aest", 10),
    ("awst", 8),
    ("bst", 1),
    ("cdt", -5),
    ("cest", 2),
    ("cet", 1),
    ("cst", -6),
    ("edt", -4),
    ("eest", 3),
    ("eet", 2),
    ("est", -5),
    ("hst", -10),
    ("jst", 9),
    ("kst", 9),
    ("mdt", -6),
    ("msk", 3),
    ("mst", -7),
    ("nzdt", 13),
    ("nzst", 12),
    ("pdt", -7),
    ("pst", -8),
    ("wet", 0),
];

/// `EST` as an offset, `Europe/Berlin` unchanged after a blank.
fn named_zone(word: &str) -> Option<String> {
    if let Some((_, hours)) = ABBREVIATIONS.iter().find(|(name, _)| word.eq_ignore_ascii_case(name)) {
        return Some(format!("{hours:+03}:00"));
    }
    let is_region = word.contains('/') && word.starts_with(|sign: char| sign.is_ascii_alphabetic());
    (is_region && zone_offset::zone_of(word).is_ok()).then(|| format!(" {word}"))
}

const DAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

fn month_of(word: &str) -> Option<u32> {
    MONTHS.iter().position(|month| is_name(word, month)).map(|at| at as u32 + 1)
}

/// Whether a word is the name or an abbreviation of at least three letters.
fn is_name(word: &str, name: &str) -> bool {
    word.len() >= 3 && name.starts_with(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_times_are_read() {
        let check = |text: &str, kind: Kind, expected: &str| {
            assert_eq!(normal(text, kind, DateOrder::default()).as_deref(), Some(expected), "{text}");
        };
        for text in [
            "January 8, 1999",
            "Jan-08-1999",
            "08-Jan-1999",
            "1999-Jan-08",
            "8 Jan 1999",
            "1/8/1999",
            "19990108",
            "Fri Jan 8 1999",
            "1999/01/08",
            "1999-1-8",
            "1999-01-08 04:05",
        ] {
            check(text, Kind::Date, "1999-01-08");
        }
        check("2024-01-05 10:00", Kind::Timestamp, "2024-01-05 10:00:00");
        check("2024-01-05T10:00", Kind::Timestamp, "2024-01-05 10:00:00");
        check("2024-01-05", Kind::Timestamp, "2024-01-05 00:00:00");
        check("Jan 5 2024 4:05:06.789 PM", Kind::Timestamp, "2024-01-05 16:05:06.789");
        check("2024-01-05 10:00+1", Kind::TimestampWithZone, "2024-01-05 10:00:00+01:00");
        check("Fri Jan 05 10:00:00 2024 UTC", Kind::TimestampWithZone, "2024-01-05 10:00:00Z");
        check("10:00", Kind::Time, "10:00:00");
        check("12:30 am", Kind::Time, "00:30:00");
        check("12:30pm", Kind::Time, "12:30:00");
        check("12:30:01+02", Kind::Time, "12:30:01");
        check("2024-01-05 12:30:01", Kind::Time, "12:30:01");
    }

    #[test]
    fn numbers_have_the_order_of_the_session() {
        let check = |text: &str, expected: [&str; 3]| {
            for (order, expected) in DateOrder::ALL.into_iter().zip(expected) {
                let read = normal(text, Kind::Date, order);
                assert_eq!(read.as_deref().unwrap_or_default(), expected, "{text} {order:?}");
                assert_eq!(DateOrder::of_style(&format!("ISO, {}", order.name())), Some(order));
            }
        };
        check("1/8/1999", ["1999-01-08", "1999-08-01", ""]);
        check("01/02/03", ["2003-01-02", "2003-02-01", "2001-02-03"]);
        check("99-1-8", ["", "", "1999-01-08"]);
        check("1999.1.8", ["1999-01-08"; 3]);
        check("08-Jan-1999", ["1999-01-08"; 3]);
        check("8 Jan 99", ["1999-01-08", "1999-01-08", ""]);
        check("1-2-69", ["2069-01-02", "2069-02-01", ""]);
        check("990108", ["1999-01-08"; 3]);
        check("1999-008", ["1999-01-08"; 3]);
        check("1999-08-Jan", [""; 3]);
    }

    #[test]
    fn zones_have_names() {
        let check = |text: &str, kind: Kind, expected: &str| {
            assert_eq!(normal(text, kind, DateOrder::default()).as_deref(), Some(expected), "{text}");
        };
        check("2024-01-05 10:00:00 EST", Kind::TimestampWithZone, "2024-01-05 10:00:00-05:00");
        check("2024-07-05 10:00:00 cet", Kind::TimestampWithZone, "2024-07-05 10:00:00+01:00");
        let zoned = |text: &str, expected: &str| check(text, Kind::TimestampWithZone, expected);
        zoned("2024-07-05 10:00 Europe/Berlin", "2024-07-05 08:00:00Z");
        zoned("2024-03-10 02:30:00.5 America/New_York", "2024-03-10 07:30:00.500Z");
        zoned("2024-11-03 01:30:00 America/New_York", "2024-11-03 06:30:00Z");
        zoned("1893-04-01 00:03 Europe/Berlin", "1893-03-31 23:09:32Z");
        // A timestamp without time zone ignores the zone.
        check("2024-01-05 10:00:00 EST", Kind::Timestamp, "2024-01-05 10:00:00");
        check("2024-01-05 10:00:00 Europe/Berlin", Kind::Timestamp, "2024-01-05 10:00:00");
        check("10:00:00 PST", Kind::Time, "10:00:00");
        assert_eq!(normal("2024-01-05 10:00:00 Nowhere/Land", Kind::Timestamp, DateOrder::default()), None);
    }

    #[test]
    fn invalid_dates_are_left_to_the_cast() {
        for text in [
            "soon",
            "2023-02-29",
            "2024-13-01",
            "13/2/99",
            "1/2",
            "1-2/1999",
            "Jan Feb 1999",
            "2024-01-05 BC",
            "1999-01-08 1999-01-08",
            "",
        ] {
            assert_eq!(normal(text, Kind::Date, DateOrder::default()), None, "{text}");
        }
        for text in ["2024-01-05 25:00", "2024-01-05 10:61", "2024-01-05 13:00 pm"] {
            assert_eq!(normal(text, Kind::Timestamp, DateOrder::default()), None, "{text}");
        }
        assert_eq!(normal("2024-01-05", Kind::Date, DateOrder::default()), None, "it is read as it is");
    }
}
