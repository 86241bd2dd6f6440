//! Cancellation of statements that compute without yielding: by statement_timeout, by another session, or
//! because the client has disconnected. Their computation ends on every process and thread, and other
//! statements are answered meanwhile.
//!
//! Each statement would run for minutes or hours. Each process has one thread, so that a later statement
//! shows that it was released; the session's next statement waits for the end of the previous one.

use std::time::{Duration, Instant};

use crate::denial_of_service::{low, run_beside_other_client};
use crate::test_server::{Client, TestServer};

const ROWS: u64 = 400_000;

/// Timeout for the slowest machine, far below the run time of the statements.
const PATIENCE: Duration = Duration::from_secs(120);

/// Processor seconds that a statement uses before it is canceled.
const COMPUTED_SECONDS: f64 = 0.3;

fn server(arguments: &[&str]) -> TestServer {
    let test_server = TestServer::start(&[&["--ranks", "2", "--threads", "1"], arguments].concat());
    let mut client = test_server.client();
    client.query("CREATE ROLE low LOGIN").unwrap();
    client.query("CREATE TABLE big (x BIGINT, k BIGINT) DISTRIBUTED BY (x)").unwrap();
    client.query(&format!("INSERT INTO big SELECT g, 1 FROM generate_series(1, {ROWS}) s(g)")).unwrap();
    client.query("GRANT SELECT ON big TO low").unwrap();
    test_server
}

/// Joins that reject all of billions of pairs.
fn joins() -> Vec<&'static str> {
    vec![
        "SELECT count(*) FROM big a JOIN big b ON a.x + b.x < 0",
        "SELECT count(*) FROM big a LEFT JOIN big b ON a.x + b.x < 0",
        "SELECT count(*) FROM big a CROSS JOIN big b WHERE a.x + b.x < 0",
        "SELECT count(*) FROM big a JOIN big b ON a.k = b.k AND a.x + b.x < 0",
        "SELECT count(*) FROM big a FULL JOIN big b ON a.k = b.k AND a.x + b.x < 0",
        "SELECT count(*) FROM big a WHERE EXISTS (SELECT 1 FROM big b WHERE a.x + b.x < 0)",
        "SELECT count(*) FROM big a WHERE EXISTS (SELECT 1 FROM big b WHERE a.k = b.k AND a.x + b.x < 0)",
        "SELECT count(*) FROM big a WHERE NOT EXISTS (SELECT 1 FROM big b WHERE a.k = b.k)",
        "CREATE TEMP TABLE never AS SELECT a.x FROM big a JOIN big b ON a.x + b.x < 0",
        "EXPLAIN ANALYZE SELECT count(*) FROM big a JOIN big b ON a.x + b.x < 0",
    ]
}

/// Functions that compute for long in one call or one batch.
fn functions() -> Vec<&'static str> {
    vec![
        "SELECT count(*) FROM big WHERE levenshtein(repeat(x::text, 40), repeat('ab', 120)) < 0",
        "SELECT max(levenshtein(repeat('b', 250 + x % 5), repeat('ab', 120))) FROM big",
        "SELECT count(*) FROM big WHERE regexp_count(repeat(x::text, 4000), '(1.*){8}2(3.*){8}4') < 0",
        "SELECT count(*) FROM big WHERE regexp_substr(repeat(x::text, 4000), '(1.*){8}2(3.*){8}4') = 'x'",
        "SELECT array_has_all(range(0, 3000000), range(0, 3000000))",
        "SELECT range(0, 3000000) && range(3000000, 6000000)",
    ]
}

/// Statements that are planned for long, or refused.
fn plans() -> Vec<String> {
    let joins: Vec<_> = (0..900).map(|at| format!("(SELECT {at} AS c{at}) j{at}")).collect();
    vec![format!("SELECT count(*) FROM {}", joins.join(" CROSS JOIN "))]
}

