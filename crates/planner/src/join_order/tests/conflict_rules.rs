//! Reorderings that the conflict rules allow for small join trees: all valid ones, and no others.

use std::collections::BTreeSet;

use super::reordering::{Pairs, all_pairs};
use crate::join_order::hypergraph::HyperGraph;
use crate::join_order::{Column, JoinKind, Predicate, RelationSet, WrittenTree};

use JoinKind::{Full, Inner, Left, LeftAnti, LeftMark, LeftSemi, Single};

/// An equality of columns that no other predicate has.
fn equal(one: usize, other: usize) -> Predicate {
    let column = |relation: usize, beside: usize| Column { relation, number: beside };
    Predicate::equal(10 * one + other, column(one, other), column(other, one))
}

/// The same, but NULL equals NULL.
fn not_distinct(one: usize, other: usize) -> Predicate {
    Predicate { null_rejecting: RelationSet::EMPTY, equality: None, ..equal(one, other) }
}

fn join(kind: JoinKind, predicate: Predicate, left: impl Into<WrittenTree>, right: usize) -> WrittenTree {
    WrittenTree::join(kind, vec![predicate], left.into(), WrittenTree::Leaf(right))
}

impl From<usize> for WrittenTree {
    fn from(relation: usize) -> Self {
        Self::Leaf(relation)
    }
}

/// All trees of a set, as text.
fn trees(pairs: &Pairs, set: RelationSet) -> Vec<String> {
    if set.len() == 1 {
        return set.iter().map(|relation| relation.to_string()).collect();
    }
    let mut all_trees = Vec::new();
    for pair in &pairs[&set] {
        for left in trees(pairs, pair.left) {
            all_trees.extend(
                trees(pairs, pair.right).iter().map(|right| format!("({left} {:?} {right})", pair.kind)),
            );
        }
    }
    all_trees
}

fn check(written: &WrittenTree, expected: &[&str]) {
    let pairs = all_pairs(&HyperGraph::new(written));
    let all_trees: BTreeSet<String> = trees(&pairs, written.relations()).into_iter().collect();
    let expected: BTreeSet<String> = expected.iter().map(|tree| tree.to_string()).collect();
    assert_eq!(all_trees, expected);
}

#[test]
fn reducers_move_to_their_columns() {
    let below = || join(Inner, equal(0, 1), 0, 1);
    check(
        &join(LeftSemi, equal(1, 2), below(), 2),
        &["((0 Inner 1) LeftSemi 2)", "(0 Inner (1 LeftSemi 2))"],
    );
    check(
        &join(LeftAnti, equal(0, 2), below(), 2),
        &["((0 Inner 1) LeftAnti 2)", "((0 LeftAnti 2) Inner 1)"],
    );
    check(
        &join(LeftMark, equal(1, 2), below(), 2),
        &["((0 Inner 1) LeftMark 2)", "(0 Inner (1 LeftMark 2))"],
    );
    for (kind, name) in [(LeftSemi, "LeftSemi"), (LeftAnti, "LeftAnti"), (LeftMark, "LeftMark")] {
        let above = join(Inner, equal(0, 2), join(kind, equal(0, 1), 0, 1), 2);
        check(&above, &[&format!("((0 {name} 1) Inner 2)"), &format!("((0 Inner 2) {name} 1)")]);
        let beside = join(kind, equal(0, 2), join(Left, equal(0, 1), 0, 1), 2);
        check(&beside, &[&format!("((0 Left 1) {name} 2)"), &format!("((0 {name} 2) Left 1)")]);
        // Of the padded rows it must see the NULLs.
        let padded = join(kind, equal(1, 2), join(Left, equal(0, 1), 0, 1), 2);
        check(&padded, &[&format!("((0 Left 1) {name} 2)")]);
    }
}

#[test]
fn outer_joins_reorder_under_null_rejecting_predicates() {
    let left = || join(Left, equal(0, 1), 0, 1);
    check(&join(Left, equal(1, 2), left(), 2), &["((0 Left 1) Left 2)", "(0 Left (1 Left 2))"]);
    check(&join(Left, not_distinct(1, 2), left(), 2), &["((0 Left 1) Left 2)"]);
    check(&join(Left, equal(0, 2), left(), 2), &["((0 Left 1) Left 2)", "((0 Left 2) Left 1)"]);
    check(&join(Inner, equal(0, 2), left(), 2), &["((0 Left 1) Inner 2)", "((0 Inner 2) Left 1)"]);
    check(&join(Inner, equal(1, 2), left(), 2), &["((0 Left 1) Inner 2)"]);
    let inner = || join(Inner, equal(0, 1), 0, 1);
    check(&join(Left, not_distinct(1, 2), inner(), 2), &["((0 Inner 1) Left 2)", "(0 Inner (1 Left 2))"]);
    let full = || join(Full, equal(0, 1), 0, 1);
    check(&join(Full, equal(1, 2), full(), 2), &["((0 Full 1) Full 2)", "(0 Full (1 Full 2))"]);
    check(&join(Full, not_distinct(1, 2), full(), 2), &["((0 Full 1) Full 2)"]);
    check(&join(Left, equal(0, 2), full(), 2), &["((0 Full 1) Left 2)", "((0 Left 2) Full 1)"]);
    check(&join(Inner, equal(0, 2), full(), 2), &["((0 Full 1) Inner 2)"]);
    let right = WrittenTree::join(Left, vec![equal(0, 1)], 0.into(), join(Inner, equal(1, 2), 1, 2));
    check(&right, &["(0 Left (1 Inner 2))"]);
}

#[test]
fn single_joins_reorder_where_they_see_no_more_rows() {
    let above = join(Inner, equal(0, 2), join(Single, equal(0, 1), 0, 1), 2);
    check(&above, &["((0 Single 1) Inner 2)", "((0 Inner 2) Single 1)"]);
    check(&join(Single, equal(0, 2), join(Inner, equal(0, 1), 0, 1), 2), &["((0 Inner 1) Single 2)"]);
    let beside = join(Single, equal(0, 2), join(Left, equal(0, 1), 0, 1), 2);
    check(&beside, &["((0 Left 1) Single 2)", "((0 Single 2) Left 1)"]);
}

#[test]
fn inner_joins_reorder_along_their_edges() {
    let chain = join(Inner, equal(1, 2), join(Inner, equal(0, 1), 0, 1), 2);
    check(&chain, &["((0 Inner 1) Inner 2)", "(0 Inner (1 Inner 2))"]);
    let column = |relation: usize| Column { relation, number: 0 };
    let same = |id: usize, one: usize, other: usize| Predicate::equal(id, column(one), column(other));
    let class = join(Inner, same(1, 1, 2), join(Inner, same(0, 0, 1), 0, 1), 2);
    check(&class, &["((0 Inner 1) Inner 2)", "((0 Inner 2) Inner 1)", "(0 Inner (1 Inner 2))"]);
}
