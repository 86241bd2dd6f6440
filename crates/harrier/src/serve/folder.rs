//! The server's own folder, for sockets that nobody else can have made or reach.
//!
//! Invariants: its name cannot be guessed, only its owner may enter it, and the file `lock` inside is locked for as long as the server lives.
//!
//! Crash: a server that was killed leaves its folder; the next one of the same user that starts beside it removes it.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rand::distr::{Alphanumeric, SampleString};

/// How the folders of all servers begin.
const PREFIX: &str = "harrier-serve-";
const LOCK: &str = "lock";

/// Characters that nobody can guess.
const RANDOM_CHARACTERS: usize = 12;

/// Dropping it removes the folder with all that is in it.
pub(super) struct OwnFolder {
    path: PathBuf,
    _lock: File,
}

impl OwnFolder {
    /// Makes one in `parent`, and removes what servers that were killed have left there.
    ///
    /// Errors: it cannot be made, or is there already.
    pub(super) fn make_in(parent: &Path) -> io::Result<Self> {
        let suffix = Alphanumeric.sample_string(&mut rand::rng(), RANDOM_CHARACTERS);
        let path = parent.join(format!("{PREFIX}{suffix}"));
        DirBuilder::new().mode(0o700).create(&path)?;
        // Under another name until it is locked: who finds `lock` without a lock on it may remove the folder.
        let unlocked = path.join("unlocked");
        let lock = File::create(&unlocked)?;
        lock.lock()?;
        fs::rename(&unlocked, path.join(LOCK))?;
        remove_abandoned(parent, &path);
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(folder = %self.path.display(), %error, "a folder was left behind");
        }
    }
}

fn remove_abandoned(parent: &Path, own: &Path) {
    let (Ok(entries), Ok(own_metadata)) = (fs::read_dir(parent), fs::metadata(own)) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let is_one = entry.file_name().to_string_lossy().starts_with(PREFIX) && path != own;
        // Not through a symbolic link that somebody else has put there.
        let is_ours = fs::symlink_metadata(&path)
            .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == own_metadata.uid());
        if is_one
            && is_ours
            && File::open(path.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok())
            && fs::remove_dir_all(&path).is_ok()
        {
            tracing::info!(folder = %path.display(), "removed the folder of a server that was killed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn folders_are_private_and_go_with_their_servers() {
        let parent = tempfile::tempdir().unwrap();
        let first = OwnFolder::make_in(parent.path()).unwrap();
        assert_eq!(fs::metadata(first.path()).unwrap().permissions().mode() & 0o777, 0o700);
        let abandoned = parent.path().join(format!("{PREFIX}abandoned"));
        fs::create_dir(&abandoned).unwrap();
        fs::write(abandoned.join(LOCK), "").unwrap();
        let second = OwnFolder::make_in(parent.path()).unwrap();
        assert!(!abandoned.exists(), "nobody holds its lock");
        assert!(first.path().exists(), "a living server's folder stays");
        drop((first, second));
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
