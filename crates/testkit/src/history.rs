//! What sessions asked of a database at once and what they heard, and whether snapshot isolation allows it: a
//! checker of histories in the manner of Elle.
//!
//! A history is over *lists*, to which transactions append values by changing a row, so that each list tells
//! the order of its writers; and *items*, rows that are inserted and deleted. No value is ever written twice,
//! so that whoever reads one tells whose write it has seen.
//!
//! ```text
//!   transactions as they were heard ─┬─► what was read is no part of what committed: Aborted, Intermediate, Unborn, Order, Own, Unrepeatable
//!   what is there at the end ────────┼─► what committed and is not there, or twice: Lost, FirstCommitter
//!                                    └─► who must have come before whom ─► a circle: Cycle, Skew
//! ```
//!
//! In a transaction of level [`Level::Snapshot`] everything that is read is of one snapshot; in one of
//! [`Level::ReadCommitted`] that holds of each statement for itself. Snapshots are of all that had been heard
//! to commit when they began (strong snapshot isolation).
//!
//! # Invariants
//! - Moments are numbers of one clock that all sessions share; none comes twice.
//! - Who committed is what was heard; of whoever was not heard of ([`Outcome::Unknown`]), what its writes
//!   show.
//! - A transaction of level read committed that did not commit may have seen nonsense where it had written:
//!   it was going to fail.
//!
//! Source: Kingsbury, Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations", VLDB
//! 2020; Cerone, Gotsman, "Analysing Snapshot Isolation", JACM 2018: a history is allowed if no cycle is
//! without two anti-dependencies side by side.

mod graph;
#[cfg(test)]
mod tests;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use graph::Graph;
use writes::{Own, Writes};

/// A list, or what items are found by.
pub type Key = i64;
/// What is appended or inserted, once and never again.
pub type Value = i64;
/// A tick of the clock that all sessions share.
pub type Moment = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    ReadCommitted,
    Snapshot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Committed,
    RolledBack,
    /// The answer to COMMIT was not heard.
    Unknown,
}

/// What a statement did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    /// A list has a value more, at its end.
    Append {
        key: Key,
        value: Value,
    },
    Insert {
        key: Key,
        value: Value,
    },
    /// `found`: there was such an item to delete.
    Delete {
        key: Key,
        value: Value,
        found: bool,
    },
    Read(Picture),
    Savepoint,
    /// To the last savepoint, which stays.
    RollBackTo,
    /// Forgets the last savepoint.
    Release,
}

/// What one statement has seen; keys that it did not ask for are not in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Picture {
    pub lists: BTreeMap<Key, Vec<Value>>,
    pub items: BTreeMap<Key, BTreeSet<Value>>,
}

/// A statement that was answered without an error.
#[derive(Debug, Clone)]
pub struct Step {
    /// When it was sent.
    pub begun: Moment,
    /// When its answer had been heard.
    pub ended: Moment,
    pub deed: Deed,
}

#[derive(Debug, Clone)]
pub struct Transaction {
    /// For people.
    pub name: String,
    pub level: Level,
    pub steps: Vec<Step>,
    pub outcome: Outcome,
    /// When its outcome had been heard; without a meaning if it was not.
    pub ended: Moment,
}

#[derive(Debug, Clone, Default)]
pub struct History {
    pub transactions: Vec<Transaction>,
    /// What is there when nobody works any more: all lists and all items.
    pub last: Picture,
}

/// What snapshot isolation forbids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A read of what was rolled back.
    Aborted,
    /// A read of what a transaction wrote before it was done, or of a part of what it wrote.
    Intermediate,
    /// A value that nobody wrote, or not there, or that is there twice.
    Unborn,
    /// Lists that are not all beginnings of one.
    Order,
    /// A transaction does not see its own writes, or sees those that it has undone.
    Own,
    /// Two reads of one snapshot differ.
    Unrepeatable,
    /// What committed is not there, or what was deleted is.
    Lost,
    /// Two that changed the same thing have both committed.
    FirstCommitter,
    /// Writers that must have come before one another (G0, G1c).
    Cycle,
    /// The same by way of one who did not see a write, or several that are not side by side (G-single): read
    /// skew, a lost update, a long fork, a snapshot that is older than what had been heard to commit.
    Skew,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anomaly {
    pub kind: Kind,
    pub said: String,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.said)
    }
}

/// All that a history has that it must not have; empty for one that snapshot isolation allows.
pub fn check(history: &History) -> Vec<Anomaly> {
    let mut found = Vec::new();
    let writes = Writes::of(history, &mut found);
    writes.check_last(&mut found);
    let mut graph = Graph::new(&writes);
    for (number, transaction) in history.transactions.iter().enumerate() {
        Reader { writes: &writes, number, transaction, first: Picture::default(), found: &mut found }
            .follow(&mut graph);
    }
    graph.close();
    found.extend(graph.cycle());
    found
}

/// Follows one transaction through its statements.
struct Reader<'a> {
    writes: &'a Writes<'a>,
    number: usize,
    transaction: &'a Transaction,
    /// What others had written when the snapshot was taken, as far as it was read.
    first: Picture,
    found: &'a mut Vec<Anomaly>,
}

