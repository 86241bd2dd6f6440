//! Programs that end without `MPI_D_Finalize`: their job has no answer, so they must not end as if it had.
//!
//! Nothing is said to the other ranks, which would be waited for: they lose this one, as its launcher tells,
//! or the end of its connections. But each says why the job has failed before it ends, whichever rank it was
//! that failed it: launchers end the others as soon as one has ended, so the first has to say it.

use crate::{BEGUN, UNTOLD};
use std::ffi::{c_int, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// What a program ends with that has not said otherwise.
const FAILED: c_int = 1;

/// The process that has begun a job: one that it forks ends by itself.
static PROCESS: AtomicU32 = AtomicU32::new(0);

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    /// Of the GNU C library: as `atexit`, and tells with which status.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    fn exit(status: c_int) -> !;
}

/// Watches the end of this process from now on. A job has begun.
pub fn watch() {
    static WATCHED: Once = Once::new();
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    #[cfg(target_env = "gnu")]
    WATCHED.call_once(|| {
        // SAFETY: the function takes what it is said to take, and the library that it is in stays loaded: see
        // build.rs.
        unsafe { on_exit(ends, std::ptr::null_mut()) };
    });
}

/// Called when the process ends by `exit`, or as its `main` returns. The state of the thread that ends it is
/// gone by then.
#[cfg(target_env = "gnu")]
extern "C" fn ends(status: c_int, _: *mut c_void) {
    if !BEGUN.load(Ordering::Relaxed) || PROCESS.load(Ordering::Relaxed) != std::process::id() {
        return;
    }
    let why = UNTOLD.lock().ok().and_then(|mut untold| untold.take());
    let why = why.map_or(String::new(), |why| format!(": {why}"));
    harrier_mpid::last_words(&format!("the program ends without MPI_D_Finalize, so its job has failed{why}"));
    if status == 0 {
        // SAFETY: the C library lets a function that it calls at the end say another status, and goes on from
        // there.
        unsafe { exit(FAILED) };
    }
}
