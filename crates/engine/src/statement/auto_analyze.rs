//! ANALYZE after a write that has changed much of a table, if the session wants that.
//!
//! It is a statement of its own, with a session and a transaction of its own, after the write is committed:
//! the write stays whatever becomes of it, and who waits for the write waits for it.

use std::sync::Arc;

use harrier_catalog::Histograms;
use harrier_catalog::state::{ObjectId, State, Table};
use harrier_exec::frontend::client::Admission;

use crate::SqlError;
use crate::engine::Engine;
use crate::settings::HarrierSettings;
use crate::warehouse::{self, DEFAULT_SCHEMA};

/// A statement that has written fewer rows never pays for it, and few rows do not mislead plans.
const ROWS_MIN: u64 = 10_000;
/// Bytes of files that are looked at: a second or so, however large the table is.
const BYTES_MAX: &str = "64MB";

/// What there may be to do once rows are written.
pub(crate) struct AutoAnalyze {
    engine: Engine,
    percent: u64,
    table: ObjectId,
    statement: String,
    /// By which the writing session's statements are let in.
    admission: Option<Arc<Admission>>,
}

impl AutoAnalyze {
    /// `None`: the session does not want it.
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

    /// To be called when so many rows are committed.
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
        session.set_own("harrier.analyze_bytes", BYTES_MAX)?;
        if let Some(admission) = &self.admission {
            session.admit_by(Arc::clone(admission));
        }
        for statement in session.statements(&self.statement)? {
            session.execute(&statement).await?;
        }
        Ok(())
    }

    async fn is_due(&self) -> datafusion::error::Result<bool> {
        let Some(warehouse) = self.engine.warehouse() else { return Ok(false) };
        let Some(catalog) = warehouse.open().await? else { return Ok(false) };
        // The statement that made the table knew no number of it yet.
        if self.table < 0 {
            return Ok(true);
        }
        let known = catalog.analysis(self.table, Histograms::Of(&[])).await.map_err(warehouse::explain)?;
        let Some(known) = known else { return Ok(true) };
        let changed = catalog.rows_changed(self.table, known.snapshot).await.map_err(warehouse::explain)?;
        Ok(i128::from(changed) * 100 >= i128::from(self.percent) * i128::from(known.rows))
    }
}
