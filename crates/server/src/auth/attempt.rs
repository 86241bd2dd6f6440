//! Authentication in protocols other than PostgreSQL's: with a user and a password that are sent at once.

use std::net::SocketAddr;

use async_trait::async_trait;
use harrier_error::SqlError;

/// An authentication attempt.
pub struct Attempt<'a> {
    /// Empty if missing.
    pub user: &'a str,
    /// `None` if missing.
    pub password: Option<&'a str>,
    pub database: &'a str,
    pub client: SocketAddr,
    /// Where the client has connected to.
    pub server: SocketAddr,
    /// The connection uses TLS.
    pub is_encrypted: bool,
    /// The client's certificate, if TLS has verified one.
    pub certificate: Option<&'a [u8]>,
}

/// Authenticates the clients of protocols that send a user and a password.
#[async_trait]
pub trait Authenticate: Send + Sync + 'static {
    /// Returns the client's role. Errors: 28P01 the password is wrong; 28000 no rule admits this connection.
    async fn authenticate(&self, attempt: &Attempt<'_>) -> Result<String, SqlError>;
}
