//! Valid histories, and anomalous ones that the checker must detect.

use super::*;

/// Builder of a history, one event after another.
#[derive(Default)]
struct HistoryBuilder {
    now: Moment,
    history: History,
}

use Level::{ReadCommitted as RC, Snapshot as SI};

impl HistoryBuilder {
    fn tick(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    fn begin(&mut self, level: Level) -> usize {
        let number = self.history.transactions.len();
        self.history.transactions.push(Transaction {
            name: format!("T{number}"),
            level,
            steps: Vec::new(),
            outcome: Outcome::RolledBack,
            ended: 0,
        });
        number
    }

    fn step(&mut self, number: usize, operation: Operation) {
        let (start, ended) = (self.tick(), self.tick());
        self.history.transactions[number].steps.push(Step { start, ended, operation });
    }

    fn append(&mut self, number: usize, key: Key, value: Value) {
        self.step(number, Operation::Append { key, value });
    }

    fn insert(&mut self, number: usize, key: Key, value: Value) {
        self.step(number, Operation::Insert { key, value });
    }

    fn delete(&mut self, number: usize, key: Key, value: Value, found: bool) {
        self.step(number, Operation::Delete { key, value, found });
    }

    fn read<const N: usize>(&mut self, number: usize, lists: [(Key, &[Value]); N]) {
        let lists = lists.into_iter().map(|(key, list)| (key, list.to_vec())).collect();
        self.step(number, Operation::Read(Observation { lists, items: BTreeMap::new() }));
    }

    fn read_items<const N: usize>(&mut self, number: usize, items: [(Key, &[Value]); N]) {
        let items = items.into_iter().map(|(key, items)| (key, items.iter().copied().collect())).collect();
        self.step(number, Operation::Read(Observation { lists: BTreeMap::new(), items }));
    }

    fn end(&mut self, number: usize, outcome: Outcome) {
        let ended = self.tick();
        let transaction = &mut self.history.transactions[number];
        (transaction.outcome, transaction.ended) = (outcome, ended);
    }

    fn commit(&mut self, number: usize) {
        self.end(number, Outcome::Committed);
    }

    /// A transaction with only this append.
    fn appends(&mut self, key: Key, value: Value) -> usize {
        let number = self.begin(SI);
        self.append(number, key, value);
        self.commit(number);
        number
    }

    fn inserts(&mut self, key: Key, value: Value) -> usize {
        let number = self.begin(SI);
        self.insert(number, key, value);
        self.commit(number);
        number
    }

    fn kinds<const N: usize, const M: usize>(
        mut self,
        lists: [(Key, &[Value]); N],
        items: [(Key, &[Value]); M],
    ) -> BTreeSet<Kind> {
        self.history.last.lists = lists.into_iter().map(|(key, list)| (key, list.to_vec())).collect();
        self.history.last.items =
            items.into_iter().map(|(key, items)| (key, items.iter().copied().collect())).collect();
        let found = check(&self.history);
        for anomaly in &found {
            println!("{anomaly}");
        }
        found.into_iter().map(|anomaly| anomaly.kind).collect()
    }
}

fn kinds<const N: usize>(kinds: [Kind; N]) -> BTreeSet<Kind> {
    kinds.into()
}

#[test]
fn snapshot_isolation_allows_valid_histories() {
    let mut history = HistoryBuilder::default();
    let (a, b) = (history.begin(SI), history.begin(SI));
    // Write skew.
    history.read(a, [(1, &[]), (2, &[])]);
    history.read(b, [(1, &[]), (2, &[])]);
    history.append(a, 1, 10);
    history.append(b, 2, 20);
    history.read(a, [(1, &[10]), (2, &[])]);
    history.commit(a);
    history.read(b, [(1, &[]), (2, &[20])]);
    history.commit(b);
    // A rolled back transaction with valid reads; savepoints; two values in one list.
    let c = history.begin(SI);
    history.append(c, 1, 11);
    history.step(c, Operation::Savepoint);
    history.append(c, 1, 12);
    history.insert(c, 7, 70);
    history.step(c, Operation::RollBackTo);
    history.append(c, 1, 13);
    history.read(c, [(1, &[10, 11, 13])]);
    history.read_items(c, [(7, &[])]);
    history.commit(c);
    let d = history.begin(SI);
    history.read(d, [(1, &[10, 11, 13]), (2, &[20])]);
    history.append(d, 2, 21);
    history.read(d, [(2, &[20, 21])]);
    history.end(d, Outcome::RolledBack);
    assert_eq!(history.kinds([(1, &[10, 11, 13]), (2, &[20])], [(7, &[])]), kinds([]));
}

#[test]
fn read_committed_statements_have_own_snapshots() {
    let mut history = HistoryBuilder::default();
    let a = history.begin(RC);
    history.read(a, [(1, &[]), (2, &[])]);
    history.appends(1, 10);
    history.read(a, [(1, &[10]), (2, &[])]);
    history.append(a, 2, 20);
    let b = history.begin(RC);
    history.read(b, [(1, &[10]), (2, &[])]);
    history.commit(a);
    history.read(b, [(1, &[10]), (2, &[20])]);
    history.append(b, 2, 21);
    history.commit(b);
    // It will fail, as others wrote where it has written, and may observe anything there.
    let c = history.begin(RC);
    history.append(c, 2, 22);
    history.appends(2, 23);
    history.read(c, [(2, &[20, 21, 22, 20, 21, 23])]);
    history.end(c, Outcome::RolledBack);
    assert_eq!(history.kinds([(1, &[10]), (2, &[20, 21, 23])], []), kinds([]));
}

#[test]
fn items_are_inserted_and_deleted() {
    let mut history = HistoryBuilder::default();
    history.inserts(1, 10);
    let (a, b) = (history.begin(SI), history.begin(SI));
    history.read_items(a, [(1, &[10])]);
    history.delete(b, 1, 10, true);
    history.insert(b, 1, 11);
    history.read_items(b, [(1, &[11])]);
    history.delete(b, 1, 11, true);
    history.read_items(b, [(1, &[])]);
    history.commit(b);
    history.read_items(a, [(1, &[10])]);
    history.insert(a, 1, 12);
    history.read_items(a, [(1, &[10, 12])]);
    history.commit(a);
    let c = history.begin(RC);
    history.read_items(c, [(1, &[12])]);
    history.delete(c, 1, 10, false);
    history.delete(c, 1, 12, true);
    history.read_items(c, [(1, &[])]);
    history.end(c, Outcome::RolledBack);
    assert_eq!(history.kinds([], [(1, &[12])]), kinds([]));
}

#[test]
fn unknown_outcomes_are_inferred_from_writes() {
    let mut history = HistoryBuilder::default();
    let (a, b) = (history.begin(SI), history.begin(SI));
    history.append(a, 1, 10);
    history.append(b, 2, 20);
    history.end(a, Outcome::Unknown);
    history.end(b, Outcome::Unknown);
    let c = history.begin(SI);
    // The commit may take effect after the request.
    history.read(c, [(1, &[]), (2, &[])]);
    history.commit(c);
    let d = history.begin(SI);
    history.read(d, [(1, &[10]), (2, &[])]);
    history.commit(d);
    assert_eq!(history.kinds([(1, &[10]), (2, &[])], []), kinds([]));
}

#[test]
fn deleted_items_existed_before() {
    let mut history = HistoryBuilder::default();
    let (a, b) = (history.begin(SI), history.begin(RC));
    history.insert(a, 1, 10);
    history.end(a, Outcome::Unknown);
    history.read_items(b, [(1, &[10])]);
    history.delete(b, 1, 10, true);
    history.end(b, Outcome::Unknown);
    let c = history.begin(SI);
    history.read_items(c, [(1, &[])]);
    history.commit(c);
    assert_eq!(history.kinds([], [(1, &[])]), kinds([]));
}

#[test]
fn aborted_reads_are_detected() {
    for level in [RC, SI] {
        let mut history = HistoryBuilder::default();
        let (a, b) = (history.begin(level), history.begin(level));
        history.append(a, 1, 10);
        history.insert(a, 2, 20);
        history.read(b, [(1, &[10])]);
        history.commit(b);
        history.end(a, Outcome::RolledBack);
        assert_eq!(history.kinds([(1, &[])], []), kinds([Kind::Aborted]));
    }
    let mut history = HistoryBuilder::default();
    let (a, b) = (history.begin(SI), history.begin(RC));
    history.insert(a, 2, 20);
    history.read_items(b, [(2, &[20])]);
    history.commit(b);
    history.end(a, Outcome::RolledBack);
    assert_eq!(history.kinds([], [(2, &[])]), kinds([Kind::Aborted]));
    // The final state contains it.
    let mut history = HistoryBuilder::default();
    let a = history.begin(SI);
    history.append(a, 1, 10);
    history.end(a, Outcome::RolledBack);
    assert_eq!(history.kinds([(1, &[10])], []), kinds([Kind::Aborted]));
    // Rolled back to a savepoint.
    let mut history = HistoryBuilder::default();
    let a = history.begin(SI);
    history.step(a, Operation::Savepoint);
    history.insert(a, 1, 10);
    history.step(a, Operation::RollBackTo);
    history.commit(a);
    assert_eq!(history.kinds([], [(1, &[10])]), kinds([Kind::Aborted]));
}

#[test]
fn intermediate_reads_are_detected() {
    let mut history = HistoryBuilder::default();
    let (a, b) = (history.begin(SI), history.begin(RC));
    history.append(a, 1, 10);
    history.read(b, [(1, &[10])]);
    history.append(a, 1, 11);
    history.commit(a);
    history.commit(b);
    assert_eq!(history.kinds([(1, &[10, 11])], []), kinds([Kind::Intermediate]));
    let mut history = HistoryBuilder::default();
    let (a, b) = (history.begin(SI), history.begin(RC));
    history.insert(a, 1, 10);
    history.read_items(b, [(1, &[10])]);
    history.delete(a, 1, 10, true);
    history.commit(a);
    history.commit(b);
    assert_eq!(history.kinds([], [(1, &[])]), kinds([Kind::Intermediate]));
}

#[test]
fn values_without_a_writer_are_detected() {
    let mut history = HistoryBuilder::default();
    history.appends(1, 10);
    assert_eq!(history.kinds([(1, &[10, 99])], [(1, &[98])]), kinds([Kind::Unborn]));
    let mut history = HistoryBuilder::default();
    history.appends(1, 10);
    assert!(history.kinds([(1, &[10, 10])], []).contains(&Kind::Unborn));
}

#[test]
fn incompatible_orders_are_detected() {
    let mut history = HistoryBuilder::default();
    let (a, b) = (history.begin(RC), history.begin(RC));
    history.appends(1, 10);
    history.appends(1, 11);
    history.read(a, [(1, &[10, 11])]);
    history.read(b, [(1, &[11])]);
    history.commit(a);
    history.commit(b);
    assert_eq!(history.kinds([(1, &[10, 11])], []), kinds([Kind::Order]));
    // Another transaction's value between two appends of one transaction.
    let mut history = HistoryBuilder::default();
    let a = history.begin(RC);
    history.append(a, 1, 10);
    history.append(a, 1, 12);
    let b = history.begin(RC);
    history.append(b, 1, 11);
    history.commit(a);
    history.commit(b);
    assert!(history.kinds([(1, &[10, 11, 12])], []).contains(&Kind::Order));
    // Its own read differs from the final order.
    let mut history = HistoryBuilder::default();
    let a = history.begin(RC);
    history.append(a, 1, 12);
    history.read(a, [(1, &[12])]);
    let b = history.begin(RC);
    history.append(b, 1, 11);
    history.commit(b);
    history.commit(a);
    assert!(history.kinds([(1, &[11, 12])], []).contains(&Kind::Order));
}

#[test]
fn missing_own_writes_are_detected() {
    let mut history = HistoryBuilder::default();
    let a = history.begin(SI);
    history.append(a, 1, 10);
    history.read(a, [(1, &[])]);
    history.commit(a);
    assert_eq!(history.kinds([(1, &[10])], []), kinds([Kind::Own]));
    // Values that it has undone.
    let mut history = HistoryBuilder::default();
    let a = history.begin(SI);
    history.step(a, Operation::Savepoint);
    history.append(a, 1, 10);
    history.insert(a, 1, 11);
    history.step(a, Operation::RollBackTo);
    history.read(a, [(1, &[10])]);
    history.read_items(a, [(1, &[11])]);
    history.commit(a);
    assert_eq!(history.kinds([(1, &[])], [(1, &[])]), kinds([Kind::Own]));
    // Items.
    let mut history = HistoryBuilder::default();
    history.inserts(1, 9);
    let a = history.begin(SI);
    history.insert(a, 1, 10);
    history.delete(a, 1, 9, true);
    history.read_items(a, [(1, &[9])]);
    history.commit(a);
    assert_eq!(history.kinds([], [(1, &[10])]), kinds([Kind::Own]));
    let mut history = HistoryBuilder::default();
    let a = history.begin(SI);
    history.insert(a, 1, 10);
    history.delete(a, 1, 10, false);
    history.commit(a);
    assert_eq!(history.kinds([], [(1, &[10])]), kinds([Kind::Own]));
}

#[test]
fn non_repeatable_reads_are_detected() {
    let mut history = HistoryBuilder::default();
    let a = history.begin(SI);
    history.read(a, [(1, &[])]);
    history.appends(1, 10);
    history.read(a, [(1, &[10])]);
    history.commit(a);
    assert!(history.kinds([(1, &[10])], []).contains(&Kind::Unrepeatable));
    let mut history = HistoryBuilder::default();
    let a = history.begin(SI);
    history.read_items(a, [(1, &[])]);
    history.inserts(1, 10);
    history.delete(a, 1, 10, true);
    history.end(a, Outcome::RolledBack);
    assert!(history.kinds([], [(1, &[10])]).contains(&Kind::Unrepeatable));
}

#[test]
fn lost_commits_are_detected() {
    let mut history = HistoryBuilder::default();
    history.appends(1, 10);
    history.inserts(1, 20);
    assert_eq!(history.kinds([(1, &[])], [(1, &[])]), kinds([Kind::Lost]));
    let mut history = HistoryBuilder::default();
    history.inserts(1, 20);
    let a = history.begin(SI);
    history.delete(a, 1, 20, true);
    history.commit(a);
    assert_eq!(history.kinds([], [(1, &[20])]), kinds([Kind::Lost]));
}

#[test]
fn double_deletes_are_detected() {
    for level in [RC, SI] {
        let mut history = HistoryBuilder::default();
        history.inserts(1, 10);
        let (a, b) = (history.begin(level), history.begin(level));
        history.delete(a, 1, 10, true);
        history.delete(b, 1, 10, true);
        history.commit(a);
        history.commit(b);
        assert!(history.kinds([], [(1, &[])]).contains(&Kind::FirstCommitter));
    }
}

#[test]
fn lost_updates_are_detected() {
    // A lost update: both read the same state and committed; the final state is complete.
    let mut history = HistoryBuilder::default();
    let (a, b) = (history.begin(SI), history.begin(SI));
    history.read(a, [(1, &[])]);
    history.read(b, [(1, &[])]);
    history.append(a, 1, 10);
    history.append(b, 1, 11);
    history.commit(a);
    history.commit(b);
    assert_eq!(history.kinds([(1, &[10, 11])], []), kinds([Kind::Skew]));
}

#[test]
fn read_skew_is_detected() {
    // Also in one statement.
    for (level, in_one) in [(SI, false), (SI, true), (RC, true)] {
        let mut history = HistoryBuilder::default();
        let (reader, writer) = (history.begin(level), history.begin(RC));
        if !in_one {
            history.read(reader, [(1, &[])]);
        }
        history.append(writer, 1, 10);
        history.append(writer, 2, 20);
        history.commit(writer);
        match in_one {
            true => history.read(reader, [(1, &[]), (2, &[20])]),
            false => history.read(reader, [(2, &[20])]),
        }
        history.commit(reader);
        assert_eq!(history.kinds([(1, &[10]), (2, &[20])], []), kinds([Kind::Skew]), "{level:?} {in_one}");
    }
    // Items: one inserted too early, and one not deleted.
    let mut history = HistoryBuilder::default();
    history.inserts(1, 10);
    let (reader, writer) = (history.begin(SI), history.begin(SI));
    history.delete(writer, 1, 10, true);
    history.insert(writer, 2, 20);
    history.commit(writer);
    history.read_items(reader, [(1, &[10]), (2, &[20])]);
    history.commit(reader);
    assert_eq!(history.kinds([], [(1, &[]), (2, &[20])]), kinds([Kind::Skew]));
}

#[test]
fn long_forks_are_detected() {
    let mut history = HistoryBuilder::default();
    let (a, b, x, y) = (history.begin(SI), history.begin(SI), history.begin(SI), history.begin(SI));
    history.append(x, 1, 10);
    history.append(y, 2, 20);
    history.read(a, [(1, &[10]), (2, &[])]);
    history.read(b, [(1, &[]), (2, &[20])]);
    for number in [a, b, x, y] {
        history.commit(number);
    }
    assert_eq!(history.kinds([(1, &[10]), (2, &[20])], []), kinds([Kind::Skew]));
}

#[test]
fn snapshots_that_go_back_are_detected() {
    for level in [RC, SI] {
        let mut history = HistoryBuilder::default();
        history.appends(1, 10);
        let a = history.begin(level);
        history.read(a, [(1, &[])]);
        history.commit(a);
        assert_eq!(history.kinds([(1, &[10])], []), kinds([Kind::Skew]), "{level:?}");
        let mut history = HistoryBuilder::default();
        history.inserts(1, 10);
        let a = history.begin(level);
        history.read_items(a, [(1, &[])]);
        history.commit(a);
        assert_eq!(history.kinds([], [(1, &[10])]), kinds([Kind::Skew]), "{level:?}");
        // A deleted item reappears.
        let mut history = HistoryBuilder::default();
        history.inserts(1, 10);
        let a = history.begin(SI);
        history.delete(a, 1, 10, true);
        history.commit(a);
        let b = history.begin(level);
        history.read_items(b, [(1, &[10])]);
        history.commit(b);
        assert_eq!(history.kinds([], [(1, &[])]), kinds([Kind::Skew]), "{level:?}");
    }
    // Two reads of one transaction, of a write whose commit was not acknowledged.
    let mut history = HistoryBuilder::default();
    let (a, x) = (history.begin(RC), history.begin(SI));
    history.append(x, 1, 10);
    history.read(a, [(1, &[10])]);
    history.read(a, [(1, &[])]);
    history.commit(a);
    history.commit(x);
    assert_eq!(history.kinds([(1, &[10])], []), kinds([Kind::Skew]));
}

#[test]
fn write_and_read_cycles_are_detected() {
    // G0: the order of two writers differs from list to list.
    let mut history = HistoryBuilder::default();
    let (a, b) = (history.begin(RC), history.begin(RC));
    history.append(a, 1, 10);
    history.append(b, 1, 11);
    history.append(b, 2, 20);
    history.append(a, 2, 21);
    history.commit(a);
    history.commit(b);
    assert_eq!(history.kinds([(1, &[10, 11]), (2, &[20, 21])], []), kinds([Kind::Cycle]));
    // G1c: each has read the other's write.
    let mut history = HistoryBuilder::default();
    let (a, b) = (history.begin(SI), history.begin(SI));
    history.append(a, 1, 10);
    history.append(b, 2, 20);
    history.read(a, [(2, &[20])]);
    history.read(b, [(1, &[10])]);
    history.commit(a);
    history.commit(b);
    assert!(history.kinds([(1, &[10]), (2, &[20])], []).contains(&Kind::Cycle));
}
