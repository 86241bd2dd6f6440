//! Errors of writing a file.

use std::{fmt, io};

use arrow::datatypes::DataType;
use arrow::error::ArrowError;

pub type Result<T> = std::result::Result<T, Error>;

/// Why writing failed. After any of these the output is not a valid file.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// ORC has no equivalent of a column's type.
    Type {
        /// Qualified by the parent columns: `a.b`.
        column: String,
        /// The type of this nested field, not of the whole column.
        kind: DataType,
    },
    /// An unsigned integer is too large.
    Number { column: String, value: String },
    /// ORC cannot represent a point in time: it is in the last second before 1970 with a fraction of a
    /// millisecond or more, or some 290 thousand million years away.
    Time { column: String },
    /// A batch's columns differ from the file's.
    Schema { expected: DataType, found: DataType },
    /// An Arrow error while decoding a column.
    Arrow(ArrowError),
    /// Writing to the output failed.
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type { column, kind } => {
                write!(f, "column \"{column}\" of type {kind} cannot be written to an ORC file")
            }
            Self::Number { column, value } => {
                write!(f, "value {value} of column \"{column}\" cannot be written to an ORC file")
            }
            Self::Time { column } => {
                write!(f, "a timestamp of column \"{column}\" cannot be written to an ORC file")
            }
            Self::Schema { expected, found } => {
                write!(f, "rows of {found} for an ORC file of {expected}")
            }
            Self::Arrow(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Arrow(error) => Some(error),
            Self::Io(error) => Some(error),
            Self::Type { .. } | Self::Number { .. } | Self::Time { .. } | Self::Schema { .. } => None,
        }
    }
}

impl From<ArrowError> for Error {
    fn from(error: ArrowError) -> Self {
        Self::Arrow(error)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
