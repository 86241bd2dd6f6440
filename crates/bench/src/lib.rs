//! `harrier bench`: query times under one or more configurations, measured side by side, with every answer
//! checked.
//!
//! ```text
//!                      ┌─ worker A: harrier bench-worker ─┐
//! driver (lib.rs)   ───┤                                  ├── one JSON object a line, both ways (see `protocol`)
//!                      └─ worker B: mpirun … or a peer ───┘
//! ```
//!
//! A configuration is a command that speaks the protocol: Harrier itself, embedded or launched by `mpirun`,
//! or a peer such as `bench/peers/run duckdb`. All workers start once and stay, so startup time is excluded.
//! For each query every configuration runs once to warm up, then the timed runs are interleaved, A B A B, so
//! that other load on the machine affects all alike. The worker measures the wall time from the query's text
//! to its last row; the driver measures the CPU time of all processes of the worker. The answer of every run
//! is compared: with the published one where there is one (TPC-H at scale 1), else with the first
//! configuration's.
//!
//! Errors: a wrong answer or a failed query is shown in the table, the other queries continue, and the
//! command exits with status 1. A worker that does not start or that dies ends the benchmark with exit status
//! 3.
//! Crash: workers end when their standard input ends, so none outlives the driver.

mod answers;
mod cell;
mod chart;
mod commit;
mod configuration;
mod cpu;
mod crowded;
mod duel;
mod folder;
mod interconnect;
mod load;
mod local_ranks;
mod machine;
mod measure;
mod mpid;
mod plan;
mod planning;
mod primitives;
mod progress;
mod protocol;
mod report;
mod serve;
mod transport;
mod worker;
mod worker_process;
mod workload;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use harrier_error::{SqlError, SqlState, exit};
use serde_json::Value;

use configuration::{Configuration, Short};
use progress::print_line;
use workload::{Numbers, Workload};

pub use interconnect::ranks::run_worker as run_exchange_worker;
pub use primitives::run_worker as run_primitive;
pub use worker::{WorkerArgs, launch, serve};

/// Folder for generated data, without `--data`.
const DATA: &str = ".harrier/data";

/// Arguments of the command.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    what: Benchmark,
}

#[derive(clap::Subcommand, Debug)]
enum Benchmark {
    /// The 22 queries of TPC-H
    Tpch(Options),
    /// Queries that mostly move rows between ranks, over the data of TPC-H
    Shuffle(Options),
    /// Sets of statements against DuckDB: processor time, and whether the answers are the same
    Duel(duel::Options),
    /// More ranks than cores under queries that compute: latencies over MPI and over gRPC
    Crowded(crowded::Options),
    /// Blocks between ranks: throughput, processor time and latency
    Interconnect(interconnect::Options),
    /// Bytes from one process to another: MPI, gRPC, Hadoop's RPC and HTTP over Jetty
    Primitives(primitives::Options),
    /// Files made visible: written in place and committed once, or staged and renamed
    Commit(commit::Options),
    /// Queries planned over a table of very many files, and the commits of these
    Plan(plan::Options),
    /// The statements of TPC-H and TPC-DS from their text to their plans, against another build
    Planning(planning::Options),
    /// TPC-H brought into tables, from Parquet and CSV, and queries over tables kept in several ways
    Load(load::Options),
    /// A server under the load of many clients, against others
    Serve(serve::Options),
    /// Programs in keys and values, against Hadoop and Spark, and over their knobs
    Mpid(mpid::Options),
    /// Draw what --json wrote
    Chart(ChartOptions),
}

