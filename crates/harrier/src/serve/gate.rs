//! Who may come in: by the rules of an hba file, as whom the operating system or a certificate says they are.
//!
//! There are no roles with passwords yet: whoever comes in may do everything. So the rules let in nobody but the user that runs the
//! server, unless a file says otherwise.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use harrier_server::auth::hba::{self, Connection, Origin, Rules};
use harrier_server::auth::peer::{self, Known, Peer};
use harrier_server::backend::Failure;
use harrier_server::flight::{Attempt, Authenticate};
use harrier_server::pg::{Arrival, Gate, Method};
use parking_lot::RwLock;

/// The rules in force. Clones share them.
#[derive(Clone)]
pub(super) struct Doors {
    rules: Arc<RwLock<Rules>>,
    /// The user that runs the server.
    uid: u32,
    /// Where Flight SQL is listened.
    flight: Option<SocketAddr>,
}

/// Rules from a file; the default ones without it.
///
/// Errors: it cannot be read, a line is none, or a rule asks for a password.
pub(super) fn rules(path: Option<&Path>) -> Result<Rules, String> {
    let Some(path) = path else {
        return Ok(Rules::default());
    };
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read \"{shown}\": {error}"))?;
    let rules = Rules::parse(&text).map_err(|errors| format!("\"{shown}\" cannot be used:\n{errors}"))?;
    for rule in rules.rules() {
        if matches!(rule.method, hba::Method::ScramSha256 | hba::Method::Password) {
            return Err(format!(
                "\"{shown}\", line {}: method {} needs roles with passwords, which there are none of yet",
                rule.line,
                rule.method.name()
            ));
        }
    }
    Ok(rules)
}

impl Doors {
    pub(super) fn new(rules: Rules, flight: Option<SocketAddr>) -> std::io::Result<Self> {
        Ok(Self { rules: Arc::new(RwLock::new(rules)), uid: peer::own_uid()?, flight })
    }

    /// For connections that come from now on.
    pub(super) fn set(&self, rules: Rules) {
        *self.rules.write() = rules;
    }

    /// Whether a user of this machine is the one that runs the server.
    fn check(&self, peer: Option<&Peer>, role: &str) -> Result<(), Failure> {
        peer::check(peer, self.uid, role, Known::NoRoles)
    }

    async fn peer(&self, arrival: &Arrival) -> Option<Peer> {
        let found = match (arrival.local_user, arrival.client, arrival.server) {
            (Some(uid), ..) => peer::of_uid(uid).await.map(Some),
            (None, Some(client), Some(server)) => peer::find(client, server).await,
            _ => Ok(None),
        };
        found.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot find out who is at the other end of a connection");
            None
        })
    }
}

#[async_trait]
impl Gate for Doors {
    async fn method(&self, arrival: &Arrival) -> Result<Method, Failure> {
        let origin = match arrival.client {
            Some(client) => Origin::Tcp(client.ip().to_canonical()),
            None => Origin::Local,
        };
        let Arrival { is_encrypted, database, role, .. } = arrival;
        let connection = Connection { origin, is_tls: *is_encrypted, database, user: role };
        let (method, wants_certificate) = {
            let rules = self.rules.read();
            let rule = rules.admit(&connection, |_| false)?;
            (rule.method, rule.client_certificate)
        };
        let is_of_role = arrival.certificate.as_ref().is_some_and(|certificate| {
            harrier_server::auth::tls::is_of(&certificate.clone().into(), &arrival.role)
        });
        match wants_certificate {
            hba::ClientCertificate::None => {}
            hba::ClientCertificate::Signed if arrival.certificate.is_some() => {}
            hba::ClientCertificate::OfRole if is_of_role => {}
            _ => return Err(harrier_server::auth::wrong_certificate(&arrival.role)),
        }
        match method {
            hba::Method::Trust => Ok(Method::Trust),
            hba::Method::Cert if is_of_role => Ok(Method::Trust),
            hba::Method::Cert => Err(harrier_server::auth::wrong_certificate(&arrival.role)),
            hba::Method::Peer => {
                let peer = self.peer(arrival).await;
                self.check(peer.as_ref(), &arrival.role).map(|()| Method::Trust)
            }
            _ => Err(Failure::fatal("28000", "there are no roles with passwords yet")),
        }
    }

    async fn admit(&self, _: &Arrival) -> Result<(), Failure> {
        Ok(())
    }

    fn refused(&self, arrival: &Arrival, failure: &Failure) {
        let Arrival { role, database, client, .. } = arrival;
        tracing::info!(role, database, ?client, reason = failure.message, "a client was refused");
    }
}

#[async_trait]
impl Authenticate for Doors {
    async fn authenticate(&self, attempt: &Attempt<'_>) -> Result<String, Failure> {
        let peer = match self.flight {
            Some(server) => peer::find(attempt.client, server).await.ok().flatten(),
            None => None,
        };
        let own = peer.as_ref().and_then(|peer| peer.name.clone()).unwrap_or_default();
        let role = if attempt.user.is_empty() { own } else { attempt.user.to_string() };
        self.check(peer.as_ref(), &role)?;
        Ok(role)
    }
}
