//! Statements with a plan: queries, EXPLAIN, settings, session tables, external tables.

use datafusion::error::Result;
use datafusion::logical_expr::{DdlStatement, LogicalPlan, Statement as PlanStatement};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use harrier_error::{SqlError, SqlState};
use harrier_session_api::statement::Completion;
use harrier_sql::identifier;
use harrier_sqlstate::IntoDataFusionError;

use crate::binder::{column_origins, declared_types, type_names};
use crate::engine::setting_error;
use crate::external::hive::read_validation::ReadSet;
use crate::planning::result_names;
use crate::session::Session;
use crate::settings::{self, SpillSetting};
use crate::statement::folder_write::{check_change, explain_folder_insert};
use crate::statement::memory_table_dml;
use crate::statement::outcome::{Outcome, command, ddl_tag, write_verb};
use crate::statement::parsed_statement::ParsedStatement;
use crate::types::names;
use crate::warehouse::access::read_check;
use crate::warehouse::keys::{self, declaration};

impl Session {
    /// Plans a statement and runs the plan until its first rows are available.
    pub(crate) async fn run_planned(&self, sql: &Statement, statement: &ParsedStatement) -> Result<Outcome> {
        self.begin_distributed().await?;
        let parsed = sql;
        let named;
        let parsed = match &statement.partition {
            Some(clause) => {
                named = self.with_partition(parsed, clause).await?;
                &named
            }
            None => parsed,
        };
        let plan = self.plan(parsed, &statement.values).await?;
        let plan = result_names::with_distinct_names_in_copy(plan, statement.original.as_deref())?;
        read_check::check_reads(&self.context().state(), &plan)?;
        check_change(&plan)?;
        if let Some(outcome) = self.write_folder(&plan, statement).await? {
            return Ok(outcome);
        }
        if let Some(outcome) = self.change_memory_table(&plan, parsed, statement).await? {
            return Ok(outcome);
        }
        let plan = declared_types::strip_from_ddl(plan)?;
        let mut notices = vec![];
        if let Statement::Statement(written) = parsed
            && let ast::Statement::CreateTable(create) = written.as_ref()
            && declaration::keys_in_memory(parsed)?
        {
            let name = create.name.0.last().and_then(|part| part.as_ident()).map(identifier::plain);
            notices.extend(name.map(|name| keys::keys_notice(&name)));
        }
        let plan = memory_table_dml::explain_change(explain_folder_insert(plan)?).await?;
        let command = match &plan {
            // DataFusion accepts it and does nothing.
            LogicalPlan::Ddl(DdlStatement::CreateIndex(_)) => {
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "CREATE INDEX is not supported")
                    .into_datafusion());
            }
            LogicalPlan::Ddl(ddl) => Some(ddl_tag(ddl)),
            LogicalPlan::Statement(PlanStatement::SetVariable(set)) => {
                let mut set = set.clone();
                let name = set.variable.clone();
                self.check_setting(&name)?;
                if let Some(setting) = SpillSetting::of(&name, Some(&set.value))? {
                    self.set_spill(setting)?;
                    return Ok(command("SET"));
                }
                set.value = settings::normalize_value(&name, &set.value)?.into_owned();
                let plan = LogicalPlan::Statement(PlanStatement::SetVariable(set));
                return match self.apply_setting(plan).await {
                    Ok(()) => Ok(command("SET")),
                    Err(error) => Err(setting_error(&name, &error).into_datafusion()),
                };
            }
            LogicalPlan::Statement(PlanStatement::ResetVariable(reset)) => {
                let name = reset.variable.clone();
                self.check_setting(&name)?;
                return match self.reset(&name).await {
                    Ok(()) => Ok(command("RESET")),
                    Err(error) => Err(setting_error(&name, &error).into_datafusion()),
                };
            }
            _ => None,
        };
        let created = match &plan {
            LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) => {
                self.set_has_memory_tables();
                Some(create.name.clone())
            }
            _ => None,
        };
        let verb = write_verb(&plan, None);
        // Column types sent to clients must match those of Describe.
        let names = if self.is_client() { type_names::of(&plan) } else { vec![] };
        let origins = self.origins(&plan);
        let frame = self.context().execute_logical_plan(plan).await?;
        if let Some(created) = created {
            let watched = self.context().state_ref().read().config().get_extension::<ReadSet>();
            if let Some(watched) = watched
                && let Err(error) = watched.verify().await
            {
                self.context().deregister_table(created)?;
                return Err(error);
            }
        }
        if let Some(tag) = command {
            return Ok(Outcome::Command(Completion::new(tag).with_notices(notices)));
        }
        let (state, plan) = frame.into_parts();
        Ok(match self.execute_plan(&state, &plan, verb, &statement.text, statement.explain).await? {
            Outcome::Rows { schema, stream, progress } => {
                let schema = column_origins::with_origins(&names::with_type_names(&schema, &names), &origins);
                let schema = self.rename_executed(parsed, schema);
                Outcome::Rows { schema, stream, progress }
            }
            other => other,
        })
    }
}
