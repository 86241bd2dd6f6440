//! Roles of a served warehouse: login, privileges, row filters, passwords, and that no relation or error
//! reveals hidden data.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::test_server::{Answer, Client, TestServer};

const ALONE: &[&str] = &["--launcher", "none"];

/// A value that only superusers may see.
const SECRET: &str = "geheim";

pub(crate) fn client_of(server: &TestServer, role: &str) -> Client {
    Client::connect(server.port, &[("user", role)]).unwrap()
}

/// Starts a server with tables of its superuser, and roles with some privileges.
fn start_with_roles() -> (TestServer, Client) {
    let server = TestServer::start(ALONE);
    let mut admin = server.client();
    for statement in [
        "CREATE TABLE t (x int, secret text)",
        "INSERT INTO t SELECT x, 'geheim' || x FROM generate_series(1, 100) s(x)",
        "CREATE TABLE u (a int, b int, c int)",
        "INSERT INTO u VALUES (1, 2, 3)",
        "CREATE VIEW v AS SELECT x, secret FROM t WHERE x < 10",
        "CREATE VIEW counts AS SELECT count(*) AS n FROM t",
        "CREATE ROLE ann LOGIN",
        "CREATE USER bob",
        "CREATE ROLE readers",
    ] {
        admin.query(statement).expect(statement);
    }
    (server, admin)
}

pub(crate) fn assert_allowed(client: &mut Client, sql: &str) {
    client.query(sql).unwrap_or_else(|(state, message)| panic!("{sql}: {state} {message}"));
}

pub(crate) fn assert_denied(client: &mut Client, sql: &str) {
    match client.query(sql) {
        Err((state, _)) if state == "42501" => {}
        other => panic!("{sql}: {other:?}"),
    }
}

#[test]
fn first_create_role_makes_the_current_user_superuser() {
    let server = TestServer::start(ALONE);
    let mut admin = server.client();
    assert_eq!(admin.one("SELECT count(*) FROM pg_roles WHERE rolname = 'ann'").as_deref(), Ok("0"));
    assert_allowed(&mut admin, "CREATE ROLE ann LOGIN");
    let own = admin.one("SELECT current_user").unwrap();
    let superusers = admin.one("SELECT string_agg(rolname, ',') FROM pg_roles WHERE rolsuper");
    assert_eq!(superusers, Ok(own.clone()));
    assert_eq!(admin.fails("CREATE ROLE ann"), "42710");
    assert_eq!(admin.fails("DROP ROLE nosuch"), "42704");
    assert_eq!(admin.fails(&format!("ALTER ROLE {own} NOSUPERUSER")), "55006");
    assert_eq!(admin.fails("CREATE ROLE eve LOGIN LOGIN"), "42601");
    assert_eq!(admin.fails("CREATE ROLE eve PASSWORD ''"), "22023");
    assert_eq!(admin.fails("CREATE ROLE eve VALID UNTIL 'tomorrow'"), "22007");
    assert_eq!(admin.fails("CREATE ROLE eve BYPASSRLS"), "0A000");
    assert_allowed(&mut admin, "DROP ROLE IF EXISTS nosuch, ann");
    let Err((state, _)) = Client::connect(server.port, &[("user", "ann")]) else { panic!("ann came in") };
    assert_eq!(state, "28000");
}

#[test]
fn statements_need_granted_privileges() {
    let (server, _admin) = start_with_roles();
    let mut ann = client_of(&server, "ann");
    for statement in [
        "SELECT * FROM t",
        "SELECT count(*) FROM t",
        "SELECT 1 FROM t LIMIT 1",
        // The optimizer removes the scan, and the privilege is still checked.
        "SELECT secret FROM t WHERE false",
        "SELECT * FROM t LIMIT 0",
        "SELECT 1 WHERE false AND 1 IN (SELECT x FROM t)",
        "SELECT * FROM v",
        "SELECT * FROM counts",
        "EXPLAIN SELECT * FROM t",
        "EXPLAIN ANALYZE SELECT * FROM t",
        "COPY t TO STDOUT",
        "COPY (SELECT secret FROM t) TO STDOUT",
        "SELECT * FROM t AS OF 2",
        "SELECT * FROM u WHERE a IN (SELECT x FROM t)",
        "WITH w AS (SELECT * FROM t) SELECT 1 FROM w",
        "CREATE TEMP TABLE mine AS SELECT * FROM t",
        "DECLARE c CURSOR FOR SELECT * FROM t",
        "INSERT INTO u VALUES (1, 2, 3)",
        "INSERT INTO u SELECT 1, 2, 3",
        "UPDATE u SET b = 1",
        "DELETE FROM u",
        "MERGE INTO u USING (VALUES (1)) s(k) ON u.a = s.k WHEN MATCHED THEN DELETE",
        "TRUNCATE u",
        "COPY u FROM STDIN",
        "DROP TABLE u",
        "DROP VIEW v",
        "ALTER TABLE u ADD COLUMN d int",
        "ALTER TABLE u RENAME TO w",
        "ALTER TABLE v RENAME TO w",
        "ALTER TABLE u OWNER TO ann",
        "COMMENT ON TABLE u IS 'x'",
        "COMMENT ON COLUMN u.a IS 'x'",
        "COMMENT ON SCHEMA main IS 'x'",
        "CREATE TABLE mine (a int)",
        "CREATE VIEW mine AS SELECT 1",
        "CREATE OR REPLACE VIEW v AS SELECT 1",
        "CREATE SCHEMA s",
        "ANALYZE u",
        "OPTIMIZE u",
        "CHECK TABLE u",
        "VACUUM",
        "CALL expire_snapshots('1 day')",
        "SELECT * FROM '/etc/hosts.csv'",
        "COPY u FROM '/etc/hosts'",
        "COPY (SELECT 1) TO '/tmp/out.csv'",
        "EXPLAIN COPY (SELECT 1) TO '/tmp/out.csv'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '/tmp/out.csv'",
        "EXPLAIN FORMAT tree COPY (SELECT 1) TO '/tmp/out.csv'",
        "CREATE EXTERNAL TABLE e STORED AS CSV LOCATION '/etc/hosts'",
        "SET datafusion.runtime.memory_limit = '10G'",
        "RESET datafusion.runtime.memory_limit",
        "CREATE ROLE eve",
        "ALTER ROLE bob SUPERUSER",
        "ALTER ROLE ann SUPERUSER",
        "DROP ROLE bob",
        "GRANT SELECT ON t TO ann",
        "GRANT readers TO ann",
        "CREATE ROW FILTER ON t TO ann USING (true)",
        "CREATE RESOURCE QUEUE q WITH (active_statements = 1)",
        "SET ROLE readers",
        "REASSIGN OWNED BY bob TO ann",
    ] {
        // DECLARE needs a transaction block, which the denial fails.
        if statement.starts_with("DECLARE") {
            assert_allowed(&mut ann, "BEGIN");
            assert_denied(&mut ann, statement);
            assert_allowed(&mut ann, "ROLLBACK");
        } else {
            assert_denied(&mut ann, statement);
        }
    }
    // Statements that every role may run.
    for statement in [
        "SELECT 1",
        "CREATE TEMP TABLE mine (a int)",
        "INSERT INTO mine VALUES (1)",
        "SELECT * FROM mine",
        "SELECT * FROM pg_catalog.pg_class",
        "SELECT * FROM information_schema.tables",
        "ALTER ROLE ann PASSWORD 'another'",
        "SET ROLE ann",
        "SET ROLE NONE",
        "ANALYZE",
    ] {
        assert_allowed(&mut ann, statement);
    }
}

