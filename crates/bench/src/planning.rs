//! `harrier bench planning`: planning times of statements, from text to physical plan, against another build.
//!
//! Times `EXPLAIN` of the 22 queries of TPC-H and of the 103 statements of TPC-DS, over tables that the
//! program generates at a small scale: planning reads only the footers of their files. A configuration is one
//! of `bench tpch`, embedded without `--config`. With `--baseline BINARY` every configuration is also
//! measured under that build, in the same run: an optimisation level or a planner pass changes a few per
//! cent, which two runs on different days cannot show.
//!
//! ```text
//!          warm-up   run 1     run 2             A: the baseline
//! q01      B A       A B       B A       …       B: this build
//! q02      B A       A B       B A       …
//! …
//! ```
//!
//! The workers start once for each suite and stay, as for `bench tpch`. A run goes once through the
//! statements of the suite, and all workers plan a statement one right after the other, so that other load on
//! the machine affects all alike; every other run reverses their order. A statement is repeated only after
//! all others, so that it does not find its own data in the processor's caches.
//!
//! Wall time is the worker's, from the text to the last line of the plan. CPU time is that of all processes
//! of the worker, user and system; the driver reads it before and after. Both include EXPLAIN's formatting of
//! the plan. Plans are compared, too: if two builds plan differently, their times say less about their speed.
//!
//! Errors: as for `bench`.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use harrier_error::SqlError;
use serde_json::{Value, json};

use super::answers::Rows;
use super::cell::Cell;
use super::configuration::Configuration;
use super::progress::Progress;
use super::report::{CONFIGURATIONS_MAX, letter};
use super::worker_process::{Run, WorkerError, WorkerProcess};
use super::workload::{self, Numbers, Query, Workload};
use super::{DATA, Failure, generate, keep, machine, require_none_wrong};

/// Name on the command line and in the JSON result.
const NAME: &str = "planning";

/// Length of the lists of the slowest statements and of those with the largest ratios.
const LISTED_MAX: usize = 10;

#[derive(clap::Args, Debug)]
pub struct Options {
    /// Whose statements, of tpch and tpcds
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "tpch,tpcds")]
    suites: Vec<Suite>,
    /// Only these queries of each suite, as 1,5-9
    #[arg(long, value_name = "LIST")]
    queries: Option<Numbers>,
    /// Scale factor of the data, of which planning reads no rows
    #[arg(long, value_name = "F", default_value_t = 0.01)]
    scale: f64,
    /// Where the data is, in the folders tpch-sf<F> and tpcds-sf<F>, generated when missing
    #[arg(long, value_name = "DIR", default_value = DATA)]
    data: PathBuf,
    /// What to measure, as for bench tpch
    #[arg(long = "config", value_name = "KIND[:KEY=VALUE,…]", default_value = "embedded")]
    configurations: Vec<String>,
    /// Another build of harrier, measured in turn with this one under every configuration
    #[arg(long, value_name = "BINARY")]
    baseline: Option<PathBuf>,
    /// Timed runs of each statement, after one to warm up
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Write all measurements here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suite {
    Tpch,
    Tpcds,
}

impl Suite {
    const ALL: [Self; 2] = [Self::Tpch, Self::Tpcds];

    fn name(self) -> &'static str {
        match self {
            Self::Tpch => "tpch",
            Self::Tpcds => "tpcds",
        }
    }

    fn tables(self, data: &Path) -> Result<Vec<(String, String)>, SqlError> {
        match self {
            Self::Tpch => workload::tables(data),
            Self::Tpcds => workload::tpcds_tables(data),
        }
    }
}

impl FromStr for Suite {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|suite| suite.name() == text);
        let names = Self::ALL.map(Self::name).join(", ");
        found.ok_or_else(|| format!("there is no suite \"{text}\": {names}"))
    }
}

