//! `harrier bench duel`: sets of statements against DuckDB over the same files, by CPU time, with every
//! answer compared.
//!
//! ```text
//!  set       data                          statements
//!  tpch      harrier generate tpch         the 22 queries
//!  tpcds     harrier generate tpcds        the 103 statements
//!  joins     films.rs, snowflake           15 queries × 3 orders of their tables, tests/joins
//!  visits    visits.rs, one wide table     43 statements, tests/visits
//! ```
//!
//! A configuration is one of `bench tpch`. The workers start once for each set, since tables of two sets have
//! the same names, and stay. Each statement runs once in every worker to warm up, when its answer is compared
//! with the first configuration's (`compare.rs`), then the timed runs are interleaved, A B A B. The figure is
//! the median of the CPU time of all processes of a worker, user and system: on a machine with other load it
//! says more than the wall time.
//!
//! A statement with a limit may leave open which of some equal rows it returns. Where such answers differ,
//! both workers run it again without the limit: those answers have to be the same, and the limited one has to
//! be a part of them.
//!
//! Errors: as for `bench`.

pub mod chart;
mod compare;
mod draws;
mod films;
mod report;
mod sets;
mod tables;
mod visits;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::answers::Rows;
use super::cell::Cell;
use super::configuration::Configuration;
use super::measure;
use super::progress::{Progress, print_line};
use super::report::{CONFIGURATIONS_MAX, letter};
use super::worker_process::{WorkerError, WorkerProcess};
use super::workload::{Numbers, Query, Workload};
use super::{DATA, Failure, keep, machine, require_none_wrong};
use compare::Same;
use report::{Orders, Ratio};
use sets::Set;

/// Name on the command line and in the JSON result.
pub const NAME: &str = "duel";

/// The peer of a duel without `--peer`, and the program that it needs.
const PEER: &str = "duckdb=bench/peers/run duckdb --threads 2";
const PEER_PROGRAM: &str = "bench/peers/run";

#[derive(clap::Args, Debug)]
pub struct Options {
    /// Whose statements, of tpch, tpcds, joins (many tables, in three orders) and visits (one wide table)
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "tpch,tpcds,joins,visits")]
    sets: Vec<Set>,
    /// Scale factor of the data; 1 has 6 million rows in the largest table of tpch and joins, 5 in visits
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    scale: f64,
    /// What to measure, as for bench tpch
    #[arg(long = "config", value_name = "KIND[:KEY=VALUE,…]", default_value = "embedded:threads=2")]
    configurations: Vec<String>,
    /// Measure another program that speaks the protocol [default: bench/peers/run duckdb, of two threads,
    /// where it is]
    #[arg(long = "peer", value_name = "NAME=COMMAND")]
    peers: Vec<String>,
    /// Timed runs of each statement, after one to warm up
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Only these queries of each set, as 1,5-9
    #[arg(long, value_name = "LIST")]
    queries: Option<Numbers>,
    /// Where the data is, in the folders tpch-sf<F>, tpcds-sf<F>, joins-sf<F> and visits-sf<F>, made when
    /// missing
    #[arg(long, value_name = "DIR", default_value = DATA)]
    data: PathBuf,
    /// Write all measurements here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw a chart of the processor times here: of the statements, or of the sets if there are several
    #[arg(long, value_name = "FILE.svg")]
    chart: Option<PathBuf>,
}