#[test]
fn column_privileges() {
    let (server, mut admin) = start_with_roles();
    let mut ann = client_of(&server, "ann");
    assert_allowed(&mut admin, "GRANT SELECT (x), INSERT (x) ON t TO ann");
    assert_allowed(&mut admin, "GRANT SELECT (x) ON v TO ann");
    assert_allowed(&mut admin, "GRANT SELECT (a), UPDATE (b), INSERT (a, b) ON u TO ann");
    assert_eq!(ann.one("SELECT count(*) FROM t").as_deref(), Ok("100"));
    assert_eq!(ann.one("SELECT max(x) FROM t WHERE x < 50").as_deref(), Ok("49"));
    assert_eq!(ann.one("SELECT sum(x) FROM v").as_deref(), Ok("45"));
    assert_eq!(ann.one("SELECT count(*) FROM v WHERE x > 4").as_deref(), Ok("5"));
    for statement in [
        "SELECT * FROM t",
        "SELECT x FROM t WHERE secret > 'a'",
        "SELECT x FROM t ORDER BY secret",
        "SELECT count(DISTINCT secret) FROM t",
        "SELECT length(secret) FROM t",
        "SELECT t FROM t",
        "SELECT secret FROM v",
        "SELECT x FROM v ORDER BY secret",
        "INSERT INTO t VALUES (1, 'a')",
        "INSERT INTO t (secret) VALUES ('a')",
        "UPDATE u SET c = 1",
        "UPDATE u SET b = c",
        "UPDATE u SET b = 1 WHERE c = 3",
        "UPDATE u SET b = (SELECT c FROM u)",
        "INSERT INTO u VALUES (1, 2, 3)",
        "DELETE FROM u WHERE a = 1",
    ] {
        match ann.query(statement) {
            Err((state, _)) if state == "42501" || statement == "SELECT t FROM t" => {}
            other => panic!("{statement}: {other:?}"),
        }
    }
    assert_allowed(&mut ann, "INSERT INTO t (x) VALUES (1000)");
    assert_allowed(&mut ann, "UPDATE u SET b = a + 10 WHERE a = 1");
    assert_allowed(&mut ann, "INSERT INTO u (b, a) VALUES (5, 6)");
    assert_eq!(admin.one("SELECT string_agg(b::text, ',' ORDER BY b) FROM u").as_deref(), Ok("5,11"));
    // A revoked privilege is gone for the next statement.
    assert_allowed(&mut admin, "REVOKE SELECT (x) ON t FROM ann");
    assert_denied(&mut ann, "SELECT x FROM t");
    assert_allowed(&mut admin, "GRANT ALL ON t TO readers; GRANT readers TO ann");
    assert_eq!(ann.one("SELECT secret FROM t WHERE x = 7").as_deref(), Ok("geheim7"));
    assert_allowed(&mut ann, "SET ROLE readers");
    assert_eq!(ann.one("SELECT current_user || session_user").as_deref(), Ok("readersann"));
    assert_denied(&mut ann, "SELECT a FROM u");
    assert_allowed(&mut ann, "RESET ROLE");
    assert_allowed(&mut admin, "REVOKE readers FROM ann");
    assert_denied(&mut ann, "SELECT secret FROM t");
    assert_allowed(&mut admin, "ALTER ROLE ann NOINHERIT; GRANT readers TO ann");
    assert_denied(&mut ann, "SELECT secret FROM t");
}

