//! A session: one user's tables, settings and prepared statements, and the running of statements in it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{SchemaRef, UInt64Type};
use datafusion::catalog::{DynamicFileCatalog, UrlTableFactory};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::config::{ConfigField, ConfigOptions};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{
    FunctionRegistry, SendableRecordBatchStream, SessionState, SessionStateBuilder, TaskContext,
};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{DdlStatement, LogicalPlan, Statement as PlanStatement, WriteOp};
use datafusion::physical_plan::execute_stream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::dialect_from_str;
use futures::TryStreamExt;
use harrier_exec::sqlstate::{CodedError, SqlState};
use harrier_exec::{StatementOptions, Transport, table_files};

use crate::SqlError;
use crate::analyze;
use crate::compact_views::CompactViews;
use crate::engine::{Engine, setting_error};
use crate::files::{self, ExternalTables, FileTables};
use crate::guard::{guarded, guarded_stream};
use crate::names;
use crate::progress::Progress;
use crate::settings::HarrierSettings;
use crate::split::{self, StatementText};
use crate::targets::{self, Staged};
use crate::warehouse::{
    self, Control, DEFAULT_CATALOG, Ddl, Dml, Names, Pending, SessionCatalog, TableClauses, Transactions,
    WarehouseTable,
};
use crate::yielding_joins::YieldingJoins;

/// A statement that has been parsed in a session, with its text for error messages.
#[derive(Debug, Clone)]
pub struct ParsedStatement {
    /// As the user wrote it, without the semicolon. Positions in errors count in this.
    pub text: String,
    /// The line of the whole input, from 1, on which `text` begins.
    pub line: usize,
    statement: Statement,
    /// How the table that it creates or alters is to be kept.
    clauses: Option<TableClauses>,
}

impl ParsedStatement {
    /// The parsed form.
    pub fn statement(&self) -> &Statement {
        &self.statement
    }
}

/// What a statement gives back.
#[non_exhaustive]
pub enum Outcome {
    /// Rows, computed as they are taken. Dropping the stream cancels the statement.
    Rows { schema: SchemaRef, stream: SendableRecordBatchStream, progress: Progress },
    /// A statement that writes rows elsewhere, not yet run.
    Write(Write),
    /// A statement that is done, with PostgreSQL's tag for it, such as `CREATE VIEW`.
    Command { tag: String },
}

/// A COPY, INSERT, UPDATE or DELETE that runs when [`Write::finish`] is called.
pub struct Write {
    verb: &'static str,
    text: String,
    // Before `staged`, whose files it writes: fields are dropped in this order.
    stream: SendableRecordBatchStream,
    staged: Staged,
    pub progress: Progress,
    /// What the rows come to, if they are those of a statement that changes the warehouse.
    pending: Option<(Pending, Arc<Kept>, Arc<TaskContext>)>,
    unfinished: Unfinished,
}

impl Write {
    /// Runs the statement to its end; returns its tag, such as `COPY 5`. Dropping the future cancels it.
    pub async fn finish(self) -> Result<String, SqlError> {
        let Self { verb, text, stream, staged, pending, mut unfinished, .. } = self;
        let rows = match pending {
            None => Self::count(stream, staged).await,
            Some((pending, kept, context)) => {
                let changed = async {
                    let batches: Vec<_> = stream.try_collect().await?;
                    let rows = pending.apply(batches, &kept.transactions, &context).await?;
                    kept.transactions.end_statement().await?;
                    Ok(rows)
                };
                let changed = changed.await;
                unfinished.disarm();
                if changed.is_err() {
                    kept.transactions.fail_statement().await;
                }
                changed
            }
        };
        let rows = rows.map_err(|error| SqlError::in_statement(&error, &text))?;
        // The 0 is what is left of the row identifiers that PostgreSQL once had.
        let zero = if verb == "INSERT" { " 0" } else { "" };
        Ok(format!("{verb}{zero} {rows}"))
    }

    async fn count(stream: SendableRecordBatchStream, staged: Staged) -> Result<u64> {
        // Dropped in the reverse order: first what writes, then what it wrote.
        let staged = staged;
        let stream = stream;
        let batches: Vec<_> = stream.try_collect().await?;
        staged.keep();
        let rows = batches
            .iter()
            .filter_map(|batch| batch.columns().first()?.as_primitive_opt::<UInt64Type>())
            .flat_map(|counts| (0..counts.len()).map(|row| counts.value(row)))
            .sum();
        Ok(rows)
    }
}

