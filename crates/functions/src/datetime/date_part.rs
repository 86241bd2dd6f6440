//! EXTRACT and `date_part`: fields of dates, times and intervals with PostgreSQL's semantics, as decimals and
//! doubles. Differences of timestamps, which are durations, count as intervals of days and time. DataFusion
//! returns integers, truncates fractions, and returns the total hours, minutes and so on of a duration.
//!
//! Ranks know them by their names.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Float64Array, Int64Array, PrimitiveArray,
};
use datafusion::arrow::compute::{cast, nullif};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Field, FieldRef, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType,
    IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions::datetime;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
};

use crate::datetime::duration::day_time;
use crate::datetime::infinity::{counts_of, infinite_rows};
use crate::datetime::zone_offset::{offset_then, zone_of};
use crate::delegation::delegate_scalar;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

const SECOND_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60 * SECOND_US;
const HOUR_US: i64 = 60 * MINUTE_US;
const DAY_US: i64 = 24 * HOUR_US;

/// The Julian day number of 1970-01-01.
const JULIAN_1970: i64 = 2_440_588;

/// `date_part`, replacing DataFusion's: a double.
pub fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(DatePart { inner: datetime::date_part(), is_exact: false }))
}

/// EXTRACT: a decimal.
pub fn extract() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(DatePart { inner: datetime::date_part(), is_exact: true }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DatePart {
    inner: Arc<ScalarUDF>,
    is_exact: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    Epoch,
    Julian,
    DayOfWeek,
    IsoDayOfWeek,
    DayOfYear,
    IsoYear,
    Zone,
    ZoneHour,
    ZoneMinute,
}

impl Part {
    /// The part of a name, including PostgreSQL's aliases.
    fn from_name(name: &str) -> Option<Self> {
        Some(match name.trim_matches(['\'', '"']).to_ascii_lowercase().as_str() {
            "microsecond" | "microseconds" | "usec" | "usecs" | "usecond" | "useconds" | "us" => {
                Self::Microsecond
            }
            "millisecond" | "milliseconds" | "msec" | "msecs" | "msecond" | "mseconds" | "ms" => {
                Self::Millisecond
            }
            "second" | "seconds" | "sec" | "secs" | "s" => Self::Second,
            "minute" | "minutes" | "min" | "mins" | "m" => Self::Minute,
            "hour" | "hours" | "hr" | "hrs" | "h" => Self::Hour,
            "day" | "days" | "d" => Self::Day,
            "week" | "weeks" | "w" => Self::Week,
            "month" | "months" | "mon" | "mons" => Self::Month,
            "quarter" | "quarters" | "qtr" => Self::Quarter,
            "year" | "years" | "yr" | "yrs" | "y" => Self::Year,
            "decade" | "decades" | "dec" | "decs" => Self::Decade,
            "century" | "centuries" | "cent" | "c" => Self::Century,
            "millennium" | "millennia" | "mil" | "mils" => Self::Millennium,
            "epoch" => Self::Epoch,
            "julian" | "j" | "jd" => Self::Julian,
            "dow" => Self::DayOfWeek,
            "isodow" => Self::IsoDayOfWeek,
            "doy" => Self::DayOfYear,
            "isoyear" => Self::IsoYear,
            "timezone" => Self::Zone,
            "timezone_hour" | "timezone_h" => Self::ZoneHour,
            "timezone_minute" | "timezone_m" => Self::ZoneMinute,
            _ => return None,
        })
    }

    /// Decimal scale of the part.
    fn scale(self, kind: &DataType) -> i8 {
        match self {
            Self::Second => 6,
            Self::Millisecond => 3,
            Self::Epoch if *kind != DataType::Date32 => 6,
            // A fraction of a day keeps all its digits.
            Self::Julian if *kind != DataType::Date32 => 20,
            _ => 0,
        }
    }

    /// DataFusion's name of the part, if it has it as an integer for timestamps and dates.
    fn of_arrow(self) -> Option<&'static str> {
        Some(match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Quarter => "quarter",
            Self::Year | Self::Decade | Self::Century | Self::Millennium => "year",
            Self::DayOfWeek => "dow",
            Self::IsoDayOfWeek => "isodow",
            Self::DayOfYear => "doy",
            Self::IsoYear => "isoyear",
            _ => return None,
        })
    }

    /// Whether it is larger the later the moment is, for all moments.
    fn grows(self) -> bool {
        use Part::{Century, Decade, Epoch, IsoYear, Julian, Millennium, Year};
        matches!(self, Epoch | Year | IsoYear | Decade | Century | Millennium | Julian)
    }

    /// Whether it is a part of dates; `date_part` converts them to timestamps.
    fn is_of_days(self) -> bool {
        use Part::{Hour, Microsecond, Millisecond, Minute, Second, Zone, ZoneHour, ZoneMinute};
        !matches!(self, Microsecond | Millisecond | Second | Minute | Hour | Zone | ZoneHour | ZoneMinute)
    }
}

