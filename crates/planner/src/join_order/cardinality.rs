//! Estimates the rows of joins of sets of relations, by counts of rows and of distinct values. An estimate
//! depends on the set alone, not on the order of the joins.
//!
//! The rows of inner joins are the product of the relations' rows, divided for each class of equal columns
//! once for each relation but one: by the smaller count of distinct values of both sides, as before filters.
//! Where two relations share several classes, the product of their counts is capped by the rows of the
//! tables, which is what makes composite keys right. Counts may be bounds, such as the rows of the table or
//! the range of its values: a foreign key's bound is often far too high, and the smaller side is the key.
//!
//! - Semi and anti joins multiply by the share of keys that the right side still has, or has not.
//! - Outer joins multiply by at least 1.
//! - Predicates other than equalities multiply by a share that the caller says.
//!
//! Source: A. Swami and K. B. Schiefer, "On the Estimation of Join Result Sizes", EDBT 1994, for classes of
//! columns; S. B. Yao, "Approximating Block Accesses in Database Organizations", CACM 1977, for the values
//! that a filter leaves.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::plan::ColumnClasses;
use super::relation_set::RelationSet;
use super::written_tree::{Column, JoinKind, WrittenJoin, WrittenTree, list_joins};

/// The least share of rows that an anti join is taken to keep.
const ANTI_SHARE_MIN: f64 = 0.05;

/// The share of rows with a partner, for semi joins without an equality.
const KEYLESS_SEMI_SHARE: f64 = 0.5;

/// Rows of a relation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RelationRows {
    /// After its filters.
    pub rows: f64,
    /// Of the table, before filters. Less than `rows` counts as `rows`.
    pub base_rows: f64,
}

/// What is known of columns and predicates.
pub trait ColumnStatistics {
    /// The distinct values of a column of the table before filters, at most; `None` if nothing is known.
    fn distinct(&self, column: Column) -> Option<f64>;

    /// The share of pairs of rows for which a predicate that is no equality of columns is true.
    fn share(&self, predicate: usize) -> f64;
}

/// A column on both sides of an equality, as its class and the counts of both relations.
#[derive(Clone, Copy, Debug)]
struct SharedClass {
    /// Places of both relations' columns in the forest of the class.
    places: [usize; 2],
    distinct: [f64; 2],
}

/// Two relations that share classes of equal columns.
#[derive(Clone, Debug)]
struct KeyPair {
    relations: [usize; 2],
    set: RelationSet,
    classes: Vec<SharedClass>,
    denominator: f64,
}

/// A class of equal columns, none of which is part of a composite key.
#[derive(Clone, Debug)]
struct KeyClass {
    set: RelationSet,
    /// Relations with the counts of their columns, the largest first.
    members: Vec<(usize, f64)>,
}

impl KeyClass {
    fn new(mut members: Vec<(usize, f64)>) -> Self {
        members.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        Self { set: members.iter().map(|(relation, _)| *relation).collect(), members }
    }

    /// The share of the product of rows that the class keeps: for each relation but the one with the most
    /// values one of its values. Each of `sides` is estimated by itself and counts as one relation.
    fn share(&self, set: RelationSet, sides: &[RelationSet]) -> f64 {
        let mut share = 1.0;
        if (self.set & set).len() < 2 {
            return share;
        }
        let mut coverage = RelationSet::EMPTY;
        for (relation, distinct) in &self.members {
            if !set.contains(*relation) || coverage.contains(*relation) {
                continue;
            }
            if !coverage.is_empty() {
                share /= distinct;
            }
            let side = sides.iter().find(|side| side.contains(*relation));
            coverage |= *side.unwrap_or(&RelationSet::single(*relation));
        }
        share
    }
}

/// All classes of columns that inner joins make equal.
#[derive(Debug)]
struct Keys {
    classes: Vec<KeyClass>,
    /// Pairs that share columns of other classes, largest denominator first.
    pairs: Vec<KeyPair>,
    /// How many places the forest of these other classes has.
    place_count: usize,
}

