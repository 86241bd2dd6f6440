//! `harrier serve`: a warehouse that stays up, for the clients of PostgreSQL.
//!
//! Clients are waited for on threads of their own, so that statements which compute keep nobody waiting.

mod gang;
mod rank;
mod session;
mod views;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use harrier_engine::{Engine, EngineOptions};
use harrier_exec::front::Link;
use harrier_server::pg::listen::LocalListener;
use harrier_server::pg::{Server, ServerOptions};
use harrier_server::registry::Registry;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub(crate) use self::rank::{Args as RankArgs, run as run_rank};
use crate::exit;
use crate::serve::gang::{Launcher, Plan, Supervisor};
use crate::sql::{key_value, memory_size};
use crate::warehouse_args::WarehouseArgs;

/// How long blocking calls may hold up the exit.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// How long statements that run may go on when the server is asked to end.
const DRAIN: Duration = Duration::from_secs(10);

/// A scan of fewer bytes stays in this process, unless a setting says otherwise: it is done before ranks have their plans.
const DISTRIBUTE: (&str, &str) = ("harrier.distribute_bytes_min", "16777216");

/// Threads that talk to clients.
const CLIENT_THREADS: usize = 2;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Where clients of PostgreSQL connect to
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:5433")]
    listen: Vec<SocketAddr>,
    /// Folder of a local socket for clients on this machine
    #[arg(long, value_name = "DIR")]
    socket_dir: Option<PathBuf>,
    /// Sessions that may be there at a time
    #[arg(long, value_name = "N", default_value_t = 1000)]
    max_connections: usize,
    /// Ranks that statements run on [default: as many as there are cores]
    #[arg(long, value_name = "N")]
    ranks: Option<usize>,
    /// Ranks that do nothing until others are lost
    #[arg(long, value_name = "N", default_value_t = 0)]
    spares: usize,
    /// The hosts that ranks are started on: a hosts file of the launcher
    #[arg(long, value_name = "FILE")]
    hostfile: Option<PathBuf>,
    /// What starts the ranks
    #[arg(long, value_enum, default_value_t = Launcher::Auto)]
    launcher: Launcher,
    /// An argument for the launcher, before its others
    #[arg(long = "launcher-arg", value_name = "WORD", allow_hyphen_values = true)]
    launcher_arguments: Vec<String>,
    /// Set a parameter for all sessions, as SET does
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    settings: Vec<(String, String)>,
    /// Threads a statement may keep busy on a rank [default: the cores, divided by the ranks]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Memory that statements may hold before they spill to disk, over all ranks here and this process, such as 8GiB
    /// [default: 80 % of the machine's]
    #[arg(long, value_name = "SIZE", value_parser = memory_size)]
    memory: Option<u64>,
    /// Folder for temporary files [default: $TMPDIR]
    #[arg(long, value_name = "DIR")]
    spill_dir: Option<PathBuf>,
    #[command(flatten)]
    warehouse: WarehouseArgs,
}

/// Serves until it is asked to end.
pub(crate) fn run(args: Args) -> ExitCode {
    match served(args) {
        Ok(()) => ExitCode::from(exit::DONE),
        Err(Trouble { message, status }) => {
            eprintln!("{message}");
            ExitCode::from(status)
        }
    }
}

struct Trouble {
    message: String,
    status: u8,
}

impl Trouble {
    fn broken(message: String) -> Self {
        Self { message, status: exit::BROKEN }
    }
}

fn runtime(threads: usize, name: &str) -> Result<Runtime, Trouble> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name(name)
        .enable_all()
        .build()
        .map_err(|error| Trouble::broken(format!("ERROR 53000: cannot start {threads} threads: {error}")))
}

