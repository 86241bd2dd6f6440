//! `harrier backup` and `harrier restore` (`harrier-backup`): command lines, output and SQLSTATEs.
//!
//! One process does the work. Under a launcher that is rank 0; the other ranks exit at once.
//!
//! Cancellation: Ctrl-C and SIGTERM leave the same state as a killed process: no backup and no warehouse,
//! only files that the next attempt reuses.

use std::process::ExitCode;

use harrier_backup::{self as backup, BackupEntry, CheckReport, Error, Place};
use harrier_engine::memory_size::format_bytes;
use harrier_engine::{Engine, EngineOptions, SqlError, SqlState};
use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};

use crate::completions::print_line;
use crate::sql::{SHUTDOWN, runtime};
use crate::warehouse_args::WarehouseArgs;
use harrier_error::exit;

/// Threads that read, compute checksums, and write.
const THREADS_MAX: usize = 8;

#[derive(clap::Args, Debug)]
pub(crate) struct BackupArgs {
    /// Where the backups of this warehouse are: a folder, s3://… or hdfs://…; new, or with earlier ones,
    /// whose files are not copied again
    #[arg(value_name = "TARGET")]
    target: String,
    #[command(flatten)]
    warehouse: WarehouseArgs,
    /// Remove all but the newest N backups when the new one is there, and the files that only they had
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// Make none, and list those that are there
    #[arg(long, conflicts_with_all = ["keep", "check"])]
    list: bool,
    /// Make none, read those that are there, and tell every file that is missing or damaged
    #[arg(long, conflicts_with = "keep")]
    check: bool,
    /// Check only this one
    #[arg(long, value_name = "ID", requires = "check")]
    backup: Option<String>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct RestoreArgs {
    /// Where the backups are: a folder, s3://… or hdfs://…
    #[arg(value_name = "TARGET")]
    target: String,
    #[command(flatten)]
    warehouse: WarehouseArgs,
    /// Which one, of those that `harrier backup --list` shows [default: the newest]
    #[arg(long, value_name = "ID")]
    backup: Option<String>,
}

/// Makes, lists or checks backups. Exits with status 3 if a check finds a problem.
pub(crate) fn run_backup(args: BackupArgs) -> ExitCode {
    if args.list {
        return run(async move { list(&backup::list(&args.target).await.map_err(sql_error)?) });
    }
    if args.check {
        return run(async move {
            let checked = backup::check(&args.target, args.backup.as_deref()).await;
            Ok(print_check(&checked.map_err(sql_error)?))
        });
    }
    run(make(args))
}

async fn make(args: BackupArgs) -> Result<u8, SqlError> {
    let mut options = EngineOptions::default();
    options.warehouse = args.warehouse.options();
    if options.warehouse.is_none() {
        return Err(no_memory());
    }
    let engine = Engine::try_new(options)?;
    let Some(catalog) = engine.claim_catalog().await? else {
        let place = args.warehouse.describe();
        return Err(SqlError::new(
            SqlState::INVALID_CATALOG_NAME,
            format!("there is no warehouse in \"{place}\""),
        ));
    };
    let keep = args.keep.map(|keep| keep as usize);
    let made = backup::backup(&catalog, &args.target, keep, &|notice| eprintln!("NOTICE: {notice}")).await;
    engine.close().await;
    let made = made.map_err(sql_error)?;
    let counted = |(files, bytes): (usize, u64)| format!("{} ({})", files_of(files), format_bytes(bytes));
    print_line(format_args!(
        "backup {} of snapshot {}: {} copied, {} there already",
        made.manifest.id,
        made.manifest.snapshot,
        counted(made.copied),
        counted(made.skipped)
    ));
    if args.keep.is_some() {
        let (backups, files) = made.removed;
        print_line(format_args!("removed {} and {}", number_of(backups, "older backup"), files_of(files)));
    }
    Ok(exit::DONE)
}

fn list(listed: &[BackupEntry]) -> Result<u8, SqlError> {
    for BackupEntry { id, manifest } in listed {
        match manifest {
            Ok(manifest) => print_line(format_args!(
                "{id}  snapshot {} of {}, {}, {}, Harrier {}",
                manifest.snapshot,
                manifest.snapshot_time,
                files_of(manifest.files.len()),
                format_bytes(manifest.bytes()),
                manifest.harrier
            )),
            Err(error) => print_line(format_args!("{id}  {error}")),
        }
    }
    print_line(format_args!("{}", number_of(listed.len(), "backup")));
    Ok(exit::DONE)
}

fn print_check(checked: &CheckReport) -> u8 {
    checked.problems.iter().for_each(|problem| print_line(format_args!("WRONG: {problem}")));
    print_line(format_args!(
        "{} checked: {} ({}), {} wrong",
        number_of(checked.backups.len(), "backup"),
        files_of(checked.files),
        format_bytes(checked.bytes),
        checked.problems.len()
    ));
    if checked.problems.is_empty() { exit::DONE } else { exit::BROKEN }
}

/// Restores a warehouse from a backup.
pub(crate) fn run_restore(args: RestoreArgs) -> ExitCode {
    run(async move {
        let Some(options) = args.warehouse.options() else { return Err(no_memory()) };
        let place = Place { catalog: options.catalog, data: options.data };
        let restored =
            backup::restore(&args.target, args.backup.as_deref(), &place).await.map_err(sql_error)?;
        let manifest = &restored.manifest;
        print_line(format_args!(
            "restored backup {} of snapshot {} into \"{}\": {} ({}) in \"{}\"",
            manifest.id,
            manifest.snapshot,
            args.warehouse.describe(),
            files_of(manifest.files.len()),
            format_bytes(manifest.bytes()),
            restored.data
        ));
        Ok(exit::DONE)
    })
}

/// Runs `work` until it ends or a signal arrives.
fn run(work: impl Future<Output = Result<u8, SqlError>>) -> ExitCode {
    if harrier_exec::launched_rank().is_some_and(|rank| rank > 0) {
        return ExitCode::from(exit::DONE);
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let runtime = match runtime(threads, "harrier") {
        Ok(runtime) => runtime,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(exit::FAILED);
        }
    };
    let status = runtime.block_on(async {
        let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
        let (Ok(mut interrupt), Ok(mut terminate)) = signals else { return report(work.await) };
        tokio::select! {
            done = work => report(done),
            _ = interrupt.recv() => report(Err(SqlError::new(SqlState::QUERY_CANCELED, "canceled by the user"))),
            _ = terminate.recv() => {
                report(Err(SqlError::new(SqlState::ADMIN_SHUTDOWN, "SIGTERM ended the process")));
                128 + Signal::SIGTERM as u8
            }
        }
    });
    runtime.block_on(backup::wait_for_pending_work());
    // Waits for exiting threads: joining them may fail in glibc while they exit (BZ 19951).
    runtime.shutdown_timeout(SHUTDOWN);
    ExitCode::from(status)
}

fn report(done: Result<u8, SqlError>) -> u8 {
    done.unwrap_or_else(|error| {
        eprintln!("{}", error.report(None));
        exit::FAILED
    })
}

fn no_memory() -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "a warehouse in memory has no backups")
}

