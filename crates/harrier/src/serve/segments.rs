//! Folder of a gang for the shared memory of MPI between its ranks, one on each host.
//!
//! Open MPI creates a file for each rank in `/dev/shm`, 4 MiB or more, and removes it when the rank ends
//! normally. The file of a rank that is killed together with its launcher stays. In a folder of the gang's
//! own it is removed with the folder. MPICH has no such option.
//!
//! # Invariants
//! Every user of a folder holds a shared lock on the file `lock` inside. Whoever can take that lock
//! exclusively may therefore delete the folder.
//!
//! # Crash
//! The folder of a killed gang is removed by the front end when its launcher has ended, by the next gang's
//! ranks on other hosts, or else by the next server that starts.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Mount point of POSIX shared memory.
const PARENT: &str = "/dev/shm";

/// Common prefix of the folders of all gangs.
const PREFIX: &str = "harrier-gang-";
const LOCK: &str = "lock";

/// How long ranks may outlive their launcher, and the poll interval.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

/// Open MPI's parameters for the location of its files: up to version 4, and since.
pub(super) const VARIABLES: [&str; 2] =
    ["OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory"];

/// The folder of the gang `name`. `None`: this machine has no shared memory, or the environment sets the
/// location.
pub(super) fn folder(name: &str) -> Option<PathBuf> {
    let is_told = VARIABLES.iter().any(|variable| std::env::var_os(variable).is_some());
    (!is_told && Path::new(PARENT).is_dir()).then(|| Path::new(PARENT).join(format!("{PREFIX}{name}")))
}

/// Use of a folder until dropped; the last user removes it.
pub(super) struct Segments {
    path: PathBuf,
    lock: File,
}

impl Segments {
    /// Creates the folder, unless another rank of this host has. Also removes folders of killed gangs beside
    /// it.
    pub(super) fn enter(path: &Path) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            sweep(parent);
        }
        loop {
            match DirBuilder::new().mode(0o700).create(path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            let name = path.join(LOCK);
            let lock = match File::options().write(true).create(true).truncate(false).open(&name) {
                // Another process is removing the folder.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                lock => lock?,
            };
            lock.lock_shared()?;
            let is_there = fs::metadata(&name).is_ok_and(|found| {
                lock.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (found.dev(), found.ino()))
            });
            if is_there {
                return Ok(Self { path: path.to_path_buf(), lock });
            }
        }
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        let _ = self.lock.unlock();
        remove_abandoned(&self.path);
    }
}

/// Removes the folders of gangs on this host whose last rank has ended.
pub(super) fn sweep_host() {
    sweep(Path::new(PARENT));
}

/// Removes the folders of all gangs of a server on this host; waits up to [`PATIENCE`] for their ranks to
/// end.
///
/// Cancellation: the next server sweeps.
pub(super) async fn sweep_all_of(server: &str) {
    let own = format!("{PREFIX}{server}-");
    let deadline = Instant::now() + PATIENCE;
    loop {
        sweep(Path::new(PARENT));
        let entries = fs::read_dir(PARENT).into_iter().flatten().flatten();
        let mut names = entries.map(|entry| entry.file_name());
        if !names.any(|name| name.to_string_lossy().starts_with(&own)) || Instant::now() > deadline {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            remove_abandoned(&entry.path());
        }
    }
}

/// Removes an unused folder. Skips folders without a lock, which are being created, and those of other users.
fn remove_abandoned(path: &Path) {
    if let Ok(lock) = File::open(path.join(LOCK))
        && lock.try_lock().is_ok()
        && let Err(error) = fs::remove_dir_all(path)
    {
        tracing::warn!(folder = %path.display(), %error, "what a gang has left cannot be removed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abandoned_segment_folders_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join(format!("{PREFIX}one"));
        let first = Segments::enter(&path).unwrap();
        let second = Segments::enter(&path).unwrap();
        fs::write(path.join("vader_segment"), "").unwrap();
        drop(first);
        sweep(parent.path());
        assert!(path.join("vader_segment").exists());
        drop(second);
        assert!(!path.exists());

        let abandoned = parent.path().join(format!("{PREFIX}abandoned"));
        fs::create_dir(&abandoned).unwrap();
        fs::write(abandoned.join("vader_segment"), "").unwrap();
        let begun = parent.path().join(format!("{PREFIX}begun"));
        fs::create_dir(&begun).unwrap();
        fs::write(abandoned.join(LOCK), "").unwrap();
        let next = Segments::enter(&path).unwrap();
        assert!(!abandoned.exists() && begun.exists() && path.exists());
        drop(next);
    }
}
