//! Command line of the program `harrier`.

mod arguments;
mod backup;
mod bar;
mod complete;
mod completions;
mod copy_input;
mod ctl;
mod doctor;
mod freed_memory;
mod gang;
mod generate;
mod interrupt;
mod lines;
mod manual;
mod meta;
mod option_values;
mod output;
mod reference;
mod runner;
mod scripts;
mod serve;
mod shell;
mod sink;
mod sql;
mod statements;
mod sys_interconnect;
mod trace_file;
mod variables;
mod warehouse_args;

use std::fmt;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use harrier_error::exit;
use harrier_sql::nesting::THREAD_STACK_BYTES;
use mimalloc::MiMalloc;
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// An SQL engine for a folder of files, alone, over MPI, or over the hosts of a file
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
    /// Serve a warehouse to the clients of PostgreSQL, until it is asked to end
    Serve(serve::Args),
    /// Look at a server that runs, and tell it what to do
    Ctl(ctl::Args),
    #[command(hide = true)]
    Rank(serve::RankArgs),
    /// Copy a warehouse to a folder or an object store, beside all that runs on it
    Backup(backup::BackupArgs),
    /// Make a warehouse of a backup
    Restore(backup::RestoreArgs),
    /// Make data to try things on
    Generate(generate::Args),
    /// Measure, beside others and in one run
    Bench(harrier_bench::Args),
    #[command(hide = true)]
    BenchWorker(harrier_bench::WorkerArgs),
    /// Show what was found on this machine and what is wrong with it
    Doctor(doctor::Args),
    /// Print what a shell needs to complete commands and options
    Completions(completions::Args),
    /// Print the manual page, or write those of all commands
    Man(manual::Args),
    #[command(hide = true)]
    Reference(reference::Args),
}

/// The command line as parsed.
fn command_line() -> clap::Command {
    // These commands need a persistent warehouse.
    const PERSISTENT: [&str; 3] = ["serve", "backup", "restore"];
    Cli::command().mut_subcommands(|command| match PERSISTENT.contains(&command.get_name()) {
        true => command.mut_arg("warehouse", |arg| arg.help("Folder of the warehouse, where tables stay")),
        false => command,
    })
}

/// The command line without internal commands, for documentation.
fn visible_command_line() -> clap::Command {
    let all = command_line();
    let visible = clap::Command::new("harrier").version(env!("CARGO_PKG_VERSION"));
    let visible = all.get_about().cloned().into_iter().fold(visible, clap::Command::about);
    let commands = all.get_subcommands().filter(|command| !command.is_hide_set());
    visible.subcommands(commands.cloned()).subcommand_required(true)
}

/// Runs on a thread whose stack is large enough for the tree of any statement; the main thread's stack
/// depends on `ulimit -s`.
fn main() -> ExitCode {
    let main = std::thread::Builder::new().name("main".to_string()).stack_size(THREAD_STACK_BYTES);
    match main.spawn(run).map(std::thread::JoinHandle::join) {
        Ok(Ok(status)) => status,
        Ok(Err(_)) => ExitCode::from(exit::FAILED),
        Err(error) => {
            eprintln!("ERROR 53000: cannot start a thread: {error}");
            ExitCode::from(exit::FAILED)
        }
    }
}

fn run() -> ExitCode {
    harrier_mpi::processor::check();
    freed_memory::set_purge_delay();
    harrier_mpi::process::survive_notification_signals();
    let matches = command_line().get_matches();
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    log_to_stderr();
    let writes_rows = !matches!(cli.command, Command::Serve(_) | Command::Rank(_) | Command::BenchWorker(_));
    if writes_rows && !harrier_mpi::terminal::has_stdout() {
        eprintln!("ERROR 58030: standard output is closed, and what is to be written would be lost");
        return ExitCode::from(exit::FAILED);
    }
    harrier_engine::install_panic_hook();
    match (cli.command, matches.subcommand()) {
        (Command::Sql(args), Some((_, matches))) => sql::run(args, matches),
        (Command::Sql(_), None) => ExitCode::from(exit::USAGE),
        (Command::Serve(args), _) => serve::run(args),
        (Command::Ctl(args), _) => ctl::run(args),
        (Command::Rank(args), _) => serve::run_rank(args),
        (Command::Backup(args), _) => backup::run_backup(args),
        (Command::Restore(args), _) => backup::run_restore(args),
        (Command::Generate(args), _) => match generate::run(args) {
            Ok(()) => ExitCode::from(exit::DONE),
            Err(error) => {
                eprintln!("{}", error.report(None));
                ExitCode::from(exit::FAILED)
            }
        },
        (Command::Bench(args), _) => harrier_bench::run(args, cfg!(optimised)),
        (Command::BenchWorker(args), _) if args.primitive.is_some() => harrier_bench::run_primitive(&args),
        (Command::BenchWorker(args), _) if args.exchange => harrier_bench::run_exchange_worker(args),
        (Command::BenchWorker(args), _) => sql::run_worker(args),
        (Command::Doctor(args), _) => doctor::run(args),
        (Command::Completions(args), _) => completions::run(args),
        (Command::Man(args), _) => manual::run(args),
        (Command::Reference(args), _) => reference::run(args),
    }
}

/// Sets up logging by `HARRIER_LOG`, for example `info` or `harrier_engine=debug`; the default is warnings.
/// Ranks of a gang prefix their number.
fn log_to_stderr() {
    const LOG: &str = "HARRIER_LOG";
    let filter = EnvFilter::try_from_env(LOG).unwrap_or_else(|_| {
        // One line for a gang.
        if let Ok(wanted) = std::env::var(LOG)
            && harrier_exec::launched_rank().is_none_or(|rank| rank == 0)
        {
            eprintln!(
                "WARNING: invalid value for {LOG}: \"{wanted}\"\n\
                 HINT: say a level, such as info, or crates with levels, such as harrier_engine=debug"
            );
        }
        EnvFilter::new("warn")
    });
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .event_format(RankFormat { rank: harrier_exec::launched_rank(), format: Format::default() })
        .init();
}

/// The default log line after `rank 2: ` in a gang: a launcher mixes the lines of all ranks.
struct RankFormat {
    rank: Option<usize>,
    format: Format,
}

impl<S, N> FormatEvent<S, N> for RankFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if let Some(rank) = self.rank {
            write!(writer, "rank {rank}: ")?;
        }
        self.format.format_event(context, writer, event)
    }
}
