//! Scrollable cursors: FETCH in every direction as in PostgreSQL, and spilling of their rows.

use crate::test_server::{Answer, Client, TestServer};

const ALONE: &[&str] = &["--launcher", "none"];

/// First column of the rows that FETCH returns.
fn fetch(client: &mut Client, step: &str) -> Vec<String> {
    numbers(client.query(&format!("FETCH {step}")))
}

fn numbers(answer: Answer) -> Vec<String> {
    answer.unwrap().into_iter().map(|row| row[0].clone().unwrap()).collect()
}

/// Position of a statement's error in its text, from 1.
fn place(client: &mut Client, sql: &str) -> Option<usize> {
    client.ask(sql);
    let mut place = None;
    loop {
        match client.message().expect("the server is there") {
            (b'Z', _) => return place,
            (b'E', body) => {
                let fields = body.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(b"P"));
                place = fields.map(|digits| String::from_utf8_lossy(digits).parse().unwrap());
            }
            _ => {}
        }
    }
}

/// Each step was compared with PostgreSQL 15.
#[test]
fn scroll_cursors_fetch_in_every_direction() {
    let server = TestServer::start(ALONE);
    let mut client = server.client();
    // A syntax error of the query is reported before the missing transaction block.
    assert_eq!(client.fails("DECLARE c CURSOR FOR selec 1"), "42601");
    assert_eq!(client.fails("DECLARE c CURSOR FOR SELECT 1"), "25P01");
    // Positions refer to the text that was sent.
    for sql in ["DECLARE c CURSOR FOR SELECT nosuch FROM (SELECT 1) t", "SELECT 1; CLOSE a; FETCH b c"] {
        assert_eq!(
            place(&mut client, &format!("BEGIN; {sql}")),
            sql.find("nosuch").map(|at| at + 8),
            "{sql}"
        );
        client.query("ROLLBACK").unwrap();
    }
    client.query("BEGIN").unwrap();
    client
        .query("DECLARE c SCROLL CURSOR FOR SELECT g FROM generate_series(1, 5) AS t(g) ORDER BY g")
        .unwrap();
    for (step, expected) in [
        ("PRIOR FROM c", &[][..]),
        ("0 FROM c", &[]),
        ("2 FROM c", &["1", "2"]),
        ("RELATIVE 0 FROM c", &["2"]),
        ("PRIOR FROM c", &["1"]),
        ("BACKWARD 1 c", &[]),
        ("NEXT IN c", &["1"]),
        ("LAST c", &["5"]),
        ("NEXT c", &[]),
        ("FORWARD 0 c", &[]),
        ("BACKWARD 2 FROM c", &["5", "4"]),
        ("ABSOLUTE -2 FROM c", &["4"]),
        ("RELATIVE -2 FROM c", &["2"]),
        ("RELATIVE 2 FROM c", &["4"]),
        ("-3 FROM c", &["3", "2", "1"]),
        ("BACKWARD ALL FROM c", &[]),
        ("FORWARD ALL FROM c", &["1", "2", "3", "4", "5"]),
        ("BACKWARD ALL FROM c", &["5", "4", "3", "2", "1"]),
        ("ABSOLUTE 6 FROM c", &[]),
        ("PRIOR FROM c", &["5"]),
        ("ABSOLUTE -6 FROM c", &[]),
        ("ABSOLUTE 0 FROM c", &[]),
        ("FIRST FROM c", &["1"]),
        // The fifth row is fetched, and none after it was computed.
        ("FORWARD 4 FROM c", &["2", "3", "4", "5"]),
        ("PRIOR FROM c", &["4"]),
    ] {
        assert_eq!(fetch(&mut client, step), expected, "{step}");
    }
    for (step, tag) in [
        ("ALL FROM c", "MOVE 1"),
        ("BACKWARD ALL FROM c", "MOVE 5"),
        ("ABSOLUTE 3 FROM c", "MOVE 1"),
        ("0 FROM c", "MOVE 1"),
        ("FORWARD 9 FROM c", "MOVE 2"),
        ("LAST FROM c", "MOVE 1"),
    ] {
        client.query(&format!("MOVE {step}")).unwrap();
        assert_eq!(client.tag, tag, "{step}");
    }
    assert_eq!(client.one("SELECT is_scrollable FROM pg_cursors").as_deref(), Ok("t"));
    client.query("COMMIT").unwrap();
}

