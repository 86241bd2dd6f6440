//! EXPLAIN of statements that write.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::logical_expr::{Analyze, Explain, LogicalPlan, PlanType, ToStringifiedPlan};
use datafusion::sql::parser::Statement;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::session::Session;
use crate::statement::explain;
use crate::statement::outcome::Outcome;
use crate::statement::parsed_statement::ParsedStatement;
use crate::warehouse::access::read_check;
use crate::warehouse::dml::Dml;
use crate::warehouse::session::WarehouseSession;

impl Session {
    /// EXPLAIN of a statement that writes. EXPLAIN ANALYZE into the warehouse performs the write.
    pub(crate) async fn explain_write(
        &self,
        sql: &Statement,
        statement: &ParsedStatement,
    ) -> Result<Outcome> {
        let explained = match self.warehouse() {
            Some(warehouse) => self.explain_change(sql, statement, warehouse).await?,
            None => None,
        };
        match explained {
            Some(outcome) => Ok(outcome),
            None => Box::pin(self.run_planned(sql, statement)).await,
        }
    }

    /// `None`: the statement does not write to the warehouse.
    async fn explain_change(
        &self,
        statement: &Statement,
        explained: &ParsedStatement,
        warehouse: &Arc<WarehouseSession>,
    ) -> Result<Option<Outcome>> {
        self.begin_distributed().await?;
        let state = self.context().state();
        let mut plan = self.plan(statement, &explained.values).await?;
        read_check::check_reads(&state, &plan)?;
        let inner = match &mut plan {
            LogicalPlan::Explain(explain) => &mut explain.plan,
            LogicalPlan::Analyze(explain) => &mut explain.input,
            _ => return Ok(None),
        };
        let dml = match inner.as_ref() {
            LogicalPlan::Dml(dml) => Dml::of(dml, None)?,
            _ => None,
        };
        let Some(Dml { plan: writing, pending }) = dml else {
            return Ok(None);
        };
        let writing = state.optimize(&writing)?;
        if let LogicalPlan::Explain(explain) = &mut plan {
            explain.stringified_plans = vec![writing.to_stringified(PlanType::InitialLogicalPlan)];
        }
        if let LogicalPlan::Explain(Explain { plan: inner, .. })
        | LogicalPlan::Analyze(Analyze { input: inner, .. }) = &mut plan
        {
            *inner = Arc::new(writing);
        }
        let is_run = matches!(plan, LogicalPlan::Analyze(_));
        let text = statement.to_string();
        if is_run {
            pending.begin(&warehouse.transactions).await?;
        }
        let record = self.engine().history().map(|history| (history, text.as_str()));
        let gang = self.engine().gang();
        let options = explained.explain;
        match explain::answer(&state, &plan, gang, || self.task_ctx(&state), is_run, record, options).await? {
            Some(answer) => {
                if is_run {
                    pending.apply(answer.batches, &warehouse.transactions, &state.task_ctx()).await?;
                }
                explain::rows(answer.lines, options.format).map(Some)
            }
            None if is_run => {
                let message = "EXPLAIN ANALYZE of a statement that writes has one format only";
                Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion())
            }
            None => self.execute_plan(&state, &plan, None, &text, options).await.map(Some),
        }
    }
}
