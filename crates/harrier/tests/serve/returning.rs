//! RETURNING in the extended protocol: descriptions, parameters, tags, portals, privileges.

use crate::test_server::{Client, TestServer};

const ALONE: &[&str] = &["--launcher", "none"];

/// Messages until ReadyForQuery, with types and bodies.
fn messages(client: &mut Client) -> Vec<(u8, Vec<u8>)> {
    let mut all = Vec::new();
    loop {
        let (kind, body) = client.message().expect("the server is there, and says something");
        if kind == b'Z' {
            return all;
        }
        all.push((kind, body));
    }
}

/// Column names of a RowDescription.
fn columns(body: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = &body[2..];
    while let Some(end) = rest.iter().position(|byte| *byte == 0) {
        names.push(String::from_utf8_lossy(&rest[..end]).to_string());
        // Table, column, type with size and modifier, format.
        rest = &rest[end + 1 + 18..];
    }
    names
}

#[test]
fn describe_returning_before_execute() {
    let server = TestServer::start(ALONE);
    let mut client = server.client();
    client.query("CREATE TABLE t (id BIGINT NOT NULL, name TEXT DEFAULT 'none')").unwrap();
    let sql = "INSERT INTO t (id) VALUES ($1) RETURNING id AS key, upper(name), t.name";
    let parse = [&b"p\0"[..], sql.as_bytes(), b"\0\0\0"].concat();
    client.send(b'P', &parse);
    client.send(b'D', b"Sp\0");
    client.send(b'S', &[]);
    let description = messages(&mut client);
    let kinds: Vec<u8> = description.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, b"1tT", "{description:?}");
    // One parameter of type int8.
    assert_eq!(description[1].1, [0, 1, 0, 0, 0, 20]);
    assert_eq!(columns(&description[2].1), ["key", "upper", "name"]);
    assert_eq!(server.client().one("SELECT count(*) FROM t").as_deref(), Ok("0"));
    for id in [b"7", b"8"] {
        let bind = [&b"\0p\0\0\0\0\x01\0\0\0\x01"[..], id, b"\0\0"].concat();
        client.send(b'B', &bind);
        client.send(b'E', &[0; 5]);
        client.send(b'S', &[]);
        let ran = messages(&mut client);
        let kinds: Vec<u8> = ran.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, b"2DC", "{ran:?}");
        let row = [&b"\0\x03\0\0\0\x01"[..], id, b"\0\0\0\x04NONE\0\0\0\x04none"].concat();
        assert_eq!(ran[1].1, row);
        assert_eq!(ran[2].1, b"INSERT 0 1\0");
    }
    assert_eq!(server.client().one("SELECT sum(id) FROM t").as_deref(), Ok("15"));
}

#[test]
fn returning_tags_and_parameters() {
    let server = TestServer::start(ALONE);
    let mut client = server.client();
    client
        .query("CREATE TABLE t (id BIGINT, name TEXT); INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        .unwrap();
    client.query("CREATE TABLE s (k BIGINT, v TEXT); INSERT INTO s VALUES (1, 'x'), (9, 'y')").unwrap();
    for (sql, names, tag) in [
        ("INSERT INTO t (id) VALUES (4), (5) RETURNING id, *", &["id", "id", "name"][..], "INSERT 0 2"),
        ("UPDATE t SET name = 'u' WHERE id > 3 RETURNING t.id, name AS n", &["id", "n"], "UPDATE 2"),
        ("UPDATE t SET name = v FROM s WHERE id = k RETURNING *", &["id", "name", "k", "v"], "UPDATE 1"),
        ("DELETE FROM t WHERE id > 3 RETURNING id::text, id + 1", &["id", "?column?"], "DELETE 2"),
        (
            "MERGE INTO t USING s ON id = k WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (k, v) RETURNING *",
            &["k", "v", "id", "name"],
            "MERGE 2",
        ),
        ("WITH w AS (SELECT 3 AS k) DELETE FROM t USING w WHERE id = w.k RETURNING id", &["id"], "DELETE 1"),
    ] {
        client.send(b'Q', &[sql.as_bytes(), b"\0"].concat());
        let execution = messages(&mut client);
        assert_eq!(execution[0].0, b'T', "{sql}: {execution:?}");
        assert_eq!(columns(&execution[0].1), names, "{sql}");
        let (kind, body) = execution.last().unwrap();
        assert_eq!((*kind, body.as_slice()), (b'C', &[tag.as_bytes(), b"\0"].concat()[..]), "{sql}");
    }
    // With fewer values than columns, with RETURNING and without.
    for sql in ["INSERT INTO t VALUES ($1) RETURNING id", "INSERT INTO t VALUES ($1)"] {
        client.send(b'P', &[&b"few\0"[..], sql.as_bytes(), b"\0\0\0"].concat());
        client.send(b'D', b"Sfew\0");
        client.send(b'C', b"Sfew\0");
        client.send(b'S', &[]);
        let description = messages(&mut client);
        assert_eq!(description[1].1, [0, 1, 0, 0, 0, 20], "{sql}: {description:?}");
    }
    // Parameters of the written values and of RETURNING.
    let sql = "UPDATE t SET name = $1 WHERE id < $2 RETURNING id + $3, $1";
    client.send(b'P', &[&b"p\0"[..], sql.as_bytes(), b"\0\0\0"].concat());
    client.send(b'D', b"Sp\0");
    client.send(b'S', &[]);
    let description = messages(&mut client);
    assert_eq!(description[1].1, [0, 3, 0, 0, 0, 25, 0, 0, 0, 20, 0, 0, 0, 20], "{description:?}");
    client.send(b'B', b"\0p\0\0\0\0\x03\0\0\0\x01z\0\0\0\x02\x35\x30\0\0\0\x011\0\0");
    client.send(b'E', &[0; 5]);
    client.send(b'S', &[]);
    let ran = messages(&mut client);
    let kinds: Vec<u8> = ran.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, b"2DDC", "{ran:?}");
    assert_eq!(
        server.client().one("SELECT string_agg(id || name, ',' ORDER BY id) FROM t").as_deref(),
        Ok("2z,9z")
    );
}

