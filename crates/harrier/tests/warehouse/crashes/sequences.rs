//! Sequences while somebody dies: no value that anybody was told of, or that a row has, is given once more,
//! and TRUNCATE … RESTART IDENTITY has emptied the table and begun its sequence anew, or neither.

use std::collections::BTreeMap;

use harrier_launch::finish;

use super::crash_fixture::{Ground, PATIENCE, Place};
use super::transaction::{Dying, commanded, steps_in, tried, while_dying};

const MADE: [&str; 5] = [
    "CREATE SEQUENCE s",
    "CREATE SEQUENCE kept CACHE 5",
    "CREATE TABLE t (id INT GENERATED ALWAYS AS IDENTITY, x INT)",
    "INSERT INTO t (x) VALUES (1), (2), (3), (4)",
    "SELECT nextval('s'), nextval('kept')",
];

/// Somebody dies in these. Every value that is told has the name of its sequence beside it.
const DYING: [&str; 11] = [
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

/// Asked afterwards.
const AFTER: [&str; 6] = [
    "SELECT 's' AS name, nextval('s') AS value FROM generate_series(1, 5)",
    "SELECT 'kept' AS name, nextval('kept') AS value FROM generate_series(1, 5)",
    "SELECT 'row ' || x AS name, id AS value FROM t ORDER BY x",
    "INSERT INTO t (x) VALUES (100)",
    "SELECT 'new' AS name, id AS value FROM t WHERE x = 100",
    "CHECK TABLE t",
];

/// The rows that there may be, by their `x`; the last two have come after TRUNCATE.
const ROWS: [&[i64]; 4] = [&[1, 2, 3, 4], &[1, 2, 3, 4, 5, 6], &[7], &[7, 8, 9]];

/// The values beside each name, in their order.
fn told(csv: &str) -> BTreeMap<String, Vec<i64>> {
    let mut all: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for (name, value) in csv.lines().filter_map(|line| line.split_once(',')) {
        if let Ok(value) = value.parse() {
            all.entry(name.to_string()).or_default().push(value);
        }
    }
    all
}

/// A warehouse with sequences in which somebody dies.
pub struct Sequences(Ground);

impl Sequences {
    pub fn new(place: impl Place + 'static) -> Self {
        Self(Ground::new(place, &MADE))
    }

    /// Runs [`DYING`] without a fault, and then with somebody dying at about `count` of the steps.
    ///
    /// Errors: the launcher is not installed.
    pub fn die(&self, dying: Dying<'_>, count: usize) -> Result<(), String> {
        let name = format!("{}, with sequences", dying.name());
        self.0.restore();
        let counted = self.0.work().join("count");
        let mut undisturbed = commanded(&self.0, dying, &DYING)?;
        undisturbed.env("HARRIER_CRASH_COUNT", &counted);
        let run = finish(undisturbed, PATIENCE);
        assert!(run.success, "{run:#?}");
        assert_eq!(self.check(&run.stdout, &name), 3);
        let steps = steps_in(&counted).len();
        assert!(steps > count, "the steps of {name} are not seen: {steps}");
        let (mut died, mut states) = (0, [0; ROWS.len()]);
        for step in tried(&name, steps, steps.div_ceil(count)) {
            self.0.restore();
            let mut faulty = commanded(&self.0, dying, &DYING)?;
            faulty.env("HARRIER_CRASH_AT", step.to_string());
            let (run, has_died) = match dying {
                Dying::Process | Dying::Rank(_) => {
                    let run = finish(faulty, PATIENCE);
                    let has_died = !run.success;
                    (run, has_died)
                }
                Dying::Server { server, then, .. } => while_dying(server, then, faulty),
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

    /// Which of [`ROWS`] there are.
    ///
    /// Panics: a value was given twice, or something has happened in part.
    fn check(&self, heard: &str, context: &str) -> usize {
        let after = told(&self.0.told(&AFTER));
        let heard = told(heard);
        for sequence in ["s", "kept"] {
            let last = heard.get(sequence).and_then(|values| values.iter().max()).copied().unwrap_or(1);
            let given = heard.get(sequence).into_iter().chain(after.get(sequence)).flatten();
            let mut given: Vec<i64> = given.copied().collect();
            assert!(after[sequence].iter().all(|value| *value > last), "{sequence}: {after:?}\n{context}");
            let count = given.len();
            given.sort_unstable();
            given.dedup();
            assert_eq!(given.len(), count, "{sequence}: {heard:?}, {after:?}\n{context}");
        }
        let rows = after.iter().filter_map(|(name, ids)| Some((name.strip_prefix("row ")?, ids)));
        let rows: BTreeMap<i64, i64> = rows.map(|(x, ids)| (x.parse().unwrap(), ids[0])).collect();
        let found: Vec<i64> = rows.keys().copied().collect();
        let state = ROWS.iter().position(|rows| **rows == found);
        let state = state.unwrap_or_else(|| panic!("{found:?}\n{context}"));
        let (new, last) = (after["new"][0], *rows.values().max().expect("there are rows"));
        // Two more may have been taken for rows that are not there.
        let (most, first) = if state < 2 { (7, 1) } else { (4, 1) };
        assert!(new > last && new <= most, "{new} after {rows:?}\n{context}");
        assert_eq!(rows.values().min(), Some(&first), "{rows:?}\n{context}");
        state
    }
}
