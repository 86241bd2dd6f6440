//! `harrier bench commit`: the cost of making a statement's files visible, by several methods in one run.
//!
//! The experiment of "Up to 15 times improvement in Hive write performance with the Amazon EMR Hive
//! zero-rename feature": INSERT OVERWRITE of TPC-DS `store_sales` into P table partitions of F files each,
//! onto several stores:
//!
//! | way | what is timed |
//! |---|---|
//! | direct | the statement in a warehouse: files written at their final path by `WriteFilesExec`, and one commit of the catalog |
//! | staged | the same operator writes into a staging folder, and the files are renamed three times as Hive does it (`staged.rs`); the catalog's part is left out |
//! | a peer | a statement of SQL that a worker runs, such as `bench/peers/run spark`, with its own committer |
//!
//! Every write goes into a new, empty table; after the timing, its files are counted, and those of the direct
//! way are read back. Ways are interleaved, A B C A B C, for each case and store. If a store's address names
//! a proxy that counts requests (`requests=HOST:PORT`, of `crates/servers`), the requests of each write are
//! reported.
//!
//! Errors: as for `bench`: a failed write is shown in the table, and the command fails at its end.

pub mod chart;

mod places;
mod staged;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use arrow::datatypes::{DataType, SchemaRef};
use futures::TryStreamExt;
use harrier_engine::{Engine, EngineOptions, Outcome, Session, SqlError, WarehouseOptions};
use harrier_error::SqlState;
use serde_json::{Value, json};

use super::cell::median;
use super::configuration::{self, Configuration};
use super::progress::Progress;
use super::report::letter;
use super::worker_process::{WorkerError, WorkerProcess};
use super::{Failure, keep, machine};
use places::Place;

/// Name on the command line and in the JSON result.
pub const NAME: &str = "commit";

const DIRECT: &str = "direct";
const STAGED: &str = "staged";

/// The same for all ways, so that compression costs are equal.
const COMPRESSION: &str = "snappy";

/// Maximum output partitions of a peer's statement: Spark's default.
const PEER_TASKS_MAX: usize = 200;

#[derive(clap::Args, Debug)]
pub struct Options {
    /// Where to write: NAME=PATH or NAME=URL, and who counts the requests, as
    /// s3=s3://bucket/bench,requests=127.0.0.1:9000 [default: local=.harrier/bench/commit]
    #[arg(long = "store", value_name = "NAME=URL[,requests=HOST:PORT]")]
    stores: Vec<Store>,
    /// Numbers of table partitions
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,10,100,1000")]
    partitions: Vec<usize>,
    /// Numbers of files in each of them
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,10")]
    files: Vec<usize>,
    /// Leave out cases with more files than this, all table partitions together
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    files_max: usize,
    /// Leave out the way that is staged and renamed
    #[arg(long)]
    direct_only: bool,
    /// Measure another program beside, as 'spark=bench/peers/run spark --threads 2'
    #[arg(long = "peer", value_name = "NAME=COMMAND")]
    peers: Vec<String>,
    /// Threads of every way but the peers'
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Timed runs of each case
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Scale factor of the data
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    scale: f64,
    /// Where store_sales is, as Parquet [default: .harrier/data/tpcds-sf<F>/store_sales, generated when
    /// missing]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Write all measurements here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw a chart of the medians here
    #[arg(long, value_name = "FILE.svg")]
    chart: Option<PathBuf>,
}

/// A store to write to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    pub name: String,
    /// A path or a URL, without a trailing `/`.
    pub url: String,
    /// Address of the proxy that counts requests.
    pub requests: Option<String>,
}

impl std::str::FromStr for Store {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is not NAME=URL or NAME=URL,requests=HOST:PORT");
        let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
        let (url, requests) = match rest.split_once(",requests=") {
            Some((url, address)) => (url, Some(address.to_owned())),
            None => (rest, None),
        };
        if name.is_empty() || url.is_empty() {
            return Err(wrong());
        }
        Ok(Self { name: name.to_owned(), url: url.trim_end_matches('/').to_owned(), requests })
    }
}

/// Number of files to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    partitions: usize,
    files_each: usize,
}

impl Case {
    fn files(self) -> usize {
        self.partitions * self.files_each
    }
}

/// Results of one way for a case, by run.
#[derive(Debug, Clone, Default)]
struct Cell {
    walls_s: Vec<f64>,
    /// By run: requests by kind, named as the store's proxy does.
    requests: Vec<BTreeMap<String, u64>>,
    files: Option<usize>,
    problem: Option<String>,
}

