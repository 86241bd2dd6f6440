//! `harrier bench serve`: `harrier serve` under the load of many clients, against other servers with the same
//! statements.
//!
//! ```text
//!                    ┌── PostgreSQL protocol ── harrier serve ── ranks
//! driver, 1 thread ──┤── PostgreSQL protocol ── PostgreSQL; DuckDB behind a server in Python      (peers)
//!                    └── HiveServer2 ────────── Spark's Thrift server
//! ```
//!
//! All servers start once and stay. Every statement's answer is first compared with the first server's; a
//! TPC-H query that a server fails or answers differently is left out for all. Then come windows of load
//! (`load.rs`): in every round each kind of load with each number of clients runs on one server after the
//! other, A B C A B C, so that other load on the machine affects all alike; figures are medians of the
//! rounds. Also measured: reading rows without using them (`streaming.rs`), idle connections (`idle.rs`), and
//! killed ranks (`recovery.rs`).
//!
//! Errors: a peer that does not start, or fails, is reported and left out. The command fails if Harrier does,
//! or gives a wrong answer.
//! Crash: peers end with the driver. Harrier's server ends with an interrupt of the terminal, but not when
//! only the driver is killed.

pub mod chart;

mod hive;
mod idle;
mod load;
mod recovery;
mod report;
mod statements;
mod streaming;
mod systems;
mod wire;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use harrier_error::{SqlError, SqlState};
use serde_json::{Value, json};

use super::answers::{Rows, compare_engines};
use super::configuration::{self, Configuration};
use super::progress::Progress;
use super::workload::{self, Numbers, Workload};
use super::{Failure, keep, machine};
use load::{Client, Sample, Window};
use report::Cell;
use statements::{LOADS, Load, Script, Source, Statement};
use systems::{HarrierOptions, Protocol, System};

/// Name on the command line and in the JSON result.
pub const NAME: &str = "serve";

/// Timeout of a statement whose answer is compared.
const CHECK_TIMEOUT: Duration = Duration::from_secs(60);
/// A server with more wrong or failing TPC-H queries than this is left out of that load.
const PROBLEMS_MAX: usize = 4;
/// Warm-up time before a window, as a fraction of its duration.
const WARM_PART: f64 = 0.2;
/// Orders at scale 1 (TPC-H 4.2.5).
const ORDERS: f64 = 1_500_000.0;
/// Connection limit of the server beyond the idle ones.
const SPARE_CONNECTIONS: usize = 200;

#[derive(clap::Args, Debug)]
pub struct Options {
    /// Scale factor of the data
    #[arg(long, value_name = "F", default_value_t = 0.1)]
    scale: f64,
    /// Measure another server beside, as 'duckdb=bench/peers/run duckdb-server'
    #[arg(long = "peer", value_name = "NAME=COMMAND")]
    peers: Vec<String>,
    /// Kinds of load: catalog, point, prepared, aggregate, small, tpch, insert
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Load::parse, default_values = LOADS.map(Load::name))]
    loads: Vec<Load>,
    /// Numbers of clients
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,8,32,128")]
    clients: Vec<usize>,
    /// Seconds of each window
    #[arg(long, value_name = "S", default_value_t = 1.5)]
    seconds: f64,
    /// Rounds of all windows
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Begin no further window after so many seconds
    #[arg(long, value_name = "S", default_value_t = 3600.0)]
    time_max: f64,
    /// Queries of the TPC-H mix, as 1,5-9
    #[arg(long, value_name = "LIST")]
    queries: Option<Numbers>,
    /// Ranks of Harrier's gang [default: as many as there are cores]
    #[arg(long, value_name = "N")]
    ranks: Option<usize>,
    /// A setting of Harrier's sessions
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Connections that do nothing, for their memory; 0 leaves that out
    #[arg(long, value_name = "N", default_value_t = 1000)]
    idle: usize,
    /// Large answers of each kind that are read and thrown away; 0 leaves that out
    #[arg(long, value_name = "N", default_value_t = 3)]
    streams: u32,
    /// A program that reads Arrow Flight, as 'bench/peers/run flight-reader'
    #[arg(long, value_name = "COMMAND")]
    flight_reader: Option<String>,
    /// Ranks that are killed; 0 leaves that out
    #[arg(long, value_name = "N", default_value_t = 10)]
    kills: u32,
    /// Of everything at random [default: another one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Where the data is [default: .harrier/data/tpch-sf<F>, generated when missing]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where warehouses and peers' databases go
    #[arg(long, value_name = "DIR", default_value = ".harrier/bench/serve")]
    folder: PathBuf,
    /// Write all measurements here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw a chart of the medians here
    #[arg(long, value_name = "FILE.svg")]
    chart: Option<PathBuf>,
}

