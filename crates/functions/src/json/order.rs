//! Sort keys of `jsonb`: bytes that compare as its values do. Equal values have equal bytes, so they also
//! serve as group and join keys.
//!
//! The order is PostgreSQL's: null, strings, numbers, booleans, arrays, objects; arrays and objects by their
//! number of parts, then part by part, and an empty top-level array before all non-arrays.

use datafusion::common::Result;

use super::value::Value;

/// The key of a value.
pub(super) fn key(text: &str) -> Result<Vec<u8>> {
    let value = Value::of_checked(text)?;
    let mut key = Vec::with_capacity(text.len() + 8);
    match &value {
        // PostgreSQL treats a top-level scalar as an array of one, ordered before actual arrays.
        scalar if scalar.is_scalar() => {
            begin_array(1, 0, &mut key);
            write(scalar, &mut key);
        }
        other => write(other, &mut key),
    }
    Ok(key)
}

fn begin_array(length: usize, is_written: u8, key: &mut Vec<u8>) {
    key.push(0x10);
    key.extend((length as u32).to_be_bytes());
    key.push(is_written);
}

fn write(value: &Value<'_>, key: &mut Vec<u8>) {
    match value {
        Value::Null => key.push(0),
        Value::String(text) => {
            key.push(1);
            write_text(text, key);
        }
        Value::Number(number) => {
            key.push(2);
            write_number(number, key);
        }
        Value::Boolean(value) => key.extend([3, u8::from(*value)]),
        Value::Array(elements) => {
            begin_array(elements.len(), 1, key);
            elements.iter().for_each(|element| write(element, key));
        }
        Value::Object(members) => {
            key.push(0x11);
            key.extend((members.len() as u32).to_be_bytes());
            for (name, value) in members {
                write_text(name, key);
                write(value, key);
            }
        }
    }
}

/// No text of `jsonb` contains NUL.
fn write_text(text: &str, key: &mut Vec<u8>) {
    key.extend(text.as_bytes());
    key.push(0);
}

/// Sign, exponent and digits, complemented for negative numbers.
fn write_number(number: &str, key: &mut Vec<u8>) {
    let (is_negative, plain) = match number.strip_prefix('-') {
        Some(plain) => (true, plain),
        None => (false, number),
    };
    let (whole, fraction) = plain.split_once('.').unwrap_or((plain, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    let zeros = digits.len() - significant.len();
    let significant = significant.trim_end_matches('0');
    if significant.is_empty() {
        return key.push(1);
    }
    let exponent = whole.len() as i32 - zeros as i32;
    let start = key.len();
    key.push(2);
    key.extend(((exponent as u32) ^ 0x8000_0000).to_be_bytes());
    key.extend(significant.as_bytes());
    key.push(0);
    if is_negative {
        key[start] = 0;
        key[start + 1..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_postgresqls_order() {
        let ordered = [
            "[]",
            "null",
            "\"\"",
            "\"a\"",
            "\"ab\"",
            "-100",
            "-2.5",
            "-2",
            "-0.5",
            "0",
            "0.05",
            "0.5",
            "2",
            "10",
            "false",
            "true",
            "[null]",
            "[1]",
            "[2]",
            "[[]]",
            "[1, 2]",
            "{}",
            "{\"a\": 1}",
            "{\"a\": 2}",
            "{\"b\": 1}",
            "{\"a\": 1, \"b\": 1}",
        ];
        let keys = ordered.map(|text| key(text).unwrap());
        for pair in keys.windows(2).zip(ordered.windows(2)) {
            assert!(pair.0[0] < pair.0[1], "{:?}", pair.1);
        }
        assert_eq!(key("[1.0, {\"a\": 0.50}]").unwrap(), key("[1, {\"a\": 0.5}]").unwrap());
        assert_eq!(key("0.00").unwrap(), key("0").unwrap());
    }
}
