//! The Python package over the library, alone and under the MPI runtimes there are. What is absent is skipped with a line on stderr;
//! with `HARRIER_REQUIRE_ALL_MPI=1` it fails.

mod built;

use built::library;
use harrier_launch::{Launcher, Run, absent, alone, finish, on_path};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A run takes about a second. One that takes longer than this on any machine hangs.
const RUN_TIME_MAX: Duration = Duration::from_secs(60);

fn package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python").canonicalize().unwrap()
}

/// Runs a script alone and on ranks. `None`: there is no Python.
fn runs(script: &str, arguments: &[&str]) -> Option<Vec<Run>> {
    let Some(python) = on_path("python3") else {
        absent("python3");
        return None;
    };
    let library = library();
    let _turn = alone();
    let launchers = [Launcher::none(), Launcher::open_mpi(2), Launcher::mpich(2)];
    let run = |launcher: Launcher| {
        let mut command = launcher.command(&python).inspect_err(|reason| absent(reason)).ok()?;
        // On one host the ranks have the launcher's environment.
        command.env("PYTHONPATH", package()).env("HARRIER_MPID_LIBRARY", &library);
        command.arg(package().join(script)).args(arguments);
        Some(finish(command, RUN_TIME_MAX))
    };
    Some(launchers.into_iter().filter_map(run).collect())
}

/// The numbers of the lines of A tasks, added up: tasks, and what each told.
fn totals(run: &Run) -> (usize, u64, u64) {
    let lines: Vec<Vec<u64>> = run
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("A "))
        .map(|line| line.split(' ').map(|number| number.parse().unwrap()).collect())
        .collect();
    (lines.len(), lines.iter().map(|line| line[1]).sum(), lines.iter().map(|line| line[2]).sum())
}

#[test]
fn words_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<String> = ["to be or not\nto be", "that is to be"]
        .iter()
        .enumerate()
        .map(|(at, text)| {
            let path = folder.path().join(at.to_string());
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        })
        .collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    for run in runs("examples/wordcount.py", &files).unwrap_or_default() {
        let mut lines: Vec<&str> = run.stdout.lines().collect();
        lines.sort();
        assert_eq!(lines, ["be\t3", "is\t1", "not\t1", "or\t1", "that\t1", "to\t3"], "{run:#?}");
    }
}

#[test]
fn objects_combiners_and_failures() {
    for run in runs("tests/checks.py", &["objects"]).unwrap_or_default() {
        assert_eq!(totals(&run), (2, 10, 0), "{run:#?}");
    }
    for run in runs("tests/checks.py", &["largest"]).unwrap_or_default() {
        assert_eq!(totals(&run), (3, 7, (493..500).sum()), "{run:#?}");
    }
    for run in runs("tests/checks.py", &["fails"]).unwrap_or_default() {
        assert!(run.stdout.contains("failed: O task 2") && run.stdout.contains("on purpose"), "{run:#?}");
    }
}

#[test]
fn arrays_are_sent_and_received() {
    let numpy = Command::new("python3").args(["-c", "import numpy"]).output();
    if !numpy.is_ok_and(|output| output.status.success()) {
        return absent("NumPy");
    }
    for run in runs("tests/checks.py", &["arrays"]).unwrap_or_default() {
        assert_eq!(totals(&run), (3, 4000, 3999 * 4000 / 2), "{run:#?}");
    }
}
