//! Texts of days and times in the forms that PostgreSQL reads, where the planner reads ISO 8601 alone: names
//! of months, slashes, times without seconds, `am` and `pm`. Functions do the same to columns of texts before
//! they are cast; they travel to ranks by their names.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayAccessor, ArrayIter, ArrayRef, AsArray, LargeStringArray, StringArray, StringViewArray,
};
use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::datetime::zone_offset;
use crate::parse;

/// What a text is to be read as.
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

    /// That of values of a type.
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

    /// Of a text, the same day or time in ISO 8601; the text where it cannot be read.
    pub fn function(self) -> Arc<ScalarUDF> {
        let signature = Signature::any(1, Volatility::Immutable);
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

    /// Whether a text is in ISO 8601 as far as can be told by a glance; then a cast reads it.
    fn is_plain(self, text: &str) -> bool {
        let text = text.as_bytes();
        let is = |at: usize, byte: u8| text.get(at) == Some(&byte);
        match self {
            // What a cast reads of them is not told by a glance.
            Self::Interval => false,
            Self::Time => is(2, b':') && text.iter().all(|byte| matches!(byte, b':' | b'.' | b'0'..=b'9')),
            _ if text.len() == 10 => is(4, b'-') && is(7, b'-'),
            Self::Date => false,
            // A cast would take a zone into account for a timestamp that has none.
            Self::Timestamp if text.iter().skip(19).any(|byte| !matches!(byte, b'.' | b'0'..=b'9')) => false,
            _ => is(4, b'-') && is(7, b'-') && is(13, b':') && is(16, b':'),
        }
    }

    /// [`normal`], but nothing is done to what a cast reads.
    pub fn normal(self, text: &str) -> Option<String> {
        if self.is_plain(text) { None } else { normal(text, self) }
    }
}

/// The functions of all kinds, for sessions that decode plans.
pub fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    Kind::ALL.into_iter().map(Kind::function)
}

/// Texts as [`Kind::function`] has them; `None` where they are so.
pub fn normal_texts<'a, T>(texts: impl ArrayAccessor<Item = &'a str> + Copy, kind: Kind) -> Option<T>
where
    T: FromIterator<Option<Cow<'a, str>>>,
{
    if ArrayIter::new(texts).flatten().all(|text| kind.is_plain(text)) {
        return None;
    }
    let normal = |text: &'a str| kind.normal(text).map_or(Cow::Borrowed(text), Cow::Owned);
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
            [text] if text.is_string() => Ok(text.clone()),
            _ => plan_err!("{} does not take {arguments:?}", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.as_slice() {
            [ColumnarValue::Scalar(text)] => {
                let texts = self.read(&text.to_array()?)?;
                ScalarValue::try_from_array(&texts, 0).map(ColumnarValue::Scalar)
            }
            [ColumnarValue::Array(texts)] => self.read(texts).map(ColumnarValue::Array),
            _ => internal_err!("{} has one argument", self.name()),
        }
    }

    #[allow(deprecated, reason = "plans are shown by it")]
    fn display_name(&self, arguments: &[Expr]) -> Result<String> {
        Ok(arguments.iter().map(ToString::to_string).collect())
    }

    /// It is a part of a cast, which has no name.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        Ok(arguments.iter().map(|argument| argument.schema_name().to_string()).collect())
    }
}

impl Reading {
    fn read(&self, texts: &ArrayRef) -> Result<ArrayRef> {
        let kind = self.kind;
        let read = match texts.data_type() {
            DataType::Utf8 => normal_texts::<StringArray>(texts.as_string::<i32>(), kind)
                .map(|read| Arc::new(read) as ArrayRef),
            DataType::LargeUtf8 => normal_texts::<LargeStringArray>(texts.as_string::<i64>(), kind)
                .map(|read| Arc::new(read) as ArrayRef),
            DataType::Utf8View => normal_texts::<StringViewArray>(texts.as_string_view(), kind)
                .map(|read| Arc::new(read) as ArrayRef),
            other => return internal_err!("{} does not take {other}", self.name()),
        };
        Ok(read.unwrap_or_else(|| Arc::clone(texts)))
    }
}

/// The same day or time in ISO 8601, or an interval in units; `None` where it is that already, or cannot be
/// read.
pub fn normal(text: &str, kind: Kind) -> Option<String> {
    if kind == Kind::Interval {
        return parse::interval::normal(text);
    }
    let mut fields = Fields::default();
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
        // Of a day as well, and in a zone: both are passed over.
        Kind::Time => time?,
        Kind::Interval => return None,
        Kind::Timestamp => format!("{} {}", day?, time.unwrap_or_else(|| "00:00:00".to_string())),
        Kind::TimestampWithZone => {
            let zone = fields.zone.clone().unwrap_or_default();
            format!("{} {}{zone}", day?, time.unwrap_or_else(|| "00:00:00".to_string()))
        }
    };
    (normal != text).then_some(normal)
}

