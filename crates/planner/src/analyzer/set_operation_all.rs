//! EXCEPT ALL and INTERSECT ALL, which count how often a row is there.
//!
//! DataFusion makes anti and semi joins of them, which ask only whether it is there at all. Here every row is
//! joined together with its turn among its equals: the third of a row's copies on the left has a partner
//! where there are at least three on the right.
//!
//! ```text
//! LeftAnti Join: l.x = r.x      Projection: x
//!   l                       ─►    LeftAnti Join: l.x = r.x AND l.harrier_turn = r.harrier_turn
//!   r                               l, row_number() OVER (PARTITION BY x) AS harrier_turn
//!                                   r, the same
//! ```
//! EXCEPT ALL is an anti join here, INTERSECT ALL a semi join.
//!
//! `SetOperationAll` can go when EXCEPT ALL and INTERSECT ALL count rows (apache/datafusion#12955,
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

/// The rule; to stand behind the coercion of types, by which values of both sides can be compared.
#[derive(Debug)]
pub struct SetOperationAll;

impl AnalyzerRule for SetOperationAll {
    fn name(&self) -> &str {
        "set_operation_all"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let counted = plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Join(join) if is_of_all(&join) => Ok(Transformed::yes(counted(join)?)),
            other => Ok(Transformed::no(other)),
        })?;
        Ok(counted.data)
    }
}

/// What a row's turn is called.
const TURN: &str = "harrier_turn";

/// Whether a join is EXCEPT ALL or INTERSECT ALL, which take nulls of semi and anti joins for equal and
/// compare all columns: of what a DELETE reads, which has been optimized before, EXISTS may do the first.
/// Without ALL the left side is DISTINCT. Rows that are so anyway have no second turn.
fn is_of_all(join: &Join) -> bool {
    let is_done = || join.left.schema().fields().last().is_some_and(|last| last.name() == TURN);
    is_set_operation(join) && !matches!(join.left.as_ref(), LogicalPlan::Distinct(_)) && !is_done()
}

fn counted(mut join: Join) -> Result<LogicalPlan> {
    let columns: Vec<Expr> = join.left.schema().columns().into_iter().map(Expr::Column).collect();
    let (left, right): (Vec<Expr>, Vec<Expr>) = join.on.iter().cloned().unzip();
    join.left = Arc::new(with_turns(&join.left, left)?);
    join.right = Arc::new(with_turns(&join.right, right)?);
    let turn = || Expr::Column(Column::from_name(TURN));
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

/// Rows with a further column: which of those with the same `values` each is, from 1.
fn with_turns(plan: &LogicalPlan, values: Vec<Expr>) -> Result<LogicalPlan> {
    let turn = row_number().call(vec![]).partition_by(values).build()?;
    let name = turn.schema_name().to_string();
    let columns = plan.schema().columns().into_iter().map(Expr::Column);
    let turn_of_row = Expr::Column(Column::from_name(name)).alias(TURN);
    LogicalPlanBuilder::from(plan.clone())
        .window(vec![turn])?
        .project(columns.chain([turn_of_row]).collect::<Vec<_>>())?
        .build()
}