#[test]
fn a_schema_belongs_to_the_role_behind_authorization() {
    let (server, mut admin) = start_with_roles();
    assert_eq!(admin.fails("CREATE SCHEMA s AUTHORIZATION nosuch"), "42704");
    assert_allowed(&mut admin, "CREATE SCHEMA s AUTHORIZATION ann");
    assert_allowed(
        &mut admin,
        "CREATE SCHEMA AUTHORIZATION bob; CREATE SCHEMA own AUTHORIZATION CURRENT_USER",
    );
    assert_allowed(&mut admin, "BEGIN; CREATE SCHEMA later AUTHORIZATION ann; COMMIT");
    let owners = "SELECT string_agg(nspname || ' of ' || pg_get_userbyid(nspowner), ', ' ORDER BY nspname) \
                  FROM pg_namespace WHERE nspname IN ('s', 'bob', 'own', 'later')";
    let own = admin.one("SELECT current_user").unwrap();
    assert_eq!(admin.one(owners), Ok(format!("bob of bob, later of ann, own of {own}, s of ann")));
    let mut ann = client_of(&server, "ann");
    assert_allowed(&mut ann, "CREATE TABLE s.t (a int); DROP SCHEMA later");
    assert_denied(&mut ann, "CREATE TABLE bob.t (a int)");
    // Without the right to create schemas, and without that to act as the owner.
    assert_denied(&mut ann, "CREATE SCHEMA mine AUTHORIZATION ann");
    assert_allowed(&mut admin, "GRANT CREATE ON DATABASE warehouse TO ann");
    assert_allowed(&mut ann, "CREATE SCHEMA mine AUTHORIZATION ann");
    assert_denied(&mut ann, "CREATE SCHEMA others AUTHORIZATION bob");
    assert_allowed(&mut admin, "GRANT readers TO ann");
    assert_allowed(&mut ann, "CREATE SCHEMA shared AUTHORIZATION readers");
    assert_eq!(admin.fails("CREATE SCHEMA AUTHORIZATION bob"), "42P06");
    assert_allowed(&mut admin, "CREATE SCHEMA IF NOT EXISTS AUTHORIZATION bob");
}

#[test]
fn views_use_the_privileges_of_their_owner() {
    let (server, mut admin) = start_with_roles();
    let (mut ann, mut bob) = (client_of(&server, "ann"), client_of(&server, "bob"));
    assert_allowed(
        &mut admin,
        "CREATE SCHEMA lab; ALTER SCHEMA lab OWNER TO bob; GRANT USAGE ON SCHEMA lab TO ann",
    );
    assert_allowed(&mut admin, "GRANT SELECT ON counts TO ann, bob");
    assert_allowed(&mut bob, "CREATE VIEW lab.n AS SELECT n FROM counts");
    assert_allowed(&mut bob, "CREATE VIEW lab.sneaky AS SELECT * FROM t");
    assert_allowed(&mut bob, "CREATE TABLE lab.own AS SELECT 5 AS five");
    assert_allowed(&mut bob, "GRANT SELECT ON ALL TABLES IN SCHEMA lab TO ann");
    assert_eq!(ann.one("SELECT n FROM counts").as_deref(), Ok("100"));
    assert_eq!(ann.one("SELECT n FROM lab.n").as_deref(), Ok("100"));
    assert_eq!(ann.one("SELECT five FROM lab.own").as_deref(), Ok("5"));
    // The view's owner has no privilege on its table, so no role can read it through the view, not even one
    // with the privilege.
    assert_denied(&mut bob, "SELECT * FROM lab.sneaky");
    assert_denied(&mut ann, "SELECT * FROM lab.sneaky");
    assert_denied(&mut admin, "SELECT * FROM lab.sneaky");
    assert_denied(&mut ann, "CREATE TABLE lab.mine (a int)");
    // A view cannot refer to a temporary table.
    assert_allowed(&mut ann, "CREATE TEMP TABLE t AS SELECT 1 AS x");
    assert_eq!(ann.one("SELECT n FROM counts").as_deref(), Ok("100"));
    // An owner may read its objects; a role that owns nothing can be dropped.
    assert_eq!(admin.fails("DROP ROLE bob"), "2BP01");
    assert_allowed(&mut admin, "REASSIGN OWNED BY bob TO ann; DROP OWNED BY bob; DROP ROLE bob");
    assert_allowed(&mut ann, "DROP VIEW lab.sneaky; ALTER TABLE lab.own RENAME TO other");
    let owner = "SELECT tableowner FROM pg_tables WHERE tablename = 'other'";
    assert_eq!(admin.one(owner).as_deref(), Ok("ann"));
}

#[test]
fn views_keep_the_search_path_of_their_owner() {
    let (server, mut admin) = start_with_roles();
    assert_allowed(
        &mut admin,
        "CREATE SCHEMA lab; CREATE TABLE lab.t AS SELECT 7 AS x; SET search_path = lab",
    );
    assert_allowed(&mut admin, "CREATE VIEW seven AS WITH u AS (SELECT x FROM t) SELECT x FROM u");
    assert_eq!(admin.one("SELECT x FROM seven").as_deref(), Ok("7"));
    assert_allowed(&mut admin, "SET search_path = public");
    assert_eq!(admin.one("SELECT x FROM lab.seven").as_deref(), Ok("7"));
    assert_eq!(server.client().one("SELECT x FROM lab.seven").as_deref(), Ok("7"));
}

