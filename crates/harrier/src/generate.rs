//! `harrier generate`: the data of TPC-H and TPC-DS as Parquet, CSV or the benchmark's own text files, or as tables of a
//! warehouse (`load.rs`).
//!
//! One folder per table, `DIR/<table>/<table>.<n>.<format>`, n from 1. The parts of all tables are dealt to one
//! thread per core, largest table first. Rows and their order depend on scale and number of parts alone, and the
//! number of parts on the scale alone, so two machines make the same files.
//!
//! Invariants: a file under its final name is whole, because it is written in `DIR/.harrier-generate`, synced, and
//! then renamed. A table's folder holds the files of one benchmark, scale, format and number of parts, because those
//! are written down in `DIR/.harrier-generate/<table>.json` before its first file appears, and a command that asks
//! for others is refused unless it says `--overwrite`.
//! Order of calls: one [`generate`] at a time in a folder; a second one, in this process or another, is refused.
//! Memory bound: one row group per thread.
//! Errors: nothing is retried; the first error stops all threads.
//! Cancellation: SIGINT and SIGTERM stop all threads at the next batch and are reported as an error.
//! Crash: what was finished stays and is not made again by the next call, which also sweeps what was not finished.
//!
//! How the Parquet files are laid out is said, with measurements, at [`ROW_GROUP_ROWS_MAX`] and [`parquet_properties`].

mod load;
mod sources;

use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use arrow::csv::WriterBuilder;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use harrier_engine::SqlError;
use harrier_exec::sqlstate::{self, CodedError, SqlState};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::warehouse_args::WarehouseArgs;
use sources::{Part, Table};

/// The most rows of a Parquet row group; a file's row groups are all about the same size.
///
/// A row group is what DataFusion skips by its statistics and the least it can give to a core or a rank, so the ranks'
/// work is even only if there are several for each. Measured at scale 1 (CPU seconds of DataFusion 55, two partitions):
/// five scans and joins over lineitem and orders take the same with 2^17, 2^18 and 2^20 rows (2.3, 2.2, 2.2), a search
/// for a range of keys half as long as with 2^20.
const ROW_GROUP_ROWS_MAX: u64 = 1 << 17;

/// Rows of a file beyond which a table gets more files.
const FILE_ROWS_MAX: u64 = 6_000_000;

/// A table with more rows than this gets more files too, but at most [`SMALL_FILES_MAX`], so that several cores make it.
const SMALL_FILE_ROWS: u64 = 750_000;
const SMALL_FILES_MAX: u64 = 4;

/// Below this TPC-H has less than ten suppliers and its rule that gives each part four of them has no meaning.
const SCALE_MIN: f64 = 0.001;
/// The largest scale that both specifications define.
const SCALE_MAX: f64 = 100_000.0;

/// The folder inside the target folder for unfinished files, the lock, and what was asked for.
const STATE_FOLDER: &str = ".harrier-generate";

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

/// The kind of the files.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Parquet,
    /// Comma-separated with a header line
    Csv,
    /// The benchmark's own text: fields ended by |, no header line
    Tbl,
}

impl Format {
    fn extension(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Csv => "csv",
            Self::Tbl => "tbl",
        }
    }
}

/// Runs the command: blocks until every table is there. Prints one line per table, or a progress bar, on stderr.
///
/// Errors: 22023 for a scale or a number of parts out of range, 42P01 for a table that the benchmark does not have,
/// 42P07 for a folder with other data, 42501 for one that may not be written, 53100 for a full disk, 55006 for a
/// folder another process is generating into, 57014 after SIGINT or SIGTERM, 58030 and 58P01 for the rest of I/O.
pub fn run(args: Args) -> Result<(), SqlError> {
    match &args.benchmark {
        Benchmark::Tpch(options) => generate("tpch", sources::TPCH, options),
        Benchmark::Tpcds(options) => generate("tpcds", sources::TPCDS, options),
    }
}

fn generate(benchmark: &'static str, tables: &'static [Table], options: &Options) -> Result<(), SqlError> {
    check(options)?;
    let tables = choose(benchmark, tables, &options.tables)?;
    match options.load {
        true => load::load(&tables, options),
        false => Ok(write(benchmark, tables, options)?),
    }
}

