//! Executes SQL statements, from text to rows: planning, execution, sessions, settings and SQL errors. Crate
//! `sql` parses. Must not know how rows travel between ranks, nor who sent a statement.
//!
//! ```text
//! SQL text ─► crate sql ─► the match over kinds ─► logical plan ─► physical plan ─► rows
//!                          statement.rs            plan.rs         execute_plan.rs
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

mod binder;
mod copy_format;
mod engine;
mod error;
mod external;
mod object_stores;
mod planning;
mod runtime;
mod session;
pub mod settings;
mod statement;
mod types;
mod warehouse;

pub use engine::server_functions::ServerFunction;
pub use engine::waiting_functions::{Caller, WaitingCall, WaitingFunction};
pub use engine::{Engine, EngineOptions, PasswordVerifier};
pub use error::{in_statement, sql_error};
pub use harrier_catalog::access::Access;
pub use harrier_catalog::{Error as CatalogError, Fence, Lease};
pub use harrier_error::{SqlError, SqlState};
pub use harrier_pgcatalog::{Activity, AdvisoryLock};
pub use harrier_resources::spill_disks::{DiskState, DiskStatus};
pub use runtime::panic_guard::install_panic_hook;
pub use runtime::progress::{PlanProgress, ProgressReading};
pub use runtime::{limits, locked_folder, memory_size};
pub use session::Session;
pub use settings::facts::facts as setting_facts;
pub use settings::parameters::SERVER_VERSION;
pub use statement::copy::CopyOut;
pub use statement::copy::input::{CopyIn, CopyInRows};
pub use statement::outcome::Outcome;
pub use statement::parsed_statement::ParsedStatement;
pub use statement::scrollable_rows::ScrollableRows;
pub use statement::write::Write;
pub use warehouse::WarehouseOptions;
pub use warehouse::access::Viewer;
pub use warehouse::catalog_error;
pub use warehouse::system_catalogs::pg_catalog::ServerContext;
pub use warehouse::system_catalogs::server_table::ServerTable;
