//! Writes of a history: their transactions, outcomes, and order.

use std::collections::{BTreeMap, BTreeSet};

use super::{Anomaly, History, Key, Kind, Operation, Outcome, Value};

/// Index of a transaction in the history.
pub(super) type Number = usize;

/// The only write of a value.
#[derive(Debug, Clone, Copy)]
struct Write {
    by: Number,
    key: Key,
    is_item: bool,
    /// The transaction itself has rolled it back, to a savepoint.
    is_undone: bool,
}

/// Contiguous range of one transaction's values in one list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub by: Number,
    pub start: usize,
    pub end: usize,
}

/// Lifetime of an item.
#[derive(Debug, Clone, Copy)]
pub(super) struct Life {
    pub key: Key,
    pub inserted: Number,
    pub deleted: Option<Number>,
    /// A transaction with unknown outcome may have deleted it.
    pub is_uncertain: bool,
}

pub(super) struct Writes<'a> {
    pub history: &'a History,
    committed: Vec<bool>,
    writes: BTreeMap<Value, Write>,
    /// By transaction: its writes at its end.
    owns: Vec<Own>,
    runs: BTreeMap<Key, Vec<Run>>,
    pub items: BTreeMap<Value, Life>,
}

impl<'a> Writes<'a> {
    pub fn of(history: &'a History, found: &mut Vec<Anomaly>) -> Self {
        let mut writes = BTreeMap::new();
        let mut owns = Vec::new();
        for (by, transaction) in history.transactions.iter().enumerate() {
            let mut own = Own::default();
            for step in &transaction.steps {
                own.apply(&step.operation);
            }
            for step in &transaction.steps {
                let (key, value, is_item) = match step.operation {
                    Operation::Append { key, value } => (key, value, false),
                    Operation::Insert { key, value } => (key, value, true),
                    _ => continue,
                };
                let stays =
                    own.state.appended.contains(&(key, value)) || own.state.inserted.contains(&(key, value));
                let is_undone = !stays && !own.state.deleted.contains(&(key, value));
                let twice = writes.insert(value, Write { by, key, is_item, is_undone });
                assert!(twice.is_none(), "value {value} is written twice: the history tells nothing");
            }
            owns.push(own);
        }
        let committed = vec![false; history.transactions.len()];
        let mut all =
            Self { history, committed, writes, owns, runs: BTreeMap::new(), items: BTreeMap::new() };
        all.resolve_outcomes();
        all.order_lists(found);
        all.live_items(found);
        all
    }

    fn resolve_outcomes(&mut self) {
        let history = self.history;
        let last = &history.last;
        // They were found, so they must have existed.
        let deleted: BTreeSet<(Key, Value)> = (0..self.owns.len())
            .filter(|number| self.outcome(*number) != Outcome::RolledBack)
            .flat_map(|number| self.owns[number].state.deleted.iter().copied())
            .collect();
        for number in 0..self.owns.len() {
            let state = &self.owns[number].state;
            self.committed[number] = match self.outcome(number) {
                Outcome::Committed => true,
                Outcome::RolledBack => false,
                Outcome::Unknown => {
                    let in_list = |(key, value): &(Key, Value)| {
                        last.lists.get(key).is_some_and(|list| list.contains(value))
                    };
                    let is_there = |pair: &(Key, Value)| {
                        last.items.get(&pair.0).is_some_and(|items| items.contains(&pair.1))
                            || deleted.contains(pair)
                    };
                    state.appended.iter().any(in_list) || state.inserted.iter().any(is_there)
                }
            };
        }
    }

    fn outcome(&self, number: Number) -> Outcome {
        self.history.transactions[number].outcome
    }

    fn name(&self, number: Number) -> &str {
        &self.history.transactions[number].name
    }

    pub fn has_committed(&self, number: Number) -> bool {
        self.committed[number]
    }

