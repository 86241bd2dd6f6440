//! Cardinality estimates of joins whose rows are known.

use std::collections::HashMap;

use crate::join_order::cardinality::ColumnStatistics;
use crate::join_order::{Column, Estimator, JoinKind, Predicate, RelationRows, RelationSet, WrittenTree};

use JoinKind::{Full, Inner, Left, LeftAnti, LeftMark, LeftSemi};

/// Distinct values of columns; a share of one tenth for every other predicate.
#[derive(Default)]
struct Counts(HashMap<Column, f64>);

impl ColumnStatistics for Counts {
    fn distinct(&self, column: Column) -> Option<f64> {
        self.0.get(&column).copied()
    }

    fn share(&self, _: usize) -> f64 {
        0.1
    }
}

fn column(relation: usize, number: usize) -> Column {
    Column { relation, number }
}

fn rows(rows: f64, base_rows: f64) -> RelationRows {
    RelationRows { rows, base_rows }
}

/// A join by one equality for each pair of columns.
fn join(
    kind: JoinKind,
    on: &[(Column, Column)],
    left: WrittenTree,
    right: impl Into<Option<WrittenTree>>,
) -> WrittenTree {
    let right = right.into().unwrap_or(WrittenTree::Leaf(on[0].1.relation));
    let first = 100 * left.leaf_count();
    let predicates = on.iter().enumerate().map(|(id, pair)| Predicate::equal(first + id, pair.0, pair.1));
    WrittenTree::join(kind, predicates.collect(), left, right)
}

fn check(estimator: &Estimator, relations: &[usize], expected: f64) {
    let rows = estimator.rows(relations.iter().copied().collect());
    assert!((rows / expected - 1.0).abs() < 0.01, "{rows} instead of {expected} for {relations:?}");
}

#[test]
fn foreign_keys_keep_the_rows_of_their_table() {
    // orders, lineitem, customer; the bound of a foreign key is far too high.
    let counts = Counts(HashMap::from([
        (column(0, 0), 1_500_000.0),
        (column(1, 0), 6_000_000.0),
        (column(0, 1), 1_500_000.0),
        (column(2, 0), 150_000.0),
    ]));
    let tree = join(Inner, &[(column(0, 0), column(1, 0))], WrittenTree::Leaf(0), None);
    let tree = join(Inner, &[(column(0, 1), column(2, 0))], tree, None);
    let relations = [rows(15_000.0, 1.5e6), rows(6e6, 6e6), rows(30_000.0, 150_000.0)];
    let estimator = Estimator::new(&tree, &relations, &counts);
    check(&estimator, &[0], 15_000.0);
    check(&estimator, &[0, 1], 60_000.0);
    check(&estimator, &[0, 2], 3_000.0);
    check(&estimator, &[0, 1, 2], 12_000.0);
}

#[test]
fn composite_keys_are_capped_by_the_rows_of_the_table() {
    // lineitem, partsupp on both columns, part, supplier.
    let counts = Counts(HashMap::from([
        (column(0, 0), 200_000.0),
        (column(0, 1), 10_000.0),
        (column(1, 0), 200_000.0),
        (column(1, 1), 10_000.0),
        (column(2, 0), 200_000.0),
        (column(3, 0), 10_000.0),
    ]));
    let keys = [(column(0, 0), column(1, 0)), (column(0, 1), column(1, 1))];
    let tree = join(Inner, &keys, WrittenTree::Leaf(0), None);
    let tree = join(Inner, &[(column(0, 0), column(2, 0))], tree, None);
    let tree = join(Inner, &[(column(1, 1), column(3, 0))], tree, None);
    let relations = [rows(6e6, 6e6), rows(8e5, 8e5), rows(2e5, 2e5), rows(1e4, 1e4)];
    let estimator = Estimator::new(&tree, &relations, &counts);
    check(&estimator, &[0, 1], 6e6);
    check(&estimator, &[0, 1, 2], 6e6);
    check(&estimator, &[0, 1, 3], 6e6);
    check(&estimator, &[0, 1, 2, 3], 6e6);
    // By an equality that follows.
    check(&estimator, &[0, 3], 6e6);
}

