//! Executes statements: one match over their kinds, one file for each kind.
//!
//! ```text
//!   text ─► parse.rs ─► ParsedStatement ─► transaction_control.rs ─► the match below ─► Outcome
//!                                                                         │
//!              access, alter_table, analyze, call, copy, create_…, drop, … ◄┤ utility statements
//!   planned_statement.rs ─► plan.rs ─► execute_plan.rs ─► rows             ◄┘ statements with a plan
//! ```

use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use futures::FutureExt;
use futures::future::BoxFuture;
use harrier_error::SqlError;
use harrier_resources::cancellation::CancelFlag;
use harrier_sql::Statement as Form;

use crate::runtime::panic_guard::catch_panic;
use crate::session::Session;
use crate::statement::kind::Kind;
use crate::statement::outcome::{Outcome, command};
use crate::statement::parsed_statement::ParsedStatement;
use crate::warehouse::sequences;

pub(crate) mod access;
pub(crate) mod alter_table;
pub(crate) mod analyze;
pub(crate) mod auto_analyze;
pub(crate) mod call;
pub(crate) mod catalog_reads;
pub(crate) mod comment;
pub(crate) mod copy;
pub(crate) mod create_database;
pub(crate) mod create_extension;
pub(crate) mod create_schema;
pub(crate) mod create_table;
pub(crate) mod create_temporary_table;
pub(crate) mod create_view;
pub(crate) mod ddl;
pub(crate) mod ddl_retry;
pub(crate) mod describe;
pub(crate) mod drop;
pub(crate) mod execute_plan;
pub(crate) mod explain;
pub(crate) mod explain_tree;
pub(crate) mod explain_write;
pub(crate) mod folder_write;
pub(crate) mod index;
pub(crate) mod insert;
pub(crate) mod kind;
pub(crate) mod lock;
pub(crate) mod maintenance;
pub(crate) mod memory_table_dml;
pub(crate) mod outcome;
pub(crate) mod parse;
pub(crate) mod parsed_statement;
pub(crate) mod plan;
pub(crate) mod planned_statement;
pub(crate) mod prepare;
pub(crate) mod returning;
pub(crate) mod scrollable_rows;
pub(crate) mod sequence;
pub(crate) mod session_command;
pub(crate) mod setting;
pub(crate) mod transaction_control;
pub(crate) mod truncate;
pub(crate) mod warehouse_change;
pub(crate) mod write;

impl Session {
    /// Runs a statement until its first rows are available. Cancel-safe: dropping the future cancels the
    /// statement. To cancel it during computation, or while its rows are read, run it within
    /// [`CancelFlag::scope`] and set that flag.
    pub fn execute<'s>(&'s self, statement: &'s ParsedStatement) -> BoxFuture<'s, Result<Outcome, SqlError>> {
        let canceled = CancelFlag::current().unwrap_or_default();
        let dropped = canceled.cancel_on_drop();
        let work = async move {
            let outcome = catch_panic(self.run(statement).boxed()).await;
            dropped.disarm();
            outcome.map_err(|error| crate::error::in_statement(&error, &statement.text))
        };
        canceled.scope(work).boxed()
    }

    /// Executes a statement in the transaction already begun for it.
    pub(crate) async fn dispatch(&self, statement: &ParsedStatement) -> Result<Outcome> {
        match &statement.form {
            Form::Sql(sql) => Box::pin(self.dispatch_sql(sql, statement)).await,
            Form::Copy(copy) => Box::pin(self.copy(copy, statement)).await,
            Form::Access(access) => Box::pin(self.run_access(access)).await,
            Form::Sequence(sequence) => Box::pin(self.run_sequence(sequence, statement)).await,
            Form::Optimize(optimize) => Box::pin(self.optimize(optimize, statement)).await,
            Form::CheckTable(check) => Box::pin(self.check_table(check)).await,
            Form::Vacuum(vacuum) => Box::pin(self.vacuum(vacuum, statement)).await,
            Form::VacuumDryRun => Box::pin(self.vacuum_dry_run()).await,
            Form::Reindex(reindex) => self.reindex(reindex, statement),
            Form::RenameIndex(rename) => Box::pin(self.rename_index(rename, statement)).await,
            // Constraints that are not enforced are not deferred either.
            Form::SetConstraints(_) => {
                self.require_warehouse(ABOUT_WAREHOUSE)?;
                Ok(command("SET CONSTRAINTS"))
            }
            Form::Session(command) => Box::pin(self.run_session_command(command)).await,
        }
    }

    async fn dispatch_sql(&self, sql: &Statement, statement: &ParsedStatement) -> Result<Outcome> {
        let overriding = statement.clauses.as_ref().and_then(|clauses| clauses.overriding);
        // INSERT … PARTITION applies only to external tables.
        let warehouse = self.warehouse().filter(|_| statement.partition.is_none());
        let overridden = match warehouse {
            Some(warehouse) => sequences::with_identity_defaults(sql, overriding, &warehouse.names)?,
            None => None,
        };
        let sql = overridden.as_ref().unwrap_or(sql);
        let executed = match sql {
            Statement::Statement(parsed) => Some(self.resolve_execute(parsed)?),
            _ => None,
        };
        let executed = executed.as_deref();
        if let (Some(warehouse), Some(executed)) = (warehouse, executed) {
            sequences::check_identity_values(executed, overriding, &warehouse.names)?;
        }
        match Kind::of(sql, executed, statement)? {
            Kind::Parameter(change) => Box::pin(self.change_parameter(change)).await,
            Kind::CreateExtension(create) => create_extension::create(create),
            Kind::Prepare(prepare) => Box::pin(self.prepare(prepare, &statement.original)).await,
            Kind::CreateTemporaryTable => Box::pin(self.create_temporary_table(sql, statement)).await,
            Kind::CreateDatabase => Box::pin(self.create_database(sql, statement)).await,
            Kind::AlterTable(alter) => Box::pin(self.alter_table(alter, sql, statement)).await,
            Kind::Index => Box::pin(self.run_index(executed, sql, statement)).await,
            Kind::Truncate(truncate) => Box::pin(self.truncate(truncate, sql, statement)).await,
            Kind::Lock(lock) => Box::pin(self.lock(lock, sql, statement)).await,
            Kind::Comment(comment) => Box::pin(self.comment(comment, sql, statement)).await,
            Kind::Analyze(analyze) => Box::pin(self.analyze(analyze, sql, statement)).await,
            Kind::Call(call) => Box::pin(self.call(call, sql, statement)).await,
            Kind::Drop(drop) => Box::pin(self.drop_relations(drop, sql, statement)).await,
            Kind::Returning => Box::pin(self.execute_returning(sql, statement)).await,
            Kind::Insert(insert) => Box::pin(self.insert(insert, executed, sql, statement)).await,
            Kind::Change | Kind::Create => Box::pin(self.change(executed, sql, statement)).await,
            Kind::ExplainWrite => Box::pin(self.explain_write(sql, statement)).await,
            Kind::Planned => Box::pin(self.run_planned(sql, statement)).await,
        }
    }
}

/// Error text for statements that need a warehouse.
const ABOUT_WAREHOUSE: &str = "the statement is about what is kept in a warehouse";
