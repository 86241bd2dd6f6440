//! Signal handling: Ctrl-C cancels the running statement; SIGTERM, SIGHUP, SIGXCPU and the end of the
//! launcher end the process without leaving temporary files.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::parent_id;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use harrier_engine::{Engine, SqlError, SqlState};
use harrier_resources::cancellation::{self, CancelFlag, CancelOnDrop};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal as SignalName;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use harrier_error::exit;

use crate::gang;

/// Ctrl-C as a future. Once created, Ctrl-C no longer kills the process.
pub(crate) struct Interrupts {
    signal: Signal,
}

impl Interrupts {
    /// Installs the handler. Must be called inside a tokio runtime.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { signal: signal(SignalKind::interrupt())? })
    }

    /// Ready when Ctrl-C was pressed since the last call. Cancel-safe.
    pub(crate) async fn wait(&mut self) {
        if self.signal.recv().await.is_none() {
            std::future::pending().await
        }
    }

    /// Discards a Ctrl-C that came while nothing ran.
    pub(crate) fn discard(&mut self) {
        while let Some(Some(())) = self.signal.recv().now_or_never() {}
    }
}

/// Cancels a statement at Ctrl-C or at its timeout, even if it computes without yielding. Dropping it ends
/// the statement.
pub(crate) struct Watch {
    pub(crate) canceled: CancelFlag,
    _ended: CancelOnDrop,
    watching: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches a statement that begins now, with this timeout.
    pub(crate) fn begin(time_max: Option<Duration>) -> Self {
        let canceled = CancelFlag::default();
        let _ended = canceled.cancel_on_drop();
        let aside = cancellation::dedicated_runtime();
        let _inside = aside.enter();
        // If signals cannot be watched, the process has failed before.
        let watching = signal(SignalKind::interrupt()).ok().map(|mut interrupts| {
            let canceled = canceled.clone();
            aside.spawn(async move {
                tokio::select! {
                    Some(()) = interrupts.recv() => canceled.set(cancellation::Reason::Request),
                    () = timeout(time_max) => canceled.set(cancellation::Reason::Timeout),
                }
            })
        });
        Self { canceled, _ended, watching }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(watching) = &self.watching {
            watching.abort();
        }
    }
}

/// Sleeps for `time`; forever for `None`.
pub(crate) async fn timeout(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// Ends the process on SIGTERM, SIGHUP and SIGXCPU (sent before the CPU time limit kills it), or when its
/// launcher has exited, after removing the temporary files. The status is the one a shell reports for the
/// signal; in a gang that lost a rank it is `BROKEN`.
///
/// A separate thread listens: threads that run statements may compute for seconds without yielding, and a
/// launcher kills processes that do not end within one second.
pub(crate) fn end_on_termination(engine: &Engine) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let inside = runtime.enter();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut time_is_up = signal(SignalKind::from_raw(SignalName::SIGXCPU as i32))?;
    let launcher = launcher(engine);
    drop(inside);
    let engine = engine.clone();
    std::thread::Builder::new().name("harrier-signals".to_string()).spawn(move || {
        runtime.block_on(async {
            let reason = tokio::select! {
                Some(()) = terminate.recv() => Reason::Signal(SignalName::SIGTERM),
                Some(()) = hangup.recv() => Reason::Signal(SignalName::SIGHUP),
                Some(()) = time_is_up.recv() => Reason::Signal(SignalName::SIGXCPU),
                () = launcher_exit(launcher) => Reason::LauncherEnded,
            };
            end(&engine, reason).await
        })
    })?;
    Ok(())
}

/// Ignores Ctrl-C on ranks other than 0; the coordinator handles it. Must be called inside a tokio runtime.
pub(crate) fn ignore_interrupts() -> io::Result<()> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    tokio::spawn(async move { while interrupts.recv().await.is_some() {} });
    Ok(())
}

