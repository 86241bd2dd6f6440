//! A statement, from its text to its rows: plan, run; sessions, settings and SQL errors. Crate `sql` parses
//! it. It never knows how rows travel between ranks, nor who asked for them.
//!
//! ```text
//! SQL text ─► crate sql ─► file names and tables resolved ─► logical plan ─► physical plan ─► rows
//!                          files.rs                          session.rs                       guard.rs
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

mod aliased_deletes;
mod analyze;
mod assignments;
mod auto_analyze;
mod cast_names;
mod client;
mod coalesce;
mod copy;
mod data_files;
mod ddl_retry;
mod declared_types;
mod default_values;
mod describe;
mod engine;
mod error;
mod explain;
mod extensions;
mod file_kinds;
mod files;
mod found_files;
mod grants;
mod guard;
mod hive;
mod joined_columns;
mod json;
mod kept;
mod kept_rows;
mod like_tables;
pub mod limits;
mod listing;
pub mod locked_folder;
pub mod memory;
mod memory_tables;
mod origins;
mod own_catalog;
mod parameter_types;
mod parameters;
mod plan_tree;
mod prepared;
mod progress;
mod refused_writes;
mod result_names;
mod returning;
mod sequences;
mod series;
mod server_functions;
mod session;
mod session_planner;
mod setting_facts;
pub mod settings;
mod spill;
mod sql_types;
mod store_names;
mod store_options;
mod stored;
mod stores;
mod targets;
mod type_names;
mod unknown_literals;
mod waiting_functions;
mod warehouse;
mod write;

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
pub use setting_facts::facts as setting_facts;
pub use waiting_functions::{Caller, WaitingCall, WaitingFunction};
pub use warehouse::catalog_error;
pub use warehouse::{Identity, Named, ServerTable, Surroundings, Viewer, WarehouseOptions};
pub use write::{Write, Written};
