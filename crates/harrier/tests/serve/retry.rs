//! A rank is killed in the middle of a statement: one that only reads, and of which nothing was seen yet, is
//! run once more and its client hears nothing of it; any other one fails.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::test_server::{Client, PATIENCE, Served, page, signal};

const GANG: &[&str] =
    &["--ranks", "2", "--spares", "1", "--threads", "1", "--set", "harrier.distribute_bytes_min=1"];

/// Takes seconds, so that a rank can be killed meanwhile, and gives its row at the end.
const SLOW: &str = "SELECT count(*) FROM t a JOIN t b ON a.x % 2 = b.x % 2 WHERE (a.x * b.x) % 5 = 1";

/// How long an answer may take where other programs use the machine: twice the work, and a gang that starts.
const ANSWER_PATIENCE: Duration = Duration::from_secs(300);

/// How often a rank is killed until two statements were both in the middle of their work.
const TRIES: usize = 6;

const OFF: &str = "SET harrier.retry_reads = off";

/// A server with a table; `None`: there is no MPI.
fn start(arguments: &[&str]) -> Option<Served> {
    if std::env::var_os("HARRIER_SKIP_MPI").is_some_and(|value| value == "1") {
        eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
        return None;
    }
    let served = Served::start(&[GANG, arguments].concat());
    served.wait_for_ranks(2);
    served.client().query("CREATE TABLE t AS SELECT x FROM generate_series(1, 30000) s(x)").unwrap();
    Some(served)
}

/// A client that waits long.
fn client(served: &Served) -> Client {
    let client = served.client();
    client.stream.set_read_timeout(Some(ANSWER_PATIENCE)).unwrap();
    client
}

/// Waits until the gang works on what `process` has asked.
fn wait_until_it_runs(served: &Served, process: i32) {
    served.wait_for(
        &format!(
            "SELECT count(*) FROM sys.statements WHERE pid = {process} AND state = 'running' AND on_gang"
        ),
        "1",
    );
}

/// The number of the last statement of a session.
fn last_statement(served: &Served, client: &Client) -> String {
    let sql = format!("SELECT max(id) FROM sys.statements WHERE pid = {}", client.process);
    served.client().one(&sql).unwrap()
}

/// A rank that works, the first one or another.
fn victim(served: &Served, is_first: bool) -> u32 {
    let order = if is_first { "" } else { "DESC" };
    let sql = format!("SELECT pid FROM sys.ranks WHERE state = 'working' ORDER BY rank {order} LIMIT 1");
    served.client().one(&sql).unwrap().parse().unwrap()
}

/// What `sys.statements` tells of how often the last statement of a session was run again.
fn retries(served: &Served, client: &Client, text: &str) -> String {
    let sql = format!(
        "SELECT retries FROM sys.statements WHERE pid = {} AND text LIKE '{text}%' ORDER BY id DESC LIMIT 1",
        client.process
    );
    served.client().one(&sql).unwrap()
}

#[test]
fn what_only_reads_is_run_again() {
    let Some(served) = start(&[]) else { return };
    let mut client = client(&served);
    let right = client.one(SLOW).unwrap();
    let mut again = 0;
    for (is_first, text) in [(false, SLOW), (true, SLOW), (false, "EXECUTE again")] {
        served.wait_for_ranks(2);
        if text != SLOW {
            client.query(&format!("PREPARE again AS {SLOW}")).unwrap();
        }
        client.ask(text);
        wait_until_it_runs(&served, client.process);
        signal(victim(&served, is_first), "KILL");
        let rows = match client.answer() {
            // Without rank 0 there is no gang, and a machine that is busy may need more than the 3 s that a
            // statement waits for the next.
            Err((state, message))
                if is_first
                    && (state.as_str(), message.starts_with("the gang is lost")) == ("57P02", true) =>
            {
                eprintln!("the next gang was not there in time");
                assert_eq!(retries(&served, &client, text), "0");
                continue;
            }
            answer => answer.unwrap_or_else(|failure| panic!("{failure:?}\n{}", served.log())),
        };
        assert_eq!(rows[0][0].as_deref(), Some(right.as_str()));
        assert_eq!(retries(&served, &client, text), "1");
        again += 1;
    }
    assert!(again >= 2);
    assert!(served.log().contains("a statement is run once more"), "{}", served.log());
    let (_, metrics) = page(&served.pages, "/metrics", true);
    assert!(
        metrics.lines().any(|line| line == format!("harrier_statements_retried_total {again}")),
        "{metrics}"
    );
}