fn files_of(count: usize) -> String {
    number_of(count, "file")
}

fn number_of(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Converts the error, with its SQLSTATE.
fn sql_error(error: Error) -> SqlError {
    let message = error.to_string();
    let state = match error {
        Error::Catalog(error) => return harrier_engine::catalog_error(error),
        Error::Refused { state, message, hint } => {
            let error = SqlError::new(state, message);
            return hint.into_iter().fold(error, SqlError::with_hint);
        }
        Error::Io { source, .. } => harrier_sqlstate::of_std(&source).unwrap_or(SqlState::IO_ERROR),
        Error::Store { source, .. } => harrier_sqlstate::of_std(&source).unwrap_or(SqlState::IO_ERROR),
        Error::Missing { .. } => SqlState::UNDEFINED_FILE,
        Error::Damaged { .. } => SqlState::DATA_CORRUPTED,
        _ => SqlState::INTERNAL_ERROR,
    };
    SqlError::new(state, message)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn errors_have_their_codes() {
        let check = |error: Error, code: &str| assert_eq!(sql_error(error).sqlstate.as_str(), code);
        let io = |code| Error::Io {
            action: "write",
            place: "x".to_string(),
            source: io::Error::from_raw_os_error(code),
        };
        check(io(28), "53100");
        check(io(13), "42501");
        check(io(5), "58030");
        check(Error::Missing { place: "x".to_string() }, "58P01");
        check(Error::Damaged { place: "x".to_string(), what: "is".to_string() }, "XX001");
        check(Error::Catalog(harrier_catalog::Error::NotFound("x".to_string())), "22023");
    }
}
