//! OPTIMIZE of a folder: merges the small files of each table partition into as few files as the target size
//! allows.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{ScalarValue, Statistics, TableReference};
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::{TableType, provider_as_source};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::object_store::ObjectMeta;
use datafusion::object_store::path::Path;
use datafusion::physical_plan::ExecutionPlan;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use harrier_error::{SqlError, SqlState};
use harrier_exec::data_files::{NULL_FOLDER, WriteFormat, partition_folder};
use harrier_sqlstate::IntoDataFusionError;

use harrier_exec::formats::text_scan::{csv_options, json_options};

use crate::external::hive::insert::{Effects, FolderWrite};
use crate::external::hive::partition_spelling::value_of;
use crate::external::hive::table::FolderTable;

/// A file is small if it is below the target file size divided by this.
const SMALL_FILE_DIVISOR: u64 = 2;
/// Maximum number of files whose schemas are read concurrently.
const SCHEMA_READS_MAX: usize = 16;

impl FolderWrite {
    /// Begins to rewrite the small files of `table` in folders that have several. `None` if no folder does.
    ///
    /// Errors: the table's files are read-only (0A000).
    pub(crate) async fn merge(
        state: &SessionState,
        table: &FolderTable,
        name: &str,
    ) -> Result<Option<(LogicalPlan, Self)>> {
        let (Some(written), Some(_)) = (table.output_format()?, table.location()) else {
            let message = format!("the files of \"{name}\" can only be read");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
        };
        if let WriteFormat::Delimited(_) = written.format {
            // Their schema does not reveal whether they have more fields than the table has columns.
            let message = format!("the text files of \"{name}\" are not merged");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
        }
        let merged = small_files(state, table).await?;
        if merged.is_empty() {
            return Ok(None);
        }
        let selected = merged.iter().map(|(_, file)| file.location.clone()).collect();
        let some = SelectedFiles { table: table.clone(), selected: Arc::new(selected) };
        let rows =
            LogicalPlanBuilder::scan(TableReference::bare(name), provider_as_source(Arc::new(some)), None)?
                .build()?;
        let effects = Effects { merged, ..Effects::default() };
        Self::stage(table, written, name, rows, effects).await.map(Some)
    }
}

/// The small files of folders that have several, with their folders below the table's: `""`, or `k=v/`. Files
/// that hold more than the table's columns are skipped, because a rewrite would lose it.
async fn small_files(state: &SessionState, table: &FolderTable) -> Result<Vec<(String, ObjectMeta)>> {
    let listing = table.listing();
    let Some(url) = listing.table_paths().first() else { return Ok(vec![]) };
    let store = state.runtime_env().object_store(url)?;
    let extension = &listing.options().file_extension;
    let found: Vec<ObjectMeta> =
        url.list_all_files(state, store.as_ref(), extension).await?.try_collect().await?;
    let mut folders: BTreeMap<String, Vec<ObjectMeta>> = BTreeMap::new();
    let is_small = |file: &ObjectMeta| {
        file.size > 0 && file.size < table.options().target_file_bytes / SMALL_FILE_DIVISOR
    };
    for file in found.into_iter().filter(is_small) {
        let Some(parts) = file.location.prefix_match(url.prefix()) else { continue };
        let mut parts: Vec<String> = parts.map(|part| part.as_ref().to_string()).collect();
        // Hidden files are not data.
        if parts.pop().is_none_or(|name| name.starts_with(['.', '_'])) {
            continue;
        }
        // From a folder with a non-canonical name, the rows would move to another folder.
        let is_own = parts.len() == table.keys().len()
            && parts.iter().zip(table.keys()).all(|(part, (key, kind))| is_canonical_name(part, key, kind));
        if is_own {
            let folder = parts.iter().map(|part| format!("{part}/")).collect();
            folders.entry(folder).or_default().push(file);
        }
    }
    let several = folders.into_iter().filter(|(_, files)| files.len() > 1);
    let several =
        several.flat_map(|(folder, files)| files.into_iter().map(move |file| (folder.clone(), file)));
    let own = Arc::new(table.file_schema());
    let checked: Vec<_> = several
        .map(|(folder, file)| {
            let (format, own, store) = (&listing.options().format, &own, &store);
            async move {
                let schema = format.infer_schema(state, store, std::slice::from_ref(&file)).await?;
                // CSV columns are positional.
                let is_within = match csv_options(format.as_ref()) {
                    Some(_) => schema.fields().len() <= own.fields().len(),
                    None => fits_columns(&schema, own, has_exact_types(table)),
                };
                Ok::<_, DataFusionError>(is_within.then_some((folder, file)))
            }
            .boxed()
        })
        .collect();
    let checked = futures::stream::iter(checked).buffered(SCHEMA_READS_MAX).try_collect::<Vec<_>>().await?;
    let mut files: BTreeMap<String, Vec<ObjectMeta>> = BTreeMap::new();
    for (folder, file) in checked.into_iter().flatten() {
        files.entry(folder).or_default().push(file);
    }
    Ok(files
        .into_iter()
        .filter(|(_, files)| files.len() > 1)
        .flat_map(|(folder, mut files)| {
            files.sort_by(|a, b| a.location.cmp(&b.location));
            files.into_iter().map(move |file| (folder.clone(), file))
        })
        .collect())
}

