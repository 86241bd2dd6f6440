//! `harrier bench interconnect`: the cost of moving blocks between ranks, by several transports in one run.
//!
//! The same batches go from the same ranks to the same ranks: over MPI, over QUIC, over gRPC as
//! datafusion-distributed ships it, from task to task inside one process, and as a plain memory copy, which
//! is the baseline. With every transport a rank makes batches from a pool in memory, and a rank reads every
//! value that arrives once; see `pool` for the verification.
//!
//! Each case (a pattern, a number of streams, a size) runs in all configurations one after the other, as
//! often as requested: once with every value compared, then to calibrate the number of batches for the
//! duration of a run, then measured A B A B.
//!
//! Errors: as for `bench`: wrong bytes and failed transfers are shown in the table, and the command fails at
//! its end.

pub mod chart;
pub mod ranks;
pub mod transfer;

pub mod latency;

mod direct;
mod pool;
mod report;

use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;

use harrier_error::{SqlError, SqlState};
use harrier_interconnect::limits::BLOCK_BYTES_TARGET;
use serde_json::{Value, json};

use super::cell::median;
use super::configuration::{Configuration, GRPC, INPROCESS, MPI};
use super::progress::Progress;
use super::protocol::{Latency, Moved};
use super::worker_process::{WorkerError, WorkerProcess};
use super::{Failure, keep, machine};
use transfer::{Pattern, Transfer, VALUE_BYTES};

/// Name on the command line and in the JSON result.
pub const NAME: &str = "interconnect";

/// The MPI library alone, for its round trips.
const DIRECT: &str = "mpidirect";

/// Defaults for `--config`, the baseline first.
const CONFIGURATIONS: [&str; 10] = [
    "memcpy",
    "memcpysum",
    "inprocess",
    "mpi",
    "mpi:env.HARRIER_SHARED_MEMORY=0",
    "mpi:env.HARRIER_SHARED_MEMORY=0,env.OMPI_MCA_btl=^vader",
    "udp:env.HARRIER_SHARED_MEMORY=0",
    "grpc:compression=none",
    "grpc:compression=lz4",
    "mpidirect:env.OMPI_MCA_mpi_yield_when_idle=0",
];

/// Streams from each sender to each of its readers, unless their number is varied: the minimum that
/// DataFusion plans for a redistribution.
const STREAMS: usize = 2;

/// Size of a batch when the number of streams is varied.
const STREAMS_PAYLOAD_BYTES: u64 = BLOCK_BYTES_TARGET as u64;

/// Maximum size of a batch: half of the pool.
const PAYLOAD_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Maximum streams from one rank to another; their offsets in the pool depend on it.
const STREAMS_MAX: usize = 64;

/// Maximum ranks, for the same reason.
const RANKS_MAX: usize = 64;

/// Size of a small message; a frame's header has the same size.
const MESSAGE_BYTES: usize = 64;

/// Round trips before timing starts.
const WARM_UP_ROUND_TRIPS: u64 = 500;

/// Bytes of the run whose values are compared.
const COMPARED_BYTES: u64 = 8 * 1024 * 1024;

/// Batches of each stream in that run: more than a stream may have in flight, and few enough to be sent
/// quickly.
const COMPARED_BATCHES_MIN: u64 = 16;
const COMPARED_BATCHES_MAX: u64 = 2000;

/// Maximum bytes of a measured run.
const MEASURED_BYTES_MAX: u64 = 16 * 1024 * 1024 * 1024;

#[derive(clap::Args, Debug)]
pub struct Options {
    /// What to measure [default: copies in memory, one process, MPI three times, QUIC, gRPC twice, and MPI's
    /// own round trips]
    ///
    /// KIND is mpi, udp (QUIC), grpc, inprocess (from task to task), memcpy (a copy of every batch by one
    /// thread), memcpysum (and what a reader does with it), or mpidirect (only round trips, by the MPI
    /// library alone). KEY is threads (of each rank), compression (of grpc: lz4, zstd, none), mpirun (the
    /// launcher), binary, or env.NAME (a variable for its ranks).
    #[arg(long = "config", value_name = "KIND[:KEY=VALUE,…]")]
    configurations: Vec<String>,
    /// Who sends to whom, of one-to-one, one-to-many, many-to-one, many-to-many [default: all of them]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    patterns: Option<Vec<Pattern>>,
    /// Ranks of the patterns with many
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = ranks_of_many)]
    ranks: usize,
    /// Sizes of a batch, from 8 B to 4 MiB
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1KiB,4KiB,16KiB,64KiB,256KiB,1MiB,4MiB"
    )]
    sizes: Vec<Size>,
    /// Simultaneous streams from one rank to one other, measured with batches of 256 KiB; "none" for no such
    /// table
    #[arg(long, value_name = "LIST", default_value = "2,4,8,16,32,64")]
    streams: StreamCounts,
    /// Messages to and fro, measured in each run; 0 for none
    #[arg(long, value_name = "N", default_value_t = 5000)]
    round_trips: u64,
    /// Timed runs of each case
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Seconds that a run shall take
    #[arg(long, value_name = "F", default_value_t = 0.2)]
    seconds: f64,
    /// Write all measurements here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw a chart of the medians here
    #[arg(long, value_name = "FILE.svg")]
    chart: Option<PathBuf>,
}

