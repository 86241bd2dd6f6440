//! `harrier bench mpid`: key-value programs against Hadoop, Spark and a plain program, and over the values of
//! their settings.
//!
//! The measured programs are whole processes, so a script drives them (`bench/mpid/run.py` of the checkout,
//! which documents each figure and its measurement); this command validates its arguments, passes the
//! `mpid-programs` of its own build to the script, and returns its exit status.
//!
//! Errors: 1 if a program failed or answers differ, which the script shows; 3 if the script cannot be
//! started.

use std::path::{Path, PathBuf};
use std::process::Command;

use harrier_error::{SqlError, SqlState};

use super::{Failure, configuration};

/// The script, relative to a checkout.
const SCRIPT: &str = "bench/mpid/run.py";

const FIGURES: [&str; 8] = ["programs", "others", "sizes", "memory", "queue", "style", "skew", "spill"];
const PROGRAMS: [&str; 9] =
    ["wordcount", "terasort", "aggregate", "pagerank", "kmeans", "grep", "index", "sliding", "join"];
const PEERS: [&str; 4] = ["plain", "spark", "hadoop", "hadoop-cluster"];

#[derive(clap::Args, Debug)]
pub struct Options {
    /// What to measure and to draw
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = FIGURES, default_values = FIGURES)]
    figures: Vec<String>,
    /// Of the figures `programs` and `others`, these programs alone
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = PROGRAMS)]
    only: Vec<String>,
    /// Bytes of input
    #[arg(long, value_name = "N", default_value_t = 1_000_000_000, value_parser = clap::value_parser!(u64).range(1_000_000..))]
    bytes: u64,
    /// Ranks that mpirun starts, and tasks at once of the peers [default: the cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,
    /// Timed runs of each case, after one to warm up
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// No run to warm up: for inputs that are read for minutes
    #[arg(long)]
    cold: bool,
    /// Peers of which one run is timed, and none warms up: for those that take a quarter of an hour
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = PEERS)]
    once: Vec<String>,
    /// Who is measured beside; installed into .harrier/peers when missing
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = PEERS, default_values = PEERS)]
    peers: Vec<String>,
    /// Measure nothing beside
    #[arg(long, conflicts_with = "peers")]
    alone: bool,
    /// Folder for mpid.json and a chart of each figure [default: .harrier/bench]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Folder for generated input, which is kept [default: .harrier/data/mpid]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Runs the command. Blocks until it is done; passes the script's output through.
pub fn run(options: &Options) -> Result<(), Failure> {
    if !Path::new(SCRIPT).is_file() {
        return Err(Failure::missing(format!("there is no file \"{SCRIPT}\""))
            .hint("Run the command in the folder of a checkout of Harrier."));
    }
    let programs = configuration::this_binary()?.with_file_name("mpid-programs");
    if !programs.is_file() {
        return Err(Failure::missing(format!("there is no program \"{}\"", programs.display()))
            .hint("Build it with cargo build --release -p harrier-mpid, or with make build."));
    }
    let mut command = Command::new("python3");
    command.arg(SCRIPT).arg("--programs-binary").arg(programs);
    command.args(["--figures", &options.figures.join(","), "--bytes", &options.bytes.to_string()]);
    command.args(["--runs", &options.runs.to_string()]);
    command.args(["--peers", &if options.alone { String::new() } else { options.peers.join(",") }]);
    if options.cold {
        command.arg("--cold");
    }
    if !options.once.is_empty() {
        command.args(["--once", &options.once.join(",")]);
    }
    if !options.only.is_empty() {
        command.args(["--only", &options.only.join(",")]);
    }
    if let Some(ranks) = options.ranks {
        command.args(["--ranks", &ranks.to_string()]);
    }
    for (option, folder) in [("--out", &options.out), ("--data", &options.data)] {
        if let Some(folder) = folder {
            command.arg(option).arg(folder);
        }
    }
    let status =
        command.status().map_err(|error| Failure::dead(format!("could not start python3: {error}")))?;
    match status.code() {
        Some(0) => Ok(()),
        Some(1) => {
            Err(SqlError::new(SqlState::DATA_CORRUPTED, "some programs failed or gave other answers").into())
        }
        _ => Err(Failure::dead(format!("\"{SCRIPT}\" ended with {status}"))),
    }
}