#[derive(clap::Args, Debug)]
struct Options {
    /// Scale factor of the data
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    scale: f64,
    /// Measure so many ranks; the same as --config mpi:ranks=N
    #[arg(long, value_name = "N")]
    ranks: Option<usize>,
    /// How the ranks of --ranks exchange rows: mpi or grpc
    #[arg(long, value_name = "NAME", requires = "ranks")]
    interconnect: Option<String>,
    /// What to measure; several are compared, as embedded:threads=2 and
    /// grpc:ranks=2,threads=1,compression=none
    ///
    /// KIND is embedded, mpi, grpc, or another value of the setting harrier.interconnect. KEY is ranks,
    /// threads (of each rank), memory, compression (of grpc: lz4, zstd, none), mpirun (the launcher), binary
    /// (another build of harrier), env.NAME (a variable for its ranks), or the name of any setting.
    #[arg(long = "config", value_name = "KIND[:KEY=VALUE,…]")]
    configurations: Vec<String>,
    /// Measure another program that speaks the protocol, as 'duckdb=bench/peers/run duckdb --threads 2'
    #[arg(long = "peer", value_name = "NAME=COMMAND")]
    peers: Vec<String>,
    /// Timed runs of each query, after one to warm up
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Only these queries, as 1,5-9
    #[arg(long, value_name = "LIST")]
    queries: Option<Numbers>,
    /// Where the data is [default: .harrier/data/tpch-sf<F>, generated when missing]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Write all measurements here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw a chart of the medians here
    #[arg(long, value_name = "FILE.svg")]
    chart: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
struct ChartOptions {
    /// What --json wrote; the configurations of several files are drawn together
    #[arg(required = true, value_name = "FILE.json")]
    files: Vec<PathBuf>,
    /// The drawing
    #[arg(long, value_name = "FILE.svg")]
    out: PathBuf,
}

/// Why a benchmark could not finish, or has wrong answers.
#[derive(Debug)]
struct Failure {
    /// The message to print.
    error: SqlError,
    exit_status: u8,
}

impl Failure {
    fn usage(message: impl Into<String>) -> Self {
        Self { error: SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message), exit_status: exit::USAGE }
    }

    fn dead(message: impl Into<String>) -> Self {
        Self { error: SqlError::new(SqlState::INTERNAL_ERROR, message), exit_status: exit::BROKEN }
    }

    /// A missing dependency outside this program: SQLSTATE 58000.
    fn missing(message: impl Into<String>) -> Self {
        Self { error: SqlError::new(SqlState::SYSTEM_ERROR, message), exit_status: exit::BROKEN }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.error = self.error.with_hint(hint);
        self
    }
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Self { error, exit_status: exit::FAILED }
    }
}

/// Runs the command and returns its exit status. Blocks until it is done. Prints the table to standard
/// output, progress and errors to standard error, with a warning for a debug build.
pub fn run(args: Args, is_optimised: bool) -> ExitCode {
    if !is_optimised {
        eprintln!(
            "WARNING: this program is not optimised, and its times say nothing: make build makes the one to use"
        );
    }
    let result = match args.what {
        Benchmark::Tpch(options) => queries(&options, "tpch"),
        Benchmark::Shuffle(options) => queries(&options, "shuffle"),
        Benchmark::Duel(options) => duel::run(&options),
        Benchmark::Crowded(options) => crowded::run(&options),
        Benchmark::Interconnect(options) => interconnect::run(&options),
        Benchmark::Primitives(options) => primitives::run(&options),
        Benchmark::Commit(options) => commit::run(&options),
        Benchmark::Plan(options) => plan::run(&options),
        Benchmark::Planning(options) => planning::run(&options),
        Benchmark::Load(options) => load::run(&options),
        Benchmark::Serve(options) => serve::run(&options),
        Benchmark::Mpid(options) => mpid::run(&options),
        Benchmark::Chart(options) => draw(&options),
    };
    let Err(Failure { error, exit_status }) = result else {
        return ExitCode::from(exit::DONE);
    };
    eprintln!("ERROR {}: {}", error.sqlstate, error.message);
    for (label, text) in [("DETAIL", error.detail), ("HINT", error.hint)] {
        if let Some(text) = text {
            eprintln!("{label}: {text}");
        }
    }
    ExitCode::from(exit_status)
}

fn queries(options: &Options, name: &str) -> Result<(), Failure> {
    if !(options.scale.is_finite() && options.scale > 0.0) {
        return Err(Failure::usage(format!("invalid scale factor: {}", options.scale)));
    }
    let configurations = configurations(options)?;
    let mut workload = Workload::new(name, options.scale);
    if let Some(numbers) = &options.queries {
        workload.retain(numbers).map_err(Failure::usage)?;
    }
    let data = data_at(options.data.as_deref(), options.scale)?;
    let tables = workload::tables(&data)?;

    let result =
        measure::run(&workload, &configurations, &tables, options.runs, &data, &mut std::io::stdout())?;
    keep(&result.json, options.json.as_deref(), options.chart.as_deref())?;
    require_none_wrong(result.wrong, &format!("of {} queries", workload.queries.len()))
}

/// Errors: `wrong` of `what` failed.
fn require_none_wrong(wrong: usize, what: &str) -> Result<(), Failure> {
    match wrong {
        0 => Ok(()),
        wrong => {
            let message = format!("{wrong} {what} failed or gave a wrong answer");
            Err(SqlError::new(SqlState::DATA_CORRUPTED, message).into())
        }
    }
}

