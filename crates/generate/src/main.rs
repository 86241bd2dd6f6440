//! `harrier-generate tpch|tpcds SCALE DIR`: makes the same files as `harrier generate` with `--scale SCALE
//! --out DIR`, in a binary that compiles long before the rest does.
//!
//! Used by the demo, which generates data while the rest is being compiled; `harrier generate` then finds
//! everything in place.
//!
//! Cancellation: a signal ends it at once, as a crash does; the next call, of either program, removes
//! unfinished files and resumes.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use harrier_generate::{Benchmark, Error, Files, Options, Progress};

/// Exit statuses, as of `harrier`.
const FAILED: u8 = 1;
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let Some((benchmark, scale, folder)) = arguments(env::args_os().skip(1).collect()) else {
        eprintln!("usage: harrier-generate tpch|tpcds SCALE DIR");
        return ExitCode::from(USAGE);
    };
    match generate(benchmark, scale, folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ERROR: {error}");
            for (label, text) in [("DETAIL", error.detail()), ("HINT", error.hint())] {
                if let Some(text) = text {
                    eprintln!("{label}: {text}");
                }
            }
            ExitCode::from(FAILED)
        }
    }
}

fn arguments(arguments: Vec<OsString>) -> Option<(Benchmark, f64, PathBuf)> {
    let [benchmark, scale, folder] = <[OsString; 3]>::try_from(arguments).ok()?;
    let benchmark = match benchmark.to_str()? {
        "tpch" => Benchmark::Tpch,
        "tpcds" => Benchmark::Tpcds,
        _ => return None,
    };
    Some((benchmark, scale.to_str()?.parse().ok()?, PathBuf::from(folder)))
}

fn generate(benchmark: Benchmark, scale: f64, folder: PathBuf) -> Result<(), Error> {
    Files::prepare(benchmark, &folder, &Options::new(scale))?.make(&Lines)
}

/// Prints one line for each table to standard error.
struct Lines;

impl Progress for Lines {
    fn advance(&self, _: u64) {}

    fn report(&self, line: &str) {
        eprintln!("{line}");
    }
}
