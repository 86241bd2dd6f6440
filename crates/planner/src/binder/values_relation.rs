//! Planner of VALUES in FROM as an independent relation. Within an INSERT, DataFusion plans every VALUES with
//! the column count and types of the target table.
//!
//! ```text
//! INSERT INTO t SELECT … FROM (VALUES (1, 2)) AS v (a, b)  ─►  SubqueryAlias: v
//!                                                                Values: (1, 2)
//! ```
//! The values keep their own types. DataFusion would give them the columns and types of t. Quoted literals
//! take the type of the other values of their column, where DataFusion has no common type.
//!
//! `ValuesPlanner` can go when VALUES in FROM of an INSERT is planned without the schema of the target table;
//! no issue found.

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{Query, SetExpr, TableFactor, Values};

/// Plans `(VALUES …)` in FROM.
#[derive(Debug)]
pub struct ValuesPlanner {
    /// Coerces the quoted literals among the rows.
    pub coerce_rows: fn(&mut [Vec<Expr>]) -> Result<()>,
}

impl RelationPlanner for ValuesPlanner {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let TableFactor::Derived { subquery, alias, .. } = &relation else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let Some(values) = values_only(subquery) else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let nothing = Arc::new(DFSchema::empty());
        let rows = values.rows.iter().map(|row| {
            let row = row.content.iter().map(|value| context.sql_to_expr(value.clone(), &nothing));
            row.collect::<Result<Vec<_>>>()
        });
        let mut rows = rows.collect::<Result<Vec<_>>>()?;
        (self.coerce_rows)(&mut rows)?;
        let plan = LogicalPlanBuilder::values(rows)?.build()?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias.clone()))))
    }
}

/// The rows of a query that consists only of VALUES.
fn values_only(query: &Query) -> Option<&Values> {
    let Query { body, with: None, order_by: None, limit_clause: None, fetch: None, .. } = query else {
        return None;
    };
    match body.as_ref() {
        SetExpr::Values(values) if !values.value_keyword => Some(values),
        _ => None,
    }
}