fn write(benchmark: &'static str, tables: Vec<&'static Table>, options: &Options) -> Result<(), CodedError> {
    let out = options.out.as_deref().unwrap_or(Path::new("."));
    let state = out.join(STATE_FOLDER);
    fs::create_dir_all(&state).map_err(|e| io_error("create folder", &state, &e))?;
    let _lock = lock(&state)?;
    sweep(&state)?;

    let mut targets = Vec::with_capacity(tables.len());
    for table in tables {
        targets.push(Target::prepare(benchmark, table, options, &state)?);
    }
    make(&targets, options.scale)
}

fn check(options: &Options) -> Result<(), CodedError> {
    let scale = options.scale;
    if !(SCALE_MIN..=SCALE_MAX).contains(&scale) {
        return Err(CodedError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("scale {scale} is out of range"),
        )
        .with_detail(format!("A scale is between {SCALE_MIN} and {SCALE_MAX}.")));
    }
    if options.parts == Some(0) || options.parts.is_some_and(|parts| parts > i32::MAX as u32) {
        return Err(CodedError::new(SqlState::INVALID_PARAMETER_VALUE, "number of parts is out of range")
            .with_detail("A table has at least one part."));
    }
    Ok(())
}

fn choose(
    benchmark: &str,
    tables: &'static [Table],
    names: &[String],
) -> Result<Vec<&'static Table>, CodedError> {
    let known: Vec<&str> = tables.iter().map(|table| table.name).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(CodedError::new(
            SqlState::UNDEFINED_TABLE,
            format!("{benchmark} has no table \"{name}\""),
        )
        .with_hint(format!("Its tables are {}.", known.join(", "))));
    }
    let wanted = |table: &&Table| names.is_empty() || names.iter().any(|name| name == table.name);
    Ok(tables.iter().filter(wanted).collect())
}

