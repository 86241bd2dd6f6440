//! Text tables of `bench primitives`.

use std::fmt::Write;

use super::blocking::Blocking;
use super::{Cell, Figure, Worker};

const COLUMN: usize = 12;

/// Formats the legend.
pub(super) fn header(runs: u32, seconds: f64, workers: &[Worker]) -> String {
    let mut text = format!(
        "Bytes from one process to another on one host: median of {runs} interleaved runs of up to {seconds} s\n\n"
    );
    for worker in workers {
        let _ = writeln!(text, "{:<12} {}", worker.name, worker.process.engine);
    }
    text
}

pub(super) fn table_header(figure: Figure, workers: &[Worker]) -> String {
    let title = match figure {
        Figure::Latency => "latency: half of a round trip, microseconds",
        Figure::Bandwidth => "bandwidth: 128 MiB in packets, MB a second",
    };
    let mut text = format!("\n{title}\n{:>8}", "bytes");
    for worker in workers {
        let _ = write!(text, " {:>COLUMN$}", worker.name);
    }
    text
}

pub(super) fn line(figure: Figure, bytes: usize, cells: &[Cell]) -> String {
    let mut text = format!("{:>8}", size(bytes));
    for cell in cells {
        let value = match figure {
            Figure::Latency => cell.latency_us(),
            Figure::Bandwidth => cell.mb_per_s(),
        };
        let _ = match value.filter(|_| cell.problem.is_none()) {
            Some(value) => write!(text, " {:>COLUMN$}", number(value)),
            None => write!(text, " {:>COLUMN$}", "-"),
        };
    }
    for problem in cells.iter().filter_map(|cell| cell.problem.as_ref()) {
        let _ = write!(text, "  {problem}");
    }
    text
}

/// Formats three significant digits.
fn number(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// Formats a size such as `64 KiB`.
pub(super) fn size(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

pub(super) fn blocking(blocking: &Blocking) -> String {
    let Blocking { bytes, o_tasks, ranks, .. } = blocking;
    let mut text = format!(
        "\nO tasks that wait for what they have sent, and that do not: AGGREGATE over {:.0} MB of uservisits by Zipf's law,\n\
         {o_tasks} O tasks on {ranks} ranks; seconds until the last of them has ended, median\n",
        *bytes as f64 / 1e6
    );
    for style in &blocking.styles {
        let o_s = style.o_s().unwrap_or_default();
        let _ = write!(text, "\n{:<14} {o_s:>8.3}", style.name);
    }
    if let Some(ratio) = blocking.ratio() {
        let _ = write!(text, "\n{:<14} {ratio:>8.2}", "ratio");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_numbers_are_short() {
        assert_eq!([1, 1024, 1 << 26].map(size), ["1 B", "1 KiB", "64 MiB"]);
        assert_eq!([0.123456, 1.5, 12.34, 1234.5].map(number), ["0.1235", "1.50", "12.3", "1234"]);
        let failed = Cell { problem: Some("lost".to_owned()), ..Cell::default() };
        assert_eq!(line(Figure::Latency, 4, &[failed]), "     4 B            -  lost");
    }
}
