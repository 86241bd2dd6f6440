//! Sessions of `harrier serve`: cancellation, timeouts, queues, memory limits, and starting and losing a
//! gang.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::test_server::{Client, PATIENCE, TestServer, page, signal};

/// Runs until it is canceled.
const ENDLESS: &str = "SELECT count(*) FROM generate_series(1, 10000000000000) s(x) WHERE x % 2 = 3";

/// Two ranks, with every scan of a file distributed.
const GANG: &[&str] = &["--ranks", "2", "--threads", "1", "--set", "harrier.distribute_bytes_min=1"];

const ALONE: &[&str] = &["--launcher", "none"];

fn make_table(client: &mut Client) {
    let sql = "CREATE TABLE t WITH (inline_rows_max = 0) AS SELECT x, x % 7 AS k FROM generate_series(1, 100000) s(x)";
    let creation = client.query(sql);
    if creation.is_err() {
        client.query("CREATE TABLE t AS SELECT x, x % 7 AS k FROM generate_series(1, 100000) s(x)").unwrap();
    }
}

const SUM: &str = "SELECT sum(x) FROM t WHERE k < 3";

fn expected_sum() -> String {
    (1..=100_000_i64).filter(|x| x % 7 < 3).sum::<i64>().to_string()
}

#[test]
fn server_starts_and_stops() {
    let mut server = TestServer::start(ALONE);
    let mut client = server.client();
    assert_eq!(client.one("SELECT 1").as_deref(), Ok("1"));
    assert_eq!(client.parameters["server_encoding"], "UTF8");
    client.query("CREATE TABLE kept AS SELECT 42 AS a").unwrap();
    assert_eq!(server.stop(), Some(0));
    assert_eq!(client.answer().unwrap_err().0, "57P01");
    server.wait_for_no_others();
    let leftovers: Vec<_> = std::fs::read_dir(server.folder.path().join("tmp")).unwrap().collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
    let folder = std::mem::replace(&mut server.folder, tempfile::tempdir().unwrap());
    let again = TestServer::start_in(folder, ALONE);
    assert_eq!(again.client().one("SELECT a FROM kept").as_deref(), Ok("42"));
}

#[test]
fn transactions_of_sessions_are_separate() {
    let server = TestServer::start(ALONE);
    let (mut one, mut other) = (server.client(), server.client());
    one.query("CREATE TABLE t (a int)").unwrap();
    one.query("BEGIN").unwrap();
    assert_eq!(one.state, b'T');
    one.query("INSERT INTO t VALUES (1)").unwrap();
    assert_eq!(other.one("SELECT count(*) FROM t").as_deref(), Ok("0"));
    assert_eq!(one.fails("SELECT nosuch"), "42703");
    assert_eq!(one.state, b'E');
    assert_eq!(one.fails("SELECT 1"), "25P02");
    one.query("ROLLBACK").unwrap();
    assert_eq!(one.state, b'I');
    // A message with several statements is one transaction.
    assert_eq!(one.fails("INSERT INTO t VALUES (2); SELECT 1/0"), "22012");
    assert_eq!(other.one("SELECT count(*) FROM t").as_deref(), Ok("0"));
    one.query("INSERT INTO t VALUES (3); INSERT INTO t VALUES (4)").unwrap();
    assert_eq!(other.one("SELECT count(*) FROM t").as_deref(), Ok("2"));
    // A commit is visible to the next statement of every session.
    other.query("ALTER TABLE t ADD COLUMN b text").unwrap();
    assert_eq!(one.one("SELECT count(b) FROM t").as_deref(), Ok("0"));
    // A disconnected client's transaction is rolled back.
    one.query("BEGIN; INSERT INTO t VALUES (5, NULL)").unwrap();
    drop(one);
    server.wait_for("SELECT count(*) FROM sys.sessions", "2");
    assert_eq!(other.one("SELECT count(*) FROM t").as_deref(), Ok("2"));
}

