//! Requests that pass the proxy, and the faults that it injects.

use std::time::Duration;

/// An injected fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The proxy answers with this status; the server does not see the request.
    Status(u16),
    /// The server handles the request, then the connection is cut before the answer.
    CutAfterwards,
    /// The server handles the request; the client gets no answer until it times out.
    SilentAfterwards,
    /// The server handles the request; the client gets this status instead of its answer.
    StatusAfterwards(u16),
    /// The server gets this many bytes of a longer request body, then both connections are cut.
    CutRequest(u64),
    /// The server handles the request, and the connection is cut in the first line of the answer.
    CutHead,
    /// The connection is cut after this many bytes of the answer's body.
    CutWithin(u64),
    /// The connection is cut at once.
    Cut,
    /// The answer is delayed.
    Delay(Duration),
    /// The request is delayed on its way to the server.
    Late(Duration),
}

/// A request that passed the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The method, or the request's kind.
    pub kind: String,
    /// Path and query.
    pub path: String,
}
