//! Denial-of-service attempts by a role without privileges: deep and wide statements, listed and generated.
//! Each is answered or refused with an SQLSTATE for the reason, the server survives, and other sessions are
//! answered meanwhile.

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::test_server::{Client, TestServer};

/// Maximum nesting that the parser allows.
const NO_LIMIT: &str = "SET datafusion.sql_parser.recursion_limit = 1000000000";

pub(crate) fn low(test_server: &TestServer) -> Client {
    Client::connect(test_server.port, &[("user", "low"), ("database", "warehouse")]).unwrap()
}

fn server() -> TestServer {
    let test_server = TestServer::start(&["--ranks", "2", "--threads", "1"]);
    test_server.client().query("CREATE ROLE low LOGIN").unwrap();
    test_server
}

/// Runs `attack` while a client of another role repeats a small query, which must be answered.
pub(crate) fn run_beside_other_client(test_server: &TestServer, attack: impl FnOnce()) {
    let (is_finished, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut client = test_server.client();
            while !is_finished.load(Ordering::Relaxed) {
                assert_eq!(client.one("SELECT 1").as_deref(), Ok("1"));
                answers.fetch_add(1, Ordering::Relaxed);
            }
        });
        let outcome = panic::catch_unwind(AssertUnwindSafe(attack));
        is_finished.store(true, Ordering::Relaxed);
        other.join().unwrap();
        outcome.unwrap_or_else(|panic| panic::resume_unwind(panic));
    });
    assert!(answers.load(Ordering::Relaxed) > 0);
}

/// Result of a statement, or the SQLSTATE of its failure.
fn outcome(client: &mut Client, sql: &str) -> Result<(), String> {
    client.query(sql).map(drop).map_err(|(state, _)| state)
}

fn chain(operand: &str, operator: &str, count: usize) -> String {
    vec![operand; count].join(operator)
}

fn join_numbered(count: usize, separator: &str, one: impl Fn(usize) -> String) -> String {
    (0..count).map(one).collect::<Vec<_>>().join(separator)
}

fn nest(open: &str, inner: &str, close: &str, depth: usize) -> String {
    format!("{}{inner}{}", open.repeat(depth), close.repeat(depth))
}

#[test]
fn long_chains_are_answered() {
    const ROWS: &str = "FROM generate_series(1, 2) t(g)";
    let test_server = server();
    let tables = |count: usize| {
        let others = join_numbered(count - 1, ", ", |at| format!("t{} AS (SELECT x FROM t{at})", at + 1));
        format!("WITH t0 AS (SELECT 1 x), {others} SELECT * FROM t{}", count - 1)
    };
    let statements = [
        format!("SELECT {}", chain("1", "+", 300)),
        format!("SELECT {} {ROWS}", chain("g", " - ", 300)),
        format!("SELECT {} {ROWS}", chain("g::text", " || ", 300)),
        format!("SELECT length({}) {ROWS}", chain("g::text", " || ", 5000)),
        format!("SELECT {} FROM generate_series(1, 1) t(g)", chain("g", " * ", 500)),
        format!("SELECT count(*) {ROWS} WHERE {}", join_numbered(20_000, " OR ", |at| format!("g = {at}"))),
        format!("SELECT count(*) {ROWS} WHERE {}", join_numbered(5000, " AND ", |at| format!("g <> {at}"))),
        format!(
            "SELECT count(*) {ROWS} WHERE {}",
            join_numbered(500, " OR ", |at| format!("g::text LIKE '%{at}'"))
        ),
        format!("SELECT 1{}", "::int".repeat(2000)),
        format!("SELECT 1{}", " IS NOT NULL".repeat(2000)),
        format!("SELECT count(*) FROM ({}) t", chain("SELECT 1", " UNION ALL ", 1000)),
        format!("SELECT count(*) FROM ({}) t", chain("SELECT 1", " UNION ", 500)),
        chain("SELECT 1", " EXCEPT ", 500),
        chain("SELECT 1", " INTERSECT ", 500),
        tables(300),
        format!(
            "SELECT CASE {} END {ROWS}",
            join_numbered(1000, " ", |at| format!("WHEN g = {at} THEN {at}"))
        ),
        format!("PREPARE p AS SELECT {}", chain("1", "+", 300)),
        format!("EXPLAIN SELECT {}", chain("1", "+", 100)),
        format!("SELECT count(*) {ROWS} WHERE g IN ({})", join_numbered(20_000, ", ", |at| at.to_string())),
        format!("SELECT {}", join_numbered(1600, ", ", |at| format!("1 AS c{at}"))),
        format!(
            "WITH t AS (SELECT g AS x {ROWS}) SELECT count(*) FROM t t0 {}",
            join_numbered(400, " ", |at| format!("JOIN t t{} ON t{}.x = t{at}.x", at + 1, at + 1))
        ),
        format!(
            "SELECT count(*) FROM (SELECT 1 AS x) t0 {}",
            join_numbered(400, " ", |at| format!("CROSS JOIN (SELECT {at} AS x) t{}", at + 1))
        ),
    ];
    run_beside_other_client(&test_server, || {
        let mut client = low(&test_server);
        for sql in &statements {
            let outcome = outcome(&mut client, sql);
            assert_eq!(outcome, Ok(()), "{}…", &sql[..sql.len().min(100)]);
        }
    });
}

