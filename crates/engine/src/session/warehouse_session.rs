//! Statements of a session with a warehouse: each is in a transaction, and some change what the warehouse
//! holds.

use crate::planning::returning_items;
use crate::warehouse::access::read_check;
use crate::warehouse::keys;
use crate::warehouse::keys::declaration;
use crate::warehouse::maintenance::folder_ownership;
use crate::warehouse::maintenance::vacuum;
use crate::warehouse::relation;
use crate::warehouse::session::Kept;
use crate::warehouse::view_columns;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::MemTable;
use datafusion::common::TableReference;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{
    Analyze, CreateMemoryTable, DdlStatement, Explain, LogicalPlan, PlanType, ToStringifiedPlan,
};
use datafusion::physical_plan::collect_partitioned;
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use futures::TryStreamExt;
use harrier_catalog::Analysis;
use harrier_catalog::access::{Object, Privilege};
use harrier_error::{SqlError, SqlState};
use harrier_exec::frontend::client::Admission;
use harrier_exec::operators::cancelable_joins;
use harrier_sql::desugar::insert_values;
use harrier_sql::identifier;
use harrier_sql::parser::as_of;
use harrier_sql::tokens::explain_options::ExplainOptions;
use harrier_sqlstate::IntoDataFusionError;

use crate::binder::declared_types;
use crate::external::hive::{FolderTable, Watched};
use crate::object_stores::listing_cache;
use crate::planning::stored_sql::{self, ViewForm};
use crate::runtime::progress::Progress;
use crate::session::{Outcome, ParsedStatement, Session, command, write_verb};
use crate::settings::time_reading;
use crate::statement::auto_analyze::AutoAnalyze;
use crate::statement::ddl::{Ddl, KeptDefaults};
use crate::statement::ddl_retry::Attempts;
use crate::statement::explain;
use crate::statement::returning::Returning;
use crate::warehouse;
use crate::warehouse::dml::Dml;
use crate::warehouse::name_resolver::{Names, Sight};
use crate::warehouse::on_commit::AtCommit;
use crate::warehouse::sequences::{self};
use crate::warehouse::table::WarehouseTable;
use crate::warehouse::table::statistics::Looking;
use crate::warehouse::transaction::Control;
use harrier_sql::parser::analyze::SampleSize;
use harrier_sql::parser::maintenance::CheckTableStatement;
use harrier_sql::parser::sequence::SequenceStatement;

use crate::statement::write::{Unfinished, Write};
use harrier_planner::analyzer::text_constants::TimeReading;

/// When a sample has no rows a larger one is taken.
const LOOKS_FACTOR: f64 = 8.0;

/// What CHECK TABLE tells.
const CHECK_COLUMNS: [&str; 2] = ["object", "problem"];
/// What VACUUM DRY RUN tells.
const DRY_RUN_COLUMNS: [&str; 2] = ["file", "status"];

impl Session {
    /// The outer error is DataFusion's, the inner one is already what the user sees.
    pub(crate) async fn run(&self, statement: &ParsedStatement) -> Result<Result<Outcome, SqlError>> {
        match statement.is_query() {
            true => listing_cache::remembering(self.run_it(statement)).await,
            // What they write is found, too.
            false => self.run_it(statement).await,
        }
    }

    async fn run_it(&self, statement: &ParsedStatement) -> Result<Result<Outcome, SqlError>> {
        let Some(kept) = self.kept() else {
            self.look_at_own_tables(statement).await;
            return self.run_statement(statement).await;
        };
        if let harrier_sql::Statement::Sql(Statement::Statement(parsed)) = &statement.form
            && let Some(control) = Control::of(parsed)
        {
            return Ok(Ok(self.control(control, kept).await?));
        }
        let is_alone = !kept.transactions.is_open();
        if is_alone {
            kept.names.committed().await?;
        }
        let mut attempts = Attempts::of(statement, is_alone);
        loop {
            match self.run_in_transaction(statement, kept).await {
                Err(error) if attempts.next_after(&error).await => {}
                outcome => return outcome,
            }
        }
    }

