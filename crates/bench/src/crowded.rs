//! `harrier bench crowded`: statement latencies with more ranks than cores under CPU-bound queries, over MPI
//! and over gRPC.
//!
//! It is `bench tpch` with many runs of a few queries at a small scale, with all workers started together and
//! their runs interleaved, so that one run compares them. Reports the quantiles of the statements' latencies,
//! by query and over all statements, the CPU time of all ranks, and the ratio of every MPI configuration to
//! the gRPC one with as many ranks.
//!
//! The goal: neither the 99th percentile nor the CPU time over all statements exceeds gRPC's. Ranks over MPI
//! report their usage before and after each statement (`transport.rs`): that is part of their CPU time, not
//! of the latencies.
//!
//! Errors: as for `bench`.

use std::fmt::Write;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::cell::Cell;
use super::configuration::Configuration;
use super::measure::{self, quantile};
use super::progress::print_line;
use super::report::{self, Pair, letter};
use super::workload::{self, Numbers, Workload};
use super::{Failure, data_at, keep, require_none_wrong};

/// Name on the command line and in the JSON result.
pub const NAME: &str = "crowded";

/// Defaults for two cores.
const CONFIGURATIONS: [&str; 4] = [
    "mpi:ranks=4,threads=1",
    "grpc:ranks=4,threads=1,compression=none",
    "mpi:ranks=8,threads=1",
    "grpc:ranks=8,threads=1,compression=none",
];

#[derive(clap::Args, Debug)]
pub struct Options {
    /// Scale factor of the data
    #[arg(long, value_name = "F", default_value_t = 0.1)]
    scale: f64,
    /// What to measure, as for bench tpch; of each number of ranks one over mpi and one over grpc
    #[arg(long = "config", value_name = "KIND[:KEY=VALUE,…]", default_values = CONFIGURATIONS)]
    configurations: Vec<String>,
    /// Timed runs of each query, after one to warm up
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The queries, as 1,5-9
    #[arg(long, value_name = "LIST", default_value = "1,5,9,13,18")]
    queries: Numbers,
    /// Where the data is [default: .harrier/data/tpch-sf<F>, generated when missing]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Write all measurements here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw a chart of the 99th percentiles here
    #[arg(long, value_name = "FILE.svg")]
    chart: Option<PathBuf>,
}

/// Runs the command. Blocks until it is done.
pub fn run(options: &Options) -> Result<(), Failure> {
    if !(options.scale.is_finite() && options.scale > 0.0) {
        return Err(Failure::usage(format!("invalid scale factor: {}", options.scale)));
    }
    let parse = |text: &String| Configuration::parse(text).map_err(Failure::usage);
    let configurations = options.configurations.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    if configurations.len() > report::CONFIGURATIONS_MAX {
        return Err(Failure::usage(format!("more than {} configurations", report::CONFIGURATIONS_MAX)));
    }
    let pairs = report::pairs(&configurations);
    if pairs.is_empty() {
        return Err(Failure::usage("no two configurations are mpi and grpc with as many ranks and threads"));
    }
    let mut workload = Workload::new("tpch", options.scale);
    workload.retain(&options.queries).map_err(Failure::usage)?;
    (workload.name, workload.title) = (NAME, "TPC-H on more ranks than cores");
    let data = data_at(options.data.as_deref(), options.scale)?;
    let tables = workload::tables(&data)?;
    let mut out = std::io::stdout();
    let mut measured = measure::run(&workload, &configurations, &tables, options.runs, &data, &mut out)?;

    let names: Vec<&str> = workload.queries.iter().map(|query| query.name).collect();
    let rows = rows(&names, &measured.lines);
    print_line(latencies(&rows, &configurations));
    for pair in &pairs {
        print_line(comparison_text(&rows, *pair));
    }
    add(&mut measured.json, &rows, &pairs);
    keep(&measured.json, options.json.as_deref(), options.chart.as_deref())?;
    require_none_wrong(measured.wrong, &format!("of {} queries", names.len()))
}

/// Latency quantiles and CPU time of some statements in one configuration.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    p50_s: f64,
    p95_s: f64,
    p99_s: f64,
    /// CPU time of all processes, summed over the statements.
    cpu_s: f64,
}

impl Spread {
    /// Quantiles over all runs of these queries; `None` if one of them failed.
    fn of(cells: &[&Cell]) -> Option<Self> {
        if cells.iter().any(|cell| cell.problem.is_some()) {
            return None;
        }
        let runs = || cells.iter().flat_map(|cell| &cell.runs);
        let mut walls_s: Vec<f64> = runs().map(|run| run.wall.as_secs_f64()).collect();
        walls_s.sort_by(f64::total_cmp);
        Some(Self {
            p50_s: quantile(&walls_s, 0.50)?,
            p95_s: quantile(&walls_s, 0.95)?,
            p99_s: quantile(&walls_s, 0.99)?,
            cpu_s: runs().map(|run| run.cpu.as_secs_f64()).sum(),
        })
    }

