//! Numeric literals as exact decimals.

use datafusion::sql::sqlparser::ast::{CastKind, DataType, ExactNumberInfo, Expr, Value};

/// A literal as a decimal, if it has more digits than an integer or, with a point, a double.
pub(super) fn exact_number(text: &str) -> Option<Expr> {
    const INTEGER_DIGITS: usize = 20;
    const DOUBLE_DIGITS: usize = 15;
    let digits_min = if text.contains('.') { DOUBLE_DIGITS + 1 } else { INTEGER_DIGITS + 1 };
    decimal_of(text, digits_min)
}

/// A literal as a decimal, if it has at most 38 digits.
pub(super) fn exact_decimal(text: &str) -> Option<Expr> {
    decimal_of(text, 1)
}

fn decimal_of(text: &str, digits_min: usize) -> Option<Expr> {
    const DECIMAL_DIGITS_MAX: usize = 38;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let whole = whole.trim_start_matches('0');
    let digits = whole.len() + fraction.len();
    if !all_digits(whole) || !all_digits(fraction) || !(digits_min..=DECIMAL_DIGITS_MAX).contains(&digits) {
        return None;
    }
    let scale = i64::try_from(fraction.len()).ok()?;
    Some(Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(Expr::value(Value::SingleQuotedString(text.to_string()))),
        data_type: DataType::Decimal(ExactNumberInfo::PrecisionAndScale(digits as u64, scale)),
        array: false,
        format: None,
    })
}