fn configurations(options: &Options) -> Result<Vec<Configuration>, Failure> {
    let mut configurations = Vec::new();
    if let Some(ranks) = options.ranks {
        let kind = options.interconnect.as_deref().unwrap_or("mpi");
        configurations.push(Configuration::short(&Short { kind, ranks }).map_err(Failure::usage)?);
    }
    for text in &options.configurations {
        configurations.push(Configuration::parse(text).map_err(Failure::usage)?);
    }
    for text in &options.peers {
        configurations.push(Configuration::peer(text).map_err(Failure::usage)?);
    }
    if configurations.is_empty() {
        configurations.push(Configuration::parse("embedded").map_err(Failure::usage)?);
    }
    if configurations.len() > report::CONFIGURATIONS_MAX {
        return Err(Failure::usage(format!("more than {} configurations", report::CONFIGURATIONS_MAX)));
    }
    Ok(configurations)
}

/// Returns the data folder; without `--data`, the one in the current folder, after generating what is
/// missing.
fn data_at(data: Option<&Path>, scale: f64) -> Result<PathBuf, Failure> {
    if let Some(data) = data {
        return Ok(data.to_path_buf());
    }
    generate("tpch", scale, Path::new(DATA))
}

/// Returns the folder of a benchmark's data below `folder`, such as `tpch-sf1`, after generating what is
/// missing.
fn generate(benchmark: &str, scale: f64, folder: &Path) -> Result<PathBuf, Failure> {
    let data = folder.join(format!("{benchmark}-sf{scale}"));
    // The generator prints a line per table to standard error; later runs only print that the files exist.
    let status = Command::new(configuration::this_binary()?)
        .args(["generate", benchmark, "--scale", &scale.to_string(), "--out"])
        .arg(&data)
        .status()
        .map_err(|e| Failure::dead(format!("could not generate the data: {e}")))?;
    if !status.success() {
        return Err(Failure::dead(format!("could not generate the data in \"{}\"", data.display())));
    }
    Ok(data)
}

fn draw(options: &ChartOptions) -> Result<(), Failure> {
    let results = options.files.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    write(&options.out, &svg(&results).map_err(Failure::usage)?)
}

/// Writes and draws the result as requested.
fn keep(result: &Value, json: Option<&Path>, chart: Option<&Path>) -> Result<(), Failure> {
    if let Some(path) = json {
        let mut text = serde_json::to_string_pretty(result).unwrap_or_default();
        text.push('\n');
        write(path, &text)?;
    }
    if let Some(path) = chart {
        write(path, &svg(std::slice::from_ref(result)).map_err(Failure::usage)?)?;
        print_line(format_args!("\nchart: {}", path.display()));
    }
    Ok(())
}

/// Draws a result with its benchmark's kind of chart.
fn svg(results: &[Value]) -> Result<String, String> {
    match results {
        [one] if one["benchmark"] == interconnect::NAME => interconnect::chart::svg(one),
        [one] if one["benchmark"] == duel::NAME => duel::chart::svg(one),
        [one] if one["benchmark"] == primitives::NAME => primitives::chart::svg(one),
        [one] if one["benchmark"] == commit::NAME => commit::chart::svg(one),
        [one] if one["benchmark"] == serve::NAME => serve::chart::svg(one),
        [_, _, ..] if results.iter().any(|result| is_drawn_alone(&result["benchmark"])) => {
            Err("results of bench duel, interconnect, primitives, commit and serve are drawn one by one"
                .to_owned())
        }
        _ if results.iter().all(|result| result["benchmark"] == crowded::NAME) => {
            chart::svg(results, &chart::P99)
        }
        _ => chart::svg(results, &chart::MEDIAN),
    }
}

fn is_drawn_alone(benchmark: &Value) -> bool {
    [duel::NAME, interconnect::NAME, primitives::NAME, commit::NAME, serve::NAME]
        .iter()
        .any(|name| benchmark == name)
}

fn read(path: &Path) -> Result<Value, Failure> {
    let text = fs::read_to_string(path).map_err(|e| io_error("read file", path, &e))?;
    serde_json::from_str(&text)
        .map_err(|e| Failure::usage(format!("file \"{}\" is not what --json writes: {e}", path.display())))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|e| io_error("create folder", folder, &e))?;
    }
    fs::File::create(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|e| io_error("write file", path, &e).into())
}

fn io_error(action: &str, path: &Path, error: &std::io::Error) -> SqlError {
    SqlError::new(SqlState::IO_ERROR, format!("could not {action} \"{}\": {error}", path.display()))
}
