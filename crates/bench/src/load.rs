//! `harrier bench load`: the cost of loading TPC-H into tables, and the effect of table layouts on queries.
//!
//! First every table is loaded from Parquet and from CSV, in several ways, with the timed runs interleaved:
//!
//! | way | what is timed |
//! |---|---|
//! | N ranks | `INSERT INTO … SELECT` into a table of a warehouse, with its commit |
//! | decode | one thread reads the same rows and discards them |
//! | encode | one thread writes the same rows from memory, with its commit |
//! | a peer | its `INSERT INTO … SELECT` into a table of DuckLake (`bench/peers/run ducklake`) |
//!
//! Then all tables are stored in several layouts (of [`LAYOUTS`]), the sizes of their files reported, and the
//! same queries run on each.
//!
//! After a load is timed, its rows are counted, its table is dropped and its files are removed, so the disk
//! needs space for one load of each way. Errors: as for `bench`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use arrow::datatypes::SchemaRef;
use harrier_engine::{Engine, EngineOptions, Outcome, SqlError};
use serde_json::json;

use super::cell::Cell;
use super::commit::sql_columns;
use super::configuration::{self, Configuration};
use super::folder::Folder;
use super::measure::{self, Measured};
use super::progress::{Progress, print_line};
use super::worker_process::{Run, WorkerError, WorkerProcess};
use super::workload::{Numbers, Query, Workload};
use super::{Failure, report};

/// Name on the command line.
pub const NAME: &str = "load";

#[derive(clap::Args, Debug)]
pub struct Options {
    /// Scale factor of the data
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    scale: f64,
    /// Load with so many ranks of one thread
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4")]
    ranks: Vec<usize>,
    /// Measure another program beside, as 'ducklake=bench/peers/run ducklake --threads 2'
    #[arg(long = "peer", value_name = "NAME=COMMAND")]
    peers: Vec<String>,
    /// What runs the queries over the ways in which tables are kept; none to leave them out
    #[arg(long, value_name = "KIND[:KEY=VALUE,…]", default_value = "mpi:ranks=2,threads=1")]
    layouts: String,
    /// Ways in which tables are kept, 8 at most
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = LAYOUTS.map(|(name, _)| name),
        default_values = LAYOUTS_DEFAULT
    )]
    layouts_of: Vec<String>,
    /// Load nothing for the sake of its time: only the ways in which tables are kept
    #[arg(long, conflicts_with_all = ["ranks", "peers"])]
    layouts_only: bool,
    /// The queries that it runs
    #[arg(long, value_name = "LIST", default_value = "5,8,9,18")]
    queries: Numbers,
    /// Timed runs, after one to warm up
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Write the measurements of loads here, and those of the queries beside it, as <FILE>-queries.json
    #[arg(long, value_name = "FILE.json")]
    json: Option<PathBuf>,
    /// Draw charts of the medians here and beside it
    #[arg(long, value_name = "FILE.svg")]
    chart: Option<PathBuf>,
}

macro_rules! cases {
    ($($table:literal)*) => {
        [$(($table, PARQUET, concat!($table, ".parquet")), ($table, CSV, concat!($table, ".csv"))),*]
    };
}

const PARQUET: &str = "parquet";
const CSV: &str = "csv";

/// Table, format, and the name of the load.
const CASES: [(&str, &str, &str); 16] =
    cases!("customer" "lineitem" "nation" "orders" "part" "partsupp" "region" "supplier");

/// Clauses of all tables; `KEY` is the first column of a table's key, `ORDER` the column that queries most
/// often filter by a range. Without a clause, rows stay where they were written, in arrival order, with zstd
/// of level 1.
const LAYOUTS: [(&str, &str); 11] = [
    ("random", ""),
    ("hash", "DISTRIBUTED BY (KEY)"),
    ("sorted", "ORDER BY (ORDER)"),
    ("uncompressed", "WITH (compression = 'uncompressed')"),
    ("snappy", "WITH (compression = 'snappy')"),
    ("lz4", "WITH (compression = 'lz4')"),
    ("gzip", "WITH (compression = 'gzip')"),
    ("gzip-1", "WITH (compression = 'gzip', compression_level = 1)"),
    ("gzip-9", "WITH (compression = 'gzip', compression_level = 9)"),
    ("zstd", "WITH (compression = 'zstd')"),
    ("zstd-9", "WITH (compression = 'zstd', compression_level = 9)"),
];

