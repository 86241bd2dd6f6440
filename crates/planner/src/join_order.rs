//! Orders the joins of a statement by cost: pure algorithms over numbered relations, which know neither
//! plans nor data types.
//!
//! ```text
//! WrittenTree ──conflicts──▶ HyperGraph ──┬─ enumerate ─── all pairs, up to `pair_max` ─┐
//!                                         └─ linearized ── intervals of good sequences ─┴▶ JoinTree
//!                            CostModel ─────────────────────────────────────────────────▲
//! ```
//!
//! - [`relation_set`]: sets of at most 128 relations.
//! - [`written_tree`]: the tree of joins as the statement has it, which is the input.
//! - [`conflicts`]: which joins may change places.
//! - [`hypergraph`]: predicates as edges, and whether two sets may be joined, and how.
//! - [`enumerate`]: all pairs of sets that may be joined, smaller sets first.
//! - [`linearized`]: fewer pairs, for graphs that have too many.
//! - [`cost`]: what the caller tells of rows and costs, and a plain cost of hash joins.
//! - [`cardinality`]: an estimator of rows, of which the caller may make its cost model.
//! - [`plan`]: the best join of every set, and the tree, which is the output.
//!
//! Cross joins stay where no other edge connects their sides. Outer joins stay outer joins. An equality
//! follows from those of inner joins only, so that a semi join reads the columns that it reads as written.
//!
//! Source: G. Moerkotte and T. Neumann, "Dynamic Programming Strikes Back", SIGMOD 2008; G. Moerkotte,
//! P. Fender and M. Eich, "On the Correct and Complete Enumeration of the Core Search Space", SIGMOD 2013;
//! T. Neumann and B. Radke, "Adaptive Optimization of Very Large Join Queries", SIGMOD 2018.

pub mod cardinality;
pub mod conflicts;
pub mod cost;
pub mod enumerate;
pub mod hypergraph;
pub mod linearized;
pub mod plan;
pub mod relation_set;
#[cfg(test)]
mod tests;
pub mod written_tree;

pub use cardinality::{ColumnStatistics, Estimator, RelationRows};
pub use cost::{CostModel, HashJoinCost, JoinInput, JoinShape, Side};
pub use plan::JoinTree;
pub use relation_set::RelationSet;
pub use written_tree::{AppliedPredicate, Column, JoinKind, Predicate, WrittenTree};

use hypergraph::HyperGraph;
use plan::PlanTable;

/// How far the search goes, and what an order has to win.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchLimits {
    /// Pairs of sets that the exhaustive search may look at; a graph with more is linearised.
    pub pair_max: usize,
    /// The written order stays unless another one costs less than this share of it. Estimates are wrong by
    /// more than a few percent, and who wrote the statement may have had reasons.
    pub cost_share_max: f64,
}

impl Default for SearchLimits {
    fn default() -> Self {
        Self { pair_max: 10_000, cost_share_max: 0.95 }
    }
}

/// Which search found an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// All orders without unnecessary cross products were compared.
    Exhaustive,
    /// Trees over intervals of a few sequences of the relations were compared.
    Linearized,
}

/// The order of joins that [`order_joins`] chose.
#[derive(Clone, Debug, PartialEq)]
pub struct JoinOrder {
    /// The joins to execute.
    pub tree: JoinTree,
    /// The cost of `tree`.
    pub cost: f64,
    /// The cost of the tree as written, by the same model.
    pub written_cost: f64,
    /// Whether `tree` has the shape of the written tree.
    pub is_written: bool,
    /// Which search was made, whatever its result.
    pub method: Method,
}

/// Returns the cheapest order of the joins of `written` that the search finds, or the written order where
/// no other is cheaper by enough. Equal inputs have equal results.
///
/// `None` if the tree has fewer than two relations, or their numbers are not 0 to n - 1, each once, with n
/// at most [`RelationSet::CAPACITY`].
pub fn order_joins(written: &WrittenTree, model: &dyn CostModel, limits: &SearchLimits) -> Option<JoinOrder> {
    let leaves = written.leaves();
    let count = leaves.len();
    let is_numbered = leaves.iter().all(|relation| *relation < count.min(RelationSet::CAPACITY));
    if count < 2 || !is_numbered || written.relations() != RelationSet::first(count) {
        return None;
    }
    let graph = HyperGraph::new(written);
    let written_tree = plan::plan_written_tree(written, model);
    let mut table = PlanTable::new(&graph, model);
    let method = match enumerate::enumerate(&graph, limits.pair_max) {
        Some(pairs) => {
            for pair in pairs {
                table.consider(&pair);
            }
            Method::Exhaustive
        }
        None => {
            linearized::consider(&graph, model, written, &mut table);
            Method::Linearized
        }
    };
    let written_cost = written_tree.cost();
    let best = table.tree(RelationSet::first(count));
    let (tree, is_written) = match best {
        Some(best) if best.cost() < limits.cost_share_max * written_cost => (best, false),
        _ => (written_tree, true),
    };
    Some(JoinOrder { cost: tree.cost(), tree, written_cost, is_written, method })
}