/// Runs the command. Blocks until it is done.
pub fn run(options: &Options) -> Result<(), Failure> {
    if !(options.scale.is_finite() && options.scale > 0.0) {
        return Err(Failure::usage(format!("invalid scale factor: {}", options.scale)));
    }
    let compared = Comparison::new(options)?;
    let mut workloads = Vec::new();
    for suite in Suite::ALL.into_iter().filter(|suite| options.suites.contains(suite)) {
        let mut workload = Workload::new(suite.name(), options.scale);
        if let Some(numbers) = &options.queries {
            workload.retain(numbers).map_err(Failure::usage)?;
        }
        workloads.push((suite, workload));
    }
    let mut sources = Vec::new();
    for (suite, workload) in workloads {
        let data = generate(suite.name(), options.scale, &options.data)?;
        sources.push((suite.tables(&data)?, workload, data));
    }

    let mut out = std::io::stdout();
    let mut progress = Progress::new(&mut out);
    let mut measured = Vec::new();
    for (tables, workload, data) in sources {
        let title = title(&workload, options, &data);
        let suite = measure(workload, &compared, &tables, options.runs, &title, &mut progress)?;
        progress.print(&suite.text(&compared.pairs));
        measured.push(suite);
    }
    let all: Vec<&[Cell]> = measured.iter().flat_map(SuiteResult::cells).collect();
    if measured.len() > 1 {
        progress.print(&all_text(&all, &compared));
    }
    let result = json!({
        "benchmark": NAME,
        "title": "Planning",
        "scale": options.scale,
        "runs": options.runs,
        "when": machine::now(),
        "harrier": env!("CARGO_PKG_VERSION"),
        "machine": machine::json(),
        "baseline": options.baseline.as_ref().map(|path| path.display().to_string()),
        "suites": measured.iter().map(|suite| suite.json(&compared.pairs)).collect::<Vec<_>>(),
        "ratios": ratios_json(&all, &compared.pairs),
    });
    keep(&result, options.json.as_deref(), None)?;
    let wrong = all.iter().filter(|cells| cells.iter().any(|cell| cell.problem.is_some())).count();
    require_none_wrong(wrong, &format!("of {} statements", all.len()))
}

/// The configurations, and the pairs to compare.
struct Comparison {
    configurations: Vec<Configuration>,
    pairs: Vec<Pair>,
}

/// Indexes of two configurations: ratios are of the first to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pair {
    own: usize,
    against: usize,
}

impl Pair {
    /// Returns `B/A`.
    fn name(self) -> String {
        format!("{}/{}", letter(self.own), letter(self.against))
    }
}

impl Comparison {
    /// With a baseline, each configuration follows its baseline; without one, all are compared with the
    /// first.
    fn new(options: &Options) -> Result<Self, Failure> {
        let parse = |text: &String| Configuration::parse(text).map_err(Failure::usage);
        let own = options.configurations.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        let mut compared = Self { configurations: Vec::new(), pairs: Vec::new() };
        if let Some(binary) = &options.baseline {
            let binary = program(binary)?;
            for configuration in own {
                let against = compared.configurations.len();
                let baseline = configuration.baseline(&binary).map_err(Failure::usage)?;
                compared.configurations.extend([baseline, configuration]);
                compared.pairs.push(Pair { own: against + 1, against });
            }
        } else {
            compared.pairs = (1..own.len()).map(|own| Pair { own, against: 0 }).collect();
            compared.configurations = own;
        }
        if compared.configurations.len() > CONFIGURATIONS_MAX {
            let message =
                format!("more than {CONFIGURATIONS_MAX} configurations, with those of the baseline");
            return Err(Failure::usage(message));
        }
        Ok(compared)
    }
}

/// Returns the absolute path of a program: a bare name would be searched for in PATH.
fn program(path: &Path) -> Result<PathBuf, Failure> {
    let found = fs::canonicalize(path).ok().filter(|path| path.is_file());
    found.ok_or_else(|| Failure::missing(format!("there is no program \"{}\"", path.display())))
}

/// Result of a suite.
struct SuiteResult {
    workload: Workload,
    /// Name, engine, command and start time of every configuration.
    configurations: Vec<Value>,
    /// Cells by statement, then by configuration.
    lines: Vec<Vec<Cell>>,
    /// By pair: statements with different plans.
    other_plans: Vec<Vec<&'static str>>,
}

