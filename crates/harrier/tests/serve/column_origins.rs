//! Table and column origins in RowDescription.

use crate::test_server::{Client, TestServer};

/// Table OID and attribute number of each column of a result.
fn describe_origins(client: &mut Client, sql: &str) -> Vec<(u32, i16)> {
    client.ask(sql);
    let mut origins = vec![];
    loop {
        let (kind, body) = client.message().expect("the server has gone");
        match kind {
            b'T' => {
                let mut rest = &body[2..];
                while !rest.is_empty() {
                    let name = rest.iter().position(|byte| *byte == 0).unwrap() + 1;
                    let (fields, after) = rest[name..].split_at(18);
                    let table = u32::from_be_bytes(fields[..4].try_into().unwrap());
                    origins.push((table, i16::from_be_bytes(fields[4..6].try_into().unwrap())));
                    rest = after;
                }
            }
            b'E' => panic!("{sql}: {}", String::from_utf8_lossy(&body)),
            b'Z' => return origins,
            _ => {}
        }
    }
}

#[test]
fn row_description_has_table_oids() {
    let server = TestServer::start(&["--launcher", "none"]);
    let mut client = server.client();
    client.query("CREATE TABLE a (id INT, name VARCHAR(20), price NUMERIC(8, 2))").unwrap();
    client.query("CREATE TABLE b (id INT, a_id INT)").unwrap();
    client.query("CREATE VIEW v AS SELECT id, name FROM a").unwrap();
    client.query("INSERT INTO a VALUES (1, 'x', 1.5)").unwrap();
    client.query("INSERT INTO b VALUES (1, 1)").unwrap();
    let mut oid =
        |name: &str| client.one(&format!("SELECT '{name}'::regclass::oid")).unwrap().parse().unwrap();
    let (a, b): (u32, u32) = (oid("a"), oid("b"));
    let none = (0, 0);
    for (sql, expected) in [
        ("SELECT * FROM a", vec![(a, 1), (a, 2), (a, 3)]),
        ("SELECT price AS other, id + 1, id FROM a x ORDER BY name LIMIT 1", vec![(a, 3), none, (a, 1)]),
        ("SELECT b.id, a.name FROM a JOIN b ON a.id = b.a_id", vec![(b, 1), (a, 2)]),
        ("SELECT b.a_id, a.name FROM b LEFT JOIN a ON a.id = b.a_id WHERE b.id > 0", vec![(b, 2), (a, 2)]),
        ("SELECT n FROM (SELECT name AS n FROM a WHERE id = 1) s", vec![(a, 2)]),
        ("WITH s AS (SELECT id, name FROM a) SELECT name, id FROM s", vec![(a, 2), (a, 1)]),
        ("SELECT name, count(*) FROM a GROUP BY name", vec![(a, 2), none]),
        ("SELECT DISTINCT name FROM a", vec![(a, 2)]),
        ("SELECT name, row_number() OVER (ORDER BY id) FROM a", vec![(a, 2), none]),
        ("SELECT id FROM a UNION ALL SELECT id FROM b", vec![none]),
        ("SELECT upper(name), name || 'x', 1, max(id) OVER () FROM a", vec![none, none, none, none]),
        ("SELECT id::bigint FROM a", vec![none]),
        ("SELECT a.id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.a_id = a.id)", vec![(a, 1)]),
        ("SELECT id, name FROM v", vec![none, none]),
        ("SELECT id, x.name FROM v AS x", vec![none, none]),
        ("INSERT INTO a VALUES (2, 'y', 2) RETURNING name, id", vec![(a, 2), (a, 1)]),
        ("UPDATE a SET price = 3 WHERE id = 2 RETURNING id, price + 1", vec![(a, 1), none]),
        ("DELETE FROM a WHERE id = 2 RETURNING *", vec![(a, 1), (a, 2), (a, 3)]),
    ] {
        assert_eq!(describe_origins(&mut client, sql), expected, "{sql}");
    }
}