/// A join that is not inner.
#[derive(Clone, Debug)]
struct OuterJoin {
    kind: JoinKind,
    right: RelationSet,
    references: RelationSet,
    /// The distinct values of its keys: of the left side, the right side.
    distinct: Option<[f64; 2]>,
    /// The rows of the right side's key relation before filters.
    base_rows: f64,
    /// The share of its predicates that are no equalities.
    share: f64,
}

/// Estimates of one tree. It remembers each set that it was asked for.
#[derive(Debug)]
pub struct Estimator {
    relations: Vec<RelationRows>,
    keys: Keys,
    /// Relations and share of each predicate of inner joins that is no equality.
    residuals: Vec<(RelationSet, f64)>,
    outers: Vec<OuterJoin>,
    rows_by_set: RefCell<HashMap<RelationSet, f64>>,
}

impl Estimator {
    /// An estimator of the tree's relations, of which `relations` has the rows by their numbers.
    pub fn new(tree: &WrittenTree, relations: &[RelationRows], statistics: &dyn ColumnStatistics) -> Self {
        let joins = list_joins(tree);
        let complete = |relation: &RelationRows| RelationRows {
            rows: relation.rows,
            base_rows: relation.base_rows.max(relation.rows).max(1.0),
        };
        let relations: Vec<RelationRows> = relations.iter().map(complete).collect();
        let distinct = |column: Column| {
            let base_rows = relations[column.relation].base_rows;
            statistics.distinct(column).unwrap_or(base_rows).clamp(1.0, base_rows)
        };
        let keys = Keys::new(&joins, &relations, &distinct);
        let inner = joins.iter().filter(|join| join.kind == JoinKind::Inner);
        let residuals = inner
            .flat_map(|join| join.predicates)
            .filter(|predicate| predicate.equality.is_none())
            .map(|predicate| (predicate.relations, statistics.share(predicate.id)))
            .collect();
        let outers = joins
            .iter()
            .filter(|join| join.kind != JoinKind::Inner)
            .map(|join| OuterJoin::new(join, &relations, &distinct, statistics))
            .collect();
        Self { relations, keys, residuals, outers, rows_by_set: RefCell::default() }
    }

    /// The rows of the join of a set, at least 1.
    pub fn rows(&self, set: RelationSet) -> f64 {
        if let Some(rows) = self.rows_by_set.borrow().get(&set) {
            return *rows;
        }
        let rows = self.estimate(set).max(1.0);
        self.rows_by_set.borrow_mut().insert(set, rows);
        rows
    }

    fn estimate(&self, set: RelationSet) -> f64 {
        if let (1, Some(relation)) = (set.len(), set.lowest()) {
            return self.relations[relation].rows;
        }
        // What is on the right side of a join that is not inner comes in by that join's factor.
        let mut sides: Vec<RelationSet> = Vec::new();
        let mut hidden_relations = RelationSet::EMPTY;
        let mut rows = 1.0;
        let mut rows_min: f64 = 0.0;
        for outer in &self.outers {
            let right = outer.right & set;
            let is_applied = outer.references.is_subset(set) && !right.is_subset(hidden_relations);
            if !is_applied || right == set {
                continue;
            }
            rows *= outer.factor(self.rows(right));
            if outer.kind == JoinKind::Full {
                rows_min = rows_min.max(self.rows(right));
            }
            hidden_relations |= right;
            sides.push(right);
        }
        rows *=
            (set - hidden_relations).iter().map(|relation| self.relations[relation].rows).product::<f64>();
        let is_within = |relations: RelationSet| sides.iter().any(|side| relations.is_subset(*side));
        rows *= self.keys.classes.iter().map(|class| class.share(set, &sides)).product::<f64>();
        rows *= self.composite_share(set, &is_within);
        for (relations, share) in &self.residuals {
            if relations.is_subset(set) && !is_within(*relations) {
                rows *= share;
            }
        }
        rows.max(rows_min)
    }

