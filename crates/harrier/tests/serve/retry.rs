//! Automatic retry after a rank is killed: a read-only statement that has sent no rows runs again, unnoticed
//! by its client; any other statement fails.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::test_server::{Client, PATIENCE, TestServer, page, signal};

const GANG: &[&str] =
    &["--ranks", "2", "--spares", "1", "--threads", "1", "--set", "harrier.distribute_bytes_min=1"];

/// A statement of several seconds that returns one row at the end.
const SLOW: &str = "SELECT count(*) FROM t a JOIN t b ON a.x % 2 = b.x % 2 WHERE (a.x * b.x) % 5 = 1";

/// Timeout of an answer: twice the run time, and the start of a gang.
const ANSWER_PATIENCE: Duration = Duration::from_secs(300);

/// Attempts until a kill hits two running statements.
const TRIES: usize = 6;

const OFF: &str = "SET harrier.retry_reads = off";

/// Starts a server with a table; `None`: MPI is skipped.
fn start(arguments: &[&str]) -> Option<TestServer> {
    if std::env::var_os("HARRIER_SKIP_MPI").is_some_and(|value| value == "1") {
        eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
        return None;
    }
    let server = TestServer::start(&[GANG, arguments].concat());
    server.wait_for_ranks(2);
    server.client().query("CREATE TABLE t AS SELECT x FROM generate_series(1, 30000) s(x)").unwrap();
    Some(server)
}

/// A client with a long timeout.
fn client(server: &TestServer) -> Client {
    let client = server.client();
    client.stream.set_read_timeout(Some(ANSWER_PATIENCE)).unwrap();
    client
}

/// Waits until the gang runs the statement of session `process`.
fn wait_until_it_runs(server: &TestServer, process: i32) {
    server.wait_for(
        &format!(
            "SELECT count(*) FROM sys.statements WHERE pid = {process} AND state = 'running' AND on_gang"
        ),
        "1",
    );
}

/// Number of the last statement of a session.
fn last_statement(server: &TestServer, client: &Client) -> String {
    let sql = format!("SELECT max(id) FROM sys.statements WHERE pid = {}", client.process);
    server.client().one(&sql).unwrap()
}

/// Process id of a working rank, the first or another.
fn victim(server: &TestServer, is_first: bool) -> u32 {
    let order = if is_first { "" } else { "DESC" };
    let sql = format!("SELECT pid FROM sys.ranks WHERE state = 'working' ORDER BY rank {order} LIMIT 1");
    server.client().one(&sql).unwrap().parse().unwrap()
}

/// Retries of the last statement of a session in `sys.statements`.
fn retries(server: &TestServer, client: &Client, text: &str) -> String {
    let sql = format!(
        "SELECT retries FROM sys.statements WHERE pid = {} AND text LIKE '{text}%' ORDER BY id DESC LIMIT 1",
        client.process
    );
    server.client().one(&sql).unwrap()
}

#[test]
fn read_only_statements_are_retried() {
    let Some(server) = start(&[]) else { return };
    let mut client = client(&server);
    let right = client.one(SLOW).unwrap();
    let mut again = 0;
    for (is_first, text) in [(false, SLOW), (true, SLOW), (false, "EXECUTE again")] {
        server.wait_for_ranks(2);
        if text != SLOW {
            client.query(&format!("PREPARE again AS {SLOW}")).unwrap();
        }
        client.ask(text);
        wait_until_it_runs(&server, client.process);
        signal(victim(&server, is_first), "KILL");
        let rows = match client.answer() {
            // Without rank 0 there is no gang, and a busy machine may need more than the 3 s that a statement
            // waits for a new one.
            Err((state, message))
                if is_first
                    && (state.as_str(), message.starts_with("the gang is lost")) == ("57P02", true) =>
            {
                eprintln!("the next gang was not there in time");
                assert_eq!(retries(&server, &client, text), "0");
                continue;
            }
            answer => answer.unwrap_or_else(|failure| panic!("{failure:?}\n{}", server.log())),
        };
        assert_eq!(rows[0][0].as_deref(), Some(right.as_str()));
        assert_eq!(retries(&server, &client, text), "1");
        again += 1;
    }
    assert!(again >= 2);
    assert!(server.log().contains("a statement is run once more"), "{}", server.log());
    let (_, metrics) = page(&server.pages, "/metrics", true);
    assert!(
        metrics.lines().any(|line| line == format!("harrier_statements_retried_total {again}")),
        "{metrics}"
    );
}

