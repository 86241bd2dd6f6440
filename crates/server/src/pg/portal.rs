//! Prepared statements and portals.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Schema};
use harrier_error::SqlError;
use harrier_session_api::command::SessionCommand;
use harrier_session_api::statement::Description;

use super::result_stream::ResultStream;
use super::types::PgType;
use crate::backend::BackendStatement;
use crate::registry::{Registry, StatementEntry};

/// A prepared statement, from Parse.
pub(crate) enum Prepared {
    Empty,
    Sql {
        statement: BackendStatement,
        description: Description,
        /// The parameter types sent to the client.
        types: Vec<PgType>,
        /// The parameter types that the client declared.
        declared_types: Vec<Option<DataType>>,
    },
    SessionCommand {
        command: SessionCommand,
        text: String,
        /// The description of a cursor's query.
        description: Description,
        types: Vec<PgType>,
    },
}

/// The row description sent to the client when it prepared the statement.
#[derive(Clone, Copy)]
pub(crate) struct Expected<'a> {
    pub(crate) columns: &'a Schema,
    /// The parameter types it was described with.
    pub(crate) declared_types: &'a [Option<DataType>],
}

/// A prepared statement with its parameter values.
pub(crate) struct Portal {
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) values: Vec<ArrayRef>,
    pub(crate) formats: Vec<i16>,
    pub(crate) state: PortalState,
}

pub(crate) enum PortalState {
    New,
    Open(Box<OpenRows>),
    Done,
}

/// A result with unsent rows.
pub(crate) struct OpenRows {
    pub(crate) entry: Arc<StatementEntry>,
    pub(crate) tag: &'static str,
    pub(crate) stream: ResultStream,
    registry: Arc<Registry>,
}

impl Drop for OpenRows {
    fn drop(&mut self) {
        // After a failure, `give_up` has reported the end already.
        self.registry.end(&self.entry, None);
    }
}

impl OpenRows {
    pub(crate) fn new(
        registry: Arc<Registry>,
        entry: Arc<StatementEntry>,
        tag: &'static str,
        stream: ResultStream,
    ) -> Self {
        Self { entry, tag, stream, registry }
    }

    /// Ends the failed statement and drops its rows.
    pub(crate) fn abort(&mut self, failure: &SqlError) {
        self.stream.cancel();
        self.registry.end(&self.entry, Some((failure.sqlstate, failure.message.clone())));
    }

    /// The command tag; EXPLAIN and SHOW have no counts.
    pub(crate) fn complete(&self) -> String {
        let sent = self.stream.sent;
        match self.tag {
            "EXPLAIN" | "SHOW" | "CALL" | "CHECK TABLE" | "VACUUM" => self.tag.to_string(),
            "INSERT" => format!("INSERT 0 {sent}"),
            tag => format!("{tag} {sent}"),
        }
    }
}
