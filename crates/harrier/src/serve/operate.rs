//! What an operator can have a running server do, as functions of SQL, and whom the server lets in meanwhile.
//!
//! ```text
//!                   took the lease               harrier_drain()             SIGTERM
//!   Standby ◄──────────────────────► Open ◄──────────────────────► Draining ────────► Stopping
//!                   lost it                      harrier_resume()
//! ```
//!
//! While it is drained, a server lets in nobody but sessions that were begun with `harrier.operator = on`, as
//! `harrier ctl` begins its own; the others end with their transactions.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::DataFusionError;
use harrier_engine::{Identity, ServerFunction, SqlState, Viewer};
use harrier_error::SqlError;
use harrier_server::registry::{Registry, Stop};
use parking_lot::RwLock;
use tokio::sync::Notify;

use super::gang::{Order, Refusal, Supervisor};

/// What a client sets when it comes, to be let in while the server is drained.
pub(super) const OPERATOR: &str = "harrier.operator";

/// Whom the server lets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Open,
    /// Operators only.
    Draining,
    /// Nobody: another server serves the warehouse.
    Standby,
    /// Nobody: it ends.
    Stopping,
}

/// What operators can change. Shared by everything that serves.
pub(super) struct Controls {
    registry: Arc<Registry>,
    gang: Option<Supervisor>,
    mode: RwLock<Mode>,
    /// Somebody wants the configuration to be read again.
    pub(super) reload: Notify,
    /// How often it was, and what came of the last time.
    reloaded: RwLock<(u64, String)>,
}

/// Before the keys that differ and that only a restart takes over, in the outcome of a reload.
pub(crate) const NEEDS_RESTART: &str = "restart: ";

impl Controls {
    pub(super) fn new(registry: Arc<Registry>, gang: Option<Supervisor>, mode: Mode) -> Arc<Self> {
        Arc::new(Self {
            registry,
            gang,
            mode: RwLock::new(mode),
            reload: Notify::new(),
            reloaded: RwLock::default(),
        })
    }

    pub(super) fn mode(&self) -> Mode {
        *self.mode.read()
    }

    pub(super) fn set_mode(&self, mode: Mode) {
        *self.mode.write() = mode;
    }

    /// Keeps what came of reading the configuration again: what is wrong with it, or the keys that need a
    /// restart.
    pub(super) fn reloaded(&self, outcome: &Result<Vec<&'static str>, String>) {
        let told = match outcome {
            Ok(restart) if restart.is_empty() => String::new(),
            Ok(restart) => format!("{NEEDS_RESTART}{}", restart.join(", ")),
            Err(error) => error.clone(),
        };
        let mut reloaded = self.reloaded.write();
        *reloaded = (reloaded.0 + 1, told);
    }

    /// Why sessions are not let in, for people.
    pub(super) fn closed(&self) -> Option<String> {
        self.refusal(false).map(|failure| failure.message)
    }

    /// Why a session is not let in.
    pub(super) fn refusal(&self, is_operator: bool) -> Option<SqlError> {
        let (message, hint) = match self.mode() {
            Mode::Open => return None,
            Mode::Draining if is_operator => return None,
            Mode::Draining => ("the server is being drained", None),
            Mode::Standby => ("the server is a standby", Some("another server serves this warehouse")),
            Mode::Stopping => ("the database system is shutting down", None),
        };
        let failure = SqlError::fatal(SqlState::CANNOT_CONNECT_NOW, message);
        Some(match hint {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        })
    }

