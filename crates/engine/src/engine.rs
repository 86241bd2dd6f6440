//! The engine: what all sessions of a process share, which is memory, temporary files and defaults.

pub(crate) mod server_functions;
pub(crate) mod waiting_functions;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use datafusion::config::{ConfigOptions, Dialect};
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{MemoryPool, TrackConsumersPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::SessionConfig;
use harrier_catalog::access::Access;
use harrier_catalog::{Catalog, Fence};
use harrier_error::SqlState;
use harrier_exec::Gang;
use harrier_exec::formats::atomic_sinks;
use harrier_exec::frontend::client::Link;
use harrier_exec::frontend::server::Desk;
use harrier_exec::monitor::statement_history::History;
use harrier_planner::analyzer::session_time_zone::UTC;
use harrier_resources::fair_merge_pool::FairMergePool;
use harrier_resources::spill_disks::{Disks, Folder};
use harrier_resources::statement_limits::SORT_SHARES;
use harrier_resources::value_account::AccountedPool;
use harrier_sql::nesting;

use crate::SqlError;
use crate::engine::server_functions::ServerFunction;
use crate::engine::waiting_functions::WaitingFunction;
use crate::object_stores::options;
use crate::object_stores::registry::StoreRegistry;
use crate::runtime::explain_text;
use crate::runtime::limits::Limits;
use crate::runtime::spill_folder::SpillFolder;
use crate::settings::{self, HarrierSettings};
use crate::warehouse::name_resolver::DEFAULT_CATALOG;
use crate::warehouse::system_catalogs::server_table::ServerTable;
use crate::warehouse::{DEFAULT_SCHEMA, Warehouse, WarehouseOptions};

/// How many of the largest users of memory an out-of-memory error names.
const TOP_CONSUMERS: NonZeroUsize = NonZeroUsize::new(5).unwrap();

/// How an engine is made. The default takes what the machine has.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EngineOptions {
    /// How many threads a statement may keep busy, at least 1: the number of output partitions of its plan.
    pub threads: usize,
    /// What all statements together may hold before they spill, in bytes; `None` for no limit.
    pub memory_bytes: Option<u64>,
    /// Names and values as for SET, applied in order to every new session.
    pub settings: Vec<(String, String)>,
    /// Where temporary files go, best on a disk each; none for the system's folder (`TMPDIR`).
    pub spill_dirs: Vec<PathBuf>,
    /// The ranks that statements run on together; `None` for this process alone.
    pub gang: Option<Gang>,
    /// A gang that this process is not part of, and that takes what is worth it while it is there.
    pub link: Option<Link>,
    /// Where tables are kept; `None` for tables that end with their session.
    pub warehouse: Option<WarehouseOptions>,
    /// Tables of schema `sys` about the process around the engine.
    pub server_tables: Vec<ServerTable>,
    /// Remembers what statements did that this process or its gang has run; of a gang that it is not part of,
    /// others remember.
    pub history: Option<History>,
    /// What no statement may take more of, whatever its session's settings.
    pub limits: Limits,
    /// Makes of a password what it is checked against, or says why it cannot be one. Without it no role is
    /// given a password.
    pub password_verifier: Option<PasswordVerifier>,
    /// Functions that change what the process around the engine does.
    pub server_functions: Vec<ServerFunction>,
    /// Functions that wait for others, or for a time.
    pub waiting_functions: Vec<WaitingFunction>,
    /// With it, nothing is committed but while this process has the right to.
    pub fence: Option<Fence>,
}

/// See [`EngineOptions::password_verifier`].
pub type PasswordVerifier = fn(&str) -> Result<String, String>;

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().map_or(1, |threads| threads.get()),
            memory_bytes: crate::runtime::memory_size::default_bytes(),
            settings: Vec::new(),
            spill_dirs: Vec::new(),
            gang: None,
            link: None,
            warehouse: None,
            server_tables: Vec::new(),
            history: None,
            limits: Limits::default(),
            password_verifier: None,
            server_functions: Vec::new(),
            waiting_functions: Vec::new(),
            fence: None,
        }
    }
}

