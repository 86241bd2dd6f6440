//! Every tree that the graph allows returns the rows of the written tree.

use std::collections::{BTreeSet, HashMap};

use super::interpreter::{COLUMN_COUNT, Condition, Database};
use super::random_trees::{Random, Statement, make_statement};
use crate::join_order::enumerate::enumerate;
use crate::join_order::hypergraph::{HyperGraph, JoinPair};
use crate::join_order::plan::{ColumnClasses, list_predicates};
use crate::join_order::{Column, JoinKind, JoinTree, Predicate, RelationSet, Side, WrittenTree};

const ALL_KINDS: [JoinKind; 9] = [
    JoinKind::Inner,
    JoinKind::Inner,
    JoinKind::Inner,
    JoinKind::Left,
    JoinKind::Full,
    JoinKind::LeftSemi,
    JoinKind::LeftAnti,
    JoinKind::LeftMark,
    JoinKind::Single,
];

/// Pairs that may be joined, for each set that they give.
pub type Pairs = HashMap<RelationSet, Vec<JoinPair>>;

/// All pairs that may be joined, for each set that they give, by trying every division of every set.
pub fn all_pairs(graph: &HyperGraph) -> Pairs {
    let mut pairs = Pairs::new();
    let is_reachable = |pairs: &Pairs, set: RelationSet| set.len() == 1 || pairs.contains_key(&set);
    for set in RelationSet::first(graph.relation_count()).subsets().filter(|set| set.len() > 1) {
        let mut found = Vec::new();
        for left in set.subsets().filter(|left| left.contains(set.lowest().expect("a relation"))) {
            let right = set - left;
            if right.is_empty() || !is_reachable(&pairs, left) || !is_reachable(&pairs, right) {
                continue;
            }
            found.extend(graph.join(left, right));
        }
        if !found.is_empty() {
            pairs.insert(set, found);
        }
    }
    pairs
}

/// A tree of the set with random divisions.
fn random_tree(
    random: &mut Random,
    graph: &HyperGraph,
    pairs: &Pairs,
    set: RelationSet,
    equal: &mut ColumnClasses,
) -> JoinTree {
    if set.len() == 1 {
        return JoinTree::Leaf(set.lowest().expect("a relation"));
    }
    let pair = random.choose(&pairs[&set]);
    let left = Box::new(random_tree(random, graph, pairs, pair.left, equal));
    let right = Box::new(random_tree(random, graph, pairs, pair.right, equal));
    let predicates = list_predicates(graph, &pair, equal);
    JoinTree::Join { kind: pair.kind, predicates, left, right, build: Side::Left, rows: 0.0, cost: 0.0 }
}

fn check_trees(seed: u64, statement: &Statement, random: &mut Random) -> usize {
    let graph = HyperGraph::new(&statement.tree);
    let pairs = all_pairs(&graph);
    let all = RelationSet::first(statement.relation_count);
    assert!(pairs.contains_key(&all), "seed {seed}: the written tree is not allowed: {statement:?}");
    let databases: Vec<Database> = (0..8).map(|_| statement.make_database(random)).collect();
    let expected: Vec<_> = databases.iter().map(|database| database.run_written(&statement.tree)).collect();
    let mut distinct_trees = BTreeSet::new();
    for _ in 0..24 {
        let tree = random_tree(random, &graph, &pairs, all, &mut ColumnClasses::default());
        if !distinct_trees.insert(format!("{tree:?}")) {
            continue;
        }
        for (database, expected) in databases.iter().zip(&expected) {
            let Ok(expected) = expected else { continue };
            let rows = database.run(&tree);
            assert_eq!(
                rows.as_ref(),
                Ok(expected),
                "seed {seed}: {:#?}\nwas reordered to {tree:#?}\nof {:?}",
                statement.tree,
                statement.conditions
            );
        }
    }
    distinct_trees.len()
}

