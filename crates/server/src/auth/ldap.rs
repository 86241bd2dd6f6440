//! LDAP authentication: a client's password is correct if a simple bind with it succeeds.
//!
//! ```text
//!   prefix, suffix:  name = prefix + role + suffix ───────────────────────────────────► bind as name with the password
//!   base:            bind as ldapbinddn or anonymously ─► search for the role ─► bind as its entry with the password
//! ```
//!
//! - Options mean what they do in PostgreSQL, but more strictly: the role's name is escaped in filters and
//!   entry names; a filter must contain `$username`; server certificates are always verified.
//! - Servers are tried in turn until one responds; its answer is final.
//!
//! Invariants: no empty password is ever sent, since a directory treats it as an anonymous bind that
//! succeeds. No password, neither a client's nor `ldapbinddn`'s, is in a message, in the log or in Debug
//! output. The client gets the same error for every reason.
//!
//! Memory bound: a server's responses on one connection ([`link::ANSWER_BYTES_MAX`]).
//!
//! Cancellation: dropping the future closes the connection. Source: RFC 4511 (protocol), 4513 (binds), 4514
//! (names), 4515 (filters), 4516 (URLs).

use std::time::Duration;

use harrier_error::{SqlError, SqlState};
use ldap3::{LdapError, LdapResult, SearchEntry, SearchOptions, dn_escape, ldap_escape};

use self::link::Link;
pub use self::options::LdapDirectory;
use self::options::{Find, Secret, Server};

mod link;
mod options;
mod trust;

/// Time limit for all requests to one server.
const SERVER_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for all servers together; shorter than the client's authentication timeout.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(20);

/// Requests entry names without attributes (RFC 4511, section 4.5.1.8).
const NO_ATTRIBUTES: [&str; 1] = ["1.1"];

/// Result codes of a server that is temporarily unavailable: busy, unavailable, other (RFC 4511, appendix
/// A.2).
const UNAVAILABLE: [u32; 3] = [51, 52, 80];

/// Result code of a search with too many matches.
const SIZE_LIMIT_EXCEEDED: u32 = 4;

/// Result code of a search below a missing entry.
const NO_SUCH_OBJECT: u32 = 32;

/// Why authentication failed. Texts are for the log.
#[derive(Debug)]
enum AuthFailure {
    /// The directory does not know the user, or rejects the password.
    Refused(String),
    /// The rule must be corrected.
    Misconfigured(String),
    /// The server is unavailable.
    Unavailable(String),
}

