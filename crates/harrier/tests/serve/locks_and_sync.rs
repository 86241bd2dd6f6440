//! Advisory locks between sessions, and errors of the extended protocol before Sync.

use crate::test_server::{Client, TestServer};

const ALONE: &[&str] = &["--launcher", "none"];

/// Messages of the extended protocol: Parse, Bind, Describe and Execute with unnamed objects, and Flush.
fn parse(sql: &str) -> (u8, Vec<u8>) {
    (b'P', [&b"\0"[..], sql.as_bytes(), b"\0\0\0"].concat())
}

fn bind(statement: &str) -> (u8, Vec<u8>) {
    (b'B', [&b"\0"[..], statement.as_bytes(), b"\0\0\0\0\0\0\0"].concat())
}

fn describe(what: &str) -> (u8, Vec<u8>) {
    (b'D', [what.as_bytes(), b"\0"].concat())
}

fn execute() -> (u8, Vec<u8>) {
    (b'E', vec![0; 5])
}

fn flush() -> (u8, Vec<u8>) {
    (b'H', vec![])
}

/// SQLSTATE of the next error, which must arrive without further messages.
fn next_error(client: &mut Client) -> String {
    loop {
        let (kind, body) = client.message().expect("the server is there, and says something");
        if kind == b'E' {
            let mut fields = body.split(|byte| *byte == 0);
            let state = fields.find(|field| field.first() == Some(&b'C')).unwrap();
            return String::from_utf8_lossy(&state[1..]).to_string();
        }
    }
}

#[test]
fn errors_are_sent_before_sync() {
    let server = TestServer::start(ALONE);
    let cases: [(&[(u8, Vec<u8>)], &str); 8] = [
        (&[parse("SELEC 1"), flush()], "42601"),
        (&[parse("SELECT * FROM nosuch"), bind(""), describe("P"), flush()], "42P01"),
        (&[parse("SELECT 1"), flush(), bind("nope"), flush()], "26000"),
        (&[parse("SELECT 1 / 0"), bind(""), execute(), flush()], "22012"),
        (&[describe("Snope"), flush()], "26000"),
        (&[describe("Pnope"), flush()], "34000"),
        // Without Flush, too.
        (&[parse("SELECT 1 / 0"), bind(""), execute(), execute()], "22012"),
        (&[parse("SELECT 1; SELECT 2")], "42601"),
    ];
    for (messages, state) in cases {
        let mut client = server.client();
        for (kind, body) in messages {
            client.send(*kind, body);
        }
        assert_eq!(next_error(&mut client), state, "{messages:?}");
        // Messages before Sync are discarded; then the session continues.
        client.send(b'P', &parse("SELECT 2").1);
        client.send(b'S', &[]);
        assert_eq!(client.answer(), Ok(vec![]));
        assert_eq!(client.one("SELECT 6 * 7").as_deref(), Ok("42"));
    }
}

#[test]
fn advisory_locks_block_other_sessions() {
    let server = TestServer::start(ALONE);
    let (mut first, mut second) = (server.client(), server.client());
    let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    assert_eq!(first.one("SELECT pg_try_advisory_lock(1)").as_deref(), Ok("t"));
    assert_eq!(first.one("SELECT pg_try_advisory_lock(1, 1)").as_deref(), Ok("t"));
    assert_eq!(second.one("SELECT pg_try_advisory_lock(1)").as_deref(), Ok("f"));
    assert_eq!(second.one("SELECT pg_try_advisory_lock_shared(1)").as_deref(), Ok("f"));
    assert_eq!(first.fails("SELECT pg_advisory_lock(1, 5000000000)"), "42883");
    assert_eq!(first.one("SELECT pg_try_advisory_lock(NULL)").as_deref(), Ok(""));
    // A waiting session can be canceled by pg_cancel_backend or by a timeout.
    second.ask("SELECT pg_advisory_lock(1)");
    server.wait_for(waits, "1");
    assert_eq!(first.one(&format!("SELECT pg_cancel_backend({})", second.process)).as_deref(), Ok("t"));
    assert_eq!(second.answer().unwrap_err().0, "57014");
    server.wait_for(waits, "0");
    second.query("SET lock_timeout = '1ms'").unwrap();
    assert_eq!(second.fails("SELECT pg_advisory_lock(1)"), "55P03");
    second.query("RESET lock_timeout").unwrap();
    // It gets the lock when the other session releases it, or ends.
    second.ask("SELECT pg_advisory_lock(1)");
    server.wait_for(waits, "1");
    assert_eq!(first.one("SELECT pg_advisory_unlock(1)").as_deref(), Ok("t"));
    second.answer().unwrap();
    assert_eq!(first.one("SELECT pg_advisory_unlock(1)").as_deref(), Ok("f"));
    // A deadlock fails one session.
    first.ask("SELECT pg_advisory_lock(1)");
    server.wait_for(waits, "1");
    assert_eq!(second.fails("SELECT pg_advisory_lock(1, 1)"), "40P01");
    drop(second);
    first.answer().unwrap();
    // Transaction-level locks end with their transaction.
    let mut third = server.client();
    first.query("BEGIN").unwrap();
    first.query("SELECT pg_advisory_xact_lock(2)").unwrap();
    assert_eq!(third.one("SELECT pg_try_advisory_lock(2)").as_deref(), Ok("f"));
    first.query("ROLLBACK").unwrap();
    assert_eq!(third.one("SELECT pg_try_advisory_lock(2)").as_deref(), Ok("t"));
    first.query("SELECT pg_advisory_xact_lock(3)").unwrap();
    assert_eq!(third.one("SELECT pg_try_advisory_lock(3)").as_deref(), Ok("t"));
    first.query("DISCARD ALL").unwrap();
    assert_eq!(third.one("SELECT pg_try_advisory_lock(1)").as_deref(), Ok("t"));
    third.query("SELECT pg_advisory_unlock_all()").unwrap();
    assert_eq!(third.one("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").as_deref(), Ok("0"));
}