    /// The share of the product of rows that the composite keys keep.
    fn composite_share(&self, set: RelationSet, is_within: &dyn Fn(RelationSet) -> bool) -> f64 {
        let mut share = 1.0;
        let mut roots: Vec<usize> = (0..self.keys.place_count).collect();
        let pairs = || self.keys.pairs.iter().filter(|pair| pair.set.is_subset(set));
        // What is equal within a side that is estimated by itself is so from the beginning.
        for pair in pairs().filter(|pair| is_within(pair.set)) {
            pair.connect(&mut roots);
        }
        for pair in pairs() {
            let earlier_classes = pair.connect(&mut roots);
            // What other pairs have said of some of the columns is not said again.
            let earlier_denominator = count_keys(pair.relations, &earlier_classes, &self.relations);
            share /= (pair.denominator / earlier_denominator).max(1.0);
        }
        share
    }
}

impl KeyPair {
    /// Connects both relations in all classes that they share; returns those in which they were so before.
    fn connect(&self, roots: &mut [usize]) -> Vec<SharedClass> {
        let mut earlier_classes = Vec::new();
        for class in &self.classes {
            let (one, other) = (root(roots, class.places[0]), root(roots, class.places[1]));
            if one == other {
                earlier_classes.push(*class);
            }
            roots[one.max(other)] = one.min(other);
        }
        earlier_classes
    }
}

impl OuterJoin {
    fn new(
        join: &WrittenJoin,
        relations: &[RelationRows],
        distinct: &dyn Fn(Column) -> f64,
        statistics: &dyn ColumnStatistics,
    ) -> Self {
        let mut counts: Option<[f64; 2]> = None;
        let mut owners = [RelationSet::EMPTY; 2];
        let mut share = 1.0;
        for predicate in join.predicates {
            let Some((one, other)) = predicate.equality else {
                share *= statistics.share(predicate.id);
                continue;
            };
            let (left, right) = if join.left.contains(one.relation) { (one, other) } else { (other, one) };
            let counts = counts.get_or_insert([1.0, 1.0]);
            for (side, column) in [left, right].into_iter().enumerate() {
                counts[side] *= distinct(column);
                owners[side] |= RelationSet::single(column.relation);
            }
        }
        // The rows of one table cap the keys that are made of its columns alone.
        let base_rows = owners.map(|owners| {
            owners.iter().map(|relation| relations[relation].base_rows).product::<f64>().max(1.0)
        });
        let distinct = counts.map(|counts| [counts[0].min(base_rows[0]), counts[1].min(base_rows[1])]);
        let (right, references) = (join.right, join.references);
        Self { kind: join.kind, right, references, distinct, base_rows: base_rows[1], share }
    }

    /// By what it multiplies the rows of the left side, if the right side has these rows.
    fn factor(&self, right_rows: f64) -> f64 {
        match self.kind {
            JoinKind::LeftMark | JoinKind::Single => 1.0,
            JoinKind::LeftSemi => self.partner_share(right_rows),
            JoinKind::LeftAnti => (1.0 - self.partner_share(right_rows)).max(ANTI_SHARE_MIN),
            JoinKind::Inner | JoinKind::Left | JoinKind::Full => {
                let denominator = self.distinct.map_or(1.0, |distinct| distinct[0].min(distinct[1]));
                (right_rows * self.share / denominator).max(1.0)
            }
        }
    }

    /// The share of the left side's keys that a right side of these rows has.
    fn partner_share(&self, right_rows: f64) -> f64 {
        let Some([left, right]) = self.distinct else { return KEYLESS_SEMI_SHARE * self.share };
        let common_keys = left.min(right);
        // Each key is gone only if all of its rows are.
        let rows_per_key = (self.base_rows / common_keys).max(1.0);
        let lost_share = (1.0 - right_rows / self.base_rows).clamp(0.0, 1.0).powf(rows_per_key);
        (common_keys / left * (1.0 - lost_share) * self.share).clamp(0.0, 1.0)
    }
}

