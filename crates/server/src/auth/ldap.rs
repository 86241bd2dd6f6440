//! Passwords that an LDAP directory knows: a client's is right if the directory lets a connection of ours in
//! with it (a simple bind).
//!
//! ```text
//!   prefix, suffix:  name = prefix + role + suffix ───────────────────────────────────► bind as name with the password
//!   base:            bind as ldapbinddn, or as nobody ─► search for the role: one entry ─► bind as that entry with the password
//! ```
//!
//! - The meaning of the options is PostgreSQL's, where it is not more careful: what a role's name is made of
//!   is escaped in filters and in names of entries; a filter has to have `$username`; the certificates of
//!   servers are always checked.
//! - Servers are tried in turn while they cannot be asked. What one has answered counts.
//!
//! Invariants: no empty password is ever sent, since a directory takes one for a connection without a name
//! and lets it in. No password, neither a client's nor that of `ldapbinddn`, is in a message, in the log or
//! in Debug output. A client hears the same words whatever the reason is.
//!
//! Memory bound: what a server may say on one connection ([`link::ANSWER_BYTES_MAX`]).
//!
//! Cancellation: dropping the future closes the connection. Source: RFC 4511 (protocol), 4513 (binds), 4514
//! (names), 4515 (filters), 4516 (URLs).

use std::time::Duration;

use harrier_error::{SqlError, SqlState};
use ldap3::{LdapError, LdapResult, SearchEntry, SearchOptions, dn_escape, ldap_escape};

use self::link::Link;
pub use self::options::Ldap;
use self::options::{Find, Secret, Server};

mod link;
mod options;

/// How long one server may take for all that is asked of it.
const SERVER_PATIENCE: Duration = Duration::from_secs(5);

/// How long all of them may take; shorter than clients are given to prove who they are.
const PATIENCE: Duration = Duration::from_secs(20);

/// Asks for the names of entries alone (RFC 4511, section 4.5.1.8).
const NO_ATTRIBUTES: [&str; 1] = ["1.1"];

/// Results with which a server says that it cannot answer now: busy, unavailable, other (RFC 4511, appendix
/// A.2).
const AWAY: [u32; 3] = [51, 52, 80];

/// The result of a search that found more than was asked for.
const SIZE_LIMIT_EXCEEDED: u32 = 4;

/// The result of a search below an entry that is not there.
const NO_SUCH_OBJECT: u32 = 32;

/// Why a password was not found to be right. Texts are for the log.
#[derive(Debug)]
enum Trouble {
    /// The directory does not know the user, or not with this password.
    Refused(String),
    /// Whoever looks after the rules has to mend something.
    Misconfigured(String),
    /// The server cannot be asked.
    Away(String),
}

