//! Memory exhaustion attempts by a role without privileges: each statement would use all memory of the
//! machine. Each is answered or refused with an SQLSTATE for the reason (53200, 54000), the server's memory
//! stays bounded, and other sessions are answered meanwhile.

use std::time::{Duration, Instant};

use harrier_testkit::peak;

use crate::denial_of_service::{low, run_beside_other_client};
use crate::test_server::TestServer;

/// Memory limit of the server and its ranks for statements.
const MEMORY: &str = "512MiB";

/// Maximum of the process, including what is not accounted: outputs of operators, and of one call before its
/// size is known.
const RESIDENT_BYTES_MAX: u64 = 2 << 30;

/// Maximum time of a statement on a loaded machine; nearly all take milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// 42 MB in one batch; derived values exceed the limit.
const TEXT: &str = "repeat('x', 5000 + g::int % 100)";

/// Doubles the result of `seed` in 13 steps by `twice` of `x`: a mebibyte becomes gigabytes.
fn double_13_times(seed: &str, twice: &str) -> String {
    let steps: Vec<_> =
        (1..=13).map(|at| format!("t{at} AS (SELECT {twice} AS x FROM t{})", at - 1)).collect();
    format!(
        "WITH t0 AS (SELECT {seed} AS x FROM generate_series(1, 2) s(g)), {} SELECT x FROM t13",
        steps.join(", ")
    )
}

/// Statements that would exhaust memory, and must be refused.
fn exhausting_statements() -> Vec<String> {
    let rows = "FROM generate_series(1, 100000) t(g)";
    let mut statements: Vec<String> = [
        "SELECT array_length(array_repeat(1, 2000000000), 1)",
        "SELECT array_length(array_repeat(1, 400000000), 1)",
        "SELECT array_length(array_repeat('x', 9000000000000000000), 1)",
        "SELECT array_length(array_repeat(array_repeat(1, 20000), 20000), 1)",
        "SELECT array_length(range(1, 4000000000), 1)",
        "SELECT array_length(range(-9000000000000000000, 9000000000000000000), 1)",
        "SELECT range(timestamp '2000-01-01', timestamp '2026-01-01', interval '1 microsecond')",
        "SELECT generate_series(date '2026-01-01', date '2020-01-01', interval '1 month -28 days')",
        "SELECT array_length(array_resize(ARRAY[1], 1000000000, 0), 1)",
        "SELECT sum(length(repeat('x', 100000000))) FROM generate_series(1, 1000)",
        "SELECT repeat('x', 20000000) FROM generate_series(1, 10000)",
        "SELECT length(repeat('ab', 1000000000))",
        "SELECT length(lpad('a', 300000000, 'b'))",
        "SELECT length(replace(repeat('x', 1000000), 'x', repeat('y', 10000)))",
        "SELECT length(regexp_replace(repeat('x', 1000000), 'x', repeat('y', 10000), 'g'))",
        "SELECT length(array_to_string(range(1, 1000000), repeat('x', 10000)))",
        "SELECT array_length(string_to_array(repeat('a,', 100000000), ','), 1)",
        "SELECT array_length(string_to_array(repeat('a', 200000000), NULL), 1)",
        "SELECT array_replace_all(array_repeat('a', 100000), 'a', repeat('b', 100000))",
        "SELECT array_replace_n(array_repeat('a', 100000), 'a', repeat('b', 100000), 99999)",
        "WITH RECURSIVE r(n) AS (SELECT 'x' UNION ALL SELECT n || n FROM r) SELECT max(length(n)) FROM r",
        "WITH RECURSIVE r(n) AS (SELECT 'x' UNION ALL SELECT concat(n, n) FROM r) \
         SELECT max(length(n)) FROM r",
        "WITH RECURSIVE r(n) AS (SELECT 'x' UNION ALL SELECT repeat(n, 1000) FROM r) \
         SELECT max(length(n)) FROM r",
        "WITH RECURSIVE r(a) AS (SELECT ARRAY[1] UNION ALL SELECT array_concat(a, a) FROM r) \
         SELECT max(array_length(a, 1)) FROM r",
        "CREATE TEMP TABLE t AS SELECT repeat('x', 100000 + g::int) FROM generate_series(1, 100000) s(g)",
        "COPY (SELECT repeat('x', 200000 + g::int) FROM generate_series(1, 100000) t(g)) TO STDOUT",
        "EXPLAIN ANALYZE SELECT array_repeat(1, 400000000)",
        "SELECT string_agg(repeat('x', 300000 + g::int), ',') FROM generate_series(1, 100000) t(g)",
        "SELECT length(string_agg(repeat('x', 100000), ',')) FROM generate_series(1, 100000)",
        "SELECT count(x) FROM (SELECT a.x, b.n FROM (SELECT repeat('x', 50000000 + v.v) AS x \
         FROM (VALUES (1)) v(v)) a, generate_series(1, 10000) b(n) WHERE length(a.x) + b.n > 7) t",
        "SELECT count(*) FROM (SELECT unnest(array_repeat(repeat('x', 100000), 100000))) t",
    ]
    .map(str::to_string)
    .to_vec();
    let calls = [
        "repeat('x', 500000 + g::int)".to_string(),
        "repeat('x', 100000 + g::int)".to_string(),
        "lpad(g::text, 500000 + g::int, 'ab')".to_string(),
        "rpad(g::text, 500000 + g::int)".to_string(),
        "array_repeat(g, 50000 + g::int)".to_string(),
        "range(g, g + 100000)".to_string(),
        "array_resize(ARRAY[g], 100000, 7)".to_string(),
        format!("concat({TEXT}, {TEXT})"),
        format!("concat_ws({TEXT}, g::text, g::text, g::text)"),
        format!("{TEXT} || {TEXT}"),
        format!("make_array({TEXT}, {TEXT})"),
        format!("replace({TEXT}, 'x', 'yz')"),
        format!("encode({TEXT}::bytea, 'hex')"),
        format!("string_to_array({TEXT}, 'x')"),
        "array_to_string(range(g, g + 100000), ',')".to_string(),
        "array_append(array_repeat(g, 50000), g)".to_string(),
    ];
    statements.extend(calls.map(|call| format!("SELECT {call} {rows}")));
    let windows =
        ["array_agg(g) OVER (ORDER BY g)", "array_agg(g) OVER ()", "string_agg(g::text, ',') OVER ()"];
    statements.extend(windows.map(|call| format!("SELECT {call} {rows}")));
    let doublings = [
        ("repeat('x', 1000000 + g::int)", "x || x"),
        ("repeat('x', 1000000 + g::int)", "concat(x, x)"),
        ("repeat('x', 1000000 + g::int)", "overlay(x placing x from 1 for 0)"),
        ("repeat('x', 1000000 + g::int)", "replace(x, 'x', 'xx')"),
        ("range(g, g + 1000000)", "array_concat(x, x)"),
    ];
    statements.extend(doublings.map(|(seed, twice)| double_13_times(seed, twice)));
    statements
}

