//! The predicates of a written tree as edges between sets of relations, and whether two sets may be joined.
//!
//! An inner join gives an edge for each of its conjuncts, which may be evaluated at different joins; any
//! other join is one edge. There are two kinds of edges that may connect sets but need not be evaluated:
//! equalities that follow from others (`a = b` and `b = c` give `a = c`), and cross joins.
//!
//! Source: G. Moerkotte and T. Neumann, "Dynamic Programming Strikes Back", SIGMOD 2008, section 2.

use std::collections::{BTreeMap, BTreeSet};

use super::conflicts::{Eligibility, find_conflict_rules};
use super::relation_set::RelationSet;
use super::written_tree::{AppliedPredicate, Column, JoinKind, WrittenJoin, WrittenTree, list_joins};

/// An edge: a conjunct of an inner join, an equality that follows, or a join of another kind.
#[derive(Clone, Debug)]
pub struct Edge {
    /// What its join keeps.
    pub kind: JoinKind,
    /// The relations that its predicates read.
    pub references: RelationSet,
    /// What must be there when it is evaluated.
    pub eligibility: Eligibility,
    /// Of that, what must be on the left side.
    pub left: RelationSet,
    /// And on the right side.
    pub right: RelationSet,
    /// What it evaluates; nothing for a cross join.
    pub predicates: Vec<AppliedPredicate>,
    /// The columns, if it is an equality of an inner join.
    pub equality: Option<(Column, Column)>,
    /// Whether it must be evaluated as soon as its relations are there.
    pub is_required: bool,
}

impl Edge {
    fn new(join: &WrittenJoin, references: RelationSet, eligibility: Eligibility) -> Self {
        let (left, right) = (eligibility.relations & join.left, eligibility.relations & join.right);
        Self {
            kind: join.kind,
            references,
            eligibility,
            left,
            right,
            predicates: Vec::new(),
            equality: None,
            is_required: true,
        }
    }

    /// Whether its predicates read columns of both sides of a join.
    fn is_two_sided(&self, join: &WrittenJoin) -> bool {
        self.references.len() == 2
            && self.references.intersects(join.left)
            && self.references.intersects(join.right)
    }

    /// Whether it is between two relations and may be evaluated wherever they meet.
    fn is_plain(&self) -> bool {
        let is_simple = self.references.len() == 2 && self.eligibility.relations == self.references;
        self.kind == JoinKind::Inner && is_simple && self.eligibility.rules.is_empty()
    }

    /// Whether its relations are in the two sets together, and in none of them alone.
    pub fn crosses(&self, one: RelationSet, other: RelationSet) -> bool {
        let references = self.references;
        references.is_subset(one | other) && references.intersects(one) && references.intersects(other)
    }
}

/// Two sets that may be joined, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinPair {
    /// What the join keeps.
    pub kind: JoinKind,
    /// The left side. For inner joins the one with the lowest relation.
    pub left: RelationSet,
    /// The right side.
    pub right: RelationSet,
}

/// All edges of a written tree.
#[derive(Debug)]
pub struct HyperGraph {
    relation_count: usize,
    edges: Vec<Edge>,
    /// For each relation those with which a plain edge connects it.
    neighbors: Vec<RelationSet>,
    /// The same for plain edges that must be evaluated.
    required_neighbors: Vec<RelationSet>,
    /// The edges that are not plain.
    complex: Vec<usize>,
}

impl HyperGraph {
    /// The edges of the tree, whose relations must be numbered from 0 without a gap.
    pub fn new(tree: &WrittenTree) -> Self {
        let relation_count = tree.leaf_count();
        let mut edges = list_edges(&list_joins(tree));
        // What is written comes first, so that what follows from it is not evaluated beside it.
        edges.sort_by_key(|edge| !edge.is_required);
        let mut graph = Self {
            relation_count,
            neighbors: vec![RelationSet::EMPTY; relation_count],
            required_neighbors: vec![RelationSet::EMPTY; relation_count],
            complex: Vec::new(),
            edges: Vec::new(),
        };
        for (number, edge) in edges.iter().enumerate() {
            if !edge.is_plain() {
                graph.complex.push(number);
                continue;
            }
            for relation in edge.references.iter() {
                let others = edge.references - RelationSet::single(relation);
                graph.neighbors[relation] |= others;
                if edge.is_required {
                    graph.required_neighbors[relation] |= others;
                }
            }
        }
        graph.edges = edges;
        graph
    }

    /// How many relations there are.
    pub fn relation_count(&self) -> usize {
        self.relation_count
    }

    /// All edges, those that must be evaluated first.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Whether all edges are between two relations and may be evaluated wherever these meet.
    pub fn is_plain(&self) -> bool {
        self.complex.is_empty()
    }

    /// The neighbourhood of a set, without `exclusions`: the relations that an edge connects with it. Of an
    /// edge to several relations it has the lowest one, from which the search goes on to the others.
    pub fn neighborhood(&self, set: RelationSet, exclusions: RelationSet) -> RelationSet {
        let exclusions = exclusions | set;
        let plain = set.iter().fold(RelationSet::EMPTY, |all, relation| all | self.neighbors[relation]);
        let mut neighbors = plain - exclusions;
        for &number in &self.complex {
            let edge = &self.edges[number];
            for (near, far) in [(edge.left, edge.right), (edge.right, edge.left)] {
                let is_new = near.is_subset(set) && !far.intersects(exclusions) && !far.intersects(neighbors);
                if let Some(lowest) = far.lowest().filter(|_| is_new) {
                    neighbors |= RelationSet::single(lowest);
                }
            }
        }
        neighbors
    }

