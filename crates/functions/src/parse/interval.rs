//! Input of intervals in PostgreSQL's formats that a cast does not support: clock times, years with months,
//! ISO 8601, `ago`. Also output in each of PostgreSQL's styles.

use std::fmt::{self, Write};

/// Output format of intervals: the parameter `IntervalStyle`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum IntervalStyle {
    /// `1 year 2 mons -3 days +04:05:06.7`
    #[default]
    Postgres,
    /// `@ 1 year 2 mons -3 days 4 hours 5 mins 6.7 secs`
    PostgresVerbose,
    /// `+1-2 -3 +4:05:06.7`
    SqlStandard,
    /// `P1Y2M-3DT4H5M6.7S`
    Iso8601,
}

impl IntervalStyle {
    /// Names as values of the parameter.
    pub const NAMES: &[&str] = &["postgres", "postgres_verbose", "sql_standard", "iso_8601"];

    /// The style of one of [`Self::NAMES`].
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "postgres" => Self::Postgres,
            "postgres_verbose" => Self::PostgresVerbose,
            "sql_standard" => Self::SqlStandard,
            "iso_8601" => Self::Iso8601,
            _ => return None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::PostgresVerbose => "postgres_verbose",
            Self::SqlStandard => "sql_standard",
            Self::Iso8601 => "iso_8601",
        }
    }

    /// Writes an interval of months, days and microseconds.
    ///
    /// Source: PostgreSQL's `EncodeInterval`.
    pub fn write(self, out: &mut dyn Write, months: i32, days: i32, us: i64) -> fmt::Result {
        let of = Fields::new(months, days, us);
        match self {
            Self::Postgres => of.write_postgres(out),
            Self::PostgresVerbose => of.write_verbose(out),
            Self::SqlStandard => of.write_standard(out),
            Self::Iso8601 => of.write_iso(out),
        }
    }
}

/// The fields of an interval. Those of its time have one sign.
struct Fields {
    years: i32,
    months: i32,
    days: i32,
    is_negative: bool,
    hours: u64,
    minutes: u64,
    seconds: u64,
    us: u64,
}

impl Fields {
    fn new(months: i32, days: i32, us: i64) -> Self {
        let all = us.unsigned_abs();
        Self {
            years: months / 12,
            months: months % 12,
            days,
            is_negative: us < 0,
            hours: all / 3_600_000_000,
            minutes: all / 60_000_000 % 60,
            seconds: all / 1_000_000 % 60,
            us: all % 1_000_000,
        }
    }

    fn has_time(&self) -> bool {
        self.hours + self.minutes + self.seconds + self.us > 0
    }

    /// Writes the seconds of a minute, zero-padded to two digits if `filled`.
    fn write_seconds(&self, out: &mut dyn Write, filled: bool) -> fmt::Result {
        match filled {
            true => write!(out, "{:02}", self.seconds)?,
            false => write!(out, "{}", self.seconds)?,
        }
        if self.us > 0 {
            write!(out, ".{}", format!("{:06}", self.us).trim_end_matches('0'))?;
        }
        Ok(())
    }

    fn write_postgres(&self, out: &mut dyn Write) -> fmt::Result {
        let (mut is_first, mut is_before) = (true, false);
        let days = [(self.years, "year"), (self.months, "mon"), (self.days, "day")];
        for (value, unit) in days.into_iter().filter(|(value, _)| *value != 0) {
            let blank = if is_first { "" } else { " " };
            // After a negative field, positive ones get an explicit sign.
            let sign = if is_before && value > 0 { "+" } else { "" };
            let many = if value == 1 { "" } else { "s" };
            write!(out, "{blank}{sign}{value} {unit}{many}")?;
            (is_first, is_before) = (false, value < 0);
        }
        if !is_first && !self.has_time() {
            return Ok(());
        }
        let blank = if is_first { "" } else { " " };
        let sign = match self.is_negative {
            true => "-",
            false if is_before => "+",
            false => "",
        };
        write!(out, "{blank}{sign}{:02}:{:02}:", self.hours, self.minutes)?;
        self.write_seconds(out, true)
    }

