//! The `harrier.` settings: names, defaults, descriptions and checks.

pub(crate) mod facts;
pub(crate) mod parameters;

use datafusion::common::config::ConfigOptions;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::SessionState;
use harrier_planner::analyzer::session_time_zone::session_zone;
use harrier_planner::analyzer::text_constants::TimeReading;
use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use datafusion::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::error::Result;
use harrier_error::{SqlError, SqlState};
use harrier_functions::parse::byte_size::parse_size_in;
use harrier_functions::parse::datetime::DateOrder;
use harrier_functions::parse::interval::IntervalStyle;
use harrier_resources::statement_limits::StatementLimits;
use harrier_sql::language::Language;
use harrier_sql::nesting;
use harrier_sqlstate::IntoDataFusionError;

use crate::object_stores::options;
use crate::runtime::limits::Limits;

/// A session's settings that DataFusion does not know. Stored in `ConfigOptions::extensions`; users reach
/// them with `SET harrier.…`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HarrierSettings {
    /// Interconnect between ranks: `mpi` or `grpc`.
    pub interconnect: String,
    /// Compression of rows sent to another host: `none`, `lz4` or `zstd`.
    pub interconnect_compression: String,
    /// A scan of fewer bytes than this stays on one rank.
    pub distribute_bytes_min: usize,
    /// Whether long statements show a progress bar where standard error is a terminal.
    pub progress: bool,
    /// VACUUM skips younger files: a running statement may be writing or reading them.
    pub vacuum_age_seconds: usize,
    /// Memory limit of a statement per process in bytes; 0 for none.
    pub statement_memory: usize,
    /// Limit of a statement's temporary files per process in bytes; 0 for none.
    pub statement_spill: usize,
    /// Limit of the rows a statement returns; 0 for none.
    pub result_rows_max: usize,
    /// Whether a server retries a read-only statement once when a rank is lost before its first row.
    pub retry_reads: bool,
    /// Sample size of ANALYZE in bytes, for tables with larger files; 0 reads the whole table.
    pub analyze_bytes: usize,
    /// A write runs ANALYZE on its table when this percentage of the rows has changed since the last one; 0
    /// disables it.
    pub auto_analyze: usize,
    /// Whether runtime filters of joins and sorts are applied to the rows of scans; otherwise they prune row
    /// groups only.
    pub runtime_filters: bool,
    /// Whether equal parts of a plan run once, in one process.
    pub shared_subplans: bool,
    /// The language of the session's statements: `postgres` or `hive`.
    pub dialect: Language,
    /// After every statement the gang is asked whether it released all resources. If it did not, the
    /// statement fails with this setting on; otherwise it is logged, once per session. For tests; not among
    /// the entries, so neither SHOW ALL nor RESET ALL includes it.
    pub check_ledger: bool,
    /// How casts to text write intervals: the parameter IntervalStyle. Not an entry either.
    pub interval_style: IntervalStyle,
    /// The order of day and month in ambiguous dates: the parameter DateStyle. Not an entry either.
    pub date_order: DateOrder,
}

impl Default for HarrierSettings {
    fn default() -> Self {
        Self {
            interconnect: "mpi".to_string(),
            interconnect_compression: "none".to_string(),
            distribute_bytes_min: 0,
            progress: true,
            vacuum_age_seconds: 24 * 60 * 60,
            statement_memory: 0,
            statement_spill: 0,
            result_rows_max: 0,
            retry_reads: true,
            analyze_bytes: 1 << 30,
            auto_analyze: 0,
            runtime_filters: true,
            shared_subplans: true,
            dialect: Language::default(),
            check_ledger: false,
            interval_style: IntervalStyle::default(),
            date_order: DateOrder::default(),
        }
    }
}

impl HarrierSettings {
    /// The resource limits of statements.
    pub(crate) fn limits(&self) -> Limits {
        let limit = |value: usize| Some(value as u64).filter(|value| *value > 0);
        Limits {
            processes: StatementLimits {
                memory_bytes: limit(self.statement_memory),
                spill_bytes: limit(self.statement_spill),
                process_spill_bytes: None,
            },
            rows: limit(self.result_rows_max),
        }
    }
}

const CODECS: &[&str] = &["none", "lz4", "zstd"];
const INTERCONNECTS: &[&str] = &["mpi", "grpc", "inprocess"];

impl ConfigExtension for HarrierSettings {
    const PREFIX: &'static str = "harrier";
}

