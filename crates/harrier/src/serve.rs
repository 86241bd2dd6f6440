//! `harrier serve`: a warehouse that stays up, for the clients of PostgreSQL and of Arrow Flight SQL.
//!
//! ```text
//!   clients ═► threads that wait for them ─► threads that run statements ─► small ones here, others on the gang ═► ranks
//!              (harrier-server)              (harrier-engine)                 (gang.rs supervises it)
//! ```
//!
//! Clients are waited for on threads of their own, so that statements which compute keep nobody waiting. This process loads no MPI and
//! does not end with a rank.

mod gang;
mod gate;
mod options;
mod overview;
mod queues;
mod rank;
mod session;
mod views;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use harrier_engine::{Engine, EngineOptions};
use harrier_exec::front::Link;
use harrier_server::auth::listen;
use harrier_server::auth::tls::{Tls, TlsFiles};
use harrier_server::config::Config;
use harrier_server::config::values::Address;
use harrier_server::flight::{self, Flight};
use harrier_server::http::{self, Pages};
use harrier_server::pg::listen::LocalListener;
use harrier_server::pg::{Server, ServerOptions};
use harrier_server::queues::{Limits, QueueDefinition, Queues};
use harrier_server::registry::Registry;
use rand::distr::{Alphanumeric, SampleString};
use tokio::net::TcpListener;
use tokio::runtime::{Handle, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub(crate) use self::gate::password_verifier;
pub(crate) use self::options::Args;
pub(crate) use self::rank::{Args as RankArgs, run as run_rank};
use crate::exit;
use crate::serve::gang::{Launcher, Plan, Supervisor};
use crate::serve::gate::Doors;
use crate::serve::queues::RoleQueues;

/// How long blocking calls may hold up the exit.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// How long parts of the server may take to end when all sessions have.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// Threads that talk to clients.
const CLIENT_THREADS: usize = 2;

/// A scan of fewer bytes stays in this process, unless a setting says otherwise: it is done before ranks have their plans.
const DISTRIBUTE: (&str, &str) = ("harrier.distribute_bytes_min", "16777216");

/// Characters of the password of the pages, which is made anew at every start.
const PASSWORD_CHARACTERS: usize = 24;

/// Serves until it is asked to end.
pub(crate) fn run(args: Args) -> ExitCode {
    if args.example_config {
        print!("{}", Config::example());
        return ExitCode::from(exit::DONE);
    }
    match served(args) {
        Ok(()) => ExitCode::from(exit::DONE),
        Err(Trouble { message, status }) => {
            eprintln!("{message}");
            ExitCode::from(status)
        }
    }
}

/// Why the server does not start, or ended.
struct Trouble {
    message: String,
    status: u8,
}

impl Trouble {
    fn broken(message: String) -> Self {
        Self { message, status: exit::BROKEN }
    }

    fn usage(message: String) -> Self {
        Self { message, status: exit::USAGE }
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
    let config = args.config().map_err(Trouble::usage)?;
    let mut options = EngineOptions::default();
    options.settings = vec![(DISTRIBUTE.0.to_string(), DISTRIBUTE.1.to_string())];
    options.settings.extend(config.settings.0.iter().map(|(key, value)| (key.clone(), value.clone())));
    options.settings.retain(|(key, _)| key.contains('.'));
    options.spill_dir = config.gang.spill_dir.get().cloned();
    options.warehouse = args.warehouse.options();
    options.password_verifier = Some(password_verifier);
    if options.warehouse.is_none() {
        let message = "ERROR 22023: a server has a warehouse: --warehouse cannot be :memory:".to_string();
        return Err(Trouble::usage(message));
    }
    if let Some(memory) = config.gang.memory.get() {
        options.memory_bytes = Some(memory.0);
    }
    let plan = plan(&config, &options);
    // A single rank has nobody to share the work with: this process does it.
    let link = (plan.ranks > 1).then(Link::default);
    if link.is_some() {
        options.memory_bytes = plan.memory_bytes;
    }
    options.link = link.clone();
    let folder = std::env::temp_dir().join(format!("harrier-serve-{}", std::process::id()));
    let gang = match link {
        Some(link) => Some(Supervisor::new(link, plan, folder.clone()).map_err(|error| {
            Trouble::broken(format!("ERROR 58030: cannot use folder \"{}\": {error}", folder.display()))
        })?),
        None => None,
    };
    let registry = Arc::new(Registry::default());
    let queues = Queues::new(vec![default_queue(&config)], limits(&config));
    options.server_tables = views::tables(&registry, &queues, gang.as_ref());
    let statements = runtime(options.threads, "harrier-statement")?;
    let clients = runtime(CLIENT_THREADS, "harrier-client")?;
    let engine = Engine::try_new(options).map_err(|error| Trouble::usage(error.report(None)))?;
    let parts = Parts {
        config,
        args,
        engine: engine.clone(),
        runtime: statements.handle().clone(),
        registry,
        queues,
        gang,
    };
    let ended = clients.block_on(parts.serve());
    clients.shutdown_timeout(SHUTDOWN);
    statements.shutdown_timeout(SHUTDOWN);
    engine.remove_temporary_files();
    let _ = std::fs::remove_dir_all(folder);
    ended
}

/// How the gang is to be.
fn plan(config: &Config, options: &EngineOptions) -> Plan {
    use harrier_server::config::values::Launcher as Named;
    let launcher = match config.gang.launcher {
        Named::Auto => Launcher::Auto,
        Named::Mpirun => Launcher::Mpirun,
        Named::Srun => Launcher::Srun,
        Named::None => Launcher::None,
    };
    let cores = options.threads;
    let ranks = match launcher {
        Launcher::None => 1,
        _ => config.gang.ranks.get().map_or(cores, |ranks| *ranks as usize).max(1),
    };
    let spares = config.gang.spares as usize;
    let threads = config.gang.threads_per_rank.get();
    Plan {
        launcher,
        ranks,
        spares,
        threads: threads.map_or((cores / ranks).max(1), |threads| *threads as usize),
        memory_bytes: options.memory_bytes.map(|bytes| bytes / (ranks + spares + 1) as u64),
        hosts: config.gang.hostfile.get().cloned(),
        spill_dir: options.spill_dir.clone(),
        arguments: config.gang.launcher_arguments.clone(),
    }
}

/// The queue of roles that have none.
fn default_queue(config: &Config) -> QueueDefinition {
    queues::default(config.gang.statements_max.get().map(|statements| *statements as usize))
}

fn limits(config: &Config) -> Limits {
    let wait = config.statements.queue_wait_max.get().map(|wait| wait.0);
    Limits { gang_statements: None, small_cost: 0.0, wait }
}

/// What every session starts with, as a client would set it.
fn session_settings(config: &Config) -> Vec<(String, String)> {
    let statements = &config.statements;
    let timeouts = [
        ("statement_timeout", &statements.timeout),
        ("idle_session_timeout", &statements.idle_session_timeout),
        ("idle_in_transaction_session_timeout", &statements.idle_in_transaction_timeout),
    ];
    let timeouts = timeouts
        .into_iter()
        .filter_map(|(name, limit)| Some((name.to_string(), format!("{}ms", limit.get()?.0.as_millis()))));
    let plain = config.settings.0.iter().filter(|(key, _)| !key.contains('.'));
    timeouts.chain(plain.map(|(key, value)| (key.clone(), value.clone()))).collect()
}

/// What a server is made of.
struct Parts {
    config: Config,
    args: Args,
    engine: Engine,
    runtime: Handle,
    registry: Arc<Registry>,
    queues: Queues,
    gang: Option<Supervisor>,
}

impl Parts {
    async fn serve(self) -> Result<(), Trouble> {
        let Self { config, args, engine, runtime, registry, queues, gang } = self;
        let signals = || -> io::Result<_> {
            let listen = |kind| signal(kind);
            Ok((
                listen(SignalKind::terminate())?,
                listen(SignalKind::interrupt())?,
                listen(SignalKind::hangup())?,
            ))
        };
        let (mut terminate, mut interrupt, mut hangup) = signals()
            .map_err(|error| Trouble::broken(format!("ERROR 58000: cannot listen for signals: {error}")))?;
        let since = SystemTime::now();
        let mut pg = Vec::new();
        for address in &config.server.listen {
            pg.push(bind(address).await?);
        }
        let flight_listener = match config.server.flight.get() {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let flight_address = flight_listener.as_ref().map(|(address, _)| *address);
        let rules = gate::rules(config.server.hba_file.get().map(PathBuf::as_path));
        let rules = rules.map_err(|error| Trouble::usage(format!("ERROR F0000: {error}")))?;
        let tls = tls(&config)?;
        let addresses: Vec<SocketAddr> = pg.iter().map(|(address, _)| *address).collect();
        let notes = listen::check(&addresses, tls.is_some(), &rules)
            .map_err(|error| Trouble::usage(format!("ERROR 28000: {error}")))?;
        for note in notes {
            tracing::warn!("{note}");
        }
        let doors =
            Doors::new(rules, flight_address, engine.clone(), Arc::clone(&registry)).map_err(|error| {
                Trouble::broken(format!("ERROR 58000: cannot find out who runs this: {error}"))
            })?;
        doors.set_binding(tls.as_ref().and_then(|tls| tls.loaded().binding.clone()));
        let backend = Arc::new(session::Sessions {
            engine: engine.clone(),
            runtime: runtime.clone(),
            surroundings: Arc::new(views::Server { registry: Arc::clone(&registry), since }),
            queues: RoleQueues::new(queues.clone(), engine.clone(), default_queue(&config)),
            settings: parking_lot::RwLock::new(session_settings(&config)),
        });
        let options = ServerOptions {
            sessions_max: config.server.max_connections as usize,
            authentication_timeout: config.server.authentication_timeout.0,
        };
        let gate = Arc::new(doors.clone());
        let server = Server::new(Arc::clone(&backend) as _, Arc::clone(&registry), gate, options);
        server.set_tls(tls.as_ref().map(|tls| tls.loaded().with_alpn(&[b"postgresql"])));
        for (_, listener) in pg {
            tokio::spawn(Arc::clone(&server).accept(listener));
        }
        let mut listen: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        if let Some(folder) = config.server.unix_socket.get() {
            let listener = local(folder, &addresses)?;
            listen.push(listener.path().display().to_string());
            tokio::spawn(Arc::clone(&server).accept_local(listener));
        }
        let stop = CancellationToken::new();
        let is_stopping = Arc::new(AtomicBool::new(false));
        let mut ends: Vec<tokio::task::JoinHandle<()>> = Vec::new();
        if let Some((_, listener)) = flight_listener {
            let flight = Flight {
                backend: Arc::clone(&backend) as _,
                registry: Arc::clone(&registry),
                authenticate: Arc::new(doors.clone()),
                tls: None,
                database: session::DATABASE.to_string(),
                limits: flight::Limits {
                    sessions_max: config.server.max_connections as usize,
                    ..flight::Limits::default()
                },
            };
            ends.push(spawn("Flight SQL", flight::serve(listener, flight, stop.clone().cancelled_owned())));
        }
        let mut pages_at = None;
        if let Some(address) = config.server.http.get() {
            let (bound, listener) = bind(address).await?;
            let password = Alphanumeric.sample_string(&mut rand::rng(), PASSWORD_CHARACTERS);
            pages_at = Some(format!("http://harrier:{password}@{bound}/"));
            let facts = overview::Facts {
                engine: engine.clone(),
                runtime: runtime.clone(),
                gang: gang.clone(),
                queues: queues.clone(),
                since,
                warehouse: args.warehouse.describe(),
                listen: listen.clone(),
                is_stopping: Arc::clone(&is_stopping),
            };
            let mut pages = Pages::new(Arc::clone(&registry), Arc::new(facts));
            pages.names = config.server.http_names.iter().map(|name| name.0.clone()).collect();
            pages.actions = config.server.http_actions;
            // Loopback is everybody's on a machine that many use.
            pages.login = Some(Arc::new(move |_, given| given == password));
            ends.push(spawn("the pages", http::serve(listener, pages, stop.clone().cancelled_owned())));
        }
        let supervised = gang.map(|gang| tokio::spawn(gang.run(stop.clone())));
        tell(&addresses, flight_address, pages_at.as_deref());
        let mut config = config;
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = hangup.recv() => match reload(&args, &mut config, &doors, tls.as_ref()) {
                    Ok(restart) => {
                        queues.set_limits(limits(&config));
                        *backend.settings.write() = session_settings(&config);
                        server.set_tls(tls.as_ref().map(|tls| tls.loaded().with_alpn(&[b"postgresql"])));
                        doors.set_binding(tls.as_ref().and_then(|tls| tls.loaded().binding.clone()));
                        let restart = restart.join(", ");
                        tracing::info!(restart, "the configuration was read again; what is listed needs a restart");
                    }
                    Err(error) => tracing::error!("the configuration stays as it is: {error}"),
                },
            }
        }
        is_stopping.store(true, Ordering::Relaxed);
        server.drain(config.server.drain_timeout.0).await;
        stop.cancel();
        for end in ends.into_iter().chain(supervised) {
            // A client of Flight SQL may have a transaction open for as long as it likes.
            let _ = tokio::time::timeout(END_PATIENCE, end).await;
        }
        Ok(())
    }
}

fn spawn(
    what: &'static str,
    serve: impl Future<Output = io::Result<()>> + Send + 'static,
) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        if let Err(error) = serve.await {
            tracing::error!(%error, "{what} ended");
        }
    })
}

