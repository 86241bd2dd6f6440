//! Loads the files of one table at a snapshot: as a whole, or as the difference from a cached earlier
//! snapshot.
//!
//! The difference follows from file ids: a commit gives its files greater ids than all before, with Harrier
//! and DuckDB alike, and a file that is not in a snapshot enters later ones only with a new id. So of the
//! files up to the greatest cached id a later snapshot has a subset of the cached ones, and all others have
//! greater ids.
//!
//! Rows of files are immutable except for their end snapshot. This is verified: counts and sums over the
//! cached files are compared with the database, and if they differ, everything is read.

use std::collections::HashMap;
use std::sync::Arc;

use crate::database::bulk::{self, Wanted};
use crate::database::session::Session;
use crate::database::sql::{flag, visible};
use crate::error::{Error, Result};
use crate::layout::inlined;
use crate::model::files::{DataFile, DeleteFile, TableData};
use crate::model::ids::{ObjectId, SnapshotId};
use crate::model::state::Location;
use crate::snapshot::inlined_rows::inlined_rows;

/// The format of almost all files, as a constant to avoid allocations.
const PARQUET: &str = "parquet";

/// A smaller table is read as a whole, in fewer queries.
const KNOWN_FILES_MIN: usize = 256;

/// Every file and inlined row of one table. `known`: the cached data of an earlier snapshot.
pub(crate) async fn load(
    session: &mut Session,
    table: ObjectId,
    snapshot: SnapshotId,
    known: Option<&TableData>,
) -> Result<TableData> {
    let known = known.filter(|known| known.files.len() >= KNOWN_FILES_MIN && known.snapshot <= snapshot);
    let mut files = match known {
        Some(known) => match newer(session, known, snapshot).await? {
            Some(files) => files,
            None => Arc::new(files(session, table, snapshot, "").await?),
        },
        None => Arc::new(files(session, table, snapshot, "").await?),
    };
    if !files.is_empty() {
        delete_files(session, table, snapshot, &mut files).await?;
        inline_deletes(session, table, snapshot, &mut files).await?;
    }
    let inlined = inlined_rows(session, table, snapshot).await?;
    Ok(TableData { table, snapshot, files, inlined })
}

/// The files of a snapshot later than `known`, with the deletions of `known`; `None`: verification failed.
async fn newer(
    session: &mut Session,
    known: &TableData,
    snapshot: SnapshotId,
) -> Result<Option<Arc<Vec<DataFile>>>> {
    let table = known.table;
    let Some(last) = known.files.iter().map(|file| file.id).max() else { return Ok(None) };
    let sums: Vec<String> =
        SUMMED.iter().map(|column| format!("CAST(sum(coalesce({column}, -1)) AS BIGINT)")).collect();
    let condition = format!("table_id = {table} AND data_file_id <= {last} AND {}", visible("", snapshot));
    let sql = format!("SELECT count(*), {} FROM ducklake_data_file WHERE {condition}", sums.join(", "));
    let rows = session.query(sql).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let mut found = [0; SUMMED.len() + 1];
    for (at, sum) in found.iter_mut().enumerate() {
        *sum = row.optional_integer(at)?.unwrap_or(0);
    }
    let mut files = Arc::clone(&known.files);
    if found[0] < files.len() as i64 {
        let mut left = Vec::new();
        let id = [Wanted::Integer("data_file_id")];
        bulk::each(session, "ducklake_data_file", &id, &condition, None, |fields| {
            left.push(fields.integer()?);
            Ok(())
        })
        .await?;
        left.sort_unstable();
        let left = files.iter().filter(|file| left.binary_search(&file.id).is_ok()).cloned().collect();
        files = Arc::new(left);
    }
    if found != sums_of(&files) {
        tracing::debug!(table, snapshot, "rows of known files have changed");
        return Ok(None);
    }
    let added =
        crate::snapshot::table_data::files(session, table, snapshot, &format!("AND data_file_id > {last}"))
            .await?;
    if !added.is_empty() {
        let all = Arc::make_mut(&mut files);
        all.extend(added);
        sort(all);
    }
    Ok(Some(files))
}

