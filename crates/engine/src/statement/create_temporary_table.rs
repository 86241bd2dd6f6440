//! CREATE TEMPORARY TABLE in a session with a warehouse.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use datafusion::catalog::MemTable;
use datafusion::error::Result;
use datafusion::logical_expr::{CreateMemoryTable, DdlStatement, LogicalPlan};
use datafusion::physical_plan::collect_partitioned;
use datafusion::sql::parser::Statement;
use harrier_catalog::access::{Object, Privilege};
use harrier_error::{SqlError, SqlState};
use harrier_exec::operators::cancelable_joins;
use harrier_sqlstate::IntoDataFusionError;

use crate::binder::declared_types;
use crate::external::hive::read_validation::ReadSet;
use crate::session::Session;
use crate::statement::outcome::{Outcome, command};
use crate::statement::parsed_statement::ParsedStatement;
use crate::warehouse::access::read_check;
use crate::warehouse::keys::{self, declaration};
use crate::warehouse::on_commit::OnCommitAction;
use crate::warehouse::session::WarehouseSession;

impl Session {
    pub(crate) async fn create_temporary_table(
        &self,
        sql: &Statement,
        statement: &ParsedStatement,
    ) -> Result<Outcome> {
        let Some(warehouse) = self.warehouse() else {
            return Box::pin(self.run_planned(sql, statement)).await;
        };
        if !warehouse.names.role().viewer().may(Object::Warehouse, Privilege::Temporary) {
            let message = "permission denied to create temporary tables";
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message).into_datafusion());
        }
        let has_keys = declaration::keys_in_memory(sql)?;
        self.begin_distributed().await?;
        let LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) =
            self.plan(sql, &statement.values).await?
        else {
            return Box::pin(self.run_planned(sql, statement)).await;
        };
        let table = create.name.table().to_string();
        let outcome = self.create_temporary(create, statement.on_commit, warehouse).await?;
        Ok(match (outcome, has_keys) {
            (Outcome::Command(completion), true) => {
                Outcome::Command(completion.with_notices(vec![keys::keys_notice(&table)]))
            }
            (outcome, _) => outcome,
        })
    }

    /// Creates a table visible to this session only, whether or not the warehouse has one of this name.
    async fn create_temporary(
        &self,
        create: CreateMemoryTable,
        on_commit: Option<OnCommitAction>,
        warehouse: &Arc<WarehouseSession>,
    ) -> Result<Outcome> {
        let CreateMemoryTable { name, input, if_not_exists, or_replace, column_defaults, .. } = create;
        let input = declared_types::strip_from_input(Arc::unwrap_or_clone(input))?;
        if warehouse.names.is_temporary(&name) && !or_replace {
            return match if_not_exists {
                true => Ok(command("CREATE TABLE")),
                false => {
                    let message = format!("relation \"{}\" already exists", name.table());
                    Err(SqlError::new(SqlState::DUPLICATE_TABLE, message).into_datafusion())
                }
            };
        }
        let is_select = !matches!(input, LogicalPlan::EmptyRelation(_));
        let state = self.context().state();
        read_check::check_reads(&state, &input)?;
        let plan = state.create_physical_plan(&input).await?;
        // Use the types of the actual rows, which may differ from the planned ones. All columns are nullable,
        // whatever the query guarantees.
        let mut schema = plan.schema();
        if is_select {
            let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
            schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        }
        let context = self.task_ctx(&state)?;
        let plan = cancelable_joins::cancelable_in(plan, &context)?;
        let rows = collect_partitioned(plan, context).await?;
        if let Some(watched) = state.config().get_extension::<ReadSet>() {
            watched.verify().await?;
        }
        let count: usize = rows.iter().flatten().map(RecordBatch::num_rows).sum();
        let table =
            MemTable::try_new(schema, rows)?.with_column_defaults(column_defaults.into_iter().collect());
        self.set_has_memory_tables();
        if warehouse.names.is_temporary(&name) {
            self.context().deregister_table(name.clone())?;
        }
        let own = name.table().to_string();
        self.context().register_table(name, Arc::new(table))?;
        if let Some(what) = on_commit {
            warehouse.names.add_on_commit_action(&own, what).await?;
        }
        Ok(match is_select {
            true => command(&format!("SELECT {count}")),
            false => command("CREATE TABLE"),
        })
    }
}