    /// Whether two disjoint sets may be joined, and how. Every edge whose relations meet here must be
    /// eligible, and a join that is not inner must be the only one that is required.
    pub fn join(&self, one: RelationSet, other: RelationSet) -> Option<JoinPair> {
        let all = one | other;
        let mut is_connected = false;
        let mut has_inner = false;
        let (few, many) = if one.len() <= other.len() { (one, other) } else { (other, one) };
        for relation in few.iter() {
            is_connected |= self.neighbors[relation].intersects(many);
            has_inner |= self.required_neighbors[relation].intersects(many);
        }
        let mut outer: Option<&Edge> = None;
        for edge in self.complex.iter().map(|number| &self.edges[*number]) {
            if !edge.crosses(one, other) {
                continue;
            }
            let is_eligible = edge.eligibility.allows(all);
            if !edge.is_required {
                is_connected |= is_eligible;
            } else if !is_eligible {
                return None;
            } else if edge.kind == JoinKind::Inner {
                (is_connected, has_inner) = (true, true);
            } else if outer.replace(edge).is_some() {
                return None;
            }
        }
        let (kind, swap) = match outer {
            Some(_) if has_inner => return None,
            Some(edge) if edge.left.is_subset(one) && edge.right.is_subset(other) => (edge.kind, false),
            Some(edge) if edge.left.is_subset(other) && edge.right.is_subset(one) => (edge.kind, true),
            Some(_) => return None,
            None if is_connected => (JoinKind::Inner, other.lowest() < one.lowest()),
            None => return None,
        };
        let (left, right) = if swap { (other, one) } else { (one, other) };
        Some(JoinPair { kind, left, right })
    }
}

/// The edges of joins, which are listed with each before those below it.
fn list_edges(joins: &[WrittenJoin]) -> Vec<Edge> {
    let mut edges = Vec::new();
    // From below, so that equalities are known to the joins above them.
    let mut equal = EqualColumns::new();
    for join in joins.iter().rev() {
        let rules = find_conflict_rules(join, joins);
        let edge = |read: RelationSet| {
            let references = join.complete(read);
            Edge::new(join, references, Eligibility::new(references, &rules))
        };
        if join.kind != JoinKind::Inner {
            let mut edge = edge(join.references);
            edge.predicates = join.predicates.iter().map(|p| AppliedPredicate::Written(p.id)).collect();
            edges.push(edge);
            continue;
        }
        if join.predicates.is_empty() {
            let mut edge = edge(join.references);
            edge.is_required = false;
            edges.push(edge);
        }
        for predicate in join.predicates {
            let mut edge = edge(predicate.relations);
            edge.predicates = vec![AppliedPredicate::Written(predicate.id)];
            // One within a side may be there to reject NULLs that an outer join has brought in, and is
            // not replaced by what else makes the columns equal.
            edge.equality = predicate.equality.filter(|_| edge.is_two_sided(join));
            edges.push(edge);
        }
        for (left, right) in imply_equalities(join, &mut equal) {
            let mut edge = edge(RelationSet::from_iter([left.relation, right.relation]));
            edge.predicates = vec![AppliedPredicate::Implied(left, right)];
            edge.equality = Some((left, right));
            edge.is_required = false;
            edges.push(edge);
        }
    }
    edges
}

/// For each column of a class of equal columns the whole class.
type EqualColumns = BTreeMap<Column, BTreeSet<Column>>;

/// The equalities between both sides that follow at an inner join from its own and those below it, which
/// `equal` has; its own are added there.
fn imply_equalities(join: &WrittenJoin, equal: &mut EqualColumns) -> Vec<(Column, Column)> {
    let mut equalities = Vec::new();
    let mut written_pairs: Vec<(Column, Column)> = Vec::new();
    for (one, other) in join.predicates.iter().filter_map(|predicate| predicate.equality) {
        let (left, right) = if join.left.contains(one.relation) { (one, other) } else { (other, one) };
        if !join.left.contains(left.relation) || !join.right.contains(right.relation) {
            continue;
        }
        written_pairs.push((left, right));
        let class = |column: Column| equal.get(&column).cloned().unwrap_or_else(|| BTreeSet::from([column]));
        let (lefts, rights) = (class(left), class(right));
        if lefts.contains(&right) {
            continue;
        }
        for left in lefts.iter().filter(|column| join.left.contains(column.relation)) {
            let rights = rights.iter().filter(|column| join.right.contains(column.relation));
            equalities.extend(rights.map(|right| (*left, *right)));
        }
        let all: BTreeSet<Column> = lefts.union(&rights).copied().collect();
        equal.extend(all.iter().map(|column| (*column, all.clone())));
    }
    equalities.retain(|pair| !written_pairs.contains(pair));
    equalities
}
