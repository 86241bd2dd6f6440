//! Readers of a table's folder: while they list, nothing is published.

use std::fs::File;
use std::io;

use nix::fcntl::{Flock, FlockArg};

use crate::local::recover::needs_recovery;
use crate::local::root::Root;
use crate::local::{Error, Result};

/// A shared lock: while it lives nothing is published or removed below the folder.
#[derive(Debug)]
pub struct ReadGuard(#[allow(dead_code, reason = "unlocks when dropped")] Flock<File>);

impl Root {
    /// Waits until no statement is publishing, and holds off further ones. Completes committed statements of
    /// dead processes, if this process has permission.
    ///
    /// Errors: the lock cannot be opened, or recovery fails.
    pub fn read(&self) -> Result<ReadGuard> {
        let lock = self.lock(FlockArg::LockShared)?;
        if !needs_recovery(&self.control)? {
            return Ok(ReadGuard(lock));
        }
        drop(lock);
        match self.clear(&|_| {}) {
            Ok(exclusive) => drop(exclusive),
            // Each folder by itself is consistent all the same.
            Err(Error::Io { error, .. } | Error::Unfinished { error, .. })
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) => {}
            Err(error) => return Err(error),
        }
        Ok(ReadGuard(self.lock(FlockArg::LockShared)?))
    }
}
