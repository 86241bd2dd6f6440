//! Join search: optimum of exhaustive search, near-optimum of linearized search in large graphs, ties, and
//! limits.

use std::collections::HashMap;

use super::random_trees::{Random, make_statement};
use crate::join_order::{
    Column, CostModel, HashJoinCost, JoinKind, JoinOrder, JoinShape, JoinTree, Method, Predicate,
    RelationSet, SearchLimits, WrittenTree, order_joins,
};

/// Rows of relations, and shares that predicates between two of them keep.
struct PairModel {
    rows: Vec<f64>,
    shares: Vec<(RelationSet, f64)>,
}

impl CostModel for PairModel {
    fn cardinality(&self, set: RelationSet) -> f64 {
        let rows = set.iter().map(|relation| self.rows[relation]).product::<f64>();
        let shares = self.shares.iter().filter(|(pair, _)| pair.is_subset(set));
        shares.fold(rows, |rows, (_, share)| rows * share)
    }

    fn join_cost(&self, join: &JoinShape) -> f64 {
        HashJoinCost::default().cost(join)
    }
}

/// An equality of columns that no other predicate has.
fn edge(id: usize, one: usize, other: usize) -> Predicate {
    let column = |relation: usize| Column { relation, number: id };
    Predicate::equal(id, column(one), column(other))
}

/// The relations joined from left to right, each edge where its second relation comes in.
fn left_deep(sequence: &[usize], edges: &[(usize, usize)]) -> WrittenTree {
    let mut tree = WrittenTree::Leaf(sequence[0]);
    let mut joined = RelationSet::single(sequence[0]);
    for relation in &sequence[1..] {
        let predicates = edges.iter().enumerate().filter(|(_, (one, other))| {
            (one == relation && joined.contains(*other)) || (other == relation && joined.contains(*one))
        });
        let predicates = predicates.map(|(id, (one, other))| edge(id, *one, *other)).collect();
        joined |= RelationSet::single(*relation);
        tree = WrittenTree::join(JoinKind::Inner, predicates, tree, WrittenTree::Leaf(*relation));
    }
    tree
}

fn random_model(random: &mut Random, count: usize, edges: &[(usize, usize)]) -> PairModel {
    let rows = (0..count).map(|_| 10f64.powi(random.below(6) as i32)).collect::<Vec<_>>();
    let share = |pair: &(usize, usize)| {
        let larger = rows[pair.0].max(rows[pair.1]);
        (RelationSet::from_iter([pair.0, pair.1]), 1.0 / larger)
    };
    PairModel { shares: edges.iter().map(share).collect(), rows }
}

/// The least cost of all trees without cross products, by trying every division of every set.
fn least_cost(model: &PairModel, count: usize, edges: &[(usize, usize)]) -> f64 {
    let mut costs: HashMap<RelationSet, f64> = HashMap::new();
    let hash_join = HashJoinCost::default();
    for set in RelationSet::first(count).subsets() {
        if set.len() == 1 {
            costs.insert(set, 0.0);
        }
        for left in set.subsets().filter(|left| *left != set) {
            let right = set - left;
            let crosses = |(one, other): &(usize, usize)| left.contains(*one) && right.contains(*other);
            let is_connected = edges.iter().any(|edge| crosses(edge) || crosses(&(edge.1, edge.0)));
            let (Some(below), Some(beside)) = (costs.get(&left), costs.get(&right)) else { continue };
            if is_connected {
                let own = hash_join.build * model.cardinality(left)
                    + hash_join.probe * model.cardinality(right)
                    + hash_join.output * model.cardinality(set);
                let cost = own + below + beside;
                let best = costs.entry(set).or_insert(f64::INFINITY);
                *best = best.min(cost);
            }
        }
    }
    costs[&RelationSet::first(count)]
}

fn random_edges(random: &mut Random, count: usize) -> Vec<(usize, usize)> {
    let mut edges: Vec<(usize, usize)> = (1..count).map(|other| (random.below(other), other)).collect();
    for _ in 0..random.below(count) {
        let other = 1 + random.below(count - 1);
        edges.push((random.below(other), other));
    }
    edges
}

/// The limits under which the cheapest tree wins even if it wins little.
fn exact(pair_max: usize) -> SearchLimits {
    SearchLimits { pair_max, cost_share_max: 1.0 }
}

fn is_near(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(other.abs())
}

