//! Columns of answers about metadata, from rows.

use std::sync::Arc;

use arrow::array::RecordBatchOptions;
use arrow::array::{ArrayRef, BooleanArray, Int8Array, Int16Array, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use harrier_error::{SqlError, SqlState};

/// The type of a column.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Text,
    Int,
    Small,
    Tiny,
    Bool,
}

/// A value in a row.
#[derive(Debug, Clone)]
pub(super) enum Cell {
    Null,
    Text(String),
    Int(i32),
    Bool(bool),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_string())
    }
}

impl From<Option<i32>> for Cell {
    fn from(number: Option<i32>) -> Self {
        number.map_or(Self::Null, Self::Int)
    }
}

impl Cell {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    fn int(&self) -> Option<i32> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    fn bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }
}

/// The batch of these rows.
pub(super) fn batch(columns: &[(&str, Kind)], rows: &[Vec<Cell>]) -> Result<RecordBatch, SqlError> {
    let mut fields = Vec::new();
    let mut arrays: Vec<ArrayRef> = Vec::new();
    for (number, (name, kind)) in columns.iter().enumerate() {
        let cells = rows.iter().map(|row| row.get(number).unwrap_or(&Cell::Null));
        let (data_type, array): (_, ArrayRef) = match kind {
            Kind::Text => (DataType::Utf8, Arc::new(cells.map(Cell::text).collect::<StringArray>())),
            Kind::Int => (DataType::Int32, Arc::new(cells.map(Cell::int).collect::<Int32Array>())),
            Kind::Small => {
                let cells = cells.map(|cell| cell.int().map(|number| number as i16));
                (DataType::Int16, Arc::new(cells.collect::<Int16Array>()))
            }
            Kind::Tiny => {
                let cells = cells.map(|cell| cell.int().map(|number| number as i8));
                (DataType::Int8, Arc::new(cells.collect::<Int8Array>()))
            }
            Kind::Bool => (DataType::Boolean, Arc::new(cells.map(Cell::bool).collect::<BooleanArray>())),
        };
        fields.push(Field::new(*name, data_type, true));
        arrays.push(array);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options).map_err(|error| {
        SqlError::new(SqlState::INTERNAL_ERROR, format!("an answer could not be built: {error}"))
    })
}
