//! Statements for schemas, views, tables and columns, and their comments, tags, options and inlined tables.

use std::collections::{BTreeMap, BTreeSet};

use crate::commit::stats::{convert_stats, has_same_text};
use crate::database::session::Session;
use crate::database::sql::{Rows, boolean, list, optional, optional_text, text};
use crate::error::{Error, Result};
use crate::layout::inlined;
use crate::model::ids::{ColumnId, ObjectId};
use crate::model::state::{Column, DefaultValue, Schema, Table, View, column_tag_key, flatten};
use crate::snapshot::{head, inlined_rows, objects};

use super::{Draft, uuid};

/// The option for the maximum number of rows that DuckDB inlines per insert; 0 disables inlining.
const INLINING_OPTION: &str = "data_inlining_row_limit";

impl Draft<'_> {
    pub(super) fn schema(&mut self, before: Option<&Schema>, schema: &Schema) -> Result<()> {
        let id = self.real(schema.id);
        if before.is_none() {
            self.changes.created_schemas.push(schema.name.clone());
            self.push(format!(
                "INSERT INTO ducklake_schema (schema_id, schema_uuid, begin_snapshot, end_snapshot, schema_name, path, \
                 path_is_relative) VALUES ({id}, {}, {}, NULL, {}, {}, {})",
                uuid(&schema.uuid)?,
                self.snapshot,
                text(&schema.name)?,
                text(&schema.path.path)?,
                boolean(schema.path.relative)
            ));
        }
        self.comment(id, before.and_then(|before| before.comment.as_deref()), schema.comment.as_deref())?;
        let none = BTreeMap::new();
        self.options(Some(("schema", id)), before.map_or(&none, |before| &before.options), &schema.options)
    }

    pub(super) fn view(&mut self, before: Option<&View>, view: &View) -> Result<()> {
        let id = self.real(view.id);
        if before.is_none() {
            let schema = self.schema_name(view.schema);
            self.changes.created.push(("view", schema, view.name.clone()));
        } else {
            self.changes.altered_views.insert(id);
        }
        let same_row = before.is_some_and(|before| {
            let (comment, columns_below) = (view.comment.clone(), view.columns_below.clone());
            View { comment, columns_below, ..before.clone() } == *view
        });
        if !same_row {
            if before.is_some() {
                self.end("ducklake_view", &format!("view_id = {id}"));
            }
            self.push(format!(
                "INSERT INTO ducklake_view (view_id, view_uuid, begin_snapshot, end_snapshot, schema_id, view_name, \
                 dialect, \"sql\", column_aliases) VALUES ({id}, {}, {}, NULL, {}, {}, {}, {}, {})",
                uuid(&view.uuid)?,
                self.snapshot,
                self.real(view.schema),
                text(&view.name)?,
                text(&view.dialect)?,
                text(&view.sql)?,
                text(&view.column_aliases)?
            ));
        }
        let tags = |view: &View| view.tags(|table| self.real(table));
        let (tags_before, tags) = (before.map(tags).unwrap_or_default(), tags(view));
        self.tags(id, &tags_before, &tags)?;
        self.comment(id, before.and_then(|before| before.comment.as_deref()), view.comment.as_deref())
    }

    fn schema_name(&self, id: ObjectId) -> String {
        self.transaction.state.schemas.get(&id).map(|schema| schema.name.clone()).unwrap_or_default()
    }

    pub(super) fn drop_table(&mut self, id: ObjectId) {
        for table in [
            "ducklake_table",
            "ducklake_column",
            "ducklake_column_tag",
            "ducklake_partition_info",
            "ducklake_sort_info",
            "ducklake_data_file",
            "ducklake_delete_file",
        ] {
            self.end(table, &format!("table_id = {id}"));
        }
        self.end("ducklake_tag", &format!("object_id = {id}"));
        self.changes.dropped_tables.insert(id);
    }

    pub(super) fn create_table(&mut self, table: &Table) -> Result<()> {
        let id = self.real(table.id);
        let schema = self.schema_name(table.schema);
        self.changes.created.push(("table", schema, table.name.clone()));
        self.table_row(id, table)?;
        let mut order = 0;
        let mut columns = Vec::new();
        flatten(&table.columns, None, &mut columns);
        let mut rows = column_rows();
        for (column, parent) in &columns {
            order += 1;
            rows.add(&self.column_row(id, column, *parent, order)?);
            self.column_comment(id, column.id, None, column.comment.as_deref())?;
            self.column_tags(id, column.id, None, Some(&column.tags))?;
        }
        self.statements.extend(rows.finish());
        self.keep_column_ids(id, table, &columns, order)?;
        self.partition(id, &[], table)?;
        self.sort(id, &[], table)?;
        self.comment(id, None, table.comment.as_deref())?;
        self.tags(id, &BTreeMap::new(), &table.tags)?;
        self.options(Some(("table", id)), &BTreeMap::new(), &table.options)?;
        self.new_version(id);
        if self.inlines(table) {
            self.create_inlined(id, table)?;
        }
        Ok(())
    }

    fn table_row(&mut self, id: ObjectId, table: &Table) -> Result<()> {
        let row = format!(
            "INSERT INTO ducklake_table (table_id, table_uuid, begin_snapshot, end_snapshot, schema_id, table_name, path, \
             path_is_relative) VALUES ({id}, {}, {}, NULL, {}, {}, {}, {})",
            uuid(&table.uuid)?,
            self.snapshot,
            self.real(table.schema),
            text(&table.name)?,
            text(&table.path.path)?,
            boolean(table.path.relative)
        );
        self.push(row);
        Ok(())
    }

    /// A row of `ducklake_column` for `column_rows`.
    fn column_row(
        &self,
        table: ObjectId,
        column: &Column,
        parent: Option<ColumnId>,
        order: i64,
    ) -> Result<String> {
        let (default, kind, dialect) = match &column.default {
            // DuckDB's representation of no default.
            None => ("NULL", if column.kind.is_nested() { "" } else { "literal" }, "duckdb"),
            // This text as a literal would be read as no default.
            Some(DefaultValue::Literal(value)) if value == "NULL" => ("'NULL'", "expression", "duckdb"),
            Some(DefaultValue::Literal(value)) => (value.as_str(), "literal", "duckdb"),
            Some(DefaultValue::Expression { sql, dialect }) => (sql.as_str(), "expression", dialect.as_str()),
        };
        Ok(format!(
            "{}, {}, NULL, {table}, {order}, {}, '{}', {}, {}, {}, {}, '{kind}', {}",
            column.id,
            self.snapshot,
            text(&column.name)?,
            column.kind,
            optional_text(column.initial_default.as_deref())?,
            text(default)?,
            boolean(column.nullable),
            optional(parent),
            text(dialect)?
        ))
    }

    /// A column that was added and dropped in one transaction leaves no row, but files may use its id. An
    /// invisible row prevents the id from being reused.
    fn keep_column_ids(
        &mut self,
        id: ObjectId,
        table: &Table,
        columns: &[(&Column, Option<ColumnId>)],
        order: i64,
    ) -> Result<()> {
        let last = table.next_column - 1;
        if last < 1 || columns.iter().any(|(column, _)| column.id >= last) {
            return Ok(());
        }
        let snapshot = self.snapshot;
        self.push(format!(
            "INSERT INTO ducklake_column (column_id, begin_snapshot, end_snapshot, table_id, column_order, column_name, \
             column_type, initial_default, default_value, nulls_allowed, parent_column, default_value_type, \
             default_value_dialect) SELECT {last}, {snapshot}, {snapshot}, {id}, {}, 'dropped', 'int32', NULL, 'NULL', \
             TRUE, NULL, 'literal', 'duckdb' WHERE NOT EXISTS \
             (SELECT 1 FROM ducklake_column WHERE table_id = {id} AND column_id >= {last})",
            order + 1
        ));
        Ok(())
    }

    pub(super) async fn alter_table(
        &mut self,
        session: &mut Session,
        before: &Table,
        table: &Table,
    ) -> Result<()> {
        let id = table.id;
        self.options(Some(("table", id)), &before.options, &table.options)?;
        if !before.differs_beyond_options(table) {
            return Ok(());
        }
        self.changes.altered_tables.insert(id);
        if (&before.name, before.schema, &before.path) != (&table.name, table.schema, &table.path) {
            self.end("ducklake_table", &format!("table_id = {id}"));
            self.table_row(id, table)?;
            // The word that DuckDB checks for names in use.
            let schema = self.schema_name(table.schema);
            self.changes.created.push(("table", schema, table.name.clone()));
        }
        let columns_changed = self.alter_columns(session, before, table).await?;
        let partition_changed = before.partition != table.partition;
        if partition_changed {
            self.partition(id, &before.partition, table)?;
        }
        if before.sort != table.sort {
            self.sort(id, &before.sort, table)?;
        }
        self.comment(id, before.comment.as_deref(), table.comment.as_deref())?;
        self.tags(id, &before.tags, &table.tags)?;
        if columns_changed || partition_changed {
            self.new_version(id);
            // Rows written from now on have other columns. DuckDB writes them to the newest of these tables,
            // so there must be one, even where DuckDB would create none.
            let has_some = !inlined_rows::inlined_tables(session, id).await?.is_empty();
            if (self.inlines(table) || has_some) && inlined::fits(self.dialect, table) {
                self.create_inlined(id, table)?;
            }
        }
        Ok(())
    }

    async fn alter_columns(&mut self, session: &mut Session, before: &Table, table: &Table) -> Result<bool> {
        let id = table.id;
        let (mut old, mut new) = (Vec::new(), Vec::new());
        flatten(&before.columns, None, &mut old);
        flatten(&table.columns, None, &mut new);
        let old: BTreeMap<ColumnId, _> =
            old.into_iter().map(|(column, parent)| (column.id, (column, parent))).collect();

        let sql = format!(
            "SELECT column_id, column_order FROM ducklake_column WHERE table_id = {id} AND end_snapshot IS NULL"
        );
        let mut orders = BTreeMap::new();
        for row in session.query(sql).await? {
            orders.insert(row.integer(0)?, row.integer(1)?);
        }
        let last = orders.values().max().copied().unwrap_or(0);
        let orders = place(&new, &orders);

        let mut rows = column_rows();
        let (mut ended, mut changed) = (Vec::new(), false);
        for (column, parent) in &new {
            let order = orders[&column.id];
            let before = old.get(&column.id);
            let (same, was) = match before {
                None => (false, false),
                Some((before, before_parent)) => {
                    (same_row(before, column) && before_parent == parent && order.1, true)
                }
            };
            if !same {
                changed = true;
                if was {
                    ended.push(column.id);
                }
                rows.add(&self.column_row(id, column, *parent, order.0)?);
            }
            let comment = before.and_then(|(before, _)| before.comment.as_deref());
            self.column_comment(id, column.id, comment, column.comment.as_deref())?;
            self.column_tags(id, column.id, before.map(|(before, _)| &before.tags), Some(&column.tags))?;
        }
        for (column, _) in
            old.values().filter(|(column, _)| !new.iter().any(|(kept, _)| kept.id == column.id))
        {
            changed = true;
            ended.push(column.id);
            self.column_comment(id, column.id, column.comment.as_deref(), None)?;
            self.column_tags(id, column.id, Some(&column.tags), None)?;
        }
        if !ended.is_empty() {
            self.end("ducklake_column", &format!("table_id = {id} AND column_id IN ({})", list(&ended)));
        }
        self.statements.extend(rows.finish());
        let retyped = new.iter().filter_map(|(column, _)| {
            let (before, _) = old.get(&column.id)?;
            (!has_same_text(before.kind, column.kind)).then_some((*before, *column))
        });
        for (before, column) in retyped {
            let kept: Vec<String> = inlined_rows::inlined_tables(session, id).await?.into_values().collect();
            let kinds = (before.kind, column.kind);
            let stats = convert_stats(session, id, column.id, kinds, (&kept, &before.name)).await?;
            self.statements.extend(stats);
            // DuckDB caches a table's statistics until this number changes.
            self.next_file_id += 1;
        }
        if table.next_column > before.next_column {
            self.keep_column_ids(id, table, &new, last + new.len() as i64)?;
        }
        Ok(changed)
    }

    fn partition(
        &mut self,
        id: ObjectId,
        before: &[crate::model::state::PartitionKey],
        table: &Table,
    ) -> Result<()> {
        if !before.is_empty() {
            self.end("ducklake_partition_info", &format!("table_id = {id}"));
        }
        if table.partition.is_empty() {
            return Ok(());
        }
        let partition = self.catalog_id();
        self.partition_ids.insert(id, partition);
        let snapshot = self.snapshot;
        self.push(format!(
            "INSERT INTO ducklake_partition_info (partition_id, table_id, begin_snapshot, end_snapshot) VALUES \
             ({partition}, {id}, {snapshot}, NULL)"
        ));
        let mut rows = Rows::into(
            "ducklake_partition_column",
            "partition_id, table_id, partition_key_index, column_id, \"transform\"",
        );
        for (index, key) in table.partition.iter().enumerate() {
            let transform = objects::transform_name(key.transform);
            rows.add(&format!("{partition}, {id}, {index}, {}, '{transform}'", key.column));
        }
        self.statements.extend(rows.finish());
        Ok(())
    }

    fn sort(&mut self, id: ObjectId, before: &[crate::model::state::SortKey], table: &Table) -> Result<()> {
        if !before.is_empty() {
            self.end("ducklake_sort_info", &format!("table_id = {id}"));
        }
        if table.sort.is_empty() {
            return Ok(());
        }
        let sort = self.catalog_id();
        let snapshot = self.snapshot;
        self.push(format!(
            "INSERT INTO ducklake_sort_info (sort_id, table_id, begin_snapshot, end_snapshot) VALUES \
             ({sort}, {id}, {snapshot}, NULL)"
        ));
        let mut rows = Rows::into(
            "ducklake_sort_expression",
            "sort_id, table_id, sort_key_index, expression, dialect, sort_direction, null_order",
        );
        for (index, key) in table.sort.iter().enumerate() {
            rows.add(&format!(
                "{sort}, {id}, {index}, {}, {}, '{}', '{}'",
                text(&key.expression)?,
                text(&key.dialect)?,
                if key.descending { "DESC" } else { "ASC" },
                if key.nulls_first { "NULLS_FIRST" } else { "NULLS_LAST" },
            ));
        }
        self.statements.extend(rows.finish());
        Ok(())
    }

    pub(super) fn comment(
        &mut self,
        object: ObjectId,
        before: Option<&str>,
        after: Option<&str>,
    ) -> Result<()> {
        self.tag(object, "comment", before, after)
    }

    /// Harrier's own tags of an object.
    fn tags(
        &mut self,
        object: ObjectId,
        before: &BTreeMap<String, String>,
        after: &BTreeMap<String, String>,
    ) -> Result<()> {
        for key in before.keys().chain(after.keys().filter(|key| !before.contains_key(*key))) {
            let value = |tags: &BTreeMap<String, String>| tags.get(key).cloned();
            self.tag(object, key, value(before).as_deref(), value(after).as_deref())?;
        }
        Ok(())
    }

    fn tag(&mut self, object: ObjectId, key: &str, before: Option<&str>, after: Option<&str>) -> Result<()> {
        if before == after {
            return Ok(());
        }
        let key = text(key)?;
        if before.is_some() {
            self.end("ducklake_tag", &format!("object_id = {object} AND \"key\" = {key}"));
        }
        if let Some(value) = after {
            let row = format!("{object}, {}, NULL, {key}, {}", self.snapshot, text(value)?);
            self.push(format!(
                "INSERT INTO ducklake_tag (object_id, begin_snapshot, end_snapshot, \"key\", \"value\") VALUES ({row})"
            ));
        }
        Ok(())
    }

    fn column_comment(
        &mut self,
        table: ObjectId,
        column: ColumnId,
        before: Option<&str>,
        after: Option<&str>,
    ) -> Result<()> {
        self.column_tag((table, column), "comment", before, after)
    }

    /// Harrier's own tags of a column; `None` if there is no such column.
    fn column_tags(
        &mut self,
        table: ObjectId,
        column: ColumnId,
        before: Option<&BTreeMap<String, String>>,
        after: Option<&BTreeMap<String, String>>,
    ) -> Result<()> {
        let none = BTreeMap::new();
        let (before, after) = (before.unwrap_or(&none), after.unwrap_or(&none));
        for key in before.keys().chain(after.keys().filter(|key| !before.contains_key(*key))) {
            let value = |tags: &BTreeMap<String, String>| tags.get(key).cloned();
            // On the table, since DuckDB opens no lake in which a column has other tags than a comment.
            self.tag(table, &column_tag_key(column, key), value(before).as_deref(), value(after).as_deref())?;
        }
        Ok(())
    }

    fn column_tag(
        &mut self,
        (table, column): (ObjectId, ColumnId),
        key: &str,
        before: Option<&str>,
        after: Option<&str>,
    ) -> Result<()> {
        if before == after {
            return Ok(());
        }
        let key = text(key)?;
        if before.is_some() {
            let condition = format!("table_id = {table} AND column_id = {column} AND \"key\" = {key}");
            self.end("ducklake_column_tag", &condition);
        }
        if let Some(value) = after {
            let row = format!("{table}, {column}, {}, NULL, {key}, {}", self.snapshot, text(value)?);
            self.push(format!(
                "INSERT INTO ducklake_column_tag (table_id, column_id, begin_snapshot, end_snapshot, \"key\", \"value\") \
                 VALUES ({row})"
            ));
        }
        Ok(())
    }

    /// Options have no snapshots: the rows themselves are updated.
    pub(super) fn options(
        &mut self,
        scope: Option<(&str, ObjectId)>,
        before: &BTreeMap<String, String>,
        after: &BTreeMap<String, String>,
    ) -> Result<()> {
        let (condition, columns) = match scope {
            Some((scope, id)) => {
                (format!("\"scope\" = '{scope}' AND scope_id = {id}"), format!("'{scope}', {id}"))
            }
            None => ("\"scope\" IS NULL".to_string(), "NULL, NULL".to_string()),
        };
        let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for key in keys {
            let (old, new) = (before.get(key), after.get(key));
            if old == new {
                continue;
            }
            if scope.is_none() && head::is_fixed(key) {
                return Err(Error::Unsupported(format!("\"{key}\" is no option that can be set")));
            }
            self.push(format!(
                "DELETE FROM ducklake_metadata WHERE \"key\" = {} AND {condition}",
                text(key)?
            ));
            if let Some(value) = new {
                let row = format!("{}, {}, {columns}", text(key)?, text(value)?);
                self.push(format!(
                    "INSERT INTO ducklake_metadata (\"key\", \"value\", \"scope\", scope_id) VALUES ({row})"
                ));
            }
        }
        Ok(())
    }

    /// Starts a new schema version: rows written from now on may differ from earlier ones.
    fn new_version(&mut self, id: ObjectId) {
        if self.versioned.insert(id) {
            let (snapshot, version) = (self.snapshot, self.schema_version);
            self.push(format!(
                "INSERT INTO ducklake_schema_versions (begin_snapshot, schema_version, table_id) VALUES \
                 ({snapshot}, {version}, {id})"
            ));
        }
    }

    /// Whether DuckDB would inline small inserts into this table, and so expects the inlined table.
    fn inlines(&self, table: &Table) -> bool {
        let limit =
            self.transaction.state.option(table, INLINING_OPTION).and_then(|limit| limit.parse::<i64>().ok());
        limit != Some(0) && inlined::fits(self.dialect, table)
    }

    fn create_inlined(&mut self, id: ObjectId, table: &Table) -> Result<String> {
        let kept = inlined::data_table(id, self.schema_version);
        self.register_inlined(id, self.schema_version, &kept, table)?;
        Ok(kept)
    }

    pub(super) fn register_inlined(
        &mut self,
        id: ObjectId,
        version: i64,
        kept: &str,
        table: &Table,
    ) -> Result<()> {
        let columns = table.columns.iter().map(|column| (column.name.as_str(), column.kind));
        self.push(inlined::create(self.dialect, kept, columns)?);
        self.push(format!(
            "INSERT INTO ducklake_inlined_data_tables (table_id, table_name, schema_version) VALUES \
             ({id}, {}, {version})",
            text(kept)?
        ));
        Ok(())
    }

    // Rows.
}

