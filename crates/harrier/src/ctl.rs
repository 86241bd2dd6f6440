//! `harrier ctl`: monitors and controls a running server.
//!
//! It is an ordinary client: everything here is SQL over the PostgreSQL protocol that psql could send as
//! well. Results are printed as `harrier sql` prints them.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use harrier_error::{SqlState, exit};
use nix::unistd::{Uid, User};
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection, Row, TypeInfo, ValueRef};

use crate::output::{Format, row_writer};
use crate::serve::NEEDS_RESTART;

/// Default address of the server.
const HOST: &str = "127.0.0.1";
const PORT: u16 = 5433;
const DATABASE: &str = "warehouse";

/// Timeout of connecting.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// How long `rank-down` and `rank-up` wait for the gang.
const GANG_PATIENCE: Duration = Duration::from_secs(10);

/// Poll interval while waiting for an action to complete.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
    /// Where the server is: a name, an address, or the folder of its socket [default: $PGHOST or 127.0.0.1]
    #[arg(long, global = true, value_name = "HOST")]
    host: Option<String>,
    /// [default: $PGPORT or 5433]
    #[arg(long, global = true)]
    port: Option<u16>,
    /// [default: $PGUSER or who calls this]; a password is taken from $PGPASSWORD or ~/.pgpass
    #[arg(long, global = true, value_name = "ROLE")]
    user: Option<String>,
    /// How rows are written
    #[arg(long, global = true, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    /// List the ranks of the gang, with what they have sent and hold
    Ranks,
    /// List who is connected
    Sessions,
    /// List statements that run, wait or have ended
    Statements,
    /// List resource queues
    Queues,
    /// List the disks that the server and its ranks spill to
    Disks,
    /// Cancel what a session runs
    Cancel { pid: i32 },
    /// End a session
    Terminate { pid: i32 },
    /// Let nobody in any more but operators, and have the others end with their transactions
    Drain {
        /// Return when the last of them has ended
        #[arg(long)]
        wait: bool,
    },
    /// Let everybody in again
    Resume,
    /// Have the configuration read again
    Reload,
    /// Have statements that begin from now on run without a rank; a spare takes its place
    RankDown { rank: i64 },
    /// Have a rank that was marked down take part again
    RankUp { rank: i64 },
    /// Have a rank run on another host of the launcher's hosts file, when the statements that run have ended.
    ///
    /// MPI cannot add a rank to a gang that runs: all ranks are started again. Sessions and queues live on,
    /// and statements run in the server's process meanwhile.
    MoveRank {
        rank: i64,
        /// As the launcher's hosts file names it
        #[arg(value_name = "HOST")]
        target: String,
        /// Return when the ranks have met
        #[arg(long)]
        wait: bool,
    },
    /// Start all ranks again, on the hosts that the launcher's hosts file names now, when the statements that
    /// run have ended
    RestartGang {
        /// Return when the ranks have met
        #[arg(long)]
        wait: bool,
    },
}

/// Runs the action. Exit status 1: the server refused; 3: there is no server.
pub(crate) fn run(args: Args) -> ExitCode {
    let runtime = match crate::sql::runtime(1, "harrier-ctl") {
        Ok(runtime) => runtime,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(exit::FAILED);
        }
    };
    match runtime.block_on(execute(args)) {
        Ok(()) => ExitCode::from(exit::DONE),
        Err(CommandError { message, status }) => {
            eprintln!("{message}");
            ExitCode::from(status)
        }
    }
}

/// Error message for the user, and exit status.
struct CommandError {
    message: String,
    status: u8,
}

impl From<sqlx::Error> for CommandError {
    fn from(error: sqlx::Error) -> Self {
        let status = if error.as_database_error().is_some() { exit::FAILED } else { exit::BROKEN };
        let Some(error) = error.as_database_error() else {
            return Self { message: format!("ERROR 08006: {error}"), status };
        };
        let state = error.code().unwrap_or_else(|| SqlState::INTERNAL_ERROR.to_string().into());
        Self { message: format!("ERROR {state}: {}", error.message()), status }
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        Self { message: format!("ERROR 58030: {error}"), status: exit::FAILED }
    }
}

