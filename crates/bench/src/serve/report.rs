//! Text table of `bench serve`, its cells, and the goals reached.

use std::fmt::Write;

use serde_json::{Value, json};

use super::idle::Idle;
use super::load::Sample;
use super::recovery::Recovery;
use super::statements::Load;
use super::streaming::StreamingResult;
use super::systems::System;
use crate::cell::median;
use crate::report::letter;

/// One kind of load with one number of clients, on all servers.
#[derive(Debug, Clone)]
pub struct Cell {
    pub load: Load,
    pub clients: usize,
    /// By server; one for each round that it took part in.
    pub samples: Vec<Vec<Sample>>,
}

impl Cell {
    pub fn new(load: Load, clients: usize, systems: usize) -> Self {
        Self { load, clients, samples: vec![Vec::new(); systems] }
    }

    /// Why a server has no figures here.
    pub fn problem(&self, system: usize) -> Option<String> {
        let failed = self.samples.get(system)?.iter().find(|sample| sample.failed > 0)?;
        let what = failed.problem.clone().unwrap_or_default();
        Some(format!("{} at {} clients: {} failed: {what}", self.load.title(), self.clients, failed.failed))
    }

    fn median(&self, system: usize, value: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        let samples = self.samples.get(system)?;
        if self.problem(system).is_some() {
            return None;
        }
        median(samples.iter().filter_map(value).collect())
    }

    /// Median statements per second.
    pub fn throughput(&self, system: usize) -> Option<f64> {
        self.median(system, |sample| Some(sample.throughput()))
    }

    /// Median of the rounds' quantiles, in seconds.
    pub fn quantile_s(&self, system: usize, part: f64) -> Option<f64> {
        self.median(system, |sample| sample.quantile_s(part))
    }

    pub fn json(&self) -> Value {
        let ms = |seconds: Option<f64>| seconds.map(|seconds| seconds * 1e3);
        let sample = |sample: &Sample| {
            json!({
                "done": sample.done, "failed": sample.failed, "unfinished": sample.unfinished,
                "throughput": sample.throughput(), "p50_ms": ms(sample.quantile_s(0.5)),
                "p95_ms": ms(sample.quantile_s(0.95)), "p99_ms": ms(sample.quantile_s(0.99)),
                "acknowledged": sample.acknowledged, "unheard": sample.outcome_unknown, "problem": sample.problem,
            })
        };
        let system = |index: usize| {
            json!({
                "throughput": self.throughput(index), "p50_ms": ms(self.quantile_s(index, 0.5)),
                "p95_ms": ms(self.quantile_s(index, 0.95)), "p99_ms": ms(self.quantile_s(index, 0.99)),
                "problem": self.problem(index),
                "rounds": self.samples[index].iter().map(sample).collect::<Vec<_>>(),
            })
        };
        json!({
            "load": self.load.name(), "title": self.load.title(), "clients": self.clients,
            "systems": (0..self.samples.len()).map(system).collect::<Vec<_>>(),
        })
    }
}

/// Formats the legend.
pub fn header(scale: f64, seconds: f64, rounds: u32, seed: u64, systems: &[System]) -> String {
    let mut text = format!(
        "Servers over TPC-H at scale {scale}: medians of {rounds} rounds, interleaved, of {seconds} s each; seed {seed}\n"
    );
    for (index, system) in systems.iter().enumerate() {
        let started_s = system.started.as_secs_f64();
        let _ = write!(
            text,
            "\n{}  {:<10} {}, up in {started_s:.1} s",
            letter(index),
            system.name,
            system.engine
        );
    }
    text
}

