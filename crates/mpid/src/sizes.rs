//! Byte sizes in human-readable form, as `harrier --memory` parses them.

/// Parses a size such as `8GiB`, `512MB`, `1.5g` or `1048576`. All units are powers of 1024; fractions of a
/// byte are truncated. `None`: invalid.
pub fn bytes_of(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return None,
    };
    if !number.contains('.') {
        return number.parse::<u64>().ok()?.checked_mul(scale);
    }
    let bytes = number.parse::<f64>().ok()? * scale as f64;
    (bytes < u64::MAX as f64).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let cases: &[(&str, Option<u64>)] = &[
            ("8GiB", Some(8 << 30)),
            ("8gib", Some(8 << 30)),
            (" 8 GiB ", Some(8 << 30)),
            ("8g", Some(8 << 30)),
            ("512MB", Some(512 << 20)),
            ("1.5GiB", Some(3 << 29)),
            ("0.5k", Some(512)),
            (".5MiB", Some(1 << 19)),
            ("1024", Some(1024)),
            ("10b", Some(10)),
            ("0", Some(0)),
            ("2TiB", Some(2 << 40)),
            ("3kb", Some(3 << 10)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("16777216TiB", None),
            ("99999999999.9TiB", None),
            ("", None),
            (".", None),
            ("GiB", None),
            ("-1GiB", None),
            ("8GiBs", None),
            ("1..5GiB", None),
            ("1e3", None),
            ("NaN", None),
        ];
        for (text, expected) in cases {
            assert_eq!(bytes_of(text), *expected, "{text:?}");
        }
    }
}
