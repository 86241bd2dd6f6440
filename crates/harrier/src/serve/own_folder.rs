//! Private folder of a front end for its sockets, inaccessible to other users.
//!
//! Invariants: its owner holds an exclusive lock on the file `lock` inside for its whole lifetime. Whoever
//! can take that lock may therefore delete the folder.
//!
//! Crash: a killed front end leaves its folder, and perhaps its launcher (`orphan.rs`); the next one of the
//! same user in the same parent folder removes both.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use harrier_engine::locked_folder;

use super::orphan;

/// Common prefix of these folders, by which front ends find abandoned ones.
const PREFIX: &str = "harrier-serve-";
const LOCK: &str = "lock";

/// Owns the folder; dropping it removes the folder and its contents.
pub(super) struct OwnFolder {
    path: PathBuf,
    lock: Option<File>,
}

impl OwnFolder {
    /// Creates a folder inside `parent`, whose name ends with `suffix`. Also removes those that killed front
    /// ends left there.
    pub(super) fn create_in(parent: &Path, suffix: &str) -> io::Result<Self> {
        remove_abandoned(parent);
        let path = parent.join(format!("{PREFIX}{suffix}"));
        // Locked under a name without the prefix, so that no other front end takes it for abandoned
        // meanwhile.
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

/// Removes abandoned folders; leaves alone those that are locked, or that this user cannot access.
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
    fn folders_of_dead_owners_are_cleaned_up() {
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