/// Runs the command. Blocks until it is done.
pub fn run(options: &Options) -> Result<(), Failure> {
    if !(0.001..=100_000.0).contains(&options.scale) {
        return Err(Failure::usage(format!("scale factor {} is not from 0.001 to 100000", options.scale)));
    }
    let configurations = configurations(options)?;
    let against = reference(&configurations);
    let mut workloads = Vec::new();
    for set in Set::ALL.into_iter().filter(|set| options.sets.contains(set)) {
        let mut workload = Workload::new(set.name(), options.scale);
        if let Some(numbers) = &options.queries {
            workload.retain(numbers).map_err(Failure::usage)?;
        }
        workloads.push((set, workload));
    }

    let mut out = std::io::stdout();
    let mut measured: Vec<SetResult> = Vec::new();
    for (set, workload) in workloads {
        let data = set.generate(options.scale, &options.data)?;
        let mut progress = Progress::new(&mut out);
        let duel = Duel { set, workload, configurations: &configurations, against, runs: options.runs };
        measured.push(duel.run(&data, &mut progress)?);
    }
    if measured.len() > 1 {
        print_line(summary(&measured, configurations.len(), against));
    }
    let result = json!({
        "benchmark": NAME,
        "title": "Duel",
        "scale": options.scale,
        "runs": options.runs,
        "when": machine::now(),
        "harrier": env!("CARGO_PKG_VERSION"),
        "machine": machine::json(),
        "sets": measured.iter().map(|set| set.json.clone()).collect::<Vec<_>>(),
    });
    keep(&result, options.json.as_deref(), options.chart.as_deref())?;
    let lines: Vec<&[Cell]> = measured.iter().flat_map(SetResult::cells).collect();
    let wrong = lines.iter().filter(|cells| cells.iter().any(|cell| cell.problem.is_some())).count();
    require_none_wrong(wrong, &format!("of {} statements", lines.len()))
}

fn configurations(options: &Options) -> Result<Vec<Configuration>, Failure> {
    let own = options.configurations.iter().map(|text| Configuration::parse(text));
    let mut configurations = own.collect::<Result<Vec<_>, _>>().map_err(Failure::usage)?;
    for text in &options.peers {
        configurations.push(Configuration::peer(text).map_err(Failure::usage)?);
    }
    if options.peers.is_empty() {
        match Path::new(PEER_PROGRAM).is_file() {
            true => configurations.push(Configuration::peer(PEER).map_err(Failure::usage)?),
            false => {
                eprintln!("there is no {PEER_PROGRAM} here: measured without DuckDB; --peer names another")
            }
        }
    }
    if configurations.len() > CONFIGURATIONS_MAX {
        return Err(Failure::usage(format!("more than {CONFIGURATIONS_MAX} configurations")));
    }
    Ok(configurations)
}

/// Index of the configuration that others are compared with: the first peer, else the first of all.
fn reference(configurations: &[Configuration]) -> usize {
    configurations.iter().position(Configuration::is_peer).unwrap_or(0)
}

/// A set to measure.
struct Duel<'a> {
    set: Set,
    workload: Workload,
    configurations: &'a [Configuration],
    against: usize,
    runs: u32,
}

/// Result of a set.
struct SetResult {
    set: Set,
    /// Names of the statements.
    names: Vec<String>,
    /// Cells by statement, then by configuration.
    lines: Vec<Vec<Cell>>,
    json: Value,
}

/// An answer to compare others with.
struct Expected {
    /// Index of the configuration that gave it.
    from: usize,
    rows: Rows,
    /// The same without the statement's limit, once it was needed.
    all_rows: Option<Rows>,
}

