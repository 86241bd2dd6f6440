//! Checks of rows before they are written: row filters of the writer, and CHECK constraints.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use harrier_functions::guard::{check_constraint, row_filter_check};

use crate::types::columns::schema_of;
use crate::warehouse::table::WarehouseTable;

/// Adds checks to `input`, which begins with the table's columns: it fails on a row that the writer's row
/// filters hide (42501), or that violates a CHECK constraint (23514). `is_written`: restricts the checks to
/// these rows.
///
/// Errors: a constraint can no longer be evaluated.
pub(crate) fn add_checks(
    target: &WarehouseTable,
    input: LogicalPlan,
    is_written: Option<Expr>,
) -> Result<LogicalPlan> {
    let checks = target.checks()?;
    if target.visible().is_none() && checks.is_empty() {
        return Ok(input);
    }
    let table = target.table();
    let schema = schema_of(&table.columns)?;
    let columns = input.schema().columns();
    // By position, whatever the statement names them.
    let value = |at: usize| {
        let value = Expr::Column(columns[at].clone());
        match input.schema().field(at).data_type() == schema.field(at).data_type() {
            true => value,
            false => datafusion::logical_expr::cast(value, schema.field(at).data_type().clone()),
        }
    };
    let over_rows = |condition: &Expr| {
        let condition = condition.clone().transform_up(|part| match &part {
            Expr::Column(named) => match table.columns.iter().position(|own| own.name == named.name) {
                Some(at) => Ok(Transformed::yes(value(at))),
                None => Err(DataFusionError::Internal(format!("a condition on {named}, which is not there"))),
            },
            _ => Ok(Transformed::no(part)),
        })?;
        Ok::<_, DataFusionError>(match &is_written {
            Some(is_written) => is_written.clone().is_not_true().or(condition.data),
            None => condition.data,
        })
    };
    let mut all: Vec<Expr> = columns.iter().cloned().map(Expr::Column).collect();
    let (Some(first), Some(name)) = (all.first_mut(), columns.first()) else { return Ok(input) };
    let mut written = first.clone();
    if let Some(visible) = target.visible() {
        written = row_filter_check::enforce(over_rows(visible)?, &table.name, written);
    }
    // Errors show no row to a role that may not read all columns: some values may be defaults.
    let is_shown = table.columns.iter().all(|column| target.readable().has(column.id));
    for check in checks {
        let row = if is_shown { (0..table.columns.len()).map(value).collect() } else { vec![] };
        let holds = over_rows(&check.condition)?;
        written = check_constraint::enforce(holds, &check.name, &table.name, row, written);
    }
    *first = written.alias_qualified(name.relation.clone(), &name.name);
    LogicalPlanBuilder::from(input).project(all)?.build()
}
