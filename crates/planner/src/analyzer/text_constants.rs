//! Conversion of text constants to the type that they are cast to, as in PostgreSQL: dates, times, bytea, and
//! arrays (`{1,NULL,"a, b"}`, which DataFusion's cast would turn into an array of that single text).

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use harrier_error::{SqlError, SqlState};
use harrier_functions::datetime::infinity::infinite;
use harrier_functions::datetime::time_zone::{is_local, moments_in};
use harrier_functions::parse;
use harrier_functions::parse::datetime::{DateOrder, Kind};

use super::session_time_zone::UTC;

/// The session settings for parsing dates and times that are ambiguous.
#[derive(Debug, Clone)]
pub struct TimeReading {
    /// The zone of times without one.
    pub zone: Arc<str>,
    pub order: DateOrder,
}

/// Prepares a value for a cast to a type: rewrites texts of dates, times and bytea to the form that the cast
/// parses, and converts a local time to an instant in the zone of `reading`.
pub fn readable(value: ScalarValue, wanted: &DataType, reading: &TimeReading) -> Result<ScalarValue> {
    let normal = match Kind::of(wanted) {
        Some(kind) => normal_text(&value, kind, wanted, reading.order)?,
        None if wanted.is_binary() => parse_bytea_constant(&value)?,
        None if wanted.is_decimal() => {
            value.try_as_str().flatten().and_then(parse::decimal::plain).map(ScalarValue::from)
        }
        None if let (Some(item), Some(text)) = (element_type(wanted), value.try_as_str().flatten()) => {
            Some(parse_array_constant(text, item, reading.order)?)
        }
        None => None,
    };
    let value = normal.unwrap_or(value);
    match wanted {
        DataType::Timestamp(_, Some(_)) if is_local(&value.data_type()) => {
            ScalarValue::try_from_array(&moments_in(&value.to_array()?, &reading.zone)?, 0)
        }
        _ => Ok(value),
    }
}

/// The normalized text for a cast, as PostgreSQL would parse it. `None` if the text is already normal, or
/// cannot be parsed.
pub(super) fn normal_text(
    value: &ScalarValue,
    kind: Kind,
    wanted: &DataType,
    order: DateOrder,
) -> Result<Option<ScalarValue>> {
    let Some(Some(text)) = value.try_as_str() else { return Ok(None) };
    if let Some(infinite) = infinite(text, wanted) {
        return Ok(Some(infinite));
    }
    let Some(text) = kind.normal(text, order) else { return Ok(None) };
    ScalarValue::from(text).cast_to(&value.data_type()).map(Some)
}

/// Parses a text as bytea; `None` for other values.
///
/// Errors: the text is not valid bytea (22P02, 22023).
pub(super) fn parse_bytea_constant(value: &ScalarValue) -> Result<Option<ScalarValue>> {
    let Some(text) = value.try_as_str() else { return Ok(None) };
    let bytes = text.map(parse::bytea::bytes_of).transpose().map_err(harrier_sqlstate::external)?;
    Ok(Some(ScalarValue::Binary(bytes)))
}

/// The element type of an array; `None` for other types.
pub(super) fn element_type(kind: &DataType) -> Option<&DataType> {
    match kind {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            Some(item.data_type())
        }
        _ => None,
    }
}

/// Parses a text as an array of `element`.
///
/// Errors: malformed (22P02) or multidimensional (0A000); an element is not valid for its type.
pub(super) fn parse_array_constant(text: &str, element: &DataType, order: DateOrder) -> Result<ScalarValue> {
    let texts = elements(text, element_type(element).is_some()).map_err(harrier_sqlstate::external)?;
    let reading = TimeReading { zone: UTC.into(), order };
    let values = texts.into_iter().map(|text| match text {
        Some(text) => readable(ScalarValue::Utf8(Some(text)), element, &reading)?.cast_to(element),
        None => ScalarValue::try_new_null(element),
    });
    let values = values.collect::<Result<Vec<_>>>()?;
    Ok(ScalarValue::List(ScalarValue::new_list(&values, element, true)))
}

