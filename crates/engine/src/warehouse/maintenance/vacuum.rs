//! Maintenance: compaction of small files, expiry of snapshots, removal of unreferenced files.
//!
//! All are safe next to running statements and can be interrupted and restarted at any step, though OPTIMIZE
//! of a table restarts from its beginning. A file is removed only if nothing references it, no registered
//! writer is writing it (the catalog's `writers`), and it is older than the given age: within that age a
//! statement that reads an expired snapshot, or another program that writes, must have finished.
//!
//! A killed statement can leave data files and delete files at their final paths, complete or not; on HDFS
//! also temporary files next to them (`harrier_storage::finished_name`), and on S3 incomplete multipart
//! uploads. Files are removed if their names begin with this warehouse's identity, or with one that it had
//! before it was copied. Everything else below the data folder is left alone: a dry run lists it.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, SystemTime};

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::object_store::ObjectStoreExt;
use harrier_catalog::{Catalog, Expiry, Identity, MARKER, ScheduledFile, is_reader};
use harrier_error::{SqlError, SqlState};
use harrier_exec::data_files::location::{local, locate};
use harrier_exec::data_files::{TablePartition, TablePartitions};
use harrier_sqlstate::IntoDataFusionError;
use harrier_storage::{Options, UnfinishedUpload, UnfinishedUploads};

use crate::warehouse::data_folder::{files_below, is_written_by, name_parts};
use crate::warehouse::explain;
use crate::warehouse::maintenance::folder_ownership::claim;
use crate::warehouse::table::file_shape::file_shape;
use crate::warehouse::table::partitions::partitions_of;
use crate::warehouse::table::scanned_file::RowSource;
use crate::warehouse::table::{Contents, WarehouseTable, stored_values};

/// A file is small if it is below the target file size divided by this.
const SMALL_FILE_DIVISOR: i64 = 2;
/// A file is rewritten if at least one in this many of its rows is deleted.
const DELETED_ROWS_DIVISOR: i64 = 20;

/// Extension of data files and delete files.
const DATA: &str = ".parquet";

/// Selects the sources that compaction rewrites: small files if there are several, files with many deleted
/// rows, and inlined rows. `divided`: the ranges or lists, to which files of other programs are moved.
fn worth_compacting(
    contents: &Contents,
    target_bytes: impl Fn(&crate::warehouse::table::scanned_file::ScannedFile) -> i64,
    divided: Option<&TablePartitions>,
) -> BTreeSet<RowSource> {
    let many_deleted = |file: &crate::warehouse::table::scanned_file::ScannedFile| {
        file.deleted.stored.is_some()
            || file.deleted.rows.len() as i64 * DELETED_ROWS_DIVISOR >= file.rows.max(1)
    };
    let is_small = |file: &crate::warehouse::table::scanned_file::ScannedFile| {
        file.bytes < target_bytes(file) / SMALL_FILE_DIVISOR
    };
    let place = |file: &crate::warehouse::table::scanned_file::ScannedFile| {
        (file.table_partition.filter(|_| divided.is_some()), file.partition_values.clone())
    };
    let mut small: HashMap<_, usize> = HashMap::new();
    for file in contents.files.iter().filter(|file| is_small(file)) {
        *small.entry(place(file)).or_default() += 1;
    }
    let mut chosen = BTreeSet::new();
    for file in &contents.files {
        let alike = if is_small(file) { small.get(&place(file)).copied().unwrap_or_default() } else { 0 };
        let has_deletes = file.deleted != harrier_exec::data_files::DeletedRows::default();
        let is_elsewhere = divided.is_some_and(|divided| {
            file.table_partition.is_none() && file.unplaced_before != Some(divided.next)
        });
        if has_deletes && many_deleted(file) || alike > 1 || is_elsewhere {
            chosen.insert(file.source);
        }
    }
    chosen.extend(
        contents
            .inlined
            .iter()
            .filter(|kept| !kept.rows.is_empty())
            .map(|kept| RowSource::Inlined(kept.schema_version)),
    );
    chosen
}

impl WarehouseTable {
    /// The sources that OPTIMIZE rewrites.
    pub(crate) async fn compaction_sources(&self) -> Result<BTreeSet<RowSource>> {
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
        let target_bytes = |file: &crate::warehouse::table::scanned_file::ScannedFile| {
            file.table_partition.and_then(|id| own.get(&id).copied()).unwrap_or(usual)
        };
        Ok(worth_compacting(&self.contents().await?, target_bytes, divided.as_ref()))
    }
}

