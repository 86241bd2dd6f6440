//! The engine: memory, temporary files and defaults, shared by all sessions of a process.

pub(crate) mod server_functions;
pub(crate) mod waiting_functions;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use datafusion::config::{ConfigNonZeroUsize, ConfigOptions, Dialect};
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{MemoryPool, TrackConsumersPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::SessionConfig;
use harrier_catalog::access::Access;
use harrier_catalog::{Catalog, Fence};
use harrier_error::SqlState;
use harrier_exec::Gang;
use harrier_exec::formats::atomic_sinks;
use harrier_exec::frontend::link::Link;
use harrier_exec::frontend::server::PlanService;
use harrier_exec::monitor::statement_history::StatementHistory;
use harrier_planner::analyzer::session_time_zone::UTC;
use harrier_resources::fair_merge_pool::FairMergePool;
use harrier_resources::spill_disks::{Disks, Folder};
use harrier_resources::statement_limits::SORT_SHARES;
use harrier_resources::value_account::AccountedPool;
use harrier_sql::nesting;

use crate::SqlError;
use crate::copy_format::text_format;
use crate::engine::server_functions::ServerFunction;
use crate::engine::waiting_functions::WaitingFunction;
use crate::object_stores::options;
use crate::object_stores::registry::StoreRegistry;
use crate::runtime::explain_text;
use crate::runtime::limits::Limits;
use crate::runtime::spill_folder::SpillFolder;
use crate::settings::{self, HarrierSettings, SpillSetting};
use crate::warehouse::name_resolver::DEFAULT_CATALOG;
use crate::warehouse::system_catalogs::server_table::ServerTable;
use crate::warehouse::{DEFAULT_SCHEMA, Warehouse, WarehouseOptions};

/// Number of the largest memory consumers that an out-of-memory error names.
const TOP_CONSUMERS: NonZeroUsize = NonZeroUsize::new(5).unwrap();

/// Options of an engine. The default uses the machine's resources.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EngineOptions {
    /// Threads per statement, at least 1: the number of output partitions of its plan.
    pub threads: usize,
    /// Memory limit in bytes of all statements together, above which they spill; `None` for no limit.
    pub memory_bytes: Option<u64>,
    /// Settings as for SET, applied in order to every new session.
    pub settings: Vec<(String, String)>,
    /// Folders for spill files, ideally one per disk; empty for the system's (`TMPDIR`).
    pub spill_dirs: Vec<PathBuf>,
    /// The ranks that run statements together; `None` for this process alone.
    pub gang: Option<Gang>,
    /// Connection of a front end to a gang, which runs the statements that are worth it while connected.
    pub link: Option<Link>,
    /// Storage of tables; `None` for session tables only.
    pub warehouse: Option<WarehouseOptions>,
    /// Tables of schema `sys` provided by the host process.
    pub server_tables: Vec<ServerTable>,
    /// History of the statements that this process or its gang has run; with a front end the gang records
    /// them.
    pub history: Option<StatementHistory>,
    /// Resource limits of every statement, whatever its session's settings.
    pub limits: Limits,
    /// Derives the stored verifier from a password, or rejects it. Without it roles cannot have passwords.
    pub password_verifier: Option<PasswordVerifier>,
    /// Functions that control the host process.
    pub server_functions: Vec<ServerFunction>,
    /// Functions that wait for a lock or a time.
    pub waiting_functions: Vec<WaitingFunction>,
    /// Fencing: commits succeed only while this process holds the lease.
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

/// Creates sessions. Dropping the last handle removes the temporary files; sessions hold a handle.
#[derive(Debug, Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: SessionConfig,
    /// `config` after the distributed planner has added its settings: defaults of every session, set by the
    /// first one.
    initial: OnceLock<ConfigOptions>,
    runtime: Arc<RuntimeEnv>,
    memory_bytes: Option<u64>,
    gang: Option<Gang>,
    link: Option<Link>,
    warehouse: Option<Arc<Warehouse>>,
    server_tables: Arc<[ServerTable]>,
    history: Option<StatementHistory>,
    password_verifier: Option<PasswordVerifier>,
    limits: Limits,
    server_functions: Vec<ServerFunction>,
    waiting_functions: Vec<WaitingFunction>,
    disks: Option<Disks>,
    // After `runtime`, which has files in it: fields are dropped in this order.
    spill: Vec<SpillFolder>,
}

