//! The best join of every set of relations that a search has looked at, and the tree of joins that it gives.
//!
//! Memory bound: one entry for each set, of which there are no more than relations and pairs together, and
//! for linearised graphs no more than half of the square of the relations for each sequence.

use std::collections::HashMap;

use super::cost::{CostModel, JoinInput, JoinShape, Side};
use super::hypergraph::{HyperGraph, JoinPair};
use super::relation_set::RelationSet;
use super::written_tree::{AppliedPredicate, Column, JoinKind, WrittenTree};

/// A tree of joins, with estimates.
#[derive(Clone, Debug, PartialEq)]
pub enum JoinTree {
    /// A relation.
    Leaf(usize),
    /// A join.
    Join {
        /// What it keeps.
        kind: JoinKind,
        /// What it evaluates. Equalities that others of the tree imply are left out. Empty for cross joins.
        predicates: Vec<AppliedPredicate>,
        /// The left side, which is the preserved one of joins that are not symmetric.
        left: Box<JoinTree>,
        /// The right side.
        right: Box<JoinTree>,
        /// The side of which the hash table is cheaper to build.
        build: Side,
        /// The rows of the result.
        rows: f64,
        /// The cost of this join and all below it.
        cost: f64,
    },
}

impl JoinTree {
    /// The cost of all its joins.
    pub fn cost(&self) -> f64 {
        match self {
            Self::Leaf(_) => 0.0,
            Self::Join { cost, .. } => *cost,
        }
    }

    /// Its relations.
    pub fn relations(&self) -> RelationSet {
        match self {
            Self::Leaf(relation) => RelationSet::single(*relation),
            Self::Join { left, right, .. } => left.relations() | right.relations(),
        }
    }
}

/// The cheaper side to build, and the cost of a join without that of its sides; `rows` are those of the left
/// side, the right side and the result.
fn cost_join(model: &dyn CostModel, pair: &JoinPair, rows: [f64; 3]) -> (Side, f64) {
    let [left_rows, right_rows, rows] = rows;
    let left = JoinInput { relations: pair.left, rows: left_rows };
    let right = JoinInput { relations: pair.right, rows: right_rows };
    let cost = |build| model.join_cost(&JoinShape { kind: pair.kind, left, right, rows, build });
    let (build_left, build_right) = (cost(Side::Left), cost(Side::Right));
    if build_right < build_left { (Side::Right, build_right) } else { (Side::Left, build_left) }
}

/// The written tree with the estimates of the model.
pub fn plan_written_tree(tree: &WrittenTree, model: &dyn CostModel) -> JoinTree {
    let WrittenTree::Join { kind, predicates, left, right } = tree else {
        return JoinTree::Leaf(tree.leaves()[0]);
    };
    let pair = JoinPair { kind: *kind, left: left.relations(), right: right.relations() };
    let rows = model.cardinality(pair.left | pair.right);
    let sides = [model.cardinality(pair.left), model.cardinality(pair.right), rows];
    let (build, cost) = cost_join(model, &pair, sides);
    let (left, right) = (plan_written_tree(left, model), plan_written_tree(right, model));
    JoinTree::Join {
        kind: *kind,
        predicates: predicates.iter().map(|predicate| AppliedPredicate::Written(predicate.id)).collect(),
        build,
        rows,
        cost: cost + left.cost() + right.cost(),
        left: Box::new(left),
        right: Box::new(right),
    }
}

/// The cheapest join that gives a set.
#[derive(Clone, Copy, Debug)]
struct PlanEntry {
    rows: f64,
    cost: f64,
    /// The join, the side to build and the cost of the join alone. None for a single relation.
    join: Option<(JoinPair, Side, f64)>,
}

/// For each set that a search has reached, the cheapest join that gives it.
pub struct PlanTable<'a> {
    graph: &'a HyperGraph,
    model: &'a dyn CostModel,
    entries: HashMap<RelationSet, PlanEntry>,
}

