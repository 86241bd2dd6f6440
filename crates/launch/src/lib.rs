//! Starts programs as the ranks of a gang, with an MPI launcher or without one, for tests; it must never know
//! what they do.
//!
//! - [`Launcher`]: the command line of `mpirun` or `mpiexec` for the MPI that a test asks for.
//! - [`Hosts`]: ranks that connect by a hosts file instead.
//! - [`finish`]: runs a command to its end, or terminates it after a timeout.
//! - [`gang_slot`]: mutual exclusion of tests that start ranks.
//! - [`output_of_ranks`]: output of ranks started by [`Launcher::command_printing`].

mod gang_slot;
mod hosts;
mod launcher;
mod run;

pub use gang_slot::{GangSlot, gang_slot};
pub use hosts::{Hosts, finish_all};
pub use launcher::{Launcher, mpi_skipped, on_path};
pub use run::{Run, example, finish, output_of_ranks, seed, seeds, with_default_signals};

/// Reports that a test is skipped because `what` is not installed; with `HARRIER_REQUIRE_ALL_MPI=1` it fails.
pub fn absent(what: &str) {
    assert!(std::env::var_os("HARRIER_REQUIRE_ALL_MPI").is_none_or(|value| value != "1"), "absent: {what}");
    eprintln!("skipped: {what} (scripts/mpi-runtimes.sh installs it)");
}
