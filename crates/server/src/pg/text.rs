//! PostgreSQL's text format for dates, times, numbers and intervals, and the parts shared with binary.

use bytes::{BufMut, BytesMut};

/// Days from 1970-01-01 to 2000-01-01, PostgreSQL's epoch.
pub(crate) const EPOCH_DAYS: i32 = 10_957;

/// The same in microseconds.
pub(crate) const EPOCH_US: i64 = EPOCH_DAYS as i64 * DAY_US;

pub(crate) const DAY_US: i64 = 86_400_000_000;

/// Writes a number with at least `width` digits.
fn digits(out: &mut BytesMut, value: u64, width: usize) {
    let mut buffer = [b'0'; 20];
    let mut at = buffer.len();
    let mut rest = value;
    while rest > 0 || buffer.len() - at < width {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.put_slice(&buffer[at..]);
}

pub(crate) fn integer(out: &mut BytesMut, value: i64) {
    if value < 0 {
        out.put_u8(b'-');
    }
    digits(out, value.unsigned_abs(), 1);
}

pub(crate) fn unsigned_integer(out: &mut BytesMut, value: u64) {
    digits(out, value, 1);
}

/// Converts days from 1970-01-01 to year, month and day, in the proleptic Gregorian calendar.
///
/// Source: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms".
fn civil_date(days: i64) -> (i64, u64, u64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month as u64, day as u64)
}

/// Writes a date without the suffix `BC`, and returns whether it needs one.
fn day(out: &mut BytesMut, days: i64) -> bool {
    let (year, month, day) = civil_date(days);
    let is_before = year <= 0;
    digits(out, if is_before { 1 - year } else { year }.unsigned_abs(), 4);
    out.put_u8(b'-');
    digits(out, month, 2);
    out.put_u8(b'-');
    digits(out, day, 2);
    is_before
}

/// Writes a date; `days` from 1970-01-01.
pub(crate) fn date(out: &mut BytesMut, days: i64) {
    if days.abs() == i64::from(i32::MAX) {
        return infinite(out, days);
    }
    if day(out, days) {
        out.put_slice(b" BC");
    }
}

/// Writes `infinity` or `-infinity`, which DuckDB's dates and timestamps have, too.
fn infinite(out: &mut BytesMut, count: i64) {
    out.put_slice(if count < 0 { b"-infinity" } else { b"infinity" });
}

/// Writes a time of day, in microseconds.
pub(crate) fn time(out: &mut BytesMut, us: i64) {
    let seconds = us.div_euclid(1_000_000).unsigned_abs();
    digits(out, seconds / 3600, 2);
    out.put_u8(b':');
    digits(out, seconds / 60 % 60, 2);
    out.put_u8(b':');
    digits(out, seconds % 60, 2);
    fraction(out, us.rem_euclid(1_000_000).unsigned_abs());
}

/// Writes fractional seconds from microseconds, without trailing zeros.
fn fraction(out: &mut BytesMut, us: u64) {
    if us == 0 {
        return;
    }
    out.put_u8(b'.');
    let (mut rest, mut width) = (us, 6);
    while rest % 10 == 0 {
        rest /= 10;
        width -= 1;
    }
    digits(out, rest, width);
}

/// Writes a timestamp, in microseconds from 1970-01-01 00:00; with `offset` in seconds east of Greenwich, one
/// with time zone.
pub(crate) fn timestamp(out: &mut BytesMut, us: i64, offset: Option<i32>) {
    if us.checked_abs().is_none_or(|us| us == i64::MAX) {
        return infinite(out, us);
    }
    let local = us.saturating_add(i64::from(offset.unwrap_or(0)) * 1_000_000);
    let is_before = day(out, local.div_euclid(DAY_US));
    out.put_u8(b' ');
    time(out, local.rem_euclid(DAY_US));
    if let Some(offset) = offset {
        out.put_u8(if offset < 0 { b'-' } else { b'+' });
        let offset = u64::from(offset.unsigned_abs());
        digits(out, offset / 3600, 2);
        if offset % 3600 != 0 {
            out.put_u8(b':');
            digits(out, offset / 60 % 60, 2);
        }
        if offset % 60 != 0 {
            out.put_u8(b':');
            digits(out, offset % 60, 2);
        }
    }
    if is_before {
        out.put_slice(b" BC");
    }
}