#[test]
fn too_deep_statements_are_refused() {
    let test_server = server();
    let deep = [
        chain("1", "+", 10_000),
        chain("'a'", " || ", 10_000),
        format!("1{}", "::int".repeat(10_000)),
        format!("1{}", " IS NOT NULL".repeat(10_000)),
        format!("now(){}", " AT TIME ZONE 'UTC'".repeat(1000)),
        nest("(", "1", ")", 1000),
        nest("NOT ", "true", "", 1000),
        nest("- ", "1", "", 1000),
        nest("abs(", "1", ")", 300),
        nest("coalesce(1, ", "1", ")", 300),
        nest("CASE WHEN true THEN ", "1", " END", 1000),
        nest("(SELECT ", "1", ")", 300),
        nest("ARRAY[", "1", "]", 300),
        nest("EXISTS (SELECT 1 WHERE ", "true", ")", 300),
        nest("1 IN (SELECT 1 WHERE ", "true", ")", 300),
        nest("cast(", "1 BOGUS", " AS int)", 300),
        nest("cast(CASE (", "1", ")", 300),
        nest("position(", "'a'", ", 'b')", 300),
        nest("1 + (2 * (", "3", "))", 1000),
    ];
    run_beside_other_client(&test_server, || {
        let mut client = low(&test_server);
        let _ = outcome(&mut client, NO_LIMIT);
        for count in [1500, 3000, 20_000] {
            let others = join_numbered(count, ", ", |at| format!("t{} AS (SELECT x FROM t{at})", at + 1));
            let sql = format!("WITH t0 AS (SELECT 1 x), {others} SELECT * FROM t{count}");
            assert_eq!(outcome(&mut client, &sql), Err("54001".to_string()), "{count} in WITH");
            let joins = join_numbered(count, " CROSS JOIN ", |at| format!("(SELECT 1 AS c{at}) j{at}"));
            let sql = format!("SELECT 1 FROM {joins}");
            assert_eq!(outcome(&mut client, &sql), Err("54001".to_string()), "{count} joins");
        }
        let mut admin = test_server.client();
        admin.query("CREATE TABLE filtered (g INT)").unwrap();
        let filter = |predicate: String| format!("CREATE ROW FILTER ON filtered TO low USING ({predicate})");
        admin.query(&filter(nest("(", "g > 0", ")", 200))).unwrap();
        admin.query(&filter(nest("NOT ", "g > 0", "", 100))).unwrap();
        for levels in [1000, 10_000] {
            for predicate in [nest("(", "g > 0", ")", levels), nest("NOT ", "g > 0", "", levels)] {
                assert_eq!(admin.fails(&filter(predicate)), "54001", "a row filter of {levels} levels");
            }
        }
        for expression in &deep {
            for sql in [
                format!("SELECT {expression}"),
                format!("CREATE TEMP TABLE never AS SELECT 1 AS a WHERE ({expression}) IS NULL"),
                format!("COPY (SELECT {expression}) TO STDOUT"),
            ] {
                let state = outcome(&mut client, &sql).unwrap_err();
                let sql_text = &sql[..sql.len().min(100)];
                assert!(matches!(state.as_str(), "54001" | "42601"), "{state}: {sql_text}…");
            }
        }
    });
}

