//! Statements that compute without a pause are given up: by their time, by another session, by a client that
//! has gone. What they compute ends on every process and thread, and others are answered.
//!
//! Each would take minutes, or hours, to its end. That it stopped is seen by what needs the threads that it
//! had: every process has one, and the session's next statement waits until the one before has let go of the
//! session.

use std::time::{Duration, Instant};

use crate::denial_of_service::{beside_others, low};
use crate::test_server::{Client, Served};

const ROWS: u64 = 400_000;

/// Long enough for the slowest machine, and far less than the statements take.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a statement that computes takes of the processors before it is given up, seconds.
const COMPUTED_SECONDS: f64 = 0.3;

fn server(arguments: &[&str]) -> Served {
    let served = Served::start(&[&["--ranks", "2", "--threads", "1"], arguments].concat());
    let mut client = served.client();
    client.query("CREATE ROLE low LOGIN").unwrap();
    client.query("CREATE TABLE big (x BIGINT, k BIGINT) DISTRIBUTED BY (x)").unwrap();
    client.query(&format!("INSERT INTO big SELECT g, 1 FROM generate_series(1, {ROWS}) s(g)")).unwrap();
    client.query("GRANT SELECT ON big TO low").unwrap();
    served
}

/// Joins that take no pair of the thousands of millions that they look at.
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

/// What takes long in one call, or in one batch.
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

/// Planned for long, or refused.
fn plans() -> Vec<String> {
    let joins: Vec<_> = (0..900).map(|at| format!("(SELECT {at} AS c{at}) j{at}")).collect();
    vec![format!("SELECT count(*) FROM {}", joins.join(" CROSS JOIN "))]
}

/// The session's next statement, which waits for the end of the one before, and one for all ranks.
fn is_over(client: &mut Client, sql: &str) {
    let began = Instant::now();
    let shown = &sql[..sql.len().min(100)];
    // Which has no more time than the one before it.
    while let Err((state, _)) = client.query("SET statement_timeout = 0") {
        assert_eq!(state, "57014", "{shown}");
        assert!(began.elapsed() < PATIENCE, "{shown}: goes on after {:?}", began.elapsed());
    }
    assert_eq!(client.one("SELECT count(*) FROM big").as_deref(), Ok(ROWS.to_string().as_str()), "{shown}");
    assert!(began.elapsed() < PATIENCE, "{shown}: goes on after {:?}", began.elapsed());
}

fn end_by_their_time(served: &Served, statements: &[String]) {
    let mut client = low(served);
    for sql in statements {
        client.query("SET statement_timeout = '500ms'").unwrap();
        let outcome = client.query(sql).map(drop).map_err(|(state, _)| state);
        assert_eq!(outcome, Err("57014".to_string()), "{}", &sql[..sql.len().min(100)]);
        is_over(&mut client, sql);
    }
}

fn all() -> Vec<String> {
    joins().into_iter().chain(functions()).map(str::to_string).chain(plans()).collect()
}

#[test]
fn in_the_server() {
    let served = server(&[]);
    beside_others(&served, || end_by_their_time(&served, &all()));
}

#[test]
fn on_ranks() {
    let served = server(&["--set", "harrier.distribute_bytes_min=1"]);
    let plan = served.client().query(&format!("EXPLAIN {}", joins()[0])).unwrap();
    let shown = format!("{plan:?}");
    assert!(shown.contains("slice"), "{shown}");
    beside_others(&served, || end_by_their_time(&served, &all()));
    // Nothing of them is left anywhere.
    served.wait_for("SELECT coalesce(sum(reserved_bytes), 0) FROM sys.ranks", "0");
}

/// Until the statement that `runs` counts has the only thread of a process and computes on it. Whoever asks
/// meanwhile is answered all the same.
fn wait_until_it_computes(served: &Served, runs: &str) {
    served.wait_for(runs, "1");
    let began = processor_seconds(served);
    let deadline = Instant::now() + PATIENCE;
    while processor_seconds(served) < began + COMPUTED_SECONDS {
        served.wait_for(runs, "1");
        assert!(Instant::now() < deadline, "it does not compute: {}", served.log());
    }
}

/// What all processes of the server have taken so far.
fn processor_seconds(served: &Served) -> f64 {
    let ticks = |pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Behind the name, which may have blanks: the state, and 10 fields before those of user and system.
        let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        fields.get(11..13).map_or(0, |times| times.iter().filter_map(|time| time.parse::<u64>().ok()).sum())
    };
    let total: u64 = served.others().into_iter().chain([served.pid()]).map(ticks).sum();
    // Ticks of Linux, whatever the machine.
    total as f64 / 100.0
}

#[test]
fn by_another_session_and_by_going_away() {
    for arguments in [&[][..], &["--set", "harrier.distribute_bytes_min=1"]] {
        let served = server(arguments);
        let mut admin = served.client();
        for sql in [joins()[0], joins()[3], joins()[7]] {
            let mut client = low(&served);
            let pid = client.one("SELECT pg_backend_pid()").unwrap();
            client.ask(sql);
            let runs = format!(
                "SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND state = 'active' AND query LIKE '%FROM big%'"
            );
            wait_until_it_computes(&served, &runs);
            assert_eq!(admin.one(&format!("SELECT pg_cancel_backend({pid})")).as_deref(), Ok("t"));
            let (state, _) = client.answer().unwrap_err();
            assert_eq!(state, "57014", "{sql}");
            is_over(&mut client, sql);
            client.ask(sql);
            wait_until_it_computes(&served, &runs);
            drop(client);
            is_over(&mut admin, sql);
        }
    }
}
