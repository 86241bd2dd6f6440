//! `harrier serve`: a persistent server for clients of PostgreSQL, of Arrow Flight SQL and of Hive.
//!
//! ```text
//!   clients ═► client threads ─► statement threads ─► small statements here, others on the gang ═► ranks
//!              (harrier-server)  (harrier-engine)                             (supervised by gang.rs)
//! ```
//!
//! Client I/O has threads of its own, so that statements that compute block no client. This process loads no
//! MPI and does not end with a rank.

pub(crate) mod authentication;
mod gang;
mod hosts;
mod launcher;
mod locks;
mod notify;
mod operate;
mod options;
mod orphan;
mod overview;
mod own_folder;
pub(crate) mod plan_probe;
mod queues;
mod rank;
mod segments;
mod serve_error;
mod session;
pub(crate) mod settings;
mod sockets;
mod standby;
mod views;

use crate::serve::serve_error::ServeError;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use harrier_engine::limits::Limits as StatementMax;
use harrier_engine::{
    Engine, EngineOptions, Fence, ServerContext, ServerFunction, ServerTable, WaitingFunction,
};
use harrier_exec::frontend::link::Link;
use harrier_mpi::descriptors;
use harrier_resources::statement_limits::StatementLimits;
use harrier_resources::worker_handover;
use harrier_server::audit::Audit;
use harrier_server::auth::hba::Rules;
use harrier_server::auth::listen;
use harrier_server::auth::tls::Tls;
use harrier_server::config::Config;
use harrier_server::encryption::Encryption;
use harrier_server::flight::{self, Flight};
use harrier_server::hive::{self, Hive, HiveLimits};
use harrier_server::http::{self, Pages};
use harrier_server::overview::Overview;
use harrier_server::pg::{Server, ServerOptions};
use harrier_server::queues::{QueueDefinition, QueueLimits, Queues};
use harrier_server::registry::{Registry, Stop};
use harrier_server::telemetry;
use rand::distr::{Alphanumeric, SampleString};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use self::operate::NEEDS_RESTART;
pub(crate) use self::options::Args;
pub(crate) use self::rank::{Args as RankArgs, run as run_rank};
use crate::completions::{print_line, write_stdout};
use crate::freed_memory;
use crate::serve::authentication::{Authenticator, password_verifier};
use crate::serve::gang::Supervisor;
use crate::serve::launcher::Plan;
use crate::serve::locks::Locks;
use crate::serve::operate::{Controls, Mode};
use crate::serve::own_folder::OwnFolder;
use crate::serve::queues::RoleQueues;
use crate::serve::sockets::{OtherAddresses, Socket, Sockets};
use crate::serve::standby::Standby;
use crate::sql::runtime;
use harrier_error::exit;

/// How long blocking calls may delay the exit.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// How long server components may take to end after all sessions have ended.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// Poll interval while sessions that were asked to end are still open.
const END_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Threads of client I/O.
const CLIENT_THREADS: usize = 2;

/// Scans of fewer bytes run in this process, unless a setting says otherwise: they complete before ranks have
/// their plans.
pub(crate) const DISTRIBUTE: (&str, &str) = ("harrier.distribute_bytes_min", "16777216");

/// Open files of the server per process, in addition to client connections: catalog, tables, temporary rows.
const FILES_BESIDE_CONNECTIONS: u64 = 256;

/// Characters of the password of the pages, generated at every start.
const PASSWORD_CHARACTERS: usize = 24;

/// Random characters in the name of the server's own folder and in its standby name.
const RANDOM_CHARACTERS: usize = 12;

/// PostgreSQL's ALPN protocol name, for clients that start with TLS.
const ALPN: &[u8] = b"postgresql";

/// Tables and functions of server sessions that `harrier sql` does not have.
pub(crate) struct Additions {
    pub(crate) tables: Vec<ServerTable>,
    pub(crate) functions: Vec<ServerFunction>,
    pub(crate) waiting_functions: Vec<WaitingFunction>,
    pub(crate) surroundings: Arc<dyn ServerContext>,
}