impl LdapDirectory {
    /// Checks a role's password against the directory.
    ///
    /// Errors: 28P01 the password is empty; 28000 it is wrong, the role is unknown, or no server is
    /// available. The log distinguishes these.
    pub async fn check(&self, role: &str, password: &str) -> Result<(), SqlError> {
        if password.is_empty() {
            return Err(SqlError::fatal(SqlState::INVALID_PASSWORD, "empty password returned by client"));
        }
        let failed = || {
            SqlError::fatal(
                SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
                format!("LDAP authentication failed for user \"{role}\""),
            )
        };
        if role.is_empty() {
            return Err(failed());
        }
        match tokio::time::timeout(TOTAL_TIMEOUT, self.check_in_turn(role, password)).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(failed()),
            Err(_) => {
                tracing::warn!(role, "no LDAP server has answered within {} s", TOTAL_TIMEOUT.as_secs());
                Err(failed())
            }
        }
    }

    async fn check_in_turn(&self, role: &str, password: &str) -> bool {
        for server in &self.servers {
            let asked = tokio::time::timeout(SERVER_TIMEOUT, self.ask(server, role, password)).await;
            let asked = asked.unwrap_or_else(|_| Err(too_late()));
            match asked {
                Ok(()) => return true,
                Err(AuthFailure::Refused(reason)) => {
                    tracing::info!(role, %server, reason, "an LDAP server does not let a user in");
                    return false;
                }
                Err(AuthFailure::Misconfigured(reason)) => {
                    tracing::warn!(role, %server, reason, "an LDAP server cannot be asked for a user");
                    return false;
                }
                Err(AuthFailure::Unavailable(reason)) => {
                    tracing::warn!(role, %server, reason, "an LDAP server cannot be asked");
                }
            }
        }
        false
    }

    async fn ask(&self, server: &Server, role: &str, password: &str) -> Result<(), AuthFailure> {
        let name = match &self.find {
            // After an attribute name, the role is an attribute value of a distinguished name.
            Find::Name { prefix, suffix } if prefix.contains('=') => {
                format!("{prefix}{}{suffix}", dn_escape(role))
            }
            Find::Name { prefix, suffix } => format!("{prefix}{role}{suffix}"),
            Find::Search { .. } => self.search(server, role).await?,
        };
        let mut link = self.link(server).await?;
        let answer = link.simple_bind(&name, password).await.map_err(no_answer)?;
        link.close().await;
        match answer.rc {
            0 => Ok(()),
            code if UNAVAILABLE.contains(&code) => Err(AuthFailure::Unavailable(describe_result(&answer))),
            _ => Err(AuthFailure::Refused(format!("it refuses \"{name}\": {}", describe_result(&answer)))),
        }
    }

    /// The distinguished name of a role's only entry.
    async fn search(&self, server: &Server, role: &str) -> Result<String, AuthFailure> {
        let Find::Search { base, scope, filter, .. } = &self.find else {
            return Err(AuthFailure::Misconfigured("there is nothing to search for".to_string()));
        };
        let mut link = self.open_for_search(server).await?;
        let filter = filter.replace(options::USERNAME, &ldap_escape(role));
        // One more than allowed, to detect duplicates.
        link.with_search_options(SearchOptions::new().sizelimit(2));
        let found = link.search(base, *scope, &filter, NO_ATTRIBUTES).await.map_err(no_answer)?;
        link.close().await;
        let (entries, answer) = (found.0, found.1);
        let unique = || AuthFailure::Refused(format!("several entries below \"{base}\" match {filter}"));
        match answer.rc {
            0 | SIZE_LIMIT_EXCEEDED if entries.len() > 1 => return Err(unique()),
            0 => {}
            SIZE_LIMIT_EXCEEDED => return Err(unique()),
            NO_SUCH_OBJECT => {
                return Err(AuthFailure::Misconfigured(format!(
                    "there is no \"{base}\", or it may not be seen"
                )));
            }
            code if UNAVAILABLE.contains(&code) => {
                return Err(AuthFailure::Unavailable(describe_result(&answer)));
            }
            _ => {
                let message = format!("it does not search below \"{base}\": {}", describe_result(&answer));
                return Err(AuthFailure::Misconfigured(message));
            }
        }
        let name = entries.into_iter().next().map(|entry| SearchEntry::construct(entry).dn);
        // An entry without a name is the server itself; a bind with it would be anonymous.
        name.filter(|name| !name.is_empty())
            .ok_or_else(|| AuthFailure::Refused(format!("no entry below \"{base}\" matches {filter}")))
    }

    /// Opens a connection bound to the search account.
    async fn open_for_search(&self, server: &Server) -> Result<Link, AuthFailure> {
        let mut link = self.link(server).await?;
        if let Find::Search { account: Some((name, Secret(password))), .. } = &self.find {
            let answer = link.simple_bind(name, password).await.map_err(no_answer)?;
            match answer.rc {
                0 => {}
                code if UNAVAILABLE.contains(&code) => {
                    return Err(AuthFailure::Unavailable(describe_result(&answer)));
                }
                _ => {
                    let message = format!("it refuses ldapbinddn \"{name}\": {}", describe_result(&answer));
                    return Err(AuthFailure::Misconfigured(message));
                }
            }
        }
        Ok(link)
    }

    async fn link(&self, server: &Server) -> Result<Link, AuthFailure> {
        link::open(server, self.encryption, &self.trust).await.map_err(AuthFailure::Unavailable)
    }

    /// Checks every server, as far as possible without a user. Returns the error of each, if any.
    pub async fn probe(&self) -> Vec<(String, Option<String>)> {
        let mut found = Vec::new();
        for server in &self.servers {
            let asked = tokio::time::timeout(SERVER_TIMEOUT, self.open_for_search(server)).await;
            let wrong = match asked.unwrap_or_else(|_| Err(too_late())) {
                Ok(link) => {
                    link.close().await;
                    None
                }
                Err(
                    AuthFailure::Refused(reason)
                    | AuthFailure::Misconfigured(reason)
                    | AuthFailure::Unavailable(reason),
                ) => Some(reason),
            };
            found.push((server.to_string(), wrong));
        }
        found
    }

    /// The first remote server to which passwords would go unencrypted.
    pub fn unencrypted_server(&self) -> Option<String> {
        let is_open = self.encryption == options::Encryption::None;
        let other = self.servers.iter().find(|server| is_open && !server.is_loopback());
        other.map(Server::to_string)
    }

    /// Whether the rule contains a password.
    pub fn has_secret(&self) -> bool {
        matches!(self.find, Find::Search { account: Some(_), .. })
    }
}

fn too_late() -> AuthFailure {
    AuthFailure::Unavailable(format!("it has not answered within {} s", SERVER_TIMEOUT.as_secs()))
}

fn no_answer(error: LdapError) -> AuthFailure {
    AuthFailure::Unavailable(match error {
        LdapError::Io { source } => source.to_string(),
        LdapError::FilterParsing => return AuthFailure::Misconfigured("the filter is none".to_string()),
        // The library's channel errors mean nothing to users.
        _ => "the connection has ended before the answer".to_string(),
    })
}

/// Formats a server's result for messages: its code and diagnostic text.
fn describe_result(answer: &LdapResult) -> String {
    match answer.rc {
        49 => "invalid credentials (49)".to_string(),
        10 => "it refers to another server (10), and references are not followed".to_string(),
        code if answer.text.is_empty() => format!("result {code}"),
        code => format!("{} ({code})", answer.text),
    }
}