    fn figures(self) -> [f64; 4] {
        [self.p50_s, self.p95_s, self.p99_s, self.cpu_s]
    }
}

/// Name of a query, or `all`, and its spread in each configuration.
type Row = (String, Vec<Option<Spread>>);

/// Builds a row for each query, and a last one over the statements of those that all configurations answered.
fn rows(names: &[&str], lines: &[Vec<Cell>]) -> Vec<Row> {
    let configurations = lines.first().map_or(0, Vec::len);
    let mut rows: Vec<Row> = names
        .iter()
        .zip(lines)
        .map(|(name, cells)| ((*name).to_owned(), cells.iter().map(|cell| Spread::of(&[cell])).collect()))
        .collect();
    let complete: Vec<&Vec<Cell>> =
        lines.iter().filter(|cells| cells.iter().all(|cell| cell.problem.is_none())).collect();
    let all = |at: usize| Spread::of(&complete.iter().map(|cells| &cells[at]).collect::<Vec<_>>());
    rows.push(("all".to_owned(), (0..configurations).map(all).collect()));
    rows
}

fn latencies(rows: &[Row], configurations: &[Configuration]) -> String {
    let mut text = format!(
        "\nlatencies in ms; cpu: seconds of all processes for all runs together\n\n{:<7}   {:>9} {:>9} {:>9} {:>9}",
        "query", "p50", "p95", "p99", "cpu"
    );
    for (name, spreads) in rows {
        for (index, (spread, configuration)) in spreads.iter().zip(configurations).enumerate() {
            let _ = write!(text, "\n{name:<7} {}", letter(index));
            let _ = match spread {
                Some(Spread { p50_s, p95_s, p99_s, cpu_s }) => write!(
                    text,
                    " {:>9.2} {:>9.2} {:>9.2} {cpu_s:>9.2}",
                    p50_s * 1e3,
                    p95_s * 1e3,
                    p99_s * 1e3
                ),
                None => write!(text, " {:>9} {:>9} {:>9} {:>9}", "-", "-", "-", "-"),
            };
            let _ = write!(text, "  {}", configuration.name);
        }
    }
    text
}

/// Ratios of a pair, first to second; `None` if one of them failed.
fn ratios(spreads: &[Option<Spread>], pair: Pair) -> Option<[f64; 4]> {
    let (own, grpc) = Option::zip(spreads[pair.own], spreads[pair.grpc])?;
    let (own, grpc) = (own.figures(), grpc.figures());
    Some(std::array::from_fn(|at| own[at] / grpc[at]))
}

/// Whether neither the 99th percentile nor the CPU time is worse.
fn is_no_worse([_, _, p99, cpu]: [f64; 4]) -> bool {
    p99 <= 1.0 && cpu <= 1.0
}

fn comparison_text(rows: &[Row], pair: Pair) -> String {
    let (own, grpc, ranks) = (letter(pair.own), letter(pair.grpc), pair.ranks);
    let mut text = format!(
        "\n{own} against {grpc}, {ranks} ranks\n{:<7} {:>6} {:>6} {:>6} {:>6}",
        "query", "p50", "p95", "p99", "cpu"
    );
    for (name, spreads) in rows {
        let _ = write!(text, "\n{name:<7}");
        match ratios(spreads, pair) {
            Some(ratios) => ratios.iter().for_each(|ratio| {
                let _ = write!(text, " {ratio:>6.2}");
            }),
            None => text.push_str("      -      -      -      -"),
        }
    }
    let all = rows.last().and_then(|(_, spreads)| ratios(spreads, pair));
    if let Some(all) = all {
        let verdict = if is_no_worse(all) { "reached" } else { "missed" };
        let _ = write!(text, "\np99 and processor time of all statements no more than gRPC's: {verdict}");
    }
    text
}