impl Duel<'_> {
    /// Measures all statements; prints the table as it grows.
    ///
    /// Errors: a worker that does not start or dies. Wrong answers are in the cells instead.
    fn run(self, data: &Path, progress: &mut Progress<'_>) -> Result<SetResult, Failure> {
        let tables = self.set.tables(data)?;
        let mut workers = Vec::new();
        for configuration in self.configurations {
            progress.step(format!("starting {}", configuration.name));
            let mut worker = WorkerProcess::start(configuration, &mut || progress.tick())?;
            worker.tables(&tables, &mut || progress.tick())?;
            workers.push(worker);
        }
        progress.print(&self.header(data, &workers));
        let mut lines = Vec::new();
        for (index, query) in self.workload.queries.iter().enumerate() {
            progress.prefix = format!("{}, {} of {}", query.name, index + 1, self.workload.queries.len());
            let cells = self.measure(query, &mut workers, progress)?;
            progress.print(&report::line(query.name, &cells, self.against));
            lines.push(cells);
        }
        let mut result = SetResult {
            set: self.set,
            names: self.workload.queries.iter().map(|query| query.name.to_owned()).collect(),
            lines,
            json: Value::Null,
        };
        progress.print(&result.footer(self.against));
        result.json = self.json(data, &workers, &result)?;
        Ok(result)
    }

    fn header(&self, data: &Path, workers: &[WorkerProcess]) -> String {
        let mut text = format!(
            "\n{} at scale {} ({}): seconds of processor time of all processes, \
             median of {} {} after a warm-up\n\n",
            self.workload.title,
            self.workload.scale,
            data.display(),
            self.runs,
            if self.runs == 1 { "run" } else { "runs, interleaved," },
        );
        let names = || self.configurations.iter().map(|configuration| configuration.name.as_str());
        let width = names().map(|name| name.chars().count()).max().unwrap_or(0);
        for ((at, name), worker) in names().enumerate().zip(workers) {
            text.push_str(&format!("{}  {name:<width$}  {}\n", letter(at), worker.engine));
        }
        format!("{text}\n{}", report::columns(workers.len(), self.against))
    }

    fn measure(
        &self,
        query: &Query,
        workers: &mut [WorkerProcess],
        progress: &mut Progress<'_>,
    ) -> Result<Vec<Cell>, Failure> {
        let mut cells = vec![Cell::default(); workers.len()];
        let mut expected = None;
        // Run 0 warms up.
        for run in 0..=self.runs {
            for (at, cell) in cells.iter_mut().enumerate() {
                if cell.problem.is_some() {
                    continue;
                }
                let name = &self.configurations[at].name;
                progress.step(match run {
                    0 => format!("warm-up of {name}"),
                    _ => format!("run {run} of {} of {name}", self.runs),
                });
                let done = match run {
                    0 => self.warm_up(query, at, workers, &mut expected, progress),
                    _ => workers[at].run(&query.sql, &mut || progress.tick()).map(|run| cell.runs.push(run)),
                };
                match done {
                    Ok(()) => {}
                    Err(WorkerError::Statement(problem)) => cell.problem = Some(problem),
                    Err(WorkerError::Dead(failure)) => return Err(failure),
                }
            }
        }
        Ok(cells)
    }

    /// Runs a statement and compares its answer with the first one.
    fn warm_up(
        &self,
        query: &Query,
        at: usize,
        workers: &mut [WorkerProcess],
        expected: &mut Option<Expected>,
        progress: &mut Progress<'_>,
    ) -> Result<(), WorkerError> {
        let rows = answer(&mut workers[at], &query.sql, progress)?;
        let Some(expected) = expected else {
            *expected = Some(Expected { from: at, rows, all_rows: None });
            return Ok(());
        };
        let same = self.set.same(&query.sql);
        let Err(difference) = compare::compare(&expected.rows, &rows, same) else {
            return Ok(());
        };
        let wrong = |difference: &str| {
            let from = letter(expected.from);
            WorkerError::Statement(format!("not the answer of {from}: {difference}"))
        };
        let unlimited = compare::without_limit(&query.sql)
            .filter(|_| same == Same::Rows && rows.len() == expected.rows.len());
        let Some(unlimited) = unlimited else {
            return Err(wrong(&difference));
        };
        let all_rows = match &expected.all_rows {
            Some(rows) => rows,
            None => {
                let rows = answer(&mut workers[expected.from], unlimited, progress)?;
                expected.all_rows.insert(rows)
            }
        };
        let own = answer(&mut workers[at], unlimited, progress)?;
        compare::compare(all_rows, &own, same)
            .map_err(|difference| wrong(&format!("without its limit, {difference}")))?;
        match compare::is_part(&rows, &own) {
            true => Ok(()),
            false => Err(wrong(&difference)),
        }
    }

    fn json(&self, data: &Path, workers: &[WorkerProcess], result: &SetResult) -> Result<Value, Failure> {
        let cells = result.cells().collect::<Vec<_>>();
        let (sums, statements) = report::sums(&cells);
        let mut configurations = Vec::new();
        for (at, (configuration, worker)) in self.configurations.iter().zip(workers).enumerate() {
            let column: Vec<&Cell> = cells.iter().map(|cells| &cells[at]).collect();
            let mut one = measure::configuration_json(&self.workload, configuration, worker, &column)?;
            one["cpu_s_total"] = json!(sums.get(at));
            configurations.push(one);
        }
        let orders = result.orders();
        Ok(json!({
            "set": self.set.name(),
            "title": self.workload.title,
            "data": data.display().to_string(),
            "configurations": configurations,
            "statements": statements,
            "ratios": result.ratios(self.against).iter().map(Ratio::json).collect::<Vec<_>>(),
            "orders": orders.iter().map(Orders::json).collect::<Vec<_>>(),
        }))
    }
}