impl Additions {
    /// The additions of a server without clients.
    pub(crate) fn without_clients() -> Self {
        let (registry, locks) = (Arc::new(Registry::default()), Arc::new(Locks::default()));
        let config = Config::default();
        let queues = Queues::new(vec![default_queue(&config)], limits(&config));
        Self {
            tables: views::tables(&registry, &queues, None, &Arc::new(OnceLock::new())),
            functions: operate::functions(&Controls::new(Arc::clone(&registry), None, Mode::Open)),
            waiting_functions: locks::functions(&locks),
            surroundings: Arc::new(views::Server {
                registry,
                since: SystemTime::now(),
                sessions_max: config.server.max_connections as usize,
                locks,
            }),
        }
    }
}

/// Serves until asked to end.
pub(crate) fn run(args: Args) -> ExitCode {
    if args.example_config {
        return write_stdout(Config::example().as_bytes());
    }
    match serve(args) {
        Ok(()) => ExitCode::from(exit::DONE),
        Err(ServeError { message, status }) => {
            eprintln!("{message}");
            ExitCode::from(status)
        }
    }
}

fn serve(args: Args) -> Result<(), ServeError> {
    let config = args.config().map_err(ServeError::usage)?;
    settings::check(&config).map_err(ServeError::usage)?;
    raise_open_files(&config);
    let mut options = engine_options(&args, &config)?;
    let plan = Plan::of(&config, &options).map_err(ServeError::usage)?;
    let link = (plan.ranks > 1).then(Link::default);
    match link.is_some() {
        true => options.memory_bytes = plan.memory_bytes,
        false => options.threads = plan.threads,
    }
    freed_memory::limit_purge_delay(options.memory_bytes);
    options.link = link.clone();
    let folder = own_folder()?;
    let gang = link.map(|link| Supervisor::new(link, plan, folder.path().to_path_buf()));
    let standby = standby(&args, &config, &mut options)?;
    let registry = Arc::new(Registry::default());
    let queues = Queues::new(vec![default_queue(&config)], limits(&config));
    let mode = if standby.is_some() { Mode::Standby } else { Mode::Open };
    let controls = Controls::new(Arc::clone(&registry), gang.clone(), mode);
    let disks = Arc::new(OnceLock::new());
    options.server_tables = views::tables(&registry, &queues, gang.as_ref(), &disks);
    options.server_functions = operate::functions(&controls);
    let locks = Arc::new(Locks::default());
    options.waiting_functions = locks::functions(&locks);
    worker_handover::enable();
    let statements = runtime(options.threads, "harrier-statement").map_err(ServeError::failure)?;
    let own = runtime(1, "harrier-own").map_err(ServeError::failure)?;
    let clients = runtime(CLIENT_THREADS, "harrier-client").map_err(ServeError::failure)?;
    let engine = Engine::try_new(options).map_err(|error| ServeError::usage(error.report(None)))?;
    if let Some(found) = engine.disks() {
        let _ = disks.set(found.clone());
    }
    let parts = Parts {
        config,
        args,
        engine: engine.clone(),
        threads: session::Threads { shared: statements.handle().clone(), own: own.handle().clone() },
        registry,
        queues,
        gang,
        controls,
        locks,
    };
    let ended = clients.block_on(parts.serve(standby));
    clients.block_on(engine.settle_stores());
    clients.block_on(engine.close());
    clients.shutdown_timeout(SHUTDOWN);
    statements.shutdown_timeout(SHUTDOWN);
    own.shutdown_timeout(SHUTDOWN);
    engine.remove_temporary_files();
    drop(folder);
    ended
}

/// Raises the limit of open files of this process, and of ranks started on this host, to the hard limit.
fn raise_open_files(config: &Config) {
    match descriptors::raise_limit() {
        Ok((before, since)) => {
            let connections = u64::from(config.server.max_connections);
            if since < connections + FILES_BESIDE_CONNECTIONS {
                tracing::warn!(
                    since,
                    connections,
                    "this process may have fewer files open than connections are allowed"
                );
            }
            tracing::info!(before, since, "the limit of open files");
        }
        Err(error) => tracing::warn!(%error, "the limit of open files stays as it is"),
    }
}

