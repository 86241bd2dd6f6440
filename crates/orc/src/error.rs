//! What can go wrong while a file is written.

use std::{fmt, io};

use arrow::datatypes::DataType;
use arrow::error::ArrowError;

pub type Result<T> = std::result::Result<T, Error>;

/// Why a file was not written. Whatever it is, the file is not one.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The format has no place for a column's type.
    Type {
        /// With the names of the columns that it is part of: `a.b`.
        column: String,
        /// Of that part, not of the whole column.
        kind: DataType,
    },
    /// An integer without a sign is too large.
    Number { column: String, value: String },
    /// The format has no number for a point in time: it is in the last second before 1970 and has a fraction
    /// of a millisecond or more, or it is some 290 thousand million years away.
    Time { column: String },
    /// A batch does not have the columns of the file.
    Schema { expected: DataType, found: DataType },
    /// Of Arrow's, while a column was taken apart.
    Arrow(ArrowError),
    /// The bytes could not be written.
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
