//! Prepared statements after ALTER TABLE: they continue if their result columns are the same, and fail
//! otherwise, instead of sending rows that the client would misread.

use crate::test_server::{Answer, Client, TestServer};

const ALONE: &[&str] = &["--launcher", "none"];

/// SQLSTATE and message as in PostgreSQL.
const CHANGED: (&str, &str) = ("0A000", "cached plan must not change result type");

const SYNC: (u8, &[u8]) = (b'S', b"");

/// Parse and Describe with the parameter types of the client.
fn prepare(client: &mut Client, name: &str, sql: &str, types: &[i32]) {
    let mut body = [name.as_bytes(), b"\0", sql.as_bytes(), b"\0"].concat();
    body.extend((types.len() as i16).to_be_bytes());
    body.extend(types.iter().flat_map(|oid| oid.to_be_bytes()));
    client.send(b'P', &body);
    client.send(b'D', &[b"S", name.as_bytes(), b"\0"].concat());
    client.send(SYNC.0, SYNC.1);
    client.answer().unwrap();
}

/// Bind with text values and result formats `formats`; Execute of at most `rows` rows, 0 for all.
fn run(client: &mut Client, (name, portal): (&str, &str), values: &[&str], formats: &[i16], rows: i32) {
    let mut body = [portal.as_bytes(), b"\0", name.as_bytes(), b"\0\0\0"].concat();
    body.extend((values.len() as i16).to_be_bytes());
    for value in values {
        body.extend((value.len() as i32).to_be_bytes());
        body.extend(value.as_bytes());
    }
    body.extend((formats.len() as i16).to_be_bytes());
    body.extend(formats.iter().flat_map(|format| format.to_be_bytes()));
    client.send(b'B', &body);
    execute(client, portal, rows);
}

fn execute(client: &mut Client, portal: &str, rows: i32) {
    client.send(b'E', &[portal.as_bytes(), b"\0", &rows.to_be_bytes()].concat());
}

fn all(client: &mut Client, name: &str, values: &[&str], formats: &[i16]) -> Answer {
    run(client, (name, ""), values, formats, 0);
    client.send(SYNC.0, SYNC.1);
    client.answer()
}

fn row(values: &[&str]) -> Answer {
    Ok(vec![values.iter().map(|value| Some(value.to_string())).collect()])
}

fn cached_plan_error() -> Answer {
    Err((CHANGED.0.to_string(), CHANGED.1.to_string()))
}

#[test]
fn date_parameters_use_the_session_datestyle() {
    let server = TestServer::start(ALONE);
    let mut client = server.client();
    // Parameters of type date, timestamp and date[].
    prepare(&mut client, "s", "SELECT $1::text, $2::text, $3::text", &[1082, 1114, 1182]);
    let values = ["01.02.2025", "1/2/25 10:00", "{01-02-2025}"];
    assert_eq!(
        all(&mut client, "s", &values, &[]),
        row(&["2025-01-02", "2025-01-02 10:00:00", "{2025-01-02}"])
    );
    client.query("SET DateStyle = 'ISO, DMY'").unwrap();
    assert_eq!(
        all(&mut client, "s", &values, &[]),
        row(&["2025-02-01", "2025-02-01 10:00:00", "{2025-02-01}"])
    );
    for wrong in ["01.13.2025", "2025-02-30"] {
        let failure = all(&mut client, "s", &[wrong, values[1], values[2]], &[]).unwrap_err();
        assert_eq!(failure.0, "22008", "{wrong}");
    }
    // All statements of one message are parsed before the first runs.
    let set = "SET DateStyle = 'ISO, MDY'; SELECT '01.02.2025'::date";
    assert_eq!(client.query(set), row(&["2025-01-02"]));
    let set = "BEGIN; SET LOCAL DateStyle = DMY; SELECT '01.02.2025'::date; COMMIT";
    assert_eq!(client.query(set), row(&["2025-02-01"]));
    assert_eq!(client.query("SELECT '01.02.2025'::date"), row(&["2025-01-02"]));
}

