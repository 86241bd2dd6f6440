//! Dates, times, timestamps and intervals.

pub mod clock;
pub mod date_part;
pub mod date_trunc;
pub mod difference;
pub mod duration;
pub mod epoch;
pub mod infinity;
pub mod interval_span;
pub mod midnight;
pub mod time_unit;
pub mod time_zone;
pub mod transaction_time;
pub(crate) mod zone_offset;
pub mod zoned_interval;
