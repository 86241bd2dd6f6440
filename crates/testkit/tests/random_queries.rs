//! Differential test of random queries: one rank and three return what plain DataFusion returns.
//!
//! Every query has a seed. `HARRIER_SEED=17` runs the queries from seed 17 on, `HARRIER_QUERIES` sets their
//! number; without them they are the same in every run, and the soak sets others. Failures are printed with
//! the seed and a smaller query.

use std::env;
use std::ops::Range;

use harrier_testkit::plain::{self, Plain};
use harrier_testkit::random_query::{self, RandomQuery};
use harrier_testkit::rows::Rows;
use harrier_testkit::session::RestartingSession;

/// Default number of queries: they take half a minute on two cores.
const QUERIES: u64 = 300;

#[test]
fn random_queries_match_datafusion() {
    let folder = tempfile::tempdir().expect("a folder");
    random_query::write_tables(folder.path()).expect("tables");
    let plain = Plain::open(folder.path()).expect("tables");
    let tables = plain::create_tables(folder.path()).expect("tables");
    let mut ways = RestartingSession::one_and_three_ranks(&tables);

    let (mut failures, mut compared) = (Vec::new(), 0);
    let seeds = seeds();
    println!("seeds {} to {}", seeds.start, seeds.end - 1);
    for way in &mut ways {
        let report = random_query::check(seeds.clone(), &plain, |sql| way.rows(sql));
        compared += report.compared;
        for failure in report.failures {
            let actual = show(way.rows(&failure.sql));
            let name = way.name();
            failures.push(format!(
                "on {name}, {failure}\nplain DataFusion: {}\n{name}: {actual}\nthe whole query: {}\nagain: HARRIER_SEED={} HARRIER_QUERIES=1",
                show(plain.run(&failure.sql)),
                RandomQuery::new(failure.seed).sql(),
                failure.seed,
            ));
        }
    }
    println!("{compared} results compared");
    assert!(failures.is_empty(), "{} queries failed\n\n{}", failures.len(), failures.join("\n\n"));
}

fn seeds() -> Range<u64> {
    let number = |name: &str| {
        let value = env::var(name).ok()?;
        Some(value.parse::<u64>().unwrap_or_else(|_| panic!("{name}={value} is no number")))
    };
    let queries = number("HARRIER_QUERIES").unwrap_or(QUERIES);
    let first = number("HARRIER_SEED").unwrap_or(0);
    first..first + queries
}

/// The first rows of a result, or its error.
fn show(answer: Result<Rows, String>) -> String {
    const ROWS_MAX: usize = 20;
    let rows = match answer {
        Ok(rows) => rows.rows,
        Err(message) => return message,
    };
    let line = |row: &Vec<Option<String>>| {
        let cells: Vec<&str> = row.iter().map(|cell| cell.as_deref().unwrap_or("∅")).collect();
        format!("\n  {}", cells.join(" | "))
    };
    let lines: String = rows.iter().take(ROWS_MAX).map(line).collect();
    format!("{} rows{lines}", rows.len())
}