/// Formats a line for each cell and server.
pub fn table(cells: &[Cell], systems: &[System]) -> Vec<String> {
    let mut lines = vec![format!(
        "\n{:<23} {:>7}   {:>12} {:>7} {:>10} {:>10} {:>10}  of {} rounds; ms",
        "load",
        "clients",
        "statements/s",
        "A/",
        "p50",
        "p95",
        "p99",
        cells.iter().flat_map(|cell| &cell.samples).map(Vec::len).max().unwrap_or(0)
    )];
    for cell in cells {
        for index in 0..systems.len() {
            if cell.samples[index].is_empty() {
                continue;
            }
            let mut line = format!("{:<23} {:>7} {} ", cell.load.title(), cell.clients, letter(index));
            if let Some(problem) = cell.problem(index) {
                let _ = write!(line, "{problem}");
            } else {
                let throughput = cell.throughput(index);
                let number = |value: Option<f64>, decimals: usize| {
                    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
                };
                let ratio = Option::zip(cell.throughput(0), throughput).filter(|_| index > 0);
                let ms = |part: f64| cell.quantile_s(index, part).map(|seconds| seconds * 1e3);
                let _ = write!(
                    line,
                    "{:>12} {:>7} {:>10} {:>10} {:>10}",
                    number(throughput, 1),
                    ratio.map_or_else(String::new, |(first, own)| format!("{:.2}", first / own)),
                    number(ms(0.5), 2),
                    number(ms(0.95), 2),
                    number(ms(0.99), 2)
                );
                let unfinished: u64 = cell.samples[index].iter().map(|sample| sample.unfinished).sum();
                let done: u64 = cell.samples[index].iter().map(|sample| sample.done).sum();
                if unfinished > done / 4 {
                    let _ = write!(line, "  {unfinished} of {} were not done in time", unfinished + done);
                }
            }
            lines.push(line);
        }
    }
    lines
}

pub fn streaming_text(streamed: &StreamingResult) -> String {
    let StreamingResult { system, way, bytes, rows, problem, .. } = streamed;
    match (streamed.median_mb_per_s(), problem) {
        (Some(speed), None) => {
            format!("{way}, {system}: {speed:.0} MB/s ({rows} rows, {:.1} MB)", *bytes as f64 / 1e6)
        }
        (_, problem) => format!("{way}, {system}: {}", problem.as_deref().unwrap_or("nothing came")),
    }
}

pub fn idle_text(idle: &Result<Idle, String>) -> String {
    match idle {
        Ok(idle) => format!(
            "{} idle connections: {:.0} MB with them, {:.0} MB before",
            idle.connections,
            idle.with_bytes as f64 / 1e6,
            idle.before_bytes as f64 / 1e6
        ),
        Err(problem) => format!("idle connections: {problem}"),
    }
}

pub fn recovery_text(recovery: &Recovery) -> String {
    let ms = |seconds: Option<f64>| seconds.map_or_else(|| "-".to_owned(), |s| format!("{:.0} ms", s * 1e3));
    let mut text = format!(
        "{} ranks killed: the next right answer after {} (median), {} (longest); from the gang after {} (median)",
        recovery.killed.len(),
        ms(recovery.median_s()),
        ms(recovery.longest_s()),
        ms(recovery.gang_median_s())
    );
    if let Some(problem) = &recovery.problem {
        let _ = write!(text, "; {problem}");
    }
    text
}

/// A performance goal.
#[derive(Debug, Clone)]
pub struct Aim {
    pub what: String,
    pub figure: Option<f64>,
    pub unit: &'static str,
    pub bound: f64,
    /// Whether the bound is a minimum; otherwise it is an exclusive maximum.
    pub at_least: bool,
}

impl Aim {
    pub fn is_reached(&self) -> Option<bool> {
        self.figure.map(|figure| if self.at_least { figure >= self.bound } else { figure < self.bound })
    }

    pub fn json(&self) -> Value {
        json!({
            "what": self.what, "figure": self.figure, "unit": self.unit, "bound": self.bound,
            "at_least": self.at_least, "reached": self.is_reached(),
        })
    }
}

