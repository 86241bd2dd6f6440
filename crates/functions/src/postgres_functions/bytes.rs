//! Bits, bytes and substrings of byte strings, and text encodings.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use datafusion::common::{DataFusionError, Result, ScalarValue};

use super::{Bool, Bytes, Definition, Int, Int4, Text, bytes, int, text};
use crate::parse::bytea::{of_digits, of_escapes};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// LIKE of bytes: (bytes, pattern, escape) or (bytes, pattern).
pub(super) const LIKE: &str = "harrier_bytes_like";

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition::new("get_byte", &[Bytes, Int], Int4, |values| {
        let at = place(int(&values[1]), bytes(&values[0]).len())?;
        Ok(ScalarValue::from(i32::from(bytes(&values[0])[at])))
    }),
    Definition::new("set_byte", &[Bytes, Int, Int], Bytes, |values| {
        let at = place(int(&values[1]), bytes(&values[0]).len())?;
        let mut changed = bytes(&values[0]).to_vec();
        changed[at] = int(&values[2]) as u8;
        Ok(ScalarValue::Binary(Some(changed)))
    }),
    Definition::new("get_bit", &[Bytes, Int], Int4, |values| {
        let at = place(int(&values[1]), bytes(&values[0]).len() * 8)?;
        Ok(ScalarValue::from(i32::from(bytes(&values[0])[at / 8] >> (at % 8) & 1)))
    }),
    Definition::new("set_bit", &[Bytes, Int, Int], Bytes, |values| {
        let at = place(int(&values[1]), bytes(&values[0]).len() * 8)?;
        let mut changed = bytes(&values[0]).to_vec();
        match int(&values[2]) {
            0 => changed[at / 8] &= !(1 << (at % 8)),
            1 => changed[at / 8] |= 1 << (at % 8),
            _ => {
                return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "new bit must be 0 or 1")
                    .into_datafusion());
            }
        }
        Ok(ScalarValue::Binary(Some(changed)))
    }),
    Definition::new("bit_count", &[Bytes], Int, |values| {
        Ok(ScalarValue::from(bytes(&values[0]).iter().map(|byte| i64::from(byte.count_ones())).sum::<i64>()))
    }),
    Definition::new(LIKE, &[Bytes, Bytes, Text], Bool, |values| {
        let escape = values.get(2).map_or(r"\", text).bytes().next();
        is_like(bytes(&values[0]), bytes(&values[1]), escape).map(ScalarValue::from)
    })
    .from(2),
    Definition::new("convert_from", &[Bytes, Text], Text, |values| {
        Charset::by_name(text(&values[1]))?.decode(bytes(&values[0])).map(ScalarValue::from)
    }),
    Definition::new("convert_to", &[Text, Text], Bytes, |values| {
        Ok(ScalarValue::Binary(Some(Charset::by_name(text(&values[1]))?.encode(text(&values[0]))?)))
    }),
    Definition::new("convert", &[Bytes, Text, Text], Bytes, |values| {
        let text_of = Charset::by_name(text(&values[1]))?.decode(bytes(&values[0]))?;
        Ok(ScalarValue::Binary(Some(Charset::by_name(text(&values[2]))?.encode(&text_of)?)))
    }),
];

/// Byte versions of text functions.
pub(super) const OF_TEXTS_TOO: &[Definition] = &[
    Definition::new("substr", &[Bytes, Int, Int], Bytes, |values| {
        part(bytes(&values[0]), int(&values[1]), values.get(2).map(int))
    })
    .from(2),
    Definition::new("overlay", &[Bytes, Bytes, Int, Int], Bytes, overlay).from(3),
    Definition::new("btrim", &[Bytes, Bytes], Bytes, |values| trim(values, true, true)),
    Definition::new("ltrim", &[Bytes, Bytes], Bytes, |values| trim(values, true, false)),
    Definition::new("rtrim", &[Bytes, Bytes], Bytes, |values| trim(values, false, true)),
    Definition::new("strpos", &[Bytes, Bytes], Int4, |values| {
        let (all, sought) = (bytes(&values[0]), bytes(&values[1]));
        let found = match sought.is_empty() {
            true => Some(0),
            false => all.windows(sought.len()).position(|part| part == sought),
        };
        Ok(ScalarValue::from(found.map_or(0_i32, |at| at as i32 + 1)))
    }),
    Definition::new("encode", &[Bytes, Text], Text, |values| {
        encode(bytes(&values[0]), text(&values[1])).map(ScalarValue::from)
    }),
    Definition::new("decode", &[Text, Text], Bytes, |values| {
        Ok(ScalarValue::Binary(Some(decode(text(&values[0]), text(&values[1]))?)))
    }),
];