/// `2024-01-05T10:00` with a blank in the place of its T.
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
    year: Option<i32>,
    month: Option<u32>,
    day_of_month: Option<u32>,
    /// Hours, minutes, seconds, and what stands behind their point.
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
            return put(&mut self.month, month);
        }
        let parts: Vec<&str> = lower.split(['-', '/', '.']).collect();
        match parts.as_slice() {
            [whole] if whole.len() == 8 && is_number(whole) => {
                put(&mut self.year, whole[..4].parse().ok()?)?;
                put(&mut self.month, whole[4..6].parse().ok()?)?;
                put(&mut self.day_of_month, whole[6..].parse().ok()?)
            }
            [year] if year.len() >= 4 && is_number(year) => put(&mut self.year, year.parse().ok()?),
            [day] if is_number(day) => put(&mut self.day_of_month, day.parse().ok()?),
            [first, second, third] => {
                let is_year = |part: &str| part.len() == 4 && is_number(part);
                let (year, month, day) = match (month_of(first), month_of(second)) {
                    (Some(month), None) => (*third, month, *second),
                    (None, Some(month)) if is_year(first) => (*first, month, *third),
                    (None, Some(month)) => (*third, month, *first),
                    _ if is_year(first) => (*first, second.parse().ok()?, *third),
                    // The month before the day, as PostgreSQL has it unless it is told otherwise.
                    _ => (*third, first.parse().ok()?, *second),
                };
                if !is_year(year) || !is_number(day) {
                    return None;
                }
                put(&mut self.year, year.parse().ok()?)?;
                put(&mut self.month, month)?;
                put(&mut self.day_of_month, day.parse().ok()?)
            }
            _ => None,
        }
    }

    /// `10:00`, `10:00:01.5`, with a zone behind it in numbers or as Z, or with `am` or `pm`.
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
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = match month {
            2 if is_leap => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return None,
        };
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

/// What is there twice contradicts itself.
fn put<T>(field: &mut Option<T>, value: T) -> Option<()> {
    field.is_none().then(|| *field = Some(value))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `+01`, `-0130`, `+01:30` and `z`.
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

/// Abbreviations of zones, which are hours ahead of Greenwich whatever the season.
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

/// `EST` as a difference, `Europe/Berlin` as it is with a blank in front.
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

/// The whole name, or three letters of it and more.
fn is_name(word: &str, name: &str) -> bool {
    word.len() >= 3 && name.starts_with(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_times_are_read() {
        let check = |text: &str, kind: Kind, expected: &str| {
            assert_eq!(normal(text, kind).as_deref(), Some(expected), "{text}");
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
    fn zones_have_names() {
        let check = |text: &str, kind: Kind, expected: &str| {
            assert_eq!(normal(text, kind).as_deref(), Some(expected), "{text}");
        };
        check("2024-01-05 10:00:00 EST", Kind::TimestampWithZone, "2024-01-05 10:00:00-05:00");
        check("2024-07-05 10:00:00 cet", Kind::TimestampWithZone, "2024-07-05 10:00:00+01:00");
        check("2024-07-05 10:00 Europe/Berlin", Kind::TimestampWithZone, "2024-07-05 10:00:00 Europe/Berlin");
        // Clocks show it wherever they are.
        check("2024-01-05 10:00:00 EST", Kind::Timestamp, "2024-01-05 10:00:00");
        check("2024-01-05 10:00:00 Europe/Berlin", Kind::Timestamp, "2024-01-05 10:00:00");
        check("10:00:00 PST", Kind::Time, "10:00:00");
        assert_eq!(normal("2024-01-05 10:00:00 Nowhere/Land", Kind::Timestamp), None);
    }

    #[test]
    fn what_is_none_is_left_to_fail() {
        for text in
            ["soon", "2023-02-29", "2024-13-01", "1/2/99", "2024-01-05 BC", "1999-01-08 1999-01-08", ""]
        {
            assert_eq!(normal(text, Kind::Date), None, "{text}");
        }
        for text in ["2024-01-05 25:00", "2024-01-05 10:61", "2024-01-05 13:00 pm"] {
            assert_eq!(normal(text, Kind::Timestamp), None, "{text}");
        }
        assert_eq!(normal("2024-01-05", Kind::Date), None, "it is read as it is");
    }
}
