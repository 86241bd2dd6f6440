//! Dates, timestamps and times of day as texts in PostgreSQL's format: a plain cast writes a `T` between date
//! and time, and a `Z`.

use std::fmt::Write;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, PrimitiveArray, StringArray, StringBuilder,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNanoType, IntervalUnit};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, DisplayIndex, FormatOptions, FormatResult};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::datetime::duration::day_time;
use crate::datetime::infinity::{counts_of, infinity_of};
use crate::parse::interval::IntervalStyle;

const TIMESTAMP: &str = "%Y-%m-%d %H:%M:%S%.f";
const TIME: &str = "%H:%M:%S%.f";
const ZONE: &str = "%:z";

/// (date, timestamp or time) → text, such as `2024-03-10 01:02:03.5` and `2024-03-10 01:02:03+05:30`.
pub fn function() -> Arc<ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Shown { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Shown {
    signature: Signature,
}

impl ScalarUDFImpl for Shown {
    fn name(&self) -> &str {
        "harrier_shown_timestamp"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [DataType::Date32 | DataType::Timestamp(..) | DataType::Time64(_) | DataType::Time32(_)] => {
                Ok(DataType::Utf8)
            }
            _ => plan_err!("{} does not take {arguments:?}", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.as_slice() {
            [ColumnarValue::Scalar(value)] => {
                let texts = format_array(&value.to_array()?)?;
                ScalarValue::try_from_array(&texts, 0).map(ColumnarValue::Scalar)
            }
            [ColumnarValue::Array(values)] => Ok(ColumnarValue::Array(Arc::new(format_array(values)?))),
            _ => internal_err!("{} has one argument", self.name()),
        }
    }
}

/// A formatter of values: intervals in PostgreSQL's format, durations as days and time, and infinite dates
/// and timestamps, which Arrow does not support.
///
/// Errors: as [`ArrayFormatter::try_new`].
pub fn formatter<'a>(
    values: &'a dyn Array,
    options: &FormatOptions<'a>,
) -> Result<ArrayFormatter<'a>, ArrowError> {
    let intervals = match values.data_type() {
        DataType::Duration(_) => apart(values),
        DataType::Interval(_) => cast(values, &INTERVAL),
        _ => return times(values, options),
    };
    let intervals = intervals?.as_primitive::<IntervalMonthDayNanoType>().clone();
    Ok(ArrayFormatter::new(Box::new(Intervals { intervals, null: options.null() }), false))
}

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// Durations as intervals.
fn apart(values: &dyn Array) -> Result<ArrayRef, ArrowError> {
    let DataType::Duration(unit) = values.data_type() else { return cast(values, &INTERVAL) };
    let parts = cast(values, &DataType::Int64)?;
    let intervals = parts.as_primitive::<Int64Type>().try_unary(|parts| day_time(parts, *unit));
    let intervals: PrimitiveArray<IntervalMonthDayNanoType> =
        intervals.map_err(|error| ArrowError::ExternalError(error.into()))?;
    Ok(Arc::new(intervals))
}

struct Intervals<'a> {
    intervals: PrimitiveArray<IntervalMonthDayNanoType>,
    null: &'a str,
}

impl DisplayIndex for Intervals<'_> {
    fn write(&self, at: usize, out: &mut dyn Write) -> FormatResult {
        if self.intervals.is_null(at) {
            out.write_str(self.null)?;
            return Ok(());
        }
        let value = self.intervals.value(at);
        IntervalStyle::default().write(out, value.months, value.days, value.nanoseconds / 1_000)?;
        Ok(())
    }
}

fn times<'a>(values: &'a dyn Array, options: &FormatOptions<'a>) -> Result<ArrayFormatter<'a>, ArrowError> {
    let others = ArrayFormatter::try_new(values, options)?;
    let Some(infinity) = infinity_of(values.data_type()) else { return Ok(others) };
    let counts = counts_of(values).map_err(|error| ArrowError::ExternalError(error.into()))?;
    let is_infinite = |count: i64| count == infinity || count == -infinity;
    Ok(match counts.iter().flatten().any(is_infinite) {
        true => ArrayFormatter::new(Box::new(Infinite { counts, infinity, others }), false),
        false => others,
    })
}