impl Cell {
    fn wall_s(&self) -> Option<f64> {
        match self.problem {
            Some(_) => None,
            None => median(self.walls_s.clone()),
        }
    }

    fn requests(&self) -> Option<f64> {
        median(self.requests.iter().map(|counts| counts.values().sum::<u64>() as f64).collect())
    }

    fn json(&self) -> Value {
        json!({
            "wall_s": self.walls_s,
            "wall_s_median": self.wall_s(),
            "requests": self.requests,
            "requests_median": self.requests(),
            "files": self.files,
            "problem": self.problem,
        })
    }
}

/// Runs the command. Blocks until it is done.
pub fn run(options: &Options) -> Result<(), Failure> {
    let cases = cases(options)?;
    let threads = options.threads.unwrap_or_else(machine::cores).max(1);
    let stores = match options.stores.is_empty() {
        true => {
            vec![Store { name: "local".to_owned(), url: ".harrier/bench/commit".to_owned(), requests: None }]
        }
        false => options.stores.clone(),
    };
    let source = source(options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .map_err(|error| Failure::dead(format!("cannot start {threads} threads: {error}")))?;
    let mut out = std::io::stdout();
    let mut progress = Progress::new(&mut out);
    let mut peers = Vec::new();
    for text in &options.peers {
        let peer = Configuration::peer(text).map_err(Failure::usage)?;
        progress.step(format!("starting {}", peer.name));
        let mut worker = WorkerProcess::start(&peer, &mut || progress.tick())?;
        let path = absolute(&source)?.display().to_string();
        worker.tables(&[("store_sales".to_owned(), path)], &mut || progress.tick())?;
        peers.push((peer.name, worker));
    }
    let mut ways = vec![format!("{DIRECT} (harrier {})", env!("CARGO_PKG_VERSION"))];
    if !options.direct_only {
        ways.push(format!("{STAGED} and renamed three times, on the same writer"));
    }
    ways.extend(peers.iter().map(|(name, worker)| format!("{name} ({})", worker.engine)));
    if ways.len() > super::report::CONFIGURATIONS_MAX {
        return Err(Failure::usage("too many peers"));
    }
    let bench = Bench { options, threads, source, number: 0, has_staged: !options.direct_only };
    let result = runtime.block_on(bench.run(&stores, &cases, &ways, &mut peers, &mut progress))?;
    keep(&result, options.json.as_deref(), options.chart.as_deref())?;
    let problems = super::chart::all(&result, "cases")
        .iter()
        .flat_map(|case| super::chart::all(case, "ways"))
        .filter(|way| !way["problem"].is_null())
        .count();
    match problems {
        0 => Ok(()),
        _ => Err(SqlError::new(SqlState::DATA_CORRUPTED, format!("{problems} cases failed")).into()),
    }
}

/// Folder of the warehouse's data in a store.
fn direct() -> String {
    format!("{DIRECT}-{}", std::process::id())
}

fn cases(options: &Options) -> Result<Vec<Case>, Failure> {
    let mut cases = Vec::new();
    for &files_each in &options.files {
        for &partitions in &options.partitions {
            if partitions == 0 || files_each == 0 {
                return Err(Failure::usage("there is at least one table partition, with at least one file"));
            }
            cases.push(Case { partitions, files_each });
        }
    }
    cases.retain(|case| case.files() <= options.files_max);
    if cases.is_empty() {
        return Err(Failure::usage("--files-max leaves no case"));
    }
    Ok(cases)
}

/// Returns the data folder; without `--data`, the one in the current folder, after generating what is
/// missing.
fn source(options: &Options) -> Result<PathBuf, Failure> {
    if let Some(data) = &options.data {
        return Ok(data.clone());
    }
    let folder = PathBuf::from(format!(".harrier/data/tpcds-sf{}", options.scale));
    let status = Command::new(configuration::this_binary()?)
        .args(["generate", "tpcds", "--tables", "store_sales", "--scale", &options.scale.to_string()])
        .arg("--out")
        .arg(&folder)
        .status()
        .map_err(|error| Failure::dead(format!("could not generate the data: {error}")))?;
    match status.success() {
        true => Ok(folder.join("store_sales")),
        false => Err(Failure::dead(format!("could not generate the data in \"{}\"", folder.display()))),
    }
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::dead(format!("\"{}\": {error}", path.display())))
}