/// Whether files of the table's format record column types. Those of text formats are inferred from their
/// first rows.
fn has_exact_types(table: &FolderTable) -> bool {
    let format = &table.listing().options().format;
    csv_options(format.as_ref()).is_none() && json_options(format.as_ref()).is_none()
}

/// Whether the table has every column of a file; `with_types`: and its columns can hold the file's values.
fn fits_columns(theirs: &Schema, own: &Schema, with_types: bool) -> bool {
    theirs.fields().iter().all(|field| {
        own.field_with_name(field.name())
            .is_ok_and(|own| !with_types || is_within(field.data_type(), own.data_type()))
    })
}

/// Whether every value of a type has an equal value in the other.
fn is_within(kind: &DataType, other: &DataType) -> bool {
    // Bits of the value, and whether the type is signed.
    let bits = |kind: &DataType| match kind {
        DataType::Int8 => Some((7, true)),
        DataType::Int16 => Some((15, true)),
        DataType::Int32 => Some((31, true)),
        DataType::Int64 => Some((63, true)),
        DataType::UInt8 => Some((8, false)),
        DataType::UInt16 => Some((16, false)),
        DataType::UInt32 => Some((32, false)),
        DataType::UInt64 => Some((64, false)),
        _ => None,
    };
    let digits = |kind: &DataType| match kind {
        DataType::Int8 | DataType::UInt8 => Some((3, 0)),
        DataType::Int16 | DataType::UInt16 => Some((5, 0)),
        DataType::Int32 | DataType::UInt32 => Some((10, 0)),
        DataType::Int64 => Some((19, 0)),
        DataType::UInt64 => Some((20, 0)),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            Some((*precision as i16 - i16::from(*scale), i16::from(*scale)))
        }
        _ => None,
    };
    match (kind, other) {
        _ if kind == other => true,
        (DataType::Dictionary(_, kind), other) => is_within(kind, other),
        (kind, DataType::Dictionary(_, other)) => is_within(kind, other),
        _ if kind.is_string() && other.is_string() || kind.is_binary() && other.is_binary() => true,
        (DataType::Timestamp(unit, zone), DataType::Timestamp(own, own_zone)) => {
            zone.is_some() == own_zone.is_some() && *unit <= *own
        }
        (DataType::Float16 | DataType::Float32, DataType::Float32 | DataType::Float64) => true,
        (DataType::List(kind), DataType::List(other)) => is_within(kind.data_type(), other.data_type()),
        (DataType::Struct(fields), DataType::Struct(own)) => {
            fields.len() <= own.len()
                && fields.iter().all(|field| {
                    let same = own.iter().find(|own| own.name() == field.name());
                    same.is_some_and(|own| is_within(field.data_type(), own.data_type()))
                })
        }
        _ if bits(other).is_some() => {
            let within = |(bits, signed): (u8, bool), (own, own_signed): (u8, bool)| {
                bits <= own && (own_signed || !signed)
            };
            bits(kind).zip(bits(other)).is_some_and(|(kind, other)| within(kind, other))
        }
        _ => matches!((digits(kind), digits(other)), (Some((whole, part)), Some((own_whole, own_part)))
            if whole <= own_whole && part <= own_part),
    }
}

