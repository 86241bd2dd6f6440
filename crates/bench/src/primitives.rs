//! `harrier bench primitives`: the cost of sending bytes from one process to another, by the primitives that
//! data systems use.
//!
//! Two figures of "Can MPI Benefit Hadoop and MapReduce Applications?" (MPI-D), reproduced: the latency of a
//! message of 1 byte to 64 MiB, as half of a round trip (figure 2), and the bandwidth of moving 128 MiB in
//! packets of these sizes (figure 3). The primitives are the MPI library itself, in shared memory and over
//! TCP, the streams of Harrier's interconnect over it, gRPC, and Hadoop's RPC and HTTP over Jetty, from
//! Hadoop's own jars (`bench/primitives`). And one of "Hive on DataMPI": blocking against non-blocking tasks
//! with skewed keys (figure 6; `blocking.rs`).
//!
//! Each size runs with all primitives one after the other, as often as requested; figures are medians. A run
//! is limited to `--seconds`: if packets are too slow to move 128 MiB in that time, the rate of those moved
//! is reported.
//!
//! Errors: as for `bench`; unavailable primitives are reported and left out, unless requested by `--config`.

mod blocking;
pub mod chart;
mod grpc;
mod mpi;
mod pair;
mod report;
mod streams;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use harrier_error::{SqlError, SqlState};
use serde_json::{Value, json};

use super::cell::median;
use super::configuration::Configuration;
use super::progress::Progress;
use super::protocol::{Latency, Moved};
use super::worker_process::{WorkerError, WorkerProcess};
use super::{Failure, WorkerArgs, keep, machine};

/// Name on the command line and in the JSON result.
pub const NAME: &str = "primitives";

/// Bytes moved in packets.
const TOTAL_BYTES: u64 = 128 << 20;

/// From 1 byte to 64 MiB, each four times the previous one.
const SIZES: usize = 14;

/// The largest of the sizes.
const SIZE_BYTES_MAX: usize = 64 << 20;

/// Default primitives: a name, and the worker's command.
const MEANS: [(&str, &str); 6] = [
    ("mpi", "mpi"),
    ("mpi-tcp", "mpi:env.OMPI_MCA_btl=^vader,env.OMPI_MCA_mpi_yield_when_idle=1"),
    ("streams", "streams"),
    ("grpc", "grpc"),
    ("hadoop-rpc", "rpc"),
    ("jetty-http", "http"),
];

#[derive(clap::Args, Debug)]
pub struct Options {
    /// By what means, of mpi, mpi-tcp, streams, grpc, hadoop-rpc, jetty-http [default: all that can be had]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    means: Option<Vec<String>>,
    /// Only sizes of up to so many bytes
    #[arg(long, value_name = "N", default_value_t = SIZE_BYTES_MAX)]
    bytes_max: usize,
    /// Runs of each size by each of the means
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Seconds that a run takes at most, but for the last message or packet
    #[arg(long, value_name = "F", default_value_t = 0.3)]
    seconds: f64,
    /// Bytes of uservisits for tasks that wait and tasks that do not; 0 leaves that out
    #[arg(long, value_name = "N", default_value_t = 200_000_000)]
    blocking_bytes: u64,
    /// Where the workers in Java are started from
    #[arg(long, value_name = "PROGRAM", default_value = "bench/primitives/run")]
    java: PathBuf,
    /// Write all measurements here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw a chart of the medians here
    #[arg(long, value_name = "FILE.svg")]
    chart: Option<PathBuf>,
}

/// Figure measured for each size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Figure {
    Latency,
    Bandwidth,
}

impl Figure {
    const ALL: [Figure; 2] = [Figure::Latency, Figure::Bandwidth];
}

/// One size with one primitive.
#[derive(Debug, Clone, Default)]
struct Cell {
    latency: Vec<Latency>,
    moved: Vec<Moved>,
    problem: Option<String>,
}

impl Cell {
    /// Half a round trip in microseconds, the median of the runs' medians.
    fn latency_us(&self) -> Option<f64> {
        median(self.latency.iter().map(|run| run.p50_ns / 1e3).collect())
    }

    /// Median throughput in MB (10⁶ bytes) per second.
    fn mb_per_s(&self) -> Option<f64> {
        median(self.moved.iter().map(|run| run.bytes as f64 / 1e6 / run.wall.as_secs_f64()).collect())
    }
}