impl ExtensionOptions for HarrierSettings {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "interconnect" => self.interconnect = one_of(key, value, INTERCONNECTS)?,
            "interconnect_compression" => self.interconnect_compression = one_of(key, value, CODECS)?,
            "distribute_bytes_min" => self.distribute_bytes_min = bytes(key, value)?,
            "progress" => self.progress = boolean(key, value)?,
            "vacuum_age_seconds" => self.vacuum_age_seconds = number(key, value)?,
            "statement_memory" => self.statement_memory = bytes(key, value)?,
            "statement_spill" => self.statement_spill = bytes(key, value)?,
            "result_rows_max" => self.result_rows_max = number(key, value)?,
            "retry_reads" => self.retry_reads = boolean(key, value)?,
            "analyze_bytes" => self.analyze_bytes = bytes(key, value)?,
            "auto_analyze" => self.auto_analyze = number(key, value)?,
            "runtime_filters" => self.runtime_filters = boolean(key, value)?,
            "shared_subplans" => self.shared_subplans = boolean(key, value)?,
            "dialect" => {
                let name = one_of(key, value, &Language::NAMES)?;
                self.dialect = name.parse().unwrap_or_default();
            }
            "check_ledger" => self.check_ledger = boolean(key, value)?,
            _ => {
                return Err(SqlError::new(
                    SqlState::UNDEFINED_OBJECT,
                    format!("unrecognized configuration parameter \"harrier.{key}\""),
                )
                .into_datafusion());
            }
        }
        Ok(())
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        let entry = |key: &str, value: String, description: &'static str| ConfigEntry {
            key: format!("{}.{key}", Self::PREFIX),
            value: Some(value),
            description,
        };
        vec![
            entry("interconnect", self.interconnect.clone(), "How rows travel between ranks: mpi or grpc"),
            entry(
                "interconnect_compression",
                self.interconnect_compression.clone(),
                "What rows are compressed by on their way to another host: none, lz4 or zstd",
            ),
            entry(
                "distribute_bytes_min",
                self.distribute_bytes_min.to_string(),
                "A scan of fewer bytes than this stays on one rank",
            ),
            entry(
                "progress",
                self.progress.to_string(),
                "Whether long statements show a progress bar on a terminal",
            ),
            entry(
                "vacuum_age_seconds",
                self.vacuum_age_seconds.to_string(),
                "VACUUM leaves files alone that are younger",
            ),
            entry(
                "statement_memory",
                self.statement_memory.to_string(),
                "Bytes of memory that a statement may take of every process; 0 for no limit",
            ),
            entry(
                "statement_spill",
                self.statement_spill.to_string(),
                "Bytes of temporary files that a statement may have on every process; 0 for no limit",
            ),
            entry(
                "result_rows_max",
                self.result_rows_max.to_string(),
                "Rows that a statement may return; 0 for any number",
            ),
            entry(
                "retry_reads",
                self.retry_reads.to_string(),
                "Whether a statement that only reads is run once more when a rank is lost before its first row",
            ),
            entry(
                "analyze_bytes",
                self.analyze_bytes.to_string(),
                "Of a table with more bytes of files ANALYZE looks at about as many; 0 for all of it",
            ),
            entry(
                "auto_analyze",
                self.auto_analyze.to_string(),
                "Percent of a table's rows that writes change before one of them analyzes it; 0 for never",
            ),
            entry(
                "runtime_filters",
                self.runtime_filters.to_string(),
                "Whether filters that joins and sorts find at run time remove rows of scans",
            ),
            entry(
                "shared_subplans",
                self.shared_subplans.to_string(),
                "Whether one process runs equal parts of a plan once, such as a WITH query that is named twice",
            ),
            entry(
                "dialect",
                self.dialect.name().to_string(),
                "The language of the statements that follow: postgres, or hive for HiveQL",
            ),
        ]
    }
}

/// Description of a setting, apart from its value in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingFacts {
    pub name: String,
    pub default: String,
    /// Allowed values, as text for users; empty if unknown.
    pub allowed: String,
    pub by: SetBy,
    /// One sentence, without its full stop.
    pub description: String,
}

/// The roles that may set a setting for their session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetBy {
    Everybody,
    Superusers,
    /// Fixed when the session or the server begins.
    Nobody,
}

impl SetBy {
    /// For settings other than PostgreSQL's parameters.
    pub(crate) fn of(name: &str) -> Self {
        if is_for_everybody(name) { Self::Everybody } else { Self::Superusers }
    }
}

