//! Care for a warehouse: small files made large ones, snapshots that expire, files that nothing refers to.
//!
//! Each is safe beside running statements and can be stopped and begun again at any step, though OPTIMIZE of a table begins from its start.
//! Files are removed only when nothing refers to them and nobody is known to be writing them (the catalog's `writers`), and only if they
//! are as old as is asked for: by that age a statement that reads an expired snapshot, or another program that writes, has to be done.
//!
//! What a statement can leave that dies: data files and delete files at their final paths, complete or not, on HDFS also beside them
//! (`harrier_storage::finished_name`), and on S3 uploads that were not completed. All of them are swept; of files those whose names end in
//! `.parquet`, of uploads only Harrier's own, as others do not say what they are.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, SystemTime};

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::object_store::{ObjectStore, ObjectStoreExt};
use futures::TryStreamExt;
use harrier_catalog::{Catalog, Expiry};
use harrier_exec::sqlstate::{CodedError, SqlState};
use harrier_exec::table_files::location::{local, locate};
use harrier_exec::table_files::{TablePartition, TablePartitions};
use harrier_storage::{Options, UnfinishedUpload, UnfinishedUploads};
use uuid::Uuid;

use super::dml::file_shape;
use super::explain;
use super::partitions::partitions_of;
use super::table::{Contents, RowSource, WarehouseTable};
use super::values;

/// A file of less than this part of the size that files are to have is small.
const SMALL_PART: i64 = 2;
/// A file is written anew when one in so many of its rows is deleted.
const DELETED_PART: i64 = 20;

/// The end of the names of data files and delete files.
const DATA: &str = ".parquet";
/// Of the name under which a writer writes: a UUID without hyphens.
const WRITER_LENGTH: usize = 32;

/// What a compaction is to write anew: small files if there are several, those with many deleted rows, and rows of the catalog.
/// `divided`: by ranges or lists, which files of other programs are not.
fn worth_compacting(
    contents: &Contents,
    target_bytes: impl Fn(&super::table::ScannedFile) -> i64,
    divided: Option<&TablePartitions>,
) -> BTreeSet<RowSource> {
    let many_deleted = |file: &super::table::ScannedFile| {
        file.deleted.stored.is_some() || file.deleted.rows.len() as i64 * DELETED_PART >= file.rows.max(1)
    };
    let is_small = |file: &super::table::ScannedFile| file.bytes < target_bytes(file) / SMALL_PART;
    let place = |file: &super::table::ScannedFile| {
        (file.table_partition.filter(|_| divided.is_some()), file.partition_values.clone())
    };
    let mut small: HashMap<_, usize> = HashMap::new();
    for file in contents.files.iter().filter(|file| is_small(file)) {
        *small.entry(place(file)).or_default() += 1;
    }
    let mut chosen = BTreeSet::new();
    for file in &contents.files {
        let alike = if is_small(file) { small.get(&place(file)).copied().unwrap_or_default() } else { 0 };
        let has_deletes = file.deleted != harrier_exec::table_files::DeletedRows::default();
        let is_elsewhere = divided.is_some_and(|divided| {
            file.table_partition.is_none() && file.unplaced_before != Some(divided.next)
        });
        if has_deletes && many_deleted(file) || alike > 1 || is_elsewhere {
            chosen.insert(file.source);
        }
    }
    chosen.extend(
        contents
            .kept
            .iter()
            .filter(|kept| !kept.rows.is_empty())
            .map(|kept| RowSource::Kept(kept.schema_version)),
    );
    chosen
}

