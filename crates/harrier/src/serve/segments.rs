//! The folder of one gang for the memory that MPI shares between its ranks, on each of their hosts.
//!
//! Open MPI makes a file for each rank in `/dev/shm`, 4 MiB or more, and removes it when the rank ends in
//! good order. Of a rank that is killed together with its launcher it stays. In a folder of the gang's own it
//! goes with that. MPICH is not told of one.
//!
//! # Invariants
//! Whoever uses a folder holds a shared lock on the file `lock` inside. Whoever can take that lock for itself
//! may therefore delete the folder.
//!
//! # Crash
//! What stays of a gang that was killed is removed by the front end when its launcher has ended, by the next
//! gang's ranks on other hosts, or else by the next server that starts.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where memory with names is.
const PARENT: &str = "/dev/shm";

/// How the folders of all gangs begin.
const PREFIX: &str = "harrier-gang-";
const LOCK: &str = "lock";

/// How long ranks may take to go when their launcher has, and how often they are looked after.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

/// What tells Open MPI where its files go: up to version 4, and since.
pub(super) const VARIABLES: [&str; 2] =
    ["OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory"];

/// The folder of the gang of this name. `None`: this machine has no such memory, or the environment says
/// where the files go.
pub(super) fn folder(name: &str) -> Option<PathBuf> {
    let is_told = VARIABLES.iter().any(|variable| std::env::var_os(variable).is_some());
    (!is_told && Path::new(PARENT).is_dir()).then(|| Path::new(PARENT).join(format!("{PREFIX}{name}")))
}

/// Uses a folder until it is dropped; whoever is the last removes it.
pub(super) struct Segments {
    path: PathBuf,
    lock: File,
}

impl Segments {
    /// Makes the folder, unless another rank of this host has. Also removes those that killed gangs left
    /// beside it.
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
                // Somebody removes the folder at this moment.
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

/// Removes what gangs have left on this host whose last rank has gone.
pub(super) fn sweep_host() {
    sweep(Path::new(PARENT));
}

/// Removes what all gangs of a server have left on this host, whose ranks are about to go; waits for them a
/// little.
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

/// A folder without a lock is being made, and one of somebody else cannot be entered.
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
    fn a_folder_goes_with_its_last_user_or_with_the_next_gang() {
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
