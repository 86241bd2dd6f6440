//! Execution of one job: a test unit or a command; its log, durations, and test counts.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::cargo;
use crate::units::Unit;

/// Default timeout: longer jobs hang.
const SECONDS_MAX: u64 = 1500;

/// Time between SIGTERM and SIGKILL.
const END_WAIT: Duration = Duration::from_secs(10);

/// Runs a command with its output in a file, and records the CPU time of all its waited-for children: POSIX
/// `times`.
const WRAPPER: &str =
    r#"log=$1 times=$2; shift 2; "$@" >"$log" 2>&1 </dev/null; status=$?; times >"$times"; exit $status"#;

/// Work of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    Tests(Unit),
    /// A program and its arguments, run in the checkout.
    Command(Vec<String>),
}

/// A job for a lane.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub name: String,
    pub work: Work,
    /// Additional environment variables.
    pub environment: Vec<(String, String)>,
    /// The job that has to end before this one starts.
    pub after: Option<String>,
    /// Exit status that means: not possible on this machine.
    pub skip_status: Option<i32>,
    /// Timeout.
    pub seconds_max: u64,
}

impl Job {
    pub fn tests(unit: Unit) -> Self {
        Self::of(unit.name.clone(), Work::Tests(unit))
    }

    pub fn command(name: &str, words: &[&str]) -> Self {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Self::of(name.to_owned(), Work::Command(words))
    }

    fn of(name: String, work: Work) -> Self {
        Self { name, work, environment: vec![], after: None, skip_status: None, seconds_max: SECONDS_MAX }
    }

    pub fn after(mut self, name: &str) -> Self {
        self.after = Some(name.to_owned());
        self
    }

    /// Whether it must run exclusively.
    pub fn is_alone(&self) -> bool {
        matches!(&self.work, Work::Tests(unit) if unit.is_alone())
    }
}

/// Result of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    pub name: String,
    pub state: State,
    pub seconds: f64,
    /// CPU time of the process and of its waited-for children.
    pub cpu_seconds: f64,
    pub passed: usize,
    pub failed: usize,
    pub ignored: usize,
    /// Reasons of skipped tests, without duplicates.
    pub skipped: BTreeSet<String>,
    pub log: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Passed,
    Failed,
    /// Its tests passed before with byte-identical inputs.
    Remembered,
    /// Not possible on this machine.
    Skipped,
}

impl State {
    pub fn word(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Failed => "FAILED",
            Self::Remembered => "remembered",
            Self::Skipped => "skipped",
        }
    }
}

/// Runs a job; its log and times are in `logs`.
pub fn run(root: &Path, logs: &Path, job: &Job) -> Outcome {
    let started = Instant::now();
    let log = logs.join(format!("{}.log", file_name(&job.name)));
    let times = logs.join(format!("{}.times", file_name(&job.name)));
    let ended = start(root, job, &log, &times).and_then(|child| wait(child, started, job.seconds_max));
    let text = fs::read_to_string(&log).unwrap_or_default();
    let (passed, failed, ignored) = counts(&text);
    let cpu_seconds =
        fs::read_to_string(&times).ok().and_then(|times| children_seconds(&times)).unwrap_or(0.0);
    let _ = fs::remove_file(&times);
    let is_tests = matches!(job.work, Work::Tests(_));
    let state = match &ended {
        Ok(status) if status.success() => State::Passed,
        Ok(status) if job.skip_status.is_some() && status.code() == job.skip_status => State::Skipped,
        _ => State::Failed,
    };
    if let Err(message) = &ended {
        let _ = fs::write(&log, format!("{text}\n{message}\n"));
    }
    // A crashed program has failed, even without a failed test in its log; a step counts as one test.
    let failed = if state == State::Failed { failed.max(1) } else { failed };
    let passed = if state == State::Passed && !is_tests { passed.max(1) } else { passed };
    Outcome {
        name: job.name.clone(),
        state,
        seconds: started.elapsed().as_secs_f64(),
        cpu_seconds,
        passed,
        failed,
        ignored,
        skipped: skipped_in(&text),
        log,
    }
}

fn start(root: &Path, job: &Job, log: &Path, times: &Path) -> Result<Child, String> {
    let mut command = Command::new("sh");
    command.args(["-c", WRAPPER, "sh"]).arg(log).arg(times);
    match &job.work {
        Work::Command(words) => {
            // The outer cargo's variables would make build scripts run again.
            cargo::clear_package_variables(&mut command);
            command.args(words).current_dir(root)
        }
        Work::Tests(unit) => {
            command.arg(&unit.program.executable).arg("--show-output");
            if !unit.tests.is_empty() {
                command.arg("--exact").args(&unit.tests);
            }
            // As cargo runs it.
            command.env("CARGO_MANIFEST_DIR", &unit.program.folder).current_dir(&unit.program.folder)
        }
    };
    command.envs(job.environment.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).spawn().map_err(|error| format!("{}: {error}", job.name))
}

