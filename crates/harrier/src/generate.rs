//! `harrier generate`: TPC-H and TPC-DS data as files (`harrier-generate`), or as warehouse tables
//! (`load.rs`).
//!
//! Contains the command line, the progress bar and the mapping of errors to SQLSTATEs.
//!
//! Cancellation: SIGINT and SIGTERM stop all threads at the next batch and are reported as an error.

mod load;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use harrier_engine::SqlError;
use harrier_error::SqlState;
use harrier_generate::{self as generator, Files};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::warehouse_args::WarehouseArgs;

/// The command's arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(clap::Subcommand, Debug)]
enum Benchmark {
    /// The 8 tables of TPC-H
    Tpch(Options),
    /// The 24 tables of TPC-DS
    Tpcds(Options),
}

/// What to generate and where.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Scale factor: 1 is about 1 GB as text
    #[arg(long, value_name = "F", default_value_t = 1.0, allow_negative_numbers = true)]
    pub scale: f64,
    /// The folder that gets one folder per table
    #[arg(long, value_name = "DIR", required_unless_present = "load")]
    pub out: Option<PathBuf>,
    /// Make tables of a warehouse instead of files
    #[arg(long, conflicts_with_all = ["out", "format"])]
    pub load: bool,
    #[command(flatten)]
    pub warehouse: WarehouseArgs,
    /// What kind of files
    #[arg(long, value_enum, default_value_t = Format::Parquet)]
    pub format: Format,
    /// Files per table; small tables have one [default: by the table's size]
    #[arg(long, value_name = "N")]
    pub parts: Option<u32>,
    /// Only these tables
    #[arg(long, value_name = "TABLE,…", value_delimiter = ',')]
    pub tables: Vec<String>,
    /// Make again what is there already
    #[arg(long)]
    pub overwrite: bool,
}

impl Options {
    /// The options that determine the data, without its target.
    fn data(&self) -> generator::Options {
        generator::Options {
            scale: self.scale,
            format: match self.format {
                Format::Parquet => generator::Format::Parquet,
                Format::Csv => generator::Format::Csv,
                Format::Tbl => generator::Format::Tbl,
            },
            parts: self.parts,
            tables: self.tables.clone(),
            overwrite: self.overwrite,
        }
    }
}

/// The kind of the files.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Parquet,
    /// Comma-separated with a header line
    Csv,
    /// The benchmark's own text: fields ended by |, no header line
    Tbl,
}

/// Runs the command; blocks until every table is written. Prints one line per table, or a progress bar, on
/// stderr.
///
/// Errors: 22023 for a scale or a number of parts out of range, 42P01 for a table that the benchmark does not
/// have, 42P07 for a folder with other data, 42501 for one that may not be written, 53100 for a full disk,
/// 55006 for a folder another process is generating into, 57014 after SIGINT or SIGTERM, 58030 and 58P01 for
/// the rest of I/O.
pub fn run(args: Args) -> Result<(), SqlError> {
    let (benchmark, options) = match &args.benchmark {
        Benchmark::Tpch(options) => (generator::Benchmark::Tpch, options),
        Benchmark::Tpcds(options) => (generator::Benchmark::Tpcds, options),
    };
    match options.load {
        true => load::load(benchmark, options),
        false => write(benchmark, options).map_err(sql_error),
    }
}

fn write(benchmark: generator::Benchmark, options: &Options) -> Result<(), generator::Error> {
    let out = options.out.as_deref().unwrap_or(Path::new("."));
    let files = Files::prepare(benchmark, out, &options.data())?;
    let progress = Progress::new(files.rows());
    let signals = Signals::watch(&progress.stop);
    let made = files.make(&progress);
    drop(signals);
    progress.bar.finish_and_clear();
    made
}

/// Converts the error: its SQLSTATE, and a hint that names options of this command.
fn sql_error(error: generator::Error) -> SqlError {
    use generator::Error as E;
    let sqlstate = match &error {
        E::Scale { .. } | E::Parts => SqlState::INVALID_PARAMETER_VALUE,
        E::NoTable { .. } => SqlState::UNDEFINED_TABLE,
        E::Busy { .. } => SqlState::OBJECT_IN_USE,
        E::ForeignFile { .. } | E::OtherData { .. } => SqlState::DUPLICATE_TABLE,
        E::Stopped => SqlState::QUERY_CANCELED,
        E::Io { source, .. } => harrier_sqlstate::of_std(source).unwrap_or(SqlState::IO_ERROR),
        E::Write { source, .. } => {
            harrier_sqlstate::of_std(source.as_ref()).unwrap_or(SqlState::INTERNAL_ERROR)
        }
        _ => SqlState::INTERNAL_ERROR,
    };
    let hint = match &error {
        E::OtherData { .. } => {
            Some("Name another folder with --out, or generate again with --overwrite.".to_owned())
        }
        _ => error.hint(),
    };
    let mut converted = SqlError::new(sqlstate, error.to_string());
    converted.detail = error.detail();
    converted.hint = hint;
    converted
}

