//! The types of columns that a correlated subquery takes from the rows outside.
//!
//! The planner notes the type of such a column as it makes the subquery, before the types of the query
//! outside have been coerced. `CASE … THEN id ELSE 1 END` is an INTEGER then and a BIGINT afterwards, and the
//! subquery compared what it took for an INTEGER with what is none (22023). Here the types are those of the
//! coerced query, and the subquery is coerced once more.
//!
//! ```text
//! Filter: y = (subquery about outer_ref(q.n))   ─►  outer_ref(q.n): Int32 becomes outer_ref(q.n): Int64,
//!   Projection: CASE … THEN id ELSE 1 END AS n      and the subquery is coerced once more
//! ```
//! The subquery was planned when n was still an Int32; coercion has made an Int64 of it.
//!
//! `OuterReferenceTypes` can go when type coercion retypes outer references as it goes into a subquery; no
//! issue found.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, Subquery};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::analyzer::decorrelation::references::map_subquery;
use crate::binder::outer_qualifiers::is_unresolved;
use crate::rewrite::input_schema;

/// The rule; to stand behind the coercion of types.
#[derive(Debug)]
pub struct OuterReferenceTypes;

impl AnalyzerRule for OuterReferenceTypes {
    fn name(&self) -> &str {
        "outer_reference_types"
    }

    fn analyze(&self, plan: LogicalPlan, options: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_down_with_subqueries(|plan| {
            if matches!(plan, LogicalPlan::Subquery(_)) {
                return Ok(Transformed::no(plan));
            }
            let mut outside = input_schema(&plan)?;
            // Below the list of a SELECT there are columns, too, that an order may be by.
            if let LogicalPlan::Sort(sort) = &plan
                && let LogicalPlan::Projection(list) = sort.input.as_ref()
            {
                outside.merge(list.input.schema());
            }
            let plan = plan.map_expressions(|expr| {
                expr.transform_down(|expr| map_subquery(expr, |subquery| retyped(subquery, &outside)))
            })?;
            plan.transform_data(|plan| lateral(plan, &outside))
        })?;
        check_resolved(&changed.data)?;
        match changed.transformed {
            true => TypeCoercion::new().analyze(changed.data, options),
            false => Ok(changed.data),
        }
    }
}

/// Whether a plan has a column whose table was not known as it was planned: the planner does not list those
/// of every place.
fn has_unresolved(plan: &LogicalPlan) -> Result<bool> {
    let mut is_found = false;
    plan.apply_with_subqueries(|plan| {
        plan.apply_expressions(|expr| {
            is_found |= expr.exists(|part| {
                Ok(matches!(part, Expr::OuterReferenceColumn(field, _) if is_unresolved(field)))
            })?;
            Ok(if is_found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(is_found)
}

/// Fails for a column of a table that is not outside either.
fn check_resolved(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|plan| {
        plan.apply_expressions(|expr| {
            expr.apply(|expr| match expr {
                Expr::OuterReferenceColumn(field, Column { relation: Some(table), .. })
                    if is_unresolved(field) =>
                {
                    let message = format!("missing FROM-clause entry for table \"{table}\"");
                    Err(SqlError::new(SqlState::UNDEFINED_TABLE, message).into_datafusion())
                }
                _ => Ok(TreeNodeRecursion::Continue),
            })
        })
    })?;
    Ok(())
}

/// The subqueries of LATERAL beside what they speak of.
fn lateral(plan: LogicalPlan, outside: &DFSchema) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Join(_) => plan.map_children(|input| {
            input.transform_down(|input| match input {
                LogicalPlan::Subquery(mut subquery) => {
                    let changed = retyped(&mut subquery, outside)?;
                    Ok(Transformed::new_transformed(LogicalPlan::Subquery(subquery), changed))
                }
                other => Ok(Transformed::no(other)),
            })
        }),
        other => Ok(Transformed::no(other)),
    }
}

/// Gives the columns that a subquery, or one inside of it, takes from `outside` the types that they have
/// there. Returns whether they had others.
fn retyped(subquery: &mut Subquery, outside: &DFSchema) -> Result<bool> {
    let mut retype = |expr: Expr| {
        expr.transform_up(|expr| {
            let Expr::OuterReferenceColumn(field, column) = &expr else { return Ok(Transformed::no(expr)) };
            Ok(match outside.field_from_column(column) {
                Ok(found) if found.data_type() != field.data_type() || is_unresolved(field) => {
                    Transformed::yes(Expr::OuterReferenceColumn(Arc::clone(found), column.clone()))
                }
                _ => Transformed::no(expr),
            })
        })
    };
    let mut is_changed = false;
    for column in &mut subquery.outer_ref_columns {
        let changed = retype(column.clone())?;
        is_changed |= changed.transformed;
        *column = changed.data;
    }
    if !is_changed && !has_unresolved(&subquery.subquery)? {
        return Ok(false);
    }
    let plan = Arc::unwrap_or_clone(Arc::clone(&subquery.subquery));
    let changed = plan.transform_up_with_subqueries(|plan| plan.map_expressions(&mut retype))?;
    subquery.subquery = Arc::new(changed.data);
    Ok(true)
}
