//! `harrier sql`: SQL from the command line, files, standard input, or a shell.

use crate::option_values::key_value;
use crate::option_values::memory_size;
use std::fmt;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::ArgMatches;
use harrier_engine::{Engine, EngineOptions, SqlError, SqlState, memory_size};
use harrier_exec::Carrier;
use harrier_exec::ConfigurationFact;
use harrier_exec::Gang;
use harrier_exec::Launch;
use harrier_exec::monitor::statement_history::StatementHistory;
use harrier_sql::nesting::THREAD_STACK_BYTES;

use crate::freed_memory;
use crate::gang;
use crate::interrupt::{self, Interrupts};
use crate::lines;
use crate::output::Format;
use crate::runner::{Display, Runner, Stop};
use crate::shell;
use crate::sink::Sink;
use crate::sys_interconnect;
use crate::trace_file::TraceFile;
use crate::warehouse_args::WarehouseArgs;
use harrier_error::exit;

/// How long blocking calls, such as a read from a network file system, may delay the exit.
pub(crate) const SHUTDOWN: Duration = Duration::from_secs(2);

/// Maximum number of blocking threads: each server statement uses one, and so does a file read.
const BLOCKING_THREADS: usize = 4096;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Run these statements; with -f, in the order given
    #[arg(short = 'c', long = "command", value_name = "SQL")]
    commands: Vec<String>,
    /// Run the statements of this file; - is standard input
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// How rows are written
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Leave out what statements without rows say when they are done, such as INSERT 0 1
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Give a variable its value, as \set does: statements say it as :NAME, :'NAME' or :"NAME"
    #[arg(short = 'v', long = "variable", value_name = "NAME=VALUE", value_parser = key_value)]
    variables: Vec<(String, String)>,
    /// Set a parameter, as SET does
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    settings: Vec<(String, String)>,
    /// Threads a statement may keep busy [default: the machine's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Memory statements may hold before they spill to disk, such as 8GiB [default: 80 % of the machine's]
    #[arg(long, value_name = "SIZE", value_parser = memory_size)]
    memory: Option<u64>,
    /// Folder for temporary files; several, on disks of their own, are used in turn [default: $TMPDIR]
    #[arg(long = "spill-dir", value_name = "DIR")]
    spill_dirs: Vec<PathBuf>,
    #[command(flatten)]
    warehouse: WarehouseArgs,
    /// Ranks that do nothing until others are lost; then they take their places
    #[arg(long, value_name = "N", default_value_t = 0)]
    spares: u16,
    /// Be a rank of the gang on the hosts of this file, without MPI [default: $HARRIER_HOSTS]
    ///
    /// A line is host, host:port or host slots=N, one or N ranks, numbered from 0 on. HARRIER_RANK says which
    /// rank this process is, and HARRIER_TOKEN or the file HARRIER_TOKEN_FILE holds the secret that all ranks
    /// share.
    #[arg(long, value_name = "FILE")]
    hosts: Option<PathBuf>,
    /// Work alone, even if mpirun, srun or another launcher started this process [default: $HARRIER_ALONE]
    #[arg(long, conflicts_with_all = ["hosts", "spares"])]
    alone: bool,
    /// Ranks inside this one process, for tests
    #[arg(long, value_name = "N", hide = true)]
    inprocess_ranks: Option<usize>,
    /// Write what statements do on every rank, and when, to this file, for ui.perfetto.dev
    #[arg(long, value_name = "FILE.json")]
    trace: Option<PathBuf>,
}

/// One `-c` or `-f`.
enum Input {
    Command(String),
    File(PathBuf),
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::Command(sql) => f.write_str(sql),
            Input::File(path) => write!(f, "-f {}", path.display()),
        }
    }
}

/// Runs the command; `matches` has the order of `-c` and `-f`.
pub(crate) fn run(args: Args, matches: &ArgMatches) -> ExitCode {
    let inputs = inputs(&args, matches);
    let place = args.warehouse.describe();
    let (format, is_quiet, variables) = (args.format, args.quiet, args.variables.clone());
    let settings = settings_of(&args, false);
    let launch = match gang::launch(args.hosts.as_deref(), args.alone) {
        Ok(launch) => launch.map(|launch| {
            // With a hosts file ranks are started one by one; ranks without statements follow rank 0.
            let is_follower =
                matches!(launch.carrier, Carrier::Quic(_)) && launch.rank > 0 && inputs.is_empty();
            let facts = if is_follower {
                vec![ConfigurationFact::follower()]
            } else {
                configuration_facts(&args, &inputs)
            };
            Launch { facts, ..launch }
        }),
        Err(status) => return status,
    };
    let is_first = launch.as_ref().is_none_or(|launch| launch.rank == 0);
    let trace = match args.trace.as_deref().filter(|_| is_first).map(TraceFile::create).transpose() {
        Ok(trace) => trace,
        Err(message) => {
            eprintln!("ERROR {message}");
            return ExitCode::from(exit::USAGE);
        }
    };
    on_ranks(
        launch,
        args.spares.into(),
        move |gang| {
            let mut options = engine_options(&args, gang);
            options.gang = options.gang.or_else(|| in_process(args.inprocess_ranks));
            // A single process moves nothing; a history is needed only for a trace.
            let listener = trace.map(TraceFile::listener);
            let history = StatementHistory::new(listener.clone());
            options.server_tables = vec![sys_interconnect::of_process(options.gang.clone(), history.clone())];
            options.history = (options.gang.is_some() || listener.is_some()).then_some(history);
            options
        },
        async move |engine| {
            let history = engine.history().cloned();
            let display = Display::new(format, is_quiet);
            let status = run_sql(display, place, variables, &settings, inputs, engine).await;
            if let Some(history) = history {
                history.settle().await;
            }
            status
        },
    )
}

