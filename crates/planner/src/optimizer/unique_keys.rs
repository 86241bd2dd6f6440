//! Corrects the unique keys of plan nodes for rules that remove grouping keys, DISTINCT and joins.
//!
//! When a join repeats the rows of one side, a key of that side still determines its columns but is no longer
//! unique in the result. After the next GROUP BY or window DataFusion treats it as a unique key for all
//! columns. With groups by `i` and `j` over a join of groups by `i`, `SELECT DISTINCT i` returned a row for
//! each pair, grouping again by both grouped by `i` only, and a join on `i` was removed.
//!
//! ```text
//! Distinct: i                              Aggregate: BY i
//!   Projection: i                      ─►      Projection: i
//!     Aggregate: BY i, j                         Aggregate: BY i, j
//!       Join: (groups by i), (rows of j)           Join: …
//! ```
//! Without the rule the DISTINCT is removed, as if `i` were a key of the groups.
//!
//! `UniqueKeys` and `KeyedRelations` can go when DataFusion does not treat a dependency with a repeated
//! determinant (`Dependency::Multi`) as a unique key after an aggregate or a window; no issue was found.

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, Dependency, FunctionalDependence, FunctionalDependencies};
use datafusion::error::Result;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Aggregate, Distinct, LogicalPlan, Window};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::sql::sqlparser::ast::TableFactor;

use crate::delegation::delegate_optimizer_rule;

/// Wraps a rule that relies on keys, and corrects them before it runs.
#[derive(Debug)]
struct UniqueKeys(Arc<dyn OptimizerRule + Send + Sync>);

/// Wraps the rules that remove nodes or keys by functional dependencies.
pub(crate) fn guard(rules: &mut [Arc<dyn OptimizerRule + Send + Sync>]) {
    const KEY_RULES: [&str; 4] =
        ["eliminate_duplicated_expr", "eliminate_join", "optimize_projections", "replace_distinct_aggregate"];
    for rule in rules.iter_mut().filter(|rule| KEY_RULES.contains(&rule.name())) {
        *rule = Arc::new(UniqueKeys(Arc::clone(rule)));
    }
}

impl OptimizerRule for UniqueKeys {
    delegate_optimizer_rule!();

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        // A rule that runs node by node only reads keys at DISTINCT, sorts and aggregates.
        let reads_keys = self.apply_order().is_none()
            || matches!(
                plan,
                LogicalPlan::Distinct(Distinct::All(_)) | LogicalPlan::Sort(_) | LogicalPlan::Aggregate(_)
            );
        match reads_keys && has_wrong_keys(&plan)? {
            true => self.0.rewrite(correct_keys(plan)?, config),
            false => self.0.rewrite(plan, config),
        }
    }
}

/// Plans relations with correct keys: the planner adds all functionally dependent columns to a GROUP BY.
#[derive(Debug)]
pub(crate) struct KeyedRelations {
    /// Changes the types of a relation's columns, before expressions above it are planned.
    pub(crate) coerce_columns: fn(LogicalPlan) -> Result<LogicalPlan>,
}

thread_local! {
    /// Set before a relation is planned again, so that the nested call skips it.
    static IS_PLANNED: Cell<bool> = const { Cell::new(false) };
}

impl RelationPlanner for KeyedRelations {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let is_query =
            matches!(relation, TableFactor::Derived { .. } | TableFactor::Table { args: None, .. });
        if IS_PLANNED.take() || !is_query {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        IS_PLANNED.set(true);
        let plan = (self.coerce_columns)(context.plan(relation)?)?;
        let plan = if has_wrong_keys(&plan)? { correct_keys(plan)? } else { plan };
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, None))))
    }
}

fn has_wrong_keys(plan: &LogicalPlan) -> Result<bool> {
    let mut has_one = false;
    plan.apply_with_subqueries(|node| {
        has_one |= derives_wrong_key(node);
        Ok(if has_one { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(has_one)
}

/// Whether DataFusion derives a wrong key for this node.
fn derives_wrong_key(node: &LogicalPlan) -> bool {
    let input = match node {
        // Unnest repeats the rows of its input.
        LogicalPlan::Unnest(unnest) => {
            return unnest.schema.functional_dependencies().iter().next().is_some();
        }
        LogicalPlan::Aggregate(Aggregate { input, .. }) | LogicalPlan::Window(Window { input, .. }) => input,
        _ => return false,
    };
    input.schema().functional_dependencies().iter().any(|dependence| dependence.mode == Dependency::Multi)
}

/// Corrects the keys of all nodes.
fn correct_keys(plan: LogicalPlan) -> Result<LogicalPlan> {
    let keyed = plan.transform_up_with_subqueries(|node| {
        let mut node = node.recompute_schema()?;
        if derives_wrong_key(&node) {
            match &mut node {
                LogicalPlan::Aggregate(aggregate) => {
                    let keys = aggregate.group_expr_len()?;
                    let all = aggregate.schema.fields().len();
                    let is_nullable = aggregate.schema.fields()[..keys].iter().any(|key| key.is_nullable());
                    let key = FunctionalDependence::new((0..keys).collect(), (0..all).collect(), is_nullable)
                        .with_mode(Dependency::Single);
                    let has_key = keys > 0;
                    set_dependencies(&mut aggregate.schema, has_key.then_some(key).into_iter().collect())?;
                }
                LogicalPlan::Window(window) => {
                    let dependencies = window.schema.functional_dependencies().iter();
                    let single = dependencies.filter(|found| found.mode == Dependency::Single);
                    let single = single.cloned().collect();
                    set_dependencies(&mut window.schema, single)?;
                }
                LogicalPlan::Unnest(unnest) => set_dependencies(&mut unnest.schema, vec![])?,
                _ => {}
            }
        }
        Ok(Transformed::yes(node))
    })?;
    Ok(keyed.data)
}

fn set_dependencies(schema: &mut DFSchemaRef, dependencies: Vec<FunctionalDependence>) -> Result<()> {
    let own = schema.as_ref().clone();
    *schema = Arc::new(own.with_functional_dependencies(FunctionalDependencies::new(dependencies))?);
    Ok(())
}