/// Unreferenced files below the data folder.
struct Leftovers {
    /// Files of expired snapshots.
    expired: Vec<ScheduledFile>,
    /// Files left by this warehouse's writers.
    abandoned: Vec<String>,
    /// Incomplete uploads left by them.
    uploads: Option<(UnfinishedUploads, Vec<UnfinishedUpload>)>,
    /// Files of unknown origin.
    unknown: Vec<String>,
}

impl Leftovers {
    /// Finds those older than `age`, and unknown ones of any age.
    async fn find(
        catalog: &Catalog,
        identity: &Identity,
        runtime: &RuntimeEnv,
        age: Duration,
    ) -> Result<Self> {
        let limit = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        let limit_micros =
            limit.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
        let root = catalog.head().await.map_err(explain)?.data_path.clone();
        let mut expired = Vec::new();
        for file in catalog.scheduled_files().await.map_err(explain)? {
            // Files outside the data folder were added by other programs, which may share them between
            // warehouses.
            if micros_of(&file.since)? <= limit_micros && file.path.starts_with(&root) {
                expired.push(file);
            }
        }
        // The order matters: the writer of a file listed here is still registered, or has ended and its files
        // are referenced by now.
        let there = files_below(&root, runtime).await?;
        let uploads = uploads_below(&root).await?;
        let writers = catalog.expire_and_list_writers().await.map_err(explain)?;
        // Registered readers may still read files of a snapshot that has expired since.
        if writers.iter().any(|name| is_reader(name)) {
            expired.clear();
        }
        let referred = catalog.referenced_paths().await.map_err(explain)?;
        let others: Vec<String> = there
            .iter()
            .filter_map(|(path, _)| path.strip_suffix(MARKER).filter(|folder| *folder != root))
            .map(str::to_string)
            .collect();
        let is_others = |path: &str| others.iter().any(|folder| path.starts_with(folder.as_str()));
        let (mut abandoned, mut unknown) = (Vec::new(), Vec::new());
        for (path, modified) in there {
            if referred.contains(&path) || is_written_by(&path, &writers) || is_marker(&path, &root) {
                continue;
            }
            match is_own(&path, identity) && !is_others(&path) {
                true if modified <= limit_micros => abandoned.push(path),
                true => {}
                false => unknown.push(path),
            }
        }
        let is_left = |upload: &UnfinishedUpload| {
            let path = upload.object.location.as_ref();
            upload.object.last_modified.timestamp_micros() <= limit_micros
                && is_own(path, identity)
                && !is_written_by(path, &writers)
        };
        let uploads =
            uploads.map(|(store, found)| (store, found.into_iter().filter(|one| is_left(one)).collect()));
        Ok(Self { expired, abandoned, uploads, unknown })
    }
}

/// Removes unreferenced files that are older than `age`; returns their number. Removes only the warehouse's
/// own files.
///
/// Errors: the data folder is another warehouse's (55000); a file cannot be removed.
pub(crate) async fn vacuum(catalog: &Catalog, runtime: &RuntimeEnv, age: Duration) -> Result<u64> {
    let identity = claim(catalog, runtime).await?;
    let Leftovers { expired, abandoned, uploads, .. } =
        Leftovers::find(catalog, &identity, runtime, age).await?;
    let mut removed = 0;
    let mut done = Vec::new();
    for file in &expired {
        remove(&file.path, runtime).await?;
        removed += 1;
        done.push(file.id);
    }
    catalog.unschedule(&done).await.map_err(explain)?;
    for path in abandoned.iter().filter(|path| !expired.iter().any(|file| file.path == **path)) {
        remove(path, runtime).await?;
        removed += 1;
    }
    let Some((store, uploads)) = uploads else { return Ok(removed) };
    for upload in uploads {
        let path = upload.object.location.as_ref();
        store.abort(&upload).await.map_err(|error| cannot_remove(path, &error))?;
        removed += 1;
    }
    Ok(removed)
}

