//! A session: one user's tables, settings and prepared statements, and the running of statements in it.

pub(crate) mod client;
pub(crate) mod planner;
pub(crate) mod prepared_statements;
pub(crate) mod temporary_catalog;
pub(crate) mod warehouse_session;

use crate::planning::declared_casts;
use crate::settings::refresh_functions;
use crate::types::names;
use crate::warehouse::access::read_check;
use crate::warehouse::keys;
use crate::warehouse::keys::declaration;
use crate::warehouse::relation;
use crate::warehouse::temporary_tables;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{DynamicFileCatalog, MemTable};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::config::{self, ConfigField, ConfigOptions};
use datafusion::datasource::source_as_provider;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{
    FunctionRegistry, SendableRecordBatchStream, SessionState, SessionStateBuilder, TaskContext,
};
use datafusion::logical_expr::{
    DdlStatement, DmlStatement, LogicalPlan, PlanType, Statement as PlanStatement, ToStringifiedPlan, WriteOp,
};
use datafusion::physical_plan::execute_stream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::{Dialect, dialect_from_str};
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use harrier_error::{SqlError, SqlState};
use harrier_exec::formats::arrow_ipc::ArrowFilesFactory;
use harrier_exec::formats::avro::AvroFormatFactory;
use harrier_exec::formats::delimited::DelimitedFormatFactory;
use harrier_exec::frontend::client::{Admission, DistributeBytesMin, RetryReads};

use harrier_exec::RowCodec;
use harrier_exec::StatementOptions;
use harrier_exec::StoreProfiles;
use harrier_exec::Transport;
use harrier_exec::formats::atomic_sinks::WholeFiles;
use harrier_exec::formats::orc::OrcFormatFactory;
use harrier_exec::formats::parquet_scan::ParquetFilesFactory;
use harrier_exec::formats::text_scan::TextFilesFactory;
use harrier_exec::operators::cancelable_joins;
use harrier_functions::math::checked::Operation;
use harrier_functions::registry;
use harrier_resources::cancellation::Canceled;
use harrier_resources::statement_limits::Scope;
use harrier_sql::desugar;
use harrier_sql::desugar::result_columns;
use harrier_sql::desugar::update_from;
use harrier_sql::dialect::SqlDialect;
use harrier_sql::identifier;
use harrier_sql::nesting;
use harrier_sql::parser::copy as copy_parse;
use harrier_sql::parser::insert_partition::InsertPartition;
use harrier_sql::parser::table_clauses::TableClauses;
use harrier_sql::tokens::explain_options::ExplainOptions;
use harrier_sql::{ParseOptions, Parsed, Tokens};
use harrier_sqlstate::IntoDataFusionError;
use parking_lot::Mutex;

use crate::binder::assignment_casts;
use crate::binder::column_origins::{self, Origin};
use crate::binder::create_table_like;
use crate::binder::declared_types;
use crate::binder::information_schema;
use crate::binder::json;
use crate::binder::parameter_types::TypedParameters;
use crate::binder::type_names;
use crate::binder::unsupported_statements;
use crate::engine::{Engine, setting_error};
use crate::external::file_tables::{self, ExternalTables, FileTables, FilesAsked};
use crate::external::hive::{self, FolderTable, FolderWrite, Watched};
use crate::external::store_urls;
use crate::object_stores::options::{self, TableOptions};
use crate::planning::coalesce;
use crate::planning::default_values;
use crate::planning::delete_alias;
use crate::planning::generate_series::Series;
use crate::planning::result_names;
use crate::planning::unknown_literals;
use crate::runtime::limits::{self, Limits};
use crate::runtime::panic_guard::{guarded, guarded_stream};
use crate::runtime::progress::Progress;
use crate::session::prepared_statements::PreparedStatements;
use crate::session::temporary_catalog::OwnCatalog;
use crate::settings::parameters::{Change, Parameters};
use crate::settings::{self, HarrierSettings};
use crate::statement::copy::target;
use crate::statement::copy::{CopyCheck, CopyIn, CopyInRows, CopyOut, TextFormatFactory};
use crate::statement::describe;
use crate::statement::explain;
use crate::statement::memory_table_dml;
use crate::statement::returning::Returning;
use crate::statement::write::{Unfinished, Write};
use crate::warehouse::access::SessionRole;
use crate::warehouse::name_resolver::{DEFAULT_CATALOG, Names, SessionCatalog};
use crate::warehouse::on_commit::AtCommit;
use crate::warehouse::public_schema::Said;
use crate::warehouse::sequences::{self, SessionSequences};
use crate::warehouse::session::Kept;
use crate::warehouse::system_catalogs::pg_catalog::SessionSource;
use crate::warehouse::temporary_snapshots::OwnStates;
use crate::warehouse::transaction::Transactions;
use harrier_planner::analyzer::decimal_float_coercion;
use harrier_planner::analyzer::timestamp_coercion;
use harrier_planner::binder::decimal_division::DecimalDivisionPlanner;
use harrier_planner::binder::interval_arithmetic::IntervalArithmeticPlanner;
use harrier_planner::binder::nested_call_names;
use harrier_planner::binder::table_functions;
use harrier_planner::rewrite::in_view;
use harrier_sql::parser::analyze::SampleSize;
use harrier_sql::splitter::{self, StatementText};

