//! Tests of the how-to pages.

use crate::check;

/// Pages that this file tests.
pub const PAGES: &[&str] = &[
    "docs/how-to/backup-and-restore.md",
    "docs/how-to/containers.md",
    "docs/how-to/failover.md",
    "docs/how-to/from-duckdb.md",
    "docs/how-to/from-greenplum.md",
    "docs/how-to/from-postgresql.md",
    "docs/how-to/from-spark.md",
    "docs/how-to/hive-clients.md",
    "docs/how-to/hive-folders.md",
    "docs/how-to/hosts-file.md",
    "docs/how-to/install.md",
    "docs/how-to/keys-and-values-python.md",
    "docs/how-to/load-and-unload.md",
    "docs/how-to/monitoring.md",
    "docs/how-to/object-stores.md",
    "docs/how-to/roles.md",
    "docs/how-to/server.md",
    "docs/how-to/slow-queries.md",
    "docs/how-to/slurm.md",
    "docs/how-to/tables.md",
    "docs/how-to/upgrading.md",
];

#[test]
fn backup_and_restore() {
    check("docs/how-to/backup-and-restore.md");
}

#[test]
fn containers() {
    check("docs/how-to/containers.md");
}

#[test]
fn failover() {
    check("docs/how-to/failover.md");
}

#[test]
fn from_duckdb() {
    check("docs/how-to/from-duckdb.md");
}

#[test]
fn from_greenplum() {
    check("docs/how-to/from-greenplum.md");
}

#[test]
fn from_postgresql() {
    check("docs/how-to/from-postgresql.md");
}

#[test]
fn from_spark() {
    check("docs/how-to/from-spark.md");
}

#[test]
fn hive_clients() {
    check("docs/how-to/hive-clients.md");
}

#[test]
fn hive_folders() {
    check("docs/how-to/hive-folders.md");
}

#[test]
fn hosts_file() {
    check("docs/how-to/hosts-file.md");
}

#[test]
fn install() {
    check("docs/how-to/install.md");
}

#[test]
fn keys_and_values_python() {
    check("docs/how-to/keys-and-values-python.md");
}

#[test]
fn load_and_unload() {
    check("docs/how-to/load-and-unload.md");
}

#[test]
fn monitoring() {
    check("docs/how-to/monitoring.md");
}

#[test]
fn object_stores() {
    check("docs/how-to/object-stores.md");
}

#[test]
fn roles() {
    check("docs/how-to/roles.md");
}

#[test]
fn server() {
    check("docs/how-to/server.md");
}

#[test]
fn slow_queries() {
    check("docs/how-to/slow-queries.md");
}

#[test]
fn slurm() {
    check("docs/how-to/slurm.md");
}

#[test]
fn tables() {
    check("docs/how-to/tables.md");
}

#[test]
fn upgrading() {
    check("docs/how-to/upgrading.md");
}