/// Plans all statements of a suite in turn, repeatedly.
///
/// Errors: a worker that does not start or dies. An error of a statement is recorded in its cell.
fn measure(
    workload: Workload,
    compared: &Comparison,
    tables: &[(String, String)],
    runs: u32,
    title: &str,
    progress: &mut Progress<'_>,
) -> Result<SuiteResult, Failure> {
    let Comparison { configurations, pairs } = compared;
    let mut workers = Vec::new();
    progress.prefix = workload.title.to_owned();
    for configuration in configurations {
        progress.step(format!("starting {}", configuration.name));
        let mut worker = WorkerProcess::start(configuration, &mut || progress.tick())?;
        worker.tables(tables, &mut || progress.tick())?;
        workers.push(worker);
    }
    progress.print(&legend(title, configurations, &workers));

    let mut lines = vec![vec![Cell::default(); workers.len()]; workload.queries.len()];
    let mut other_plans = vec![Vec::new(); pairs.len()];
    // Run 0 warms up.
    for run in 0..=runs {
        progress.prefix = match run {
            0 => format!("{}, warm-up", workload.title),
            _ => format!("{}, run {run} of {runs}", workload.title),
        };
        for (query, cells) in workload.queries.iter().zip(&mut lines) {
            progress.step(format!("planning {}", query.name));
            progress.tick();
            let mut plans: Vec<Option<Rows>> = vec![None; workers.len()];
            for at in worker_order(run, workers.len()) {
                let cell = &mut cells[at];
                if cell.problem.is_some() {
                    continue;
                }
                let worker = &mut workers[at];
                match plan(query, worker, progress) {
                    Ok(_) if run == 0 => match worker.answer(&mut || progress.tick()) {
                        Ok(plan) => plans[at] = Some(plan),
                        Err(WorkerError::Statement(problem)) => cell.problem = Some(problem),
                        Err(WorkerError::Dead(failure)) => return Err(failure),
                    },
                    Ok(run) => cell.runs.push(run),
                    Err(WorkerError::Statement(problem)) => cell.problem = Some(problem),
                    Err(WorkerError::Dead(failure)) => return Err(failure),
                }
            }
            for (pair, other) in pairs.iter().zip(&mut other_plans) {
                let both = Option::zip(plans[pair.own].as_ref(), plans[pair.against].as_ref());
                if both.is_some_and(|(own, against)| own != against) {
                    other.push(query.name);
                }
            }
        }
    }
    let described = configurations.iter().zip(&workers).map(describe).collect::<Result<_, _>>()?;
    Ok(SuiteResult { workload, configurations: described, lines, other_plans })
}

fn plan(query: &Query, worker: &mut WorkerProcess, progress: &mut Progress<'_>) -> Result<Run, WorkerError> {
    let run = worker.run(&format!("EXPLAIN {}", query.sql), &mut || progress.tick())?;
    match run.rows {
        0 => Err(WorkerError::Statement("EXPLAIN has told no plan".to_owned())),
        _ => Ok(run),
    }
}

/// Returns the order of the workers in a run: reversed in every other run, so that none is always last.
fn worker_order(run: u32, workers: usize) -> Vec<usize> {
    let turns = 0..workers;
    if run % 2 == 1 { turns.collect() } else { turns.rev().collect() }
}

fn describe((configuration, worker): (&Configuration, &WorkerProcess)) -> Result<Value, Failure> {
    Ok(json!({
        "name": configuration.name,
        "engine": worker.engine,
        "command": configuration.command_line()?,
        "start_s": worker.started.as_secs_f64(),
    }))
}

impl SuiteResult {
    fn cells(&self) -> impl Iterator<Item = &[Cell]> {
        self.lines.iter().map(Vec::as_slice)
    }

    /// Formats the table, and a line for each pair.
    fn text(&self, pairs: &[Pair]) -> String {
        let names: Vec<&str> = self.workload.queries.iter().map(|query| query.name).collect();
        let cells: Vec<&[Cell]> = self.cells().collect();
        let mut text = columns(self.configurations.len(), pairs);
        let mut list = |title: &str, places: Vec<usize>| {
            let _ = write!(text, "\n{title}");
            for at in places {
                let times: Vec<_> = cells[at].iter().map(times).collect();
                let _ = write!(text, "\n{}", row(names[at], &times, pairs));
            }
        };
        let planned = complete(&cells).len();
        let first = |places: Vec<usize>| places.into_iter().take(LISTED_MAX).collect::<Vec<_>>();
        if planned <= LISTED_MAX {
            list("all, the longest first", by_wall(&cells));
        } else {
            list(&format!("the {LISTED_MAX} longest"), first(by_wall(&cells)));
            if !pairs.is_empty() {
                let title = format!("the {LISTED_MAX} with the largest ratio of processor time");
                list(&title, first(by_ratio(&cells, pairs)));
            }
        }
        let _ = write!(text, "\n{}", total(&cells, pairs));
        for (name, cells) in names.iter().zip(&cells) {
            for (at, cell) in cells.iter().enumerate() {
                if let Some(problem) = &cell.problem {
                    let _ = write!(text, "\n{name}: {}: {problem}", letter(at));
                }
            }
        }
        for (pair, others) in pairs.iter().zip(&self.other_plans) {
            if let Some(ratio) = Ratio::of(*pair, &cells) {
                let _ = write!(text, "\n{}; {}", ratio.text(), others_text(others));
            }
        }
        text.push('\n');
        text
    }

