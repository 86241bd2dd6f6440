//! Real servers for tests and benchmarks: S3, HDFS, PostgreSQL, LDAP, and a fault-injecting proxy. The crate
//! must not know its users.
//!
//! - [`S3`]: versitygw, a server that speaks S3 over a folder.
//! - [`Hdfs`]: a NameNode and a DataNode.
//! - [`HdfsPair`]: a name service of two NameNodes with failover.
//! - [`Postgres`]: a PostgreSQL server.
//! - [`Ldap`]: OpenLDAP's directory server.
//! - [`Proxy`]: an HTTP proxy that counts, delays, rejects and cuts off requests.
//!
//! The first three can be killed and restarted in place; their process ids are public, so that others may
//! kill them too.
//!
//! All of them listen only on the loopback interface, on ports that the system picks, each in a private
//! folder. Each has a keeper, a shell that waits for the end of a pipe which only this process holds; so
//! servers end with the process, however it ends. A test run starts the first three once for all of its
//! programs (`examples/servers.rs`), which find them by environment variables; tests that kill a server start
//! a private one. `scripts/s3.sh`, `scripts/hdfs.sh`, `scripts/postgres.sh` and `scripts/ldap.sh` install
//! them.

mod hdfs;
mod keeper;
mod ldap;
mod postgres;
mod proxy;
mod s3;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use hdfs::{Hdfs, HdfsPair};
pub use ldap::Ldap;
pub use postgres::Postgres;
pub use proxy::{Fault, Proxy, Request, Rule};
pub use s3::{ACCESS_KEY, REGION, S3, SECRET_KEY};

/// Timeout of an HTTP request.
const HTTP_MAX: Duration = Duration::from_secs(10);

/// Whether `HARRIER_SKIP_SERVERS=1` disables the servers; prints a message if so.
pub fn skip_requested() -> bool {
    let skipped = std::env::var_os("HARRIER_SKIP_SERVERS").is_some_and(|value| value == "1");
    if skipped {
        eprintln!("skipped: HARRIER_SKIP_SERVERS is set");
    }
    skipped
}

/// A name unique to this process, of lower-case letters and digits, for objects in shared servers. The
/// process id alone is not unique: a test run starts more processes than there are ids.
pub fn process_name() -> &'static str {
    static NAME: LazyLock<String> = LazyLock::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        format!("{}t{:x}", std::process::id(), since.as_micros())
    });
    &NAME
}

/// Reports that a test is skipped because a server could not be installed; fails with
/// `HARRIER_REQUIRE_SERVERS=1`.
fn absent(what: &str) {
    let is_required = std::env::var_os("HARRIER_REQUIRE_SERVERS").is_some_and(|value| value == "1");
    assert!(!is_required, "absent: {what}");
    eprintln!("================ SKIPPED ================\n{what}\n=========================================");
}

/// Runs an installation script; returns the path it prints, or the error.
fn install(script: &str) -> Result<PathBuf, String> {
    let found = Command::new(checkout().join("scripts").join(script))
        .output()
        .map_err(|error| format!("scripts/{script}: {error}"))?;
    if !found.status.success() {
        return Err(String::from_utf8_lossy(&found.stderr).trim().to_string());
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&found.stdout).trim()))
}

/// Runs a script of `scripts/` once per process, and returns the installation path that it prints. `None`,
/// with a loud message, if servers are disabled or it cannot be installed; the latter fails with
/// `HARRIER_REQUIRE_SERVERS=1`.
pub fn installation(script: &str) -> Option<PathBuf> {
    static FOUND: Mutex<BTreeMap<String, Result<PathBuf, String>>> = Mutex::new(BTreeMap::new());
    if skip_requested() {
        return None;
    }
    // A waiter on this mutex would otherwise wait for the script's own lock.
    let mut all = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let found = all.entry(script.to_string()).or_insert_with(|| install(script)).clone();
    drop(all);
    found.map_err(|missing| absent(&missing)).ok()
}

/// The Python with the drivers of PostgreSQL and Arrow Flight SQL (`scripts/clients.sh`); `None` as for
/// [`installation`].
pub fn clients_python() -> Option<PathBuf> {
    installation("clients.sh").map(|folder| folder.join("python/bin/python3"))
}

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the checkout is there")
}

/// A free port.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("a bound socket").port()
}

/// Whether a process listens on a port, in whatever state.
fn listens(port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], port)), Duration::from_secs(1)).is_ok()
}

/// Whether an HTTP server answers on the port, with any status. A killed one does not, even if the system
/// still listens for it.
fn answers_http(port: u16) -> bool {
    let asked = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(HTTP_MAX))?;
        stream.write_all(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        stream.read(&mut [0])
    };
    asked().is_ok_and(|bytes: usize| bytes > 0)
}

/// The answer to a GET, with its head; `None`: no answer, or a status other than 200.
fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(HTTP_MAX)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.starts_with("HTTP/1.1 200").then_some(text)
}

/// The process id that a keeper has written to `file`, if any.
fn written_pid(file: &Path) -> Option<u32> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Whether a process runs. A zombie does not.
fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // After its name, which is in parentheses and may contain parentheses.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}