/// Size of a batch, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size(u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
        let bytes = units.into_iter().find_map(|(unit, factor)| {
            text.strip_suffix(unit)?.trim().parse::<u64>().ok()?.checked_mul(factor)
        });
        bytes
            .filter(|bytes| bytes.is_multiple_of(VALUE_BYTES))
            .filter(|bytes| (VALUE_BYTES..=PAYLOAD_BYTES_MAX).contains(bytes))
            .map(Self)
            .ok_or_else(|| format!("a batch has a multiple of 8 bytes, as 64KiB, and up to 4MiB; not {text}"))
    }
}

/// Numbers of streams.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StreamCounts(Vec<usize>);

impl FromStr for StreamCounts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(Vec::new()));
        }
        let count = |text: &str| match text.trim().parse() {
            Ok(count) if (1..=STREAMS_MAX).contains(&count) => Ok(count),
            _ => Err(format!("1 to {STREAMS_MAX} streams, not \"{text}\"")),
        };
        text.split(',').map(count).collect::<Result<_, _>>().map(Self)
    }
}

fn ranks_of_many(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(ranks) if (2..=RANKS_MAX).contains(&ranks) => Ok(ranks),
        _ => Err(format!("2 to {RANKS_MAX} ranks")),
    }
}

/// One line of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    pub pattern: Pattern,
    pub streams: usize,
    pub payload_bytes: u64,
}

/// Cases of one table: by size, or by the number of streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub ranks: usize,
    pub by_streams: bool,
    pub cases: Vec<Case>,
}

/// One case in one configuration.
#[derive(Debug, Clone, Default)]
pub struct Cell {
    pub runs: Vec<Moved>,
    /// Why there are no figures.
    pub problem: Option<String>,
}

impl Cell {
    /// Median throughput in GB (10⁹ bytes of values) per second; `None` if there is a problem.
    pub fn gb_per_s(&self) -> Option<f64> {
        self.median(gb_per_s)
    }

    /// Median CPU seconds of all ranks per GB.
    pub fn cpu_s_per_gb(&self) -> Option<f64> {
        self.median(cpu_s_per_gb)
    }

    fn median(&self, value: fn(&Moved) -> f64) -> Option<f64> {
        let usable = self.problem.is_none();
        usable.then(|| median(self.runs.iter().map(value).collect())).flatten()
    }
}

fn gb_per_s(moved: &Moved) -> f64 {
    moved.bytes as f64 / 1e9 / moved.wall.as_secs_f64()
}

fn cpu_s_per_gb(moved: &Moved) -> f64 {
    moved.cpu.as_secs_f64() / (moved.bytes as f64 / 1e9)
}

/// Round trips of one configuration.
#[derive(Debug, Clone, Default)]
pub struct RoundTrips {
    pub name: String,
    pub runs: Vec<Latency>,
    pub problem: Option<String>,
}

impl RoundTrips {
    pub fn p50_ns(&self) -> Option<f64> {
        median(self.runs.iter().map(|run| run.p50_ns).collect())
    }

    pub fn p99_ns(&self) -> Option<f64> {
        median(self.runs.iter().map(|run| run.p99_ns).collect())
    }
}

/// Runs the command. Blocks until it is done.
pub fn run(options: &Options) -> Result<(), Failure> {
    if !(options.seconds > 0.0 && options.seconds <= 60.0) {
        return Err(Failure::usage(format!("invalid time of a run: {} s", options.seconds)));
    }
    let all = configurations(&options.configurations)?;
    let (movers, direct): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|configuration| configuration.kind() != DIRECT);
    if movers.len() > super::report::CONFIGURATIONS_MAX {
        return Err(Failure::usage(format!(
            "more than {} configurations",
            super::report::CONFIGURATIONS_MAX
        )));
    }
    let tables = tables(options);
    let mut out = std::io::stdout();
    let measured = Bench { options, movers: &movers, direct: &direct }.run(&tables, &mut out)?;
    keep(&measured.json, options.json.as_deref(), options.chart.as_deref())?;
    match measured.wrong {
        0 => Ok(()),
        wrong => {
            Err(SqlError::new(SqlState::DATA_CORRUPTED, format!("{wrong} cases failed or moved wrong bytes"))
                .into())
        }
    }
}