    /// Runs a statement in the open transaction, or in one of its own.
    async fn run_in_transaction(
        &self,
        statement: &ParsedStatement,
        kept: &Arc<Kept>,
    ) -> Result<Result<Outcome, SqlError>> {
        kept.transactions.begin_statement().await?;
        self.prepare_statement(statement).await?;
        let mut unfinished = Unfinished(Some(Arc::clone(kept)));
        let outcome = match self.run_kept(statement, kept).await {
            Ok(Some(outcome)) => Ok(Ok(outcome)),
            Ok(None) => self.run_statement(statement).await,
            Err(error) => Err(error),
        };
        unfinished.disarm();
        match outcome {
            // These end their statement when they are finished.
            Ok(Ok(Outcome::Write(write))) if write.pending.is_some() => Ok(Ok(Outcome::Write(write))),
            Ok(Ok(Outcome::CopyIn(copy))) if copy.write.pending.is_some() => Ok(Ok(Outcome::CopyIn(copy))),
            Ok(Ok(Outcome::CopyInRows(copy))) if copy.write.pending.is_some() => {
                Ok(Ok(Outcome::CopyInRows(copy)))
            }
            Ok(Ok(outcome)) => {
                kept.transactions.end_statement().await?;
                let watched = |stream: SendableRecordBatchStream| -> SendableRecordBatchStream {
                    let kept = Arc::clone(kept);
                    let schema = stream.schema();
                    let stream = stream.inspect_err(move |_| kept.transactions.give_up());
                    Box::pin(RecordBatchStreamAdapter::new(schema, stream))
                };
                // If these fail, or are given up, so has the transaction.
                let unfinished = || Unfinished(Some(Arc::clone(kept)));
                Ok(Ok(match outcome {
                    Outcome::Write(write) => Outcome::Write(Write { unfinished: unfinished(), ..write }),
                    Outcome::CopyIn(mut copy) => {
                        copy.write.unfinished = unfinished();
                        Outcome::CopyIn(copy)
                    }
                    Outcome::CopyInRows(mut copy) => {
                        copy.write.unfinished = unfinished();
                        Outcome::CopyInRows(copy)
                    }
                    Outcome::Rows { schema, stream, progress } => {
                        Outcome::Rows { schema, stream: watched(stream), progress }
                    }
                    Outcome::CopyOut(copy) => Outcome::CopyOut(copy.through(watched)),
                    Outcome::CopyOutRows { schema, stream, progress } => {
                        Outcome::CopyOutRows { schema, stream: watched(stream), progress }
                    }
                    other => other,
                }))
            }
            failed => {
                kept.transactions.fail_statement().await;
                failed
            }
        }
    }

    /// Runs a statement about the transaction, with which parameters are changed back.
    async fn control(&self, control: Control, kept: &Kept) -> Result<Outcome> {
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
        let was_open = kept.transactions.is_open();
        let (tag, warning) = kept.transactions.control(control).await;
        if tag.is_ok() {
            {
                let mut deferred = kept.deferred.lock();
                match &named {
                    Control::Savepoint(name) => deferred.savepoint(name),
                    Control::Release(name) => deferred.release(name),
                    Control::RollbackTo(name) => deferred.roll_back_to(name),
                    _ => {}
                }
            }
            kept.control_own(&named).await?;
        }
        if is_end {
            let is_committed = matches!(tag, Ok("COMMIT"));
            kept.end_own(is_committed).await?;
            if is_committed {
                kept.names.committed().await?;
            }
        } else if is_begun && !was_open {
            // What the statement before it has left.
            kept.names.committed().await?;
        }
        let mut warnings: Vec<String> = warning.map(str::to_string).into_iter().collect();
        if is_end {
            let deferred = kept.deferred.lock().take();
            if matches!(tag, Ok("COMMIT")) {
                warnings.extend(self.run_deferred(deferred, kept).await);
            }
        }
        match kept.transactions.is_open() {
            // COMMIT AND CHAIN: one has ended, and another is open.
            true if is_end && tag.is_ok() => {
                kept.begin_own().await?;
                let is_committed = matches!(tag, Ok("COMMIT"));
                kept.names.role().end(is_committed);
                let has_changed = self.parameters().end(is_committed);
                self.parameters().begin();
                kept.names.role().begin();
                if has_changed {
                    self.apply_parameters()?;
                }
            }
            true if is_begun && tag.is_ok() => {
                self.parameters().begin();
                kept.names.role().begin();
            }
            true => {}
            false => {
                kept.names.role().end(matches!(tag, Ok("COMMIT")));
                if self.parameters().end(matches!(tag, Ok("COMMIT"))) {
                    self.apply_parameters()?;
                }
            }
        }
        Ok(Outcome::Command { tag: tag?.to_string(), warnings, notices: vec![] })
    }

