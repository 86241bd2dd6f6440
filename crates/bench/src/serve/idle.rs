//! Memory cost of idle connections.

use serde_json::{Value, json};

use super::load::Client;
use super::systems::System;
use super::wire::ClientError;

/// Memory of a server with connections that have each run a statement and are idle.
#[derive(Debug, Clone)]
pub struct Idle {
    pub connections: usize,
    /// Resident bytes of the server's process before, after it has run a statement.
    pub before_bytes: u64,
    /// Resident bytes with the idle connections.
    pub with_bytes: u64,
}

impl Idle {
    pub fn json(&self) -> Value {
        json!({
            "connections": self.connections, "before_bytes": self.before_bytes, "with_bytes": self.with_bytes,
        })
    }
}

/// Errors: a connection is refused.
pub async fn measure(system: &System, connections: usize) -> Result<Idle, ClientError> {
    // Memory of the server's first statement must not count as that of a connection.
    let mut first = Client::connect(&system.target).await?;
    first.query("SELECT 1", None).await?;
    drop(first);
    let before_bytes = resident(system.pid());
    let mut clients = Vec::with_capacity(connections);
    for _ in 0..connections {
        let mut client = Client::connect(&system.target).await?;
        client.query("SELECT 1", None).await?;
        clients.push(client);
    }
    Ok(Idle { connections, before_bytes, with_bytes: resident(system.pid()) })
}

/// Resident bytes of a process; 0 if it has exited.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_in_memory() {
        assert!(resident(std::process::id()) > 1 << 20);
        assert_eq!(resident(u32::MAX), 0);
    }
}
