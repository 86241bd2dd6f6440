//! Client authentication: HBA rules, passwords, operating-system users, certificates.
//!
//! Nothing here reads from a connection or knows a catalog. The connection's owner calls, in this order:
//!
//! ```text
//!   Rules::find(Connection) ─► Rule ─► peer:          peer::find, then peer::check
//!     hba.rs                           scram-sha-256: Scram::challenge ─► Challenge::verify        scram.rs
//!                                      password:      Verifier::check, or a mock verifier
//!                                      ldap:          Ldap::check, against a directory                       ldap.rs
//!                                      cert:          tls::common_names of the client certificate
//!                                      trust, reject
//! ```
//!
//! Invariants: before authentication succeeds, no message reveals whether a role exists. No password,
//! verifier or proof is in a message or in Debug output.

mod attempt;
pub(crate) mod basic;
pub mod hba;
pub mod ldap;
pub mod listen;
pub mod peer;
pub mod scram;
pub mod tls;

use harrier_error::{SqlError, SqlState};

pub use self::attempt::{Attempt, Authenticate};

/// The error for a wrong password, a role without a password, or a missing role.
pub fn wrong_password(user: &str) -> SqlError {
    SqlError::fatal(SqlState::INVALID_PASSWORD, format!("password authentication failed for user \"{user}\""))
}

/// The error for another user's certificate.
pub fn wrong_certificate(user: &str) -> SqlError {
    SqlError::fatal(
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
        format!("certificate authentication failed for user \"{user}\""),
    )
}