/// All results.
#[derive(Default)]
struct Results {
    cells: Vec<Cell>,
    streamed: Vec<streaming::StreamingResult>,
    idle: Option<Result<idle::Idle, String>>,
    recovery: Option<recovery::Recovery>,
    /// Problems, each with the server's name.
    problems: Vec<(String, String)>,
}

/// Measures, prints the table as it grows, writes and draws the results. Blocks until it is done.
pub fn run(options: &Options) -> Result<(), Failure> {
    check(options)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::dead(format!("no threads for the clients: {error}")))?;
    runtime.block_on(measure(options))
}

fn check(options: &Options) -> Result<(), Failure> {
    let is_positive = |value: f64| value.is_finite() && value > 0.0;
    if !is_positive(options.scale) || !is_positive(options.seconds) || options.seconds > 3600.0 {
        return Err(Failure::usage("--scale and --seconds are numbers above 0, --seconds up to 3600"));
    }
    if options.clients.is_empty() || options.clients.iter().any(|clients| !(1..=10_000).contains(clients)) {
        return Err(Failure::usage("--clients are numbers from 1 to 10000"));
    }
    if options.peers.len() + 1 > super::report::CONFIGURATIONS_MAX {
        return Err(Failure::usage(format!("more than {} servers", super::report::CONFIGURATIONS_MAX)));
    }
    Ok(())
}

async fn measure(options: &Options) -> Result<(), Failure> {
    let begun = Instant::now();
    let seed = options.seed.unwrap_or_else(|| rand::random::<u32>().into());
    let data = super::data_at(options.data.as_deref(), options.scale)?;
    workload::tables(&data)?;
    let mut workload = Workload::new("tpch", options.scale);
    if let Some(numbers) = &options.queries {
        workload.retain(numbers).map_err(Failure::usage)?;
    }
    std::fs::create_dir_all(&options.folder)
        .map_err(|error| super::io_error("create folder", &options.folder, &error))?;
    let folder = std::path::absolute(&options.folder).unwrap_or_else(|_| options.folder.clone());
    let warehouse = load_warehouse(options, &folder)?;

    let mut out = std::io::stdout();
    let mut progress = Progress::new(&mut out);
    let mut results = Results::default();
    let mut systems = start(options, &data, &folder, &warehouse, &mut results, &mut progress)?;
    progress.print(&report::header(options.scale, options.seconds, options.rounds, seed, &systems));

    // First of all, while the server's memory is still that of a fresh start.
    if options.idle > 0 {
        progress.step(format!("{} idle connections", options.idle));
        let idle =
            idle::measure(&systems[0], options.idle).await.map_err(|client_error| client_error.to_string());
        progress.print(&report::idle_text(&idle));
        results.idle = Some(idle);
    }
    let mut source = Source {
        queries: workload.queries.clone(),
        orders: (ORDERS * options.scale) as u64,
        catalog: catalog(Protocol::Postgresql),
    };
    let left_out = compare_answers(options, &systems, &mut source, &mut results, &mut progress).await;
    if options.streams > 0 {
        progress.prefix = "streaming".to_owned();
        let mut step = |what| progress.step(what);
        results.streamed = streaming::over_postgresql(&systems, options.streams, &mut step).await;
        if let Some(reader) = &options.flight_reader {
            let reader = Configuration::peer(reader).map_err(Failure::usage)?;
            progress.step("Arrow Flight".to_owned());
            results.streamed.extend(streaming::over_flight(&reader, &systems[0], options.streams));
        }
        for streamed in &results.streamed {
            progress.print(&report::streaming_text(streamed));
        }
        progress.prefix = String::new();
    }
    if options.kills > 0 {
        let recovery = measure_recovery(options, &folder, &warehouse, seed, &mut progress).await?;
        progress.print(&report::recovery_text(&recovery));
        results.recovery = Some(recovery);
    }
    let end = begun + Duration::from_secs_f64(options.time_max.clamp(0.0, 1e6));
    rounds(options, &mut systems, &source, &left_out, end, seed, &mut results, &mut progress).await;

    let thrift = systems.iter().position(|system| system.target.protocol == Protocol::Hive);
    let aims = report::aims(
        &results.cells,
        thrift,
        &results.streamed,
        results.idle.as_ref(),
        results.recovery.as_ref(),
    );
    for (name, problem) in &results.problems {
        progress.print(&format!("{name}: {problem}"));
    }
    progress.print(&report::aims_text(&aims));
    let result = json!({
        "benchmark": NAME,
        "title": "Servers over TPC-H",
        "scale": options.scale,
        "seconds": options.seconds,
        "rounds": options.rounds,
        "seed": seed,
        "took_s": begun.elapsed().as_secs_f64(),
        "when": machine::now(),
        "harrier": env!("CARGO_PKG_VERSION"),
        "machine": machine::json(),
        "systems": systems.iter().map(|system| json!({
            "name": system.name, "engine": system.engine, "start_s": system.started.as_secs_f64(),
        })).collect::<Vec<_>>(),
        "problems": results.problems.iter().map(|(name, problem)| json!({"of": name, "problem": problem})).collect::<Vec<_>>(),
        "queries": source.queries.iter().map(|query| query.name).collect::<Vec<_>>(),
        "cells": results.cells.iter().map(Cell::json).collect::<Vec<_>>(),
        "streaming": results.streamed.iter().map(streaming::StreamingResult::json).collect::<Vec<_>>(),
        "idle": match &results.idle {
            Some(Ok(idle)) => idle.json(),
            Some(Err(problem)) => json!({"problem": problem}),
            None => Value::Null,
        },
        "recovery": results.recovery.as_ref().map(recovery::Recovery::json),
        "aims": aims.iter().map(report::Aim::json).collect::<Vec<_>>(),
    });
    drop(systems);
    keep(&result, options.json.as_deref(), options.chart.as_deref())?;
    check_results(&results)
}