fn engine_options(args: &Args, config: &Config) -> Result<EngineOptions, ServeError> {
    let mut options = EngineOptions::default();
    options.settings = vec![(DISTRIBUTE.0.to_string(), DISTRIBUTE.1.to_string())];
    options.settings.extend(config.settings.of_engine().map(|(key, value)| (key.clone(), value.clone())));
    options.spill_dirs.clone_from(&config.gang.spill_dirs);
    options.warehouse = args.warehouse.options();
    options.password_verifier = Some(password_verifier);
    let statements = &config.statements;
    options.limits = StatementMax {
        processes: StatementLimits {
            memory_bytes: statements.memory_max.get().map(|size| size.0),
            spill_bytes: statements.spill_max.get().map(|size| size.0),
            process_spill_bytes: None,
        },
        rows: statements.rows_max.get().map(|rows| u64::from(*rows)),
    };
    args.warehouse.make_folder().map_err(|message| ServeError::failure(format!("ERROR 58030: {message}")))?;
    if options.warehouse.is_none() {
        let message = "ERROR 22023: a server has a warehouse: --warehouse cannot be :memory:".to_string();
        return Err(ServeError::usage(message));
    }
    if let Some(memory) = config.gang.memory.get() {
        options.memory_bytes = Some(memory.0);
    }
    Ok(options)
}

fn own_folder() -> Result<OwnFolder, ServeError> {
    let suffix = Alphanumeric.sample_string(&mut rand::rng(), RANDOM_CHARACTERS);
    let parent = std::env::temp_dir();
    OwnFolder::create_in(&parent, &suffix).map_err(|error| {
        ServeError::failure(format!("ERROR 58030: cannot make a folder in \"{}\": {error}", parent.display()))
    })
}

/// This server's part in a standby group, if configured; its engine then commits only while it serves.
fn standby(args: &Args, config: &Config, options: &mut EngineOptions) -> Result<Option<Standby>, ServeError> {
    if !config.server.standby {
        return Ok(None);
    }
    let Some(catalog) = args.warehouse.catalog().filter(|catalog| catalog.starts_with("postgres")) else {
        let message = "ERROR 22023: servers that take over from one another need their catalog in PostgreSQL\n\
                       HINT: --catalog postgres://…";
        return Err(ServeError::usage(message.to_string()));
    };
    let suffix = Alphanumeric.sample_string(&mut rand::rng(), RANDOM_CHARACTERS);
    let fence = Fence::new(format!("{}-{}-{suffix}", sockets::host_name(), std::process::id()));
    options.fence = Some(fence.clone());
    Ok(Some(Standby::new(catalog.to_string(), config.server.lease.0, fence)))
}

/// The queue of roles without one.
fn default_queue(config: &Config) -> QueueDefinition {
    queues::default(config.gang.statements_max.get().map(|statements| *statements as usize))
}

fn limits(config: &Config) -> QueueLimits {
    let wait = config.statements.queue_wait_max.get().map(|wait| wait.0);
    QueueLimits { gang_statements: None, small_cost: 0.0, wait }
}

fn server_options(config: &Config) -> ServerOptions {
    ServerOptions {
        sessions_max: config.server.max_connections as usize,
        authentication_timeout: config.server.authentication_timeout.0,
    }
}

/// The authentication rules and the TLS configuration, checked against each other and the listen addresses.
fn entrance(config: &Config, addresses: &[SocketAddr]) -> Result<(Rules, Option<Tls>), String> {
    let rules = authentication::rules(config.server.hba_file.get().map(PathBuf::as_path))
        .map_err(|error| format!("ERROR F0000: {error}"))?;
    let tls = sockets::tls(config).map_err(|error| format!("ERROR F0000: {error}"))?;
    let notes = listen::check(addresses, tls.is_some(), &rules);
    for note in notes.map_err(|error| format!("ERROR 28000: {error}"))? {
        tracing::warn!("{note}");
    }
    Ok((rules, tls))
}