struct Bench<'a> {
    options: &'a Options,
    threads: usize,
    source: PathBuf,
    /// Number of writes so far: each has unique names.
    number: usize,
    has_staged: bool,
}

/// State of a store while it is measured.
struct Target {
    store: Store,
    place: Place,
    /// Session for the store; its warehouse's files are below the store's folder.
    session: Session,
    _catalog: CatalogFolder,
}

/// Catalog of a measured warehouse, removed on drop.
struct CatalogFolder(PathBuf);

impl Drop for CatalogFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Bench<'_> {
    async fn run(
        mut self,
        stores: &[Store],
        cases: &[Case],
        ways: &[String],
        peers: &mut [(String, WorkerProcess)],
        progress: &mut Progress<'_>,
    ) -> Result<Value, Failure> {
        let schema = self.schema().await.map_err(to_failure)?;
        let rows = self.rows().await.map_err(to_failure)?;
        progress.print(&header(self.options, rows, &self.source, ways));
        let mut lines = Vec::new();
        for store in stores {
            let target = self.target(store).map_err(to_failure)?;
            // A program's first write is slower: it compiles, connects, finds files.
            progress.prefix = store.name.clone();
            progress.step("warming up".to_owned());
            let warm = Case { partitions: 1, files_each: 1 };
            for way in 0..ways.len() {
                // An error will show again in the first case.
                let _ = self.run_once(way, &target, warm, &schema, peers, progress).await?;
            }
            for &case in cases {
                let mut cells = vec![Cell::default(); ways.len()];
                for run in 0..self.options.runs {
                    for (way, cell) in cells.iter_mut().enumerate() {
                        if cell.problem.is_some() {
                            continue;
                        }
                        progress.step(format!(
                            "{} table partitions of {} files, run {}, {}",
                            case.partitions,
                            case.files_each,
                            run + 1,
                            letter(way)
                        ));
                        match self.run_once(way, &target, case, &schema, peers, progress).await? {
                            Ok(done) => cell.take(done),
                            Err(problem) => cell.problem = Some(problem),
                        }
                    }
                }
                progress.print(&line(store, case, &cells));
                lines.push(json!({
                    "store": store.name,
                    "partitions": case.partitions,
                    "files_each": case.files_each,
                    "ways": cells.iter().map(Cell::json).collect::<Vec<_>>(),
                }));
            }
        }
        Ok(json!({
            "benchmark": NAME,
            "title": "INSERT OVERWRITE of TPC-DS store_sales",
            "time": machine::now(),
            "machine": machine::json(),
            "scale": self.options.scale,
            "rows": rows,
            "runs": self.options.runs,
            "threads": self.threads,
            "stores": stores.iter().map(|store| store.name.as_str()).collect::<Vec<_>>(),
            "ways": ways,
            "cases": lines,
        }))
    }

    fn target(&self, store: &Store) -> Result<Target, SqlError> {
        let folder =
            std::env::temp_dir().join(format!("harrier-bench-{}-{}", std::process::id(), store.name));
        let catalog = CatalogFolder(folder);
        let mut options = WarehouseOptions::folder(&catalog.0);
        // A new folder, as the catalog is new each time.
        options.data = Some(format!("{}/{}/", store.url, direct()));
        let engine = self.engine(Some(options))?;
        let place = Place::open(&store.url, &engine).map_err(harrier_engine::sql_error)?;
        Ok(Target { store: store.clone(), place, session: engine.session(), _catalog: catalog })
    }

    fn engine(&self, warehouse: Option<WarehouseOptions>) -> Result<Engine, SqlError> {
        let mut options = EngineOptions::default();
        options.threads = self.threads;
        options.warehouse = warehouse;
        Engine::try_new(options)
    }

    async fn schema(&self) -> Result<SchemaRef, SqlError> {
        let session = self.engine(None)?.session();
        match one(&session, &format!("SELECT * FROM '{}/' LIMIT 0", self.source.display())).await? {
            Outcome::Rows { schema, .. } => Ok(schema),
            _ => Err(SqlError::new(SqlState::INTERNAL_ERROR, "the data has no rows")),
        }
    }

    async fn rows(&self) -> Result<u64, SqlError> {
        let session = self.engine(None)?.session();
        number(&session, &format!("SELECT count(*) FROM '{}/'", self.source.display())).await
    }

    /// Times and checks one write. The outer error ends the benchmark, the inner one the case.
    async fn run_once(
        &mut self,
        way: usize,
        target: &Target,
        case: Case,
        schema: &SchemaRef,
        peers: &mut [(String, WorkerProcess)],
        progress: &mut Progress<'_>,
    ) -> Result<Result<TimedWrite, String>, Failure> {
        self.number += 1;
        let name = format!("w{}", self.number);
        let to_text = |error: SqlError| format!("{} {}", error.sqlstate, error.message);
        let first_peer = if self.has_staged { 2 } else { 1 };
        let outcome = match way {
            0 => self.write_direct(target, &name, case, schema).await.map_err(to_text),
            1 if self.has_staged => self.write_staged(target, &name, case, schema).await.map_err(to_text),
            way => {
                let (_, worker) = &mut peers[way - first_peer];
                match self.peer(worker, target, &name, case, schema, progress) {
                    Ok(done) => Ok(done),
                    Err(WorkerError::Statement(error)) => Err(error),
                    Err(WorkerError::Dead(failure)) => return Err(failure),
                }
            }
        };
        let folder = match way {
            0 => format!("{}/main/{name}", direct()),
            _ => name,
        };
        let outcome = match outcome {
            Err(problem) => Err(problem),
            Ok(mut done) => match target.place.files(&folder).await {
                Ok(files) => {
                    let is_data = |file: &&String| file.ends_with(".parquet");
                    done.files = files.iter().filter(is_data).count();
                    let hidden = files.iter().find(|file| file.contains("/.") || file.starts_with('.'));
                    match hidden.filter(|file| file.ends_with(".parquet")) {
                        Some(left) => Err(format!("{left} was left behind")),
                        None => Ok(done),
                    }
                }
                Err(error) => Err(error.to_string()),
            },
        };
        // Do not check a peer's file count: hashing may merge two of its files.
        let outcome = outcome.and_then(|done| match way < first_peer && done.files != case.files() {
            true => Err(format!("{} files instead of {}", done.files, case.files())),
            false => Ok(done),
        });
        let _ = target.place.remove(&folder).await;
        Ok(outcome)
    }

    async fn write_direct(
        &self,
        target: &Target,
        name: &str,
        case: Case,
        schema: &SchemaRef,
    ) -> Result<TimedWrite, SqlError> {
        let session = &target.session;
        let create = format!(
            "CREATE TABLE {name} ({}, part_key BIGINT, file_key BIGINT) PARTITION BY (part_key, file_key) \
             WITH (compression = '{COMPRESSION}')",
            sql_columns(schema)?
        );
        one(session, &create).await?;
        let from = format!("'{}/'", self.source.display());
        let insert = format!("INSERT OVERWRITE {name} {}", select(schema, case, &from));
        let clock = Clock::start(&target.store);
        match one(session, &insert).await? {
            Outcome::Write(write) => write.finish().await?,
            _ => return Err(SqlError::new(SqlState::INTERNAL_ERROR, "INSERT OVERWRITE writes nothing")),
        };
        let done = clock.stop();
        // A sum over every row, read back from the files.
        let sum = |table: &str| format!("SELECT sum(ss_ticket_number + ss_item_sk) FROM {table}");
        let (written, read) = (number(session, &sum(&from)).await?, number(session, &sum(name)).await?);
        if written != read {
            return Err(SqlError::new(SqlState::DATA_CORRUPTED, format!("{read} read back of {written}")));
        }
        one(session, &format!("DROP TABLE {name}")).await?;
        Ok(done)
    }

    async fn write_staged(
        &self,
        target: &Target,
        name: &str,
        case: Case,
        schema: &SchemaRef,
    ) -> Result<TimedWrite, SqlError> {
        let session = self.engine(None)?.session();
        let text = select(schema, case, "store_sales");
        let written = staged::StagedWrite {
            session: &session,
            source: &self.source,
            select: &text,
            folder: format!("{}/{name}", target.store.url),
            compression: COMPRESSION,
        };
        let plan = written.plan().await?;
        let clock = Clock::start(&target.store);
        let files = written.write(plan).await?;
        staged::rename_three_times(&target.place, name, &files).await?;
        Ok(clock.stop())
    }

    fn peer(
        &self,
        worker: &mut WorkerProcess,
        target: &Target,
        name: &str,
        case: Case,
        schema: &SchemaRef,
        progress: &mut Progress<'_>,
    ) -> Result<TimedWrite, WorkerError> {
        let url = match target.store.url.contains("://") {
            // Hadoop's S3 client uses this scheme.
            true => target.store.url.replace("s3://", "s3a://"),
            false => {
                format!(
                    "file://{}",
                    absolute(Path::new(&target.store.url)).map_err(WorkerError::Dead)?.display()
                )
            }
        };
        let columns = column_list(schema);
        let tasks = case.files().min(PEER_TASKS_MAX);
        let create = format!(
            "CREATE TABLE {name} USING parquet OPTIONS (compression '{COMPRESSION}') PARTITIONED BY (part_key) \
             LOCATION '{url}/{name}' AS SELECT {columns}, 0L AS file_key, 0L AS part_key FROM store_sales WHERE false"
        );
        let insert = format!(
            "INSERT OVERWRITE {name} SELECT /*+ REPARTITION({tasks}, part_key, file_key) */ {columns}, file_key, \
             part_key FROM ({})",
            select(schema, case, "store_sales")
        );
        worker.run(&create, &mut || progress.tick())?;
        let clock = Clock::start(&target.store);
        let run = worker.run(&insert, &mut || progress.tick())?;
        let mut done = clock.stop();
        done.wall = run.wall;
        worker.run(&format!("DROP TABLE {name}"), &mut || progress.tick())?;
        Ok(done)
    }
}

