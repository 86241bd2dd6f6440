//! Enumerates the pairs of sets of relations that may be joined, by DPhyp: each pair once, and after all
//! pairs of which its two sets can be made.
//!
//! The sets grow from each relation along the edges of the graph, highest number first. A set never grows
//! into some of the relations, its exclusions, which is what makes each pair come once.
//!
//! Memory bound: one pair and one set for each pair of the bound.
//!
//! Source: G. Moerkotte and T. Neumann, "Dynamic Programming Strikes Back", SIGMOD 2008, section 3.

use std::collections::HashSet;

use super::hypergraph::{HyperGraph, JoinPair};
use super::relation_set::RelationSet;

/// Sets that may be visited for each pair of the bound: where edges are between many relations, most sets
/// that are grown can not be joined.
const STEPS_PER_PAIR: usize = 20;

/// Returns the pairs, smaller sets first, or `None` if there are more than `pair_max`, or too many sets that
/// can not be joined.
pub fn enumerate(graph: &HyperGraph, pair_max: usize) -> Option<Vec<JoinPair>> {
    let count = graph.relation_count();
    let mut search = Search {
        graph,
        pair_max,
        step_max: pair_max.saturating_mul(STEPS_PER_PAIR),
        step_count: 0,
        pairs: Vec::new(),
        reachable: (0..count).map(RelationSet::single).collect(),
    };
    for relation in (0..count).rev() {
        let set = RelationSet::single(relation);
        search.pair_with_complements(set)?;
        search.grow(set, RelationSet::first(relation + 1))?;
    }
    Some(search.pairs)
}

/// The state of one enumeration. Its functions return `None` when a bound is reached.
struct Search<'a> {
    graph: &'a HyperGraph,
    pair_max: usize,
    step_max: usize,
    step_count: usize,
    pairs: Vec<JoinPair>,
    /// The sets for which there is a tree of joins.
    reachable: HashSet<RelationSet>,
}

impl Search<'_> {
    /// Counts a set that is visited.
    fn step(&mut self) -> Option<()> {
        self.step_count += 1;
        (self.step_count <= self.step_max).then_some(())
    }

    /// Grows a set into its neighbourhood, and finds the partners of each larger set.
    fn grow(&mut self, set: RelationSet, exclusions: RelationSet) -> Option<()> {
        let neighbors = self.graph.neighborhood(set, exclusions);
        for more in neighbors.subsets() {
            self.step()?;
            if self.reachable.contains(&(set | more)) {
                self.pair_with_complements(set | more)?;
            }
        }
        for more in neighbors.subsets() {
            self.step()?;
            self.grow(set | more, exclusions | neighbors)?;
        }
        Some(())
    }

    /// Finds all partners of a set that have no relation below its lowest.
    fn pair_with_complements(&mut self, set: RelationSet) -> Option<()> {
        let lower = RelationSet::first(set.lowest().map_or(0, |lowest| lowest + 1));
        let exclusions = set | lower;
        let neighbors = self.graph.neighborhood(set, exclusions);
        for relation in neighbors.iter().rev() {
            self.step()?;
            let partner = RelationSet::single(relation);
            self.pair(set, partner)?;
            let lower_neighbors = neighbors & RelationSet::first(relation + 1);
            self.grow_partner(set, partner, exclusions | lower_neighbors)?;
        }
        Some(())
    }

    /// Grows a partner of a set into its neighbourhood.
    fn grow_partner(
        &mut self,
        set: RelationSet,
        partner: RelationSet,
        exclusions: RelationSet,
    ) -> Option<()> {
        let neighbors = self.graph.neighborhood(partner, exclusions);
        for more in neighbors.subsets() {
            self.step()?;
            if self.reachable.contains(&(partner | more)) {
                self.pair(set, partner | more)?;
            }
        }
        for more in neighbors.subsets() {
            self.step()?;
            self.grow_partner(set, partner | more, exclusions | neighbors)?;
        }
        Some(())
    }

    /// Adds a pair if it may be joined.
    fn pair(&mut self, one: RelationSet, other: RelationSet) -> Option<()> {
        let Some(pair) = self.graph.join(one, other) else { return Some(()) };
        if self.pairs.len() >= self.pair_max {
            return None;
        }
        self.reachable.insert(one | other);
        self.pairs.push(pair);
        Some(())
    }
}