/// Holds the folder until the returned file is closed.
fn lock(state: &Path) -> Result<File, CodedError> {
    let path = state.join("lock");
    let file = File::create(&path).map_err(|e| io_error("create file", &path, &e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(CodedError::new(
            SqlState::literal("55006"),
            format!(
                "another process is generating into folder \"{}\"",
                state.parent().unwrap_or(state).display()
            ),
        )),
        Err(TryLockError::Error(e)) => Err(io_error("lock file", &path, &e)),
    }
}

/// Removes what an earlier call did not finish.
fn sweep(state: &Path) -> Result<(), CodedError> {
    let entries = fs::read_dir(state).map_err(|e| io_error("read folder", state, &e))?;
    for entry in entries {
        let path = entry.map_err(|e| io_error("read folder", state, &e))?.path();
        if path.extension().is_some_and(|extension| extension == "partial") {
            fs::remove_file(&path).map_err(|e| io_error("remove file", &path, &e))?;
        }
    }
    Ok(())
}

/// A table with its folder, and how far it is.
struct Target {
    table: &'static Table,
    format: Format,
    folder: PathBuf,
    /// Where its unfinished files are.
    state: PathBuf,
    parts: u32,
    /// Parts to make; the others are there already.
    missing: Vec<u32>,
    left: AtomicU32,
    rows: AtomicU64,
}

impl Target {
    /// Makes the table's folder ready for its missing parts. Nothing is changed unless the folder's files are those
    /// that are wanted or may be overwritten.
    fn prepare(
        benchmark: &str,
        table: &'static Table,
        options: &Options,
        state: &Path,
    ) -> Result<Self, CodedError> {
        let folder = state.parent().unwrap_or(state).join(table.name);
        let description = state.join(format!("{}.json", table.name));
        fs::create_dir_all(&folder).map_err(|e| io_error("create folder", &folder, &e))?;

        let described = match fs::read_to_string(&description) {
            Ok(text) => serde_json::from_str::<serde_json::Value>(&text).ok(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(io_error("read file", &description, &e)),
        };
        let described_parts = described
            .as_ref()
            .filter(|_| !options.overwrite && options.parts.is_none())
            .and_then(|described| described["parts"].as_u64())
            .and_then(|parts| u32::try_from(parts).ok());
        let parts = described_parts.unwrap_or_else(|| parts_of(table, options));
        let wanted = serde_json::json!({
            "benchmark": benchmark,
            "scale": options.scale,
            "format": options.format.extension(),
            "parts": parts,
        });

        let present = files(&folder)?;
        if described.as_ref() != Some(&wanted) || options.overwrite {
            if let Some(foreign) = present.iter().find(|name| !is_ours(name, table.name)) {
                return Err(CodedError::new(
                    SqlState::DUPLICATE_TABLE,
                    format!("folder \"{}\" has other files", folder.display()),
                )
                .with_detail(format!("File \"{foreign}\" was not generated.")));
            }
            if !present.is_empty() && !options.overwrite {
                let error = CodedError::new(
                    SqlState::DUPLICATE_TABLE,
                    format!("folder \"{}\" has other data", folder.display()),
                )
                .with_hint("Name another folder with --out, or generate again with --overwrite.");
                return Err(match described {
                    Some(described) => {
                        error.with_detail(format!("It was generated as {described}; wanted is {wanted}."))
                    }
                    None => error,
                });
            }
            remove(&description)?;
            for name in &present {
                remove(&folder.join(name))?;
            }
            let partial = Partial::new(state.join(format!("{}.json.partial", table.name)));
            fs::write(&partial.path, format!("{wanted}\n"))
                .map_err(|e| io_error("write file", &partial.path, &e))?;
            partial.rename(&description)?;
        }

        let mut target = Self {
            table,
            format: options.format,
            folder,
            state: state.to_owned(),
            parts,
            missing: Vec::new(),
            left: AtomicU32::new(0),
            rows: AtomicU64::new(0),
        };
        target.missing = (1..=parts).filter(|part| !target.path(*part).exists()).collect();
        target.left = AtomicU32::new(target.missing.len() as u32);
        Ok(target)
    }

    fn file_name(&self, part: u32) -> String {
        format!("{}.{part}.{}", self.table.name, self.format.extension())
    }

    fn path(&self, part: u32) -> PathBuf {
        self.folder.join(self.file_name(part))
    }

    /// Makes one part, from an empty file to its final name.
    fn make(&self, part: u32, scale: f64, progress: &Progress) -> Result<(), CodedError> {
        let partial = Partial::new(self.state.join(format!("{}.partial", self.file_name(part))));
        let file = File::create(&partial.path).map_err(|e| io_error("create file", &partial.path, &e))?;
        let part_of_table = Part { scale, part, parts: self.parts };
        let written = match self.format {
            Format::Parquet => self.write_parquet(part_of_table, file, progress),
            Format::Csv => self.write_csv(part_of_table, file, progress),
            Format::Tbl => self.write_text(part_of_table, file, progress),
        };
        let synced = written.and_then(|file| file.sync_all().map_err(Into::into));
        synced.map_err(|e| write_error(&self.path(part), e.as_ref()))?;
        partial.rename(&self.path(part))
    }

    fn write_parquet(&self, part: Part, file: File, progress: &Progress) -> Result<File, Failure> {
        let batches = (self.table.batches)(part);
        // Without the Arrow schema in its metadata the file says nothing of string views, and each engine
        // reads its own string type.
        let file_rows = (self.table.rows)(part.scale).div_ceil(u64::from(part.parts));
        let options = ArrowWriterOptions::new()
            .with_properties(parquet_properties(file_rows))
            .with_skip_arrow_metadata(true);
        let mut writer = ArrowWriter::try_new_with_options(file, batches.schema(), options)?;
        for batch in batches {
            let batch = batch?;
            writer.write(&batch)?;
            self.wrote(batch.num_rows(), progress)?;
        }
        Ok(writer.into_inner()?)
    }

    fn write_csv(&self, part: Part, mut file: File, progress: &Progress) -> Result<File, Failure> {
        let batches = (self.table.batches)(part);
        // Each batch is formatted in memory because the CSV writer turns an error of its file into text.
        let mut text = Vec::new();
        WriterBuilder::new().build(&mut text).write(&RecordBatch::new_empty(batches.schema()))?;
        for batch in batches {
            let batch = batch?;
            WriterBuilder::new().with_header(false).build(&mut text).write(&batch)?;
            file.write_all(&text)?;
            text.clear();
            self.wrote(batch.num_rows(), progress)?;
        }
        file.write_all(&text)?;
        Ok(file)
    }

    fn write_text(&self, part: Part, file: File, progress: &Progress) -> Result<File, Failure> {
        let mut writer = LineCounter {
            file: BufWriter::with_capacity(1 << 20, file),
            lines: 0,
            every: |lines| self.wrote(lines, progress),
        };
        (self.table.text)(part, &mut writer)?;
        self.wrote(writer.lines, progress)?;
        Ok(writer.file.into_inner().map_err(io::IntoInnerError::into_error)?)
    }

    fn wrote(&self, rows: usize, progress: &Progress) -> Result<(), CodedError> {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        progress.bar.inc(rows as u64);
        progress.go_on()
    }

    /// One line for a finished table, as `lineitem: 6001215 rows, 4 files, 217.0 MB`.
    fn summary(&self) -> String {
        let bytes: u64 = (1..=self.parts)
            .filter_map(|part| fs::metadata(self.path(part)).ok())
            .map(|metadata| metadata.len())
            .sum();
        let files = if self.parts == 1 { "file" } else { "files" };
        let size = format!("{} {files}, {:.1} MB", self.parts, bytes as f64 / 1e6);
        let name = self.table.name;
        match self.parts as usize - self.missing.len() {
            0 => format!("{name}: {} rows, {size}", self.rows.load(Ordering::Relaxed)),
            _ if self.missing.is_empty() => format!("{name}: {size}, there already"),
            there => format!("{name}: {size}, {there} there already"),
        }
    }
}

/// The number of files of a table: one for every 6 million rows, and up to four for every 750 000.
fn parts_of(table: &Table, options: &Options) -> u32 {
    if !(table.divisible)(options.scale) {
        return 1;
    }
    options.parts.unwrap_or_else(|| {
        let rows = (table.rows)(options.scale);
        let parts = rows.div_ceil(SMALL_FILE_ROWS).min(SMALL_FILES_MAX).max(rows.div_ceil(FILE_ROWS_MAX));
        parts.max(1) as u32
    })
}

/// The names of the files in a folder.
fn files(folder: &Path) -> Result<Vec<String>, CodedError> {
    let error = |e: io::Error| io_error("read folder", folder, &e);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(error)? {
        names.push(entry.map_err(error)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Whether this is the name of a file that this command makes for the table, in any format.
fn is_ours(name: &str, table: &str) -> bool {
    name.strip_prefix(table)
        .and_then(|rest| rest.strip_prefix('.'))
        .and_then(|rest| rest.split_once('.'))
        .is_some_and(|(part, extension)| {
            part.parse::<u32>().is_ok() && ["parquet", "csv", "tbl"].contains(&extension)
        })
}

/// Makes all missing parts.
fn make(targets: &[Target], scale: f64) -> Result<(), CodedError> {
    let jobs: Vec<(&Target, u32)> =
        targets.iter().flat_map(|target| target.missing.iter().map(move |part| (target, *part))).collect();
    let rows = jobs.iter().map(|(target, _)| (target.table.rows)(scale) / u64::from(target.parts)).sum();
    let progress = Progress::new(rows);
    let start = Instant::now();
    for target in targets.iter().filter(|target| target.missing.is_empty()) {
        progress.print(&target.summary());
    }

    let next = AtomicUsize::new(0);
    let error = Mutex::new(None);
    let threads = thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    let signals = Signals::watch(&progress.stop);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((target, part)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let made = progress.go_on().and_then(|()| target.make(*part, scale, &progress));
                    if let Err(e) = made {
                        // The error first, or another thread would report that it was told to stop.
                        error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                        progress.stop.store(true, Ordering::Release);
                        return;
                    }
                    if target.left.fetch_sub(1, Ordering::Relaxed) == 1 {
                        progress.print(&target.summary());
                    }
                }
            });
        }
    });
    drop(signals);
    if !jobs.is_empty() && !progress.stop.load(Ordering::Acquire) {
        progress.print(&format!("generated in {:.1} s", start.elapsed().as_secs_f64()));
    }
    progress.bar.finish_and_clear();
    error.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// What the threads tell the person who waits, and what stops them.
struct Progress {
    bar: ProgressBar,
    /// Whether the bar is seen; else there is one line per table.
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

    fn print(&self, line: &str) {
        if self.terminal {
            self.bar.println(line);
        } else {
            eprintln!("{line}");
        }
    }

    fn go_on(&self) -> Result<(), CodedError> {
        if self.stop.load(Ordering::Acquire) {
            return Err(CodedError::new(
                SqlState::QUERY_CANCELED,
                "canceling generation due to user request",
            )
            .with_hint("What is finished stays; the same command goes on from there."));
        }
        Ok(())
    }
}

/// Sets a flag at SIGINT or SIGTERM, until it is dropped.
struct Signals {
    done: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Signals {
    /// Without the means to watch (no thread, no signal handler) the signals keep their usual effect.
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

/// An unfinished file: removed when dropped, unless it got its final name.
struct Partial {
    path: PathBuf,
}

impl Partial {
    fn new(path: PathBuf) -> Self {
        Self { path }
    }

    fn rename(self, to: &Path) -> Result<(), CodedError> {
        fs::rename(&self.path, to).map_err(|e| io_error("create file", to, &e))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After a rename there is nothing under this name.
        let _ = fs::remove_file(&self.path);
    }
}

/// Calls `every` once for some thousand lines.
struct LineCounter<F> {
    file: BufWriter<File>,
    lines: usize,
    every: F,
}

impl<F: FnMut(usize) -> Result<(), CodedError>> Write for LineCounter<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.lines += bytes[..written].iter().filter(|byte| **byte == b'\n').count();
        if self.lines >= 8192 {
            (self.every)(std::mem::take(&mut self.lines)).map_err(io::Error::other)?;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The layout of the Parquet files, beside [`ROW_GROUP_ROWS_MAX`]: the writer's defaults, which are statistics per page and a
/// page index for all columns, dictionaries while they are small, and pages of 20 000 rows.
///
/// Snappy: every reader has it. Measured as there: zstd at level 1 makes the files 24 % smaller (200 instead of 262 MB) and
/// the queries 13 % slower (2.45 instead of 2.18 s); LZ4 is as large and 5 % faster, but many readers lack it.
fn parquet_properties(file_rows: u64) -> WriterProperties {
    WriterProperties::builder()
        .set_created_by(concat!("harrier ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(row_group_rows(file_rows)))
        .build()
}

/// Rows of the row groups of a file with about `file_rows` rows: a little more than an even share, so that a few rows
/// more than expected do not make a row group of their own.
fn row_group_rows(file_rows: u64) -> usize {
    let groups = file_rows.div_ceil(ROW_GROUP_ROWS_MAX).max(1);
    (file_rows.div_ceil(groups) * 101 / 100).max(1) as usize
}

/// Whatever went wrong while a file was written.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn write_error(path: &Path, failure: &(dyn std::error::Error + 'static)) -> CodedError {
    if let Some(error) = failure.downcast_ref::<CodedError>() {
        return error.clone();
    }
    if let Some(error) = failure.downcast_ref::<io::Error>() {
        return match error.get_ref() {
            Some(inner) => write_error(path, inner),
            None => io_error("write file", path, error),
        };
    }
    match (failure.downcast_ref::<ParquetError>(), failure.downcast_ref::<ArrowError>()) {
        (Some(ParquetError::External(inner)), _) => write_error(path, inner.as_ref()),
        (_, Some(ArrowError::IoError(_, inner))) => write_error(path, inner),
        (_, Some(ArrowError::ExternalError(inner))) => write_error(path, inner.as_ref()),
        _ => CodedError::new(
            sqlstate::of_std(failure).unwrap_or(SqlState::INTERNAL_ERROR),
            format!("could not write file \"{}\": {failure}", path.display()),
        ),
    }
}

fn remove(path: &Path) -> Result<(), CodedError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io_error("remove file", path, &e)),
        _ => Ok(()),
    }
}

fn io_error(action: &str, path: &Path, error: &io::Error) -> CodedError {
    let reason = error.to_string();
    let reason = reason.split(" (os error").next().unwrap_or(&reason);
    CodedError::new(
        sqlstate::of_std(error).unwrap_or(SqlState::IO_ERROR),
        format!("could not {action} \"{}\": {reason}", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(out: &Path) -> Options {
        Options {
            scale: 0.01,
            out: Some(out.to_owned()),
            load: false,
            warehouse: WarehouseArgs::default(),
            format: Format::Csv,
            parts: None,
            tables: vec!["orders".into(), "region".into()],
            overwrite: false,
        }
    }

    fn tpch(options: &Options) -> Result<(), SqlError> {
        generate("tpch", sources::TPCH, options)
    }

    fn code(result: Result<(), SqlError>) -> String {
        result.expect_err("an error").sqlstate.to_string()
    }

    #[test]
    fn a_second_call_makes_only_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { parts: Some(3), ..options(folder.path()) };
        tpch(&options).unwrap();
        let read = |n| fs::read(folder.path().join(format!("orders/orders.{n}.csv"))).unwrap();
        let before: Vec<_> = (1..=3).map(read).collect();
        fs::remove_file(folder.path().join("orders/orders.2.csv")).unwrap();
        fs::write(folder.path().join("orders/orders.1.csv"), "kept").unwrap();
        fs::write(folder.path().join(".harrier-generate/orders.2.csv.partial"), "half").unwrap();

        tpch(&Options { parts: None, ..options }).unwrap();
        assert_eq!(read(1), b"kept");
        assert_eq!(read(2), before[1]);
        assert_eq!(read(3), before[2]);
        let unfinished = files(&folder.path().join(STATE_FOLDER)).unwrap();
        assert_eq!(unfinished, ["lock", "orders.json", "region.json"]);
    }

    #[test]
    fn other_data_is_replaced_only_when_asked() {
        let folder = tempfile::tempdir().unwrap();
        let first = options(folder.path());
        tpch(&first).unwrap();
        let second = Options { format: Format::Tbl, ..first };
        assert_eq!(code(tpch(&second)), "42P07");
        tpch(&Options { overwrite: true, ..second.clone() }).unwrap();
        assert_eq!(files(&folder.path().join("orders")).unwrap(), ["orders.1.tbl"]);

        fs::write(folder.path().join("orders/notes.txt"), "mine").unwrap();
        let third = Options { overwrite: true, ..second };
        assert_eq!(code(tpch(&third)), "42P07");
    }

    #[test]
    fn row_groups_are_even() {
        assert_eq!(row_group_rows(0), 1);
        assert_eq!(row_group_rows(150_000), 75_750);
        let rows = row_group_rows(1_500_000) as u64;
        assert_eq!(1_500_000_u64.div_ceil(rows), 12);
    }

    #[test]
    fn arguments_out_of_range_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        for scale in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9] {
            let options = Options { scale, ..options(folder.path()) };
            assert_eq!(code(tpch(&options)), "22023", "{scale}");
        }
        let options = options(folder.path());
        let parts = Some(0);
        assert_eq!(code(tpch(&Options { parts, ..options.clone() })), "22023");
        let tables = vec!["order".to_owned()];
        assert_eq!(code(tpch(&Options { tables, ..options })), "42P01");
    }

    #[test]
    fn two_at_a_time_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join(STATE_FOLDER);
        fs::create_dir_all(&state).unwrap();
        let _held = lock(&state).unwrap();
        assert_eq!(code(tpch(&options(folder.path()))), "55006");
    }

    #[test]
    fn a_file_in_the_way_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(tpch(&options(&file)).is_err());
    }
}