/// Makes sessions. Dropping the last handle removes the temporary files; sessions hold a handle.
#[derive(Debug, Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: SessionConfig,
    /// What that is when the planner of ranks has said what it needs: settings of every session, once there
    /// was one.
    initial: OnceLock<ConfigOptions>,
    runtime: Arc<RuntimeEnv>,
    memory_bytes: Option<u64>,
    gang: Option<Gang>,
    link: Option<Link>,
    warehouse: Option<Arc<Warehouse>>,
    server_tables: Arc<[ServerTable]>,
    history: Option<History>,
    password_verifier: Option<PasswordVerifier>,
    limits: Limits,
    server_functions: Vec<ServerFunction>,
    waiting_functions: Vec<WaitingFunction>,
    disks: Option<Disks>,
    // After `runtime`, which has files in it: fields are dropped in this order.
    spill: Vec<SpillFolder>,
}

impl Engine {
    /// Fails where a setting is unknown (42704) or its value is not allowed (22023), and where the folder
    /// for temporary files was named and cannot be written.
    pub fn try_new(options: EngineOptions) -> Result<Self, SqlError> {
        let config = base_config(&options)?;
        let (spill, disks) = spill_folders(&options)?;
        let mode = match &disks {
            Some(disks) => DiskManagerMode::Custom(Arc::new(disks.clone())),
            None => DiskManagerMode::Disabled,
        };
        let mut runtime = RuntimeEnvBuilder::new()
            .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(mode))
            .with_object_store_registry(Arc::new(StoreRegistry::default()))
            // Other processes write into the same folders: a listing is good for one statement only.
            .with_object_list_cache_limit(0);
        if let Some(bytes) = options.memory_bytes {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            let pool = TrackConsumersPool::new(FairMergePool::new(bytes), TOP_CONSUMERS);
            let pool = AccountedPool::new(Arc::new(pool), bytes as u64);
            runtime = runtime.with_memory_pool(Arc::new(pool) as Arc<dyn MemoryPool>);
        }
        let runtime = runtime.build_arc().map_err(crate::error::sql_error)?;
        Ok(Self {
            inner: Arc::new(Inner {
                config,
                initial: OnceLock::new(),
                warehouse: options
                    .warehouse
                    .map(|place| Arc::new(Warehouse::new(place, options.fence, Arc::clone(&runtime)))),
                runtime,
                memory_bytes: options.memory_bytes,
                gang: options.gang,
                link: options.link,
                server_tables: options.server_tables.into(),
                history: options.history,
                password_verifier: options.password_verifier,
                limits: options.limits,
                server_functions: options.server_functions,
                waiting_functions: options.waiting_functions,
                disks,
                spill,
            }),
        })
    }

    /// Removes the temporary files now, for a process that ends without dropping everything. Statements
    /// that still run fail when they spill.
    pub fn remove_temporary_files(&self) {
        self.inner.spill.iter().for_each(SpillFolder::remove);
        atomic_sinks::remove_local();
    }

    /// Waits until stores have given up what statements that were canceled or have failed have begun there,
    /// some seconds at most.
    pub async fn settle_stores(&self) {
        harrier_storage::wait_for_pending_work().await;
    }

    /// What sessions are made with.
    pub(crate) fn config(&self) -> &SessionConfig {
        &self.inner.config
    }

    /// To be called with the settings of a session that has just been made.
    pub(crate) fn keep_initial(&self, made: &ConfigOptions) {
        self.inner.initial.get_or_init(|| made.clone());
    }

    /// The settings that sessions have when they have been made, and again after RESET.
    pub(crate) fn initial(&self) -> &ConfigOptions {
        self.inner.initial.get().unwrap_or_else(|| self.inner.config.options())
    }

    /// Memory, temporary files and object stores, shared by all sessions.
    pub fn runtime_env(&self) -> &Arc<RuntimeEnv> {
        &self.inner.runtime
    }

    /// The ranks that statements run on together, if this is a gang.
    pub fn gang(&self) -> Option<&Gang> {
        self.inner.gang.as_ref()
    }

    /// Who may do what in the warehouse, as it is now. One small query of the catalog; as long as there is no
    /// warehouse, everybody may everything.
    ///
    /// Ends the connections to the catalog. To be called when no session is used any more: a catalog in a
    /// file is whole in that file then, unless other processes have it open.
    pub async fn close(&self) {
        if let Some(warehouse) = self.warehouse() {
            warehouse.close().await;
        }
    }

    /// Errors: the catalog cannot be read (08006, 58030, …).
    pub async fn access(&self) -> Result<Arc<Access>, SqlError> {
        let Some(warehouse) = self.warehouse() else {
            return Ok(Arc::default());
        };
        let found = async {
            match warehouse.open().await? {
                Some(catalog) => catalog.access().await.map_err(crate::warehouse::explain),
                None => Ok(Arc::default()),
            }
        };
        found
            .await
            .map_err(|error: datafusion::error::DataFusionError| crate::error::in_statement(&error, ""))
    }

    /// The catalog of the warehouse, whose data folder is known to be its own from now on if that can be
    /// found out: a catalog that can only be read is as it is. `None`: there is no warehouse.
    ///
    /// Errors: the data folder is another catalog's (55000); the catalog cannot be read.
    pub async fn claimed_catalog(&self) -> Result<Option<Catalog>, SqlError> {
        let Some(warehouse) = self.warehouse() else { return Ok(None) };
        let found = async {
            let Some(catalog) = warehouse.open().await? else { return Ok(None) };
            match warehouse.claim(&catalog).await {
                Err(error)
                    if !matches!(
                        harrier_sqlstate::of(&error),
                        SqlState::READ_ONLY | SqlState::INSUFFICIENT_PRIVILEGE
                    ) =>
                {
                    Err(error)
                }
                _ => Ok(Some(catalog)),
            }
        };
        found
            .await
            .map_err(|error: datafusion::error::DataFusionError| crate::error::in_statement(&error, ""))
    }

    pub(crate) fn limits(&self) -> Limits {
        self.inner.limits
    }

    pub(crate) fn password_verifier(&self) -> Option<PasswordVerifier> {
        self.inner.password_verifier
    }

    pub(crate) fn server_tables(&self) -> &Arc<[ServerTable]> {
        &self.inner.server_tables
    }

    /// What remembers statements, if anything does.
    pub fn history(&self) -> Option<&History> {
        self.inner.history.as_ref()
    }

    pub(crate) fn waiting_functions(&self) -> &[WaitingFunction] {
        &self.inner.waiting_functions
    }

    pub(crate) fn server_functions(&self) -> &[ServerFunction] {
        &self.inner.server_functions
    }

    /// Where this process spills to; `None` if it cannot.
    pub fn disks(&self) -> Option<&Disks> {
        self.inner.disks.as_ref()
    }

    pub(crate) fn link(&self) -> Option<&Link> {
        self.inner.link.as_ref()
    }

    /// On rank 0, attached: where a front end hands in its plans.
    pub fn desk(&self, threads: usize) -> Option<Desk> {
        let gang = self.gang()?.clone();
        Some(Desk::new(gang, threads, explain_text::rank_lines))
    }

    /// Lets this rank take part in statements from now on, with this engine's memory and folders. Nothing to
    /// do without a gang. To be called once, inside the tokio runtime that the work shall run on.
    pub fn attach(&self) {
        if let Some(gang) = &self.inner.gang {
            gang.attach(Arc::clone(&self.inner.runtime), self.inner.disks.clone());
        }
    }

    pub(crate) fn warehouse(&self) -> Option<&Arc<Warehouse>> {
        self.inner.warehouse.as_ref()
    }

    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        self.inner.memory_bytes
    }
}