async fn bind(address: &Address) -> Result<(SocketAddr, TcpListener), Trouble> {
    let cannot = |error: io::Error| {
        let message = format!("ERROR 58000: cannot listen at {address}: {error}");
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "\nHINT: another server may be there; --listen, --http and --flight choose other addresses"
            }
            _ => "",
        };
        Trouble::broken(message + hint)
    };
    let listener = TcpListener::bind((address.host.as_str(), address.port)).await.map_err(cannot)?;
    let bound = listener.local_addr().map_err(cannot)?;
    Ok((bound, listener))
}

fn local(folder: &Path, addresses: &[SocketAddr]) -> Result<LocalListener, Trouble> {
    let port = addresses.first().map_or(5433, SocketAddr::port);
    LocalListener::bind(folder, port, true).map_err(|error| {
        Trouble::broken(format!("ERROR 58000: cannot listen in folder \"{}\": {error}", folder.display()))
    })
}

fn tls(config: &Config) -> Result<Option<Tls>, Trouble> {
    let server = &config.server;
    let (Some(certificate), Some(key)) = (server.tls_certificate.get(), server.tls_key.get()) else {
        return Ok(None);
    };
    let files = TlsFiles {
        certificate: certificate.clone(),
        key: key.clone(),
        client_authority: server.tls_client_ca.get().cloned(),
    };
    Tls::load(files).map(Some).map_err(|error| Trouble::usage(format!("ERROR F0000: {error}")))
}

/// Takes over what can change. Returns the keys that need a restart; what is wrong changes nothing.
fn reload(
    args: &Args,
    config: &mut Config,
    doors: &Doors,
    tls: Option<&Tls>,
) -> Result<Vec<&'static str>, String> {
    let new = args.config()?;
    let rules = gate::rules(new.server.hba_file.get().map(PathBuf::as_path))?;
    if let Some(tls) = tls {
        tls.reload().map_err(|error| error.to_string())?;
    }
    doors.set(rules);
    Ok(config.reload(new))
}

/// Says how to connect.
fn tell(addresses: &[SocketAddr], flight: Option<SocketAddr>, pages: Option<&str>) {
    for address in addresses {
        println!("ready: psql -h {} -p {} warehouse", address.ip(), address.port());
    }
    if let Some(address) = flight {
        println!("Arrow Flight SQL: grpc://{address}");
    }
    if let Some(pages) = pages {
        println!("pages: {pages}");
    }
}