/// Errors: Harrier itself failed a measurement.
fn check_results(results: &Results) -> Result<(), Failure> {
    let own = results.problems.iter().find(|(name, _)| name == "harrier").map(|(_, problem)| problem.clone());
    let cell = results.cells.iter().find_map(|cell| cell.problem(0));
    let idle = results.idle.as_ref().and_then(|idle| idle.as_ref().err().cloned());
    let recovery = results.recovery.as_ref().and_then(|recovery| recovery.problem.clone());
    match own.or(cell).or(idle).or(recovery) {
        Some(problem) => Err(SqlError::new(SqlState::DATA_CORRUPTED, problem).into()),
        None => Ok(()),
    }
}

/// Returns the warehouse with the tables; loads it if missing.
fn load_warehouse(options: &Options, folder: &Path) -> Result<PathBuf, Failure> {
    let warehouse = folder.join(format!("warehouse-sf{}", options.scale));
    let mark = folder.join(format!("warehouse-sf{}.loaded", options.scale));
    if mark.exists() {
        return Ok(warehouse);
    }
    let _ = std::fs::remove_dir_all(&warehouse);
    let status = Command::new(configuration::this_binary()?)
        .args(["generate", "tpch", "--scale", &options.scale.to_string(), "--load", "--warehouse"])
        .arg(&warehouse)
        .status()
        .map_err(|error| Failure::dead(format!("could not load the tables: {error}")))?;
    if !status.success() {
        return Err(Failure::dead(format!("could not load the tables: {status}")));
    }
    std::fs::write(&mark, "").map_err(|error| super::io_error("write file", &mark, &error))?;
    Ok(warehouse)
}

fn harrier_options(options: &Options, folder: &Path, warehouse: &Path) -> Result<HarrierOptions, Failure> {
    let config = folder.join("serve.toml");
    let connections =
        options.clients.iter().copied().max().unwrap_or(0).max(options.idle) + SPARE_CONNECTIONS;
    std::fs::write(&config, format!("[server]\nmax_connections = {connections}\n"))
        .map_err(|error| super::io_error("write file", &config, &error))?;
    let mut arguments = vec!["--config".to_owned(), config.display().to_string()];
    if let Some(ranks) = options.ranks {
        arguments.extend(["--ranks".to_owned(), ranks.to_string()]);
    }
    for setting in &options.settings {
        arguments.extend(["--set".to_owned(), setting.clone()]);
    }
    Ok(HarrierOptions { warehouse: warehouse.to_path_buf(), arguments, folder: folder.to_path_buf() })
}

