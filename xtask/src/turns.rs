//! Rotation of the SQL suite's configurations: `test` runs a quarter of them, the least recently run.
//!
//! Embedded, in a warehouse and on three ranks the suite always runs, and so does every configuration that is
//! not listed here. The others run recently changed files: new tests would otherwise fail first in the
//! configuration whose turn comes last. On a machine without records, turns follow from the number of
//! commits.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Prefix of the suite's units.
pub const SUITE: &str = "sql::slt::";

/// Folders of the suite's files.
const FOLDERS: [&str; 2] = ["tests/slt", "tests/warehouse"];

/// Number of commits within which a changed file is recent.
const RECENT_COMMITS: usize = 40;

/// Names of tests, by turn: each has one of single processes, one of the system's Open MPI and one of another
/// transport or runtime.
const TURNS: [&[&str]; 4] = [
    &["batches_of_one_row", "two_ranks", "three_ranks_of_mpich"],
    &["little_memory", "seven_ranks", "three_ranks_of_the_open_mpi_wheel"],
    &["one_rank", "three_ranks_without_shared_memory", "three_ranks_of_the_mpich_wheel"],
    &["two_ranks_with_batches_of_few_rows", "three_ranks_over_grpc", "warehouse_with_batches_of_few_rows"],
];

/// The current turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn(usize);

impl Turn {
    /// `HARRIER_TURN` (0 to 3), otherwise the least recently run on this machine, otherwise by the number of
    /// commits.
    ///
    /// Errors: the variable is not a turn.
    pub fn choose(root: &Path, cache: Option<&Path>) -> Result<Self, String> {
        if let Ok(text) = std::env::var("HARRIER_TURN") {
            let turn = text.parse().ok().filter(|turn| *turn < TURNS.len());
            return turn
                .map(Self)
                .ok_or_else(|| format!("HARRIER_TURN={text} is none of 0 to {}", TURNS.len() - 1));
        }
        let last = cache.map(|cache| last_runs(&cache.join("turns"))).unwrap_or_default();
        Ok(Self::least_recent(&last, commits(root)))
    }

    fn least_recent(last: &[u64; TURNS.len()], commits: usize) -> Self {
        let from = commits % TURNS.len();
        let order = (0..TURNS.len()).map(|step| (from + step) % TURNS.len());
        Self(order.min_by_key(|turn| last[*turn]).expect("there are turns"))
    }

    /// Whether a unit of the suite runs in this turn.
    pub fn runs(self, unit: &str) -> bool {
        let Some(test) = unit.strip_prefix(SUITE) else { return true };
        match TURNS.iter().position(|tests| tests.contains(&test)) {
            Some(turn) => turn == self.0,
            None => true,
        }
    }

    /// Records the turn as run.
    pub fn remember(self, cache: &Path) {
        let path = cache.join("turns");
        let mut last = last_runs(&path);
        last[self.0] = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let lines: String = last.iter().map(|seconds| format!("{seconds}\n")).collect();
        // Only the turn is lost without it.
        let _ = fs::write(path, lines);
    }

    pub fn number(self) -> usize {
        self.0
    }

    #[cfg(test)]
    pub fn for_tests(number: usize) -> Self {
        Self(number)
    }
}

/// Checks that all rotating tests exist, by the names of all units.
///
/// Errors: one is missing; the suite would silently run without it.
pub fn check<'a>(units: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let there: Vec<&str> = units.filter_map(|unit| unit.strip_prefix(SUITE)).collect();
    let missing: Vec<&str> =
        TURNS.iter().flat_map(|tests| tests.iter()).filter(|test| !there.contains(test)).copied().collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(format!("xtask/src/turns.rs names tests that are not there: {}", missing.join(", "))),
    }
}

/// Time of each turn's last run, in seconds since 1970; 0 for never.
fn last_runs(path: &Path) -> [u64; TURNS.len()] {
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut last = [0; TURNS.len()];
    for (at, line) in text.lines().take(TURNS.len()).enumerate() {
        last[at] = line.parse().unwrap_or(0);
    }
    last
}

/// Names of the suite's files that the last commits changed, or that differ from the last commit; none if git
/// fails.
pub fn recent_files(root: &Path) -> Vec<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).arg("--").args(FOLDERS).current_dir(root).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
    };
    let commits = format!("-{RECENT_COMMITS}");
    let committed = git(&["log", "--first-parent", &commits, "--format=", "--name-only"]);
    let changed = git(&["diff", "--name-only", "HEAD"]);
    suite_files(root, &format!("{committed}\n{changed}"))
}

fn suite_files(root: &Path, paths: &str) -> Vec<String> {
    let is_there = |path: &&str| path.ends_with(".slt") && root.join(path).exists();
    let names = paths.lines().filter(is_there).filter_map(|path| path.rsplit('/').next());
    names.map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
}

fn commits(root: &Path) -> usize {
    let output = Command::new("git").args(["rev-list", "--count", "HEAD"]).current_dir(root).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_turn_comes_within_four_runs() {
        for commits in 0..TURNS.len() {
            let mut last = [0; TURNS.len()];
            let mut seen = [false; TURNS.len()];
            for run in 1..=TURNS.len() {
                let turn = Turn::least_recent(&last, commits);
                seen[turn.0] = true;
                last[turn.0] = run as u64;
            }
            assert_eq!(seen, [true; TURNS.len()], "from {commits} commits on");
        }
    }

    #[test]
    fn turns_follow_from_commits_where_nothing_is_remembered() {
        let turns: Vec<usize> = (5..9).map(|commits| Turn::least_recent(&[0; 4], commits).0).collect();
        assert_eq!(turns, [1, 2, 3, 0]);
    }

    #[test]
    fn what_takes_no_turns_is_always_run() {
        for turn in (0..TURNS.len()).map(Turn) {
            for unit in ["sql::slt::embedded", "sql::slt::three_ranks", "sql::cli", "sql::slt::something_new"]
            {
                assert!(turn.runs(unit), "{unit}");
            }
        }
        assert!(Turn(0).runs("sql::slt::two_ranks") && !Turn(1).runs("sql::slt::two_ranks"));
    }

    #[test]
    fn a_name_that_is_gone_is_noticed() {
        let all: Vec<String> =
            TURNS.iter().flat_map(|tests| tests.iter()).map(|test| format!("{SUITE}{test}")).collect();
        assert!(check(all.iter().map(String::as_str)).is_ok());
        assert!(check(all.iter().skip(1).map(String::as_str)).is_err());
    }

    #[test]
    fn files_that_changed_are_named_once_if_they_are_there() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("tests/slt/data")).unwrap();
        for file in ["tests/slt/a.slt", "tests/slt/b.slt", "tests/slt/data/x.csv"] {
            fs::write(folder.path().join(file), "").unwrap();
        }
        let paths =
            "tests/slt/b.slt\n\ntests/slt/gone.slt\ntests/slt/data/x.csv\ntests/slt/b.slt\ntests/slt/a.slt\n";
        assert_eq!(suite_files(folder.path(), paths), ["a.slt", "b.slt"]);
    }

    #[test]
    fn turns_are_remembered() {
        let folder = tempfile::tempdir().unwrap();
        Turn(2).remember(folder.path());
        let last = last_runs(&folder.path().join("turns"));
        assert!(last[2] > 0 && last[0] == 0);
    }
}