    /// Looks at what a client asks to set when it comes: whether it may come in now, and if it is an
    /// operator. What is meant for this is taken out of `settings`.
    ///
    /// Errors: 57P03 not now; 42501 the role is no operator.
    pub(super) fn admit(
        &self,
        is_superuser: bool,
        process: i32,
        settings: &mut Vec<(String, String)>,
    ) -> Result<(), SqlError> {
        let asks = |(name, value): &(String, String)| {
            name.eq_ignore_ascii_case(OPERATOR) && matches!(value.as_str(), "on" | "true" | "yes" | "1")
        };
        let is_operator = settings.iter().any(asks);
        settings.retain(|(name, _)| !name.eq_ignore_ascii_case(OPERATOR));
        if is_operator {
            may_operate(is_superuser).map_err(|(state, message)| SqlError::fatal(state, message))?;
            if let Some(session) = self.registry.session(process) {
                session.set_operator();
            }
        }
        match self.refusal(is_operator) {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// Sends everybody away, who runs a statement or has a transaction open at its end; operators and
    /// `caller` stay.
    fn drain(&self, caller: i32) -> Result<(), Refusal> {
        {
            let mut mode = self.mode.write();
            if !matches!(*mode, Mode::Open | Mode::Draining) {
                return Err((
                    SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                    "the server lets nobody in already".to_string(),
                ));
            }
            *mode = Mode::Draining;
        }
        if let Some(session) = self.registry.session(caller) {
            session.set_operator();
        }
        for session in self.registry.sessions().iter().filter(|session| !session.is_operator()) {
            session.stop(Stop::Drain);
        }
        tracing::info!(session = caller, "the server is being drained");
        Ok(())
    }

    fn resume(&self) -> bool {
        let mut mode = self.mode.write();
        let is_draining = *mode == Mode::Draining;
        if is_draining {
            *mode = Mode::Open;
        }
        is_draining
    }

    fn gang(&self) -> Result<&Supervisor, Refusal> {
        let none = (
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            "there are no ranks: statements run in the server's process".to_string(),
        );
        self.gang.as_ref().ok_or(none)
    }

    fn order(&self, order: Order) -> Result<(), Refusal> {
        self.gang()?.order(order)
    }
}

/// Whether a role may change what the server does: superusers may.
///
/// Errors: it may not (42501).
fn may_operate(is_superuser: bool) -> Result<(), Refusal> {
    match is_superuser {
        true => Ok(()),
        false => Err((
            SqlState::INSUFFICIENT_PRIVILEGE,
            "permission denied: only superusers operate the server".to_string(),
        )),
    }
}

fn failed((state, message): Refusal) -> DataFusionError {
    harrier_sqlstate::external(SqlError::new(state, message))
}

/// What a function is called with.
struct Asked<'a> {
    /// The session that it is called in.
    process: i32,
    /// Its first argument.
    number: usize,
    /// Its second.
    text: &'a str,
}

/// What operators call. Functions that change something return whether they did.
pub(super) fn functions(controls: &Arc<Controls>) -> Vec<ServerFunction> {
    let function = |name, arguments: &[DataType], act: fn(&Controls, Asked<'_>) -> Result<bool, Refusal>| {
        let controls = Arc::clone(controls);
        ServerFunction {
            name,
            arguments: arguments.to_vec(),
            returns: DataType::Boolean,
            call: Arc::new(move |caller: &Identity, viewer: &Viewer, values: &[ScalarValue]| {
                may_operate(viewer.is_superuser()).map_err(failed)?;
                let number = match values.first() {
                    Some(ScalarValue::Int64(Some(number))) => usize::try_from(*number).unwrap_or(usize::MAX),
                    _ => 0,
                };
                let text = match values.get(1) {
                    Some(ScalarValue::Utf8(Some(text))) => text.as_str(),
                    _ => "",
                };
                let process = caller.process;
                let done = act(&controls, Asked { process, number, text }).map_err(failed)?;
                tracing::info!(role = caller.role, session = process, number, text, "{name}() was called");
                Ok(ScalarValue::Boolean(Some(done)))
            }),
        }
    };
    let rank = &[DataType::Int64];
    let outcome = {
        let controls = Arc::clone(controls);
        ServerFunction {
            name: "harrier_reload_outcome",
            arguments: vec![],
            returns: DataType::Utf8,
            call: Arc::new(move |_: &Identity, viewer: &Viewer, _: &[ScalarValue]| {
                may_operate(viewer.is_superuser()).map_err(failed)?;
                let (times, told) = &*controls.reloaded.read();
                Ok(ScalarValue::Utf8(Some(format!("{times} {told}"))))
            }),
        }
    };
    vec![
        outcome,
        function("harrier_drain", &[], |controls, asked| controls.drain(asked.process).map(|()| true)),
        function("harrier_resume", &[], |controls, _| Ok(controls.resume())),
        function("harrier_rank_down", rank, |controls, asked| {
            controls.order(Order::Down(asked.number)).map(|()| true)
        }),
        function("harrier_rank_up", rank, |controls, asked| {
            controls.order(Order::Up(asked.number)).map(|()| true)
        }),
        function("harrier_move_rank", &[DataType::Int64, DataType::Utf8], |controls, asked| {
            controls.gang()?.move_rank(asked.number, asked.text)
        }),
        function("harrier_restart_gang", &[], |controls, _| controls.order(Order::Restart).map(|()| true)),
        function("pg_reload_conf", &[], |controls, _| {
            controls.reload.notify_one();
            Ok(true)
        }),
    ]
}