/// Errors: a negative length (22011).
fn part(all: &[u8], from: i64, length: Option<i64>) -> Result<ScalarValue> {
    let end = match length {
        Some(length @ ..0) => {
            let message = format!("negative substring length not allowed: {length}");
            return Err(SqlError::new(SqlState::SUBSTRING_ERROR, message).into_datafusion());
        }
        Some(length) => from.saturating_add(length),
        None => i64::MAX,
    };
    Ok(ScalarValue::Binary(Some(all[offset(from, all)..offset(end, all)].to_vec())))
}

/// Offset of the byte with this number, from 1, clamped to the length.
fn offset(number: i64, all: &[u8]) -> usize {
    usize::try_from(number.saturating_sub(1)).unwrap_or(0).min(all.len())
}

/// Errors: it begins before the first byte (22011).
fn overlay(values: &[ScalarValue]) -> Result<ScalarValue> {
    let (all, new, from) = (bytes(&values[0]), bytes(&values[1]), int(&values[2]));
    if from <= 0 {
        let message = "negative substring length not allowed";
        return Err(SqlError::new(SqlState::SUBSTRING_ERROR, message).into_datafusion());
    }
    let end = from.saturating_add(values.get(3).map_or(new.len() as i64, int));
    let parts = [&all[..offset(from, all)], new, &all[offset(end, all)..]];
    Ok(ScalarValue::Binary(Some(parts.concat())))
}

fn trim(values: &[ScalarValue], at_start: bool, at_end: bool) -> Result<ScalarValue> {
    let (mut left, set) = (bytes(&values[0]), bytes(&values[1]));
    while let [first, rest @ ..] = left
        && at_start
        && set.contains(first)
    {
        left = rest;
    }
    while let [rest @ .., last] = left
        && at_end
        && set.contains(last)
    {
        left = rest;
    }
    Ok(ScalarValue::Binary(Some(left.to_vec())))
}

/// Whether bytes match a pattern. Only the last `%` is retried with more bytes: it can match whatever an
/// earlier one would.
///
/// Errors: the pattern ends with its escape (22025).
fn is_like(all: &[u8], pattern: &[u8], escape: Option<u8>) -> Result<bool> {
    let dangling = || {
        let message = "LIKE pattern must not end with escape character";
        SqlError::new(SqlState::INVALID_ESCAPE_SEQUENCE, message).into_datafusion()
    };
    let (mut at, mut sign) = (0, 0);
    // Position after the last `%`, and the end of its match.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let is_escaped = escape.is_some() && pattern.get(sign).copied() == escape;
        let wanted = match is_escaped {
            true => Some(*pattern.get(sign + 1).ok_or_else(dangling)?),
            false => pattern.get(sign).copied(),
        };
        match (wanted, all.get(at)) {
            (None, None) => return Ok(true),
            (Some(b'%'), _) if !is_escaped => {
                sign += 1;
                retry = Some((sign, at));
            }
            (Some(wanted), Some(byte)) if wanted == *byte || wanted == b'_' && !is_escaped => {
                at += 1;
                sign += 1 + usize::from(is_escaped);
            }
            _ => match &mut retry {
                Some((behind, end)) if *end < all.len() => {
                    *end += 1;
                    (at, sign) = (*end, *behind);
                }
                _ => return Ok(false),
            },
        }
    }
}

/// Text encoding of bytes.
enum Encoding {
    Hex,
    Base64,
    Escape,
}

impl Encoding {
    /// Errors: unknown name (22023).
    fn by_name(name: &str) -> Result<Self> {
        match name.to_ascii_lowercase().as_str() {
            "hex" => Ok(Self::Hex),
            "base64" => Ok(Self::Base64),
            "escape" => Ok(Self::Escape),
            _ => Err(wrong(&format!("unrecognized encoding: \"{name}\""))),
        }
    }
}

fn wrong(message: &str) -> DataFusionError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into_datafusion()
}

/// Unused bits of the last byte are ignored.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// Characters of a line of base64.
const BASE64_LINE: usize = 76;

fn encode(bytes: &[u8], encoding: &str) -> Result<String> {
    let mut text = String::with_capacity(2 * bytes.len());
    match Encoding::by_name(encoding)? {
        Encoding::Hex => bytes.iter().for_each(|byte| text.push_str(&format!("{byte:02x}"))),
        Encoding::Base64 => {
            let all = BASE64.encode(bytes);
            for (at, sign) in all.chars().enumerate() {
                if at > 0 && at.is_multiple_of(BASE64_LINE) {
                    text.push('\n');
                }
                text.push(sign);
            }
        }
        Encoding::Escape => {
            for byte in bytes {
                match byte {
                    b'\\' => text.push_str(r"\\"),
                    0 | 0x80.. => text.push_str(&format!("\\{byte:03o}")),
                    _ => text.push(char::from(*byte)),
                }
            }
        }
    }
    Ok(text)
}