/// Ready when the parent process has exited; a launcher that is killed signals nobody. `None` for a process
/// alone and for a rank without a launcher: the shell that started it may exit earlier.
fn launcher(engine: &Engine) -> Option<oneshot::Receiver<()>> {
    engine.gang().filter(|gang| gang.has_launcher())?;
    let watched = match harrier_mpi::process::watch(parent_id()) {
        Ok(watched) => watched,
        Err(error) => {
            tracing::info!(%error, "the launcher cannot be watched");
            return None;
        }
    };
    let (sender, ended) = oneshot::channel();
    let watch = move || {
        let mut polled = [PollFd::new(watched.as_fd(), PollFlags::POLLIN)];
        while matches!(poll(&mut polled, PollTimeout::NONE), Err(Errno::EINTR)) {}
        let _ = sender.send(());
    };
    std::thread::Builder::new().name("harrier-launcher".to_string()).spawn(watch).ok()?;
    Some(ended)
}

async fn launcher_exit(launcher: Option<oneshot::Receiver<()>>) {
    let has_ended = match launcher {
        Some(launcher) => launcher.await.is_ok(),
        None => false,
    };
    if !has_ended {
        std::future::pending().await
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    Signal(SignalName),
    LauncherEnded,
}

async fn end(engine: &Engine, reason: Reason) {
    IS_ENDING.store(true, Ordering::SeqCst);
    let mut status = match reason {
        Reason::Signal(name) => 128 + name as i32,
        Reason::LauncherEnded => exit::BROKEN.into(),
    };
    match engine.gang() {
        None => {
            if let Reason::Signal(name) = reason {
                let _ = writeln!(io::stderr(), "ERROR 57P01: {name} ended the process");
            }
        }
        Some(gang) if gang.rank() == 0 => {
            let lost = gang::reason_to_end(gang).await;
            if lost.is_some() {
                status = exit::BROKEN.into();
            }
            if !IS_REPORTED.load(Ordering::SeqCst) {
                let message = lost.unwrap_or_else(|| match reason {
                    Reason::Signal(name) if name == SignalName::SIGXCPU || !gang.has_launcher() => {
                        format!("ERROR 57P01: {name} ended the gang")
                    }
                    _ => "ERROR 57P01: the launcher ended the gang".to_string(),
                });
                // Standard error may be closed with the launcher.
                let _ = writeln!(io::stderr(), "{message}");
            }
        }
        Some(gang) => {
            // First of all: a launcher that has seen one rank exit gives the others no time.
            engine.remove_temporary_files();
            gang::wait_for_coordinator(gang).await;
        }
    }
    engine.remove_temporary_files();
    if reason == Reason::LauncherEnded {
        remove_shared_memory();
    }
    std::process::exit(status)
}

/// Unlinks the shared memory of MPI on this host, as the launcher does unless it was killed.
fn remove_shared_memory() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for path in maps.lines().filter_map(|line| line.find("/dev/shm/").map(|at| &line[at..])) {
        // Another rank may have unlinked it already.
        let _ = std::fs::remove_file(path);
    }
}

/// Whether this process was asked to end, or its launcher has exited.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Whether the reason for the end has been reported to the user.
static IS_REPORTED: AtomicBool = AtomicBool::new(false);

/// Whether to show an error. Ranks that are asked to end fail their statements in arbitrary ways; then only
/// the loss of a rank is worth reporting.
pub(crate) fn should_report(error: &SqlError) -> bool {
    let is_loss = error.sqlstate == SqlState::CRASH_SHUTDOWN;
    if is_loss {
        IS_REPORTED.store(true, Ordering::SeqCst);
    }
    is_loss || !IS_ENDING.load(Ordering::SeqCst)
}

/// Marks the end of this rank's work, which on ranks other than 0 is the coordinator's exit. Never returns if
/// the process was asked to end: the shutdown is under way, and sets the exit status.
pub(crate) async fn finish_work() {
    if IS_ENDING.load(Ordering::SeqCst) {
        std::future::pending().await
    }
    IS_REPORTED.store(true, Ordering::SeqCst);
}
