//! COPY in PostgreSQL's binary format: a header, rows of values with their lengths, a trailer.
//!
//! ```text
//!   PGCOPY\n\xff\r\n\0   flags   length, extension │ count   length, value   length, value … │ … │ -1
//! ```
//!
//! Memory bound: of the input, one row and the rest of its message; of the output, [`BATCH_ROWS`] rows or
//! [`BATCH_BYTES`].
//!
//! Source: PostgreSQL's documentation of COPY, "Binary Format".

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, SchemaRef};
use bytes::{Buf, BytesMut};
use harrier_error::{SqlError, SqlState};

use super::decode::{Decode, cast_to, decoder};
use super::types::PgType;
use super::values::{misfit_state, type_name};

const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";

/// Header: the signature, no flags, no extension.
pub(super) const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// Trailer after the rows.
pub(super) const TRAILER: &[u8] = &[0xff, 0xff];

/// Flag of a file whose rows have oids; servers no longer write it.
const WITH_OIDS: u32 = 1 << 16;

/// Flags that a reader must understand.
const CRITICAL_FLAGS: u32 = 0xffff_0000;

/// Maximum size of a value, as in PostgreSQL.
const VALUE_BYTES_MAX: usize = 0x3fff_ffff;

const BATCH_ROWS: usize = 8192;

/// A batch is full at this number of value bytes.
const BATCH_BYTES: usize = 8 << 20;

/// Decodes rows for the columns of a table from pieces split anywhere.
pub(super) struct Reader {
    table: String,
    schema: SchemaRef,
    decoders: Vec<Box<dyn Decode>>,
    input: BytesMut,
    state: State,
    /// Rows in the current batch.
    rows: usize,
    bytes: usize,
    /// Rows in earlier batches.
    rows_before: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Header,
    /// Bytes of the header extension still to skip.
    Extension(usize),
    Rows,
    Ended,
}

impl Reader {
    /// Errors: a column's type has no binary form (0A000).
    pub(super) fn new(table: String, schema: SchemaRef) -> Result<Self, SqlError> {
        let mut decoders = Vec::with_capacity(schema.fields().len());
        for field in schema.fields() {
            let decoder = match field.data_type() {
                DataType::Struct(_) | DataType::Map(_, _) => None,
                _ => decoder(oid(field), BATCH_ROWS),
            };
            decoders.push(decoder.ok_or_else(|| {
                let message = format!("column \"{}\" has a type without a binary form", field.name());
                SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
            })?);
        }
        Ok(Self {
            table,
            schema,
            decoders,
            input: BytesMut::new(),
            state: State::Header,
            rows: 0,
            bytes: 0,
            rows_before: 0,
        })
    }

    /// Appends a piece of the client's input, to be decoded by [`Self::next_full`].
    pub(super) fn push(&mut self, data: &[u8]) {
        self.input.extend_from_slice(data);
    }

    /// Decodes as many rows as the input holds; returns the next batch once it is full.
    ///
    /// Errors: 22P04 for a malformed file, 22P03 and others for values; with the row's number.
    pub(super) fn next_full(&mut self) -> Result<Option<RecordBatch>, SqlError> {
        loop {
            match self.state {
                State::Header => {
                    let known = self.input.len().min(SIGNATURE.len());
                    if self.input[..known] != SIGNATURE[..known] {
                        return Err(SqlError::new(
                            SqlState::BAD_COPY_FILE_FORMAT,
                            "COPY file signature not recognized",
                        ));
                    }
                    if self.input.len() < HEADER.len() {
                        return Ok(None);
                    }
                    self.input.advance(SIGNATURE.len());
                    let flags = self.input.get_u32();
                    if flags & WITH_OIDS != 0 {
                        return Err(SqlError::new(
                            SqlState::BAD_COPY_FILE_FORMAT,
                            "invalid COPY file header (WITH OIDS)",
                        ));
                    }
                    if flags & CRITICAL_FLAGS != 0 {
                        return Err(SqlError::new(
                            SqlState::BAD_COPY_FILE_FORMAT,
                            "unrecognized critical flags in COPY file header",
                        ));
                    }
                    let length = usize::try_from(self.input.get_i32());
                    let wrong = |_| {
                        SqlError::new(
                            SqlState::BAD_COPY_FILE_FORMAT,
                            "invalid COPY file header (wrong length)",
                        )
                    };
                    self.state = State::Extension(length.map_err(wrong)?);
                }
                State::Extension(left) => {
                    let skipped = left.min(self.input.len());
                    self.input.advance(skipped);
                    if skipped < left {
                        self.state = State::Extension(left - skipped);
                        return Ok(None);
                    }
                    self.state = State::Rows;
                }
                State::Rows => {
                    if !self.row()? {
                        return Ok(None);
                    }
                    if self.rows >= BATCH_ROWS || self.bytes >= BATCH_BYTES {
                        return self.batch().map(Some);
                    }
                }
                State::Ended if self.input.is_empty() => return Ok(None),
                State::Ended => {
                    let failure =
                        SqlError::new(SqlState::BAD_COPY_FILE_FORMAT, "received copy data after EOF marker");
                    return Err(self.error_at(self.rows, None, failure));
                }
            }
        }
    }