/// Starts Harrier first, then the peers, without those that fail. Errors: Harrier does not start.
fn start(
    options: &Options,
    data: &Path,
    folder: &Path,
    warehouse: &Path,
    results: &mut Results,
    progress: &mut Progress<'_>,
) -> Result<Vec<System>, Failure> {
    let harrier = harrier_options(options, folder, warehouse)?;
    progress.step("starting harrier".to_owned());
    let mut systems = vec![System::harrier(&harrier, &mut || progress.tick())?];
    for text in &options.peers {
        let configuration = Configuration::peer(text).map_err(Failure::usage)?;
        progress.step(format!("starting {}", configuration.name));
        match System::peer(&configuration, data, folder, &mut || progress.tick()) {
            Ok(system) => systems.push(system),
            Err(failure) => results.problems.push((configuration.name.clone(), failure.error.message)),
        }
    }
    Ok(systems)
}

/// Returns the catalog query for one table.
fn catalog(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Postgresql => "SELECT relname, relkind FROM pg_catalog.pg_class WHERE relname = 'orders'",
        Protocol::Hive => "SHOW TABLES LIKE 'orders'",
    }
}

/// Compares one statement of each load, and all TPC-H queries, over the servers. Removes queries without
/// equal answers everywhere from `source`; returns the servers that are left out of that load.
async fn compare_answers(
    options: &Options,
    systems: &[System],
    source: &mut Source,
    results: &mut Results,
    progress: &mut Progress<'_>,
) -> Vec<usize> {
    progress.prefix = "comparing answers".to_owned();
    let mut clients: Vec<Option<Client>> = systems.iter().map(|_| None).collect();
    for load in [Load::Point, Load::Aggregate] {
        let Statement::Text(sql) = Script::new(source, load, 0).next() else { continue };
        progress.step(load.title().to_owned());
        for problem in query_all(systems, &mut clients, &sql, progress).await.into_iter().enumerate() {
            if let (index, Some(problem)) = problem {
                results.problems.push((systems[index].name.clone(), format!("{}: {problem}", load.title())));
            }
        }
    }
    if !options.loads.contains(&Load::Tpch) {
        progress.prefix = String::new();
        return Vec::new();
    }
    let mut problems: Vec<Vec<Option<String>>> = Vec::new();
    for query in &source.queries {
        progress.step(query.name.to_owned());
        problems.push(query_all(systems, &mut clients, &query.sql, progress).await);
    }
    progress.prefix = String::new();
    let of = |index: usize| problems.iter().filter(|query| query[index].is_some()).count();
    let left_out: Vec<usize> = (1..systems.len()).filter(|index| of(*index) > PROBLEMS_MAX).collect();
    for (query, answers) in source.queries.iter().zip(&problems) {
        for (index, problem) in answers.iter().enumerate() {
            if let Some(problem) = problem {
                results.problems.push((systems[index].name.clone(), format!("{}: {problem}", query.name)));
            }
        }
    }
    for index in &left_out {
        results.problems.push((systems[*index].name.clone(), "left out of the TPC-H mix".to_owned()));
    }
    let mut answers = problems.iter();
    source.queries.retain(|_| {
        let problems = answers.next().map_or(&[][..], Vec::as_slice);
        !problems.iter().enumerate().any(|(index, problem)| problem.is_some() && !left_out.contains(&index))
    });
    left_out
}

/// Runs a statement on all servers; returns each one's problem. The first server's answer is the reference.
async fn query_all(
    systems: &[System],
    clients: &mut [Option<Client>],
    sql: &str,
    progress: &mut Progress<'_>,
) -> Vec<Option<String>> {
    let mut expected: Option<Rows> = None;
    let mut problems = Vec::new();
    for (system, slot) in systems.iter().zip(clients) {
        progress.tick();
        let answer = async {
            let mut client = match slot.take() {
                Some(client) => client,
                None => Client::connect(&system.target).await?,
            };
            let mut rows = Rows::new();
            client.query(sql, Some(&mut rows)).await.map(|_| (client, rows))
        };
        problems.push(match tokio::time::timeout(CHECK_TIMEOUT, answer).await {
            Err(_) => Some(format!("not done in {} s", CHECK_TIMEOUT.as_secs())),
            Ok(Err(client_error)) => Some(client_error.to_string()),
            Ok(Ok((client, rows))) => {
                *slot = Some(client);
                let difference = compare_engines(expected.get_or_insert_with(|| rows.clone()), &rows);
                difference.err().map(|difference| format!("another answer: {difference}"))
            }
        });
    }
    problems
}

