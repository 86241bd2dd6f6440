//! Publishes a statement's staged files: plans the actions, writes the journal, performs it.

use std::collections::HashMap;
use std::path::Path;

use crate::local::journal::Journal;
use crate::local::perform::{finish, perform};
use crate::local::prepare::ChangePlanner;
use crate::local::root::Root;
use crate::local::staging_paths::StagingPaths;
use crate::local::{Published, Result, Work};
use crate::work::Replacement;

/// Commits and performs `work`. The lock is held, and other statements are recovered.
pub(crate) fn publish(
    root: &Root,
    staging: &Path,
    work: &Work,
    step: &dyn Fn(&'static str),
) -> Result<Published> {
    let paths = StagingPaths::of(root.path(), staging)?;
    let mut planner = ChangePlanner {
        paths,
        staging,
        replacement: Replacement::None,
        exchanges: HashMap::new(),
        actions: Vec::new(),
        non_atomic_folders: Vec::new(),
    };
    for (folder, change) in work.by_folder() {
        planner.replacement = change.replacement;
        planner.folder(folder, &change.files)?;
        step("prepared");
    }
    let ChangePlanner { actions, non_atomic_folders, .. } = planner;
    if actions.is_empty() {
        return Ok(Published::default());
    }
    let journal = Journal { actions };
    journal.write(staging)?;
    step("decided");
    perform(&journal, step)?;
    finish(&journal, staging)?;
    step("forgotten");
    Ok(Published { non_atomic_folders })
}
