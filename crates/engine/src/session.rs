//! A session: one user's tables, settings and prepared statements, and the execution of its statements.

pub(crate) mod client;
pub(crate) mod planner;
pub(crate) mod prepared_statements;
pub(crate) mod temporary_catalog;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use datafusion::catalog::DynamicFileCatalog;
use datafusion::config::{ConfigField, ConfigOptions};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{FunctionRegistry, SessionState, SessionStateBuilder, TaskContext};
use datafusion::logical_expr::{LogicalPlan, Statement as PlanStatement};
use datafusion::prelude::SessionContext;
use harrier_error::{SqlError, SqlState};
use harrier_exec::distribution::runtime_filters::RuntimeFilters;
use harrier_exec::formats::arrow_ipc::ArrowFilesFactory;
use harrier_exec::formats::avro::AvroFormatFactory;
use harrier_exec::formats::delimited::DelimitedFormatFactory;
use harrier_exec::formats::orc::OrcFormatFactory;
use harrier_exec::formats::parquet_scan::ParquetFilesFactory;
use harrier_exec::formats::text_scan::TextFilesFactory;
use harrier_exec::frontend::admission::Admission;
use harrier_exec::frontend::client::{DistributeBytesMin, RetryReads};
use harrier_exec::{RowCodec, RowTransport, StatementOptions, StoreProfiles};
use harrier_functions::datetime::transaction_time::{self, BlockStart};
use harrier_functions::math::checked::Operation;
use harrier_functions::registry;
use harrier_planner::binder::decimal_division::DecimalDivisionPlanner;
use harrier_planner::binder::interval_arithmetic::IntervalArithmeticPlanner;
use harrier_resources::statement_limits::Scope;
use harrier_sqlstate::IntoDataFusionError;
use parking_lot::Mutex;

use crate::binder::column_origins::{self, Origin};
use crate::binder::parameter_types::TypedParameters;
use crate::copy_format::text_format::TextFormatFactory;
use crate::engine::{Engine, setting_error};
use crate::external::file_tables::{self, CheckedFileTables, ExternalTables, FileTables};
use crate::external::hive::ReadSet;
use crate::object_stores::options;
use crate::planning::coalesce;
use crate::planning::generate_series::Series;
use crate::runtime::limits::Limits;
use crate::session::prepared_statements::PreparedStatements;
use crate::session::temporary_catalog::TemporaryCatalog;
use crate::settings::parameters::Parameters;
use crate::settings::{self, HarrierSettings, SpillSetting, refresh_functions};
use crate::warehouse::access::SessionRole;
use crate::warehouse::name_resolver::{DEFAULT_CATALOG, NameResolver, SessionCatalog};
use crate::warehouse::sequences::{self, SessionSequences};
use crate::warehouse::session::WarehouseSession;
use crate::warehouse::system_catalogs::pg_catalog::SessionSource;
use crate::warehouse::system_catalogs::sys_schema::SystemSchema;
use crate::warehouse::temporary_snapshots::TemporaryStates;
use crate::warehouse::transaction::Transactions;

/// One user's tables and settings. Runs one statement at a time; cheap to create.
pub struct Session {
    context: SessionContext,
    engine: Engine,
    /// An in-memory table was created: its rows may be in shared-memory blocks of other ranks.
    has_memory_tables: AtomicBool,
    /// A resource leak on a rank was found and logged.
    has_logged_leak: AtomicBool,
    warehouse: Option<Arc<WarehouseSession>>,
    prepared: PreparedStatements,
    parameters: Arc<Parameters>,
    /// PostgreSQL's catalogs, installed when the session begins.
    postgres: OnceLock<Arc<SessionSource>>,
    /// Whether the session serves a remote client.
    is_client: AtomicBool,
    /// Values of settings before SET LOCAL, for the end of the transaction.
    before_local: Mutex<BTreeMap<String, Option<String>>>,
    /// Catalog of a session without a warehouse.
    own: Option<Arc<TemporaryCatalog>>,
}

impl Engine {
    /// Creates a session with its own tables and settings.
    pub fn session(&self) -> Session {
        Session::new(self.clone())
    }
}

