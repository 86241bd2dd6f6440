//! The rank's side of a statement: runs slices and moves rows between them; it never reads a catalog and
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
//! The traits of DataFusion and of datafusion-distributed are `#[async_trait]`. Their methods are written out
//! here, and in the other crates that implement them, as what that makes of an `async fn`; they only forward
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
//! Boxing a future takes a proof that it is `Send`, which goes through every type that it holds: expressions,
//! plans, sessions, and all that they are made of. The compiler remembers such proofs, but in a function with
//! bounds between lifetimes it does not, and those of an `#[async_trait]` have them: it proves everything
//! again for each method.
//!
//! - A trait's method has a lifetime for each reference, in their order, each with the bound `: 'f`, and `'f`
//!   at the end.
//! - The plain function is named `boxed_` and the method's name, and has no bounds.
//! - What waits for nothing is `ready(…).boxed()`. What another such method returns is passed on as it is.
//! - A trait of our own has one lifetime and no bounds, and is implemented in place:
//!   `formats::format_adapter::OwnFormat`.
//!
//! `docs/decisions/0025-boxed-futures-behind-traits.md` has the figures of upstream.
//!
//! # What is where
//!
//! - [`gang`]: this rank's place among the ranks, and what it does when others are lost.
//! - [`distribution`]: which part of a plan runs where: slices, tasks, files of each rank, joins of rows that
//!   lie together.
//! - [`transport`]: plans, settings, rows and errors on their way between ranks, over MPI, gRPC or within a
//!   process.
//! - [`frontend`]: a server's processes as clients of a gang.
//! - [`operators`]: operators of our own in plans, and what is done to DataFusion's.
//! - [`formats`]: files of others: Parquet, ORC, Avro, Arrow, CSV, JSON, text.
//! - [`data_files`]: the data files of warehouses and tables over files: what is written, what is shown, what
//!   is known of them.
//! - [`monitor`]: what statements and ranks are doing and have taken.
//! - [`functions`]: what plans call by name, with those of crate functions.

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

pub use gang::{Gang, Statement, StatementOptions, Transport, interconnect_options};
pub use harrier_interconnect::{
    Carrier, ConfigurationFact, Departure, Launch, Peer, StartError, launch, launched_rank,
};
pub use transport::messages::Kept;
pub use transport::propagated_settings::{RowCodec, StoreProfiles};

/// This build of Harrier, as ranks compare it when they meet.
pub const VERSION: &str = env!("HARRIER_BUILD");

/// Memory that this process takes: its pages that are in the machine's; 0 if the system does not tell.
fn resident_bytes() -> u64 {
    let Ok(text) = std::fs::read_to_string("/proc/self/status") else {
        return 0;
    };
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0) * 1024
}

/// Processor time of this process so far, all threads, nanoseconds.
pub fn process_cpu_ns() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID);
    time.map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}