/// As many as can be compared at once.
const LAYOUTS_DEFAULT: [&str; report::CONFIGURATIONS_MAX] =
    ["random", "hash", "sorted", "uncompressed", "snappy", "lz4", "gzip", "zstd-9"];

/// Runs the command. Blocks until it is done.
pub fn run(options: &Options) -> Result<(), Failure> {
    if options.layouts_only && options.layouts == "none" {
        return Err(Failure::usage("neither loads nor ways to keep tables are left"));
    }
    if options.layouts_of.len() > report::CONFIGURATIONS_MAX {
        return Err(Failure::usage(format!("more than {} ways to keep tables", report::CONFIGURATIONS_MAX)));
    }
    let sources = Sources::find(options.scale)?;
    let mut wrong = 0;
    if !options.layouts_only {
        let loads = loads(options, &sources)?;
        super::keep(&loads.json, options.json.as_deref(), options.chart.as_deref())?;
        wrong += loads.wrong;
    }
    if options.layouts != "none" {
        print_line("");
        let queries = layouts(options, &sources)?;
        let beside = |path: &PathBuf| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            path.with_file_name(format!("{name}-queries.{}", path.extension().unwrap_or_default().display()))
        };
        let (json, chart) = (options.json.as_ref().map(beside), options.chart.as_ref().map(beside));
        super::keep(&queries.json, json.as_deref(), chart.as_deref())?;
        wrong += queries.wrong;
    }
    super::require_none_wrong(wrong, "loads and queries")
}

/// Source files of the loads.
struct Sources {
    /// Folders of Parquet and CSV files.
    folders: BTreeMap<&'static str, PathBuf>,
    /// By table: its columns as in CREATE TABLE, and the first of them.
    columns: BTreeMap<&'static str, (String, String)>,
}

impl Sources {
    /// Finds the source files; generates missing ones.
    fn find(scale: f64) -> Result<Self, Failure> {
        let parquet = super::data_at(None, scale)?;
        let csv = PathBuf::from(format!(".harrier/data/tpch-sf{scale}-csv"));
        let status = Command::new(configuration::this_binary()?)
            .args(["generate", "tpch", "--format", "csv", "--scale", &scale.to_string(), "--out"])
            .arg(&csv)
            .status()
            .map_err(|error| Failure::dead(format!("could not generate the data: {error}")))?;
        if !status.success() {
            return Err(Failure::dead(format!("could not generate the data in \"{}\"", csv.display())));
        }
        let mut folders = BTreeMap::new();
        for (format, folder) in [(PARQUET, parquet), (CSV, csv)] {
            let absolute = std::fs::canonicalize(&folder);
            let absolute =
                absolute.map_err(|error| Failure::dead(format!("\"{}\": {error}", folder.display())))?;
            folders.insert(format, absolute);
        }
        let mut sources = Self { folders, columns: BTreeMap::new() };
        let runtime = tokio::runtime::Runtime::new().map_err(|error| Failure::dead(error.to_string()))?;
        for (table, format, _) in CASES {
            if format == PARQUET {
                let path = sources.path(table, format);
                let schema = runtime.block_on(schema(&path)).map_err(super::commit::to_failure)?;
                let columns = sql_columns(&schema).map_err(super::commit::to_failure)?;
                sources.columns.insert(table, (columns, schema.field(0).name().clone()));
            }
        }
        Ok(sources)
    }

    /// Folder of a table's files, with a trailing slash.
    fn path(&self, table: &str, format: &str) -> String {
        format!("{}/{table}/", self.folders[format].display())
    }

    /// Statements that register the files in Harrier as `<format>_<table>`.
    fn external(&self, table: &str, format: &str) -> String {
        let (columns, path) = (&self.columns[table].0, self.path(table, format));
        match format {
            CSV => format!(
                "CREATE EXTERNAL TABLE csv_{table} ({columns}) STORED AS CSV LOCATION '{path}' OPTIONS (has_header true)"
            ),
            _ => format!("CREATE EXTERNAL TABLE parquet_{table} STORED AS PARQUET LOCATION '{path}'"),
        }
    }
}

async fn schema(path: &str) -> Result<SchemaRef, SqlError> {
    let session = Engine::try_new(EngineOptions::default())?.session();
    for statement in session.statements(&format!("SELECT * FROM '{path}' LIMIT 0"))? {
        if let Outcome::Rows { schema, .. } = session.execute(&statement).await? {
            return Ok(schema);
        }
    }
    Err(SqlError::new(harrier_engine::SqlState::INTERNAL_ERROR, "the data has no rows"))
}