impl Session {
    pub(crate) fn new(engine: Engine) -> Self {
        let builder = SessionStateBuilder::new_with_default_features()
            .with_config(engine.config().clone().with_extension(Arc::new(StoreProfiles::default())))
            .with_runtime_env(engine.session_environment());
        let mut state = planner::install(builder, &engine).build();
        engine.set_initial_settings(state.config_options());
        let block_start = BlockStart::default();
        add_functions(&mut state, &block_start);
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
        let own = engine.warehouse().is_none().then(|| install_temporary_catalog(&state)).flatten();
        let files = Arc::new(FileTables::default());
        let provider = CheckedFileTables { files: Arc::clone(&files), role: Arc::clone(&role) };
        let catalogs = DynamicFileCatalog::new(Arc::clone(state.catalog_list()), Arc::new(provider));
        state.register_catalog_list(Arc::new(catalogs));
        let context = SessionContext::new_with_state(state);
        files.bind(context.state_weak_ref());
        let warehouse = engine.warehouse().map(|warehouse| {
            let names = NameResolver::new(
                Arc::clone(engine.server_tables()),
                SystemSchema::over,
                Arc::clone(&role),
                files,
            );
            names.bind(context.state_weak_ref());
            let catalog = SessionCatalog::new(Arc::clone(&names));
            context.register_catalog(DEFAULT_CATALOG, Arc::new(catalog));
            let runtime = Arc::clone(engine.runtime_env());
            let transactions =
                Transactions::new(Arc::clone(warehouse), Arc::clone(&names), runtime, block_start.clone());
            let (deferred, temporary_states) = (Mutex::default(), TemporaryStates::default());
            let sequences = SessionSequences::default();
            Arc::new(WarehouseSession { names, transactions, deferred, temporary_states, sequences })
        });
        sequences::register(&context, warehouse.as_ref());
        sequences::add_rule(&context, warehouse.as_ref());
        Self {
            context,
            engine,
            has_memory_tables: AtomicBool::new(false),
            has_logged_leak: AtomicBool::new(false),
            warehouse,
            prepared: PreparedStatements::default(),
            parameters: Arc::default(),
            postgres: OnceLock::new(),
            is_client: AtomicBool::new(false),
            before_local: Mutex::default(),
            own,
        }
    }

    /// The underlying DataFusion session.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Records that an in-memory table was created.
    pub(crate) fn set_has_memory_tables(&self) {
        self.has_memory_tables.store(true, Ordering::Relaxed);
    }

    /// The session's view of the warehouse, if there is one.
    pub(crate) fn warehouse(&self) -> Option<&Arc<WarehouseSession>> {
        self.warehouse.as_ref()
    }

    pub(crate) fn prepared_statements(&self) -> &PreparedStatements {
        &self.prepared
    }

    /// Sets one of DataFusion's or Harrier's settings, as SET does.
    pub(crate) fn set_setting(&self, name: &str, value: &str) -> Result<(), SqlError> {
        let spill = SpillSetting::of(name, Some(value)).map_err(|error| setting_error(name, &error))?;
        if let Some(setting) = spill {
            return self.set_spill(setting).map_err(|error| setting_error(name, &error));
        }
        let state = self.context.state_ref();
        let mut state = state.write();
        let set = settings::normalize_value(name, value)
            .and_then(|value| state.config_mut().options_mut().set(&name.to_lowercase(), &value));
        set.and_then(|()| refresh_functions(&mut state)).map_err(|error| setting_error(name, &error))
    }

    /// Sets a limit of this session's temporary files.
    pub(crate) fn set_spill(&self, setting: SpillSetting) -> Result<()> {
        // A state with another runtime would be built anew, which replaces functions.
        let state = self.context.state_ref();
        let state = state.read();
        let manager = &state.runtime_env().disk_manager;
        match setting {
            SpillSetting::BytesMax(bytes_max) => manager.set_max_temp_directory_size(bytes_max)?,
            SpillSetting::MergeFanIn(files) => manager.set_max_spill_merge_fan_in(files),
        }
        Ok(())
    }

    /// Restores one of these limits, or all.
    fn reset_spill(&self, name: Option<&str>) -> Result<()> {
        let initial = &self.engine.runtime_env().disk_manager;
        let all = [
            SpillSetting::BytesMax(initial.max_temp_directory_size()),
            SpillSetting::MergeFanIn(initial.max_spill_merge_fan_in()),
        ];
        let named = name.map(|name| SpillSetting::of(name, None)).transpose()?.flatten();
        let is_named = |setting: &SpillSetting| {
            named.is_none_or(|named| std::mem::discriminant(&named) == std::mem::discriminant(setting))
        };
        all.into_iter().filter(is_named).try_for_each(|setting| self.set_spill(setting))
    }