fn configurations(texts: &[String]) -> Result<Vec<Configuration>, Failure> {
    let defaults = CONFIGURATIONS.map(str::to_owned);
    let texts = if texts.is_empty() { &defaults[..] } else { texts };
    let known = [
        MPI,
        super::configuration::UDP,
        GRPC,
        INPROCESS,
        super::configuration::MEMCPY,
        super::configuration::MEMCPY_SUM,
        DIRECT,
    ];
    texts
        .iter()
        .map(|text| {
            let configuration = Configuration::parse(text)?;
            // Check now, to report it as an error of the command line.
            configuration.exchange(2)?;
            match known.contains(&configuration.kind()) {
                true => Ok(configuration),
                false => Err(format!(
                    "invalid configuration \"{text}\": it begins with one of {}",
                    known.join(", ")
                )),
            }
        })
        .collect::<Result<_, _>>()
        .map_err(Failure::usage)
}

/// Returns a table for each pattern, and one for the streams.
fn tables(options: &Options) -> Vec<Table> {
    let patterns = options.patterns.clone().unwrap_or_else(|| Pattern::ALL.to_vec());
    let mut tables: Vec<Table> = patterns
        .iter()
        .map(|&pattern| Table {
            ranks: pattern.ranks(options.ranks),
            by_streams: false,
            cases: options
                .sizes
                .iter()
                .map(|size| Case { pattern, streams: STREAMS, payload_bytes: size.0 })
                .collect(),
        })
        .collect();
    if !options.streams.0.is_empty() {
        let case =
            |&streams| Case { pattern: Pattern::OneToOne, streams, payload_bytes: STREAMS_PAYLOAD_BYTES };
        tables.push(Table {
            ranks: 2,
            by_streams: true,
            cases: options.streams.0.iter().map(case).collect(),
        });
    }
    // Sorted so that workers stay for all tables with their number of ranks.
    tables.sort_by_key(|table| table.ranks);
    tables
}

struct Measured {
    json: Value,
    /// Cases that failed or moved wrong bytes, in any configuration.
    wrong: usize,
}

struct Bench<'a> {
    options: &'a Options,
    /// Configurations that move batches.
    movers: &'a [Configuration],
    /// Configurations that only exchange messages.
    direct: &'a [Configuration],
}