#[test]
fn row_filters_hide_rows_from_every_statement() {
    let (server, mut admin) = start_with_roles();
    assert_allowed(&mut admin, "GRANT SELECT, UPDATE, DELETE ON t TO ann, bob");
    assert_allowed(&mut admin, "CREATE ROW FILTER ON t TO ann USING (x <= 50 AND secret <> 'geheim9')");
    assert_eq!(admin.fails("CREATE ROW FILTER ON t TO ann USING (x)"), "42804");
    assert_eq!(admin.fails("CREATE ROW FILTER ON t TO ann USING (nosuch = 1)"), "42703");
    assert_eq!(admin.fails("CREATE ROW FILTER ON v TO ann USING (x = 1)"), "42809");
    let mut ann = client_of(&server, "ann");
    let mut bob = client_of(&server, "bob");
    for (sql, expected) in [
        ("SELECT count(*) FROM t", "49"),
        ("SELECT max(x) FROM t", "50"),
        ("SELECT count(*) FROM t WHERE x BETWEEN 9 AND 10", "1"),
        ("SELECT count(*) FROM (SELECT x FROM t LIMIT 60)", "49"),
        // Each of these would fail on a hidden row.
        ("SELECT count(*) FROM t WHERE 1 / (x - 60) IS NOT NULL", "49"),
        ("SELECT count(1 / (x - 9)) FROM t", "49"),
        ("SELECT count(*) FROM t a JOIN t b ON a.x = b.x WHERE 10 / (b.x - 77) < 5", "49"),
    ] {
        assert_eq!(ann.one(sql).as_deref(), Ok(expected), "{sql}");
    }
    // Once a table has a row filter, roles without one see no rows.
    assert_eq!(bob.one("SELECT count(*) FROM t").as_deref(), Ok("0"));
    assert_eq!(admin.one("SELECT count(*) FROM t").as_deref(), Ok("100"));
    // Hidden rows are not counted.
    let rows = "SELECT rows IS NULL FROM sys.tables WHERE table_name = 't'";
    assert_eq!(ann.one(rows).as_deref(), Ok("t"));
    assert_eq!(admin.one(rows).as_deref(), Ok("f"));
    // Hidden rows are not changed either.
    assert_allowed(&mut ann, "UPDATE t SET secret = 'seen'");
    assert_allowed(&mut ann, "DELETE FROM t WHERE x >= 50");
    assert_allowed(&mut bob, "DELETE FROM t");
    assert_eq!(admin.one("SELECT count(*) FROM t").as_deref(), Ok("99"));
    assert_eq!(admin.one("SELECT count(*) FROM t WHERE secret = 'seen'").as_deref(), Ok("48"));
    // A conversion error names the value, so only visible rows may be converted.
    let Err((state, message)) = ann.query("SELECT sum(secret::int) FROM t") else { panic!("it converts") };
    assert!(!message.contains(SECRET), "{state} {message}");
    assert_allowed(&mut admin, "DROP ROW FILTER ON t FROM ann");
    assert_eq!(ann.one("SELECT count(*) FROM t").as_deref(), Ok("99"));
    // A row filter with the name of the session's role.
    assert_allowed(&mut admin, "CREATE TABLE notes (owner text, note text)");
    assert_allowed(&mut admin, "INSERT INTO notes VALUES ('ann', 'a'), ('bob', 'b'), ('bob', 'c')");
    assert_allowed(&mut admin, "GRANT SELECT ON notes TO PUBLIC");
    assert_allowed(&mut admin, "CREATE ROW FILTER ON notes TO PUBLIC USING (owner = current_user)");
    assert_eq!(ann.one("SELECT string_agg(note, '') FROM notes").as_deref(), Ok("a"));
    assert_eq!(bob.one("SELECT count(*) FROM notes").as_deref(), Ok("2"));
    let filters = "SELECT count(*) FROM sys.row_filters";
    assert_eq!((admin.one(filters), ann.one(filters)), (Ok("1".to_string()), Ok("0".to_string())));
    // If a column of a filter is dropped, no row is visible.
    assert_allowed(&mut admin, "ALTER TABLE notes DROP COLUMN owner");
    assert_denied(&mut ann, "SELECT note FROM notes");
}

