//! A writing statement, from its beginning to its commit or rollback.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use crate::local::publish::publish;
use crate::local::recover::{OWNER, remove_statement};
use crate::local::root::Root;
use crate::local::{At, Published, Result, Work};

/// A writing statement. Dropping it removes what it has staged.
#[derive(Debug)]
pub struct Statement {
    root: Root,
    /// Empty: nothing to remove.
    staging: PathBuf,
    owner: Option<Flock<File>>,
}

impl Root {
    /// Begins a statement with the unique `id`, which must be valid in a file name. Cleans up after dead
    /// statements.
    pub fn begin(&self, id: &str) -> Result<Statement> {
        self.begin_in_steps(id, &|_| {})
    }

    /// The same; calls `step` as [`Statement::publish_in_steps`] does.
    pub fn begin_in_steps(&self, id: &str, step: &dyn Fn(&'static str)) -> Result<Statement> {
        // Cleanup holds the lock exclusively, so it never sees a statement that has no owner file only
        // because it is just beginning.
        drop(self.clear(step)?);
        let lock = self.lock(FlockArg::LockShared)?;
        let staging = self.control.join(id);
        fs::create_dir(&staging).at("make", &staging)?;
        let mut statement = Statement { root: self.clone(), staging, owner: None };
        let file = statement.staging.join(OWNER);
        let owner = File::create_new(&file).at("make", &file)?;
        let owner = Flock::lock(owner, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error);
        statement.owner = Some(owner.at("lock", &file)?);
        drop(lock);
        Ok(statement)
    }
}

impl Statement {
    /// The statement's staging folder, for [`crate::local::StagingPaths::of`] on every process that writes
    /// for it.
    pub fn staging(&self) -> &Path {
        &self.staging
    }

    /// Commits and publishes `work`. Either all of it happens or nothing (then this fails), unless
    /// [`crate::local::Error::is_undone`] returns false.
    pub fn publish(self, work: &Work) -> Result<Published> {
        self.publish_in_steps(work, &|_| {})
    }

    /// The same; calls `step` with the name of each completed action after which a crash may come.
    pub fn publish_in_steps(mut self, work: &Work, step: &dyn Fn(&'static str)) -> Result<Published> {
        let lock = self.root.clear(step)?;
        let published = publish(&self.root, &self.staging, work, step);
        if let Err(error) = &published
            && !error.is_undone()
        {
            // The rest is to be completed, not rolled back.
            self.staging = PathBuf::new();
        }
        // Under the lock, so that nobody checks the owner file while the folder is being removed.
        self.clean_up();
        drop(lock);
        published
    }

    fn clean_up(&mut self) {
        let (staging, owner) = (std::mem::take(&mut self.staging), self.owner.take());
        if staging.as_os_str().is_empty() {
            return;
        }
        if let Err(error) = remove_statement(&staging, owner) {
            tracing::warn!(%error, "files that were staged could not all be removed; the next statement will");
        }
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        self.clean_up();
    }
}