/// Progress display and stop flag, shared by the threads.
struct Progress {
    bar: ProgressBar,
    /// Whether the bar is visible; otherwise one line per table is printed.
    terminal: bool,
    stop: Arc<AtomicBool>,
}

impl Progress {
    fn new(rows: u64) -> Self {
        let terminal = io::stderr().is_terminal();
        let target = match terminal {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let style = ProgressStyle::with_template("{wide_bar} {percent:>3} %  {human_pos} rows  {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        Self {
            bar: ProgressBar::with_draw_target(Some(rows), target).with_style(style),
            terminal,
            stop: Arc::new(AtomicBool::new(false)),
        }
    }
}

impl generator::Progress for Progress {
    fn advance(&self, rows: u64) {
        self.bar.inc(rows);
    }

    fn report(&self, line: &str) {
        if self.terminal {
            self.bar.println(line);
        } else {
            eprintln!("{line}");
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// Sets a flag at SIGINT or SIGTERM, until dropped.
struct Signals {
    done: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Signals {
    /// If watching fails (no thread, no signal handler), signals keep their default action.
    fn watch(stop: &Arc<AtomicBool>) -> Self {
        let (done, is_done) = oneshot::channel();
        let stop = Arc::clone(stop);
        let watcher = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut interrupt = signal(SignalKind::interrupt())?;
                let mut terminate = signal(SignalKind::terminate())?;
                tokio::select! {
                    _ = interrupt.recv() => stop.store(true, Ordering::Release),
                    _ = terminate.recv() => stop.store(true, Ordering::Release),
                    _ = is_done => {}
                }
                io::Result::Ok(())
            })
        };
        let thread = thread::Builder::new().name("generate-signals".into()).spawn(|| {
            if let Err(e) = watcher() {
                tracing::warn!("signals are not watched: {e}");
            }
        });
        Self { done: Some(done), thread: thread.ok() }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_their_codes_and_texts() {
        use generator::Error as E;

        let check = |error: E, report: &str| assert_eq!(sql_error(error).report(None), report);
        let folder = PathBuf::from("d/orders");
        let path = PathBuf::from("d/orders/orders.1.csv");
        let io = |code| io::Error::from_raw_os_error(code);

        check(
            E::Scale { scale: -1.0 },
            "ERROR 22023: scale -1 is out of range\nDETAIL: A scale is between 0.001 and 100000.",
        );
        check(
            E::Parts,
            "ERROR 22023: number of parts is out of range\nDETAIL: A table has at least one part.",
        );
        check(
            E::NoTable { benchmark: generator::Benchmark::Tpch, table: "order".to_owned() },
            "ERROR 42P01: tpch has no table \"order\"\n\
             HINT: Its tables are lineitem, orders, partsupp, part, customer, supplier, nation, region.",
        );
        check(E::Busy { folder: "d".into() }, "ERROR 55006: another process is generating into folder \"d\"");
        check(
            E::ForeignFile { folder: folder.clone(), file: "notes.txt".to_owned() },
            "ERROR 42P07: folder \"d/orders\" has other files\nDETAIL: File \"notes.txt\" was not generated.",
        );
        check(
            E::OtherData {
                folder: folder.clone(),
                present: Some("{1}".to_owned()),
                wanted: "{2}".to_owned(),
            },
            "ERROR 42P07: folder \"d/orders\" has other data\n\
             DETAIL: It was generated as {1}; wanted is {2}.\n\
             HINT: Name another folder with --out, or generate again with --overwrite.",
        );
        check(
            E::OtherData { folder: folder.clone(), present: None, wanted: "{2}".to_owned() },
            "ERROR 42P07: folder \"d/orders\" has other data\n\
             HINT: Name another folder with --out, or generate again with --overwrite.",
        );
        check(
            E::Stopped,
            "ERROR 57014: canceling generation due to user request\n\
             HINT: What is finished stays; the same command goes on from there.",
        );
        for (code, report) in [
            (13, "ERROR 42501: could not create file \"d/orders/orders.1.csv\": Permission denied"),
            (28, "ERROR 53100: could not create file \"d/orders/orders.1.csv\": No space left on device"),
            (5, "ERROR 58030: could not create file \"d/orders/orders.1.csv\": Input/output error"),
            (2, "ERROR 58P01: could not create file \"d/orders/orders.1.csv\": No such file or directory"),
        ] {
            check(E::Io { action: "create file", path: path.clone(), source: io(code) }, report);
        }
        check(
            E::Write { path, source: "no rows".into() },
            "ERROR XX000: could not write file \"d/orders/orders.1.csv\": no rows",
        );
    }
}
