//! Texts that are no value of a type: what DataFusion and Arrow say of them, in PostgreSQL's words and with
//! its codes.

use crate::SqlState;

/// The code and the words for a text that could not be read as a value, if that is what a message tells.
pub fn bad_text(message: &str) -> Option<(SqlState, String)> {
    if let Some(number) = no_numeric(message) {
        let words = format!("NUMERIC has no value \"{number}\" here");
        return Some((SqlState::FEATURE_NOT_SUPPORTED, words));
    }
    let (text, name) = told(message)?;
    let digits = text.trim().trim_start_matches(['-', '+']);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let (state, words) = match name {
        "smallint" | "integer" | "bigint" if is_number => {
            let words = format!("value \"{text}\" is out of range for type {name}");
            (SqlState::NUMERIC_VALUE_OUT_OF_RANGE, words)
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

/// NaN or an infinity that was to be a NUMERIC, which has them in PostgreSQL: one with a scale has NaN alone.
fn no_numeric(message: &str) -> Option<&str> {
    const UNLIMITED: &str = "Decimal128(38, ";
    if let Some((kind, number)) = message.split_once(". Overflowing on ") {
        let is_nan = number.starts_with("NaN");
        let is_infinite = number.starts_with("inf") || number.starts_with("-inf");
        let number = number.split([' ', '\n']).next()?;
        return (is_nan && kind.contains("Decimal") || is_infinite && kind.contains(UNLIMITED))
            .then_some(number);
    }
    let (text, name) = told(message)?;
    let number = text.trim().trim_start_matches(['-', '+']).to_ascii_lowercase();
    let is_none = matches!(number.as_str(), "nan" | "inf" | "infinity");
    (name == "numeric" && is_none).then_some(text)
}

fn syntax(name: &str, text: &str) -> String {
    format!("invalid input syntax for type {name}: \"{text}\"")
}

/// The text and PostgreSQL's name of the type that a message is about.
fn told(message: &str) -> Option<(&str, &'static str)> {
    let cast = ["annot cast string '", "annot cast value '"];
    if let Some(rest) = cast.iter().find_map(|words| Some(message.split_once(words)?.1)) {
        let (text, kind) = rest.rsplit_once("' to value of ")?;
        return Some((text, name_of(kind.split(" type").next()?)?));
    }
    let (_, rest) = message.split_once("rror parsing timestamp from '")?;
    let (text, why) = rest.rsplit_once("': ")?;
    // What to_timestamp and its like say names a format, which is the one that was not met.
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

/// Whether a text is made like a day or a time of day, so that one of its fields must be out of range.
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
        assert_eq!(bad_text("Error parsing timestamp from 'x' using format '%Y': input is not enough"), None);
    }
}