    fn write_verbose(&self, out: &mut dyn Write) -> fmt::Result {
        out.write_char('@')?;
        let (mut is_first, mut is_before) = (true, false);
        let sign = if self.is_negative { -1 } else { 1 };
        let signed = |value: u64| sign * value as i64;
        let fields = [
            (i64::from(self.years), "year"),
            (i64::from(self.months), "mon"),
            (i64::from(self.days), "day"),
            (signed(self.hours), "hour"),
            (signed(self.minutes), "min"),
        ];
        for (value, unit) in fields.into_iter().filter(|(value, _)| *value != 0) {
            if is_first {
                is_before = value < 0;
            }
            let value = if is_before { -value } else { value };
            write!(out, " {value} {unit}{}", if value == 1 { "" } else { "s" })?;
            is_first = false;
        }
        if self.seconds + self.us > 0 {
            if is_first {
                is_before = self.is_negative;
            }
            out.write_str(if self.is_negative == is_before { " " } else { " -" })?;
            self.write_seconds(out, false)?;
            out.write_str(if self.seconds == 1 && self.us == 0 { " sec" } else { " secs" })?;
            is_first = false;
        }
        if is_first {
            out.write_str(" 0")?;
        }
        if is_before { out.write_str(" ago") } else { Ok(()) }
    }

    fn write_standard(&self, out: &mut dyn Write) -> fmt::Result {
        let has_months = self.years != 0 || self.months != 0;
        let has_rest = self.days != 0 || self.has_time();
        let time_sign = i64::from(self.has_time()) * if self.is_negative { -1 } else { 1 };
        let signs = [self.years.into(), self.months.into(), self.days.into(), time_sign];
        let has_negative = signs.iter().any(|sign| *sign < 0);
        let has_positive = signs.iter().any(|sign| *sign > 0);
        if !has_negative && !has_positive {
            return out.write_char('0');
        }
        let (years, months, days) =
            (self.years.unsigned_abs(), self.months.unsigned_abs(), self.days.unsigned_abs());
        if has_negative && has_positive || has_months && has_rest {
            let sign = |is_negative: bool| if is_negative { '-' } else { '+' };
            let (of_months, of_days) = (sign(self.years < 0 || self.months < 0), sign(self.days < 0));
            write!(out, "{of_months}{years}-{months} {of_days}{days} ")?;
            write!(out, "{}{}:{:02}:", sign(self.is_negative), self.hours, self.minutes)?;
            return self.write_seconds(out, true);
        }
        if has_negative {
            out.write_char('-')?;
        }
        if has_months {
            return write!(out, "{years}-{months}");
        }
        if days > 0 {
            write!(out, "{days} ")?;
        }
        write!(out, "{}:{:02}:", self.hours, self.minutes)?;
        self.write_seconds(out, true)
    }

    fn write_iso(&self, out: &mut dyn Write) -> fmt::Result {
        out.write_char('P')?;
        for (value, unit) in [(self.years, 'Y'), (self.months, 'M'), (self.days, 'D')] {
            if value != 0 {
                write!(out, "{value}{unit}")?;
            }
        }
        let is_nothing = self.years == 0 && self.months == 0 && self.days == 0;
        if !self.has_time() {
            return if is_nothing { out.write_str("T0S") } else { Ok(()) };
        }
        out.write_char('T')?;
        let sign = if self.is_negative { "-" } else { "" };
        for (value, unit) in [(self.hours, 'H'), (self.minutes, 'M')] {
            if value != 0 {
                write!(out, "{sign}{value}{unit}")?;
            }
        }
        if self.seconds + self.us > 0 {
            out.write_str(sign)?;
            self.write_seconds(out, false)?;
            out.write_char('S')?;
        }
        Ok(())
    }
}

/// The same interval in units that a cast parses; `None` if the cast parses the text itself, or if it is
/// invalid.
pub fn normal(text: &str) -> Option<String> {
    let text = text.trim().to_lowercase();
    let is_clock = text.contains(':');
    let has_years = text.split_whitespace().any(|word| year_month(word).is_some());
    let signed = (!text.starts_with('p')).then(|| signs_at_numbers(&text)).flatten();
    let is_own =
        is_clock || has_years || text.starts_with('p') || text.starts_with('@') || text.ends_with("ago");
    if !is_own && signed.is_none() {
        return None;
    }
    let text = signed.unwrap_or(text);
    let parts = if text.starts_with('p') { iso(&text) } else { words(&text) }?;
    let Parts { months, days, nanoseconds } = parts;
    Some(format!("{months} months {days} days {nanoseconds} nanoseconds"))
}

