//! Prepared statements: parsed and described once, executed with Arrow parameters.

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use harrier_error::{SqlError, SqlState};
use harrier_session_api::statement::{Completion, Description};
use parking_lot::Mutex;

use super::consumer::Consumer;
use super::executor::{Executor, StatementInputs};
use super::placeholders::number_placeholders;
use crate::backend::Statement;

pub(super) struct Prepared {
    pub text: String,
    /// The transaction that it was prepared in.
    pub transaction: Option<Bytes>,
    /// The session that parsed it: others parse it again.
    session: i32,
    parsed: Option<Statement>,
    /// `None`: its parameter types were not known yet.
    pub description: Option<Description>,
    pub bound: Mutex<Option<RecordBatch>>,
}

impl Prepared {
    /// Prepares a statement on the session of a turn. Its parameters may be question marks.
    pub async fn new(
        executor: &mut Executor,
        text: String,
        transaction: Option<Bytes>,
    ) -> Result<Self, SqlError> {
        let text = number_placeholders(&text).into_owned();
        let (parsed, description) = match executor.describe(&text).await {
            Ok(Some((statement, description))) => (Some(statement), Some(description)),
            Ok(None) => (None, Some(Description::default())),
            // The bound values will determine the parameter types.
            Err(failure) if failure.sqlstate == SqlState::INDETERMINATE_DATATYPE => (None, None),
            Err(failure) => return Err(failure),
        };
        let session = executor.session_id();
        Ok(Self { text, transaction, session, parsed, description, bound: Mutex::new(None) })
    }

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

    /// Executes it once without parameters, or once per row of them.
    pub async fn run(
        &self,
        executor: &mut Executor,
        parameters: Option<&RecordBatch>,
        consumer: &mut dyn Consumer,
    ) -> Result<i64, SqlError> {
        let parameters = parameters.filter(|parameters| parameters.num_columns() > 0);
        let Some(parameters) = parameters else {
            self.check_count(0)?;
            return Ok(super::executor::row_count(&self.run_once(executor, &[], consumer).await?));
        };
        self.check_count(parameters.num_columns())?;
        let columns = self.cast(parameters)?;
        let mut count = 0;
        for row in 0..parameters.num_rows() {
            let values: Vec<ArrayRef> = columns.iter().map(|column| column.slice(row, 1)).collect();
            count += super::executor::row_count(&self.run_once(executor, &values, consumer).await?);
        }
        Ok(count)
    }

    async fn run_once(
        &self,
        executor: &mut Executor,
        values: &[ArrayRef],
        consumer: &mut dyn Consumer,
    ) -> Result<Completion, SqlError> {
        let parsed = self.parsed.clone().filter(|_| executor.session_id() == self.session);
        let expected = self.description.as_ref().and_then(|description| description.columns.as_deref());
        executor
            .run(
                &self.text,
                StatementInputs { parsed, values, expected, ..StatementInputs::default() },
                consumer,
            )
            .await
    }

    fn check_count(&self, given: usize) -> Result<(), SqlError> {
        match self.description.as_ref().map(|description| description.parameters.len()) {
            Some(expected) if expected != given => {
                let message =
                    format!("{given} parameters were bound, but the prepared statement requires {expected}");
                Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, message))
            }
            _ => Ok(()),
        }
    }

    fn cast(&self, parameters: &RecordBatch) -> Result<Vec<ArrayRef>, SqlError> {
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