/// A statement that has been parsed in a session, with its text for error messages.
#[derive(Debug, Clone)]
pub struct ParsedStatement {
    /// As the user wrote it, without the semicolon. Positions in errors count in this.
    pub text: String,
    /// The line of the whole input, from 1, on which `text` begins.
    pub line: usize,
    pub(crate) form: harrier_sql::Statement,
    /// How the table that it creates or alters is to be kept.
    pub(crate) clauses: Option<TableClauses>,
    /// The table partitions that an INSERT names.
    pub(crate) partition: Option<InsertPartition>,
    /// How much ANALYZE looks at.
    pub(crate) sample: SampleSize,
    /// What EXPLAIN asks for.
    pub(crate) explain: ExplainOptions,
    /// The table that it renames is named as a view.
    pub(crate) renames_view: bool,
    /// It makes a table of the session alone.
    pub(crate) temporary: bool,
    /// What becomes of that table with every commit.
    pub(crate) at_commit: Option<AtCommit>,
    /// As a client has sent it, before it was made fit for PostgreSQL's catalogs.
    pub(crate) asked: Option<Arc<ast::Statement>>,
    pub(crate) reads: CatalogReads,
    /// Those of its parameters.
    pub(crate) values: Arc<[ScalarValue]>,
}

/// What a statement may read of PostgreSQL's catalogs, by the words in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CatalogReads {
    /// Anything at all.
    pub(crate) any: bool,
    /// How large tables are.
    pub(crate) sizes: bool,
    /// What ANALYZE has found out.
    pub(crate) analyses: bool,
    /// Where sequences are.
    pub(crate) sequences: bool,
    /// Which of its names the schema `public` has in the statement.
    pub(crate) said: Said,
}

/// What a statement gives back.
#[non_exhaustive]
pub enum Outcome {
    /// Rows, computed as they are taken. Dropping the stream cancels the statement.
    Rows { schema: SchemaRef, stream: SendableRecordBatchStream, progress: Progress },
    /// A statement that writes rows elsewhere, not yet run.
    Write(Write),
    /// A statement that writes rows which the client is to send.
    CopyIn(CopyIn),
    /// The same, with rows that come as batches.
    CopyInRows(CopyInRows),
    /// Rows as text, for the client.
    CopyOut(CopyOut),
    /// Rows for the client, for whoever sends them to write down.
    CopyOutRows { schema: SchemaRef, stream: SendableRecordBatchStream, progress: Progress },
    /// A statement that is done, with PostgreSQL's tag for it, such as `CREATE VIEW`, and with what the user
    /// is to be told beside.
    Command {
        tag: String,
        warnings: Vec<String>,
        /// What was not done because it need not be.
        notices: Vec<String>,
    },
}

impl Outcome {
    /// How far it is; `None`: it is done.
    pub fn progress(&self) -> Option<&Progress> {
        match self {
            Self::Rows { progress, .. } | Self::CopyOutRows { progress, .. } => Some(progress),
            Self::Write(write) => Some(&write.progress),
            Self::CopyIn(copy) => Some(&copy.write.progress),
            Self::CopyInRows(copy) => Some(&copy.write.progress),
            Self::CopyOut(copy) => Some(&copy.progress),
            Self::Command { .. } => None,
        }
    }
}

/// One user's tables and settings. One statement at a time; cheap to make.
pub struct Session {
    context: SessionContext,
    engine: Engine,
    /// A table in memory was made: its rows may lie in blocks that other ranks have lent.
    keeps_rows: AtomicBool,
    /// Something was left on a rank, and logged.
    left_something: AtomicBool,
    kept: Option<Arc<Kept>>,
    prepared: PreparedStatements,
    parameters: Arc<Parameters>,
    /// PostgreSQL's catalogs, once the session has begun.
    postgres: OnceLock<Arc<SessionSource>>,
    /// It is for a client at the other end of a connection.
    is_client: AtomicBool,
    /// What there is without a warehouse.
    own: Option<Arc<OwnCatalog>>,
}

impl Session {
    pub(crate) fn new(engine: Engine) -> Self {
        let builder = SessionStateBuilder::new_with_default_features()
            .with_config(engine.config().clone().with_extension(Arc::new(StoreProfiles::default())))
            .with_runtime_env(Arc::clone(engine.runtime_env()));
        let mut state = planner::install(builder, &engine).build();
        engine.keep_initial(state.config_options());
        add_functions(&mut state);
        let role = Arc::new(SessionRole::default());
        let external = Arc::new(ExternalTables::new(Arc::clone(&role)));
        for format in ["ORC", "TEXTFILE"] {
            state.table_factories_mut().insert(format.to_string(), Arc::clone(&external) as _);
        }
        if let Err(error) = state.register_file_format(OrcFormatFactory::new(), true) {
            tracing::warn!(%error, "ORC files cannot be read");
        }
        if let Err(error) = state.register_file_format(Arc::new(ArrowFilesFactory::default()), true) {
            tracing::warn!(%error, "Arrow's files are read as DataFusion does");
        }
        if let Err(error) = state.register_file_format(Arc::new(ParquetFilesFactory::default()), true) {
            tracing::warn!(%error, "Parquet files are read as DataFusion does");
        }
        if let Err(error) = state.register_file_format(AvroFormatFactory::new(), true) {
            tracing::warn!(%error, "Avro files cannot be written");
        }
        if let Err(error) = state.register_file_format(Arc::new(TextFormatFactory), true) {
            tracing::warn!(%error, "text files cannot be written");
        }
        if let Err(error) = state.register_file_format(DelimitedFormatFactory::new(), true) {
            tracing::warn!(%error, "text files of Hive cannot be read");
        }
        for factory in [TextFilesFactory::csv(), TextFilesFactory::json()] {
            if let Err(error) = state.register_file_format(factory, true) {
                tracing::warn!(%error, "CSV and JSON are read as DataFusion does");
            }
        }
        for factory in state.table_factories_mut().values_mut() {
            *factory = Arc::clone(&external) as _;
        }
        let own = engine.warehouse().is_none().then(|| own_catalog(&state)).flatten();
        let files = Arc::new(FileTables::default());
        let asked = FilesAsked { files: Arc::clone(&files), role: Arc::clone(&role) };
        let catalogs = DynamicFileCatalog::new(Arc::clone(state.catalog_list()), Arc::new(asked));
        state.register_catalog_list(Arc::new(catalogs));
        let context = SessionContext::new_with_state(state);
        files.bind(context.state_weak_ref());
        let kept = engine.warehouse().map(|warehouse| {
            let names = Names::new(Arc::clone(engine.server_tables()), Arc::clone(&role), files);
            names.bind(context.state_weak_ref());
            let catalog = SessionCatalog::new(Arc::clone(&names));
            context.register_catalog(DEFAULT_CATALOG, Arc::new(catalog));
            let runtime = Arc::clone(engine.runtime_env());
            let transactions = Transactions::new(Arc::clone(warehouse), Arc::clone(&names), runtime);
            let (deferred, own_states) = (Mutex::default(), OwnStates::default());
            let sequences = SessionSequences::default();
            Arc::new(Kept { names, transactions, deferred, own_states, sequences })
        });
        sequences::register(&context, kept.as_ref());
        sequences::add_rule(&context, kept.as_ref());
        Self {
            context,
            engine,
            keeps_rows: AtomicBool::new(false),
            left_something: AtomicBool::new(false),
            kept,
            prepared: PreparedStatements::default(),
            parameters: Arc::default(),
            postgres: OnceLock::new(),
            is_client: AtomicBool::new(false),
            own,
        }
    }

