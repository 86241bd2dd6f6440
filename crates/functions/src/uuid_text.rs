//! UUIDs: texts in PostgreSQL's canonical form in plans, which sort like the bytes; sixteen bytes in data
//! files.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, FixedSizeBinaryBuilder, StringViewBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use uuid::Uuid;

use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// Bytes of a UUID in a file.
pub const WIDTH: i32 = 16;
/// Type in files. No column of a table has this type otherwise.
pub const STORED: DataType = DataType::FixedSizeBinary(WIDTH);
/// Type in plans.
pub const SHOWN: DataType = DataType::Utf8View;

/// Parses a UUID, in upper or lower case, with a hyphen after any group of four digits, in braces or not.
///
/// Errors: invalid UUID (22P02).
pub fn of_text(text: &str) -> Result<[u8; 16]> {
    parse(text).ok_or_else(|| {
        let message = format!("invalid input syntax for type uuid: \"{text}\"");
        SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message).into_datafusion()
    })
}

fn parse(text: &str) -> Option<[u8; 16]> {
    let digits = match text.strip_prefix('{') {
        Some(rest) => rest.strip_suffix('}')?,
        None => text,
    };
    let mut rest = digits.as_bytes();
    let mut bytes = [0; 16];
    for (at, byte) in bytes.iter_mut().enumerate() {
        let (pair, behind) = rest.split_at_checked(2)?;
        let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        rest = behind;
        if at % 2 == 1 && at < 15 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
    }
    rest.is_empty().then_some(bytes)
}

/// PostgreSQL's canonical form.
pub fn text_of(bytes: &[u8]) -> String {
    Uuid::from_slice(bytes).unwrap_or_default().to_string()
}

/// A UUID in PostgreSQL's canonical form.
///
/// Errors: as [`of_text`].
pub fn normal(text: &str) -> Result<String> {
    Ok(text_of(&of_text(text)?))
}

/// Converts texts to bytes for a file.
///
/// Errors: as [`of_text`].
pub fn to_bytes(texts: &ArrayRef) -> Result<ArrayRef> {
    let texts = cast(texts, &DataType::Utf8View)?;
    let mut made = FixedSizeBinaryBuilder::with_capacity(texts.len(), WIDTH);
    for text in texts.as_string_view() {
        match text {
            Some(text) => made.append_value(of_text(text)?)?,
            None => made.append_null(),
        }
    }
    Ok(Arc::new(made.finish()))
}

/// Converts bytes of a file to texts.
pub fn to_texts(values: &ArrayRef) -> ArrayRef {
    let values = values.as_fixed_size_binary();
    let mut texts = StringViewBuilder::with_capacity(values.len());
    for value in values {
        match value {
            Some(bytes) => texts.append_value(text_of(bytes)),
            None => texts.append_null(),
        }
    }
    Arc::new(texts.finish())
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::StringArray;

    use super::*;

    #[test]
    fn all_forms_of_postgresql_are_read() {
        let expected = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        for text in [
            expected,
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
            "a0eebc999c0b4ef8bb6d6bb9bd380a11",
            "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
            "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
        ] {
            assert_eq!(text_of(&of_text(text).unwrap()), expected, "{text}");
        }
        for text in [
            "",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a112",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11-",
            "a0e-ebc999c0b4ef8bb6d6bb9bd380a11",
            "a0eebc99--9c0b4ef8bb6d6bb9bd380a11",
            " a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "ä0eebc999c0b4ef8bb6d6bb9bd380a1",
        ] {
            let error = of_text(text).unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error), SqlState::INVALID_TEXT_REPRESENTATION, "{text}");
        }
    }

    #[test]
    fn texts_are_bytes_in_files() {
        let id = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        let texts = Arc::new(StringArray::from(vec![Some(id), None])) as ArrayRef;
        let stored = to_bytes(&texts).unwrap();
        assert_eq!(stored.data_type(), &STORED);
        let texts = to_texts(&stored);
        assert_eq!(texts.as_string_view().iter().collect::<Vec<_>>(), [Some(id), None]);
        assert!(to_bytes(&(Arc::new(StringArray::from(vec!["x"])) as ArrayRef)).is_err());
    }
}
