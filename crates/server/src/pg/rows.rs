//! Rows of Arrow as the messages of PostgreSQL: one column after the other is made ready, then row by row is
//! written.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::array::timezone::Tz;
use arrow::datatypes::{Field, Schema, TimestampMicrosecondType};
use arrow::temporal_conversions::as_datetime_with_timezone;
use bytes::{BufMut, Bytes, BytesMut};
use chrono::Offset;
use harrier_error::{SqlError, SqlState};

use super::put::{put, sized};
use super::ready::{Ready, ready};
use super::reply::{Column, Origin};
use super::types::PgType;
use crate::backend::IntervalText;

/// Where the session is, for points in time as text, and how it writes intervals.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Zone {
    zone: Option<Tz>,
    /// `None` for PostgreSQL's own style.
    intervals: Option<IntervalText>,
}

impl Zone {
    /// A zone that is not known is UTC.
    pub(crate) fn named(name: &str) -> Self {
        Self { zone: name.parse().ok(), intervals: None }
    }

    pub(crate) fn intervals(self) -> Option<IntervalText> {
        self.intervals
    }

    /// The same zone with another style of intervals.
    pub(crate) fn with_intervals(self, intervals: Option<IntervalText>) -> Self {
        Self { intervals, ..self }
    }

    /// Seconds east of Greenwich at a point in time, in microseconds from 1970-01-01.
    pub(super) fn offset(self, us: i64) -> i32 {
        self.zone
            .and_then(|zone| as_datetime_with_timezone::<TimestampMicrosecondType>(us, zone))
            .map_or(0, |there| there.offset().fix().local_minus_utc())
    }
}

/// What a client is told of the columns of `schema`. `formats`: none for text, one for all, or one for each.
pub(crate) fn columns(schema: &Schema, formats: &[i16]) -> Result<Vec<Column>, SqlError> {
    let column = |field: &Arc<Field>| {
        let pg_type = PgType::of_field(field);
        // What has no form of its own in binary is text in both.
        Column { name: field.name().clone(), pg_type, format: 0, origin: origin(field) }
    };
    formatted(schema.fields().iter().map(column).collect(), formats)
}

/// The key in the metadata of a field under which stands where it is from: `16385:2`.
const ORIGIN_KEY: &str = "pg.origin";

fn origin(field: &Field) -> Origin {
    let told = field.metadata().get(ORIGIN_KEY).and_then(|told| told.split_once(':'));
    let numbers = told.and_then(|(table, column)| Some((table.parse().ok()?, column.parse().ok()?)));
    numbers.map_or_else(Origin::default, |(table, column)| Origin { table, column })
}

/// Columns in other formats.
pub(crate) fn formatted(mut columns: Vec<Column>, formats: &[i16]) -> Result<Vec<Column>, SqlError> {
    let count = columns.len();
    if formats.len() > 1 && formats.len() != count {
        let message =
            format!("bind message has {} result formats but query has {count} columns", formats.len());
        return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, message));
    }
    for (at, column) in columns.iter_mut().enumerate() {
        column.format = *formats.get(at).or(formats.first()).unwrap_or(&0);
    }
    Ok(columns)
}

/// A batch whose rows can be written.
pub(crate) struct Batch {
    columns: Vec<Ready>,
    pub(crate) rows: usize,
}

impl Batch {
    /// `told`: what the client was told of the columns, which says more than the batch may.
    ///
    /// Errors: a value cannot be written (XX000).
    pub(crate) fn new(batch: &RecordBatch, told: &[Column]) -> Result<Self, SqlError> {
        let mut columns = ready(batch)?;
        columns.iter_mut().zip(told).for_each(|(column, told)| column.tell(told.pg_type));
        Ok(Self { columns, rows: batch.num_rows() })
    }

    /// Writes rows `from..to`, each as a message of this kind: a data row, or a piece of a COPY, whose rows
    /// look the same. What is in `head` comes first in the first message, and is taken.
    ///
    /// Errors: a value has no such form (0A000); the rows before it are written.
    pub(crate) fn put(
        &self,
        (from, to): (usize, usize),
        kind: u8,
        head: &mut Bytes,
        formats: impl Iterator<Item = i16>,
        zone: Zone,
        out: &mut BytesMut,
    ) -> Result<(), SqlError> {
        let mut puts = self
            .columns
            .iter()
            .zip(formats)
            .map(|(column, format)| Ok((&column.array, put(column, format == 1, zone)?)))
            .collect::<Result<Vec<_>, SqlError>>()?;
        for row in from..to {
            let begin = out.len();
            out.put_u8(kind);
            out.put_i32(0);
            out.put_slice(head);
            out.put_i16(puts.len() as i16);
            for (array, put) in &mut puts {
                if array.is_null(row) {
                    out.put_i32(-1);
                    continue;
                }
                if let Err(failure) = sized(out, |out| put(row, out)) {
                    out.truncate(begin);
                    return Err(*failure);
                }
            }
            head.clear();
            let length = (out.len() - begin - 1) as i32;
            out[begin + 1..begin + 5].copy_from_slice(&length.to_be_bytes());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg::text;

    /// Not all zones are whole hours from Greenwich.
    #[test]
    fn zones_have_minutes() {
        let shown = |zone: &str| {
            let mut out = BytesMut::new();
            text::timestamp(&mut out, 0, Some(Zone::named(zone).offset(0)));
            String::from_utf8(out.to_vec()).unwrap()
        };
        assert_eq!(shown("Asia/Kolkata"), "1970-01-01 05:30:00+05:30");
        assert_eq!(shown("America/St_Johns"), "1969-12-31 20:30:00-03:30");
        assert_eq!(shown("Europe/Berlin"), "1970-01-01 01:00:00+01");
        assert_eq!(shown("no zone"), "1970-01-01 00:00:00+00");
    }
}
