//! Output of a run: a line for each job when it ends, a table of durations, what was left out, and `N passed,
//! N failed`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::run::{Outcome, State, failures_in};

/// Maximum number of log lines shown for a failed job.
const LINES_SHOWN: usize = 120;

/// Column names of the table.
const HEAD: &str = "name\tseconds\tcpu_seconds\tstate\tpassed\tfailed\tignored\n";

/// Prints progress and durations of a run.
pub struct Report {
    started: Instant,
    is_quiet: bool,
}

impl Report {
    pub fn new() -> Self {
        Self { started: Instant::now(), is_quiet: false }
    }

    #[cfg(test)]
    pub fn quiet() -> Self {
        Self { started: Instant::now(), is_quiet: true }
    }

    fn line(&self, text: &str) {
        if !self.is_quiet {
            println!("{text}");
        }
    }

    pub fn step(&self, text: &str) {
        self.line(&format!("==> {text}"));
    }

    /// Prints the outcome of a job, with its log if it has failed.
    pub fn print_outcome(&self, outcome: &Outcome) {
        let at = self.started.elapsed().as_secs();
        self.line(&format!(
            "{at:>5} s  {:<10} {:>7.1} s  {}",
            outcome.state.word(),
            outcome.seconds,
            outcome.name
        ));
        if outcome.state == State::Failed {
            let log = fs::read_to_string(&outcome.log).unwrap_or_default();
            let log = excerpt(&log);
            self.line(&format!(
                "---- {}\n{log}\n---- the whole log: {}",
                outcome.name,
                outcome.log.display()
            ));
        }
    }

    /// Prints the running jobs and their durations.
    pub fn print_running(&self, running: &BTreeMap<String, Instant>, waiting: usize) {
        let since = |(name, begun): (&String, &Instant)| format!("{name} ({} s)", begun.elapsed().as_secs());
        let running: Vec<String> = running.iter().map(since).collect();
        let at = self.started.elapsed().as_secs();
        self.line(&format!("{at:>5} s  … {}; {waiting} wait", running.join(", ")));
    }

    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}

/// Excerpt of a long log: from the first failure on, and its end.
fn excerpt(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let failures = lines.iter().position(|line| *line == "failures:").unwrap_or(0);
    let lines = &lines[failures..];
    if lines.len() <= LINES_SHOWN {
        return lines.join("\n");
    }
    let half = LINES_SHOWN / 2;
    let left_out = lines.len() - LINES_SHOWN;
    format!(
        "{}\n[… {left_out} lines …]\n{}",
        lines[..half].join("\n"),
        lines[lines.len() - half..].join("\n")
    )
}

/// Units left out of a run, with reasons.
#[derive(Debug, Default)]
pub struct LeftOut {
    /// Units that this tier does not run this time, by reason.
    pub by_reason: BTreeMap<String, Vec<String>>,
}

impl LeftOut {
    pub fn add(&mut self, reason: &str, name: &str) {
        self.by_reason.entry(reason.to_owned()).or_default().push(name.to_owned());
    }
}

/// Writes the table of durations.
///
/// Errors: the file cannot be written.
pub fn write_table(path: &Path, outcomes: &[Outcome]) -> Result<(), String> {
    let row = |outcome: &Outcome| {
        format!(
            "{}\t{:.1}\t{:.1}\t{}\t{}\t{}\t{}\n",
            outcome.name,
            outcome.seconds,
            outcome.cpu_seconds,
            outcome.state.word(),
            outcome.passed,
            outcome.failed,
            outcome.ignored
        )
    };
    let rows: String = outcomes.iter().map(row).collect();
    fs::write(path, format!("{HEAD}{rows}")).map_err(|error| format!("{}: {error}", path.display()))
}