/// Runs the worker of a primitive, for `bench-worker --primitive`.
pub fn run_worker(args: &WorkerArgs) -> ExitCode {
    let done = match args.primitive.as_deref().unwrap_or_default() {
        "mpi" => mpi::run(),
        "grpc" => grpc::run(),
        "grpc-server" => grpc::run_server(),
        "streams" => match super::launch(args) {
            Ok(launch) => streams::run(launch),
            Err(status) => return status,
        },
        other => Err(format!("there is no primitive {other}")),
    };
    pair::exit_code(done)
}

/// Runs the command. Blocks until it is done.
pub fn run(options: &Options) -> Result<(), Failure> {
    if !(options.seconds > 0.0 && options.seconds <= 60.0) {
        return Err(Failure::usage(format!("invalid time of a run: {} s", options.seconds)));
    }
    let wanted = select(options.means.as_deref())?;
    let sizes: Vec<usize> =
        (0..SIZES as u32).map(|power| 4usize.pow(power)).filter(|size| *size <= options.bytes_max).collect();
    if sizes.is_empty() {
        return Err(Failure::usage("--bytes-max is at least 1"));
    }
    let mut out = std::io::stdout();
    let result = Bench { options, sizes }.run(&wanted, &mut out)?;
    keep(&result.json, options.json.as_deref(), options.chart.as_deref())?;
    match result.wrong {
        0 => Ok(()),
        wrong => {
            Err(SqlError::new(SqlState::DATA_CORRUPTED, format!("{wrong} cases failed or moved wrong bytes"))
                .into())
        }
    }
}

/// Returns the selected names and their commands. Errors: an unknown name.
fn select(names: Option<&[String]>) -> Result<Vec<(&'static str, &'static str)>, Failure> {
    let Some(names) = names else {
        return Ok(MEANS.to_vec());
    };
    let one = |name: &String| {
        MEANS.into_iter().find(|(known, _)| known == name).ok_or_else(|| {
            let known = MEANS.map(|(known, _)| known).join(", ");
            Failure::usage(format!("invalid means \"{name}\": it is one of {known}"))
        })
    };
    names.iter().map(one).collect()
}

struct Bench<'a> {
    options: &'a Options,
    sizes: Vec<usize>,
}

struct Measured {
    json: Value,
    wrong: usize,
}

/// A running primitive.
struct Worker {
    name: &'static str,
    command: String,
    process: WorkerProcess,
}

