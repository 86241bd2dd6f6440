//! Time zones by name, and their offsets from UTC.

use std::str::FromStr;

use chrono::{DateTime, MappedLocalTime, NaiveDateTime, Offset, TimeDelta, TimeZone, Utc};
use datafusion::arrow::array::timezone::Tz;
use datafusion::common::Result;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// Maximum hours to search before a DST gap for a valid local time: Samoa skipped a whole day.
const GAP_HOURS_MAX: i64 = 30;

/// The zone of a name, or of an offset such as `+02:00`.
///
/// Errors: there is none (22023).
pub(crate) fn zone_of(name: &str) -> Result<Tz> {
    const GREENWICH: [&str; 4] = ["utc", "gmt", "z", "zulu"];
    let name = if GREENWICH.iter().any(|known| name.eq_ignore_ascii_case(known)) { "UTC" } else { name };
    Tz::from_str(name).map_err(|_| {
        let message = format!("time zone \"{name}\" not recognized");
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into_datafusion()
    })
}

/// Offset of a zone from UTC in seconds at a moment, in seconds since 1970; `None`: the year is out of range.
pub(crate) fn offset_then(zone: &Tz, moment: i64) -> Option<i64> {
    let moment = DateTime::<Utc>::from_timestamp(moment, 0)?;
    Some(zone.offset_from_utc_datetime(&moment.naive_utc()).fix().local_minus_utc().into())
}

/// Offset of a zone from UTC in seconds at a local time, in seconds since the local 1970.
pub(crate) fn offset_there(zone: &Tz, local: i64) -> Option<i64> {
    let local = DateTime::<Utc>::from_timestamp(local, 0)?.naive_utc();
    let ahead = |local: &NaiveDateTime| match zone.offset_from_local_datetime(local) {
        MappedLocalTime::Single(offset) => Some(offset.fix().local_minus_utc()),
        MappedLocalTime::Ambiguous(one, other) => {
            Some(one.fix().local_minus_utc().min(other.fix().local_minus_utc()))
        }
        MappedLocalTime::None => None,
    };
    let before = |hours: i64| local.checked_sub_signed(TimeDelta::hours(hours));
    (0..=GAP_HOURS_MAX).find_map(|hours| ahead(&before(hours)?)).map(i64::from)
}
