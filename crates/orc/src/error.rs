//! Errors of writing a file.

use std::io;

use arrow::datatypes::DataType;
use arrow::error::ArrowError;

pub type Result<T> = std::result::Result<T, Error>;

/// Why writing failed. After any of these the output is not a valid file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// ORC has no equivalent of a column's type.
    #[error("column \"{column}\" of type {kind} cannot be written to an ORC file")]
    Type {
        /// Qualified by the parent columns: `a.b`.
        column: String,
        /// The type of this nested field, not of the whole column.
        kind: DataType,
    },
    /// An unsigned integer is too large.
    #[error("value {value} of column \"{column}\" cannot be written to an ORC file")]
    Number { column: String, value: String },
    /// ORC cannot represent a point in time: it is in the last second before 1970 with a fraction of a
    /// millisecond or more, or some 290 thousand million years away.
    #[error("a timestamp of column \"{column}\" cannot be written to an ORC file")]
    Time { column: String },
    /// A batch's columns differ from the file's.
    #[error("rows of {found} for an ORC file of {expected}")]
    Schema { expected: DataType, found: DataType },
    /// An Arrow error while decoding a column.
    #[error("{0}")]
    Arrow(#[from] ArrowError),
    /// Writing to the output failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}
