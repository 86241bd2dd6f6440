//! Finds the parts of a plan that are equal, so that each is computed once.
//!
//! A common table expression, or a view, that a statement names several times is planned for each of them;
//! and statements repeat subqueries.
//!
//! ```text
//! HashJoinExec                               HashJoinExec
//!   AggregateExec: mode=FinalPartitioned       SharedSubplanExec: subplan 1, reader 1 of 2
//!     …                                  ─►      AggregateExec: mode=FinalPartitioned
//!   AggregateExec: mode=FinalPartitioned           …
//!     …                                        SharedSubplanExec: subplan 1, reader 2 of 2
//! ```
//!
//! Shared are parts with an aggregate or a window function that scan many rows, or an unknown number: their
//! output is mostly much smaller than what they read. Plans are equal if each operator and its encoding for
//! ranks are; a part with a volatile function, or with an operator that has no such encoding, is not shared.
//! Where filters from above have made the plans different, each runs for itself.
//!
//! The rule runs before joins pass their runtime filters down: those of one place do not apply to the others.
//! Plans for several ranks are not shared: the places may be on different ranks.
//!
//! `harrier.shared_subplans = false` disables the rule. `SharedSubplans` can go when DataFusion shares common
//! subplans (apache/datafusion#8777, closed as not planned for its core; apache/datafusion#22676).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, displayable};
use harrier_exec::operators::shared_subplan::{SubplanId, SubplanPlaceExec};
use harrier_exec::transport::plan_codec;

use crate::cardinality::relation_rows;

/// A part that scans fewer rows is as quick to compute again.
const SCANNED_ROWS_MIN: f64 = 50_000.0;

type PhysicalRuleRef = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// Marks the places of equal parts.
#[derive(Debug)]
struct SharedSubplans {
    is_enabled: fn(&ConfigOptions) -> bool,
}

/// Inserts the rule before the one that passes runtime filters down.
pub fn insert(rules: &mut Vec<PhysicalRuleRef>, is_enabled: fn(&ConfigOptions) -> bool) {
    let last = rules.iter().rposition(|rule| rule.name().starts_with("FilterPushdown"));
    rules.insert(last.unwrap_or(rules.len()), Arc::new(SharedSubplans { is_enabled }));
}