/// The century or millennium of a year: the first one begins with the year 1, and the one before it ends with
/// the year 0, which is 1 BC.
fn count_of(year: i64, years: i64) -> i64 {
    match year {
        1.. => (year - 1) / years + 1,
        _ => -((years - year) / years),
    }
}

/// Numbers in units of 10^-`scale`.
struct Units {
    values: Vec<Option<i128>>,
    scale: i8,
}

impl DatePart {
    /// Errors: there is no such part (22023), or these values do not have it (0A000).
    fn part(&self, name: &str, kind: &DataType) -> Result<Part> {
        let type_name = match kind {
            DataType::Date32 => "date",
            DataType::Time32(_) | DataType::Time64(_) => "time without time zone",
            DataType::Timestamp(_, None) => "timestamp without time zone",
            DataType::Timestamp(_, Some(_)) => "timestamp with time zone",
            _ => "interval",
        };
        let refused = |state, how| {
            let message = format!("unit \"{}\" not {how} for type {type_name}", name.to_ascii_lowercase());
            Err(SqlError::new(state, message).into_datafusion())
        };
        let Some(part) = Part::from_name(name) else {
            return refused(SqlState::INVALID_PARAMETER_VALUE, "recognized");
        };
        use Part::{
            DayOfWeek, DayOfYear, Epoch, Hour, IsoDayOfWeek, IsoYear, Julian, Microsecond, Millisecond,
            Minute, Second, Week, Zone, ZoneHour, ZoneMinute,
        };
        let has = match kind {
            DataType::Date32 => {
                part.is_of_days() || !self.is_exact && !matches!(part, Zone | ZoneHour | ZoneMinute)
            }
            DataType::Time32(_) | DataType::Time64(_) => {
                matches!(part, Microsecond | Millisecond | Second | Minute | Hour | Epoch)
            }
            DataType::Timestamp(_, None) => !matches!(part, Zone | ZoneHour | ZoneMinute),
            DataType::Timestamp(_, Some(_)) => true,
            _ => !matches!(
                part,
                Week | DayOfWeek | IsoDayOfWeek | DayOfYear | IsoYear | Julian | Zone | ZoneHour | ZoneMinute
            ),
        };
        if has { Ok(part) } else { refused(SqlState::FEATURE_NOT_SUPPORTED, "supported") }
    }

    fn kind(&self, part: Part, of: &DataType) -> DataType {
        match self.is_exact {
            true => match part.scale(of) {
                // Leaves some digits for computations.
                0 if part != Part::Epoch => DataType::Decimal128(10, 0),
                20 => DataType::Decimal128(30, 20),
                scale => DataType::Decimal128(19, scale),
            },
            false => DataType::Float64,
        }
    }

