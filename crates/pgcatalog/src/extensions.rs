//! The extensions of PostgreSQL of which programs want what is built in here: the language of every database,
//! random UUIDs, and hashes.

/// An extension that is there from the beginning, by PostgreSQL 15's version of it.
#[derive(Debug, Clone, Copy)]
pub struct Extension {
    pub(crate) oid: i32,
    pub name: &'static str,
    pub(crate) version: &'static str,
}

/// All of them. Their numbers are of those that PostgreSQL gives to objects of its own while it is set up.
pub const EXTENSIONS: [Extension; 3] = [
    Extension { oid: 13_998, name: "plpgsql", version: "1.0" },
    Extension { oid: 13_999, name: "pgcrypto", version: "1.3" },
    Extension { oid: 14_000, name: "uuid-ossp", version: "1.1" },
];
