//! Measurement loop of a query benchmark: starts workers, warms up each query, runs it A B A B, checks its
//! answers, and prints its line.

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::answers::{self, Rows};
use super::cell::Cell;
use super::configuration::Configuration;
use super::progress::Progress;
use super::worker_process::{Run, WorkerError, WorkerProcess};
use super::workload::{Query, Workload};
use super::{Failure, machine, report};

/// Result of a benchmark.
pub struct Measured {
    /// All measurements, in the form that `--json` writes and `chart` reads.
    pub json: Value,
    /// Number of queries that failed or gave a wrong answer, in any configuration.
    pub wrong: usize,
    /// Cells by query, then by configuration.
    pub lines: Vec<Vec<Cell>>,
}

/// Runs everything and writes the table to `out` as it grows. Blocks until it is done.
///
/// Errors: a worker that does not start or dies. Wrong answers are counted instead.
pub fn run(
    workload: &Workload,
    configurations: &[Configuration],
    tables: &[(String, String)],
    runs: u32,
    data: &Path,
    out: &mut dyn Write,
) -> Result<Measured, Failure> {
    let mut progress = Progress::new(out);
    let mut workers = Vec::new();
    for configuration in configurations {
        progress.step(format!("starting {}", configuration.name));
        let mut worker = WorkerProcess::start(configuration, &mut || progress.tick())?;
        worker.tables(tables, &mut || progress.tick())?;
        workers.push(worker);
    }
    progress.print(&report::header(workload, configurations, &workers, runs, data));

    let mut lines: Vec<Vec<Cell>> = Vec::new();
    for (index, query) in workload.queries.iter().enumerate() {
        progress.prefix = format!("{}, {} of {}", query.name, index + 1, workload.queries.len());
        let cells = measure(query, configurations, &mut workers, runs, &mut progress)?;
        progress.print(&report::line(query.name, &cells, query.answer.is_some()));
        lines.push(cells);
    }
    progress.print(&report::footer(&lines));
    if let Some(text) = report::transport(workload, configurations, &lines) {
        progress.print(&text);
    }
    if let Some(text) = report::ratios_text(&report::ratios(configurations, &lines)) {
        progress.print(&text);
    }

    result(workload, configurations, &workers, runs, lines)
}

/// Builds the JSON result.
pub fn result(
    workload: &Workload,
    configurations: &[Configuration],
    workers: &[WorkerProcess],
    runs: u32,
    lines: Vec<Vec<Cell>>,
) -> Result<Measured, Failure> {
    let wrong = lines.iter().filter(|cells| cells.iter().any(|cell| cell.problem.is_some())).count();
    let mut measured = Vec::new();
    for (index, (configuration, worker)) in configurations.iter().zip(workers).enumerate() {
        let column: Vec<&Cell> = lines.iter().map(|cells| &cells[index]).collect();
        measured.push(configuration_json(workload, configuration, worker, &column)?);
    }
    let json = json!({
        "benchmark": workload.name,
        "title": workload.title,
        "scale": workload.scale,
        "runs": runs,
        "when": machine::now(),
        "harrier": env!("CARGO_PKG_VERSION"),
        "machine": machine::json(),
        "configurations": measured,
        "ratios": report::ratios(configurations, &lines).iter().map(report::Ratio::json).collect::<Vec<_>>(),
    });
    Ok(Measured { json, wrong, lines })
}

fn measure(
    query: &Query,
    configurations: &[Configuration],
    workers: &mut [WorkerProcess],
    runs: u32,
    progress: &mut Progress<'_>,
) -> Result<Vec<Cell>, Failure> {
    let mut expected = query.answer.map(answers::from_csv);
    let mut cells = vec![Cell::default(); workers.len()];
    // Run 0 warms up.
    for run in 0..=runs {
        for (index, worker) in workers.iter_mut().enumerate() {
            if cells[index].problem.is_some() {
                continue;
            }
            progress.step(match run {
                0 => format!("warm-up of {}", configurations[index].name),
                _ => format!("run {run} of {runs} of {}", configurations[index].name),
            });
            match run_once(query, worker, &mut expected, progress) {
                Ok(_) if run == 0 => {}
                Ok(measured) => cells[index].runs.push(measured),
                Err(WorkerError::Statement(problem)) => cells[index].problem = Some(problem),
                Err(WorkerError::Dead(failure)) => return Err(failure),
            }
        }
    }
    Ok(cells)
}

