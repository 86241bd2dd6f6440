//! The spill folder of this process, removed with it.
//!
//! Invariants: the folder's name begins with [`PREFIX`], and its owner holds an exclusive lock on the file
//! `lock` inside for as long as it lives. A process that can take that lock may therefore delete the folder.
//!
//! Crash: a killed process leaves its folder; the next process that starts or ends beside it removes it. So
//! surviving ranks clean up after a lost one.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::runtime::locked_folder;

/// Prefix of all processes' folders, by which they find each other's.
const PREFIX: &str = "harrier-spill-";
const LOCK: &str = "lock";

/// Owns the folder; dropping it removes the folder and everything in it.
#[derive(Debug)]
pub(crate) struct SpillFolder {
    path: PathBuf,
    /// `None` after removal.
    lock: Mutex<Option<File>>,
}

impl SpillFolder {
    /// Creates a folder inside `parent`. Also removes the folders that killed processes left there.
    pub(crate) fn create_in(parent: &Path) -> io::Result<Self> {
        let name = format!("{PREFIX}{}", uuid::Uuid::new_v4().simple());
        // Created under a name that does not match, so that no other process takes it for abandoned before it
        // is locked.
        let hidden = parent.join(format!(".{name}"));
        let path = parent.join(name);
        fs::create_dir(&hidden)?;
        let lock = File::create(hidden.join(LOCK)).and_then(|lock| {
            lock.lock()?;
            fs::rename(&hidden, &path)?;
            Ok(lock)
        });
        let lock = match lock {
            Ok(lock) => lock,
            Err(error) => {
                let _ = fs::remove_dir_all(&hidden);
                return Err(error);
            }
        };
        remove_abandoned(parent, &path);
        Ok(Self { path, lock: Mutex::new(Some(lock)) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the folder, and those of processes killed meanwhile. Idempotent.
    pub(crate) fn remove(&self) {
        if let Some(parent) = self.path.parent() {
            remove_abandoned(parent, &self.path);
        }
        if let Err(error) = locked_folder::remove(&self.path, LOCK, &mut self.lock.lock()) {
            let folder = self.path.display();
            tracing::warn!(%folder, %error, "temporary files were left behind");
        }
    }
}

impl Drop for SpillFolder {
    fn drop(&mut self) {
        self.remove();
    }
}

fn remove_abandoned(parent: &Path, own: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let path = entry.path();
        if !is_ours || path == own {
            continue;
        }
        let mut lock = match File::open(path.join(LOCK)) {
            Ok(lock) if lock.try_lock().is_ok() => Some(lock),
            // Its removal had begun already.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            _ => continue,
        };
        if locked_folder::remove(&path, LOCK, &mut lock).is_ok() {
            tracing::info!(folder = %path.display(), "removed the temporary files of a process that was killed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_dead_owners_are_cleaned_up() {
        let parent = std::env::temp_dir().join(format!("harrier-spilltest-{}", std::process::id()));
        fs::create_dir_all(&parent).unwrap();
        let abandoned = parent.join(format!("{PREFIX}abandoned"));
        let abandon = || {
            fs::create_dir_all(abandoned.join("datafusion-x")).unwrap();
            fs::write(abandoned.join(LOCK), "").unwrap();
        };
        abandon();

        let first = SpillFolder::create_in(&parent).unwrap();
        assert!(!abandoned.exists());
        abandon();
        let half_removed = parent.join(format!("{PREFIX}half"));
        fs::create_dir(&half_removed).unwrap();
        let second = SpillFolder::create_in(&parent).unwrap();
        assert!(first.path().exists(), "a living process's folder stays");
        fs::write(first.path().join("rows"), "x").unwrap();
        drop(first);
        drop(second);
        assert_eq!(fs::read_dir(&parent).unwrap().count(), 0);
        fs::remove_dir_all(&parent).unwrap();
    }
}
