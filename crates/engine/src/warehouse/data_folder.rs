//! The files in a warehouse's data folder, and their writers.

use std::collections::BTreeSet;

use datafusion::error::Result;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::object_store::ObjectMeta;
use futures::TryStreamExt;
use harrier_exec::data_files::location::{local, locate};

use crate::object_stores::data_files::list_all;

/// Whether a file was written by one of these writers: its name contains the writer's name, after the number
/// of a table partition if there is one.
pub(crate) fn is_written_by(path: &str, writers: &BTreeSet<String>) -> bool {
    name_parts(path).any(|part| writers.contains(part))
}

/// The parts of a file's name.
pub(crate) fn name_parts(path: &str) -> impl Iterator<Item = &str> {
    path.rsplit('/').next().unwrap_or(path).split(['-', '.'])
}

/// Lists every file below a folder: its path as in the catalog, and its modification time in microseconds.
pub(crate) async fn files_below(root: &str, runtime: &RuntimeEnv) -> Result<Vec<(String, i64)>> {
    let (store_url, prefix) = locate(root)?;
    let store = runtime.object_store(&store_url)?;
    let begin = match local(root) {
        Some(_) => "/".to_string(),
        None => store_url.as_str().to_string(),
    };
    let found: Vec<_> = list_all(store.as_ref(), &prefix).try_collect().await?;
    let described =
        |file: ObjectMeta| (format!("{begin}{}", file.location), file.last_modified.timestamp_micros());
    Ok(found.into_iter().map(described).collect())
}
