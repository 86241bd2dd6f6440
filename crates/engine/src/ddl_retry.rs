//! Retries statements about tables that met another transaction.
//!
//! A statement that is a transaction of its own and changes what tables there are, not their rows, has lost nothing when its commit
//! conflicts: it begins again on the newest snapshot, where PostgreSQL would have waited for the other one's lock. So
//! `CREATE TABLE IF NOT EXISTS` of several processes at once succeeds in all of them, and a plain CREATE TABLE says that the table is there.

use std::time::Duration;

use datafusion::error::DataFusionError;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use harrier_exec::sqlstate::{self, SqlState};

use crate::session::{Form, ParsedStatement};

/// How often a statement is run at most.
const ATTEMPTS_MAX: u32 = 10;
/// The wait before the second attempt; each is twice as long as the last.
const WAIT_FIRST: Duration = Duration::from_millis(5);

/// The attempts of one statement.
pub(crate) struct Attempts {
    left: u32,
    wait: Duration,
}

impl Attempts {
    /// `is_alone`: the statement is a transaction of its own.
    pub(crate) fn of(statement: &ParsedStatement, is_alone: bool) -> Self {
        let left = if is_alone && changes_tables(statement) { ATTEMPTS_MAX - 1 } else { 0 };
        Self { left, wait: WAIT_FIRST }
    }

    /// Waits for the next attempt after an error; false: there is none.
    pub(crate) async fn next_after(&mut self, error: &DataFusionError) -> bool {
        if self.left == 0 || sqlstate::of(error) != SqlState::SERIALIZATION_FAILURE {
            return false;
        }
        tracing::debug!(%error, attempts = self.left, "the statement is run again on the newest snapshot");
        tokio::time::sleep(self.wait).await;
        self.left -= 1;
        self.wait *= 2;
        true
    }
}

/// Whether a statement changes schemas, tables, views, indexes or sequences, and reads no rows.
fn changes_tables(statement: &ParsedStatement) -> bool {
    use ast::Statement::{
        AlterIndex, AlterTable, Comment, CreateIndex, CreateSchema, CreateTable, CreateView, Drop,
    };
    match &statement.form {
        Form::Sequence(_) => true,
        Form::Sql(Statement::Statement(parsed)) => match parsed.as_ref() {
            CreateTable(create) => create.query.is_none(),
            CreateView(_) | CreateSchema { .. } | CreateIndex(_) | AlterIndex { .. } => true,
            AlterTable(_) | Drop { .. } | Comment { .. } => true,
            _ => false,
        },
        _ => false,
    }
}