#[test]
fn pg_cancel_and_timeouts() {
    let server = TestServer::start(ALONE);
    let mut client = server.client();
    let (process, secret) = (client.process, client.secret);
    client.ask(ENDLESS);
    server.wait_for(&format!("SELECT state FROM sys.sessions WHERE pid = {process}"), "active");
    let cancel = |secret: i32| {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        let parts = [16, 80_877_102, process, secret];
        stream.write_all(&parts.map(i32::to_be_bytes).concat()).unwrap();
        let _ = stream.read(&mut [0]);
    };
    cancel(secret ^ 1);
    std::thread::sleep(Duration::from_millis(100));
    let state = format!("SELECT state FROM sys.sessions WHERE pid = {process}");
    assert_eq!(server.client().one(&state).as_deref(), Ok("active"));
    cancel(secret);
    assert_eq!(client.answer().unwrap_err().0, "57014");
    // The session survives, and its next statement is not affected.
    assert_eq!(client.one("SELECT 2").as_deref(), Ok("2"));
    client.ask(ENDLESS);
    server.wait_for(&state, "active");
    assert_eq!(server.client().one(&format!("SELECT pg_cancel_backend({process})")).as_deref(), Ok("t"));
    assert_eq!(client.answer().unwrap_err().0, "57014");
    client.query("SET statement_timeout = '2s'").unwrap();
    let started = Instant::now();
    assert_eq!(client.fails(ENDLESS), "57014");
    assert!(started.elapsed() >= Duration::from_secs(2));
    client.query("RESET statement_timeout").unwrap();
    client.ask(ENDLESS);
    server.wait_for(&state, "active");
    assert_eq!(server.client().one(&format!("SELECT pg_terminate_backend({process})")).as_deref(), Ok("t"));
    assert_eq!(client.answer().unwrap_err().0, "57P01");
    server.wait_for(&format!("SELECT count(*) FROM sys.sessions WHERE pid = {process}"), "0");
    // A disconnected client's statement is canceled.
    let mut client = server.client();
    let process = client.process;
    client.ask(ENDLESS);
    server.wait_for(&format!("SELECT state FROM sys.sessions WHERE pid = {process}"), "active");
    drop(client);
    server.wait_for(&format!("SELECT count(*) FROM sys.sessions WHERE pid = {process}"), "0");
}

#[test]
fn idle_session_timeout() {
    let server = TestServer::start(ALONE);
    let mut client = Client::connect(server.port, &[("options", "-c idle_session_timeout=200ms")]).unwrap();
    assert_eq!(client.one("SHOW idle_session_timeout").as_deref(), Ok("200ms"));
    assert_eq!(client.answer().unwrap_err().0, "57P05");
    let mut client = server.client();
    client.query("SET idle_in_transaction_session_timeout = 200").unwrap();
    client.query("BEGIN").unwrap();
    assert_eq!(client.answer().unwrap_err().0, "25P03");
    assert_eq!(Client::connect(server.port, &[("nosuch", "1")]).err().unwrap().0, "42704");
}

#[test]
fn large_statements_run_on_the_gang() {
    let server = TestServer::start(GANG);
    let mut client = server.client();
    // Until a gang has started, this process executes.
    make_table(&mut client);
    assert_eq!(client.one(SUM), Ok(expected_sum()));
    server.wait_for_ranks(2);
    assert_eq!(client.one(SUM), Ok(expected_sum()));
    let on_gang = "SELECT on_gang FROM sys.statements WHERE text LIKE 'SELECT sum%' ORDER BY id DESC LIMIT 1";
    assert_eq!(client.one(on_gang).as_deref(), Ok("t"));
    let rows = client.query(&format!("EXPLAIN ANALYZE {SUM}")).unwrap();
    let text: Vec<String> = rows.into_iter().filter_map(|mut row| row.pop().flatten()).collect();
    assert!(text.iter().any(|line| line.contains("gather 2→1")), "{text:#?}");
    assert!(text.iter().any(|line| line.contains("on 2 ranks")), "{text:#?}");
    // Writes too, with the commit in this process.
    client.query("BEGIN").unwrap();
    client.query("INSERT INTO t SELECT x + 100000, k FROM t").unwrap();
    assert_eq!(client.one("SELECT count(*) FROM t").as_deref(), Ok("200000"));
    client.query("ROLLBACK").unwrap();
    assert_eq!(client.one("SELECT count(*) FROM t").as_deref(), Ok("100000"));
    client.query("UPDATE t SET k = 100 WHERE x = 1").unwrap();
    assert_eq!(client.one("SELECT count(*) FROM t WHERE k = 100").as_deref(), Ok("1"));
    assert_eq!(client.fails("SELECT sum(x / (k - 3)) FROM t"), "22012");
    assert_eq!(client.one(SUM), Ok((expected_sum().parse::<i64>().unwrap() - 1).to_string()));
}