    /// Shares another session's admission controller.
    pub(crate) fn share_admission(&self, admission: Arc<Admission>) {
        self.context.state_ref().write().config_mut().set_extension(admission);
    }

    pub(crate) fn postgres(&self) -> &OnceLock<Arc<SessionSource>> {
        &self.postgres
    }

    /// Whether result columns and new columns have PostgreSQL's names: once the session has begun. Internal
    /// sessions never begin and use the planner's names.
    pub(crate) fn uses_postgres_names(&self) -> bool {
        self.postgres.get().is_some()
    }

    pub(crate) fn is_client(&self) -> bool {
        self.is_client.load(Ordering::Relaxed)
    }

    /// Marks the session as serving a remote client. Call it before its first statement.
    pub(crate) fn set_serves_client(&self) {
        self.is_client.store(true, Ordering::Relaxed);
    }

    /// The session's temporary tables, if it has no warehouse.
    pub(crate) fn temporary_catalog(&self) -> Option<&Arc<TemporaryCatalog>> {
        self.own.as_ref()
    }

    pub(crate) fn parameters(&self) -> &Arc<Parameters> {
        &self.parameters
    }

    /// Current limits of statements: those of the session, capped by the engine's.
    pub(crate) fn limits(&self) -> Limits {
        let mut limits = self.settings().limits().and(self.engine.limits());
        let state = self.context.state_ref();
        let bytes_max = state.read().runtime_env().disk_manager.max_temp_directory_size();
        limits.processes.process_spill_bytes = Some(bytes_max).filter(|bytes| *bytes > 0);
        limits
    }

