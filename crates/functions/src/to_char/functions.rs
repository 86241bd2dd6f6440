//! Scalar functions of formatting patterns.

use std::sync::Arc;

use chrono::{DateTime, NaiveDateTime, Offset};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Decimal128Array, StringArray, StringBuilder,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Field, FieldRef, Float64Type, IntervalMonthDayNanoType, IntervalUnit,
    Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::moments::{self, DateTimeValue};
use super::numbers::{self, Pattern};
use super::template::{Piece, pieces};
use crate::datetime::infinity::infinite_rows;
use harrier_error::SqlError;

/// Precision of parsed numbers.
const DIGITS: u8 = 38;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// (date, time, interval or number; pattern) → text
    Char,
    /// (text; pattern) → timestamp in local time, with the text's zone if it has one; see [`to_timestamp`]
    Timestamp,
    /// (text; pattern) → date
    Date,
    /// (text; pattern) → number
    Number,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Char, Self::Timestamp, Self::Date, Self::Number];

    fn function(self) -> Arc<ScalarUDF> {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(ByPattern { kind: self, signature }))
    }
}

pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    Kind::ALL.into_iter().map(Kind::function)
}

/// (date, time, interval or number; pattern) → text.
pub fn to_char() -> Arc<ScalarUDF> {
    Kind::Char.function()
}

/// (text; pattern) → text of a timestamp for a cast, followed by the zone if the text has one.
pub fn to_timestamp() -> Arc<ScalarUDF> {
    Kind::Timestamp.function()
}

/// (text; pattern) → date.
pub fn to_date() -> Arc<ScalarUDF> {
    Kind::Date.function()
}

