//! The session's time zone and interval style, for values as text.

use arrow::array::timezone::Tz;
use arrow::datatypes::TimestampMicrosecondType;
use arrow::temporal_conversions::as_datetime_with_timezone;
use chrono::Offset;

use crate::backend::IntervalText;

/// The session's time zone and interval style, for text output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Zone {
    zone: Option<Tz>,
    /// `None` for the style `postgres`.
    intervals: Option<IntervalText>,
}

impl Zone {
    /// The zone with this name; UTC if unknown.
    pub(crate) fn from_name(name: &str) -> Self {
        Self { zone: name.parse().ok(), intervals: None }
    }

    pub(crate) fn intervals(self) -> Option<IntervalText> {
        self.intervals
    }

    /// The same zone with another interval style.
    pub(crate) fn with_intervals(self, intervals: Option<IntervalText>) -> Self {
        Self { intervals, ..self }
    }

    /// Seconds east of Greenwich at a timestamp, in microseconds from 1970-01-01.
    pub(crate) fn offset(self, us: i64) -> i32 {
        self.zone
            .and_then(|zone| as_datetime_with_timezone::<TimestampMicrosecondType>(us, zone))
            .map_or(0, |there| there.offset().fix().local_minus_utc())
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::pg::text;

    /// Some zones are not whole hours from Greenwich.
    #[test]
    fn zones_have_minutes() {
        let shown = |zone: &str| {
            let mut out = BytesMut::new();
            text::timestamp(&mut out, 0, Some(Zone::from_name(zone).offset(0)));
            String::from_utf8(out.to_vec()).unwrap()
        };
        assert_eq!(shown("Asia/Kolkata"), "1970-01-01 05:30:00+05:30");
        assert_eq!(shown("America/St_Johns"), "1969-12-31 20:30:00-03:30");
        assert_eq!(shown("Europe/Berlin"), "1970-01-01 01:00:00+01");
        assert_eq!(shown("no zone"), "1970-01-01 00:00:00+00");
    }
}
