//! Gangs whose ranks are engines of this process: their contract, fault injection, and resource leaks.
//!
//! The tests of this folder are one program, because each program links all of DataFusion. Those of one file:
//! `cargo test -p harrier-engine --test in_process faults::`.

mod contract;
#[path = "../../../harrier/tests/support/exchange_contract.rs"]
mod exchange_contract;
mod faults;
mod ledger;
mod plan_rewrites;
mod plans;
mod session_memory;

use harrier_sql::nesting::THREAD_STACK_BYTES;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// CPU time of this process: a test that measures it holds the lock exclusively.
static PROCESSOR: RwLock<()> = RwLock::new(());

/// Write lock for a test that measures CPU time: no other test runs beside it.
fn lock_cpu_time() -> RwLockWriteGuard<'static, ()> {
    PROCESSOR.write().unwrap_or_else(PoisonError::into_inner)
}

/// Read lock for every other test.
fn share_cpu_time() -> RwLockReadGuard<'static, ()> {
    PROCESSOR.read().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `test` on a stack as large as that of the threads that plan statements in the product.
fn on_statement_stack(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(THREAD_STACK_BYTES);
        let outcome = thread.spawn_scoped(scope, test).expect("a thread").join();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
