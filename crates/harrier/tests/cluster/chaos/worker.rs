//! A client of the chaos test's mixed load that checks its tables against a model after every acknowledged
//! change.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::client::{Client, StatementError};

/// Rows of `facts`: (x, x % 7) for x from 1.
pub const FACTS: i64 = 200_000;

/// A query that needs all ranks.
pub const SUM: &str = "SELECT sum(x) FROM facts WHERE k < 3";

pub fn sum() -> String {
    (1..=FACTS).filter(|x| x % 7 < 3).sum::<i64>().to_string()
}

/// Maximum time of a statement outside of outages, unless the environment sets another: other programs may
/// use the machine.
pub const HANG_SECONDS: u64 = 20;

/// Time after which a client gives up its connection.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(45);

/// Delay before an unknown outcome is looked up: the catalog may still be executing the last request of a
/// killed process.
const LOOKUP_DELAY: Duration = Duration::from_millis(1500);

/// Rows of a client in `ledger` above which it deletes some.
const ROWS_MAX: usize = 400;

/// State shared by clients and fault injection.
#[derive(Default)]
pub struct SharedState {
    /// Maximum time of a statement outside of outages.
    pub hang: Duration,
    pub stop: AtomicBool,
    /// Outages: start and end.
    pub outages: Mutex<Vec<(Instant, Option<Instant>)>>,
    pub violations: Mutex<Vec<String>>,
    /// Number of outcomes by kind of statement and result.
    pub counts: Mutex<BTreeMap<(&'static str, String), u64>>,
    /// Unknown outcomes that were found committed, and not committed.
    pub doubts: Mutex<(u64, u64)>,
    pub slowest: Mutex<BTreeMap<&'static str, Duration>>,
}

impl SharedState {
    pub fn violate(&self, what: String) {
        println!("VIOLATION: {what}");
        self.violations.lock().expect("no panic holds it").push(what);
    }

    /// Time since `start` that was within an outage.
    fn outage_overlap(&self, start: Instant) -> Duration {
        let now = Instant::now();
        let outages = self.outages.lock().expect("no panic holds it");
        let overlap = |(from, until): &(Instant, Option<Instant>)| {
            until.unwrap_or(now).saturating_duration_since((*from).max(start))
        };
        outages.iter().map(overlap).sum()
    }
}

/// An atomic change of a client's rows.
#[derive(Debug, Clone)]
enum Change {
    Insert(Vec<(i64, i64)>),
    Delete(Vec<i64>),
    Pair(i64, i64),
}

pub struct Worker {
    shared: Arc<SharedState>,
    port: u16,
    number: usize,
    random: StdRng,
    client: Option<Client>,
    ledger: BTreeMap<i64, i64>,
    pairs: BTreeMap<i64, i64>,
    next: i64,
    /// Recent changes with unknown outcome that were found not committed.
    absent: Option<Change>,
}

impl Worker {
    pub fn new(shared: Arc<SharedState>, port: u16, number: usize, seed: u64) -> Self {
        Self {
            shared,
            port,
            number,
            random: StdRng::seed_from_u64(seed.wrapping_mul(1000).wrapping_add(number as u64)),
            client: None,
            ledger: BTreeMap::new(),
            pairs: BTreeMap::new(),
            next: 0,
            absent: None,
        }
    }

    /// Runs until stopped, then checks all tables once more.
    pub fn run(mut self) {
        while !self.shared.stop.load(Ordering::Relaxed) {
            self.step();
        }
        // The service has recovered by now.
        for attempt in 0.. {
            if self.check_ledger() && self.check_pairs() && self.check_balance() {
                return;
            }
            if attempt == 20 {
                return self
                    .shared
                    .violate(format!("client {} cannot read its rows at the end", self.number));
            }
            thread::sleep(Duration::from_millis(500));
        }
    }