/// Launch parameters that must agree on all ranks of a gang. A rank with other parameters was meant to run by
/// itself, and its statements would be lost.
fn configuration_facts(args: &Args, inputs: &[Input]) -> Vec<ConfigurationFact> {
    let statements: Vec<String> = inputs.iter().map(Input::to_string).collect();
    let folder = std::env::current_dir().map(|folder| folder.display().to_string()).unwrap_or_default();
    // The shell's name of the folder, which other hosts may share; unset or stale when other programs changed
    // the folder.
    let named = std::env::var("PWD").unwrap_or_default();
    vec![
        ConfigurationFact::new("statements", &statements.join(" ")),
        ConfigurationFact::new("format", &format!("{:?}", args.format)),
        ConfigurationFact::new("variables", &format!("{:?}", args.variables)),
        ConfigurationFact::secret("settings", &format!("{:?}", args.settings)),
        ConfigurationFact::new("warehouse", &args.warehouse.describe()),
        ConfigurationFact::secret("catalog or data folder", &args.warehouse.identity()),
        ConfigurationFact::new("folder", &named),
        ConfigurationFact::per_host("folder", &folder),
    ]
}

/// A gang of `ranks` ranks in this process; `None` for a single rank.
fn in_process(ranks: Option<usize>) -> Option<Gang> {
    ranks.filter(|ranks| *ranks > 1).map(Gang::in_process)
}

/// Runs the worker of a benchmark: the same ranks, other input and output.
pub(crate) fn run_worker(args: harrier_bench::WorkerArgs) -> ExitCode {
    let options = |gang: Option<Gang>| {
        let mut options = args.engine_options();
        options.gang = gang.or_else(|| in_process(args.inprocess_ranks));
        options.history = options.gang.is_some().then(StatementHistory::default);
        options
    };
    let launch = match harrier_bench::launch(&args) {
        Ok(launch) => launch,
        Err(status) => return status,
    };
    on_ranks(launch, 0, options, async |engine| match harrier_bench::serve(&engine).await {
        Ok(()) => exit::DONE,
        Err(error) => {
            eprintln!("ERROR 58030: {error}");
            exit::FAILED
        }
    })
}

/// Joins the gang, or runs alone, and does `work` in the process that reads and prints.
pub(crate) fn on_ranks(
    launch: Option<Launch>,
    spares: usize,
    options: impl FnOnce(Option<Gang>) -> EngineOptions,
    work: impl AsyncFnOnce(Engine) -> u8,
) -> ExitCode {
    let gang = match gang::join(launch, spares) {
        Ok(gang) => gang,
        Err(status) => return status,
    };
    let options = options(gang);
    let threads = options.threads;
    let engine = match Engine::try_new(options) {
        Ok(engine) => engine,
        // Only a setting or the folder for temporary files can be wrong here.
        Err(error) => return usage_error(&error),
    };
    let runtime = match runtime(threads, "harrier") {
        Ok(runtime) => runtime,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(exit::FAILED);
        }
    };
    let status = runtime.block_on(run_rank(engine.clone(), work));
    runtime.block_on(engine.settle_stores());
    runtime.block_on(engine.close());
    runtime.shutdown_timeout(SHUTDOWN);
    engine.remove_temporary_files();
    ExitCode::from(status)
}

/// Runs this process as one rank, or alone. Returns the exit status.
async fn run_rank(engine: Engine, work: impl AsyncFnOnce(Engine) -> u8) -> u8 {
    engine.attach();
    if let Err(error) = interrupt::end_on_termination(&engine) {
        tracing::warn!(%error, "SIGTERM will leave temporary files behind");
    }
    match engine.gang().cloned() {
        None => work(engine).await,
        Some(gang) if gang.rank() == 0 => {
            let status = work(engine).await;
            interrupt::finish_work().await;
            gang::dismiss(&gang, status).await
        }
        Some(gang) => {
            if let Err(error) = interrupt::ignore_interrupts() {
                tracing::warn!(%error, "cannot listen for signals");
            }
            let status = gang::follow(&gang).await;
            interrupt::finish_work().await;
            status
        }
    }
}

