//! Exit hook for programs that end without `MPI_D_Finalize`: their job has no result, so they must not exit
//! with status 0.
//!
//! The other ranks are not notified, since the exit would have to wait for them: they detect the loss through
//! the launcher or through closed connections. Each rank prints why the job failed before it ends, whichever
//! rank failed it: launchers kill the others as soon as one has ended, so the first must print the reason.

use crate::{JOB_BEGAN, UNREPORTED_FAILURE};
use std::ffi::{c_int, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Exit status that replaces 0.
const FAILED: c_int = 1;

/// The process that began a job: a forked child may end without a message.
static PROCESS: AtomicU32 = AtomicU32::new(0);

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    /// GNU C library: like `atexit`, with the exit status.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    fn exit(status: c_int) -> !;
}

/// Registers the exit hook. Called when a job begins.
pub fn register() {
    static WATCHED: Once = Once::new();
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    #[cfg(target_env = "gnu")]
    WATCHED.call_once(|| {
        // SAFETY: the function has the signature that `on_exit` requires, and its library stays loaded: see
        // build.rs.
        unsafe { on_exit(check_finalized, std::ptr::null_mut()) };
    });
}

/// Runs when the process ends by `exit` or `main` returns. The exiting thread's thread-locals are gone by
/// then.
#[cfg(target_env = "gnu")]
extern "C" fn check_finalized(status: c_int, _: *mut c_void) {
    if !JOB_BEGAN.load(Ordering::Relaxed) || PROCESS.load(Ordering::Relaxed) != std::process::id() {
        return;
    }
    let why = UNREPORTED_FAILURE.lock().ok().and_then(|mut failure| failure.take());
    let why = why.map_or(String::new(), |why| format!(": {why}"));
    harrier_mpid::last_words(&format!("the program ends without MPI_D_Finalize, so its job has failed{why}"));
    if status == 0 {
        // SAFETY: glibc allows `exit` within an `on_exit` handler: it replaces the status and goes on with
        // the remaining handlers.
        unsafe { exit(FAILED) };
    }
}
