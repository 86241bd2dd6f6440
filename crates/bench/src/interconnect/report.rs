//! Text tables of `bench interconnect`: a legend, a line for each case, and the round trips.

use std::fmt::Write;

use super::{Case, Cell, RoundTrips, Table};
use crate::configuration::Configuration;
use crate::report::letter;
use crate::worker_process::WorkerProcess;

/// Formats the legend.
pub fn header(runs: u32, configurations: &[Configuration], workers: &[WorkerProcess]) -> String {
    let mut text = format!(
        "Blocks between ranks: median of {runs} {}; GB/s of values, and s/GB: processor time of all ranks for each GB\n\n",
        if runs == 1 { "run" } else { "interleaved runs" }
    );
    let width =
        configurations.iter().map(|configuration| configuration.name.chars().count()).max().unwrap_or(0);
    for (index, (configuration, worker)) in configurations.iter().zip(workers).enumerate() {
        let _ = writeln!(text, "{}  {:<width$}  {}", letter(index), configuration.name, worker.engine);
    }
    text.pop();
    text
}

/// Formats the title of a table.
pub fn title(table: &Table) -> String {
    let pattern = table.cases.first().map_or("nothing", |case| case.pattern.name());
    match (table.by_streams, table.cases.first()) {
        (true, Some(case)) => {
            format!("{pattern}, {} ranks, batches of {}", table.ranks, size(case.payload_bytes))
        }
        (_, first) => {
            let streams = first.map_or(0, |case| case.streams);
            format!("{pattern}, {} ranks, {streams} streams from each to each", table.ranks)
        }
    }
}

/// Formats the header of a table, with its title.
pub fn table_header(table: &Table, configurations: usize) -> String {
    let by = if table.by_streams { "streams" } else { "batch" };
    let mut text = format!("\n{}\n{by:<8}", title(table));
    for letter in (0..configurations).map(letter) {
        let _ = write!(text, " {:>6} {:>6}", format!("{letter} GB/s"), "s/GB");
    }
    text
}

/// Label of a case in its table.
pub fn case(table: &Table, case: &Case) -> String {
    if table.by_streams { case.streams.to_string() } else { size(case.payload_bytes) }
}

/// Formats one case in all configurations.
pub fn line(name: &str, cells: &[Cell]) -> String {
    let mut text = format!("{name:<8}");
    for cell in cells {
        let _ = match (cell.gb_per_s(), cell.cpu_s_per_gb()) {
            (Some(gb_per_s), Some(cpu)) => write!(text, " {:>6} {:>6}", number(gb_per_s), number(cpu)),
            _ => write!(text, " {:>6} {:>6}", "-", "-"),
        };
    }
    for (index, problem) in
        cells.iter().enumerate().filter_map(|(index, cell)| Some((index, cell.problem.as_ref()?)))
    {
        let _ = write!(text, "  {}: {problem}", letter(index));
    }
    text
}

/// Formats half round trips; the first one is the reference for the others.
pub fn latencies(all: &[RoundTrips]) -> String {
    let width = all.iter().map(|latency| latency.name.chars().count()).max().unwrap_or(0);
    let first = all.first().and_then(RoundTrips::p50_ns);
    let mut text = format!(
        "\n64 bytes to and fro between two ranks, half of it in µs\n{:<width$} {:>9} {:>9} {:>9}",
        "", "p50", "p99", "of first"
    );
    for latency in all {
        let _ = write!(text, "\n{:<width$}", latency.name);
        let _ = match (latency.p50_ns(), latency.p99_ns(), &latency.problem) {
            (Some(p50_ns), Some(p99_ns), None) => {
                let ratio = first.map_or_else(String::new, |first| format!("{:.1}", p50_ns / first));
                write!(text, " {:>9.2} {:>9.2} {ratio:>9}", p50_ns / 1e3, p99_ns / 1e3)
            }
            (.., problem) => {
                write!(text, " {:>9} {:>9} {:>9}  {}", "-", "-", "-", problem.as_deref().unwrap_or_default())
            }
        };
    }
    text
}

/// Formats a size.
pub fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// Formats three significant digits.
fn number(value: f64) -> String {
    match value {
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ if value >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::interconnect::transfer::Pattern;
    use crate::protocol::{Latency, Moved};

    fn cell(gb_per_s: f64, cpu_s_per_gb: f64) -> Cell {
        let moved = Moved {
            bytes: 1_000_000_000,
            wall: Duration::from_secs_f64(1.0 / gb_per_s),
            cpu: Duration::from_secs_f64(cpu_s_per_gb),
        };
        Cell { runs: vec![moved; 3], problem: None }
    }

    #[test]
    fn a_table_has_a_line_for_each_case() {
        let cases = [1024, 4 << 20].map(|payload_bytes| Case {
            pattern: Pattern::ManyToOne,
            streams: 2,
            payload_bytes,
        });
        let table = Table { ranks: 4, by_streams: false, cases: cases.to_vec() };
        assert_eq!(
            table_header(&table, 2),
            "\nmany-to-one, 4 ranks, 2 streams from each to each\nbatch    A GB/s   s/GB B GB/s   s/GB"
        );
        let failed = Cell { runs: vec![], problem: Some("3 bytes".to_owned()) };
        assert_eq!(
            line(&case(&table, &cases[1]), &[cell(12.5, 0.125), failed]),
            "4 MiB      12.5  0.125      -      -  B: 3 bytes"
        );
        let streams = Table { by_streams: true, ..table };
        assert_eq!(title(&streams), "many-to-one, 4 ranks, batches of 1 KiB");
        assert_eq!(case(&streams, &cases[0]), "2");
    }

    #[test]
    fn round_trips_are_relative_to_the_first() {
        let latency = |name: &str, ns: f64| RoundTrips {
            name: name.to_owned(),
            runs: vec![Latency { p50_ns: ns, p99_ns: 2.0 * ns }],
            problem: None,
        };
        let text = latencies(&[latency("mpidirect", 500.0), latency("mpi", 10_000.0)]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[3], "mpidirect      0.50      1.00       1.0");
        assert_eq!(lines[4], "mpi           10.00     20.00      20.0");
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [(123.4, "123"), (12.34, "12.3"), (1.234, "1.23"), (0.1234, "0.123")] {
            assert_eq!(number(value), text);
        }
        for (bytes, text) in [(8, "8 B"), (1024, "1 KiB"), (1 << 20, "1 MiB"), (1536, "1536 B")] {
            assert_eq!(size(bytes), text);
        }
    }
}