impl Bench<'_> {
    fn run(&self, tables: &[Table], out: &mut dyn Write) -> Result<Measured, Failure> {
        let mut progress = Progress::new(out);
        let mut cells: Vec<Vec<Vec<Cell>>> = Vec::new();
        let mut latencies = Vec::new();
        let mut commands = Vec::new();
        let mut workers: (usize, Vec<WorkerProcess>) = (0, Vec::new());
        if self.options.round_trips > 0 {
            workers = (2, self.start(self.movers, 2, &mut progress)?);
        }
        for (index, table) in tables.iter().enumerate() {
            if workers.0 != table.ranks {
                // The old workers must end before the new ones start.
                workers.1.clear();
                workers = (table.ranks, self.start(self.movers, table.ranks, &mut progress)?);
            }
            if commands.is_empty() {
                progress.print(&report::header(self.options.runs, self.movers, &workers.1));
                commands = workers.1.iter().map(|worker| worker.engine.clone()).collect();
            }
            progress.print(&report::table_header(table, self.movers.len()));
            let mut lines = Vec::new();
            for case in &table.cases {
                progress.prefix = format!("{}, {}", report::title(table), report::case(table, case));
                let line = self.case(table, case, &mut workers.1, &mut progress)?;
                progress.print(&report::line(&report::case(table, case), &line));
                lines.push(line);
            }
            cells.push(lines);
            let last_of_two = tables.get(index + 1).is_none_or(|next| next.ranks != 2);
            if table.ranks == 2 && last_of_two && self.options.round_trips > 0 {
                latencies = self.latencies(&mut workers.1, &mut progress)?;
            }
        }
        if latencies.is_empty() && self.options.round_trips > 0 {
            workers.1.clear();
            workers = (2, self.start(self.movers, 2, &mut progress)?);
            latencies = self.latencies(&mut workers.1, &mut progress)?;
        }
        drop(workers);
        let wrong =
            cells.iter().flatten().filter(|line| line.iter().any(|cell| cell.problem.is_some())).count()
                + latencies.iter().filter(|latency| latency.problem.is_some()).count();
        Ok(Measured { json: self.json(tables, &cells, &latencies, &commands)?, wrong })
    }

    fn start(
        &self,
        configurations: &[Configuration],
        ranks: usize,
        progress: &mut Progress<'_>,
    ) -> Result<Vec<WorkerProcess>, Failure> {
        let start = |configuration: &Configuration| {
            progress.prefix.clear();
            progress.step(format!("starting {} on {ranks} ranks", configuration.name));
            let exchange = configuration.exchange(ranks).map_err(Failure::usage)?;
            WorkerProcess::start(&exchange, &mut || progress.tick())
        };
        configurations.iter().map(start).collect()
    }

    /// Runs one case: compares values, calibrates, then measures in turns.
    fn case(
        &self,
        table: &Table,
        case: &Case,
        workers: &mut [WorkerProcess],
        progress: &mut Progress<'_>,
    ) -> Result<Vec<Cell>, Failure> {
        let mut cells = vec![Cell::default(); workers.len()];
        let mut transfers = vec![first_transfer(table, case); workers.len()];
        for run in 0..=self.options.runs {
            for (index, worker) in workers.iter_mut().enumerate() {
                let name = &self.movers[index].name;
                progress.step(match run {
                    0 => format!("warm-up of {name}"),
                    _ => format!("run {run} of {} of {name}", self.options.runs),
                });
                if cells[index].problem.is_some() {
                    continue;
                }
                let result = match run {
                    0 => self.size(table, &mut transfers[index], worker, progress).map(|()| None),
                    _ => worker.transfer(&transfers[index], &mut || progress.tick()).map(Some),
                };
                match result {
                    Ok(moved) => cells[index].runs.extend(moved),
                    Err(WorkerError::Statement(problem)) => cells[index].problem = Some(problem),
                    Err(WorkerError::Dead(failure)) => return Err(failure),
                }
            }
        }
        Ok(cells)
    }

    /// Compares the moved values, and calibrates the number of batches for the duration of a run.
    fn size(
        &self,
        table: &Table,
        transfer: &mut Transfer,
        worker: &mut WorkerProcess,
        progress: &mut Progress<'_>,
    ) -> Result<(), WorkerError> {
        worker.transfer(transfer, &mut || progress.tick())?;
        transfer.compare = false;
        loop {
            let moved = worker.transfer(transfer, &mut || progress.tick())?;
            let factor = self.options.seconds / moved.wall.as_secs_f64().max(1e-9);
            let most = MEASURED_BYTES_MAX / transfer.bytes(table.ranks).max(1);
            // A short run is a poor estimate of a long one.
            let enough = factor < 4.0 || most <= 1;
            let factor = if enough { factor } else { factor.min(16.0) }.min(most as f64);
            transfer.batches = ((transfer.batches as f64 * factor) as u64).max(COMPARED_BATCHES_MIN);
            if enough {
                return Ok(());
            }
        }
    }

    /// Measures round trips, in turns.
    fn latencies(
        &self,
        workers: &mut [WorkerProcess],
        progress: &mut Progress<'_>,
    ) -> Result<Vec<RoundTrips>, Failure> {
        let mut direct = self.start(self.direct, 2, progress)?;
        let moving = self.movers.iter().zip(workers).filter(|(mover, _)| !mover.kind().starts_with("memcpy"));
        // MPI's own first: the others are reported as multiples of them.
        let mut all: Vec<_> = self.direct.iter().zip(&mut direct).chain(moving).collect();
        let mut latencies: Vec<RoundTrips> = all
            .iter()
            .map(|(configuration, _)| RoundTrips { name: configuration.name.clone(), ..Default::default() })
            .collect();
        progress.prefix = "round trips".to_owned();
        for run in 1..=self.options.runs {
            for ((configuration, worker), latency) in all.iter_mut().zip(&mut latencies) {
                progress.step(format!("run {run} of {} of {}", self.options.runs, configuration.name));
                match worker.round_trips(self.options.round_trips, &mut || progress.tick()) {
                    Ok(measured) => latency.runs.push(measured),
                    Err(WorkerError::Statement(problem)) => latency.problem = Some(problem),
                    Err(WorkerError::Dead(failure)) => return Err(failure),
                }
            }
        }
        progress.print(&report::latencies(&latencies));
        Ok(latencies)
    }

    fn json(
        &self,
        tables: &[Table],
        cells: &[Vec<Vec<Cell>>],
        latencies: &[RoundTrips],
        engines: &[String],
    ) -> Result<Value, Failure> {
        let mut configurations = Vec::new();
        for (index, configuration) in self.movers.iter().enumerate() {
            let exchange = configuration.exchange(self.options.ranks).map_err(Failure::usage)?;
            configurations.push(json!({
                "name": configuration.name,
                "engine": engines.get(index),
                "command": exchange.command_line()?,
            }));
        }
        let cell = |cell: &Cell| {
            json!({
                "gb_per_s": cell.runs.iter().map(gb_per_s).collect::<Vec<_>>(),
                "cpu_s_per_gb": cell.runs.iter().map(cpu_s_per_gb).collect::<Vec<_>>(),
                "gb_per_s_median": cell.gb_per_s(),
                "cpu_s_per_gb_median": cell.cpu_s_per_gb(),
                "problem": cell.problem,
            })
        };
        let table = |(table, lines): (&Table, &Vec<Vec<Cell>>)| {
            let line = |(case, line): (&Case, &Vec<Cell>)| {
                json!({
                    "pattern": case.pattern.name(),
                    "streams": case.streams,
                    "payload_bytes": case.payload_bytes,
                    "configurations": line.iter().map(cell).collect::<Vec<_>>(),
                })
            };
            json!({
                "title": report::title(table),
                "ranks": table.ranks,
                "by": if table.by_streams { "streams" } else { "payload_bytes" },
                "cases": table.cases.iter().zip(lines).map(line).collect::<Vec<_>>(),
            })
        };
        let latency = |latency: &RoundTrips| {
            json!({
                "name": latency.name,
                "p50_ns": latency.runs.iter().map(|run| run.p50_ns).collect::<Vec<_>>(),
                "p99_ns": latency.runs.iter().map(|run| run.p99_ns).collect::<Vec<_>>(),
                "p50_ns_median": latency.p50_ns(),
                "p99_ns_median": latency.p99_ns(),
                "problem": latency.problem,
            })
        };
        Ok(json!({
            "benchmark": NAME,
            "title": "Blocks between ranks",
            "runs": self.options.runs,
            "when": machine::now(),
            "harrier": env!("CARGO_PKG_VERSION"),
            "machine": machine::json(),
            "configurations": configurations,
            "tables": tables.iter().zip(cells).map(table).collect::<Vec<_>>(),
            "half_round_trips": latencies.iter().map(latency).collect::<Vec<_>>(),
        }))
    }
}

