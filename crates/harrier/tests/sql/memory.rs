//! What a statement holds stays within `--memory`, but for what a process takes anyway: aggregates of long states, and sorts.

use harrier_testkit::peak;
use harrier_testkit::session::{Configuration, Session};

const MEMORY: &str = "192MiB";

/// The limit, and 150 MB for what is counted for no statement: the program itself, buffers of decoders and writers.
const BYTES_MAX: u64 = (192 << 20) + 150_000_000;

const LONG: &str = "'text number ' || v || repeat('y', 40)";

#[test]
fn aggregates_of_long_states_stay_within_memory() {
    let mut refused = 0;
    let aggregates = [
        format!("count(DISTINCT {LONG})"),
        format!("length(string_agg({LONG}, ','))"),
        format!("cardinality(array_agg({LONG}))"),
        format!("cardinality(array_agg(DISTINCT {LONG}))"),
        "median(v)".to_string(),
        "percentile_cont(0.3) WITHIN GROUP (ORDER BY v)".to_string(),
    ];
    for aggregate in &aggregates {
        for rows in [100_000, 4_000_000] {
            let sql = format!("SELECT {aggregate} FROM generate_series(1, {rows}) AS g(v)");
            // Memory that another statement has given back would count for the next one.
            let mut session = Session::start(&Configuration::embedded().with_memory(MEMORY)).unwrap();
            if let Err(error) = session.run(&sql) {
                assert_eq!(error.sqlstate, "53200", "{sql}: {error}");
                refused += 1;
            }
            if let Some(bytes) = peak::bytes(session.id()) {
                assert!(bytes <= BYTES_MAX, "{} MiB: {sql}", bytes >> 20);
            }
        }
    }
    // What is refused always would be bounded as well.
    assert!(refused <= aggregates.len(), "{refused} of {} are refused", 2 * aggregates.len());
}

/// Whoever merges first leaves the other partitions, and the merge of all of them, what they need.
#[test]
fn sorts_spill_at_any_moment() {
    let sql = "SELECT count(*) FROM (SELECT b, row_number() OVER (ORDER BY b) AS n \
               FROM (SELECT repeat('x', 200) || v AS b FROM generate_series(1, 700000) AS g(v)) AS r) AS q WHERE n > 0";
    let configuration = Configuration::embedded().with_memory("48MiB");
    let mut session = Session::start(&configuration).unwrap();
    for _ in 0..4 {
        session.run(sql).unwrap_or_else(|error| panic!("{error}"));
    }
}