/// Opens or reopens the audit log.
///
/// Errors: it cannot be opened, as a message for the user; the previous log stays in use.
fn audit(config: &Config, registry: &Registry) -> Result<(), String> {
    let statements = config.server.audit_statements;
    let Some(path) = config.server.audit_log.get() else {
        registry.set_audit(None);
        return Ok(());
    };
    let cannot = |error: io::Error| format!("cannot open audit log \"{}\": {error}", path.display());
    match registry.audit() {
        Some(audit) => audit.reopen(path, statements).map_err(cannot),
        None => {
            registry.set_audit(Some(Arc::new(Audit::open(path, statements).map_err(cannot)?)));
            Ok(())
        }
    }
}

/// Components of a server.
struct Parts {
    config: Config,
    args: Args,
    engine: Engine,
    threads: session::Threads,
    registry: Arc<Registry>,
    queues: Queues,
    gang: Option<Supervisor>,
    controls: Arc<Controls>,
    locks: Arc<Locks>,
}

impl Parts {
    async fn serve(self, standby: Option<Standby>) -> Result<(), ServeError> {
        let signals = Signals::listen().map_err(|error| {
            ServeError::failure(format!("ERROR 58000: cannot listen for signals: {error}"))
        })?;
        let sockets = Sockets::bind(&self.config).await?;
        let addresses = sockets.addresses();
        let others = sockets.others();
        let everywhere: Vec<_> = addresses.iter().copied().chain(others.iter()).collect();
        let (rules, tls) = entrance(&self.config, &everywhere).map_err(ServeError::usage)?;
        let (engine, registry) = (self.engine.clone(), Arc::clone(&self.registry));
        let authenticator = Authenticator::new(rules, engine, registry).map_err(|error| {
            ServeError::failure(format!("ERROR 58000: cannot find out who runs this: {error}"))
        })?;
        authenticator.set_binding(tls.as_ref().and_then(|tls| tls.current().binding.clone()));
        let since = SystemTime::now();
        let backend = Arc::new(session::Sessions {
            engine: self.engine.clone(),
            threads: self.threads.clone(),
            surroundings: Arc::new(views::Server {
                registry: Arc::clone(&self.registry),
                since,
                sessions_max: self.config.server.max_connections as usize,
                locks: Arc::clone(&self.locks),
            }),
            queues: RoleQueues::new(self.queues.clone(), self.engine.clone(), default_queue(&self.config)),
            settings: parking_lot::RwLock::new(settings::of_sessions(&self.config)),
            controls: Arc::clone(&self.controls),
            registry: Arc::clone(&self.registry),
            locks: Arc::clone(&self.locks),
        });
        audit(&self.config, &self.registry)
            .map_err(|message| ServeError::failure(format!("ERROR 58030: {message}")))?;
        let server = Server::new(
            Arc::clone(&backend) as _,
            Arc::clone(&self.registry),
            Arc::new(authenticator.clone()),
            server_options(&self.config),
        );
        server.set_tls(tls.as_ref().map(|tls| tls.current().with_alpn(&[ALPN])));
        let mut running = Running {
            parts: self,
            authenticator,
            backend,
            server,
            addresses,
            others,
            encryption: Encryption::new(flight::PROTOCOLS),
            hive_encryption: Encryption::new(&[]),
            ends: Vec::new(),
            stop: CancellationToken::new(),
        };
        running.set_encryption(tls.as_ref());
        running.set_mode(running.parts.controls.mode());
        running.open(sockets, since)?;
        running.until_stopped(signals, standby).await
    }
}

/// Signals from the operating system.
struct Signals {
    terminate: Signal,
    /// CPU time limit, SIGXCPU.
    time_is_up: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// Event that changes the server's state.
enum Event {
    Stop,
    Reload,
    /// This server has acquired the lease and serves from now on.
    Acquired,
    /// This server has lost the lease, for this reason.
    Lost(String),
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            time_is_up: signal(SignalKind::from_raw(nix::sys::signal::Signal::SIGXCPU as i32))?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self, controls: &Controls) -> Event {
        tokio::select! {
            _ = self.terminate.recv() => Event::Stop,
            _ = self.time_is_up.recv() => Event::Stop,
            _ = self.interrupt.recv() => Event::Stop,
            _ = self.hangup.recv() => Event::Reload,
            () = controls.reload.notified() => Event::Reload,
        }
    }
}

