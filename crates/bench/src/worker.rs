//! `harrier bench-worker`: the worker of a benchmark, which runs the statements; see `protocol`.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use futures::TryStreamExt;
use harrier_engine::{Engine, EngineOptions, Outcome, Session, SqlError, WarehouseOptions, memory_size};
use harrier_exec::Launch;

use super::local_ranks;
use super::protocol::{Reply, Request};
use super::transport;
use harrier_error::exit;

/// Arguments of the hidden command, the same on every rank.
#[derive(clap::Args, Debug, Clone)]
pub struct WorkerArgs {
    /// Threads of each rank [default: the machine's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) threads: Option<u16>,
    /// Memory of each rank before it spills to disk, such as 8GiB
    #[arg(long, value_name = "SIZE", value_parser = memory_size)]
    memory: Option<u64>,
    /// Keep tables in this folder
    #[arg(long, value_name = "DIR")]
    tables: Option<PathBuf>,
    /// Set a parameter, as SET does
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(super) settings: Vec<(String, String)>,
    /// Ranks inside this one process; with harrier.interconnect=inprocess
    #[arg(long, value_name = "N")]
    pub inprocess_ranks: Option<usize>,
    /// Ranks of this host that meet over QUIC, started by the first of them
    #[arg(long, value_name = "N")]
    udp_ranks: Option<usize>,
    /// Move batches between ranks instead of running statements
    #[arg(long)]
    pub exchange: bool,
    /// Send bytes from one process to another, by this means
    #[arg(long, value_name = "NAME")]
    pub primitive: Option<String>,
}

impl WorkerArgs {
    /// Builds the options of the engine for these arguments.
    pub fn engine_options(&self) -> EngineOptions {
        let mut options = EngineOptions::default();
        if let Some(threads) = self.threads {
            options.threads = threads.into();
        }
        if self.memory.is_some() {
            options.memory_bytes = self.memory;
        }
        options.settings = self.settings.clone();
        options.warehouse = self.tables.as_deref().map(WarehouseOptions::folder);
        options
    }
}

/// Joins the ranks of the launcher, or of rank 0 of a gang without launcher.
pub fn launch(args: &WorkerArgs) -> Result<Option<Launch>, ExitCode> {
    match args.udp_ranks {
        None => harrier_exec::launch(None, false).map_err(|error| {
            eprintln!("{}", error.report());
            ExitCode::from(error.exit_status())
        }),
        Some(ranks) => local_ranks::start(ranks).map(Some).map_err(|error| {
            eprintln!("ERROR 58000: {error}");
            ExitCode::from(exit::BROKEN)
        }),
    }
}

fn memory_size(text: &str) -> Result<u64, String> {
    memory_size::parse_bytes(text).map_err(|error| error.message)
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

/// Answers the requests on standard input until it ends. For rank 0, or the only process; statements run one
/// at a time.
///
/// Errors: only those of standard input and output; an error of a statement is a reply.
pub async fn serve(engine: &Engine) -> io::Result<()> {
    let session = &engine.session();
    let mut last_rows = Vec::new();
    reply(&Reply::Engine(concat!("harrier ", env!("CARGO_PKG_VERSION")).to_owned()))?;
    // Standard input may be idle for long: do not block a thread that runs statements.
    while let Some(line) = tokio::task::spawn_blocking(next_line).await.map_err(io::Error::other)?? {
        let answer = match Request::parse(&line) {
            Ok(request) => answer(engine, session, request, &mut last_rows).await,
            Err(message) => Reply::Error(message),
        };
        reply(&answer)?;
    }
    Ok(())
}

/// Reads the next line of standard input; `None` at its end. Blocks.
pub(super) fn next_line() -> io::Result<Option<String>> {
    let mut line = String::new();
    Ok((io::stdin().lock().read_line(&mut line)? > 0).then_some(line))
}

/// Sends a reply to the driver.
pub(super) fn reply(reply: &Reply) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", reply.to_line())?;
    out.flush()
}