/// Prints the summary of a run: the longest jobs, what was skipped, remembered and left out, and the totals.
/// Returns whether all passed.
pub fn conclude(report: &Report, outcomes: &[Outcome], left_out: &LeftOut, table: &Path) -> bool {
    let mut longest: Vec<&Outcome> =
        outcomes.iter().filter(|outcome| outcome.state != State::Remembered).collect();
    longest.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    println!("\nlongest ({} has all):", table.display());
    for outcome in longest.iter().take(12) {
        println!(
            "{:>9.1} s {:>9.1} s of processor time  {}",
            outcome.seconds, outcome.cpu_seconds, outcome.name
        );
    }
    let mut skipped: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for outcome in outcomes {
        for why in &outcome.skipped {
            skipped.entry(why).or_default().push(&outcome.name);
        }
        if outcome.state == State::Skipped && outcome.skipped.is_empty() {
            skipped.entry("it cannot be done on this machine").or_default().push(&outcome.name);
        }
    }
    if !skipped.is_empty() {
        println!("\nskipped on this machine:");
        for (why, names) in skipped {
            println!("    {why}: {}", names.join(", "));
        }
    }
    let remembered: Vec<&Outcome> =
        outcomes.iter().filter(|outcome| outcome.state == State::Remembered).collect();
    if !remembered.is_empty() {
        let tests: usize = remembered.iter().map(|outcome| outcome.passed).sum();
        let names: Vec<&str> = remembered.iter().map(|outcome| outcome.name.as_str()).collect();
        println!(
            "\nnot run, because they passed with the same bytes before ({tests} tests): {}",
            names.join(", ")
        );
    }
    for (reason, names) in &left_out.by_reason {
        println!("\nleft out, {reason}: {}", names.join(", "));
    }
    let failed: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.state == State::Failed).collect();
    if !failed.is_empty() {
        println!("\nfailed:");
        for outcome in &failed {
            let log = fs::read_to_string(&outcome.log).unwrap_or_default();
            let tests: BTreeSet<&str> = failures_in(&log).into_iter().collect();
            let tests: Vec<&str> = tests.into_iter().collect();
            println!("    {}: {} ({})", outcome.name, tests.join(", "), outcome.log.display());
        }
    }
    let run = outcomes.iter().filter(|outcome| outcome.state != State::Remembered);
    let (passed, failures, ignored) = run.fold((0, 0, 0), |(passed, failed, ignored), outcome| {
        (passed + outcome.passed, failed + outcome.failed, ignored + outcome.ignored)
    });
    if ignored > 0 {
        println!("\n{ignored} tests are ignored: they measure");
    }
    println!("\n{:.0} s", report.seconds());
    println!("{passed} passed, {failures} failed");
    failed.is_empty()
}

/// Creates the log folder of a run and removes the logs of the previous run.
///
/// Errors: the folder cannot be created.
pub fn new_logs(folder: &Path) -> Result<PathBuf, String> {
    let logs = folder.join("test-logs");
    let _ = fs::remove_dir_all(&logs);
    fs::create_dir_all(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
    Ok(logs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_logs_are_shown_from_their_failures_on() {
        let log = format!("start\n{}failures:\n{}end", "x\n".repeat(500), "y\n".repeat(500));
        let shown = excerpt(&log);
        assert!(shown.starts_with("failures:\ny\n"), "{shown}");
        assert!(shown.ends_with("y\nend"), "{shown}");
        assert!(shown.contains("[… 382 lines …]"), "{shown}");
    }

    fn outcome(state: State) -> Outcome {
        Outcome {
            name: "sql::slt::embedded".to_owned(),
            state,
            seconds: 12.34,
            cpu_seconds: 10.0,
            passed: 1,
            failed: 0,
            ignored: 0,
            skipped: BTreeSet::new(),
            log: PathBuf::new(),
        }
    }

    #[test]
    fn a_run_with_a_failure_has_failed() {
        use State::*;
        let has_passed = |states: &[State]| {
            let outcomes: Vec<Outcome> = states.iter().copied().map(outcome).collect();
            conclude(&Report::quiet(), &outcomes, &LeftOut::default(), Path::new("times.tsv"))
        };
        assert!(has_passed(&[Passed, Remembered, Skipped]));
        assert!(!has_passed(&[Passed, Failed, Passed]));
        assert!(!has_passed(&[Failed]));
    }

    #[test]
    fn the_table_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("times.tsv");
        write_table(&path, &[outcome(State::Passed)]).unwrap();
        let earlier = crate::units::earlier_seconds(&path);
        assert_eq!(earlier, BTreeMap::from([("sql::slt::embedded".to_owned(), 12.3)]));
    }
}