/// Writes an interval in the style `postgres`: `1 year 2 mons -3 days +04:05:06.7`.
pub(crate) fn interval(out: &mut BytesMut, months: i32, days: i32, us: i64) {
    let begin = out.len();
    // After a negative field, positive ones get a sign.
    let mut is_negative = false;
    let units = [(months / 12, "year", "years"), (months % 12, "mon", "mons"), (days, "day", "days")];
    for (value, one, many) in units {
        if value == 0 {
            continue;
        }
        if out.len() > begin {
            out.put_u8(b' ');
        }
        if is_negative && value > 0 {
            out.put_u8(b'+');
        }
        integer(out, value.into());
        out.put_u8(b' ');
        out.put_slice(if value == 1 { one } else { many }.as_bytes());
        is_negative = value < 0;
    }
    if us != 0 || out.len() == begin {
        if out.len() > begin {
            out.put_u8(b' ');
        }
        match us < 0 {
            true => out.put_u8(b'-'),
            false if is_negative => out.put_u8(b'+'),
            false => {}
        }
        time_span(out, us.unsigned_abs());
    }
}

fn time_span(out: &mut BytesMut, us: u64) {
    let seconds = us / 1_000_000;
    digits(out, seconds / 3600, 2);
    out.put_u8(b':');
    digits(out, seconds / 60 % 60, 2);
    out.put_u8(b':');
    digits(out, seconds % 60, 2);
    fraction(out, us % 1_000_000);
}

/// Writes a float with the fewest digits that round-trip, with an exponent where PostgreSQL uses one.
/// `scientific`: its form with one digit before the point, as in Rust; `digits_max`: 6 or 15.
pub(crate) fn float(out: &mut BytesMut, value: f64, scientific: &str, digits_max: i32) {
    if value.is_nan() {
        return out.put_slice(b"NaN");
    }
    if value.is_infinite() {
        return out.put_slice(if value > 0.0 { b"Infinity" } else { b"-Infinity" });
    }
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    out.put_slice(sign.as_bytes());
    if !(-4..digits_max).contains(&exponent) {
        out.put_slice(mantissa.as_bytes());
        out.put_slice(if exponent < 0 { b"e-" } else { b"e+" });
        return digits(out, exponent.unsigned_abs().into(), 2);
    }
    let number: Vec<u8> = mantissa.bytes().filter(u8::is_ascii_digit).collect();
    if exponent < 0 {
        out.put_slice(b"0.");
        (1..-exponent).for_each(|_| out.put_u8(b'0'));
        return out.put_slice(&number);
    }
    let whole = exponent as usize + 1;
    for at in 0..whole.max(number.len()) {
        if at == whole {
            out.put_u8(b'.');
        }
        out.put_u8(number.get(at).copied().unwrap_or(b'0'));
    }
}