    /// DataFusion's session below this one.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// To be called when a table in memory is made.
    pub(crate) fn keeps_rows(&self) {
        self.keeps_rows.store(true, Ordering::Relaxed);
    }

    /// The tables that stay, if the session has a warehouse.
    pub(crate) fn kept(&self) -> Option<&Arc<Kept>> {
        self.kept.as_ref()
    }

    pub(crate) fn prepared(&self) -> &PreparedStatements {
        &self.prepared
    }

    /// Gives one of DataFusion's or Harrier's settings a value, as SET does.
    pub(crate) fn set_own(&self, name: &str, value: &str) -> Result<(), SqlError> {
        let state = self.context.state_ref();
        let mut state = state.write();
        let set = settings::taken_value(name, value)
            .and_then(|value| state.config_mut().options_mut().set(&name.to_lowercase(), &value));
        set.and_then(|()| refresh_functions(&mut state)).map_err(|error| setting_error(name, &error))
    }

    /// Has statements of this session let in as those of another one.
    pub(crate) fn admit_by(&self, admission: Arc<Admission>) {
        self.context.state_ref().write().config_mut().set_extension(admission);
    }

    pub(crate) fn postgres(&self) -> &OnceLock<Arc<SessionSource>> {
        &self.postgres
    }

    /// Whether columns of results and of what is made are called as PostgreSQL calls them: once the session
    /// has begun. Those of the program itself never do, and have the planner's names.
    pub(crate) fn names_as_postgres(&self) -> bool {
        self.postgres.get().is_some()
    }

    pub(crate) fn is_client(&self) -> bool {
        self.is_client.load(Ordering::Relaxed)
    }

    /// To be called before its first statement.
    pub(crate) fn serves_client(&self) {
        self.is_client.store(true, Ordering::Relaxed);
    }

    /// The tables that end with the session, if it has no warehouse.
    pub(crate) fn own(&self) -> Option<&Arc<OwnCatalog>> {
        self.own.as_ref()
    }

    pub(crate) fn parameters(&self) -> &Arc<Parameters> {
        &self.parameters
    }

    /// All statements of `sql`, parsed. Fails at the first that does not parse; none has run then.
    pub fn statements(&self, sql: &str) -> Result<Vec<ParsedStatement>, SqlError> {
        splitter::split(sql).into_iter().map(|text| self.parse(text)).collect()
    }

    /// One statement, as the splitter cut it, parsed in this session's dialect.
    ///
    /// Errors: of its syntax (42601 and others); it is nested too deeply (54001).
    pub fn parse(&self, text: StatementText) -> Result<ParsedStatement, SqlError> {
        self.parse_as(text, |parsed| {
            let sent = parsed.asked.take();
            (parsed.asked, parsed.reads) = self.rewrite(&mut parsed.form, &parsed.text, sent);
        })
    }

    /// The same with `information_schema` as the planner has it, with its names of types and of what it
    /// lists.
    pub fn parse_for_planner(&self, text: StatementText) -> Result<ParsedStatement, SqlError> {
        self.parse_as(text, |_| ())
    }

    /// `change` is done to the statement on a stack that is large enough for it.
    fn parse_as(
        &self,
        text: StatementText,
        change: impl FnOnce(&mut ParsedStatement),
    ) -> Result<ParsedStatement, SqlError> {
        let parse = || -> Result<ParsedStatement> {
            let (dialect, levels) = self.parser_settings()?;
            nesting::bounded(Tokens::of(&text.text, dialect.as_ref())?, |tokens| {
                let options = ParseOptions { has_warehouse: self.kept.is_some(), levels };
                let mut parsed = self.prepared_statement(harrier_sql::parse(tokens, options)?, &text)?;
                change(&mut parsed);
                Ok(parsed)
            })
        };
        parse().map_err(|error| crate::error::in_statement(&error, &text.text))
    }

    /// The dialect that the session is set to, and how deeply a statement may be nested.
    fn parser_settings(&self) -> Result<(Box<dyn Dialect>, usize)> {
        let state = self.context.state_ref();
        let state = state.read();
        let options = &state.config_options().sql_parser;
        let dialect: Box<dyn Dialect> = match options.dialect {
            config::Dialect::PostgreSQL => Box::new(SqlDialect),
            other => dialect_from_str(other)
                .ok_or_else(|| DataFusionError::Internal(format!("no dialect {other}")))?,
        };
        Ok((dialect, options.recursion_limit.get()))
    }