#[test]
fn a_second_run_reads_the_snapshot_of_the_first() {
    let Some(served) = start(&[]) else { return };
    let mut client = client(&served);
    let mut other = self::client(&served);
    client.query("BEGIN").unwrap();
    client.query("INSERT INTO t VALUES (1)").unwrap();
    client.query("SAVEPOINT one").unwrap();
    let answer = |client: &mut Client| {
        let rows = client.answer().unwrap_or_else(|failure| panic!("{failure:?}\n{}", served.log()));
        rows[0][0].clone().unwrap()
    };
    // A statement may be done before the rank is killed: then it is tried again.
    let mut again = [false; 2];
    for _ in 0..TRIES {
        served.wait_for_ranks(2);
        let (right, own) = (other.one(SLOW).unwrap(), client.one(SLOW).unwrap());
        assert_ne!(own, right);
        let before = [&other, &client].map(|client| (client.process, last_statement(&served, client)));
        other.ask(SLOW);
        client.ask(SLOW);
        for (process, before) in before {
            let sql = format!(
                "SELECT count(*) FROM sys.statements WHERE pid = {process} AND id > {before} AND on_gang \
                 AND state IN ('running', 'done')"
            );
            served.wait_for(&sql, "1");
        }
        // Neither sees what is committed while it runs, in either run.
        served.client().query("INSERT INTO t SELECT x FROM generate_series(1, 1000) s(x)").unwrap();
        signal(victim(&served, false), "KILL");
        assert_eq!(answer(&mut other), right);
        assert_eq!(answer(&mut client), own);
        for (again, client) in again.iter_mut().zip([&other, &client]) {
            *again |= retries(&served, client, SLOW) == "1";
        }
        if again == [true; 2] {
            break;
        }
    }
    assert_eq!(again, [true; 2], "{}", served.log());
    client.query("COMMIT").unwrap();
}

#[test]
fn what_was_seen_or_writes_or_may_not_is_not_run_again() {
    let Some(served) = start(&[]) else { return };
    let mut client = client(&served);
    let kill = |client: &mut Client, sql: &str| {
        served.wait_for_ranks(2);
        client.ask(sql);
        wait_until_it_runs(&served, client.process);
        signal(victim(&served, false), "KILL");
        client.answer().expect_err(sql)
    };
    // It writes.
    let insert = format!("INSERT INTO t {SLOW}");
    assert_eq!(kill(&mut client, &insert).0, "57P02");
    assert_eq!(retries(&served, &client, "INSERT"), "0");
    served.wait_for("SELECT count(*) FROM t", "30000");
    // The session does not want it.
    client.query(OFF).unwrap();
    let (state, message) = kill(&mut client, SLOW);
    assert!(state == "57P02" && message.contains("is lost"), "{state} {message}");
    assert_eq!(retries(&served, &client, "SELECT count"), "0");
    client.query("RESET harrier.retry_reads").unwrap();
    // Rows of it have been sent: these are more than fit anywhere on their way.
    served.wait_for_ranks(2);
    client.ask("SELECT a.x, b.x, repeat('x', 100) AS filler FROM t a, t b WHERE a.x <> b.x");
    while client.message().expect("rows").0 != b'D' {}
    signal(victim(&served, false), "KILL");
    assert_eq!(client.answer().unwrap_err().0, "57P02");
    assert_eq!(retries(&served, &client, "SELECT a.x"), "0");
    let (_, metrics) = page(&served.pages, "/metrics", true);
    assert!(metrics.lines().any(|line| line == "harrier_statements_retried_total 0"), "{metrics}");
}

#[test]
fn a_rank_that_is_lost_twice_fails_the_statement() {
    let Some(served) = start(&[]) else { return };
    let mut client = client(&served);
    // Without an end, so that its second run is there to be hit as well.
    client.ask("SELECT count(*) FROM t a, t b, t c WHERE (a.x + b.x + c.x) % 7 = 3");
    wait_until_it_runs(&served, client.process);
    signal(victim(&served, false), "KILL");
    let deadline = Instant::now() + PATIENCE;
    while retries(&served, &client, "SELECT count") != "1" {
        assert!(Instant::now() < deadline, "{}", served.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    signal(victim(&served, true), "KILL");
    assert_eq!(client.answer().unwrap_err().0, "57P02");
    assert_eq!(retries(&served, &client, "SELECT count"), "1");
}

/// Asks over Flight SQL, with the driver of ADBC, and prints the answer.
const FLIGHT: &str = "
import sys
import adbc_driver_flightsql.dbapi
with adbc_driver_flightsql.dbapi.connect('grpc://127.0.0.1:' + sys.argv[1], autocommit=True) as connection:
    with connection.cursor() as cursor:
        cursor.execute(sys.argv[2])
        print(cursor.fetchone()[0])
";

#[test]
fn what_flight_asks_is_run_again_too() {
    let Some(python) = harrier_servers::clients_python() else { return };
    let Some(served) = start(&["--flight", "127.0.0.1:0"]) else { return };
    let right = served.client().one(SLOW).unwrap();
    let mut child = Command::new(python)
        .args(["-", &served.flight.to_string(), SLOW])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(FLIGHT.as_bytes()).unwrap();
    served.wait_for(
        "SELECT count(*) FROM sys.statements WHERE state = 'running' AND on_gang AND text LIKE 'SELECT count%'",
        "1",
    );
    signal(victim(&served, false), "KILL");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", served.log());
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), right);
    served.wait_for("SELECT max(retries) FROM sys.statements", "1");
}