/// Returns the run whose values are compared.
fn first_transfer(table: &Table, case: &Case) -> Transfer {
    let streams = (case.pattern.pairs(table.ranks).len() * case.streams) as u64;
    let batches = COMPARED_BYTES / case.payload_bytes / streams.max(1);
    Transfer {
        pattern: case.pattern,
        streams: case.streams,
        payload_bytes: case.payload_bytes,
        batches: batches.clamp(COMPARED_BATCHES_MIN, COMPARED_BATCHES_MAX),
        compare: true,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    fn options(arguments: &[&str]) -> Result<Options, clap::Error> {
        Cli::try_parse_from([&["bench"], arguments].concat()).map(|cli| cli.options)
    }

    #[test]
    fn lists_become_tables() {
        let default = tables(&options(&[]).unwrap());
        assert_eq!(default.iter().map(|table| table.cases.len()).collect::<Vec<_>>(), [7, 6, 7, 7, 7]);
        assert!(default[1].by_streams && default[1].ranks == 2);
        let arguments = ["--patterns", "many-to-one,one-to-one", "--sizes", "8B,64KiB", "--streams", "none"];
        let few = tables(&options(&[&arguments[..], &["--ranks", "3"]].concat()).unwrap());
        assert_eq!(few.iter().map(|table| table.ranks).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(
            few[1].cases[1],
            Case { pattern: Pattern::ManyToOne, streams: STREAMS, payload_bytes: 65536 }
        );
        let transfer = first_transfer(&few[1], &few[1].cases[1]);
        assert_eq!((transfer.batches, transfer.compare), (32, true));
    }

    #[test]
    fn invalid_input_is_refused() {
        for arguments in [
            ["--sizes", "12B"],
            ["--sizes", "8MiB"],
            ["--sizes", "0"],
            ["--streams", "65"],
            ["--streams", ""],
            ["--patterns", "all"],
            ["--ranks", "1"],
            ["--runs", "0"],
        ] {
            assert!(options(&arguments).is_err(), "{arguments:?}");
        }
        for text in ["embedded", "mpi:ranks=2", "tcp"] {
            assert!(configurations(&[text.to_owned()]).is_err(), "{text}");
        }
        assert_eq!(configurations(&[]).map(|all| all.len()).map_err(|failure| failure.error.message), Ok(10));
    }
}