pub fn to_failure(error: SqlError) -> Failure {
    SqlError::new(error.sqlstate, error.message).into()
}

/// Builds the query of the rows with the keys of their table partition and of their file, evenly distributed.
fn select(schema: &SchemaRef, case: Case, from: &str) -> String {
    let columns = column_list(schema);
    let (partitions, files) = (case.partitions, case.files());
    format!(
        "SELECT {columns}, CAST(harrier_h % {partitions} AS BIGINT) AS part_key, \
         CAST(floor(harrier_h / {partitions}) AS BIGINT) AS file_key FROM (SELECT {columns}, \
         CAST((ss_ticket_number * 7919 + CAST(ss_item_sk AS BIGINT) * 104729) % {files} AS BIGINT) AS harrier_h FROM {from}) AS rows_with_keys"
    )
}

fn column_list(schema: &SchemaRef) -> String {
    schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ")
}

/// Formats the columns of a schema as in CREATE TABLE.
pub fn sql_columns(schema: &SchemaRef) -> Result<String, SqlError> {
    let columns = schema.fields().iter().map(|field| {
        let kind = match field.data_type() {
            DataType::Int32 => "INT".to_owned(),
            DataType::Int64 => "BIGINT".to_owned(),
            DataType::Decimal128(precision, scale) => format!("NUMERIC({precision},{scale})"),
            DataType::Utf8 | DataType::Utf8View => "TEXT".to_owned(),
            DataType::Date32 => "DATE".to_owned(),
            DataType::Float64 => "DOUBLE PRECISION".to_owned(),
            other => {
                return Err(SqlError::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    format!("no column of type {other} in this benchmark"),
                ));
            }
        };
        Ok(format!("{} {kind}", field.name()))
    });
    Ok(columns.collect::<Result<Vec<_>, _>>()?.join(", "))
}

