//! Encoding of Arrow batches as PostgreSQL's row messages: columns are cast once, then rows are written.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema};
use bytes::{BufMut, Bytes, BytesMut};
use harrier_error::{SqlError, SqlState};

use super::encodable::{EncodableColumn, encodable_columns};
use super::reply::{Column, Origin};
use super::types::PgType;
use super::value_encoder::value_encoder;
use super::value_output::with_length;
use super::zone::Zone;

/// The row description of `schema`. `formats`: none for text, one for all, or one for each column.
pub(crate) fn columns(schema: &Schema, formats: &[i16]) -> Result<Vec<Column>, SqlError> {
    let column = |field: &Arc<Field>| {
        let pg_type = PgType::of_field(field);
        // Types without a binary encoder use text in both formats.
        Column { name: field.name().clone(), pg_type, format: 0, origin: origin(field) }
    };
    with_formats(schema.fields().iter().map(column).collect(), formats)
}

/// Key in a field's metadata for its table and column, as `16385:2`.
const ORIGIN_KEY: &str = "pg.origin";

fn origin(field: &Field) -> Origin {
    let origin = field.metadata().get(ORIGIN_KEY).and_then(|origin| origin.split_once(':'));
    let numbers = origin.and_then(|(table, column)| Some((table.parse().ok()?, column.parse().ok()?)));
    numbers.map_or_else(Origin::default, |(table, column)| Origin { table, column })
}

/// Columns with other formats.
pub(crate) fn with_formats(mut columns: Vec<Column>, formats: &[i16]) -> Result<Vec<Column>, SqlError> {
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

/// A batch with encodable columns.
pub(crate) struct Batch {
    columns: Vec<EncodableColumn>,
    pub(crate) rows: usize,
}

impl Batch {
    /// `described`: the row description sent to the client, whose types may be more precise than the batch's.
    ///
    /// Errors: a value cannot be encoded (XX000).
    pub(crate) fn new(batch: &RecordBatch, described: &[Column]) -> Result<Self, SqlError> {
        let mut columns = encodable_columns(batch)?;
        columns.iter_mut().zip(described).for_each(|(column, described)| column.set_type(described.pg_type));
        Ok(Self { columns, rows: batch.num_rows() })
    }

    /// Writes rows `from..to`, each as a message of this kind: a data row, or a piece of a COPY, whose rows
    /// have the same layout. Prepends `head` to the first message, and clears it.
    ///
    /// Errors: a value has no such form (0A000); the rows before it are written.
    pub(crate) fn write_rows(
        &self,
        (from, to): (usize, usize),
        kind: u8,
        head: &mut Bytes,
        formats: impl Iterator<Item = i16>,
        zone: Zone,
        out: &mut BytesMut,
    ) -> Result<(), SqlError> {
        let mut encoders = self
            .columns
            .iter()
            .zip(formats)
            .map(|(column, format)| Ok((&column.array, value_encoder(column, format == 1, zone)?)))
            .collect::<Result<Vec<_>, SqlError>>()?;
        for row in from..to {
            let begin = out.len();
            out.put_u8(kind);
            out.put_i32(0);
            out.put_slice(head);
            out.put_i16(encoders.len() as i16);
            for (array, encode) in &mut encoders {
                if array.is_null(row) {
                    out.put_i32(-1);
                    continue;
                }
                if let Err(failure) = with_length(out, |out| encode(row, out)) {
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