    /// Runs a statement that changes the warehouse; `None` if it is none.
    async fn run_kept(&self, statement: &ParsedStatement, kept: &Arc<Kept>) -> Result<Option<Outcome>> {
        // Only external tables have it.
        if statement.partition.is_some() {
            return Ok(None);
        }
        let ddl = Ddl {
            names: &kept.names,
            transactions: &kept.transactions,
            context: self.context(),
            text: &statement.text,
        };
        let clauses = statement.clauses.as_ref();
        let whole = match &statement.form {
            harrier_sql::Statement::Sql(statement) => statement,
            harrier_sql::Statement::Access(access) => return self.run_access(access, kept).await.map(Some),
            harrier_sql::Statement::Sequence(statement) => {
                return self.run_sequence(statement, &ddl, kept).await.map(Some);
            }
            harrier_sql::Statement::Optimize(optimize) => {
                return self.optimize(optimize.table.as_ref(), statement, kept).await.map(Some);
            }
            harrier_sql::Statement::CheckTable(check) => {
                return self.check_table(check, kept).await.map(Some);
            }
            harrier_sql::Statement::VacuumDryRun => return self.vacuum_dry_run(kept).await.map(Some),
            harrier_sql::Statement::Reindex(reindex) => return ddl.reindex(reindex).map(done).map(Some),
            harrier_sql::Statement::RenameIndex(rename) => {
                return ddl.rename_index(&rename.name, &rename.to, true).await.map(done).map(Some);
            }
            // What is not enforced is not put off either.
            harrier_sql::Statement::SetConstraints(_) => return Ok(Some(command("SET CONSTRAINTS"))),
            harrier_sql::Statement::Copy(_) | harrier_sql::Statement::Cursor(_) => return Ok(None),
        };
        let overriding = clauses.and_then(|clauses| clauses.overriding);
        let overridden = sequences::without_values(whole, overriding, &kept.names)?;
        let whole = overridden.as_ref().unwrap_or(whole);
        let viewer = kept.names.role().viewer();
        if statement.temporary {
            if !viewer.may(Object::Warehouse, Privilege::Temporary) {
                let message = "permission denied to create temporary tables";
                return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message).into_datafusion());
            }
            let has_keys = declaration::keys_in_memory(whole)?;
            self.spread().await?;
            let LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) =
                self.plan(whole, &statement.values).await?
            else {
                return Ok(None);
            };
            let table = create.name.table().to_string();
            let outcome = self.create_temporary(create, statement.at_commit, kept).await?;
            return Ok(Some(match (outcome, has_keys) {
                (Outcome::Command { tag, warnings, .. }, true) => {
                    Outcome::Command { tag, warnings, notices: vec![keys::keys_notice(&table)] }
                }
                (outcome, _) => outcome,
            }));
        }
        let parsed = match whole {
            Statement::Statement(parsed) => self.executed(parsed)?,
            Statement::Explain(explain) if may_write(&explain.statement) => {
                return self.explain_write(whole, statement, kept).await;
            }
            _ => return Ok(None),
        };
        sequences::check_written(&parsed, overriding, &kept.names)?;
        let tag = match parsed.as_ref() {
            // To the planner it is a catalog of the session; to PostgreSQL it needs an attribute that no role
            // here has.
            ast::Statement::CreateDatabase { .. } => {
                viewer.check_superuser("create database")?;
                return Ok(None);
            }
            ast::Statement::AlterTable(alter) => {
                self.spread().await?;
                if let Some(dml) = ddl.rows_to_delete(alter, clauses).await? {
                    self.write_at_once(dml, statement, kept).await?;
                }
                let notices = ddl.alter_table(alter, clauses, statement).await?;
                let tag = if statement.renames_view { "ALTER VIEW" } else { "ALTER TABLE" };
                let tag = tag.to_string();
                return Ok(Some(Outcome::Command { tag, warnings: vec![], notices }));
            }
            ast::Statement::CreateIndex(_)
            | ast::Statement::AlterIndex { .. }
            | ast::Statement::Drop { object_type: ast::ObjectType::Index, .. }
                if let Some(outcome) = ddl.index_statement(&parsed).await? =>
            {
                return Ok(Some(done(outcome)));
            }
            ast::Statement::Truncate(truncate) => {
                for uuid in ddl.truncate(truncate).await? {
                    kept.sequences.forget_cached(&uuid);
                }
                "TRUNCATE TABLE"
            }
            // What a statement reads is its snapshot, which nobody changes.
            ast::Statement::Lock(lock) => {
                ddl.lock(lock)?;
                "LOCK TABLE"
            }
            ast::Statement::Comment { object_type, object_name, comment, .. } => {
                ddl.comment(object_type, object_name, comment.clone()).await?;
                "COMMENT"
            }
            ast::Statement::Analyze(analyze) => {
                self.analyze(analyze, statement.sample, kept).await?;
                "ANALYZE"
            }
            ast::Statement::Vacuum(vacuum) => {
                return self.optimize(vacuum.table_name.as_ref(), statement, kept).await.map(Some);
            }
            ast::Statement::Call(call) if call.name.to_string().eq_ignore_ascii_case("expire_snapshots") => {
                viewer.check_superuser("expire snapshots")?;
                let age = vacuum::span(&only_text(call)?)?;
                if let Some(catalog) = kept.names.sight().catalog {
                    let count = vacuum::expire(&catalog, age).await?;
                    return Ok(Some(command(&format!("CALL {count}"))));
                }
                "CALL 0"
            }
            ast::Statement::Call(call) if call.name.to_string().eq_ignore_ascii_case("adopt_data_folder") => {
                viewer.check_superuser("adopt a data folder")?;
                if let Some(catalog) = kept.names.sight().catalog {
                    folder_ownership::adopt(&catalog, self.engine().runtime_env()).await?;
                }
                "CALL"
            }
            ast::Statement::Drop { names, .. } if names.len() > 1 => {
                return self.drop_several(&parsed, statement, &ddl, kept).await.map(Some);
            }
            written if returning_items::items(written).is_some() => {
                return match Returning::of(whole)? {
                    Some(returning) => self.run_returning(&returning, statement, Some(kept)).await.map(Some),
                    None => Ok(None),
                };
            }
            // What EXECUTE inserts has its parameters' values where it is planned as EXECUTE.
            ast::Statement::Insert(insert)
                if is_insert(whole)
                    && statement.partition.is_none()
                    && insert_values::has_bare_rows(insert) =>
            {
                self.spread().await?;
                let whole = self.with_columns(insert).await;
                let plan = self.plan(&whole, &statement.values).await?;
                return self.run_plan(plan, &parsed, statement, &ddl, kept).await;
            }
            ast::Statement::CreateTable(_)
            | ast::Statement::CreateView(_)
            | ast::Statement::CreateSchema { .. }
            | ast::Statement::Drop { .. }
            | ast::Statement::Insert(_)
            | ast::Statement::Update(_)
            | ast::Statement::Delete(_)
            | ast::Statement::Merge(_) => {
                self.spread().await?;
                let plan = self.plan(whole, &statement.values).await?;
                return self.run_plan(plan, &parsed, statement, &ddl, kept).await;
            }
            _ => return Ok(None),
        };
        Ok(Some(command(tag)))
    }

    async fn run_sequence(
        &self,
        statement: &SequenceStatement,
        ddl: &Ddl<'_>,
        kept: &Kept,
    ) -> Result<Outcome> {
        self.spread().await?;
        let done = ddl.sequence_statement(statement).await?;
        if let Some(uuid) = &done.altered {
            kept.sequences.forget_cached(uuid);
        }
        Ok(Outcome::Command { tag: done.tag.to_string(), warnings: vec![], notices: done.notices })
    }

    /// DROP of more than one: each for itself, and none if one of them fails, as every statement that fails
    /// leaves nothing.
    async fn drop_several(
        &self,
        drop: &ast::Statement,
        statement: &ParsedStatement,
        ddl: &Ddl<'_>,
        kept: &Arc<Kept>,
    ) -> Result<Outcome> {
        let mut one = drop.clone();
        let (mut last, mut skipped) = ("DROP".to_string(), Vec::new());
        let ast::Statement::Drop { names, .. } = drop else { return Ok(command(&last)) };
        for name in names {
            if let ast::Statement::Drop { names, .. } = &mut one {
                *names = vec![name.clone()];
            }
            let whole = Statement::Statement(Box::new(one.clone()));
            let plan = self.plan(&whole, &statement.values).await?;
            let outcome = match self.run_plan(plan, &one, statement, ddl, kept).await? {
                Some(outcome) => outcome,
                // It is the session's own.
                None => {
                    let plan = self.plan(&whole, &statement.values).await?;
                    let tag = if matches!(&plan, LogicalPlan::Ddl(DdlStatement::DropView(_))) {
                        "DROP VIEW"
                    } else {
                        "DROP TABLE"
                    };
                    self.context().execute_logical_plan(plan).await?;
                    command(tag)
                }
            };
            if let Outcome::Command { tag, notices, .. } = outcome {
                last = tag;
                skipped.extend(notices);
            }
        }
        Ok(Outcome::Command { tag: last, warnings: vec![], notices: skipped })
    }

    /// An INSERT whose rows may have fewer values than its table has columns, as it is run: with the names of
    /// those that they are for. `None` for other statements.
    pub(crate) async fn filled(&self, statement: &Statement) -> Option<Statement> {
        match statement {
            Statement::Statement(written) => match written.as_ref() {
                ast::Statement::Insert(insert)
                    if self.kept().is_some() && insert_values::has_bare_rows(insert) =>
                {
                    Some(self.with_columns(insert).await)
                }
                _ => None,
            },
            _ => None,
        }
    }

    async fn with_columns(&self, insert: &ast::Insert) -> Statement {
        let mut insert = insert.clone();
        if let ast::TableObject::TableName(name) = &insert.table {
            let name = name.0.iter().filter_map(|part| part.as_ident()).map(identifier::plain);
            let name =
                name.map(|part| format!("\"{}\"", part.replace('"', "\"\""))).collect::<Vec<_>>().join(".");
            let is_values =
                insert.source.as_ref().is_some_and(|query| matches!(*query.body, ast::SetExpr::Values(_)));
            // Of a query's rows, the columns of a folder's keys are never left out.
            if let Ok(table) = self.context().table_provider(name).await
                && (is_values || table.downcast_ref::<FolderTable>().is_none())
            {
                let columns = table.schema();
                let columns: Vec<&str> = columns.fields().iter().map(|field| field.name().as_str()).collect();
                insert_values::name_columns(&mut insert, &columns);
            }
        }
        Statement::Statement(Box::new(ast::Statement::Insert(insert)))
    }

    /// CREATE TEMPORARY TABLE: one of the session alone, whatever the warehouse has of its name.
    async fn create_temporary(
        &self,
        create: CreateMemoryTable,
        at_commit: Option<AtCommit>,
        kept: &Arc<Kept>,
    ) -> Result<Outcome> {
        let CreateMemoryTable { name, input, if_not_exists, or_replace, column_defaults, .. } = create;
        let input = declared_types::without_names(Arc::unwrap_or_clone(input))?;
        if kept.names.is_own(&name) && !or_replace {
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
        // As the rows have it, whose types are not always those that were planned. Whatever a query knows of
        // them, NULLs may come.
        let mut schema = plan.schema();
        if is_select {
            let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
            schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        }
        let context = self.task_ctx(&state)?;
        let plan = cancelable_joins::heard_in(plan, &context)?;
        let rows = collect_partitioned(plan, context).await?;
        if let Some(watched) = state.config().get_extension::<Watched>() {
            watched.verify().await?;
        }
        let count: usize = rows.iter().flatten().map(RecordBatch::num_rows).sum();
        let table =
            MemTable::try_new(schema, rows)?.with_column_defaults(column_defaults.into_iter().collect());
        self.keeps_rows();
        if kept.names.is_own(&name) {
            self.context().deregister_table(name.clone())?;
        }
        let own = name.table().to_string();
        self.context().register_table(name, Arc::new(table))?;
        if let Some(what) = at_commit {
            kept.names.add_at_commit(&own, what).await?;
        }
        Ok(match is_select {
            true => command(&format!("SELECT {count}")),
            false => command("CREATE TABLE"),
        })
    }

    /// VACUUM and OPTIMIZE: of a table they write the small files anew; without one they sweep files that
    /// nothing refers to.
    async fn optimize(
        &self,
        table: Option<&ast::ObjectName>,
        statement: &ParsedStatement,
        kept: &Arc<Kept>,
    ) -> Result<Outcome> {
        self.spread().await?;
        if let Some(name) = table
            && let Some(outcome) = self.optimize_folder(name, statement).await?
        {
            return Ok(outcome);
        }
        let sight = kept.names.sight();
        let Some(catalog) = &sight.catalog else {
            return Ok(command("VACUUM 0"));
        };
        let Some(name) = table else {
            sight.viewer.check_superuser("vacuum the warehouse")?;
            let age = std::time::Duration::from_secs(self.settings().vacuum_age_seconds as u64);
            let count = vacuum::vacuum(catalog, self.engine().runtime_env(), age).await?;
            return Ok(command(&format!("VACUUM {count}")));
        };
        let name = relation::reference(name)?;
        let Some(table) = kept.names.table(&name) else {
            return Err(kept.names.no_table(&name, "OPTIMIZE").await);
        };
        if let Some(state) = &sight.state {
            sight.viewer.check_owner(Object::Table(table.id), state)?;
        }
        let target = WarehouseTable::try_new(self.context().state(), &sight, table)?;
        let sources = target.compaction().await?;
        if sources.is_empty() {
            return Ok(command("OPTIMIZE 0"));
        }
        self.write(Dml::compact(target, sources)?, "OPTIMIZE", statement, kept).await
    }

    /// VACUUM DRY RUN: the files that VACUUM would remove, and those that it does not know.
    async fn vacuum_dry_run(&self, kept: &Arc<Kept>) -> Result<Outcome> {
        let sight = kept.names.sight();
        sight.viewer.check_superuser("vacuum the warehouse")?;
        let age = std::time::Duration::from_secs(self.settings().vacuum_age_seconds as u64);
        let found = match &sight.catalog {
            Some(catalog) => vacuum::vacuum_dry_run(catalog, self.engine().runtime_env(), age).await?,
            None => Vec::new(),
        };
        texts(DRY_RUN_COLUMNS, found.iter().map(|(file, status)| [file.as_str(), *status]))
    }

    /// ANALYZE: looks at a table, or at all, and keeps what it found for planning. That stays even if the
    /// transaction does not.
    async fn analyze(&self, analyze: &ast::Analyze, sample: SampleSize, kept: &Arc<Kept>) -> Result<()> {
        let sight = kept.names.sight();
        let (Some(catalog), Some(state)) = (&sight.catalog, &sight.state) else {
            return match &analyze.table_name {
                Some(name) => Err(kept.names.no_table(&relation::reference(name)?, "ANALYZE").await),
                None => Ok(()),
            };
        };
        let tables = match &analyze.table_name {
            // Those that the role may, as in PostgreSQL.
            None => {
                let own = |id| sight.viewer.owns(Object::Table(id));
                state.tables.values().filter(|table| own(table.id)).cloned().collect()
            }
            Some(name) => {
                let name = relation::reference(name)?;
                let Some(table) = kept.names.table(&name) else {
                    return Err(kept.names.no_table(&name, "ANALYZE").await);
                };
                sight.viewer.check_owner(Object::Table(table.id), state)?;
                vec![table]
            }
        };
        let columns: Vec<String> = analyze.columns.iter().map(identifier::plain).collect();
        for table in tables {
            if table.id < 0 {
                let message = format!("table \"{}\" can be analyzed when it is committed", table.name);
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
            }
            let looking = Looking::at(&table, &columns)?;
            // What is kept of it stays even if the transaction does not.
            let committed = Sight { data: Arc::default(), ..sight.clone() };
            let target = WarehouseTable::try_new(self.context().state(), &committed, Arc::clone(&table))?;
            let found = self.look(&looking, target, sample).await?;
            catalog.put_analysis(table.id, &found).await.map_err(warehouse::explain)?;
        }
        Ok(())
    }

    /// Looks at a table, as much as is asked for.
    async fn look(
        &self,
        looking: &Looking<'_>,
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
            // A small share of few row groups can be none of them.
            let mut share = share;
            while share > 0.0 && share < 1.0 {
                let answer = self.answers(looking, target.with_sample(share)).await?;
                if let Some(found) = looking.analysis(&answer, snapshot, Some(size.rows))? {
                    return Ok(found);
                }
                share *= LOOKS_FACTOR;
            }
        }
        let answer = self.answers(looking, target).await?;
        let found = looking.analysis(&answer, snapshot, None)?;
        found.ok_or_else(|| DataFusionError::Internal("ANALYZE has found nothing".to_string()))
    }

    async fn answers(&self, looking: &Looking<'_>, target: WarehouseTable) -> Result<RecordBatch> {
        self.spread().await?;
        let session = self.context().state();
        let plan = session.optimize(&looking.query(Arc::new(target))?)?;
        let Outcome::Rows { stream, schema, .. } =
            self.start(&session, &plan, None, "", ExplainOptions::default()).await?
        else {
            return Err(DataFusionError::Internal("ANALYZE has no answer".to_string()));
        };
        let batches: Vec<RecordBatch> = stream.try_collect().await?;
        Ok(concat_batches(&schema, &batches)?)
    }

    /// CHECK TABLE: a row for everything that is wrong.
    async fn check_table(&self, check: &CheckTableStatement, kept: &Arc<Kept>) -> Result<Outcome> {
        let name = relation::reference(&check.table)?;
        let Some(table) = kept.names.table(&name) else {
            return Err(kept.names.no_table(&name, "CHECK TABLE").await);
        };
        let sight = kept.names.sight();
        if let Some(state) = &sight.state {
            sight.viewer.check_owner(Object::Table(table.id), state)?;
        }
        let state = self.context().state();
        let table = WarehouseTable::try_new(state.clone(), &sight, table)?;
        let findings = table.check(&state.task_ctx()).await?;
        let rows = findings.iter().map(|finding| [finding.object.as_str(), finding.problem.as_str()]);
        texts(CHECK_COLUMNS, rows)
    }

    /// EXPLAIN of a statement that writes rows into the warehouse; EXPLAIN ANALYZE writes them. `None` for
    /// others.
    async fn explain_write(
        &self,
        statement: &Statement,
        explained: &ParsedStatement,
        kept: &Arc<Kept>,
    ) -> Result<Option<Outcome>> {
        self.spread().await?;
        let state = self.context().state();
        let mut plan = self.plan(statement, &explained.values).await?;
        read_check::check_reads(&state, &plan)?;
        let inner = match &mut plan {
            LogicalPlan::Explain(asked) => &mut asked.plan,
            LogicalPlan::Analyze(asked) => &mut asked.input,
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
        if let LogicalPlan::Explain(asked) = &mut plan {
            asked.stringified_plans = vec![writing.to_stringified(PlanType::InitialLogicalPlan)];
        }
        if let LogicalPlan::Explain(Explain { plan: inner, .. })
        | LogicalPlan::Analyze(Analyze { input: inner, .. }) = &mut plan
        {
            *inner = Arc::new(writing);
        }
        let is_run = matches!(plan, LogicalPlan::Analyze(_));
        let text = statement.to_string();
        if is_run {
            pending.begin(&kept.transactions).await?;
        }
        let told = self.engine().history().map(|history| (history, text.as_str()));
        let gang = self.engine().gang();
        let asked = explained.explain;
        match explain::answer(&state, &plan, gang, || self.task_ctx(&state), is_run, told, asked).await? {
            Some(answer) => {
                if is_run {
                    pending.apply(answer.batches, &kept.transactions, &state.task_ctx()).await?;
                }
                explain::rows(answer.lines, asked.format).map(Some)
            }
            None if is_run => {
                let message = "EXPLAIN ANALYZE of a statement that writes has one format only";
                Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion())
            }
            None => self.start(&state, &plan, None, &text, asked).await.map(Some),
        }
    }

    async fn run_plan(
        &self,
        plan: LogicalPlan,
        parsed: &ast::Statement,
        statement: &ParsedStatement,
        ddl: &Ddl<'_>,
        kept: &Arc<Kept>,
    ) -> Result<Option<Outcome>> {
        // Whoever makes a view need not be allowed to read it.
        if !matches!(plan, LogicalPlan::Ddl(DdlStatement::CreateView(_))) {
            read_check::check_reads(&self.context().state(), &plan)?;
        }
        let mut notices = Vec::new();
        let missing = |kind: &str, name: &str| format!("{kind} \"{name}\" does not exist, skipping");
        let tag = match &plan {
            LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) => {
                let has_rows = !matches!(create.input.as_ref(), LogicalPlan::EmptyRelation(_));
                let mut create = create.clone();
                if has_rows {
                    // Only then it is known what types the rows have.
                    create.input = Arc::new(self.context().state().optimize(&create.input)?);
                }
                let defaults = ddl.kept_defaults(parsed, &statement.text)?;
                let declared = declaration::cut_keys(&Statement::Statement(Box::new(parsed.clone())))?.1;
                let made = ddl.create_table(&create, statement.clauses.as_ref(), has_rows, &defaults).await?;
                if made.is_none() {
                    notices.push(format!("relation \"{}\" already exists, skipping", create.name.table()));
                }
                if let Some(table) = &made {
                    notices.extend(warehouse::case_collisions::notice(None, table));
                    notices.extend(ddl.declare(table, &declared).await?);
                    let like = statement.clauses.as_ref().and_then(|clauses| clauses.like);
                    if let (Some(options), KeptDefaults::Like(source)) = (like, &defaults) {
                        notices.extend(ddl.take_along(table, source, options).await?);
                    }
                }
                if let (Some(table), true) = (made, has_rows) {
                    let target = WarehouseTable::try_new(self.context().state(), &kept.names.sight(), table)?;
                    let dml = Dml::insert(target, LogicalPlan::clone(&create.input), InsertOp::Append)?;
                    return self.write(dml, "SELECT", statement, kept).await.map(Some);
                }
                "CREATE TABLE"
            }
            LogicalPlan::Ddl(DdlStatement::CreateView(create)) if !create.temporary => {
                let ast::Statement::CreateView(view) = parsed else { return Ok(None) };
                let mut own = false;
                create.input.apply_with_subqueries(|plan| {
                    if let LogicalPlan::TableScan(scan) = plan {
                        own |= kept.names.is_own(&scan.table_name);
                    }
                    Ok(TreeNodeRecursion::Continue)
                })?;
                // Nobody else sees what it reads: it ends with the session.
                if own {
                    return Ok(None);
                }
                let query = self.definition(view, &statement.text, &kept.names)?;
                let is_barrier = statement.clauses.as_ref().is_some_and(|clauses| clauses.is_barrier);
                let form = ViewForm { of_client: self.names_as_postgres(), is_barrier };
                let columns_below = view_columns::columns_below(&create.input)?;
                ddl.create_view(&create.name, query, form, columns_below, create.or_replace).await?;
                "CREATE VIEW"
            }
            LogicalPlan::Ddl(DdlStatement::CreateCatalogSchema(create)) => {
                // The plan has the parts of the name joined as a text, in which a dot may be one of the
                // name's own.
                let name = match parsed {
                    ast::Statement::CreateSchema { schema_name, .. } => schema_named(schema_name),
                    _ => None,
                };
                let name = name.unwrap_or_else(|| create.schema_name.clone());
                if !ddl.create_schema(&name, create.if_not_exists).await? {
                    notices.push(format!("schema \"{name}\" already exists, skipping"));
                }
                "CREATE SCHEMA"
            }
            LogicalPlan::Ddl(DdlStatement::DropTable(drop)) if !kept.names.is_own(&drop.name) => {
                if let ast::Statement::Drop { cascade, .. } = parsed {
                    notices.extend(ddl.check_references(
                        &drop.name,
                        *cascade,
                        &dropped(parsed, statement),
                    )?);
                }
                if !ddl.drop_table(&drop.name, drop.if_exists).await? {
                    notices.push(missing("table", drop.name.table()));
                }
                "DROP TABLE"
            }
            LogicalPlan::Ddl(DdlStatement::DropView(drop)) if !kept.names.is_own(&drop.name) => {
                if !ddl.drop_view(&drop.name, drop.if_exists).await? {
                    notices.push(missing("view", drop.name.table()));
                }
                "DROP VIEW"
            }
            LogicalPlan::Ddl(DdlStatement::DropCatalogSchema(drop)) => {
                let name = drop.name.schema_name();
                if !ddl.drop_schema(name, drop.if_exists, drop.cascade).await? {
                    notices.push(missing("schema", name));
                }
                "DROP SCHEMA"
            }
            LogicalPlan::Dml(dml) => {
                let verb = write_verb(&plan, Some(parsed)).unwrap_or("INSERT");
                let inserted = match parsed {
                    ast::Statement::Insert(insert) => inserted(insert),
                    _ => None,
                };
                return match Dml::of(dml, inserted.as_deref())? {
                    Some(dml) => self.write(dml, verb, statement, kept).await.map(Some),
                    None => Ok(None),
                };
            }
            _ => return Ok(None),
        };
        Ok(Some(Outcome::Command { tag: tag.to_string(), warnings: vec![], notices }))
    }

    /// The query of a view as it is kept: as `text` has it, with the schema of its tables where the search
    /// path of its maker leads elsewhere than that of views does, and the zone of its maker for the times of
    /// AS OF.
    ///
    /// Errors: it means something else in the session (0A000).
    fn definition(&self, view: &ast::CreateView, text: &str, names: &Names) -> Result<String> {
        let state = self.context().state();
        let query = match stored_sql::query_of_view(text) {
            Some(query) => as_of::read_past(query),
            None => view.query.to_string(),
        };
        stored_sql::check_meaning(&state, &query)?;
        let schema = state.config_options().catalog.default_schema.as_str();
        let query = match schema != warehouse::DEFAULT_SCHEMA {
            true => stored_sql::name_schema(&query, schema, |name| {
                // As it is now, if it is to be read as it was.
                let name = name.split_once(as_of::PAST).map_or(name, |(name, _)| name);
                names.relation(&TableReference::partial(schema, name)).is_some()
            })?,
            false => query,
        };
        let columns: Vec<String> = view.columns.iter().map(|column| column.name.to_string()).collect();
        let query = match columns.is_empty() {
            true => query,
            // A comment may end it.
            false => format!("SELECT * FROM (\n{query}\n) AS \"_\" ({})", columns.join(", ")),
        };
        let TimeReading { zone, order } = time_reading(&state);
        Ok(as_of::tell_past(&query, &zone, order))
    }

    /// Writes rows as a part of a statement that does more.
    async fn write_at_once(&self, dml: Dml, statement: &ParsedStatement, kept: &Arc<Kept>) -> Result<()> {
        let Dml { plan, pending } = dml;
        let state = self.context().state();
        let plan = state.optimize(&plan)?;
        pending.begin(&kept.transactions).await?;
        match self.start(&state, &plan, Some("ALTER TABLE"), &statement.text, statement.explain).await? {
            Outcome::Write(write) => {
                let batches = write.stream.try_collect().await?;
                pending.apply(batches, &kept.transactions, &state.task_ctx()).await.map(drop)
            }
            _ => Err(DataFusionError::Internal("a statement that writes has answered".to_string())),
        }
    }

    /// Starts a statement that writes rows into the warehouse.
    pub(crate) async fn write(
        &self,
        dml: Dml,
        verb: &'static str,
        statement: &ParsedStatement,
        kept: &Arc<Kept>,
    ) -> Result<Outcome> {
        let Dml { plan, pending } = dml;
        let (before, table) = pending.table();
        let state = self.context().state();
        let admission = state.config().get_extension::<Admission>();
        let auto_analyze = AutoAnalyze::of(self.engine(), &self.settings(), admission, before, table);
        let plan = state.optimize(&plan)?;
        pending.begin(&kept.transactions).await?;
        let outcome = self.start(&state, &plan, Some(verb), &statement.text, statement.explain).await?;
        Ok(match outcome {
            Outcome::Write(write) => Outcome::Write(Write {
                pending: Some((pending, Arc::clone(kept), state.task_ctx())),
                unfinished: Unfinished(Some(Arc::clone(kept))),
                auto_analyze,
                ..write
            }),
            other => other,
        })
    }
}

