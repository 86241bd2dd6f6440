//! Rows of Arrow columns as keys or values, in the row format of the `arrow` crate, whose byte order is the
//! row order.
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
//! The bytes do not name their columns: a job must emit and receive with the same [`Columns`]. Bytes that are
//! not a row panic when they are converted to columns, which fails the task.

use crate::datum::{Datum, Rejected};
use arrow::array::ArrayRef;
use arrow::error::ArrowError;
use arrow::row::{OwnedRow, Row, RowConverter, RowParser, Rows, SortField};

/// Types and sort options of row columns; converts between columns and bytes. Shared by all threads.
pub struct Columns {
    converter: RowConverter,
    parser: RowParser,
}

impl Columns {
    /// Creates a converter for columns of these types and sort options.
    ///
    /// Errors: a type that the row format does not support.
    pub fn new(fields: Vec<SortField>) -> Result<Columns, ArrowError> {
        let converter = RowConverter::new(fields)?;
        let parser = converter.parser();
        Ok(Columns { converter, parser })
    }

    /// Converts a batch to rows, one per value of its columns.
    ///
    /// Errors: columns of other types, or of different lengths.
    pub fn rows(&self, columns: &[ArrayRef]) -> Result<Rows, ArrowError> {
        self.converter.convert_columns(columns)
    }

    /// Empty rows, to which [`Columns::row`] values are pushed.
    pub fn empty(&self) -> Rows {
        self.converter.empty_rows(0, 0)
    }

    /// A received row. If the bytes are invalid, its conversion to columns panics.
    pub fn row<'a>(&'a self, bytes: &'a [u8]) -> Row<'a> {
        self.parser.parse(bytes)
    }

    /// Converts rows to columns.
    ///
    /// Errors: invalid UTF-8 in a text column.
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

/// For [`crate::OTask::emit_as`]: avoids copying a row before it is sent.
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