impl Bench<'_> {
    fn run(&self, wanted: &[(&'static str, &'static str)], out: &mut dyn Write) -> Result<Measured, Failure> {
        let mut progress = Progress::new(out);
        let mut workers = self.start(wanted, &mut progress)?;
        progress.print(&report::header(self.options.runs, self.options.seconds, &workers));
        // By size, then by worker.
        let mut cells: Vec<Vec<Cell>> = vec![vec![Cell::default(); workers.len()]; self.sizes.len()];
        for figure in Figure::ALL {
            progress.print(&report::table_header(figure, &workers));
            for (at, size) in self.sizes.iter().enumerate() {
                progress.prefix = report::size(*size);
                self.case(figure, *size, &mut workers, &mut cells[at], &mut progress)?;
                progress.print(&report::line(figure, *size, &cells[at]));
            }
        }
        let engines: Vec<Value> = workers
            .iter()
            .map(|worker| {
                json!({ "name": worker.name, "engine": worker.process.engine, "command": worker.command })
            })
            .collect();
        // Stop the workers, which are no longer needed.
        drop(workers);
        progress.prefix.clear();
        let blocking = match self.options.blocking_bytes {
            0 => None,
            bytes => match blocking::measure(bytes, self.options.runs, &mut progress) {
                Ok(blocking) => {
                    progress.print(&report::blocking(&blocking));
                    Some(blocking)
                }
                Err(reason) => {
                    progress
                        .print(&format!("\nleft out, tasks that wait against tasks that do not: {reason}"));
                    None
                }
            },
        };
        let wrong = cells.iter().flatten().filter(|cell| cell.problem.is_some()).count();
        let json = json!({
            "benchmark": NAME,
            "title": "Bytes from one process to another",
            "runs": self.options.runs,
            "seconds": self.options.seconds,
            "total_bytes": TOTAL_BYTES,
            "when": machine::now(),
            "harrier": env!("CARGO_PKG_VERSION"),
            "machine": machine::json(),
            "configurations": engines,
            "cases": self.sizes.iter().zip(&cells).map(|(size, line)| case_json(*size, line)).collect::<Vec<_>>(),
            "blocking": blocking.map(|blocking| blocking.json()),
        });
        Ok(Measured { json, wrong })
    }

    /// Starts the available workers; if requested by name, all must start.
    fn start(
        &self,
        wanted: &[(&'static str, &'static str)],
        progress: &mut Progress<'_>,
    ) -> Result<Vec<Worker>, Failure> {
        let mut workers = Vec::new();
        for (name, what) in wanted {
            progress.step(format!("starting {name}"));
            let configuration = match *what {
                "rpc" | "http" => {
                    Configuration::peer(&format!("{name}='{}' {what}", self.options.java.display()))
                }
                _ => Configuration::primitive(what),
            }
            .map_err(Failure::usage)?;
            match WorkerProcess::start(&configuration, &mut || progress.tick()) {
                Ok(process) => workers.push(Worker { name, command: configuration.command_line()?, process }),
                Err(failure) if self.options.means.is_some() => return Err(failure),
                Err(failure) => progress.print(&format!("left out, {name}: {}", failure.error.message)),
            }
        }
        match workers.is_empty() {
            true => Err(Failure::missing("none of the means could be had")),
            false => Ok(workers),
        }
    }

    fn case(
        &self,
        figure: Figure,
        size: usize,
        workers: &mut [Worker],
        cells: &mut [Cell],
        progress: &mut Progress<'_>,
    ) -> Result<(), Failure> {
        let time = Duration::from_secs_f64(self.options.seconds);
        for run in 1..=self.options.runs {
            for (worker, cell) in workers.iter_mut().zip(&mut *cells) {
                if cell.problem.is_some() {
                    continue;
                }
                progress.step(format!("run {run} of {} of {}", self.options.runs, worker.name));
                let process = &mut worker.process;
                let mut waiting = || progress.tick();
                let outcome = match figure {
                    Figure::Latency => {
                        process.ping_pong(size, time, &mut waiting).map(|latency| cell.latency.push(latency))
                    }
                    Figure::Bandwidth => process
                        .packets(size, TOTAL_BYTES, time, &mut waiting)
                        .map(|moved| cell.moved.push(moved)),
                };
                match outcome {
                    Ok(()) => {}
                    Err(WorkerError::Statement(problem)) => cell.problem = Some(problem),
                    Err(WorkerError::Dead(failure)) => return Err(failure),
                }
            }
        }
        Ok(())
    }
}

fn case_json(size: usize, line: &[Cell]) -> Value {
    let cell = |cell: &Cell| {
        json!({
            "half_round_trip_us": cell.latency.iter().map(|run| run.p50_ns / 1e3).collect::<Vec<_>>(),
            "half_round_trip_us_p99": cell.latency.iter().map(|run| run.p99_ns / 1e3).collect::<Vec<_>>(),
            "half_round_trip_us_median": cell.latency_us(),
            "moved_bytes": cell.moved.iter().map(|run| run.bytes).collect::<Vec<_>>(),
            "moved_s": cell.moved.iter().map(|run| run.wall.as_secs_f64()).collect::<Vec<_>>(),
            "mb_per_s_median": cell.mb_per_s(),
            "problem": cell.problem,
        })
    };
    json!({ "bytes": size, "configurations": line.iter().map(cell).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_have_names() {
        let names = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            select(Some(&names)).map(|found| found.len()).map_err(|failure| failure.error.message)
        };
        assert_eq!(names(&["grpc", "mpi"]), Ok(2));
        assert!(names(&["tcp"]).unwrap_err().contains("jetty-http"));
        assert_eq!(4usize.pow(SIZES as u32 - 1), SIZE_BYTES_MAX);
        for (_, what) in MEANS {
            if !["rpc", "http"].contains(&what) {
                Configuration::primitive(what).unwrap();
            }
        }
    }

    #[test]
    fn figures_are_medians() {
        let moved = |bytes, ms| Moved { bytes, wall: Duration::from_millis(ms), cpu: Duration::ZERO };
        let latency = |p50_ns| Latency { p50_ns, p99_ns: 0.0 };
        let cell = Cell {
            latency: vec![latency(1000.0), latency(9000.0), latency(2000.0)],
            moved: vec![moved(1_000_000, 1000), moved(5_000_000, 1000), moved(3_000_000, 1000)],
            problem: None,
        };
        assert_eq!((cell.latency_us(), cell.mb_per_s()), (Some(2.0), Some(3.0)));
        assert_eq!(Cell::default().latency_us(), None);
    }
}
