//! `harrier bench plan`: the cost of a table of very many files before any file is opened: committing them,
//! and planning queries.
//!
//! The files do not exist. They are registered in the catalog as a statement that has written them would, a
//! fixed number per commit, with statistics of every column; each commit is timed. Then `EXPLAIN` of a few
//! queries is timed, embedded, from its text to its last line, each time in a new engine: *cold*, as its
//! first statement, which opens the catalog; *warm*, once more; and *after a commit* of one file by another
//! session. The queries:
//!
//! | query | its filter | files in its plan |
//! |---|---|---|
//! | `all` | none | all |
//! | `one` | a value of a column whose bounds no two files share | one |
//! | `hundredth` | a range of the same column | a hundredth |
//! | `unhelped` | a value of a column whose bounds are the same in all files | all, after all statistics have been checked |
//!
//! The number of files in a plan is compared with the expected one. A plan that opened a file would fail, as
//! the query does when it runs, which is checked, too. The times include EXPLAIN's own work of counting the
//! files and formatting text: planning alone takes less.
//!
//! Errors: as for `bench`.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Instant;

use arrow::util::display::array_value_to_string;
use futures::TryStreamExt;
use harrier_catalog::files::{ColumnStats, NewFile};
use harrier_catalog::state::Location;
use harrier_catalog::{Catalog, CommitNote, Transaction};
use harrier_engine::{Engine, EngineOptions, Outcome, Session, SqlError, SqlState, WarehouseOptions};
use serde_json::{Value, json};

use super::cell::median;
use super::commit::{one, to_failure};
use super::folder::Folder;
use super::progress::Progress;
use super::{Failure, keep, machine, require_none_wrong};

/// Name on the command line and in the JSON result.
const NAME: &str = "plan";

const TABLE: &str = "many";

/// Rows per file.
const FILE_ROWS: u32 = 100;

