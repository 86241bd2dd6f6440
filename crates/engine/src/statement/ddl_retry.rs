//! Retries DDL after commit conflicts with other transactions.
//!
//! An autocommit statement that changes definitions and not rows loses nothing in a conflict: it starts over
//! on the newest snapshot, where PostgreSQL would have waited for the other transaction's lock. So concurrent
//! `CREATE TABLE IF NOT EXISTS` succeed in all processes, and a plain CREATE TABLE reports that the table
//! exists.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use datafusion::error::DataFusionError;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use harrier_error::SqlState;

use crate::statement::parsed_statement::ParsedStatement;

/// Most attempts of one statement.
const ATTEMPTS_MAX: usize = 10;
/// Delay before the second attempt; it doubles with each further one.
const WAIT_FIRST: Duration = Duration::from_millis(5);

/// The attempts of one statement.
pub(crate) struct Attempts {
    backoff: ExponentialBackoff,
}

impl Attempts {
    /// `is_autocommit`: the statement runs in a transaction of its own (autocommit).
    pub(crate) fn of(statement: &ParsedStatement, is_autocommit: bool) -> Self {
        let retries = if is_autocommit && changes_tables(statement) { ATTEMPTS_MAX - 1 } else { 0 };
        let backoff = ExponentialBuilder::default().with_min_delay(WAIT_FIRST).with_max_times(retries);
        Self { backoff: backoff.build() }
    }

    /// Waits before the next attempt after an error; false: do not retry.
    pub(crate) async fn next_after(&mut self, error: &DataFusionError) -> bool {
        if harrier_sqlstate::of(error) != SqlState::SERIALIZATION_FAILURE {
            return false;
        }
        let Some(wait) = self.backoff.next() else { return false };
        tracing::debug!(%error, ?wait, "the statement is retried on the newest snapshot");
        tokio::time::sleep(wait).await;
        true
    }
}

/// Whether a statement changes schemas, tables, views, indexes or sequences. One that reads rows for it (SET
/// NOT NULL) reads them again.
fn changes_tables(statement: &ParsedStatement) -> bool {
    use ast::Statement::{
        AlterIndex, AlterTable, Comment, CreateIndex, CreateSchema, CreateTable, CreateView, Drop,
    };
    match &statement.form {
        harrier_sql::Statement::Sequence(_) | harrier_sql::Statement::RenameIndex(_) => true,
        harrier_sql::Statement::Sql(Statement::Statement(parsed)) => match parsed.as_ref() {
            CreateTable(create) => create.query.is_none(),
            CreateView(_) | CreateSchema { .. } | CreateIndex(_) | AlterIndex { .. } => true,
            AlterTable(_) | Drop { .. } | Comment { .. } => true,
            _ => false,
        },
        _ => false,
    }
}
