//! Input errors of DataFusion and Arrow, translated to PostgreSQL's messages and SQLSTATEs.

use crate::SqlState;

/// The SQLSTATE and message for a text that does not parse as a value, if `message` reports that.
pub fn bad_text(message: &str) -> Option<(SqlState, String)> {
    if let Some(number) = no_numeric(message) {
        let words = format!("NUMERIC has no value \"{number}\" here");
        return Some((SqlState::FEATURE_NOT_SUPPORTED, words));
    }
    let (text, name) = matched_text(message)?;
    let digits = text.trim().trim_start_matches(['-', '+']);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let (state, words) = match name {
        "smallint" | "integer" | "bigint" if is_number => {
            let words = format!("value \"{text}\" is out of range for type {name}");
            (SqlState::NUMERIC_VALUE_OUT_OF_RANGE, words)
        }
        "numeric" if is_decimal(text.trim()) => {
            (SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow".to_string())
        }
        "date" | "timestamp" if is_day(text) => {
            let words = format!("date/time field value out of range: \"{text}\"");
            (SqlState::DATETIME_FIELD_OVERFLOW, words)
        }
        "date" | "timestamp" | "time" if has_fields(text) => {
            let words = format!("date/time field value out of range: \"{text}\"");
            (SqlState::DATETIME_FIELD_OVERFLOW, words)
        }
        "date" | "timestamp" | "time" => (SqlState::INVALID_DATETIME_FORMAT, syntax(name, text)),
        _ => (SqlState::INVALID_TEXT_REPRESENTATION, syntax(name, text)),
    };
    Some((state, words))
}

/// NaN or an infinity cast to NUMERIC. PostgreSQL has both there; with a scale, NaN alone.
fn no_numeric(message: &str) -> Option<&str> {
    const UNLIMITED: &str = "Decimal128(38, ";
    if let Some((kind, number)) = message.split_once(". Overflowing on ") {
        let is_nan = number.starts_with("NaN");
        let is_infinite = number.starts_with("inf") || number.starts_with("-inf");
        let number = number.split([' ', '\n']).next()?;
        return (is_nan && kind.contains("Decimal") || is_infinite && kind.contains(UNLIMITED))
            .then_some(number);
    }
    let (text, name) = matched_text(message)?;
    let number = text.trim().trim_start_matches(['-', '+']).to_ascii_lowercase();
    let is_none = matches!(number.as_str(), "nan" | "inf" | "infinity");
    (name == "numeric" && is_none).then_some(text)
}

/// Whether a text is a number as NUMERIC has it, so that it must be out of range if it does not parse.
fn is_decimal(text: &str) -> bool {
    let unsigned = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (digits, exponent) = match text.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.strip_prefix(['-', '+']).unwrap_or(exponent)),
        None => (text, "0"),
    };
    let (whole, rest) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = !(exponent.is_empty() || whole.is_empty() && rest.is_empty());
    is_number && [whole, rest, exponent].into_iter().all(unsigned)
}

fn syntax(name: &str, text: &str) -> String {
    format!("invalid input syntax for type {name}: \"{text}\"")
}

/// The text in a message and PostgreSQL's name of its type.
fn matched_text(message: &str) -> Option<(&str, &'static str)> {
    let cast = ["annot cast string '", "annot cast value '"];
    if let Some(rest) = cast.iter().find_map(|words| Some(message.split_once(words)?.1)) {
        let (text, kind) = rest.rsplit_once("' to value of ")?;
        return Some((text, name_of(kind.split(" type").next()?)?));
    }
    let (_, rest) = message.split_once("rror parsing timestamp from '")?;
    let (text, why) = rest.rsplit_once("': ")?;
    // An error of to_timestamp and its like names a format, which did not match.
    (!why.contains("format") && !text.contains("' using format '")).then_some((text, "timestamp"))
}

fn name_of(kind: &str) -> Option<&'static str> {
    Some(match kind.split('(').next()? {
        "Int16" => "smallint",
        "Int32" => "integer",
        "Int64" => "bigint",
        "Float32" => "real",
        "Float64" => "double precision",
        "Decimal128" | "Decimal256" => "numeric",
        "Date32" | "Date64" => "date",
        "Time32" | "Time64" => "time",
        "Boolean" => "boolean",
        _ => return None,
    })
}

/// Whether a text is three numbers like a date. If it does not parse, the date does not exist (22008); any
/// other text is malformed (22007).
pub fn is_day(text: &str) -> bool {
    numbers_of_day(text).is_some()
}

/// PostgreSQL's hint for an unparsable date, if another order of its numbers could help; for year-first
/// dates, if the month or day is in no year.
pub fn date_style_hint(text: &str) -> Option<&'static str> {
    let [first, second, third] = numbers_of_day(text)?;
    let is_wrong = |month: u32, day: u32| !(1..=12).contains(&month) || !(1..=31).contains(&day);
    let has_day = |month: u32, day: u32| {
        let days = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        !is_wrong(month, day) && days.get(month as usize - 1).is_some_and(|days| day <= *days)
    };
    let helps = match first > 99 {
        true => is_wrong(second, third),
        false => has_day(first, second) || has_day(second, first) || has_day(second, third),
    };
    helps.then_some("Perhaps you need a different \"datestyle\" setting.")
}

