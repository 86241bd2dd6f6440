//! Prepared statements: parsed and described once, and the parameters bound to them.

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use harrier_error::{SqlError, SqlState};
use harrier_session_api::statement::Description;
use parking_lot::Mutex;

use crate::backend::BackendStatement;

pub(super) struct Prepared {
    pub text: String,
    /// The transaction that it was prepared in.
    pub transaction: Option<Bytes>,
    /// The session that parsed it: others parse it again.
    pub session: i32,
    pub parsed: Option<BackendStatement>,
    /// `None`: its parameter types were not known yet.
    pub description: Option<Description>,
    pub bound: Mutex<Option<RecordBatch>>,
}

impl Prepared {
    /// The schema of its parameters.
    pub fn parameters(&self) -> Option<Schema> {
        let parameters = self.description.as_ref().map(|description| &description.parameters)?;
        let fields = parameters.iter().enumerate();
        let fields =
            fields.map(|(at, data_type)| Field::new(format!("${}", at + 1), data_type.clone(), true));
        Some(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// The schema of its rows on the wire.
    pub fn columns(&self) -> Option<SchemaRef> {
        let columns = self.description.as_ref()?.columns.as_ref()?;
        Some(super::encode::wire_schema(columns))
    }

    /// Errors: as many parameters were not described (08P01).
    pub fn check_count(&self, given: usize) -> Result<(), SqlError> {
        match self.description.as_ref().map(|description| description.parameters.len()) {
            Some(expected) if expected != given => {
                let message =
                    format!("{given} parameters were bound, but the prepared statement requires {expected}");
                Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, message))
            }
            _ => Ok(()),
        }
    }

    /// Casts bound parameters to the described types.
    pub fn cast(&self, parameters: &RecordBatch) -> Result<Vec<ArrayRef>, SqlError> {
        let Some(description) = &self.description else { return Ok(parameters.columns().to_vec()) };
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let columns = parameters.columns().iter().zip(&description.parameters).enumerate();
        let columns = columns.map(|(at, (column, expected))| {
            let given = column.data_type();
            if given == expected || *expected == DataType::Null {
                return Ok(column.clone());
            }
            if !can_cast_types(given, expected) {
                let message =
                    format!("parameter ${} is of type {expected}, but was bound as {given}", at + 1);
                return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
            }
            cast_with_options(column, expected, &options).map_err(|error| {
                SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("parameter ${}: {error}", at + 1))
            })
        });
        columns.collect()
    }
}