/// The place that stands for all that are connected with one.
fn root(roots: &[usize], place: usize) -> usize {
    let mut place = place;
    while roots[place] != place {
        place = roots[place];
    }
    place
}

/// The number of keys: the smaller product of both relations' distinct values, each capped by the rows of
/// its table.
fn count_keys(relations: [usize; 2], classes: &[SharedClass], rows: &[RelationRows]) -> f64 {
    let keys = |side: usize| {
        let product = classes.iter().map(|class| class.distinct[side]).product::<f64>();
        product.min(rows[relations[side]].base_rows)
    };
    keys(0).min(keys(1)).max(1.0)
}

/// The relations of each class of columns that inner joins make equal, with their counts of distinct values.
/// Of several columns of a relation in a class the one with the fewest values counts.
fn list_classes(joins: &[WrittenJoin], distinct: &dyn Fn(Column) -> f64) -> Vec<Vec<(usize, f64)>> {
    let inner = joins.iter().filter(|join| join.kind == JoinKind::Inner);
    let equalities: Vec<(Column, Column)> =
        inner.flat_map(|join| join.predicates).filter_map(|predicate| predicate.equality).collect();
    let mut equal = ColumnClasses::default();
    for (one, other) in &equalities {
        equal.unite(*one, *other);
    }
    let mut classes: BTreeMap<Column, BTreeMap<usize, f64>> = BTreeMap::new();
    for column in equalities.iter().flat_map(|(one, other)| [*one, *other]) {
        let count = classes.entry(equal.root(column)).or_default().entry(column.relation).or_insert(f64::MAX);
        *count = count.min(distinct(column));
    }
    classes.into_values().map(|members| members.into_iter().collect()).collect()
}

impl Keys {
    fn new(joins: &[WrittenJoin], relations: &[RelationRows], distinct: &dyn Fn(Column) -> f64) -> Self {
        let classes = list_classes(joins, distinct);
        let mut classes_by_pair: BTreeMap<[usize; 2], Vec<(usize, SharedClass)>> = BTreeMap::new();
        let mut place_count = 0;
        for (number, members) in classes.iter().enumerate() {
            for (at, (one, one_distinct)) in members.iter().enumerate() {
                for (beside, (other, other_distinct)) in members.iter().enumerate().skip(at + 1) {
                    let places = [place_count + at, place_count + beside];
                    let class = SharedClass { places, distinct: [*one_distinct, *other_distinct] };
                    classes_by_pair.entry([*one, *other]).or_default().push((number, class));
                }
            }
            place_count += members.len();
        }
        let composite_classes: BTreeSet<usize> = classes_by_pair
            .values()
            .filter(|classes| classes.len() > 1)
            .flat_map(|classes| classes.iter().map(|(number, _)| *number))
            .collect();
        let is_composite = |classes: &Vec<(usize, SharedClass)>| composite_classes.contains(&classes[0].0);
        let mut pairs: Vec<KeyPair> = classes_by_pair
            .into_iter()
            .filter(|(_, classes)| is_composite(classes))
            .map(|(pair, classes)| {
                let classes: Vec<SharedClass> = classes.into_iter().map(|(_, class)| class).collect();
                let denominator = count_keys(pair, &classes, relations);
                KeyPair { relations: pair, set: RelationSet::from_iter(pair), classes, denominator }
            })
            .collect();
        pairs.sort_by(|a, b| b.denominator.total_cmp(&a.denominator).then(a.relations.cmp(&b.relations)));
        let single =
            classes.into_iter().enumerate().filter(|(number, _)| !composite_classes.contains(number));
        let classes = single.map(|(_, members)| KeyClass::new(members)).collect();
        let place_count = if pairs.is_empty() { 0 } else { place_count };
        Self { classes, pairs, place_count }
    }
}
