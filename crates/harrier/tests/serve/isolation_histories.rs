//! Snapshot isolation test: sessions of `harrier serve` run random transactions concurrently, on one process
//! and on two ranks, and their observed history is checked for anomalies by `harrier_testkit::history`. The
//! catalog's own test compares with a model that runs one statement at a time; here statements overlap, and
//! only the answers show what happened.
//!
//! `HARRIER_SEED` repeats the choices of a run, though not their timing; `HARRIER_HISTORY_TRANSACTIONS` is
//! the number of transactions per session (30):
//!
//! ```text
//! HARRIER_HISTORY_TRANSACTIONS=1000 cargo test --release -p harrier --test serve isolation_histories:: -- --nocapture
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread;

use harrier_testkit::history::{
    History, Key, Level, Moment, Observation, Operation, Outcome, Step, Transaction, Value, check,
};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::test_server::{Client, TestServer};

const SESSIONS: usize = 6;

/// Transactions per session in a run of the test suite.
const TRANSACTIONS: usize = 30;

const STATEMENTS_MAX: usize = 6;

/// Keys of lists and items: few, so that transactions conflict often. Even keys are in tables whose few rows
/// are inlined in the catalog, odd keys in tables with data files.
const KEYS: [Key; 4] = [0, 1, 2, 3];

const TABLES: [&str; 4] = [
    "CREATE TABLE kept_lists (k INT, n INT, l TEXT)",
    "CREATE TABLE filed_lists (k INT, n INT, l TEXT) WITH (inline_rows = 0)",
    "CREATE TABLE kept_items (k INT, v BIGINT)",
    "CREATE TABLE filed_items (k INT, v BIGINT) PARTITION BY (k) WITH (inline_rows = 0)",
];

const BEGINS: [(&str, Level); 5] = [
    ("BEGIN", Level::ReadCommitted),
    ("BEGIN ISOLATION LEVEL READ COMMITTED", Level::ReadCommitted),
    ("BEGIN ISOLATION LEVEL REPEATABLE READ", Level::Snapshot),
    ("BEGIN ISOLATION LEVEL SERIALIZABLE", Level::Snapshot),
    ("BEGIN ISOLATION LEVEL SERIALIZABLE", Level::Snapshot),
];

/// Two ranks, with every scan of a file distributed.
const GANG: &[&str] = &["--ranks", "2", "--threads", "1", "--set", "harrier.distribute_bytes_min=1"];

const ALONE: &[&str] = &["--launcher", "none"];

fn table_of(kind: &str, key: Key) -> String {
    format!("{}_{kind}", if key % 2 == 0 { "kept" } else { "filed" })
}

/// State shared by all sessions.
struct SharedState {
    server: TestServer,
    clock: AtomicU64,
    value: AtomicI64,
    /// Violations found while running.
    troubles: Mutex<Vec<String>>,
}

impl SharedState {
    fn tick(&self) -> Moment {
        self.clock.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn new_value(&self) -> Value {
        self.value.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn report_violation(&self, violation: String) {
        self.troubles.lock().unwrap().push(violation);
    }
}

/// SQLSTATE and message.
type Failure = (String, String);

struct Session<'a> {
    shared: &'a SharedState,
    number: usize,
    random: StdRng,
    /// `None` after a lost connection; the next transaction reconnects.
    client: Option<Client>,
    /// Items that the session has read.
    known: Vec<(Key, Value)>,
    conflicts: usize,
}

impl<'a> Session<'a> {
    fn new(shared: &'a SharedState, number: usize, seed: u64) -> Self {
        let random = StdRng::seed_from_u64(seed.wrapping_mul(1000).wrapping_add(number as u64));
        Self { shared, number, random, client: None, known: Vec::new(), conflicts: 0 }
    }

    fn client(&mut self) -> &mut Client {
        self.client.get_or_insert_with(|| self.shared.server.client())
    }

    fn transaction(&mut self, name: String) -> Transaction {
        let (begin, level) = *BEGINS.choose(&mut self.random).unwrap();
        let mut work = Work {
            transaction: Transaction {
                name,
                level,
                steps: Vec::new(),
                outcome: Outcome::RolledBack,
                ended: 0,
            },
            savepoints: 0,
            odd: Vec::new(),
        };
        let outcome = match self.statements(begin, &mut work) {
            Ok(()) => self.end(&work),
            Err(failure) => {
                self.check_failure(&work, failure);
                if let Err(failure) = self.client().query("ROLLBACK") {
                    self.shared.report_violation(format!("{}: ROLLBACK: {failure:?}", work.transaction.name));
                }
                Outcome::RolledBack
            }
        };
        let Work { mut transaction, odd, .. } = work;
        transaction.ended = self.shared.tick();
        transaction.outcome = outcome;
        // A READ COMMITTED transaction that is going to fail may see two versions of a list, its own and
        // another one.
        if transaction.level == Level::Snapshot || outcome == Outcome::Committed {
            for violation in odd {
                self.shared.report_violation(format!("{}: {violation}", transaction.name));
            }
        }
        transaction
    }

