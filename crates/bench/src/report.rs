//! Table of a benchmark: a legend, a line for each query, totals. Columns are as wide as their numbers need.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::cell::Cell;
use super::configuration::{Configuration, GRPC, MPI, UDP};
use super::worker_process::WorkerProcess;
use super::workload::Workload;

/// Maximum number of configurations: they are named A to H in the table and have distinct colours in the
/// chart.
pub const CONFIGURATIONS_MAX: usize = 8;

/// Letter of a configuration, A to H, in command-line order.
pub fn letter(index: usize) -> char {
    char::from(b'A' + index as u8)
}

/// Formats the legend and the table's header.
pub fn header(
    workload: &Workload,
    configurations: &[Configuration],
    workers: &[WorkerProcess],
    runs: u32,
    data: &Path,
) -> String {
    let mut text = format!(
        "{} at scale {} ({}): median of {runs} {} after a warm-up, in seconds; cpu is of all processes\n\n",
        workload.title,
        workload.scale,
        data.display(),
        if runs == 1 { "run" } else { "runs, interleaved," },
    );
    let width =
        configurations.iter().map(|configuration| configuration.name.chars().count()).max().unwrap_or(0);
    for (index, (configuration, worker)) in configurations.iter().zip(workers).enumerate() {
        let started_s = worker.started.as_secs_f64();
        let _ = writeln!(
            text,
            "{}  {:<width$}  {}, up in {started_s:.2} s",
            letter(index),
            configuration.name,
            worker.engine
        );
    }
    let _ = write!(text, "\n{:<7}", "query");
    for index in 0..configurations.len() {
        let letter = letter(index);
        let _ = write!(text, " {:>9} {:>9}", format!("{letter} wall"), format!("{letter} cpu"));
        if index > 0 {
            let _ = write!(text, " {:>6}", format!("{letter}/A"));
        }
    }
    let _ = write!(text, " {:>7}  answer", "rows");
    text
}

/// Formats the line of a query; `published`: its answers were compared with published ones.
pub fn line(name: &str, cells: &[Cell], published: bool) -> String {
    let times: Vec<_> = cells.iter().map(|cell| Option::zip(cell.wall_s(), cell.cpu_s())).collect();
    let rows =
        cells.iter().find_map(|cell| cell.runs.first()).map_or_else(String::new, |run| run.rows.to_string());
    let mut text = format!("{}{rows:>8}  ", numbers(name, &times));
    let problems: Vec<String> = cells
        .iter()
        .enumerate()
        .filter_map(|(index, cell)| Some(format!("{}: {}", letter(index), cell.problem.as_ref()?)))
        .collect();
    match (problems.is_empty(), published, cells.len()) {
        (false, ..) => text.push_str(&problems.join("; ")),
        (true, true, _) => text.push_str("as published"),
        (true, false, 1) => text.push_str("the same each time"),
        (true, false, _) => text.push_str("the same by all"),
    }
    text
}

/// Formats sums of medians, ratios of sums, and the geometric mean of the queries' ratios, over queries that
/// all configurations answered.
pub fn footer(lines: &[Vec<Cell>]) -> String {
    let complete: Vec<Vec<(f64, f64)>> = lines
        .iter()
        .filter_map(|cells| cells.iter().map(|cell| Option::zip(cell.wall_s(), cell.cpu_s())).collect())
        .collect();
    let Some(first) = complete.first() else {
        return "no query was answered by all configurations".to_owned();
    };
    let sums: Vec<_> = (0..first.len())
        .map(|index| {
            let column = complete.iter().map(|times| times[index]);
            Some(column.fold((0.0, 0.0), |sum, time| (sum.0 + time.0, sum.1 + time.1)))
        })
        .collect();
    let mut text = numbers("total", &sums);
    let _ = write!(text, "{:>8}  of {} queries", "", complete.len());
    if first.len() > 1 {
        let _ = write!(text, "\n{:<7} {:>9} {:>9}", "geomean", "", "");
        for index in 1..first.len() {
            let logarithms: f64 = complete.iter().map(|times| (times[index].0 / times[0].0).ln()).sum();
            let mean = (logarithms / complete.len() as f64).exp();
            let _ = write!(text, " {:>9} {:>9} {mean:>6.2}", "", "");
        }
    }
    text
}

/// Indexes of two configurations with as many ranks of as many threads: one over MPI or QUIC, the other over
/// gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    pub own: usize,
    pub grpc: usize,
    pub ranks: usize,
}

/// Returns all pairs, in command-line order.
pub fn pairs(configurations: &[Configuration]) -> Vec<Pair> {
    let is_own = |configuration: &Configuration| [MPI, UDP].contains(&configuration.kind());
    let mut pairs = Vec::new();
    for (own, one) in configurations.iter().enumerate().filter(|(_, one)| is_own(one)) {
        for (grpc, other) in configurations.iter().enumerate().filter(|(_, other)| other.kind() == GRPC) {
            if let Some((ranks, _)) = one.size().filter(|size| other.size() == Some(*size)) {
                pairs.push(Pair { own, grpc, ranks });
            }
        }
    }
    pairs
}

