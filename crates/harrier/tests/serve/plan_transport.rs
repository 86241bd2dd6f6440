//! Plans sent from `harrier serve` to its gang arrive complete.

use crate::test_server::TestServer;

/// Two ranks, with every scan of a file distributed.
const GANG: &[&str] = &["--ranks", "2", "--threads", "1", "--set", "harrier.distribute_bytes_min=1"];

#[test]
fn plans_survive_encoding_for_the_gang() {
    let server = TestServer::start(GANG);
    server.wait_for_ranks(2);
    let mut client = server.client();
    client.query("CREATE TABLE pets (id INT, ok BOOLEAN, w NUMERIC(8, 2)) WITH (inline_rows = 0)").unwrap();
    for rows in ["(1, true, 10), (2, false, 20)", "(3, NULL, 30)", "(4, true, 40)"] {
        client.query(&format!("INSERT INTO pets VALUES {rows}")).unwrap();
    }
    let sum = (0..80).map(|at| format!("id * {at}")).collect::<Vec<_>>().join(" + ");
    let joins = (1..30).map(|at| format!("LEFT JOIN pets p{at} ON p{at}.id = p.id ")).collect::<String>();
    let listed = |call: &str, window: &str| {
        format!(
            "SELECT string_agg(coalesce(c::text, '-'), ' ' ORDER BY id) FROM \
             (SELECT id, {call} OVER ({window}) AS c, row_number() OVER (ORDER BY id DESC) AS r FROM pets) q"
        )
    };
    // Scalar subqueries, computed in this process.
    for (sql, expected) in [
        ("SELECT count(*) FROM pets WHERE w > (SELECT avg(w) FROM pets)", "2"),
        ("SELECT id FROM pets ORDER BY abs(w - (SELECT avg(w) FROM pets)), id LIMIT 1", "2"),
        ("SELECT count(*) FROM pets WHERE EXISTS (SELECT 1 FROM pets WHERE id = 4)", "4"),
        ("SELECT max((SELECT max(id) FROM pets) - id) FROM pets", "3"),
        (
            "SELECT max(n) FROM (SELECT count(*) AS n FROM pets GROUP BY ok \
             HAVING count(*) <= (SELECT min(id) FROM pets)) q",
            "1",
        ),
    ] {
        assert_eq!(client.one(sql).as_deref(), Ok(expected), "{sql}");
    }
    for (sql, expected) in [
        // Window functions.
        (listed("lag(id)", "ORDER BY id"), "- 1 2 3"),
        (listed("nth_value(id, 2)", "ORDER BY id"), "- 2 2 2"),
        (listed("count(*) FILTER (WHERE ok)", "ORDER BY id"), "1 1 1 2"),
        // A series of which no column is used.
        ("SELECT count(*) FROM pets CROSS JOIN generate_series(1, 3) AS g(v)".to_string(), "12"),
        (
            "SELECT sum(c) FROM (SELECT 7 AS c FROM generate_series(1, 2) AS g(v) UNION ALL SELECT id FROM pets) q"
                .to_string(),
            "24",
        ),
        // Deep expressions and plans.
        (format!("SELECT sum({sum}) FROM pets"), "31600"),
        (format!("SELECT count(*) FROM pets p {joins}"), "4"),
        // Constants on the nullable side of an outer join.
        (
            "SELECT id FROM (SELECT p.id, f FROM pets p LEFT JOIN (SELECT id, 1 AS f FROM pets WHERE id = 3) q \
             ON q.id = p.id ORDER BY f, p.id LIMIT 1) r"
                .to_string(),
            "3",
        ),
    ] {
        let plan = client.query(&format!("EXPLAIN {sql}")).unwrap();
        assert!(plan.iter().flatten().flatten().any(|line| line.contains("slice 1")), "{sql}: {plan:?}");
        assert_eq!(client.one(&sql).as_deref(), Ok(expected), "{sql}");
    }
}
