//! The files written by a transaction, and their removal when they are unreferenced.
//!
//! A writer removes its files unless it has reported them. If another part of the statement then fails, a
//! report may be lost in transit. So the files of a statement whose reports are incomplete are looked up by
//! its name.

use std::collections::{BTreeMap, BTreeSet};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::object_store::path::Path;
use harrier_exec::data_files::location::{local, locate};
use harrier_exec::data_files::remove_objects;

use crate::warehouse::data_folder::{files_below, is_written_by};

/// The files of one transaction.
#[derive(Debug, Default)]
pub(crate) struct WrittenFiles {
    files: BTreeSet<String>,
    /// Statements whose file reports are incomplete: their folders, by the name in their files' names.
    unfinished: BTreeMap<String, String>,
}

impl WrittenFiles {
    /// Registers a statement that is about to write below a folder.
    pub(crate) fn begin(&mut self, name: &str, folder: String) {
        self.unfinished.insert(name.to_string(), folder);
    }

    /// Records a statement's complete list of files.
    pub(crate) fn finish(&mut self, name: &str, files: impl IntoIterator<Item = String>) {
        self.unfinished.remove(name);
        self.files.extend(files);
    }

    pub(crate) fn add(&mut self, file: String) {
        self.files.insert(file);
    }

    /// The files that are unreferenced if only `kept` are referenced.
    pub(crate) fn except(mut self, kept: &BTreeSet<String>) -> Self {
        self.files.retain(|file| !kept.contains(file));
        self
    }

    /// Removes the known local files immediately. Returns what is left for [`Self::remove`]; `None` if
    /// nothing is.
    pub(crate) fn remove_local(mut self) -> Option<Self> {
        self.files.retain(|file| match local(file) {
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
        (!self.files.is_empty() || !self.unfinished.is_empty()).then_some(self)
    }

    /// Removes all files. Files that cannot be removed are left to VACUUM.
    pub(crate) async fn remove(mut self, runtime: &RuntimeEnv) {
        for (name, folder) in std::mem::take(&mut self.unfinished) {
            let names = BTreeSet::from([name]);
            match files_below(&folder, runtime).await {
                Ok(files) => {
                    self.files.extend(
                        files.into_iter().map(|(file, _)| file).filter(|file| is_written_by(file, &names)),
                    );
                }
                Err(error) => tracing::warn!(folder, %error, "files that nothing refers to may stay"),
            }
        }
        let Some(Self { files, .. }) = self.remove_local() else { return };
        let mut by_store = BTreeMap::<String, (ObjectStoreUrl, Vec<Path>)>::new();
        for file in files {
            match locate(&file) {
                Ok((store, path)) => {
                    let of_store = by_store.entry(store.as_str().to_string());
                    of_store.or_insert_with(|| (store, Vec::new())).1.push(path);
                }
                Err(error) => tracing::warn!(file, %error, "a file that nothing refers to stays"),
            }
        }
        // An unreachable store is not retried for each file.
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