async fn execute(args: Args) -> Result<(), CommandError> {
    let mut connection = connect(&args).await?;
    let changed = match &args.action {
        Action::Ranks => {
            return print(&mut connection, "SELECT * FROM sys.ranks ORDER BY rank", args.format).await;
        }
        Action::Sessions => {
            let own = "pid <> pg_backend_pid()";
            let sql = format!("SELECT * FROM sys.sessions WHERE {own} ORDER BY pid");
            return print(&mut connection, &sql, args.format).await;
        }
        Action::Statements => {
            let sql = "SELECT * FROM sys.statements WHERE pid <> pg_backend_pid() ORDER BY id";
            return print(&mut connection, sql, args.format).await;
        }
        Action::Queues => {
            return print(&mut connection, "SELECT * FROM sys.queues ORDER BY name", args.format).await;
        }
        Action::Disks => {
            let sql = "SELECT * FROM sys.disks ORDER BY rank NULLS FIRST, folder";
            return print(&mut connection, sql, args.format).await;
        }
        Action::Cancel { pid } => {
            call_function(&mut connection, &format!("pg_cancel_backend({pid})")).await?
        }
        Action::Terminate { pid } => {
            call_function(&mut connection, &format!("pg_terminate_backend({pid})")).await?
        }
        Action::Drain { .. } => call_function(&mut connection, "harrier_drain()").await?,
        Action::Resume => call_function(&mut connection, "harrier_resume()").await?,
        Action::Reload => {
            reload(&mut connection).await?;
            true
        }
        Action::RankDown { rank } => {
            let changed = call_function(&mut connection, &format!("harrier_rank_down({rank})")).await?;
            let seen = format!("SELECT count(*) > 0 FROM sys.ranks WHERE rank = {rank} AND state = 'down'");
            wait_for_gang(&mut connection, &seen).await?;
            changed
        }
        Action::RankUp { rank } => {
            let changed = call_function(&mut connection, &format!("harrier_rank_up({rank})")).await?;
            let seen = format!("SELECT count(*) > 0 FROM sys.ranks WHERE rank = {rank} AND state <> 'down'");
            wait_for_gang(&mut connection, &seen).await?;
            changed
        }
        Action::RestartGang { wait } => restart(&mut connection, "harrier_restart_gang()", *wait).await?,
        Action::MoveRank { rank, target, wait } => {
            let call = format!("harrier_move_rank({rank}, '{}')", target.replace('\'', "''"));
            restart(&mut connection, &call, *wait).await?
        }
    };
    let refusal = match (&args.action, changed) {
        (Action::Cancel { pid } | Action::Terminate { pid }, false) => format!("there is no session {pid}"),
        (Action::MoveRank { rank, target, .. }, false) => format!("rank {rank} is on {target} already"),
        (Action::Resume, false) => "the server was not being drained".to_string(),
        _ => String::new(),
    };
    if !refusal.is_empty() {
        return Err(CommandError { message: format!("ERROR 55000: {refusal}"), status: exit::FAILED });
    }
    if let Action::Drain { wait: true } = args.action {
        let gone = "SELECT count(*) = 0 FROM sys.sessions WHERE pid <> pg_backend_pid() AND NOT operator";
        wait_until(&mut connection, gone).await?;
    }
    Ok(connection.close().await?)
}

/// Calls a function that restarts the gang; with `wait`, waits for the new gang. Returns whether the function
/// changed anything.
async fn restart(connection: &mut PgConnection, call: &str, wait: bool) -> Result<bool, CommandError> {
    let generation = fetch_one(connection, GENERATION).await?;
    let changed = call_function(connection, call).await?;
    if changed && wait {
        let up =
            format!("SELECT count(*) > 0 FROM sys.ranks WHERE state = 'working' AND gang > {generation}");
        wait_until(connection, &up).await?;
    }
    Ok(changed)
}

/// Reloads the configuration and reports the outcome.
async fn reload(connection: &mut PgConnection) -> Result<(), CommandError> {
    const OUTCOME: &str = "harrier_reload_outcome()";
    let before = fetch_one(connection, &format!("SELECT {OUTCOME}")).await?;
    call_function(connection, "pg_reload_conf()").await?;
    wait_until(connection, &format!("SELECT {OUTCOME} <> '{}'", before.replace('\'', "''"))).await?;
    let outcome = fetch_one(connection, &format!("SELECT {OUTCOME}")).await?;
    // A sequence number precedes the message, so that equal outcomes differ.
    let report = outcome.split_once(' ').map_or("", |(_, report)| report);
    if let Some(restart) = report.strip_prefix(NEEDS_RESTART) {
        eprintln!("a restart is needed for {restart}");
    } else if !report.is_empty() {
        let message = format!("ERROR F0000: the configuration stays as it is: {report}");
        return Err(CommandError { message, status: exit::FAILED });
    }
    Ok(())
}

/// Number of gang starts so far.
const GENERATION: &str = "SELECT coalesce(max(gang), 0) FROM sys.ranks";

async fn connect(args: &Args) -> Result<PgConnection, CommandError> {
    // Environment variables apply where the command line has no option.
    let mut options = PgConnectOptions::new().disable_statement_logging();
    let has = |name: &str| std::env::var_os(name).is_some();
    match (&args.host, has("PGHOST")) {
        (Some(folder), _) if folder.starts_with('/') => options = options.socket(folder),
        (Some(host), _) => options = options.host(host),
        (None, true) => {}
        (None, false) => options = options.host(HOST),
    }
    match (args.port, has("PGPORT")) {
        (Some(port), _) => options = options.port(port),
        (None, true) => {}
        (None, false) => options = options.port(PORT),
    }
    match (&args.user, has("PGUSER")) {
        (Some(user), _) => options = options.username(user),
        (None, true) => {}
        (None, false) => {
            if let Ok(Some(user)) = User::from_uid(Uid::effective()) {
                options = options.username(&user.name);
            }
        }
    }
    if !has("PGDATABASE") {
        options = options.database(DATABASE);
    }
    options = options.application_name("harrier ctl").options([("harrier.operator", "on")]);
    match tokio::time::timeout(CONNECT_PATIENCE, options.connect()).await {
        Ok(connection) => Ok(connection?),
        Err(_) => {
            let message =
                format!("ERROR 08006: the server has not answered in {} s", CONNECT_PATIENCE.as_secs());
            Err(CommandError { message, status: exit::BROKEN })
        }
    }
}

