//! The client at the other end of a connection.

use std::sync::atomic::{AtomicBool, Ordering};

use harrier_error::SqlError;
use parking_lot::Mutex;

use super::ends::Ends;
use super::handle::Guid;
use super::session::Site;

pub(super) struct Caller {
    ends: Ends,
    /// Known once the transport has authenticated the client.
    role: Option<String>,
    /// Sessions that the connection has opened.
    sessions: Mutex<Vec<Guid>>,
    /// It has opened a session, or has shown that it knows one's handle.
    is_admitted: AtomicBool,
}

impl Caller {
    /// A client that says who it is when it opens a session.
    pub fn unknown(ends: Ends) -> Self {
        Self { ends, role: None, sessions: Mutex::default(), is_admitted: AtomicBool::new(false) }
    }

    /// A client that the transport has authenticated.
    pub fn with_role(ends: Ends, role: String) -> Self {
        Self { role: Some(role), is_admitted: AtomicBool::new(true), ..Self::unknown(ends) }
    }

    pub fn ends(&self) -> &Ends {
        &self.ends
    }

    /// The role that the transport has authenticated.
    pub fn role(&self) -> Option<&str> {
        self.role.as_deref()
    }

    /// The role of a session to be opened with this user and password.
    pub async fn role_for(
        &self,
        site: &Site,
        user: &str,
        password: Option<&str>,
    ) -> Result<String, SqlError> {
        match &self.role {
            Some(role) => Ok(role.clone()),
            None => site.authenticate(&self.ends, user, password).await,
        }
    }

    pub fn add_session(&self, session: Guid) {
        self.sessions.lock().push(session);
        self.admit();
    }

    /// Whether the client has shown who it is: more is read from it then.
    pub fn is_admitted(&self) -> bool {
        self.is_admitted.load(Ordering::Relaxed)
    }

    pub fn admit(&self) {
        self.is_admitted.store(true, Ordering::Relaxed);
    }

    /// Takes the sessions that the connection has opened.
    pub fn take_sessions(&self) -> Vec<Guid> {
        std::mem::take(&mut self.sessions.lock())
    }
}
