//! `date_part` and EXTRACT, whose seconds, milliseconds and microseconds have what is behind the point, and
//! whose fields of a duration, which timestamps are apart from each other, are those of an interval of days
//! and time. DataFusion cuts fractions off and tells all of a duration's hours, minutes and so on.
//!
//! It travels to ranks by its name, which is DataFusion's.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Float64Array, PrimitiveArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Int32Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::functions::datetime;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature,
};

use crate::datetime::duration::day_time;

const NANOSECONDS: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * NANOSECONDS;

/// `date_part`, in the place of DataFusion's.
pub fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(DatePart { inner: datetime::date_part() }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DatePart {
    inner: Arc<ScalarUDF>,
}

/// How many of a part there are in a second, if that has a fraction.
fn per_second(part: &str) -> Option<f64> {
    let part = part.trim_matches(['\'', '"']).to_ascii_lowercase();
    Some(match part.as_str() {
        "second" | "seconds" | "sec" | "secs" | "s" => 1.0,
        "millisecond" | "milliseconds" | "msec" | "msecs" | "msecond" | "mseconds" | "ms" => 1e3,
        "microsecond" | "microseconds" | "usec" | "usecs" | "usecond" | "useconds" | "us" => 1e6,
        _ => return None,
    })
}

/// Parts that are made of another one: its name, and how of its value. `None`: it is none.
fn of_another(part: &str, is_interval: bool) -> Option<(&'static str, fn(i32) -> i32)> {
    let part = part.trim_matches(['\'', '"']).to_ascii_lowercase();
    // The first century begins with the year 1, and the first one before with the year 0, which is 1 BC.
    let of_year: fn(i32) -> i32 = match (part.as_str(), is_interval) {
        ("decade" | "decades" | "dec" | "decs", true) => |year| year / 10,
        ("decade" | "decades" | "dec" | "decs", false) => |year| year.div_euclid(10),
        ("century" | "centuries" | "cent" | "c", true) => |year| year / 100,
        ("century" | "centuries" | "cent" | "c", false) => |year| count_of(year, 100),
        ("millennium" | "millennia" | "mil" | "mils", true) => |year| year / 1000,
        ("millennium" | "millennia" | "mil" | "mils", false) => |year| count_of(year, 1000),
        _ => return None,
    };
    Some(("year", of_year))
}

/// Which hundred or thousand of years a year is in.
fn count_of(year: i32, years: i32) -> i32 {
    match year {
        1.. => (year - 1) / years + 1,
        _ => -((years - year) / years),
    }
}

fn is_of_time(kind: &DataType) -> bool {
    matches!(
        kind,
        DataType::Timestamp(..)
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Duration(_)
            | DataType::Interval(IntervalUnit::MonthDayNano)
    )
}

impl ScalarUDFImpl for DatePart {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_types(arguments)
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.inner().return_type(arguments)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let part = arguments.scalar_arguments.first().copied().flatten().and_then(ScalarValue::try_as_str);
        let is_fraction = part.flatten().is_some_and(|part| per_second(part).is_some());
        let is_interval = arguments.arg_fields.get(1).is_some_and(|moment| is_length(moment.data_type()));
        if let Some((another, _)) = part.flatten().and_then(|part| of_another(part, is_interval)) {
            let another = ScalarValue::from(another);
            let scalar_arguments = [Some(&another), arguments.scalar_arguments.get(1).copied().flatten()];
            let arguments = ReturnFieldArgs { scalar_arguments: &scalar_arguments, ..arguments };
            return self.inner.inner().return_field_from_args(arguments);
        }
        match arguments.arg_fields {
            [_, moment] if is_fraction && is_of_time(moment.data_type()) => {
                Ok(Arc::new(Field::new(self.name(), DataType::Float64, true)))
            }
            _ => self.inner.inner().return_field_from_args(arguments),
        }
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(part), moment] = arguments.args.as_slice() else {
            return self.inner.inner().invoke_with_args(arguments);
        };
        let part = part.try_as_str().flatten().unwrap_or_default().to_string();
        let is_value = matches!(moment, ColumnarValue::Scalar(_));
        let kind = moment.data_type();
        let moments = moment.to_array(if is_value { 1 } else { arguments.number_rows })?;
        let value = |values: ArrayRef| {
            Ok(match is_value {
                true => ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?),
                false => ColumnarValue::Array(values),
            })
        };
        if let Some((another, of)) = of_another(&part, is_length(&kind)) {
            arguments.args[0] = ColumnarValue::Scalar(ScalarValue::from(another));
            let parts = self.invoke_with_args(arguments)?;
            let parts = parts.to_array(moments.len())?;
            let parts = parts.as_primitive::<Int32Type>().unary::<_, Int32Type>(of);
            return value(Arc::new(parts));
        }
        if let Some(per_second) = per_second(&part).filter(|_| is_of_time(&kind)) {
            return value(Arc::new(fractions(&moments, per_second)?));
        }
        if let DataType::Duration(unit) = kind {
            let intervals: ArrayRef = Arc::new(intervals(&moments, unit)?);
            let field = &mut arguments.arg_fields[1];
            *field = Arc::new(Field::new(field.name(), intervals.data_type().clone(), true));
            arguments.args[1] = value(intervals)?;
        }
        self.inner.inner().invoke_with_args(arguments)
    }

    fn preimage(&self, arguments: &[Expr], value: &Expr, info: &SimplifyContext) -> Result<PreimageResult> {
        self.inner.inner().preimage(arguments, value, info)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

fn is_length(kind: &DataType) -> bool {
    matches!(kind, DataType::Duration(_) | DataType::Interval(_))
}

fn intervals(durations: &ArrayRef, unit: TimeUnit) -> Result<PrimitiveArray<IntervalMonthDayNanoType>> {
    let parts = cast(durations, &DataType::Int64)?;
    parts
        .as_primitive::<Int64Type>()
        .try_unary(|parts| day_time(parts, unit))
        .map_err(harrier_sqlstate::external)
}

/// What is left of a minute, in seconds or in parts of them.
fn fractions(moments: &ArrayRef, per_second: f64) -> Result<Float64Array> {
    let nanoseconds = |unit: TimeUnit| -> i64 {
        match unit {
            TimeUnit::Second => NANOSECONDS,
            TimeUnit::Millisecond => 1_000_000,
            TimeUnit::Microsecond => 1_000,
            TimeUnit::Nanosecond => 1,
        }
    };
    let of = |rest: i64| rest as f64 / (NANOSECONDS as f64 / per_second);
    let unit = match moments.data_type() {
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let intervals = moments.as_primitive::<IntervalMonthDayNanoType>();
            return Ok(intervals.unary(|interval| of(interval.nanoseconds % MINUTE)));
        }
        DataType::Duration(unit)
        | DataType::Timestamp(unit, _)
        | DataType::Time32(unit)
        | DataType::Time64(unit) => *unit,
        other => return internal_err!("{other} has no seconds"),
    };
    let is_moment = matches!(moments.data_type(), DataType::Timestamp(..));
    let parts = match moments.data_type() {
        DataType::Time32(_) => cast(&cast(moments, &DataType::Int32)?, &DataType::Int64)?,
        _ => cast(moments, &DataType::Int64)?,
    };
    let minute = MINUTE / nanoseconds(unit);
    Ok(parts.as_primitive::<Int64Type>().unary(|parts| {
        // Before 1970, too, seconds are counted from the minute on.
        let rest = if is_moment { parts.rem_euclid(minute) } else { parts % minute };
        of(rest * nanoseconds(unit))
    }))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{DurationMicrosecondArray, TimestampMicrosecondArray};

    use super::*;

    #[test]
    fn centuries_begin_with_their_first_year() {
        for (year, century, millennium, decade) in [
            (2000, 20, 2, 200),
            (2001, 21, 3, 200),
            (1, 1, 1, 0),
            (0, -1, -1, 0),
            (-1, -1, -1, -1),
            (-99, -1, -1, -10),
            (-100, -2, -1, -10),
        ] {
            let of = |part: &str| of_another(part, false).map(|(_, of)| of(year));
            let found = ["century", "millennium", "decade"].map(|part| of(part).unwrap());
            assert_eq!(found, [century, millennium, decade], "{year}");
        }
    }

    #[test]
    fn seconds_have_fractions() {
        let moments: ArrayRef =
            Arc::new(TimestampMicrosecondArray::from(vec![Some(61_500_000), Some(-500_000), None]));
        let expected = Float64Array::from(vec![Some(1.5), Some(59.5), None]);
        assert_eq!(fractions(&moments, 1.0).unwrap(), expected);
        let durations: ArrayRef = Arc::new(DurationMicrosecondArray::from(vec![-61_500_000]));
        assert_eq!(fractions(&durations, 1e3).unwrap(), Float64Array::from(vec![-1_500.0]));
        assert_eq!(per_second("SECOND"), Some(1.0));
        assert_eq!(per_second("hour"), None);
    }
}
