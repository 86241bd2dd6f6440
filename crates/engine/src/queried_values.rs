//! What stands in VALUES beside constants. `VALUES ((SELECT …))`: to the planner all are constants, which it works out before a subquery has run;
//! rows with subqueries are those of a SELECT each here. `VALUES (1.5), (CASE …)`: what is computed is cast to the type of its column in any case,
//! for the planner compares the two before it has found out what is computed.

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::cast;
use datafusion::logical_expr::{EmptyRelation, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Values};
use datafusion::optimizer::AnalyzerRule;

use crate::warehouse::has_subquery;

/// The rule; to stand before those that look at subqueries.
#[derive(Debug)]
pub(crate) struct QueriedValues;

impl AnalyzerRule for QueriedValues {
    fn name(&self) -> &str {
        "queried_values"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(selected)?.data)
    }
}

fn selected(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match &plan {
        LogicalPlan::Values(values) if values.values.iter().flatten().any(has_subquery) => {
            let mut rows = values.values.iter().map(|row| row_of(row, values));
            let Some(first) = rows.next() else { return Ok(Transformed::no(plan)) };
            let all = rows.try_fold(first?, |all, row| all.union(row?.build()?))?;
            Ok(Transformed::yes(all.build()?))
        }
        LogicalPlan::Values(values) => {
            let mut rows = values.values.clone();
            let mut is_changed = false;
            for (value, field) in rows.iter_mut().flat_map(|row| row.iter_mut().zip(values.schema.fields())) {
                if !matches!(value, Expr::Literal(..) | Expr::Placeholder(_) | Expr::Cast(_)) {
                    *value = cast(std::mem::take(value), field.data_type().clone());
                    is_changed = true;
                }
            }
            let schema = Arc::clone(&values.schema);
            Ok(match is_changed {
                true => Transformed::yes(LogicalPlan::Values(Values { schema, values: rows })),
                false => Transformed::no(plan),
            })
        }
        _ => Ok(Transformed::no(plan)),
    }
}

/// One row, with the names and types of all.
fn row_of(row: &[Expr], values: &Values) -> Result<LogicalPlanBuilder> {
    let nothing = Arc::new(DFSchema::empty());
    let columns = row.iter().zip(values.schema.fields()).map(|(value, field)| {
        Ok(value.clone().cast_to(field.data_type(), nothing.as_ref())?.alias(field.name()))
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let one = EmptyRelation { produce_one_row: true, schema: nothing };
    LogicalPlanBuilder::from(LogicalPlan::EmptyRelation(one)).project(columns)
}
