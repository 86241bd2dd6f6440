//! Ranks of this host that meet over QUIC: a worker of a benchmark that starts the others, as a launcher of
//! MPI would.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

use harrier_interconnect::transport::quic::{Address, Place, Token};
use harrier_interconnect::{Carrier, Launch};

const HOST: &str = "127.0.0.1";

/// How long the ranks may take to meet: they are all started here.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts `ranks` - 1 processes with the arguments of this one. Returns what this process is: rank 0 of them,
/// unless it is one of those that were started so.
pub(crate) fn start(ranks: usize) -> Result<Launch, String> {
    let told = harrier_interconnect::launch(None, false).map_err(|error| error.to_string())?;
    if let Some(launch @ Launch { carrier: Carrier::Quic(_), .. }) = told {
        return Ok(launch);
    }
    start_others(ranks).map_err(|error| format!("the other ranks cannot be started: {error}"))
}

fn start_others(ranks: usize) -> io::Result<Launch> {
    // All at once, so that no two are the same.
    let sockets = (0..ranks).map(|_| UdpSocket::bind((HOST, 0))).collect::<io::Result<Vec<_>>>()?;
    let ports =
        sockets.iter().map(|socket| Ok(socket.local_addr()?.port())).collect::<io::Result<Vec<_>>>()?;
    drop(sockets);
    let addresses: Vec<Address> =
        ports.into_iter().map(|port| Address { host: HOST.to_owned(), port }).collect();
    let token = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    let hosts: String = addresses.iter().map(|address| format!("{address}\n")).collect();
    for rank in 1..ranks {
        let mut child = Command::new(env::current_exe()?)
            .args(env::args_os().skip(1))
            .env("HARRIER_HOSTS", "/dev/stdin")
            .env("HARRIER_RANK", rank.to_string())
            .env("HARRIER_TOKEN", token.trim())
            .env_remove("HARRIER_RANKS")
            .stdin(Stdio::piped())
            .spawn()?;
        // It reads to the end, which comes here.
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(hosts.as_bytes())?;
        }
    }
    let token = Token::new(&token).map_err(|error| io::Error::other(error.to_string()))?;
    let place = Place { rank: 0, addresses, token, patience: PATIENCE, watch_processes: true };
    Ok(Launch { rank: 0, ranks: Some(ranks), carrier: Carrier::Quic(place), told: Vec::new() })
}