    /// Returns the remaining rows after the last piece.
    ///
    /// Errors: the input is truncated (22P04). The trailer may be missing.
    pub(super) fn end(&mut self) -> Result<Option<RecordBatch>, SqlError> {
        match self.state {
            State::Header if self.input.is_empty() => {
                return Err(SqlError::new(
                    SqlState::BAD_COPY_FILE_FORMAT,
                    "COPY file signature not recognized",
                ));
            }
            State::Header | State::Extension(1..) => {
                return Err(SqlError::new(
                    SqlState::BAD_COPY_FILE_FORMAT,
                    "invalid COPY file header (missing flags)",
                ));
            }
            _ if !self.input.is_empty() => {
                return Err(self.error_at(
                    self.rows,
                    None,
                    SqlError::new(SqlState::BAD_COPY_FILE_FORMAT, "unexpected EOF in COPY data"),
                ));
            }
            _ => {}
        }
        if self.rows == 0 { Ok(None) } else { self.batch().map(Some) }
    }

    /// Decodes one row, or the trailer; false if it is incomplete.
    fn row(&mut self) -> Result<bool, SqlError> {
        let wrong = |this: &Self, message: String| {
            this.error_at(this.rows, None, SqlError::new(SqlState::BAD_COPY_FILE_FORMAT, message))
        };
        let Some(count) = self.input.get(..2) else {
            return Ok(false);
        };
        let count = i16::from_be_bytes([count[0], count[1]]);
        if count == -1 {
            self.input.advance(2);
            self.state = State::Ended;
            return Ok(true);
        }
        let expected = self.schema.fields().len();
        if usize::try_from(count) != Ok(expected) {
            return Err(wrong(self, format!("row field count is {count}, expected {expected}")));
        }
        let mut end = 2;
        for _ in 0..expected {
            let Some(length) = self.input.get(end..end + 4) else {
                return Ok(false);
            };
            let length = i32::from_be_bytes([length[0], length[1], length[2], length[3]]);
            end += 4;
            match usize::try_from(length) {
                Ok(length) if length <= VALUE_BYTES_MAX => end += length,
                Err(_) if length == -1 => {}
                _ => return Err(wrong(self, "invalid field size".to_string())),
            }
        }
        if self.input.len() < end {
            return Ok(false);
        }
        let mut row = self.input.split_to(end);
        row.advance(2);
        for (column, decoder) in self.decoders.iter_mut().enumerate() {
            let read = match usize::try_from(row.get_i32()) {
                Err(_) => {
                    decoder.null();
                    Some(())
                }
                Ok(length) => {
                    let read = decoder.value(&row[..length]);
                    row.advance(length);
                    read
                }
            };
            if read.is_none() {
                let failure =
                    SqlError::new(SqlState::INVALID_BINARY_REPRESENTATION, "incorrect binary data format");
                return Err(self.error_at(self.rows, Some(column), failure));
            }
        }
        self.rows += 1;
        self.bytes += end;
        Ok(true)
    }

    /// The decoded rows, in the table's types.
    fn batch(&mut self) -> Result<RecordBatch, SqlError> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.decoders.len());
        for column in 0..self.decoders.len() {
            let found = self.decoders[column].finish();
            let found = found
                .ok_or_else(|| SqlError::new(SqlState::INTERNAL_ERROR, "values could not be put together"))?;
            let wanted = self.schema.field(column).data_type();
            let fitted = cast_to(&found, wanted, false).map_err(|error| {
                // Finds the first value lost in a lossy cast.
                let is_lost = |lossy: &ArrayRef, row: &usize| found.is_valid(*row) && lossy.is_null(*row);
                let lossy = cast_to(&found, wanted, true).ok();
                let row = lossy.and_then(|lossy| (0..found.len()).find(|row| is_lost(&lossy, row)));
                let failure = match wanted.is_decimal() {
                    true => SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow"),
                    false => {
                        let message = format!("value is no valid {}", type_name(wanted));
                        SqlError::new(misfit_state(&error, wanted), message)
                    }
                };
                self.error_at(row.unwrap_or(0), Some(column), failure)
            })?;
            columns.push(fitted);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let batch =
            RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map_err(|error| {
                SqlError::new(
                    SqlState::INTERNAL_ERROR,
                    format!("the rows could not be put together: {error}"),
                )
            })?;
        self.rows_before += self.rows as u64;
        (self.rows, self.bytes) = (0, 0);
        Ok(batch)
    }

    /// An error in a row of the current batch, counted from 0.
    fn error_at(&self, row: usize, column: Option<usize>, failure: SqlError) -> SqlError {
        let column = column.map(|at| format!(", column {}", self.schema.field(at).name()));
        let line = self.rows_before + row as u64 + 1;
        let context = format!("COPY {}, line {line}{}", self.table, column.unwrap_or_default());
        SqlError { context: Some(context), ..failure }
    }
}