/// (text; pattern) → number.
pub fn to_number() -> Arc<ScalarUDF> {
    Kind::Number.function()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ByPattern {
    kind: Kind,
    signature: Signature,
}

fn shown_type(given: &DataType) -> Option<DataType> {
    Some(match given {
        DataType::Date32 => DataType::Date32,
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Interval(_) | DataType::Duration(_) => DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Float16 | DataType::Float32 | DataType::Float64 => DataType::Float64,
        kind if kind.is_integer() => DataType::Decimal128(20, 0),
        DataType::Decimal128(..) | DataType::Decimal256(..) => given.clone(),
        _ => return None,
    })
}

impl ScalarUDFImpl for ByPattern {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Char => "harrier_to_char",
            Kind::Timestamp => "harrier_to_timestamp",
            Kind::Date => "harrier_to_date",
            Kind::Number => "harrier_to_number",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let public = self.name().trim_start_matches("harrier_");
        let [value, pattern] = given else {
            return plan_err!("function {public} takes two arguments");
        };
        if !pattern.is_string() && !pattern.is_null() {
            return plan_err!("function {public}({value}, {pattern}) does not exist");
        }
        let value = match self.kind {
            _ if value.is_null() => {
                Some(if self.kind == Kind::Char { DataType::Date32 } else { DataType::Utf8 })
            }
            Kind::Char => shown_type(value),
            _ => value.is_string().then_some(DataType::Utf8),
        };
        match value {
            Some(value) => Ok(vec![value, DataType::Utf8]),
            None => plan_err!("function {public}({}, {pattern}) does not exist", given[0]),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("what {} returns depends on its pattern", self.name())
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let kind = match self.kind {
            Kind::Char | Kind::Timestamp => DataType::Utf8,
            Kind::Date => DataType::Date32,
            Kind::Number => match arguments.scalar_arguments.get(1) {
                Some(Some(ScalarValue::Utf8(Some(pattern)))) => DataType::Decimal128(
                    DIGITS,
                    numbers::pattern(pattern).map_err(harrier_sqlstate::external)?.scale() as i8,
                ),
                // For a non-constant pattern, a fixed scale at the precision of NUMERIC.
                _ => DataType::Decimal128(DIGITS, 10),
            },
        };
        Ok(Arc::new(Field::new(self.name(), kind, true)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = arguments.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { arguments.number_rows };
        let [values, patterns] = arguments.args.as_slice() else {
            return internal_err!("{} has two arguments", self.name());
        };
        let (values, patterns) = (values.to_array(rows)?, patterns.to_array(rows)?);
        let patterns = cast(&patterns, &DataType::Utf8)?;
        let patterns = patterns.as_string::<i32>();
        let found: ArrayRef = match self.kind {
            Kind::Char => Arc::new(format(&values, patterns)?),
            Kind::Timestamp => Arc::new(timestamps(&values, patterns)?),
            Kind::Date => Arc::new(dates(&values, patterns)?),
            Kind::Number => {
                let DataType::Decimal128(_, scale) = arguments.return_field.data_type() else {
                    return internal_err!("{} returns a decimal", self.name());
                };
                Arc::new(numbers_of(&values, patterns, *scale)?)
            }
        };
        match is_scalar {
            true => ScalarValue::try_from_array(&found, 0).map(ColumnarValue::Scalar),
            false => Ok(ColumnarValue::Array(found)),
        }
    }

    /// The name in SQL.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        let names: Vec<String> =
            arguments.iter().map(|argument| argument.schema_name().to_string()).collect();
        Ok(format!("{}({})", self.name().trim_start_matches("harrier_"), names.join(",")))
    }
}

/// Cache of the last parsed pattern: most columns have one.
struct LastPattern<T>(Option<(String, T)>);

impl<T> LastPattern<T> {
    fn get<E>(&mut self, pattern: &str, make: impl FnOnce(&str) -> Result<T, E>) -> Result<&T, E> {
        if self.0.as_ref().is_none_or(|(known, _)| known != pattern) {
            self.0 = Some((pattern.to_string(), make(pattern)?));
        }
        match &self.0 {
            Some((_, made)) => Ok(made),
            None => unreachable!("it was put there"),
        }
    }
}

fn parse_pattern(pattern: &str) -> Result<Vec<Piece>, SqlError> {
    Ok(pieces(pattern))
}

fn local(us: i64) -> Option<NaiveDateTime> {
    DateTime::from_timestamp_micros(us).map(|moment| moment.naive_utc())
}

fn format(values: &ArrayRef, patterns: &StringArray) -> Result<StringArray> {
    let mut texts = StringBuilder::new();
    let mut known = LastPattern::<Vec<Piece>>(None);
    let mut known_numbers = LastPattern::<Pattern>(None);
    let zone: Option<(String, Tz)> = match values.data_type() {
        DataType::Timestamp(_, Some(zone)) => Some((zone.to_string(), zone.parse()?)),
        _ => None,
    };
    // Infinity has no fields.
    let infinite = infinite_rows(values.as_ref());
    for row in 0..values.len() {
        let is_infinite = infinite.as_ref().is_some_and(|rows| rows.value(row));
        if values.is_null(row) || patterns.is_null(row) || is_infinite {
            texts.append_null();
            continue;
        }
        let pattern = patterns.value(row);
        let mut text = String::new();
        let day_us = 86_400_000_000;
        let moment = match values.data_type() {
            DataType::Date32 => {
                let days = i64::from(values.as_primitive::<Date32Type>().value(row));
                local(days * day_us).map(|moment| DateTimeValue::Moment(moment, None))
            }
            DataType::Timestamp(..) => {
                let us = values.as_primitive::<TimestampMicrosecondType>().value(row);
                match &zone {
                    None => local(us).map(|moment| DateTimeValue::Moment(moment, None)),
                    Some((name, zone)) => DateTime::from_timestamp_micros(us).map(|moment| {
                        let there = moment.with_timezone(zone);
                        let offset = there.offset().fix().local_minus_utc();
                        DateTimeValue::Moment(there.naive_local(), Some((offset, name.as_str())))
                    }),
                }
            }
            DataType::Time64(_) => {
                let us = values.as_primitive::<Time64MicrosecondType>().value(row);
                Some(DateTimeValue::Interval(0, 0, us))
            }
            DataType::Interval(_) => {
                let value = values.as_primitive::<IntervalMonthDayNanoType>().value(row);
                Some(DateTimeValue::Interval(value.months, value.days, value.nanoseconds / 1_000))
            }
            _ => {
                let pattern =
                    known_numbers.get(pattern, numbers::pattern).map_err(harrier_sqlstate::external)?;
                number(values, row, pattern, &mut text)?;
                texts.append_value(&text);
                continue;
            }
        };
        match moment {
            // Infinite values have no fields.
            None => texts.append_value(""),
            Some(moment) => {
                moments::write(
                    known.get(pattern, parse_pattern).map_err(harrier_sqlstate::external)?,
                    moment,
                    &mut text,
                )
                .map_err(harrier_sqlstate::external)?;
                texts.append_value(&text);
            }
        }
    }
    Ok(texts.finish())
}

fn number(values: &ArrayRef, row: usize, pattern: &Pattern, out: &mut String) -> Result<()> {
    if let DataType::Float64 = values.data_type() {
        let value = values.as_primitive::<Float64Type>().value(row);
        if pattern.is_scientific() {
            let text = format!("{value:.*e}", pattern.rounds_to());
            let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let exponent: i32 = exponent.parse().unwrap_or(0);
            let blank = if value < 0.0 || pattern.is_short() { "" } else { " " };
            let sign = if exponent < 0 { '-' } else { '+' };
            out.push_str(&format!("{blank}{mantissa}e{sign}{:02}", exponent.abs()));
            return Ok(());
        }
        if pattern.is_roman() {
            out.push_str(&numbers::roman(value.round() as i64, pattern.is_short()));
            return Ok(());
        }
        let scaled = value * 10_f64.powi(pattern.shift() as i32);
        return digits(&format!("{:.*}", pattern.rounds_to(), scaled), pattern, out);
    }
    let text = datafusion::arrow::util::display::array_value_to_string(values, row)?;
    if pattern.is_roman() || pattern.is_scientific() {
        let value: f64 = text.parse().unwrap_or(f64::NAN);
        let values: ArrayRef = Arc::new(datafusion::arrow::array::Float64Array::from(vec![value]));
        return number(&values, 0, pattern, out);
    }
    digits(&round_digits(&text, pattern.rounds_to(), pattern.shift()), pattern, out)
}

fn digits(text: &str, pattern: &Pattern, out: &mut String) -> Result<()> {
    let (is_negative, plain) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    if !plain.starts_with(|letter: char| letter.is_ascii_digit()) {
        // NaN and infinity.
        out.push_str(text);
        return Ok(());
    }
    let (whole, fraction) = plain.split_once('.').unwrap_or((plain, ""));
    pattern.write(is_negative, whole, fraction, out);
    Ok(())
}

/// A decimal number times ten to `shift`, rounded half away from zero to so many digits.
fn round_digits(text: &str, digits: usize, shift: usize) -> String {
    let (sign, plain) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (whole, fraction) = plain.split_once('.').unwrap_or((plain, ""));
    let mut fraction: Vec<u8> = fraction.bytes().collect();
    fraction.resize(fraction.len().max(shift + digits + 1), b'0');
    let mut number: Vec<u8> = whole.bytes().chain(fraction.iter().copied()).collect();
    let kept = whole.len() + shift + digits;
    let rounds_up = number.get(kept).is_some_and(|digit| *digit >= b'5');
    number.truncate(kept);
    if rounds_up {
        let mut at = number.len();
        loop {
            if at == 0 {
                number.insert(0, b'1');
                break;
            }
            at -= 1;
            if number[at] == b'9' {
                number[at] = b'0';
            } else {
                number[at] += 1;
                break;
            }
        }
    }
    let point = number.len() - digits;
    let text = String::from_utf8_lossy(&number).into_owned();
    match digits {
        0 => format!("{sign}{text}"),
        _ => format!("{sign}{}.{}", &text[..point], &text[point..]),
    }
}

fn timestamps(values: &ArrayRef, patterns: &StringArray) -> Result<StringArray> {
    let texts = values.as_string::<i32>();
    let mut known = LastPattern::<Vec<Piece>>(None);
    let read = |known: &mut LastPattern<Vec<Piece>>, row: usize| -> Result<Option<String>> {
        if texts.is_null(row) || patterns.is_null(row) {
            return Ok(None);
        }
        let (moment, zone) = moments::parse(
            known.get(patterns.value(row), parse_pattern).map_err(harrier_sqlstate::external)?,
            texts.value(row),
        )
        .map_err(harrier_sqlstate::external)?;
        let zone = zone.map(|zone| {
            let sign = if zone < 0 { '-' } else { '+' };
            format!("{sign}{:02}:{:02}", zone.abs() / 3_600, zone.abs() / 60 % 60)
        });
        let text = moment.format("%Y-%m-%d %H:%M:%S%.6f");
        Ok(Some(format!("{text}{}", zone.unwrap_or_default())))
    };
    (0..texts.len()).map(|row| read(&mut known, row)).collect()
}

fn dates(values: &ArrayRef, patterns: &StringArray) -> Result<Date32Array> {
    let texts = values.as_string::<i32>();
    let mut known = LastPattern::<Vec<Piece>>(None);
    let read = |known: &mut LastPattern<Vec<Piece>>, row: usize| -> Result<Option<i32>> {
        if texts.is_null(row) || patterns.is_null(row) {
            return Ok(None);
        }
        let (moment, _) = moments::parse(
            known.get(patterns.value(row), parse_pattern).map_err(harrier_sqlstate::external)?,
            texts.value(row),
        )
        .map_err(harrier_sqlstate::external)?;
        Ok(Some(Date32Type::from_naive_date(moment.date())))
    };
    (0..texts.len()).map(|row| read(&mut known, row)).collect()
}

fn numbers_of(values: &ArrayRef, patterns: &StringArray, scale: i8) -> Result<Decimal128Array> {
    let texts = values.as_string::<i32>();
    let mut known = LastPattern::<Pattern>(None);
    let read = |known: &mut LastPattern<Pattern>, row: usize| -> Result<Option<String>> {
        if texts.is_null(row) || patterns.is_null(row) {
            return Ok(None);
        }
        Ok(Some(
            known
                .get(patterns.value(row), numbers::pattern)
                .map_err(harrier_sqlstate::external)?
                .parse(texts.value(row))
                .map_err(harrier_sqlstate::external)?,
        ))
    };
    let read: StringArray =
        (0..texts.len()).map(|row| read(&mut known, row)).collect::<Result<StringArray>>()?;
    let found = cast(&read, &DataType::Decimal128(DIGITS, scale))?;
    Ok(found.as_primitive::<datafusion::arrow::datatypes::Decimal128Type>().clone())
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::TimestampMicrosecondArray;

    use super::*;

    fn format_one(value: ArrayRef, pattern: &str) -> String {
        let texts = format(&value, &StringArray::from(vec![pattern])).unwrap();
        texts.value(0).to_string()
    }

    fn moment(us: i64) -> ArrayRef {
        Arc::new(TimestampMicrosecondArray::from(vec![us]))
    }

    #[test]
    fn moments_are_written_as_postgresql_writes_them() {
        // 2024-03-09 14:05:06.078901, a Saturday.
        let us = 1_709_993_106_078_901;
        for (pattern, expected) in [
            ("YYYY-MM-DD HH24:MI:SS.US", "2024-03-09 14:05:06.078901"),
            ("DD Mon YYYY, HH12:MI am", "09 Mar 2024, 02:05 pm"),
            ("FMDay, FMDDth FMMonth", "Saturday, 9th March"),
            ("Day|MONTH|dy", "Saturday |MARCH    |sat"),
            ("IYYY-\"W\"IW-ID", "2024-W10-6"),
            ("Q DDD D WW W CC J", "1 069 7 10 2 21 2460379"),
            ("FMHH24 SSSSS", "14 50706"),
            ("YY Y,YYY RM MS FF1 SSSS", "24 2,024 III  078 0 50706"),
            ("HH24\"h\"MI", "14h05"),
            ("BC A.M.", "AD P.M."),
        ] {
            assert_eq!(format_one(moment(us), pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn numbers_are_written_as_postgresql_writes_them() {
        for (number, pattern, expected) in [
            ("125.8", "999.9", " 125.8"),
            ("-125.8", "999D99S", "125.80-"),
            ("12", "99", " 12"),
            ("485", "999", " 485"),
            ("-485", "999", "-485"),
            ("1485", "9,999", " 1,485"),
            ("148.5", "999.999", " 148.500"),
            ("148.5", "FM999.999", "148.5"),
            ("148.5", "FM999.990", "148.500"),
            ("-485", "999S", "485-"),
            ("-485", "999MI", "485-"),
            ("485", "999MI", "485 "),
            ("485", "FM999MI", "485"),
            ("485", "PL999", "+ 485"),
            ("485", "SG999", "+485"),
            ("-485", "999PR", "<485>"),
            ("12", "0009", " 0012"),
            ("0.1", "0.9", " 0.1"),
            ("0.1", "9.99", "  .10"),
            ("0", "999", "   0"),
            ("1234", "999", " ###"),
            ("482", "999th", " 482nd"),
            ("12.45", "99V9", " 125"),
            ("0.5", "FM90.99", "0.5"),
            ("1234567", "FM9,999,999", "1,234,567"),
            ("12", "FM9,999", "12"),
        ] {
            let text = round_digits(
                number,
                numbers::pattern(pattern).unwrap().rounds_to(),
                numbers::pattern(pattern).unwrap().shift(),
            );
            let mut out = String::new();
            digits(&text, &numbers::pattern(pattern).unwrap(), &mut out).unwrap();
            assert_eq!(out, expected, "{number} {pattern}");
        }
    }

    #[test]
    fn texts_are_read_as_postgresql_reads_them() {
        let read = |text: &str, pattern: &str| {
            let texts: ArrayRef = Arc::new(StringArray::from(vec![text]));
            timestamps(&texts, &StringArray::from(vec![pattern]))
                .map(|found| found.value(0).to_string())
                .map_err(|error| harrier_sqlstate::of(&error).to_string())
        };
        for (text, pattern, expected) in [
            ("2020-01-01 00:00:00.000000", "YYYY-MM-DD HH24:MI:SS.US", Ok("2020-01-01 00:00:00.000000")),
            ("05 Dec 2000", "DD Mon YYYY", Ok("2000-12-05 00:00:00.000000")),
            ("20240309140506", "YYYYMMDDHH24MISS", Ok("2024-03-09 14:05:06.000000")),
            ("3/9/24 2:05 PM", "MM/DD/YY HH12:MI AM", Ok("2024-03-09 14:05:00.000000")),
            ("12.3", "SS.MS", Ok("0000-01-01 00:00:12.300000")),
            (
                "2024-03-09 14:05:06+05:30",
                "YYYY-MM-DD HH24:MI:SSTZH:TZM",
                Ok("2024-03-09 14:05:06.000000+05:30"),
            ),
            ("2024-069", "YYYY-DDD", Ok("2024-03-09 00:00:00.000000")),
            ("2024-10-6", "IYYY-IW-ID", Ok("2024-03-09 00:00:00.000000")),
            ("March 9, 1985", "FMMonth DD, YYYY", Ok("1985-03-09 00:00:00.000000")),
            ("2024-13-01", "YYYY-MM-DD", Err("22008")),
            ("x", "YYYY", Err("22007")),
            ("25:00", "HH24:MI", Err("22008")),
        ] {
            let expected = expected.map(str::to_string).map_err(str::to_string);
            assert_eq!(read(text, pattern), expected, "{text} {pattern}");
        }
        for (text, pattern, expected) in [
            ("12,454.8-", "99G999D9S", "-12454.8"),
            ("$1,234.50", "L9,999.99", "1234.50"),
            ("125", "99V9", "12.5"),
        ] {
            assert_eq!(numbers::pattern(pattern).unwrap().parse(text).unwrap(), expected);
        }
    }
}