    /// A statement in words that the planner knows.
    fn prepared_statement(&self, parsed: Parsed, text: &StatementText) -> Result<ParsedStatement> {
        let Parsed { statement: mut form, clauses, partition, sample, explain, renames_view } = parsed;
        // What a client has sent, before anything is done to it, if columns are called as PostgreSQL calls
        // them.
        let mut asked = None;
        if let harrier_sql::Statement::Copy(copy) = &mut form {
            asked = copy.query_mut().map(|query| ast::Statement::Query(Box::new(query.clone())));
            copy.prepare(self.date_order())?;
            if let Some(statement) = copy_parse::to_file(copy)? {
                form = harrier_sql::Statement::Sql(statement);
            }
        } else if let harrier_sql::Statement::Sql(statement) = &mut form {
            if self.names_as_postgres() {
                asked = result_names::asked(statement);
            }
            desugar::prepare(statement, self.date_order())?;
            // What is read has PostgreSQL's names, whatever the planner's.
            result_columns::prepare(statement, self.names_as_postgres());
            declared_casts::settle(statement);
            nested_call_names::settle(statement, self.context.state_ref().read().scalar_functions());
        }
        let (mut temporary, mut at_commit) = (false, None);
        if let harrier_sql::Statement::Sql(Statement::Statement(statement)) = &mut form
            && let ast::Statement::CreateTable(create) = statement.as_mut()
        {
            // The planner knows no such tables: to it, all are of the session.
            temporary = std::mem::take(&mut create.temporary);
            at_commit = at_commit_of(create, temporary, self.kept.is_some())?;
        }
        Ok(ParsedStatement {
            text: text.text.clone(),
            line: text.line,
            form,
            clauses,
            partition,
            sample,
            explain,
            renames_view,
            temporary,
            at_commit,
            asked: asked.map(Arc::new),
            reads: CatalogReads::default(),
            values: Arc::default(),
        })
    }

    /// Runs a statement as far as its first rows. Cancel-safe: dropping the future cancels the statement.
    /// Whoever wants to give it up while it computes, or to give up its rows, does this inside of
    /// [`Canceled::scope`] and sets that flag.
    pub fn execute<'s>(&'s self, statement: &'s ParsedStatement) -> BoxFuture<'s, Result<Outcome, SqlError>> {
        let canceled = Canceled::current().unwrap_or_default();
        let dropped = canceled.when_dropped();
        let work = async move {
            let outcome = guarded(self.run(statement).boxed()).await;
            dropped.keep();
            outcome
                .map_err(|error| crate::error::in_statement(&error, &statement.text))
                .and_then(|outcome| outcome)
        };
        canceled.scope(work).boxed()
    }

    /// The plan of a statement, with values for its parameters if there are any: of EXECUTE, that of what it
    /// executes.
    ///
    /// Errors: those of planning; what a statement writes does not fit its columns (42804); it assigns to one
    /// of them twice (42601).
    pub(crate) async fn plan(&self, statement: &Statement, values: &[ScalarValue]) -> Result<LogicalPlan> {
        let state = self.context.state();
        if let Some((statement, like)) = create_table_like::cut(statement) {
            return like.fill(&state, state.statement_to_plan(statement).await?).await;
        }
        let (without_keys, _) = declaration::cut_keys(statement)?;
        let statement = without_keys.as_ref();
        unsupported_statements::check(statement)?;
        let explained = self.explained(statement, values).await?;
        let statement = explained.as_ref().unwrap_or(statement);
        let statement = default_values::filled(&state, statement).await?;
        let statement = table_functions::bound(statement.as_ref(), values);
        let statement = statement.as_ref();
        let written = self.written(statement)?;
        if let Some(written) = &written {
            assignment_casts::check_targets(written)?;
        }
        let plan = match statement {
            Statement::Statement(parsed)
                if matches!(
                    parsed.as_ref(),
                    ast::Statement::Execute { immediate: false, name: Some(_), .. }
                ) =>
            {
                self.prepared.plan(&state, parsed).await?
            }
            _ => {
                let state = information_schema::of(&state, statement)?.unwrap_or(state);
                let plan = Box::pin(delete_alias::plan(&state, statement.clone())).await?;
                in_view(
                    describe::with_values(plan, values)?,
                    &[
                        json::typed,
                        declared_types::typed,
                        unknown_literals::typed,
                        timestamp_coercion::leveled,
                        decimal_float_coercion::compared,
                    ],
                )?
            }
        };
        assignment_casts::check(&plan, written.as_deref())?;
        declared_types::shown(json::stored(plan)?)
    }

    /// An EXPLAIN of a statement with RETURNING, without it: rows that are returned are no part of what is
    /// shown.
    async fn explained(&self, statement: &Statement, values: &[ScalarValue]) -> Result<Option<Statement>> {
        let Statement::Explain(explain) = statement else { return Ok(None) };
        let Some(returning) = Returning::of(&explain.statement)? else { return Ok(None) };
        Box::pin(self.plan_of_answer(&returning, values)).await?;
        let mut explain = explain.clone();
        *explain.statement = returning.change;
        Ok(Some(Statement::Explain(explain)))
    }

