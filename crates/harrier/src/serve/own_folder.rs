//! The folder of a front end for sockets that nobody else can have made or enter.
//!
//! Invariants: its owner holds an exclusive lock on the file `lock` inside for as long as it lives. Whoever
//! can take that lock may therefore delete the folder.
//!
//! Crash: a front end that was killed leaves its folder, and perhaps its launcher (`orphan.rs`); the next one
//! of the same user that starts beside it removes both.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use harrier_engine::locked_folder;

use super::orphan;

/// How the folders of all front ends begin, so that they can find each other's.
const PREFIX: &str = "harrier-serve-";
const LOCK: &str = "lock";

/// Owns the folder; dropping it removes the folder and everything in it.
pub(super) struct OwnFolder {
    path: PathBuf,
    lock: Option<File>,
}

impl OwnFolder {
    /// A new folder inside `parent`, whose name ends with `suffix`. Also removes those that killed front ends
    /// left there.
    pub(super) fn create_in(parent: &Path, suffix: &str) -> io::Result<Self> {
        remove_abandoned(parent);
        let path = parent.join(format!("{PREFIX}{suffix}"));
        // Locked under a name that does not match, so that no other front end takes it for an abandoned one
        // before.
        let hidden = parent.join(format!(".{PREFIX}{suffix}"));
        DirBuilder::new().mode(0o700).create(&hidden)?;
        let lock = File::create(hidden.join(LOCK)).and_then(|lock| {
            lock.lock()?;
            fs::rename(&hidden, &path)?;
            Ok(lock)
        });
        match lock {
            Ok(lock) => Ok(Self { path, lock: Some(lock) }),
            Err(error) => {
                let _ = fs::remove_dir_all(&hidden);
                Err(error)
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        let _ = locked_folder::remove(&self.path, LOCK, &mut self.lock);
    }
}

/// Folders of others that hold no lock, or that this user may not enter, are left alone.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let path = entry.path();
        let Ok(lock) = File::open(path.join(LOCK)) else { continue };
        if lock.try_lock().is_err() {
            continue;
        }
        orphan::end(&path);
        if locked_folder::remove(&path, LOCK, &mut Some(lock)).is_ok() {
            tracing::info!(folder = %path.display(), "removed the folder of a server that was killed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_go_with_their_owner_and_abandoned_ones_with_the_next() {
        let parent = tempfile::tempdir().unwrap();
        let abandoned = parent.path().join(format!("{PREFIX}abandoned"));
        fs::create_dir(&abandoned).unwrap();
        fs::write(abandoned.join(LOCK), "").unwrap();
        let foreign = parent.path().join(format!("{PREFIX}foreign"));
        fs::create_dir(&foreign).unwrap();
        let first = OwnFolder::create_in(parent.path(), "first").unwrap();
        assert!(!abandoned.exists() && foreign.exists());
        let second = OwnFolder::create_in(parent.path(), "second").unwrap();
        assert!(first.path().exists() && second.path().exists());
        assert!(OwnFolder::create_in(parent.path(), "second").is_err());
        let path = first.path().to_path_buf();
        drop(first);
        assert!(!path.exists() && second.path().exists());
    }
}