/// A listening server.
struct Running {
    parts: Parts,
    authenticator: Authenticator,
    backend: Arc<session::Sessions>,
    server: Arc<Server>,
    addresses: Vec<SocketAddr>,
    others: OtherAddresses,
    /// TLS of Flight SQL clients.
    encryption: Encryption,
    hive_encryption: Encryption,
    /// Tasks that run until `stop` is canceled.
    ends: Vec<JoinHandle<()>>,
    stop: CancellationToken,
}

impl Running {
    /// Starts to accept connections on all sockets.
    fn open(&mut self, sockets: Sockets, since: SystemTime) -> Result<(), ServeError> {
        let labels = sockets.labels();
        let Sockets { pg, local, flight, hive, http } = sockets;
        for (_, listener) in pg {
            tokio::spawn(Arc::clone(&self.server).accept(listener));
        }
        if let Some(listener) = local {
            tokio::spawn(Arc::clone(&self.server).accept_local(listener));
        }
        if let Some(socket) = flight {
            self.open_flight(socket);
        }
        if let Some(socket) = hive {
            self.open_hive(socket);
        }
        let facts = self.facts(labels.clone(), since);
        if let Some(socket) = http {
            self.open_pages(socket, Arc::clone(&facts))?;
        }
        self.open_telemetry(&labels, facts)
    }

    fn open_flight(&mut self, (_, listener): Socket) {
        let flight = Flight {
            backend: Arc::clone(&self.backend) as _,
            registry: Arc::clone(&self.parts.registry),
            authenticate: Arc::new(self.authenticator.clone()),
            encryption: self.encryption.clone(),
            database: session::DATABASE.to_string(),
            limits: flight::FlightLimits {
                sessions_max: self.parts.config.server.max_connections as usize,
                ..flight::FlightLimits::default()
            },
        };
        let stop = self.stop.clone().cancelled_owned();
        self.ends.push(spawn("Flight SQL", flight::serve(listener, flight, stop)));
    }

    fn open_hive(&mut self, (_, listener): Socket) {
        let config = &self.parts.config.server;
        let hive = Hive {
            backend: Arc::clone(&self.backend) as _,
            registry: Arc::clone(&self.parts.registry),
            authenticate: Arc::new(self.authenticator.clone()),
            encryption: self.hive_encryption.clone(),
            database: session::DATABASE.to_string(),
            settings: vec![("harrier.dialect".to_string(), "hive".to_string())],
            limits: HiveLimits {
                sessions_max: config.max_connections as usize,
                authentication_timeout: config.authentication_timeout.0,
                ..HiveLimits::default()
            },
        };
        let stop = self.stop.clone().cancelled_owned();
        self.ends.push(spawn("HiveServer2", hive::serve(listener, hive, stop)));
    }

    /// Server facts for pages and telemetry.
    fn facts(&self, listen: Vec<String>, since: SystemTime) -> Arc<dyn Overview> {
        let parts = &self.parts;
        Arc::new(overview::Facts {
            engine: parts.engine.clone(),
            runtime: parts.threads.shared.clone(),
            gang: parts.gang.clone(),
            queues: parts.queues.clone(),
            since,
            warehouse: parts.args.warehouse.describe(),
            listen,
            controls: Arc::clone(&parts.controls),
            busy: Default::default(),
        })
    }