/// The oid of the type in which a client sends a column's values.
fn oid(field: &arrow::datatypes::Field) -> u32 {
    PgType::of_field(field).oid
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::AsArray;
    use arrow::datatypes::{Field, Int32Type, Schema};

    use super::*;

    fn reader() -> Reader {
        let fields =
            vec![Field::new("a", DataType::Int32, true), Field::new("b", DataType::Decimal128(4, 1), true)];
        Reader::new("t".to_string(), Arc::new(Schema::new(fields))).unwrap()
    }

    /// A row of an integer and a one-group NUMERIC.
    fn row(a: Option<i32>, b: i16) -> Vec<u8> {
        let mut bytes = vec![0, 2];
        match a {
            None => bytes.extend([0xff; 4]),
            Some(a) => bytes.extend([&4_i32.to_be_bytes()[..], &a.to_be_bytes()].concat()),
        }
        bytes.extend(10_i32.to_be_bytes());
        for part in [1, 0, 0, 0, b] {
            bytes.extend(part.to_be_bytes());
        }
        bytes
    }

    /// The decoded values, or the error's message and context.
    fn decode(pieces: &[&[u8]]) -> Result<Vec<Option<i32>>, (String, Option<String>)> {
        let mut reader = reader();
        let mut values = Vec::new();
        let mut take = |batch: RecordBatch| {
            values.extend(batch.column(0).as_primitive::<Int32Type>().iter());
            assert_eq!(batch.column(1).data_type(), &DataType::Decimal128(4, 1));
        };
        let state_and_context = |failure: SqlError| (failure.sqlstate.to_string(), failure.context);
        for piece in pieces {
            reader.push(piece);
            while let Some(batch) = reader.next_full().map_err(state_and_context)? {
                take(batch);
            }
        }
        reader.end().map_err(state_and_context)?.into_iter().for_each(take);
        Ok(values)
    }

    #[test]
    fn rows_are_parsed_across_message_boundaries() {
        let whole = [HEADER, &row(Some(7), 12), &row(None, 3), TRAILER].concat();
        let expected = Ok(vec![Some(7), None]);
        assert_eq!(decode(&[&whole]), expected);
        for cut in 0..whole.len() {
            assert_eq!(decode(&[&whole[..cut], &whole[cut..]]), expected, "{cut}");
        }
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(decode(&bytes), expected);
        // Without a trailer; with a header extension; with more rows than a batch holds.
        assert_eq!(decode(&[&whole[..whole.len() - 2]]), expected);
        let extended = [SIGNATURE, &[0, 0, 0, 0, 0, 0, 0, 3], b"abc", &row(Some(1), 1)].concat();
        assert_eq!(decode(&[&extended]), Ok(vec![Some(1)]));
        let many: Vec<u8> = (0..20_000).flat_map(|at| row(Some(at), 1)).collect();
        assert_eq!(decode(&[HEADER, &many, TRAILER]).unwrap().len(), 20_000);
    }

    #[test]
    fn errors_name_their_row() {
        let good = row(Some(1), 1);
        let at = |text: &str| Some(text.to_string());
        let cases: [(&[&[u8]], &str, Option<String>); 9] = [
            (&[b"1\t2\n"], "22P04", None),
            (&[], "22P04", None),
            (&[SIGNATURE, &[0, 1, 0, 0, 0, 0, 0, 0]], "22P04", None),
            (&[SIGNATURE, &[0, 2, 0, 0, 0, 0, 0, 0]], "22P04", None),
            (&[HEADER, &good, &[0, 3]], "22P04", at("COPY t, line 2")),
            (&[HEADER, &good, &good[..9]], "22P04", at("COPY t, line 2")),
            (&[HEADER, &good, TRAILER, &good], "22P04", at("COPY t, line 2")),
            (&[HEADER, &good, &[0, 2, 0, 0, 0, 1, 9], &good[10..]], "22P03", at("COPY t, line 2, column a")),
            (&[HEADER, &good, &row(Some(1), 5_000)], "22003", at("COPY t, line 2, column b")),
        ];
        for (pieces, state, context) in cases {
            assert_eq!(decode(pieces), Err((state.to_string(), context)), "{pieces:?}");
        }
    }
}