    fn values(&self, part: Part, moments: &ArrayRef, arguments: &ScalarFunctionArgs) -> Result<Units> {
        let kind = moments.data_type();
        let scale = part.scale(kind);
        let whole = |values: Int64Array| Units {
            values: values.iter().map(|value| value.map(i128::from)).collect(),
            scale,
        };
        match kind {
            DataType::Interval(_) | DataType::Duration(_) => {
                let intervals = intervals(moments)?;
                let values =
                    intervals.iter().map(|interval| interval.map(|interval| of_interval(part, interval)));
                return Ok(Units { values: values.collect(), scale });
            }
            DataType::Time32(_) | DataType::Time64(_) => {
                let times =
                    cast(&cast(moments, &DataType::Time64(TimeUnit::Microsecond))?, &DataType::Int64)?;
                return Ok(whole(times.as_primitive::<Int64Type>().unary(|us| of_day_time(part, us))));
            }
            _ => {}
        }
        if let Some(name) = part.of_arrow() {
            let mut arguments = arguments.clone();
            arguments.args = vec![
                ColumnarValue::Scalar(ScalarValue::from(name)),
                ColumnarValue::Array(Arc::clone(moments)),
            ];
            arguments.number_rows = moments.len();
            let values = self.inner.inner().invoke_with_args(arguments)?.into_array(moments.len())?;
            let values = cast(&values, &DataType::Int64)?;
            let of_year = |year: i64| match part {
                Part::Decade => year.div_euclid(10),
                Part::Century => count_of(year, 100),
                Part::Millennium => count_of(year, 1000),
                // There is no year 0.
                Part::Year | Part::IsoYear if year <= 0 => year - 1,
                _ => year,
            };
            return Ok(whole(values.as_primitive::<Int64Type>().unary(of_year)));
        }
        if *kind == DataType::Date32 {
            let days = moments.as_primitive::<Date32Type>();
            return Ok(whole(days.unary(|days| match part {
                Part::Epoch => i64::from(days) * 86_400,
                Part::Julian => i64::from(days) + JULIAN_1970,
                // At midnight.
                _ => 0,
            })));
        }
        let zone = match kind {
            DataType::Timestamp(_, Some(zone)) => Some(zone_of(zone)?),
            _ => None,
        };
        let moments = cast(moments, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
        let moments = moments.as_primitive::<TimestampMicrosecondType>();
        let offset =
            |us: i64| zone.as_ref().and_then(|zone| offset_then(zone, us.div_euclid(SECOND_US))).unwrap_or(0);
        let value = |us: i64| -> i128 {
            let seconds = offset(us);
            let local = i128::from(us) + i128::from(seconds * SECOND_US);
            let of_day = local.rem_euclid(i128::from(DAY_US)) as i64;
            match part {
                Part::Epoch => i128::from(us),
                Part::Julian => {
                    const ONE: i128 = 10_i128.pow(20);
                    let day = local.div_euclid(i128::from(DAY_US)) + i128::from(JULIAN_1970);
                    // Rounds half away from zero.
                    let fraction = i128::from(of_day) * ONE;
                    day * ONE + (fraction + i128::from(DAY_US) / 2) / i128::from(DAY_US)
                }
                Part::Zone => seconds.into(),
                Part::ZoneHour => (seconds / 3_600).into(),
                Part::ZoneMinute => (seconds / 60 % 60).into(),
                _ => of_day_time(part, of_day).into(),
            }
        };
        Ok(Units { values: moments.iter().map(|us| us.map(value)).collect(), scale })
    }
}

/// A part of microseconds since midnight.
fn of_day_time(part: Part, us: i64) -> i64 {
    match part {
        Part::Minute => us / MINUTE_US % 60,
        Part::Hour => us / HOUR_US,
        Part::Epoch => us,
        // In microseconds; the scale of seconds and milliseconds accounts for it.
        _ => us % MINUTE_US,
    }
}

fn of_interval(part: Part, interval: IntervalMonthDayNano) -> i128 {
    let us = interval.nanoseconds / 1_000;
    let (years, months) = (interval.months / 12, interval.months % 12);
    match part {
        Part::Day => interval.days.into(),
        Part::Month => months.into(),
        Part::Quarter => (months / 3 + 1).into(),
        Part::Year => years.into(),
        Part::Decade => (years / 10).into(),
        Part::Century => (years / 100).into(),
        Part::Millennium => (years / 1000).into(),
        Part::Epoch => {
            // A year has 365.25 days, a month 30.
            let quarters =
                1_461 * i128::from(years) + 4 * (30 * i128::from(months) + i128::from(interval.days));
            quarters * i128::from(DAY_US / 4) + i128::from(us)
        }
        _ => of_day_time(part, us).into(),
    }
}

fn intervals(lengths: &ArrayRef) -> Result<PrimitiveArray<IntervalMonthDayNanoType>> {
    if let DataType::Duration(unit) = *lengths.data_type() {
        let parts = cast(lengths, &DataType::Int64)?;
        let intervals = parts.as_primitive::<Int64Type>().try_unary(|parts| day_time(parts, unit));
        return intervals.map_err(harrier_sqlstate::external);
    }
    let intervals = cast(lengths, &DataType::Interval(IntervalUnit::MonthDayNano))?;
    Ok(intervals.as_primitive::<IntervalMonthDayNanoType>().clone())
}

impl ScalarUDFImpl for DatePart {
    delegate_scalar!(schema_name, signature, coerce_types, return_type, documentation);

    fn name(&self) -> &str {
        if self.is_exact { "harrier_extract" } else { self.inner.name() }
    }

