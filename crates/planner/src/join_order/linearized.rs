//! Orders graphs that have too many pairs: puts the relations into a sequence, and compares all trees whose
//! subtrees are intervals of it, which are at most n³ pairs.
//!
//! Three sequences are tried, and their trees compared:
//!
//! - that of IKKBZ, which is optimal for left-deep trees of inner joins without cycles; of a graph with
//!   cycles the most selective spanning tree is taken, and edges of other kinds are taken for inner ones, as
//!   the joins of the intervals are checked anyway;
//! - the leaves of the tree that joins the pair with the fewest rows first, again and again;
//! - the written sequence, so that the result is never worse than the written tree.
//!
//! Source: T. Neumann and B. Radke, "Adaptive Optimization of Very Large Join Queries", SIGMOD 2018,
//! section 3; T. Ibaraki and T. Kameda, "On the Optimal Nesting Order for Computing N-Relational Joins",
//! TODS 1984; R. Krishnamurthy, H. Boral and C. Zaniolo, "Optimization of Nonrecursive Queries", VLDB 1986;
//! L. Fegaras, "A New Heuristic for Optimizing Large Queries", DEXA 1998.

use super::cost::CostModel;
use super::hypergraph::HyperGraph;
use super::plan::PlanTable;
use super::relation_set::RelationSet;
use super::written_tree::WrittenTree;

/// Considers the trees over the sequences. The table then has at least the written tree, unless its cost is
/// not finite.
pub fn consider(graph: &HyperGraph, model: &dyn CostModel, written: &WrittenTree, table: &mut PlanTable) {
    let mut sequences = Vec::from_iter(find_left_deep_sequence(graph, model));
    sequences.extend(find_greedy_sequence(graph, model));
    sequences.push(written.leaves());
    for sequence in sequences {
        consider_intervals(graph, &sequence, table);
    }
}

/// Considers all joins of two neighbouring intervals of a sequence, short ones first.
fn consider_intervals(graph: &HyperGraph, sequence: &[usize], table: &mut PlanTable) {
    for length in 2..=sequence.len() {
        for interval in sequence.windows(length) {
            let all = interval.iter().copied().collect::<RelationSet>();
            let mut left = RelationSet::EMPTY;
            for relation in &interval[..length - 1] {
                left |= RelationSet::single(*relation);
                let right = all - left;
                if table.cost(left).is_none() || table.cost(right).is_none() {
                    continue;
                }
                if let Some(pair) = graph.join(left, right) {
                    table.consider(&pair);
                }
            }
        }
    }
}

/// The leaves of the tree that joins the pair with the fewest rows first (greedy operator ordering). `None`
/// if it comes to sets that can not be joined, which kinds other than inner joins may cause.
fn find_greedy_sequence(graph: &HyperGraph, model: &dyn CostModel) -> Option<Vec<usize>> {
    let mut parts: Vec<(RelationSet, Vec<usize>)> =
        (0..graph.relation_count()).map(|relation| (RelationSet::single(relation), vec![relation])).collect();
    while parts.len() > 1 {
        let mut best: Option<(f64, usize, usize)> = None;
        for (left, (left_set, _)) in parts.iter().enumerate() {
            for (right, (right_set, _)) in parts.iter().enumerate().skip(left + 1) {
                if graph.join(*left_set, *right_set).is_none() {
                    continue;
                }
                let rows = model.cardinality(*left_set | *right_set);
                if best.is_none_or(|best| rows < best.0) {
                    best = Some((rows, left, right));
                }
            }
        }
        let (_, left, right) = best?;
        let (right_set, right_leaves) = parts.remove(right);
        parts[left].0 |= right_set;
        parts[left].1.extend(right_leaves);
    }
    parts.pop().map(|(_, leaves)| leaves)
}

/// Relations that follow one another in a sequence, with what they do to the rows before them.
#[derive(Clone, Debug)]
struct Chain {
    relations: Vec<usize>,
    /// By what factor they multiply the rows.
    growth: f64,
    /// The rows of all steps, for each row before them.
    cost: f64,
}

impl Chain {
    /// The rank of the paper: what has less comes earlier.
    fn rank(&self) -> f64 {
        if self.cost > 0.0 { (self.growth - 1.0) / self.cost } else { f64::NEG_INFINITY }
    }

    fn append(&mut self, next: Self) {
        self.cost += self.growth * next.cost;
        self.growth *= next.growth;
        self.relations.extend(next.relations);
    }
}

/// A tree of the relations along edges.
struct SpanningTree {
    /// For each relation those next to it, and the share of the pairs of rows that the edge keeps.
    adjacent: Vec<Vec<(usize, f64)>>,
    rows: Vec<f64>,
}

impl SpanningTree {
    /// The most selective edges that connect all relations.
    fn new(graph: &HyperGraph, model: &dyn CostModel) -> Self {
        let count = graph.relation_count();
        let rows: Vec<f64> =
            (0..count).map(|relation| model.cardinality(RelationSet::single(relation)).max(1.0)).collect();
        let mut edges: Vec<(f64, usize, usize)> = Vec::new();
        for edge in graph.edges() {
            // Of an edge between several relations its ends stand for it.
            let (Some(one), Some(other)) = (edge.left.lowest(), edge.right.lowest()) else { continue };
            let joined_rows = model.cardinality(RelationSet::from_iter([one, other]));
            edges.push((joined_rows / (rows[one] * rows[other]), one, other));
        }
        edges.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        let mut adjacent = vec![Vec::new(); count];
        let mut part: Vec<usize> = (0..count).collect();
        for (share, one, other) in edges {
            let (from, to) = (part[other], part[one]);
            if from != to {
                part.iter_mut().filter(|number| **number == from).for_each(|number| *number = to);
                adjacent[one].push((other, share));
                adjacent[other].push((one, share));
            }
        }
        Self { adjacent, rows }
    }

    /// The best sequence of the relations below one, each after the one that it hangs on, as chains with
    /// ascending ranks. `share` is that of the edge to `parent`.
    fn chains(&self, relation: usize, parent: Option<usize>, share: f64) -> Vec<Chain> {
        let mut chains: Vec<Chain> = self.adjacent[relation]
            .iter()
            .filter(|(child, _)| Some(*child) != parent)
            .flat_map(|(child, share)| self.chains(*child, Some(relation), *share))
            .collect();
        // Each child's chains ascend already, so that a stable sort merges them.
        chains.sort_by(|a, b| a.rank().total_cmp(&b.rank()));
        let growth = share * self.rows[relation];
        let mut head = Chain { relations: vec![relation], growth, cost: growth };
        let mut rest = chains.into_iter().peekable();
        if parent.is_some() {
            while let Some(next) = rest.next_if(|next| next.rank() < head.rank()) {
                head.append(next);
            }
        }
        std::iter::once(head).chain(rest).collect()
    }
}

/// The sequence of IKKBZ: the best of those that start with each of the relations. `None` if edges do not
/// connect all relations.
fn find_left_deep_sequence(graph: &HyperGraph, model: &dyn CostModel) -> Option<Vec<usize>> {
    let tree = SpanningTree::new(graph, model);
    let mut best: Option<Chain> = None;
    for root in 0..graph.relation_count() {
        let whole = tree.chains(root, None, 1.0).into_iter().reduce(|mut chain, next| {
            chain.append(next);
            chain
        })?;
        if best.as_ref().is_none_or(|best| whole.cost < best.cost) {
            best = Some(whole);
        }
    }
    best.map(|chain| chain.relations).filter(|relations| relations.len() == graph.relation_count())
}
