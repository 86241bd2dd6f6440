//! Description of the machine that a benchmark ran on.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::temporal_conversions::timestamp_s_to_datetime;
use serde_json::{Value, json};

/// Returns processor, cores, memory and system.
pub fn json() -> Value {
    json!({
        "cpu": cpu(),
        "cores": cores(),
        "memory_bytes": harrier_engine::memory_size::machine_bytes(),
        "kernel": fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
    })
}

/// Number of cores available to this process.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Current time in UTC, such as 2026-05-01T12:00:00Z.
pub fn now() -> String {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    timestamp_s_to_datetime(now_s as i64)
        .map(|time| time.format("%Y-%m-%dT%H:%M:%SZ").to_string())
        .unwrap_or_default()
}

fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}
