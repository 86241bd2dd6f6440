//! The tutorials.

use crate::check;

/// Pages that this file tests.
pub const PAGES: &[&str] = &[
    "docs/tutorials/cluster.md",
    "docs/tutorials/hive.md",
    "docs/tutorials/keys-and-values.md",
    "docs/tutorials/laptop.md",
    "docs/tutorials/server.md",
];

#[test]
fn cluster() {
    check("docs/tutorials/cluster.md");
}

#[test]
fn keys_and_values() {
    check("docs/tutorials/keys-and-values.md");
}

#[test]
fn laptop() {
    check("docs/tutorials/laptop.md");
}

#[test]
fn server() {
    check("docs/tutorials/server.md");
}

#[test]
fn hive() {
    check("docs/tutorials/hive.md");
}