/// Ratios of a pair, over the queries that both answered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    pub pair: Pair,
    /// Ratio of the sums of medians.
    pub wall: f64,
    pub cpu: f64,
    /// Geometric mean of the queries' wall time ratios.
    pub geomean: f64,
    pub queries: usize,
}

impl Ratio {
    pub fn json(&self) -> Value {
        json!({
            "configuration": self.pair.own, "against": self.pair.grpc, "ranks": self.pair.ranks,
            "wall": self.wall, "cpu": self.cpu, "geomean": self.geomean, "queries": self.queries,
        })
    }
}

/// Returns the ratios of all pairs with a query that both answered.
pub fn ratios(configurations: &[Configuration], lines: &[Vec<Cell>]) -> Vec<Ratio> {
    type Times = (f64, f64);
    let times = |cell: &Cell| Option::zip(cell.wall_s(), cell.cpu_s());
    let ratio = |pair: Pair| {
        let of_both = |cells: &Vec<Cell>| Option::zip(times(&cells[pair.own]), times(&cells[pair.grpc]));
        let both: Vec<_> = lines.iter().filter_map(of_both).collect();
        let sum = |value: fn(&(Times, Times)) -> f64| both.iter().map(value).sum::<f64>();
        (!both.is_empty()).then(|| Ratio {
            pair,
            wall: sum(|(own, _)| own.0) / sum(|(_, grpc)| grpc.0),
            cpu: sum(|(own, _)| own.1) / sum(|(_, grpc)| grpc.1),
            geomean: (sum(|(own, grpc)| (own.0 / grpc.0).ln()) / both.len() as f64).exp(),
            queries: both.len(),
        })
    };
    pairs(configurations).into_iter().filter_map(ratio).collect()
}

/// Formats a line for each ratio; `None` if there are none.
pub fn ratios_text(ratios: &[Ratio]) -> Option<String> {
    let mut text = format!(
        "\nagainst gRPC with as many ranks: ratios of sums, and the geometric mean of the queries' ratios of wall time\n\n\
         {:<7} {:>6} {:>6} {:>6} {:>8} {:>8}",
        "", "ranks", "wall", "cpu", "geomean", "queries"
    );
    for Ratio { pair, wall, cpu, geomean, queries } in ratios {
        let name = format!("{}/{}", letter(pair.own), letter(pair.grpc));
        let ranks = pair.ranks;
        let _ = write!(text, "\n{name:<7} {ranks:>6} {wall:>6.2} {cpu:>6.2} {geomean:>8.2} {queries:>8}");
    }
    (!ratios.is_empty()).then_some(text)
}

/// Share of moving rows in the CPU time of a column, from 0 to 1: the queries' shares, weighted by their CPU
/// time. `None` if none is known.
pub fn transport_share(column: &[&Cell]) -> Option<f64> {
    let shares = column.iter().filter_map(|cell| cell.transport_share().zip(cell.cpu_s()));
    let (moved_s, all_s) =
        shares.fold((0.0, 0.0), |sum, (share, cpu_s)| (sum.0 + share * cpu_s, sum.1 + cpu_s));
    (all_s > 0.0).then(|| moved_s / all_s)
}

/// Formats each query's transport share, in the configurations that measure it; `None` if none does.
pub fn transport(
    workload: &Workload,
    configurations: &[Configuration],
    lines: &[Vec<Cell>],
) -> Option<String> {
    let column = |index: usize| lines.iter().map(|cells| &cells[index]).collect::<Vec<_>>();
    let shares: Vec<(usize, f64)> = (0..configurations.len())
        .filter_map(|index| Some((index, transport_share(&column(index))?)))
        .collect();
    if shares.is_empty() {
        return None;
    }
    let mut text = String::from(
        "\nof the processor time of all ranks, % for moving rows: making blocks, reading them, and the threads that send them\n\n",
    );
    let _ = write!(text, "{:<7}", "query");
    for (index, _) in &shares {
        let _ = write!(text, " {:>6}", letter(*index));
    }
    let percent = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.1}", 100.0 * share));
    for (query, cells) in workload.queries.iter().zip(lines) {
        let _ = write!(text, "\n{:<7}", query.name);
        for (index, _) in &shares {
            let _ = write!(text, " {:>6}", percent(cells[*index].transport_share()));
        }
    }
    let _ = write!(text, "\n{:<7}", "total");
    for (_, share) in &shares {
        let _ = write!(text, " {:>6}", percent(Some(*share)));
    }
    Some(text)
}

