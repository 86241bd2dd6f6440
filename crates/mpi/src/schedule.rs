//! Scheduling latency of the calling thread when all cores are busy.
#![allow(unsafe_code)]

use std::io;
use std::time::Duration;

/// `struct sched_attr` of Linux, first version (48 bytes).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Requests scheduler slices of length `slice` for the calling thread: shorter, but sooner. Its share of the
/// processor stays the same. It suits a thread that does little at each wake-up and that others wait for.
///
/// Kernels before 6.12 ignore the length of the slice.
///
/// Errors: the kernel or a sandbox forbids it, which callers may ignore.
///
/// Source: sched_setattr(2); Linux, kernel/sched/fair.c (`PREEMPT_SHORT`).
pub fn set_slice(slice: Duration) -> io::Result<()> {
    // SAFETY: reads the calling thread's own nice value; takes integers only.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        nice,
        runtime_ns: slice.as_nanos() as u64,
        ..Attributes::default()
    };
    // SAFETY: the kernel reads `size` bytes of a struct that lives through the call; 0 is the calling thread.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &attributes, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_ask_for_short_slices() {
        std::thread::spawn(|| set_slice(Duration::from_micros(200)).unwrap()).join().unwrap();
    }
}