    /// Serves the pages, and prints their URL.
    fn open_pages(&mut self, (bound, listener): Socket, facts: Arc<dyn Overview>) -> Result<(), ServeError> {
        let parts = &self.parts;
        let password = match parts.config.server.http_password() {
            Some(password) => {
                let password =
                    password.map_err(|error| ServeError::failure(format!("ERROR 58030: {error}")))?;
                print_line(format_args!("pages: http://{bound}/ (user harrier)"));
                password
            }
            None => {
                let password = Alphanumeric.sample_string(&mut rand::rng(), PASSWORD_CHARACTERS);
                print_line(format_args!("pages: http://harrier:{password}@{bound}/"));
                password
            }
        };
        let mut pages = Pages::new(Arc::clone(&parts.registry), facts);
        pages.names = parts.config.server.http_names.iter().map(|name| name.0.clone()).collect();
        pages.actions = parts.config.server.http_actions;
        // On a multi-user machine, loopback is open to everybody.
        pages.login = Some(Arc::new(move |_, given| http::are_equal(given.as_bytes(), password.as_bytes())));
        self.ends.push(spawn("the pages", http::serve(listener, pages, self.stop.clone().cancelled_owned())));
        Ok(())
    }

    /// Starts the OpenTelemetry export, if configured.
    fn open_telemetry(&mut self, listen: &[String], facts: Arc<dyn Overview>) -> Result<(), ServeError> {
        let config = &self.parts.config.telemetry;
        let Some(endpoint) = config.otlp_endpoint.get() else {
            return Ok(());
        };
        let lines: Vec<String> = config.otlp_headers.iter().map(|line| line.0.clone()).collect();
        let options = telemetry::Options {
            endpoint: endpoint.0.clone(),
            headers: telemetry::headers(&lines).map_err(|error| {
                ServeError::usage(format!("ERROR F0000: telemetry.otlp_headers: {error}"))
            })?,
            resource: telemetry::Resource {
                service: config.service_name.clone(),
                version: env!("CARGO_PKG_VERSION").to_string(),
                instance: listen.first().cloned().unwrap_or_default(),
            },
            has_literals: config.literals,
        };
        let exported = telemetry::start(options, &self.parts.registry, facts, self.stop.clone());
        self.ends.push(exported.map_err(|error| {
            ServeError::failure(format!("ERROR 58000: cannot export to OpenTelemetry: {error}"))
        })?);
        Ok(())
    }

    /// Sets TLS of protocols that are encrypted from the first byte.
    fn set_encryption(&self, tls: Option<&Tls>) {
        let config = tls.map(|tls| tls.current().config.clone());
        self.encryption.set(config.as_deref());
        self.hive_encryption.set(config.as_deref());
    }

    /// Sets who is admitted.
    fn set_mode(&self, mode: Mode) {
        self.parts.controls.set_mode(mode);
        self.server.set_closed(match mode {
            Mode::Standby => self.parts.controls.refusal(false),
            // Whether a client is admitted depends on its role, known only after authentication.
            _ => None,
        });
    }

    /// Serves, or waits for the lease, until the server is asked to end; then shuts down.
    async fn until_stopped(
        mut self,
        mut signals: Signals,
        mut standby: Option<Standby>,
    ) -> Result<(), ServeError> {
        let mut gang = None;
        match &mut standby {
            Some(standby) => self.begin_standby(standby).await?,
            None => gang = self.begin(),
        }
        let mut serves = standby.is_none();
        let controls = Arc::clone(&self.parts.controls);
        loop {
            let lease = async {
                match &mut standby {
                    None => std::future::pending().await,
                    Some(standby) if serves => Event::Lost(standby.hold().await),
                    Some(standby) => {
                        let term = standby.take().await;
                        tracing::info!(term, "this server serves the warehouse from now on");
                        Event::Acquired
                    }
                }
            };
            let event = tokio::select! {
                event = signals.next(&controls) => event,
                event = lease => event,
            };
            match event {
                Event::Stop => break,
                Event::Reload => self.reload(),
                Event::Acquired => {
                    serves = true;
                    self.set_mode(Mode::Open);
                    gang = self.begin();
                }
                Event::Lost(reason) => {
                    serves = false;
                    tracing::error!(reason, "this server is a standby from now on");
                    self.step_down(gang.take()).await;
                    print_line(format_args!("standby: {reason}"));
                }
            }
        }
        notify::stopping();
        self.set_mode(Mode::Stopping);
        self.server.drain(self.parts.config.server.drain_timeout.0).await;
        if let Some(standby) = standby.as_mut().filter(|_| serves) {
            standby.give_up().await;
        }
        self.stop.cancel();
        for end in self.ends.into_iter().chain(gang.map(|(_, gang)| gang)) {
            // A Flight SQL client may keep a transaction open indefinitely.
            let _ = tokio::time::timeout(END_PATIENCE, end).await;
        }
        Ok(())
    }

