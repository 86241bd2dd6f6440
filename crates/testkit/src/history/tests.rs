//! Histories that are well, and bad ones, each of which the checker has to find.

use super::*;

/// A history as it is told, moment after moment.
#[derive(Default)]
struct Story {
    now: Moment,
    history: History,
}

use Level::{ReadCommitted as RC, Snapshot as SI};

impl Story {
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

    fn does(&mut self, number: usize, deed: Deed) {
        let (begun, ended) = (self.tick(), self.tick());
        self.history.transactions[number].steps.push(Step { begun, ended, deed });
    }

    fn append(&mut self, number: usize, key: Key, value: Value) {
        self.does(number, Deed::Append { key, value });
    }

    fn insert(&mut self, number: usize, key: Key, value: Value) {
        self.does(number, Deed::Insert { key, value });
    }

    fn delete(&mut self, number: usize, key: Key, value: Value, found: bool) {
        self.does(number, Deed::Delete { key, value, found });
    }

    fn read<const N: usize>(&mut self, number: usize, lists: [(Key, &[Value]); N]) {
        let lists = lists.into_iter().map(|(key, list)| (key, list.to_vec())).collect();
        self.does(number, Deed::Read(Picture { lists, items: BTreeMap::new() }));
    }

    fn look<const N: usize>(&mut self, number: usize, items: [(Key, &[Value]); N]) {
        let items = items.into_iter().map(|(key, items)| (key, items.iter().copied().collect())).collect();
        self.does(number, Deed::Read(Picture { lists: BTreeMap::new(), items }));
    }

    fn ends(&mut self, number: usize, outcome: Outcome) {
        let ended = self.tick();
        let transaction = &mut self.history.transactions[number];
        (transaction.outcome, transaction.ended) = (outcome, ended);
    }

    fn commit(&mut self, number: usize) {
        self.ends(number, Outcome::Committed);
    }