#[test]
fn exhaustive_search_finds_the_least_cost() {
    for seed in 0..400 {
        let mut random = Random(seed);
        let count = 2 + random.below(5);
        let edges = random_edges(&mut random, count);
        let model = random_model(&mut random, count, &edges);
        let sequence: Vec<usize> = (0..count).collect();
        let tree = left_deep(&sequence, &edges);
        let order = order_joins(&tree, &model, &exact(usize::MAX)).expect("an order");
        let least = least_cost(&model, count, &edges);
        assert_eq!(order.method, Method::Exhaustive);
        assert!(is_near(order.cost, least), "seed {seed}: {} instead of {least}", order.cost);
        let linearized = order_joins(&tree, &model, &exact(0)).expect("an order");
        assert_eq!(linearized.method, Method::Linearized);
        let range = least * (1.0 - 1e-9)..=order.written_cost;
        assert!(range.contains(&linearized.cost), "seed {seed}: {} not in {range:?}", linearized.cost);
    }
}

#[test]
fn linearized_search_is_seldom_far_from_the_least_cost() {
    let mut worse_count = 0;
    for seed in 0..200 {
        let mut random = Random(seed);
        let edges = random_edges(&mut random, 10);
        let model = random_model(&mut random, 10, &edges);
        let tree = left_deep(&(0..10).collect::<Vec<_>>(), &edges);
        let [best, linearized] =
            [usize::MAX, 0].map(|pair_max| order_joins(&tree, &model, &exact(pair_max)).expect("an order"));
        worse_count += usize::from(linearized.cost > 1.5 * best.cost);
    }
    assert!(worse_count <= 10, "{worse_count} of 200");
}

#[test]
fn linearized_search_of_all_kinds_is_seldom_far_from_the_least_cost() {
    use JoinKind::{Full, Inner, Left, LeftAnti, LeftSemi};
    let mut worse_count = 0;
    for seed in 0..200 {
        let mut random = Random(seed);
        let statement =
            make_statement(&mut random, 10, &[Inner, Inner, Inner, Left, LeftSemi, LeftAnti, Full]);
        let edges = random_edges(&mut random, 10);
        let model = random_model(&mut random, 10, &edges);
        let [best, linearized] = [usize::MAX, 0]
            .map(|pair_max| order_joins(&statement.tree, &model, &exact(pair_max)).expect("an order"));
        worse_count += usize::from(linearized.cost > 1.5 * best.cost);
    }
    assert!(worse_count <= 10, "{worse_count} of 200");
}

/// Each predicate of the tree, which must be there once.
fn predicate_count(tree: &JoinTree) -> usize {
    match tree {
        JoinTree::Leaf(_) => 0,
        JoinTree::Join { predicates, left, right, .. } => {
            predicates.len() + predicate_count(left) + predicate_count(right)
        }
    }
}

fn check_large(count: usize, edges: &[(usize, usize)]) -> JoinOrder {
    let mut random = Random(7);
    let model = random_model(&mut random, count, edges);
    let sequence: Vec<usize> = (0..count).collect();
    let tree = left_deep(&sequence, edges);
    let order = order_joins(&tree, &model, &SearchLimits::default()).expect("an order");
    assert_eq!(order.tree.relations(), RelationSet::first(count));
    assert_eq!(predicate_count(&order.tree), edges.len());
    assert!(order.cost <= order.written_cost);
    order
}

#[test]
fn large_graphs_are_ordered_within_the_bound() {
    for count in [25, 60] {
        let chain: Vec<_> = (1..count).map(|other| (other - 1, other)).collect();
        let cycle: Vec<_> = chain.iter().copied().chain([(0, count - 1)]).collect();
        let star: Vec<_> = (1..count).map(|other| (0, other)).collect();
        let clique: Vec<_> = (0..count).flat_map(|one| (one + 1..count).map(move |o| (one, o))).collect();
        for edges in [&star, &clique] {
            assert_eq!(check_large(count, edges).method, Method::Linearized);
        }
        // They have about n³ / 6 and n³ / 2 pairs.
        let method = if count == 60 { Method::Linearized } else { Method::Exhaustive };
        for edges in [&chain, &cycle] {
            assert_eq!(check_large(count, edges).method, method);
        }
    }
}

#[test]
fn maximum_number_of_relations_is_ordered() {
    let edges: Vec<_> = (1..RelationSet::CAPACITY).map(|other| (0, other)).collect();
    assert_eq!(check_large(RelationSet::CAPACITY, &edges).method, Method::Linearized);
}