#[test]
fn no_scroll_cursors_fetch_forward_only() {
    let server = TestServer::start(ALONE);
    let mut client = server.client();
    for step in [
        "PRIOR FROM c",
        "BACKWARD 2 FROM c",
        "FIRST FROM c",
        "LAST FROM c",
        "RELATIVE -1 FROM c",
        "ABSOLUTE 2 FROM c",
    ] {
        client.query("BEGIN").unwrap();
        client
            .query("DECLARE c NO SCROLL CURSOR FOR SELECT * FROM generate_series(1, 9) ORDER BY 1")
            .unwrap();
        assert_eq!(fetch(&mut client, "2 FROM c"), ["1", "2"]);
        assert_eq!(client.fails(&format!("FETCH {step}")), "55000", "{step}");
        client.query("ROLLBACK").unwrap();
    }
    client.query("BEGIN").unwrap();
    client.query("DECLARE c CURSOR FOR SELECT * FROM generate_series(1, 9) ORDER BY 1").unwrap();
    assert_eq!(fetch(&mut client, "ABSOLUTE 3 FROM c"), ["3"]);
    assert_eq!(fetch(&mut client, "RELATIVE 2 FROM c"), ["5"]);
    client.query("MOVE FORWARD 2 IN c").unwrap();
    assert_eq!(client.tag, "MOVE 2");
    assert_eq!(fetch(&mut client, "NEXT c"), ["8"]);
    assert_eq!(client.one("SELECT is_scrollable FROM pg_cursors").as_deref(), Ok("f"));
    client.query("COMMIT").unwrap();
    assert_eq!(client.fails("DECLARE c SCROLL NO SCROLL CURSOR FOR SELECT 1"), "42P11");
}

/// A holdable cursor (WITH HOLD) has the rows of its transaction.
#[test]
fn holdable_cursors_scroll_after_commit() {
    let server = TestServer::start(ALONE);
    let mut client = server.client();
    client.query("CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2), (3)").unwrap();
    client.query("BEGIN").unwrap();
    client.query("DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT a FROM t ORDER BY a").unwrap();
    client.query("COMMIT").unwrap();
    client.query("DELETE FROM t").unwrap();
    assert_eq!(fetch(&mut client, "LAST FROM c"), ["3"]);
    assert_eq!(fetch(&mut client, "BACKWARD ALL FROM c"), ["2", "1"]);
    client.query("CLOSE c").unwrap();
    assert_eq!(client.fails("FETCH PRIOR FROM c"), "34000");
}

/// Rows beyond the memory of the statement spill to disk.
#[test]
fn large_cursors_spill_to_disk() {
    const ROWS: usize = 200_000;
    let server = TestServer::start(ALONE);
    let mut client = server.client();
    client.query("SET harrier.statement_memory = '16MiB'").unwrap();
    client.query("BEGIN").unwrap();
    let query = format!("SELECT g, repeat('x', 300) FROM generate_series(1, {ROWS}) AS t(g)");
    client.query(&format!("DECLARE c SCROLL CURSOR FOR {query}")).unwrap();
    assert_eq!(fetch(&mut client, "LAST FROM c"), [ROWS.to_string()]);
    for at in [1, ROWS / 2, 7, ROWS - 1, 100_001, 99_999] {
        assert_eq!(fetch(&mut client, &format!("ABSOLUTE {at} FROM c")), [at.to_string()]);
    }
    assert_eq!(fetch(&mut client, "BACKWARD 3 FROM c"), ["99998", "99997", "99996"]);
    let all = fetch(&mut client, "FORWARD ALL FROM c");
    assert_eq!((all.len(), all[0].as_str()), (ROWS - 99_996, "99997"));
    client.query("COMMIT").unwrap();
}
