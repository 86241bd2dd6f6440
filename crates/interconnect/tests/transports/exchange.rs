//! Runs the example `exchange` under the MPI runtimes of this machine: rows arrive unchanged over every path,
//! and nothing stays open.
//!
//! `HARRIER_SEED` repeats a run. A runtime that is absent is skipped with a line on stderr; with
//! `HARRIER_REQUIRE_ALL_MPI=1` it fails.

use harrier_launch::{Launcher, absent, example, finish, gang_slot, seed};
use std::time::Duration;

/// Timeout of a run, which takes a few seconds.
const RUN_TIME_MAX: Duration = Duration::from_secs(120);

#[test]
fn exchange_through_shared_memory() {
    for ranks in [2, 3, 4] {
        check(Launcher::open_mpi(ranks), ranks, true);
    }
}

#[test]
fn exchange_through_messages() {
    for ranks in [1, 2, 3] {
        check(Launcher::open_mpi(ranks), ranks, false);
    }
}

#[test]
fn exchange_under_mpich() {
    check(Launcher::mpich(3), 3, true);
    check(Launcher::mpich(2), 2, false);
}

fn check(launcher: Launcher, ranks: usize, shared: bool) {
    let _turn = gang_slot();
    let seed = seed().to_string();
    let mut command = match launcher.command(example("exchange")) {
        Ok(command) => command,
        Err(reason) => return absent(&reason),
    };
    command.args(["--seed", &seed]);
    if !shared {
        command.arg("--messages");
    }
    let context = format!("{command:?}");
    let run = finish(command, RUN_TIME_MAX);
    let context = format!("{context}: {run:#?}");
    assert!(run.success, "{context}");
    let lent: Vec<u64> = run
        .stdout
        .lines()
        .filter_map(|line| line.split("streams read, ").nth(1)?.split(' ').next()?.parse().ok())
        .collect();
    assert_eq!(lent.len(), ranks, "{context}");
    // The path of blocks is not left to chance: with the seeds' sizes every rank sends some large ones.
    assert_eq!(lent.iter().sum::<u64>() > 0, shared && ranks > 1, "{context}");
}