    fn json(&self, pairs: &[Pair]) -> Value {
        let cells: Vec<&[Cell]> = self.cells().collect();
        let sums = sums(&complete(&cells));
        let mut configurations = self.configurations.clone();
        for (at, configuration) in configurations.iter_mut().enumerate() {
            let statement = |(query, cells): (&Query, &&[Cell])| {
                let cell = &cells[at];
                let seconds = |value: fn(&Run) -> Duration| {
                    cell.runs.iter().map(|run| value(run).as_secs_f64()).collect::<Vec<_>>()
                };
                json!({
                    "statement": query.name,
                    "wall_s": seconds(|run| run.wall),
                    "cpu_s": seconds(|run| run.cpu),
                    "wall_s_median": cell.wall_s(),
                    "cpu_s_median": cell.cpu_s(),
                    "problem": cell.problem,
                })
            };
            let statements = self.workload.queries.iter().zip(&cells).map(statement);
            configuration["statements"] = statements.collect();
            configuration["wall_s_total"] = json!(sums.get(at).map(|sum| sum.0));
            configuration["cpu_s_total"] = json!(sums.get(at).map(|sum| sum.1));
        }
        let mut ratios = ratios_json(&cells, pairs);
        for (ratio, others) in ratios.iter_mut().zip(&self.other_plans) {
            if ratio.is_object() {
                ratio["other_plans"] = json!(others);
            }
        }
        json!({
            "suite": self.workload.name,
            "title": self.workload.title,
            "configurations": configurations,
            "ratios": ratios,
        })
    }
}

/// Median wall time and CPU time, in seconds.
type Times = (f64, f64);

/// Returns a cell's times; `None` if there is a problem.
fn times(cell: &Cell) -> Option<Times> {
    Option::zip(cell.wall_s(), cell.cpu_s())
}

/// Returns the times of the statements that all configurations have planned.
fn complete(lines: &[&[Cell]]) -> Vec<Vec<Times>> {
    lines.iter().filter_map(|cells| cells.iter().map(times).collect()).collect()
}

/// Sums by configuration; empty if there are no lines.
fn sums(lines: &[Vec<Times>]) -> Vec<Times> {
    let columns = lines.first().map_or(0, Vec::len);
    let sum = |at: usize| lines.iter().fold((0.0, 0.0), |sum, line| (sum.0 + line[at].0, sum.1 + line[at].1));
    (0..columns).map(sum).collect()
}

/// Indexes of the statements that all have planned, by decreasing wall time.
fn by_wall(lines: &[&[Cell]]) -> Vec<usize> {
    by(lines, |times| times.iter().map(|times| times.0).fold(0.0, f64::max))
}

/// The same, by decreasing ratio of CPU time in any pair: the wall time of a single statement is too noisy.
fn by_ratio(lines: &[&[Cell]], pairs: &[Pair]) -> Vec<usize> {
    by(lines, |times| pairs.iter().map(|pair| times[pair.own].1 / times[pair.against].1).fold(0.0, f64::max))
}

fn by(lines: &[&[Cell]], figure: impl Fn(&[Times]) -> f64) -> Vec<usize> {
    let figure_of = |(at, cells): (usize, &&[Cell])| {
        let times: Vec<Times> = cells.iter().map(times).collect::<Option<_>>()?;
        Some((at, figure(&times)))
    };
    let mut figures: Vec<(usize, f64)> = lines.iter().enumerate().filter_map(figure_of).collect();
    figures.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    figures.into_iter().map(|(at, _)| at).collect()
}

/// Ratios of a pair, over the statements that both have planned.
#[derive(Debug, Clone, PartialEq)]
struct Ratio {
    pair: Pair,
    wall: Spread,
    cpu: Spread,
    statements: usize,
}

