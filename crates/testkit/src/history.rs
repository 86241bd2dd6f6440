//! Checker of concurrent histories for snapshot isolation, in the manner of Elle.
//!
//! A history is over *lists*, to which transactions append values by updating a row, so that each list
//! reveals the order of its writers; and *items*, rows that are inserted and deleted. Every value is written
//! once, so that each read identifies the write it observed.
//!
//! ```text
//!   transactions as observed ─┬─► invalid reads: Aborted, Intermediate, Unborn, Order, Own, Unrepeatable
//!   final state ──────────────┼─► committed writes that are missing or duplicated: Lost, FirstCommitter
//!                             └─► dependency graph ─► a cycle: Cycle, Skew
//! ```
//!
//! All reads of a transaction of level [`Level::Snapshot`] are of one snapshot; at [`Level::ReadCommitted`]
//! that holds per statement. Snapshots contain everything whose commit was acknowledged before they began
//! (strong snapshot isolation).
//!
//! # Invariants
//! - Moments are ticks of one clock shared by all sessions; none occurs twice.
//! - A transaction has committed if that was acknowledged; if the outcome is [`Outcome::Unknown`], its writes
//!   decide.
//! - An uncommitted transaction of level read committed may observe anything where it has written: it was
//!   going to fail.
//!
//! Source: Kingsbury, Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations", VLDB
//! 2020; Cerone, Gotsman, "Analysing Snapshot Isolation", JACM 2018: a history is allowed if every cycle has
//! two adjacent anti-dependencies.

mod graph;
#[cfg(test)]
mod tests;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use graph::Graph;
use writes::{Own, Writes};

/// Key of a list, or of a group of items.
pub type Key = i64;
/// A value appended or inserted, unique in a history.
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
    /// The answer to COMMIT was not received.
    Unknown,
}

/// Effect or result of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Appends a value to a list.
    Append {
        key: Key,
        value: Value,
    },
    Insert {
        key: Key,
        value: Value,
    },
    /// `found`: such an item existed.
    Delete {
        key: Key,
        value: Value,
        found: bool,
    },
    Read(Observation),
    Savepoint,
    /// Rolls back to the last savepoint, which stays.
    RollBackTo,
    /// Releases the last savepoint.
    Release,
}

/// Reads of one statement; keys that it did not query are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observation {
    pub lists: BTreeMap<Key, Vec<Value>>,
    pub items: BTreeMap<Key, BTreeSet<Value>>,
}

/// A statement that was answered without an error.
#[derive(Debug, Clone)]
pub struct Step {
    /// Time of the request.
    pub start: Moment,
    /// Time of the answer.
    pub ended: Moment,
    pub operation: Operation,
}

#[derive(Debug, Clone)]
pub struct Transaction {
    /// Name in messages.
    pub name: String,
    pub level: Level,
    pub steps: Vec<Step>,
    pub outcome: Outcome,
    /// Time of the outcome's acknowledgment; meaningless without one.
    pub ended: Moment,
}

#[derive(Debug, Clone, Default)]
pub struct History {
    pub transactions: Vec<Transaction>,
    /// Final state after all sessions: all lists and all items.
    pub last: Observation,
}

/// Anomalies that snapshot isolation forbids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A read of rolled back writes.
    Aborted,
    /// A read of intermediate or partial writes of a transaction.
    Intermediate,
    /// A value that nobody wrote there, or that occurs twice.
    Unborn,
    /// Lists that are not prefixes of one order.
    Order,
    /// A transaction does not see its own writes, or sees those that it has undone.
    Own,
    /// Two reads of one snapshot differ.
    Unrepeatable,
    /// A committed write is missing, or a deleted item still exists.
    Lost,
    /// Two committed transactions changed the same thing (first committer wins violated).
    FirstCommitter,
    /// A cycle of write and read dependencies (G0, G1c).
    Cycle,
    /// A cycle with one anti-dependency, or several that are not adjacent (G-single): read skew, a lost
    /// update, a long fork, a snapshot older than an acknowledged commit.
    Skew,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anomaly {
    pub kind: Kind,
    pub description: String,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.description)
    }
}

/// All anomalies of a history; empty if snapshot isolation allows it.
pub fn check(history: &History) -> Vec<Anomaly> {
    let mut found = Vec::new();
    let writes = Writes::of(history, &mut found);
    writes.check_last(&mut found);
    let mut graph = Graph::new(&writes);
    for (number, transaction) in history.transactions.iter().enumerate() {
        Reader { writes: &writes, number, transaction, first: Observation::default(), found: &mut found }
            .replay(&mut graph);
    }
    graph.add_time_edges();
    found.extend(graph.cycle());
    found
}

/// Replays one transaction statement by statement.
struct Reader<'a> {
    writes: &'a Writes<'a>,
    number: usize,
    transaction: &'a Transaction,
    /// Writes of others in its snapshot, as far as they were read.
    first: Observation,
    found: &'a mut Vec<Anomaly>,
}

