//! Human-readable sizes: `8GiB`, `512MB`. All units are powers of 1024, as in PostgreSQL, in every place that
//! takes a size.

use harrier_error::{SqlError, SqlState};

/// Below this not even one batch per operator fits; a smaller limit is a typo.
pub const MEMORY_BYTES_MIN: u64 = 1 << 20;

/// A data file is not to be smaller: each costs a request, and a look at its footer, of every scan.
pub const FILE_BYTES_MIN: u64 = 64 << 10;

/// Parses a memory size such as `8GiB`, `512MB`, `1.5g` or `1048576` into bytes.
pub fn parse_bytes(text: &str) -> Result<u64, SqlError> {
    let bytes = parse_size(text).ok_or_else(|| {
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("invalid memory size \"{text}\""))
            .with_hint("write a number and a unit, for example 8GiB or 512MB")
    })?;
    if bytes < MEMORY_BYTES_MIN {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("memory size \"{}\" is below the least of 1MiB", text.trim()),
        ));
    }
    Ok(bytes)
}

/// Parses the size at which a new data file begins, in the option `name` of a table.
///
/// Errors: it is no size, or one below [`FILE_BYTES_MIN`] (22023).
pub fn parse_file_bytes(name: &str, text: &str) -> Result<u64, SqlError> {
    parse_size(text).filter(|bytes| *bytes >= FILE_BYTES_MIN).ok_or_else(|| {
        SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("invalid value for option \"{name}\": \"{text}\""),
        )
        .with_hint("a number of bytes, or a number and a unit, such as 512MiB; the least is 64KiB")
    })
}

/// Parses a size of any value: bytes, or with a unit B, kB, MB, GB, TB, KiB, MiB, GiB, TiB, or its first
/// letter.
pub fn parse_size(text: &str) -> Option<u64> {
    parse_size_in(text, 1)
}

/// The same; a number without a unit counts in `unit` bytes.
pub fn parse_size_in(text: &str, unit: u64) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let unit: u64 = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" => unit,
        "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return None,
    };
    let count = &text[..digits];
    if count.contains('.') {
        let bytes = (count.parse::<f64>().ok()? * unit as f64).round();
        return (bytes < u64::MAX as f64).then_some(bytes as u64);
    }
    count.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_least_value() {
        for (text, expected) in [
            ("1MB", Some(1 << 20)),
            ("1048575", Some(1_048_575)),
            ("65536", Some(65536)),
            ("64KiB", Some(65536)),
        ] {
            assert_eq!(parse_file_bytes("x", text).ok(), expected, "{text}");
        }
        for text in ["65535", "63kB", "0", "", "many", "-1", "1e9"] {
            let error = parse_file_bytes("x", text).unwrap_err();
            assert!(error.hint.is_some_and(|hint| hint.contains("64KiB")), "{text}");
        }
        assert!(parse_bytes("1023kB").is_err() && parse_bytes("1MB").is_ok());
    }

    #[test]
    fn units_are_powers_of_1024() {
        for (text, expected) in [
            ("512MB", Some(512 << 20)),
            ("512MiB", Some(512 << 20)),
            ("8g", Some(8 << 30)),
            (" 1.5 GB ", Some(3 << 29)),
            ("2tib", Some(2 << 40)),
            ("10", Some(10)),
            ("0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("16777216TB", None),
            ("1..5GB", None),
            ("1XB", None),
            ("-1MB", None),
            (".", None),
            ("", None),
        ] {
            assert_eq!(parse_size(text), expected, "{text:?}");
        }
        assert_eq!(parse_size_in("3", 1 << 10), Some(3 << 10));
    }
}