/// Errors: the text is invalid in this encoding (22023, 22P02), or the name is unknown (22023).
fn decode(text: &str, encoding: &str) -> Result<Vec<u8>> {
    let digits = |text: &str| text.chars().filter(|sign| !sign.is_ascii_whitespace()).collect::<String>();
    match Encoding::by_name(encoding)? {
        Encoding::Hex => of_digits(text).ok_or_else(|| wrong("invalid hexadecimal data")),
        Encoding::Base64 => BASE64.decode(digits(text)).map_err(|_| wrong("invalid base64 end sequence")),
        Encoding::Escape => of_escapes(text).ok_or_else(|| {
            let message = "invalid input syntax for type bytea";
            SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message).into_datafusion()
        }),
    }
}

/// Errors: out of range (2202E).
fn place(at: i64, length: usize) -> Result<usize> {
    match usize::try_from(at).ok().filter(|at| *at < length) {
        Some(at) => Ok(at),
        None => {
            let last = length as i64 - 1;
            let message = format!("index {at} out of valid range, 0..{last}");
            Err(SqlError::new(SqlState::ARRAY_ELEMENT_ERROR, message).into_datafusion())
        }
    }
}

/// Character encoding.
enum Charset {
    Utf8,
    /// ISO 8859-1.
    Latin1,
}

impl Charset {
    /// Errors: not supported (0A000).
    fn by_name(name: &str) -> Result<Self> {
        match name.replace(['-', '_'], "").to_ascii_lowercase().as_str() {
            "utf8" | "unicode" | "sqlascii" => Ok(Self::Utf8),
            "latin1" | "iso88591" => Ok(Self::Latin1),
            _ => {
                let message = format!("encoding \"{name}\" is not supported");
                Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion())
            }
        }
    }

    /// Errors: invalid bytes, or NUL (22021).
    fn decode(&self, bytes: &[u8]) -> Result<String> {
        let text = match self {
            Self::Utf8 => std::str::from_utf8(bytes).ok().map(str::to_string),
            Self::Latin1 => Some(bytes.iter().map(|byte| char::from(*byte)).collect()),
        };
        text.filter(|text| !text.contains('\0')).ok_or_else(|| {
            let name = if matches!(self, Self::Utf8) { "UTF8" } else { "LATIN1" };
            let message = format!("invalid byte sequence for encoding \"{name}\"");
            SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message).into_datafusion()
        })
    }

    /// Errors: a character cannot be encoded (22P05).
    fn encode(&self, text: &str) -> Result<Vec<u8>> {
        match self {
            Self::Utf8 => Ok(text.as_bytes().to_vec()),
            Self::Latin1 => text.chars().map(u8::try_from).collect::<Result<_, _>>().map_err(|_| {
                let message =
                    "character with byte sequence in encoding \"UTF8\" has no equivalent in encoding \"LATIN1\"";
                SqlError::new(SqlState::UNTRANSLATABLE_CHARACTER, message).into_datafusion()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_bytes() {
        let like = |all: &str, pattern: &str| is_like(all.as_bytes(), pattern.as_bytes(), Some(b'\\'));
        for (all, pattern, expected) in [
            ("", "", true),
            ("", "%", true),
            ("", "_", false),
            ("abc", "a%c", true),
            ("abcbc", "%bc", true),
            ("abcb", "%bc", false),
            ("abc", "_b_", true),
            ("abc", "a%b%d", false),
            ("a%c", r"a\%c", true),
            ("abc", r"a\%c", false),
            (r"a\", r"a\\", true),
            ("aXbXc", "a%X%c", true),
        ] {
            assert_eq!(like(all, pattern).unwrap(), expected, "{all} {pattern}");
        }
        assert!(like("a", r"a\").is_err());
        assert!(is_like(b"\\", b"\\", None).unwrap());
    }

    #[test]
    fn byte_slices_are_clipped() {
        let of = |from, length| part(b"abcde", from, length).map_err(|error| error.to_string());
        let bytes = |text: &str| ScalarValue::Binary(Some(text.as_bytes().to_vec()));
        for (from, length, expected) in [
            (2, Some(2), "bc"),
            (0, Some(2), "a"),
            (-2, Some(3), ""),
            (4, None, "de"),
            (9, Some(1), ""),
            (2, Some(i64::MAX), "bcde"),
            (i64::MIN, None, "abcde"),
        ] {
            assert_eq!(of(from, length).unwrap(), bytes(expected), "{from} {length:?}");
        }
        assert!(of(1, Some(-1)).is_err());
    }
}