/// The text of an array up to its closing brace, after the opening one.
fn rest_of_array(signs: &mut impl Iterator<Item = char>) -> Option<String> {
    let (mut text, mut open, mut is_quoted) = (String::new(), 1, false);
    while open > 0 {
        let sign = signs.next()?;
        text.push(sign);
        match sign {
            '\\' => text.push(signs.next()?),
            '"' => is_quoted = !is_quoted,
            '{' if !is_quoted => open += 1,
            '}' if !is_quoted => open -= 1,
            _ => {}
        }
    }
    Some(text)
}

/// Splits the text of an array into those of its elements, which may be arrays if it is `nested`; `None` for
/// NULL.
///
/// Errors: as [`parse_array_constant`].
pub fn elements(text: &str, nested: bool) -> Result<Vec<Option<String>>, SqlError> {
    let malformed = || {
        let message = format!("malformed array literal: \"{text}\"");
        SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
    };
    if text.trim_start().starts_with('[') {
        let message = format!("array literal with bounds of its subscripts: \"{text}\"");
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    let inner =
        text.trim().strip_prefix('{').and_then(|text| text.strip_suffix('}')).ok_or_else(malformed)?;
    if inner.trim().is_empty() {
        return Ok(vec![]);
    }
    let mut all = Vec::new();
    let mut signs = inner.chars().peekable();
    loop {
        while signs.next_if(|sign| sign.is_whitespace()).is_some() {}
        let mut value = String::new();
        let is_quoted = signs.next_if_eq(&'"').is_some();
        loop {
            match signs.next() {
                Some('"') if is_quoted => break,
                Some('\\') => value.push(signs.next().ok_or_else(malformed)?),
                Some(sign) if is_quoted => value.push(sign),
                None if is_quoted => return Err(malformed()),
                Some('{') if nested && value.is_empty() => {
                    value.push('{');
                    value.push_str(&rest_of_array(&mut signs).ok_or_else(malformed)?);
                }
                Some('{') => {
                    let message = "texts of arrays of several dimensions are not supported";
                    return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
                }
                Some('}' | '"' | ',') => return Err(malformed()),
                Some(sign) => value.push(sign),
                None => return Err(malformed()),
            }
            if !is_quoted && signs.peek().is_none_or(|sign| *sign == ',') {
                break;
            }
        }
        if is_quoted {
            while signs.next_if(|sign| sign.is_whitespace()).is_some() {}
            all.push(Some(value));
        } else {
            let value = value.trim_end();
            all.push((!value.eq_ignore_ascii_case("null")).then(|| value.to_string()));
        }
        match signs.next() {
            None => return Ok(all),
            Some(',') => {}
            Some(_) => return Err(malformed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_postgresql_does() {
        let some = |text: &str| Some(text.to_string());
        for (text, expected) in [
            ("{}", vec![]),
            (" { } ", vec![]),
            ("{a,b}", vec![some("a"), some("b")]),
            ("{ a b , null,\"NULL\" }", vec![some("a b"), None, some("NULL")]),
            ("{\"a, \\\"b\\\"\",\"\",\\,}", vec![some("a, \"b\""), some(""), some(",")]),
        ] {
            assert_eq!(elements(text, false).unwrap(), expected, "{text}");
        }
        for wrong in ["", "a", "{a", "{a,}", "{,a}", "{\"a}", "{\"a\"b}", "{a\"b\"}", "{a}}"] {
            assert_eq!(
                elements(wrong, false).unwrap_err().sqlstate,
                SqlState::INVALID_TEXT_REPRESENTATION,
                "{wrong}"
            );
        }
        assert_eq!(elements("{{1},{2}}", false).unwrap_err().sqlstate, SqlState::FEATURE_NOT_SUPPORTED);
    }
}
