//! The CPU time of a process and all its descendants, from /proc.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// Ticks a second in /proc/<pid>/stat: `USER_HZ` of the Linux ABI on x86-64 and on ARM.
const TICKS_PER_S: u64 = 100;

/// The user and system time used so far by process `root`, by those that come from it, and by those of them that have ended
/// and were waited for. Nothing for a process that has gone. In steps of 10 ms for each process.
pub fn tree(root: u32) -> Duration {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut ticks: HashMap<u32, u64> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may end between the listing and the reading.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some((parent, used)) = parse(&stat) {
            children.entry(parent).or_default().push(pid);
            ticks.insert(pid, used);
        }
    }
    let mut sum = 0;
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        sum += ticks.get(&pid).copied().unwrap_or(0);
        open.extend(children.remove(&pid).into_iter().flatten());
    }
    Duration::from_millis(sum * 1000 / TICKS_PER_S)
}

/// The parent, and utime + stime + cutime + cstime (proc(5), fields 4 and 14 to 17).
fn parse(stat: &str) -> Option<(u32, u64)> {
    // The second field is the program's name in brackets and may hold blanks and brackets.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let parent = u32::try_from(number(4)?).ok()?;
    Some((parent, number(14)? + number(15)? + number(16)? + number(17)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_stat_is_read() {
        let stat = "77 (a (b) c) S 12 77 77 0 -1 4194304 1 2 3 4 50 6 700 8 20 0 1 0 5 6 7";
        assert_eq!(parse(stat), Some((12, 764)));
        assert_eq!(parse(""), None);
    }

    #[test]
    fn work_shows() {
        let before = tree(std::process::id());
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(300) {
            std::hint::black_box(start);
        }
        assert!(tree(std::process::id()) > before);
    }
}
