//! Values of `jsonb` as trees, and their serialization.

use std::borrow::Cow;

use datafusion::common::{DataFusionError, Result};

use super::scan::{self, Cursor};
use super::{DEPTH_MAX, invalid, too_deep};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// Maximum digits of a number before and after its point, as in PostgreSQL's numeric.
const WHOLE_DIGITS_MAX: i64 = 131_072;
const SCALE_MAX: i64 = 16_383;

/// Maximum bytes of the digits expanded from exponents, in all numbers of a value.
const EXPANDED_BYTES_MAX: usize = 16 << 20;

/// A value. Members of objects are sorted by the length of their keys, then by the keys, which are unique.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value<'j> {
    Null,
    Boolean(bool),
    /// In the format of numeric.
    Number(Cow<'j, str>),
    String(Cow<'j, str>),
    Array(Vec<Value<'j>>),
    Object(Vec<(Cow<'j, str>, Value<'j>)>),
}

impl<'j> Value<'j> {
    /// Parses a text that has not been validated.
    pub(super) fn parse(text: &'j str) -> Result<Self> {
        scan::check(text)?;
        Self::of_checked(text)
    }

    /// Parses a text that is known to be valid JSON.
    pub(super) fn of_checked(text: &'j str) -> Result<Self> {
        Self::at(&mut Cursor::new(text), 0, &mut 0)
    }

    fn at(cursor: &mut Cursor<'j>, depth: usize, expanded_bytes: &mut usize) -> Result<Self> {
        if depth > DEPTH_MAX {
            return Err(too_deep());
        }
        Ok(match cursor.peek()? {
            b'{' => {
                cursor.expect(b'{')?;
                let mut members = Vec::new();
                while cursor.next_part(members.is_empty(), b'}')? {
                    let key = scan::unquote(cursor.string()?)?;
                    cursor.expect(b':')?;
                    members.push((key, Self::at(cursor, depth + 1, expanded_bytes)?));
                }
                Self::object(members)
            }
            b'[' => {
                cursor.expect(b'[')?;
                let mut elements = Vec::new();
                while cursor.next_part(elements.is_empty(), b']')? {
                    elements.push(Self::at(cursor, depth + 1, expanded_bytes)?);
                }
                Self::Array(elements)
            }
            b'"' => Self::String(scan::unquote(cursor.string()?)?),
            _ => match cursor.value()? {
                "true" => Self::Boolean(true),
                "false" => Self::Boolean(false),
                "null" => Self::Null,
                number => {
                    let written = numeric(number)?;
                    *expanded_bytes += written.len().saturating_sub(number.len());
                    if *expanded_bytes > EXPANDED_BYTES_MAX {
                        return Err(too_large());
                    }
                    Self::Number(written)
                }
            },
        })
    }

    /// An object of members in any order; the last of equal keys wins.
    pub(super) fn object(mut members: Vec<(Cow<'j, str>, Self)>) -> Self {
        let is_before = |one: &(Cow<str>, _), other: &(Cow<str>, _)| key_order(&one.0, &other.0).is_lt();
        if !members.windows(2).all(|pair| is_before(&pair[0], &pair[1])) {
            // The sort is stable: of equal keys, the last stays the last.
            members.sort_by(|one, other| key_order(&one.0, &other.0));
            members.reverse();
            members.dedup_by(|one, other| one.0 == other.0);
            members.reverse();
        }
        Self::Object(members)
    }

    pub(super) fn is_scalar(&self) -> bool {
        !matches!(self, Self::Array(_) | Self::Object(_))
    }

    /// The value of a key of an object.
    pub(super) fn member(&self, key: &str) -> Option<&Self> {
        let Self::Object(members) = self else { return None };
        let found = members.binary_search_by(|(known, _)| key_order(known, key)).ok()?;
        Some(&members[found].1)
    }

    pub(super) fn write(&self, into: &mut String) {
        match self {
            Self::Null => into.push_str("null"),
            Self::Boolean(true) => into.push_str("true"),
            Self::Boolean(false) => into.push_str("false"),
            Self::Number(number) => into.push_str(number),
            Self::String(text) => scan::quote(text, into),
            Self::Array(elements) => {
                into.push('[');
                for (at, element) in elements.iter().enumerate() {
                    into.push_str(if at == 0 { "" } else { ", " });
                    element.write(into);
                }
                into.push(']');
            }
            Self::Object(members) => {
                into.push('{');
                for (at, (key, value)) in members.iter().enumerate() {
                    into.push_str(if at == 0 { "" } else { ", " });
                    scan::quote(key, into);
                    into.push_str(": ");
                    value.write(into);
                }
                into.push('}');
            }
        }
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    /// Writes it on several lines, with four spaces for each level. `length_max`: fails beyond so many bytes.
    pub(super) fn write_pretty(&self, into: &mut String, level: usize, length_max: usize) -> Result<()> {
        if into.len() > length_max {
            return Err(too_large());
        }
        let line = |into: &mut String, level: usize| {
            into.push('\n');
            into.extend(std::iter::repeat_n(' ', 4 * level));
        };
        match self {
            Self::Array(elements) => {
                into.push('[');
                for (at, element) in elements.iter().enumerate() {
                    into.push_str(if at == 0 { "" } else { "," });
                    line(into, level + 1);
                    element.write_pretty(into, level + 1, length_max)?;
                }
                line(into, level);
                into.push(']');
            }
            Self::Object(members) => {
                into.push('{');
                for (at, (key, value)) in members.iter().enumerate() {
                    into.push_str(if at == 0 { "" } else { "," });
                    line(into, level + 1);
                    scan::quote(key, into);
                    into.push_str(": ");
                    value.write_pretty(into, level + 1, length_max)?;
                }
                line(into, level);
                into.push('}');
            }
            scalar => scalar.write(into),
        }
        Ok(())
    }
}

fn too_large() -> DataFusionError {
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "requested length too large").into_datafusion()
}

/// Order of object keys: shorter ones first.
pub(super) fn key_order(one: &str, other: &str) -> std::cmp::Ordering {
    (one.len(), one).cmp(&(other.len(), other))
}

/// A JSON number in the format of numeric: without exponent and without a sign of zero, and with trailing
/// zeros.
///
/// Errors: it has too many digits (22003).
pub(super) fn numeric(number: &str) -> Result<Cow<'_, str>> {
    let is_plain = !number.contains(['e', 'E']) && !number.starts_with('-');
    if is_plain && number.len() <= SCALE_MAX as usize {
        return Ok(Cow::Borrowed(number));
    }
    let overflow = || {
        SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")
            .into_datafusion()
    };
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        // It is a valid number, so a failed parse is an overflow of either sign.
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().map_err(|_| overflow())?),
        None => (number, 0),
    };
    let (is_negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => (true, mantissa),
        None => (false, mantissa),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) || exponent.abs() > 1_000_000 {
        return Err(if exponent.abs() > 1_000_000 { overflow() } else { invalid(None) });
    }
    let scale = (fraction.len() as i64 - exponent).max(0);
    let zeros = digits.len() - digits.trim_start_matches('0').len();
    // Position of the point, counted from the first digit.
    let point = whole.len() as i64 + exponent;
    let is_zero = zeros == digits.len();
    if scale > SCALE_MAX || !is_zero && point - zeros as i64 > WHOLE_DIGITS_MAX {
        return Err(overflow());
    }
    let mut written = String::new();
    if is_negative && !is_zero {
        written.push('-');
    }
    let digit = |at: i64| usize::try_from(at).ok().and_then(|at| digits.as_bytes().get(at)).copied();
    let first = (zeros as i64).min(point - 1);
    if is_zero || point <= first {
        written.push('0');
    } else {
        written.extend((first..point).map(|at| char::from(digit(at).unwrap_or(b'0'))));
    }
    if scale > 0 {
        written.push('.');
        written.extend((point..point + scale).map(|at| char::from(digit(at).unwrap_or(b'0'))));
    }
    Ok(Cow::Owned(written))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_one_form() {
        for (json, expected) in [
            (
                "{\"bb\":1,\"a\":[1,2 , {}],\"c\" : \"x,}\\\"\"}",
                "{\"a\": [1, 2, {}], \"c\": \"x,}\\\"\", \"bb\": 1}",
            ),
            ("{\"a\":1,\"b\":0,\"a\":2}", "{\"a\": 2, \"b\": 0}"),
            (" null ", "null"),
            ("[]", "[]"),
            ("\"\\u00e9\\/\"", "\"é/\""),
        ] {
            assert_eq!(Value::parse(json).unwrap().text(), expected);
        }
        let deep = "[".repeat(5000) + &"]".repeat(5000);
        assert!(Value::parse(&deep).is_err());
    }

    #[test]
    fn numbers_are_exact() {
        for (number, expected) in [
            ("1", "1"),
            ("1.50", "1.50"),
            ("1e2", "100"),
            ("1.5e1", "15"),
            ("1.50e1", "15.0"),
            ("1e-3", "0.001"),
            ("1.0e-3", "0.0010"),
            ("-0", "0"),
            ("-0.00", "0.00"),
            ("-12.5E+1", "-125"),
            ("0e5", "0"),
            ("0.00012e3", "0.12"),
            ("0.5e1", "5"),
            ("123456789012345678901234567890.5", "123456789012345678901234567890.5"),
        ] {
            assert_eq!(numeric(number).unwrap(), expected, "{number}");
        }
        assert_eq!(numeric("1e100000").unwrap().len(), 100_001);
        assert!(numeric("1e131072").is_err());
        assert!(numeric("1e-16384").is_err());
        assert!(numeric("1e99999999999999999999").is_err());
    }
}