/// A ratio of sums of medians, and the minimum and maximum ratio of the sums of single runs: the machine's
/// noise.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    ratio: f64,
    least: f64,
    largest: f64,
    /// Geometric mean of the statements' ratios of medians.
    geomean: f64,
}

impl Ratio {
    /// `None` if no statement was planned by both.
    fn of(pair: Pair, lines: &[&[Cell]]) -> Option<Self> {
        let of_both = |cells: &&[Cell]| {
            let side = |at: usize| Some((cells[at].clone(), times(&cells[at])?));
            Some([side(pair.own)?, side(pair.against)?])
        };
        let both: Vec<[(Cell, Times); 2]> = lines.iter().filter_map(of_both).collect();
        // A cell without a problem has all runs.
        let runs = both.first()?[0].0.runs.len();
        let ratio = |value: &dyn Fn(&Cell, Times) -> f64| {
            let [own, against] =
                [0, 1].map(|side| both.iter().map(|sides| value(&sides[side].0, sides[side].1)).sum::<f64>());
            own / against
        };
        let spread = |median: fn(Times) -> f64, time: fn(&Run) -> Duration| {
            let logarithm = |[own, against]: &[(Cell, Times); 2]| (median(own.1) / median(against.1)).ln();
            let of_run = |run: usize| ratio(&|cell, _| time(&cell.runs[run]).as_secs_f64());
            Spread {
                ratio: ratio(&|_, times| median(times)),
                least: (0..runs).map(of_run).fold(f64::INFINITY, f64::min),
                largest: (0..runs).map(of_run).fold(0.0, f64::max),
                geomean: (both.iter().map(logarithm).sum::<f64>() / both.len() as f64).exp(),
            }
        };
        Some(Self {
            pair,
            wall: spread(|times| times.0, |run| run.wall),
            cpu: spread(|times| times.1, |run| run.cpu),
            statements: both.len(),
        })
    }

    fn text(&self) -> String {
        let Self { pair, wall, cpu, statements } = self;
        format!("{} of {statements} statements: wall {}, cpu {}", pair.name(), wall.text(), cpu.text())
    }

    fn json(&self) -> Value {
        let Self { pair, wall, cpu, statements } = self;
        json!({
            "configuration": pair.own, "against": pair.against,
            "wall": wall.ratio, "wall_least": wall.least, "wall_largest": wall.largest,
            "wall_geomean": wall.geomean,
            "cpu": cpu.ratio, "cpu_least": cpu.least, "cpu_largest": cpu.largest,
            "cpu_geomean": cpu.geomean,
            "statements": statements,
        })
    }
}

impl Spread {
    fn text(self) -> String {
        let Self { ratio, least, largest, geomean } = self;
        format!("{ratio:.3} (runs {least:.3} to {largest:.3}, geometric mean {geomean:.3})")
    }
}

fn ratios_json(lines: &[&[Cell]], pairs: &[Pair]) -> Vec<Value> {
    pairs.iter().map(|pair| Ratio::of(*pair, lines).map_or(Value::Null, |ratio| ratio.json())).collect()
}

fn title(workload: &Workload, options: &Options, data: &Path) -> String {
    let runs = options.runs;
    format!(
        "{} at scale {} ({}): EXPLAIN of {} statements, median of {runs} {} after a warm-up, \
         in milliseconds; cpu is of all processes",
        workload.title,
        workload.scale,
        data.display(),
        workload.queries.len(),
        if runs == 1 { "run" } else { "runs, interleaved," },
    )
}

/// Formats the legend.
fn legend(title: &str, configurations: &[Configuration], workers: &[WorkerProcess]) -> String {
    let mut text = format!("{title}\n\n");
    let width =
        configurations.iter().map(|configuration| configuration.name.chars().count()).max().unwrap_or(0);
    for (index, (configuration, worker)) in configurations.iter().zip(workers).enumerate() {
        let started_s = worker.started.as_secs_f64();
        let (letter, name) = (letter(index), &configuration.name);
        let _ = writeln!(text, "{letter}  {name:<width$}  {}, up in {started_s:.2} s", worker.engine);
    }
    text
}