    fn step(&mut self) {
        match self.random.random_range(0..100) {
            0..25 => {
                let count = self.random.random_range(1..4);
                let rows = self.new_rows(count);
                let values: Vec<String> =
                    rows.iter().map(|(n, amount)| format!("({}, {n}, {amount})", self.number)).collect();
                self.change(
                    "insert",
                    &format!("INSERT INTO ledger VALUES {}", values.join(", ")),
                    Change::Insert(rows),
                );
            }
            25..40 => self.pair(),
            40..45 => self.copy(),
            45..55 => self.delete(),
            55..70 => drop(self.ask("sum", SUM, Some(&sum()))),
            70..75 => {
                let sql = "SELECT count(*) FROM facts a JOIN facts b ON a.x = b.x WHERE a.k = 1";
                drop(self.ask("join", sql, Some(&(1..=FACTS).filter(|x| x % 7 == 1).count().to_string())));
            }
            75..79 => {
                let sql =
                    "SELECT sum(r) FROM (SELECT row_number() OVER (ORDER BY k, x DESC) AS r FROM facts) AS q";
                drop(self.ask("sort", sql, Some(&(FACTS * (FACTS + 1) / 2).to_string())));
            }
            79..84 => self.cancel_endless(),
            84..90 => drop(self.check_balance()),
            90..95 => drop(self.check_pairs()),
            _ => drop(self.check_ledger()),
        }
    }

    fn new_rows(&mut self, count: usize) -> Vec<(i64, i64)> {
        (0..count)
            .map(|_| {
                self.next += 1;
                (self.next, self.random.random_range(1..1000))
            })
            .collect()
    }

    /// Returns the connection; reconnects, and waits for a server that is down.
    fn connection(&mut self) -> Option<&mut Client> {
        if self.client.is_none() {
            match Client::connect(self.port, CLIENT_TIMEOUT) {
                Ok(client) => self.client = Some(client),
                Err(failure) => {
                    self.count("connect", &failure);
                    thread::sleep(Duration::from_millis(50));
                }
            }
        }
        self.client.as_mut()
    }

    fn count(&self, what: &'static str, failure: &StatementError) {
        let outcome = match failure {
            StatementError::Refused(state, message) => {
                if matches!(state.as_str(), "XX000" | "XX001") {
                    self.shared.violate(format!("client {}, {what}: {state} {message}", self.number));
                }
                state.clone()
            }
            StatementError::Broken(_) => "broken".to_string(),
            StatementError::Silent => "silent".to_string(),
        };
        *self.shared.counts.lock().expect("no panic holds it").entry((what, outcome)).or_default() += 1;
    }

    /// Runs an operation, counts its outcome, and checks that it did not hang.
    fn with<T>(
        &mut self,
        what: &'static str,
        work: impl FnOnce(&mut Client) -> Result<T, StatementError>,
    ) -> Option<Result<T, StatementError>> {
        let start = Instant::now();
        let outcome = work(self.connection()?);
        let took = start.elapsed();
        if took > self.shared.hang + self.shared.outage_overlap(start) {
            let how = outcome.as_ref().err();
            self.shared.violate(format!("client {}, {what} took {took:.1?}: {how:?}", self.number));
        }
        {
            let mut slowest = self.shared.slowest.lock().expect("no panic holds it");
            let slot = slowest.entry(what).or_default();
            *slot = (*slot).max(took);
        }
        match &outcome {
            Ok(_) => {
                let mut counts = self.shared.counts.lock().expect("no panic holds it");
                *counts.entry((what, "done".to_string())).or_default() += 1;
            }
            Err(failure) => {
                self.count(what, failure);
                if !matches!(failure, StatementError::Refused(..)) {
                    self.client = None;
                }
            }
        }
        Some(outcome)
    }

    /// Runs a query and checks its value.
    fn ask(&mut self, what: &'static str, sql: &str, expected: Option<&str>) -> Option<String> {
        let answer = self.with(what, |client| client.one(sql))?.ok()?;
        if expected.is_some_and(|expected| expected != answer) {
            self.shared.violate(format!("client {}, {what}: {answer} instead of {expected:?}", self.number));
        }
        Some(answer)
    }

    /// Runs an autocommit statement.
    fn change(&mut self, what: &'static str, sql: &str, change: Change) {
        let outcome = self.with(what, |client| client.query(sql).map(|_| ()));
        self.apply_outcome(outcome, change);
    }