impl Reader<'_> {
    fn follow(mut self, graph: &mut Graph) {
        let mut own = Own::default();
        for (at, step) in self.transaction.steps.iter().enumerate() {
            match &step.deed {
                Deed::Read(picture) => {
                    let seen = self.read(picture, &own);
                    graph.saw(self.number, at, &seen);
                }
                Deed::Delete { key, value, found } => {
                    self.delete(*key, *value, *found, &own);
                    own.apply(&step.deed);
                }
                deed => own.apply(deed),
            }
        }
    }

    fn say(&mut self, kind: Kind, said: String) {
        self.found.push(Anomaly { kind, said: format!("{}: {said}", self.transaction.name) });
    }

    fn is_snapshot(&self) -> bool {
        self.transaction.level == Level::Snapshot
    }

    /// It reads on although it is going to fail, of its own writes and what came after them.
    fn is_doomed(&self) -> bool {
        !self.is_snapshot() && !self.writes.has_committed(self.number)
    }

    /// What it has seen of others.
    fn read(&mut self, picture: &Picture, own: &Own) -> Picture {
        let mut seen = Picture::default();
        for (key, list) in &picture.lists {
            if let Some(others) = self.list(*key, list, own) {
                seen.lists.insert(*key, others);
            }
        }
        for (key, items) in &picture.items {
            if let Some(others) = self.items(*key, items, own) {
                seen.items.insert(*key, others);
            }
        }
        seen
    }

    /// The part of a list that others have written, if there is anything to be told from it.
    fn list(&mut self, key: Key, list: &[Value], own: &Own) -> Option<Vec<Value>> {
        let mine = own.appended(key);
        if !mine.is_empty() && self.is_doomed() {
            return None;
        }
        let Some(others) = list.strip_suffix(mine.as_slice()) else {
            self.say(Kind::Own, format!("list {key} is {list:?}, without its own {mine:?} at the end"));
            return None;
        };
        if let Some(undone) = others.iter().find(|value| own.has_written(**value)) {
            self.say(
                Kind::Own,
                format!("list {key} is {list:?}, with its own {undone} that it has undone or not there"),
            );
            return None;
        }
        if let Err((kind, said)) = self.writes.look_at(key, others) {
            self.say(kind, format!("list {key} is {list:?}: {said}"));
            return None;
        }
        if let Some(start) = self.writes.start_of(key, self.number)
            && !mine.is_empty()
            && start != others.len()
        {
            self.say(
                Kind::Order,
                format!("it appended {mine:?} to list {key} behind {others:?}, where it is not at the end"),
            );
        }
        if self.is_snapshot() {
            match self.first.lists.get(&key) {
                Some(first) if first != others => {
                    let said =
                        format!("list {key} was {first:?} for others at first and is {others:?} later");
                    self.say(Kind::Unrepeatable, said);
                }
                Some(_) => {}
                None => drop(self.first.lists.insert(key, others.to_vec())),
            }
        }
        Some(others.to_vec())
    }

    /// The items that others have inserted, and had not deleted, if there is anything to be told from it.
    fn items(&mut self, key: Key, items: &BTreeSet<Value>, own: &Own) -> Option<BTreeSet<Value>> {
        let (inserted, deleted) = (own.inserted(key), own.deleted(key));
        let missing: Vec<_> = inserted.difference(items).collect();
        if !missing.is_empty() {
            self.say(Kind::Own, format!("its own items {missing:?} of {key} are not among {items:?}"));
        }
        let left: Vec<_> = deleted.intersection(items).collect();
        if !left.is_empty() && !self.is_doomed() {
            self.say(Kind::Own, format!("items {left:?} of {key} are there, which it has deleted"));
        }
        let undone: Vec<_> = items.difference(&inserted).filter(|value| own.has_written(**value)).collect();
        if !undone.is_empty() {
            self.say(
                Kind::Own,
                format!("items {undone:?} of {key} are there, whose insertion it has undone"),
            );
        }
        let others: BTreeSet<Value> =
            items.iter().copied().filter(|value| !own.has_written(*value)).collect();
        for value in &others {
            if let Err((kind, said)) = self.writes.look_at_item(key, *value) {
                self.say(kind, format!("item {value} of {key} is there: {said}"));
            }
        }
        // Those that it has deleted itself were there when its snapshot was taken.
        let before: BTreeSet<Value> =
            others.iter().chain(deleted.iter().filter(|value| !own.has_written(**value))).copied().collect();
        if !self.is_snapshot() {
            // Others may have deleted them since.
            return (deleted.is_empty() || !self.is_doomed()).then_some(before);
        }
        match self.first.items.get(&key) {
            Some(first) if *first != before => {
                let said =
                    format!("items of {key} were {first:?} for others at first and are {before:?} later");
                self.say(Kind::Unrepeatable, said);
            }
            Some(_) => {}
            None => drop(self.first.items.insert(key, before.clone())),
        }
        Some(before)
    }

    fn delete(&mut self, key: Key, value: Value, found: bool, own: &Own) {
        let is_mine = own.inserted(key).contains(&value);
        if is_mine && !found {
            self.say(Kind::Own, format!("it did not find its own item {value} of {key} to delete"));
        }
        if found && !is_mine {
            if own.deleted(key).contains(&value) && !self.is_doomed() {
                self.say(Kind::Own, format!("it deleted item {value} of {key} twice"));
            }
            if own.has_written(value) {
                self.say(
                    Kind::Own,
                    format!("it deleted item {value} of {key}, whose insertion it had undone"),
                );
            } else if let Err((kind, said)) = self.writes.look_at_item(key, value) {
                self.say(kind, format!("it deleted item {value} of {key}: {said}"));
            }
        }
        if self.is_snapshot()
            && !is_mine
            && let Some(first) = self.first.items.get(&key)
            && found != (first.contains(&value) && !own.deleted(key).contains(&value))
        {
            let said =
                format!("its snapshot has items {first:?} of {key}, and to delete {value} found {found}");
            self.say(Kind::Unrepeatable, said);
        }
    }
}
