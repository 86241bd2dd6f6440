//! Crashes during statements with sequences: no value that was returned or stored is given again, and
//! TRUNCATE … RESTART IDENTITY either has emptied the table and restarted its sequence, or neither.

use std::collections::BTreeMap;

use harrier_launch::finish;

use super::crash_fixture::{CrashFixture, Place, TIMEOUT};
use super::transaction::{Victim, crash_command, run_while_killing, steps_in, steps_to_try};

const MADE: [&str; 5] = [
    "CREATE SEQUENCE s",
    "CREATE SEQUENCE kept CACHE 5",
    "CREATE TABLE t (id INT GENERATED ALWAYS AS IDENTITY, x INT)",
    "INSERT INTO t (x) VALUES (1), (2), (3), (4)",
    "SELECT nextval('s'), nextval('kept')",
];

/// Statements with a crash. Every returned value has the name of its sequence beside it.
const STATEMENTS: [&str; 11] = [
    "SELECT 's' AS name, nextval('s') AS value FROM generate_series(1, 3)",
    "SELECT 'kept' AS name, nextval('kept') AS value",
    "INSERT INTO t (x) VALUES (5), (6)",
    "SELECT 'kept' AS name, nextval('kept') AS value FROM generate_series(1, 7)",
    "BEGIN",
    "TRUNCATE t RESTART IDENTITY",
    "INSERT INTO t (x) VALUES (7)",
    "SELECT 's' AS name, nextval('s') AS value",
    "COMMIT",
    "INSERT INTO t (x) VALUES (8), (9)",
    "SELECT 's' AS name, nextval('s') AS value",
];

/// Queries after the crash.
const AFTER: [&str; 6] = [
    "SELECT 's' AS name, nextval('s') AS value FROM generate_series(1, 5)",
    "SELECT 'kept' AS name, nextval('kept') AS value FROM generate_series(1, 5)",
    "SELECT 'row ' || x AS name, id AS value FROM t ORDER BY x",
    "INSERT INTO t (x) VALUES (100)",
    "SELECT 'new' AS name, id AS value FROM t WHERE x = 100",
    "CHECK TABLE t",
];

/// Possible rows by `x`; the last two are inserted after TRUNCATE.
const ROWS: [&[i64]; 4] = [&[1, 2, 3, 4], &[1, 2, 3, 4, 5, 6], &[7], &[7, 8, 9]];

/// Values by sequence name, in order.
fn sequence_values(csv: &str) -> BTreeMap<String, Vec<i64>> {
    let mut all: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for (name, value) in csv.lines().filter_map(|line| line.split_once(',')) {
        if let Ok(value) = value.parse() {
            all.entry(name.to_string()).or_default().push(value);
        }
    }
    all
}

/// A warehouse with sequences for crash tests.
pub struct Sequences(CrashFixture);

impl Sequences {
    pub fn new(place: impl Place + 'static) -> Self {
        Self(CrashFixture::new(place, &MADE))
    }

    /// Runs [`STATEMENTS`] without a crash, then with a crash at about `count` of its steps.
    ///
    /// Errors: the launcher is not installed.
    pub fn crash_at_steps(&self, victim: Victim<'_>, count: usize) -> Result<(), String> {
        let name = format!("{}, with sequences", victim.name());
        self.0.restore();
        let count_path = self.0.work().join("count");
        let mut full_run = crash_command(&self.0, victim, &STATEMENTS)?;
        full_run.env("HARRIER_CRASH_COUNT", &count_path);
        let run = finish(full_run, TIMEOUT);
        assert!(run.success, "{run:#?}");
        assert_eq!(self.check(&run.stdout, &name), 3);
        let steps = steps_in(&count_path).len();
        assert!(steps > count, "the steps of {name} are not seen: {steps}");
        let (mut died, mut states) = (0, [0; ROWS.len()]);
        for step in steps_to_try(&name, steps, steps.div_ceil(count)) {
            self.0.restore();
            let mut faulty = crash_command(&self.0, victim, &STATEMENTS)?;
            faulty.env("HARRIER_CRASH_AT", step.to_string());
            let (run, has_died) = match victim {
                Victim::Process | Victim::Rank(_) => {
                    let run = finish(faulty, TIMEOUT);
                    let has_died = !run.success;
                    (run, has_died)
                }
                Victim::Server { server, then, .. } => run_while_killing(server, then, faulty),
            };
            let context = format!("{name}, step {step} of {steps}: {run:#?}");
            assert!(!run.timed_out, "{context}");
            self.0.place.settle();
            let state = self.check(&run.stdout, &context);
            assert!(state == 3 || !run.success, "{context}");
            died += usize::from(has_died);
            states[state] += 1;
        }
        println!("{name}: {died} died; before and after INSERT, TRUNCATE and INSERT: {states:?}");
        assert!(died > 0, "{name}");
        Ok(())
    }

    /// Index of the state in [`ROWS`].
    ///
    /// Panics: a value was given twice, or a statement took effect in part.
    fn check(&self, returned_values: &str, context: &str) -> usize {
        let after = sequence_values(&self.0.query_output(&AFTER));
        let returned_values = sequence_values(returned_values);
        for sequence in ["s", "kept"] {
            let last =
                returned_values.get(sequence).and_then(|values| values.iter().max()).copied().unwrap_or(1);
            let values = returned_values.get(sequence).into_iter().chain(after.get(sequence)).flatten();
            let mut values: Vec<i64> = values.copied().collect();
            assert!(after[sequence].iter().all(|value| *value > last), "{sequence}: {after:?}\n{context}");
            let count = values.len();
            values.sort_unstable();
            values.dedup();
            assert_eq!(values.len(), count, "{sequence}: {returned_values:?}, {after:?}\n{context}");
        }
        let rows = after.iter().filter_map(|(name, ids)| Some((name.strip_prefix("row ")?, ids)));
        let rows: BTreeMap<i64, i64> = rows.map(|(x, ids)| (x.parse().unwrap(), ids[0])).collect();
        let actual: Vec<i64> = rows.keys().copied().collect();
        let state = ROWS.iter().position(|rows| **rows == actual);
        let state = state.unwrap_or_else(|| panic!("{actual:?}\n{context}"));
        let (new, last) = (after["new"][0], *rows.values().max().expect("there are rows"));
        // Two more values may have been taken for rows that were not stored.
        let (most, first) = if state < 2 { (7, 1) } else { (4, 1) };
        assert!(new > last && new <= most, "{new} after {rows:?}\n{context}");
        assert_eq!(rows.values().min(), Some(&first), "{rows:?}\n{context}");
        state
    }
}
