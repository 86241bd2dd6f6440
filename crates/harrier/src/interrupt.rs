//! Signals: Ctrl-C cancels the running statement; SIGTERM and SIGHUP end the process without leaving files.

use std::io;

use futures::FutureExt;
use harrier_engine::Engine;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{exit, gang};

/// Ctrl-C, as a future. Once made, Ctrl-C no longer kills the process.
pub(crate) struct Interrupts {
    signal: Signal,
}

impl Interrupts {
    /// Must be called inside a tokio runtime.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { signal: signal(SignalKind::interrupt())? })
    }

    /// Ready when Ctrl-C was pressed since the last call. Cancel-safe.
    pub(crate) async fn interrupted(&mut self) {
        if self.signal.recv().await.is_none() {
            std::future::pending().await
        }
    }

    /// Forgets a Ctrl-C that came while nothing ran.
    pub(crate) fn forget(&mut self) {
        while let Some(Some(())) = self.signal.recv().now_or_never() {}
    }
}

/// Ends the process with the status a shell gives for the signal, after the temporary files are gone. In a gang it
/// first says if the reason is the loss of a rank, because a launcher ends all ranks when one has died.
/// Must be called inside a tokio runtime.
pub(crate) fn end_on_termination(engine: &Engine) -> io::Result<()> {
    for (kind, number) in [(SignalKind::terminate(), 15), (SignalKind::hangup(), 1)] {
        let mut signal = signal(kind)?;
        let engine = engine.clone();
        tokio::spawn(async move {
            if signal.recv().await.is_none() {
                return;
            }
            let lost = match engine.gang() {
                Some(gang) => gang::reason_to_end(gang).await,
                None => None,
            };
            engine.remove_temporary_files();
            match lost {
                Some(message) => {
                    eprintln!("{message}");
                    std::process::exit(exit::BROKEN.into());
                }
                None => std::process::exit(128 + number),
            }
        });
    }
    Ok(())
}

/// For ranks other than 0: Ctrl-C is the coordinator's business; SIGTERM ends the rank without leaving files.
pub(crate) fn leave_to_coordinator(engine: &Engine) -> io::Result<()> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    tokio::spawn(async move { while interrupts.recv().await.is_some() {} });
    let mut terminate = signal(SignalKind::terminate())?;
    let engine = engine.clone();
    tokio::spawn(async move {
        if terminate.recv().await.is_some() {
            engine.remove_temporary_files();
            std::process::exit(128 + 15);
        }
    });
    Ok(())
}
