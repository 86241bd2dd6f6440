//! The rank's side of a statement: runs slices and moves rows between them; it never reads a catalog and never parses SQL.
//!
//! ```text
//!   engine's SessionState ── Gang::statement ─► a plan of slices and motions (datafusion-distributed)
//!                                                  │ one call per slice and rank: plan, settings; back: metrics
//!                                                  │ one stream per output partition of a motion: rows
//!                                                  ▼
//!   RankService ──► datafusion-distributed's Worker ──► DataFusion's operators on this rank
//! ```
//!
//! The words `stage`, `task`, `worker` and `Url` are datafusion-distributed's and stay inside this crate: a stage is a
//! slice, a task is a slice on one rank, a worker is a rank.
//!
//! # Futures behind traits
//!
//! The traits of DataFusion and of datafusion-distributed are `#[async_trait]`. Their methods are written out here, and in
//! the other crates that implement them, as what that makes of an `async fn`; they only forward to a plain function, which
//! boxes the future:
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
//! Boxing a future takes a proof that it is `Send`, which goes through every type that it holds: expressions, plans,
//! sessions, and all that they are made of. The compiler remembers such proofs, but in a function with bounds between
//! lifetimes it does not, and those of an `#[async_trait]` have them: it proves everything again for each method.
//!
//! - A trait's method has a lifetime for each reference, in their order, each with the bound `: 'f`, and `'f` at the end.
//! - The plain function is named `boxed_` and the method's name, and has no bounds.
//! - What waits for nothing is `ready(…).boxed()`. What another such method returns is passed on as it is.
//! - A trait of our own has one lifetime and no bounds, and is implemented in place: `file_formats::OwnFormat`.
//!
//! `docs/decisions/0025-boxed-futures-behind-traits.md` has the figures of upstream.
//!
//! # What is where
//!
//! - [`Gang`]: this rank's place among the ranks. [`functions`]: what plans call by name, with those of crate functions.
//! - [`cancelable_joins`]: joins that look at the flag of their statement.

pub mod archives;
pub mod arrow_files;
pub mod avro;
pub mod delimited;
pub mod desk;
pub mod file_formats;
pub mod front;
pub mod orc;
pub mod wire;

mod audit;
mod broadcasts;
mod bucket_place;
pub mod cancelable_joins;
mod channel;
pub mod clocks;
mod colocate;
mod convert;
pub mod damaged;
pub mod dispatch;
pub mod distinct_names;
mod encoded;
mod file_versions;
pub mod functions;
mod gang;
mod grpc;
pub mod grpc_batches;
pub mod history;
mod inprocess;
mod janitor;
pub mod local_sockets;
pub mod look;
mod loss;
mod merged_schemas;
mod metrics;
pub mod parquet_scans;
pub mod plan_codec;
mod planner;
mod planning;
mod service;
mod settings;
pub mod slices;
mod splits;
pub mod streams;
pub mod table_files;
pub mod tasks;
pub mod text_scans;
pub mod took;
pub mod unordered;
pub mod whole_sinks;

pub use gang::{Gang, Statement, StatementOptions, Transport, interconnect_options};
pub use harrier_interconnect::{Carrier, Departure, Launch, Peer, StartError, Told, launch, launched_rank};
pub use settings::{RowCodec, StoreProfiles};
pub use wire::Kept;

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
