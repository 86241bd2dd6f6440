//! The types of the columns of EXCEPT and INTERSECT, which are those that both sides have in common, as in
//! UNION. DataFusion makes joins of them, whose rows are those of the left side as they are: a REAL beside a
//! double is written with the digits of a double, and a day beside a timestamp as one.
//!
//! ```text
//! LeftAnti Join: l.x = r.x      LeftAnti Join: l.x = r.x
//!   l (x real)              ─►    Projection: CAST(l.x AS Float64) AS x
//!   r (x double)                    l
//!                                 r
//! ```
//!
//! `SetOperationTypes` can go when EXCEPT and INTERSECT coerce the types of both sides as UNION does; no
//! issue was found. PostgreSQL 10.5.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::logical_expr::logical_plan::Join;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan, LogicalPlanBuilder, cast};
use datafusion::optimizer::AnalyzerRule;

use crate::analyzer::decimal_float_coercion::is_double_column;

/// The rule; to stand before the coercion of types, and behind what finds out which numbers are doubles.
#[derive(Debug)]
pub(crate) struct SetOperationTypes;

impl AnalyzerRule for SetOperationTypes {
    fn name(&self) -> &str {
        "set_operation_types"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        // Types of columns are other ones above what has changed.
        let mut is_changed = false;
        let changed = plan.transform_up_with_subqueries(|plan| {
            let plan = if is_changed { plan.recompute_schema()? } else { plan };
            let LogicalPlan::Join(join) = plan else { return Ok(Transformed::no(plan)) };
            let changed = united(join)?;
            is_changed |= changed.transformed;
            Ok(changed)
        })?;
        Ok(changed.data)
    }
}

/// Whether a join is EXCEPT or INTERSECT: of all columns, where NULL equals NULL.
pub(crate) fn is_set_operation(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftAnti | JoinType::LeftSemi)
        && join.null_equality == NullEquality::NullEqualsNull
        && join.filter.is_none()
        && join.on.len() == join.left.schema().fields().len()
        && join.on.len() == join.right.schema().fields().len()
}

fn united(mut join: Join) -> Result<Transformed<LogicalPlan>> {
    if !is_set_operation(&join) {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    let kinds: Vec<Option<DataType>> = (0..join.on.len()).map(|at| wider(&join, at)).collect();
    if kinds.iter().all(Option::is_none) {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    join.left = match join.left.as_ref() {
        LogicalPlan::Distinct(Distinct::All(rows)) => {
            let rows = Arc::new(with_kinds(rows, &kinds)?);
            Arc::new(LogicalPlan::Distinct(Distinct::All(rows)))
        }
        rows => Arc::new(with_kinds(rows, &kinds)?),
    };
    LogicalPlan::Join(join).recompute_schema().map(Transformed::yes)
}

/// The type that a column of the left side becomes beside that of the right side; `None`: it has it.
fn wider(join: &Join, at: usize) -> Option<DataType> {
    use DataType::{Date32, Float32, Float64, Timestamp};
    let kind = |side: &LogicalPlan| side.schema().field(at).data_type().clone();
    let (left, right) = (kind(&join.left), kind(&join.right));
    let is_wider = match (&left, &right) {
        (Float32, Float64) | (Date32, Timestamp(..)) | (Timestamp(_, None), Timestamp(_, Some(_))) => true,
        (left, Float32) => left.is_integer() || left.is_decimal(),
        // What is NUMERIC to PostgreSQL is a double here, and has fewer digits than an integer.
        (left, Float64) if left.is_integer() || left.is_decimal() => is_double_column(&join.right, at),
        _ => false,
    };
    is_wider.then_some(right)
}

fn with_kinds(rows: &LogicalPlan, kinds: &[Option<DataType>]) -> Result<LogicalPlan> {
    let columns = rows.schema().iter().zip(kinds).map(|((relation, field), kind)| {
        let column = Expr::from((relation, field));
        match kind {
            Some(kind) => cast(column, kind.clone()).alias_qualified(relation.cloned(), field.name()),
            None => column,
        }
    });
    LogicalPlanBuilder::from(rows.clone()).project(columns.collect::<Vec<_>>())?.build()
}