/// The tables of a session that stay.
struct Kept {
    names: Arc<Names>,
    transactions: Transactions,
}

/// Marks the transaction that BEGIN opened as failed if this is dropped armed: a statement of it was given up.
struct Unfinished(Option<Arc<Kept>>);

impl Unfinished {
    fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(kept) = &self.0 {
            kept.transactions.give_up();
        }
    }
}

/// One user's tables and settings. One statement at a time; cheap to make.
pub struct Session {
    context: SessionContext,
    /// What RESET restores.
    initial: HashMap<String, Option<String>>,
    engine: Engine,
    /// A table in memory was made: its rows may lie in blocks that other ranks have lent.
    keeps_rows: AtomicBool,
    kept: Option<Arc<Kept>>,
}

impl Session {
    pub(crate) fn new(engine: Engine) -> Self {
        let mut builder = SessionStateBuilder::new_with_default_features()
            .with_config(engine.config().clone())
            .with_runtime_env(Arc::clone(engine.runtime_env()));
        builder = builder.with_physical_optimizer_rule(Arc::new(YieldingJoins));
        builder = match engine.gang() {
            Some(gang) => gang.configure(builder),
            None => table_files::install(builder.with_physical_optimizer_rule(Arc::new(CompactViews))),
        };
        let mut state = builder.build();
        let external = Arc::new(ExternalTables::default());
        for factory in state.table_factories_mut().values_mut() {
            *factory = Arc::clone(&external) as _;
        }
        let files = Arc::new(FileTables::default());
        let catalogs = DynamicFileCatalog::new(
            Arc::clone(state.catalog_list()),
            Arc::clone(&files) as Arc<dyn UrlTableFactory>,
        );
        state.register_catalog_list(Arc::new(catalogs));
        let context = SessionContext::new_with_state(state);
        files.bind(context.state_weak_ref());
        let kept = engine.warehouse().map(|warehouse| {
            let names = Names::new();
            names.bind(context.state_weak_ref());
            context.register_catalog(DEFAULT_CATALOG, Arc::new(SessionCatalog(Arc::clone(&names))));
            let runtime = Arc::clone(engine.runtime_env());
            let transactions = Transactions::new(Arc::clone(warehouse), Arc::clone(&names), runtime);
            Arc::new(Kept { names, transactions })
        });
        let initial = entries(engine.config().options());
        Self { context, initial, engine, keeps_rows: AtomicBool::new(false), kept }
    }

    /// DataFusion's session below this one.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// All statements of `sql`, parsed. Fails at the first that does not parse; none has run then.
    pub fn statements(&self, sql: &str) -> Result<Vec<ParsedStatement>, SqlError> {
        split::split(sql).into_iter().map(|text| self.parse(text)).collect()
    }

    /// One statement, as [`split`] cut it, parsed in this session's dialect.
    pub fn parse(&self, text: StatementText) -> Result<ParsedStatement, SqlError> {
        let StatementText { text, line } = text;
        let parsed = match self.kept {
            Some(_) => {
                warehouse::cut(&text).and_then(|(rest, clauses)| Ok((self.parse_text(&rest)?, clauses)))
            }
            None => self.parse_text(&text).map(|statement| (statement, None)),
        };
        let (statement, clauses) = parsed.map_err(|error| SqlError::in_statement(&error, &text))?;
        Ok(ParsedStatement { text, line, statement, clauses })
    }

    fn parse_text(&self, text: &str) -> Result<Statement> {
        let state = self.context.state_ref();
        let (dialect, recursion_limit) = {
            let state = state.read();
            let options = &state.config_options().sql_parser;
            (options.dialect, options.recursion_limit.get())
        };
        let dialect = dialect_from_str(dialect)
            .ok_or_else(|| DataFusionError::Internal(format!("no dialect {dialect}")))?;
        let mut statements = DFParserBuilder::new(text)
            .with_dialect(dialect.as_ref())
            .with_recursion_limit(recursion_limit)
            .build()?
            .parse_statements()?;
        match (statements.pop_front(), statements.is_empty()) {
            (Some(mut statement), true) => {
                names::prepare(&mut statement);
                Ok(statement)
            }
            _ => Err(CodedError::new(SqlState::SYNTAX_ERROR, "not one statement").into()),
        }
    }