impl PhysicalOptimizerRule for SharedSubplans {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !(self.is_enabled)(config) {
            return Ok(plan);
        }
        let mut graph = Graph::default();
        let root = graph.add(&plan)?;
        // Nothing is repeated in most plans.
        if graph.nodes.iter().all(|node| node.plans.len() == 1) {
            return Ok(plan);
        }
        let shared = graph.find_shared(root.node);
        if shared.is_empty() {
            return Ok(plan);
        }
        root.rebuild(&shared, &mut HashMap::new())
    }

    fn name(&self) -> &str {
        "SharedSubplans"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A plan as a graph in which equal parts are one node.
#[derive(Default)]
struct Graph {
    nodes: Vec<Node>,
    /// Nodes by the text of their operator and their inputs.
    ids: HashMap<(String, Vec<usize>), usize>,
}

struct Node {
    /// The parts of the plan that look equal; the first one stands for all.
    plans: Vec<Arc<dyn ExecutionPlan>>,
    inputs: Vec<usize>,
    /// Estimated rows of all scans below.
    scanned_rows: f64,
    /// Whether an aggregate or a window function is below, or the operator is one.
    reduces: bool,
    /// Whether each run gives the same rows.
    is_stable: bool,
}

impl Graph {
    /// Adds a part of a plan.
    fn add(&mut self, plan: &Arc<dyn ExecutionPlan>) -> Result<Part> {
        let inputs = plan.children().into_iter().map(|child| self.add(child)).collect::<Result<Vec<_>>>()?;
        let text = displayable(plan.as_ref()).one_line().to_string();
        let nodes: Vec<usize> = inputs.iter().map(|input| input.node).collect();
        let node = match self.ids.entry((text, nodes.clone())) {
            Entry::Occupied(known) => {
                self.nodes[*known.get()].plans.push(Arc::clone(plan));
                *known.get()
            }
            Entry::Vacant(new) => {
                let below = || nodes.iter().map(|input| &self.nodes[*input]);
                let scanned_rows = match nodes.is_empty() {
                    true => relation_rows::estimate(plan).map_or(f64::INFINITY, |size| size.base_rows),
                    false => below().map(|input| input.scanned_rows).sum(),
                };
                let reduces = plan.is::<AggregateExec>()
                    || plan.is::<BoundedWindowAggExec>()
                    || plan.is::<WindowAggExec>()
                    || below().any(|input| input.reduces);
                let is_stable = is_stable(plan)? && below().all(|input| input.is_stable);
                let plans = vec![Arc::clone(plan)];
                let node = Node { plans, inputs: nodes, scanned_rows, reduces, is_stable };
                self.nodes.push(node);
                *new.insert(self.nodes.len() - 1)
            }
        };
        Ok(Part { plan: Arc::clone(plan), node, inputs })
    }

    /// The nodes to share.
    fn find_shared(&self, root: usize) -> HashMap<usize, SubplanId> {
        let mut readers = vec![0; self.nodes.len()];
        for input in self.nodes.iter().flat_map(|node| &node.inputs) {
            readers[*input] += 1;
        }
        let worthy = (0..self.nodes.len()).filter(|id| {
            let node = &self.nodes[*id];
            readers[*id] > 1
                && *id != root
                && node.reduces
                && node.is_stable
                && node.scanned_rows >= SCANNED_ROWS_MIN
                && are_equal(&node.plans)
        });
        worthy.map(|id| (id, SubplanId::unique())).collect()
    }
}

/// A part of a plan, with its node.
struct Part {
    plan: Arc<dyn ExecutionPlan>,
    node: usize,
    inputs: Vec<Part>,
}

impl Part {
    /// The plan, with the places of shared nodes marked. Parts that are equal, but not shared, remain plans
    /// of their own: an operator runs once.
    fn rebuild(
        &self,
        shared: &HashMap<usize, SubplanId>,
        built: &mut HashMap<usize, Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let subplan = shared.get(&self.node);
        let known = subplan.and_then(|_| built.get(&self.node).cloned());
        let plan = match known {
            Some(plan) => plan,
            None => {
                let inputs = self.inputs.iter().map(|input| input.rebuild(shared, built));
                let inputs = inputs.collect::<Result<Vec<_>>>()?;
                replace_children_if_necessary(Arc::clone(&self.plan), inputs)?
            }
        };
        let Some(subplan) = subplan else { return Ok(plan) };
        built.insert(self.node, Arc::clone(&plan));
        Ok(Arc::new(SubplanPlaceExec::new(plan, *subplan)))
    }
}

/// Whether an operator, without its inputs, gives the same rows in each run.
fn is_stable(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let mut is_stable = !matches!(
        plan.name(),
        "RecursiveQueryExec" | "WorkTableExec" | "ScalarSubqueryExec" | "SubplanPlaceExec"
    );
    plan.apply_expressions(&mut |expr: &Arc<dyn PhysicalExpr>| {
        // A scalar subquery is known by its number in the operator above that runs it.
        is_stable &= !is_volatile(expr) && !expr.is::<ScalarSubqueryExpr>();
        Ok(if is_stable { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(is_stable)
}

/// Whether plans have the same encoding; an operator without one is equal to none.
fn are_equal(plans: &[Arc<dyn ExecutionPlan>]) -> bool {
    let mut encoded = plans.iter().map(plan_codec::encode);
    let Some(Ok(first)) = encoded.next() else { return false };
    encoded.all(|other| other.is_ok_and(|other| other == first))
}
