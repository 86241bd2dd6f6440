//! Sessions of `harrier serve` run random transactions at once, on one process and on two ranks, and what
//! they heard is checked for whatever snapshot isolation forbids: `harrier_testkit::history` says what that
//! is. The checker of the catalog's own tests compares with a model that runs one statement after the other;
//! here statements run at the same time, and only what was heard tells what happened.
//!
//! `HARRIER_SEED` repeats the choices of a run, though not its moments; `HARRIER_HISTORY_TRANSACTIONS` says
//! how many transactions each session runs (30):
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

use crate::test_server::{Client, Served};

const SESSIONS: usize = 6;

/// Of each session, in a run of the test suite.
const TRANSACTIONS: usize = 30;

const STATEMENTS_MAX: usize = 6;

/// Lists and what items are found by: so few that transactions often meet. Even ones are in tables whose few
/// rows are kept in the catalog, odd ones in tables of files.
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

/// Two ranks that take every scan of a file.
const GANG: &[&str] = &["--ranks", "2", "--threads", "1", "--set", "harrier.distribute_bytes_min=1"];

const ALONE: &[&str] = &["--launcher", "none"];

fn table_of(kind: &str, key: Key) -> String {
    format!("{}_{kind}", if key % 2 == 0 { "kept" } else { "filed" })
}

/// What all sessions share.
struct Shared {
    served: Served,
    clock: AtomicU64,
    value: AtomicI64,
    /// What is wrong already as it is heard.
    troubles: Mutex<Vec<String>>,
}

impl Shared {
    fn tick(&self) -> Moment {
        self.clock.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn new_value(&self) -> Value {
        self.value.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn trouble(&self, said: String) {
        self.troubles.lock().unwrap().push(said);
    }
}

/// SQLSTATE and message.
type Failure = (String, String);

struct Session<'a> {
    shared: &'a Shared,
    number: usize,
    random: StdRng,
    /// None: it was given up, and the next transaction needs another one.
    client: Option<Client>,
    /// Items that it has seen.
    known: Vec<(Key, Value)>,
    conflicts: usize,
}

impl<'a> Session<'a> {
    fn new(shared: &'a Shared, number: usize, seed: u64) -> Self {
        let random = StdRng::seed_from_u64(seed.wrapping_mul(1000).wrapping_add(number as u64));
        Self { shared, number, random, client: None, known: Vec::new(), conflicts: 0 }
    }

