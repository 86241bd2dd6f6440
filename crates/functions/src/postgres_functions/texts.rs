//! Regular expression functions, Unicode escapes, and Unicode normalization.

use datafusion::common::{Result, ScalarValue};
use unicode_normalization::{UnicodeNormalization, is_nfc, is_nfd, is_nfkc, is_nfkd};

use super::{Bool, Definition, Int, Text, int, text};
use crate::string::patterns::of_postgres;
use crate::string::regexp_matches::compile;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

pub(super) const DEFINITIONS: &[Definition] = &[
    // Text, pattern, start, occurrence, flags, group.
    Definition::new("regexp_substr", &[Text, Text, Int, Int, Text, Int], Text, substr).from(2),
    // Text, form.
    // Patterns that are no literals, which the desugaring translates itself.
    Definition::new("harrier_pattern", &[Text], Text, |values| {
        Ok(ScalarValue::from(of_postgres(text(&values[0])).into_owned()))
    }),
    Definition::new("normalize", &[Text, Text], Text, |values| {
        let normal: String = match form(values)? {
            Form::Composed => text(&values[0]).nfc().collect(),
            Form::Decomposed => text(&values[0]).nfd().collect(),
            Form::CompatiblyComposed => text(&values[0]).nfkc().collect(),
            Form::CompatiblyDecomposed => text(&values[0]).nfkd().collect(),
        };
        Ok(ScalarValue::from(normal))
    })
    .from(1),
    Definition::new("is_normalized", &[Text, Text], Bool, |values| {
        Ok(ScalarValue::from(match form(values)? {
            Form::Composed => is_nfc(text(&values[0])),
            Form::Decomposed => is_nfd(text(&values[0])),
            Form::CompatiblyComposed => is_nfkc(text(&values[0])),
            Form::CompatiblyDecomposed => is_nfkd(text(&values[0])),
        }))
    })
    .from(1),
    Definition::new("chr", &[Int], Text, |values| character(int(&values[0]))),
    Definition::new("unistr", &[Text], Text, |values| characters(text(&values[0]))),
];

/// Unicode normalization forms (UAX #15).
enum Form {
    Composed,
    Decomposed,
    CompatiblyComposed,
    CompatiblyDecomposed,
}

/// Errors: the second value is not a known form (22023).
fn form(values: &[ScalarValue]) -> Result<Form> {
    let name = values.get(1).map_or("nfc", text);
    Ok(match name.to_ascii_lowercase().as_str() {
        "nfc" => Form::Composed,
        "nfd" => Form::Decomposed,
        "nfkc" => Form::CompatiblyComposed,
        "nfkd" => Form::CompatiblyDecomposed,
        _ => {
            let message = format!("invalid normalization form: {name}");
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into_datafusion());
        }
    })
}

fn substr(values: &[ScalarValue]) -> Result<ScalarValue> {
    let number = |at: usize, name: &str, least: i64, default: i64| match values.get(at).map_or(default, int) {
        number if number < least => {
            let message = format!("invalid value for parameter \"{name}\": {number}");
            Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
        }
        number => Ok(usize::try_from(number).unwrap_or(usize::MAX)),
    };
    let (start, which, group) = (
        number(2, "start", 1, 1).map_err(harrier_sqlstate::external)?,
        number(3, "n", 1, 1).map_err(harrier_sqlstate::external)?,
        number(5, "subexpr", 0, 0).map_err(harrier_sqlstate::external)?,
    );
    let pattern = compile(text(&values[1]), values.get(4).map_or("", text))?;
    let searched = text(&values[0]);
    let Some((from, _)) = searched.char_indices().nth(start - 1) else {
        let is_behind = start == searched.chars().count() + 1;
        let is_found = is_behind && which == 1 && group == 0 && pattern.is_match("");
        return Ok(ScalarValue::Utf8(is_found.then(String::new)));
    };
    let mut matches = pattern.captures_iter(&searched[from..]);
    let found =
        matches.nth(which - 1).and_then(|found| found.get(group).map(|part| part.as_str().to_string()));
    Ok(ScalarValue::Utf8(found))
}

/// Decodes `\0061`, `\+000061`, `\u0061` and `\U00000061`; two backslashes are one.
fn characters(escaped: &str) -> Result<ScalarValue> {
    let wrong = |message: &str| SqlError::new(SqlState::SYNTAX_ERROR, message);
    let mut text = String::with_capacity(escaped.len());
    let mut rest = escaped;
    let mut high: Option<u32> = None;
    while let Some(sign) = rest.chars().next() {
        let after = &rest[sign.len_utf8()..];
        if sign != '\\' || after.starts_with('\\') {
            if high.is_some() {
                return Err(wrong("invalid Unicode surrogate pair").into_datafusion());
            }
            text.push(sign);
            rest = if sign == '\\' { &after[1..] } else { after };
            continue;
        }
        let (skipped, digits) = match after.as_bytes().first() {
            Some(b'+') => (1, 6),
            Some(b'u') => (1, 4),
            Some(b'U') => (1, 8),
            _ => (0, 4),
        };
        let number =
            after.get(skipped..skipped + digits).and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let Some(number) = number else { return Err(wrong("invalid Unicode escape").into_datafusion()) };
        rest = &after[skipped + digits..];
        // A character beyond 16 bits may be a surrogate pair.
        let code = match (high.take(), number) {
            (None, 0xD800..0xDC00) => {
                high = Some(number);
                continue;
            }
            (Some(high), 0xDC00..0xE000) => 0x10000 + ((high - 0xD800) << 10) + (number - 0xDC00),
            (None, number) => number,
            (Some(_), _) => return Err(wrong("invalid Unicode surrogate pair").into_datafusion()),
        };
        match char::from_u32(code).filter(|sign| *sign != '\0') {
            Some(sign) => text.push(sign),
            None => return Err(wrong("invalid Unicode code point").into_datafusion()),
        }
    }
    match high {
        Some(_) => Err(wrong("invalid Unicode surrogate pair").into_datafusion()),
        None => Ok(ScalarValue::from(text)),
    }
}

/// Errors: a text has no such character (54000), or it is none (22023).
fn character(code: i64) -> Result<ScalarValue> {
    let (state, message) = match u32::try_from(code) {
        Ok(0) => (SqlState::PROGRAM_LIMIT_EXCEEDED, "null character not permitted"),
        Err(_) if code < 0 => (SqlState::INVALID_PARAMETER_VALUE, "character number must be positive"),
        found => match found.ok().and_then(char::from_u32) {
            Some(character) => return Ok(ScalarValue::from(character.to_string())),
            None => (SqlState::PROGRAM_LIMIT_EXCEEDED, "requested character not valid for encoding"),
        },
    };
    Err(SqlError::new(state, message).into_datafusion())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unistr_escapes_are_decoded() {
        let of = |escaped: &str| characters(escaped).map_err(|error| error.to_string());
        for (escaped, expected) in [
            (r"d\0061t\+000061", "data"),
            (r"d\u0061t\U00000061", "data"),
            (r"a\\b", r"a\b"),
            (r"\D83D\DE00", "\u{1F600}"),
            ("ä", "ä"),
        ] {
            assert_eq!(of(escaped).unwrap(), ScalarValue::from(expected), "{escaped}");
        }
        for wrong in [r"\00", r"\wxyz", r"\D83D", r"\D83Dx", r"\DE00", r"\0000"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
