//! The entries of a folder, as they are told apart from later ones of the same name.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::local::journal::EntryRecord;

/// An entry of a folder of the table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub name: OsString,
    pub inode: u64,
    pub is_folder: bool,
}

impl Entry {
    /// Readers ignore it.
    pub fn is_hidden(&self) -> bool {
        self.name.as_bytes().starts_with(b".") || self.name.as_bytes().starts_with(b"_")
    }

    pub fn record(&self) -> EntryRecord {
        EntryRecord { name: self.name.as_bytes().to_vec(), inode: self.inode }
    }
}

/// The entries of a folder, sorted by name.
pub(crate) fn entries(folder: &Path) -> io::Result<Vec<Entry>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(metadata) => found.push(Entry {
                name: entry.file_name(),
                inode: metadata.ino(),
                is_folder: metadata.is_dir(),
            }),
            // Removed concurrently.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    found.sort();
    Ok(found)
}