    /// Computes the runs of the final lists.
    fn order_lists(&mut self, found: &mut Vec<Anomaly>) {
        let history = self.history;
        for (key, list) in &history.last.lists {
            let mut runs: Vec<Run> = Vec::new();
            for (at, value) in list.iter().enumerate() {
                if list[..at].contains(value) {
                    found.push(anomaly(Kind::Unborn, format!("{value} is in list {key} twice: {list:?}")));
                }
                match self.source(*key, *value, false) {
                    Ok(by) => match runs.last_mut() {
                        Some(run) if run.by == by => run.end = at + 1,
                        _ => runs.push(Run { by, start: at, end: at + 1 }),
                    },
                    Err((kind, said)) => {
                        found.push(anomaly(kind, format!("at the end list {key} is {list:?}: {said}")));
                    }
                }
            }
            let mut seen = BTreeSet::new();
            for run in &runs {
                let name = self.name(run.by);
                if !seen.insert(run.by) {
                    let said =
                        format!("what {name} appended to list {key} has other values between: {list:?}");
                    found.push(anomaly(Kind::Order, said));
                }
                let mine = self.owns[run.by].appended_values(*key);
                if list[run.start..run.end] != mine {
                    let said =
                        format!("{name} appended {mine:?} to list {key}, which is {list:?} at the end");
                    found.push(anomaly(Kind::Order, said));
                }
            }
            self.runs.insert(*key, runs);
        }
    }

    fn live_items(&mut self, found: &mut Vec<Anomaly>) {
        for (value, write) in
            self.writes.iter().filter(|(_, write)| write.is_item && self.committed[write.by])
        {
            if !write.is_undone {
                let life = Life { key: write.key, inserted: write.by, deleted: None, is_uncertain: false };
                self.items.insert(*value, life);
            }
        }
        let transactions = &self.history.transactions;
        for (number, own) in self.owns.iter().enumerate() {
            for (_, value) in &own.state.deleted {
                let Some(life) = self.items.get_mut(value) else { continue };
                match (self.committed[number], life.deleted) {
                    (true, None) => life.deleted = Some(number),
                    (true, Some(other)) => {
                        let (first, second) = (&transactions[other].name, &transactions[number].name);
                        let said =
                            format!("{first} and {second} have both deleted item {value} of {}", life.key);
                        found.push(anomaly(Kind::FirstCommitter, said));
                    }
                    (false, _) => {
                        life.is_uncertain |= transactions[number].outcome == Outcome::Unknown;
                    }
                }
            }
        }
    }

    /// Checks that the final state contains all committed writes, and nothing else.
    pub fn check_last(&self, found: &mut Vec<Anomaly>) {
        let last = &self.history.last;
        for number in (0..self.owns.len()).filter(|number| self.committed[*number]) {
            for (key, value) in &self.owns[number].state.appended {
                if !last.lists.get(key).is_some_and(|list| list.contains(value)) {
                    let said = format!("{} appended {value} to list {key} and committed", self.name(number));
                    found.push(anomaly(Kind::Lost, said));
                }
            }
        }
        for (value, life) in &self.items {
            let is_there = last.items.get(&life.key).is_some_and(|items| items.contains(value));
            match life.deleted {
                Some(by) if is_there => {
                    let said =
                        format!("{} deleted item {value} of {}, which is there", self.name(by), life.key);
                    found.push(anomaly(Kind::Lost, said));
                }
                None if !is_there && !life.is_uncertain => {
                    let said = format!("item {value} of {} is gone, and nobody has deleted it", life.key);
                    found.push(anomaly(Kind::Lost, said));
                }
                _ => {}
            }
        }
        for (key, items) in &last.items {
            for value in items {
                if let Err((kind, said)) = self.check_item(*key, *value) {
                    found.push(anomaly(kind, format!("at the end item {value} of {key} is there: {said}")));
                }
            }
        }
    }

    /// The transaction that wrote a value seen by others.
    fn source(&self, key: Key, value: Value, is_item: bool) -> Result<Number, (Kind, String)> {
        let Some(write) =
            self.writes.get(&value).filter(|write| write.key == key && write.is_item == is_item)
        else {
            return Err((Kind::Unborn, format!("nobody wrote {value} there")));
        };
        let name = self.name(write.by);
        match (self.committed[write.by], write.is_undone) {
            (false, _) => Err((Kind::Aborted, format!("{name}, which wrote {value}, has not committed"))),
            (true, true) => Err((Kind::Aborted, format!("{name} has undone {value}"))),
            (true, false) => Ok(write.by),
        }
    }