#[test]
fn server_survives_lost_ranks() {
    let seed = harrier_launch::seed();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let server = TestServer::start(&[GANG, &["--spares", "1"]].concat());
    let mut client = server.client();
    make_table(&mut client);
    server.wait_for_ranks(2);
    // A spare replaces a killed or stopped rank; afterwards the gang is restarted, as after the loss of rank
    // 0.
    for how in ["KILL", "STOP", "KILL"] {
        let ranks = server.ranks();
        let victim = ranks[random.random_range(0..ranks.len())];
        signal(victim, how);
        let deadline = Instant::now() + PATIENCE;
        loop {
            match client.query(SUM) {
                Ok(rows) => {
                    assert_eq!(rows[0][0], Some(expected_sum()));
                    break;
                }
                Err((state, message)) => {
                    assert_eq!(state, "57P02", "{message}");
                    assert!(Instant::now() < deadline, "{message}\n{}", server.log());
                }
            }
        }
        server.wait_for_ranks(2);
        assert_eq!(client.one(SUM), Ok(expected_sum()), "{}", server.log());
    }
    for rank in server.ranks() {
        signal(rank, "KILL");
    }
    // Without ranks, this process executes until a new gang starts.
    let deadline = Instant::now() + PATIENCE;
    while client.one(SUM) != Ok(expected_sum()) {
        assert!(Instant::now() < deadline, "{}", server.log());
    }
    server.wait_for_ranks(2);
    assert_eq!(client.one(SUM), Ok(expected_sum()));
}

#[test]
fn gang_ends_with_its_server() {
    let mut server = TestServer::start(GANG);
    server.wait_for_ranks(2);
    assert_eq!(server.stop(), Some(0));
    server.wait_for_no_others();
    let server = TestServer::start(GANG);
    server.wait_for_ranks(2);
    signal(server.pid(), "KILL");
    server.wait_for_no_others();
}

#[test]
fn statements_wait_in_queues() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("serve.toml");
    std::fs::write(&config, "[gang]\nranks = 2\nthreads_per_rank = 1\nstatements_max = 1\n[settings]\n\"harrier.distribute_bytes_min\" = 1\n").unwrap();
    let server = TestServer::start(&["--config", config.to_str().unwrap()]);
    let mut first = server.client();
    make_table(&mut first);
    server.wait_for_ranks(2);
    // Seconds of work: stopped ranks check for cancellation between batches of pairs.
    let long = "SELECT count(*) FROM t a, t b WHERE a.x + b.x < 0 AND b.k < 2";
    first.ask(long);
    server.wait_for("SELECT running FROM sys.queues", "1");
    let mut second = server.client();
    second.ask(SUM);
    let process = second.process;
    server.wait_for(&format!("SELECT state FROM sys.statements WHERE pid = {process}"), "queued");
    // Statements without the gang do not wait in the queue.
    assert_eq!(server.client().one("SELECT 3").as_deref(), Ok("3"));
    server.client().query(&format!("SELECT pg_cancel_backend({})", first.process)).unwrap();
    assert_eq!(first.answer().unwrap_err().0, "57014");
    assert_eq!(second.answer().unwrap()[0][0], Some(expected_sum()));
    assert_eq!(server.client().one("SELECT running + waiting FROM sys.queues").as_deref(), Ok("0"));
}

#[test]
fn statement_memory_limits() {
    let wide = "SELECT count(*), sum(r), max(length(s)) FROM \
                (SELECT s, row_number() OVER (PARTITION BY k ORDER BY x DESC) AS r FROM t)";
    for arguments in [ALONE, GANG] {
        let server = TestServer::start(arguments);
        let mut client = server.client();
        client
            .query("CREATE TABLE t AS SELECT x, x % 7 AS k, repeat('x', 50) AS s FROM generate_series(1, 1000000) s(x)")
            .unwrap();
        if arguments == GANG {
            server.wait_for_ranks(2);
        }
        let expected = client.query(wide).unwrap();
        client.query("SET harrier.statement_memory = '32MB'").unwrap();
        assert_eq!(client.query(wide).unwrap(), expected, "it spills: {arguments:?}");
        client.query("SET harrier.statement_spill = '64kB'").unwrap();
        assert_eq!(client.fails(wide), "53400", "{arguments:?}");
        // The next statement and other sessions are not affected.
        assert_eq!(client.one("SELECT count(*) FROM t WHERE k = 3").as_deref(), Ok("142857"));
        assert_eq!(server.client().query(wide).unwrap(), expected);
        client.query("RESET harrier.statement_spill").unwrap();
        assert_eq!(client.query(wide).unwrap(), expected);
        client.query("SET harrier.result_rows_max = 10").unwrap();
        assert_eq!(client.fails("SELECT x FROM t"), "54000");
        assert_eq!(client.query("SELECT x FROM t LIMIT 10").unwrap().len(), 10);
    }
}