impl Ldap {
    /// Whether the directory knows a role with this password.
    ///
    /// Errors: 28P01 the password is empty; 28000 it is wrong, nobody of this name is known, or no server can
    /// be asked, which the log tells apart.
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
        match tokio::time::timeout(PATIENCE, self.check_in_turn(role, password)).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(failed()),
            Err(_) => {
                tracing::warn!(role, "no LDAP server has answered within {} s", PATIENCE.as_secs());
                Err(failed())
            }
        }
    }

    async fn check_in_turn(&self, role: &str, password: &str) -> bool {
        for server in &self.servers {
            let asked = tokio::time::timeout(SERVER_PATIENCE, self.ask(server, role, password)).await;
            let asked = asked.unwrap_or_else(|_| Err(too_late()));
            match asked {
                Ok(()) => return true,
                Err(Trouble::Refused(reason)) => {
                    tracing::info!(role, %server, reason, "an LDAP server does not let a user in");
                    return false;
                }
                Err(Trouble::Misconfigured(reason)) => {
                    tracing::warn!(role, %server, reason, "an LDAP server cannot be asked for a user");
                    return false;
                }
                Err(Trouble::Away(reason)) => {
                    tracing::warn!(role, %server, reason, "an LDAP server cannot be asked");
                }
            }
        }
        false
    }

    async fn ask(&self, server: &Server, role: &str, password: &str) -> Result<(), Trouble> {
        let name = match &self.find {
            // Where the prefix makes an attribute of what follows, that is a value in the name of an entry.
            Find::Name { prefix, suffix } if prefix.contains('=') => {
                format!("{prefix}{}{suffix}", dn_escape(role))
            }
            Find::Name { prefix, suffix } => format!("{prefix}{role}{suffix}"),
            Find::Search { .. } => self.search(server, role).await?,
        };
        let mut link = self.link(server).await?;
        let answer = link.simple_bind(&name, password).await.map_err(broken)?;
        link.close().await;
        match answer.rc {
            0 => Ok(()),
            code if AWAY.contains(&code) => Err(Trouble::Away(told(&answer))),
            _ => Err(Trouble::Refused(format!("it refuses \"{name}\": {}", told(&answer)))),
        }
    }

    /// The name of the one entry of a role.
    async fn search(&self, server: &Server, role: &str) -> Result<String, Trouble> {
        let Find::Search { base, scope, filter, .. } = &self.find else {
            return Err(Trouble::Misconfigured("there is nothing to search for".to_string()));
        };
        let mut link = self.bound(server).await?;
        let filter = filter.replace(options::USERNAME, &ldap_escape(role));
        // One more than there may be.
        link.with_search_options(SearchOptions::new().sizelimit(2));
        let found = link.search(base, *scope, &filter, NO_ATTRIBUTES).await.map_err(broken)?;
        link.close().await;
        let (entries, answer) = (found.0, found.1);
        let unique = || Trouble::Refused(format!("several entries below \"{base}\" match {filter}"));
        match answer.rc {
            0 | SIZE_LIMIT_EXCEEDED if entries.len() > 1 => return Err(unique()),
            0 => {}
            SIZE_LIMIT_EXCEEDED => return Err(unique()),
            NO_SUCH_OBJECT => {
                return Err(Trouble::Misconfigured(format!("there is no \"{base}\", or it may not be seen")));
            }
            code if AWAY.contains(&code) => return Err(Trouble::Away(told(&answer))),
            _ => {
                let message = format!("it does not search below \"{base}\": {}", told(&answer));
                return Err(Trouble::Misconfigured(message));
            }
        }
        let name = entries.into_iter().next().map(|entry| SearchEntry::construct(entry).dn);
        // The entry without a name is the server itself; with its name, nobody would be asked for.
        name.filter(|name| !name.is_empty())
            .ok_or_else(|| Trouble::Refused(format!("no entry below \"{base}\" matches {filter}")))
    }

    /// A connection that may search.
    async fn bound(&self, server: &Server) -> Result<Link, Trouble> {
        let mut link = self.link(server).await?;
        if let Find::Search { account: Some((name, Secret(password))), .. } = &self.find {
            let answer = link.simple_bind(name, password).await.map_err(broken)?;
            match answer.rc {
                0 => {}
                code if AWAY.contains(&code) => return Err(Trouble::Away(told(&answer))),
                _ => {
                    let message = format!("it refuses ldapbinddn \"{name}\": {}", told(&answer));
                    return Err(Trouble::Misconfigured(message));
                }
            }
        }
        Ok(link)
    }

    async fn link(&self, server: &Server) -> Result<Link, Trouble> {
        link::open(server, self.encryption, &self.trust).await.map_err(Trouble::Away)
    }

    /// Asks every server as far as that can be done without a user, one after the other. Returns what is
    /// wrong with each, if something is.
    pub async fn probe(&self) -> Vec<(String, Option<String>)> {
        let mut found = Vec::new();
        for server in &self.servers {
            let asked = tokio::time::timeout(SERVER_PATIENCE, self.bound(server)).await;
            let wrong = match asked.unwrap_or_else(|_| Err(too_late())) {
                Ok(link) => {
                    link.close().await;
                    None
                }
                Err(Trouble::Refused(reason) | Trouble::Misconfigured(reason) | Trouble::Away(reason)) => {
                    Some(reason)
                }
            };
            found.push((server.to_string(), wrong));
        }
        found
    }

    /// The first server on another machine to which passwords would go unencrypted.
    pub fn unencrypted(&self) -> Option<String> {
        let is_open = self.encryption == options::Encryption::None;
        let other = self.servers.iter().find(|server| is_open && !server.is_loopback());
        other.map(Server::to_string)
    }

    /// Whether there is a password in the rule.
    pub fn has_secret(&self) -> bool {
        matches!(self.find, Find::Search { account: Some(_), .. })
    }
}

fn too_late() -> Trouble {
    Trouble::Away(format!("it has not answered within {} s", SERVER_PATIENCE.as_secs()))
}

fn broken(error: LdapError) -> Trouble {
    Trouble::Away(match error {
        LdapError::Io { source } => source.to_string(),
        LdapError::FilterParsing => return Trouble::Misconfigured("the filter is none".to_string()),
        // What the library says of its channels is of no use to anybody else.
        _ => "the connection has ended before the answer".to_string(),
    })
}

/// An answer for people: its code, and what the server says of it.
fn told(answer: &LdapResult) -> String {
    match answer.rc {
        49 => "invalid credentials (49)".to_string(),
        10 => "it refers to another server (10), and references are not followed".to_string(),
        code if answer.text.is_empty() => format!("result {code}"),
        code => format!("{} ({code})", answer.text),
    }
}
