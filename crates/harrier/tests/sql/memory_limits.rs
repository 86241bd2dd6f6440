//! What a statement holds stays within `--memory`, but for what a process takes anyway: aggregates of long
//! states, and sorts.

use harrier_testkit::peak;
use harrier_testkit::session::{Configuration, Session};

const MEMORY: &str = "192MiB";

/// The limit, and 150 MB for what is counted for no statement: the program itself, buffers of decoders and
/// writers.
const BYTES_MAX: u64 = (192 << 20) + 150_000_000;

const LONG: &str = "'text number ' || v || repeat('y', 40)";

/// Aggregates whose states are as long as what they have seen.
fn aggregates() -> Vec<String> {
    vec![
        format!("count(DISTINCT {LONG})"),
        format!("length(string_agg({LONG}, ','))"),
        format!("cardinality(array_agg({LONG}))"),
        format!("cardinality(array_agg({LONG} ORDER BY -v))"),
        format!("cardinality(array_agg(DISTINCT {LONG}))"),
        "median(v)".to_string(),
        "percentile_cont(0.3) WITHIN GROUP (ORDER BY v)".to_string(),
    ]
}

/// Runs each statement of its own, with memory that none has used before. Answers which of them were refused.
fn check_within_memory(statements: &[String]) -> Vec<&str> {
    let mut refused = Vec::new();
    for sql in statements {
        let mut session = Session::start(&Configuration::embedded().with_memory(MEMORY)).unwrap();
        if let Err(error) = session.run(sql) {
            assert_eq!(error.sqlstate, "53200", "{sql}: {error}");
            refused.push(sql.as_str());
        }
        if let Some(bytes) = peak::bytes(session.id()) {
            assert!(bytes <= BYTES_MAX, "{} MiB: {sql}", bytes >> 20);
        }
    }
    refused
}

#[test]
fn aggregates_of_long_states_stay_within_memory() {
    let of = |rows: usize| {
        let statement =
            move |aggregate| format!("SELECT {aggregate} FROM generate_series(1, {rows}) AS g(v)");
        aggregates().into_iter().map(statement).collect::<Vec<_>>()
    };
    // What is refused always would be bounded as well.
    assert_eq!(check_within_memory(&of(100_000)), [""; 0]);
    check_within_memory(&of(4_000_000));
}

#[test]
fn aggregates_of_long_states_by_groups_stay_within_memory() {
    let of = |rows: usize, groups: usize| {
        let statement = move |aggregate| {
            format!("SELECT v % {groups}, {aggregate} FROM generate_series(1, {rows}) AS g(v) GROUP BY 1")
        };
        aggregates().into_iter().map(statement).collect::<Vec<_>>()
    };
    assert_eq!(check_within_memory(&of(100_000, 5)), [""; 0]);
    assert_eq!(check_within_memory(&of(100_000, 20_000)), [""; 0]);
    check_within_memory(&of(2_000_000, 5));
    check_within_memory(&of(2_000_000, 200_000));
}

/// Whoever merges first leaves the other partitions, and the merge of all of them, what they need. Keys of
/// several columns take more than rows.
#[test]
fn sorts_spill_at_any_moment() {
    let texts = "SELECT count(*) FROM (SELECT b, row_number() OVER (ORDER BY b) AS n \
                 FROM (SELECT repeat('x', 200) || v AS b FROM generate_series(1, 700000) AS g(v)) AS r) AS q WHERE n > 0";
    let keys = "SELECT max(n) FROM (SELECT row_number() OVER (PARTITION BY v % 20000 ORDER BY v) AS n \
                FROM generate_series(1, 3000000) AS g(v)) AS q";
    for threads in ["1", "2"] {
        let configuration =
            Configuration::embedded().with_memory("48MiB").with_arguments(["--threads", threads]);
        let mut session = Session::start(&configuration).unwrap();
        for sql in [texts, texts, keys, keys] {
            session.run(sql).unwrap_or_else(|error| panic!("{threads} threads: {error:?}"));
        }
    }
}
