//! What a statement holds stays within `--memory`, but for what a process takes anyway: aggregates of long states.

use harrier_testkit::peak;
use harrier_testkit::session::{Configuration, Session};

const MEMORY: &str = "192MiB";

/// The limit, and 250 MB: 100 of them are the program itself, and a text that grows is there twice for a moment.
const BYTES_MAX: u64 = (192 << 20) + 250_000_000;

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