/// Returns the goals for two cores. `thrift`: index of the HiveServer2 peer.
pub fn aims(
    cells: &[Cell],
    thrift: Option<usize>,
    streamed: &[StreamingResult],
    idle: Option<&Result<Idle, String>>,
    recovery: Option<&Recovery>,
) -> Vec<Aim> {
    let cell =
        |load: Load, clients: usize| cells.iter().find(|cell| cell.load == load && cell.clients == clients);
    let p50_ms = |load| cell(load, 1).and_then(|cell| cell.quantile_s(0, 0.5)).map(|seconds| seconds * 1e3);
    let below =
        |what: &str, figure, unit, bound| Aim { what: what.to_owned(), figure, unit, bound, at_least: false };
    let above =
        |what: &str, figure, unit, bound| Aim { what: what.to_owned(), figure, unit, bound, at_least: true };
    let mut aims = vec![
        below("a catalog-only statement, median", p50_ms(Load::Catalog), "ms", 1.0),
        below("a point lookup, median", p50_ms(Load::Point), "ms", 5.0),
    ];
    // The worst number of clients counts.
    let thrift = thrift.and_then(|index| {
        let of = |cell: &Cell| Some(cell.throughput(0)? / cell.throughput(index)?);
        cells.iter().filter(|cell| cell.load == Load::Small).filter_map(of).reduce(f64::min)
    });
    aims.push(above("throughput of the small mix against the Thrift server", thrift, "times", 10.0));
    for load in [Load::Point, Load::Aggregate, Load::Small] {
        let ratio =
            cell(load, 32).and_then(|cell| Some(cell.quantile_s(0, 0.99)? / cell.quantile_s(0, 0.5)?));
        if ratio.is_some() {
            let what = format!("p99 of 32 clients against p50, {}", load.title().to_lowercase());
            aims.push(below(&what, ratio, "times", 5.0));
        }
    }
    let inserts = cell(Load::Insert, 8).and_then(|cell| cell.throughput(0));
    aims.push(above("small inserts of 8 clients", inserts, "a second", 200.0));
    let fastest = |prefix: &str| {
        let own = streamed.iter().filter(|line| line.system == "harrier" && line.way.starts_with(prefix));
        own.filter_map(StreamingResult::median_mb_per_s).reduce(f64::max)
    };
    aims.push(above("rows over Arrow Flight", fastest("Arrow Flight"), "MB/s", 300.0));
    aims.push(above(
        "rows over the PostgreSQL protocol as text",
        fastest("PostgreSQL protocol, text"),
        "MB/s",
        100.0,
    ));
    let idle = idle.and_then(|idle| idle.as_ref().ok());
    let what = idle.map_or_else(
        || "idle connections".to_owned(),
        |idle| format!("{} idle connections", idle.connections),
    );
    let grown = idle.map(|idle| idle.with_bytes.saturating_sub(idle.before_bytes) as f64 / 1e6);
    aims.push(below(&what, grown, "MB", 200.0));
    let recovered = recovery.and_then(Recovery::longest_s);
    aims.push(below("from a killed rank to the next answer, longest", recovered, "s", 1.0));
    aims
}

pub fn aims_text(aims: &[Aim]) -> String {
    let mut text = String::new();
    for aim in aims {
        let bound = format!("{} {} {}", if aim.at_least { "at least" } else { "under" }, aim.bound, aim.unit);
        let verdict = match (aim.figure, aim.is_reached()) {
            (Some(figure), Some(true)) => format!("{figure:.2} {}, reached", aim.unit),
            (Some(figure), _) => format!("{figure:.2} {}, missed", aim.unit),
            (None, _) => "not measured".to_owned(),
        };
        let _ = write!(text, "\n{}: {verdict} ({bound})", aim.what);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample(done: u64, ms: u64) -> Sample {
        let latencies = vec![Duration::from_millis(ms); done as usize];
        Sample { done, latencies, timed: Duration::from_secs(1), ..Sample::default() }
    }

    fn cell(load: Load, clients: usize, samples: Vec<Vec<Sample>>) -> Cell {
        Cell { load, clients, samples }
    }

    #[test]
    fn a_cell_is_the_median_of_its_rounds() {
        let cell = cell(Load::Point, 8, vec![vec![sample(10, 4), sample(30, 2), sample(20, 3)], vec![]]);
        assert_eq!(cell.throughput(0), Some(20.0));
        assert_eq!(cell.quantile_s(0, 0.99), Some(0.003));
        assert_eq!(cell.throughput(1), None);
        assert_eq!(cell.problem(0), None);
    }

    #[test]
    fn a_failure_leaves_no_figure() {
        let failed = Sample { failed: 2, problem: Some("42P01 no table".to_owned()), ..sample(10, 1) };
        let cell = cell(Load::Tpch, 1, vec![vec![sample(10, 1), failed]]);
        assert_eq!(cell.throughput(0), None);
        assert_eq!(cell.problem(0).unwrap(), "TPC-H mix at 1 clients: 2 failed: 42P01 no table");
    }

    #[test]
    fn aims_are_reached_or_missed() {
        let cells = [
            cell(Load::Catalog, 1, vec![vec![sample(10, 2)], vec![sample(10, 1)]]),
            cell(Load::Small, 8, vec![vec![sample(100, 1)], vec![sample(10, 1)]]),
        ];
        let aims = aims(&cells, Some(1), &[], None, None);
        let of = |what: &str| aims.iter().find(|aim| aim.what.starts_with(what)).unwrap().is_reached();
        assert_eq!(of("a catalog-only"), Some(false));
        assert_eq!(of("a point"), None);
        assert_eq!(of("throughput of the small mix"), Some(true));
        assert!(aims_text(&aims).contains("2.00 ms, missed (under 1 ms)"), "{}", aims_text(&aims));
    }
}
