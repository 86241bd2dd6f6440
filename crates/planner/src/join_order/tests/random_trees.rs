//! Random written trees, with tables for them.

use std::collections::HashMap;

use super::interpreter::{COLUMN_COUNT, Condition, Database, Row, Slot, slot_of};
use crate::join_order::{Column, JoinKind, Predicate, RelationSet, WrittenTree};

/// Numbers that a seed gives (SplitMix64).
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((number ^ (number >> 31)) % bound as u64) as usize
    }

    pub fn choose<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// A tree, and the conditions of its predicates.
#[derive(Debug)]
pub struct Statement {
    pub tree: WrittenTree,
    pub conditions: HashMap<usize, Condition>,
    pub marks: HashMap<usize, Slot>,
    pub relation_count: usize,
}

/// Makes a tree of these kinds of joins.
pub fn make_statement(random: &mut Random, relation_count: usize, kinds: &[JoinKind]) -> Statement {
    let mut maker = Maker {
        random,
        kinds,
        conditions: HashMap::new(),
        marks: HashMap::new(),
        predicate_count: 0,
        mark_count: 0,
        relation_count,
    };
    let mut relations: Vec<usize> = (0..relation_count).collect();
    // Not always in the order of the leaves.
    for at in (1..relation_count).rev() {
        let other = maker.random.below(at + 1);
        relations.swap(at, other);
    }
    let (tree, _) = maker.tree(&relations);
    Statement { tree, conditions: maker.conditions, marks: maker.marks, relation_count }
}

struct Maker<'a> {
    random: &'a mut Random,
    kinds: &'a [JoinKind],
    conditions: HashMap<usize, Condition>,
    marks: HashMap<usize, Slot>,
    predicate_count: usize,
    mark_count: usize,
    relation_count: usize,
}

/// A slot that a condition may read, and the relations that it then reads.
type Visible = (Slot, RelationSet);

impl Maker<'_> {
    fn tree(&mut self, relations: &[usize]) -> (WrittenTree, Vec<Visible>) {
        if let [relation] = relations {
            let set = RelationSet::single(*relation);
            let slots = (0..COLUMN_COUNT).map(|number| (relation * COLUMN_COUNT + number, set)).collect();
            return (WrittenTree::Leaf(*relation), slots);
        }
        let split = 1 + self.random.below(relations.len() - 1);
        let (left, mut slots) = self.tree(&relations[..split]);
        let (right, right_slots) = self.tree(&relations[split..]);
        let kind = self.random.choose(self.kinds);
        let count = match self.random.below(10) {
            0 if kind != JoinKind::LeftMark => 0,
            0..6 => 1,
            6..9 => 2,
            _ => 3,
        };
        let predicates: Vec<Predicate> = (0..count).map(|_| self.predicate(&slots, &right_slots)).collect();
        if kind == JoinKind::LeftMark {
            let slot = self.relation_count * COLUMN_COUNT + self.mark_count;
            self.mark_count += 1;
            self.marks.insert(predicates[0].id, slot);
            slots.push((slot, right.relations()));
        } else if !kind.hides_right() {
            slots.extend(right_slots);
        }
        (WrittenTree::join(kind, predicates, left, right), slots)
    }

    fn predicate(&mut self, left: &[Visible], right: &[Visible]) -> Predicate {
        let (mut a, mut b) = (self.random.choose(left), self.random.choose(right));
        // A condition of one side only.
        if self.random.below(20) == 0 {
            let side = self.random.choose(&[left, right]);
            (a, b) = (self.random.choose(side), self.random.choose(side));
        }
        if self.random.below(2) == 0 {
            (a, b) = (b, a);
        }
        let c = self.random.choose(&[left, right].concat());
        let condition = match self.random.below(12) {
            0 => Condition::NotDistinct(a.0, b.0),
            1 => Condition::CoalesceEqual(a.0, b.0),
            2 => Condition::EqualOrNull(a.0, b.0),
            3 => Condition::Sum(a.0, b.0, c.0),
            4 => Condition::Less(a.0, b.0),
            _ => Condition::Equal(a.0, b.0),
        };
        let id = self.predicate_count;
        self.predicate_count += 1;
        self.conditions.insert(id, condition);
        let visible = [left, right].concat();
        let mut predicate = Predicate {
            id,
            relations: RelationSet::EMPTY,
            null_rejecting: RelationSet::EMPTY,
            equality: column_equality(condition, self.relation_count),
        };
        for (slot, is_rejecting) in condition.slots() {
            let relations = visible.iter().find(|visible| visible.0 == slot).expect("a visible slot").1;
            predicate.relations |= relations;
            if is_rejecting {
                predicate.null_rejecting |= relations;
            }
        }
        predicate
    }
}

fn column_equality(condition: Condition, relation_count: usize) -> Option<(Column, Column)> {
    let Condition::Equal(a, b) = condition else { return None };
    let column = |slot: Slot| Column { relation: slot / COLUMN_COUNT, number: slot % COLUMN_COUNT };
    let (a, b) = (column(a), column(b));
    let is_column = |column: Column| column.relation < relation_count;
    (is_column(a) && is_column(b) && a.relation != b.relation).then_some((a, b))
}

impl Statement {
    /// Small tables of small numbers and NULLs.
    pub fn make_database(&self, random: &mut Random) -> Database {
        let slot_count = self.relation_count * COLUMN_COUNT + self.marks.len();
        let tables = (0..self.relation_count)
            .map(|relation| {
                let row_count = random.choose(&[0, 1, 2, 2, 3, 3]);
                (0..row_count)
                    .map(|_| {
                        let mut row: Row = vec![None; slot_count];
                        for number in 0..COLUMN_COUNT {
                            let value = random.choose(&[None, Some(0), Some(1), Some(1), Some(2)]);
                            row[slot_of(Column { relation, number })] = value;
                        }
                        row
                    })
                    .collect()
            })
            .collect();
        Database { tables, conditions: self.conditions.clone(), marks: self.marks.clone() }
    }
}
