//! Who may come in: how a client has to prove who it is, and what is looked at when it has.

use std::net::SocketAddr;

use async_trait::async_trait;
use harrier_error::SqlError;

/// A client that has said who it wants to be.
#[derive(Debug, Clone)]
pub struct Arrival {
    pub role: String,
    pub database: String,
    /// `None`: over a local socket.
    pub client: Option<SocketAddr>,
    /// Our end of the connection.
    pub server: Option<SocketAddr>,
    /// The user of the operating system at the other end of a local socket.
    pub local_user: Option<u32>,
    pub is_encrypted: bool,
    /// What the client's certificate says, if it has shown one that was checked.
    pub certificate: Option<Vec<u8>>,
}

/// What a client has to do.
pub enum Method {
    Trust,
    /// To tell its password.
    Password(Box<dyn CheckPassword>),
    /// To show that it knows its password.
    Scram(Box<dyn Exchange>),
}

/// Knows whether a password is right.
#[async_trait]
pub trait CheckPassword: Send + Sync {
    /// Errors: it is not (28P01 or 28000), in words that do not tell whether the role exists.
    async fn check(&self, password: &str) -> Result<(), SqlError>;
}

/// A conversation of SASL.
pub trait Exchange: Send {
    /// What it can speak, the best first.
    fn mechanisms(&self) -> Vec<String>;

    /// What to answer to the client's first message, in the mechanism that it chose.
    fn first(&mut self, mechanism: &str, data: &[u8]) -> Result<Vec<u8>, SqlError>;

    /// What to answer to its last. An error if it does not know the password.
    fn last(&mut self, data: &[u8]) -> Result<Vec<u8>, SqlError>;
}

/// Lets clients in, or not.
#[async_trait]
pub trait Gate: Send + Sync + 'static {
    /// Errors: nobody may come in from there in this way (28000).
    async fn method(&self, arrival: &Arrival) -> Result<Method, SqlError>;

    /// To be called when the client has proved who it is.
    ///
    /// Errors: the role does not exist or may not log in (28000), or has too many sessions (53300).
    async fn admit(&self, arrival: &Arrival) -> Result<(), SqlError>;

    /// To be told of those that could not prove it.
    fn refused(&self, arrival: &Arrival, failure: &SqlError);
}
