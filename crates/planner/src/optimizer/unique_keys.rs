//! What columns tell the rows of a plan apart, for rules that leave keys out of groups, DISTINCT and joins
//! out of a plan by it.
//!
//! Where a join repeats the rows of one of its sides, what was a key of that side still determines its
//! columns, and is no key of the result. DataFusion takes it for one behind the next GROUP BY or window, and
//! for all columns there: of groups by `i` and `j` over a join of groups by `i`, `SELECT DISTINCT i` had a
//! row for each of them, groups by both once more were groups by `i`, and a join by `i` was left out.
//!
//! ```text
//! Distinct: i                              Aggregate: BY i
//!   Projection: i                      ─►      Projection: i
//!     Aggregate: BY i, j                         Aggregate: BY i, j
//!       Join: (groups by i), (rows of j)           Join: …
//! ```
//! Without the rule the DISTINCT is left out, as if `i` were a key of the groups.
//!
//! `UniqueKeys` and `KeyedRelations` can go when DataFusion keeps a dependency whose determinant is repeated
//! (`Dependency::Multi`) from being taken for a key behind an aggregate or a window; no issue was found.

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, Dependency, FunctionalDependence, FunctionalDependencies};
use datafusion::error::Result;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Aggregate, Distinct, LogicalPlan, Window};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::sql::sqlparser::ast::TableFactor;

/// A rule that trusts in keys, with those in front of it that there are.
#[derive(Debug)]
struct UniqueKeys(Arc<dyn OptimizerRule + Send + Sync>);

/// Has the rules that leave something out by keys see no wrong ones.
pub(crate) fn guard(rules: &mut [Arc<dyn OptimizerRule + Send + Sync>]) {
    const TRUSTING: [&str; 4] =
        ["eliminate_duplicated_expr", "eliminate_join", "optimize_projections", "replace_distinct_aggregate"];
    for rule in rules.iter_mut().filter(|rule| TRUSTING.contains(&rule.name())) {
        *rule = Arc::new(UniqueKeys(Arc::clone(rule)));
    }
}

impl OptimizerRule for UniqueKeys {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        // One that sees a node at a time looks at keys where it sees DISTINCT, an order or groups.
        let looks = self.apply_order().is_none()
            || matches!(
                plan,
                LogicalPlan::Distinct(Distinct::All(_)) | LogicalPlan::Sort(_) | LogicalPlan::Aggregate(_)
            );
        match looks && has_mistaken(&plan)? {
            true => self.0.rewrite(with_keys(plan)?, config),
            false => self.0.rewrite(plan, config),
        }
    }
}

/// Plans relations with the keys that they have: to a GROUP BY the planner adds all columns that its keys
/// determine.
#[derive(Debug)]
pub(crate) struct KeyedRelations;

thread_local! {
    /// The next relation is one that is being planned.
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
        let plan = context.plan(relation)?;
        let plan = if has_mistaken(&plan)? { with_keys(plan)? } else { plan };
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, None))))
    }
}

fn has_mistaken(plan: &LogicalPlan) -> Result<bool> {
    let mut has_one = false;
    plan.apply_with_subqueries(|node| {
        has_one |= is_mistaken(node);
        Ok(if has_one { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(has_one)
}

/// Whether DataFusion takes for a key of this node what is none.
fn is_mistaken(node: &LogicalPlan) -> bool {
    let input = match node {
        // It repeats the rows of its input.
        LogicalPlan::Unnest(unnest) => {
            return unnest.schema.functional_dependencies().iter().next().is_some();
        }
        LogicalPlan::Aggregate(Aggregate { input, .. }) | LogicalPlan::Window(Window { input, .. }) => input,
        _ => return false,
    };
    input.schema().functional_dependencies().iter().any(|dependence| dependence.mode == Dependency::Multi)
}

/// The plan with the keys that its nodes have.
fn with_keys(plan: LogicalPlan) -> Result<LogicalPlan> {
    let keyed = plan.transform_up_with_subqueries(|node| {
        let mut node = node.recompute_schema()?;
        if is_mistaken(&node) {
            match &mut node {
                LogicalPlan::Aggregate(aggregate) => {
                    let keys = aggregate.group_expr_len()?;
                    let all = aggregate.schema.fields().len();
                    let is_nullable = aggregate.schema.fields()[..keys].iter().any(|key| key.is_nullable());
                    let key = FunctionalDependence::new((0..keys).collect(), (0..all).collect(), is_nullable)
                        .with_mode(Dependency::Single);
                    let has_key = keys > 0;
                    set(&mut aggregate.schema, has_key.then_some(key).into_iter().collect())?;
                }
                LogicalPlan::Window(window) => {
                    let dependencies = window.schema.functional_dependencies().iter();
                    let single = dependencies.filter(|found| found.mode == Dependency::Single);
                    let single = single.cloned().collect();
                    set(&mut window.schema, single)?;
                }
                LogicalPlan::Unnest(unnest) => set(&mut unnest.schema, vec![])?,
                _ => {}
            }
        }
        Ok(Transformed::yes(node))
    })?;
    Ok(keyed.data)
}

fn set(schema: &mut DFSchemaRef, dependencies: Vec<FunctionalDependence>) -> Result<()> {
    let own = schema.as_ref().clone();
    *schema = Arc::new(own.with_functional_dependencies(FunctionalDependencies::new(dependencies))?);
    Ok(())
}
