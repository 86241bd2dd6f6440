//! Delay before the program's allocator returns freed memory to the system.
//!
//! Batches, hash tables and blocks are allocated and freed many times a second in sizes of up to a few MiB.
//! Memory returned to the system in between must be faulted in, zeroed and, for MPI, pinned again: on TPC-H
//! at scale 1 that was 8 % of the processor time of one process and 10 % of two ranks (`docs/benchmarks.md`).
#![allow(unsafe_code)]

use std::ffi::{c_int, c_long};
use std::time::Duration;

/// The index of `mi_option_purge_delay` in mimalloc 3's `mi_option_t`, milliseconds; the bindings do not name
/// it.
const PURGE_DELAY: c_int = 15;

/// Makes mimalloc, which must be the program's allocator, keep freed memory for `delay` before it returns it
/// to the system. Call it before there are threads that free much. `MIMALLOC_PURGE_DELAY` in the environment
/// has precedence.
pub fn keep_freed_memory(delay: Duration) {
    if std::env::var_os("MIMALLOC_PURGE_DELAY").is_some() {
        return;
    }
    let delay_ms = c_long::try_from(delay.as_millis()).unwrap_or(c_long::MAX);
    // SAFETY: changes one word of mimalloc's own table; other threads only read it and accept either value.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, delay_ms) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_the_purge_delay() {
        // SAFETY: only reads the option's value.
        let now = || unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        assert_eq!(now(), 1000, "mimalloc's default; another number is another option");
        keep_freed_memory(Duration::from_secs(7));
        assert_eq!(now(), 7000);
    }
}