impl WarehouseTable {
    /// What OPTIMIZE writes anew.
    pub(crate) async fn compaction(&self) -> Result<BTreeSet<RowSource>> {
        let divided = partitions_of(self.table())?;
        let bytes = |own: Option<&TablePartition>| {
            let shape = file_shape(self.state(), self.table(), own.map(|own| &own.options));
            shape.target_file_bytes.min(i64::MAX as u64) as i64
        };
        let usual = bytes(None);
        let own: HashMap<i64, i64> = divided
            .iter()
            .flat_map(|divided| &divided.partitions)
            .filter(|own| !own.options.is_empty())
            .map(|own| (own.id, bytes(Some(own))))
            .collect();
        let target_bytes = |file: &super::table::ScannedFile| {
            file.table_partition.and_then(|id| own.get(&id).copied()).unwrap_or(usual)
        };
        Ok(worth_compacting(&self.contents().await?, target_bytes, divided.as_ref()))
    }
}

/// Removes files that no snapshot can see and that are older than `age`; returns how many.
pub(crate) async fn vacuum(catalog: &Catalog, runtime: &RuntimeEnv, age: Duration) -> Result<u64> {
    let limit = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    let limit_micros =
        limit.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
    let mut removed = 0;
    let scheduled = catalog.scheduled().await.map_err(explain)?;
    let mut done = Vec::new();
    for file in scheduled {
        if micros_of(&file.since)? > limit_micros {
            continue;
        }
        remove(&file.path, runtime).await?;
        removed += 1;
        done.push(file.id);
    }
    catalog.unschedule(&done).await.map_err(explain)?;
    let root = catalog.head().await.map_err(explain)?.data_path.clone();
    // In this order: whoever wrote a file that is there now is still known, or has ended and had its files referred to by then.
    let there = files_below(&root, runtime).await?;
    let uploads = uploads_below(&root).await?;
    let writers = catalog.writers().await.map_err(explain)?;
    let referred = catalog.referenced_paths().await.map_err(explain)?;
    for (path, modified) in there {
        if modified <= limit_micros && !referred.contains(&path) && !is_of(&path, &writers) {
            remove(&path, runtime).await?;
            removed += 1;
        }
    }
    let Some((store, uploads)) = uploads else { return Ok(removed) };
    for upload in uploads {
        let path = upload.object.location.as_ref();
        let is_old = upload.object.last_modified.timestamp_micros() <= limit_micros;
        if is_old && is_own(path) && !is_of(path, &writers) {
            store.give_up(&upload).await.map_err(|error| cannot_remove(path, &error))?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Whether a file has been written by one of these: its name has the writer's in it, behind the number of a table partition if there is one.
fn is_of(path: &str, writers: &BTreeSet<String>) -> bool {
    parts(path).any(|part| writers.contains(part))
}

/// Whether a file has a name that a writer of Harrier gives.
fn is_own(path: &str) -> bool {
    let is_writer = |part: &str| part.len() == WRITER_LENGTH && Uuid::try_parse(part).is_ok();
    path.ends_with(DATA) && parts(path).any(is_writer)
}

/// Of a file's name.
fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.rsplit('/').next().unwrap_or(path).split(['-', '.'])
}

/// Lets snapshots expire that are older than `age`; returns how many did.
pub(crate) async fn expire(catalog: &Catalog, age: Duration) -> Result<u64> {
    let limit = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    let micros = limit.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
    let time = datafusion::common::ScalarValue::TimestampMicrosecond(Some(micros), Some("+00:00".into()));
    let text = harrier_exec::table_files::text_of(&time.to_array()?)?;
    let expiry = Expiry::OlderThan(text.value(0).to_string());
    let expired = catalog.expire(&expiry).await.map_err(explain)?;
    Ok(expired.snapshots.len() as u64)
}

fn micros_of(time: &str) -> Result<i64> {
    let kind = DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into()));
    let value = values::parse_one(time, &kind)?.to_array()?;
    Ok(value.as_primitive::<TimestampMicrosecondType>().value(0))
}