/// Part of a load that is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Load,
    Decode,
    Encode,
    Peer,
}

/// Statements that remove the files of dropped tables.
const REMOVE: &[&str] =
    &["CALL expire_snapshots('0 seconds')", "SET harrier.vacuum_age_seconds = 0", "VACUUM"];

/// The same for DuckLake.
const REMOVE_OF_DUCKLAKE: &[&str] = &[
    "CALL ducklake_expire_snapshots('lake', older_than => now())",
    "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
];

/// Statements of one load.
struct Load {
    before: Vec<String>,
    timed: String,
    /// Counts the rows after the load.
    count: Option<String>,
    after: Vec<String>,
}

impl Way {
    fn load(self, sources: &Sources, table: &str, format: &str) -> Load {
        let columns = &sources.columns[table].0;
        let source = format!("{format}_{table}");
        let create = format!("CREATE TABLE loaded ({columns})");
        let count = Some("SELECT count(*) FROM loaded".to_owned());
        let remove = if self == Self::Peer { REMOVE_OF_DUCKLAKE } else { REMOVE };
        let after: Vec<String> =
            ["DROP TABLE loaded"].iter().chain(remove).map(|&statement| statement.to_owned()).collect();
        match self {
            Self::Load => {
                let timed = format!("INSERT INTO loaded SELECT * FROM {source}");
                Load { before: vec![create], timed, count, after }
            }
            Self::Decode => {
                let timed = format!("EXPLAIN ANALYZE SELECT * FROM {source}");
                Load { before: vec![], timed, count: None, after: vec![] }
            }
            Self::Encode => {
                let held = format!("CREATE TEMPORARY TABLE held AS SELECT * FROM {source}");
                let timed = "INSERT INTO loaded SELECT * FROM held".to_owned();
                let after = std::iter::once("DROP TABLE held".to_owned()).chain(after).collect();
                Load { before: vec![create, held], timed, count, after }
            }
            Self::Peer => {
                let path = sources.path(table, format);
                let read = match format {
                    CSV => format!("read_csv('{path}*.csv', header = true)"),
                    _ => format!("read_parquet('{path}*.parquet')"),
                };
                Load {
                    before: vec![create],
                    timed: format!("INSERT INTO loaded SELECT * FROM {read}"),
                    count,
                    after,
                }
            }
        }
    }
}

fn loads(options: &Options, sources: &Sources) -> Result<Measured, Failure> {
    let folder = Folder::new(NAME)?;
    let kept = |name: &str| folder.0.join(name).display().to_string();
    let named = |name: &str, text: &str| -> Result<Configuration, Failure> {
        Ok(Configuration::parse(text).map_err(Failure::usage)?.with_name(name))
    };
    let mut ways = Vec::new();
    for ranks in &options.ranks {
        let warehouse = kept(&format!("ranks-{ranks}"));
        let text = match ranks {
            1 => format!("embedded:threads=1,warehouse={warehouse}"),
            ranks => format!("mpi:ranks={ranks},threads=1,warehouse={warehouse}"),
        };
        let name = if *ranks == 1 { "1 rank".to_owned() } else { format!("{ranks} ranks") };
        ways.push((Way::Load, named(&name, &text)?));
    }
    for (way, name) in [(Way::Decode, "decode"), (Way::Encode, "encode")] {
        ways.push((way, named(name, &format!("embedded:threads=1,warehouse={}", kept(name)))?));
    }
    for text in &options.peers {
        ways.push((Way::Peer, Configuration::peer(text).map_err(Failure::usage)?));
    }
    if ways.len() > report::CONFIGURATIONS_MAX {
        return Err(Failure::usage(format!("more than {} ways", report::CONFIGURATIONS_MAX)));
    }
    let queries = CASES.into_iter().enumerate().map(|(at, (_, _, name))| Query {
        number: at + 1,
        name,
        sql: String::new(),
        answer: None,
    });
    let title = "Loading TPC-H into tables";
    let workload = Workload { name: NAME, title, scale: options.scale, queries: queries.collect() };
    let mut out = std::io::stdout();
    let mut progress = Progress::new(&mut out);
    let mut workers = Vec::new();
    for (way, configuration) in &ways {
        progress.step(format!("starting {}", configuration.name));
        let mut worker = WorkerProcess::start(configuration, &mut || progress.tick())?;
        if *way != Way::Peer {
            for (table, format, _) in CASES {
                require(worker.run(&sources.external(table, format), &mut || progress.tick()))?;
            }
        }
        workers.push(worker);
    }
    let configurations: Vec<Configuration> =
        ways.iter().map(|(_, configuration)| configuration.clone()).collect();
    let folder_of_data = &sources.folders[PARQUET];
    progress.print(&report::header(&workload, &configurations, &workers, options.runs, folder_of_data));
    let mut lines = Vec::new();
    for (table, format, name) in CASES {
        progress.prefix = name.to_owned();
        let mut cells = vec![Cell::default(); ways.len()];
        // Run 0 warms up.
        for run in 0..=options.runs {
            for (((way, _), worker), cell) in ways.iter().zip(&mut workers).zip(&mut cells) {
                if cell.problem.is_some() {
                    continue;
                }
                match run_once(&way.load(sources, table, format), worker, &mut progress) {
                    Ok(_) if run == 0 => {}
                    Ok(measured) => cell.runs.push(measured),
                    Err(WorkerError::Statement(problem)) => cell.problem = Some(problem),
                    Err(WorkerError::Dead(failure)) => return Err(failure),
                }
            }
        }
        check_counts(&mut cells);
        progress.print(&report::line(name, &cells, false));
        lines.push(cells);
    }
    progress.print(&report::footer(&lines));
    measure::result(&workload, &configurations, &workers, options.runs, lines)
}

