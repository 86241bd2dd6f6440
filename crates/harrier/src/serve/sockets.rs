//! Where clients come in: addresses and certificates, as the configuration names them.

use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use harrier_server::auth::tls::{Tls, TlsFiles};
use harrier_server::config::Config;
use harrier_server::config::values::Address;
use harrier_server::pg::listen::LocalListener;
use tokio::net::TcpListener;

use super::Trouble;

/// A place that is listened at.
pub(super) type Socket = (SocketAddr, TcpListener);

/// All places that are listened at before anybody is let in.
pub(super) struct Sockets {
    pub(super) pg: Vec<Socket>,
    pub(super) local: Option<LocalListener>,
    pub(super) flight: Option<Socket>,
    pub(super) http: Option<Socket>,
}

impl Sockets {
    /// Errors: an address is not this machine's, or somebody listens there already.
    pub(super) async fn bind(config: &Config) -> Result<Self, Trouble> {
        let server = &config.server;
        let mut pg = Vec::new();
        for address in &server.listen {
            pg.push(bind(address).await?);
        }
        let port = pg.first().map_or(5433, |(address, _)| address.port());
        let local = server.unix_socket.get().map(|folder| local(folder, port)).transpose()?;
        let flight = match server.flight.get() {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let http = match server.http.get() {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        Ok(Self { pg, local, flight, http })
    }

    /// Where clients of PostgreSQL's protocol connect to over a network.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.pg.iter().map(|(address, _)| *address).collect()
    }

    /// The same for people, with the local socket.
    pub(super) fn described(&self) -> Vec<String> {
        let local = self.local.as_ref().map(|local| local.path().display().to_string());
        self.pg.iter().map(|(address, _)| address.to_string()).chain(local).collect()
    }
}

async fn bind(address: &Address) -> Result<Socket, Trouble> {
    let cannot = |error: io::Error| {
        let message = format!("ERROR 58000: cannot listen at {address}: {error}");
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "\nHINT: another server may be there; --listen, --http and --flight choose other addresses"
            }
            _ => "",
        };
        Trouble::broken(message + hint)
    };
    let listener = TcpListener::bind((address.host.as_str(), address.port)).await.map_err(cannot)?;
    let bound = listener.local_addr().map_err(cannot)?;
    Ok((bound, listener))
}

fn local(folder: &Path, port: u16) -> Result<LocalListener, Trouble> {
    LocalListener::bind(folder, port, true).map_err(|error| {
        Trouble::broken(format!("ERROR 58000: cannot listen in folder \"{}\": {error}", folder.display()))
    })
}

/// What connections are encrypted with, read from the files that the configuration names.
///
/// Errors: for people; a file cannot be read, or is not what it should be.
pub(super) fn tls(config: &Config) -> Result<Option<Tls>, String> {
    let server = &config.server;
    let (Some(certificate), Some(key)) = (server.tls_certificate.get(), server.tls_key.get()) else {
        return Ok(None);
    };
    let files = TlsFiles {
        certificate: certificate.clone(),
        key: key.clone(),
        client_authority: server.tls_client_ca.get().cloned(),
    };
    Tls::load(files).map(Some).map_err(|error| error.to_string())
}

/// Says a line to whoever has started the server, and may have gone.
pub(super) fn say(line: impl fmt::Display) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Says how to connect; who waits for `ready` has heard the rest.
pub(super) fn tell(addresses: &[SocketAddr], flight: Option<SocketAddr>, is_encrypted: bool) {
    if let Some(address) = flight {
        let scheme = if is_encrypted { "grpc+tls" } else { "grpc" };
        say(format_args!("Arrow Flight SQL: {scheme}://{address}"));
    }
    // Inside an allocation of Slurm, whoever wants in is elsewhere.
    if let (Some(job), Some(first)) = (std::env::var_os("SLURM_JOB_ID"), addresses.first()) {
        let host = host_name();
        say(format_args!(
            "job {}: from outside, ssh -L {1}:{2}:{1} {host}, and then psql -h 127.0.0.1 -p {1} warehouse",
            job.display(),
            first.port(),
            first.ip(),
        ));
    }
    for address in addresses {
        say(format_args!("ready: psql -h {} -p {} warehouse", address.ip(), address.port()));
    }
}

/// This machine's name.
pub(super) fn host_name() -> String {
    let name = nix::sys::utsname::uname().map(|system| system.nodename().to_string_lossy().into_owned());
    name.unwrap_or_else(|_| "localhost".to_string())
}
