//! Runs the example `exchange` under the MPI runtimes of this machine: whatever is sent arrives as it was, whichever way it
//! goes, and nothing is left open.
//!
//! `HARRIER_SEED` repeats a run. A runtime that is absent is skipped with a line on stderr; with
//! `HARRIER_REQUIRE_ALL_MPI=1` it fails.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

/// One gang at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn through_shared_memory() {
    for ranks in [2, 3, 4] {
        check("mpirun.openmpi", OPEN_MPI, ranks, true);
    }
}

#[test]
fn through_messages() {
    for ranks in [1, 2, 3] {
        check("mpirun.openmpi", OPEN_MPI, ranks, false);
    }
}

#[test]
fn mpich() {
    check("mpiexec.mpich", &[], 3, true);
    check("mpiexec.mpich", &[], 2, false);
}

const OPEN_MPI: &[&str] = &[
    "--allow-run-as-root",
    "--bind-to",
    "none",
    "--map-by",
    ":OVERSUBSCRIBE",
    "--mca",
    "mpi_yield_when_idle",
    "1",
];

fn check(launcher: &str, options: &[&str], ranks: usize, shared: bool) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if Command::new(launcher).arg("--version").output().is_err() {
        assert!(
            std::env::var_os("HARRIER_REQUIRE_ALL_MPI").is_none_or(|value| value != "1"),
            "absent: {launcher}"
        );
        return eprintln!("skipped: {launcher} is absent (scripts/mpi-runtimes.sh installs it)");
    }
    let seed = std::env::var("HARRIER_SEED").unwrap_or_else(|_| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.expect("after 1970").as_micros().to_string()
    });
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "120", launcher]).args(options);
    command.args(["-n", &ranks.to_string()]).arg(example()).args(["--seed", &seed]);
    if !shared {
        command.arg("--messages");
    }
    let output = command.output().expect("timeout can be run");
    let context = format!("{launcher}, {ranks} ranks, shared memory: {shared}, seed {seed}: {output:#?}");
    assert!(output.status.success(), "{context}");
    let lines = String::from_utf8_lossy(&output.stdout);
    let lent: Vec<u64> = lines
        .lines()
        .filter_map(|line| line.split("streams read, ").nth(1)?.split(' ').next()?.parse().ok())
        .collect();
    assert_eq!(lent.len(), ranks, "{context}");
    // Which way blocks go is not left to chance: with the seeds' sizes every rank sends some large ones.
    assert_eq!(lent.iter().sum::<u64>() > 0, shared && ranks > 1, "{context}");
}

/// Tests are in target/<profile>/deps, examples in target/<profile>/examples.
fn example() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let profile = test.ancestors().nth(2).expect("the test lies in target/<profile>/deps");
    profile.join("examples/exchange")
}