/// The uploads below a folder that nobody has completed, in a store that has such and tells of them.
async fn uploads_below(root: &str) -> Result<Option<(UnfinishedUploads, Vec<UnfinishedUpload>)>> {
    use datafusion::object_store::Error as E;
    if local(root).is_some() {
        return Ok(None);
    }
    let (store_url, folder) = locate(root)?;
    let Some(store) = harrier_storage::open_unfinished(store_url.as_ref(), &Options::default())? else {
        return Ok(None);
    };
    match store.below(&folder).await {
        Ok(uploads) => Ok(Some((store, uploads))),
        // All else of VACUUM works without; the bucket may have a rule for them.
        Err(error @ (E::PermissionDenied { .. } | E::Unauthenticated { .. } | E::NotImplemented { .. })) => {
            tracing::warn!(root, %error, "uploads that were not completed stay: they cannot be listed");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Every data file below a folder, by its path as the catalog has it, with the time of its last change in microseconds.
async fn files_below(root: &str, runtime: &RuntimeEnv) -> Result<Vec<(String, i64)>> {
    let (store_url, prefix) = locate(root)?;
    let store = runtime.object_store(&store_url)?;
    let begin = match local(root) {
        Some(_) => "/".to_string(),
        None => store_url.as_str().to_string(),
    };
    let found: Vec<_> = store.list(Some(&prefix)).try_collect().await?;
    let is_data = |path: &str| harrier_storage::finished_name(path).unwrap_or(path).ends_with(DATA);
    let files = found.into_iter().filter(|file| is_data(file.location.as_ref()));
    Ok(files
        .map(|file| (format!("{begin}{}", file.location), file.last_modified.timestamp_micros()))
        .collect())
}

async fn remove(path: &str, runtime: &RuntimeEnv) -> Result<()> {
    let (store, place) = locate(path)?;
    match runtime.object_store(&store)?.delete(&place).await {
        // Somebody else was faster.
        Ok(()) | Err(datafusion::object_store::Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(cannot_remove(path, &error)),
    }
}

fn cannot_remove(path: &str, error: &datafusion::object_store::Error) -> DataFusionError {
    CodedError::new(SqlState::IO_ERROR, format!("cannot remove \"{path}\": {error}")).into()
}

/// A span such as `7 days`, `12 hours`, `0`.
pub(crate) fn span(text: &str) -> Result<Duration> {
    let wrong = || {
        DataFusionError::from(
            CodedError::new(SqlState::INVALID_PARAMETER_VALUE, format!("\"{text}\" is no span of time"))
                .with_hint("such as '7 days', '12 hours', '30 minutes' or '0 seconds'"),
        )
    };
    let text = text.trim();
    let digits = text.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let seconds = match text[digits..].trim().trim_end_matches('s') {
        "" if number == 0 => 0,
        "second" | "sec" => 1,
        "minute" | "min" => 60,
        "hour" => 3600,
        "day" => 86_400,
        "week" => 7 * 86_400,
        _ => return Err(wrong()),
    };
    Ok(Duration::from_secs(number.saturating_mul(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_files_are_known_by_their_names() {
        let writer = Uuid::new_v4().simple().to_string();
        for own in [
            format!("lake/t/k=1/{writer}-0-0-0.parquet"),
            format!("t/p3-{writer}-1-2-0.parquet"),
            format!("{writer}-7-delete.parquet"),
        ] {
            assert!(is_own(&own), "{own}");
            assert!(is_of(&own, &[writer.clone()].into()), "{own}");
        }
        // DuckDB's, with hyphens in its UUID; a folder with a writer's name; no data file.
        for foreign in [
            "lake/t/ducklake-019a9f3e-7f1c-7c3e-9d55-3c1d5a3f9b10.parquet".to_string(),
            format!("lake/{writer}/backup.parquet"),
            format!("lake/{writer}.tar"),
        ] {
            assert!(!is_own(&foreign), "{foreign}");
        }
    }

    #[test]
    fn spans_are_read() {
        for (text, seconds) in
            [("0", 0), ("7 days", 604_800), ("1 hour", 3600), ("90 minutes", 5400), ("2weeks", 1_209_600)]
        {
            assert_eq!(span(text).unwrap(), Duration::from_secs(seconds), "{text}");
        }
        for text in ["", "days", "7", "7 moons", "-1 day"] {
            assert!(span(text).is_err(), "{text}");
        }
    }
}