/// The numbers at the start of a text, separated by blanks or date separators; a month's name counts as its
/// number.
fn numbers_of_day(text: &str) -> Option<[u32; 3]> {
    let text = text.trim();
    let sign = text.find(|c: char| !c.is_ascii_alphanumeric()).map(|at| text.as_bytes()[at])?;
    let (parts, time): (Vec<&str>, &str) = match sign {
        b' ' => {
            let mut words = text.splitn(4, ' ');
            (words.by_ref().take(3).collect(), words.next().unwrap_or(""))
        }
        b'-' | b'/' | b'.' => {
            let (day, time) = text.split_once(' ').unwrap_or((text, ""));
            (day.split(char::from(sign)).collect(), time)
        }
        _ => return None,
    };
    let [first, second, third] = parts[..] else { return None };
    // Any other suffix may be the error itself.
    let halves = ["am", "pm", "AM", "PM"];
    let clock = halves.iter().find_map(|half| time.strip_suffix(half)).unwrap_or(time);
    let is_time = |c: char| c.is_ascii_digit() || matches!(c, ':' | '.' | '+' | '-' | ' ' | 'Z');
    // After two numbers no month name is expected.
    let is_alone = clock.chars().all(is_time) && third.starts_with(|c: char| c.is_ascii_digit());
    let numbers = [number_of_day(first)?, number_of_day(second)?, number_of_day(third)?];
    is_alone.then_some(numbers)
}

fn number_of_day(part: &str) -> Option<u32> {
    const MONTHS: [&str; 12] =
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    match part.starts_with(|c: char| c.is_ascii_digit()) {
        // A time may follow.
        true => part.split('T').next()?.parse().ok(),
        false => {
            let first = part.get(..3)?.to_ascii_lowercase();
            MONTHS.iter().position(|month| *month == first).map(|at| at as u32 + 1)
        }
    }
}

/// Whether a text looks like a date or time of day, so that one of its fields must be out of range.
fn has_fields(text: &str) -> bool {
    let is_sign = |c: char| matches!(c, '-' | ':' | '.' | ' ' | '+' | 'T');
    let parts = text.trim().split(['-', ':']).filter(|part| !part.is_empty()).count();
    parts >= 3
        && text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || is_sign(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postgresqls_words_are_found() {
        let check = |message: &str, state: &str, words: &str| {
            let (found, said) = bad_text(message).unwrap();
            assert_eq!((found.to_string().as_str(), said.as_str()), (state, words), "{message}");
        };
        let cast = |text: &str, kind: &str| format!("Cannot cast string '{text}' to value of {kind} type");
        check(&cast("x", "Int32"), "22P02", "invalid input syntax for type integer: \"x\"");
        check(&cast("-70000", "Int16"), "22003", "value \"-70000\" is out of range for type smallint");
        check(
            &cast("it's", "Decimal128(38, 10)"),
            "22P02",
            "invalid input syntax for type numeric: \"it's\"",
        );
        check(&cast("2023-02-29", "Date32"), "22008", "date/time field value out of range: \"2023-02-29\"");
        check(&cast("31/12/2024", "Date32"), "22008", "date/time field value out of range: \"31/12/2024\"");
        let moment = "2011-03-27 02:00:00 Europe/Moscow";
        let said = format!("invalid input syntax for type date: \"{moment}\"");
        check(&cast(moment, "Date32"), "22007", &said);
        check(&cast("99-08-Jan", "Date32"), "22007", "invalid input syntax for type date: \"99-08-Jan\"");
        check(&cast("1.2.3.4", "Date32"), "22007", "invalid input syntax for type date: \"1.2.3.4\"");
        check(&cast("soon", "Date32"), "22007", "invalid input syntax for type date: \"soon\"");
        check(
            "Error parsing timestamp from '2024-01-01 25:00:00': error parsing time",
            "22008",
            "date/time field value out of range: \"2024-01-01 25:00:00\"",
        );
        check(&cast("NaN", "Decimal128(38, 10)"), "0A000", "NUMERIC has no value \"NaN\" here");
        let overflow = "Cannot cast to Decimal128(8, 2). Overflowing on NaN";
        check(overflow, "0A000", "NUMERIC has no value \"NaN\" here");
        assert_eq!(bad_text("Cannot cast to Decimal128(8, 2). Overflowing on inf"), None);
        assert_eq!(bad_text("Cannot cast to Int32"), None);
        for (text, has_hint) in [
            ("31/12/2024", true),
            ("31.12.2024 10:00", true),
            ("99-1-8", true),
            ("2024-13-01", true),
            ("31.04.2025", false),
            ("2023-02-30", false),
            ("soon", false),
        ] {
            assert_eq!(date_style_hint(text).is_some(), has_hint, "{text}");
        }
        assert_eq!(bad_text("Error parsing timestamp from 'x' using format '%Y': input is not enough"), None);
    }
}
