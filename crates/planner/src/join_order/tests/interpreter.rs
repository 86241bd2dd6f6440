//! Nested-loop interpreter of join trees over tables of integers and NULLs: the reference semantics of every
//! order.

use std::collections::HashMap;

use crate::join_order::{AppliedPredicate, Column, JoinKind, JoinTree, WrittenTree};

/// Columns of each relation.
pub const COLUMN_COUNT: usize = 2;

/// A place in a row: a column of a relation, or the mark of a join.
pub type Slot = usize;

/// A value for each slot; NULL also for slots that the join does not have.
pub type Row = Vec<Option<i64>>;

/// A condition, with values and results of SQL.
#[derive(Clone, Copy, Debug)]
pub enum Condition {
    Equal(Slot, Slot),
    Less(Slot, Slot),
    NotDistinct(Slot, Slot),
    /// `coalesce(a, 0) = b`
    CoalesceEqual(Slot, Slot),
    /// `a = b or a is null`
    EqualOrNull(Slot, Slot),
    /// `a + b > c`
    Sum(Slot, Slot, Slot),
}

impl Condition {
    pub fn evaluate(&self, row: &Row) -> Option<bool> {
        match *self {
            Self::Equal(a, b) => Some(row[a]? == row[b]?),
            Self::Less(a, b) => Some(row[a]? <= row[b]?),
            Self::NotDistinct(a, b) => Some(row[a] == row[b]),
            Self::CoalesceEqual(a, b) => Some(row[a].unwrap_or(0) == row[b]?),
            Self::EqualOrNull(a, b) => match row[a] {
                None => Some(true),
                Some(a) => Some(a == row[b]?),
            },
            Self::Sum(a, b, c) => Some(row[a]? + row[b]? > row[c]?),
        }
    }

    /// The slots that it reads, and whether it rejects NULL in each.
    pub fn slots(&self) -> Vec<(Slot, bool)> {
        match *self {
            Self::Equal(a, b) | Self::Less(a, b) => vec![(a, true), (b, true)],
            Self::NotDistinct(a, b) => vec![(a, false), (b, false)],
            Self::CoalesceEqual(a, b) => vec![(a, false), (b, true)],
            // With b NULL it is true where a is, too.
            Self::EqualOrNull(a, b) => vec![(a, false), (b, false)],
            Self::Sum(a, b, c) => vec![(a, true), (b, true), (c, true)],
        }
    }
}

/// An error of a single join: a row has two partners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyRows;

/// A statement's tables and conditions.
#[derive(Debug)]
pub struct Database {
    /// The rows of each relation, of all slots.
    pub tables: Vec<Vec<Row>>,
    pub conditions: HashMap<usize, Condition>,
    /// The slot of the mark of the join that evaluates a condition.
    pub marks: HashMap<usize, Slot>,
}

pub fn slot_of(column: Column) -> Slot {
    column.relation * COLUMN_COUNT + column.number
}

impl Database {
    /// The rows of a tree as written, sorted.
    pub fn run_written(&self, tree: &WrittenTree) -> Result<Vec<Row>, TooManyRows> {
        match tree {
            WrittenTree::Leaf(relation) => Ok(self.tables[*relation].clone()),
            WrittenTree::Join { kind, predicates, left, right } => {
                let (left_rows, right_rows) = (self.run_written(left)?, self.run_written(right)?);
                let predicates: Vec<AppliedPredicate> =
                    predicates.iter().map(|predicate| AppliedPredicate::Written(predicate.id)).collect();
                self.join(*kind, &predicates, &left_rows, &right_rows)
            }
        }
    }

    /// The rows of a tree that a search has found, sorted.
    pub fn run(&self, tree: &JoinTree) -> Result<Vec<Row>, TooManyRows> {
        match tree {
            JoinTree::Leaf(relation) => Ok(self.tables[*relation].clone()),
            JoinTree::Join { kind, predicates, left, right, .. } => {
                let (left_rows, right_rows) = (self.run(left)?, self.run(right)?);
                self.join(*kind, predicates, &left_rows, &right_rows)
            }
        }
    }

    fn test(&self, predicates: &[AppliedPredicate], row: &Row) -> Option<bool> {
        let results = predicates.iter().map(|predicate| match predicate {
            AppliedPredicate::Written(id) => self.conditions[id].evaluate(row),
            AppliedPredicate::Implied(one, other) => {
                Condition::Equal(slot_of(*one), slot_of(*other)).evaluate(row)
            }
        });
        // An AND: false before unknown, unknown before true.
        results
            .min_by_key(|result| match result {
                Some(false) => 0,
                None => 1,
                Some(true) => 2,
            })
            .unwrap_or(Some(true))
    }

    fn join(
        &self,
        kind: JoinKind,
        predicates: &[AppliedPredicate],
        left: &[Row],
        right: &[Row],
    ) -> Result<Vec<Row>, TooManyRows> {
        let mut rows = Vec::new();
        let mut right_matched = vec![false; right.len()];
        for left_row in left {
            let mut matches = Vec::new();
            let mut has_unknown = false;
            for (number, right_row) in right.iter().enumerate() {
                let pair: Row = left_row.iter().zip(right_row).map(|(l, r)| l.or(*r)).collect();
                match self.test(predicates, &pair) {
                    Some(true) => {
                        right_matched[number] = true;
                        matches.push(pair);
                    }
                    Some(false) => {}
                    None => has_unknown = true,
                }
            }
            if kind == JoinKind::Single && matches.len() > 1 {
                return Err(TooManyRows);
            }
            match kind {
                JoinKind::Inner => rows.extend(matches),
                JoinKind::LeftSemi if !matches.is_empty() => rows.push(left_row.clone()),
                JoinKind::LeftAnti if matches.is_empty() => rows.push(left_row.clone()),
                JoinKind::LeftSemi | JoinKind::LeftAnti => {}
                JoinKind::LeftMark => {
                    let mut row = left_row.clone();
                    let mark = if matches.is_empty() { (!has_unknown).then_some(0) } else { Some(1) };
                    row[self.mark_slot(predicates)] = mark;
                    rows.push(row);
                }
                JoinKind::Left | JoinKind::Full | JoinKind::Single if matches.is_empty() => {
                    rows.push(left_row.clone());
                }
                JoinKind::Left | JoinKind::Full | JoinKind::Single => rows.extend(matches),
            }
        }
        if kind == JoinKind::Full {
            rows.extend((0..right.len()).filter(|n| !right_matched[*n]).map(|n| right[n].clone()));
        }
        rows.sort();
        Ok(rows)
    }

    fn mark_slot(&self, predicates: &[AppliedPredicate]) -> Slot {
        let mark = predicates.iter().find_map(|predicate| match predicate {
            AppliedPredicate::Written(id) => self.marks.get(id),
            AppliedPredicate::Implied(..) => None,
        });
        *mark.expect("a mark join has a mark")
    }
}
