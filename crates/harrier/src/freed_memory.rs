//! Delay before freed memory is returned to the system (mimalloc's purge delay).

use std::time::Duration;

use harrier_mpi::allocator::keep_freed_memory;

/// Statements free and allocate the same sizes many times a second; an idle process returns its memory after
/// this delay.
const PURGE_DELAY: Duration = Duration::from_secs(10);

/// Below this memory limit, in bytes, freed memory is returned at once: a batch job is killed for its
/// resident memory, used or not, and that was up to twice the limit.
const MEMORY_BYTES_MIN: u64 = 2 << 30;

/// Sets the default delay. Call it first in the process.
pub(crate) fn set_purge_delay() {
    keep_freed_memory(PURGE_DELAY);
}

/// Sets the delay by the memory limit of statements, in bytes. Call it before they run.
pub(crate) fn limit_purge_delay(memory_bytes: Option<u64>) {
    if memory_bytes.is_some_and(|bytes| bytes < MEMORY_BYTES_MIN) {
        keep_freed_memory(Duration::ZERO);
    }
}
