//! Operator functions of a running server in SQL, and the admission mode of sessions.
//!
//! ```text
//!                   took the lease               harrier_drain()             SIGTERM
//!   Standby ◄──────────────────────► Open ◄──────────────────────► Draining ────────► Stopping
//!                   lost it                      harrier_resume()
//! ```
//!
//! While draining, a server admits only sessions started with `harrier.operator = on`, as `harrier ctl` does;
//! the others end with their transactions.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::DataFusionError;
use harrier_engine::{ServerFunction, SqlState, Viewer};
use harrier_error::SqlError;
use harrier_server::registry::{Registry, Stop};
use harrier_session_api::session::SessionIdentity;
use parking_lot::RwLock;
use tokio::sync::Notify;

use super::gang::{Order, Refusal, Supervisor};

/// Startup parameter of operators, admitted while the server is drained.
pub(super) const OPERATOR: &str = "harrier.operator";

/// Who is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Open,
    /// Operators only.
    Draining,
    /// Nobody: another server serves the warehouse.
    Standby,
    /// Nobody: the server is shutting down.
    Stopping,
}

/// Controls of operators. Shared by all services of the server.
pub(super) struct Controls {
    registry: Arc<Registry>,
    gang: Option<Supervisor>,
    mode: RwLock<Mode>,
    /// Notified to request a reload of the configuration.
    pub(super) reload: Notify,
    /// Number of reloads, and the outcome of the last one.
    reloaded: RwLock<(u64, String)>,
}

/// Prefix, in the outcome of a reload, of the changed keys that need a restart.
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

    /// Stores the outcome of a reload: its errors, or the keys that need a restart.
    pub(super) fn record_reload(&self, outcome: &Result<Vec<&'static str>, String>) {
        let outcome = match outcome {
            Ok(restart) if restart.is_empty() => String::new(),
            Ok(restart) => format!("{NEEDS_RESTART}{}", restart.join(", ")),
            Err(error) => error.clone(),
        };
        let mut reloaded = self.reloaded.write();
        *reloaded = (reloaded.0 + 1, outcome);
    }

    /// Why sessions are refused, as text.
    pub(super) fn refusal_reason(&self) -> Option<String> {
        self.refusal(false).map(|failure| failure.message)
    }

    /// Why a session is refused.
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

    /// Checks a new session: whether it is admitted, and whether it is an operator. Removes the operator
    /// parameter from `settings`.
    ///
    /// Errors: 57P03 not admitted now; 42501 the role is no operator.
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

    /// Ends all sessions once their statement or transaction has ended, except operators and `caller`.
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

/// Checks whether a role may operate the server: superusers only.
///
/// Errors: permission denied (42501).
fn may_operate(is_superuser: bool) -> Result<(), Refusal> {
    match is_superuser {
        true => Ok(()),
        false => Err((
            SqlState::INSUFFICIENT_PRIVILEGE,
            "permission denied: only superusers operate the server".to_string(),
        )),
    }
}

fn sql_error((state, message): Refusal) -> DataFusionError {
    harrier_sqlstate::external(SqlError::new(state, message))
}

/// Arguments of a function call.
struct Call<'a> {
    /// The calling session.
    process: i32,
    /// First argument.
    number: usize,
    /// Second argument.
    text: &'a str,
}

/// The operators' functions. Functions that change something return whether they did.
pub(super) fn functions(controls: &Arc<Controls>) -> Vec<ServerFunction> {
    let function = |name, arguments: &[DataType], act: fn(&Controls, Call<'_>) -> Result<bool, Refusal>| {
        let controls = Arc::clone(controls);
        ServerFunction {
            name,
            arguments: arguments.to_vec(),
            returns: DataType::Boolean,
            call: Arc::new(move |caller: &SessionIdentity, viewer: &Viewer, values: &[ScalarValue]| {
                may_operate(viewer.is_superuser()).map_err(sql_error)?;
                let number = match values.first() {
                    Some(ScalarValue::Int64(Some(number))) => usize::try_from(*number).unwrap_or(usize::MAX),
                    _ => 0,
                };
                let text = match values.get(1) {
                    Some(ScalarValue::Utf8(Some(text))) => text.as_str(),
                    _ => "",
                };
                let process = caller.process;
                let done = act(&controls, Call { process, number, text }).map_err(sql_error)?;
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
            call: Arc::new(move |_: &SessionIdentity, viewer: &Viewer, _: &[ScalarValue]| {
                may_operate(viewer.is_superuser()).map_err(sql_error)?;
                let (times, outcome) = &*controls.reloaded.read();
                Ok(ScalarValue::Utf8(Some(format!("{times} {outcome}"))))
            }),
        }
    };
    vec![
        outcome,
        function("harrier_drain", &[], |controls, call| controls.drain(call.process).map(|()| true)),
        function("harrier_resume", &[], |controls, _| Ok(controls.resume())),
        function("harrier_rank_down", rank, |controls, call| {
            controls.order(Order::Down(call.number)).map(|()| true)
        }),
        function("harrier_rank_up", rank, |controls, call| {
            controls.order(Order::Up(call.number)).map(|()| true)
        }),
        function("harrier_move_rank", &[DataType::Int64, DataType::Utf8], |controls, call| {
            controls.gang()?.move_rank(call.number, call.text)
        }),
        function("harrier_restart_gang", &[], |controls, _| controls.order(Order::Restart).map(|()| true)),
        function("pg_reload_conf", &[], |controls, _| {
            controls.reload.notify_one();
            Ok(true)
        }),
    ]
}