/// Formats the table's header.
fn columns(configurations: usize, pairs: &[Pair]) -> String {
    let mut text = format!("{:<9}", "statement");
    for letter in (0..configurations).map(letter) {
        let _ = write!(text, " {:>9} {:>9}", format!("{letter} wall"), format!("{letter} cpu"));
    }
    for pair in pairs.iter().map(|pair| pair.name()) {
        let _ = write!(text, " {:>9} {:>9}", format!("{pair} wall"), format!("{pair} cpu"));
    }
    text
}

/// Formats a line of the table.
fn row(name: &str, times: &[Option<Times>], pairs: &[Pair]) -> String {
    let mut text = format!("{name:<9}");
    for time in times {
        let _ = match time {
            Some((wall_s, cpu_s)) => write!(text, " {:>9.2} {:>9.2}", wall_s * 1e3, cpu_s * 1e3),
            None => write!(text, " {:>9} {:>9}", "-", "-"),
        };
    }
    for pair in pairs {
        let _ = match Option::zip(times[pair.own], times[pair.against]) {
            Some((own, against)) => write!(text, " {:>9.3} {:>9.3}", own.0 / against.0, own.1 / against.1),
            None => write!(text, " {:>9} {:>9}", "-", "-"),
        };
    }
    text
}

/// Formats sums of medians, and their ratios.
fn total(lines: &[&[Cell]], pairs: &[Pair]) -> String {
    let complete = complete(lines);
    if complete.is_empty() {
        return "no statement was planned under all configurations".to_owned();
    }
    let sums: Vec<_> = sums(&complete).into_iter().map(Some).collect();
    format!("{}  of {} statements", row("total", &sums, pairs), complete.len())
}

/// Formats the totals over all suites.
fn all_text(lines: &[&[Cell]], compared: &Comparison) -> String {
    let Comparison { configurations, pairs } = compared;
    let head = columns(configurations.len(), pairs);
    let mut text = format!("all suites\n\n{head}\n{}", total(lines, pairs));
    for ratio in pairs.iter().filter_map(|pair| Ratio::of(*pair, lines)) {
        let _ = write!(text, "\n{}", ratio.text());
    }
    text
}

