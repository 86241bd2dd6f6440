//! Atomic commits to folders of files that other tools list: a statement's changes to a folder are visible
//! completely or not at all.
//!
//! The commit has two phases with a write-ahead journal: a statement stages its files out of readers' sight,
//! writes a journal of its actions (the commit point), and publishes the files. Recovery: a process that
//! finds the journal of a dead statement completes it. Before the journal exists nothing has happened;
//! afterwards the statement is committed. Publishing differs: [`local`] exchanges folders by one rename,
//! [`object_store`] writes one file per folder, because an object store has no renames, and replaces one file
//! atomically.
//!
//! The contract is one, and so are its words ([`work`]); a statement of either has the same life:
//!
//! ```text
//! Root::begin(id) ─► Statement ─► files are staged, on every process ─► publish(&Work) ─► Published
//!                        │                                                   │ Error: is_undone, or not
//!                        └─► dropped: what it staged is removed              └─► the next user completes it
//! ```
//!
//! It is no trait: one blocks and the other is async, and whoever commits to folders knows to which of them.
//!
//! Architecture invariant: this crate never knows what is in a file, nor what a query is.

pub mod local;
pub mod object_store;
pub mod work;
