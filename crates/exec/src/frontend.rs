//! A front end, such as a server, as a client of a gang: both ends of their local socket.

pub mod admission;
pub mod client;
pub mod link;
pub mod protocol;
pub mod server;
