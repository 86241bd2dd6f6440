//! Expressions of a plan put in the place of others.

use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};

/// Has `replace` see every expression of one node, those inside of others first. Columns keep their names.
pub(crate) fn rewritten(
    plan: LogicalPlan,
    mut replace: impl FnMut(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&plan);
    let changed = plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let changed = expr.transform_up(&mut replace)?;
        Ok(changed.update_data(|expr| name.restore(expr)))
    })?;
    match changed.transformed {
        true => changed.map_data(LogicalPlan::recompute_schema),
        false => Ok(changed),
    }
}

/// The columns that the expressions of a node speak of.
pub(crate) fn schema_below(plan: &LogicalPlan) -> Result<DFSchema> {
    let mut schema = merge_schema(&plan.inputs());
    match plan {
        LogicalPlan::TableScan(scan) => schema
            .merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?),
        LogicalPlan::Dml(dml) => {
            schema.merge(&DFSchema::try_from_qualified_schema(dml.table_name.clone(), &dml.target.schema())?)
        }
        _ => {}
    }
    Ok(schema)
}
