//! How long freed memory stays with the process.

use std::time::Duration;

use harrier_mpi::allocator::keep_freed_memory;

/// A statement frees and allocates the same sizes many times a second; who stops running statements has the
/// memory back soon.
const KEPT: Duration = Duration::from_secs(10);

/// With less memory than that, in bytes, what is freed goes back to the system at once: a batch job is killed
/// for what its process has, whether it still needs it or not, and that was up to twice the limit.
const KEPT_FROM: u64 = 2 << 30;

/// To be called first of all.
pub(crate) fn keep() {
    keep_freed_memory(KEPT);
}

/// To be called when the memory of statements is known, in bytes, and before they run.
pub(crate) fn keep_within(memory_bytes: Option<u64>) {
    if memory_bytes.is_some_and(|bytes| bytes < KEPT_FROM) {
        keep_freed_memory(Duration::ZERO);
    }
}
