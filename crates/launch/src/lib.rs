//! Starts programs as the ranks of a gang, by an MPI launcher or without one, for tests; it must never know
//! what they do.
//!
//! - [`Launcher`]: the command line of `mpirun` or `mpiexec` for the MPI that a test asks for.
//! - [`Hosts`]: ranks that meet by a hosts file instead.
//! - [`finish`]: runs it to its end, or ends it when it hangs.
//! - [`alone`]: turns of tests that start ranks.
//! - [`printed`]: what ranks said that print into files, of [`Launcher::command_printing`].

mod hosts;
mod launcher;
mod run;
mod turn;

pub use hosts::{Hosts, finish_all};
pub use launcher::{Launcher, on_path, skipped};
pub use run::{Run, example, finish, hearing_signals, printed, seed, seeds};
pub use turn::{Turn, alone};

/// Says that a test is skipped because `what` is not installed; with `HARRIER_REQUIRE_ALL_MPI=1` it fails.
pub fn absent(what: &str) {
    assert!(std::env::var_os("HARRIER_REQUIRE_ALL_MPI").is_none_or(|value| value != "1"), "absent: {what}");
    eprintln!("skipped: {what} (scripts/mpi-runtimes.sh installs it)");
}
