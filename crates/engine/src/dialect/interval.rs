//! Texts of intervals as PostgreSQL reads them, where the planner would not: clock times, years with months, ISO 8601, `ago`.

/// The same interval in units that the planner reads; `None` where it reads the text itself, or where it is none.
pub(crate) fn normal(text: &str) -> Option<String> {
    let text = text.trim().to_lowercase();
    let is_clock = text.contains(':');
    let has_years = text.split_whitespace().any(|word| year_month(word).is_some());
    if !(is_clock || has_years || text.starts_with('p') || text.starts_with('@') || text.ends_with("ago")) {
        return None;
    }
    let parts = if text.starts_with('p') { iso(&text) } else { words(&text) }?;
    let Parts { months, days, nanoseconds } = parts;
    Some(format!("{months} months {days} days {nanoseconds} nanoseconds"))
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
    /// Adds an amount of a unit; what is left of months becomes days of them, and of days time.
    fn add(&mut self, amount: Decimal, unit: Unit) -> Option<()> {
        match unit {
            Unit::Months(each) => {
                let months = amount.times(each)?;
                self.months = self.months.checked_add(months.whole)?;
                let of_month = Decimal { whole: 0, billionths: months.billionths };
                // Only a fraction of whole months has days.
                if each == 1 { self.add(of_month.scaled(30)?, Unit::Days(1)) } else { Some(()) }
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

    fn negated(self) -> Option<Self> {
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

/// A number with nine digits behind its point, which has the sign of the whole.
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
        self.scaled(factor)
    }

    fn scaled(self, factor: i64) -> Option<Self> {
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
            // Days stand before a time of day; what has no unit at the end is seconds.
            ("", Some(next)) if next.contains(':') => Unit::Days(1),
            ("", Some(_)) => unit_of(words.next()?)?,
            ("", None) => Unit::Nanoseconds(SECOND),
            (unit, _) => unit_of(unit)?,
        };
        parts.add(amount, unit)?;
    }
    if is_ago { parts.negated() } else { Some(parts) }
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

/// `P1Y2M3DT4H5M6.7S`.
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
    }

    #[test]
    fn what_the_planner_reads_is_left_to_it() {
        for text in
            ["1 day", "3.5 hours", "", "tomorrow", "1:xx", "P", "P1X", "25:61", "1-13", "1 parsec ago"]
        {
            assert_eq!(normal(text), None, "{text}");
        }
    }
}
