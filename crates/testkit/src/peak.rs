//! Peak memory of a process.

use std::fs;

/// Peak resident memory in bytes since the last call, or since the process start; `None` if the system does
/// not report it.
///
/// Source: proc(5), `VmHWM` of `/proc/PID/status` and `5` for `/proc/PID/clear_refs`.
pub fn bytes(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let _ = fs::write(format!("/proc/{process}/clear_refs"), "5");
    Some(kilobytes << 10)
}