    fn aliases(&self) -> &[String] {
        if self.is_exact { &[] } else { self.inner.aliases() }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let name = arguments.scalar_arguments.first().copied().flatten().and_then(ScalarValue::try_as_str);
        let (Some(Some(name)), [_, moment]) = (name, arguments.arg_fields) else {
            return self.inner.inner().return_field_from_args(arguments);
        };
        if is_nanosecond(name) {
            return self.inner.inner().return_field_from_args(arguments);
        }
        let part = self.part(name, moment.data_type())?;
        Ok(Arc::new(Field::new(self.name(), self.kind(part, moment.data_type()), true)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(name), moment] = arguments.args.as_slice() else {
            return self.inner.inner().invoke_with_args(arguments);
        };
        let name = name.try_as_str().flatten().unwrap_or_default().to_string();
        if is_nanosecond(&name) {
            return self.inner.inner().invoke_with_args(arguments);
        }
        let kind = moment.data_type();
        let part = self.part(&name, &kind)?;
        let is_value = matches!(moment, ColumnarValue::Scalar(_));
        let mut moments = moment.to_array(if is_value { 1 } else { arguments.number_rows })?;
        // Parts of infinity are infinite, if they grow with time, and NULL.
        let infinite = infinite_rows(moments.as_ref());
        let counts = infinite.as_ref().map(|_| counts_of(moments.as_ref())).transpose()?;
        if let Some(rows) = &infinite {
            moments = nullif(&moments, rows)?;
        }
        let ends = counts.filter(|_| part.grows()).zip(infinite);
        let Units { values, scale } = self.values(part, &moments, &arguments)?;
        if ends.is_some() && self.is_exact {
            let message =
                format!("{} of infinity is infinite, which numeric is not here", name.to_lowercase());
            return Err(SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, message)
                .with_hint("date_part(…) is a double precision")
                .into_datafusion());
        }
        let values: ArrayRef = match self.kind(part, &kind) {
            exact @ DataType::Decimal128(..) => Arc::new(Decimal128Array::from(values).with_data_type(exact)),
            _ => {
                let one = 10_f64.powi(scale.into());
                let values = values.into_iter().enumerate().map(|(row, value)| match &ends {
                    Some((counts, infinite)) if infinite.value(row) => {
                        Some(f64::INFINITY.copysign(counts.value(row) as f64))
                    }
                    _ => value.map(|value| value as f64 / one),
                });
                Arc::new(values.collect::<Float64Array>())
            }
        };
        Ok(match is_value {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?),
            false => ColumnarValue::Array(values),
        })
    }

    /// The range of days of one year, which DataFusion computes for an integer.
    fn preimage(&self, arguments: &[Expr], value: &Expr, info: &SimplifyContext) -> Result<PreimageResult> {
        let year = match value {
            Expr::Literal(value, _) if !value.is_null() => {
                let year = value.cast_to(&DataType::Int32).ok();
                let year = year.filter(|year| matches!(year, ScalarValue::Int32(Some(1..))));
                year.filter(|year| year.cast_to(&value.data_type()).is_ok_and(|whole| whole == *value))
            }
            _ => None,
        };
        match year {
            Some(year) => self.inner.inner().preimage(arguments, &Expr::Literal(year, None), info),
            None => Ok(PreimageResult::None),
        }
    }
}

/// A part that only DataFusion has.
fn is_nanosecond(name: &str) -> bool {
    let name = name.trim_matches(['\'', '"']);
    ["nanosecond", "nanoseconds", "ns", "nsec", "nsecs"].iter().any(|other| name.eq_ignore_ascii_case(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn centuries_begin_with_their_first_year() {
        for (year, century, millennium) in [
            (2000, 20, 2),
            (2001, 21, 3),
            (1, 1, 1),
            (0, -1, -1),
            (-1, -1, -1),
            (-99, -1, -1),
            (-100, -2, -1),
        ] {
            assert_eq!((count_of(year, 100), count_of(year, 1000)), (century, millennium), "{year}");
        }
    }

    #[test]
    fn interval_parts_keep_their_sign() {
        let interval = IntervalMonthDayNano::new(-14, -3, -3_661_500_000_000);
        let of = |part| of_interval(part, interval);
        for (part, expected) in [
            (Part::Year, -1),
            (Part::Month, -2),
            (Part::Quarter, 1),
            (Part::Day, -3),
            (Part::Hour, -1),
            (Part::Minute, -1),
            (Part::Second, -1_500_000),
            (Part::Epoch, -(365 * 86_400 + 21_600 + 60 * 86_400 + 3 * 86_400 + 3_661) * 1_000_000 - 500_000),
        ] {
            assert_eq!(of(part), expected, "{part:?}");
        }
    }

    #[test]
    fn parts_have_several_names() {
        assert_eq!(Part::from_name("SECS"), Some(Part::Second));
        assert_eq!(Part::from_name("'hour'"), Some(Part::Hour));
        assert_eq!(Part::from_name("x"), None);
    }
}