/// Columns whose sums are compared.
const SUMMED: [&str; 6] =
    ["begin_snapshot", "record_count", "file_size_bytes", "partition_id", "mapping_id", "partial_max"];

/// The number of files, and the sums of `SUMMED`.
fn sums_of(files: &[DataFile]) -> [i64; SUMMED.len() + 1] {
    files.iter().fold([0; SUMMED.len() + 1], |sums, file| {
        let optional = |number: Option<i64>| number.unwrap_or(-1);
        let of_file = [
            1,
            file.begin,
            file.rows,
            file.bytes,
            optional(file.partition_id),
            optional(file.mapping),
            optional(file.partial_max),
        ];
        std::array::from_fn(|at| sums[at] + of_file[at])
    })
}

fn places(files: &[DataFile]) -> HashMap<i64, usize> {
    files.iter().enumerate().map(|(place, file)| (file.id, place)).collect()
}

fn sort(files: &mut [DataFile]) {
    files.sort_by_key(|file| (file.order, file.id));
}

fn encryption_error() -> Error {
    Error::Unsupported("the table has encrypted files, which Harrier does not support".into())
}

fn format_of(name: Option<&str>) -> std::borrow::Cow<'static, str> {
    match name {
        None | Some(PARQUET) => PARQUET.into(),
        Some(other) => other.to_string().into(),
    }
}

/// The files of a snapshot without their deletions. `and`: an additional condition.
async fn files(
    session: &mut Session,
    table: ObjectId,
    snapshot: SnapshotId,
    and: &str,
) -> Result<Vec<DataFile>> {
    let is_relative = flag("path_is_relative");
    let wanted = [
        Wanted::Integer("data_file_id"),
        Wanted::Integer("file_order"),
        Wanted::Integer("begin_snapshot"),
        Wanted::Text("path"),
        Wanted::Integer(&is_relative),
        Wanted::Text("file_format"),
        Wanted::Integer("record_count"),
        Wanted::Integer("file_size_bytes"),
        Wanted::Integer("footer_size"),
        Wanted::Integer("partition_id"),
        Wanted::Integer("mapping_id"),
        Wanted::Integer("partial_max"),
        Wanted::Text("encryption_key"),
    ];
    let condition = format!("table_id = {table} {and} AND {}", visible("", snapshot));
    let mut files: Vec<DataFile> = Vec::new();
    bulk::each(session, "ducklake_data_file", &wanted, &condition, None, |fields| {
        let id = fields.integer()?;
        let order = fields.optional_integer()?;
        let begin = fields.integer()?;
        let path = Location { path: fields.text()?.to_string(), relative: fields.flag()? };
        files.push(DataFile {
            id,
            order,
            begin,
            path,
            format: format_of(fields.optional_text()?),
            rows: fields.integer()?,
            bytes: fields.integer()?,
            footer_bytes: fields.optional_integer()?,
            partition_id: fields.optional_integer()?,
            partition_values: Vec::new(),
            mapping: fields.optional_integer()?,
            partial_max: fields.optional_integer()?,
            deletes: None,
            deleted_inline: Vec::new(),
        });
        match fields.optional_text()? {
            Some(_) => Err(encryption_error()),
            None => Ok(()),
        }
    })
    .await?;
    sort(&mut files);
    partition_values(session, table, &mut files).await?;
    Ok(files)
}