#[test]
fn changed_result_columns_are_refused() {
    let server = TestServer::start(ALONE);
    let (mut client, mut other) = (server.client(), server.client());
    for (alters, formats) in [
        // The columns change places, and one changes its values.
        ("ALTER TABLE t DROP COLUMN a; ALTER TABLE t ADD COLUMN a INT DEFAULT 9", &[][..]),
        ("ALTER TABLE t DROP COLUMN a; ALTER TABLE t ADD COLUMN a INT DEFAULT 9", &[1, 1]),
        ("ALTER TABLE t ALTER COLUMN a TYPE BIGINT", &[1]),
        ("ALTER TABLE t ADD COLUMN z INT DEFAULT 7", &[0, 0]),
        ("ALTER TABLE t DROP COLUMN b", &[]),
        ("ALTER TABLE t RENAME COLUMN b TO c", &[]),
        ("DROP TABLE t; CREATE TABLE t (a INT, b TEXT)", &[]),
        ("DROP VIEW v; CREATE VIEW v AS SELECT a AS b, b AS a FROM t", &[]),
    ] {
        let is_of_view = alters.starts_with("DROP VIEW");
        client.query("CREATE TABLE t (a INT, b INT); INSERT INTO t VALUES (1, 2)").unwrap();
        client.query("CREATE VIEW v AS SELECT * FROM t").unwrap();
        prepare(&mut client, "all", if is_of_view { "SELECT * FROM v" } else { "SELECT * FROM t" }, &[]);
        prepare(&mut client, "sum", "SELECT sum(a) AS s FROM t WHERE a = $1", &[23]);
        assert_eq!(all(&mut client, "all", &[], &[]), row(&["1", "2"]));
        assert_eq!(all(&mut client, "sum", &["1"], &[]), row(&["1"]));
        // Another session alters the table.
        if !is_of_view && alters.starts_with("DROP") {
            other.query("DROP VIEW v").unwrap();
        }
        other.query(alters).unwrap();
        assert_eq!(all(&mut client, "all", &[], formats), cached_plan_error(), "{alters}");
        // The statement keeps failing, and fails its transaction.
        assert_eq!(all(&mut client, "all", &[], formats), cached_plan_error(), "{alters}");
        client.query("BEGIN").unwrap();
        assert_eq!(all(&mut client, "all", &[], formats), cached_plan_error(), "{alters}");
        assert_eq!(client.state, b'E');
        client.query("ROLLBACK").unwrap();
        client.query("DEALLOCATE ALL").unwrap();
        client.query("DROP VIEW IF EXISTS v; DROP TABLE t").unwrap();
    }
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

#[test]
fn unchanged_result_columns_are_replanned() {
    let server = TestServer::start(ALONE);
    let (mut client, mut other) = (server.client(), server.client());
    client
        .query("CREATE TABLE t (a INT, b INT, n NUMERIC(10, 2)); INSERT INTO t VALUES (1, 2, 3.5)")
        .unwrap();
    prepare(&mut client, "some", "SELECT b, a FROM t WHERE a < $1", &[]);
    prepare(&mut client, "count", "SELECT count(*) FROM t", &[]);
    prepare(&mut client, "sums", "SELECT a + $1, $2, n * $3, $4::text FROM t", &[23, 0, 1700, 0]);
    prepare(&mut client, "put", "INSERT INTO t (a, b) VALUES ($1, $2)", &[]);
    for alters in
        ["ALTER TABLE t ADD COLUMN c TEXT", "ALTER TABLE t DROP COLUMN c", "ALTER TABLE t ADD COLUMN c INT"]
    {
        other.query(alters).unwrap();
        assert_eq!(all(&mut client, "some", &["5"], &[]), row(&["2", "1"]), "{alters}");
        assert_eq!(all(&mut client, "count", &[], &[1]).map(|rows| rows.len()), Ok(1), "{alters}");
        assert_eq!(
            all(&mut client, "sums", &["1", "x", "2", "y"], &[]),
            row(&["2", "x", "7.00", "y"]),
            "{alters}"
        );
    }
    assert_eq!(all(&mut client, "put", &["11", "12"], &[]), Ok(vec![]));
    // The name resolves to a table with other columns in another schema.
    client.query("CREATE SCHEMA s; CREATE TABLE s.t (a TEXT, b TEXT)").unwrap();
    client.query("SET search_path = s").unwrap();
    assert_eq!(all(&mut client, "some", &["5"], &[]), cached_plan_error());
    client.query("RESET search_path").unwrap();
    assert_eq!(all(&mut client, "some", &["5"], &[]), row(&["2", "1"]));
}

/// An executing portal keeps the rows of its start.
#[test]
fn executing_portals_keep_their_rows() {
    let server = TestServer::start(ALONE);
    let (mut client, mut other) = (server.client(), server.client());
    client.query("CREATE TABLE t (a INT, b INT); INSERT INTO t VALUES (1, 2), (3, 4)").unwrap();
    prepare(&mut client, "all", "SELECT * FROM t ORDER BY a", &[]);
    client.query("BEGIN").unwrap();
    run(&mut client, ("all", "p"), &[], &[], 1);
    client.send(SYNC.0, SYNC.1);
    assert_eq!(client.answer(), row(&["1", "2"]));
    client.query("DECLARE c CURSOR FOR SELECT * FROM t ORDER BY a").unwrap();
    assert_eq!(client.query("FETCH 1 FROM c"), row(&["1", "2"]));
    other.query("ALTER TABLE t DROP COLUMN a").unwrap();
    execute(&mut client, "p", 0);
    client.send(SYNC.0, SYNC.1);
    assert_eq!(client.answer(), row(&["3", "4"]));
    assert_eq!(client.query("FETCH 1 FROM c"), row(&["3", "4"]));
    client.query("ROLLBACK").unwrap();
}