/// Aggregations whose states may exceed the memory limit of a statement run one after the other.
#[test]
fn plans_respect_the_configured_memory_limit() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("serve.toml");
    let sql = "EXPLAIN SELECT k, string_agg(s, ',') FROM t GROUP BY k";
    for (limit, is_sorted) in [("", false), ("memory_max = \"16MiB\"\n", true)] {
        std::fs::write(&config, format!("[statements]\n{limit}")).unwrap();
        let arguments = ["--memory", "2GiB", "--config", config.to_str().unwrap()];
        let server = TestServer::start(&[ALONE, &arguments].concat());
        let mut client = server.client();
        client
            .query("CREATE TABLE t AS SELECT x % 7 AS k, repeat('x', 20) || x AS s FROM generate_series(1, 100000) g(x)")
            .unwrap();
        let plan: Vec<String> = client.query(sql).unwrap().into_iter().flatten().flatten().collect();
        assert_eq!(plan.iter().any(|line| line.contains("SortExec")), is_sorted, "{limit}: {plan:#?}");
    }
}

#[test]
fn monitoring_pages_need_a_password() {
    let server = TestServer::start(ALONE);
    server.client().query("SELECT 'on a page'").unwrap();
    assert_eq!(page(&server.pages, "/healthz", false).0, 200);
    assert_eq!(page(&server.pages, "/statements", false).0, 401);
    let (status, body) = page(&server.pages, "/statements", true);
    assert_eq!(status, 200);
    assert!(body.contains("on a page"), "{body}");
    let (status, body) = page(&server.pages, "/metrics", true);
    assert_eq!(status, 200);
    assert!(body.contains("harrier_"), "{body}");
}

#[test]
fn unsafe_configurations_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_harrier"))
            .args(["serve", "--http", "off", "--warehouse"])
            .arg(folder.path().join("warehouse"))
            .args(arguments)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).to_string())
    };
    let (status, message) = run(&["--listen", "0.0.0.0:0"]);
    assert_eq!(status, Some(2), "{message}");
    assert!(message.contains("tls_certificate"), "{message}");
    let rules = folder.path().join("hba");
    std::fs::write(&rules, "host all all 127.0.0.1/32 password\n").unwrap();
    let config = folder.path().join("serve.toml");
    std::fs::write(&config, "[server]\nhba_file = \"hba\"\n").unwrap();
    let (status, message) = run(&["--listen", "127.0.0.1:0", "--config", config.to_str().unwrap()]);
    assert_eq!(status, Some(2), "{message}");
    assert!(message.contains("line 1"), "{message}");
    std::fs::write(&config, "[server]\nlisten_on = 3\n").unwrap();
    let (status, message) = run(&["--config", config.to_str().unwrap()]);
    assert_eq!(status, Some(2), "{message}");
    assert!(message.contains("listen_on"), "{message}");
    std::fs::write(&rules, "host all all 127.0.0.1/32 reject\n").unwrap();
    std::fs::write(&config, "[server]\nhba_file = \"hba\"\n").unwrap();
    let server = TestServer::start(&[ALONE, &["--config", config.to_str().unwrap()]].concat());
    assert_eq!(Client::connect(server.port, &[]).err().unwrap().0, "28000");
}

#[test]
fn pg_table_size() {
    let server = TestServer::start(ALONE);
    let mut client = server.client();
    client
        .query("CREATE TABLE t AS SELECT x, repeat('x', 10) AS s FROM generate_series(1, 50000) g(x)")
        .unwrap();
    let bytes = client.one("SELECT bytes FROM sys.tables WHERE table_name = 't'").unwrap();
    assert!(bytes.parse::<u64>().unwrap() > 1000, "{bytes}");
    for size in ["pg_relation_size('t')", "pg_table_size('t')", "pg_total_relation_size('t'::regclass)"] {
        assert_eq!(client.one(&format!("SELECT {size}")).as_ref(), Ok(&bytes), "{size}");
    }
    assert_eq!(client.one("SELECT pg_database_size('warehouse')").as_ref(), Ok(&bytes));
    assert_eq!(
        client.one("SELECT pg_typeof(x) || ' ' || pg_typeof(s) FROM t LIMIT 1").as_deref(),
        Ok("bigint text")
    );
    assert_eq!(client.fails("CREATE FUNCTION f(int) RETURNS int LANGUAGE sql AS 'SELECT 1'"), "0A000");
    let rows = "SELECT reltuples FROM pg_class WHERE relname = 't'";
    assert_eq!(client.one(rows).as_deref(), Ok("50000"));
    client.query("DELETE FROM t WHERE x % 5 = 0").unwrap();
    assert_eq!(client.one(rows).as_deref(), Ok("40000"));
}

