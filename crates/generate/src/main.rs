//! `harrier-generate tpch|tpcds SCALE DIR`: what `harrier generate` makes with `--scale SCALE --out DIR`, by
//! a program that is built long before the rest is.
//!
//! It is for the demo, which generates data while the rest is being compiled; `harrier generate` finds
//! everything there.
//!
//! Cancellation: a signal ends it at once, as a crash does; the next call, of either program, sweeps what was
//! not finished and goes on from there.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use harrier_generate::{Benchmark, Error, Files, Options, Progress};

/// The exit statuses of `harrier`.
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

/// One line for each table, on standard error.
struct Lines;

impl Progress for Lines {
    fn made(&self, _: u64) {}

    fn tell(&self, line: &str) {
        eprintln!("{line}");
    }
}
