//! Conversion between timestamps and local times of a time zone, with PostgreSQL's semantics. A local time in
//! a DST gap is interpreted with the offset before the gap; an ambiguous one is the later of the two. A plain
//! cast fails on both.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::cast_utils::string_to_datetime;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::datetime::infinity::infinity_of;
use crate::datetime::time_unit::in_a_second;
use crate::datetime::zone_offset::{offset_then, offset_there, zone_of};
use crate::parse::datetime::{DateOrder, Kind};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// `timezone(zone, time)`, which is `time AT TIME ZONE zone`: converts a timestamp without time zone, as
/// local time of the zone, to a timestamptz; converts a timestamptz to local time of the zone. Dates and
/// texts are converted to timestamptz first.
///
/// Errors: there is no such zone (22023), or the result is out of range (22008).
pub fn timezone() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(TimeZoneOf::new("UTC".into())))
}

/// `harrier_moment(time, zone)`: interprets a timestamp without time zone, a date or a text as local time of
/// the zone, a literal, and returns a timestamptz in microseconds and in that zone. A text may contain a zone
/// of its own.
///
/// Errors: as [`timezone`]; and a text that is none of these (a cast's error).
pub fn moment() -> Arc<ScalarUDF> {
    let signature = Signature::any(2, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Moment { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TimeZoneOf {
    /// The session's zone, used in result types.
    zone: Arc<str>,
    signature: Signature,
}

impl TimeZoneOf {
    fn new(zone: Arc<str>) -> Self {
        Self { zone, signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for TimeZoneOf {
    fn name(&self) -> &str {
        "timezone"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let zone = config.execution.time_zone.as_deref()?;
        Some(ScalarUDF::new_from_impl(Self::new(zone.into())))
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let [zone, time] = arguments else { return plan_err!("timezone takes a zone and a time") };
        let time = match time {
            DataType::Timestamp(..) => time.clone(),
            DataType::Null | DataType::Date32 | DataType::Date64 => self.moments(TimeUnit::Microsecond),
            text if text.is_string() => self.moments(TimeUnit::Microsecond),
            other => return plan_err!("timezone does not take {other}"),
        };
        match zone.is_string() || zone.is_null() {
            true => Ok(vec![DataType::Utf8, time]),
            false => plan_err!("timezone does not take {zone} for a zone"),
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [_, DataType::Timestamp(unit, None)] => Ok(self.moments(*unit)),
            [_, DataType::Timestamp(unit, Some(_))] => Ok(DataType::Timestamp(*unit, None)),
            _ => plan_err!("timezone does not take {arguments:?}"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [zone, time] = arguments.args.as_slice() else {
            return internal_err!("timezone of {} arguments", arguments.args.len());
        };
        let is_scalar = matches!((zone, time), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { arguments.number_rows };
        let zones = zone.to_array(rows)?;
        // The return field has the zone in a plan from another session, since this function has no session's
        // zone there.
        let found = convert(
            zones.as_string::<i32>().iter(),
            &time.to_array(rows)?,
            arguments.return_field.data_type(),
        )?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?),
            false => ColumnarValue::Array(found),
        })
    }
}

impl TimeZoneOf {
    fn moments(&self, unit: TimeUnit) -> DataType {
        DataType::Timestamp(unit, Some(Arc::clone(&self.zone)))
    }
}

/// Converts `times` by the zone beside each of them to `wanted`, which has a zone if they have none.
fn convert<'a>(
    zones: impl Iterator<Item = Option<&'a str>>,
    times: &ArrayRef,
    wanted: &DataType,
) -> Result<ArrayRef> {
    let DataType::Timestamp(unit, other) = times.data_type() else {
        return internal_err!("a time zone of {}", times.data_type());
    };
    let second = in_a_second(*unit);
    let counts = cast(times, &DataType::Int64)?;
    let counts = counts.as_primitive::<Int64Type>();
    let infinity = infinity_of(times.data_type());
    let mut last: Option<(&str, Tz)> = None;
    let found: Result<Int64Array> = counts
        .iter()
        .zip(zones)
        .map(|pair| {
            let (Some(count), Some(name)) = pair else { return Ok(None) };
            let zone = match last {
                Some((known, zone)) if known == name => zone,
                _ => zone_of(name)?,
            };
            last = Some((name, zone));
            if infinity.is_some_and(|infinity| count == infinity || count == -infinity) {
                return Ok(Some(count));
            }
            let seconds = count.div_euclid(second);
            let ahead = match other {
                Some(_) => offset_then(&zone, seconds),
                None => offset_there(&zone, seconds).map(|ahead| -ahead),
            };
            let found = ahead.and_then(|ahead| count.checked_add(ahead.checked_mul(second)?));
            found.map(Some).ok_or_else(out_of_range)
        })
        .collect();
    Ok(cast(&found?, wanted)?)
}

fn out_of_range() -> datafusion::error::DataFusionError {
    SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range").into_datafusion()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Moment {
    signature: Signature,
}

impl ScalarUDFImpl for Moment {
    fn name(&self) -> &str {
        "harrier_moment"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("harrier_moment has the type that its zone says")
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let ([time, _], [_, Some(zone)]) = (arguments.arg_fields, arguments.scalar_arguments) else {
            return plan_err!("harrier_moment takes a time and a zone");
        };
        let Some(Some(zone)) = zone.try_as_str() else { return plan_err!("{zone} is no zone") };
        let kind = DataType::Timestamp(TimeUnit::Microsecond, Some(zone.into()));
        Ok(Arc::new(Field::new(self.name(), kind, time.is_nullable())))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let wanted = arguments.return_field.data_type();
        let DataType::Timestamp(_, Some(zone)) = wanted else { return internal_err!("moments as {wanted}") };
        match arguments.args.as_slice() {
            [ColumnarValue::Scalar(time), _] => {
                let found = moments(&time.to_array()?, zone, wanted)?;
                ScalarValue::try_from_array(&found, 0).map(ColumnarValue::Scalar)
            }
            [ColumnarValue::Array(times), _] => moments(times, zone, wanted).map(ColumnarValue::Array),
            other => internal_err!("harrier_moment of {} arguments", other.len()),
        }
    }
}

/// Timestamps, dates or texts as [`moment`] converts them.
pub fn moments_in(times: &ArrayRef, zone: &str) -> Result<ArrayRef> {
    moments(times, zone, &DataType::Timestamp(TimeUnit::Microsecond, Some(zone.into())))
}

/// Texts as [`moment`] converts them; NULL for invalid ones.
pub fn moments_or_null(texts: &StringArray, zone: &str) -> Result<ArrayRef> {
    let kind = DataType::Timestamp(TimeUnit::Microsecond, Some(zone.into()));
    let zone = zone_of(zone)?;
    let found: Int64Array = texts.iter().map(|text| moment_of(text?, &zone).ok()).collect();
    Ok(cast(&found, &kind)?)
}

/// A timestamptz as a text that is the same in every zone; `None` for an invalid text.
pub fn in_utc(text: &str, zone: &str, order: DateOrder) -> Option<String> {
    let normal = Kind::TimestampWithZone.normal(text, order);
    let moment = moment_of(normal.as_deref().unwrap_or(text), &zone_of(zone).ok()?).ok()?;
    Some(DateTime::from_timestamp_micros(moment)?.format("%Y-%m-%d %H:%M:%S%.6f+00").to_string())
}

/// Whether values of a type have no zone, and [`moment`] accepts them.
pub fn is_local(kind: &DataType) -> bool {
    matches!(kind, DataType::Timestamp(_, None) | DataType::Date32 | DataType::Date64) || kind.is_string()
}

fn moments(times: &ArrayRef, zone: &str, wanted: &DataType) -> Result<ArrayRef> {
    if !times.data_type().is_string() {
        let local = cast(times, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
        return convert(std::iter::repeat(Some(zone)), &local, wanted);
    }
    let zone = zone_of(zone)?;
    let texts = cast(times, &DataType::Utf8)?;
    let found: Result<Int64Array> = texts
        .as_string::<i32>()
        .iter()
        .map(|text| text.map(|text| moment_of(text, &zone)).transpose())
        .collect();
    Ok(cast(&found?, wanted)?)
}

/// The timestamp in microseconds.
fn moment_of(text: &str, zone: &Tz) -> Result<i64> {
    match string_to_datetime(zone, text) {
        Ok(moment) => Ok(moment.timestamp_micros()),
        // Without a zone of its own, and in a DST gap or ambiguous; otherwise it would have been parsed.
        Err(error) => match string_to_datetime(&Utc, text) {
            Ok(local) => {
                let ahead = offset_there(zone, local.timestamp()).ok_or_else(out_of_range)?;
                Ok(local.timestamp_micros() - ahead * 1_000_000)
            }
            Err(_) => Err(error.into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonexistent_and_ambiguous_local_times() {
        let moment = |text: &str, zone: &str| {
            let moment = moment_of(text, &zone_of(zone).unwrap()).unwrap();
            DateTime::from_timestamp_micros(moment).unwrap().format("%F %T%.f").to_string()
        };
        let check = |text: &str, zone: &str, expected: &str| {
            assert_eq!(moment(text, zone), expected, "{text} {zone}")
        };
        check("2024-03-31 02:30:00", "Europe/Berlin", "2024-03-31 01:30:00");
        check("2024-10-27 02:30:00", "Europe/Berlin", "2024-10-27 01:30:00");
        check("2024-10-27 02:30:00+02", "Europe/Berlin", "2024-10-27 00:30:00");
        check("2024-03-10 02:30:00.5", "America/New_York", "2024-03-10 07:30:00.500");
        check("2024-11-03 01:30:00", "America/New_York", "2024-11-03 06:30:00");
        check("2011-12-30 12:00:00", "Pacific/Apia", "2011-12-30 22:00:00");
        check("2024-07-01 12:00:00", "+05:30", "2024-07-01 06:30:00");
        check("2024-07-01 12:00:00", "Gmt", "2024-07-01 12:00:00");
        assert!(moment_of("2024-13-01", &zone_of("Europe/Berlin").unwrap()).is_err());
    }

    #[test]
    fn time_zone_conversion_round_trips() {
        for zone in ["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "-03:30"] {
            let zone = zone_of(zone).unwrap();
            for moment in (-3_000_000_000..4_000_000_000).step_by(1_234_567) {
                let local = moment + offset_then(&zone, moment).unwrap();
                let back = local - offset_there(&zone, local).unwrap();
                // The later of two.
                assert!(back >= moment && back + offset_then(&zone, back).unwrap() == local, "{moment}");
            }
        }
    }
}