    /// Applies an acknowledged change to the model, or resolves an unknown outcome.
    fn apply_outcome(&mut self, outcome: Option<Result<(), StatementError>>, change: Change) {
        match outcome {
            None => {}
            Some(Ok(())) => self.apply(&change),
            // The outcome is unknown.
            Some(Err(StatementError::Refused(state, _))) if state == "40003" => {
                self.resolve_unknown_outcome(change)
            }
            Some(Err(StatementError::Refused(..))) => {}
            Some(Err(StatementError::Broken(_) | StatementError::Silent)) => {
                self.resolve_unknown_outcome(change)
            }
        }
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Insert(rows) => self.ledger.extend(rows.iter().copied()),
            Change::Delete(deleted_keys) => self.ledger.retain(|number, _| !deleted_keys.contains(number)),
            Change::Pair(number, amount) => {
                self.pairs.insert(*number, *amount);
            }
        }
    }

    /// Looks up whether a change with unknown outcome was committed.
    fn resolve_unknown_outcome(&mut self, change: Change) {
        thread::sleep(LOOKUP_DELAY);
        let deadline = Instant::now() + CLIENT_TIMEOUT;
        let (present, all) = loop {
            if Instant::now() > deadline {
                return self
                    .shared
                    .violate(format!("client {} cannot find out about {change:?}", self.number));
            }
            let list = |numbers: &mut dyn Iterator<Item = i64>| {
                numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(", ")
            };
            let number = self.number;
            let (sql, all) = match &change {
                Change::Insert(rows) => {
                    let numbers = list(&mut rows.iter().map(|row| row.0));
                    let sql =
                        format!("SELECT count(*) FROM ledger WHERE client = {number} AND n IN ({numbers})");
                    (sql, rows.len())
                }
                Change::Delete(deleted_keys) => {
                    let numbers = list(&mut deleted_keys.iter().copied());
                    let sql = format!(
                        "SELECT {} - count(*) FROM ledger WHERE client = {number} AND n IN ({numbers})",
                        deleted_keys.len()
                    );
                    (sql, deleted_keys.len())
                }
                Change::Pair(pair, _) => {
                    let of = |side| {
                        format!("(SELECT count(*) FROM {side} WHERE client = {number} AND n = {pair})")
                    };
                    (format!("SELECT {} + {}", of("left_side"), of("right_side")), 2)
                }
            };
            if let Some(Ok(count)) = self.with("look up", |client| client.one(&sql)) {
                break (count.parse::<usize>().unwrap_or(usize::MAX), all);
            }
            thread::sleep(Duration::from_millis(100));
        };
        let mut doubts = self.shared.doubts.lock().expect("no panic holds it");
        match present {
            0 => {
                doubts.1 += 1;
                drop(doubts);
                self.absent = Some(change);
            }
            outcome if outcome == all => {
                doubts.0 += 1;
                drop(doubts);
                self.apply(&change);
            }
            part => {
                drop(doubts);
                self.shared.violate(format!("client {}: {part} of {all} of {change:?}", self.number));
            }
        }
    }

    /// Inserts matching rows into two tables in one transaction; sometimes rolls back.
    fn pair(&mut self) {
        let (number, client_number) = (self.next + 1, self.number);
        self.next = number;
        let amount = self.random.random_range(1..1000);
        let keep = self.random.random_ratio(4, 5);
        let begin = self.with("begin", |client| {
            client.query("BEGIN")?;
            client.query(&format!("INSERT INTO left_side VALUES ({client_number}, {number}, {amount})"))?;
            client.query(&format!("INSERT INTO right_side VALUES ({client_number}, {number}, {})", -amount))
        });
        match begin {
            Some(Ok(_)) if keep => {
                let outcome = self.with("commit", |client| client.query("COMMIT").map(|_| ()));
                self.apply_outcome(outcome, Change::Pair(number, amount));
            }
            Some(Ok(_) | Err(StatementError::Refused(..))) => {
                // A rolled back transaction must never become visible.
                if let Some(Err(_)) = self.with("rollback", |client| client.query("ROLLBACK")) {
                    self.client = None;
                }
            }
            _ => {}
        }
    }

