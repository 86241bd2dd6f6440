//! Parsing of a text that must be one statement.

use harrier_error::{SqlError, SqlState};

use crate::backend::{BackendSession, BackendStatement};

/// Parses a single statement. `None`: the text is empty.
pub(super) async fn parse_single(
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