fn run_once(
    query: &Query,
    worker: &mut WorkerProcess,
    expected: &mut Option<Rows>,
    progress: &mut Progress<'_>,
) -> Result<Run, WorkerError> {
    let run = worker.run(&query.sql, &mut || progress.tick())?;
    let answer = worker.answer(&mut || progress.tick())?;
    if answer.len() as u64 != run.rows {
        return Err(WorkerError::Statement(format!("{} rows were counted, {} told", run.rows, answer.len())));
    }
    // Without a published answer, the first one is the reference for all others.
    let expected = expected.get_or_insert_with(|| answer.clone());
    let compare = if query.answer.is_some() { answers::compare } else { answers::compare_engines };
    compare(expected, &answer)
        .map_err(|difference| WorkerError::Statement(format!("wrong answer: {difference}")))?;
    Ok(run)
}

/// Describes a configuration with its measurements: `column` has a cell for each query.
pub fn configuration_json(
    workload: &Workload,
    configuration: &Configuration,
    worker: &WorkerProcess,
    column: &[&Cell],
) -> Result<Value, Failure> {
    let queries: Vec<Value> = workload
        .queries
        .iter()
        .zip(column)
        .map(|(query, cell)| {
            json!({
                "query": query.name,
                "rows": cell.runs.first().map(|run| run.rows),
                "wall_s": cell.runs.iter().map(|run| run.wall.as_secs_f64()).collect::<Vec<_>>(),
                "cpu_s": cell.runs.iter().map(|run| run.cpu.as_secs_f64()).collect::<Vec<_>>(),
                "wall_s_median": cell.wall_s(),
                "cpu_s_median": cell.cpu_s(),
                "transport_share_median": cell.transport_share(),
                "problem": cell.problem,
            })
        })
        .collect();
    Ok(json!({
        "name": configuration.name,
        "engine": worker.engine,
        "command": configuration.command_line()?,
        "start_s": worker.started.as_secs_f64(),
        "queries": queries,
        "wall_s_total": column.iter().filter_map(|cell| cell.wall_s()).sum::<f64>(),
        "cpu_s_total": column.iter().filter_map(|cell| cell.cpu_s()).sum::<f64>(),
        "transport_share_total": report::transport_share(column),
    }))
}

/// Quantile by nearest rank, of values in ascending order; `None` if there are none.
pub fn quantile<T: Copy>(ascending: &[T], part: f64) -> Option<T> {
    let last = ascending.len().checked_sub(1)?;
    let rank = (part * ascending.len() as f64).ceil() as usize;
    Some(ascending[rank.saturating_sub(1).min(last)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_the_nearest_rank() {
        let check = |count: u32, part, expected| {
            let values: Vec<u32> = (1..=count).collect();
            assert_eq!(quantile(&values, part), expected, "{part} of {count}");
        };
        check(0, 0.5, None);
        check(1, 0.99, Some(1));
        check(100, 0.5, Some(50));
        check(100, 0.95, Some(95));
        check(100, 0.99, Some(99));
        check(1000, 0.999, Some(999));
    }

    /// A worker as a shell script: accepts the tables, answers every statement with one row.
    fn peer(folder: &Path, name: &str, value: &str) -> Configuration {
        let script = folder.join(name);
        let text = format!(
            "echo '{{\"engine\": \"{name} 1\"}}'\nread -r line; echo '{{\"ok\": true}}'\n\
             while read -r line; do case $line in *answer*) echo '{{\"answer\": [[\"{value}\"]]}}';; \
             *) echo '{{\"wall_s\": 0.25, \"rows\": 1}}';; esac; done\n"
        );
        std::fs::write(&script, text).unwrap();
        Configuration::peer(&format!("{name}=sh '{}'", script.display())).unwrap()
    }

    fn measure_peers(values: [&str; 2]) -> Measured {
        let folder = tempfile::tempdir().unwrap();
        let configurations = [peer(folder.path(), "a", values[0]), peer(folder.path(), "b", values[1])];
        let workload = Workload::new("shuffle", 1.0);
        let mut table = Vec::new();
        let measured = run(&workload, &configurations, &[], 3, folder.path(), &mut table);
        assert!(String::from_utf8(table).unwrap().contains("\nnarrow "));
        measured.unwrap_or_else(|failure| panic!("{}", failure.error.message))
    }

    #[test]
    fn two_configurations_are_measured_side_by_side() {
        let measured = measure_peers(["1", "1"]);
        assert_eq!(measured.wrong, 0);
        let configurations = measured.json["configurations"].as_array().unwrap();
        assert_eq!(configurations.len(), 2);
        assert_eq!(configurations[1]["wall_s_total"], 1.0);
        assert_eq!(configurations[1]["queries"][0]["wall_s"], json!([0.25, 0.25, 0.25]));
    }

    #[test]
    fn another_answer_is_wrong() {
        let measured = measure_peers(["1", "2"]);
        assert_eq!(measured.wrong, 4);
        let query = &measured.json["configurations"][1]["queries"][0];
        assert_eq!(query["problem"], "wrong answer: row 1, column 1: \"2\" instead of \"1\"");
        assert_eq!(query["wall_s_median"], Value::Null);
    }
}