struct Infinite<'a> {
    counts: Int64Array,
    infinity: i64,
    others: ArrayFormatter<'a>,
}

impl DisplayIndex for Infinite<'_> {
    fn write(&self, at: usize, out: &mut dyn Write) -> FormatResult {
        match self.counts.is_valid(at).then(|| self.counts.value(at)) {
            Some(count) if count == self.infinity => out.write_str("infinity")?,
            Some(count) if count == -self.infinity => out.write_str("-infinity")?,
            _ => out.write_str(&self.others.value(at).try_to_string()?)?,
        }
        Ok(())
    }
}

/// Formats dates, timestamps and times of day.
pub(crate) fn format_array(values: &ArrayRef) -> Result<StringArray> {
    let zoned = format!("{TIMESTAMP}{ZONE}");
    let options = FormatOptions::new()
        .with_timestamp_format(Some(TIMESTAMP))
        .with_timestamp_tz_format(Some(&zoned))
        .with_time_format(Some(TIME));
    let formatter = formatter(values.as_ref(), &options)?;
    let mut texts = StringBuilder::with_capacity(values.len(), values.len() * TIMESTAMP.len());
    for at in 0..values.len() {
        match values.is_valid(at) {
            true => texts.append_value(trim(formatter.value(at).try_to_string()?)),
            false => texts.append_null(),
        }
    }
    Ok(texts.finish())
}

/// Formats a year BC: Arrow's year 0 is 1 BC.
fn before_christ(text: &str) -> String {
    let years = text.trim_start_matches('-');
    let (year, rest) = years.split_once('-').unwrap_or((years, ""));
    let year = year.parse::<u32>().unwrap_or_default() + 1;
    format!("{} BC", trim(format!("{year:04}-{rest}")))
}

/// Removes the sign of a year of five digits, trailing zeros of a fraction, and zero minutes of a zone.
pub fn trim(mut text: String) -> String {
    if text.starts_with('+') {
        text.remove(0);
    } else if text.starts_with('-') && text[1..].starts_with(|sign: char| sign.is_ascii_digit())
        || text.starts_with("0000-")
    {
        return before_christ(&text);
    }
    if text.ends_with(":00") && text.rfind(['+', '-']).is_some_and(|sign| sign + 6 == text.len()) {
        text.truncate(text.len() - 3);
    }
    if let Some(point) = text.find('.') {
        let after = text[point + 1..].find(|sign: char| !sign.is_ascii_digit());
        let end = after.map_or(text.len(), |after| point + 1 + after);
        let kept = text[..end].trim_end_matches('0').trim_end_matches('.').len();
        text.replace_range(kept..end, "");
    }
    text
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::TimestampMicrosecondArray;

    use super::*;

    #[test]
    fn texts_are_postgresqls() {
        let moments =
            TimestampMicrosecondArray::from(vec![Some(1_710_032_523_500_000), Some(0), None, Some(-1)]);
        let of = |zone: Option<&str>| {
            let moments = moments.clone().with_timezone_opt(zone);
            let texts = format_array(&(Arc::new(moments) as ArrayRef)).unwrap();
            texts.iter().map(|text| text.unwrap_or("NULL").to_string()).collect::<Vec<_>>()
        };
        let expected = ["2024-03-10 01:02:03.5", "1970-01-01 00:00:00", "NULL", "1969-12-31 23:59:59.999999"];
        assert_eq!(of(None), expected);
        let expected =
            ["2024-03-10 01:02:03.5+00", "1970-01-01 00:00:00+00", "NULL", "1969-12-31 23:59:59.999999+00"];
        assert_eq!(of(Some("UTC")), expected);
        assert_eq!(of(Some("+05:30"))[..2], ["2024-03-10 06:32:03.5+05:30", "1970-01-01 05:30:00+05:30"]);
        assert_eq!(of(Some("-08:00"))[1], "1969-12-31 16:00:00-08");
        assert_eq!(trim("+10000-01-01 00:00:00".to_string()), "10000-01-01 00:00:00");
        assert_eq!(trim("0000-12-31".to_string()), "0001-12-31 BC");
        assert_eq!(trim("-0043-03-15 01:00:00.500+00:00".to_string()), "0044-03-15 01:00:00.5+00 BC");
        assert_eq!(trim("-infinity".to_string()), "-infinity");
    }
}
