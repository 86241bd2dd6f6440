//! Client drivers and tools of PostgreSQL, Arrow Flight SQL and Hive against `harrier serve`
//! (`tests/clients`).

use std::path::Path;
use std::process::Command;
use std::sync::PoisonError;

use crate::test_server::TestServer;

/// Runs checks of `tests/clients/run.py`, each with one client.
fn run(clients: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    if harrier_servers::installation("clients.sh").is_none() {
        return;
    }
    let _shared = crate::MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    let server =
        TestServer::start(&["--launcher", "none", "--flight", "127.0.0.1:0", "--hive", "127.0.0.1:0"]);
    let user = std::env::var("USER").unwrap_or_else(|_| "root".to_string());
    let mut command = Command::new("python3");
    command.arg(root.join("tests/clients/run.py"));
    command.args(["127.0.0.1", &server.port.to_string(), &user, "--database", "warehouse", "--keep-going"]);
    command.arg("--known").arg(root.join("tests/clients/differences.tsv"));
    command.args(["--flight", &server.flight.to_string(), "--hive", &server.hive.to_string()]);
    for client in clients {
        command.args(["--only", client]);
    }
    let output = command.output().unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{output_text}\n{errors}\n{}", server.log());
}

#[test]
fn psql() {
    run(&["psql"]);
}

#[test]
fn psycopg() {
    run(&["psycopg"]);
}

#[test]
fn asyncpg() {
    run(&["asyncpg"]);
}

#[test]
fn node() {
    run(&["node"]);
}

#[test]
fn sqlalchemy() {
    run(&["sqlalchemy"]);
}

#[test]
fn pgjdbc() {
    run(&["pgjdbc"]);
}

#[test]
fn odbc() {
    run(&["pyodbc"]);
}

#[test]
fn pgbench() {
    run(&["pgbench"]);
}

#[test]
fn shells() {
    run(&["pgcli", "sqlline"]);
}

#[test]
fn notebooks() {
    run(&["jupysql"]);
}

#[test]
fn adbc() {
    run(&["adbc", "flightsql"]);
}

#[test]
fn dbt() {
    run(&["dbt"]);
}

#[test]
fn mappers() {
    run(&["peewee", "tortoise", "django", "builders"]);
}

#[test]
fn hive_in_python() {
    run(&["pyhive", "impyla", "hive_sqlalchemy"]);
}

#[test]
fn hive_jdbc() {
    run(&["hivejdbc"]);
}
