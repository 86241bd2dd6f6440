//! Real servers for tests and benchmarks: S3, HDFS, PostgreSQL, LDAP, and what goes wrong between them and their clients; it must
//! never know what they are used for.
//!
//! - [`S3`]: versitygw, a server that speaks S3 over a folder.
//! - [`Hdfs`]: a NameNode and a DataNode.
//! - [`Postgres`]: a PostgreSQL server.
//! - [`Ldap`]: a directory in OpenLDAP's server.
//! - [`Proxy`]: between a client and a server of HTTP; it counts, delays, refuses and cuts off.
//!
//! All of them listen on the loopback interface only, on ports that the system picks, in a folder of their own. Each has a keeper,
//! a shell that waits for the end of a pipe which only this process holds; so servers end with the process, however it ends.
//! `scripts/s3.sh`, `scripts/hdfs.sh`, `scripts/postgres.sh` and `scripts/ldap.sh` install them.

mod hdfs;
mod keeper;
mod ldap;
mod postgres;
mod proxy;
mod s3;

use std::path::{Path, PathBuf};
use std::process::Command;

pub use hdfs::Hdfs;
pub use ldap::Ldap;
pub use postgres::Postgres;
pub use proxy::{Fault, Proxy, Request, Rule};
pub use s3::{ACCESS_KEY, REGION, S3, SECRET_KEY};

/// Whether whoever runs the tests wants no servers: `HARRIER_SKIP_SERVERS=1`. Says so.
pub fn skipped() -> bool {
    let skipped = std::env::var_os("HARRIER_SKIP_SERVERS").is_some_and(|value| value == "1");
    if skipped {
        eprintln!("skipped: HARRIER_SKIP_SERVERS is set");
    }
    skipped
}

/// Says that a test is left out because a server could not be installed; with `HARRIER_REQUIRE_SERVERS=1` it fails.
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

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the checkout is there")
}

/// A port that nobody listens on at present.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("a bound socket").port()
}