fn run_once(
    load: &Load,
    worker: &mut WorkerProcess,
    progress: &mut Progress<'_>,
) -> Result<Run, WorkerError> {
    for statement in &load.before {
        worker.run(statement, &mut || progress.tick())?;
    }
    let mut run = worker.run(&load.timed, &mut || progress.tick())?;
    run.rows = match &load.count {
        None => 0,
        Some(count) => {
            worker.run(count, &mut || progress.tick())?;
            number(worker, progress)?
        }
    };
    for statement in &load.after {
        worker.run(statement, &mut || progress.tick())?;
    }
    Ok(run)
}

/// Returns the single number of the last run.
fn number(worker: &mut WorkerProcess, progress: &mut Progress<'_>) -> Result<u64, WorkerError> {
    let answer = worker.answer(&mut || progress.tick())?;
    let cell = answer.first().and_then(|row| row.first()).cloned().flatten();
    cell.and_then(|text| text.parse().ok())
        .ok_or_else(|| WorkerError::Statement("no number of rows".to_owned()))
}

/// Marks cells as wrong unless all ways have loaded the same number of rows.
fn check_counts(cells: &mut [Cell]) {
    let counted = |cell: &Cell| cell.runs.first().map(|run| run.rows).filter(|rows| *rows > 0);
    let Some(rows) = cells.iter().find_map(counted) else { return };
    for cell in cells {
        let other = cell.runs.iter().map(|run| run.rows).find(|own| *own > 0 && *own != rows);
        if let Some(other) = other {
            cell.problem = Some(format!("{other} rows instead of {rows}"));
        }
    }
}

fn layouts(options: &Options, sources: &Sources) -> Result<Measured, Failure> {
    let folder = Folder::new(NAME)?;
    let mut configurations = Vec::new();
    let mut bytes = Vec::new();
    for (name, clauses) in select_layouts(&options.layouts_of) {
        let separator = if options.layouts.contains(':') { ',' } else { ':' };
        let text = format!("{}{separator}warehouse={}", options.layouts, folder.0.join(name).display());
        let configuration = Configuration::parse(&text).map_err(Failure::usage)?.with_name(name);
        bytes.push(fill(&configuration, sources, clauses)?);
        print_line(format_args!("{name:<14} {:>12} bytes", bytes[bytes.len() - 1]));
        configurations.push(configuration);
    }
    print_line("");
    let mut workload = Workload::new("tpch", options.scale);
    workload.retain(&options.queries).map_err(Failure::usage)?;
    workload.title = "TPC-H over tables kept in several ways";
    let mut out = std::io::stdout();
    let mut measured =
        measure::run(&workload, &configurations, &[], options.runs, &sources.folders[PARQUET], &mut out)?;
    if let Some(all) = measured.json["configurations"].as_array_mut() {
        for (configuration, bytes) in all.iter_mut().zip(bytes) {
            configuration["bytes"] = json!(bytes);
        }
    }
    Ok(measured)
}

