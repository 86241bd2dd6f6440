//! Who may come in: rules by address and method, passwords, operating-system users, certificates.
//!
//! Nothing here reads from a connection or knows a catalog. Who owns the connection asks, in this order:
//!
//! ```text
//!   Rules::find(Connection) ─► Rule ─► peer:          peer::find, then peer::check
//!     hba.rs                           scram-sha-256: Scram::challenge ─► Challenge::verify        scram.rs
//!                                      password:      Verifier::check, of a mock if there is none
//!                                      ldap:          Ldap::check, which asks a directory                      ldap.rs
//!                                      cert:          tls::common_names of what the client showed
//!                                      trust, reject
//! ```
//!
//! Invariants: what a client hears does not tell whether a role exists until it has proven who it is. No
//! password, verifier or proof is in a message or in Debug output.

pub mod hba;
pub mod ldap;
pub mod listen;
pub mod peer;
pub mod scram;
pub mod tls;

use harrier_error::{SqlError, SqlState};

/// What a client hears whose password is wrong, who has none, or whose role does not exist.
pub fn wrong_password(user: &str) -> SqlError {
    SqlError::fatal(SqlState::INVALID_PASSWORD, format!("password authentication failed for user \"{user}\""))
}

/// What a client hears whose certificate is not the user's.
pub fn wrong_certificate(user: &str) -> SqlError {
    SqlError::fatal(
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
        format!("certificate authentication failed for user \"{user}\""),
    )
}