impl Reader<'_> {
    fn replay(mut self, graph: &mut Graph) {
        let mut own = Own::default();
        for (at, step) in self.transaction.steps.iter().enumerate() {
            match &step.operation {
                Operation::Read(observation) => {
                    let seen = self.observe(observation, &own);
                    graph.add_read(self.number, at, &seen);
                }
                Operation::Delete { key, value, found } => {
                    self.delete(*key, *value, *found, &own);
                    own.apply(&step.operation);
                }
                operation => own.apply(operation),
            }
        }
    }

    fn report(&mut self, kind: Kind, said: String) {
        self.found.push(Anomaly { kind, description: format!("{}: {said}", self.transaction.name) });
    }

    fn is_snapshot(&self) -> bool {
        self.transaction.level == Level::Snapshot
    }

    /// Whether it is a read committed transaction that will fail, and may observe anything.
    fn will_fail(&self) -> bool {
        !self.is_snapshot() && !self.writes.has_committed(self.number)
    }

    /// Checks a read, and returns the observed writes of others.
    fn observe(&mut self, observation: &Observation, own: &Own) -> Observation {
        let mut seen = Observation::default();
        for (key, list) in &observation.lists {
            if let Some(others) = self.list(*key, list, own) {
                seen.lists.insert(*key, others);
            }
        }
        for (key, items) in &observation.items {
            if let Some(others) = self.items(*key, items, own) {
                seen.items.insert(*key, others);
            }
        }
        seen
    }

    /// The part of a list that others have written; `None` if nothing follows from it.
    fn list(&mut self, key: Key, list: &[Value], own: &Own) -> Option<Vec<Value>> {
        let mine = own.appended_values(key);
        if !mine.is_empty() && self.will_fail() {
            return None;
        }
        let Some(others) = list.strip_suffix(mine.as_slice()) else {
            self.report(Kind::Own, format!("list {key} is {list:?}, without its own {mine:?} at the end"));
            return None;
        };
        if let Some(undone) = others.iter().find(|value| own.has_written(**value)) {
            self.report(
                Kind::Own,
                format!("list {key} is {list:?}, with its own {undone} that it has undone or not there"),
            );
            return None;
        }
        if let Err((kind, said)) = self.writes.check_list(key, others) {
            self.report(kind, format!("list {key} is {list:?}: {said}"));
            return None;
        }
        if let Some(start) = self.writes.start_of(key, self.number)
            && !mine.is_empty()
            && start != others.len()
        {
            self.report(
                Kind::Order,
                format!("it appended {mine:?} to list {key} behind {others:?}, where it is not at the end"),
            );
        }
        if self.is_snapshot() {
            match self.first.lists.get(&key) {
                Some(first) if first != others => {
                    let said =
                        format!("list {key} was {first:?} for others at first and is {others:?} later");
                    self.report(Kind::Unrepeatable, said);
                }
                Some(_) => {}
                None => drop(self.first.lists.insert(key, others.to_vec())),
            }
        }
        Some(others.to_vec())
    }

    /// The items that others have inserted and not deleted; `None` if nothing follows from them.
    fn items(&mut self, key: Key, items: &BTreeSet<Value>, own: &Own) -> Option<BTreeSet<Value>> {
        let (inserted, deleted) = (own.inserted_items(key), own.deleted_items(key));
        let missing: Vec<_> = inserted.difference(items).collect();
        if !missing.is_empty() {
            self.report(Kind::Own, format!("its own items {missing:?} of {key} are not among {items:?}"));
        }
        let left: Vec<_> = deleted.intersection(items).collect();
        if !left.is_empty() && !self.will_fail() {
            self.report(Kind::Own, format!("items {left:?} of {key} are there, which it has deleted"));
        }
        let undone: Vec<_> = items.difference(&inserted).filter(|value| own.has_written(**value)).collect();
        if !undone.is_empty() {
            self.report(
                Kind::Own,
                format!("items {undone:?} of {key} are there, whose insertion it has undone"),
            );
        }
        let others: BTreeSet<Value> =
            items.iter().copied().filter(|value| !own.has_written(*value)).collect();
        for value in &others {
            if let Err((kind, said)) = self.writes.check_item(key, *value) {
                self.report(kind, format!("item {value} of {key} is there: {said}"));
            }
        }
        // Items that it has deleted itself existed in its snapshot.
        let before: BTreeSet<Value> =
            others.iter().chain(deleted.iter().filter(|value| !own.has_written(**value))).copied().collect();
        if !self.is_snapshot() {
            // Others may have deleted them since.
            return (deleted.is_empty() || !self.will_fail()).then_some(before);
        }
        match self.first.items.get(&key) {
            Some(first) if *first != before => {
                let said =
                    format!("items of {key} were {first:?} for others at first and are {before:?} later");
                self.report(Kind::Unrepeatable, said);
            }
            Some(_) => {}
            None => drop(self.first.items.insert(key, before.clone())),
        }
        Some(before)
    }

    fn delete(&mut self, key: Key, value: Value, found: bool, own: &Own) {
        let is_mine = own.inserted_items(key).contains(&value);
        if is_mine && !found {
            self.report(Kind::Own, format!("it did not find its own item {value} of {key} to delete"));
        }
        if found && !is_mine {
            if own.deleted_items(key).contains(&value) && !self.will_fail() {
                self.report(Kind::Own, format!("it deleted item {value} of {key} twice"));
            }
            if own.has_written(value) {
                self.report(
                    Kind::Own,
                    format!("it deleted item {value} of {key}, whose insertion it had undone"),
                );
            } else if let Err((kind, said)) = self.writes.check_item(key, value) {
                self.report(kind, format!("it deleted item {value} of {key}: {said}"));
            }
        }
        if self.is_snapshot()
            && !is_mine
            && let Some(first) = self.first.items.get(&key)
            && found != (first.contains(&value) && !own.deleted_items(key).contains(&value))
        {
            let said =
                format!("its snapshot has items {first:?} of {key}, and to delete {value} found {found}");
            self.report(Kind::Unrepeatable, said);
        }
    }
}