/// Returns each requested layout once, in the order of [`LAYOUTS`].
fn select_layouts(names: &[String]) -> Vec<(&'static str, &'static str)> {
    LAYOUTS.into_iter().filter(|(name, _)| names.iter().any(|wanted| wanted == name)).collect()
}

/// The column of a table that TPC-H's queries filter by a range; for most tables, the key.
fn order<'a>(table: &str, key: &'a str) -> &'a str {
    match table {
        "lineitem" => "l_shipdate",
        "orders" => "o_orderdate",
        _ => key,
    }
}

/// Creates and loads all tables; returns the bytes of their files.
fn fill(configuration: &Configuration, sources: &Sources, clauses: &str) -> Result<u64, Failure> {
    let mut out = std::io::sink();
    let mut progress = Progress::new(&mut out);
    let mut worker = WorkerProcess::start(configuration, &mut || {})?;
    for (table, (columns, key)) in &sources.columns {
        let clauses = clauses.replace("(KEY)", &format!("({key})"));
        let clauses = clauses.replace("(ORDER)", &format!("({})", order(table, key)));
        for statement in [
            sources.external(table, PARQUET),
            format!("CREATE TABLE {table} ({columns}) {clauses}"),
            format!("INSERT INTO {table} SELECT * FROM parquet_{table}"),
        ] {
            require(worker.run(&statement, &mut || {}))?;
        }
    }
    require(worker.run("ANALYZE", &mut || {}))?;
    require(worker.run("SELECT sum(bytes) FROM sys.tables", &mut || {}))?;
    require(number(&mut worker, &mut progress))
}

/// Turns a failed statement into a failure of the benchmark.
fn require<T>(outcome: Result<T, WorkerError>) -> Result<T, Failure> {
    outcome.map_err(|error| match error {
        WorkerError::Dead(failure) => failure,
        WorkerError::Statement(problem) => Failure::dead(problem),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(rows: u64) -> Cell {
        let run = Run {
            wall: std::time::Duration::from_secs(1),
            cpu: std::time::Duration::from_secs(1),
            rows,
            transport_share: None,
        };
        Cell { runs: vec![run], problem: None }
    }

    #[test]
    fn loads_of_other_rows_are_reported() {
        let mut cells = [cell(10), cell(0), cell(10), cell(9)];
        check_counts(&mut cells);
        let problems: Vec<Option<&str>> = cells.iter().map(|cell| cell.problem.as_deref()).collect();
        assert_eq!(problems, [None, None, None, Some("9 rows instead of 10")]);
    }

    #[test]
    fn tables_are_kept_on_request() {
        let names = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
            select_layouts(&wanted).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(&["zstd-9", "hash", "zstd-9"]), ["hash", "zstd-9"]);
        assert_eq!(names(&LAYOUTS_DEFAULT), LAYOUTS_DEFAULT);
        assert_eq!(order("orders", "o_orderkey"), "o_orderdate");
        assert_eq!(order("part", "p_partkey"), "p_partkey");
    }

    #[test]
    fn every_way_has_its_statements() {
        let columns = BTreeMap::from([("part", ("p_partkey BIGINT".to_owned(), "p_partkey".to_owned()))]);
        let folders = BTreeMap::from([(PARQUET, PathBuf::from("/p")), (CSV, PathBuf::from("/c"))]);
        let sources = Sources { folders, columns };
        let load = Way::Peer.load(&sources, "part", CSV);
        assert_eq!(load.timed, "INSERT INTO loaded SELECT * FROM read_csv('/c/part/*.csv', header = true)");
        let load = Way::Encode.load(&sources, "part", PARQUET);
        let dropped = |name: &str| load.after.contains(&format!("DROP TABLE {name}"));
        assert!(load.before.iter().any(|statement| statement.starts_with("CREATE TEMPORARY TABLE held")));
        assert!(dropped("held") && dropped("loaded"));
        assert_eq!(load.after.last().map(String::as_str), Some("VACUUM"));
        assert!(Way::Decode.load(&sources, "part", CSV).count.is_none());
        assert!(
            sources.external("part", CSV).contains("(p_partkey BIGINT) STORED AS CSV LOCATION '/c/part/'")
        );
    }
}