/// The same text without blanks between a sign and its number, as in `1 month - 1 day`; `None` if it has
/// none.
fn signs_at_numbers(text: &str) -> Option<String> {
    let mut signed = String::with_capacity(text.len());
    let mut has_any = false;
    let mut words = text.split_whitespace().peekable();
    while let Some(word) = words.next() {
        signed.push_str(word);
        let has_number = words.peek().is_some_and(|next| next.starts_with(|c: char| c.is_ascii_digit()));
        match matches!(word, "-" | "+") && has_number {
            true => has_any = true,
            false => signed.push(' '),
        }
    }
    has_any.then(|| signed.trim_end().to_string())
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Parts {
    months: i64,
    days: i64,
    nanoseconds: i64,
}

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * SECOND;

impl Parts {
    /// Adds an amount of a unit; the fraction of months becomes days, and that of days time.
    fn add(&mut self, amount: Decimal, unit: Unit) -> Option<()> {
        match unit {
            Unit::Months(each) => {
                let months = amount.times(each)?;
                self.months = self.months.checked_add(months.whole)?;
                let of_month = Decimal { whole: 0, billionths: months.billionths };
                // Only a fraction of whole months becomes days.
                if each == 1 { self.add(of_month.checked_mul(30)?, Unit::Days(1)) } else { Some(()) }
            }
            Unit::Days(each) => {
                let days = amount.times(each)?;
                self.days = self.days.checked_add(days.whole)?;
                let of_day = i128::from(days.billionths) * i128::from(DAY) / i128::from(SECOND);
                self.nanoseconds = self.nanoseconds.checked_add(i64::try_from(of_day).ok()?)?;
                Some(())
            }
            Unit::Nanoseconds(each) => {
                let whole = amount.whole.checked_mul(each)?;
                let rest = i128::from(amount.billionths) * i128::from(each) / i128::from(SECOND);
                let sum = whole.checked_add(i64::try_from(rest).ok()?)?;
                self.nanoseconds = self.nanoseconds.checked_add(sum)?;
                Some(())
            }
        }
    }

    fn checked_neg(self) -> Option<Self> {
        Some(Self {
            months: self.months.checked_neg()?,
            days: self.days.checked_neg()?,
            nanoseconds: self.nanoseconds.checked_neg()?,
        })
    }
}

#[derive(Clone, Copy)]
enum Unit {
    Months(i64),
    Days(i64),
    Nanoseconds(i64),
}

/// A number with nine fractional digits, which have the sign of the whole.
#[derive(Clone, Copy)]
struct Decimal {
    whole: i64,
    billionths: i64,
}

impl Decimal {
    fn parse(text: &str) -> Option<Self> {
        let (sign, digits) = match text.as_bytes().first()? {
            b'-' => (-1, &text[1..]),
            b'+' => (1, &text[1..]),
            _ => (1, text),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.len() + fraction.len() == 0 || !is_number(whole) || !is_number(fraction) {
            return None;
        }
        let nine: String = fraction.chars().chain("000000000".chars()).take(9).collect();
        let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        Some(Self { whole: sign * whole, billionths: sign * nine.parse::<i64>().ok()? })
    }

    fn times(self, factor: i64) -> Option<Self> {
        self.checked_mul(factor)
    }

    fn checked_mul(self, factor: i64) -> Option<Self> {
        let billionths = self.billionths.checked_mul(factor)?;
        let whole = self.whole.checked_mul(factor)?.checked_add(billionths / SECOND)?;
        Some(Self { whole, billionths: billionths % SECOND })
    }
}

fn words(text: &str) -> Option<Parts> {
    let text = text.strip_prefix('@').unwrap_or(text).trim();
    let (text, is_ago) = match text.strip_suffix("ago") {
        Some(before) => (before.trim(), true),
        None => (text, false),
    };
    let mut parts = Parts::default();
    let mut words = text.split_whitespace().peekable();
    words.peek()?;
    while let Some(word) = words.next() {
        if word.contains(':') {
            parts.nanoseconds = parts.nanoseconds.checked_add(clock(word)?)?;
            continue;
        }
        if let Some(months) = year_month(word) {
            parts.months = parts.months.checked_add(months)?;
            continue;
        }
        let digits = word.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(word.len());
        let amount = Decimal::parse(&word[..digits])?;
        let unit = match (&word[digits..], words.peek()) {
            // A number before a time of day is days; without a unit at the end it is seconds.
            ("", Some(next)) if next.contains(':') => Unit::Days(1),
            ("", Some(_)) => unit_of(words.next()?)?,
            ("", None) => Unit::Nanoseconds(SECOND),
            (unit, _) => unit_of(unit)?,
        };
        parts.add(amount, unit)?;
    }
    if is_ago { parts.checked_neg() } else { Some(parts) }
}

fn unit_of(word: &str) -> Option<Unit> {
    Some(match word {
        "millennium" | "millennia" | "mil" | "mils" => Unit::Months(12_000),
        "century" | "centuries" | "cent" | "c" => Unit::Months(1_200),
        "decade" | "decades" | "dec" | "decs" => Unit::Months(120),
        "year" | "years" | "yr" | "yrs" | "y" => Unit::Months(12),
        "month" | "months" | "mon" | "mons" => Unit::Months(1),
        "week" | "weeks" | "w" => Unit::Days(7),
        "day" | "days" | "d" => Unit::Days(1),
        "hour" | "hours" | "hr" | "hrs" | "h" => Unit::Nanoseconds(3_600 * SECOND),
        "minute" | "minutes" | "min" | "mins" | "m" => Unit::Nanoseconds(60 * SECOND),
        "second" | "seconds" | "sec" | "secs" | "s" => Unit::Nanoseconds(SECOND),
        "millisecond" | "milliseconds" | "msec" | "msecs" | "ms" => Unit::Nanoseconds(1_000_000),
        "microsecond" | "microseconds" | "usec" | "usecs" | "us" => Unit::Nanoseconds(1_000),
        _ => return None,
    })
}

/// Nanoseconds of `[-]h:mm`, `[-]h:mm:ss.f` or `[-]mm:ss.f`.
fn clock(word: &str) -> Option<i64> {
    let (sign, digits) = match word.as_bytes().first()? {
        b'-' => (-1, &word[1..]),
        b'+' => (1, &word[1..]),
        _ => (1, word),
    };
    let fields: Vec<&str> = digits.split(':').collect();
    let (hours, minutes, seconds) = match fields.as_slice() {
        [minutes, seconds] if seconds.contains('.') => ("0", *minutes, *seconds),
        [hours, minutes] => (*hours, *minutes, "0"),
        [hours, minutes, seconds] => (*hours, *minutes, *seconds),
        _ => return None,
    };
    let plain =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<i64>().ok())?;
    let (hours, minutes) = (plain(hours)?, plain(minutes)?);
    let seconds = (!seconds.starts_with(['-', '+'])).then(|| Decimal::parse(seconds))??;
    if minutes > 59 || seconds.whole > 60 {
        return None;
    }
    let whole = hours.checked_mul(3_600)?.checked_add(minutes * 60 + seconds.whole)?;
    Some(sign * whole.checked_mul(SECOND)?.checked_add(seconds.billionths)?)
}

/// Months of `y-m`, with a sign for both.
fn year_month(word: &str) -> Option<i64> {
    let (sign, digits) = match word.as_bytes().first()? {
        b'-' => (-1, &word[1..]),
        b'+' => (1, &word[1..]),
        _ => (1, word),
    };
    let (years, months) = digits.split_once('-')?;
    let plain = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<i64>().ok())?
    };
    let months = plain(months).filter(|months| *months < 12)?;
    Some(sign * plain(years)?.checked_mul(12)?.checked_add(months)?)
}