#[test]
fn nested_case_is_answered() {
    const ROWS: &str = "FROM generate_series(1, 2) t(g)";
    let test_server = server();
    let around = [
        ("CASE WHEN g > 0 THEN abs(", ") ELSE 0 END"),
        ("CASE WHEN g < 0 THEN 0 ELSE abs(", ") END"),
        ("CASE WHEN abs(", ") > 0 THEN g ELSE 0 END"),
        ("CASE g WHEN 3 THEN 0 ELSE abs(", ") END"),
        ("CASE WHEN g > 0 THEN abs(", ") END"),
        ("CASE WHEN g > 0 THEN cast(", " AS bigint)::int ELSE 0 END"),
        ("CASE WHEN g > 0 THEN length(repeat('a', ", ")) ELSE 0 END"),
        ("nullif(CASE WHEN g > 0 THEN ", " ELSE 0 END, 7)"),
        ("1 * CASE WHEN g > 0 THEN ", " ELSE 0 END"),
        ("CASE WHEN g IN (1, 2, ", ") THEN g ELSE 0 END"),
    ];
    let mut statements = Vec::new();
    for (open, close) in around {
        statements
            .push((format!("SELECT sum(n) FROM (SELECT {} AS n {ROWS}) q", nest(open, "g", close, 40)), "3"));
    }
    let deep = nest(around[0].0, "g", around[0].1, 40);
    statements.extend([
        (format!("SELECT sum({deep}) {ROWS}"), "3"),
        (format!("SELECT count(*) {ROWS} WHERE {deep} = 2"), "1"),
        (format!("SELECT count(*) FROM (SELECT {deep} AS k {ROWS} GROUP BY {deep}) q"), "2"),
        (format!("SELECT max(n) FROM (SELECT g, row_number() OVER (ORDER BY {deep} DESC) AS n {ROWS}) q WHERE g = 1"), "2"),
        (format!("SELECT count(*) {ROWS} JOIN generate_series(1, 2) u(h) ON u.h = {deep}"), "2"),
        (format!("SELECT (g IN ({deep}, 7))::text {ROWS} LIMIT 1"), "true"),
        (format!("SELECT {}", deep.replace('g', "1").replace("1enerate", "generate")), "1"),
    ]);
    let mut admin = test_server.client();
    admin.query("CREATE TABLE t (g INT, h INT)").unwrap();
    admin.query("INSERT INTO t VALUES (1, 1), (2, 2)").unwrap();
    admin.query("GRANT SELECT, UPDATE, DELETE ON t TO low").unwrap();
    admin
        .query(&format!(
            "CREATE ROW FILTER ON t TO low USING ({} = g)",
            nest(around[0].0, "g", around[0].1, 40)
        ))
        .unwrap();
    // Each view uses a column of the previous one twice.
    admin.query("CREATE VIEW v0 AS SELECT g FROM t").unwrap();
    for at in 1..=14 {
        let before = at - 1;
        admin
            .query(&format!(
                "CREATE VIEW v{at} AS SELECT CASE WHEN g > 0 THEN abs(g) ELSE 0 END AS g FROM v{before}"
            ))
            .unwrap();
    }
    admin.query(&format!("CREATE VIEW deep AS SELECT {deep} AS g {ROWS}")).unwrap();
    admin.query(&format!("CREATE TABLE d (x INT, g INT DEFAULT {})", deep.replace('g', "1"))).unwrap();
    admin.query("GRANT SELECT ON v14, deep TO low; GRANT SELECT, INSERT ON d TO low").unwrap();
    statements.extend([
        ("SELECT count(*) FROM v14 WHERE g > 1".to_string(), "1"),
        ("SELECT sum(g) FROM v14".to_string(), "3"),
        ("SELECT sum(g) FROM deep".to_string(), "3"),
        ("INSERT INTO d (x) VALUES (1)".to_string(), ""),
        ("SELECT g FROM d".to_string(), "1"),
        (format!("UPDATE t SET h = {deep} + 1 WHERE {deep} = 2"), ""),
        ("SELECT sum(h) FROM t".to_string(), "4"),
    ]);
    run_beside_other_client(&test_server, || {
        let mut client = low(&test_server);
        for (sql, expected) in &statements {
            assert_eq!(client.one(sql).as_deref(), Ok(*expected), "{}…", &sql[..sql.len().min(300)]);
        }
    });
}