    fn copy(&mut self) {
        let count = self.random.random_range(50..150);
        let rows = self.new_rows(count);
        let lines: String =
            rows.iter().map(|(n, amount)| format!("{}\t{n}\t{amount}\n", self.number)).collect();
        let outcome = self.with("copy", |client| client.copy_in("COPY ledger FROM STDIN", &lines));
        self.apply_outcome(outcome, Change::Insert(rows));
    }

    fn delete(&mut self) {
        let count = match self.ledger.len() {
            0 => return,
            many if many > ROWS_MAX => many - ROWS_MAX / 2,
            _ => 1,
        };
        let deleted_keys: Vec<i64> = self.ledger.keys().copied().take(count).collect();
        let last = deleted_keys.last().copied().unwrap_or_default();
        let sql = format!("DELETE FROM ledger WHERE client = {} AND n <= {last}", self.number);
        self.change("delete", &sql, Change::Delete(deleted_keys));
    }

    /// Cancels an endless statement; statement_timeout is the backup.
    fn cancel_endless(&mut self) {
        let pause = Duration::from_millis(self.random.random_range(20..400));
        let ran = self.with("cancel", |client| {
            client.query("SET statement_timeout = '8s'")?;
            let cancel = client.canceler();
            let canceler = thread::spawn(move || {
                thread::sleep(pause);
                cancel();
            });
            let ran =
                client.query("SELECT count(*) FROM generate_series(1, 10000000000000) s(x) WHERE x % 2 = 3");
            let _ = canceler.join();
            client.query("RESET statement_timeout").map(|_| ())?;
            match ran {
                Err(StatementError::Refused(state, _)) if state == "57014" => Ok(()),
                Err(failure) => Err(failure),
                Ok(rows) => Err(StatementError::Broken(format!("an endless statement has ended: {rows:?}"))),
            }
        });
        if !matches!(ran, Some(Ok(()))) {
            // The timeout may still be set.
            self.client = None;
        }
    }

    /// Transactions keep this balance, so every snapshot must show it.
    fn check_balance(&mut self) -> bool {
        let sql = "SELECT (SELECT coalesce(sum(amount), 0) FROM left_side) + (SELECT coalesce(sum(amount), 0) FROM right_side)";
        self.ask("balance", sql, Some("0")).is_some()
    }

    fn check_pairs(&mut self) -> bool {
        let sql = format!(
            "SELECT l.n, l.amount FROM left_side l JOIN right_side r ON l.client = r.client AND l.n = r.n \
             WHERE l.client = {} AND l.amount + r.amount = 0",
            self.number
        );
        let expected = self.pairs.clone();
        self.check("pairs", &sql, &expected)
    }

    fn check_ledger(&mut self) -> bool {
        let sql = format!("SELECT n, amount FROM ledger WHERE client = {}", self.number);
        let expected = self.ledger.clone();
        self.check("ledger", &sql, &expected)
    }

    /// Compares a client's rows with its model. `false`: the query failed.
    fn check(&mut self, what: &'static str, sql: &str, expected: &BTreeMap<i64, i64>) -> bool {
        let Some(Ok(rows)) = self.with(what, |client| client.query(sql)) else {
            return false;
        };
        let number = |value: &Option<String>| value.as_ref().and_then(|text| text.parse::<i64>().ok());
        let actual: BTreeMap<i64, i64> =
            rows.iter().filter_map(|row| Some((number(row.first()?)?, number(row.get(1)?)?))).collect();
        if actual == *expected && rows.len() == expected.len() {
            return true;
        }
        let missing: Vec<_> = expected.iter().filter(|(n, _)| !actual.contains_key(n)).take(5).collect();
        let extra: Vec<_> = actual.iter().filter(|(n, _)| !expected.contains_key(n)).take(5).collect();
        self.shared.violate(format!(
            "client {}, {what}: {} rows instead of {}; missing {missing:?}, not to be there {extra:?}; last not heard of {:?}",
            self.number,
            rows.len(),
            expected.len(),
            self.absent
        ));
        // Reports each violation once.
        match what {
            "pairs" => self.pairs = actual,
            _ => self.ledger = actual,
        }
        true
    }
}