async fn answer(
    engine: &Engine,
    session: &Session,
    request: Request,
    last_rows: &mut Vec<RecordBatch>,
) -> Reply {
    match request {
        Request::Tables(tables) => {
            for (name, path) in tables {
                let path = path.replace('\'', "''");
                let sql = format!("CREATE EXTERNAL TABLE \"{name}\" STORED AS PARQUET LOCATION '{path}'");
                if let Err(error) = run(session, &sql).await {
                    return Reply::Error(text(&error));
                }
            }
            Reply::Ok
        }
        Request::Run(sql) => {
            // Freeing the previous result must not count as time of this statement.
            last_rows.clear();
            let before = transport::usage(engine, session).await;
            let start = Instant::now();
            match run(session, &sql).await {
                Ok(batches) => {
                    let wall = start.elapsed();
                    *last_rows = batches;
                    let rows = last_rows.iter().map(|batch| batch.num_rows() as u64).sum();
                    let transport_share = transport::share(engine, session, before).await;
                    Reply::Ran { wall, rows, transport_share }
                }
                Err(error) => Reply::Error(text(&error)),
            }
        }
        Request::Answer => match rows(last_rows) {
            Ok(rows) => Reply::Answer(rows),
            Err(error) => Reply::Error(error.to_string()),
        },
        Request::Transfer(_)
        | Request::RoundTrips(_)
        | Request::PingPong { .. }
        | Request::Packets { .. } => Reply::Error("a worker for statements only runs these".to_owned()),
    }
}

/// Runs all statements of `sql`; returns the rows of the last one that has some.
async fn run(session: &Session, sql: &str) -> Result<Vec<RecordBatch>, SqlError> {
    let mut batches = Vec::new();
    for statement in session.statements(sql)? {
        match session.execute(&statement).await? {
            Outcome::Rows { stream, .. } => {
                batches = stream
                    .try_collect()
                    .await
                    .map_err(|error| harrier_engine::in_statement(&error, &statement.text))?;
            }
            Outcome::Write(write) => {
                write.finish().await?;
            }
            _ => {}
        }
    }
    Ok(batches)
}

fn text(error: &SqlError) -> String {
    let mut text = format!("{}: {}", error.sqlstate, error.message);
    for more in [&error.detail, &error.hint].into_iter().flatten() {
        text.push_str("; ");
        text.push_str(more);
    }
    text
}

/// Converts rows to text: numbers in full, dates as 1995-03-05.
fn rows(batches: &[RecordBatch]) -> Result<Vec<Vec<Option<String>>>, ArrowError> {
    let options = FormatOptions::default();
    let mut rows = Vec::new();
    for batch in batches {
        let columns = batch
            .columns()
            .iter()
            .map(|column| Ok((column, ArrayFormatter::try_new(column.as_ref(), &options)?)))
            .collect::<Result<Vec<_>, ArrowError>>()?;
        for row in 0..batch.num_rows() {
            let cells = columns.iter().map(|(column, formatter)| match column.is_null(row) {
                true => Ok(None),
                false => formatter.value(row).try_to_string().map(Some),
            });
            rows.push(cells.collect::<Result<_, _>>()?);
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Date32Array, Decimal128Array, Float64Array, StringViewArray};

    use super::*;

    #[test]
    fn rows_become_text() {
        let decimals =
            Decimal128Array::from(vec![Some(3_773_410_700), None]).with_precision_and_scale(15, 2).unwrap();
        let columns: [(&str, ArrayRef); 4] = [
            ("name", Arc::new(StringViewArray::from(vec!["A \"b\"", ""]))),
            ("sum", Arc::new(decimals)),
            ("ratio", Arc::new(Float64Array::from(vec![0.25, 1e300]))),
            ("day", Arc::new(Date32Array::from(vec![Some(9194), None]))),
        ];
        let batch =
            RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
                .unwrap();
        let rows = rows(&[batch]).unwrap();
        let texts: Vec<Vec<&str>> =
            rows.iter().map(|row| row.iter().map(|cell| cell.as_deref().unwrap_or("-")).collect()).collect();
        assert_eq!(texts[0], ["A \"b\"", "37734107.00", "0.25", "1995-03-05"]);
        assert_eq!(texts[1], ["", "-", "1e300", "-"]);
    }
}