/// Reads all relations and provokes all errors that exist.
#[test]
fn system_relations_and_errors_reveal_no_secret() {
    let (server, mut admin) = start_with_roles();
    assert_allowed(&mut admin, "GRANT SELECT (x) ON t TO ann; GRANT SELECT (x) ON v TO ann");
    assert_allowed(&mut admin, "CREATE ROLE eve LOGIN PASSWORD 'geheimeve'");
    assert_allowed(&mut admin, "CREATE ROW FILTER ON u TO ann USING (b::text <> 'geheimfilter')");
    assert_allowed(&mut admin, "ANALYZE");
    assert_allowed(&mut admin, "SET application_name = 'geheim application'");
    assert_eq!(admin.fails("SELECT 'geheim statement', nosuch"), "42703");
    assert_eq!(admin.fails("SELECT secret::int FROM t"), "22P02");
    let mut ann = client_of(&server, "ann");
    let relations = ann
        .query(
            "SELECT quote_ident(table_schema) || '.' || quote_ident(table_name) FROM information_schema.tables \
             UNION ALL SELECT 'pg_catalog.' || relname FROM pg_class WHERE relkind IN ('r', 'v') \
             AND relnamespace = 'pg_catalog'::regnamespace",
        )
        .unwrap();
    let system = [
        "sessions",
        "statements",
        "ranks",
        "queues",
        "tables",
        "columns",
        "table_partitions",
        "column_analysis",
        "data_files",
        "snapshots",
        "row_filters",
        "disks",
        "interconnect",
    ];
    let system = system.map(|name| format!("sys.{name}"));
    let relations: Vec<String> =
        relations.into_iter().filter_map(|row| row.into_iter().next()?).chain(system).collect();
    assert!(relations.len() > 100, "{relations:?}");
    let mut readable_count = 0;
    for relation in relations {
        let answer_text = match ann.query(&format!("SELECT * FROM {relation}")) {
            Ok(rows) => {
                readable_count += 1;
                rows.into_iter().flatten().flatten().collect::<Vec<_>>().join("\n")
            }
            Err((_, message)) => message,
        };
        let own = answer_text.lines().find(|line| line.contains(SECRET) && !line.contains("SELECT"));
        assert_eq!(own, None, "{relation}");
        assert!(!answer_text.contains("SCRAM-SHA-256"), "{relation}");
    }
    assert!(readable_count > 100, "{readable_count} relations could be read");
    for sql in [
        "SELECT secret::int FROM t",
        "SELECT x FROM t WHERE secret::int = 1",
        "SELECT x FROM t GROUP BY x HAVING max(secret)::int = 1",
        "SELECT (SELECT max(secret) FROM t)::int",
        "SELECT secret FROM v",
        "SELECT x / 0 FROM v WHERE secret::int = 1",
        "EXPLAIN SELECT secret FROM t WHERE secret = 'a'",
        "EXPLAIN (FORMAT pgjson) SELECT secret FROM t",
        "EXPLAIN ANALYZE SELECT min(secret) FROM t",
        "COPY t TO STDOUT",
        "SELECT * FROM t NATURAL JOIN v",
        "SELECT nosuch FROM t",
        "SELECT t.* FROM t",
        "SELECT t FROM t",
        "SELECT to_json(t) FROM t",
        "SELECT pg_get_viewdef('v'::regclass)::int",
        "SELECT has_table_privilege('t', 'SELECT')::text",
        "SELECT current_setting('geheim')",
    ] {
        let answer_text = match ann.query(sql) {
            Ok(rows) => rows.into_iter().flatten().flatten().collect::<Vec<_>>().join("\n"),
            Err((_, message)) => message,
        };
        let values =
            answer_text.lines().find(|line| line.contains("geheim1") || line.contains("geheimfilter"));
        assert_eq!(values, None, "{sql}");
    }
}

#[test]
fn canceling_other_sessions_needs_membership() {
    let (server, mut admin) = start_with_roles();
    let (mut ann, mut bob) = (client_of(&server, "ann"), client_of(&server, "bob"));
    let of = |process: i32| format!("SELECT pg_cancel_backend({process})");
    assert_denied(&mut ann, &of(admin.process));
    assert_denied(&mut ann, &of(bob.process));
    assert_denied(&mut ann, &format!("SELECT pg_terminate_backend({})", bob.process));
    assert_eq!(admin.one(&of(bob.process)).as_deref(), Ok("t"));
    // A member of the role may cancel the session; only superusers may cancel a superuser's.
    assert_allowed(&mut admin, "GRANT bob TO ann");
    assert_eq!(ann.one(&of(bob.process)).as_deref(), Ok("t"));
    assert_eq!(ann.one("SELECT pg_cancel_backend(-5)").as_deref(), Ok("f"));
    let texts = "SELECT count(*) FROM pg_stat_activity WHERE query = '<insufficient privilege>'";
    assert_eq!(ann.one(texts).as_deref(), Ok("1"));
    assert_eq!(bob.one("SELECT 1").as_deref(), Ok("1"));
}

fn psql(server: &TestServer, role: &str, password: &str) -> (bool, String) {
    let target = format!("host=127.0.0.1 port={} dbname=warehouse user={role}", server.port);
    let output = Command::new("psql")
        .args(["-X", "-A", "-t", "-c", "SELECT current_user", &target])
        .env("PGPASSWORD", password)
        .output()
        .unwrap();
    let output_text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&output_text).trim().to_string())
}

/// `\\password` of psql, which prompts twice. Without a terminal it reads from standard input.
fn change_password(server: &TestServer, role: &str, own: &str, of: &str, password: &str) -> (bool, String) {
    let target = format!("host=127.0.0.1 port={} dbname=warehouse user={role}", server.port);
    let mut child = Command::new("setsid")
        .args(["-w", "psql", "-X", "-v", "ON_ERROR_STOP=1", "-c", &format!("\\password {of}"), &target])
        .env("PGPASSWORD", own)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.take().unwrap(), "{password}\n{password}").unwrap();
    let output = child.wait_with_output().unwrap();
    let output_text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&output_text).trim().to_string())
}

