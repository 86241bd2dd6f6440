//! Rows of Arrow columns as keys or values: bytes that order as the rows do, by the row format of the `arrow`
//! crate.
//!
//! ```
//! use arrow::array::{ArrayRef, Int64Array, StringArray};
//! use arrow::datatypes::DataType;
//! use arrow::row::{OwnedRow, SortField};
//! use harrier_mpid::{Config, Job, World, arrow::Columns};
//! use std::sync::Arc;
//! let keys = Columns::new(vec![SortField::new(DataType::Utf8), SortField::new(DataType::Int64)])?;
//! let names: ArrayRef = Arc::new(StringArray::from(vec![Some("b"), None, Some("a")]));
//! let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
//! let outcome = Job::<OwnedRow, ()>::new("rows").o_tasks(1).a_tasks(1).sorted().run(
//!     &World::alone(),
//!     &Config::default(),
//!     |task| {
//!         for row in &keys.rows(&[names.clone(), numbers.clone()])? {
//!             task.emit_as(&row, &())?;
//!         }
//!         Ok(())
//!     },
//!     |task| {
//!         let mut rows = keys.empty();
//!         while let Some((row, ())) = task.next_pair()? {
//!             rows.push(keys.row(row));
//!         }
//!         Ok(keys.columns(&rows)?)
//!     },
//! )?;
//! let sorted: ArrayRef = Arc::new(Int64Array::from(vec![2, 3, 1]));
//! assert_eq!(&outcome.outputs[0].1[1], &sorted);
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! # Errors
//! Which columns bytes are rows of is not in them: a job emits and receives with the same [`Columns`]. Bytes
//! that are no row panic where they are made columns again, which fails the task.

use crate::datum::{Datum, Rejected};
use arrow::array::ArrayRef;
use arrow::error::ArrowError;
use arrow::row::{OwnedRow, Row, RowConverter, RowParser, Rows, SortField};

/// The types and orders of the columns of rows, with which they become bytes and columns again. Used by all
/// threads.
pub struct Columns {
    converter: RowConverter,
    parser: RowParser,
}

impl Columns {
    /// Rows of columns of these types, in these orders.
    ///
    /// Errors: a type that has no rows.
    pub fn new(fields: Vec<SortField>) -> Result<Columns, ArrowError> {
        let converter = RowConverter::new(fields)?;
        let parser = converter.parser();
        Ok(Columns { converter, parser })
    }

    /// The rows of a batch: as many as its columns have values.
    ///
    /// Errors: columns of other types, or of different lengths.
    pub fn rows(&self, columns: &[ArrayRef]) -> Result<Rows, ArrowError> {
        self.converter.convert_columns(columns)
    }

    /// No rows, for [`Columns::row`] to be pushed to.
    pub fn empty(&self) -> Rows {
        self.converter.empty_rows(0, 0)
    }

    /// A received row. Panics where it is made a column if the bytes are none.
    pub fn row<'a>(&'a self, bytes: &'a [u8]) -> Row<'a> {
        self.parser.parse(bytes)
    }

    /// The columns of rows.
    ///
    /// Errors: bytes that are no text where there should be text.
    pub fn columns(&self, rows: &Rows) -> Result<Vec<ArrayRef>, ArrowError> {
        self.converter.convert_rows(rows)
    }
}

/// Received as its bytes, see [`Columns::row`].
impl Datum for OwnedRow {
    type View<'a> = &'a [u8];
    const BYTE_ORDER: bool = true;

    #[inline]
    fn encode<'a>(&'a self, _: &'a mut Vec<u8>) -> &'a [u8] {
        self.as_ref()
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<&[u8], Rejected> {
        Ok(bytes)
    }
}

/// For [`crate::OTask::emit_as`]: no row is copied before it is sent.
impl Datum for Row<'_> {
    type View<'a> = &'a [u8];
    const BYTE_ORDER: bool = true;

    #[inline]
    fn encode<'a>(&'a self, _: &'a mut Vec<u8>) -> &'a [u8] {
        self.data()
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<&[u8], Rejected> {
        Ok(bytes)
    }
}
