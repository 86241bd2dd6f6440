//! MapReduce-style jobs over key-value pairs: O tasks emit pairs, A tasks receive them. Must not depend on
//! SQL or query plans.
//!
//! ```text
//!   O task ─ emit ─► combine ─► blocks ══ interconnect ══► sort, combine, spill ─► merge ─► A task
//!   anywhere          table      one for each A task        while O tasks still run           where its pairs are
//! ```
//!
//! - [`World`]: the ranks that run jobs together; a single process needs no MPI.
//! - [`Job`]: types, partitioner, combiner and order of the pairs. [`Job::run`] runs it once, [`Job::round`]
//!   iterates over data that stays in memory ([`Kept`]), [`Job::stream`] processes windows of unbounded
//!   inputs.
//! - [`Datum`]: codec of keys and values. [`Config`]: all settings. [`Report`]: a job's counters.
//! - [`session`]: the same API on byte strings, for other languages.
//! - `arrow` (a feature, off by default): rows of Arrow columns as keys and values.
//! - [`input`]: text files, split at line boundaries.
//!
//! # Threads
//! User functions run on [`Config::threads`] threads, plus one merger thread for each of them and one mover
//! thread for each rank.
//!
//! # Memory bound
//! [`Config::memory_share`] of a rank's memory for received pairs; blocks in flight are bounded by
//! `exchange.rs`.
//!
//! # Errors
//! [`Error`]: the same on every rank. A panic of a user function fails only its job.
//!
//! Source: the papers on MPI-D (Lu et al., 2011) and DataMPI (Hive on DataMPI, sections II and IV).

#[cfg(feature = "arrow")]
pub mod arrow;
pub mod input;
pub mod session;

mod checkpoint;
mod config;
mod control;
mod counters;
mod datum;
mod emit;
mod error;
mod exchange;
mod hash;
mod job;
mod origin;
mod outcome;
mod records;
mod running;
mod runs;
mod sample;
mod sizes;
mod spill;
mod store;
mod stream;
mod table;
mod warnings;
mod wire;
mod world;

pub use config::{A_TASKS_MAX, Config, Mode, O_TASKS_MAX, Parallelism, VARIABLES};
pub use counters::{Counters, Report, SPANS_MAX, Span};
pub use datum::{Datum, List, ListView, Rejected, append};
pub use emit::EmitError;
pub use error::{BoxError, Cause, Error, Side, TaskError};
pub use hash::hash;
pub use job::{ATask, Group, Job, Kept, OTask, Outcome, PairView, Pairs, ReceiveError};
pub use outcome::{BROKEN, JOINED, NOT_LEFT, OUTCOME, WITHOUT_OTHERS};
pub use sample::Ranges;
pub use sizes::bytes_of;
pub use stream::{StreamTask, Window};
pub use warnings::{last_words, tell_warnings};
pub use wire::Damaged;
pub use world::World;
