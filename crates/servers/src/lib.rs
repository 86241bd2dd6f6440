//! Real servers for tests and benchmarks: S3, HDFS, PostgreSQL, LDAP, and what goes wrong between them and
//! their clients; it must never know what they are used for.
//!
//! - [`S3`]: versitygw, a server that speaks S3 over a folder.
//! - [`Hdfs`]: a NameNode and a DataNode.
//! - [`HdfsPair`]: a name service of two NameNodes, of which one takes over from the other.
//! - [`Postgres`]: a PostgreSQL server.
//! - [`Ldap`]: a directory in OpenLDAP's server.
//! - [`Proxy`]: between a client and a server of HTTP; it counts, delays, refuses and cuts off.
//!
//! The first three can be killed and started again where they were; their process ids are known, so that
//! somebody else may do it, too.
//!
//! All of them listen on the loopback interface only, on ports that the system picks, in a folder of their
//! own. Each has a keeper, a shell that waits for the end of a pipe which only this process holds; so servers
//! end with the process, however it ends. A run of the tests starts the first three once for all of its
//! programs (`examples/servers.rs`), which find them by variables; what ends a server takes one of its own.
//! `scripts/s3.sh`, `scripts/hdfs.sh`, `scripts/postgres.sh` and `scripts/ldap.sh` install them.

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

/// A request of HTTP is answered by then, or counts as not answered.
const HTTP_MAX: Duration = Duration::from_secs(10);

/// Whether whoever runs the tests wants no servers: `HARRIER_SKIP_SERVERS=1`. Says so.
pub fn skipped() -> bool {
    let skipped = std::env::var_os("HARRIER_SKIP_SERVERS").is_some_and(|value| value == "1");
    if skipped {
        eprintln!("skipped: HARRIER_SKIP_SERVERS is set");
    }
    skipped
}

/// A name that no other process has for what it makes in a server that they share, of lower-case letters and
/// digits. The number of a process alone is one that another had before: a run of the tests starts more
/// processes than there are numbers.
pub fn process_name() -> &'static str {
    static NAME: LazyLock<String> = LazyLock::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        format!("{}t{:x}", std::process::id(), since.as_micros())
    });
    &NAME
}

/// Says that a test is left out because a server could not be installed; with `HARRIER_REQUIRE_SERVERS=1` it
/// fails.
fn absent(what: &str) {
    let is_required = std::env::var_os("HARRIER_REQUIRE_SERVERS").is_some_and(|value| value == "1");
    assert!(!is_required, "absent: {what}");
    eprintln!("================ SKIPPED ================\n{what}\n=========================================");
}

/// Runs a script that installs something; returns the path it prints, or what is missing.
fn install(script: &str) -> Result<PathBuf, String> {
    let found = Command::new(checkout().join("scripts").join(script))
        .output()
        .map_err(|error| format!("scripts/{script}: {error}"))?;
    if !found.status.success() {
        return Err(String::from_utf8_lossy(&found.stderr).trim().to_string());
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&found.stdout).trim()))
}

/// The path that a script of `scripts/` prints for what it has installed, asked for once in a process.
/// `None`, said loudly, where whoever runs the tests wants no servers, or it cannot be installed; with
/// `HARRIER_REQUIRE_SERVERS=1` that fails.
pub fn installed(script: &str) -> Option<PathBuf> {
    static FOUND: Mutex<BTreeMap<String, Result<PathBuf, String>>> = Mutex::new(BTreeMap::new());
    if skipped() {
        return None;
    }
    // Who waits for the lock while another installs would wait for the script's own, too.
    let mut all = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let found = all.entry(script.to_string()).or_insert_with(|| install(script)).clone();
    drop(all);
    found.map_err(|missing| absent(&missing)).ok()
}

/// The Python with the drivers of PostgreSQL and Arrow Flight SQL (`scripts/clients.sh`); `None` as
/// [`installed`] says.
pub fn clients_python() -> Option<PathBuf> {
    installed("clients.sh").map(|folder| folder.join("python/bin/python3"))
}

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the checkout is there")
}

/// A port that nobody listens on at present.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("a bound socket").port()
}

/// Whether somebody listens on a port, in whatever state.
fn listens(port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], port)), Duration::from_secs(1)).is_ok()
}

/// Whether somebody answers HTTP there, whatever they say. Who was killed does not, even if the system still
/// listens for it.
fn answers_http(port: u16) -> bool {
    let asked = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(HTTP_MAX))?;
        stream.write_all(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        stream.read(&mut [0])
    };
    asked().is_ok_and(|bytes: usize| bytes > 0)
}

/// What is answered on a port to a GET, head and all; `None`: nothing, or no 200.
fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(HTTP_MAX)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.starts_with("HTTP/1.1 200").then_some(text)
}

/// The process that a keeper has written down in `file`, if there is one.
fn written_pid(file: &Path) -> Option<u32> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Whether a process runs. One that has ended is known to the system until its parent has asked for it.
fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind its name, which is in parentheses and may have such in it.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}
