//! The data folder of a warehouse: its files, and whose they are.

use std::collections::BTreeSet;

use datafusion::error::Result;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::object_store::ObjectMeta;
use futures::TryStreamExt;
use harrier_exec::data_files::location::{local, locate};

use crate::object_stores::data_files::list_all;

/// Whether a file has been written by one of these: its name has the writer's in it, behind the number of a
/// table partition if there is one.
pub(crate) fn is_of(path: &str, writers: &BTreeSet<String>) -> bool {
    parts(path).any(|part| writers.contains(part))
}

/// Of a file's name.
pub(crate) fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.rsplit('/').next().unwrap_or(path).split(['-', '.'])
}

/// Every file below a folder, by its path as the catalog has it, with the time of its last change in
/// microseconds.
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
