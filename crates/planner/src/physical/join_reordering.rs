//! Orders joins by cost, and chooses the side that each of them builds.
//!
//! DataFusion executes joins in the order of the statement, and swaps the sides of each by an estimate of its
//! inputs. This rule takes islands of joins, estimates all orders of each, and builds the cheapest:
//!
//! ```text
//! HashJoinExec: f.k = d.k                          HashJoinExec: f.k = d.k, builds d
//!   HashJoinExec: f.m = e.m                          d
//!     f: 1 000 000 rows                      ─►      HashJoinExec: f.m = e.m, builds e
//!     e: 100 rows                                      e
//!   d: 10 rows                                         f
//! ```
//!
//! An island is a tree of equality joins, with projections of columns between them. What is below it (scans,
//! aggregates, other joins) are its relations, whose own islands are ordered first. A join whose condition
//! may fail for some rows is not part of an island: elsewhere it would see other rows.
//!
//! Where the best order is the statement's, the sides and modes are still chosen by this rule's estimates.
//!
//! `datafusion.optimizer.join_reordering = false` disables the rule. `JoinReordering` can go when DataFusion
//! enumerates join orders (apache/datafusion#24456, open). Sources: see [`crate::join_order`].

mod expression;
mod island;
mod rebuild;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use crate::cardinality::relation_rows::{self, RelationSize};
use crate::join_order::cardinality::ColumnStatistics;
use crate::join_order::{
    Column, CostModel, Estimator, JoinShape, RelationRows, RelationSet, SearchLimits, order_joins,
};

use island::Island;
use rebuild::Rebuild;

/// The selectivity of a join condition that is not an equality.
const CONDITION_SHARE: f64 = 1.0 / 3.0;

/// Bytes of a row's column of variable length.
const TEXT_BYTES: usize = 24;

type PhysicalRuleRef = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// Orders the joins of islands.
#[derive(Debug)]
pub(crate) struct JoinReordering;

/// Inserts the rule after DataFusion's choice of join sides, which converts joins of unbounded inputs.
pub fn insert(rules: &mut Vec<PhysicalRuleRef>) {
    let after = rules.iter().position(|rule| rule.name() == "join_selection").map_or(0, |at| at + 1);
    rules.insert(after, Arc::new(JoinReordering));
}

impl PhysicalOptimizerRule for JoinReordering {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !config.optimizer.join_reordering {
            return Ok(plan);
        }
        order_islands(plan, config)
    }

    fn name(&self) -> &str {
        "JoinReordering"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn order_islands(plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
    let ordered = plan.transform_down(|plan| {
        let Some(island) = Island::below(&plan)? else {
            return Ok(Transformed::no(plan));
        };
        let relations = island.relations.iter().map(|relation| order_islands(Arc::clone(relation), config));
        let relations = relations.collect::<Result<Vec<_>>>()?;
        // Their islands are ordered, whether this one is or not.
        let plan = match ordered_island(&plan, &island, &relations, config)? {
            Some(ordered) => ordered,
            None => island::replace_relations(plan, &mut relations.into_iter())?,
        };
        Ok(Transformed::new(plan, true, TreeNodeRecursion::Jump))
    })?;
    Ok(ordered.data)
}

/// The island in its best order; `None`: it stays as it is, as the size of a relation is unknown.
fn ordered_island(
    plan: &Arc<dyn ExecutionPlan>,
    island: &Island,
    relations: &[Arc<dyn ExecutionPlan>],
    config: &ConfigOptions,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(sizes) = relations.iter().map(relation_rows::estimate).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let model = Model::new(island, relations, &sizes);
    let Some(order) = order_joins(&island.written, &model, &SearchLimits::default()) else {
        return Ok(None);
    };
    let rebuild = Rebuild { island, relations, model: &model, config };
    let Some(built) = rebuild.plan(&order.tree, &plan.schema())? else {
        return Ok(None);
    };
    Ok((built.schema() == plan.schema()).then_some(built))
}

/// Estimates of an island's joins.
struct Model {
    estimator: Estimator,
    /// Bytes of a row of each relation.
    row_bytes: Vec<f64>,
}

impl Model {
    fn new(island: &Island, relations: &[Arc<dyn ExecutionPlan>], sizes: &[RelationSize]) -> Self {
        let rows = sizes.iter().map(|size| RelationRows { rows: size.rows, base_rows: size.base_rows });
        let statistics = RelationColumns { relations };
        let estimator = Estimator::new(&island.written, &rows.collect::<Vec<_>>(), &statistics);
        let row_bytes = |relation: &Arc<dyn ExecutionPlan>| {
            let schema = relation.schema();
            let bytes = schema.fields().iter().map(|field| field.data_type().primitive_width());
            bytes.map(|bytes| bytes.unwrap_or(TEXT_BYTES) as f64).sum()
        };
        Self { estimator, row_bytes: relations.iter().map(row_bytes).collect() }
    }

    /// The bytes of the rows of a join.
    fn bytes(&self, set: RelationSet) -> f64 {
        self.estimator.rows(set) * self.row_bytes(set)
    }

    fn row_bytes(&self, set: RelationSet) -> f64 {
        set.iter().map(|relation| self.row_bytes[relation]).sum()
    }
}

impl CostModel for Model {
    fn cardinality(&self, set: RelationSet) -> f64 {
        self.estimator.rows(set)
    }

    /// In rows of a probe: a row that is built is copied, hashed and linked.
    fn join_cost(&self, join: &JoinShape) -> f64 {
        let (build, probe) = (join.build_input(), join.probe_input());
        let build_weight = 1.5 + self.row_bytes(build.relations).min(256.0) / 64.0;
        build_weight * build.rows + probe.rows + join.rows
    }
}

/// What is known of the columns of relations.
struct RelationColumns<'a> {
    relations: &'a [Arc<dyn ExecutionPlan>],
}

impl ColumnStatistics for RelationColumns<'_> {
    fn distinct(&self, column: Column) -> Option<f64> {
        relation_rows::distinct(&self.relations[column.relation], column.number)
    }

    fn share(&self, _predicate: usize) -> f64 {
        CONDITION_SHARE
    }
}
