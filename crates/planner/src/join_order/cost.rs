//! What the search asks of its caller: rows of sets of relations, and costs of single joins.

use super::relation_set::RelationSet;
use super::written_tree::JoinKind;

/// A side of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The left one.
    Left,
    /// The right one.
    Right,
}

/// One side of a join that is to be costed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JoinInput {
    /// Its relations.
    pub relations: RelationSet,
    /// The rows that it yields.
    pub rows: f64,
}

/// A join that is to be costed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JoinShape {
    /// What it keeps.
    pub kind: JoinKind,
    /// The left side.
    pub left: JoinInput,
    /// The right side.
    pub right: JoinInput,
    /// The rows of the result.
    pub rows: f64,
    /// The side of which the hash table is built.
    pub build: Side,
}

impl JoinShape {
    /// The side of which the hash table is built.
    pub fn build_input(&self) -> JoinInput {
        if self.build == Side::Left { self.left } else { self.right }
    }

    /// The side that looks up in the hash table.
    pub fn probe_input(&self) -> JoinInput {
        if self.build == Side::Left { self.right } else { self.left }
    }
}

/// Rows and costs, by whatever the caller knows.
pub trait CostModel {
    /// The rows of the join of these relations, or of the one relation; at least 0 and finite. It must not
    /// depend on the order of the joins. Called often for the same set: [`super::Estimator`] remembers.
    fn cardinality(&self, set: RelationSet) -> f64;

    /// The cost of a join without that of its sides. It is asked for both sides as the one to build, and
    /// the cheaper one is taken, the left one of equal ones; infinity rules a join out.
    fn join_cost(&self, join: &JoinShape) -> f64;
}

/// The cost of a hash join by rows: what is built, what is looked up and what comes out, with weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HashJoinCost {
    /// For each row that is built.
    pub build: f64,
    /// For each row that is looked up.
    pub probe: f64,
    /// For each row of the result.
    pub output: f64,
}

impl Default for HashJoinCost {
    fn default() -> Self {
        Self { build: 2.0, probe: 1.0, output: 1.0 }
    }
}

impl HashJoinCost {
    /// The cost of a join without that of its sides.
    pub fn cost(&self, join: &JoinShape) -> f64 {
        self.build * join.build_input().rows + self.probe * join.probe_input().rows + self.output * join.rows
    }
}