/// Runs a statement and returns its rows.
fn answer(worker: &mut WorkerProcess, sql: &str, progress: &mut Progress<'_>) -> Result<Rows, WorkerError> {
    let run = worker.run(sql, &mut || progress.tick())?;
    let rows = worker.answer(&mut || progress.tick())?;
    match rows.len() as u64 == run.rows {
        true => Ok(rows),
        false => {
            let message = format!("{} rows were counted, {} told", run.rows, rows.len());
            Err(WorkerError::Statement(message))
        }
    }
}

impl SetResult {
    fn cells(&self) -> impl Iterator<Item = &[Cell]> {
        self.lines.iter().map(Vec::as_slice)
    }

    fn ratios(&self, against: usize) -> Vec<Ratio> {
        let cells: Vec<&[Cell]> = self.cells().collect();
        let configurations = cells.first().map_or(0, |cells| cells.len());
        let others = (0..configurations).filter(|at| *at != against);
        others.filter_map(|own| Ratio::of(own, against, &self.names, &cells)).collect()
    }

    /// What the order of tables costs in each configuration; empty for a set without orders.
    fn orders(&self) -> Vec<Orders> {
        if self.set != Set::Joins {
            return Vec::new();
        }
        let cells: Vec<&[Cell]> = self.cells().collect();
        let configurations = cells.first().map_or(0, |cells| cells.len());
        (0..configurations).map(|at| Orders::of(at, &self.names, &cells)).collect()
    }

    fn footer(&self, against: usize) -> String {
        let cells: Vec<&[Cell]> = self.cells().collect();
        let (sums, statements) = report::sums(&cells);
        let sums: Vec<_> = sums.into_iter().map(Some).collect();
        let mut text =
            format!("{} {:>9}  of {statements} statements", report::numbers("sum", &sums, against), "");
        for ratio in self.ratios(against) {
            text.push_str(&format!("\n\n{}", ratio.text()));
        }
        let orders = self.orders();
        if !orders.is_empty() {
            text.push_str(&format!("\n{}", report::orders_text(&orders)));
        }
        text
    }
}