/// Adds the figures that `bench tpch` does not report.
fn add(json: &mut Value, rows: &[Row], pairs: &[Pair]) {
    let figures = |spread: &Option<Spread>| {
        spread.map_or(Value::Null, |spread| {
            json!({"p50_s": spread.p50_s, "p95_s": spread.p95_s, "p99_s": spread.p99_s, "cpu_s": spread.cpu_s})
        })
    };
    let Some((all, queries)) = rows.split_last() else { return };
    for (index, configuration) in json["configurations"].as_array_mut().into_iter().flatten().enumerate() {
        configuration["all_statements"] = figures(&all.1[index]);
        let of_configuration = configuration["queries"].as_array_mut().into_iter().flatten();
        for (query, (_, spreads)) in of_configuration.zip(queries) {
            query["wall_s_p50"] = json!(spreads[index].map(|spread| spread.p50_s));
            query["wall_s_p95"] = json!(spreads[index].map(|spread| spread.p95_s));
            query["wall_s_p99"] = json!(spreads[index].map(|spread| spread.p99_s));
            query["cpu_s_sum"] = json!(spreads[index].map(|spread| spread.cpu_s));
        }
    }
    let of_pair = |pair: &Pair| {
        let ratios = |(name, spreads): &Row| {
            let ratios = ratios(spreads, *pair);
            let at = |index: usize| ratios.map(|ratios| ratios[index]);
            json!({"query": name, "p50": at(0), "p95": at(1), "p99": at(2), "cpu": at(3)})
        };
        let all = rows.last().and_then(|(_, spreads)| self::ratios(spreads, *pair));
        json!({
            "configuration": pair.own, "against": pair.grpc, "ranks": pair.ranks,
            "queries": rows.iter().map(ratios).collect::<Vec<_>>(), "no_worse": all.map(is_no_worse),
        })
    };
    json["compared"] = json!(pairs.iter().map(of_pair).collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::worker_process::Run;

    /// Runs of 1, 2, … ms, with half as much CPU time.
    fn cell(runs: u64) -> Cell {
        let run = |ms: u64| Run {
            wall: Duration::from_millis(ms),
            cpu: Duration::from_micros(500 * ms),
            rows: 1,
            transport_share: None,
        };
        Cell { runs: (1..=runs).map(run).collect(), problem: None }
    }

    fn lines() -> Vec<Vec<Cell>> {
        let failed = Cell { problem: Some("no".to_owned()), ..Cell::default() };
        vec![vec![cell(100), cell(200)], vec![cell(100), failed], vec![cell(100), cell(100)]]
    }

    #[test]
    fn quantiles_by_query_and_overall() {
        let rows = rows(&["q01", "q05", "q09"], &lines());
        let of = |row: usize, configuration: usize| rows[row].1[configuration];
        let first = of(0, 0).unwrap();
        assert_eq!((first.p50_s, first.p95_s, first.p99_s), (0.050, 0.095, 0.099));
        assert!((first.cpu_s - 2.525).abs() < 1e-9, "{first:?}");
        assert_eq!(of(0, 1).unwrap().p99_s, 0.198);
        assert_eq!(of(1, 1), None);
        // Over q01 and q09: 200 statements in the first configuration, 300 in the second.
        assert_eq!((rows[3].0.as_str(), of(3, 0).unwrap().p50_s), ("all", 0.050));
        assert_eq!(of(3, 1).unwrap().p99_s, 0.197);
    }

    #[test]
    fn pairs_are_compared() {
        let rows = rows(&["q01", "q05", "q09"], &lines());
        let (own, other) = (Pair { own: 0, grpc: 1, ranks: 4 }, Pair { own: 1, grpc: 0, ranks: 4 });
        let text = comparison_text(&rows, own);
        assert!(text.starts_with("\nA against B, 4 ranks\nquery      p50    p95    p99    cpu\n"), "{text}");
        assert!(text.contains("\nq01       0.50   0.50   0.50   0.25\nq05          -      -"), "{text}");
        assert!(text.ends_with("gRPC's: reached"), "{text}");
        assert!(comparison_text(&rows, other).ends_with("gRPC's: missed"));

        let query = || json!({"query": "q"});
        let configuration = || json!({"queries": [query(), query(), query()]});
        let mut json = json!({"configurations": [configuration(), configuration()]});
        add(&mut json, &rows, &[own, other]);
        assert_eq!(json["configurations"][0]["queries"][0]["wall_s_p99"], 0.099);
        assert_eq!(json["configurations"][1]["queries"][1]["wall_s_p99"], Value::Null);
        assert_eq!(json["compared"][0]["queries"][0]["p50"], 0.5);
        assert_eq!(
            (&json["compared"][0]["no_worse"], &json["compared"][1]["no_worse"]),
            (&json!(true), &json!(false))
        );
    }

    #[test]
    fn default_configurations_are_pairs() {
        let configurations = CONFIGURATIONS.map(|text| Configuration::parse(text).unwrap());
        let pairs: Vec<_> = report::pairs(&configurations).iter().map(|pair| (pair.own, pair.grpc)).collect();
        assert_eq!(pairs, [(0, 1), (2, 3)]);
    }
}