/// Lists the files that [`vacuum`] would remove, and unknown files below the data folder, which it leaves:
/// path and status of each.
///
/// Errors: the data folder is another warehouse's (55000).
pub(crate) async fn vacuum_dry_run(
    catalog: &Catalog,
    runtime: &RuntimeEnv,
    age: Duration,
) -> Result<Vec<(String, &'static str)>> {
    let identity = claim(catalog, runtime).await?;
    let Leftovers { expired, abandoned, uploads, unknown } =
        Leftovers::find(catalog, &identity, runtime, age).await?;
    let uploads = uploads.into_iter().flat_map(|(_, uploads)| uploads);
    let mut found: Vec<(String, &'static str)> = Vec::new();
    found.extend(expired.into_iter().map(|file| (file.path, "expired")));
    found.extend(abandoned.into_iter().map(|path| (path, "abandoned")));
    found.extend(uploads.map(|upload| (upload.object.location.to_string(), "abandoned upload")));
    found.extend(unknown.into_iter().map(|path| (path, "unknown, not removed")));
    Ok(found)
}

/// Whether a file's name is one of this warehouse's writers.
fn is_own(path: &str, identity: &Identity) -> bool {
    let finished = harrier_storage::finished_name(path).unwrap_or(path);
    finished.ends_with(DATA) && name_parts(finished).any(|part| identity.is_of_writer(part))
}

/// Whether a file is the ownership marker of the data folder.
fn is_marker(path: &str, root: &str) -> bool {
    path.strip_prefix(root) == Some(MARKER)
}

/// Expires snapshots older than `age`; returns their number.
pub(crate) async fn expire(catalog: &Catalog, age: Duration) -> Result<u64> {
    let limit = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    let micros = limit.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
    let time = datafusion::common::ScalarValue::TimestampMicrosecond(Some(micros), Some("+00:00".into()));
    let text = harrier_exec::data_files::text_of(&time.to_array()?)?;
    let expiry = Expiry::OlderThan(text.value(0).to_string());
    let expired = catalog.expire(&expiry).await.map_err(explain)?;
    Ok(expired.snapshots.len() as u64)
}

fn micros_of(time: &str) -> Result<i64> {
    let kind = DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into()));
    let value = stored_values::parse_one(time, &kind)?.to_array()?;
    Ok(value.as_primitive::<TimestampMicrosecondType>().value(0))
}

/// Lists incomplete uploads below a folder, if the store has such and can list them.
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
        // The rest of VACUUM works without it; the bucket may have a lifecycle rule for them.
        Err(error @ (E::PermissionDenied { .. } | E::Unauthenticated { .. } | E::NotImplemented { .. })) => {
            tracing::warn!(root, %error, "uploads that were not completed stay: they cannot be listed");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

async fn remove(path: &str, runtime: &RuntimeEnv) -> Result<()> {
    let (store, place) = locate(path)?;
    match runtime.object_store(&store)?.delete(&place).await {
        // Removed by another process.
        Ok(()) | Err(datafusion::object_store::Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(cannot_remove(path, &error)),
    }
}

fn cannot_remove(path: &str, error: &datafusion::object_store::Error) -> DataFusionError {
    SqlError::new(SqlState::IO_ERROR, format!("cannot remove \"{path}\": {error}")).into_datafusion()
}

/// Parses a duration such as `7 days`, `12 hours`, `0`.
pub(crate) fn span(text: &str) -> Result<Duration> {
    let wrong = || {
        harrier_sqlstate::external(
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("\"{text}\" is no span of time"))
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
    use harrier_catalog::{Place, writer_name};

    use super::*;

    #[test]
    fn own_files_are_recognized_by_name() {
        let place = Place { name: "host:/a".to_string(), file: String::new(), folder: None };
        let (identity, other) = (Identity::new(&place), Identity::new(&place));
        let writer = writer_name(Some(&identity.id));
        for own in [
            format!("lake/t/k=1/{writer}-0-0-0.parquet"),
            format!("t/p3-{writer}-1-2-0.parquet"),
            format!("{writer}-7-delete.parquet"),
            format!("t/{writer}-0-0-0.parquet.0123456789abcdef0123456789abcdef.unfinished"),
        ] {
            assert!(is_own(&own, &identity), "{own}");
            assert!(!is_own(&own, &other), "{own}");
            assert!(is_written_by(&own, &[writer.clone()].into()), "{own}");
        }
        // DuckDB's file, with hyphens in its UUID; another program's; a folder with a writer's name; not a
        // data file.
        for foreign in [
            "lake/t/ducklake-019a9f3e-7f1c-7c3e-9d55-3c1d5a3f9b10.parquet".to_string(),
            format!("lake/t/{}-0-0-0.parquet", writer_name(None)),
            "lake/raw/part-0.parquet".to_string(),
            format!("lake/{writer}/backup.parquet"),
            format!("lake/{writer}.tar"),
        ] {
            assert!(!is_own(&foreign, &identity), "{foreign}");
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