/// The tables that a DROP drops, of which `one` is a part.
fn dropped(one: &ast::Statement, statement: &ParsedStatement) -> Vec<ast::ObjectName> {
    let whole = match &statement.form {
        harrier_sql::Statement::Sql(Statement::Statement(whole)) => whole.as_ref(),
        _ => one,
    };
    match whole {
        ast::Statement::Drop { names, .. } => names.clone(),
        _ => vec![],
    }
}

/// The columns that an INSERT names.
pub(crate) fn inserted(insert: &ast::Insert) -> Option<Vec<String>> {
    let names = insert.columns.iter().map(|name| match name.0.last().and_then(|part| part.as_ident()) {
        Some(name) => identifier::plain(name),
        None => name.to_string(),
    });
    (!insert.columns.is_empty()).then(|| names.collect())
}

/// Whether a statement is an INSERT itself, and does not execute one.
fn is_insert(statement: &Statement) -> bool {
    matches!(statement, Statement::Statement(written) if matches!(written.as_ref(), ast::Statement::Insert(_)))
}

/// Whether a statement that is explained can be one that writes: others need not be planned to find out.
fn may_write(explained: &Statement) -> bool {
    matches!(explained, Statement::Statement(statement) if matches!(
        statement.as_ref(),
        ast::Statement::Insert(_) | ast::Statement::Update(_) | ast::Statement::Delete(_) | ast::Statement::Merge(_)
    ))
}