/// Whether every role may set this setting for its session. The others affect statements of other roles, or
/// enforce limits on roles. PostgreSQL's parameters and unknown names return true.
pub fn is_for_everybody(name: &str) -> bool {
    const PREFIXES: [&str; 3] = ["datafusion.explain.", "datafusion.format.", "datafusion.sql_parser."];
    const NAMES: [&str; 14] = [
        "datafusion.execution.time_zone",
        "datafusion.optimizer.join_reordering",
        "harrier.analyze_bytes",
        "harrier.auto_analyze",
        "harrier.dialect",
        "harrier.distribute_bytes_min",
        "harrier.interconnect_compression",
        "harrier.progress",
        "harrier.result_rows_max",
        "harrier.retry_reads",
        "harrier.runtime_filters",
        "harrier.shared_subplans",
        "harrier.statement_memory",
        "harrier.statement_spill",
    ];
    let name = name.to_ascii_lowercase();
    let is_own = name.starts_with("datafusion.") || name.starts_with("harrier.") || options::is_option(&name);
    !is_own || PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || NAMES.contains(&name.as_str())
}

/// DataFusion's byte-valued settings that it accepts as plain numbers only.
const PLAIN_BYTES: [&str; 15] = [
    "datafusion.execution.max_spill_file_size_bytes",
    "datafusion.execution.objectstore_writer_buffer_size",
    "datafusion.execution.parquet.data_pagesize_limit",
    "datafusion.execution.parquet.dictionary_page_size_limit",
    "datafusion.execution.parquet.content_defined_chunking.max_chunk_size",
    "datafusion.execution.parquet.content_defined_chunking.min_chunk_size",
    "datafusion.execution.parquet.max_predicate_cache_size",
    "datafusion.execution.parquet.max_row_group_bytes",
    "datafusion.execution.parquet.metadata_size_hint",
    "datafusion.execution.sort_in_place_threshold_bytes",
    "datafusion.execution.sort_pushdown_buffer_capacity",
    "datafusion.execution.sort_spill_reservation_bytes",
    "datafusion.optimizer.hash_join_inlist_pushdown_max_size",
    "datafusion.optimizer.hash_join_single_partition_threshold",
    "datafusion.optimizer.repartition_file_min_size",
];

/// Those it accepts with a suffix `K`, `M` or `G` only.
const SHORT_BYTES: [&str; 3] = [
    "datafusion.runtime.file_statistics_cache_limit",
    "datafusion.runtime.memory_limit",
    "datafusion.runtime.metadata_cache_limit",
];

/// Converts a size with a unit to the form DataFusion accepts; other values stay as they are.
///
/// Errors: the value is above the limit enforced here (22023).
pub(crate) fn normalize_value<'v>(name: &str, value: &'v str) -> Result<Cow<'v, str>> {
    check_value(name, value)?;
    let is_among = |names: &[&str]| names.iter().any(|known| name.eq_ignore_ascii_case(known));
    let (is_plain, is_short) = (is_among(&PLAIN_BYTES), is_among(&SHORT_BYTES));
    if !is_plain && !is_short {
        return Ok(Cow::Borrowed(value));
    }
    // DataFusion reports values that are not sizes.
    Ok(match parse_size_in(value, 1) {
        Some(bytes) if is_plain => Cow::Owned(bytes.to_string()),
        Some(bytes) if value.trim().ends_with(|letter: char| letter.is_ascii_alphabetic()) => {
            Cow::Owned(format!("{}K", bytes.div_ceil(1024)))
        }
        _ => Cow::Borrowed(value),
    })
}

/// Errors: the value is above the limit enforced here (22023).
fn check_value(name: &str, value: &str) -> Result<()> {
    let is_limit = name.eq_ignore_ascii_case("datafusion.sql_parser.recursion_limit");
    if is_limit && value.trim().parse().is_ok_and(|limit: u128| limit > nesting::NESTING_MAX as u128) {
        let message = format!(
            "{value} is outside the valid range for parameter \"{name}\" (1 .. {})",
            nesting::NESTING_MAX
        );
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into_datafusion());
    }
    Ok(())
}

/// DataFusion's settings of temporary files. They are applied to the folders of `--spill-dir`: DataFusion
/// would put a manager of its own in their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpillSetting {
    /// `max_temp_directory_size`: of all temporary files of a process, in bytes; 0 for no limit.
    BytesMax(u64),
    /// `max_spill_merge_fan_in`: files that one merge opens; 0 for any number.
    MergeFanIn(usize),
}

