//! Statements that a client has prepared, and results that it takes piece by piece.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Schema};
use harrier_error::SqlError;

use super::feed::Feed;
use super::own::Own;
use super::types::PgType;
use crate::backend::{Description, Statement};
use crate::registry::{Registry, StatementEntry};

/// A statement that Parse has named.
pub(crate) enum Prepared {
    Empty,
    Sql {
        statement: Statement,
        description: Description,
        /// The types of the parameters as the client knows them.
        types: Vec<PgType>,
        /// Those that the client has said.
        given: Vec<Option<DataType>>,
    },
    Own {
        own: Own,
        text: String,
        /// Of the query of a cursor.
        description: Description,
        types: Vec<PgType>,
    },
}

/// What a client was told of a statement's rows when it prepared the statement.
#[derive(Clone, Copy)]
pub(crate) struct Expected<'a> {
    pub(crate) columns: &'a Schema,
    /// The types of parameters that it was described with.
    pub(crate) given: &'a [Option<DataType>],
}

/// A statement with its values.
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

/// A result that has rows left.
pub(crate) struct OpenRows {
    pub(crate) entry: Arc<StatementEntry>,
    pub(crate) tag: &'static str,
    pub(crate) feed: Feed,
    registry: Arc<Registry>,
}

impl Drop for OpenRows {
    fn drop(&mut self) {
        // Not that of a failure, which is told before.
        self.registry.end(&self.entry, None);
    }
}

impl OpenRows {
    pub(crate) fn new(
        registry: Arc<Registry>,
        entry: Arc<StatementEntry>,
        tag: &'static str,
        feed: Feed,
    ) -> Self {
        Self { entry, tag, feed, registry }
    }

    /// Ends the statement, which has failed; nothing of it is kept.
    pub(crate) fn give_up(&mut self, failure: &SqlError) {
        self.feed.give_up();
        self.registry.end(&self.entry, Some((failure.sqlstate, failure.message.clone())));
    }

    /// What is told at the end: EXPLAIN and SHOW have no counts.
    pub(crate) fn complete(&self) -> String {
        let sent = self.feed.sent;
        match self.tag {
            "EXPLAIN" | "SHOW" | "CALL" | "CHECK TABLE" | "VACUUM" => self.tag.to_string(),
            "INSERT" => format!("INSERT 0 {sent}"),
            tag => format!("{tag} {sent}"),
        }
    }
}