    /// Checks whether a list may be observed in this state, given the committed writes.
    pub fn check_list(&self, key: Key, list: &[Value]) -> Result<(), (Kind, String)> {
        for value in list {
            self.source(key, *value, false)?;
        }
        let last = self.history.last.lists.get(&key).map_or(&[][..], Vec::as_slice);
        if !last.starts_with(list) {
            return Err((Kind::Order, format!("at the end it is {last:?}")));
        }
        let run = self.runs(key).iter().find(|run| run.start < list.len() && list.len() < run.end);
        run.map_or(Ok(()), |run| {
            Err((Kind::Intermediate, format!("{} appended more to it", self.name(run.by))))
        })
    }

    /// Checks whether an item may be observed, given the committed writes.
    pub fn check_item(&self, key: Key, value: Value) -> Result<(), (Kind, String)> {
        let by = self.source(key, value, true)?;
        match self.owns[by].state.deleted.contains(&(key, value)) {
            true => Err((Kind::Intermediate, format!("{} has deleted it again", self.name(by)))),
            false => Ok(()),
        }
    }

    /// Appends to a list, by transaction.
    pub fn runs(&self, key: Key) -> &[Run] {
        self.runs.get(&key).map_or(&[], Vec::as_slice)
    }

    pub fn all_runs(&self) -> impl Iterator<Item = (Key, &[Run])> {
        self.runs.iter().map(|(key, runs)| (*key, runs.as_slice()))
    }

    /// Start position of a transaction's values in the final list.
    pub fn start_of(&self, key: Key, number: Number) -> Option<usize> {
        self.runs(key).iter().find(|run| run.by == number).map(|run| run.start)
    }
}

fn anomaly(kind: Kind, said: String) -> Anomaly {
    Anomaly { kind, description: said }
}

/// A transaction's own writes, up to some statement.
#[derive(Debug, Clone, Default)]
pub(super) struct Own {
    state: Written,
    savepoints: Vec<Written>,
    /// All values written, undone or not.
    ever: BTreeSet<Value>,
}

#[derive(Debug, Clone, Default)]
struct Written {
    appended: Vec<(Key, Value)>,
    inserted: BTreeSet<(Key, Value)>,
    deleted: BTreeSet<(Key, Value)>,
}

impl Own {
    pub fn apply(&mut self, operation: &Operation) {
        match *operation {
            Operation::Append { key, value } => {
                self.state.appended.push((key, value));
                self.ever.insert(value);
            }
            Operation::Insert { key, value } => {
                self.state.inserted.insert((key, value));
                self.ever.insert(value);
            }
            Operation::Delete { key, value, found } => {
                if found {
                    self.state.inserted.remove(&(key, value));
                    self.state.deleted.insert((key, value));
                }
            }
            Operation::Savepoint => self.savepoints.push(self.state.clone()),
            Operation::RollBackTo => self.state = self.savepoints.last().cloned().unwrap_or_default(),
            Operation::Release => drop(self.savepoints.pop()),
            Operation::Read(_) => {}
        }
    }

    /// Values appended to a list, in order.
    pub fn appended_values(&self, key: Key) -> Vec<Value> {
        self.state.appended.iter().filter(|(of, _)| *of == key).map(|(_, value)| *value).collect()
    }

    /// Items inserted and not deleted again.
    pub fn inserted_items(&self, key: Key) -> BTreeSet<Value> {
        of_key(&self.state.inserted, key)
    }

    /// Deleted items, its own and those of others.
    pub fn deleted_items(&self, key: Key) -> BTreeSet<Value> {
        of_key(&self.state.deleted, key)
    }

    /// Whether it has written this value at any time.
    pub fn has_written(&self, value: Value) -> bool {
        self.ever.contains(&value)
    }
}

fn of_key(pairs: &BTreeSet<(Key, Value)>, key: Key) -> BTreeSet<Value> {
    pairs.range((key, Value::MIN)..=(key, Value::MAX)).map(|(_, value)| *value).collect()
}
