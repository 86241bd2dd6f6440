//! Rows and files removed by INSERT OVERWRITE, compaction or TRUNCATE.

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

use crate::warehouse::dml::partition_keys::{key_column, key_value};
use crate::warehouse::table::scanned_file::{RowSource, ScannedFile};
use crate::warehouse::table::{Contents, WarehouseTable, stored_values};

/// Rows and files to be removed.
#[derive(Default)]
pub(crate) struct Removal {
    removed: BTreeSet<i64>,
    added: BTreeSet<usize>,
    all_inlined: bool,
    /// Inlined rows of the catalog: schema version and row id.
    inlined_rows: BTreeSet<(i64, i64)>,
    /// Inlined rows added by the transaction, by index.
    added_inlined: BTreeSet<usize>,
    /// The rows are rewritten unchanged: readers see no difference.
    same: bool,
}

impl Removal {
    pub(crate) fn same_rows(contents: &Contents) -> Self {
        let mut all = Self { same: true, ..Self::default() };
        contents.files.iter().for_each(|file| all.add_file(file));
        for kept in &contents.inlined {
            all.inlined_rows.extend(kept.row_ids.iter().map(|row| (kept.schema_version, *row)));
        }
        all
    }

    pub(crate) fn all(contents: &Contents) -> Self {
        let mut all = Self { all_inlined: true, ..Self::default() };
        contents.files.iter().for_each(|file| all.add_file(file));
        all
    }

    pub(crate) fn add_file(&mut self, file: &ScannedFile) {
        match file.source {
            RowSource::File(id) => drop(self.removed.insert(id)),
            RowSource::Added(at) => drop(self.added.insert(at)),
            RowSource::Inlined(_) | RowSource::AddedInlined => {}
        }
    }

    /// Adds inlined rows whose partition key values are `replaced`.
    pub(crate) fn add_inlined(
        &mut self,
        target: &WarehouseTable,
        contents: &Contents,
        replaced: impl Fn(&[Option<String>]) -> bool,
    ) -> Result<()> {
        let table = target.table();
        let places = table.partition.iter().map(|key| Ok(key_column(table, key)?.0));
        let batches = target.inlined_batches(contents, &places.collect::<Result<Vec<_>>>()?)?;
        let mut keys = batches.iter().map(|batch| keys_of(table, batch));
        let mut next = || keys.next().unwrap_or_else(|| Ok(Vec::new()));
        for kept in contents.inlined.iter().filter(|kept| !kept.rows.is_empty()) {
            let rows = kept.row_ids.iter().zip(next()?).filter(|(_, key)| replaced(key));
            self.inlined_rows.extend(rows.map(|(row, _)| (kept.schema_version, *row)));
        }
        if !contents.added_inlined.is_empty() {
            let rows = next()?.into_iter().enumerate().filter(|(_, key)| replaced(key));
            self.added_inlined.extend(rows.map(|(at, _)| at));
        }
        Ok(())
    }

    pub(crate) fn apply(self, changes: &mut TableChanges, table: &Table) -> Result<()> {
        changes.replaces |= !self.same;
        changes.compacts |= self.same;
        changes.deleted_inlined.extend(self.inlined_rows);
        for id in &self.removed {
            changes.deleted.remove(id);
        }
        changes.removed.extend(self.removed);
        for at in self.added.into_iter().rev() {
            changes.added.remove(at);
        }
        if !self.added_inlined.is_empty() {
            let mut at = 0..;
            changes.inlined.retain(|_| at.next().is_none_or(|at| !self.added_inlined.contains(&at)));
            // Bounds of deleted rows would otherwise stay forever.
            changes.inlined_stats = stored_values::stats_of_cells(&changes.inlined, &table.columns)?;
        }
        if self.all_inlined {
            changes.removed_inlined = true;
            changes.deleted_inlined.clear();
            changes.inlined.clear();
            changes.inlined_stats.clear();
        }
        Ok(())
    }
}

/// The partition key values of every row of a batch of the key columns, as text as in folder names.
fn keys_of(table: &Table, batch: &RecordBatch) -> Result<Vec<Vec<Option<String>>>> {
    let schema = Arc::new(DFSchema::try_from(batch.schema())?);
    let simplifier = ExprSimplifier::new(SimplifyContext::builder().with_schema(Arc::clone(&schema)).build());
    let mut rows = vec![Vec::with_capacity(table.partition.len()); batch.num_rows()];
    for (at, key) in table.partition.iter().enumerate() {
        let column = Expr::Column(schema.columns()[at].clone());
        let value = simplifier.coerce(key_value(column, key.transform), &schema)?;
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