    async fn begin_standby(&self, standby: &mut Standby) -> Result<(), ServeError> {
        let holder = standby.holder().await.map_err(|error| {
            ServeError::failure(format!("ERROR 08006: the catalog cannot be asked who serves it: {error}"))
        })?;
        if let Some(holder) = holder {
            print_line(format_args!("standby: waits to take over from {holder}"));
            notify::ready("standby");
        }
        Ok(())
    }

    /// Starts the gang, and reports that the server is ready.
    fn begin(&self) -> Option<(CancellationToken, JoinHandle<()>)> {
        let is_encrypted = self.parts.config.server.tls_certificate.get().is_some();
        sockets::announce(&self.addresses, self.others, is_encrypted);
        notify::ready("serves");
        let gang = self.parts.gang.clone()?;
        let stop = self.stop.child_token();
        Some((stop.clone(), tokio::spawn(gang.run(stop))))
    }

    /// Becomes a standby after another server has taken over: ends all sessions at once, since nothing of
    /// theirs can be committed.
    async fn step_down(&self, gang: Option<(CancellationToken, JoinHandle<()>)>) {
        self.set_mode(Mode::Standby);
        notify::ready("standby");
        let deadline = tokio::time::Instant::now() + END_PATIENCE;
        loop {
            let sessions = self.parts.registry.sessions();
            if sessions.is_empty() || tokio::time::Instant::now() > deadline {
                break;
            }
            let others = sessions.iter().filter(|session| session.requested_stop() != Some(Stop::Session));
            others.for_each(|session| session.stop(Stop::Session));
            tokio::time::sleep(END_POLL_INTERVAL).await;
        }
        if let Some((stop, gang)) = gang {
            stop.cancel();
            let _ = tokio::time::timeout(END_PATIENCE, gang).await;
        }
    }

    /// Reloads the configuration; if it has errors, nothing changes.
    fn reload(&mut self) {
        notify::reloading();
        let outcome = self.take_over();
        self.parts.controls.record_reload(&outcome);
        match outcome {
            Ok(restart) if restart.is_empty() => tracing::info!("the configuration was read again"),
            Ok(restart) => {
                let restart = restart.join(", ");
                tracing::warn!(restart, "the configuration was read again; what is listed needs a restart");
            }
            Err(error) => tracing::error!("the configuration stays as it is: {error}"),
        }
        notify::ready(if self.parts.controls.mode() == Mode::Standby { "standby" } else { "serves" });
    }

    /// Applies the reloadable keys. Returns the keys that need a restart.
    fn take_over(&mut self) -> Result<Vec<&'static str>, String> {
        let new = self.parts.args.config()?;
        settings::check(&new)?;
        let everywhere: Vec<_> = self.addresses.iter().copied().chain(self.others.iter()).collect();
        let (rules, tls) = entrance(&new, &everywhere)?;
        audit(&new, &self.parts.registry)?;
        let restart = self.parts.config.reload(new);
        let config = &self.parts.config;
        self.authenticator.set_rules(rules);
        self.server.set_tls(tls.as_ref().map(|tls| tls.current().with_alpn(&[ALPN])));
        self.set_encryption(tls.as_ref());
        self.authenticator.set_binding(tls.as_ref().and_then(|tls| tls.current().binding.clone()));
        self.server.set_options(server_options(config));
        *self.backend.settings.write() = settings::of_sessions(config);
        self.parts.queues.set_limits(limits(config));
        self.backend.queues.set_default(default_queue(config));
        Ok(restart)
    }
}

fn spawn(what: &'static str, serve: impl Future<Output = io::Result<()>> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(async move {
        if let Err(error) = serve.await {
            tracing::error!(%error, "{what} ended");
        }
    })
}
