//! Input of BYTEA as in PostgreSQL: `\x` and hexadecimal digits, or the bytes themselves with `\\` for a
//! backslash and `\nnn`, in octal, for any other one. The planner's cast takes the raw bytes of the text.
//! Ranks know the function by its name.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BinaryArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use harrier_error::{SqlError, SqlState};

/// Parses a text as bytes.
///
/// Errors: invalid input (22P02; 22023 after `\x`).
pub fn bytes_of(text: &str) -> Result<Vec<u8>, SqlError> {
    match text.strip_prefix("\\x") {
        Some(digits) => of_digits(digits).ok_or_else(|| {
            let message = format!("invalid hexadecimal data: \"{text}\"");
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
        }),
        None => of_escapes(text).ok_or_else(|| {
            let message = format!("invalid input syntax for type bytea: \"{text}\"");
            SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
        }),
    }
}

/// Parses hexadecimal pairs, optionally separated by blanks.
pub(crate) fn of_digits(digits: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(digits.len() / 2);
    let mut signs = digits.chars().filter(|sign| !sign.is_ascii_whitespace());
    while let Some(high) = signs.next() {
        let (high, low) = (high.to_digit(16)?, signs.next()?.to_digit(16)?);
        bytes.push((high << 4 | low) as u8);
    }
    Some(bytes)
}

/// Parses the escape format: `\\` and `\nnn` are bytes, and so is everything without a backslash.
pub(crate) fn of_escapes(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        bytes.push(match (first, behind) {
            (b'\\', [b'\\', behind @ ..]) => {
                rest = behind;
                b'\\'
            }
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', behind @ ..]) => {
                rest = behind;
                (a - b'0') << 6 | (b - b'0') << 3 | (c - b'0')
            }
            (b'\\', _) => return None,
            (other, _) => *other,
        });
    }
    Some(bytes)
}

/// (text) → the bytes.
pub fn function() -> Arc<ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Reading { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Reading {
    signature: Signature,
}

impl ScalarUDFImpl for Reading {
    fn name(&self) -> &str {
        "harrier_bytes_of_text"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [text] if text.is_string() => Ok(DataType::Binary),
            _ => plan_err!("{} does not take {arguments:?}", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.as_slice() {
            [ColumnarValue::Scalar(text)] => {
                let bytes = read(&text.to_array()?)?;
                ScalarValue::try_from_array(&bytes, 0).map(ColumnarValue::Scalar)
            }
            [ColumnarValue::Array(texts)] => read(texts).map(ColumnarValue::Array),
            _ => internal_err!("{} has one argument", self.name()),
        }
    }

    #[allow(deprecated, reason = "plans are shown by it")]
    fn display_name(&self, arguments: &[Expr]) -> Result<String> {
        Ok(arguments.iter().map(ToString::to_string).collect())
    }

    /// Part of a cast, which has no name.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        Ok(arguments.iter().map(|argument| argument.schema_name().to_string()).collect())
    }
}

fn read(texts: &ArrayRef) -> Result<ArrayRef> {
    let texts = cast(texts, &DataType::Utf8View)?;
    let bytes = texts.as_string_view().iter().map(|text| text.map(bytes_of).transpose());
    Ok(Arc::new(bytes.collect::<Result<BinaryArray, SqlError>>().map_err(harrier_sqlstate::external)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_postgresql_does() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("abc", b"abc"),
            ("\u{e9}", b"\xc3\xa9"),
            ("\\x", b""),
            ("\\x00Ff 61\n62", b"\x00\xffab"),
            ("a\\\\b\\000\\377", b"a\\b\x00\xff"),
        ] {
            assert_eq!(bytes_of(text).unwrap(), bytes, "{text}");
        }
        for (wrong, state) in [
            ("\\x0", SqlState::INVALID_PARAMETER_VALUE),
            ("\\xg0", SqlState::INVALID_PARAMETER_VALUE),
            ("\\", SqlState::INVALID_TEXT_REPRESENTATION),
            ("\\400", SqlState::INVALID_TEXT_REPRESENTATION),
            ("a\\x61", SqlState::INVALID_TEXT_REPRESENTATION),
            ("\\07", SqlState::INVALID_TEXT_REPRESENTATION),
        ] {
            assert_eq!(bytes_of(wrong).unwrap_err().sqlstate, state, "{wrong}");
        }
    }
}
