//! Client authentication: by the rules of an hba file, with a password, the operating system's user or a
//! certificate.
//!
//! Without such a file, users of this machine log in as the roles of their names, others on it with the
//! password of a role, and nobody from other machines. As long as there are no roles, only the user that runs
//! the server can log in.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use harrier_engine::{Access, Engine};
use harrier_error::{SqlError, SqlState};
use harrier_server::auth::hba::{self, Connection, Origin, Rules};
use harrier_server::auth::ldap::LdapDirectory;
use harrier_server::auth::peer::{self, Peer, RoleExistence};
use harrier_server::auth::scram::{self, Challenge, Mock, Scram, ScramVerifier};
use harrier_server::auth::{Attempt, Authenticate, tls};
use harrier_server::pg::{Arrival, CheckPassword, ClientAuthentication, Exchange, Method};
use harrier_server::registry::Registry;
use parking_lot::RwLock;

use super::session::with_context;

/// Iterations of the password hash; PostgreSQL's default.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).unwrap();

/// The SCRAM verifier of a password.
///
/// Errors: not usable as a password.
pub(crate) fn password_verifier(password: &str) -> Result<String, String> {
    let made = ScramVerifier::of_password(password, ITERATIONS);
    made.map(|verifier| verifier.to_text()).map_err(|failure| failure.message)
}

/// The authentication rules in force. Clones share them.
#[derive(Clone)]
pub(super) struct Authenticator {
    inner: Arc<Inner>,
}

struct Inner {
    rules: RwLock<Rules>,
    /// TLS channel binding data of SCRAM.
    binding: RwLock<Option<Vec<u8>>>,
    engine: Engine,
    registry: Arc<Registry>,
    mock: Mock,
    /// The user that runs the server.
    uid: u32,
}

/// Reads rules from a file; the default ones without it.
///
/// Errors: the file cannot be read or parsed.
pub(super) fn rules(path: Option<&Path>) -> Result<Rules, String> {
    let Some(path) = path else {
        return Ok(Rules::default());
    };
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read \"{shown}\": {error}"))?;
    Rules::parse(&text).map_err(|errors| format!("\"{shown}\" cannot be used:\n{errors}"))
}

