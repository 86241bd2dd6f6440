//! A statement, from its text to its rows: parse, plan, run; sessions, settings and SQL errors. It never
//! knows how rows travel between ranks, nor who asked for them.
//!
//! ```text
//! SQL text ─► split ─► parse ─► file names and tables resolved ─► logical plan ─► physical plan ─► rows
//!             split.rs          files.rs                          session.rs                       guard.rs
//! ```
//!
//! ```no_run
//! # async fn run() -> Result<(), harrier_engine::SqlError> {
//! use futures::TryStreamExt;
//! use harrier_engine::{Engine, EngineOptions, Outcome};
//!
//! let engine = Engine::try_new(EngineOptions::default())?;
//! let session = engine.session();
//! for statement in session.statements("SELECT count(*) FROM 'lineitem.parquet'")? {
//!     if let Outcome::Rows { stream, .. } = session.execute(&statement).await? {
//!         let batches: Vec<_> = stream.try_collect().await.map_err(harrier_engine::sql_error)?;
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod aggregate_filters;
mod aliased_deletes;
mod analyze;
mod analyze_options;
mod array_overlaps;
mod array_texts;
mod assignments;
mod auto_analyze;
mod bounded_values;
mod bytes;
mod called_names;
mod cast_names;
mod checked;
mod client;
mod coalesce;
mod column_aliases;
mod compact_views;
mod compared_keys;
mod copy;
mod correlated_names;
mod counted_rows;
mod data_files;
mod ddl_retry;
mod declared_types;
mod default_values;
mod describe;
mod dialect;
mod differences;
mod distinct_lists;
mod doubles;
mod engine;
mod error;
mod estimates;
mod explain;
mod explain_options;
mod extensions;
mod far_times;
mod file_kinds;
mod files;
mod found_files;
mod function_relations;
mod grants;
mod grouping_sets;
mod guard;
mod heard_rules;
mod hive;
mod interval_comparisons;
mod intervals;
mod join_orderings;
mod join_subqueries;
mod joined_columns;
mod json;
mod kept;
mod kept_rows;
mod like_escapes;
mod like_tables;
pub mod limits;
mod listing;
pub mod locked_folder;
mod many_relations;
pub mod memory;
mod memory_tables;
mod merge;
mod names;
mod needed_orders;
mod nested_cases;
pub mod nesting;
mod operator_chains;
mod origins;
mod outer_aggregates;
mod outer_joins;
mod outer_types;
mod own_catalog;
mod parameter_types;
mod parameters;
mod plain_values;
mod plan_tree;
mod planning_rules;
mod prepared;
mod progress;
mod queried_values;
mod quotients;
mod refreshed_schemas;
mod refused_writes;
mod repeated_keys;
mod repeated_windows;
mod result_names;
mod returning;
mod rewriting;
mod scalar_subqueries;
mod sequences;
mod series;
mod server_functions;
mod session;
pub mod settings;
mod simplification;
mod single_stage;
mod skipped_rows;
mod sort_limits;
mod sorted_groups;
mod spill;
pub mod split;
mod sql_types;
mod state_budget;
mod store_names;
mod store_options;
mod stored;
mod stores;
mod subqueries;
mod subquery_orders;
mod table_samples;
mod targets;
mod texts_of_booleans;
mod texts_of_times;
mod timestamps;
mod told_apart;
mod type_names;
mod unknown_literals;
mod waiting_functions;
mod warehouse;
mod window_functions;
mod window_peers;
mod write;
mod yielding_joins;
mod zeros;
mod zones;

pub use client::{TimeLimits, TransactionState};
pub use copy::{CopyIn, CopyInRows, CopyOut};
pub use describe::{Described, StatementKind};
pub use engine::{Engine, EngineOptions, PasswordVerifier};
pub use error::{in_statement, sql_error};
pub use guard::install_panic_hook;
pub use harrier_catalog::access::Access;
pub use harrier_catalog::{Error as CatalogError, Fence, Lease};
pub use harrier_error::{SqlError, SqlState};
pub use harrier_pgcatalog::{Activity, AdvisoryLock, Cursor, PreparedStatement};
pub use harrier_resources::spill_disks::{DiskState, DiskStatus};
pub use kept_rows::KeptRows;
pub use parameters::SERVER_VERSION;
pub use progress::{Progress, ProgressReading};
pub use server_functions::ServerFunction;
pub use session::{Outcome, ParsedStatement, Session};
pub use waiting_functions::{Caller, WaitingCall, WaitingFunction};
pub use warehouse::catalog_error;
pub use warehouse::{Identity, Named, ServerTable, Surroundings, Viewer, WarehouseOptions};
pub use write::{Write, Written};