#[test]
fn password_authentication_by_rules() {
    if Command::new("psql").arg("--version").output().is_err() {
        panic!("psql is not there: scripts/postgres.sh installs it");
    }
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("hba.conf");
    let text = "host all readers,+readers 127.0.0.1/32 scram-sha-256\n\
                host all all 127.0.0.1/32 peer\n";
    fs::write(&rules, text).unwrap();
    let config = folder.path().join("harrier.toml");
    fs::write(&config, format!("[server]\nhba_file = {rules:?}\n")).unwrap();
    let server = TestServer::start(&["--launcher", "none", "--config", config.to_str().unwrap()]);
    let mut admin = server.client();
    assert_allowed(&mut admin, "CREATE ROLE readers; CREATE ROLE ann LOGIN PASSWORD 'right' IN ROLE readers");
    assert_allowed(&mut admin, "CREATE USER plain IN ROLE readers PASSWORD 'clear'");
    assert_allowed(&mut admin, "CREATE USER mute IN ROLE readers");
    let psql = |role: &str, password: &str| psql(&server, role, password);
    assert_eq!(psql("ann", "right"), (true, "ann".to_string()));
    assert_eq!(psql("plain", "clear"), (true, "plain".to_string()));
    for (role, password) in [("ann", "wrong"), ("plain", "wrong"), ("mute", ""), ("mute", "x")] {
        let (logged_in, output_text) = psql(role, password);
        assert!(!logged_in, "{role} came in with {password:?}: {output_text}");
        let is_password_error = output_text.contains("password authentication failed")
            || output_text.contains("no password supplied");
        assert!(is_password_error, "{role}: {output_text}");
    }
    let fails = |role: &str, password: &str, why: &str| {
        let (logged_in, output_text) = psql(role, password);
        assert!(!logged_in && output_text.contains(why), "{role}: {output_text}");
    };
    assert_allowed(&mut admin, "ALTER ROLE ann PASSWORD 'other'");
    fails("ann", "right", "password authentication failed");
    assert!(psql("ann", "other").0);
    // The client asks how the password is stored, and sends the hash.
    let changed = change_password(&server, "ann", "other", "", "hers");
    assert!(changed.0, "{changed:?}");
    fails("ann", "other", "password authentication failed");
    assert!(psql("ann", "hers").0);
    let changed = change_password(&server, "plain", "clear", "ann", "stolen");
    assert!(
        !changed.0 && changed.1.contains("42501") | changed.1.contains("permission denied"),
        "{changed:?}"
    );
    let own = admin.one("SELECT current_user").unwrap();
    let changed = change_password(&server, &own, "", "ann", "other");
    assert!(changed.0 && psql("ann", "other").0, "{changed:?}");
    // A text that almost looks like a hash is a password.
    for almost in ["SCRAM-SHA-256$4096:c2FsdA==$c2hvcnQ=:c2hvcnQ=", "SCRAM-SHA-256$4096", "md5abc"] {
        assert_allowed(&mut admin, &format!("ALTER ROLE plain PASSWORD '{almost}'"));
        assert!(psql("plain", almost).0, "{almost}");
    }
    let md5 = format!("ALTER ROLE plain PASSWORD 'md5{}'", "0123456789abcdef".repeat(2));
    assert_eq!(admin.fails(&md5), "0A000");
    assert_eq!(admin.one("SHOW password_encryption").as_deref(), Ok("scram-sha-256"));
    assert_eq!(admin.fails("SET password_encryption = 'md5'"), "22023");
    assert_allowed(&mut admin, "ALTER ROLE plain PASSWORD 'clear'");
    assert_allowed(&mut admin, "ALTER ROLE ann VALID UNTIL '2001-01-01'");
    fails("ann", "other", "password authentication failed");
    assert_allowed(&mut admin, "ALTER ROLE ann VALID UNTIL 'infinity' NOLOGIN");
    fails("ann", "other", "not permitted to log in");
    assert_allowed(&mut admin, "ALTER ROLE ann LOGIN CONNECTION LIMIT 0");
    fails("ann", "other", "too many connections");
    assert_allowed(
        &mut admin,
        "ALTER ROLE ann CONNECTION LIMIT -1; REVOKE CONNECT ON DATABASE warehouse FROM PUBLIC",
    );
    fails("ann", "other", "permission denied for database");
    assert_allowed(&mut admin, "GRANT CONNECT ON DATABASE warehouse TO readers");
    assert!(psql("ann", "other").0);
    // The password itself is stored nowhere.
    let log = server.log();
    let catalog = fs::read(server.folder.path().join("warehouse/catalog.sqlite")).unwrap();
    let log_of_catalog =
        fs::read(server.folder.path().join("warehouse/catalog.sqlite-wal")).unwrap_or_default();
    for bytes in [log.as_bytes(), &catalog, &log_of_catalog] {
        assert!(!bytes.windows(5).any(|part| part == b"clear"), "the password was written down");
    }
    let texts: Answer = admin.query("SELECT text FROM sys.statements");
    let texts: Vec<String> = texts.unwrap().into_iter().flatten().flatten().collect();
    let leak = texts.iter().find(|text| text.contains("'clear'") || text.contains("'other'"));
    assert_eq!(leak, None);
}

#[test]
fn resource_queues_by_role() {
    let (server, mut admin) = start_with_roles();
    assert_allowed(
        &mut admin,
        "CREATE RESOURCE QUEUE small WITH (active_statements = 1, memory_limit = '64MB', priority = low)",
    );
    assert_eq!(admin.fails("CREATE RESOURCE QUEUE small WITH (active_statements = 2)"), "42710");
    assert_eq!(admin.fails("CREATE RESOURCE QUEUE bad WITH (active_statements = 0)"), "22023");
    assert_eq!(admin.fails("CREATE RESOURCE QUEUE bad WITH (colour = 'red')"), "42601");
    assert_eq!(admin.fails("CREATE RESOURCE QUEUE bad WITH (memory_limit = 'much')"), "22023");
    assert_eq!(admin.fails("ALTER ROLE ann RESOURCE QUEUE nosuch"), "42704");
    assert_allowed(&mut admin, "ALTER ROLE ann RESOURCE QUEUE small");
    assert_eq!(admin.fails("DROP RESOURCE QUEUE small"), "2BP01");
    assert_allowed(&mut admin, "ALTER RESOURCE QUEUE small WITH (max_cost = 1e9) WITHOUT (memory_limit)");
    assert_allowed(
        &mut admin,
        "ALTER ROLE ann RESOURCE QUEUE none; DROP RESOURCE QUEUE small; DROP RESOURCE QUEUE IF EXISTS small",
    );
    drop(server);
}

