//! Human-readable sizes: `8GiB`, `512MB`.

use harrier_error::{SqlError, SqlState};

/// Below this not even one batch per operator fits; a smaller limit is a typo.
pub const MEMORY_BYTES_MIN: u64 = 1 << 20;

/// A data file is not to be smaller: each costs a request, and a look at its footer, of every scan.
pub const FILE_BYTES_MIN: u64 = 64 << 10;

/// Parses a memory size such as `8GiB`, `512MB`, `1.5g` or `1048576` into bytes. Units with an `i` and single
/// letters are powers of 1024, units ending in `B` without an `i` powers of 1000.
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

/// Parses a size of any value, in the same units.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().ok()?;
    let scale: f64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024.0 * 1024.0,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "t" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let bytes = number * scale;
    (bytes.is_finite() && bytes < u64::MAX as f64).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_least_value() {
        for (text, expected) in [
            ("1MB", Some(1_000_000)),
            ("1048575", Some(1_048_575)),
            ("65536", Some(65536)),
            ("64KiB", Some(65536)),
        ] {
            assert_eq!(parse_file_bytes("x", text).ok(), expected, "{text}");
        }
        for text in ["65535", "4kB", "0", "", "many", "-1", "1e9"] {
            let error = parse_file_bytes("x", text).unwrap_err();
            assert!(error.hint.is_some_and(|hint| hint.contains("64KiB")), "{text}");
        }
        assert!(parse_bytes("1MB").is_err() && parse_bytes("1MiB").is_ok());
    }
}
