//! Random statements (`harrier_testkit::differential`) on one process, and on three ranks that take every
//! scan of a file, beside PostgreSQL, whose answers are right. What Harrier says that it does not support is
//! counted, by reason.
//!
//! `HARRIER_SEED` is the first seed, `HARRIER_STATEMENTS` how many there are (200, and 100 on ranks):
//!
//! ```text
//! HARRIER_SEED=5000 HARRIER_STATEMENTS=1000 cargo test --release -p harrier --test serve differential:: -- --nocapture
//! ```

use std::collections::BTreeMap;

use harrier_servers::Postgres;
use harrier_testkit::differential::{Answer, Outcome, Statement, compare, shrink, tables};

use crate::served::{Client, Served};

/// Of a run of the test suite, on one process and on ranks.
const STATEMENTS: u64 = 200;
const STATEMENTS_ON_RANKS: u64 = 100;

/// At most so many of a hundred statements may be unsupported because a subquery is correlated, and
/// otherwise.
const CORRELATED_PERCENT_MAX: usize = 25;
const UNSUPPORTED_PERCENT_MAX: usize = 5;

/// At most so many of a hundred may be refused by PostgreSQL, so that the generator says something.
const INVALID_PERCENT_MAX: usize = 10;

/// Both engines with the same tables.
struct Pair {
    oracle: Client,
    engine: Client,
}

impl Pair {
    /// `None`: PostgreSQL cannot be had here.
    fn new(served: &Served) -> Option<Self> {
        let postgres = Postgres::shared()?;
        let database = postgres.new_database();
        let settings = [("user", "harrier"), ("database", database.as_str())];
        let mut oracle = Client::connect(postgres.port(), &settings).unwrap();
        oracle.query("SET statement_timeout = '20s'").unwrap();
        let mut engine = served.client();
        for (client, options) in [(&mut oracle, ""), (&mut engine, " WITH (inline_rows = 0)")] {
            for sql in tables(options) {
                client.query(&sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
            }
        }
        Some(Self { oracle, engine })
    }

    fn run(&mut self, statement: &Statement) -> Outcome {
        let expected = answer(&mut self.oracle, statement);
        compare(statement, &expected, &answer(&mut self.engine, statement))
    }
}

/// What a statement returns; of one that changes rows, those that are there afterwards, before the change is
/// taken back.
fn answer(client: &mut Client, statement: &Statement) -> Answer {
    let Some(check) = &statement.check else { return client.query(&statement.sql) };
    client.query("BEGIN")?;
    let answer = client.query(&statement.sql).and_then(|_| client.query(check));
    client.query("ROLLBACK")?;
    answer
}

fn variable(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |value| value.parse().expect(name))
}

fn compare_with_postgresql(arguments: &[&str], statements: u64) {
    let served = Served::start(arguments);
    let Some(mut pair) = Pair::new(&served) else { return };
    let first = variable("HARRIER_SEED", 1);
    let count = variable("HARRIER_STATEMENTS", statements);
    let (mut same, mut failures) = (0, Vec::new());
    let [mut invalid, mut correlated, mut unsupported] = [(); 3].map(|()| BTreeMap::<String, usize>::new());
    for seed in first..first + count {
        match pair.run(&Statement::new(seed)) {
            Outcome::Same => same += 1,
            Outcome::Invalid(reason) => *invalid.entry(reason).or_default() += 1,
            Outcome::Unsupported(reason) if is_of_correlation(&reason) => {
                *correlated.entry(reason).or_default() += 1;
            }
            Outcome::Unsupported(reason) => *unsupported.entry(reason).or_default() += 1,
            Outcome::Different(_) => {
                let small = shrink(seed, |smaller| matches!(pair.run(smaller), Outcome::Different(_)));
                let outcome = pair.run(&small);
                let Outcome::Different(how) = outcome else { panic!("seed {seed} differs now and then") };
                println!("seed {seed}\n{};\n{how}\n", small.sql);
                failures.push(seed);
            }
        }
    }
    println!("{same} of {count} statements, seeds from {first}, have the same answer");
    let sum = |reasons: &BTreeMap<String, usize>| reasons.values().sum::<usize>();
    println!("{} are unsupported: {unsupported:#?}", sum(&unsupported));
    println!("{} are unsupported correlated subqueries: {correlated:#?}", sum(&correlated));
    println!("PostgreSQL refuses {}: {invalid:#?}", sum(&invalid));
    assert!(failures.is_empty(), "other answers for seeds {failures:?}");
    let percent = |part: usize| part * 100 / usize::try_from(count).unwrap();
    assert!(percent(sum(&unsupported)) <= UNSUPPORTED_PERCENT_MAX, "{unsupported:#?}");
    assert!(percent(sum(&correlated)) <= CORRELATED_PERCENT_MAX, "{correlated:#?}");
    assert!(percent(sum(&invalid)) <= INVALID_PERCENT_MAX, "{invalid:#?}");
}

fn is_of_correlation(reason: &str) -> bool {
    ["correlated", "OuterReferenceColumn", "about the row itself"].iter().any(|word| reason.contains(word))
}

#[test]
fn one_process_answers_as_postgresql() {
    compare_with_postgresql(&["--launcher", "none"], STATEMENTS);
}

#[test]
fn three_ranks_answer_as_postgresql() {
    let gang = ["--ranks", "3", "--threads", "1", "--set", "harrier.distribute_bytes_min=1"];
    compare_with_postgresql(&gang, STATEMENTS_ON_RANKS);
}