#[test]
fn writes_are_checked_by_row_filters() {
    let (server, mut admin) = start_with_roles();
    for statement in [
        "CREATE TABLE sales (id int, region text, amount decimal(9, 2))",
        "INSERT INTO sales SELECT x, CASE WHEN x % 2 = 0 THEN 'EU' ELSE 'US' END, x FROM generate_series(1, 40) s(x)",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON sales TO ann, bob",
        "CREATE ROW FILTER ON sales TO ann USING (region = 'EU' AND amount < 1000)",
        "CREATE TABLE more AS SELECT x AS k, 'EU' AS r FROM generate_series(100, 130) s(x)",
        "GRANT SELECT ON more TO ann",
    ] {
        assert_allowed(&mut admin, statement);
    }
    let (mut ann, mut bob) = (client_of(&server, "ann"), client_of(&server, "bob"));
    for statement in [
        "INSERT INTO sales VALUES (41, 'US', 1)",
        "INSERT INTO sales VALUES (41, 'EU', 1), (42, 'US', 1)",
        "INSERT INTO sales VALUES (41, NULL, 1)",
        "INSERT INTO sales (id) VALUES (41)",
        "INSERT INTO sales VALUES (41, 'EU', 1000)",
        "INSERT INTO sales SELECT k, CASE WHEN k = 117 THEN 'US' ELSE r END, k FROM more",
        "UPDATE sales SET region = 'US'",
        "UPDATE sales SET amount = amount + 990 WHERE id = 20",
        "MERGE INTO sales s USING more m ON s.id = m.k WHEN NOT MATCHED THEN INSERT VALUES (m.k, 'US', 1)",
        "MERGE INTO sales s USING (VALUES (2)) m(k) ON s.id = m.k WHEN MATCHED THEN UPDATE SET region = 'US'",
        "EXPLAIN ANALYZE INSERT INTO sales VALUES (41, 'US', 1)",
    ] {
        match ann.query(statement) {
            Err((state, message)) if state == "42501" && message.contains("violates the row filters") => {}
            other => panic!("{statement}: {other:?}"),
        }
    }
    assert_eq!(bob.fails("INSERT INTO sales VALUES (41, 'EU', 1)"), "42501");
    assert_eq!(admin.one("SELECT count(*) || ' ' || sum(id) FROM sales").as_deref(), Ok("40 820"));
    for statement in [
        "INSERT INTO sales VALUES (50, 'EU', 1)",
        "INSERT INTO sales SELECT k, r, k FROM more",
        "UPDATE sales SET amount = amount + 1 WHERE id <= 20",
        // Deleted rows are not checked as written rows.
        "MERGE INTO sales s USING (VALUES (2), (4)) m(k) ON s.id = m.k \
         WHEN MATCHED AND s.id = 2 THEN DELETE WHEN MATCHED THEN UPDATE SET amount = 7",
    ] {
        assert_allowed(&mut ann, statement);
    }
    assert_eq!(ann.one("SELECT count(*) FROM sales").as_deref(), Ok("51"));
    // Owners and superusers see all rows.
    assert_allowed(&mut admin, "INSERT INTO sales VALUES (60, 'US', 5000)");
    assert_eq!(admin.one("SELECT count(*) FROM sales").as_deref(), Ok("72"));
    // COPY as psql sends it.
    let copied = |line: &str| {
        let script = format!(
            "printf '{line}\\n' | psql -X -h 127.0.0.1 -p {} -U ann -d warehouse -c 'COPY sales FROM STDIN CSV'",
            server.port
        );
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_string()
    };
    assert!(copied("70,US,1").contains("violates the row filters"), "{}", copied("70,US,1"));
    assert_eq!(copied("70,EU,1"), "COPY 1");
}

#[test]
fn set_local_role_ends_with_its_transaction() {
    let (server, mut admin) = start_with_roles();
    assert_allowed(
        &mut admin,
        "GRANT readers TO ann; GRANT SELECT ON u TO readers; ALTER ROLE ann NOINHERIT",
    );
    let mut ann = client_of(&server, "ann");
    let who = |client: &mut Client| client.one("SELECT current_user").unwrap();
    for (statements, within, after) in [
        (&["BEGIN", "SET LOCAL ROLE readers"][..], "readers", "ann"),
        (&["BEGIN", "SET ROLE readers", "SET LOCAL ROLE NONE"], "ann", "readers"),
        (&["RESET ROLE", "BEGIN", "SET LOCAL ROLE readers", "SET ROLE ann"], "ann", "ann"),
    ] {
        statements.iter().for_each(|statement| assert_allowed(&mut ann, statement));
        assert_eq!(who(&mut ann), within, "{statements:?}");
        assert_allowed(&mut ann, "COMMIT");
        assert_eq!(who(&mut ann), after, "{statements:?}");
    }
    assert_allowed(&mut ann, "BEGIN");
    assert_allowed(&mut ann, "SET ROLE readers");
    assert_allowed(&mut ann, "SELECT * FROM u");
    assert_allowed(&mut ann, "ROLLBACK");
    assert_eq!(who(&mut ann), "ann");
    assert_denied(&mut ann, "SELECT * FROM u");
    // Outside of a transaction it has no effect.
    assert_allowed(&mut ann, "SET LOCAL ROLE readers");
    assert_eq!(who(&mut ann), "ann");
    assert_allowed(&mut ann, "BEGIN");
    assert_allowed(&mut ann, "SET LOCAL ROLE readers");
    assert_allowed(&mut ann, "COMMIT AND CHAIN");
    assert_eq!(who(&mut ann), "ann");
    assert_allowed(&mut ann, "ROLLBACK");
}

