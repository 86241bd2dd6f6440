//! Execution of a statement, as far as it is the same in all protocols but PostgreSQL's: one statement of a
//! text, its entry in the registry, and what ends it early.

use std::sync::Arc;
use std::time::Duration;

use harrier_error::{SqlError, SqlState};
use harrier_session_api::session::TransactionState;
use tokio::sync::watch;

use crate::backend::{BackendSession, BackendStatement};
use crate::registry::{Activity, Registry, SessionEntry, StatementEntry, Stop};

/// Parses a single statement. `None`: the text is empty.
pub(crate) async fn parse_single(
    session: &dyn BackendSession,
    text: &str,
) -> Result<Option<BackendStatement>, SqlError> {
    let mut parts = session.split(text).into_iter();
    match (parts.next(), parts.next()) {
        (None, _) => Ok(None),
        (Some(part), None) => session.parse(&part.text).await.map(Some),
        _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, "cannot run several statements at once")
            .with_hint("Send one statement after the other, in a transaction if they belong together.")),
    }
}

/// Maximum characters of a client's name, as of PostgreSQL's application_name.
const APPLICATION_CHARACTERS_MAX: usize = 63;

/// A client's name as it is listed.
pub(crate) fn application_name(name: &str) -> String {
    name.chars().filter(|character| !character.is_control()).take(APPLICATION_CHARACTERS_MAX).collect()
}

pub(crate) fn terminated_error() -> SqlError {
    SqlError::fatal(SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command")
}

/// The error of a new client or statement while the server stops.
pub(crate) fn stopping_error() -> SqlError {
    SqlError::fatal(SqlState::CANNOT_CONNECT_NOW, "the server is shutting down")
}

pub(crate) fn canceled_error() -> SqlError {
    SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request")
}

pub(crate) fn timeout_error() -> SqlError {
    SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to statement timeout")
}

/// The error of a statement whose client has gone, or does not want its rows any more.
pub(crate) fn client_gone_error() -> SqlError {
    SqlError::new(SqlState::QUERY_CANCELED, "canceling statement because nobody waits for it")
}

/// The session's statement_timeout; zero without one.
pub(crate) fn statement_timeout(session: &dyn BackendSession) -> Duration {
    let text = session.parameter("statement_timeout");
    text.and_then(|text| milliseconds(&text)).unwrap_or(Duration::ZERO)
}

/// Parses a time as in PostgreSQL's settings: `5s`, `1min`, or a number of milliseconds.
fn milliseconds(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit = match text[digits..].trim() {
        "" | "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    Some(Duration::from_millis(number.checked_mul(unit)?))
}

/// Returns on a stop request to the session that ends its statement; with its error.
pub(crate) async fn next_stop(stops: &mut watch::Receiver<(u64, Option<Stop>)>) -> SqlError {
    loop {
        if stops.changed().await.is_err() {
            return std::future::pending().await;
        }
        match stops.borrow_and_update().1 {
            Some(Stop::Statement) => return canceled_error(),
            Some(Stop::Session) => return terminated_error(),
            // Running statements may finish.
            Some(Stop::Drain) | None => {}
        }
    }
}

/// A statement in the registry, as long as it runs. Dropped before its end it is one whose client has gone.
pub(crate) struct ListedStatement {
    registry: Arc<Registry>,
    pub entry: Arc<StatementEntry>,
    session_entry: Arc<SessionEntry>,
    session: Arc<dyn BackendSession>,
}

impl ListedStatement {
    pub fn begin(
        registry: &Arc<Registry>,
        session_entry: &Arc<SessionEntry>,
        session: &Arc<dyn BackendSession>,
        text: &str,
    ) -> Self {
        let entry = registry.begin(session_entry, text);
        session_entry.set_activity(Activity::Active);
        let (registry, session_entry) = (Arc::clone(registry), Arc::clone(session_entry));
        Self { registry, entry, session_entry, session: Arc::clone(session) }
    }

    pub fn end(&self, failure: Option<&SqlError>) {
        let failure = failure.map(|failure| (failure.sqlstate, failure.message.clone()));
        self.registry.end(&self.entry, failure);
        self.session_entry.set_activity(match self.session.transaction() {
            TransactionState::Idle => Activity::Idle,
            TransactionState::Open => Activity::IdleInTransaction,
            TransactionState::Failed => Activity::IdleInFailedTransaction,
        });
    }
}

impl Drop for ListedStatement {
    fn drop(&mut self) {
        if !self.entry.has_ended() {
            self.end(Some(&client_gone_error()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(milliseconds("0"), Some(Duration::ZERO));
        assert_eq!(milliseconds("250"), Some(Duration::from_millis(250)));
        assert_eq!(milliseconds("2s"), Some(Duration::from_secs(2)));
        assert_eq!(milliseconds("1 min"), Some(Duration::from_secs(60)));
        assert_eq!(milliseconds("never"), None);
    }
}
