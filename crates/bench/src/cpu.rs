//! CPU time of a process and all its descendants, from their clocks and from /proc.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use nix::time::ClockId;
use nix::unistd::Pid;

/// Ticks per second in /proc/<pid>/stat: `USER_HZ` of the Linux ABI on x86-64 and on ARM.
const TICKS_PER_S: u64 = 100;

/// Returns the user and system time so far of process `root` and its descendants, including those that have
/// exited and were reaped; 0 if `root` has exited. Exited processes count in steps of 10 ms, and so do all if
/// the system has no clocks of other processes.
pub fn tree(root: u32) -> Duration {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut used: HashMap<u32, Used> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may exit between the listing and the reading.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some((parent, ticks)) = parse(&stat) {
            children.entry(parent).or_default().push(pid);
            used.insert(pid, ticks);
        }
    }
    let mut sum = Duration::ZERO;
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        if let Some(used) = used.get(&pid) {
            sum += clock(pid).unwrap_or_else(|| time_of(used.own_ticks)) + time_of(used.ended_ticks);
        }
        open.extend(children.remove(&pid).into_iter().flatten());
    }
    sum
}

/// Reads a process's own CPU clock, over all threads: a statement may take less than a tick. `None` if the
/// system does not provide it.
fn clock(pid: u32) -> Option<Duration> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?);
    Some(ClockId::pid_cpu_clock_id(pid).ok()?.now().ok()?.into())
}

fn time_of(ticks: u64) -> Duration {
    Duration::from_millis(ticks * 1000 / TICKS_PER_S)
}

/// User and system time.
#[derive(Debug, PartialEq, Eq)]
struct Used {
    own_ticks: u64,
    /// Of reaped children.
    ended_ticks: u64,
}

/// Parses the parent, utime + stime, and cutime + cstime (proc(5), fields 4 and 14 to 17).
fn parse(stat: &str) -> Option<(u32, Used)> {
    // The second field is the program's name in parentheses and may contain blanks and parentheses.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let parent = u32::try_from(number(4)?).ok()?;
    let used = Used { own_ticks: number(14)? + number(15)?, ended_ticks: number(16)? + number(17)? };
    Some((parent, used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_stat_is_read() {
        let stat = "77 (a (b) c) S 12 77 77 0 -1 4194304 1 2 3 4 50 6 700 8 20 0 1 0 5 6 7";
        assert_eq!(parse(stat), Some((12, Used { own_ticks: 56, ended_ticks: 708 })));
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

    #[test]
    fn another_process_has_a_clock() {
        use std::io::Read;
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "echo began; read -r line"]);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        // It has printed something, which takes less than a tick but more than no time.
        child.stdout.take().unwrap().read_exact(&mut [0; 5]).unwrap();
        assert!(clock(child.id()).is_some_and(|used| used > Duration::ZERO));
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
