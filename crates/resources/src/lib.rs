//! What a statement may take of a process, what it takes, and whether it still goes on.
//!
//! - [`statement_limits`]: memory and spill of one statement, on every process that works for it;
//!   [`statement_memory`] counts them.
//! - [`value_account`]: bytes that values of functions take, which no operator reserves.
//! - [`spill_disks`]: folders for temporary files, and what they may hold. [`fair_merge_pool`]: sorts that
//!   share memory.
//! - [`cancellation`]: the flag of a statement that was given up. [`worker_handover`]: other tasks of a
//!   thread that computes for long.
//!
//! Knows of no plan, no rank and no function.

pub mod cancellation;
pub mod fair_merge_pool;
pub mod spill_disks;
pub mod statement_limits;
pub mod statement_memory;
pub mod value_account;
pub mod worker_handover;