/// Parses `P1Y2M3DT4H5M6.7S`.
fn iso(text: &str) -> Option<Parts> {
    let mut parts = Parts::default();
    let mut is_time = false;
    let mut number = String::new();
    let mut has_any = false;
    for c in text[1..].chars() {
        let unit = match (c, is_time) {
            ('t', false) if number.is_empty() => {
                is_time = true;
                continue;
            }
            ('0'..='9' | '.' | '-' | '+', _) => {
                number.push(c);
                continue;
            }
            ('y', false) => Unit::Months(12),
            ('m', false) => Unit::Months(1),
            ('w', false) => Unit::Days(7),
            ('d', false) => Unit::Days(1),
            ('h', true) => Unit::Nanoseconds(3_600 * SECOND),
            ('m', true) => Unit::Nanoseconds(60 * SECOND),
            ('s', true) => Unit::Nanoseconds(SECOND),
            _ => return None,
        };
        parts.add(Decimal::parse(&number)?, unit)?;
        number.clear();
        has_any = true;
    }
    (has_any && number.is_empty()).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_intervals_are_read() {
        let check = |text: &str, months: i64, days: i64, nanoseconds: i64| {
            let expected = format!("{months} months {days} days {nanoseconds} nanoseconds");
            assert_eq!(normal(text).as_deref(), Some(expected.as_str()), "{text}");
        };
        let seconds = |seconds: i64| seconds * SECOND;
        check("1 day 02:03", 0, 1, seconds(7_380));
        check("1 02:03:04.5", 0, 1, seconds(7_384) + SECOND / 2);
        check("-1 day +02:03", 0, -1, seconds(7_380));
        check("-02:03", 0, 0, -seconds(7_380));
        check("12:34.5", 0, 0, seconds(754) + SECOND / 2);
        check("1-2", 14, 0, 0);
        check("-1-2", -14, 0, 0);
        check("1 year 2 mons 3 days 04:05:06", 14, 3, seconds(14_706));
        check("@ 1 minute ago", 0, 0, -seconds(60));
        check("1.5 days 00:00", 0, 1, seconds(43_200));
        check("1.5 months 00:00", 1, 15, 0);
        check("1.5 years 00:00", 18, 0, 0);
        check("P1Y2M3DT4H5M6.5S", 14, 3, seconds(14_706) + SECOND / 2);
        check("PT-1H", 0, 0, -seconds(3_600));
        check("1 month - 1 day", 1, -1, 0);
        check("1 day - 02:00", 0, 1, -seconds(7_200));
        check("- 1 day", 0, -1, 0);
        check("+ 2 hours", 0, 0, seconds(7_200));
        check("-  1 day 2 hours", 0, -1, seconds(7_200));
        check("1 day + 2 hours - 3 minutes", 0, 1, seconds(7_020));
        check("- 1.5 days", 0, -1, -seconds(43_200));
        check("- 1 day ago", 0, 1, 0);
        check("1-2 - 3 4:05", 14, -3, seconds(14_700));
        check("- 1-2", -14, 0, 0);
        check("1 day - 2", 0, 1, -seconds(2));
    }

    #[test]
    fn inputs_of_the_cast_are_unchanged() {
        for text in
            ["1 day", "3.5 hours", "", "tomorrow", "1:xx", "P", "P1X", "25:61", "1-13", "1 parsec ago"]
        {
            assert_eq!(normal(text), None, "{text}");
        }
    }

    #[test]
    fn signs_stand_before_numbers() {
        for text in ["- - 1 day", "1 - day", "1 day -", "+-1 day", "P- 1D", "- .5 day", "+ 1 month+ 2 days"] {
            assert_eq!(normal(text), None, "{text}");
        }
    }

    #[test]
    fn intervals_are_written_in_every_style() {
        use IntervalStyle::{Iso8601, Postgres, PostgresVerbose, SqlStandard};
        const SECOND: i64 = 1_000_000;
        // PostgreSQL 15's output.
        let cases = [
            ((0, 0, 0), ["00:00:00", "@ 0", "0", "PT0S"]),
            ((14, 0, 0), ["1 year 2 mons", "@ 1 year 2 mons", "1-2", "P1Y2M"]),
            ((0, 1, 0), ["1 day", "@ 1 day", "1 0:00:00", "P1D"]),
            ((0, 1, 10_800 * SECOND), ["1 day 03:00:00", "@ 1 day 3 hours", "1 3:00:00", "P1DT3H"]),
            ((0, 0, -1_500_000), ["-00:00:01.5", "@ 1.5 secs ago", "-0:00:01.5", "PT-1.5S"]),
            ((0, 0, 1_000), ["00:00:00.001", "@ 0.001 secs", "0:00:00.001", "PT0.001S"]),
            (
                (14, -3, 14_706 * SECOND),
                [
                    "1 year 2 mons -3 days +04:05:06",
                    "@ 1 year 2 mons -3 days 4 hours 5 mins 6 secs",
                    "+1-2 -3 +4:05:06",
                    "P1Y2M-3DT4H5M6S",
                ],
            ),
            ((-1, 1, 0), ["-1 mons +1 day", "@ 1 mon -1 days ago", "-0-1 +1 +0:00:00", "P-1M1D"]),
            ((0, -1, -3_600 * SECOND), ["-1 days -01:00:00", "@ 1 day 1 hour ago", "-1 1:00:00", "P-1DT-1H"]),
        ];
        for ((months, days, us), expected) in cases {
            for (style, expected) in
                [Postgres, PostgresVerbose, SqlStandard, Iso8601].into_iter().zip(expected)
            {
                let mut written = String::new();
                style.write(&mut written, months, days, us).unwrap();
                assert_eq!(written, expected, "{style:?}");
                assert_eq!(IntervalStyle::from_name(style.name()), Some(style));
            }
        }
    }
}