    /// The statement that is executed or explained, or `statement` itself.
    fn written<'s>(&self, statement: &'s Statement) -> Result<Option<Cow<'s, ast::Statement>>> {
        match statement {
            Statement::Statement(parsed) => self.executed(parsed).map(Some),
            Statement::Explain(explain) => self.written(&explain.statement),
            _ => Ok(None),
        }
    }

    /// The statement that EXECUTE runs, or `statement` itself if it is none.
    pub(crate) fn executed<'s>(&self, statement: &'s ast::Statement) -> Result<Cow<'s, ast::Statement>> {
        match statement {
            ast::Statement::Execute { immediate: false, name: Some(name), .. } => {
                self.prepared.statement(name).map(Cow::Owned)
            }
            other => Ok(Cow::Borrowed(other)),
        }
    }

    /// PREPARE and DEALLOCATE; `None` for other statements.
    async fn prepare(
        &self,
        statement: &Statement,
        asked: &Option<Arc<ast::Statement>>,
    ) -> Result<Option<&'static str>> {
        let Statement::Statement(parsed) = statement else {
            return Ok(None);
        };
        match parsed.as_ref() {
            ast::Statement::Prepare { .. } => {
                self.prepared.prepare(&self.context.state(), parsed, asked.clone()).await?;
                Ok(Some("PREPARE"))
            }
            ast::Statement::Deallocate { name, .. } => {
                let is_all = name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all");
                let name = identifier::plain(name);
                self.prepared.deallocate((!is_all).then_some(name.as_str()))?;
                Ok(Some(if is_all { "DEALLOCATE ALL" } else { "DEALLOCATE" }))
            }
            _ => Ok(None),
        }
    }

    pub(crate) async fn run_statement(
        &self,
        statement: &ParsedStatement,
    ) -> Result<Result<Outcome, SqlError>> {
        let parsed = match &statement.form {
            harrier_sql::Statement::Copy(copy) => return self.copy(copy, statement).await.map(Ok),
            harrier_sql::Statement::Access(_) => {
                let message = "roles, privileges and resource queues are kept in a warehouse";
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                    .with_hint("--warehouse DIR")
                    .into_datafusion());
            }
            harrier_sql::Statement::Sequence(_) => {
                let message = "sequences are kept in a warehouse";
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                    .with_hint("--warehouse DIR")
                    .into_datafusion());
            }
            harrier_sql::Statement::Optimize(optimize) => {
                self.spread().await?;
                if let Some(name) = &optimize.table
                    && let Some(outcome) = self.optimize_folder(name, statement).await?
                {
                    return Ok(Ok(outcome));
                }
                let message = "OPTIMIZE is for tables of a warehouse and external tables that are folders";
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
            }
            harrier_sql::Statement::CheckTable(_)
            | harrier_sql::Statement::VacuumDryRun
            | harrier_sql::Statement::Reindex(_)
            | harrier_sql::Statement::RenameIndex(_)
            | harrier_sql::Statement::SetConstraints(_) => {
                let message = "the statement is about what is kept in a warehouse";
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                    .with_hint("--warehouse DIR")
                    .into_datafusion());
            }
            harrier_sql::Statement::Cursor(_) => {
                let message = "cursors are for clients of harrier serve that speak PostgreSQL's protocol";
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
            }
            harrier_sql::Statement::Sql(parsed) => parsed,
        };
        if let Some(change) = Change::of(parsed) {
            return self.change_parameter(change).await.map(Ok);
        }
        if let Some(outcome) = crate::statement::create_extension::create(parsed) {
            return outcome.map(Ok);
        }
        if let Some(tag) = self.prepare(parsed, &statement.asked).await? {
            return Ok(Ok(command(tag)));
        }
        self.spread().await?;
        if let Some(name) = vacuumed(parsed)
            && let Some(outcome) = self.optimize_folder(name, statement).await?
        {
            return Ok(Ok(outcome));
        }
        if let Some(returning) = Returning::of(parsed)? {
            return self.run_returning(&returning, statement, None).await.map(Ok);
        }
        let named;
        let parsed = match &statement.partition {
            Some(clause) => {
                named = self.with_partition(parsed, clause).await?;
                &named
            }
            None => parsed,
        };
        let plan = self.plan(parsed, &statement.values).await?;
        let plan = result_names::copied(plan, statement.asked.as_deref())?;
        read_check::check_reads(&self.context.state(), &plan)?;
        check_change(&plan)?;
        if let Some(outcome) = self.write_folder(&plan, statement).await? {
            return Ok(Ok(outcome));
        }
        if let Some(outcome) = self.change_memory(&plan, parsed, statement).await? {
            return Ok(Ok(outcome));
        }
        let plan = declared_types::forgotten(plan)?;
        let mut notices = vec![];
        if let Statement::Statement(written) = parsed
            && let ast::Statement::CreateTable(create) = written.as_ref()
            && declaration::keys_in_memory(parsed)?
        {
            let name = create.name.0.last().and_then(|part| part.as_ident()).map(identifier::plain);
            notices.extend(name.map(|name| keys::keys_notice(&name)));
        }
        let plan = memory_table_dml::explained(explained_folder(plan)?).await?;
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
                set.value = settings::taken_value(&name, &set.value)?.into_owned();
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
                self.check_setting(&name)?;
                return Ok(self
                    .reset(&name)
                    .await
                    .map(|()| command("RESET"))
                    .map_err(|error| setting_error(&name, &error)));
            }
            _ => None,
        };
        let made = match &plan {
            LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) => {
                self.keeps_rows();
                Some(create.name.clone())
            }
            _ => None,
        };
        let verb = write_verb(&plan, None);
        // What a client is told of the columns is what Describe says.
        let names = if self.is_client() { type_names::of(&plan) } else { vec![] };
        let origins = self.origins(&plan);
        let frame = self.context.execute_logical_plan(plan).await?;
        if let Some(made) = made {
            let watched = self.context.state_ref().read().config().get_extension::<Watched>();
            if let Some(watched) = watched
                && let Err(error) = watched.verify().await
            {
                self.context.deregister_table(made)?;
                return Err(error);
            }
        }
        if let Some(tag) = command {
            return Ok(Ok(Outcome::Command { tag: tag.to_string(), warnings: vec![], notices }));
        }
        let (state, plan) = frame.into_parts();
        Ok(Ok(match self.start(&state, &plan, verb, &statement.text, statement.explain).await? {
            Outcome::Rows { schema, stream, progress } => {
                let schema = column_origins::told(&names::named(&schema, &names), &origins);
                let schema = self.as_prepared(parsed, schema);
                Outcome::Rows { schema, stream, progress }
            }
            other => other,
        }))
    }

    /// An INSERT that names table partitions, with these among its columns.
    async fn with_partition(&self, statement: &Statement, clause: &InsertPartition) -> Result<Statement> {
        if let Statement::Statement(parsed) = statement
            && let ast::Statement::Insert(insert) = parsed.as_ref()
            && let ast::TableObject::TableName(name) = &insert.table
        {
            let table = self.context.table_provider(relation::reference(name)?).await?;
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

    /// DELETE, UPDATE, MERGE and TRUNCATE of a table that the session has in memory; `None` for other plans.
    async fn change_memory(
        &self,
        plan: &LogicalPlan,
        parsed: &Statement,
        statement: &ParsedStatement,
    ) -> Result<Option<Outcome>> {
        let LogicalPlan::Dml(dml) = plan else { return Ok(None) };
        if matches!(dml.op, WriteOp::Truncate)
            && let Ok(table) = source_as_provider(&dml.target)
            && let Some(table) = table.downcast_ref::<MemTable>()
        {
            temporary_tables::truncate(table).await;
            return Ok(Some(command("TRUNCATE TABLE")));
        }
        let Some(change) = memory_table_dml::Change::of(dml, false).await? else { return Ok(None) };
        let written = self.written(parsed)?;
        let Some(verb) = write_verb(plan, written.as_deref()) else { return Ok(None) };
        match self
            .start(&self.context.state(), &change.plan, Some(verb), &statement.text, statement.explain)
            .await?
        {
            Outcome::Write(write) => {
                let count = change.apply(write.stream.try_collect().await?).await?;
                Ok(Some(command(&format!("{verb} {count}"))))
            }
            _ => Err(DataFusionError::Internal("a statement that writes has answered".to_string())),
        }
    }

    /// Starts an INSERT into a folder, which is seen whole; `None` for other plans.
    async fn write_folder(&self, plan: &LogicalPlan, statement: &ParsedStatement) -> Result<Option<Outcome>> {
        match plan {
            LogicalPlan::Dml(dml) => {
                self.insert_into_folder(dml, statement.partition.as_ref(), "INSERT", &statement.text).await
            }
            _ => Ok(None),
        }
    }

    /// The same, of what `verb` does.
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
        let outcome =
            self.start(&self.context.state(), &plan, Some(verb), text, ExplainOptions::default()).await?;
        Ok(Some(match outcome {
            Outcome::Write(write) => Outcome::Write(Write { folder: Some(folder), ..write }),
            other => other,
        }))
    }

    /// OPTIMIZE of an external table that is a folder: writes its small files anew; `None` for other tables.
    ///
    /// Errors: there is no such table, of a session without a warehouse (42P01).
    pub(crate) async fn optimize_folder(
        &self,
        name: &ast::ObjectName,
        statement: &ParsedStatement,
    ) -> Result<Option<Outcome>> {
        let reference = relation::reference(name)?;
        let Ok(table) = self.context.table_provider(reference.clone()).await else {
            return match self.kept() {
                Some(_) => Ok(None),
                None => {
                    let message = format!("relation \"{}\" does not exist", reference.table());
                    Err(SqlError::new(SqlState::UNDEFINED_TABLE, message).into_datafusion())
                }
            };
        };
        let Some(table) = table.downcast_ref::<FolderTable>() else { return Ok(None) };
        let state = self.context.state();
        let Some((plan, folder)) = FolderWrite::merge(&state, table, reference.table()).await? else {
            return Ok(Some(command("OPTIMIZE 0")));
        };
        let outcome = self.start(&state, &plan, Some("OPTIMIZE"), &statement.text, statement.explain).await?;
        Ok(Some(match outcome {
            Outcome::Write(write) => Outcome::Write(Write { folder: Some(folder), ..write }),
            other => other,
        }))
    }

    /// What statements may take now: the settings of the session, and no more than the engine lets them.
    fn limits(&self) -> Limits {
        self.settings().limits().and(self.engine.limits())
    }

    /// What the plan of a statement runs with: its settings and its limits.
    pub(crate) fn task_ctx(&self, state: &SessionState) -> Result<Arc<TaskContext>> {
        let context = state.task_ctx();
        let Some(scope) = Scope::of(state.config()) else {
            return Ok(context);
        };
        let runtime = match self.engine.gang() {
            Some(gang) => gang.environment_within(&scope, state.runtime_env())?,
            None => scope.environment(state.runtime_env(), self.engine.disks())?,
        };
        let context = Arc::try_unwrap(context)
            .map_err(|_| DataFusionError::Internal("a context that others use".to_string()))?;
        let mut config = context.session_config().clone();
        scope.fit(&mut config);
        Ok(Arc::new(context.with_session_config(config).with_runtime(runtime)))
    }

    /// Of which tables the columns of a plan are, if a client asks.
    pub(crate) fn origins(&self, plan: &LogicalPlan) -> Vec<Option<Origin>> {
        match self.kept() {
            Some(kept) if self.is_client() => column_origins::of(plan, &kept.names),
            _ => vec![],
        }
    }

    /// Errors: the session's role may read and write no files by name (42501).
    pub(crate) fn check_files(&self) -> Result<()> {
        match self.kept() {
            Some(kept) => file_tables::check(&kept.names.role().viewer()),
            None => Ok(()),
        }
    }

    /// Errors: the setting is for superusers (42501), see [`settings::is_for_everybody`].
    pub(crate) fn check_setting(&self, name: &str) -> Result<()> {
        match self.kept() {
            Some(kept) if !settings::is_for_everybody(name) => {
                kept.names.role().viewer().check_superuser(&format!("set parameter \"{name}\""))
            }
            _ => Ok(()),
        }
    }

    pub(crate) async fn start(
        &self,
        state: &SessionState,
        plan: &LogicalPlan,
        verb: Option<&'static str>,
        text: &str,
        explain: ExplainOptions,
    ) -> Result<Outcome> {
        let with_sequences = sequences::settings(state, plan)?;
        let state = with_sequences.as_ref().unwrap_or(state);
        let target = match plan {
            LogicalPlan::Copy(copy) => Some(copy.output_url.clone()),
            _ => None,
        };
        // Wherever it stands: EXPLAIN ANALYZE writes files too.
        let placed;
        let plan = if plan.exists(|node| Ok(matches!(node, LogicalPlan::Copy(_))))? {
            self.check_files()?;
            placed = with_place(state, plan.clone())?;
            &placed
        } else {
            plan
        };
        let history = self.engine.history();
        let told = history.map(|history| (history, text));
        if let Some(answer) =
            explain::answer(state, plan, self.engine.gang(), || self.task_ctx(state), false, told, explain)
                .await?
        {
            return explain::rows(answer.lines, explain.format);
        }
        if let Some(target) = &target {
            target::check(target)?;
        }
        let plan = state.create_physical_plan(plan).await?;
        let watched = state.config().get_extension::<Watched>();
        let task_context = self.task_ctx(state)?;
        let plan = cancelable_joins::heard_in(plan, &task_context)?;
        let progress = Progress::of(&plan, Scope::of(state.config()).map(|scope| Arc::clone(&scope.memory)));
        let scanned = file_tables::scanned(&plan);
        let (task_context, files) = WholeFiles::of(&plan, task_context)?;
        let stream = guarded_stream(execute_stream(Arc::clone(&plan), task_context)?);
        let stream = match watched {
            Some(watched) => watched.checked(stream),
            None => stream,
        };
        let stream = match verb {
            // What comes back of writing tells of files.
            Some(_) => stream,
            None => limits::at_most(stream, self.limits().rows),
        };
        let stream = match self.engine.gang() {
            Some(gang) => gang.until_loss(&plan, stream),
            None => stream,
        };
        let stream = match history {
            Some(history) => history.watch(text, &plan, self.engine.gang(), stream),
            None => stream,
        };
        // Behind everything that may fail the statement.
        let stream = match files {
            Some(files) => files.after(stream),
            None => stream,
        };
        let schema = stream.schema();
        let explained = stream.map_err(move |error| match &target {
            Some(target) => target::explain(file_tables::about_scan(error, &scanned), target),
            None => file_tables::about_scan(error, &scanned),
        });
        let stream: SendableRecordBatchStream = Box::pin(RecordBatchStreamAdapter::new(schema, explained));
        Ok(match verb {
            Some(verb) => Outcome::Write(Write {
                verb,
                text: text.to_string(),
                stream,
                folder: None,
                progress,
                pending: None,
                auto_analyze: None,
                check: CopyCheck::default(),
                unfinished: Unfinished(None),
            }),
            None => Outcome::Rows { schema: stream.schema(), stream, progress },
        })
    }

    /// On a gang: makes the coming statement run on all ranks, by this session's settings.
    pub(crate) async fn spread(&self) -> Result<()> {
        let scope = Scope::new(self.limits().processes);
        {
            let state = self.context.state_ref();
            let mut state = state.write();
            scope.set(state.config_mut());
            state.config_mut().set_extension(Arc::new(Watched::default()));
        }
        let Some(gang) = self.engine.gang() else {
            if self.engine.link().is_some() {
                let settings = self.settings();
                let state = self.context.state_ref();
                let mut state = state.write();
                let config = state.config_mut();
                config.set_extension(Arc::new(DistributeBytesMin(settings.distribute_bytes_min)));
                config.set_extension(Arc::new(RetryReads(settings.retry_reads)));
            }
            return Ok(());
        };
        let settings = self.settings();
        let transport = match settings.interconnect.as_str() {
            "grpc" => Transport::Grpc,
            _ => Transport::Mpi,
        };
        let distribute_bytes_min = settings.distribute_bytes_min;
        let options = StatementOptions { transport, distribute_bytes_min, run: None };
        let on_ranks = gang.statement(options).await?;
        options::announce(self.context.state_ref().read().config());
        let codec = RowCodec::named(&settings.interconnect_compression);
        let state = self.context.state_ref();
        let mut state = state.write();
        state.config_mut().set_extension(Arc::new(codec));
        on_ranks.apply(state.config_mut())
    }

    /// Gives one setting, or `all`, the value it had when the session began.
    pub(crate) async fn reset(&self, name: &str) -> Result<()> {
        if name == "all" {
            let state = self.context.state_ref();
            let mut state = state.write();
            let options = state.config_mut().options_mut();
            options::reset(options, self.engine.initial(), None)?;
            let present = entries(options);
            for (key, value) in self.initial() {
                if present.get(&key) != Some(&value) && !options::is_option(&key) {
                    restore(options, &key, value.as_deref())?;
                }
            }
            return refresh_functions(&mut state);
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
        if options::is_option(name) {
            let state = self.context.state_ref();
            let mut state = state.write();
            let initial = self.engine.initial();
            return options::reset(state.config_mut().options_mut(), initial, Some(name));
        }
        let Some(value) = self.initial().remove(name) else {
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, name).into_datafusion());
        };
        let state = self.context.state_ref();
        let mut state = state.write();
        restore(state.config_mut().options_mut(), name, value.as_deref())?;
        refresh_functions(&mut state)
    }

    /// The settings that sessions begin with. Made when asked for: kept, they would be a tenth of an idle
    /// session's memory.
    fn initial(&self) -> HashMap<String, Option<String>> {
        entries(self.engine.initial())
    }

    /// To be called after every statement, when its outcome has been dropped: has what it still holds on a
    /// gang taken back. Checks that it gave back what it took on every rank; what is left is logged, once.
    ///
    /// Errors: with `harrier.check_ledger`, it did not (XX000).
    pub async fn settle(&self) -> Result<(), SqlError> {
        let Some(gang) = self.engine.gang() else {
            return Ok(());
        };
        gang.tidy();
        let fails = self.settings().check_ledger;
        if gang.has_new_loss() || (!fails && self.left_something.load(Ordering::Relaxed)) {
            return Ok(());
        }
        let kept = if self.keeps_rows.load(Ordering::Relaxed) {
            harrier_exec::Kept::Rows
        } else {
            harrier_exec::Kept::Nothing
        };
        let checked = gang.check_ledger(kept).await.map_err(|error| crate::error::in_statement(&error, ""));
        if checked.is_err() && !fails {
            // What was left has been logged; a rank that was lost in between is told by the next statement.
            self.left_something.store(true, Ordering::Relaxed);
            return Ok(());
        }
        checked
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

/// Errors: the plan changes rows of an external table, into which rows are only inserted (0A000).
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

/// `plan`, with the options of the session for the stores that it writes into.
fn with_place(state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
    let placed = plan.transform_up(|node| match node {
        LogicalPlan::Copy(mut copy) => {
            let target = store_urls::target_url(&copy.output_url);
            copy.output_url = options::place(state, target, &TableOptions::default())?;
            if copy.file_type.get_ext() == "parquet" {
                copy.input = Arc::new(target::as_told(Arc::unwrap_or_clone(copy.input))?);
            }
            Ok(Transformed::yes(LogicalPlan::Copy(copy)))
        }
        node => Ok(Transformed::no(node)),
    })?;
    Ok(placed.data)
}

/// EXPLAIN of an INSERT into a folder, with the plan that stages files.
///
/// Errors: it is EXPLAIN ANALYZE (0A000).
fn explained_folder(mut plan: LogicalPlan) -> Result<LogicalPlan> {
    let inner = match &plan {
        LogicalPlan::Explain(asked) => &asked.plan,
        LogicalPlan::Analyze(asked) => &asked.input,
        _ => return Ok(plan),
    };
    let LogicalPlan::Dml(dml) = inner.as_ref() else {
        return Ok(plan);
    };
    let Some(staging) = FolderWrite::explain(dml)? else {
        return Ok(plan);
    };
    match &mut plan {
        LogicalPlan::Explain(asked) => {
            asked.stringified_plans = vec![staging.to_stringified(PlanType::InitialLogicalPlan)];
            asked.plan = Arc::new(staging);
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

/// The table of a VACUUM.
fn vacuumed(statement: &Statement) -> Option<&ast::ObjectName> {
    match statement {
        Statement::Statement(statement) => match statement.as_ref() {
            ast::Statement::Vacuum(vacuum) => vacuum.table_name.as_ref(),
            _ => None,
        },
        _ => None,
    }
}

/// What ON COMMIT says of a new table, taken out of the statement.
///
/// Errors: the table is not temporary (42P16), or there is no warehouse, whose transactions it is about
/// (0A000).
fn at_commit_of(
    create: &mut ast::CreateTable,
    is_temporary: bool,
    has_transactions: bool,
) -> Result<Option<AtCommit>> {
    let Some(on_commit) = create.on_commit.take() else { return Ok(None) };
    if !is_temporary {
        let message = "ON COMMIT can only be used on temporary tables";
        return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message).into_datafusion());
    }
    let at_commit = match on_commit {
        ast::OnCommit::PreserveRows => return Ok(None),
        ast::OnCommit::DeleteRows => AtCommit::DeleteRows,
        ast::OnCommit::Drop => AtCommit::Drop,
    };
    match has_transactions {
        true => Ok(Some(at_commit)),
        false => {
            let message = "ON COMMIT DELETE ROWS and ON COMMIT DROP need a warehouse";
            Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("--warehouse DIR")
                .into_datafusion())
        }
    }
}

/// Gives a session what PostgreSQL has, and DataFusion has not or has in another way.
fn add_functions(state: &mut SessionState) {
    for name in ["generate_series", "range"] {
        if let Some(function) = state.table_functions().get(name) {
            let series = Series(Arc::clone(function.function()));
            state.register_udtf(name, Arc::new(series));
        }
    }
    let added = state
        .register_udf(Operation::Remainder.function())
        .and_then(|_| registry::replace(state))
        .and_then(|()| state.register_udf(coalesce::function()))
        .and_then(|_| state.register_expr_planner(Arc::new(TypedParameters)))
        .and_then(|()| state.register_expr_planner(Arc::new(IntervalArithmeticPlanner)))
        .and_then(|()| state.register_expr_planner(Arc::new(DecimalDivisionPlanner)));
    if let Err(error) = added {
        tracing::warn!(%error, "a session has not all functions");
    }
}

/// Puts the catalog of a session without a warehouse in the place of the planner's own.
fn own_catalog(state: &SessionState) -> Option<Arc<OwnCatalog>> {
    let name = &state.config_options().catalog.default_catalog;
    let own = Arc::new(OwnCatalog::new(state.catalog_list().catalog(name)?));
    state.catalog_list().register_catalog(name.clone(), Arc::clone(&own) as _);
    Some(own)
}

fn entries(options: &ConfigOptions) -> HashMap<String, Option<String>> {
    options.entries().into_iter().map(|entry| (entry.key, entry.value)).collect()
}

fn restore(options: &mut ConfigOptions, key: &str, value: Option<&str>) -> Result<()> {
    match value {
        Some(value) => options.set(key, value),
        None => options.reset(key),
    }
}

pub(crate) fn command(tag: &str) -> Outcome {
    Outcome::Command { tag: tag.to_string(), warnings: vec![], notices: vec![] }
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

/// PostgreSQL's tag for a plan that writes, without its count. `parsed`: the statement that was planned.
pub(crate) fn write_verb(plan: &LogicalPlan, parsed: Option<&ast::Statement>) -> Option<&'static str> {
    match plan {
        LogicalPlan::Dml(_) if parsed.is_some_and(update_from::is_update_from) => Some("UPDATE"),
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
