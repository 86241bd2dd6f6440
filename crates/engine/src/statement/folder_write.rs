//! INSERT into and OPTIMIZE of external folder tables.

use std::sync::Arc;

use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::logical_expr::{DmlStatement, LogicalPlan, PlanType, ToStringifiedPlan, WriteOp};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use harrier_error::{SqlError, SqlState};
use harrier_sql::parser::insert_partition::InsertPartition;
use harrier_sql::tokens::explain_options::ExplainOptions;
use harrier_sqlstate::IntoDataFusionError;

use crate::external::hive;
use crate::external::hive::insert::FolderWrite;
use crate::external::hive::table::FolderTable;
use crate::session::Session;
use crate::statement::outcome::{Outcome, command};
use crate::statement::parsed_statement::ParsedStatement;
use crate::statement::write::Write;
use crate::warehouse::relation;

impl Session {
    /// Adds the partition columns of an INSERT … PARTITION to its columns.
    pub(crate) async fn with_partition(
        &self,
        statement: &Statement,
        clause: &InsertPartition,
    ) -> Result<Statement> {
        if let Statement::Statement(parsed) = statement
            && let ast::Statement::Insert(insert) = parsed.as_ref()
            && let ast::TableObject::TableName(name) = &insert.table
        {
            let table = self.context().table_provider(relation::reference(name)?).await?;
            if let Some(table) = table.downcast_ref::<FolderTable>() {
                let insert = ast::Statement::Insert(hive::insert_into_partition(clause, insert, table)?);
                return Ok(Statement::Statement(Box::new(insert)));
            }
        }
        Err(SqlError::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            "PARTITION is for external tables that are folders",
        )
        .with_hint("list the columns, partition keys included")
        .into_datafusion())
    }

    /// Starts an INSERT into a folder, which becomes visible atomically; `None` for other plans.
    pub(crate) async fn write_folder(
        &self,
        plan: &LogicalPlan,
        statement: &ParsedStatement,
    ) -> Result<Option<Outcome>> {
        match plan {
            LogicalPlan::Dml(dml) => {
                self.insert_into_folder(dml, statement.partition.as_ref(), "INSERT", &statement.text).await
            }
            _ => Ok(None),
        }
    }

    /// The same for any statement `verb`.
    pub(crate) async fn insert_into_folder(
        &self,
        dml: &DmlStatement,
        partition: Option<&InsertPartition>,
        verb: &'static str,
        text: &str,
    ) -> Result<Option<Outcome>> {
        let Some((plan, folder)) = FolderWrite::begin(dml, partition).await? else {
            return Ok(None);
        };
        let outcome = self
            .execute_plan(&self.context().state(), &plan, Some(verb), text, ExplainOptions::default())
            .await?;
        Ok(Some(match outcome {
            Outcome::Write(write) => Outcome::Write(Write { folder: Some(folder), ..write }),
            other => other,
        }))
    }

    /// OPTIMIZE of an external folder table: compacts its small files; `None` for other tables.
    ///
    /// Errors: the table does not exist, in a session without a warehouse (42P01).
    pub(crate) async fn optimize_folder(
        &self,
        name: &ast::ObjectName,
        statement: &ParsedStatement,
    ) -> Result<Option<Outcome>> {
        let reference = relation::reference(name)?;
        let Ok(table) = self.context().table_provider(reference.clone()).await else {
            return match self.warehouse() {
                Some(_) => Ok(None),
                None => {
                    let message = format!("relation \"{}\" does not exist", reference.table());
                    Err(SqlError::new(SqlState::UNDEFINED_TABLE, message).into_datafusion())
                }
            };
        };
        let Some(table) = table.downcast_ref::<FolderTable>() else { return Ok(None) };
        let state = self.context().state();
        let Some((plan, folder)) = FolderWrite::merge(&state, table, reference.table()).await? else {
            return Ok(Some(command("OPTIMIZE 0")));
        };
        let outcome =
            self.execute_plan(&state, &plan, Some("OPTIMIZE"), &statement.text, statement.explain).await?;
        Ok(Some(match outcome {
            Outcome::Write(write) => Outcome::Write(Write { folder: Some(folder), ..write }),
            other => other,
        }))
    }
}

/// Errors: the plan changes rows of an external table, which only supports INSERT (0A000).
pub(crate) fn check_change(plan: &LogicalPlan) -> Result<()> {
    let LogicalPlan::Dml(dml) = plan else { return Ok(()) };
    let changes = matches!(dml.op, WriteOp::Update | WriteOp::Delete | WriteOp::MergeInto(_));
    let is_external = || {
        let provider = source_as_provider(&dml.target);
        provider.is_ok_and(|provider| provider.downcast_ref::<FolderTable>().is_some())
    };
    if changes && is_external() {
        let message =
            format!("\"{}\" is an external table, whose rows cannot be changed", dml.table_name.table());
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
            .with_hint("INSERT OVERWRITE writes them anew")
            .into_datafusion());
    }
    Ok(())
}

/// EXPLAIN of an INSERT into a folder, with the plan that stages files.
///
/// Errors: it is EXPLAIN ANALYZE (0A000).
pub(crate) fn explain_folder_insert(mut plan: LogicalPlan) -> Result<LogicalPlan> {
    let inner = match &plan {
        LogicalPlan::Explain(explain) => &explain.plan,
        LogicalPlan::Analyze(explain) => &explain.input,
        _ => return Ok(plan),
    };
    let LogicalPlan::Dml(dml) = inner.as_ref() else {
        return Ok(plan);
    };
    let Some(staging) = FolderWrite::explain(dml)? else {
        return Ok(plan);
    };
    match &mut plan {
        LogicalPlan::Explain(explain) => {
            explain.stringified_plans = vec![staging.to_stringified(PlanType::InitialLogicalPlan)];
            explain.plan = Arc::new(staging);
            Ok(plan)
        }
        _ => {
            let message = "EXPLAIN ANALYZE of an INSERT into an external table is not supported";
            Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("EXPLAIN shows its plan")
                .into_datafusion())
        }
    }
}