/// Waits for the end of a job; kills it with all its processes at its timeout.
fn wait(mut child: Child, started: Instant, seconds_max: u64) -> Result<ExitStatus, String> {
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok(status);
        }
        if started.elapsed().as_secs() > seconds_max {
            let processes = descendants(child.id());
            signal("TERM", &processes);
            let asked = Instant::now();
            while asked.elapsed() < END_WAIT && child.try_wait().map_err(|error| error.to_string())?.is_none()
            {
                std::thread::sleep(Duration::from_millis(100));
            }
            signal("KILL", &processes);
            let _ = child.wait();
            return Err(format!("ended because it took longer than {seconds_max} s"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// All descendants of a process, including itself.
fn descendants(of: u32) -> Vec<u32> {
    let parent = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // After the name in parentheses come the state and the parent.
        stat.rsplit_once(") ")?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all: Vec<(u32, u32)> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, parent(pid)?)))
        .collect();
    let mut found = vec![of];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(all.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found
}

fn signal(name: &str, processes: &[u32]) {
    let pids = processes.iter().map(u32::to_string);
    let _ = Command::new("kill").arg(format!("-{name}")).args(pids).stderr(Stdio::null()).status();
}

/// Passed, failed and ignored tests, summed over all lines `test result: …` of a log.
fn counts(log: &str) -> (usize, usize, usize) {
    let mut sums = (0, 0, 0);
    for line in log.lines().filter(|line| line.starts_with("test result: ")) {
        let number = |what: &str| -> usize {
            let before = line.split(what).next().unwrap_or_default();
            before.split_whitespace().last().and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        sums.0 += number(" passed");
        sums.1 += number(" failed");
        sums.2 += number(" ignored");
    }
    sums
}

/// Names of failed tests.
pub fn failures_in(log: &str) -> Vec<&str> {
    let name = |line| str::strip_suffix(str::strip_prefix(line, "test ")?, " ... FAILED");
    log.lines().filter_map(name).collect()
}

/// Skip messages of tests: `skipped: why`, or the reason between two lines of `=`.
fn skipped_in(log: &str) -> BTreeSet<String> {
    let mut skipped = BTreeSet::new();
    let mut lines = log.lines();
    while let Some(line) = lines.next() {
        if let Some((_, why)) = line.split_once("skipped: ") {
            skipped.insert(why.to_owned());
        } else if line.contains("=== SKIPPED ===") {
            skipped.extend(lines.next().map(str::to_owned));
        }
    }
    skipped
}

/// The second line of `times`: user and system time of waited-for children, as `1m2.345s`.
fn children_seconds(times: &str) -> Option<f64> {
    let seconds = |word: &str| {
        let (minutes, seconds) = word.strip_suffix('s')?.split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
    };
    times.lines().nth(1)?.split_whitespace().map(seconds).sum()
}

/// Converts a name to a file name.
fn file_name(name: &str) -> String {
    let plain = |sign: char| if sign.is_ascii_alphanumeric() || "-_.".contains(sign) { sign } else { '_' };
    name.replace("::", ".").chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_command(words: &[&str]) -> (Outcome, String) {
        let folder = tempfile::tempdir().unwrap();
        let mut job = Job::command("a step", words);
        job.skip_status = Some(77);
        let outcome = run(folder.path(), folder.path(), &job);
        let log = fs::read_to_string(&outcome.log).unwrap();
        (outcome, log)
    }

    #[test]
    fn output_and_status_of_a_command_are_kept() {
        let (outcome, log) = run_command(&["sh", "-c", "echo out; echo err >&2"]);
        assert_eq!((outcome.state, outcome.passed, outcome.failed), (State::Passed, 1, 0));
        assert_eq!(log, "out\nerr\n");
        let (outcome, _) = run_command(&["sh", "-c", "exit 3"]);
        assert_eq!((outcome.state, outcome.passed, outcome.failed), (State::Failed, 0, 1));
        let (outcome, _) = run_command(&["sh", "-c", "exit 77"]);
        assert_eq!((outcome.state, outcome.failed), (State::Skipped, 0));
        let (outcome, _) = run_command(&["/nowhere/no-program"]);
        assert_eq!(outcome.state, State::Failed);
    }

    #[test]
    fn results_of_tests_are_summed() {
        let log = "test a ... ok\ntest result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 5 filtered out; finished in 1.00s\n\
                   test b::c ... FAILED\ntest result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s\n";
        assert_eq!(counts(log), (5, 1, 1));
        assert_eq!(failures_in(log), ["b::c"]);
    }

    #[test]
    fn what_is_left_out_is_found() {
        let log = "x\nskipped: no MPI\nskipped: no MPI\n================ SKIPPED ================\ns3: no Go\n=====\n";
        assert_eq!(skipped_in(log).into_iter().collect::<Vec<_>>(), ["no MPI", "s3: no Go"]);
    }

    #[test]
    fn times_of_children_are_read() {
        assert_eq!(children_seconds("0m0.00s 0m0.00s\n1m1.50s 0m0.25s\n"), Some(61.75));
        assert_eq!(children_seconds("nothing"), None);
    }

    #[test]
    fn a_process_is_among_its_descendants() {
        assert!(descendants(std::process::id()).contains(&std::process::id()));
    }
}
