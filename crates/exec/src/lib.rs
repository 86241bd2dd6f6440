//! The rank's side of a statement: runs slices and moves rows between them. It never reads a catalog and
//! never parses SQL.
//!
//! ```text
//!   engine's SessionState ── Gang::statement ─► a plan of slices and motions (datafusion-distributed)
//!                                                  │ one call per slice and rank: plan, settings; back: metrics
//!                                                  │ one stream per output partition of a motion: rows
//!                                                  ▼
//!   RankService ──► datafusion-distributed's Worker ──► DataFusion's operators on this rank
//! ```
//!
//! The words `stage`, `task`, `worker` and `Url` are datafusion-distributed's and stay inside this crate: a
//! stage is a slice, a task is a slice on one rank, a worker is a rank.
//!
//! # Futures behind traits
//!
//! The traits of DataFusion and of datafusion-distributed are `#[async_trait]`. Here, and in the other crates
//! that implement them, their methods are written out in the form that the macro generates; they only forward
//! to a plain function, which boxes the future:
//!
//! ```ignore
//! impl QueryPlanner for GangPlanner {
//!     fn create_physical_plan<'a: 'f, 'b: 'f, 'c: 'f, 'f>(
//!         &'a self,
//!         plan: &'b LogicalPlan,
//!         session: &'c dyn Session,
//!     ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
//!         self.boxed_create_physical_plan(plan, session)
//!     }
//! }
//!
//! impl GangPlanner {
//!     fn boxed_create_physical_plan<'a>(
//!         &'a self,
//!         plan: &'a LogicalPlan,
//!         session: &'a dyn Session,
//!     ) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
//!         async move { … }.boxed()
//!     }
//! }
//! ```
//!
//! Boxing a future requires a proof that it is `Send`, which covers every type that it holds: expressions,
//! plans, sessions, and all that they are made of. The compiler caches such proofs, but not in a function
//! with bounds between lifetimes, which those of an `#[async_trait]` have: it repeats the proof for each
//! method.
//!
//! - A trait's method has a lifetime for each reference, in order, each with the bound `: 'f`, and `'f` at
//!   the end.
//! - The plain function is named `boxed_` and the method's name, and has no bounds.
//! - A method without an await returns `ready(…).boxed()`. The result of another such method is forwarded as
//!   it is.
//! - A trait of our own has one lifetime and no bounds, and is implemented in place:
//!   `formats::format_adapter::OwnFormat`.
//!
//! `docs/decisions/0025-boxed-futures-behind-traits.md` has upstream's measurements.
//!
//! # Modules
//!
//! - [`gang`]: membership of this rank, and recovery from lost ranks.
//! - [`distribution`]: distributed planning: slices, tasks, splits, colocated joins.
//! - [`transport`]: plans, settings, rows and errors between ranks, over MPI, gRPC or within a process.
//! - [`frontend`]: server processes as clients of a gang.
//! - [`operators`]: our own operators, and changes to DataFusion's.
//! - [`formats`]: external file formats: Parquet, ORC, Avro, Arrow, CSV, JSON, text.
//! - [`data_files`]: data files of warehouses and tables over files: writing, deletes, statistics.
//! - [`monitor`]: progress and resource usage of statements and ranks.
//! - [`functions`]: the functions that plans name.

pub mod data_files;
pub mod distribution;
mod file_versions;
pub mod formats;
pub mod frontend;
pub mod functions;
pub mod gang;
pub mod monitor;
pub mod operators;
pub mod transport;

pub use gang::{Gang, GangStatement, RowTransport, StatementOptions, interconnect_options};
pub use harrier_interconnect::{
    Carrier, ConfigurationFact, Departure, Launch, Peer, StartError, launch, launched_rank,
};
pub use transport::messages::Retained;
pub use transport::propagated_settings::{RowCodec, StoreProfiles};

/// This build of Harrier; ranks compare it when they join.
pub const VERSION: &str = env!("HARRIER_BUILD");

/// Resident memory of this process; 0 if the system does not report it.
fn resident_bytes() -> u64 {
    let Ok(text) = std::fs::read_to_string("/proc/self/status") else {
        return 0;
    };
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0) * 1024
}

/// CPU time of this process so far, all threads, nanoseconds.
pub fn process_cpu_ns() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID);
    time.map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}
