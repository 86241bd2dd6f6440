//! Memory sizes as text, and the memory available to this process.

use std::fs;
use std::path::Path;

use harrier_error::{SqlError, SqlState};
use harrier_functions::parse::byte_size::MEMORY_BYTES_MIN;
pub use harrier_functions::parse::byte_size::parse_bytes;

/// The default share of the machine's memory that a process uses. The rest is for what DataFusion does not
/// account for: decoding buffers, allocator slack, the page cache.
const DEFAULT_MEMORY_PERCENT: u64 = 80;

/// Formats `bytes` in the largest binary unit that leaves at least one: `7.5GiB`.
pub fn format_bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value.fract() < 0.05 {
        format!("{value:.0}{}", units[unit])
    } else {
        format!("{value:.1}{}", units[unit])
    }
}

/// Memory of this machine, or of this process's control group where that is less, in bytes. `None` where the
/// kernel does not report it.
pub fn machine_bytes() -> Option<u64> {
    let machine = mem_total_bytes(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let group = fs::read_to_string("/proc/self/cgroup")
        .ok()
        .and_then(|groups| cgroup_limit_bytes(&groups, Path::new("/sys/fs/cgroup")));
    Some(group.map_or(machine, |group| group.min(machine)))
}

/// The default memory limit of a process that has the machine to itself, without `--memory`.
pub fn default_bytes() -> Option<u64> {
    default_bytes_of(1)
}

/// The default memory limit of each of several processes on this machine, without `--memory`.
pub fn default_bytes_of(processes: u64) -> Option<u64> {
    let machine = machine_bytes().map(|bytes| share_of_machine(bytes, processes));
    let here = address_space_bytes().map(default_of_address_space);
    machine.into_iter().chain(here).min()
}

/// Memory of a process before it runs a statement, plus what writers and decoders allocate beyond their
/// accounting.
const UNCOUNTED_BYTES: u64 = 150_000_000;

/// A small machine or control group keeps a larger reserve than the usual share: a process killed by the
/// kernel reports no error.
fn share_of_machine(bytes: u64, processes: u64) -> u64 {
    let usual = bytes / 100 * DEFAULT_MEMORY_PERCENT;
    let rest = bytes.saturating_sub(UNCOUNTED_BYTES.saturating_mul(processes));
    (usual.min(rest) / processes.max(1)).max(MEMORY_BYTES_MIN * 16)
}

/// The limit on this process's address space (`ulimit -v`) in bytes; `None` without one.
pub fn address_space_bytes() -> Option<u64> {
    address_space_limit(&fs::read_to_string("/proc/self/limits").ok()?)
}

fn address_space_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Address space mapped in addition to statement memory and stacks: the binary, its libraries, and memory
/// shared with other ranks.
const MAPPED_BYTES: u64 = 512 << 20;

/// An allocator maps more than it hands out, so statements get half of the remainder.
fn default_of_address_space(limit: u64) -> u64 {
    (limit.saturating_sub(MAPPED_BYTES) / 2).max(MEMORY_BYTES_MIN * 64)
}

/// Checks that `threads` threads with stacks of `stack_bytes` fit into this process's address-space limit.
///
/// Errors: 53200, with the limit.
pub fn check_stacks(threads: usize, stack_bytes: usize) -> Result<(), SqlError> {
    let needed = MAPPED_BYTES + threads as u64 * stack_bytes as u64;
    match address_space_bytes() {
        Some(limit) if limit < needed => Err(SqlError::new(
            SqlState::OUT_OF_MEMORY,
            format!(
                "{threads} threads need {} of address space, and the limit is {}",
                format_bytes(needed),
                format_bytes(limit)
            ),
        )
        .with_hint("raise ulimit -v, or run fewer threads with --threads")),
        _ => Ok(()),
    }
}

fn mem_total_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The lowest limit between this process's control group and the root, for cgroup v2 (one line `0::/path`)
/// and v1 (a line whose controllers contain `memory`).
fn cgroup_limit_bytes(groups: &str, root: &Path) -> Option<u64> {
    let mut least = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let (base, file) = if controllers.is_empty() {
            (root.to_path_buf(), "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            (root.join("memory"), "memory.limit_in_bytes")
        } else {
            continue;
        };
        let mut folder = base.join(path.trim_start_matches('/'));
        while folder.starts_with(&base) {
            // "max" and version 1's huge number both mean unlimited; the first does not parse, the second is
            // above the machine's memory.
            if let Some(limit) =
                fs::read_to_string(folder.join(file)).ok().and_then(|text| text.trim().parse::<u64>().ok())
            {
                least = Some(least.map_or(limit, |l: u64| l.min(limit)));
            }
            if !folder.pop() {
                break;
            }
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_machines_reserve_a_larger_share() {
        let mib = |bytes: u64| bytes >> 20;
        assert_eq!(mib(share_of_machine(10 << 30, 1)), 8192 - 1);
        assert_eq!(mib(share_of_machine(512 << 20, 1)), 368);
        assert_eq!(mib(share_of_machine(1 << 30, 4)), 112);
        // A minimum is always left.
        assert_eq!(mib(share_of_machine(200 << 20, 4)), 16);
    }

    #[test]
    fn a_limit_of_address_space_counts() {
        let limits = |soft: &str| {
            format!("Limit  Soft Limit  Hard Limit  Units\nMax address space  {soft}  unlimited  bytes\n")
        };
        assert_eq!(address_space_limit(&limits("unlimited")), None);
        assert_eq!(address_space_limit(&limits("921600000")), Some(921_600_000));
        assert_eq!(default_of_address_space(3 << 30), 1280 << 20);
        assert_eq!(default_of_address_space(600 << 20), 64 << 20);
    }

    #[test]
    fn sizes() {
        let cases: &[(&str, Option<u64>)] = &[
            ("8GiB", Some(8 << 30)),
            ("8gib", Some(8 << 30)),
            ("8 GiB", Some(8 << 30)),
            ("8g", Some(8 << 30)),
            ("512MB", Some(512 << 20)),
            ("64MiB", Some(64 << 20)),
            ("1.5GiB", Some(3 << 29)),
            ("2097152", Some(2 << 20)),
            ("2048k", Some(2 << 20)),
            ("1TiB", Some(1 << 40)),
            ("", None),
            ("GiB", None),
            ("-1GiB", None),
            ("8GiBs", None),
            ("8 Gi B", None),
            ("1..5GiB", None),
            ("0", None),
            ("100", None),
            ("99999999999999999999TiB", None),
        ];
        for (text, expected) in cases {
            let got = parse_bytes(text);
            assert_eq!(got.as_ref().ok(), expected.as_ref(), "{text:?}: {got:?}");
            if let Err(error) = got {
                assert_eq!(error.sqlstate, SqlState::INVALID_PARAMETER_VALUE);
            }
        }
    }

    #[test]
    fn sizes_are_printed_in_the_largest_unit() {
        for (bytes, expected) in
            [(0, "0B"), (1023, "1023B"), (1024, "1KiB"), (3 << 29, "1.5GiB"), (64 << 20, "64MiB")]
        {
            assert_eq!(format_bytes(bytes), expected);
        }
    }

    #[test]
    fn machine() {
        assert_eq!(mem_total_bytes("MemTotal:       1000 kB\nMemFree: 1 kB\n"), Some(1_024_000));
        assert_eq!(mem_total_bytes("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn the_lowest_cgroup_limit_applies() {
        let root = std::env::temp_dir().join(format!("harrier-cgroup-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir_all(root.join("memory/c")).unwrap();
        fs::write(root.join("a/memory.max"), "1000\n").unwrap();
        fs::write(root.join("a/b/memory.max"), "max\n").unwrap();
        fs::write(root.join("memory/c/memory.limit_in_bytes"), "500\n").unwrap();
        assert_eq!(cgroup_limit_bytes("0::/a/b\n", &root), Some(1000));
        assert_eq!(cgroup_limit_bytes("0::/\n", &root), None);
        assert_eq!(cgroup_limit_bytes("3:cpu:/c\n2:memory:/c\n", &root), Some(500));
        fs::remove_dir_all(&root).unwrap();
    }
}