impl SpillSetting {
    pub(crate) fn is_one(name: &str) -> bool {
        !matches!(Self::of(name, None), Ok(None))
    }

    /// The setting `name` with a value, or its default; `None` for another setting.
    ///
    /// Errors: the value is invalid (22023), or the setting is fixed at the start (55P02).
    pub(crate) fn of(name: &str, value: Option<&str>) -> Result<Option<Self>> {
        let name = name.to_ascii_lowercase();
        let Some(key) = name.strip_prefix("datafusion.runtime.") else { return Ok(None) };
        let refused = |value: &str, hint: &str| {
            let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
                .with_hint(hint.to_string())
                .into_datafusion()
        };
        match (key, value) {
            ("max_temp_directory_size", None) => Ok(Some(Self::BytesMax(0))),
            ("max_temp_directory_size", Some(value)) => match parse_size_in(value, 1) {
                Some(bytes) => Ok(Some(Self::BytesMax(bytes))),
                None => Err(refused(value, "a size, such as 100GB; 0 for no limit")),
            },
            ("max_spill_merge_fan_in", None) => Ok(Some(Self::MergeFanIn(0))),
            ("max_spill_merge_fan_in", Some(value)) => match value.trim().parse() {
                Ok(files) => Ok(Some(Self::MergeFanIn(files))),
                Err(_) => Err(refused(value, "a number of files; 0 for any number")),
            },
            ("temp_directory", _) => {
                let message = format!("parameter \"{name}\" cannot be changed now");
                Err(SqlError::new(SqlState::CANT_CHANGE_RUNTIME_PARAM, message)
                    .with_hint("--spill-dir names the folders of temporary files, at the start")
                    .into_datafusion())
            }
            _ => Ok(None),
        }
    }
}

fn invalid(key: &str, value: &str) -> SqlError {
    SqlError::new(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("invalid value for parameter \"harrier.{key}\": \"{value}\""),
    )
}

fn one_of(key: &str, value: &str, allowed: &[&str]) -> Result<String> {
    let value_lower = value.to_ascii_lowercase();
    if !allowed.contains(&value_lower.as_str()) {
        return Err(invalid(key, value)
            .with_hint(format!("available values: {}", allowed.join(", ")))
            .into_datafusion());
    }
    Ok(value_lower)
}

/// Parses a number of bytes, optionally with a unit: `512MB`.
fn bytes(key: &str, value: &str) -> Result<usize> {
    let bytes = parse_size_in(value, 1).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| {
        let hint = "a number of bytes is expected, alone or with B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, \
                    which all count in 1024s";
        invalid(key, value).with_hint(hint).into_datafusion()
    })
}

fn number(key: &str, value: &str) -> Result<usize> {
    value.trim().parse().map_err(|_| {
        invalid(key, value).with_hint("a whole number of zero or more is expected").into_datafusion()
    })
}

/// Parses PostgreSQL's spellings of a boolean.
fn boolean(key: &str, value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "t" | "on" | "yes" | "1" => Ok(true),
        "false" | "f" | "off" | "no" | "0" => Ok(false),
        _ => Err(invalid(key, value).with_hint("available values: true, false").into_datafusion()),
    }
}

pub(crate) fn session_memory(options: &ConfigOptions) -> Option<usize> {
    let settings = options.extensions.get::<HarrierSettings>();
    settings.map(|settings| settings.statement_memory).filter(|bytes| *bytes > 0)
}

pub(crate) fn shares_subplans(options: &ConfigOptions) -> bool {
    options.extensions.get::<HarrierSettings>().is_none_or(|settings| settings.shared_subplans)
}

pub(crate) fn interval_style(options: &ConfigOptions) -> IntervalStyle {
    options.extensions.get::<HarrierSettings>().map(|settings| settings.interval_style).unwrap_or_default()
}

pub(crate) fn date_order(options: &ConfigOptions) -> DateOrder {
    options.extensions.get::<HarrierSettings>().map(|settings| settings.date_order).unwrap_or_default()
}

/// The zone and date order with which the session parses dates and times.
pub(crate) fn time_reading(state: &SessionState) -> TimeReading {
    TimeReading { zone: session_zone(state), order: date_order(state.config_options()) }
}