#[test]
fn returning_portals_fetch_in_parts() {
    let server = TestServer::start(ALONE);
    let mut client = server.client();
    client.query("CREATE TABLE t (id BIGINT)").unwrap();
    client.send(b'P', b"p\0INSERT INTO t VALUES (1), (2), (3) RETURNING id\0\0\0");
    client.send(b'B', b"\0p\0\0\0\0\0\0\0");
    client.send(b'E', b"\0\0\0\0\x02");
    client.send(b'E', b"\0\0\0\0\x02");
    client.send(b'S', &[]);
    let ran = messages(&mut client);
    let kinds: Vec<u8> = ran.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, b"12DDsDC", "{ran:?}");
    client.query("BEGIN").unwrap();
    assert_eq!(client.fails("DECLARE c CURSOR FOR INSERT INTO t VALUES (4) RETURNING id"), "42601");
    client.query("ROLLBACK").unwrap();
    // All rows are written, once.
    assert_eq!(server.client().one("SELECT count(*) FROM t").as_deref(), Ok("3"));
}

/// A portal with unread rows counts as a running statement until it is closed.
#[test]
fn closed_portals_end_their_statement() {
    let server = TestServer::start(ALONE);
    let mut watcher = server.client();
    for by in ["Close", "another Bind", "ROLLBACK", "an error", "the client's end"] {
        let mut client = server.client();
        let process = client.process;
        let running =
            format!("SELECT count(*) FROM sys.statements WHERE pid = {process} AND state = 'running'");
        client.query("BEGIN").unwrap();
        client.send(b'P', b"p\0SELECT * FROM generate_series(1, 1000000)\0\0\0");
        client.send(b'B', b"\0p\0\0\0\0\0\0\0");
        client.send(b'E', b"\0\0\0\0\x02");
        client.send(b'S', &[]);
        assert_eq!(client.answer().map(|rows| rows.len()), Ok(2));
        assert_eq!(watcher.one(&running).as_deref(), Ok("1"), "{by}");
        match by {
            "Close" => client.send(b'C', b"P\0"),
            "another Bind" => client.send(b'B', b"\0p\0\0\0\0\0\0\0"),
            "ROLLBACK" => drop(client.query("ROLLBACK")),
            "an error" => assert_eq!(client.fails("SELECT 1 / 0"), "22012"),
            _ => {
                drop(client);
                server.wait_for(&running, "0");
                continue;
            }
        }
        client.send(b'S', &[]);
        client.answer().unwrap();
        server.wait_for(&running, "0");
    }
}

#[test]
fn volatile_values_are_computed_once() {
    let server = TestServer::start(ALONE);
    let mut client = server.client();
    client.query("CREATE TABLE t (v DOUBLE PRECISION)").unwrap();
    let inserted = client.one("INSERT INTO t VALUES (random()) RETURNING v").unwrap();
    assert_eq!(client.one("SELECT v FROM t"), Ok(inserted));
}

#[test]
fn returning_needs_select_privilege() {
    let server = TestServer::start(ALONE);
    let mut admin = server.client();
    admin.query("CREATE TABLE t (a int, b int DEFAULT 5)").unwrap();
    admin.query("CREATE ROLE low LOGIN; GRANT INSERT, SELECT (a) ON t TO low").unwrap();
    let mut low = Client::connect(server.port, &[("user", "low")]).unwrap();
    assert_eq!(low.one("INSERT INTO t (a) VALUES (1) RETURNING a").as_deref(), Ok("1"));
    for items in ["b", "*", "a + b", "t.b"] {
        assert_eq!(low.fails(&format!("INSERT INTO t (a) VALUES (2) RETURNING {items}")), "42501", "{items}");
    }
    assert_eq!(low.fails("UPDATE t SET a = 9 RETURNING b"), "42501");
    assert_eq!(low.fails("DELETE FROM t RETURNING b"), "42501");
    admin.query("GRANT UPDATE, DELETE ON t TO low").unwrap();
    for sql in ["UPDATE t SET a = 9 RETURNING b", "DELETE FROM t RETURNING b", "DELETE FROM t RETURNING *"] {
        assert_eq!(low.fails(sql), "42501", "{sql}");
    }
    assert_eq!(low.one("UPDATE t SET a = 1 RETURNING a").as_deref(), Ok("1"));
    // Rows that the row filter of their writer hides are not written.
    admin.query("GRANT SELECT ON t TO low; CREATE ROW FILTER ON t TO low USING (a < 10)").unwrap();
    assert_eq!(low.one("INSERT INTO t (a) VALUES (3) RETURNING b").as_deref(), Ok("5"));
    assert_eq!(low.fails("INSERT INTO t (a) VALUES (30) RETURNING b"), "42501");
    // Rows written by others are not returned to a role that may not see them.
    admin.query("INSERT INTO t VALUES (40, 40)").unwrap();
    assert_eq!(low.one("DELETE FROM t WHERE a > 2 RETURNING a").as_deref(), Ok("3"));
    assert_eq!(low.one("UPDATE t SET b = 6 RETURNING a + b").as_deref(), Ok("7"));
    assert_eq!(low.fails("UPDATE t SET a = 41 RETURNING a"), "42501");
    assert_eq!(admin.one("SELECT string_agg(a::text, ',' ORDER BY a) FROM t").as_deref(), Ok("1,40"));
}