/// Fetches the only value of the only row, as text.
async fn fetch_one(connection: &mut PgConnection, sql: &str) -> Result<String, CommandError> {
    let row = sqlx::raw_sql(AssertSqlSafe(sql.to_string())).fetch_one(&mut *connection).await?;
    Ok(text(&row, 0)?.unwrap_or_default())
}

/// Calls a function; returns whether it changed anything.
async fn call_function(connection: &mut PgConnection, call: &str) -> Result<bool, CommandError> {
    Ok(fetch_one(connection, &format!("SELECT {call}")).await? == "t")
}

/// Waits until the gang has followed an order: it does at once, unless it is being started.
async fn wait_for_gang(connection: &mut PgConnection, question: &str) -> Result<(), CommandError> {
    let since = Instant::now();
    while fetch_one(connection, question).await? != "t" {
        if since.elapsed() > GANG_PATIENCE {
            eprintln!("the gang has not followed yet: see harrier ctl ranks");
            break;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Polls a boolean query until it returns true.
async fn wait_until(connection: &mut PgConnection, question: &str) -> Result<(), CommandError> {
    while fetch_one(connection, question).await? != "t" {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Prints the rows of a query.
async fn print(connection: &mut PgConnection, sql: &str, format: Format) -> Result<(), CommandError> {
    let rows = sqlx::raw_sql(AssertSqlSafe(sql.to_string())).fetch_all(&mut *connection).await?;
    let batch = match rows.is_empty() {
        false => batch(&rows)?,
        true => {
            let statement =
                connection.prepare(sqlx::SqlSafeStr::into_sql_str(AssertSqlSafe(sql.to_string()))).await?;
            let names = sqlx::Statement::columns(&statement).iter().map(sqlx::Column::name);
            let fields: Vec<Field> = names.map(|name| Field::new(name, DataType::Utf8, true)).collect();
            RecordBatch::new_empty(Arc::new(Schema::new(fields)))
        }
    };
    let mut out = Vec::new();
    let mut writer = row_writer(format, &batch.schema(), "");
    let unwritable = |error: crate::output::OutputError| CommandError {
        message: format!("ERROR 58030: {error:?}"),
        status: exit::FAILED,
    };
    writer.batch(&mut out, &batch).map_err(unwritable)?;
    writer.end(&mut out).map_err(unwritable)?;
    let mut stdout = io::stdout().lock();
    match stdout.write_all(&out).and_then(|()| stdout.flush()) {
        // Its reader has read enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// The value in text form; the simple protocol sends text only.
fn text(row: &PgRow, column: usize) -> Result<Option<String>, sqlx::Error> {
    let value = row.try_get_raw(column)?;
    match value.is_null() {
        true => Ok(None),
        false => value.as_str().map(|text| Some(text.to_string())).map_err(sqlx::Error::Decode),
    }
}

/// Builds a batch of one or more rows, with the types that JSON distinguishes.
fn batch(rows: &[PgRow]) -> Result<RecordBatch, CommandError> {
    let mut columns = Vec::new();
    for (at, column) in rows[0].columns().iter().enumerate() {
        let texts = rows.iter().map(|row| text(row, at)).collect::<Result<Vec<_>, _>>()?;
        let array: ArrayRef = match sqlx::Column::type_info(column).name() {
            "INT2" | "INT4" | "INT8" => {
                let parsed = |text: &Option<String>| text.as_ref()?.parse::<i64>().ok();
                Arc::new(texts.iter().map(parsed).collect::<Int64Array>())
            }
            "FLOAT4" | "FLOAT8" => {
                let parsed = |text: &Option<String>| text.as_ref()?.parse::<f64>().ok();
                Arc::new(texts.iter().map(parsed).collect::<Float64Array>())
            }
            "BOOL" => {
                let parsed = |text: &Option<String>| text.as_ref().map(|text| text == "t");
                Arc::new(texts.iter().map(parsed).collect::<BooleanArray>())
            }
            _ => Arc::new(texts.into_iter().collect::<StringArray>()),
        };
        columns.push((sqlx::Column::name(column).to_string(), array, true));
    }
    RecordBatch::try_from_iter_with_nullable(columns)
        .map_err(|error| CommandError { message: format!("ERROR XX000: {error}"), status: exit::FAILED })
}
