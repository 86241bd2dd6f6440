//! What an INSERT OVERWRITE, a compaction or a TRUNCATE takes away.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::create_physical_expr;
use harrier_catalog::files::TableChanges;
use harrier_catalog::state::Table;
use harrier_exec::data_files::text_of;

use crate::warehouse::dml::partition_keys::{key_column, transformed};
use crate::warehouse::table::scanned_file::{RowSource, ScannedFile};
use crate::warehouse::table::{Contents, WarehouseTable, stored_values};

/// What an INSERT OVERWRITE or TRUNCATE takes away.
#[derive(Default)]
pub(crate) struct Replaced {
    removed: BTreeSet<i64>,
    added: BTreeSet<usize>,
    kept: bool,
    /// These rows of the catalog.
    kept_rows: BTreeSet<(i64, i64)>,
    /// These rows that the transaction itself has for the catalog.
    added_kept: BTreeSet<usize>,
    /// No reader sees a difference.
    same: bool,
}

impl Replaced {
    pub(crate) fn same_rows(contents: &Contents) -> Self {
        let mut all = Self { same: true, ..Self::default() };
        contents.files.iter().for_each(|file| all.take(file));
        for kept in &contents.kept {
            all.kept_rows.extend(kept.row_ids.iter().map(|row| (kept.schema_version, *row)));
        }
        all
    }

    pub(crate) fn all(contents: &Contents) -> Self {
        let mut all = Self { kept: true, ..Self::default() };
        contents.files.iter().for_each(|file| all.take(file));
        all
    }

    pub(crate) fn take(&mut self, file: &ScannedFile) {
        match file.source {
            RowSource::File(id) => drop(self.removed.insert(id)),
            RowSource::Added(at) => drop(self.added.insert(at)),
            RowSource::Inlined(_) | RowSource::AddedInlined => {}
        }
    }

    /// Takes the rows that the catalog keeps and whose values of the partition keys are `replaced`.
    pub(crate) fn take_kept(
        &mut self,
        target: &WarehouseTable,
        contents: &Contents,
        replaced: impl Fn(&[Option<String>]) -> bool,
    ) -> Result<()> {
        let table = target.table();
        let places = table.partition.iter().map(|key| Ok(key_column(table, key)?.0));
        let batches = target.kept(contents, &places.collect::<Result<Vec<_>>>()?)?;
        let mut keys = batches.iter().map(|batch| keys_of(table, batch));
        let mut next = || keys.next().unwrap_or_else(|| Ok(Vec::new()));
        for kept in contents.kept.iter().filter(|kept| !kept.rows.is_empty()) {
            let rows = kept.row_ids.iter().zip(next()?).filter(|(_, key)| replaced(key));
            self.kept_rows.extend(rows.map(|(row, _)| (kept.schema_version, *row)));
        }
        if !contents.added_kept.is_empty() {
            let rows = next()?.into_iter().enumerate().filter(|(_, key)| replaced(key));
            self.added_kept.extend(rows.map(|(at, _)| at));
        }
        Ok(())
    }

    pub(crate) fn make(self, changes: &mut TableChanges, table: &Table) -> Result<()> {
        changes.replaces |= !self.same;
        changes.compacts |= self.same;
        changes.deleted_inlined.extend(self.kept_rows);
        for id in &self.removed {
            changes.deleted.remove(id);
        }
        changes.removed.extend(self.removed);
        for at in self.added.into_iter().rev() {
            changes.added.remove(at);
        }
        if !self.added_kept.is_empty() {
            let mut at = 0..;
            changes.inlined.retain(|_| at.next().is_none_or(|at| !self.added_kept.contains(&at)));
            // Bounds of rows that are gone again would stay for good.
            changes.inlined_stats = stored_values::stats_of_cells(&changes.inlined, &table.columns)?;
        }
        if self.kept {
            changes.removed_inlined = true;
            changes.deleted_inlined.clear();
            changes.inlined.clear();
            changes.inlined_stats.clear();
        }
        Ok(())
    }
}

/// The values of a table's partition keys in every row of a batch that has the columns of those keys, as
/// files have them in their names.
fn keys_of(table: &Table, batch: &RecordBatch) -> Result<Vec<Vec<Option<String>>>> {
    let schema = Arc::new(DFSchema::try_from(batch.schema())?);
    let simplifier = ExprSimplifier::new(SimplifyContext::builder().with_schema(Arc::clone(&schema)).build());
    let mut rows = vec![Vec::with_capacity(table.partition.len()); batch.num_rows()];
    for (at, key) in table.partition.iter().enumerate() {
        let column = Expr::Column(schema.columns()[at].clone());
        let value = simplifier.coerce(transformed(column, key.transform), &schema)?;
        let value = create_physical_expr(
            &value,
            &schema,
            &ExecutionProps::new(),
            &PhysicalPlanningContext::default(),
        )?;
        let values = text_of(&value.evaluate(batch)?.into_array(batch.num_rows())?)?;
        for (row, value) in rows.iter_mut().zip(values.iter()) {
            row.push(value.map(str::to_string));
        }
    }
    Ok(rows)
}