/// What [`Ddl`] has done.
fn done((tag, notices): (&str, Vec<String>)) -> Outcome {
    Outcome::Command { tag: tag.to_string(), warnings: vec![], notices }
}

/// The columns of a statement that answers with texts; `None` for others.
pub(crate) fn text_columns(form: &harrier_sql::Statement) -> Option<SchemaRef> {
    match form {
        harrier_sql::Statement::CheckTable(_) => Some(schema_of_texts(CHECK_COLUMNS)),
        harrier_sql::Statement::VacuumDryRun => Some(schema_of_texts(DRY_RUN_COLUMNS)),
        _ => None,
    }
}

fn schema_of_texts(names: [&str; 2]) -> SchemaRef {
    Arc::new(Schema::new(names.map(|name| Field::new(name, DataType::Utf8, false)).to_vec()))
}

/// Rows of two texts.
fn texts<'a>(names: [&str; 2], rows: impl Iterator<Item = [&'a str; 2]>) -> Result<Outcome> {
    let (first, second): (Vec<&str>, Vec<&str>) = rows.map(|[first, second]| (first, second)).unzip();
    let schema = schema_of_texts(names);
    let columns = [first, second].map(|texts| Arc::new(StringArray::from(texts)) as ArrayRef);
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns.to_vec())?;
    let stream = Box::pin(MemoryStream::try_new(vec![batch], Arc::clone(&schema), None)?);
    Ok(Outcome::Rows { schema, stream, progress: Progress::none() })
}

/// The one argument of a procedure that takes a text.
fn only_text(call: &ast::Function) -> Result<String> {
    if let ast::FunctionArguments::List(list) = &call.args
        && let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(ast::Expr::Value(value)))] =
            list.args.as_slice()
        && let ast::Value::SingleQuotedString(text) = &value.value
    {
        return Ok(text.clone());
    }
    Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("{} takes one text", call.name))
        .into_datafusion())
}

/// The name that CREATE SCHEMA gives: the last part, for one of several begins with the catalog.
fn schema_named(name: &ast::SchemaName) -> Option<String> {
    match name {
        ast::SchemaName::Simple(name) | ast::SchemaName::NamedAuthorization(name, _) => {
            name.0.last().and_then(|part| part.as_ident()).map(identifier::plain)
        }
        ast::SchemaName::UnnamedAuthorization(_) => None,
    }
}
