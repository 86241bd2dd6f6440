//! Listening sockets and certificates, from the configuration.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use harrier_server::auth::tls::{Tls, TlsFiles};
use harrier_server::config::Config;
use harrier_server::config::values::Address;
use harrier_server::pg::listen::LocalListener;
use tokio::net::TcpListener;

use crate::completions::print_line;
use crate::serve::serve_error::ServeError;

/// A bound address and its listener.
pub(super) type Socket = (SocketAddr, TcpListener);

/// All sockets, bound before any client is admitted.
pub(super) struct Sockets {
    pub(super) pg: Vec<Socket>,
    pub(super) local: Option<LocalListener>,
    pub(super) flight: Option<Socket>,
    pub(super) hive: Option<Socket>,
    pub(super) http: Option<Socket>,
}

impl Sockets {
    /// Errors: an address is not this machine's, or is in use.
    pub(super) async fn bind(config: &Config) -> Result<Self, ServeError> {
        let server = &config.server;
        let mut pg = Vec::new();
        for address in &server.listen {
            pg.push(bind(address).await?);
        }
        let port = pg.first().map_or(5433, |(address, _)| address.port());
        let local = server.unix_socket.get().map(|folder| local(folder, port)).transpose()?;
        let flight = bind_if(server.flight.get()).await?;
        let hive = bind_if(server.hive.get()).await?;
        let http = bind_if(server.http.get()).await?;
        Ok(Self { pg, local, flight, hive, http })
    }

    /// Network addresses of PostgreSQL's protocol.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.pg.iter().map(|(address, _)| *address).collect()
    }

    /// Network addresses of the other protocols that run statements.
    pub(super) fn others(&self) -> OtherAddresses {
        let of = |socket: &Option<Socket>| socket.as_ref().map(|(address, _)| *address);
        OtherAddresses { flight: of(&self.flight), hive: of(&self.hive) }
    }

    /// The addresses as text, with the local socket.
    pub(super) fn labels(&self) -> Vec<String> {
        let local = self.local.as_ref().map(|local| local.path().display().to_string());
        self.pg.iter().map(|(address, _)| address.to_string()).chain(local).collect()
    }
}

async fn bind_if(address: Option<&Address>) -> Result<Option<Socket>, ServeError> {
    match address {
        Some(address) => bind(address).await.map(Some),
        None => Ok(None),
    }
}

async fn bind(address: &Address) -> Result<Socket, ServeError> {
    let cannot = |error: io::Error| {
        let message = format!("ERROR 58000: cannot listen at {address}: {error}");
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "\nHINT: another server may be there; --listen, --http, --flight and --hive choose other addresses"
            }
            _ => "",
        };
        ServeError::failure(message + hint)
    };
    let listener = TcpListener::bind((address.host.as_str(), address.port)).await.map_err(cannot)?;
    let bound = listener.local_addr().map_err(cannot)?;
    Ok((bound, listener))
}

fn local(folder: &Path, port: u16) -> Result<LocalListener, ServeError> {
    LocalListener::bind(folder, port, true).map_err(|error| {
        ServeError::failure(format!("ERROR 58000: cannot listen in folder \"{}\": {error}", folder.display()))
    })
}

/// The TLS configuration, read from the configured files.
///
/// Errors: messages for the user; a file cannot be read or parsed.
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

/// Addresses of the other protocols that run statements.
#[derive(Debug, Clone, Copy)]
pub(super) struct OtherAddresses {
    pub(super) flight: Option<SocketAddr>,
    pub(super) hive: Option<SocketAddr>,
}

impl OtherAddresses {
    pub(super) fn iter(self) -> impl Iterator<Item = SocketAddr> {
        self.flight.into_iter().chain(self.hive)
    }
}

/// Prints the connection commands; the `ready` lines come last.
pub(super) fn announce(addresses: &[SocketAddr], others: OtherAddresses, is_encrypted: bool) {
    if let Some(address) = others.flight {
        let scheme = if is_encrypted { "grpc+tls" } else { "grpc" };
        print_line(format_args!("Arrow Flight SQL: {scheme}://{address}"));
    }
    if let Some(address) = others.hive {
        let options = if is_encrypted { ";ssl=true" } else { "" };
        print_line(format_args!("Hive: jdbc:hive2://{address}/default{options}"));
    }
    // Inside a Slurm allocation, clients connect from other hosts.
    if let (Some(job), Some(first)) = (std::env::var_os("SLURM_JOB_ID"), addresses.first()) {
        let host = host_name();
        print_line(format_args!(
            "job {}: from outside, ssh -L {1}:{2}:{1} {host}, and then psql -h 127.0.0.1 -p {1} warehouse",
            job.display(),
            first.port(),
            first.ip(),
        ));
    }
    for address in addresses {
        print_line(format_args!("ready: psql -h {} -p {} warehouse", address.ip(), address.port()));
    }
}

/// Host name of this machine.
pub(super) fn host_name() -> String {
    let name = nix::sys::utsname::uname().map(|system| system.nodename().to_string_lossy().into_owned());
    name.unwrap_or_else(|_| "localhost".to_string())
}
