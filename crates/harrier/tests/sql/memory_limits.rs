//! Resident memory of a statement stays within `--memory` plus a fixed overhead: aggregates with long states,
//! and sorts.

use harrier_testkit::peak;
use harrier_testkit::session::{Configuration, Session};

const MEMORY: &str = "192MiB";

/// The limit, and 150 MB that no statement accounts for: the program itself, buffers of decoders and writers.
const BYTES_MAX: u64 = (192 << 20) + 150_000_000;

const LONG: &str = "'text number ' || v || repeat('y', 40)";

/// Aggregates with states as long as their input.
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

/// Runs each statement in a new process. Returns the refused statements.
fn check_within_memory(statements: &[String]) -> Vec<&str> {
    let mut refusals = Vec::new();
    for sql in statements {
        let mut session = Session::start(&Configuration::embedded().with_memory(MEMORY)).unwrap();
        if let Err(error) = session.run(sql) {
            assert_eq!(error.sqlstate, "53200", "{sql}: {error}");
            refusals.push(sql.as_str());
        }
        if let Some(bytes) = peak::bytes(session.id()) {
            assert!(bytes <= BYTES_MAX, "{} MiB: {sql}", bytes >> 20);
        }
    }
    refusals
}

#[test]
fn aggregates_of_long_states_stay_within_memory() {
    let of = |rows: usize| {
        let statement =
            move |aggregate| format!("SELECT {aggregate} FROM generate_series(1, {rows}) AS g(v)");
        aggregates().into_iter().map(statement).collect::<Vec<_>>()
    };
    // If all were refused, the bound would prove nothing.
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

/// The first partition that merges must leave memory to the others and to the final merge. Sort keys of
/// several columns take more memory than rows.
#[test]
fn concurrent_sorts_spill_within_memory() {
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

/// The limit of a process's temporary files: at the start, in a session, and on ranks.
#[test]
fn temporary_files_of_a_process_are_limited() {
    let sort = "SELECT count(*) FROM (SELECT b, row_number() OVER (ORDER BY b) AS n \
                FROM (SELECT repeat('x', 200) || v AS b FROM generate_series(1, 700000) AS g(v)) AS r) AS q WHERE n > 0";
    let setting = "datafusion.runtime.max_temp_directory_size";
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let configuration = || {
        Configuration::embedded().with_memory("48MiB").with_arguments([
            "--threads",
            "2",
            "--spill-dir",
            folder,
        ])
    };
    let mut session = Session::start(&configuration().with_setting(setting, "1MB")).unwrap();
    let shown = |session: &mut Session| {
        session.run(&format!("SHOW {setting}")).unwrap().into_rows().rows[0].last().cloned().flatten()
    };
    assert_eq!(shown(&mut session).as_deref(), Some("1M"));
    let failure = session.run(sort).unwrap_err();
    assert_eq!(failure.sqlstate, "53100", "{failure}");
    assert!(failure.to_string().contains(folder), "{failure}");
    session.run(&format!("SET {setting} = 0")).unwrap();
    session.run(sort).unwrap();
    session.run(&format!("RESET {setting}")).unwrap();
    assert_eq!(session.run(sort).unwrap_err().sqlstate, "53100");
    let mut session = Session::start(&configuration()).unwrap();
    session.run(sort).unwrap();
    session.run(&format!("SET {setting} = '1MB'")).unwrap();
    session.run("SET harrier.statement_spill = '1GB'").unwrap();
    assert_eq!(session.run(sort).unwrap_err().sqlstate, "53100");
    session.run("SET harrier.statement_spill = '64kB'").unwrap();
    assert_eq!(session.run(sort).unwrap_err().sqlstate, "53400");
    session.run("RESET ALL").unwrap();
    session.run("SET datafusion.runtime.max_spill_merge_fan_in = 3").unwrap();
    session.run(sort).unwrap();
    for (statement, sqlstate) in [
        (format!("SET {setting} = 'many'"), "22023"),
        ("SET datafusion.runtime.max_spill_merge_fan_in = 'x'".to_string(), "22023"),
        ("SET datafusion.runtime.temp_directory = '/tmp'".to_string(), "55P02"),
        ("RESET datafusion.runtime.temp_directory".to_string(), "55P02"),
    ] {
        assert_eq!(session.run(&statement).unwrap_err().sqlstate, sqlstate, "{statement}");
    }
}