#[derive(clap::Args, Debug)]
pub struct Options {
    /// Files of the table
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    files: u32,
    /// Files of each commit
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    commit_files: u32,
    /// Columns of the table
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(3..=1000))]
    columns: u32,
    /// Timed runs of each query
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Threads [default: the machine's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Write all measurements here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the command. Blocks until it is done.
pub fn run(options: &Options) -> Result<(), Failure> {
    let threads = options.threads.map_or_else(machine::cores, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .map_err(|error| Failure::dead(format!("cannot start {threads} threads: {error}")))?;
    let folder = Folder::new(NAME)?;
    let warehouse = WarehouseOptions::folder(&folder.0);
    let mut out = std::io::stdout();
    let mut progress = Progress::new(&mut out);
    let commits_s = runtime.block_on(commits(options, threads, &warehouse, &mut progress))?;
    progress.print(&commits_text(options, &commits_s));
    let queries = runtime.block_on(plans(options, threads, &warehouse, &mut progress))?;
    progress.print(&plans_text(&queries));
    let result = json!({
        "benchmark": NAME,
        "title": "A table of many files",
        "when": machine::now(),
        "harrier": env!("CARGO_PKG_VERSION"),
        "machine": machine::json(),
        "threads": threads,
        "files": options.files,
        "columns": options.columns,
        "runs": options.runs,
        "commit_files": options.commit_files,
        "commits_s": commits_s,
        "commit_s_median": median(commits_s.clone()),
        "queries": queries.iter().map(Planned::json).collect::<Vec<_>>(),
    });
    keep(&result, options.json.as_deref(), None)?;
    let wrong = queries.iter().filter(|query| query.problem.is_some()).count();
    require_none_wrong(wrong, "queries")
}

fn engine(threads: usize, warehouse: &WarehouseOptions) -> Result<Engine, SqlError> {
    let mut options = EngineOptions::default();
    options.threads = threads;
    options.warehouse = Some(warehouse.clone());
    Engine::try_new(options)
}

/// Creates the table with all its files. Returns the seconds of each commit.
async fn commits(
    options: &Options,
    threads: usize,
    warehouse: &WarehouseOptions,
    progress: &mut Progress<'_>,
) -> Result<Vec<f64>, Failure> {
    let columns: Vec<String> = (1..=options.columns).map(|number| format!("c{number} BIGINT")).collect();
    let session = engine(threads, warehouse).map_err(to_failure)?.session();
    one(&session, &format!("CREATE TABLE {TABLE} ({})", columns.join(", "))).await.map_err(to_failure)?;
    let catalog = Catalog::open(&warehouse.catalog).await.map_err(of_catalog)?;
    let mut seconds = Vec::new();
    for first in (0..options.files).step_by(options.commit_files as usize) {
        let end = first.saturating_add(options.commit_files).min(options.files);
        progress.step(format!("committing files {first} to {end} of {}", options.files));
        progress.tick();
        seconds.push(commit_files(&catalog, first..end).await?);
    }
    Ok(seconds)
}

/// Adds files of these numbers to the table. Returns the seconds of the commit.
async fn commit_files(catalog: &Catalog, numbers: Range<u32>) -> Result<f64, Failure> {
    let head = catalog.head().await.map_err(of_catalog)?;
    let table = head.tables.values().find(|table| table.name == TABLE).cloned();
    let table = table.ok_or_else(|| Failure::dead("the catalog has not kept the table"))?;
    let columns: Vec<i64> = table.columns.iter().map(|column| column.id).collect();
    let mut transaction = Transaction::new(head);
    transaction.changes_of(table.id).added = numbers.map(|number| file(number, &columns)).collect();
    let start = Instant::now();
    catalog.commit(&transaction, &CommitNote::default()).await.map_err(of_catalog)?;
    Ok(start.elapsed().as_secs_f64())
}

fn of_catalog(error: harrier_catalog::Error) -> Failure {
    Failure::dead(format!("the catalog: {error}"))
}

/// Builds a file that does not exist: the second column's bounds are the same in all files, those of every
/// other column are unique.
fn file(number: u32, columns: &[i64]) -> NewFile {
    let stats = |first: u32| ColumnStats {
        bytes: Some(8 * i64::from(FILE_ROWS)),
        values: Some(i64::from(FILE_ROWS)),
        nulls: Some(0),
        min: Some(first.to_string()),
        max: Some((first + FILE_ROWS - 1).to_string()),
        nan: None,
    };
    let of_column = |(at, id): (usize, &i64)| (*id, stats(if at == 1 { 0 } else { number * FILE_ROWS }));
    NewFile {
        path: Location::relative(format!("part-{number:08}.parquet")),
        rows: i64::from(FILE_ROWS),
        bytes: 1 << 20,
        footer_bytes: 500,
        partition_values: Vec::new(),
        stats: columns.iter().enumerate().map(of_column).collect(),
        deleted: Default::default(),
        deletes: None,
    }
}

/// One query, and its planning times.
struct Planned {
    name: &'static str,
    sql: String,
    /// Expected number of files in its plan, for the original table.
    files: u32,
    /// Whether its plan also contains files added later.
    takes_added: bool,
    /// As the first statement of an engine.
    cold_s: Vec<f64>,
    /// As the second statement.
    warm_s: Vec<f64>,
    /// Again, after another session has added a file.
    after_commit_s: Vec<f64>,
    problem: Option<String>,
}

impl Planned {
    /// Plans the query and returns the seconds. `added`: number of files added since the table was created.
    async fn plan(&mut self, session: &Session, added: u32) -> f64 {
        let start = Instant::now();
        let plan = lines(session, &format!("EXPLAIN {}", self.sql)).await;
        let wall_s = start.elapsed().as_secs_f64();
        let expected = self.files + if self.takes_added { added } else { 0 };
        match plan.map(|lines| files_of(&lines)) {
            Ok(Some(files)) if files == expected => {}
            Ok(files) => {
                let files = files.map_or_else(|| "no number of".to_owned(), |files| files.to_string());
                self.problem = Some(format!("a plan with {files} files instead of {expected}"));
            }
            Err(error) => self.problem = Some(format!("{} {}", error.sqlstate, error.message)),
        }
        wall_s
    }

    fn json(&self) -> Value {
        let median_of = |seconds: &Vec<f64>| median(seconds.clone());
        json!({
            "query": self.name, "sql": self.sql, "files": self.files, "problem": self.problem,
            "cold_s": self.cold_s, "cold_s_median": median_of(&self.cold_s),
            "warm_s": self.warm_s, "warm_s_median": median_of(&self.warm_s),
            "after_commit_s": self.after_commit_s, "after_commit_s_median": median_of(&self.after_commit_s),
        })
    }
}

/// Returns the queries of a table with this many files.
fn queries(files: u32) -> Vec<Planned> {
    let (middle, hundredth) = (files / 2, (files / 100).max(1));
    let value = |number: u32| number * FILE_ROWS;
    let from = value(middle);
    let filters = [
        ("all", String::new(), files),
        ("one", format!(" WHERE c1 = {}", from + FILE_ROWS / 2), 1),
        ("hundredth", format!(" WHERE c1 >= {from} AND c1 < {}", value(middle + hundredth)), hundredth),
        ("unhelped", format!(" WHERE c2 = {}", FILE_ROWS / 2), files),
    ];
    let planned = |(name, filter, files): (&'static str, String, u32)| Planned {
        name,
        sql: format!("SELECT sum(c3) FROM {TABLE}{filter}"),
        files,
        takes_added: matches!(name, "all" | "unhelped"),
        cold_s: Vec::new(),
        warm_s: Vec::new(),
        after_commit_s: Vec::new(),
        problem: None,
    };
    filters.into_iter().map(planned).collect()
}

/// Plans all queries in turn, repeatedly.
async fn plans(
    options: &Options,
    threads: usize,
    warehouse: &WarehouseOptions,
    progress: &mut Progress<'_>,
) -> Result<Vec<Planned>, Failure> {
    let mut queries = queries(options.files);
    let catalog = Catalog::open(&warehouse.catalog).await.map_err(of_catalog)?;
    let mut added = 0;
    for run in 1..=options.runs {
        for query in &mut queries {
            progress.step(format!("planning \"{}\", run {run} of {}", query.name, options.runs));
            progress.tick();
            let session = engine(threads, warehouse).map_err(to_failure)?.session();
            let cold_s = query.plan(&session, added).await;
            let warm_s = query.plan(&session, added).await;
            commit_files(&catalog, options.files + added..options.files + added + 1).await?;
            added += 1;
            let after_commit_s = query.plan(&session, added).await;
            query.cold_s.push(cold_s);
            query.warm_s.push(warm_s);
            query.after_commit_s.push(after_commit_s);
        }
    }
    let session = engine(threads, warehouse).map_err(to_failure)?.session();
    // No file was opened above: that would have failed as this does.
    for query in &mut queries {
        progress.step(format!("running \"{}\", which is to fail", query.name));
        if lines(&session, &query.sql).await.is_ok() {
            query.problem = Some("it runs, over files that are not there".to_owned());
        }
    }
    Ok(queries)
}

/// Returns the first column of a statement's result, as text.
async fn lines(session: &Session, sql: &str) -> Result<Vec<String>, SqlError> {
    let Outcome::Rows { stream, .. } = one(session, sql).await? else {
        return Err(SqlError::new(SqlState::INTERNAL_ERROR, "no rows"));
    };
    let batches: Vec<_> = stream.try_collect().await.map_err(harrier_engine::sql_error)?;
    let mut lines = Vec::new();
    for batch in &batches {
        for row in 0..batch.num_rows() {
            let text = array_value_to_string(batch.column(0), row);
            lines.push(text.map_err(|error| SqlError::new(SqlState::INTERNAL_ERROR, error.to_string()))?);
        }
    }
    Ok(lines)
}

/// Returns the number of files of a plan's only scan: `files=12, splits=24`.
fn files_of(plan: &[String]) -> Option<u32> {
    let (_, rest) = plan.iter().find_map(|line| line.split_once("files="))?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

fn commits_text(options: &Options, commits_s: &[f64]) -> String {
    let longest_s = commits_s.iter().copied().fold(0.0, f64::max);
    format!(
        "{} files with statistics of {} columns, catalog in SQLite\n\n{} commits of {} files: median {:.3} s, longest {longest_s:.3} s",
        options.files,
        options.columns,
        commits_s.len(),
        options.commit_files.min(options.files),
        median(commits_s.to_vec()).unwrap_or_default()
    )
}

fn plans_text(queries: &[Planned]) -> String {
    let mut text = format!(
        "\n{:<10} {:>9} {:>9} {:>9} {:>9} {:>9}  seconds, medians",
        "plan", "files", "cold", "warm", "committed", "longest"
    );
    for Planned { name, files, cold_s, warm_s, after_commit_s, problem, .. } in queries {
        let longest_s = [cold_s, warm_s, after_commit_s].into_iter().flatten().copied().fold(0.0, f64::max);
        let [cold_s, warm_s, after_commit_s] =
            [cold_s, warm_s, after_commit_s].map(|seconds| median(seconds.clone()).unwrap_or_default());
        text.push_str(&format!(
            "\n{name:<10} {files:>9} {cold_s:>9.3} {warm_s:>9.3} {after_commit_s:>9.3} {longest_s:>9.3}"
        ));
        if let Some(problem) = problem {
            text.push_str(&format!("  {problem}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_know_their_files() {
        let file_counts =
            |files| queries(files).iter().map(|query| (query.name, query.files)).collect::<Vec<_>>();
        assert_eq!(file_counts(500), [("all", 500), ("one", 1), ("hundredth", 5), ("unhelped", 500)]);
        assert_eq!(file_counts(1), [("all", 1), ("one", 1), ("hundredth", 1), ("unhelped", 1)]);
        let sql = |at: usize| queries(500)[at].sql.clone();
        assert_eq!(sql(1), "SELECT sum(c3) FROM many WHERE c1 = 25050");
        assert_eq!(sql(2), "SELECT sum(c3) FROM many WHERE c1 >= 25000 AND c1 < 25500");
        let file = file(250, &[1, 2, 3]);
        let bounds = |id: i64| (file.stats[&id].min.as_deref(), file.stats[&id].max.as_deref());
        assert_eq!(bounds(1), (Some("25000"), Some("25099")));
        assert_eq!(bounds(2), (Some("0"), Some("99")));
    }

    #[test]
    fn files_are_read_from_a_plan() {
        let plan = ["Physical plan".to_owned(), "  DataSourceExec: files=12, splits=24".to_owned()];
        assert_eq!(files_of(&plan), Some(12));
        assert_eq!(files_of(&plan[..1]), None);
    }
}