    /// The task context of a plan, with the session's settings and limits.
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
        scope.limit_sort_reservation(&mut config);
        Ok(Arc::new(context.with_session_config(config).with_runtime(runtime)))
    }

    /// Origins of a plan's columns, for sessions of clients.
    pub(crate) fn origins(&self, plan: &LogicalPlan) -> Vec<Option<Origin>> {
        match self.warehouse() {
            Some(warehouse) if self.is_client() => column_origins::of(plan, &warehouse.names),
            _ => vec![],
        }
    }

    /// Errors: the session's role may not access files by name (42501).
    pub(crate) fn check_files(&self) -> Result<()> {
        match self.warehouse() {
            Some(warehouse) => file_tables::check_access(&warehouse.names.role().viewer()),
            None => Ok(()),
        }
    }

    /// Errors: only superusers may set it (42501), see [`settings::is_for_everybody`].
    pub(crate) fn check_setting(&self, name: &str) -> Result<()> {
        match self.warehouse() {
            Some(warehouse) if !settings::is_for_everybody(name) => {
                warehouse.names.role().viewer().check_superuser(&format!("set parameter \"{name}\""))
            }
            _ => Ok(()),
        }
    }

    /// Begins a statement; on a gang, opens it on all ranks, with this session's settings.
    pub(crate) async fn begin_distributed(&self) -> Result<()> {
        let scope = Scope::new(self.limits().processes);
        let settings = self.settings();
        {
            let state = self.context.state_ref();
            let mut state = state.write();
            scope.set(state.config_mut());
            state.config_mut().set_extension(Arc::new(ReadSet::default()));
            state.config_mut().set_extension(Arc::new(RuntimeFilters(settings.runtime_filters)));
        }
        let Some(gang) = self.engine.gang() else {
            if self.engine.link().is_some() {
                let state = self.context.state_ref();
                let mut state = state.write();
                let config = state.config_mut();
                config.set_extension(Arc::new(DistributeBytesMin(settings.distribute_bytes_min)));
                config.set_extension(Arc::new(RetryReads(settings.retry_reads)));
            }
            return Ok(());
        };
        let transport = match settings.interconnect.as_str() {
            "grpc" => RowTransport::Grpc,
            _ => RowTransport::Mpi,
        };
        let distribute_bytes_min = settings.distribute_bytes_min;
        let options = StatementOptions { transport, distribute_bytes_min, run: None };
        let on_ranks = gang.statement(options).await?;
        options::announce(self.context.state_ref().read().config());
        let codec = RowCodec::from_name(&settings.interconnect_compression);
        let state = self.context.state_ref();
        let mut state = state.write();
        state.config_mut().set_extension(Arc::new(codec));
        on_ranks.apply(state.config_mut())
    }

    /// Resets one setting, or `all`, to its value at session start.
    pub(crate) async fn reset(&self, name: &str) -> Result<()> {
        if name == "all" {
            self.reset_spill(None)?;
            let state = self.context.state_ref();
            let mut state = state.write();
            let options = state.config_mut().options_mut();
            options::reset(options, self.engine.initial_settings(), None)?;
            let present = entries(options);
            for (key, value) in self.initial_settings() {
                if present.get(&key) != Some(&value) && !options::is_option(&key) {
                    restore(options, &key, value.as_deref())?;
                }
            }
            return refresh_functions(&mut state);
        }
        if SpillSetting::is_one(name) {
            return self.reset_spill(Some(name));
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
            return self.apply_setting(plan).await;
        }
        if options::is_option(name) {
            let state = self.context.state_ref();
            let mut state = state.write();
            let initial = self.engine.initial_settings();
            return options::reset(state.config_mut().options_mut(), initial, Some(name));
        }
        let Some(value) = self.initial_settings().remove(name) else {
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, name).into_datafusion());
        };
        let state = self.context.state_ref();
        let mut state = state.write();
        restore(state.config_mut().options_mut(), name, value.as_deref())?;
        refresh_functions(&mut state)
    }

    /// Carries out SET or RESET of one of DataFusion's settings. For those of its runtime, DataFusion builds
    /// the session's state anew and registers the functions in any order, by which the alias of one hides
    /// another: afterwards every name has its function again.
    pub(crate) async fn apply_setting(&self, plan: LogicalPlan) -> Result<()> {
        let state = self.context.state_ref();
        let (scalar, aggregates, windows, higher_order) = {
            let state = state.read();
            (
                state.scalar_functions().clone(),
                state.aggregate_functions().clone(),
                state.window_functions().clone(),
                state.higher_order_functions().clone(),
            )
        };
        self.context.execute_logical_plan(plan).await?;
        let mut state = state.write();
        register_again(
            &mut state,
            &scalar,
            |state| state.scalar_functions(),
            |state, function| state.register_udf(function).map(drop),
        )?;
        register_again(
            &mut state,
            &aggregates,
            |state| state.aggregate_functions(),
            |state, function| state.register_udaf(function).map(drop),
        )?;
        register_again(
            &mut state,
            &windows,
            |state| state.window_functions(),
            |state, function| state.register_udwf(function).map(drop),
        )?;
        register_again(
            &mut state,
            &higher_order,
            |state| state.higher_order_functions(),
            |state, function| state.register_higher_order_function(function).map(drop),
        )?;
        refresh_functions(&mut state)
    }

    /// Carries out SET of a setting for a transaction (SET LOCAL), or to its default (`None`).
    ///
    /// Errors: an unknown setting (42704), an invalid value (22023), no right to set it (42501), a setting
    /// that a transaction cannot have of its own (0A000).
    pub(crate) async fn change_setting(
        &self,
        name: &str,
        value: Option<&str>,
        is_local: bool,
    ) -> Result<(), SqlError> {
        let name = name.to_lowercase();
        self.check_setting(&name).map_err(|error| setting_error(&name, &error))?;
        if is_local {
            if name.starts_with("datafusion.runtime.") || options::is_option(&name) {
                let message = format!("SET LOCAL of parameter \"{name}\" is not supported");
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_hint("SET"));
            }
            let before = entries(self.context.state_ref().read().config_options()).remove(&name);
            let is_open = self.warehouse().is_some_and(|warehouse| warehouse.transactions.is_open());
            match before {
                // Outside of a transaction, SET LOCAL has no effect.
                Some(_) if !is_open => return Ok(()),
                Some(before) => drop(self.before_local.lock().entry(name.clone()).or_insert(before)),
                None => {}
            }
        } else {
            self.before_local.lock().remove(&name);
        }
        match value {
            Some(value) => self.set_setting(&name, value),
            None => self.reset(&name).await.map_err(|error| setting_error(&name, &error)),
        }
    }

    /// Ends the effect of SET LOCAL on settings, with its transaction.
    pub(crate) fn end_local_settings(&self) -> Result<()> {
        let before = std::mem::take(&mut *self.before_local.lock());
        if before.is_empty() {
            return Ok(());
        }
        let state = self.context.state_ref();
        let mut state = state.write();
        for (name, value) in before {
            restore(state.config_mut().options_mut(), &name, value.as_deref())?;
        }
        refresh_functions(&mut state)
    }

    /// The settings at session start. Computed on demand: stored, they would be a tenth of an idle session's
    /// memory.
    fn initial_settings(&self) -> HashMap<String, Option<String>> {
        entries(self.engine.initial_settings())
    }

    /// Releases what a statement still holds on a gang. Call it after every statement, once its outcome is
    /// dropped. Checks that all ranks have released their resources; a leak is logged, once.
    ///
    /// Errors: with `harrier.check_ledger`, a leak (XX000).
    pub async fn settle(&self) -> Result<(), SqlError> {
        let Some(gang) = self.engine.gang() else {
            return Ok(());
        };
        gang.release_ended();
        let fails = self.settings().check_ledger;
        if gang.has_new_loss() || (!fails && self.has_logged_leak.load(Ordering::Relaxed)) {
            return Ok(());
        }
        let warehouse = if self.has_memory_tables.load(Ordering::Relaxed) {
            harrier_exec::Retained::Rows
        } else {
            harrier_exec::Retained::Nothing
        };
        let checked =
            gang.check_ledger(warehouse).await.map_err(|error| crate::error::in_statement(&error, ""));
        if checked.is_err() && !fails {
            // The leak has been logged; a rank lost meanwhile is reported by the next statement.
            self.has_logged_leak.store(true, Ordering::Relaxed);
            return Ok(());
        }
        checked
    }

    /// Harrier's settings of the session.
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