#[test]
fn large_graphs_of_all_kinds_are_ordered() {
    use JoinKind::{Full, Inner, Left, LeftAnti, LeftMark, LeftSemi, Single};
    for seed in 0..30 {
        let mut random = Random(seed);
        let kinds = [Inner, Inner, Inner, Inner, Left, LeftSemi, LeftAnti, LeftMark, Single, Full];
        let statement = make_statement(&mut random, 40, &kinds);
        let model = random_model(&mut random, 40, &[]);
        let order = order_joins(&statement.tree, &model, &exact(10_000)).expect("an order");
        assert_eq!(order.tree.relations(), RelationSet::first(40));
        assert!(order.cost <= order.written_cost, "seed {seed}");
    }
}

#[test]
fn written_order_stays_without_enough_gain() {
    let edges: Vec<_> = (1..6).map(|other| (other - 1, other)).collect();
    let sequence = [3, 2, 4, 1, 5, 0];
    let tree = left_deep(&sequence, &edges);
    let shares = |share: f64| edges.iter().map(|e| (RelationSet::from_iter([e.0, e.1]), share)).collect();
    // All orders cost the same.
    let model = PairModel { rows: vec![100.0; 6], shares: shares(0.01) };
    for pair_max in [10_000, 0] {
        let order = order_joins(&tree, &model, &exact(pair_max)).expect("an order");
        assert!(order.is_written);
        assert_eq!(order.cost, order.written_cost);
    }
    // One relation is a little smaller: an order that starts with it wins less than 5 %.
    let mut rows = vec![100.0; 6];
    rows[0] = 98.0;
    let model = PairModel { rows, shares: shares(0.01) };
    assert!(!order_joins(&tree, &model, &exact(10_000)).expect("an order").is_written);
    assert!(order_joins(&tree, &model, &SearchLimits::default()).expect("an order").is_written);
}

#[test]
fn equal_inputs_have_equal_orders() {
    use JoinKind::{Inner, Left, LeftSemi};
    for seed in 0..100 {
        for pair_max in [10_000, 0] {
            let mut random = Random(seed);
            let statement = make_statement(&mut random, 9, &[Inner, Inner, Left, LeftSemi]);
            // Many costs are equal.
            let model = PairModel { rows: vec![10.0; 9], shares: Vec::new() };
            let order = || order_joins(&statement.tree, &model, &exact(pair_max));
            assert_eq!(order(), order(), "seed {seed}");
        }
    }
}

#[test]
fn implied_equalities_connect_relations() {
    // a.x = b.x and b.x = c.x, where a and c are small: a and c are joined first by a.x = c.x.
    let column = |relation: usize| Column { relation, number: 0 };
    let [a, b, c] = [0, 1, 2].map(WrittenTree::Leaf);
    let ab = Predicate::equal(0, column(0), column(1));
    let bc = Predicate::equal(1, column(1), column(2));
    let tree = WrittenTree::join(JoinKind::Inner, vec![ab], a, b);
    let tree = WrittenTree::join(JoinKind::Inner, vec![bc], tree, c);
    let pair = |one: usize, other: usize| RelationSet::from_iter([one, other]);
    let shares = vec![(pair(0, 1), 0.1), (pair(1, 2), 0.1), (pair(0, 2), 0.01)];
    let model = PairModel { rows: vec![10.0, 1e6, 10.0], shares };
    let order = order_joins(&tree, &model, &SearchLimits::default()).expect("an order");
    let JoinTree::Join { left, right, predicates, .. } = order.tree else { panic!("no join") };
    assert_eq!((left.relations(), right.relations()), (pair(0, 2), RelationSet::single(1)));
    // One equality suffices, as the other follows.
    assert_eq!(predicates.len(), 1);
    assert_eq!(predicate_count(&left), 1);
}

#[test]
fn trees_with_gaps_in_numbering_are_refused() {
    let model = PairModel { rows: vec![1.0; 4], shares: Vec::new() };
    let order = |tree: &WrittenTree| order_joins(tree, &model, &SearchLimits::default());
    assert_eq!(order(&WrittenTree::Leaf(0)), None);
    for relations in [[0, 2], [1, 1], [0, 500]] {
        let [left, right] = relations.map(WrittenTree::Leaf);
        assert_eq!(order(&WrittenTree::join(JoinKind::Inner, Vec::new(), left, right)), None);
    }
}