#[test]
fn pg_stats_after_analyze() {
    let server = TestServer::start(ALONE);
    let mut client = server.client();
    client
        .query(
            "CREATE TABLE t AS SELECT x AS n, CASE WHEN x % 4 = 0 THEN NULL WHEN x % 2 = 0 THEN 'a b' ELSE 'c' END AS s \
             FROM generate_series(1, 1000) g(x)",
        )
        .unwrap();
    let stats = "SELECT attname, null_frac, n_distinct, avg_width, most_common_vals, most_common_freqs, \
                 split_part(histogram_bounds::text, ',', 101) FROM pg_stats WHERE tablename = 't' ORDER BY attname";
    assert_eq!(client.query(stats).unwrap(), Vec::<Vec<Option<String>>>::new());
    client.query("ANALYZE t").unwrap();
    let rows = client.query(stats).unwrap();
    let rows: Vec<Vec<&str>> =
        rows.iter().map(|row| row.iter().map(|cell| cell.as_deref().unwrap_or("-")).collect()).collect();
    assert_eq!(rows[0], ["n", "0", "-1", "8", "-", "-", "1000}"]);
    assert_eq!(rows[1], ["s", "0.25", "2", "2", "{c,\"a b\"}", "{0.5,0.25}", "-"]);
}

#[test]
fn explain_format_json() {
    let server = TestServer::start(ALONE);
    let mut client = server.client();
    let rows = client
        .query("EXPLAIN (FORMAT JSON, BUFFERS) SELECT x FROM generate_series(1, 3) g(x) WHERE x > 1")
        .unwrap();
    assert_eq!(rows.len(), 1, "{rows:?}");
    let json: serde_json::Value = serde_json::from_str(rows[0][0].as_deref().unwrap()).unwrap();
    assert!(json[0]["Plan"]["Node Type"].is_string(), "{json:#}");
    assert!(json[0]["Plan"]["Total Cost"].is_f64(), "{json:#}");
    let rows = client.query("EXPLAIN (VERBOSE, FORMAT JSON) SELECT 1 AS one").unwrap();
    let json: serde_json::Value = serde_json::from_str(rows[0][0].as_deref().unwrap()).unwrap();
    assert_eq!(json[0]["Plan"]["Output"][0], "one", "{json:#}");
    // EXPLAIN ANALYZE returns one column, too.
    let rows = client.query("EXPLAIN (ANALYZE, FORMAT JSON) SELECT 1 AS one").unwrap();
    assert_eq!((rows.len(), rows[0].len()), (1, 1), "{rows:?}");
    let json: serde_json::Value = serde_json::from_str(rows[0][0].as_deref().unwrap()).unwrap();
    assert_eq!(json[0]["Plan"]["Actual Rows"], 1, "{json:#}");
}

#[test]
fn explain_starts_with_costs() {
    let server = TestServer::start(ALONE);
    let mut client = server.client();
    client
        .query(
            "CREATE TABLE t (a int, b text); INSERT INTO t SELECT x, 'x' FROM generate_series(1, 1000) g(x)",
        )
        .unwrap();
    let rows = client.query("EXPLAIN SELECT a FROM t ORDER BY a").unwrap();
    let line = rows[0][0].as_deref().unwrap();
    // In the form that postgres_fdw reads.
    let (_, costs) = line.rsplit_once("  (cost=").unwrap_or_else(|| panic!("{line}"));
    let (startup, rest) = costs.split_once("..").unwrap();
    let (total, rest) = rest.split_once(" rows=").unwrap();
    let [startup, total]: [f64; 2] = [startup, total].map(|cost| cost.parse().unwrap());
    assert!(0.0 < startup && startup <= total, "{line}");
    assert_eq!(rest, "1000 width=4)");
}

#[test]
fn the_server_tells_its_address() {
    let server = TestServer::start(&["--launcher", "none"]);
    let mut client = server.client();
    assert_eq!(client.one("SELECT inet_server_port()"), Ok(server.port.to_string()));
    assert_eq!(client.one("SELECT inet_server_addr() = inet_client_addr()").as_deref(), Ok("t"));
    assert_eq!(client.one("SELECT pg_conf_load_time() IS NOT NULL").as_deref(), Ok("t"));
}