/// Updates functions that copy a setting, such as the time zone, to its present value; SET does the same.
pub(crate) fn refresh_functions(state: &mut SessionState) -> Result<()> {
    let functions: Vec<_> = state.scalar_functions().values().cloned().collect();
    for function in functions {
        if let Some(function) = function.inner().with_updated_config(state.config_options()) {
            state.register_udf(Arc::new(function))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn values_are_checked() {
        let cases: &[(&str, &str, Option<&str>)] = &[
            ("interconnect", "mpi", None),
            ("interconnect", "GRPC", None),
            ("interconnect", "tcp", Some("22023")),
            ("interconnect_compression", "zstd", None),
            ("interconnect_compression", "gzip", Some("22023")),
            ("distribute_bytes_min", "0", None),
            ("distribute_bytes_min", "-1", Some("22023")),
            ("distribute_bytes_min", "many", Some("22023")),
            ("progress", "off", None),
            ("progress", "maybe", Some("22023")),
            ("statement_memory", "64MB", None),
            ("statement_memory", "1.5GB", None),
            ("statement_memory", "2GiB", None),
            ("statement_memory", "1.5.5GB", Some("22023")),
            ("statement_memory", ".", Some("22023")),
            ("statement_memory", "1XB", Some("22023")),
            ("distribute_bytes_min", "1MiB", None),
            ("distribute_bytes_min", "64 kB", None),
            ("statement_spill", "100", None),
            ("result_rows_max", "many", Some("22023")),
            ("analyze_bytes", "256MB", None),
            ("auto_analyze", "20", None),
            ("auto_analyze", "-1", Some("22023")),
            ("check_ledger", "on", None),
            ("nosuch", "1", Some("42704")),
        ];
        for (key, value, expected) in cases {
            let got = HarrierSettings::default().set(key, value);
            let code = got.err().map(|error| harrier_sqlstate::of(&error).to_string());
            assert_eq!(code.as_deref(), *expected, "SET harrier.{key} = {value}");
        }
    }

    #[test]
    fn some_settings_are_global() {
        for (name, expected) in [
            ("TimeZone", true),
            ("datafusion.SQL_parser.dialect", true),
            ("harrier.statement_memory", true),
            ("harrier.interconnect", false),
            ("datafusion.optimizer.max_passes", false),
            ("DataFusion.execution.batch_size", false),
            ("datafusion.runtime.memory_limit", false),
            ("s3.region", false),
        ] {
            assert_eq!(is_for_everybody(name), expected, "{name}");
        }
    }

    #[test]
    fn recursion_limit_setting_is_bounded() {
        let name = "datafusion.sql_parser.recursion_limit";
        for (value, expected) in
            [("50", true), ("250", true), ("251", false), ("1000000000000", false), ("x", true)]
        {
            assert_eq!(check_value(name, value).is_ok(), expected, "{value}");
        }
    }

    /// Every DataFusion setting whose name ends in `_bytes` accepts units, and all listed names are settings.
    #[test]
    fn sizes_of_datafusion_take_units() {
        let known = datafusion::common::config::ConfigOptions::new().entries();
        for name in PLAIN_BYTES {
            assert!(known.iter().any(|entry| entry.key == name), "{name}");
            let mut options = datafusion::common::config::ConfigOptions::new();
            options.set(name, &normalize_value(name, "1.5MiB").unwrap()).unwrap();
            let entry = options.entries().into_iter().find(|entry| entry.key == name).unwrap();
            assert_eq!(entry.value.as_deref(), Some("1572864"), "{name}");
            assert_eq!(normalize_value(name, "10").unwrap(), "10");
            assert_eq!(normalize_value(name, "10XB").unwrap(), "10XB");
        }
        for entry in known.iter().filter(|entry| entry.key.ends_with("_bytes")) {
            assert!(PLAIN_BYTES.contains(&&entry.key[..]), "{}", entry.key);
        }
        let name = "datafusion.runtime.memory_limit";
        for (value, expected) in [("1GiB", "1048576K"), ("1.5gb", "1572864K"), ("64M", "65536K"), ("0", "0")]
        {
            assert_eq!(normalize_value(name, value).unwrap(), expected);
        }
        assert_eq!(normalize_value("datafusion.execution.batch_size", "8k").unwrap(), "8k");
    }

    #[test]
    fn every_setting_accepts_its_own_value() {
        let mut settings = HarrierSettings::default();
        for entry in settings.entries() {
            let key = entry.key.strip_prefix("harrier.").unwrap().to_string();
            settings.set(&key, &entry.value.unwrap()).unwrap();
        }
        assert_eq!(settings, HarrierSettings::default());
    }
}
