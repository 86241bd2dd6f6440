//! Statements for rows of tables: data files, delete files, inlined rows, and their statistics.

use std::collections::BTreeMap;

use crate::commit::stats;
use crate::database::session::Session;
use crate::database::sql::{Rows, boolean, list, name, optional, optional_boolean, optional_text, text};
use crate::error::{Error, Result};
use crate::layout::inlined;
use crate::model::files::{ColumnStats, NewDeleteFile, NewDeletes, NewFile, TableChanges};
use crate::model::ids::{ColumnId, ObjectId};
use crate::model::state::Table;
use crate::snapshot::inlined_rows;

use crate::commit::draft::Draft;

impl Draft<'_> {
    pub(in crate::commit) async fn data(&mut self, session: &mut Session) -> Result<()> {
        let transaction = self.transaction;
        for (id, changes) in &transaction.data {
            // The rows of a table dropped by the transaction are dropped with it.
            if let Some(table) = transaction.state.tables.get(id)
                && !changes.is_empty()
            {
                self.table_data(session, table, changes).await?;
            }
        }
        Ok(())
    }

    async fn table_data(
        &mut self,
        session: &mut Session,
        table: &Table,
        changes: &TableChanges,
    ) -> Result<()> {
        let id = self.real(table.id);
        self.words(id, changes);
        let mut totals = stats::Totals::load(session, id, &table.columns).await?;
        totals.verify_first_values(session, table, changes).await?;
        self.remove(session, id, changes, &mut totals).await?;
        self.delete(id, changes)?;
        self.add(id, table, changes, &mut totals)?;
        self.keep(session, id, table, changes, &mut totals).await?;
        self.statements.extend(totals.write()?);
        Ok(())
    }

    fn words(&mut self, id: ObjectId, changes: &TableChanges) {
        let words = &mut self.changes;
        let by_file = |deletes: &NewDeletes| matches!(deletes, NewDeletes::File { .. });
        let removes_rows = changes.removed_inlined || !changes.deleted_inlined.is_empty();
        if changes.compacts {
            // DuckDB compares deletes in files with one word, and deletes of inlined rows with the other
            // only.
            words.flushed.insert(id);
            if !changes.removed.is_empty() || !changes.deleted.is_empty() {
                words.rewritten.insert(id);
            }
            return;
        }
        if !changes.added.is_empty() {
            words.inserted.insert(id);
        }
        if !changes.inlined.is_empty() {
            words.inlined_inserted.insert(id);
        }
        if !changes.removed.is_empty() || changes.deleted.values().any(by_file) {
            words.deleted.insert(id);
        }
        if removes_rows || changes.deleted.values().any(|deletes| !by_file(deletes)) {
            words.inlined_deleted.insert(id);
        }
        // An INSERT OVERWRITE of an empty table with no rows still conflicts with concurrent inserts.
        if changes.replaces && changes.removed.is_empty() && !removes_rows {
            words.deleted.insert(id);
        }
    }

    /// Removes complete files, and all inlined rows.
    async fn remove(
        &mut self,
        session: &mut Session,
        id: ObjectId,
        changes: &TableChanges,
        totals: &mut stats::Totals,
    ) -> Result<()> {
        if !changes.removed.is_empty() {
            let files = list(&changes.removed);
            let sql = format!(
                "SELECT sum(file_size_bytes) FROM ducklake_data_file WHERE data_file_id IN ({files})"
            );
            let bytes =
                session.query(sql).await?.first().map(|row| row.optional_integer(0)).transpose()?.flatten();
            totals.remove_bytes(bytes.unwrap_or(0));
            self.end("ducklake_data_file", &format!("data_file_id IN ({files})"));
            self.end("ducklake_delete_file", &format!("data_file_id IN ({files})"));
        }
        let tables = inlined_rows::inlined_tables(session, id).await?;
        if changes.removed_inlined {
            let since = changes.since;
            for table in tables.values() {
                let (table, condition) = (name(table)?, format!("begin_snapshot <= {since}"));
                self.end(&table, &condition);
            }
        } else {
            let mut rows: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
            for (version, row) in &changes.deleted_inlined {
                rows.entry(*version).or_default().push(*row);
            }
            for (version, rows) in rows {
                let table = tables.get(&version).ok_or_else(|| {
                    Error::Corrupt(format!("the catalog keeps no rows of version {version} of table {id}"))
                })?;
                self.end(&name(table)?, &format!("row_id IN ({})", list(&rows)));
            }
        }
        Ok(())
    }

    /// Deletes rows of files that existed before.
    fn delete(&mut self, id: ObjectId, changes: &TableChanges) -> Result<()> {
        let mut inline = Vec::new();
        let mut files = Vec::new();
        for (file, deletes) in &changes.deleted {
            match deletes {
                NewDeletes::Inline(positions) => {
                    inline.extend(positions.iter().map(|position| (*file, *position)));
                }
                NewDeletes::File { file: written, .. } => files.push((*file, written)),
            }
        }
        if !files.is_empty() {
            let replaced = list(files.iter().map(|(file, _)| file));
            self.end("ducklake_delete_file", &format!("data_file_id IN ({replaced})"));
            self.delete_files(id, &files)?;
        }
        self.inline_deletes(id, &inline);
        Ok(())
    }

    fn delete_files(&mut self, id: ObjectId, files: &[(i64, &NewDeleteFile)]) -> Result<()> {
        let mut rows = Rows::into(
            "ducklake_delete_file",
            "delete_file_id, table_id, begin_snapshot, end_snapshot, data_file_id, path, path_is_relative, format, \
             delete_count, file_size_bytes, footer_size, encryption_key, partial_max",
        );
        for (file, written) in files {
            let delete_id = self.file_id();
            rows.add(&format!(
                "{delete_id}, {id}, {}, NULL, {file}, {}, {}, 'parquet', {}, {}, {}, NULL, NULL",
                self.snapshot,
                text(&written.path.path)?,
                boolean(written.path.relative),
                written.rows,
                written.bytes,
                written.footer_bytes
            ));
        }
        self.statements.extend(rows.finish());
        Ok(())
    }

    fn inline_deletes(&mut self, id: ObjectId, deleted: &[(i64, i64)]) {
        if deleted.is_empty() {
            return;
        }
        let table = inlined::delete_table(id);
        self.push(inlined::create_deletes(&table));
        let mut rows = Rows::into(&table, "file_id, row_id, begin_snapshot");
        for (file, position) in deleted {
            rows.add(&format!("{file}, {position}, {}", self.snapshot));
        }
        self.statements.extend(rows.finish());
    }

    /// Adds the files that the transaction has written.
    fn add(
        &mut self,
        id: ObjectId,
        table: &Table,
        changes: &TableChanges,
        totals: &mut stats::Totals,
    ) -> Result<()> {
        let mut files = Rows::into(
            "ducklake_data_file",
            "data_file_id, table_id, begin_snapshot, end_snapshot, file_order, path, path_is_relative, file_format, \
             record_count, file_size_bytes, footer_size, row_id_start, partition_id, encryption_key, mapping_id, \
             partial_max",
        );
        let mut columns = Rows::into(
            "ducklake_file_column_stats",
            "data_file_id, table_id, column_id, column_size_bytes, value_count, null_count, min_value, max_value, \
             contains_nan, extra_stats",
        );
        let mut partition_values = Rows::into(
            "ducklake_file_partition_value",
            "data_file_id, table_id, partition_key_index, partition_value",
        );
        let partition = self.partition_ids.get(&id).copied().or(table.partition_id);
        let (mut deletes, mut inline) = (Vec::new(), Vec::new());
        for file in &changes.added {
            let file_id = self.file_id();
            let partition = match (partition, file.partition_values.is_empty()) {
                (Some(partition), false) => Some(partition),
                (None, false) => {
                    let message = "a new file of a table without partitions has partition values";
                    return Err(Error::Corrupt(message.to_string()));
                }
                _ => None,
            };
            files.add(&format!(
                "{file_id}, {id}, {}, NULL, NULL, {}, {}, 'parquet', {}, {}, {}, {}, {}, NULL, NULL, NULL",
                self.snapshot,
                text(&file.path.path)?,
                boolean(file.path.relative),
                file.rows,
                file.bytes,
                file.footer_bytes,
                totals.add_file(file, changes.compacts),
                optional(partition)
            ));
            for (column, stats) in &file.stats {
                columns.add(&file_stats(file_id, id, *column, stats)?);
            }
            for (index, value) in file.partition_values.iter().enumerate() {
                partition_values
                    .add(&format!("{file_id}, {id}, {index}, {}", optional_text(value.as_deref())?));
            }
            self.deleted_of_new(file, file_id, &mut deletes, &mut inline);
        }
        self.statements.extend(files.finish());
        self.statements.extend(columns.finish());
        self.statements.extend(partition_values.finish());
        self.delete_files(id, &deletes)?;
        self.inline_deletes(id, &inline);
        Ok(())
    }

    /// Rows that the transaction has written and deleted again.
    fn deleted_of_new<'f>(
        &self,
        file: &'f NewFile,
        file_id: i64,
        deletes: &mut Vec<(i64, &'f NewDeleteFile)>,
        inline: &mut Vec<(i64, i64)>,
    ) {
        match &file.deletes {
            Some(written) => deletes.push((file_id, written)),
            None => inline.extend(file.deleted.iter().map(|position| (file_id, *position))),
        }
    }

    /// Adds inlined rows.
    async fn keep(
        &mut self,
        session: &mut Session,
        id: ObjectId,
        table: &Table,
        changes: &TableChanges,
        totals: &mut stats::Totals,
    ) -> Result<()> {
        if changes.inlined.is_empty() {
            return Ok(());
        }
        if !inlined::fits(self.dialect, table) {
            return Err(Error::Unsupported(format!(
                "the catalog cannot keep rows of table \"{}\": its columns have names that it needs itself, or too many",
                table.name
            )));
        }
        let version = self.table_version(session, id).await?;
        let kept = inlined::data_table(id, version);
        let registered = inlined_rows::inlined_tables(session, id).await?.contains_key(&version);
        let made_here = self.versioned.contains(&id)
            && self
                .statements
                .iter()
                .any(|statement| statement.starts_with(&format!("CREATE TABLE IF NOT EXISTS {kept} ")));
        if !registered && !made_here {
            self.register_inlined(id, version, &kept, table)?;
        }
        let mut names = String::from("row_id, begin_snapshot, end_snapshot");
        for column in &table.columns {
            names += ", ";
            names += &name(&column.name)?;
        }
        let mut rows = Rows::into(&kept, &names);
        for cells in &changes.inlined {
            if cells.len() != table.columns.len() {
                return Err(Error::Corrupt(format!(
                    "a row of {} cells is to be kept of table \"{}\" of {} columns",
                    cells.len(),
                    table.name,
                    table.columns.len()
                )));
            }
            let mut row = format!("{}, {}, NULL", totals.add_row(), self.snapshot);
            for (cell, column) in cells.iter().zip(&table.columns) {
                row += ", ";
                row += &inlined::literal(self.dialect, column.kind, cell)?;
            }
            rows.add(&row);
        }
        totals.add_stats(&changes.inlined_stats);
        self.statements.extend(rows.finish());
        // DuckDB caches a table's statistics until this number changes.
        self.next_file_id += 1;
        Ok(())
    }

    /// The schema version under which rows of this table are written.
    async fn table_version(&self, session: &mut Session, id: ObjectId) -> Result<i64> {
        if self.versioned.contains(&id) {
            return Ok(self.schema_version);
        }
        let sql = format!("SELECT max(schema_version) FROM ducklake_schema_versions WHERE table_id = {id}");
        let version =
            session.query(sql).await?.first().map(|row| row.optional_integer(0)).transpose()?.flatten();
        Ok(version.unwrap_or(self.head.schema_version))
    }
}

fn file_stats(file: i64, table: ObjectId, column: ColumnId, stats: &ColumnStats) -> Result<String> {
    let (min, max) = stats::bounds(stats);
    Ok(format!(
        "{file}, {table}, {column}, {}, {}, {}, {}, {}, {}, NULL",
        optional(stats.bytes),
        optional(stats.values),
        optional(stats.nulls),
        optional_text(min)?,
        optional_text(max)?,
        optional_boolean(stats.nan)
    ))
}
