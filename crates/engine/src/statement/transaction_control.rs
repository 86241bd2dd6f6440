//! Runs each statement in a transaction, its own or the open one; BEGIN, COMMIT, ROLLBACK, savepoints.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::parser::Statement;
use futures::TryStreamExt;
use harrier_session_api::statement::Completion;

use crate::object_stores::listing_cache;
use crate::session::Session;
use crate::statement::ddl_retry::Attempts;
use crate::statement::outcome::Outcome;
use crate::statement::parsed_statement::ParsedStatement;
use crate::statement::write::{AbortGuard, Write};
use crate::warehouse::session::WarehouseSession;
use crate::warehouse::transaction::Control;

impl Session {
    /// Runs a statement. While a query is planned, object store listings are cached.
    pub(crate) async fn run(&self, statement: &ParsedStatement) -> Result<Outcome> {
        match statement.is_query() {
            true => listing_cache::with_listing_cache(self.run_with_retries(statement)).await,
            // Other statements must see the files that they write.
            false => self.run_with_retries(statement).await,
        }
    }

    async fn run_with_retries(&self, statement: &ParsedStatement) -> Result<Outcome> {
        let Some(warehouse) = self.warehouse() else {
            self.load_session_tables(statement).await;
            return Box::pin(self.dispatch(statement)).await;
        };
        if let harrier_sql::Statement::Sql(Statement::Statement(parsed)) = &statement.form
            && let Some(control) = Control::of(parsed)
        {
            return self.control(control, warehouse).await;
        }
        let is_autocommit = !warehouse.transactions.is_open();
        if is_autocommit {
            warehouse.names.run_on_commit().await?;
        }
        let mut attempts = Attempts::of(statement, is_autocommit);
        loop {
            match Box::pin(self.run_in_transaction(statement, warehouse)).await {
                Err(error) if attempts.next_after(&error).await => {}
                outcome => return outcome,
            }
        }
    }

    /// Runs a statement in the open transaction, or in one of its own.
    async fn run_in_transaction(
        &self,
        statement: &ParsedStatement,
        warehouse: &Arc<WarehouseSession>,
    ) -> Result<Outcome> {
        warehouse.transactions.begin_statement().await?;
        self.prepare_statement(statement).await?;
        let mut abort_guard = AbortGuard(Some(Arc::clone(warehouse)));
        let outcome = Box::pin(self.dispatch(statement)).await;
        abort_guard.disarm();
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                warehouse.transactions.fail_statement().await;
                return Err(error);
            }
        };
        // A pending write to the warehouse ends its statement when it finishes.
        if outcome.is_pending() {
            return Ok(outcome);
        }
        warehouse.transactions.end_statement().await?;
        let watched = |stream: SendableRecordBatchStream| -> SendableRecordBatchStream {
            let warehouse = Arc::clone(warehouse);
            let schema = stream.schema();
            let stream = stream.inspect_err(move |_| warehouse.transactions.mark_failed());
            Box::pin(RecordBatchStreamAdapter::new(schema, stream))
        };
        // If these fail or are dropped, the transaction fails.
        let abort_guard = || AbortGuard(Some(Arc::clone(warehouse)));
        Ok(match outcome {
            Outcome::Write(write) => Outcome::Write(Write { abort_guard: abort_guard(), ..write }),
            Outcome::CopyIn(mut copy) => {
                copy.write.abort_guard = abort_guard();
                Outcome::CopyIn(copy)
            }
            Outcome::CopyInRows(mut copy) => {
                copy.write.abort_guard = abort_guard();
                Outcome::CopyInRows(copy)
            }
            Outcome::Rows { schema, stream, progress } => {
                Outcome::Rows { schema, stream: watched(stream), progress }
            }
            Outcome::CopyOut(copy) => Outcome::CopyOut(copy.map_stream(watched)),
            Outcome::CopyOutRows { schema, stream, progress } => {
                Outcome::CopyOutRows { schema, stream: watched(stream), progress }
            }
            Outcome::Command(_) => outcome,
        })
    }

    /// Runs a transaction control statement, and rolls parameters back with it.
    async fn control(&self, control: Control, warehouse: &WarehouseSession) -> Result<Outcome> {
        if let Control::SetCharacteristics { isolation, read_only } = control {
            if let Some(isolation) = isolation {
                self.parameters().set("default_transaction_isolation", isolation.name(), false)?;
            }
            if let Some(read_only) = read_only {
                let value = if read_only { "on" } else { "off" };
                self.parameters().set("default_transaction_read_only", value, false)?;
            }
        }
        if self.parameters().has_changed() {
            self.apply_parameters()?;
        }
        let is_begun = matches!(control, Control::Begin { .. });
        let is_end = matches!(control, Control::Commit { .. } | Control::Rollback { .. });
        let named = control.clone();
        let was_open = warehouse.transactions.is_open();
        let (tag, warning) = warehouse.transactions.control(control).await;
        if tag.is_ok() {
            {
                let mut deferred = warehouse.deferred.lock();
                match &named {
                    Control::Savepoint(name) => deferred.savepoint(name),
                    Control::Release(name) => deferred.release(name),
                    Control::RollbackTo(name) => deferred.roll_back_to(name),
                    _ => {}
                }
            }
            warehouse.control_temporary(&named).await?;
        }
        if is_end {
            let is_committed = matches!(tag, Ok("COMMIT"));
            warehouse.end_temporary(is_committed).await?;
            if is_committed {
                warehouse.names.run_on_commit().await?;
            }
        } else if is_begun && !was_open {
            // Run the ON COMMIT actions that the previous statement left.
            warehouse.names.run_on_commit().await?;
        }
        let mut warnings: Vec<String> = warning.map(str::to_string).into_iter().collect();
        if is_end {
            let deferred = warehouse.deferred.lock().take();
            if matches!(tag, Ok("COMMIT")) {
                warnings.extend(self.run_deferred(deferred, warehouse).await);
            }
        }
        match warehouse.transactions.is_open() {
            // COMMIT AND CHAIN: one transaction has ended, and another is open.
            true if is_end && tag.is_ok() => {
                warehouse.begin_temporary().await?;
                let is_committed = matches!(tag, Ok("COMMIT"));
                self.end_local_settings()?;
                warehouse.names.role().end(is_committed);
                let has_changed = self.parameters().end(is_committed);
                self.parameters().begin();
                warehouse.names.role().begin();
                if has_changed {
                    self.apply_parameters()?;
                }
            }
            true if is_begun && tag.is_ok() => {
                self.parameters().begin();
                warehouse.names.role().begin();
            }
            true => {}
            false => {
                self.end_local_settings()?;
                warehouse.names.role().end(matches!(tag, Ok("COMMIT")));
                if self.parameters().end(matches!(tag, Ok("COMMIT"))) {
                    self.apply_parameters()?;
                }
            }
        }
        Ok(Outcome::Command(Completion::new(tag?).with_warnings(warnings)))
    }
}