/// Runs the inputs in order and stops at the first failed statement; without inputs, runs the shell or
/// standard input. Returns the exit status.
async fn run_sql(
    display: Display,
    place: String,
    variables: Vec<(String, String)>,
    settings: &[(String, String)],
    inputs: Vec<Input>,
    engine: Engine,
) -> u8 {
    let interrupts = match Interrupts::listen() {
        Ok(interrupts) => interrupts,
        Err(error) => {
            eprintln!("ERROR 58000: cannot listen for signals: {error}");
            return exit::FAILED;
        }
    };
    let session = engine.session();
    if let Err(error) = session.begin_local(&user(), settings) {
        eprintln!("{}", error.report(None));
        return exit::USAGE;
    }
    if display.format == Format::Lines {
        return match lines::run(&session, interrupts).await {
            Ok(()) => exit::DONE,
            Err(_) => exit::FAILED,
        };
    }
    let mut runner = Runner::new(session, display, interrupts);
    let ranks = engine.gang().map_or(String::new(), |gang| format!(", on {} ranks", gang.ranks()));
    runner.place = format!("You work in the warehouse \"{place}\" as user \"{}\"{ranks}.", user());
    for (name, value) in variables {
        if let Err(message) = runner.variables.set(&name, value) {
            eprintln!("ERROR {}: {message}", SqlState::INVALID_PARAMETER_VALUE);
            return exit::USAGE;
        }
    }
    let result = run_inputs(&mut runner, inputs).await;
    let flushed = runner.display.sink.take().map_or(Ok(()), Sink::close);
    match result {
        Ok(()) | Err(Stop::Quit | Stop::Closed) if flushed.is_ok() => exit::DONE,
        _ => exit::FAILED,
    }
}

/// User name from the environment.
fn user() -> String {
    let named = ["USER", "LOGNAME"].into_iter().filter_map(|name| std::env::var(name).ok());
    named.into_iter().find(|name| !name.is_empty()).unwrap_or_else(|| "harrier".to_string())
}

async fn run_inputs(runner: &mut Runner, inputs: Vec<Input>) -> Result<(), Stop> {
    if inputs.is_empty() {
        return if io::stdin().is_terminal() {
            shell::run(runner).await
        } else {
            runner.run_file("-".as_ref()).await
        };
    }
    for input in inputs {
        match input {
            Input::Command(sql) => runner.run_text(&sql).await?,
            Input::File(path) => runner.run_file(&path).await?,
        }
    }
    Ok(())
}

/// Settings of `--set`: with a dot in the name those of the engine, without one PostgreSQL's parameters, with
/// which the session begins.
fn settings_of(args: &Args, is_dotted: bool) -> Vec<(String, String)> {
    args.settings.iter().filter(|(name, _)| name.contains('.') == is_dotted).cloned().collect()
}

/// Engine options. Ranks on one host divide its cores and its memory, unless the options set them.
fn engine_options(args: &Args, gang: Option<Gang>) -> EngineOptions {
    let mut options = EngineOptions::default();
    options.password_verifier = Some(crate::serve::authentication::password_verifier);
    if let Some(gang) = gang {
        let ranks_here = gang::ranks_here(&gang);
        options.threads = (options.threads / ranks_here).max(1);
        options.memory_bytes = memory_size::default_bytes_of(ranks_here as u64);
        options.gang = Some(gang);
    }
    if let Some(threads) = args.threads {
        options.threads = threads.into();
    }
    if args.memory.is_some() {
        options.memory_bytes = args.memory;
    }
    freed_memory::limit_purge_delay(options.memory_bytes);
    options.settings = settings_of(args, true);
    options.spill_dirs = args.spill_dirs.clone();
    options.warehouse = args.warehouse.options();
    options
}

/// A runtime of threads named `name` and a number, with stacks large enough for statement trees. Errors: a
/// line for the user.
pub(crate) fn runtime(threads: usize, name: &'static str) -> Result<tokio::runtime::Runtime, String> {
    memory_size::check_stacks(threads, THREAD_STACK_BYTES).map_err(|error| {
        let hint = error.hint.map(|hint| format!("\nHINT: {hint}")).unwrap_or_default();
        format!("ERROR {}: {}{hint}", error.sqlstate, error.message)
    })?;
    let next = Arc::new(AtomicUsize::new(0));
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_stack_size(THREAD_STACK_BYTES)
        .thread_name_fn(move || format!("{name}-{}", next.fetch_add(1, Ordering::Relaxed)))
        .enable_all()
        .build()
        .map_err(|error| format!("ERROR 53000: cannot start {threads} threads: {error}"))
}

fn inputs(args: &Args, matches: &ArgMatches) -> Vec<Input> {
    let commands = matches.indices_of("commands").into_iter().flatten();
    let files = matches.indices_of("files").into_iter().flatten();
    let mut inputs: Vec<(usize, Input)> = commands
        .zip(args.commands.iter().cloned().map(Input::Command))
        .chain(files.zip(args.files.iter().cloned().map(Input::File)))
        .collect();
    inputs.sort_by_key(|(at, _)| *at);
    inputs.into_iter().map(|(_, input)| input).collect()
}

fn usage_error(error: &SqlError) -> ExitCode {
    eprintln!("{}", error.report(None));
    ExitCode::from(exit::USAGE)
}
