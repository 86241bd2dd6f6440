//! Plans that change the warehouse: tables, views, schemas, rows.

use std::sync::Arc;

use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use futures::TryStreamExt;
use harrier_error::{SqlError, SqlState};
use harrier_exec::frontend::admission::Admission;
use harrier_sqlstate::IntoDataFusionError;

use crate::session::Session;
use crate::statement::auto_analyze::AutoAnalyze;
use crate::statement::ddl::Ddl;
use crate::statement::insert::column_list;
use crate::statement::outcome::{Outcome, write_verb};
use crate::statement::parsed_statement::ParsedStatement;
use crate::statement::write::{AbortGuard, Write};
use crate::warehouse::access::read_check;
use crate::warehouse::dml::Dml;
use crate::warehouse::session::WarehouseSession;

impl Session {
    /// Runs a statement that creates, drops or writes: in the warehouse, if its names resolve there, else in
    /// session memory or files. `executed`: the statement itself, or the one that EXECUTE runs.
    pub(crate) async fn change(
        &self,
        executed: Option<&ast::Statement>,
        sql: &Statement,
        statement: &ParsedStatement,
    ) -> Result<Outcome> {
        // INSERT … PARTITION applies only to external tables.
        let warehouse = self.warehouse().filter(|_| statement.partition.is_none());
        if let (Some(warehouse), Some(executed)) = (warehouse, executed) {
            self.begin_distributed().await?;
            let plan = self.plan(sql, &statement.values).await?;
            if let Some(outcome) =
                Box::pin(self.change_warehouse(plan, executed, statement, warehouse)).await?
            {
                return Ok(outcome);
            }
        }
        Box::pin(self.run_planned(sql, statement)).await
    }

    /// `None`: the plan is about session tables or files.
    pub(crate) async fn change_warehouse(
        &self,
        plan: LogicalPlan,
        executed: &ast::Statement,
        statement: &ParsedStatement,
        warehouse: &Arc<WarehouseSession>,
    ) -> Result<Option<Outcome>> {
        // Creating a view does not require the right to read it.
        if !matches!(plan, LogicalPlan::Ddl(DdlStatement::CreateView(_))) {
            read_check::check_reads(&self.context().state(), &plan)?;
        }
        match &plan {
            LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) => {
                self.create_table(create, executed, statement, warehouse).await.map(Some)
            }
            LogicalPlan::Ddl(DdlStatement::CreateView(create)) if !create.temporary => {
                self.create_view(create, executed, statement, warehouse).await
            }
            LogicalPlan::Ddl(DdlStatement::CreateCatalogSchema(create)) => {
                self.create_schema(create, executed, statement, warehouse).await.map(Some)
            }
            LogicalPlan::Ddl(DdlStatement::DropTable(drop)) if !warehouse.names.is_temporary(&drop.name) => {
                self.drop_table(drop, executed, statement, warehouse).await.map(Some)
            }
            LogicalPlan::Ddl(DdlStatement::DropView(drop)) if !warehouse.names.is_temporary(&drop.name) => {
                self.drop_view(drop, statement, warehouse).await.map(Some)
            }
            LogicalPlan::Ddl(DdlStatement::DropCatalogSchema(drop)) => {
                self.drop_schema(drop, statement, warehouse).await.map(Some)
            }
            LogicalPlan::Dml(dml) => {
                let verb = write_verb(&plan, Some(executed)).unwrap_or("INSERT");
                let inserted = match executed {
                    ast::Statement::Insert(insert) => column_list(insert),
                    _ => None,
                };
                match Dml::of(dml, inserted.as_deref())? {
                    Some(dml) => self.write(dml, verb, statement, warehouse).await.map(Some),
                    None => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }

    /// The DDL executor for the open transaction.
    pub(crate) fn ddl<'s>(
        &'s self,
        warehouse: &'s WarehouseSession,
        statement: &'s ParsedStatement,
    ) -> Ddl<'s> {
        Ddl {
            names: &warehouse.names,
            transactions: &warehouse.transactions,
            context: self.context(),
            text: &statement.text,
        }
    }

    /// Errors: the session has no warehouse (0A000); `message` names what needs one.
    pub(crate) fn require_warehouse(&self, message: &str) -> Result<&Arc<WarehouseSession>> {
        self.warehouse().ok_or_else(|| {
            SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("--warehouse DIR")
                .into_datafusion()
        })
    }

    /// Writes rows as a step of a larger statement.
    pub(crate) async fn write_at_once(
        &self,
        dml: Dml,
        statement: &ParsedStatement,
        warehouse: &Arc<WarehouseSession>,
    ) -> Result<()> {
        let Dml { plan, pending } = dml;
        let state = self.context().state();
        let plan = state.optimize(&plan)?;
        pending.begin(&warehouse.transactions).await?;
        match self
            .execute_plan(&state, &plan, Some("ALTER TABLE"), &statement.text, statement.explain)
            .await?
        {
            Outcome::Write(write) => {
                let batches = write.stream.try_collect().await?;
                pending.apply(batches, &warehouse.transactions, &state.task_ctx()).await.map(drop)
            }
            _ => Err(DataFusionError::Internal("a statement that writes has answered".to_string())),
        }
    }

    /// Starts a statement that writes rows to the warehouse.
    pub(crate) async fn write(
        &self,
        dml: Dml,
        verb: &'static str,
        statement: &ParsedStatement,
        warehouse: &Arc<WarehouseSession>,
    ) -> Result<Outcome> {
        let Dml { plan, pending } = dml;
        let (before, table) = pending.table();
        let state = self.context().state();
        let admission = state.config().get_extension::<Admission>();
        let auto_analyze = AutoAnalyze::of(self.engine(), &self.settings(), admission, before, table);
        let plan = state.optimize(&plan)?;
        pending.begin(&warehouse.transactions).await?;
        let outcome =
            self.execute_plan(&state, &plan, Some(verb), &statement.text, statement.explain).await?;
        Ok(match outcome {
            Outcome::Write(write) => Outcome::Write(Write {
                pending: Some((pending, Arc::clone(warehouse), state.task_ctx())),
                abort_guard: AbortGuard(Some(Arc::clone(warehouse))),
                auto_analyze,
                ..write
            }),
            other => other,
        })
    }
}