/// Runs all statements of `sql`; returns the outcome of the last.
pub async fn one(session: &Session, sql: &str) -> Result<Outcome, SqlError> {
    let mut outcome = Outcome::Command(Default::default());
    for statement in session.statements(sql)? {
        outcome = session.execute(&statement).await?;
    }
    Ok(outcome)
}

/// Returns the single number that a statement yields.
async fn number(session: &Session, sql: &str) -> Result<u64, SqlError> {
    let Outcome::Rows { stream, .. } = one(session, sql).await? else {
        return Err(SqlError::new(SqlState::INTERNAL_ERROR, "no rows"));
    };
    let batches: Vec<_> = stream.try_collect().await.map_err(harrier_engine::sql_error)?;
    let column = batches.iter().find(|batch| batch.num_rows() > 0).map(|batch| batch.column(0));
    let text = column.map(|column| arrow::util::display::array_value_to_string(column, 0));
    text.and_then(Result::ok)
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| SqlError::new(SqlState::INTERNAL_ERROR, "no number"))
}

/// Result of a timed write.
struct TimedWrite {
    wall: Duration,
    requests: Option<BTreeMap<String, u64>>,
    files: usize,
}

impl Cell {
    fn take(&mut self, done: TimedWrite) {
        self.walls_s.push(done.wall.as_secs_f64());
        self.requests.extend(done.requests);
        self.files = Some(done.files);
    }
}