#[test]
fn semi_and_anti_joins_keep_shares_of_keys() {
    // lineitem has 4 rows for each of the orders, of which a filter keeps every tenth.
    let counts = Counts(HashMap::from([(column(0, 0), 1.5e6), (column(1, 0), 6e6)]));
    let relations = [rows(1.5e6, 1.5e6), rows(6e5, 6e6)];
    let on = [(column(0, 0), column(1, 0))];
    let share = 1.0 - 0.9f64.powi(4);
    for (kind, expected) in [
        (LeftSemi, 1.5e6 * share),
        (LeftAnti, 1.5e6 * (1.0 - share)),
        (LeftMark, 1.5e6),
        (Left, 1.5e6),
        (Full, 1.5e6),
    ] {
        let tree = join(kind, &on, WrittenTree::Leaf(0), None);
        check(&Estimator::new(&tree, &relations, &counts), &[0, 1], expected);
    }
}

#[test]
fn the_right_side_of_a_semi_join_is_a_join_of_its_own() {
    // Relations 1 and 2 are joined for relation 0, which has a partner for half of its rows.
    let counts = Counts::default();
    let right = join(Inner, &[(column(1, 1), column(2, 0))], WrittenTree::Leaf(1), None);
    let tree = join(LeftSemi, &[(column(0, 0), column(1, 0))], WrittenTree::Leaf(0), right);
    let tree = join(Inner, &[(column(0, 1), column(3, 0))], tree, None);
    let relations = [rows(1e3, 1e3), rows(1e3, 1e3), rows(50.0, 100.0), rows(10.0, 10.0)];
    let estimator = Estimator::new(&tree, &relations, &counts);
    check(&estimator, &[1, 2], 500.0);
    check(&estimator, &[0, 1, 2], 500.0);
    check(&estimator, &[0, 1, 2, 3], 500.0);
    check(&estimator, &[0, 3], 1e3);
}

#[test]
fn outer_joins_keep_their_left_side() {
    // Relation 1 has one row for every hundredth of relation 0; an inner join above meets its columns.
    let counts = Counts::default();
    let tree = join(Left, &[(column(0, 0), column(1, 0))], WrittenTree::Leaf(0), None);
    let tree = join(Inner, &[(column(1, 1), column(2, 0))], tree, None);
    let relations = [rows(1e4, 1e4), rows(10.0, 1e3), rows(100.0, 100.0)];
    let estimator = Estimator::new(&tree, &relations, &counts);
    check(&estimator, &[0, 1], 1e4);
    check(&estimator, &[0, 1, 2], 1e4);
    assert_eq!(estimator.rows(RelationSet::single(1)), 10.0);
}

#[test]
fn columns_within_the_right_side_of_an_outer_join_count_once() {
    // Relations 1 and 2 have one class with relation 3, which meets both after the outer join.
    for column_count in [1, 2] {
        let on = |one: usize, other: usize| {
            (0..column_count).map(|n| (column(one, n), column(other, n))).collect::<Vec<_>>()
        };
        let right = join(Inner, &on(1, 2), WrittenTree::Leaf(1), None);
        let tree = join(Left, &[(column(0, 5), column(1, 5))], WrittenTree::Leaf(0), right);
        let tree = join(Inner, &on(1, 3), tree, None);
        let estimator = Estimator::new(&tree, &[rows(1e3, 1e3); 4], &Counts::default());
        check(&estimator, &[1, 2], 1e3);
        check(&estimator, &[0, 1, 2], 1e3);
        check(&estimator, &[0, 1, 2, 3], 1e3);
    }
}

#[test]
fn predicates_that_are_no_equalities_multiply_by_their_share() {
    let predicate = Predicate {
        id: 0,
        relations: RelationSet::first(2),
        null_rejecting: RelationSet::EMPTY,
        equality: None,
    };
    let [left, right] = [0, 1].map(WrittenTree::Leaf);
    let tree = WrittenTree::join(Inner, vec![predicate], left, right);
    let estimator = Estimator::new(&tree, &[rows(10.0, 10.0), rows(20.0, 20.0)], &Counts::default());
    check(&estimator, &[0, 1], 20.0);
}
