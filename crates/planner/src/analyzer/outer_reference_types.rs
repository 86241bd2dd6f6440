//! Updates the types of outer references in correlated subqueries.
//!
//! The planner records the type of an outer column when it plans the subquery, before the types of the outer
//! query are coerced. `CASE … THEN id ELSE 1 END` is an INTEGER at that point and a BIGINT afterwards, so the
//! subquery compared mismatched types (22023). This rule assigns the coerced types of the outer query, and
//! coerces the subquery again.
//!
//! ```text
//! Filter: y = (subquery about outer_ref(q.n))   ─►  outer_ref(q.n): Int32 becomes outer_ref(q.n): Int64,
//!   Projection: CASE … THEN id ELSE 1 END AS n      and the subquery is coerced once more
//! ```
//! The subquery was planned when n was still an Int32; coercion has made it an Int64.
//!
//! `OuterReferenceTypes` can go when type coercion updates outer references as it descends into a subquery;
//! no issue found.

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

/// The analyzer rule; runs after type coercion.
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
            let mut outer_schema = input_schema(&plan)?;
            // ORDER BY may also refer to columns below the SELECT list.
            if let LogicalPlan::Sort(sort) = &plan
                && let LogicalPlan::Projection(list) = sort.input.as_ref()
            {
                outer_schema.merge(list.input.schema());
            }
            let plan = plan.map_expressions(|expr| {
                expr.transform_down(|expr| {
                    map_subquery(expr, |subquery| update_types(subquery, &outer_schema))
                })
            })?;
            plan.transform_data(|plan| lateral(plan, &outer_schema))
        })?;
        check_resolved(&changed.data)?;
        match changed.transformed {
            true => TypeCoercion::new().analyze(changed.data, options),
            false => Ok(changed.data),
        }
    }
}

/// Whether a plan has an unresolved outer reference: the planner does not list those of every place.
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

/// Fails for a reference to a table that no outer query has.
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

/// Updates LATERAL subqueries with the columns of their sibling.
fn lateral(plan: LogicalPlan, outer_schema: &DFSchema) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Join(_) => plan.map_children(|input| {
            input.transform_down(|input| match input {
                LogicalPlan::Subquery(mut subquery) => {
                    let changed = update_types(&mut subquery, outer_schema)?;
                    Ok(Transformed::new_transformed(LogicalPlan::Subquery(subquery), changed))
                }
                other => Ok(Transformed::no(other)),
            })
        }),
        other => Ok(Transformed::no(other)),
    }
}

/// Assigns the types in `outer_schema` to the outer references of a subquery and of those nested in it.
/// Returns whether any changed.
fn update_types(subquery: &mut Subquery, outer_schema: &DFSchema) -> Result<bool> {
    let mut retype = |expr: Expr| {
        expr.transform_up(|expr| {
            let Expr::OuterReferenceColumn(field, column) = &expr else { return Ok(Transformed::no(expr)) };
            Ok(match outer_schema.field_from_column(column) {
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
