//! Uncommitted rows of a transaction that alters their table's columns.
//!
//! Rows stay as written where possible. Files are read by the column names at commit: so a column in them
//! must keep its name and type, and no new column may reuse the name. Otherwise the rows are rewritten.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::datasource::provider_as_source;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, cast, lit};
use harrier_catalog::files::{Cell, NewFile, TableChanges};
use harrier_catalog::state::{Column, ColumnId, Table};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::statement::ddl::Ddl;
use crate::types::columns::type_of;
use crate::warehouse::dml::{Dml, column};
use crate::warehouse::table::scanned_file::RowSource;
use crate::warehouse::table::{WarehouseTable, missing_value};

impl Ddl<'_> {
    /// Rewrites the transaction's uncommitted rows of a table into files with the new columns; `None`: no
    /// rewrite is needed. Does not change the transaction yet.
    ///
    /// Errors: the transaction has compacted the table (25001); those of writing.
    pub(super) async fn rewrite_rows(
        &self,
        before: &Arc<Table>,
        after: &Table,
    ) -> Result<Option<Vec<NewFile>>> {
        let snapshot = self.names.snapshot();
        let Some(changes) = snapshot.data.get(&before.id) else { return Ok(None) };
        if can_adapt(changes, &before.columns, &after.columns) {
            return Ok(None);
        }
        if changes.compacts {
            let message = format!(
                "OPTIMIZE and changes of columns of table \"{}\" cannot be in one transaction",
                before.name
            );
            return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message).into_datafusion());
        }
        let state = self.context.state();
        let sources = (0..changes.added.len()).map(RowSource::Added).chain([RowSource::AddedInlined]);
        let rows = WarehouseTable::try_new(state.clone(), &snapshot, Arc::clone(before))?;
        let rows = provider_as_source(Arc::new(rows.with_sources(sources.collect())));
        let value = |column: &Column| value_of(column, &before.columns);
        let values = after.columns.iter().map(value).collect::<Result<Vec<_>>>()?;
        let input = LogicalPlanBuilder::scan(before.name.as_str(), rows, None)?.project(values)?.build()?;
        let target = WarehouseTable::try_new(state, &snapshot, Arc::new(after.clone()))?;
        let Dml { plan, pending } = Dml::rewrite(target, input)?;
        pending.begin(self.transactions).await?;
        let results = self.context.execute_logical_plan(plan).await?.collect().await?;
        pending.files(results, self.transactions).await.map(Some)
    }
}

/// Value of a column for rows with the columns `before`.
fn value_of(after: &Column, before: &[Column]) -> Result<Expr> {
    let value = match before.iter().find(|old| old.id == after.id) {
        Some(old) => {
            let kind = type_of(after, false)?;
            match type_of(old, false)? == kind {
                true => column(&old.name),
                false => cast(column(&old.name), kind),
            }
        }
        None => lit(missing_value(after)?),
    };
    Ok(value.alias(&after.name))
}

/// Replaces all uncommitted rows by files. Deletions of committed rows remain.
pub(super) fn replace(changes: &mut TableChanges, files: Vec<NewFile>) {
    changes.added = files;
    changes.inlined.clear();
    changes.inlined_stats.clear();
}

/// Whether uncommitted rows with the columns `before` can stay, so that [`adapt`] suffices: no column has
/// changed its type, and no new one has a non-NULL initial default; with files, no column was renamed or
/// dropped either (another could reuse its name).
fn can_adapt(changes: &TableChanges, before: &[Column], after: &[Column]) -> bool {
    if changes.added.is_empty() && changes.inlined.is_empty() {
        return true;
    }
    let is_in_files = !changes.added.is_empty();
    let fits = |column: &Column| match before.iter().find(|old| old.id == column.id) {
        Some(old) => is_of_one_type(old, column) && (old.name == column.name || !is_in_files),
        None => column.initial_default.is_none(),
    };
    let stays = |old: &Column| after.iter().any(|column| column.id == old.id);
    after.iter().all(fits) && (!is_in_files || before.iter().all(stays))
}

/// Adapts uncommitted rows with the columns `before` to the columns `after`. Files stay unchanged.
pub(super) fn adapt(changes: &mut TableChanges, before: &[Column], after: &[Column]) {
    if changes.inlined.is_empty() {
        return;
    }
    let places: Vec<Option<usize>> =
        after.iter().map(|column| before.iter().position(|old| old.id == column.id)).collect();
    for row in &mut changes.inlined {
        let cell = |place: &Option<usize>| place.map_or(Cell::Null, |place| row[place].clone());
        *row = places.iter().map(cell).collect();
    }
    let mut ids = BTreeSet::new();
    after.iter().for_each(|column| add_ids(column, &mut ids));
    changes.inlined_stats.retain(|id, _| ids.contains(id));
}

fn is_of_one_type(one: &Column, other: &Column) -> bool {
    let are_alike = one
        .children
        .iter()
        .zip(&other.children)
        .all(|(one, other)| one.id == other.id && one.name == other.name && is_of_one_type(one, other));
    one.kind == other.kind && one.children.len() == other.children.len() && are_alike
}

fn add_ids(column: &Column, ids: &mut BTreeSet<ColumnId>) {
    ids.insert(column.id);
    column.children.iter().for_each(|child| add_ids(child, ids));
}