    fn client(&mut self) -> &mut Client {
        self.client.get_or_insert_with(|| self.shared.served.client())
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
                self.failed(&work, failure);
                if let Err(failure) = self.client().query("ROLLBACK") {
                    self.shared.trouble(format!("{}: ROLLBACK: {failure:?}", work.transaction.name));
                }
                Outcome::RolledBack
            }
        };
        let Work { mut transaction, odd, .. } = work;
        transaction.ended = self.shared.tick();
        transaction.outcome = outcome;
        // A transaction of level read committed that is going to fail may see two rows of a list, its own and
        // another's.
        if transaction.level == Level::Snapshot || outcome == Outcome::Committed {
            for said in odd {
                self.shared.trouble(format!("{}: {said}", transaction.name));
            }
        }
        transaction
    }

    /// Of failures only conflicts are expected.
    fn failed(&mut self, work: &Work, (state, message): Failure) {
        if state == "40001" {
            self.conflicts += 1;
        } else {
            self.shared.trouble(format!("{}: {state} {message}", work.transaction.name));
        }
    }

    fn end(&mut self, work: &Work) -> Outcome {
        match self.random.random_range(0..100) {
            0..78 => match self.client().query("COMMIT") {
                Ok(_) => {
                    let tag = self.client().tag.clone();
                    if tag != "COMMIT" {
                        self.shared
                            .trouble(format!("{}: COMMIT is answered by {tag}", work.transaction.name));
                    }
                    Outcome::Committed
                }
                Err(failure) => {
                    self.failed(work, failure);
                    Outcome::RolledBack
                }
            },
            78..90 => {
                if let Err(failure) = self.client().query("ROLLBACK") {
                    self.shared.trouble(format!("{}: ROLLBACK: {failure:?}", work.transaction.name));
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
                    self.does(work, "SAVEPOINT here", |_, _| Ok(Operation::Savepoint))?;
                    work.savepoints += 1;
                }
                93..95 if work.savepoints > 0 => {
                    self.does(work, "RELEASE here", |_, _| Ok(Operation::Release))?;
                    work.savepoints -= 1;
                }
                95..100 if work.savepoints > 0 => self.go_back(work)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Runs a statement and notes what it did, by its rows and its tag.
    fn does(
        &mut self,
        work: &mut Work,
        sql: &str,
        operation: impl FnOnce(Vec<Vec<Option<String>>>, &str) -> Result<Operation, String>,
    ) -> Result<(), Failure> {
        let begun = self.shared.tick();
        let rows = self.client().query(sql)?;
        let ended = self.shared.tick();
        let tag = self.client().tag.clone();
        match operation(rows, &tag) {
            Ok(operation) => work.transaction.steps.push(Step { begun, ended, operation }),
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
        self.does(work, &select("k, n, l", "lists", &keys), |rows, _| {
            let (lists, said) = lists_of(&keys, rows);
            odd = said;
            Ok(Operation::Read(Observation { lists, items: BTreeMap::new() }))
        })?;
        work.odd.extend(odd);
        Ok(())
    }

    fn read_items(&mut self, work: &mut Work) -> Result<(), Failure> {
        let keys = self.keys();
        let (mut odd, mut seen) = (Vec::new(), Vec::new());
        self.does(work, &select("k, v", "items", &keys), |rows, _| {
            let (items, said) = items_of(&keys, rows);
            odd = said;
            seen = items.iter().flat_map(|(key, values)| values.iter().map(|value| (*key, *value))).collect();
            Ok(Operation::Read(Observation { lists: BTreeMap::new(), items }))
        })?;
        work.odd.extend(odd);
        self.known = seen;
        Ok(())
    }

    fn append(&mut self, work: &mut Work) -> Result<(), Failure> {
        let key = *KEYS.choose(&mut self.random).unwrap();
        let value = self.shared.new_value();
        let table = table_of("lists", key);
        let sql = format!("UPDATE {table} SET l = l || ',{value}', n = n + 1 WHERE k = {key}");
        let mut odd = None;
        self.does(work, &sql, |_, tag| {
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
        self.does(work, &sql, |_, _| Ok(Operation::Insert { key, value }))?;
        self.known.push((key, value));
        Ok(())
    }

    fn delete(&mut self, work: &mut Work) -> Result<(), Failure> {
        let Some((key, value)) = self.known.choose(&mut self.random).copied() else { return Ok(()) };
        let sql = format!("DELETE FROM {} WHERE k = {key} AND v = {value}", table_of("items", key));
        self.does(work, &sql, |_, tag| match tag {
            "DELETE 0" => Ok(Operation::Delete { key, value, found: false }),
            "DELETE 1" => Ok(Operation::Delete { key, value, found: true }),
            other => Err(other.to_string()),
        })
    }

    /// To a savepoint, now and then because a statement has failed.
    fn go_back(&mut self, work: &mut Work) -> Result<(), Failure> {
        // Not as the first statement, which takes the snapshot: it is not in the history.
        let is_under_way = work.transaction.steps.iter().any(|step| step.operation != Operation::Savepoint);
        if is_under_way && self.random.random_bool(0.5) {
            match self.client().query("SELECT 1 / 0") {
                // A conflict comes first: any statement may say that COMMIT would fail.
                Err((state, _)) if state == "22012" || state == "40001" => {}
                other => {
                    self.shared.trouble(format!("{}: division by zero is {other:?}", work.transaction.name))
                }
            }
        }
        self.does(work, "ROLLBACK TO here", |_, _| Ok(Operation::RollBackTo))
    }

    /// Writes files anew beside the others, which may have a conflict with that.
    fn upkeep(&mut self) {
        for sql in ["OPTIMIZE filed_lists", "OPTIMIZE kept_items", "VACUUM"] {
            if let Err((state, message)) = self.client().query(sql)
                && state != "40001"
            {
                self.shared.trouble(format!("session {}: {sql}: {state} {message}", self.number));
            }
        }
    }
}

struct Work {
    transaction: Transaction,
    savepoints: usize,
    /// What no transaction may see that commits.
    odd: Vec<String>,
}

/// Of some keys, from both tables in one statement.
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

/// Lists by their keys, and what is odd about the rows: a list is one row, which knows how long it is.
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
    for (key, mut found) in all {
        match found.len() {
            1 => drop(lists.insert(key, found.remove(0))),
            count => odd.push(format!("list {key} is {count} rows: {found:?}")),
        }
    }
    (lists, odd)
}

/// Items by their keys, and what is odd about the rows: an item is one row.
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

/// The later of two that have read and changed the same list fails, in whatever table it is and at whatever
/// level.
fn first_committer_wins(shared: &Shared) {
    for key in [0, 1] {
        for begin in ["BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN ISOLATION LEVEL SERIALIZABLE"]
        {
            let (mut first, mut second) = (shared.served.client(), shared.served.client());
            // It leaves the list as it was.
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
    let shared = Shared {
        served: Served::start(arguments),
        clock: AtomicU64::new(0),
        value: AtomicI64::new(0),
        troubles: Mutex::new(Vec::new()),
    };
    let mut client = shared.served.client();
    for sql in TABLES {
        client.query(sql).unwrap();
    }
    for key in KEYS {
        client.query(&format!("INSERT INTO {} VALUES ({key}, 0, '')", table_of("lists", key))).unwrap();
    }
    drop(client);
    if ranks > 0 {
        shared.served.wait_for_ranks(ranks);
    }
    first_committer_wins(&shared);

    let mut history = History::default();
    let mut conflicts = 0;
    thread::scope(|scope| {
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|number| {
                let mut session = Session::new(&shared, number, seed);
                scope.spawn(move || {
                    let mut done = Vec::new();
                    for at in 0..count {
                        if number == 0 && at % 8 == 7 {
                            session.upkeep();
                        }
                        done.push(session.transaction(format!("session {number} transaction {at}")));
                    }
                    (done, session.conflicts)
                })
            })
            .collect();
        for session in sessions {
            let (done, own_conflicts) = session.join().expect("no session panics");
            history.transactions.extend(done);
            conflicts += own_conflicts;
        }
    });
    // Those whose connections were lost, too.
    shared.served.wait_for("SELECT count(*) FROM sys.sessions", "1");
    history.last = last(&shared);
    let committed = history.transactions.iter().filter(|one| one.outcome == Outcome::Committed).count();
    println!("{committed} committed, {conflicts} conflicts");
    assert!(committed > history.transactions.len() / 4, "seed {seed}: {committed} committed only");
    let troubles = shared.troubles.lock().unwrap();
    assert!(troubles.is_empty(), "seed {seed}: {troubles:#?}\n{}", shared.served.log());
    let found: Vec<String> = check(&history).iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "seed {seed}: {found:#?}");
}

/// What is there when nobody works any more.
fn last(shared: &Shared) -> Observation {
    let mut client = shared.served.client();
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
fn sessions_of_one_process_see_snapshots() {
    run(ALONE, 0);
}

#[test]
fn sessions_on_two_ranks_see_snapshots() {
    if harrier_launch::mpi_skipped() {
        return eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
    }
    let _turn = harrier_launch::gang_slot();
    run(GANG, 2);
}