impl Engine {
    /// Errors: a setting is unknown (42704) or its value invalid (22023); a given spill folder is not
    /// writable.
    pub fn try_new(options: EngineOptions) -> Result<Self, SqlError> {
        text_format::register();
        let config = base_config(&options)?;
        let (spill, disks) = spill_folders(&options)?;
        let (mut spill_bytes_max, mut fan_in) = (0, 0);
        for (key, value) in &options.settings {
            match SpillSetting::of(key, Some(value)).map_err(|error| setting_error(key, &error))? {
                Some(SpillSetting::BytesMax(bytes)) => spill_bytes_max = bytes,
                Some(SpillSetting::MergeFanIn(files)) => fan_in = files,
                None => {}
            }
        }
        let mut runtime = RuntimeEnvBuilder::new()
            .with_disk_manager_builder(disk_manager(disks.as_ref(), spill_bytes_max, fan_in))
            .with_object_store_registry(Arc::new(StoreRegistry::default()))
            // Other processes write to the same folders: do not cache listings across statements.
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

    /// Removes the temporary files now, for a process that exits without dropping everything. Running
    /// statements fail when they spill.
    pub fn remove_temporary_files(&self) {
        self.inner.spill.iter().for_each(SpillFolder::remove);
        atomic_sinks::remove_local();
    }

    /// Waits, up to a few seconds, until object stores have aborted the uploads of canceled and failed
    /// statements.
    pub async fn settle_stores(&self) {
        harrier_storage::wait_for_pending_work().await;
    }

    /// Configuration of new sessions.
    pub(crate) fn config(&self) -> &SessionConfig {
        &self.inner.config
    }

    /// Records the settings of the first session. Call it with every new session's settings.
    pub(crate) fn set_initial_settings(&self, options: &ConfigOptions) {
        self.inner.initial.get_or_init(|| options.clone());
    }

    /// Settings of a new session, restored by RESET.
    pub(crate) fn initial_settings(&self) -> &ConfigOptions {
        self.inner.initial.get().unwrap_or_else(|| self.inner.config.options())
    }

    /// Memory, temporary files and object stores, shared by all sessions.
    pub fn runtime_env(&self) -> &Arc<RuntimeEnv> {
        &self.inner.runtime
    }

    /// The ranks that run statements together, if this is a gang.
    pub fn gang(&self) -> Option<&Gang> {
        self.inner.gang.as_ref()
    }

    /// Closes the connections to the catalog. Call it when no session is in use any more: a catalog in a
    /// single file is then complete in that file, unless other processes have it open.
    pub async fn close(&self) {
        if let Some(warehouse) = self.warehouse() {
            warehouse.close().await;
        }
    }

    /// The current privileges in the warehouse, read by one small catalog query. Without a warehouse
    /// everything is permitted.
    ///
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

    /// The warehouse's catalog, after claiming the data folder for it; a read-only catalog stays unclaimed.
    /// `None`: there is no warehouse.
    ///
    /// Errors: the data folder belongs to another catalog (55000); the catalog cannot be read.
    pub async fn claim_catalog(&self) -> Result<Option<Catalog>, SqlError> {
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

    /// The statement history, if it is recorded.
    pub fn history(&self) -> Option<&StatementHistory> {
        self.inner.history.as_ref()
    }

    pub(crate) fn waiting_functions(&self) -> &[WaitingFunction] {
        &self.inner.waiting_functions
    }

    pub(crate) fn server_functions(&self) -> &[ServerFunction] {
        &self.inner.server_functions
    }

    /// The environment of a new session: that of the process, with limits of its own on temporary files.
    pub(crate) fn session_environment(&self) -> Arc<RuntimeEnv> {
        let process = self.runtime_env();
        let manager = &process.disk_manager;
        let own =
            disk_manager(self.disks(), manager.max_temp_directory_size(), manager.max_spill_merge_fan_in());
        RuntimeEnvBuilder::from_runtime_env(process)
            .with_disk_manager_builder(own)
            .build_arc()
            .unwrap_or_else(|error| {
                tracing::warn!(%error, "a session shares the limits of the process's temporary files");
                Arc::clone(process)
            })
    }

    /// The spill disks of this process; `None` if it cannot spill.
    pub fn disks(&self) -> Option<&Disks> {
        self.inner.disks.as_ref()
    }

    pub(crate) fn link(&self) -> Option<&Link> {
        self.inner.link.as_ref()
    }

    /// On rank 0, once attached: the service that executes plans of front ends.
    pub fn plan_service(&self, threads: usize) -> Option<PlanService> {
        let gang = self.gang()?.clone();
        Some(PlanService::new(gang, threads, explain_text::rank_lines))
    }

    /// Lets this rank take part in statements, with this engine's memory and folders. Does nothing without a
    /// gang. Call it once, inside the tokio runtime that runs the work.
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

/// A manager of temporary files on `disks`. DataFusion only keeps `bytes_max` (0: none), for SHOW: a
/// statement applies it to its disks.
fn disk_manager(disks: Option<&Disks>, bytes_max: u64, fan_in: usize) -> DiskManagerBuilder {
    let mode = match disks {
        Some(disks) => DiskManagerMode::Custom(Arc::new(disks.clone())),
        None => DiskManagerMode::Disabled,
    };
    DiskManagerBuilder::default()
        .with_mode(mode)
        .with_max_temp_directory_size(bytes_max)
        .with_max_spill_merge_fan_in(fan_in)
}

/// On a gang at least 2: a plan with one output partition has no repartitioning that could become a motion.
fn output_partitions_min(options: &EngineOptions) -> usize {
    if options.gang.is_some() { 2 } else { 1 }
}

/// Bytes of a row, where a join input's size is known in rows only.
const COLLECTED_ROW_BYTES: usize = 64;

/// The largest build side, in bytes, of which a join makes one hash table for all threads.
///
/// One thread makes it while the others wait; but neither side is hashed, copied and redistributed. With two
/// threads this pays for nearly every size that fits into memory, with many for small ones.
fn collected_bytes_max(options: &EngineOptions) -> usize {
    const BYTES_MAX: usize = 512 << 20;
    const BYTES_MIN: usize = 8 << 20;
    const MEMORY_SHARE: u64 = 8;
    let by_threads = (BYTES_MAX / options.threads.max(1)).max(BYTES_MIN);
    let by_memory = options.memory_bytes.map_or(u64::MAX, |bytes| bytes / MEMORY_SHARE);
    by_threads.min(usize::try_from(by_memory).unwrap_or(usize::MAX))
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
    // PostgreSQL's dialect is what users know; the extensions of DataFusion's parser (CREATE EXTERNAL TABLE,
    // COPY … TO, 'file.parquet' as a table) work in every dialect.
    defaults.sql_parser.dialect = Dialect::PostgreSQL;
    // SubqueryOrders knows which of them have no effect.
    defaults.sql_parser.enable_subquery_sort_elimination = false;
    // Without a time zone, TIMESTAMPTZ would be TIMESTAMP.
    defaults.execution.time_zone = Some(UTC.to_string());
    // COPY to a folder: DataFusion writes four files, whatever the threads.
    defaults.execution.minimum_parallel_output_files =
        ConfigNonZeroUsize::try_new(options.threads.max(1)).map_err(crate::error::sql_error)?;
    // 64 bits of nanoseconds cannot represent years before 1677 or after 2262.
    defaults.execution.parquet.coerce_int96 = Some("us".to_string());
    // Source spans give errors a position.
    defaults.sql_parser.collect_spans = true;
    // Filter pushdown inside the Parquet reader stays off, DataFusion's default: on TPC-H it doubled the
    // processor time of scans like query 6 and query 12, because columns were decoded in small pieces.
    // DataFusion 55 prunes what `min(a)` does not need even if `max(f(a))` beside it does: its dynamic filter
    // considers bare columns only.
    defaults.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    // Physical plans are more conservative about nullability, for `x IS TRUE`, and less for EXISTS marks. No
    // batch has a NULL in a non-nullable column; the check would reject `SELECT DISTINCT x IS TRUE`.
    defaults.execution.skip_physical_aggregate_schema_check = true;
    // Gives the planner the statistics of ANALYZE.
    defaults.optimizer.use_statistics_registry = true;
    if options.gang.is_none() && options.link.is_none() {
        // Ranks would receive the collected side over the interconnect; here it costs memory only.
        let bytes = collected_bytes_max(options);
        defaults.optimizer.hash_join_single_partition_threshold = bytes;
        defaults.optimizer.hash_join_single_partition_threshold_rows = bytes / COLLECTED_ROW_BYTES;
    }
    if let Some(bytes) = options.memory_bytes {
        // Memory that a sort reserves for merging its spilled runs, per partition. With DataFusion's 10 MiB
        // two sorts do not fit into a small memory limit.
        let share = usize::try_from(bytes).unwrap_or(usize::MAX) / (SORT_SHARES * options.threads.max(1));
        let reservation = &mut defaults.execution.sort_spill_reservation_bytes;
        *reservation = share.min(*reservation);
    }
    if let Some(gang) = &options.gang {
        gang.declare_settings(&mut config);
    }
    // Nesting limit of the parser: tools generate a hundred nested subqueries.
    let nesting = ("datafusion.sql_parser.recursion_limit", nesting::NESTING_MAX.to_string());
    apply_setting(&mut config, nesting.0, &nesting.1)?;
    let of_config = |(key, _): &&(String, String)| !SpillSetting::is_one(key);
    for (key, value) in options.settings.iter().filter(of_config) {
        apply_setting(&mut config, key, value)?;
    }
    Ok(config)
}

/// Applies a setting as SET does, outside a session.
fn apply_setting(config: &mut SessionConfig, key: &str, value: &str) -> Result<(), SqlError> {
    let value = settings::normalize_value(key, value).map_err(|error| setting_error(key, &error))?;
    config.options_mut().set(&key.to_lowercase(), &value).map_err(|error| setting_error(key, &error))
}

/// An error of SET or RESET, with the full name of the setting if that is at fault.
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

/// Creates a spill folder of this process on every disk. An unusable disk is marked down; fails if disks were
/// given and none is usable.
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
                // Most statements do not spill.
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
