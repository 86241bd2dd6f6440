//! `harrier doctor`: what was found on this machine, and what is wrong with it.

use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use harrier_engine::{Engine, EngineOptions, memory};

use crate::exit;

/// With less free space than this, statements that spill are likely to fail.
const FREE_BYTES_MIN: u64 = 1 << 30;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {}

/// Prints one line per finding, then what is wrong; status 3 if anything is.
pub(crate) fn run(_: Args) -> ExitCode {
    let mut wrong = Vec::new();
    show("version", format_args!("harrier {}", env!("CARGO_PKG_VERSION")));
    show("system", format_args!("{} {}", std::env::consts::OS, std::env::consts::ARCH));
    cores(&mut wrong);
    machine_memory(&mut wrong);
    temporary_files(&mut wrong);
    show("terminal", if io::stdout().is_terminal() { "yes" } else { "no" });
    match harrier_mpi::launched_ranks() {
        Some(ranks) => show("launched ranks", ranks),
        None => show("launched ranks", "none, this process was not started by mpirun or srun"),
    }
    if wrong.is_empty() {
        println!("everything found is in order");
        return ExitCode::from(exit::DONE);
    }
    for problem in &wrong {
        println!("WRONG: {problem}");
    }
    ExitCode::from(exit::BROKEN)
}

fn show(name: &str, value: impl Display) {
    println!("{name:<16} {value}");
}

fn cores(wrong: &mut Vec<String>) {
    match std::thread::available_parallelism() {
        Ok(cores) => show("cores", cores),
        Err(error) => wrong.push(format!("the number of cores is unknown: {error}")),
    }
    #[cfg(target_arch = "x86_64")]
    {
        let has_avx2 = std::arch::is_x86_feature_detected!("avx2");
        show("AVX2", if has_avx2 { "yes" } else { "no" });
    }
}

fn machine_memory(wrong: &mut Vec<String>) {
    match memory::machine_bytes() {
        Some(bytes) => show(
            "memory",
            format_args!(
                "{}, of which statements may hold {}",
                memory::format_bytes(bytes),
                memory::format_bytes(memory::default_bytes().unwrap_or(bytes))
            ),
        ),
        None => wrong
            .push("the size of the memory is unknown; statements have no limit without --memory".to_string()),
    }
}

fn temporary_files(wrong: &mut Vec<String>) {
    let folder = std::env::temp_dir();
    let free = free_bytes(&folder);
    match free {
        Some(free) => {
            show("temporary files", format_args!("{}, {} free", folder.display(), memory::format_bytes(free)))
        }
        None => show("temporary files", folder.display()),
    }
    if free.is_some_and(|free| free < FREE_BYTES_MIN) {
        wrong.push(format!("little space is left in {}; set TMPDIR to a folder with more", folder.display()));
    }
    let mut options = EngineOptions::default();
    options.spill_dir = Some(folder);
    if let Err(error) = Engine::try_new(options) {
        wrong.push(error.message);
    }
}

fn free_bytes(folder: &Path) -> Option<u64> {
    let file_system = nix::sys::statvfs::statvfs(folder).ok()?;
    file_system.blocks_available().checked_mul(file_system.fragment_size())
}