/// Random nested expressions of one type.
const AROUND: [(&str, &str); 27] = [
    ("(", ")"),
    ("abs(", ")"),
    ("- ", ""),
    ("1 + ", ""),
    ("", " + 1"),
    ("", " * 2 - 1"),
    ("coalesce(", ", 1)"),
    ("greatest(1, ", ")"),
    ("CASE WHEN true THEN ", " ELSE 0 END"),
    ("CASE ", " WHEN 1 THEN 2 ELSE 3 END"),
    ("cast(", " AS int)"),
    ("", "::bigint"),
    ("(SELECT ", ")"),
    ("(SELECT max(m) FROM (SELECT ", " AS m) t)"),
    ("length((", ")::text)"),
    ("length('a' || (", ")::text)"),
    ("(ARRAY[", "])[1]"),
    ("CASE WHEN EXISTS (SELECT 1 WHERE (", ") = 1) THEN 1 ELSE 2 END"),
    ("CASE WHEN (", ") IN (1, 2, 3) THEN 1 ELSE 2 END"),
    ("CASE WHEN 1 IN (SELECT ", ") THEN 1 ELSE 2 END"),
    ("CASE WHEN (", ") BETWEEN 0 AND 9 THEN 1 ELSE 2 END"),
    ("CASE WHEN (", ") IS DISTINCT FROM 1 THEN 1 ELSE 2 END"),
    ("extract(day FROM interval '1 day' * (", "))::int"),
    ("nullif(", ", 0)"),
    ("coalesce(NULL, ", ", 1)"),
    ("CASE WHEN 2 > 1 AND (", ") = 1 THEN 1 ELSE 2 END"),
    ("CASE (", ") WHEN 1 THEN 2 WHEN length('a') THEN 3 END"),
];

#[test]
fn random_nesting_is_answered_or_refused() {
    let test_server = server();
    let seed = harrier_launch::seed();
    println!("HARRIER_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    run_beside_other_client(&test_server, || {
        let mut client = low(&test_server);
        let _ = outcome(&mut client, NO_LIMIT);
        for _ in 0..12 {
            let depth = 1 << random.random_range(0..8);
            let kinds: Vec<_> = AROUND.choose_multiple(&mut random, 3).copied().collect();
            let mut sql = "1".to_string();
            for _ in 0..depth {
                let (open, close) = kinds.choose(&mut random).unwrap();
                sql = format!("{open}{sql}{close}");
            }
            if let Err(state) = outcome(&mut client, &format!("SELECT {sql}")) {
                let sql_text = &sql[..sql.len().min(300)];
                // Arithmetic may overflow.
                assert!(
                    matches!(state.as_str(), "54001" | "22003" | "42601"),
                    "{state}, {depth} deep: {sql_text}"
                );
            }
        }
    });
}
