//! Authentication of clients: the method for each connection, and the checks after it.

use std::net::SocketAddr;

use async_trait::async_trait;
use harrier_error::SqlError;

/// A client that has sent its startup message.
#[derive(Debug, Clone)]
pub struct Arrival {
    pub role: String,
    pub database: String,
    /// `None`: over a local socket.
    pub client: Option<SocketAddr>,
    /// The server's end of the connection.
    pub server: Option<SocketAddr>,
    /// The operating-system user at the other end of a local socket.
    pub local_user: Option<u32>,
    pub is_encrypted: bool,
    /// The client's certificate, if it has presented one that was verified.
    pub certificate: Option<Vec<u8>>,
}

/// An authentication method.
pub enum Method {
    Trust,
    /// Cleartext password.
    Password(Box<dyn CheckPassword>),
    /// SASL exchange.
    Scram(Box<dyn Exchange>),
}

/// Checks passwords.
#[async_trait]
pub trait CheckPassword: Send + Sync {
    /// Errors: the password is wrong (28P01 or 28000); the message does not reveal whether the role exists.
    async fn check(&self, password: &str) -> Result<(), SqlError>;
}

/// A SASL exchange.
pub trait Exchange: Send {
    /// The supported mechanisms, in order of preference.
    fn mechanisms(&self) -> Vec<String>;

    /// The server's response to the client's first message in the chosen mechanism.
    fn first(&mut self, mechanism: &str, data: &[u8]) -> Result<Vec<u8>, SqlError>;

    /// The server's final response. Fails if the client does not prove that it knows the password.
    fn last(&mut self, data: &[u8]) -> Result<Vec<u8>, SqlError>;
}

/// Admits or rejects clients.
#[async_trait]
pub trait ClientAuthentication: Send + Sync + 'static {
    /// Errors: no rule admits this connection (28000).
    async fn method(&self, arrival: &Arrival) -> Result<Method, SqlError>;

    /// Called after successful authentication.
    ///
    /// Errors: the role does not exist or may not log in (28000), or has too many sessions (53300).
    async fn admit(&self, arrival: &Arrival) -> Result<(), SqlError>;

    /// Called after failed authentication.
    fn report_rejection(&self, arrival: &Arrival, failure: &SqlError);
}
