//! ANALYZE: collects statistics of tables for the planner.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use futures::TryStreamExt;
use harrier_catalog::Analysis;
use harrier_catalog::access::Object;
use harrier_error::{SqlError, SqlState};
use harrier_sql::identifier;
use harrier_sql::parser::analyze::{AnalyzeClauses, SampleSize};
use harrier_sql::tokens::explain_options::ExplainOptions;
use harrier_sqlstate::IntoDataFusionError;

use crate::session::Session;
use crate::statement::outcome::{Outcome, command};
use crate::statement::parsed_statement::ParsedStatement;
use crate::warehouse::maintenance::collect_statistics::StatisticsCollector;
use crate::warehouse::session::WarehouseSession;
use crate::warehouse::snapshot::StatementSnapshot;
use crate::warehouse::table::WarehouseTable;
use crate::warehouse::{self, relation};

/// Growth factor of the sample share when a sample is empty.
const SAMPLE_GROWTH: f64 = 8.0;

impl Session {
    /// ANALYZE: collects the statistics of the given tables or of all. They survive a rollback.
    pub(crate) async fn analyze(
        &self,
        analyze: &ast::Analyze,
        sql: &Statement,
        statement: &ParsedStatement,
    ) -> Result<Outcome> {
        match self.warehouse() {
            Some(warehouse) => {
                let table = analyze.table_name.as_ref();
                let AnalyzeClauses { sample, others } = &statement.analyze;
                self.analyze_tables(table, &analyze.columns, *sample, warehouse).await?;
                for (table, columns) in others {
                    self.analyze_tables(Some(table), columns, *sample, warehouse).await?;
                }
                Ok(command("ANALYZE"))
            }
            None => Box::pin(self.run_planned(sql, statement)).await,
        }
    }

    /// Collects the statistics of a table, or of all that the role owns; of no columns stands for of all.
    pub(crate) async fn analyze_tables(
        &self,
        table: Option<&ast::ObjectName>,
        columns: &[ast::Ident],
        sample: SampleSize,
        warehouse: &Arc<WarehouseSession>,
    ) -> Result<()> {
        let snapshot = warehouse.names.snapshot();
        let (Some(catalog), Some(state)) = (&snapshot.catalog, &snapshot.state) else {
            return match table {
                Some(name) => Err(warehouse.names.no_table(&relation::reference(name)?, "ANALYZE").await),
                None => Ok(()),
            };
        };
        let tables = match table {
            // Only the tables that the role may analyze, as in PostgreSQL.
            None => {
                let own = |id| snapshot.viewer.owns(Object::Table(id));
                state.tables.values().filter(|table| own(table.id)).cloned().collect()
            }
            Some(name) => {
                let name = relation::reference(name)?;
                if self.is_system_catalog(&name).await {
                    return Ok(());
                }
                let Some(table) = warehouse.names.table(&name) else {
                    return Err(warehouse.names.no_table(&name, "ANALYZE").await);
                };
                snapshot.viewer.check_owner(Object::Table(table.id), state)?;
                vec![table]
            }
        };
        let columns: Vec<String> = columns.iter().map(identifier::plain).collect();
        for table in tables {
            if table.id < 0 {
                let message = format!("table \"{}\" can be analyzed when it is committed", table.name);
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
            }
            let looking = StatisticsCollector::new(&table, &columns)?;
            // Statistics survive a rollback: collect them from committed data only.
            let committed = StatementSnapshot { data: Arc::default(), ..snapshot.clone() };
            let target = WarehouseTable::try_new(self.context().state(), &committed, Arc::clone(&table))?;
            let found = self.collect_statistics(&looking, target, sample).await?;
            catalog.store_analysis(table.id, &found).await.map_err(warehouse::explain)?;
        }
        Ok(())
    }

    /// Collects a table's statistics from a sample or from all rows.
    async fn collect_statistics(
        &self,
        looking: &StatisticsCollector<'_>,
        target: WarehouseTable,
        sample: SampleSize,
    ) -> Result<Analysis> {
        let size = target.size().await?;
        let most = self.settings().analyze_bytes as f64;
        let share = match sample {
            SampleSize::Share(share) => Some(share),
            SampleSize::Default if most > 0.0 && size.bytes as f64 > most => Some(most / size.bytes as f64),
            SampleSize::Default | SampleSize::Full => None,
        };
        let snapshot = target.state().snapshot;
        if let Some(share) = share {
            // A small share of few row groups may select none of them.
            let mut share = share;
            while share > 0.0 && share < 1.0 {
                let answer = self.run_sample(looking, target.with_sample(share)).await?;
                if let Some(found) = looking.analysis(&answer, snapshot, Some(size.rows))? {
                    return Ok(found);
                }
                share *= SAMPLE_GROWTH;
            }
        }
        let answer = self.run_sample(looking, target).await?;
        let found = looking.analysis(&answer, snapshot, None)?;
        found.ok_or_else(|| DataFusionError::Internal("ANALYZE has found nothing".to_string()))
    }

    async fn run_sample(
        &self,
        looking: &StatisticsCollector<'_>,
        target: WarehouseTable,
    ) -> Result<RecordBatch> {
        self.begin_distributed().await?;
        let session = self.context().state();
        let plan = session.optimize(&looking.query(Arc::new(target))?)?;
        let Outcome::Rows { stream, schema, .. } =
            self.execute_plan(&session, &plan, None, "", ExplainOptions::default()).await?
        else {
            return Err(DataFusionError::Internal("ANALYZE has no answer".to_string()));
        };
        let batches: Vec<RecordBatch> = stream.try_collect().await?;
        Ok(concat_batches(&schema, &batches)?)
    }
}