fn check_seeds(seeds: std::ops::Range<u64>, kinds: &[JoinKind]) {
    let mut tree_count = 0;
    for seed in seeds.clone() {
        let mut random = Random(seed);
        let relation_count = 2 + random.below(5);
        let statement = make_statement(&mut random, relation_count, kinds);
        tree_count += check_trees(seed, &statement, &mut random);
    }
    // Otherwise nothing was reordered, and nothing tested.
    let statement_count = (seeds.end - seeds.start) as usize;
    assert!(tree_count > statement_count * 5 / 4, "{tree_count} trees of {statement_count} statements");
}

#[test]
fn trees_of_all_kinds_return_the_rows_of_the_written_tree() {
    check_seeds(0..2000, &ALL_KINDS);
}

#[test]
fn trees_of_single_kinds_beside_inner_joins_return_the_rows_of_the_written_tree() {
    for kind in ALL_KINDS {
        check_seeds(0..300, &[JoinKind::Inner, kind]);
    }
}

#[test]
fn trees_of_outer_joins_return_the_rows_of_the_written_tree() {
    check_seeds(0..1000, &[JoinKind::Left, JoinKind::Full, JoinKind::Left]);
    check_seeds(0..500, &[JoinKind::Full]);
    check_seeds(0..500, &[JoinKind::Left, JoinKind::Single, JoinKind::LeftSemi]);
}

#[test]
fn enumeration_finds_all_pairs_of_brute_force() {
    let (mut found_count, mut expected_count) = (0, 0);
    for seed in 0..1000 {
        let mut random = Random(seed);
        let relation_count = 2 + random.below(5);
        let kinds: &[JoinKind] = if seed % 2 == 0 { &[JoinKind::Inner] } else { &ALL_KINDS };
        let statement = make_statement(&mut random, relation_count, kinds);
        let graph = HyperGraph::new(&statement.tree);
        let key = |pair: &JoinPair| (pair.left.min(pair.right), pair.left.max(pair.right));
        let pairs = enumerate(&graph, usize::MAX).expect("no bound");
        let found: BTreeSet<_> = pairs.iter().map(key).collect();
        assert_eq!(found.len(), pairs.len(), "seed {seed}: a pair came twice");
        let expected: BTreeSet<_> = all_pairs(&graph).values().flatten().map(key).collect();
        assert!(found.is_subset(&expected), "seed {seed}");
        let all = RelationSet::first(relation_count);
        assert!(pairs.iter().any(|pair| pair.left | pair.right == all), "seed {seed}");
        if graph.is_plain() {
            assert_eq!(found, expected, "seed {seed}");
        }
        (found_count, expected_count) = (found_count + found.len(), expected_count + expected.len());
    }
    // Missing are pairs that only a predicate of three relations connects, with its relations not as written.
    assert!(found_count * 1000 > expected_count * 995, "{found_count} of {expected_count} pairs");
}

#[test]
fn an_equality_that_only_rejects_nulls_is_evaluated() {
    // 1.b = 2.b holds in the right side of the outer join; above, it is there for the rows without a partner.
    let slot = |relation: usize, number: usize| relation * COLUMN_COUNT + number;
    let equal = |id: usize, one: (usize, usize), other: (usize, usize)| {
        let [left, right] = [one, other].map(|(relation, number)| Column { relation, number });
        (
            Predicate::equal(id, left, right),
            (id, Condition::Equal(slot(one.0, one.1), slot(other.0, other.1))),
        )
    };
    let (within, within_condition) = equal(0, (1, 1), (2, 1));
    let (outer, outer_condition) = equal(1, (0, 0), (1, 0));
    let (above, above_condition) = equal(2, (3, 0), (0, 0));
    let (again, again_condition) = equal(3, (1, 1), (2, 1));
    let [zero, one, two, three] = [0, 1, 2, 3].map(WrittenTree::Leaf);
    let tree = WrittenTree::join(JoinKind::Inner, vec![within], one, two);
    let tree = WrittenTree::join(JoinKind::Left, vec![outer], zero, tree);
    let tree = WrittenTree::join(JoinKind::Inner, vec![above, again], three, tree);
    let conditions = HashMap::from([within_condition, outer_condition, above_condition, again_condition]);
    let statement = Statement { tree, conditions, marks: HashMap::new(), relation_count: 4 };
    for seed in 0..20 {
        check_trees(seed, &statement, &mut Random(seed));
    }
}