fn numbers(name: &str, times: &[Option<(f64, f64)>]) -> String {
    let mut text = format!("{name:<7}");
    for (index, time) in times.iter().enumerate() {
        let _ = match time {
            Some((wall_s, cpu_s)) => write!(text, " {wall_s:>9.3} {cpu_s:>9.2}"),
            None => write!(text, " {:>9} {:>9}", "-", "-"),
        };
        if index > 0 {
            let _ = match (times[0], time) {
                (Some((first_s, _)), Some((wall_s, _))) => write!(text, " {:>6.2}", wall_s / first_s),
                _ => write!(text, " {:>6}", "-"),
            };
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::worker_process::Run;

    fn cell(wall_s: f64, cpu_s: f64) -> Cell {
        let run = Run {
            wall: Duration::from_secs_f64(wall_s),
            cpu: Duration::from_secs_f64(cpu_s),
            rows: 4,
            transport_share: None,
        };
        Cell { runs: vec![run], problem: None }
    }

    #[test]
    fn pairs_have_as_many_ranks() {
        let texts = [
            "mpi:ranks=2,threads=1",
            "embedded",
            "grpc:ranks=4,threads=1",
            "grpc:ranks=2,threads=1",
            "mpi:ranks=4,threads=1",
            "grpc:ranks=4,threads=2",
        ];
        let configurations = texts.map(|text| Configuration::parse(text).unwrap());
        let of_two = Pair { own: 0, grpc: 3, ranks: 2 };
        let of_four = Pair { own: 4, grpc: 2, ranks: 4 };
        assert_eq!(pairs(&configurations), [of_two, of_four]);
        let line = |of_four_s: f64| {
            let mut cells = vec![cell(1.0, 1.0); 6];
            cells[4] = cell(of_four_s, 0.5);
            cells
        };
        let mut failed = line(9.0);
        failed[0] = Cell { runs: vec![], problem: Some("no".into()) };
        let ratios = ratios(&configurations, &[line(0.25), line(1.0), failed]);
        assert_eq!((ratios[0].pair, ratios[0].wall, ratios[0].queries), (of_two, 1.0, 2));
        assert_eq!((ratios[1].wall, ratios[1].cpu, ratios[1].queries), (10.25 / 3.0, 0.5, 3));
        let mean = (0.25f64 * 9.0).cbrt();
        assert!((ratios[1].geomean - mean).abs() < 1e-9, "{ratios:?}");
        let text = ratios_text(&ratios).unwrap();
        assert!(text.ends_with("\nE/C          4   3.42   0.50     1.31        3"), "{text}");
        assert_eq!(ratios_text(&[]), None);
    }

    #[test]
    fn shares_of_transport_are_weighted_by_processor_time() {
        let with_share = |cpu_s, share| {
            let mut cell = cell(1.0, cpu_s);
            cell.runs[0].transport_share = Some(share);
            cell
        };
        let (small, large, silent) = (with_share(1.0, 0.5), with_share(3.0, 0.1), cell(1.0, 9.0));
        let share = transport_share(&[&small, &large, &silent]).unwrap();
        assert!((share - 0.2).abs() < 1e-9, "{share}");
        assert_eq!(transport_share(&[&silent]), None);
        let configurations = ["embedded", "mpi:ranks=2"].map(|text| Configuration::parse(text).unwrap());
        let mut workload = Workload::new("shuffle", 1.0);
        workload.queries.truncate(2);
        let lines = [vec![silent.clone(), small], vec![silent.clone(), large]];
        let text = transport(&workload, &configurations, &lines).unwrap();
        let column: Vec<_> =
            text.lines().skip(3).map(|line| line.split_whitespace().last().unwrap()).collect();
        assert_eq!(column, ["B", "50.0", "10.0", "20.0"]);
        assert_eq!(transport(&workload, &configurations[..1], &[vec![silent]]), None);
    }

    #[test]
    fn lines_and_totals() {
        let first = vec![cell(0.5, 1.0), cell(1.0, 1.5)];
        let second = vec![cell(2.0, 4.0), cell(1.0, 2.0)];
        let failed = vec![
            cell(1.0, 1.0),
            Cell { runs: vec![], problem: Some("wrong answer: 3 rows instead of 4".into()) },
        ];
        assert_eq!(
            line("q01", &first, true),
            "q01         0.500      1.00     1.000      1.50   2.00       4  as published"
        );
        assert!(line("q03", &failed, true).ends_with("4  B: wrong answer: 3 rows instead of 4"));
        let footer = footer(&[first, second, failed]);
        let mut lines = footer.lines();
        assert_eq!(
            lines.next().unwrap(),
            "total       2.500      5.00     2.000      3.50   0.80          of 2 queries"
        );
        assert!(lines.next().unwrap().ends_with("1.00"));
    }
}