/// Whether rows read from a folder of this name would be written to a folder of the same name.
fn is_canonical_name(part: &str, key: &str, kind: &DataType) -> bool {
    let Some((_, value)) = part.split_once('=') else { return false };
    // An empty text is written as NULL.
    if value.is_empty() {
        return false;
    }
    if value == NULL_FOLDER {
        return part == partition_folder(key, None);
    }
    match value_of(part, key, kind).and_then(|value| value.cast_to(&DataType::Utf8).ok()) {
        Some(ScalarValue::Utf8(Some(text))) => part == partition_folder(key, Some(&text)),
        _ => false,
    }
}

/// A table restricted to some of its files.
#[derive(Debug)]
struct SelectedFiles {
    table: FolderTable,
    selected: Arc<HashSet<Path>>,
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl TableProvider for SelectedFiles {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn scan<'a: 'f, 'b: 'f, 'c: 'f, 'd: 'f, 'f>(
        &'a self,
        session: &'b dyn Session,
        projection: Option<&'c Vec<usize>>,
        filters: &'d [Expr],
        _: Option<usize>,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        self.boxed_scan(session, projection, filters)
    }
}

impl SelectedFiles {
    fn boxed_scan<'a>(
        &'a self,
        session: &'a dyn Session,
        projection: Option<&'a Vec<usize>>,
        filters: &'a [Expr],
    ) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
        async move {
            let plan = self.table.scan(session, projection, filters, None).await?;
            plan.transform_down(|plan| self.select_files(plan)).map(|plan| plan.data)
        }
        .boxed()
    }

    fn select_files(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
        let Some(config) = plan
            .downcast_ref::<DataSourceExec>()
            .and_then(|source| source.data_source().downcast_ref::<FileScanConfig>())
        else {
            return Ok(Transformed::no(plan));
        };
        let selected = config.file_groups.iter().map(|group| {
            let files = group.iter().filter(|file| self.selected.contains(&file.object_meta.location));
            FileGroup::new(files.cloned().collect())
        });
        let mut groups: Vec<FileGroup> = selected.filter(|group| !group.is_empty()).collect();
        if groups.is_empty() {
            groups.push(FileGroup::new(vec![]));
        }
        let statistics = Statistics::new_unknown(&plan.schema());
        let config = FileScanConfigBuilder::from(config.clone())
            .with_file_groups(groups)
            .with_statistics(statistics)
            .build();
        Ok(Transformed::yes(DataSourceExec::from_data_source(config)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_partition_folder_names() {
        for (part, kind, expected) in [
            ("k=1", DataType::Int32, true),
            ("k=01", DataType::Int32, false),
            ("K=1", DataType::Int32, false),
            ("k=x", DataType::Int32, false),
            ("k=a%20b", DataType::Utf8, true),
            ("k=a b", DataType::Utf8, false),
            ("k=a%2fb", DataType::Utf8, false),
            ("k=%", DataType::Utf8, false),
            ("k=__HIVE_DEFAULT_PARTITION__", DataType::Utf8, true),
            ("k", DataType::Utf8, false),
            ("k=", DataType::Utf8, false),
        ] {
            assert_eq!(is_canonical_name(part, "k", &kind), expected, "{part}");
        }
    }

    #[test]
    fn files_with_wider_types_are_detected() {
        use datafusion::arrow::datatypes::{Field, TimeUnit};
        let schema = |columns: &[(&str, DataType)]| {
            let fields = columns.iter().map(|(name, kind)| Field::new(*name, kind.clone(), true));
            Schema::new(fields.collect::<Vec<_>>())
        };
        let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
        let nanos = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let own = schema(&[("a", DataType::Int32), ("t", micros.clone()), ("s", DataType::Utf8View)]);
        for (columns, expected) in [
            (vec![("a", DataType::Int32), ("s", DataType::Utf8)], true),
            (vec![("a", DataType::Int16), ("t", micros)], true),
            (vec![("a", DataType::Int64)], false),
            (vec![("a", DataType::UInt16)], true),
            (vec![("a", DataType::UInt32)], false),
            (vec![("a", DataType::Decimal128(5, 0))], false),
            (vec![("t", nanos)], false),
            (vec![("a", DataType::Int32), ("z", DataType::Int32)], false),
            (vec![("a", DataType::Float64)], false),
        ] {
            assert_eq!(fits_columns(&schema(&columns), &own, true), expected, "{columns:?}");
        }
        assert!(fits_columns(&schema(&[("a", DataType::Utf8)]), &own, false));
    }
}