    /// Runs a statement as far as its first rows. Cancel-safe: dropping the future cancels the statement.
    pub async fn execute(&self, statement: &ParsedStatement) -> Result<Outcome, SqlError> {
        let text = &statement.text;
        guarded(Box::pin(self.run(statement)))
            .await
            .map_err(|error| SqlError::in_statement(&error, text))
            .and_then(|outcome| outcome)
    }

    /// The outer error is DataFusion's, the inner one is already what the user sees.
    async fn run(&self, statement: &ParsedStatement) -> Result<Result<Outcome, SqlError>> {
        let Some(kept) = &self.kept else {
            return self.run_statement(statement).await;
        };
        if let Statement::Statement(parsed) = &statement.statement
            && let Some(control) = Control::of(parsed)
        {
            return Ok(Ok(command(kept.transactions.control(control).await?)));
        }
        kept.transactions.begin_statement().await?;
        let mut unfinished = Unfinished(Some(Arc::clone(kept)));
        let outcome = match self.run_kept(statement, kept).await {
            Ok(Some(outcome)) => Ok(Ok(outcome)),
            Ok(None) => self.run_statement(statement).await,
            Err(error) => Err(error),
        };
        unfinished.disarm();
        match outcome {
            // Ends its statement when it is finished.
            Ok(Ok(Outcome::Write(write))) if write.pending.is_some() => Ok(Ok(Outcome::Write(write))),
            Ok(Ok(outcome)) => {
                kept.transactions.end_statement().await?;
                Ok(Ok(match outcome {
                    Outcome::Rows { schema, stream, progress } => {
                        let kept = Arc::clone(kept);
                        let stream = stream.inspect_err(move |_| kept.transactions.give_up());
                        let stream = Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), stream));
                        Outcome::Rows { schema, stream, progress }
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

    /// Runs a statement that changes the warehouse; `None` if it is none.
    async fn run_kept(&self, statement: &ParsedStatement, kept: &Arc<Kept>) -> Result<Option<Outcome>> {
        let ddl = Ddl { names: &kept.names, transactions: &kept.transactions, context: &self.context };
        let clauses = statement.clauses.as_ref();
        let Statement::Statement(parsed) = &statement.statement else {
            return Ok(None);
        };
        let tag = match parsed.as_ref() {
            ast::Statement::AlterTable(alter) => {
                self.spread().await?;
                ddl.alter_table(alter, clauses).await?;
                "ALTER TABLE"
            }
            ast::Statement::Truncate(truncate) => {
                ddl.truncate(truncate).await?;
                "TRUNCATE TABLE"
            }
            ast::Statement::Comment { object_type, object_name, comment, .. } => {
                ddl.comment(object_type, object_name, comment.clone()).await?;
                "COMMENT"
            }
            ast::Statement::Vacuum(vacuum) => return self.vacuum(vacuum, statement, kept).await,
            ast::Statement::Call(call) if call.name.to_string().eq_ignore_ascii_case("expire_snapshots") => {
                let age = warehouse::span(&only_text(call)?)?;
                if let Some(catalog) = kept.names.sight().catalog {
                    let count = warehouse::expire(&catalog, age).await?;
                    return Ok(Some(Outcome::Command { tag: format!("CALL {count}") }));
                }
                "CALL 0"
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
                let plan = self.context.state().statement_to_plan(statement.statement.clone()).await?;
                return self.run_plan(plan, parsed, statement, &ddl, kept).await;
            }
            _ => return Ok(None),
        };
        Ok(Some(command(tag)))
    }

    /// VACUUM sweeps files that nothing refers to; VACUUM FULL and OPTIMIZE write the small files of a table anew.
    async fn vacuum(
        &self,
        vacuum: &ast::VacuumStatement,
        statement: &ParsedStatement,
        kept: &Arc<Kept>,
    ) -> Result<Option<Outcome>> {
        let sight = kept.names.sight();
        let Some(catalog) = &sight.catalog else {
            return Ok(Some(command("VACUUM 0")));
        };
        let Some(name) = &vacuum.table_name else {
            let age = std::time::Duration::from_secs(self.settings().vacuum_age_seconds as u64);
            let count = warehouse::vacuum(catalog, self.engine.runtime_env(), age).await?;
            return Ok(Some(Outcome::Command { tag: format!("VACUUM {count}") }));
        };
        let name = warehouse::reference(name)?;
        let Some(table) = kept.names.table(&name) else {
            let message = format!("relation \"{}\" does not exist", name.table());
            return Err(CodedError::new(SqlState::UNDEFINED_TABLE, message).into());
        };
        self.spread().await?;
        let target = WarehouseTable::try_new(self.context.state(), &sight, table)?;
        let sources = target.compaction().await?;
        if sources.is_empty() {
            return Ok(Some(command("OPTIMIZE 0")));
        }
        self.write(Dml::compact(target, sources)?, "OPTIMIZE", statement, kept).await.map(Some)
    }

    async fn run_plan(
        &self,
        plan: LogicalPlan,
        parsed: &ast::Statement,
        statement: &ParsedStatement,
        ddl: &Ddl<'_>,
        kept: &Arc<Kept>,
    ) -> Result<Option<Outcome>> {
        let tag = match &plan {
            LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) if !create.temporary => {
                let has_rows = !matches!(create.input.as_ref(), LogicalPlan::EmptyRelation(_));
                let mut create = create.clone();
                if has_rows {
                    // Only then it is known what types the rows have.
                    create.input = Arc::new(self.context.state().optimize(&create.input)?);
                }
                let made = ddl.create_table(&create, statement.clauses.as_ref(), has_rows).await?;
                if let (Some(table), true) = (made, has_rows) {
                    let target = WarehouseTable::try_new(self.context.state(), &kept.names.sight(), table)?;
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
                let columns: Vec<String> =
                    view.columns.iter().map(|column| column.name.to_string()).collect();
                let query = match columns.is_empty() {
                    true => view.query.to_string(),
                    false => format!("SELECT * FROM ({}) AS \"_\" ({})", view.query, columns.join(", ")),
                };
                ddl.create_view(&create.name, query, create.or_replace).await?;
                "CREATE VIEW"
            }
            LogicalPlan::Ddl(DdlStatement::CreateCatalogSchema(create)) => {
                ddl.create_schema(&create.schema_name, create.if_not_exists).await?;
                "CREATE SCHEMA"
            }
            LogicalPlan::Ddl(DdlStatement::DropTable(drop)) if !kept.names.is_own(&drop.name) => {
                ddl.drop_table(&drop.name, drop.if_exists).await?;
                "DROP TABLE"
            }
            LogicalPlan::Ddl(DdlStatement::DropView(drop)) if !kept.names.is_own(&drop.name) => {
                ddl.drop_view(&drop.name, drop.if_exists).await?;
                "DROP VIEW"
            }
            LogicalPlan::Ddl(DdlStatement::DropCatalogSchema(drop)) => {
                ddl.drop_schema(&drop.name.to_string(), drop.if_exists, drop.cascade).await?;
                "DROP SCHEMA"
            }
            LogicalPlan::Dml(dml) => {
                let verb = write_verb(&plan).unwrap_or("INSERT");
                return match Dml::of(dml)? {
                    Some(dml) => self.write(dml, verb, statement, kept).await.map(Some),
                    None => Ok(None),
                };
            }
            _ => return Ok(None),
        };
        Ok(Some(command(tag)))
    }

    /// Starts a statement that writes rows into the warehouse.
    async fn write(
        &self,
        dml: Dml,
        verb: &'static str,
        statement: &ParsedStatement,
        kept: &Arc<Kept>,
    ) -> Result<Outcome> {
        let Dml { plan, pending } = dml;
        let state = self.context.state();
        let outcome = self.start(&state, &state.optimize(&plan)?, Some(verb), &statement.text).await?;
        Ok(match outcome {
            Outcome::Write(write) => Outcome::Write(Write {
                pending: Some((pending, Arc::clone(kept), state.task_ctx())),
                unfinished: Unfinished(Some(Arc::clone(kept))),
                ..write
            }),
            other => other,
        })
    }

    async fn run_statement(&self, statement: &ParsedStatement) -> Result<Result<Outcome, SqlError>> {
        self.spread().await?;
        let state = self.context.state();
        let plan = state.statement_to_plan(statement.statement.clone()).await?;
        let command = match &plan {
            // DataFusion accepts it and does nothing.
            LogicalPlan::Ddl(DdlStatement::CreateIndex(_)) => {
                return Err(CodedError::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    "CREATE INDEX is not supported",
                )
                .into());
            }
            LogicalPlan::Ddl(ddl) => Some(ddl_tag(ddl)),
            LogicalPlan::Statement(PlanStatement::SetVariable(set)) => {
                let set = set.clone();
                let name = set.variable.clone();
                let plan = LogicalPlan::Statement(PlanStatement::SetVariable(set));
                return Ok(self
                    .context
                    .execute_logical_plan(plan)
                    .await
                    .map(|_| command("SET"))
                    .map_err(|error| setting_error(&name, &error)));
            }
            LogicalPlan::Statement(PlanStatement::ResetVariable(reset)) => {
                let name = reset.variable.clone();
                return Ok(self
                    .reset(&name)
                    .await
                    .map(|()| command("RESET"))
                    .map_err(|error| setting_error(&name, &error)));
            }
            LogicalPlan::Statement(PlanStatement::Prepare(_)) => Some("PREPARE"),
            LogicalPlan::Statement(PlanStatement::Deallocate(_)) => Some("DEALLOCATE"),
            _ => None,
        };
        if matches!(plan, LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(_))) {
            self.keeps_rows.store(true, Ordering::Relaxed);
        }
        let verb = write_verb(&plan);
        let frame = self.context.execute_logical_plan(plan).await?;
        if let Some(tag) = command {
            return Ok(Ok(self::command(tag)));
        }
        let (state, plan) = frame.into_parts();
        Ok(Ok(self.start(&state, &plan, verb, &statement.text).await?))
    }

    async fn start(
        &self,
        state: &SessionState,
        plan: &LogicalPlan,
        verb: Option<&'static str>,
        text: &str,
    ) -> Result<Outcome> {
        if let Some(lines) = analyze::answer(state, plan, self.engine.gang()).await? {
            let stream = analyze::rows(lines)?;
            return Ok(Outcome::Rows { schema: stream.schema(), stream, progress: Progress::none() });
        }
        let target = match plan {
            LogicalPlan::Copy(copy) => Some(copy.output_url.clone()),
            _ => None,
        };
        if let Some(target) = &target {
            targets::check(target)?;
        }
        let plan = state.create_physical_plan(plan).await?;
        let progress = Progress::of(&plan);
        let scanned = files::scanned(&plan);
        let staged = Staged::below(target.clone());
        let stream = guarded_stream(execute_stream(Arc::clone(&plan), state.task_ctx())?);
        let stream = match self.engine.gang() {
            Some(gang) => gang.until_loss(&plan, stream),
            None => stream,
        };
        let schema = stream.schema();
        let explained = stream.map_err(move |error| match &target {
            Some(target) => targets::explain(files::about_scan(error, &scanned), target),
            None => files::about_scan(error, &scanned),
        });
        let stream: SendableRecordBatchStream = Box::pin(RecordBatchStreamAdapter::new(schema, explained));
        Ok(match verb {
            Some(verb) => Outcome::Write(Write {
                verb,
                text: text.to_string(),
                stream,
                staged,
                progress,
                pending: None,
                unfinished: Unfinished(None),
            }),
            None => Outcome::Rows { schema: stream.schema(), stream, progress },
        })
    }

    /// On a gang: makes the coming statement run on all ranks, by this session's settings.
    async fn spread(&self) -> Result<()> {
        let Some(gang) = self.engine.gang() else {
            return Ok(());
        };
        let settings = self.settings();
        let transport = match settings.interconnect.as_str() {
            "grpc" => Transport::Grpc,
            _ => Transport::Mpi,
        };
        let options = StatementOptions { transport, distribute_bytes_min: settings.distribute_bytes_min };
        let on_ranks = gang.statement(options).await?;
        let state = self.context.state_ref();
        on_ranks.apply(state.write().config_mut())
    }

    /// Gives one setting, or `all`, the value it had when the session began.
    async fn reset(&self, name: &str) -> Result<()> {
        if name == "all" {
            let state = self.context.state_ref();
            let mut state = state.write();
            let options = state.config_mut().options_mut();
            let present = entries(options);
            for (key, value) in self.initial.iter().filter(|(key, value)| present.get(*key) != Some(*value)) {
                restore(options, key, value.as_deref())?;
            }
            return tell_functions(&mut state);
        }
        if name.starts_with("datafusion.runtime.") {
            let plan = match (name, self.engine.memory_bytes()) {
                ("datafusion.runtime.memory_limit", Some(bytes)) => {
                    PlanStatement::SetVariable(datafusion::logical_expr::SetVariable {
                        variable: name.to_string(),
                        value: format!("{}K", bytes / 1024),
                    })
                }
                _ => PlanStatement::ResetVariable(datafusion::logical_expr::ResetVariable {
                    variable: name.to_string(),
                }),
            };
            let plan = LogicalPlan::Statement(plan);
            return self.context.execute_logical_plan(plan).await.map(drop);
        }
        let Some(value) = self.initial.get(name) else {
            return Err(CodedError::new(SqlState::UNDEFINED_OBJECT, name).into());
        };
        let state = self.context.state_ref();
        let mut state = state.write();
        restore(state.config_mut().options_mut(), name, value.as_deref())?;
        tell_functions(&mut state)
    }

    /// To be called after every statement, when its outcome has been dropped: has what it still holds on a gang taken back.
    /// With `harrier.check_ledger`, checks that it gave back what it took on every rank.
    ///
    /// Errors: it did not (XX000).
    pub async fn settle(&self) -> Result<(), SqlError> {
        let Some(gang) = self.engine.gang() else {
            return Ok(());
        };
        gang.tidy();
        if gang.has_new_loss() || !self.settings().check_ledger {
            return Ok(());
        }
        let kept = if self.keeps_rows.load(Ordering::Relaxed) {
            harrier_exec::Kept::Rows
        } else {
            harrier_exec::Kept::Nothing
        };
        gang.check_ledger(kept).await.map_err(|error| SqlError::in_statement(&error, ""))
    }

    /// The session's own settings.
    pub fn settings(&self) -> HarrierSettings {
        self.context
            .state_ref()
            .read()
            .config_options()
            .extensions
            .get::<HarrierSettings>()
            .cloned()
            .unwrap_or_default()
    }
}

fn entries(options: &ConfigOptions) -> HashMap<String, Option<String>> {
    options.entries().into_iter().map(|entry| (entry.key, entry.value)).collect()
}

/// Gives functions that keep a copy of a setting, such as the time zone, the present one; SET does the same.
fn tell_functions(state: &mut SessionState) -> Result<()> {
    let functions: Vec<_> = state.scalar_functions().values().cloned().collect();
    for function in functions {
        if let Some(function) = function.inner().with_updated_config(state.config_options()) {
            state.register_udf(Arc::new(function))?;
        }
    }
    Ok(())
}

fn restore(options: &mut ConfigOptions, key: &str, value: Option<&str>) -> Result<()> {
    match value {
        Some(value) => options.set(key, value),
        None => options.reset(key),
    }
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
    Err(CodedError::new(SqlState::INVALID_PARAMETER_VALUE, format!("{} takes one text", call.name)).into())
}

fn command(tag: &str) -> Outcome {
    Outcome::Command { tag: tag.to_string() }
}

fn ddl_tag(ddl: &DdlStatement) -> &'static str {
    match ddl {
        DdlStatement::CreateExternalTable(_) => "CREATE EXTERNAL TABLE",
        DdlStatement::CreateMemoryTable(_) => "CREATE TABLE",
        DdlStatement::CreateView(_) => "CREATE VIEW",
        DdlStatement::CreateCatalogSchema(_) => "CREATE SCHEMA",
        DdlStatement::CreateCatalog(_) => "CREATE DATABASE",
        DdlStatement::CreateIndex(_) => "CREATE INDEX",
        DdlStatement::DropTable(_) => "DROP TABLE",
        DdlStatement::DropView(_) => "DROP VIEW",
        DdlStatement::DropCatalogSchema(_) => "DROP SCHEMA",
        DdlStatement::CreateFunction(_) => "CREATE FUNCTION",
        DdlStatement::DropFunction(_) => "DROP FUNCTION",
    }
}

/// PostgreSQL's tag for a plan that writes, without its count.
fn write_verb(plan: &LogicalPlan) -> Option<&'static str> {
    match plan {
        LogicalPlan::Copy(_) => Some("COPY"),
        LogicalPlan::Dml(dml) => Some(match dml.op {
            WriteOp::Insert(_) => "INSERT",
            WriteOp::Delete => "DELETE",
            WriteOp::Update => "UPDATE",
            WriteOp::Ctas => "SELECT",
            WriteOp::Truncate => "TRUNCATE",
            WriteOp::MergeInto(_) => "MERGE",
            _ => "WRITE",
        }),
        _ => None,
    }
}
