//! Care for a warehouse: small files made large ones, snapshots that expire, files that nothing refers to.
//!
//! Each is safe beside running statements and can be stopped and begun again at any step, though OPTIMIZE of
//! a table begins from its start. Files are removed only when nothing refers to them and nobody is known to
//! be writing them (the catalog's `writers`), and only if they are as old as is asked for: by that age a
//! statement that reads an expired snapshot, or another program that writes, has to be done.
//!
//! What a statement can leave that dies: data files and delete files at their final paths, complete or not,
//! on HDFS also beside them (`harrier_storage::finished_name`), and on S3 uploads that were not completed.
//! Those are swept whose names begin with the identity of this warehouse, or with one that it had before it
//! was copied. All else below the data folder is somebody's: a dry run lists it.

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

use crate::warehouse::data_folder::{files_below, is_of, parts};
use crate::warehouse::explain;
use crate::warehouse::maintenance::folder_ownership::claim;
use crate::warehouse::table::file_shape::file_shape;
use crate::warehouse::table::partitions::partitions_of;
use crate::warehouse::table::scanned_file::RowSource;
use crate::warehouse::table::{Contents, WarehouseTable, stored_values};

/// A file of less than this part of the size that files are to have is small.
const SMALL_PART: i64 = 2;
/// A file is written anew when one in so many of its rows is deleted.
const DELETED_PART: i64 = 20;

/// The end of the names of data files and delete files.
const DATA: &str = ".parquet";

/// What a compaction is to write anew: small files if there are several, those with many deleted rows, and
/// rows of the catalog. `divided`: by ranges or lists, which files of other programs are not.
fn worth_compacting(
    contents: &Contents,
    target_bytes: impl Fn(&crate::warehouse::table::scanned_file::ScannedFile) -> i64,
    divided: Option<&TablePartitions>,
) -> BTreeSet<RowSource> {
    let many_deleted = |file: &crate::warehouse::table::scanned_file::ScannedFile| {
        file.deleted.stored.is_some() || file.deleted.rows.len() as i64 * DELETED_PART >= file.rows.max(1)
    };
    let is_small = |file: &crate::warehouse::table::scanned_file::ScannedFile| {
        file.bytes < target_bytes(file) / SMALL_PART
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
            .kept
            .iter()
            .filter(|kept| !kept.rows.is_empty())
            .map(|kept| RowSource::Inlined(kept.schema_version)),
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
        let target_bytes = |file: &crate::warehouse::table::scanned_file::ScannedFile| {
            file.table_partition.and_then(|id| own.get(&id).copied()).unwrap_or(usual)
        };
        Ok(worth_compacting(&self.contents().await?, target_bytes, divided.as_ref()))
    }
}

/// What is below the data folder and no snapshot refers to.
struct Leftovers {
    /// Files of snapshots that have expired.
    expired: Vec<ScheduledFile>,
    /// Files that this warehouse's writers have left.
    abandoned: Vec<String>,
    /// Uploads that they have left.
    uploads: Option<(UnfinishedUploads, Vec<UnfinishedUpload>)>,
    /// Files that nobody knows.
    unknown: Vec<String>,
}

impl Leftovers {
    /// Those that are older than `age`, but for the unknown ones, which are of any.
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
            // What lies elsewhere was laid there by others, who may have given it to several warehouses.
            if micros_of(&file.since)? <= limit_micros && file.path.starts_with(&root) {
                expired.push(file);
            }
        }
        // In this order: whoever wrote a file that is there now is still known, or has ended and had its
        // files referred to by then.
        let there = files_below(&root, runtime).await?;
        let uploads = uploads_below(&root).await?;
        let writers = catalog.writers().await.map_err(explain)?;
        // They may be at files of a snapshot that has expired since.
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
            if referred.contains(&path) || is_of(&path, &writers) || is_marker(&path, &root) {
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
                && !is_of(path, &writers)
        };
        let uploads =
            uploads.map(|(store, found)| (store, found.into_iter().filter(|one| is_left(one)).collect()));
        Ok(Self { expired, abandoned, uploads, unknown })
    }
}

/// Removes files that no snapshot can see and that are older than `age`; returns how many. Takes none but the
/// warehouse's own.
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

/// What [`vacuum`] would remove, and the files below the data folder that it leaves because it does not know
/// them: the path of each, and what it is.
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

/// Whether a file has a name that a writer of this warehouse gives.
fn is_own(path: &str, identity: &Identity) -> bool {
    let finished = harrier_storage::finished_name(path).unwrap_or(path);
    finished.ends_with(DATA) && parts(finished).any(|part| identity.is_of_writer(part))
}

/// Whether a file says whose the folder is.
fn is_marker(path: &str, root: &str) -> bool {
    path.strip_prefix(root) == Some(MARKER)
}

/// Lets snapshots expire that are older than `age`; returns how many did.
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

async fn remove(path: &str, runtime: &RuntimeEnv) -> Result<()> {
    let (store, place) = locate(path)?;
    match runtime.object_store(&store)?.delete(&place).await {
        // Somebody else was faster.
        Ok(()) | Err(datafusion::object_store::Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(cannot_remove(path, &error)),
    }
}

fn cannot_remove(path: &str, error: &datafusion::object_store::Error) -> DataFusionError {
    SqlError::new(SqlState::IO_ERROR, format!("cannot remove \"{path}\": {error}")).into_datafusion()
}

/// A span such as `7 days`, `12 hours`, `0`.
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
    fn own_files_are_known_by_their_names() {
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
            assert!(is_of(&own, &[writer.clone()].into()), "{own}");
        }
        // DuckDB's, with hyphens in its UUID; one of another program; a folder with a writer's name; no data
        // file.
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