    /// One that only does this.
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
fn what_snapshot_isolation_allows_is_well() {
    let mut story = Story::default();
    let (a, b) = (story.begin(SI), story.begin(SI));
    // Write skew.
    story.read(a, [(1, &[]), (2, &[])]);
    story.read(b, [(1, &[]), (2, &[])]);
    story.append(a, 1, 10);
    story.append(b, 2, 20);
    story.read(a, [(1, &[10]), (2, &[])]);
    story.commit(a);
    story.read(b, [(1, &[]), (2, &[20])]);
    story.commit(b);
    // One that was rolled back, which saw what there was; savepoints; two values in one list.
    let c = story.begin(SI);
    story.append(c, 1, 11);
    story.does(c, Deed::Savepoint);
    story.append(c, 1, 12);
    story.insert(c, 7, 70);
    story.does(c, Deed::RollBackTo);
    story.append(c, 1, 13);
    story.read(c, [(1, &[10, 11, 13])]);
    story.look(c, [(7, &[])]);
    story.commit(c);
    let d = story.begin(SI);
    story.read(d, [(1, &[10, 11, 13]), (2, &[20])]);
    story.append(d, 2, 21);
    story.read(d, [(2, &[20, 21])]);
    story.ends(d, Outcome::RolledBack);
    assert_eq!(story.kinds([(1, &[10, 11, 13]), (2, &[20])], [(7, &[])]), kinds([]));
}

#[test]
fn statements_of_read_committed_have_snapshots_of_their_own() {
    let mut story = Story::default();
    let a = story.begin(RC);
    story.read(a, [(1, &[]), (2, &[])]);
    story.appends(1, 10);
    story.read(a, [(1, &[10]), (2, &[])]);
    story.append(a, 2, 20);
    let b = story.begin(RC);
    story.read(b, [(1, &[10]), (2, &[])]);
    story.commit(a);
    story.read(b, [(1, &[10]), (2, &[20])]);
    story.append(b, 2, 21);
    story.commit(b);
    // It is going to fail, as others wrote where it has written, and may see anything there.
    let c = story.begin(RC);
    story.append(c, 2, 22);
    story.appends(2, 23);
    story.read(c, [(2, &[20, 21, 22, 20, 21, 23])]);
    story.ends(c, Outcome::RolledBack);
    assert_eq!(story.kinds([(1, &[10]), (2, &[20, 21, 23])], []), kinds([]));
}

#[test]
fn items_come_and_go() {
    let mut story = Story::default();
    story.inserts(1, 10);
    let (a, b) = (story.begin(SI), story.begin(SI));
    story.look(a, [(1, &[10])]);
    story.delete(b, 1, 10, true);
    story.insert(b, 1, 11);
    story.look(b, [(1, &[11])]);
    story.delete(b, 1, 11, true);
    story.look(b, [(1, &[])]);
    story.commit(b);
    story.look(a, [(1, &[10])]);
    story.insert(a, 1, 12);
    story.look(a, [(1, &[10, 12])]);
    story.commit(a);
    let c = story.begin(RC);
    story.look(c, [(1, &[12])]);
    story.delete(c, 1, 10, false);
    story.delete(c, 1, 12, true);
    story.look(c, [(1, &[])]);
    story.ends(c, Outcome::RolledBack);
    assert_eq!(story.kinds([], [(1, &[12])]), kinds([]));
}

#[test]
fn of_whom_nothing_was_heard_their_writes_tell() {
    let mut story = Story::default();
    let (a, b) = (story.begin(SI), story.begin(SI));
    story.append(a, 1, 10);
    story.append(b, 2, 20);
    story.ends(a, Outcome::Unknown);
    story.ends(b, Outcome::Unknown);
    let c = story.begin(SI);
    // It may be done later than it was asked for.
    story.read(c, [(1, &[]), (2, &[])]);
    story.commit(c);
    let d = story.begin(SI);
    story.read(d, [(1, &[10]), (2, &[])]);
    story.commit(d);
    assert_eq!(story.kinds([(1, &[10]), (2, &[])], []), kinds([]));
}

#[test]
fn what_somebody_has_deleted_had_been_there() {
    let mut story = Story::default();
    let (a, b) = (story.begin(SI), story.begin(RC));
    story.insert(a, 1, 10);
    story.ends(a, Outcome::Unknown);
    story.look(b, [(1, &[10])]);
    story.delete(b, 1, 10, true);
    story.ends(b, Outcome::Unknown);
    let c = story.begin(SI);
    story.look(c, [(1, &[])]);
    story.commit(c);
    assert_eq!(story.kinds([], [(1, &[])]), kinds([]));
}

#[test]
fn a_read_of_what_was_rolled_back_is_found() {
    for level in [RC, SI] {
        let mut story = Story::default();
        let (a, b) = (story.begin(level), story.begin(level));
        story.append(a, 1, 10);
        story.insert(a, 2, 20);
        story.read(b, [(1, &[10])]);
        story.commit(b);
        story.ends(a, Outcome::RolledBack);
        assert_eq!(story.kinds([(1, &[])], []), kinds([Kind::Aborted]));
    }
    let mut story = Story::default();
    let (a, b) = (story.begin(SI), story.begin(RC));
    story.insert(a, 2, 20);
    story.look(b, [(2, &[20])]);
    story.commit(b);
    story.ends(a, Outcome::RolledBack);
    assert_eq!(story.kinds([], [(2, &[])]), kinds([Kind::Aborted]));
    // It stays.
    let mut story = Story::default();
    let a = story.begin(SI);
    story.append(a, 1, 10);
    story.ends(a, Outcome::RolledBack);
    assert_eq!(story.kinds([(1, &[10])], []), kinds([Kind::Aborted]));
    // Undone to a savepoint.
    let mut story = Story::default();
    let a = story.begin(SI);
    story.does(a, Deed::Savepoint);
    story.insert(a, 1, 10);
    story.does(a, Deed::RollBackTo);
    story.commit(a);
    assert_eq!(story.kinds([], [(1, &[10])]), kinds([Kind::Aborted]));
}

#[test]
fn a_read_of_a_part_of_a_transaction_is_found() {
    let mut story = Story::default();
    let (a, b) = (story.begin(SI), story.begin(RC));
    story.append(a, 1, 10);
    story.read(b, [(1, &[10])]);
    story.append(a, 1, 11);
    story.commit(a);
    story.commit(b);
    assert_eq!(story.kinds([(1, &[10, 11])], []), kinds([Kind::Intermediate]));
    let mut story = Story::default();
    let (a, b) = (story.begin(SI), story.begin(RC));
    story.insert(a, 1, 10);
    story.look(b, [(1, &[10])]);
    story.delete(a, 1, 10, true);
    story.commit(a);
    story.commit(b);
    assert_eq!(story.kinds([], [(1, &[])]), kinds([Kind::Intermediate]));
}

#[test]
fn values_of_nobody_are_found() {
    let mut story = Story::default();
    story.appends(1, 10);
    assert_eq!(story.kinds([(1, &[10, 99])], [(1, &[98])]), kinds([Kind::Unborn]));
    let mut story = Story::default();
    story.appends(1, 10);
    assert!(story.kinds([(1, &[10, 10])], []).contains(&Kind::Unborn));
}

#[test]
fn lists_that_part_are_found() {
    let mut story = Story::default();
    let (a, b) = (story.begin(RC), story.begin(RC));
    story.appends(1, 10);
    story.appends(1, 11);
    story.read(a, [(1, &[10, 11])]);
    story.read(b, [(1, &[11])]);
    story.commit(a);
    story.commit(b);
    assert_eq!(story.kinds([(1, &[10, 11])], []), kinds([Kind::Order]));
    // What one transaction has appended has other values between.
    let mut story = Story::default();
    let a = story.begin(RC);
    story.append(a, 1, 10);
    story.append(a, 1, 12);
    let b = story.begin(RC);
    story.append(b, 1, 11);
    story.commit(a);
    story.commit(b);
    assert!(story.kinds([(1, &[10, 11, 12])], []).contains(&Kind::Order));
    // What it saw itself is not what came of it.
    let mut story = Story::default();
    let a = story.begin(RC);
    story.append(a, 1, 12);
    story.read(a, [(1, &[12])]);
    let b = story.begin(RC);
    story.append(b, 1, 11);
    story.commit(b);
    story.commit(a);
    assert!(story.kinds([(1, &[11, 12])], []).contains(&Kind::Order));
}

#[test]
fn a_transaction_that_does_not_see_itself_is_found() {
    let mut story = Story::default();
    let a = story.begin(SI);
    story.append(a, 1, 10);
    story.read(a, [(1, &[])]);
    story.commit(a);
    assert_eq!(story.kinds([(1, &[10])], []), kinds([Kind::Own]));
    // What it has undone.
    let mut story = Story::default();
    let a = story.begin(SI);
    story.does(a, Deed::Savepoint);
    story.append(a, 1, 10);
    story.insert(a, 1, 11);
    story.does(a, Deed::RollBackTo);
    story.read(a, [(1, &[10])]);
    story.look(a, [(1, &[11])]);
    story.commit(a);
    assert_eq!(story.kinds([(1, &[])], [(1, &[])]), kinds([Kind::Own]));
    // Items.
    let mut story = Story::default();
    story.inserts(1, 9);
    let a = story.begin(SI);
    story.insert(a, 1, 10);
    story.delete(a, 1, 9, true);
    story.look(a, [(1, &[9])]);
    story.commit(a);
    assert_eq!(story.kinds([], [(1, &[10])]), kinds([Kind::Own]));
    let mut story = Story::default();
    let a = story.begin(SI);
    story.insert(a, 1, 10);
    story.delete(a, 1, 10, false);
    story.commit(a);
    assert_eq!(story.kinds([], [(1, &[10])]), kinds([Kind::Own]));
}

#[test]
fn reads_that_do_not_repeat_are_found() {
    let mut story = Story::default();
    let a = story.begin(SI);
    story.read(a, [(1, &[])]);
    story.appends(1, 10);
    story.read(a, [(1, &[10])]);
    story.commit(a);
    assert!(story.kinds([(1, &[10])], []).contains(&Kind::Unrepeatable));
    let mut story = Story::default();
    let a = story.begin(SI);
    story.look(a, [(1, &[])]);
    story.inserts(1, 10);
    story.delete(a, 1, 10, true);
    story.ends(a, Outcome::RolledBack);
    assert!(story.kinds([], [(1, &[10])]).contains(&Kind::Unrepeatable));
}

#[test]
fn what_is_lost_is_found() {
    let mut story = Story::default();
    story.appends(1, 10);
    story.inserts(1, 20);
    assert_eq!(story.kinds([(1, &[])], [(1, &[])]), kinds([Kind::Lost]));
    let mut story = Story::default();
    story.inserts(1, 20);
    let a = story.begin(SI);
    story.delete(a, 1, 20, true);
    story.commit(a);
    assert_eq!(story.kinds([], [(1, &[20])]), kinds([Kind::Lost]));
}

#[test]
fn two_that_deleted_the_same_are_found() {
    for level in [RC, SI] {
        let mut story = Story::default();
        story.inserts(1, 10);
        let (a, b) = (story.begin(level), story.begin(level));
        story.delete(a, 1, 10, true);
        story.delete(b, 1, 10, true);
        story.commit(a);
        story.commit(b);
        assert!(story.kinds([], [(1, &[])]).contains(&Kind::FirstCommitter));
    }
}

#[test]
fn a_lost_update_is_found() {
    // Both have read the same, and both have committed; nothing is missing at the end.
    let mut story = Story::default();
    let (a, b) = (story.begin(SI), story.begin(SI));
    story.read(a, [(1, &[])]);
    story.read(b, [(1, &[])]);
    story.append(a, 1, 10);
    story.append(b, 1, 11);
    story.commit(a);
    story.commit(b);
    assert_eq!(story.kinds([(1, &[10, 11])], []), kinds([Kind::Skew]));
}

#[test]
fn read_skew_is_found() {
    // In one statement, too.
    for (level, in_one) in [(SI, false), (SI, true), (RC, true)] {
        let mut story = Story::default();
        let (reader, writer) = (story.begin(level), story.begin(RC));
        if !in_one {
            story.read(reader, [(1, &[])]);
        }
        story.append(writer, 1, 10);
        story.append(writer, 2, 20);
        story.commit(writer);
        match in_one {
            true => story.read(reader, [(1, &[]), (2, &[20])]),
            false => story.read(reader, [(2, &[20])]),
        }
        story.commit(reader);
        assert_eq!(story.kinds([(1, &[10]), (2, &[20])], []), kinds([Kind::Skew]), "{level:?} {in_one}");
    }
    // Of items: one has come, and one has not gone.
    let mut story = Story::default();
    story.inserts(1, 10);
    let (reader, writer) = (story.begin(SI), story.begin(SI));
    story.delete(writer, 1, 10, true);
    story.insert(writer, 2, 20);
    story.commit(writer);
    story.look(reader, [(1, &[10]), (2, &[20])]);
    story.commit(reader);
    assert_eq!(story.kinds([], [(1, &[]), (2, &[20])]), kinds([Kind::Skew]));
}

#[test]
fn a_long_fork_is_found() {
    let mut story = Story::default();
    let (a, b, x, y) = (story.begin(SI), story.begin(SI), story.begin(SI), story.begin(SI));
    story.append(x, 1, 10);
    story.append(y, 2, 20);
    story.read(a, [(1, &[10]), (2, &[])]);
    story.read(b, [(1, &[]), (2, &[20])]);
    for number in [a, b, x, y] {
        story.commit(number);
    }
    assert_eq!(story.kinds([(1, &[10]), (2, &[20])], []), kinds([Kind::Skew]));
}

#[test]
fn snapshots_that_go_back_are_found() {
    for level in [RC, SI] {
        let mut story = Story::default();
        story.appends(1, 10);
        let a = story.begin(level);
        story.read(a, [(1, &[])]);
        story.commit(a);
        assert_eq!(story.kinds([(1, &[10])], []), kinds([Kind::Skew]), "{level:?}");
        let mut story = Story::default();
        story.inserts(1, 10);
        let a = story.begin(level);
        story.look(a, [(1, &[])]);
        story.commit(a);
        assert_eq!(story.kinds([], [(1, &[10])]), kinds([Kind::Skew]), "{level:?}");
        // What has gone comes back.
        let mut story = Story::default();
        story.inserts(1, 10);
        let a = story.begin(SI);
        story.delete(a, 1, 10, true);
        story.commit(a);
        let b = story.begin(level);
        story.look(b, [(1, &[10])]);
        story.commit(b);
        assert_eq!(story.kinds([], [(1, &[])]), kinds([Kind::Skew]), "{level:?}");
    }
    // Within one transaction, of what was not heard to commit.
    let mut story = Story::default();
    let (a, x) = (story.begin(RC), story.begin(SI));
    story.append(x, 1, 10);
    story.read(a, [(1, &[10])]);
    story.read(a, [(1, &[])]);
    story.commit(a);
    story.commit(x);
    assert_eq!(story.kinds([(1, &[10])], []), kinds([Kind::Skew]));
}

#[test]
fn writes_that_pass_one_another_are_found() {
    // G0: the order of two writers differs from list to list.
    let mut story = Story::default();
    let (a, b) = (story.begin(RC), story.begin(RC));
    story.append(a, 1, 10);
    story.append(b, 1, 11);
    story.append(b, 2, 20);
    story.append(a, 2, 21);
    story.commit(a);
    story.commit(b);
    assert_eq!(story.kinds([(1, &[10, 11]), (2, &[20, 21])], []), kinds([Kind::Cycle]));
    // G1c: each has read of the other.
    let mut story = Story::default();
    let (a, b) = (story.begin(SI), story.begin(SI));
    story.append(a, 1, 10);
    story.append(b, 2, 20);
    story.read(a, [(2, &[20])]);
    story.read(b, [(1, &[10])]);
    story.commit(a);
    story.commit(b);
    assert!(story.kinds([(1, &[10]), (2, &[20])], []).contains(&Kind::Cycle));
}