/// A plan for one output partition has no redistribution in it that could become a motion.
fn output_partitions_min(options: &EngineOptions) -> usize {
    if options.gang.is_some() { 2 } else { 1 }
}

fn base_config(options: &EngineOptions) -> Result<SessionConfig, SqlError> {
    let mut config = SessionConfig::new()
        .with_information_schema(true)
        .with_target_partitions(options.threads.max(output_partitions_min(options)))
        .with_option_extension(HarrierSettings::default());
    options::declare(&mut config);
    let defaults = config.options_mut();
    if options.warehouse.is_some() {
        defaults.catalog.default_catalog = DEFAULT_CATALOG.to_string();
        defaults.catalog.default_schema = DEFAULT_SCHEMA.to_string();
        defaults.catalog.create_default_catalog_and_schema = false;
    }
    // PostgreSQL's dialect is what people's fingers know; the extensions of DataFusion's own parser
    // (CREATE EXTERNAL TABLE, COPY … TO, 'file.parquet' as a table) work in every dialect.
    defaults.sql_parser.dialect = Dialect::PostgreSQL;
    // SubqueryOrders knows which of them nobody sees.
    defaults.sql_parser.enable_subquery_sort_elimination = false;
    // Without one, TIMESTAMPTZ would be TIMESTAMP.
    defaults.execution.time_zone = Some(UTC.to_string());
    // In 64 bits of nanoseconds there is no room for years before 1677, or after 2262.
    defaults.execution.parquet.coerce_int96 = Some("us".to_string());
    // Errors point at the place.
    defaults.sql_parser.collect_spans = true;
    // Filters inside the Parquet reader stay off, as DataFusion has them: on TPC-H they doubled the processor
    // time of scans like query 6 and query 12, because columns were decoded in small pieces. DataFusion 55
    // skips what `min(a)` does not need even if `max(f(a))` beside it does: its filter knows bare columns
    // only.
    defaults.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    // Whether a column may be NULL is told more cautiously of physical plans: of `x IS TRUE`, and of marks of
    // EXISTS the other way round. No batch has a NULL where there may be none; the check would refuse `SELECT
    // DISTINCT x IS TRUE`.
    defaults.execution.skip_physical_aggregate_schema_check = true;
    // What ANALYZE has found is behind it.
    defaults.optimizer.use_statistics_registry = true;
    if let Some(bytes) = options.memory_bytes {
        // What a sort keeps back for merging what it spilled, in each partition. With DataFusion's 10 MiB two
        // sorts do not fit into little memory at all.
        let share = usize::try_from(bytes).unwrap_or(usize::MAX) / (SORT_SHARES * options.threads.max(1));
        let reservation = &mut defaults.execution.sort_spill_reservation_bytes;
        *reservation = share.min(*reservation);
    }
    if let Some(gang) = &options.gang {
        gang.declare_settings(&mut config);
    }
    // As deep as statements may nest: tools write a hundred subqueries inside of each other.
    let nesting = ("datafusion.sql_parser.recursion_limit", nesting::NESTING_MAX.to_string());
    set(&mut config, nesting.0, &nesting.1)?;
    for (key, value) in &options.settings {
        set(&mut config, key, value)?;
    }
    Ok(config)
}

