//! Automatic ANALYZE after a write that changed a large part of a table, if enabled in the session.
//!
//! It runs as a separate statement with its own session and transaction, after the write has committed: its
//! failure does not affect the write, but the writing client waits for it.

use std::sync::Arc;

use harrier_catalog::Histograms;
use harrier_catalog::state::{ObjectId, State, Table};
use harrier_exec::frontend::admission::Admission;

use crate::SqlError;
use crate::engine::Engine;
use crate::settings::HarrierSettings;
use crate::warehouse::{self, DEFAULT_SCHEMA};

/// Smaller writes never trigger it; few rows do not mislead the planner.
const ROWS_MIN: u64 = 10_000;
/// Bytes of files that are sampled: about a second, however large the table is.
const BYTES_MAX: &str = "64MB";

/// The check to run after rows are written.
pub(crate) struct AutoAnalyze {
    engine: Engine,
    percent: u64,
    table: ObjectId,
    statement: String,
    /// Admission controller of the writing session.
    admission: Option<Arc<Admission>>,
}

impl AutoAnalyze {
    /// `None`: disabled in the session.
    pub(crate) fn of(
        engine: &Engine,
        settings: &HarrierSettings,
        admission: Option<Arc<Admission>>,
        state: &State,
        table: &Arc<Table>,
    ) -> Option<Self> {
        let schema = state.schemas.get(&table.schema).map_or(DEFAULT_SCHEMA, |schema| &schema.name);
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        let statement = format!("ANALYZE {}.{}", quoted(schema), quoted(&table.name));
        let percent = settings.auto_analyze as u64;
        let engine = engine.clone();
        (percent > 0).then(|| Self { engine, percent, table: table.id, statement, admission })
    }

    /// Analyzes the table if due. Call it after `rows` rows have been committed.
    pub(crate) async fn run(self, rows: u64) {
        if rows < ROWS_MIN {
            return;
        }
        if let Err(error) = self.analyze().await {
            tracing::warn!(%error, statement = self.statement, "a table was not analyzed after a write");
        }
    }

    async fn analyze(&self) -> Result<(), SqlError> {
        if !self.is_due().await.map_err(|error| crate::error::in_statement(&error, &self.statement))? {
            return Ok(());
        }
        let session = self.engine.session();
        session.set_setting("harrier.analyze_bytes", BYTES_MAX)?;
        if let Some(admission) = &self.admission {
            session.share_admission(Arc::clone(admission));
        }
        for statement in session.statements(&self.statement)? {
            session.execute(&statement).await?;
        }
        Ok(())
    }

    async fn is_due(&self) -> datafusion::error::Result<bool> {
        let Some(warehouse) = self.engine.warehouse() else { return Ok(false) };
        let Some(catalog) = warehouse.open().await? else { return Ok(false) };
        // The statement that created the table has only a provisional table id.
        if self.table < 0 {
            return Ok(true);
        }
        let known = catalog.analysis(self.table, Histograms::Of(&[])).await.map_err(warehouse::explain)?;
        let Some(known) = known else { return Ok(true) };
        let changed = catalog.rows_changed(self.table, known.snapshot).await.map_err(warehouse::explain)?;
        Ok(i128::from(changed) * 100 >= i128::from(self.percent) * i128::from(known.rows))
    }
}