/// Formats the list of statements with different plans.
fn others_text(names: &[&str]) -> String {
    let more = match names.len().saturating_sub(LISTED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    match names {
        [] => "all plans are the same".to_owned(),
        names => format!("other plans: {}{more}", names[..names.len().min(LISTED_MAX)].join(", ")),
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

    /// Runs with these milliseconds, and half as much CPU time.
    fn cell(runs_ms: &[u64]) -> Cell {
        let run = |ms: &u64| Run {
            wall: Duration::from_millis(*ms),
            cpu: Duration::from_micros(500 * ms),
            rows: 9,
            transport_share: None,
        };
        Cell { runs: runs_ms.iter().map(run).collect(), problem: None }
    }

    fn failed_cell() -> Cell {
        Cell { runs: Vec::new(), problem: Some("0A000: no".to_owned()) }
    }

    const PAIR: Pair = Pair { own: 1, against: 0 };

    fn sample_result() -> SuiteResult {
        let mut workload = Workload::new("tpch", 0.01);
        workload.queries.truncate(3);
        SuiteResult {
            workload,
            configurations: vec![json!({"name": "a"}), json!({"name": "b"})],
            lines: vec![
                vec![cell(&[10, 10, 20]), cell(&[20, 20, 20])],
                vec![cell(&[90, 30, 30]), cell(&[30, 30, 30])],
                vec![cell(&[70, 70, 70]), failed_cell()],
            ],
            other_plans: vec![vec!["q02"]],
        }
    }

    #[test]
    fn sums_of_medians_are_compared() {
        let measured = sample_result();
        let cells: Vec<&[Cell]> = measured.cells().collect();
        let ratio = Ratio::of(PAIR, &cells).unwrap();
        assert_eq!((ratio.statements, ratio.wall.ratio), (2, 1.25));
        // 50 of 100, 50 of 40, 50 of 50.
        for (figure, expected) in
            [(ratio.wall.least, 0.5), (ratio.cpu.largest, 1.25), (ratio.wall.geomean, 2_f64.sqrt())]
        {
            assert!((figure - expected).abs() < 1e-9, "{ratio:?}");
        }
        assert_eq!(
            ratio.text(),
            "B/A of 2 statements: wall 1.250 (runs 0.500 to 1.250, geometric mean 1.414), \
             cpu 1.250 (runs 0.500 to 1.250, geometric mean 1.414)"
        );
        assert_eq!(Ratio::of(PAIR, &cells[2..]), None);
        let json = measured.json(&[PAIR]);
        assert_eq!(json["ratios"][0]["wall"], 1.25);
        assert_eq!(json["ratios"][0]["other_plans"], json!(["q02"]));
        assert_eq!(json["configurations"][0]["wall_s_total"], 0.04);
        assert_eq!(json["configurations"][1]["statements"][0]["wall_s"], json!([0.02, 0.02, 0.02]));
        assert_eq!(json["configurations"][1]["statements"][2]["wall_s_median"], Value::Null);
    }

    #[test]
    fn worst_regressions_are_first() {
        let mut measured = sample_result();
        let text = measured.text(&[PAIR]);
        let mut lines = text.lines();
        assert_eq!(
            lines.next().unwrap(),
            "statement    A wall     A cpu    B wall     B cpu  B/A wall   B/A cpu"
        );
        assert_eq!(lines.next().unwrap(), "all, the longest first");
        assert_eq!(
            lines.next().unwrap(),
            "q02           30.00     15.00     30.00     15.00     1.000     1.000"
        );
        assert!(lines.next().unwrap().starts_with("q01  "));
        assert_eq!(
            lines.next().unwrap(),
            "total         40.00     20.00     50.00     25.00     1.250     1.250  of 2 statements"
        );
        assert_eq!(lines.next().unwrap(), "q03: B: 0A000: no");
        assert!(lines.next().unwrap().ends_with("geometric mean 1.414); other plans: q02"));

        measured.workload = Workload::new("tpch", 0.01);
        measured.lines = (1..=22).map(|ms| vec![cell(&[ms]), cell(&[23 - ms])]).collect();
        let text = measured.text(&[PAIR]);
        let (longest, ratios) = text.split_once("the 10 with the largest ratio of processor time\n").unwrap();
        assert!(longest.contains("the 10 longest\nq01 "), "{text}");
        assert!(ratios.starts_with("q01 ") && ratios.lines().nth(9).unwrap().starts_with("q10 "), "{text}");
        let names = ["q01"; 12];
        assert!(others_text(&names).ends_with("q01, q01 and 2 more"));
    }

    #[test]
    fn turns_are_taken_the_other_way_round() {
        assert_eq!([1, 2, 3].map(|run| worker_order(run, 2)), [vec![0, 1], vec![1, 0], vec![0, 1]]);
    }

    #[test]
    fn every_configuration_has_its_baseline() {
        let binary = crate::configuration::this_binary().unwrap();
        let arguments = ["--config", "embedded", "--config", "mpi:ranks=2"];
        let compared = Comparison::new(&options(&arguments).unwrap()).unwrap_or_else(|_| panic!("without"));
        assert_eq!((compared.configurations.len(), compared.pairs), (2, vec![PAIR]));
        let baseline = ["--baseline", binary.to_str().unwrap()];
        let compared = Comparison::new(&options(&[&arguments[..], &baseline].concat()).unwrap());
        let compared = compared.unwrap_or_else(|failure| panic!("{}", failure.error.message));
        let names: Vec<&str> =
            compared.configurations.iter().map(|configuration| configuration.name.as_str()).collect();
        assert_eq!(
            names,
            ["embedded of the baseline", "embedded", "mpi:ranks=2 of the baseline", "mpi:ranks=2"]
        );
        assert_eq!(compared.pairs, [PAIR, Pair { own: 3, against: 2 }]);
        let many = [["--config", "embedded"]; 5].concat();
        assert!(Comparison::new(&options(&many).unwrap()).is_ok());
        let many = Comparison::new(&options(&[&many[..], &baseline].concat()).unwrap());
        assert_eq!(many.err().map(|failure| failure.exit_status), Some(2));
    }

    #[test]
    fn invalid_input_is_refused() {
        for arguments in [["--suites", "tpcc"], ["--suites", ""], ["--runs", "0"], ["--queries", "one"]] {
            assert!(options(&arguments).is_err(), "{arguments:?}");
        }
        assert_eq!(options(&[]).unwrap().suites, Suite::ALL);
        for missing in ["/nowhere/harrier", "/"] {
            let failure = program(Path::new(missing)).unwrap_err();
            assert_eq!(failure.error.message, format!("there is no program \"{missing}\""));
        }
    }
}
