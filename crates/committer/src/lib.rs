//! Commits to folders of files that others list: what a statement does to a folder is seen whole, or not at
//! all.
//!
//! A statement stages its files where nobody looks for them, writes a journal of what it is going to do, and
//! shows the files. A process that finds the journal of a dead statement completes it. Before the journal is
//! there nothing has happened; afterwards all has. How files are shown differs: [`local`] exchanges folders
//! in one step of the file system, [`object_store`] has one file for each folder, because a store changes one
//! file in one step.
//!
//! Architecture invariant: this crate never knows what is in a file, nor what a query is.

pub mod local;
pub mod object_store;
