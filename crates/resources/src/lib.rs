//! Resource limits, accounting and cancellation of statements.
//!
//! - [`statement_limits`]: memory and spill limits per statement, on every process that works for it;
//!   [`statement_memory`] counts its memory.
//! - [`value_account`]: memory of function results, which no operator reserves.
//! - [`spill_disks`]: folders for temporary files, and their limits. [`fair_merge_pool`]: fair memory for
//!   sorts and merges.
//! - [`cancellation`]: the cancellation flag of a statement. [`worker_handover`]: lets other tasks of a busy
//!   worker thread run.
//!
//! Knows no plans, ranks or functions.

pub mod cancellation;
mod delegation;
pub mod fair_merge_pool;
pub mod spill_disks;
pub mod statement_limits;
pub mod statement_memory;
pub mod value_account;
pub mod worker_handover;