/// What SET does outside a session.
fn set(config: &mut SessionConfig, key: &str, value: &str) -> Result<(), SqlError> {
    let value = settings::normalize_value(key, value).map_err(|error| setting_error(key, &error))?;
    config.options_mut().set(&key.to_lowercase(), &value).map_err(|error| setting_error(key, &error))
}

/// An error of SET or RESET, with the whole name of the setting where that is what is wrong.
pub(crate) fn setting_error(key: &str, error: &datafusion::error::DataFusionError) -> SqlError {
    match harrier_sqlstate::of(error) {
        state @ SqlState::UNDEFINED_OBJECT => {
            SqlError::new(state, format!("unrecognized configuration parameter \"{key}\""))
                .with_hint("SHOW ALL lists the parameters")
        }
        _ if crate::error::is_coded(error) => crate::error::in_statement(error, ""),
        _ => {
            let cause = crate::error::in_statement(error, "");
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("invalid value for parameter \"{key}\""))
                .with_detail(cause.message)
        }
    }
}

/// A folder of this process on every disk. One that cannot be used is marked down; an error if all were named
/// and none can.
fn spill_folders(options: &EngineOptions) -> Result<(Vec<SpillFolder>, Option<Disks>), SqlError> {
    let parents = match options.spill_dirs.is_empty() {
        true => vec![std::env::temp_dir()],
        false => options.spill_dirs.clone(),
    };
    let (mut owned, mut folders, mut last) = (Vec::new(), Vec::new(), None);
    for parent in parents {
        let place = match SpillFolder::create_in(&parent) {
            Ok(folder) => {
                let place = folder.path().to_path_buf();
                owned.push(folder);
                Ok(place)
            }
            Err(error) => {
                // Most statements need none.
                tracing::warn!(folder = %parent.display(), %error, "no temporary files in this folder");
                let reason = error.to_string();
                last = Some((parent.clone(), error));
                Err(reason)
            }
        };
        folders.push(Folder { configured: parent, place });
    }
    match last {
        Some((parent, error)) if owned.is_empty() && !options.spill_dirs.is_empty() => {
            let cause = crate::error::sql_error(datafusion::error::DataFusionError::IoError(error));
            Err(SqlError::new(
                cause.sqlstate,
                format!("cannot write temporary files to folder \"{}\": {}", parent.display(), cause.message),
            ))
        }
        _ if owned.is_empty() => Ok((owned, None)),
        _ => Ok((owned, Some(Disks::new(folders)))),
    }
}
