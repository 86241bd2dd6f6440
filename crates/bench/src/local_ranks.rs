//! Local ranks connected over QUIC: a benchmark worker that starts the others, as an MPI launcher would.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

use harrier_interconnect::transport::quic::{Address, Place, Token};
use harrier_interconnect::{Carrier, Launch};

const HOST: &str = "127.0.0.1";

/// Rendezvous timeout; all ranks are local.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Starts `ranks` - 1 processes with this process's arguments. Returns this process's role: rank 0, unless it
/// was started this way itself.
pub(crate) fn start(ranks: usize) -> Result<Launch, String> {
    let launched = harrier_interconnect::launch(None, false).map_err(|error| error.to_string())?;
    if let Some(launch @ Launch { carrier: Carrier::Quic(_), .. }) = launched {
        return Ok(launch);
    }
    start_others(ranks).map_err(|error| format!("the other ranks cannot be started: {error}"))
}

fn start_others(ranks: usize) -> io::Result<Launch> {
    // Bind all at once, so that the ports are distinct.
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
        // It reads to the end of input, which is here.
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(hosts.as_bytes())?;
        }
    }
    let token = Token::new(&token).map_err(|error| io::Error::other(error.to_string()))?;
    let place = Place { rank: 0, addresses, token, patience: TIMEOUT, watch_processes: true };
    Ok(Launch { rank: 0, ranks: Some(ranks), carrier: Carrier::Quic(place), facts: Vec::new() })
}