    /// Only serialization failures are expected.
    fn check_failure(&mut self, work: &Work, (state, message): Failure) {
        if state == "40001" {
            self.conflicts += 1;
        } else {
            self.shared.report_violation(format!("{}: {state} {message}", work.transaction.name));
        }
    }

    fn end(&mut self, work: &Work) -> Outcome {
        match self.random.random_range(0..100) {
            0..78 => match self.client().query("COMMIT") {
                Ok(_) => {
                    let tag = self.client().tag.clone();
                    if tag != "COMMIT" {
                        self.shared.report_violation(format!(
                            "{}: COMMIT is answered by {tag}",
                            work.transaction.name
                        ));
                    }
                    Outcome::Committed
                }
                Err(failure) => {
                    self.check_failure(work, failure);
                    Outcome::RolledBack
                }
            },
            78..90 => {
                if let Err(failure) = self.client().query("ROLLBACK") {
                    self.shared.report_violation(format!("{}: ROLLBACK: {failure:?}", work.transaction.name));
                }
                Outcome::RolledBack
            }
            90..95 => {
                self.client = None;
                Outcome::RolledBack
            }
            _ => {
                self.client().ask("COMMIT");
                self.client = None;
                Outcome::Unknown
            }
        }
    }

    fn statements(&mut self, begin: &str, work: &mut Work) -> Result<(), Failure> {
        self.client().query(begin)?;
        for _ in 0..self.random.random_range(1..=STATEMENTS_MAX) {
            match self.random.random_range(0..100) {
                0..30 => self.read_lists(work)?,
                30..45 => self.read_items(work)?,
                45..68 => self.append(work)?,
                68..80 => self.insert(work)?,
                80..88 => self.delete(work)?,
                88..93 => {
                    self.run_and_record(work, "SAVEPOINT here", |_, _| Ok(Operation::Savepoint))?;
                    work.savepoints += 1;
                }
                93..95 if work.savepoints > 0 => {
                    self.run_and_record(work, "RELEASE here", |_, _| Ok(Operation::Release))?;
                    work.savepoints -= 1;
                }
                95..100 if work.savepoints > 0 => self.rollback_to_savepoint(work)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Runs a statement and records its effect from rows and tag.
    fn run_and_record(
        &mut self,
        work: &mut Work,
        sql: &str,
        operation: impl FnOnce(Vec<Vec<Option<String>>>, &str) -> Result<Operation, String>,
    ) -> Result<(), Failure> {
        let start = self.shared.tick();
        let rows = self.client().query(sql)?;
        let end_moment = self.shared.tick();
        let tag = self.client().tag.clone();
        match operation(rows, &tag) {
            Ok(operation) => work.transaction.steps.push(Step { start, ended: end_moment, operation }),
            Err(odd) => work.odd.push(format!("{sql}: {odd}")),
        }
        Ok(())
    }

    fn keys(&mut self) -> Vec<Key> {
        let count = self.random.random_range(1..=KEYS.len());
        KEYS.choose_multiple(&mut self.random, count).copied().collect()
    }

    fn read_lists(&mut self, work: &mut Work) -> Result<(), Failure> {
        let keys = self.keys();
        let mut odd = Vec::new();
        self.run_and_record(work, &select("k, n, l", "lists", &keys), |rows, _| {
            let (lists, violation) = lists_of(&keys, rows);
            odd = violation;
            Ok(Operation::Read(Observation { lists, items: BTreeMap::new() }))
        })?;
        work.odd.extend(odd);
        Ok(())
    }

    fn read_items(&mut self, work: &mut Work) -> Result<(), Failure> {
        let keys = self.keys();
        let (mut odd, mut read_items) = (Vec::new(), Vec::new());
        self.run_and_record(work, &select("k, v", "items", &keys), |rows, _| {
            let (items, violation) = items_of(&keys, rows);
            odd = violation;
            read_items =
                items.iter().flat_map(|(key, values)| values.iter().map(|value| (*key, *value))).collect();
            Ok(Operation::Read(Observation { lists: BTreeMap::new(), items }))
        })?;
        work.odd.extend(odd);
        self.known = read_items;
        Ok(())
    }

    fn append(&mut self, work: &mut Work) -> Result<(), Failure> {
        let key = *KEYS.choose(&mut self.random).unwrap();
        let value = self.shared.new_value();
        let table = table_of("lists", key);
        let sql = format!("UPDATE {table} SET l = l || ',{value}', n = n + 1 WHERE k = {key}");
        let mut odd = None;
        self.run_and_record(work, &sql, |_, tag| {
            odd = (tag != "UPDATE 1").then(|| format!("{sql}: {tag}"));
            Ok(Operation::Append { key, value })
        })?;
        work.odd.extend(odd);
        Ok(())
    }

    fn insert(&mut self, work: &mut Work) -> Result<(), Failure> {
        let key = *KEYS.choose(&mut self.random).unwrap();
        let value = self.shared.new_value();
        let sql = format!("INSERT INTO {} VALUES ({key}, {value})", table_of("items", key));
        self.run_and_record(work, &sql, |_, _| Ok(Operation::Insert { key, value }))?;
        self.known.push((key, value));
        Ok(())
    }

    fn delete(&mut self, work: &mut Work) -> Result<(), Failure> {
        let Some((key, value)) = self.known.choose(&mut self.random).copied() else { return Ok(()) };
        let sql = format!("DELETE FROM {} WHERE k = {key} AND v = {value}", table_of("items", key));
        self.run_and_record(work, &sql, |_, tag| match tag {
            "DELETE 0" => Ok(Operation::Delete { key, value, found: false }),
            "DELETE 1" => Ok(Operation::Delete { key, value, found: true }),
            other => Err(other.to_string()),
        })
    }

    /// ROLLBACK TO SAVEPOINT, sometimes after a failed statement.
    fn rollback_to_savepoint(&mut self, work: &mut Work) -> Result<(), Failure> {
        // Not as the first statement, which takes the snapshot: it is not part of the history.
        let is_under_way = work.transaction.steps.iter().any(|step| step.operation != Operation::Savepoint);
        if is_under_way && self.random.random_bool(0.5) {
            match self.client().query("SELECT 1 / 0") {
                // A conflict takes precedence: any statement may report that COMMIT would fail.
                Err((state, _)) if state == "22012" || state == "40001" => {}
                other => self
                    .shared
                    .report_violation(format!("{}: division by zero is {other:?}", work.transaction.name)),
            }
        }
        self.run_and_record(work, "ROLLBACK TO here", |_, _| Ok(Operation::RollBackTo))
    }

    /// OPTIMIZE, which may conflict with the other sessions.
    fn optimize(&mut self) {
        for sql in ["OPTIMIZE filed_lists", "OPTIMIZE kept_items", "VACUUM"] {
            if let Err((state, message)) = self.client().query(sql)
                && state != "40001"
            {
                self.shared.report_violation(format!("session {}: {sql}: {state} {message}", self.number));
            }
        }
    }
}

struct Work {
    transaction: Transaction,
    savepoints: usize,
    /// Values that no committed transaction may read.
    odd: Vec<String>,
}

/// Selects some keys from both tables in one statement.
fn select(columns: &str, kind: &str, keys: &[Key]) -> String {
    let keys: Vec<String> = keys.iter().map(Key::to_string).collect();
    let keys = keys.join(", ");
    format!(
        "SELECT {columns} FROM kept_{kind} WHERE k IN ({keys}) UNION ALL SELECT {columns} FROM filed_{kind} WHERE k IN ({keys})"
    )
}

fn number(cell: &Option<String>) -> i64 {
    cell.as_deref().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{cell:?} is no number"))
}

/// Lists by key, and violations: a list is one row that stores its length.
fn lists_of(keys: &[Key], rows: Vec<Vec<Option<String>>>) -> (BTreeMap<Key, Vec<Value>>, Vec<String>) {
    let mut all: BTreeMap<Key, Vec<Vec<Value>>> = keys.iter().map(|key| (*key, Vec::new())).collect();
    let mut odd = Vec::new();
    for row in &rows {
        let text = row[2].as_deref().unwrap_or_default();
        let list: Vec<Value> =
            text.split(',').filter(|part| !part.is_empty()).map(|part| part.parse().unwrap()).collect();
        if number(&row[1]) != list.len() as i64 {
            odd.push(format!("a list is counted otherwise: {row:?}"));
        }
        all.entry(number(&row[0])).or_default().push(list);
    }
    let mut lists = BTreeMap::new();
    for (key, mut of_key) in all {
        match of_key.len() {
            1 => drop(lists.insert(key, of_key.remove(0))),
            count => odd.push(format!("list {key} is {count} rows: {of_key:?}")),
        }
    }
    (lists, odd)
}

/// Items by key, and violations: an item is one row.
fn items_of(keys: &[Key], rows: Vec<Vec<Option<String>>>) -> (BTreeMap<Key, BTreeSet<Value>>, Vec<String>) {
    let mut items: BTreeMap<Key, BTreeSet<Value>> = keys.iter().map(|key| (*key, BTreeSet::new())).collect();
    let mut odd = Vec::new();
    for row in &rows {
        if !items.entry(number(&row[0])).or_default().insert(number(&row[1])) {
            odd.push(format!("an item is there twice: {row:?}"));
        }
    }
    (items, odd)
}

/// First committer wins: the later of two transactions that have read and changed the same list fails, in
/// every table and at every level.
fn first_committer_wins(shared: &SharedState) {
    for key in [0, 1] {
        for begin in ["BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN ISOLATION LEVEL SERIALIZABLE"]
        {
            let (mut first, mut second) = (shared.server.client(), shared.server.client());
            // The list is unchanged afterwards.
            let update = format!("UPDATE {} SET l = l || '' WHERE k = {key}", table_of("lists", key));
            for client in [&mut first, &mut second] {
                client.query(begin).unwrap();
                client.query(&update).unwrap();
            }
            first.query("COMMIT").unwrap();
            assert_eq!(second.fails("COMMIT"), "40001", "{begin}, list {key}");
        }
    }
}

fn run(arguments: &[&str], ranks: usize) {
    let seed = harrier_launch::seed();
    let count = std::env::var("HARRIER_HISTORY_TRANSACTIONS").ok();
    let count = count.map_or(TRANSACTIONS, |count| count.parse().expect("a number"));
    println!("seed {seed}, {SESSIONS} sessions, {count} transactions each, {ranks} ranks");
    let shared = SharedState {
        server: TestServer::start(arguments),
        clock: AtomicU64::new(0),
        value: AtomicI64::new(0),
        troubles: Mutex::new(Vec::new()),
    };
    let mut client = shared.server.client();
    for sql in TABLES {
        client.query(sql).unwrap();
    }
    for key in KEYS {
        client.query(&format!("INSERT INTO {} VALUES ({key}, 0, '')", table_of("lists", key))).unwrap();
    }
    drop(client);
    if ranks > 0 {
        shared.server.wait_for_ranks(ranks);
    }
    first_committer_wins(&shared);

    let mut history = History::default();
    let mut conflicts = 0;
    thread::scope(|scope| {
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|number| {
                let mut session = Session::new(&shared, number, seed);
                scope.spawn(move || {
                    let mut finished = Vec::new();
                    for at in 0..count {
                        if number == 0 && at % 8 == 7 {
                            session.optimize();
                        }
                        finished.push(session.transaction(format!("session {number} transaction {at}")));
                    }
                    (finished, session.conflicts)
                })
            })
            .collect();
        for session in sessions {
            let (finished, own_conflicts) = session.join().expect("no session panics");
            history.transactions.extend(finished);
            conflicts += own_conflicts;
        }
    });
    // Including those whose connections were lost.
    shared.server.wait_for("SELECT count(*) FROM sys.sessions", "1");
    history.last = last(&shared);
    let committed = history.transactions.iter().filter(|one| one.outcome == Outcome::Committed).count();
    println!("{committed} committed, {conflicts} conflicts");
    assert!(committed > history.transactions.len() / 4, "seed {seed}: {committed} committed only");
    let troubles = shared.troubles.lock().unwrap();
    assert!(troubles.is_empty(), "seed {seed}: {troubles:#?}\n{}", shared.server.log());
    let anomalies: Vec<String> = check(&history).iter().map(ToString::to_string).collect();
    assert!(anomalies.is_empty(), "seed {seed}: {anomalies:#?}");
}

/// Final contents, read without concurrency.
fn last(shared: &SharedState) -> Observation {
    let mut client = shared.server.client();
    client.query("BEGIN ISOLATION LEVEL SERIALIZABLE").unwrap();
    let (lists, odd_lists) = lists_of(&KEYS, client.query(&select("k, n, l", "lists", &KEYS)).unwrap());
    let (items, odd_items) = items_of(&KEYS, client.query(&select("k, v", "items", &KEYS)).unwrap());
    assert!(odd_lists.is_empty() && odd_items.is_empty(), "{odd_lists:?} {odd_items:?}");
    client.query("COMMIT").unwrap();
    for kind in ["lists", "items"] {
        for key in [0, 1] {
            let problems = client.query(&format!("CHECK TABLE {}", table_of(kind, key))).unwrap();
            assert!(problems.is_empty(), "{problems:?}");
        }
    }
    Observation { lists, items }
}

#[test]
fn snapshot_isolation_in_one_process() {
    run(ALONE, 0);
}

#[test]
fn snapshot_isolation_on_two_ranks() {
    if harrier_launch::mpi_skipped() {
        return eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
    }
    let _turn = harrier_launch::gang_slot();
    run(GANG, 2);
}