impl Authenticator {
    pub(super) fn new(rules: Rules, engine: Engine, registry: Arc<Registry>) -> std::io::Result<Self> {
        let mock = Mock::new(ITERATIONS).map_err(|failure| std::io::Error::other(failure.message))?;
        let inner = Inner {
            rules: RwLock::new(rules),
            binding: RwLock::new(None),
            engine,
            registry,
            mock,
            uid: peer::own_uid()?,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Sets the rules for new connections.
    pub(super) fn set_rules(&self, rules: Rules) {
        *self.inner.rules.write() = rules;
    }

    /// Sets the channel binding for new TLS connections.
    pub(super) fn set_binding(&self, binding: Option<Vec<u8>>) {
        *self.inner.binding.write() = binding;
    }

    async fn access(&self) -> Result<Arc<Access>, SqlError> {
        let access = self.inner.engine.access().await;
        access.map_err(|error| SqlError { is_fatal: true, ..with_context(error) })
    }

    /// The first matching rule: method and required certificate.
    fn rule(&self, connection: &Connection<'_>, access: &Access) -> Result<hba::Rule, SqlError> {
        let rules = self.inner.rules.read();
        rules.admit(connection, |role| access.is_member(connection.user, role)).cloned()
    }

    /// Checks whether a user of this machine may log in as a role.
    fn check_peer(&self, peer: Option<&Peer>, role: &str, access: &Access) -> Result<(), SqlError> {
        let known = match access.role(role) {
            _ if access.is_open() => RoleExistence::NoRoles,
            Some(_) => RoleExistence::Exists,
            None => RoleExistence::Missing,
        };
        peer::check(peer, self.inner.uid, role, known)
    }

    /// Whether to fall back to a password for a user of this machine whom peer authentication rejects: under
    /// the default rules.
    fn falls_back_to_password(&self, rule: &hba::Rule, peer: Option<&Peer>, access: &Access) -> bool {
        let runs_server = peer.is_some_and(|peer| peer.uid == self.inner.uid);
        rule.line == 0 && !access.is_open() && !runs_server
    }

    /// Checks whether an authenticated role may have a session.
    fn check_role(&self, role: &str, access: &Access) -> Result<(), SqlError> {
        if access.is_open() {
            return Ok(());
        }
        let Some((_, known)) = access.role(role) else {
            return Err(SqlError::fatal(
                SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
                format!("role \"{role}\" does not exist"),
            ));
        };
        if !known.can_login {
            return Err(SqlError::fatal(
                SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
                format!("role \"{role}\" is not permitted to log in"),
            ));
        }
        if !access.may_connect(role) {
            let message = format!("permission denied for database \"{}\"", super::session::DATABASE);
            return Err(SqlError::fatal(SqlState::INSUFFICIENT_PRIVILEGE, message)
                .with_detail("User does not have CONNECT privilege."));
        }
        let own = || self.inner.registry.sessions().iter().filter(|session| session.role == role).count();
        match known.connection_limit {
            Some(limit) if !known.is_superuser && own() >= limit as usize => Err(SqlError::fatal(
                SqlState::TOO_MANY_CONNECTIONS,
                format!("too many connections for role \"{role}\""),
            )),
            _ => Ok(()),
        }
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

    fn scram(&self, arrival: &Arrival, access: &Access) -> Method {
        let binding = self.inner.binding.read().clone().filter(|_| arrival.is_encrypted);
        let verifier = verifier(&arrival.role, access);
        let begun = Scram::new(&arrival.role, verifier, &self.inner.mock, binding.as_deref());
        Method::Scram(Box::new(Proof::New(begun)))
    }

    fn password(&self, role: &str, access: &Access) -> Method {
        let (authenticator, verifier, role) = (self.clone(), verifier(role, access), role.to_string());
        Method::Password(Box::new(CatalogPassword { authenticator, verifier, role }))
    }
}

/// A password checked against the catalog's verifier.
struct CatalogPassword {
    authenticator: Authenticator,
    verifier: Option<ScramVerifier>,
    role: String,
}

#[async_trait]
impl CheckPassword for CatalogPassword {
    async fn check(&self, password: &str) -> Result<(), SqlError> {
        scram::check_password(&self.role, self.verifier.as_ref(), &self.authenticator.inner.mock, password)
    }
}

/// A password checked by an LDAP directory.
struct DirectoryPassword {
    ldap: Arc<LdapDirectory>,
    role: String,
}

#[async_trait]
impl CheckPassword for DirectoryPassword {
    async fn check(&self, password: &str) -> Result<(), SqlError> {
        self.ldap.check(&self.role, password).await
    }
}

/// Checks the certificate that a rule requires.
///
/// Errors: 28000, none was presented, or that of another role.
fn check_certificate(rule: &hba::Rule, certificate: Option<&[u8]>, role: &str) -> Result<(), SqlError> {
    let is_fine = match rule.client_certificate {
        hba::ClientCertificate::None => true,
        hba::ClientCertificate::Signed => certificate.is_some(),
        hba::ClientCertificate::OfRole => {
            certificate.is_some_and(|certificate| tls::is_of(&certificate.into(), role))
        }
    };
    if is_fine { Ok(()) } else { Err(harrier_server::auth::wrong_certificate(role)) }
}

/// Rejects authentication by third parties while there are no roles: every user is then a superuser.
fn check_foreign(role: &str, access: &Access) -> Result<(), SqlError> {
    match access.is_open() {
        true => Err(SqlError::fatal(
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
            format!("role \"{role}\" does not exist"),
        )),
        false => Ok(()),
    }
}

/// The verifier of a role's password, if it has a valid one.
fn verifier(role: &str, access: &Access) -> Option<ScramVerifier> {
    let (_, role) = access.role(role)?;
    let kept = role.verifier.as_ref().filter(|_| !role.is_expired())?;
    ScramVerifier::parse(kept.as_str())
}

/// State of a SCRAM exchange.
enum Proof {
    New(Scram),
    Challenged(Challenge),
    Over,
}

impl Exchange for Proof {
    fn mechanisms(&self) -> Vec<String> {
        match self {
            Self::New(scram) => scram.mechanisms().iter().map(|name| name.to_string()).collect(),
            _ => vec![],
        }
    }

    fn first(&mut self, mechanism: &str, data: &[u8]) -> Result<Vec<u8>, SqlError> {
        let Self::New(scram) = std::mem::replace(self, Self::Over) else {
            return Err(out_of_order());
        };
        let (answer, challenge) = scram.challenge(mechanism, data)?;
        *self = Self::Challenged(challenge);
        Ok(answer.into_bytes())
    }

    fn last(&mut self, data: &[u8]) -> Result<Vec<u8>, SqlError> {
        match std::mem::replace(self, Self::Over) {
            Self::Challenged(challenge) => challenge.verify(data).map(String::into_bytes),
            _ => Err(out_of_order()),
        }
    }
}

fn no_directory() -> SqlError {
    SqlError::fatal(SqlState::INTERNAL_ERROR, "an hba rule names no directory")
}

fn out_of_order() -> SqlError {
    SqlError::fatal(SqlState::PROTOCOL_VIOLATION, "a SASL message out of order")
}

#[async_trait]
impl ClientAuthentication for Authenticator {
    async fn method(&self, arrival: &Arrival) -> Result<Method, SqlError> {
        let access = self.access().await?;
        let origin = match arrival.client {
            Some(client) => Origin::Tcp(client.ip().to_canonical()),
            None => Origin::Local,
        };
        let Arrival { is_encrypted, database, role, .. } = arrival;
        let connection = Connection { origin, is_tls: *is_encrypted, database, user: role };
        let rule = self.rule(&connection, &access)?;
        check_certificate(&rule, arrival.certificate.as_deref(), role)?;
        match rule.method {
            hba::Method::Trust => Ok(Method::Trust),
            // The required certificate was checked above.
            hba::Method::Cert => check_foreign(role, &access).map(|()| Method::Trust),
            hba::Method::Ldap => {
                check_foreign(role, &access)?;
                let ldap = rule.ldap.ok_or_else(no_directory)?;
                Ok(Method::Password(Box::new(DirectoryPassword { ldap, role: role.clone() })))
            }
            hba::Method::Peer => {
                let peer = self.peer(arrival).await;
                match self.check_peer(peer.as_ref(), role, &access) {
                    Ok(()) => Ok(Method::Trust),
                    Err(_) if self.falls_back_to_password(&rule, peer.as_ref(), &access) => {
                        Ok(self.scram(arrival, &access))
                    }
                    Err(failure) => Err(failure),
                }
            }
            hba::Method::ScramSha256 => Ok(self.scram(arrival, &access)),
            hba::Method::Password => Ok(self.password(role, &access)),
            hba::Method::Reject => Err(SqlError::fatal(
                SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
                "an hba rule rejects the connection",
            )),
        }
    }

    async fn admit(&self, arrival: &Arrival) -> Result<(), SqlError> {
        self.check_role(&arrival.role, &*self.access().await?)
    }

    fn report_rejection(&self, arrival: &Arrival, failure: &SqlError) {
        let Arrival { role, database, client, .. } = arrival;
        tracing::info!(role, database, ?client, reason = failure.message, "a client was refused");
    }
}

#[async_trait]
impl Authenticate for Authenticator {
    async fn authenticate(&self, attempt: &Attempt<'_>) -> Result<String, SqlError> {
        let access = self.access().await?;
        let peer = peer::find(attempt.client, attempt.server).await.ok().flatten();
        // The default role: the certificate's name, or else the operating system's user.
        let shown = attempt.certificate.and_then(|certificate| tls::common_name(&certificate.into()));
        let own = shown.or_else(|| peer.as_ref().and_then(|peer| peer.name.clone())).unwrap_or_default();
        let role = if attempt.user.is_empty() { own } else { attempt.user.to_string() };
        let origin = Origin::Tcp(attempt.client.ip().to_canonical());
        let (is_tls, database) = (attempt.is_encrypted, attempt.database);
        let rule = self.rule(&Connection { origin, is_tls, database, user: &role }, &access)?;
        check_certificate(&rule, attempt.certificate, &role)?;
        let is_safe = is_tls || attempt.client.ip().to_canonical().is_loopback();
        let given = || match attempt.password {
            _ if !is_safe => Err(SqlError::fatal(
                SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
                "a password is only taken over TLS",
            )),
            Some(password) => Ok(password),
            None => Err(SqlError::fatal(
                SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
                format!("no password was given for user \"{role}\""),
            )),
        };
        let by_password = || {
            let verifier = verifier(&role, &access);
            scram::check_password(&role, verifier.as_ref(), &self.inner.mock, given()?)
        };
        match rule.method {
            hba::Method::Trust => {}
            hba::Method::ScramSha256 | hba::Method::Password => by_password()?,
            hba::Method::Peer => match self.check_peer(peer.as_ref(), &role, &access) {
                Err(_) if self.falls_back_to_password(&rule, peer.as_ref(), &access) => by_password()?,
                checked => checked?,
            },
            hba::Method::Ldap => {
                check_foreign(&role, &access)?;
                rule.ldap.as_ref().ok_or_else(no_directory)?.check(&role, given()?).await?;
            }
            hba::Method::Cert => check_foreign(&role, &access)?,
            hba::Method::Reject => {
                return Err(SqlError::fatal(
                    SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
                    "an hba rule rejects the connection",
                ));
            }
        }
        self.check_role(&role, &access)?;
        Ok(role)
    }
}
