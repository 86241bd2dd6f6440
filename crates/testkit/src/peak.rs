//! The most memory that a process has had.

use std::fs;

/// Bytes in memory (resident) at most since the last call, or since its start; `None` where the system does
/// not tell.
///
/// Source: proc(5), `VmHWM` of `/proc/PID/status` and `5` for `/proc/PID/clear_refs`.
pub fn bytes(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let _ = fs::write(format!("/proc/{process}/clear_refs"), "5");
    Some(kilobytes << 10)
}
