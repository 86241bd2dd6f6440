//! The files that a transaction writes, and their removal when nothing refers to them.
//!
//! A writer removes its files unless it has handed on what it knows of them. When another part of the
//! statement fails then, what was handed on may be anywhere between the two, and reaches nobody. So files of
//! a statement that has not told all of them are looked up by its name.

use std::collections::{BTreeMap, BTreeSet};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::object_store::path::Path;
use harrier_exec::data_files::location::{local, locate};
use harrier_exec::data_files::remove_objects;

use crate::warehouse::data_folder::{files_below, is_of};

/// The files of one transaction.
#[derive(Debug, Default)]
pub(crate) struct WrittenFiles {
    known: BTreeSet<String>,
    /// Statements that write and have not told their files: the folders below which they do, by the names
    /// that their files have.
    unfinished: BTreeMap<String, String>,
}

impl WrittenFiles {
    /// A statement is about to write below a folder.
    pub(crate) fn begin(&mut self, name: &str, folder: String) {
        self.unfinished.insert(name.to_string(), folder);
    }

    /// A statement has told all that it has written.
    pub(crate) fn finish(&mut self, name: &str, files: impl IntoIterator<Item = String>) {
        self.unfinished.remove(name);
        self.known.extend(files);
    }

    pub(crate) fn add(&mut self, file: String) {
        self.known.insert(file);
    }

    /// Those that nothing refers to, if only `kept` are referred to.
    pub(crate) fn without(mut self, kept: &BTreeSet<String>) -> Self {
        self.known.retain(|file| !kept.contains(file));
        self
    }

    /// Removes those on local disks that are known, at once. Returns what there is still to do for
    /// [`Self::remove`]; `None`: nothing.
    pub(crate) fn remove_local(mut self) -> Option<Self> {
        self.known.retain(|file| match local(file) {
            Some(path) => {
                if let Err(error) = std::fs::remove_file(&path)
                    && error.kind() != std::io::ErrorKind::NotFound
                {
                    tracing::warn!(file, %error, "a file that nothing refers to stays");
                }
                false
            }
            None => true,
        });
        (!self.known.is_empty() || !self.unfinished.is_empty()).then_some(self)
    }

    /// Removes all of them. One that stays is swept by VACUUM.
    pub(crate) async fn remove(mut self, runtime: &RuntimeEnv) {
        for (name, folder) in std::mem::take(&mut self.unfinished) {
            let names = BTreeSet::from([name]);
            match files_below(&folder, runtime).await {
                Ok(files) => {
                    self.known
                        .extend(files.into_iter().map(|(file, _)| file).filter(|file| is_of(file, &names)));
                }
                Err(error) => tracing::warn!(folder, %error, "files that nothing refers to may stay"),
            }
        }
        let Some(Self { known, .. }) = self.remove_local() else { return };
        let mut by_store = BTreeMap::<String, (ObjectStoreUrl, Vec<Path>)>::new();
        for file in known {
            match locate(&file) {
                Ok((store, path)) => {
                    let of_store = by_store.entry(store.as_str().to_string());
                    of_store.or_insert_with(|| (store, Vec::new())).1.push(path);
                }
                Err(error) => tracing::warn!(file, %error, "a file that nothing refers to stays"),
            }
        }
        // A store that is away is not waited for again for each file.
        for (name, (store, paths)) in by_store {
            if let Err(error) = remove_from_store(runtime, &store, paths).await {
                tracing::warn!(store = name, %error, "files that nothing refers to stay");
            }
        }
    }
}

async fn remove_from_store(runtime: &RuntimeEnv, store: &ObjectStoreUrl, paths: Vec<Path>) -> Result<()> {
    let store = runtime.object_store(store)?;
    remove_objects(store.as_ref(), paths).await.map_err(DataFusionError::from)
}