/// Runs the session's next statement, which waits for the end of the previous one, and one on all ranks.
fn assert_ended(client: &mut Client, sql: &str) {
    let began = Instant::now();
    let sql_text = &sql[..sql.len().min(100)];
    // It has the same statement_timeout.
    while let Err((state, _)) = client.query("SET statement_timeout = 0") {
        assert_eq!(state, "57014", "{sql_text}");
        assert!(began.elapsed() < PATIENCE, "{sql_text}: goes on after {:?}", began.elapsed());
    }
    assert_eq!(
        client.one("SELECT count(*) FROM big").as_deref(),
        Ok(ROWS.to_string().as_str()),
        "{sql_text}"
    );
    assert!(began.elapsed() < PATIENCE, "{sql_text}: goes on after {:?}", began.elapsed());
}

fn assert_timeouts(test_server: &TestServer, statements: &[String]) {
    let mut client = low(test_server);
    for sql in statements {
        client.query("SET statement_timeout = '500ms'").unwrap();
        let outcome = client.query(sql).map(drop).map_err(|(state, _)| state);
        assert_eq!(outcome, Err("57014".to_string()), "{}", &sql[..sql.len().min(100)]);
        assert_ended(&mut client, sql);
    }
}

fn all_statements() -> Vec<String> {
    joins().into_iter().chain(functions()).map(str::to_string).chain(plans()).collect()
}

#[test]
fn statement_timeout_in_the_server() {
    let test_server = server(&[]);
    run_beside_other_client(&test_server, || assert_timeouts(&test_server, &all_statements()));
}

#[test]
fn statement_timeout_on_ranks() {
    let test_server = server(&["--set", "harrier.distribute_bytes_min=1"]);
    let plan = test_server.client().query(&format!("EXPLAIN {}", joins()[0])).unwrap();
    let sql_text = format!("{plan:?}");
    assert!(sql_text.contains("slice"), "{sql_text}");
    run_beside_other_client(&test_server, || assert_timeouts(&test_server, &all_statements()));
    // Nothing of them is left on any process.
    test_server.wait_for("SELECT coalesce(sum(reserved_bytes), 0) FROM sys.ranks", "0");
}

/// Waits until the statement counted by `runs` occupies the only thread of a process and computes. Monitoring
/// queries are answered meanwhile.
fn wait_until_it_computes(test_server: &TestServer, runs: &str) {
    test_server.wait_for(runs, "1");
    let began = processor_seconds(test_server);
    let deadline = Instant::now() + PATIENCE;
    while processor_seconds(test_server) < began + COMPUTED_SECONDS {
        test_server.wait_for(runs, "1");
        assert!(Instant::now() < deadline, "it does not compute: {}", test_server.log());
    }
}

/// Processor seconds of all processes of the server so far.
fn processor_seconds(test_server: &TestServer) -> f64 {
    let ticks = |pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The program name may contain blanks; after it come the state and 10 fields before utime and stime.
        let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        fields.get(11..13).map_or(0, |times| times.iter().filter_map(|time| time.parse::<u64>().ok()).sum())
    };
    let total: u64 = test_server.others().into_iter().chain([test_server.pid()]).map(ticks).sum();
    // Clock ticks of Linux on all architectures.
    total as f64 / 100.0
}

#[test]
fn pg_cancel_backend_and_client_disconnect() {
    for arguments in [&[][..], &["--set", "harrier.distribute_bytes_min=1"]] {
        let test_server = server(arguments);
        let mut admin = test_server.client();
        for sql in [joins()[0], joins()[3], joins()[7]] {
            let mut client = low(&test_server);
            let pid = client.one("SELECT pg_backend_pid()").unwrap();
            client.ask(sql);
            let runs = format!(
                "SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND state = 'active' AND query LIKE '%FROM big%'"
            );
            wait_until_it_computes(&test_server, &runs);
            assert_eq!(admin.one(&format!("SELECT pg_cancel_backend({pid})")).as_deref(), Ok("t"));
            let (state, _) = client.answer().unwrap_err();
            assert_eq!(state, "57014", "{sql}");
            assert_ended(&mut client, sql);
            client.ask(sql);
            wait_until_it_computes(&test_server, &runs);
            drop(client);
            assert_ended(&mut admin, sql);
        }
    }
}
