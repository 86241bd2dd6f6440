//! The command line `harrier`.

mod bar;
mod bench;
mod complete;
mod doctor;
mod exit;
mod gang;
mod generate;
mod interrupt;
mod lines;
mod meta;
mod output;
mod runner;
mod shell;
mod sql;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use mimalloc::MiMalloc;
use tracing_subscriber::EnvFilter;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// An SQL engine for a folder of files, alone or over MPI
#[derive(Parser, Debug)]
#[command(name = "harrier", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run SQL: statements, files, or a shell
    Sql(sql::Args),
    /// Make data to try things on
    Generate(generate::Args),
    /// Measure, beside others and in one run
    Bench(bench::Args),
    #[command(hide = true)]
    BenchWorker(bench::WorkerArgs),
    /// Show what was found on this machine and what is wrong with it
    Doctor(doctor::Args),
}

fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    log_to_stderr();
    harrier_engine::install_panic_hook();
    match (cli.command, matches.subcommand()) {
        (Command::Sql(args), Some((_, matches))) => sql::run(args, matches),
        (Command::Sql(_), None) => ExitCode::from(exit::USAGE),
        (Command::Generate(args), _) => match generate::run(args) {
            Ok(()) => ExitCode::from(exit::DONE),
            Err(error) => {
                eprintln!("{}", harrier_engine::SqlError::from(error).report(None));
                ExitCode::from(exit::FAILED)
            }
        },
        (Command::Bench(args), _) => bench::run(args),
        (Command::BenchWorker(args), _) => sql::run_worker(args),
        (Command::Doctor(args), _) => doctor::run(args),
    }
}

/// `HARRIER_LOG` says what is logged, as in `info` or `harrier_engine=debug`; warnings by default.
fn log_to_stderr() {
    let filter = EnvFilter::try_from_env("HARRIER_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
}