#[test]
fn retries_read_the_first_snapshot() {
    let Some(server) = start(&[]) else { return };
    let mut client = client(&server);
    let mut other = self::client(&server);
    client.query("BEGIN").unwrap();
    client.query("INSERT INTO t VALUES (1)").unwrap();
    client.query("SAVEPOINT one").unwrap();
    let answer = |client: &mut Client| {
        let rows = client.answer().unwrap_or_else(|failure| panic!("{failure:?}\n{}", server.log()));
        rows[0][0].clone().unwrap()
    };
    // The statement may finish before the kill; then the attempt is repeated.
    let mut again = [false; 2];
    for _ in 0..TRIES {
        server.wait_for_ranks(2);
        let (right, own) = (other.one(SLOW).unwrap(), client.one(SLOW).unwrap());
        assert_ne!(own, right);
        let before = [&other, &client].map(|client| (client.process, last_statement(&server, client)));
        other.ask(SLOW);
        client.ask(SLOW);
        for (process, before) in before {
            let sql = format!(
                "SELECT count(*) FROM sys.statements WHERE pid = {process} AND id > {before} AND on_gang \
                 AND state IN ('running', 'done')"
            );
            server.wait_for(&sql, "1");
        }
        // Neither run sees commits that happen meanwhile.
        server.client().query("INSERT INTO t SELECT x FROM generate_series(1, 1000) s(x)").unwrap();
        signal(victim(&server, false), "KILL");
        assert_eq!(answer(&mut other), right);
        assert_eq!(answer(&mut client), own);
        for (again, client) in again.iter_mut().zip([&other, &client]) {
            *again |= retries(&server, client, SLOW) == "1";
        }
        if again == [true; 2] {
            break;
        }
    }
    assert_eq!(again, [true; 2], "{}", server.log());
    client.query("COMMIT").unwrap();
}

#[test]
fn writes_and_started_results_are_not_retried() {
    let Some(server) = start(&[]) else { return };
    let mut client = client(&server);
    let kill = |client: &mut Client, sql: &str| {
        server.wait_for_ranks(2);
        client.ask(sql);
        wait_until_it_runs(&server, client.process);
        signal(victim(&server, false), "KILL");
        client.answer().expect_err(sql)
    };
    // A statement that writes.
    let insert = format!("INSERT INTO t {SLOW}");
    assert_eq!(kill(&mut client, &insert).0, "57P02");
    assert_eq!(retries(&server, &client, "INSERT"), "0");
    server.wait_for("SELECT count(*) FROM t", "30000");
    // The session has disabled retries.
    client.query(OFF).unwrap();
    let (state, message) = kill(&mut client, SLOW);
    assert!(state == "57P02" && message.contains("is lost"), "{state} {message}");
    assert_eq!(retries(&server, &client, "SELECT count"), "0");
    client.query("RESET harrier.retry_reads").unwrap();
    // Its first rows were sent: more than all buffers hold.
    server.wait_for_ranks(2);
    client.ask("SELECT a.x, b.x, repeat('x', 100) AS filler FROM t a, t b WHERE a.x <> b.x");
    while client.message().expect("rows").0 != b'D' {}
    signal(victim(&server, false), "KILL");
    assert_eq!(client.answer().unwrap_err().0, "57P02");
    assert_eq!(retries(&server, &client, "SELECT a.x"), "0");
    let (_, metrics) = page(&server.pages, "/metrics", true);
    assert!(metrics.lines().any(|line| line == "harrier_statements_retried_total 0"), "{metrics}");
}

#[test]
fn second_rank_loss_fails_the_statement() {
    let Some(server) = start(&[]) else { return };
    let mut client = client(&server);
    // Endless, so that the second run can be hit too.
    client.ask("SELECT count(*) FROM t a, t b, t c WHERE (a.x + b.x + c.x) % 7 = 3");
    wait_until_it_runs(&server, client.process);
    signal(victim(&server, false), "KILL");
    let deadline = Instant::now() + PATIENCE;
    while retries(&server, &client, "SELECT count") != "1" {
        assert!(Instant::now() < deadline, "{}", server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    signal(victim(&server, true), "KILL");
    assert_eq!(client.answer().unwrap_err().0, "57P02");
    assert_eq!(retries(&server, &client, "SELECT count"), "1");
}

/// Runs a query over Flight SQL with ADBC's driver, and prints the answer.
const FLIGHT: &str = "
import sys
import adbc_driver_flightsql.dbapi
with adbc_driver_flightsql.dbapi.connect('grpc://127.0.0.1:' + sys.argv[1], autocommit=True) as connection:
    with connection.cursor() as cursor:
        cursor.execute(sys.argv[2])
        print(cursor.fetchone()[0])
";

#[test]
fn flight_statements_are_retried() {
    let Some(python) = harrier_servers::clients_python() else { return };
    let Some(server) = start(&["--flight", "127.0.0.1:0"]) else { return };
    let right = server.client().one(SLOW).unwrap();
    let mut child = Command::new(python)
        .args(["-", &server.flight.to_string(), SLOW])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(FLIGHT.as_bytes()).unwrap();
    server.wait_for(
        "SELECT count(*) FROM sys.statements WHERE state = 'running' AND on_gang AND text LIKE 'SELECT count%'",
        "1",
    );
    signal(victim(&server, false), "KILL");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", server.log());
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), right);
    server.wait_for("SELECT max(retries) FROM sys.statements", "1");
}