struct Clock<'a> {
    store: &'a Store,
    before: Option<BTreeMap<String, u64>>,
    start: Instant,
}

impl<'a> Clock<'a> {
    fn start(store: &'a Store) -> Self {
        let before = places::requests(store.requests.as_deref());
        Self { store, before, start: Instant::now() }
    }

    fn stop(self) -> TimedWrite {
        let wall = self.start.elapsed();
        let after = places::requests(self.store.requests.as_deref());
        let requests = Option::zip(self.before, after).map(|(before, after)| {
            let since = |(kind, count): (String, u64)| {
                let count = count.saturating_sub(before.get(&kind).copied().unwrap_or(0));
                (count > 0).then_some((kind, count))
            };
            after.into_iter().filter_map(since).collect()
        });
        TimedWrite { wall, requests, files: 0 }
    }
}

fn header(options: &Options, rows: u64, source: &Path, ways: &[String]) -> String {
    let runs = options.runs;
    let mut text = format!(
        "INSERT OVERWRITE of TPC-DS store_sales, {rows} rows ({}): median of {runs} {} after a warm-up, in seconds; \
         and requests\n\n",
        source.display(),
        if runs == 1 { "run" } else { "runs, interleaved," },
    );
    for (index, way) in ways.iter().enumerate() {
        let _ = writeln!(text, "{}  {way}", letter(index));
    }
    let _ = write!(text, "\n{:<8} {:>10} {:>6}", "store", "partitions", "files");
    for index in 0..ways.len() {
        let letter = letter(index);
        let _ = write!(text, " {:>9}", format!("{letter} wall"));
        if index > 0 {
            let _ = write!(text, " {:>6}", format!("{letter}/A"));
        }
        let _ = write!(text, " {:>10}", format!("{letter} requests"));
    }
    text
}

fn line(store: &Store, case: Case, cells: &[Cell]) -> String {
    let mut text = format!("{:<8} {:>10} {:>6}", store.name, case.partitions, case.files());
    for (index, cell) in cells.iter().enumerate() {
        let _ = match cell.wall_s() {
            Some(wall_s) => write!(text, " {wall_s:>9.3}"),
            None => write!(text, " {:>9}", "-"),
        };
        if index > 0 {
            let _ = match Option::zip(cells[0].wall_s(), cell.wall_s()) {
                Some((first_s, wall_s)) => write!(text, " {:>6.2}", wall_s / first_s),
                None => write!(text, " {:>6}", "-"),
            };
        }
        let _ = match cell.requests() {
            Some(requests) => write!(text, " {requests:>10.0}"),
            None => write!(text, " {:>10}", "-"),
        };
    }
    for (index, problem) in
        cells.iter().enumerate().filter_map(|(index, cell)| Some((index, cell.problem.as_ref()?)))
    {
        let _ = write!(text, "  {}: {problem}", letter(index));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_read() {
        let store: Store = "s3=s3://bucket/bench/,requests=127.0.0.1:9".parse().unwrap();
        assert_eq!((store.name.as_str(), store.url.as_str()), ("s3", "s3://bucket/bench"));
        assert_eq!(store.requests.as_deref(), Some("127.0.0.1:9"));
        let store: Store = "local=/tmp/x".parse().unwrap();
        assert_eq!((store.url.as_str(), store.requests), ("/tmp/x", None));
        assert!("/tmp/x".parse::<Store>().is_err());
    }

    #[test]
    fn lines_are_as_wide_as_the_head() {
        let cell = |wall_s: f64| Cell {
            walls_s: vec![wall_s; 3],
            requests: vec![BTreeMap::from([("PUT".to_owned(), 10)])],
            ..Cell::default()
        };
        let failed = Cell { problem: Some("no".to_owned()), ..Cell::default() };
        let store = Store { name: "s3".to_owned(), url: "s3://b".to_owned(), requests: None };
        let text = line(&store, Case { partitions: 10, files_each: 2 }, &[cell(0.5), cell(5.0), failed]);
        assert_eq!(
            text,
            "s3               10     20     0.500         10     5.000  10.00         10         -      -          -  C: no"
        );
    }
}