/// Whether two versions of a column have the same row of `ducklake_column`: comments and tags have their own
/// rows.
fn same_row(before: &Column, after: &Column) -> bool {
    let row = |column: &Column| Column {
        children: Vec::new(),
        comment: None,
        tags: BTreeMap::new(),
        ..column.clone()
    };
    row(before) == row(after)
}

fn column_rows() -> Rows {
    Rows::into(
        "ducklake_column",
        "column_id, begin_snapshot, end_snapshot, table_id, column_order, column_name, column_type, initial_default, \
         default_value, nulls_allowed, parent_column, default_value_type, default_value_dialect",
    )
}

/// Column positions, and whether they are unchanged: new columns go to the end, as in DuckDB; if that is not
/// the wanted order, all are renumbered.
fn place(
    columns: &[(&Column, Option<ColumnId>)],
    before: &BTreeMap<ColumnId, i64>,
) -> BTreeMap<ColumnId, (i64, bool)> {
    let mut next = before.values().max().copied().unwrap_or(0);
    let mut placed = BTreeMap::new();
    let mut last: BTreeMap<Option<ColumnId>, i64> = BTreeMap::new();
    for (column, parent) in columns {
        let order = before.get(&column.id).copied().unwrap_or_else(|| {
            next += 1;
            next
        });
        let last = last.entry(*parent).or_insert(i64::MIN);
        if order <= *last {
            let anew = columns.iter().zip(1..);
            let anew =
                anew.map(|((column, _), order)| (column.id, (order, before.get(&column.id) == Some(&order))));
            return anew.collect();
        }
        *last = order;
        placed.insert(column.id, (order, before.contains_key(&column.id)));
    }
    placed
}
