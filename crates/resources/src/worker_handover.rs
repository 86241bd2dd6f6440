//! Hands the waiting tasks of a runtime thread to another thread while a task computes without yielding.
//!
//! A worker thread polls one task after the other. A join whose condition rejects almost all pairs, a
//! function over long texts or an optimizer rule can compute for hours inside one poll. With as many of those
//! as there are threads nothing else is served: no `SELECT 1`, and no `pg_cancel_backend` that would end
//! them. Code that polls the flag of its statement ([`crate::cancellation`]) also does this: its thread hands
//! the waiting tasks to another thread and continues with its own, so that the operating system shares the
//! cores among them.
//!
//! The interval is for fairness alone: correctness does not depend on the clock.
//!
//! The front end of a server enables this ([`enable`]). A rank does not: with it, a statement retried after
//! the loss of a host failed with that loss in about half of the runs of `cluster::host_failures`, for an
//! unknown reason.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// Maximum time that a thread computes before it hands over the waiting tasks.
const TURN: Duration = Duration::from_millis(20);

/// Time for another thread to start and take them: a four hundredth of a turn.
const HANDOVER: Duration = Duration::from_micros(50);

static IS_ENABLED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// When this thread last handed over its tasks, or was first asked to.
    static HANDED_OVER: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Enables handover in this process.
pub fn enable() {
    IS_ENABLED.store(true, Ordering::Relaxed);
}

/// Hands over the tasks waiting for this thread, if a turn has passed since the last time. Returns at once
/// except on a thread of a multi-threaded runtime.
pub fn hand_over() {
    if !IS_ENABLED.load(Ordering::Relaxed) {
        return;
    }
    let now = Instant::now();
    match HANDED_OVER.get() {
        Some(last) if now.duration_since(last) < TURN => return,
        Some(_) if has_other_threads() => block_in_place(|| thread::sleep(HANDOVER)),
        _ => {}
    }
    HANDED_OVER.set(Some(now));
}

fn has_other_threads() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Enough for the slowest machine.
    const TIMEOUT: Duration = Duration::from_secs(60);

    #[test]
    fn tasks_of_a_busy_worker_move_to_another() {
        enable();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_over);
        let computing = runtime.spawn(async move {
            let began = Instant::now();
            while !seen.load(Ordering::Relaxed) && began.elapsed() < TIMEOUT {
                hand_over();
            }
            seen.load(Ordering::Relaxed)
        });
        // It waits for the only thread.
        runtime.spawn(async move { is_over.store(true, Ordering::Relaxed) });
        assert!(runtime.block_on(computing).unwrap());
    }

    #[test]
    fn a_runtime_of_one_thread_is_left_alone() {
        enable();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            HANDED_OVER.set(Instant::now().checked_sub(2 * TURN));
            hand_over();
        });
        HANDED_OVER.set(Instant::now().checked_sub(2 * TURN));
        hand_over();
    }
}
