//! Lets the other tasks of a runtime's thread go on elsewhere while one computes without a pause.
//!
//! A thread of the runtime polls one task after the other. A join whose condition takes next to no pairs, a
//! function over long texts and a rule of the planner can compute for hours inside of one poll, and with as
//! many of those as there are threads nobody is answered: no `SELECT 1`, and no `pg_cancel_backend` that
//! would end them. What looks at the flag of its statement ([`crate::cancellation`]) does this as well: its
//! thread hands the tasks that wait to another thread and goes on with its own task, so that the operating
//! system shares the cores among them.
//!
//! How often is for fairness alone: nothing is decided by the clock.
//!
//! The front end of a server does so ([`enable`]). A rank does not: with it, a statement that is run again
//! after the loss of a host failed with that loss in about half of the runs of `cluster::hosts`, for a reason
//! that is not known.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// How long a thread computes at most before the tasks that wait for it are handed over.
const TURN: Duration = Duration::from_millis(20);

/// What another thread takes to start and to take them: a four hundredth of a turn.
const HANDOVER: Duration = Duration::from_micros(50);

static IS_ENABLED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// When this thread handed its tasks over, or was first asked to.
    static HANDED_OVER: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Has this process hand tasks over.
pub fn enable() {
    IS_ENABLED.store(true, Ordering::Relaxed);
}

/// Hands over the tasks that wait for this thread, if a turn has passed since it last did. Returns at once
/// anywhere but on a thread of a runtime that has several.
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

    /// As long as the slowest machine takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn tasks_of_a_thread_that_computes_go_on() {
        enable();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_over);
        let computing = runtime.spawn(async move {
            let began = Instant::now();
            while !seen.load(Ordering::Relaxed) && began.elapsed() < PATIENCE {
                hand_over();
            }
            seen.load(Ordering::Relaxed)
        });
        // It waits for the only thread there is.
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