impl<'a> PlanTable<'a> {
    /// A table of the single relations.
    pub fn new(graph: &'a HyperGraph, model: &'a dyn CostModel) -> Self {
        let entries = (0..graph.relation_count())
            .map(RelationSet::single)
            .map(|set| (set, PlanEntry { rows: model.cardinality(set), cost: 0.0, join: None }))
            .collect();
        Self { graph, model, entries }
    }

    /// The cost of the best tree of a set so far.
    pub fn cost(&self, set: RelationSet) -> Option<f64> {
        self.entries.get(&set).map(|entry| entry.cost)
    }

    /// Takes a pair, both sides of which the table has, as the join of their set if none is as cheap. Of
    /// equally cheap ones the first stays.
    pub fn consider(&mut self, pair: &JoinPair) {
        let (Some(left), Some(right)) = (self.entries.get(&pair.left), self.entries.get(&pair.right)) else {
            return;
        };
        let set = pair.left | pair.right;
        let entry = self.entries.get(&set);
        let sides_cost = left.cost + right.cost;
        if entry.is_some_and(|entry| entry.cost <= sides_cost) {
            return;
        }
        let rows = entry.map_or_else(|| self.model.cardinality(set), |entry| entry.rows);
        let (build, own_cost) = cost_join(self.model, pair, [left.rows, right.rows, rows]);
        let cost = own_cost + sides_cost;
        if cost.is_finite() && entry.is_none_or(|entry| cost < entry.cost) {
            self.entries.insert(set, PlanEntry { rows, cost, join: Some((*pair, build, own_cost)) });
        }
    }

    /// The best tree of a set, if a search has reached it.
    pub fn tree(&self, set: RelationSet) -> Option<JoinTree> {
        let mut equal = ColumnClasses::default();
        self.subtree(set, &mut equal)
    }

    fn subtree(&self, set: RelationSet, equal: &mut ColumnClasses) -> Option<JoinTree> {
        let entry = self.entries.get(&set)?;
        let Some((pair, build, own_cost)) = entry.join else { return set.lowest().map(JoinTree::Leaf) };
        let left = Box::new(self.subtree(pair.left, equal)?);
        let right = Box::new(self.subtree(pair.right, equal)?);
        let predicates = list_predicates(self.graph, &pair, equal);
        // Not the entry's cost: a side may have become cheaper since.
        let cost = own_cost + left.cost() + right.cost();
        Some(JoinTree::Join { kind: pair.kind, predicates, left, right, build, rows: entry.rows, cost })
    }
}

/// The predicates that the join of a pair evaluates. `equal` has the columns that the joins below have made
/// equal, and gets those of this join.
pub fn list_predicates(
    graph: &HyperGraph,
    pair: &JoinPair,
    equal: &mut ColumnClasses,
) -> Vec<AppliedPredicate> {
    let all = pair.left | pair.right;
    let mut predicates = Vec::new();
    for edge in graph.edges() {
        if edge.kind != pair.kind || !edge.crosses(pair.left, pair.right) || !edge.eligibility.allows(all) {
            continue;
        }
        match edge.equality.filter(|_| pair.kind == JoinKind::Inner) {
            Some((one, other)) if !equal.unite(one, other) => {}
            _ => predicates.extend(&edge.predicates),
        }
    }
    predicates.sort();
    predicates
}

/// Classes of columns that are equal in the rows of a tree.
#[derive(Clone, Debug, Default)]
pub struct ColumnClasses {
    parents: HashMap<Column, Column>,
}

impl ColumnClasses {
    /// Makes two columns equal; says whether they were not so before.
    pub fn unite(&mut self, one: Column, other: Column) -> bool {
        let (one, other) = (self.root(one), self.root(other));
        if one != other {
            self.parents.insert(one.max(other), one.min(other));
        }
        one != other
    }

    /// The column that stands for the class.
    pub fn root(&self, column: Column) -> Column {
        let mut column = column;
        while let Some(parent) = self.parents.get(&column) {
            column = *parent;
        }
        column
    }
}
