//! Bits and bytes of byte strings, and texts in an encoding.

use datafusion::common::{Result, ScalarValue};

use super::{Bytes, Definition, Int, Text, bytes, int, text};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition::new("get_byte", &[Bytes, Int], Int, |values| {
        let at = place(int(&values[1]), bytes(&values[0]).len())?;
        Ok(ScalarValue::from(i64::from(bytes(&values[0])[at])))
    }),
    Definition::new("set_byte", &[Bytes, Int, Int], Bytes, |values| {
        let at = place(int(&values[1]), bytes(&values[0]).len())?;
        let mut changed = bytes(&values[0]).to_vec();
        changed[at] = int(&values[2]) as u8;
        Ok(ScalarValue::Binary(Some(changed)))
    }),
    Definition::new("get_bit", &[Bytes, Int], Int, |values| {
        let at = place(int(&values[1]), bytes(&values[0]).len() * 8)?;
        Ok(ScalarValue::from(i64::from(bytes(&values[0])[at / 8] >> (at % 8) & 1)))
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
    Definition::new("convert_from", &[Bytes, Text], Text, |values| {
        check_encoding(text(&values[1]))?;
        match std::str::from_utf8(bytes(&values[0])) {
            Ok(text) => Ok(ScalarValue::from(text)),
            Err(_) => Err(SqlError::new(
                SqlState::CHARACTER_NOT_IN_REPERTOIRE,
                "invalid byte sequence for encoding \"UTF8\"",
            )
            .into_datafusion()),
        }
    }),
    Definition::new("convert_to", &[Text, Text], Bytes, |values| {
        check_encoding(text(&values[1]))?;
        Ok(ScalarValue::Binary(Some(text(&values[0]).as_bytes().to_vec())))
    }),
];

/// Errors: there are not so many (2202E).
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

/// Errors: it is another one than UTF-8 (0A000).
fn check_encoding(name: &str) -> Result<()> {
    match name.replace(['-', '_'], "").to_ascii_lowercase().as_str() {
        "utf8" | "unicode" | "sqlascii" => Ok(()),
        _ => {
            let message = format!("encoding \"{name}\" is not supported: texts are UTF-8");
            Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion())
        }
    }
}