#[test]
fn grantors_and_rollback_of_grants_to_savepoints() {
    let (server, mut admin) = start_with_roles();
    for statement in [
        "GRANT SELECT ON u TO ann GRANTED BY CURRENT_USER",
        "GRANT SELECT ON u TO bob WITH GRANT OPTION GRANTED BY CURRENT_ROLE",
        "REVOKE SELECT ON u FROM ann GRANTED BY SESSION_USER",
        "GRANT readers TO ann GRANTED BY CURRENT_USER",
    ] {
        assert_allowed(&mut admin, statement);
    }
    for statement in [
        "GRANT SELECT ON u TO ann GRANTED BY bob",
        "REVOKE SELECT ON u FROM bob GRANTED BY ann",
        "GRANT readers TO bob GRANTED BY ann",
    ] {
        assert_eq!(admin.fails(statement), "0A000", "{statement}");
    }
    for statement in [
        "BEGIN",
        "CREATE TABLE fresh (a int)",
        "GRANT SELECT ON fresh TO ann",
        "SAVEPOINT s",
        "CREATE TABLE gone (a int)",
        "GRANT SELECT ON gone TO ann",
        "GRANT SELECT ON fresh TO bob",
        "ROLLBACK TO SAVEPOINT s",
        "COMMIT",
    ] {
        assert_allowed(&mut admin, statement);
    }
    assert!(!server.log().contains("was not done"));
    assert_allowed(&mut client_of(&server, "ann"), "SELECT * FROM fresh");
    assert_denied(&mut client_of(&server, "bob"), "SELECT * FROM fresh");
    // There is one database, and no role may create another.
    assert_denied(&mut client_of(&server, "ann"), "CREATE DATABASE other");
}

#[test]
fn sessions_start_with_role_settings() {
    let (server, mut admin) = start_with_roles();
    for statement in [
        "ALTER ROLE ann SET statement_timeout = '5min'",
        "ALTER ROLE ann SET search_path TO \"Sales\", main",
        "ALTER ROLE ann SET TIME ZONE 'Europe/Berlin'",
        "ALTER USER ann SET application_name = DEFAULT",
        "ALTER ROLE bob SET harrier.result_rows_max = 2",
    ] {
        assert_allowed(&mut admin, statement);
    }
    let show = |client: &mut Client, name: &str| client.one(&format!("SHOW {name}")).unwrap();
    let mut ann = client_of(&server, "ann");
    assert_eq!(show(&mut ann, "statement_timeout"), "5min");
    assert_eq!(show(&mut ann, "search_path"), "\"Sales\", main");
    assert_eq!(show(&mut ann, "timezone"), "Europe/Berlin");
    for catalog in [
        "SELECT array_to_string(rolconfig, '|') FROM pg_roles WHERE rolname = 'bob'",
        "SELECT array_to_string(useconfig, '|') FROM pg_user WHERE usename = 'bob'",
        "SELECT array_to_string(setconfig, '|') FROM pg_db_role_setting WHERE setrole = 'bob'::regrole",
    ] {
        assert_eq!(ann.one(catalog).as_deref(), Ok("harrier.result_rows_max=2"), "{catalog}");
    }
    // Settings of the client override those of the role, and RESET returns to the role's.
    let mut session_client =
        Client::connect(server.port, &[("user", "ann"), ("TimeZone", "Asia/Tokyo")]).unwrap();
    assert_eq!(show(&mut session_client, "timezone"), "Asia/Tokyo");
    assert_allowed(&mut ann, "SET statement_timeout = 0; RESET statement_timeout");
    assert_eq!(show(&mut ann, "statement_timeout"), "5min");
    assert!(client_of(&server, "bob").query("SELECT * FROM generate_series(1, 3)").is_err());
    // `pg_db_role_setting` and the like show a role its own settings only.
    assert_allowed(&mut ann, "ALTER ROLE CURRENT_USER SET timezone FROM CURRENT");
    assert_allowed(&mut ann, "ALTER ROLE ann RESET statement_timeout");
    assert_denied(&mut ann, "ALTER ROLE bob SET statement_timeout = 1");
    assert_denied(&mut ann, "ALTER ROLE bob RESET ALL");
    assert_eq!(show(&mut client_of(&server, "ann"), "statement_timeout"), "0");
    assert_eq!(show(&mut client_of(&server, "ann"), "timezone"), "Europe/Berlin");
    for (statement, state) in [
        ("ALTER ROLE ann SET nosuch = 1", "42704"),
        ("ALTER ROLE ann SET statement_timeout = 'soon'", "22023"),
        ("ALTER ROLE ann SET max_connections = 1", "55P02"),
        ("ALTER ROLE nosuch SET statement_timeout = 1", "42704"),
        ("ALTER ROLE ALL SET statement_timeout = 1", "0A000"),
        ("ALTER ROLE ann IN DATABASE warehouse SET statement_timeout = 1", "0A000"),
    ] {
        assert_eq!(admin.fails(statement), state, "{statement}");
    }
    assert_allowed(&mut admin, "ALTER ROLE ann RESET ALL; ALTER ROLE bob RESET ALL");
    assert_eq!(show(&mut client_of(&server, "ann"), "search_path"), show(&mut admin, "search_path"));
    // A new role with the same name has none of the settings.
    assert_allowed(
        &mut admin,
        "ALTER ROLE bob SET statement_timeout = 7000; DROP ROLE bob; CREATE ROLE bob LOGIN",
    );
    assert_eq!(show(&mut client_of(&server, "bob"), "statement_timeout"), "0");
}
