//! Gangs whose ranks are engines of this process: what they promise, what they do when something goes wrong,
//! and what they hold.
//!
//! The tests of this folder are one program, for each program links all of DataFusion. Those of one file:
//! `cargo test -p harrier-engine --test in_process faults::`.

mod contract;
#[path = "../../../harrier/tests/support/exchange_contract.rs"]
mod exchange_contract;
mod faults;
mod ledger;
mod plans;
mod session_memory;

use harrier_sql::nesting::THREAD_STACK_BYTES;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The processor time of this process: whoever looks at it has it alone.
static PROCESSOR: RwLock<()> = RwLock::new(());

/// For a test that looks at processor time: no other one runs beside it.
fn alone() -> RwLockWriteGuard<'static, ()> {
    PROCESSOR.write().unwrap_or_else(PoisonError::into_inner)
}

/// For every other one.
fn together() -> RwLockReadGuard<'static, ()> {
    PROCESSOR.read().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `test` on a stack as large as that of the threads that plan statements in the product.
fn on_statement_stack(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(THREAD_STACK_BYTES);
        let done = thread.spawn_scoped(scope, test).expect("a thread").join();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