async fn partition_values(session: &mut Session, table: ObjectId, files: &mut [DataFile]) -> Result<()> {
    let partitioned = files.iter().filter(|file| file.partition_id.is_some()).map(|file| file.id);
    let Some(first) = partitioned.min() else { return Ok(()) };
    let places = places(files);
    let wanted = [
        Wanted::Integer("data_file_id"),
        Wanted::Integer("partition_key_index"),
        Wanted::Text("partition_value"),
    ];
    let condition = format!("table_id = {table} AND data_file_id >= {first}");
    let mut values: Vec<(usize, i64, Option<String>)> = Vec::new();
    bulk::each(session, "ducklake_file_partition_value", &wanted, &condition, None, |fields| {
        let (file, key) = (fields.integer()?, fields.integer()?);
        let value = fields.optional_text()?;
        if let Some(place) = places.get(&file) {
            values.push((*place, key, value.map(str::to_string)));
        }
        Ok(())
    })
    .await?;
    values.sort_by_key(|(place, key, _)| (*place, *key));
    for (place, key, value) in values {
        let file = &mut files[place];
        if key != file.partition_values.len() as i64 {
            return Err(Error::Corrupt(format!("the partition values of data file {} have gaps", file.id)));
        }
        file.partition_values.push(value);
    }
    Ok(())
}

/// Attaches the delete files at a snapshot to `files`.
async fn delete_files(
    session: &mut Session,
    table: ObjectId,
    snapshot: SnapshotId,
    files: &mut Arc<Vec<DataFile>>,
) -> Result<()> {
    let is_relative = flag("path_is_relative");
    let wanted = [
        Wanted::Integer("data_file_id"),
        Wanted::Integer("delete_file_id"),
        Wanted::Text("path"),
        Wanted::Integer(&is_relative),
        Wanted::Text("format"),
        Wanted::Integer("delete_count"),
        Wanted::Integer("file_size_bytes"),
        Wanted::Integer("footer_size"),
        Wanted::Integer("partial_max"),
        Wanted::Text("encryption_key"),
    ];
    let condition = format!("table_id = {table} AND {}", visible("", snapshot));
    let mut found: HashMap<i64, Box<DeleteFile>> = HashMap::new();
    bulk::each(session, "ducklake_delete_file", &wanted, &condition, None, |fields| {
        let file = fields.integer()?;
        let deletes = DeleteFile {
            id: fields.integer()?,
            path: Location { path: fields.text()?.to_string(), relative: fields.flag()? },
            format: format_of(fields.optional_text()?),
            rows: fields.integer()?,
            bytes: fields.integer()?,
            footer_bytes: fields.optional_integer()?,
            partial_max: fields.optional_integer()?,
        };
        if fields.optional_text()?.is_some() {
            return Err(encryption_error());
        }
        match found.insert(file, Box::new(deletes)) {
            None => Ok(()),
            Some(_) => {
                Err(Error::Corrupt(format!("data file {file} has two delete files at snapshot {snapshot}")))
            }
        }
    })
    .await?;
    if found.is_empty() && files.iter().all(|file| file.deletes.is_none())
        || files.iter().all(|file| file.deletes.as_ref() == found.get(&file.id))
    {
        return Ok(());
    }
    for file in Arc::make_mut(files) {
        file.deletes = found.remove(&file.id);
    }
    Ok(())
}

/// Attaches the inlined deletions at a snapshot to `files`.
async fn inline_deletes(
    session: &mut Session,
    table: ObjectId,
    snapshot: SnapshotId,
    files: &mut Arc<Vec<DataFile>>,
) -> Result<()> {
    let mut found: HashMap<i64, Vec<i64>> = HashMap::new();
    let deletes = inlined::delete_table(table);
    if session.has_table(&deletes).await? {
        let wanted = [Wanted::Integer("file_id"), Wanted::Integer("row_id")];
        let condition = format!("begin_snapshot <= {snapshot}");
        bulk::each(session, &deletes, &wanted, &condition, None, |fields| {
            found.entry(fields.integer()?).or_default().push(fields.integer()?);
            Ok(())
        })
        .await?;
        found.values_mut().for_each(|rows| rows.sort_unstable());
    }
    let of_file = |file: &DataFile| found.get(&file.id).map_or(&[] as &[i64], Vec::as_slice);
    if files.iter().all(|file| file.deleted_inline == of_file(file)) {
        return Ok(());
    }
    for file in Arc::make_mut(files) {
        file.deleted_inline = found.remove(&file.id).unwrap_or_default();
    }
    Ok(())
}