/// Formats the sums of all sets, and what each configuration takes of the peer's.
fn summary(sets: &[SetResult], configurations: usize, against: usize) -> String {
    let mut text = format!("\nall sets\n\n{}", report::columns(configurations, against));
    text.truncate(text.trim_end_matches("rows  answer").trim_end().len());
    for set in sets {
        let (sums, statements) = report::sums(&set.cells().collect::<Vec<_>>());
        let sums: Vec<_> = sums.into_iter().map(Some).collect();
        let numbers = report::numbers(set.set.name(), &sums, against);
        text.push_str(&format!("\n{numbers}  {statements} statements"));
        for ratio in set.ratios(against) {
            text.push_str(&format!(", {}/{} {:.2}", letter(ratio.own), letter(against), ratio.geomean));
        }
    }
    text.push_str("\n\nbehind the statements: the geometric mean of their ratios");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker as a shell script: every statement has an answer of one row, those without a limit another.
    fn peer(folder: &Path, name: &str, limited: &str, unlimited: &str) -> Configuration {
        let script = folder.join(name);
        let text = format!(
            "echo '{{\"engine\": \"{name} 1\"}}'\nread -r line; echo '{{\"ok\": true}}'\n\
             while read -r line; do case $line in\n\
             *answer*) echo \"{{\\\"answer\\\": [$rows]}}\";;\n\
             *'limit 100'*) rows='{limited}'; echo '{{\"wall_s\": 0.25, \"rows\": 1}}';;\n\
             *) rows='{unlimited}'; echo '{{\"wall_s\": 0.25, \"rows\": 2}}';;\n\
             esac; done\n"
        );
        std::fs::write(&script, text).unwrap();
        Configuration::peer(&format!("{name}=sh '{}'", script.display())).unwrap()
    }

    /// Problems of the second configuration with a statement that has a limit and one that has none.
    fn problems(limited: [&str; 2], unlimited: [&str; 2]) -> Vec<Option<String>> {
        let folder = tempfile::tempdir().unwrap();
        let configurations = [0, 1].map(|at| peer(folder.path(), ["a", "b"][at], limited[at], unlimited[at]));
        let mut workload = Workload::new("tpcds", 1.0);
        workload.retain(&"1-2".parse().unwrap()).unwrap();
        assert!(workload.queries[0].sql.contains("limit 100") && !workload.queries[1].sql.contains("limit"));
        let duel = Duel { set: Set::Tpcds, workload, configurations: &configurations, against: 1, runs: 2 };
        for table in ["call_center", "catalog_page", "catalog_returns", "catalog_sales", "customer"]
            .into_iter()
            .chain(["customer_address", "customer_demographics", "date_dim", "household_demographics"])
            .chain(["income_band", "inventory", "item", "promotion", "reason", "ship_mode", "store"])
            .chain(["store_returns", "store_sales", "time_dim", "warehouse", "web_page", "web_returns"])
            .chain(["web_sales", "web_site"])
        {
            std::fs::create_dir(folder.path().join(table)).unwrap();
        }
        let mut table = Vec::new();
        let mut progress = Progress::new(&mut table);
        let result = duel.run(folder.path(), &mut progress);
        let result = result.unwrap_or_else(|failure| panic!("{}", failure.error.message));
        assert_eq!(result.json["configurations"][0]["queries"][0]["cpu_s"].as_array().unwrap().len(), 2);
        result.lines.iter().map(|cells| cells[1].problem.clone()).collect()
    }

    #[test]
    fn differing_answers_are_compared_without_limits() {
        let both = r#"["1"], ["2"]"#;
        assert_eq!(problems([r#"["1"]"#; 2], [both; 2]), [None, None]);
        // Another row of those that are equal in the order, and the rows in another order.
        let turned = r#"["2"], ["1"]"#;
        assert_eq!(problems([r#"["1"]"#, r#"["2"]"#], [both, turned]), [None, None]);
        let wrong = problems([r#"["1"]"#, r#"["3"]"#], [both; 2]);
        assert_eq!(
            wrong,
            [Some("not the answer of A: row 1, column 1: \"3\" instead of \"1\"".to_owned()), None]
        );
        let other = problems([r#"["1"]"#, r#"["2"]"#], [both, r#"["2"], ["4"]"#]);
        assert!(other.iter().all(Option::is_some), "{other:?}");
        assert!(other[0].as_ref().unwrap().contains("without its limit"), "{other:?}");
    }

    #[test]
    fn others_are_compared_with_the_first_peer() {
        let own = Configuration::parse("embedded:threads=2").unwrap();
        let peer = Configuration::peer("duckdb=sh").unwrap();
        assert_eq!(reference(&[own.clone(), peer]), 1);
        assert_eq!(reference(&[own.clone(), own]), 0);
        assert!(Configuration::peer(PEER).unwrap().command_line().unwrap().starts_with(PEER_PROGRAM));
    }
}
