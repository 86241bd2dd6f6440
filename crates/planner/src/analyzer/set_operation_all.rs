//! EXCEPT ALL and INTERSECT ALL with multiset semantics.
//!
//! DataFusion plans them as anti and semi joins, which only test whether a row exists. This rule also joins
//! on the row's number among its duplicates: the third copy on the left matches only if the right side has at
//! least three.
//!
//! ```text
//! LeftAnti Join: l.x = r.x      Projection: x
//!   l                       ─►    LeftAnti Join: l.x = r.x AND l.harrier_turn = r.harrier_turn
//!   r                               l, row_number() OVER (PARTITION BY x) AS harrier_turn
//!                                   r, the same
//! ```
//! EXCEPT ALL is an anti join, INTERSECT ALL a semi join.
//!
//! `SetOperationAll` can go when EXCEPT ALL and INTERSECT ALL count duplicates (apache/datafusion#12955,
//! apache/datafusion#12956, open); PostgreSQL 7.4.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::logical_plan::Join;
use datafusion::logical_expr::{Expr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::AnalyzerRule;
use harrier_functions::window::ranking::row_number;

use crate::analyzer::set_operation_types::is_set_operation;

/// The analyzer rule; runs after type coercion, so that values of both sides are comparable.
#[derive(Debug)]
pub struct SetOperationAll;

impl AnalyzerRule for SetOperationAll {
    fn name(&self) -> &str {
        "set_operation_all"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let counted = plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Join(join) if is_all(&join) => Ok(Transformed::yes(number_duplicates(join)?)),
            other => Ok(Transformed::no(other)),
        })?;
        Ok(counted.data)
    }
}

/// The name of the column with the row's number among its duplicates.
const ROW_NUMBER: &str = "harrier_turn";

/// Whether a join is EXCEPT ALL or INTERSECT ALL: a semi or anti join that compares all columns, with NULL
/// equal to NULL. In the input of a DELETE, which is already optimized, joins from EXISTS may treat NULLs as
/// equal too. Without ALL the left side is DISTINCT. Input rows that are unique anyway have no second number.
fn is_all(join: &Join) -> bool {
    let is_done = || join.left.schema().fields().last().is_some_and(|last| last.name() == ROW_NUMBER);
    is_set_operation(join) && !matches!(join.left.as_ref(), LogicalPlan::Distinct(_)) && !is_done()
}

fn number_duplicates(mut join: Join) -> Result<LogicalPlan> {
    let columns: Vec<Expr> = join.left.schema().columns().into_iter().map(Expr::Column).collect();
    let (left, right): (Vec<Expr>, Vec<Expr>) = join.on.iter().cloned().unzip();
    join.left = Arc::new(add_row_numbers(&join.left, left)?);
    join.right = Arc::new(add_row_numbers(&join.right, right)?);
    let turn = || Expr::Column(Column::from_name(ROW_NUMBER));
    join.on.push((turn(), turn()));
    let join = Join::try_new(
        join.left,
        join.right,
        join.on,
        join.filter,
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )?;
    LogicalPlanBuilder::from(LogicalPlan::Join(join)).project(columns)?.build()
}

/// Adds a column with each row's number among the rows with the same `values`, from 1.
fn add_row_numbers(plan: &LogicalPlan, values: Vec<Expr>) -> Result<LogicalPlan> {
    let turn = row_number().call(vec![]).partition_by(values).build()?;
    let name = turn.schema_name().to_string();
    let columns = plan.schema().columns().into_iter().map(Expr::Column);
    let turn_of_row = Expr::Column(Column::from_name(name)).alias(ROW_NUMBER);
    LogicalPlanBuilder::from(plan.clone())
        .window(vec![turn])?
        .project(columns.chain([turn_of_row]).collect::<Vec<_>>())?
        .build()
}