/// Gives every name in `before` its function again, in rounds: a function brings its aliases, some of which
/// another one has.
fn register_again<F: ?Sized>(
    state: &mut SessionState,
    before: &HashMap<String, Arc<F>>,
    present: impl Fn(&SessionState) -> &HashMap<String, Arc<F>>,
    register: impl Fn(&mut SessionState, Arc<F>) -> Result<()>,
) -> Result<()> {
    const ROUNDS_MAX: usize = 4;
    for _ in 0..ROUNDS_MAX {
        let other: Vec<&Arc<F>> = before
            .iter()
            .filter(|(name, function)| {
                present(state).get(*name).is_none_or(|present| !Arc::ptr_eq(present, function))
            })
            .map(|(_, function)| function)
            .collect();
        if other.is_empty() {
            break;
        }
        other.into_iter().try_for_each(|function| register(state, Arc::clone(function)))?;
    }
    Ok(())
}

/// Registers PostgreSQL's functions and operators that DataFusion lacks or defines differently.
fn add_functions(state: &mut SessionState, block_start: &BlockStart) {
    for name in ["generate_series", "range"] {
        if let Some(function) = state.table_functions().get(name) {
            let series = Series(Arc::clone(function.function()));
            state.register_udtf(name, Arc::new(series));
        }
    }
    let added = state
        .register_udf(Operation::Remainder.function())
        .and_then(|_| registry::replace(state))
        .and_then(|()| {
            let times = transaction_time::functions(block_start, state.config_options());
            let mut functions = coalesce::functions().chain(times);
            functions.try_for_each(|function| state.register_udf(function).map(drop))
        })
        .and_then(|()| state.register_expr_planner(Arc::new(TypedParameters)))
        .and_then(|()| state.register_expr_planner(Arc::new(IntervalArithmeticPlanner)))
        .and_then(|()| state.register_expr_planner(Arc::new(DecimalDivisionPlanner)));
    if let Err(error) = added {
        tracing::warn!(%error, "a session has not all functions");
    }
}

/// Replaces the planner's default catalog in a session without a warehouse.
fn install_temporary_catalog(state: &SessionState) -> Option<Arc<TemporaryCatalog>> {
    let name = &state.config_options().catalog.default_catalog;
    let own = Arc::new(TemporaryCatalog::new(state.catalog_list().catalog(name)?));
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
