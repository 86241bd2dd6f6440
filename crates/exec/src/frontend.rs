//! A front end, such as a server, as a client of a gang: both ends of their local socket.

pub mod client;
pub mod server;