/// Measures killed ranks, on a separate server with a spare rank.
async fn measure_recovery(
    options: &Options,
    folder: &Path,
    warehouse: &Path,
    seed: u64,
    progress: &mut Progress<'_>,
) -> Result<recovery::Recovery, Failure> {
    let ranks = options.ranks.unwrap_or(2).max(2);
    let mut harrier = harrier_options(options, folder, warehouse)?;
    harrier.folder = folder.join("recovery");
    std::fs::create_dir_all(&harrier.folder)
        .map_err(|error| super::io_error("create folder", &harrier.folder, &error))?;
    let own = ["--ranks", &ranks.to_string(), "--spares", "1", "--set", "harrier.distribute_bytes_min=1"];
    harrier.arguments.extend(own.map(str::to_owned));
    progress.step("starting a server whose ranks are killed".to_owned());
    let system = System::harrier(&harrier, &mut || progress.tick())?;
    let mut step = |what| progress.step(what);
    Ok(recovery::measure(&system, ranks, options.kills, seed, &mut step).await)
}

/// Runs all windows. Failures are recorded in the cells.
#[expect(clippy::too_many_arguments, reason = "the last step of a chain that no type would make clearer")]
async fn rounds(
    options: &Options,
    systems: &mut [System],
    source: &Source,
    left_out: &[usize],
    end: Instant,
    seed: u64,
    results: &mut Results,
    progress: &mut Progress<'_>,
) {
    let timed = Duration::from_secs_f64(options.seconds);
    for (index, load) in options.loads.iter().enumerate() {
        if !options.loads[..index].contains(load) {
            for clients in clients_of(*load, &options.clients) {
                results.cells.push(Cell::new(*load, clients, systems.len()));
            }
        }
    }
    'rounds: for round in 1..=options.rounds {
        for cell in &mut results.cells {
            for (index, system) in systems.iter_mut().enumerate() {
                if Instant::now() > end {
                    results.problems.push((
                        "time".to_owned(),
                        format!("it ran out in round {round} of {}", options.rounds),
                    ));
                    break 'rounds;
                }
                let is_out = cell.load == Load::Tpch && left_out.contains(&index)
                    || matches!(cell.load, Load::Prepared | Load::Insert)
                        && system.target.protocol == Protocol::Hive;
                if is_out || cell.problem(index).is_some() {
                    continue;
                }
                progress.prefix = format!("round {round} of {}", options.rounds);
                progress.step(format!("{}, {} clients of {}", cell.load.title(), cell.clients, system.name));
                progress.tick();
                let source = Source { catalog: catalog(system.target.protocol), ..source.clone() };
                let window = Window {
                    load: cell.load,
                    clients: cell.clients,
                    warm: timed.mul_f64(WARM_PART),
                    timed,
                    seed: seed.wrapping_add(round.into()),
                };
                let sample = load::window(system, &source, window).await.unwrap_or_else(|client_error| {
                    Sample { timed, problem: Some(client_error.to_string()), failed: 1, ..Sample::default() }
                });
                cell.samples[index].push(sample);
            }
        }
    }
    progress.prefix = String::new();
    for line in report::table(&results.cells, systems) {
        progress.print(&line);
    }
}

/// Numbers of clients of a load: only the first for one that measures the time of one statement, 2 to 32 for
/// the small mix.
fn clients_of(load: Load, clients: &[usize]) -> Vec<usize> {
    match load {
        Load::Catalog | Load::Prepared => clients.first().copied().into_iter().collect(),
        Load::Small if clients.len() > 2 => {
            clients.iter().copied().filter(|clients| (2..=32).contains(clients)).collect()
        }
        _ => clients.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_every_load_needs_a_crowd() {
        assert_eq!(clients_of(Load::Catalog, &[1, 8, 32, 128]), [1]);
        assert_eq!(clients_of(Load::Small, &[1, 8, 32, 128]), [8, 32]);
        assert_eq!(clients_of(Load::Small, &[4]), [4]);
        assert_eq!(clients_of(Load::Tpch, &[1, 8]), [1, 8]);
    }
}