fn served(args: Args) -> Result<(), Trouble> {
    let mut options = EngineOptions::default();
    let cores = options.threads;
    let ranks = match args.launcher {
        Launcher::None => 1,
        _ => args.ranks.unwrap_or(cores).max(1),
    };
    let threads = args.threads.map_or((cores / ranks).max(1), usize::from);
    if args.memory.is_some() {
        options.memory_bytes = args.memory;
    }
    // A single rank has nobody to share the work with: this process does it.
    let link = (ranks > 1).then(Link::default);
    let plan = Plan {
        launcher: args.launcher,
        ranks,
        spares: args.spares,
        threads,
        memory_bytes: options.memory_bytes.map(|bytes| bytes / (ranks + args.spares + 1) as u64),
        hosts: args.hostfile.clone(),
        spill_dir: args.spill_dir.clone(),
        arguments: args.launcher_arguments.clone(),
    };
    match &link {
        Some(_) => options.memory_bytes = plan.memory_bytes,
        None => options.threads = args.threads.map_or(cores, usize::from),
    }
    options.link = link.clone();
    options.settings = vec![(DISTRIBUTE.0.to_string(), DISTRIBUTE.1.to_string())];
    options.settings.extend(args.settings.iter().cloned());
    options.spill_dir = args.spill_dir.clone();
    options.warehouse = args.warehouse.options();
    if options.warehouse.is_none() {
        let message = "ERROR 22023: a server has a warehouse: --warehouse cannot be :memory:".to_string();
        return Err(Trouble { message, status: exit::USAGE });
    }
    let supervisor = match link {
        Some(link) => {
            let folder = std::env::temp_dir().join(format!("harrier-serve-{}", std::process::id()));
            let supervisor = Supervisor::new(link, plan, folder.clone());
            let supervisor = supervisor.map_err(|error| {
                Trouble::broken(format!("ERROR 58030: cannot use folder \"{}\": {error}", folder.display()))
            })?;
            Some((supervisor, folder))
        }
        None => None,
    };
    let gang = supervisor.as_ref().map(|(supervisor, _)| supervisor.clone());
    let registry = Arc::new(Registry::default());
    options.server_tables = views::tables(&registry, gang.as_ref());
    options.server_functions = views::functions(&registry);
    let statements = runtime(options.threads, "harrier-statement")?;
    let clients = runtime(CLIENT_THREADS, "harrier-client")?;
    let engine = Engine::try_new(options)
        .map_err(|error| Trouble { message: error.report(None), status: exit::USAGE })?;
    let ended = clients.block_on(serve(args, engine.clone(), statements.handle().clone(), registry, gang));
    if let Some((_, folder)) = supervisor {
        let _ = std::fs::remove_dir_all(folder);
    }
    clients.shutdown_timeout(SHUTDOWN);
    statements.shutdown_timeout(SHUTDOWN);
    engine.remove_temporary_files();
    ended
}

async fn serve(
    args: Args,
    engine: Engine,
    runtime: tokio::runtime::Handle,
    registry: Arc<Registry>,
    gang: Option<Supervisor>,
) -> Result<(), Trouble> {
    let signals = || -> io::Result<_> {
        Ok((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
    };
    let (mut terminate, mut interrupt) =
        signals().map_err(|error| Trouble::broken(format!("ERROR 58000: cannot listen for signals: {error}")))?;
    let backend = Arc::new(session::Sessions { engine, runtime });
    let options = ServerOptions {
        sessions_max: args.max_connections,
        authentication_timeout: Duration::from_secs(60),
    };
    let server = Server::new(backend, registry, Arc::new(gate::Local), options);
    let mut addresses = Vec::new();
    for address in &args.listen {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Trouble::broken(format!("ERROR 58000: cannot listen at {address}: {error}"))
        })?;
        addresses.push(listener.local_addr().unwrap_or(*address));
        tokio::spawn(Arc::clone(&server).accept(listener));
    }
    if let Some(folder) = &args.socket_dir {
        let port = addresses.first().map_or(5433, SocketAddr::port);
        let listener = LocalListener::bind(folder, port, true).map_err(|error| {
            Trouble::broken(format!("ERROR 58000: cannot listen in folder \"{}\": {error}", folder.display()))
        })?;
        tokio::spawn(Arc::clone(&server).accept_local(listener));
    }
    let stop = CancellationToken::new();
    let supervised = gang.map(|gang| tokio::spawn(gang.run(stop.clone())));
    for address in &addresses {
        println!("ready: psql -h {} -p {} warehouse", address.ip(), address.port());
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    server.drain(DRAIN).await;
    if let Some(supervised) = supervised {
        stop.cancel();
        let _ = supervised.await;
    }
    Ok(())
}

mod gate {
    //! Until there are roles: who is on this machine may come in.

    use async_trait::async_trait;
    use harrier_server::backend::Failure;
    use harrier_server::pg::{Arrival, Gate, Method};

    pub(super) struct Local;

    #[async_trait]
    impl Gate for Local {
        async fn method(&self, arrival: &Arrival) -> Result<Method, Failure> {
            match arrival.client.is_none_or(|client| client.ip().is_loopback()) {
                true => Ok(Method::Trust),
                false => Err(Failure::fatal("28000", "connections come from this machine only")),
            }
        }

        async fn admit(&self, _: &Arrival) -> Result<(), Failure> {
            Ok(())
        }

        fn refused(&self, _: &Arrival, _: &Failure) {}
    }
}
