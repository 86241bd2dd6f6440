//! Human-readable sizes: `8GiB`, `512MB`.

use harrier_error::{SqlError, SqlState};

/// Below this not even one batch per operator fits; a smaller limit is a typo.
pub const MEMORY_BYTES_MIN: u64 = 1 << 20;

/// Parses a size such as `8GiB`, `512MB`, `1.5g` or `1048576` into bytes. Units with an `i` and single
/// letters are powers of 1024, units ending in `B` without an `i` powers of 1000.
pub fn parse_bytes(text: &str) -> Result<u64, SqlError> {
    let invalid = || {
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("invalid memory size \"{text}\""))
            .with_hint("write a number and a unit, for example 8GiB or 512MB")
    };
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().map_err(|_| invalid())?;
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
        _ => return Err(invalid()),
    };
    let bytes = number * scale;
    if !bytes.is_finite() || bytes >= u64::MAX as f64 {
        return Err(invalid());
    }
    let bytes = bytes as u64;
    if bytes < MEMORY_BYTES_MIN {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("memory size \"{text}\" is below the least of 1MiB"),
        ));
    }
    Ok(bytes)
}