/// Writes bytes in hexadecimal.
pub(crate) fn bytes(out: &mut BytesMut, value: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(2 + 2 * value.len());
    out.put_slice(b"\\x");
    for byte in value {
        out.put_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

pub(crate) fn uuid(out: &mut BytesMut, value: &[u8]) {
    let mut hex = BytesMut::with_capacity(34);
    bytes(&mut hex, value);
    let hex = &hex[2..];
    let mut at = 0;
    for end in [8, 12, 16, 20, 32] {
        if at > 0 {
            out.put_u8(b'-');
        }
        out.put_slice(&hex[at..end.min(hex.len())]);
        at = end.min(hex.len());
    }
}

/// Writes a decimal number, given as text, in PostgreSQL's binary form: base-10000 digits around the point.
pub(crate) fn numeric(out: &mut BytesMut, value: &str) {
    let (is_negative, value) = value.strip_prefix('-').map_or((false, value), |rest| (true, rest));
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    let whole = whole.trim_start_matches('0');
    let mut padded = vec![b'0'; whole.len().next_multiple_of(4) - whole.len()];
    padded.extend(whole.bytes().chain(fraction.bytes()));
    padded.resize(padded.len().next_multiple_of(4), b'0');
    let mut weight = whole.len().div_ceil(4) as i16 - 1;
    let mut groups: Vec<i16> = padded
        .chunks(4)
        .map(|group| group.iter().fold(0, |number, digit| number * 10 + i16::from(digit - b'0')))
        .collect();
    let leading = groups.iter().take_while(|group| **group == 0).count();
    groups.drain(..leading);
    weight -= leading as i16;
    while groups.last() == Some(&0) {
        groups.pop();
    }
    if groups.is_empty() {
        weight = 0;
    }
    out.put_i16(groups.len() as i16);
    out.put_i16(weight);
    out.put_u16(if is_negative && !groups.is_empty() { 0x4000 } else { 0 });
    out.put_i16(fraction.len() as i16);
    groups.into_iter().for_each(|group| out.put_i16(group));
}

/// Converts a binary NUMERIC to text.
pub(crate) fn numeric_text(bytes: &[u8]) -> Option<String> {
    let part = |at: usize| Some(i16::from_be_bytes([*bytes.get(2 * at)?, *bytes.get(2 * at + 1)?]));
    let (count, weight, sign, scale) = (part(0)?, part(1)?, part(2)? as u16, part(3)?);
    match sign {
        0xC000 => return Some("NaN".to_string()),
        0xD000 => return Some("Infinity".to_string()),
        0xF000 => return Some("-Infinity".to_string()),
        0 | 0x4000 => {}
        _ => return None,
    }
    if count < 0 || scale < 0 || bytes.len() != 8 + 2 * count as usize {
        return None;
    }
    let group = |at: i32| match usize::try_from(at) {
        Ok(at) if at < count as usize => part(4 + at).unwrap_or(0),
        _ => 0,
    };
    let mut text = if sign == 0x4000 { "-".to_string() } else { String::new() };
    let weight = i32::from(weight);
    if weight < 0 {
        text.push('0');
    }
    for at in 0..=weight {
        let group = group(at);
        if !(0..10_000).contains(&group) {
            return None;
        }
        text.push_str(&if at == 0 { group.to_string() } else { format!("{group:04}") });
    }
    if scale > 0 {
        text.push('.');
        let mut fraction = String::new();
        for at in (weight + 1)..=(weight + (i32::from(scale) + 3) / 4) {
            fraction.push_str(&format!("{:04}", group(at)));
        }
        fraction.truncate(scale as usize);
        text.push_str(&fraction);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(put: impl FnOnce(&mut BytesMut)) -> String {
        let mut out = BytesMut::new();
        put(&mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn times_are_written() {
        let dates =
            [(0, "1970-01-01"), (-1, "1969-12-31"), (19_782, "2024-02-29"), (-719_528, "0001-01-01 BC")];
        for (days, text) in dates {
            assert_eq!(format(|out| date(out, days)), text);
        }
        let stamps = [
            (0, None, "1970-01-01 00:00:00"),
            (-1, None, "1969-12-31 23:59:59.999999"),
            (1_500_000, Some(0), "1970-01-01 00:00:01.5+00"),
            (0, Some(-12_600), "1969-12-31 20:30:00-03:30"),
            (120, Some(3600), "1970-01-01 01:00:00.00012+01"),
        ];
        for (us, offset, text) in stamps {
            assert_eq!(format(|out| timestamp(out, us, offset)), text);
        }
    }

    #[test]
    fn intervals_are_written() {
        let cases = [
            (0, 0, 0, "00:00:00"),
            (14, 3, 14_706_789_000, "1 year 2 mons 3 days 04:05:06.789"),
            (-1, 1, 0, "-1 mons +1 day"),
            (0, -1, 3_600_000_000, "-1 days +01:00:00"),
            (0, 0, -60_000_000, "-00:01:00"),
        ];
        for (months, days, us, text) in cases {
            assert_eq!(format(|out| interval(out, months, days, us)), text);
        }
    }

    #[test]
    fn floats_are_written() {
        let cases = [
            (1.0, "1"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (1e15, "1e+15"),
            (123_456_789_012_345.0, "123456789012345"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (1.5e300, "1.5e+300"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
            (0.0, "0"),
            (-0.0, "-0"),
        ];
        for (value, text) in cases {
            assert_eq!(format(|out| float(out, value, &format!("{value:e}"), 15)), text);
        }
        assert_eq!(format(|out| float(out, 1e6, &format!("{:e}", 1e6f32), 6)), "1e+06");
    }

    #[test]
    fn numbers_round_trip() {
        let cases = [
            "0",
            "1",
            "-1",
            "0.00",
            "10000",
            "123456.789",
            "-0.0001",
            "100000000.10",
            "99999999999999999999.9999",
        ];
        for text in cases {
            let mut out = BytesMut::new();
            numeric(&mut out, text);
            assert_eq!(numeric_text(&out).as_deref(), Some(text));
        }
        let mut out = BytesMut::new();
        numeric(&mut out, "12345.678");
        assert_eq!(&out[..], [0, 3, 0, 1, 0, 0, 0, 3, 0, 1, 9, 41, 26, 124]);
        assert_eq!(numeric_text(&[0, 1]), None);
        assert_eq!(numeric_text(&[0, 1, 0, 0, 0, 0, 0, 0, 0x7f, 0xff]), None);
    }
}
