//! Time zones by their names, and by how much clocks of one are ahead of UTC.

use std::str::FromStr;

use chrono::{DateTime, MappedLocalTime, NaiveDateTime, Offset, TimeDelta, TimeZone, Utc};
use datafusion::arrow::array::timezone::Tz;
use datafusion::common::Result;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// How far before a local time that a zone leaves out one is looked for that it has, in hours: Samoa left out
/// a day.
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

/// Seconds that clocks of a zone are ahead of UTC at a moment, in seconds since 1970; `None`: of no year that
/// is known.
pub(crate) fn offset_then(zone: &Tz, moment: i64) -> Option<i64> {
    let moment = DateTime::<Utc>::from_timestamp(moment, 0)?;
    Some(zone.offset_from_utc_datetime(&moment.naive_utc()).fix().local_minus_utc().into())
}

/// Seconds that clocks of a zone are ahead of UTC when they show a local time, in seconds since they showed
/// 1970.
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