#[test]
fn statements_cannot_exhaust_memory() {
    let server = TestServer::start(&["--threads", "2", "--memory", MEMORY]);
    server.client().query("CREATE ROLE low LOGIN").unwrap();
    let mut statements = exhausting_statements();
    assert!(statements.len() >= 40);
    let mut answered_sql = Vec::new();
    run_beside_other_client(&server, || {
        let mut client = low(&server);
        client.query("SET statement_timeout = '50s'").unwrap();
        let long = "x".repeat(200_000);
        statements.push(format!("SELECT max('{long}'), max(n) FROM generate_series(1, 100000) t(n)"));
        peak::bytes(server.pid());
        for sql in &statements {
            let start = Instant::now();
            let outcome =
                client.query(sql).map(drop).map_err(|(state, message)| format!("{state}: {message}"));
            let (took, peak) = (start.elapsed(), peak::bytes(server.pid()).unwrap_or(0) >> 20);
            println!("{took:.1?} {peak} MiB {outcome:?}: {}", &sql[..sql.len().min(110)]);
            let is_refused = matches!(&outcome, Err(refused) if ["53200", "54000"].contains(&&refused[..5]));
            if !is_refused || took > PATIENCE || peak > RESIDENT_BYTES_MAX >> 20 {
                answered_sql.push(format!("{took:?} {peak} MiB {outcome:?}: {sql}"));
            }
        }
    });
    assert!(answered_sql.is_empty(), "{}\n{}", answered_sql.join("\n"), server.log());
    assert_eq!(server.client().one("SELECT 1").as_deref(), Ok("1"));
}
