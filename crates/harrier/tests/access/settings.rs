//! SET of a role, and settings that report on the role itself (`is_superuser`, `row_security`).

use crate::test_server::{Client, TestServer};

fn client_of(server: &TestServer, role: &str) -> Client {
    Client::connect(server.port, &[("user", role)]).unwrap()
}

fn start_with_role() -> (TestServer, Client, Client) {
    let server = TestServer::start(&["--launcher", "none"]);
    let mut admin = server.client();
    admin.query("CREATE ROLE low LOGIN; CREATE ROLE boss SUPERUSER; GRANT boss TO low").unwrap();
    let low = client_of(&server, "low");
    (server, admin, low)
}

#[test]
fn settings_for_superusers() {
    let (server, mut admin, mut low) = start_with_role();
    for (name, value) in [
        ("datafusion.optimizer.max_passes", "9"),
        ("datafusion.optimizer.repartition_joins", "false"),
        ("datafusion.execution.batch_size", "1"),
        ("datafusion.execution.target_partitions", "1000"),
        ("datafusion.catalog.information_schema", "false"),
        ("datafusion.runtime.memory_limit", "'10G'"),
        ("harrier.interconnect", "grpc"),
        ("harrier.check_ledger", "on"),
        ("s3.region", "'eu'"),
    ] {
        assert_eq!(low.fails(&format!("SET {name} = {value}")), "42501", "{name}");
        assert_eq!(low.fails(&format!("ALTER ROLE low SET {name} = {value}")), "42501", "{name}");
        let connection = Client::connect(server.port, &[("user", "low"), (name, value.trim_matches('\''))]);
        assert_eq!(connection.err().map(|(state, _)| state).as_deref(), Some("42501"), "{name}");
    }
    for sql in [
        "SET datafusion.sql_parser.parse_float_as_decimal = true",
        "SET datafusion.format.null = 'x'",
        "SET datafusion.explain.logical_plan_only = true",
        "SET harrier.statement_memory = '64MB'",
        "SET TIME ZONE 'Europe/Berlin'",
        "ALTER ROLE low SET harrier.result_rows_max = 100",
        "RESET ALL",
    ] {
        low.query(sql).unwrap_or_else(|failure| panic!("{sql}: {failure:?}"));
    }
    for (name, value) in
        [("datafusion.optimizer.max_passes", "9"), ("datafusion.execution.batch_size", "100")]
    {
        admin.query(&format!("SET {name} = {value}; ALTER ROLE low SET {name} = {value}")).unwrap();
        let answer_text = client_of(&server, "low").query(&format!("SHOW {name}")).unwrap();
        assert_eq!(answer_text[0].last().cloned().flatten().as_deref(), Some(value), "{name}");
    }
    // Nesting limits hold for every role.
    for client in [&mut admin, &mut low] {
        client.query("SET datafusion.sql_parser.recursion_limit = 250").unwrap();
        let nested = format!("SELECT {}1{}", "(".repeat(1000), ")".repeat(1000));
        assert_eq!(client.fails(&nested), "54001");
        assert_eq!(client.fails("SET datafusion.sql_parser.recursion_limit = 1000000000"), "22023");
    }
    assert_eq!(low.fails("CHECKPOINT"), "42501");
    admin.query("CHECKPOINT").unwrap();
}

#[test]
fn is_superuser_follows_the_role() {
    let (_served, admin, mut low) = start_with_role();
    let is_superuser = |client: &Client| client.parameters.get("is_superuser").cloned();
    assert_eq!((is_superuser(&admin).as_deref(), is_superuser(&low).as_deref()), (Some("on"), Some("off")));
    for (sql, expected) in [
        ("SELECT 1", "off"),
        ("SET ROLE boss", "on"),
        ("RESET ROLE", "off"),
        ("SET ROLE 'boss'", "on"),
        ("SET ROLE 'none'", "off"),
        ("SET ROLE = $$boss$$", "on"),
        ("SET SESSION AUTHORIZATION DEFAULT", "off"),
        ("SET ROLE E'boss'", "on"),
        ("RESET SESSION AUTHORIZATION", "off"),
    ] {
        low.query(sql).unwrap_or_else(|failure| panic!("{sql}: {failure:?}"));
        assert_eq!(is_superuser(&low).as_deref(), Some(expected), "{sql}");
        assert_eq!(low.one("SHOW is_superuser").as_deref(), Ok(expected), "{sql}");
        assert_eq!(low.one("SELECT current_setting('is_superuser')").as_deref(), Ok(expected), "{sql}");
    }
    assert_eq!(low.fails("SET is_superuser = on"), "55P02");
}

#[test]
fn unrelated_views_do_not_fail_statements() {
    let (server, mut admin, mut low) = start_with_role();
    for sql in [
        "CREATE TABLE t (a int, b text)",
        "CREATE TABLE gone (a int)",
        "CREATE VIEW broken AS SELECT a FROM gone",
        "CREATE VIEW closed AS SELECT a FROM t",
        "CREATE VIEW who AS SELECT current_user AS a, session_user AS b, user AS c, current_catalog AS d",
        "DROP TABLE gone",
        "GRANT SELECT ON t, who, broken TO low",
    ] {
        admin.query(sql).unwrap_or_else(|failure| panic!("{sql}: {failure:?}"));
    }
    for client in [&mut admin, &mut low] {
        for (sql, rows) in [
            ("SHOW COLUMNS FROM t", 2),
            ("SHOW COLUMNS FROM public.t", 2),
            ("SHOW COLUMNS FROM who", 4),
            ("DESCRIBE t", 2),
        ] {
            assert_eq!(client.query(sql).map(|rows| rows.len()), Ok(rows), "{sql}");
        }
        for sql in ["SHOW CREATE TABLE who", "SHOW TABLES", "SELECT * FROM information_schema.columns"] {
            client.query(sql).unwrap_or_else(|failure| panic!("{sql}: {failure:?}"));
        }
        assert!(client.query("SHOW COLUMNS FROM broken").is_err());
    }
    assert_eq!(low.fails("SHOW COLUMNS FROM closed"), "42501");
    assert_eq!(low.one("SELECT a || b || c || d FROM who").as_deref(), Ok("lowlowlowwarehouse"));
    low.query("SET ROLE boss").unwrap();
    assert_eq!(low.one("SELECT a || b || c FROM who").as_deref(), Ok("bosslowboss"));
    assert_eq!(
        server.client().one("SELECT count(*) FROM pg_views WHERE viewname = 'who'").as_deref(),
        Ok("1")
    );
}
