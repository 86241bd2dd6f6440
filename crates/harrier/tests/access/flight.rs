//! Authentication and privileges over Flight SQL: ADBC's driver and PyArrow's client, with certificates and
//! passwords.

use crate::auth_support::{self, Rules, own_user};
use crate::test_server::TestServer;

const TLS: &str = "tls_certificate = \"server.crt\"\ntls_key = \"server.key\"\ntls_client_ca = \"ca.crt\"\n";

#[test]
fn rules_require_client_certificates() {
    let folder = tempfile::tempdir().unwrap();
    auth_support::certificates(folder.path(), &["dora", "ann", "nora"]);
    let strangers = tempfile::tempdir().unwrap();
    auth_support::certificates(strangers.path(), &["dora"]);
    let rules = format!(
        "hostssl all dora,nora 127.0.0.1/32 cert\n\
         hostssl all ann 127.0.0.1/32 scram-sha-256 clientcert=verify-full\n\
         hostssl all bob 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\n\
         host all {} 127.0.0.1/32 peer\n",
        own_user()
    );
    let (_, config) = Rules::write(folder.path(), &rules, TLS);
    let path = |name: &str| folder.path().join(name).display().to_string();
    let theirs = |name: &str| strangers.path().join(name).display().to_string();
    let (authority, certificate, key) = (path("ca.crt"), path("dora.crt"), path("dora.key"));
    let others = [path("ann.crt"), path("ann.key"), path("nora.crt"), path("nora.key")];
    let forged = [theirs("dora.crt"), theirs("dora.key")];
    let dora = ["--certificate", &certificate, "--key", &key];
    let ann = ["--certificate", &others[0], "--key", &others[1]];
    let nora = ["--certificate", &others[2], "--key", &others[3]];
    let forged = ["--certificate", &forged[0], "--key", &forged[1]];
    let home = tempfile::tempdir().unwrap();
    let server =
        TestServer::start_in(home, &["--launcher", "none", "--flight", "127.0.0.1:0", "--config", &config]);
    let uri = format!("grpc+tls://127.0.0.1:{}", server.flight);
    let comes = |client: &[&str], options: &[&str]| {
        auth_support::flight(&[client, options, &["--ca", &authority, &uri, "SELECT current_user"]].concat())
    };
    // Without roles, only the user that runs the server may log in, whatever a certificate says.
    let Some((logged_in, reply)) = comes(&[], &dora) else { return };
    assert!(!logged_in && reply.contains("role \"dora\" does not exist"), "{reply}");
    let mut admin = auth_support::admin(&server);
    admin.query("CREATE ROLE dora LOGIN; CREATE ROLE ann LOGIN PASSWORD 'right'; CREATE ROLE bob LOGIN PASSWORD 'bobs'").unwrap();

    let user = |name, password| ["--user", name, "--password", password];
    for client in [&[][..], &["--pyarrow"]] {
        let fails = |options: &[&str], why: &str| {
            let (logged_in, reply) = comes(client, options).unwrap();
            assert!(!logged_in && reply.contains(why), "{client:?} {options:?}: {reply}");
        };
        let assert_login = |options: &[&str], role: &str| {
            assert_eq!(
                comes(client, options).unwrap(),
                (true, format!("[[\"{role}\"]]")),
                "{client:?} {options:?}"
            );
        };
        // Without a user name, the certificate names the role.
        assert_login(&dora, "dora");
        assert_login(&[&dora[..], &user("dora", "")].concat(), "dora");
        assert_login(&[&ann[..], &user("ann", "right")].concat(), "ann");
        assert_login(&[&dora[..], &user("bob", "bobs")].concat(), "bob");
        fails(&user("dora", ""), "certificate authentication failed for user \"dora\"");
        fails(&[&ann[..], &user("dora", "")].concat(), "certificate authentication failed for user \"dora\"");
        fails(
            &[&dora[..], &user("ann", "right")].concat(),
            "certificate authentication failed for user \"ann\"",
        );
        fails(&user("ann", "right"), "certificate authentication failed for user \"ann\"");
        fails(&[&ann[..], &user("ann", "wrong")].concat(), "password authentication failed for user \"ann\"");
        fails(&user("bob", "bobs"), "certificate authentication failed for user \"bob\"");
        fails(&nora, "role \"nora\" does not exist");
        // A certificate of another authority: the TLS handshake fails.
        let (logged_in, reply) = comes(client, &forged).unwrap();
        assert!(!logged_in && !reply.contains("dora\" does not exist"), "{reply}");
    }
    // Unencrypted connections are refused.
    let plain = format!("grpc://127.0.0.1:{}", server.flight);
    let (logged_in, reply) =
        auth_support::flight(&["--user", "ann", "--password", "right", &plain, "SELECT 1"]).unwrap();
    assert!(!logged_in, "{reply}");
    // The same rules and certificates over the PostgreSQL protocol.
    let options = |name: &str| {
        format!(
            "sslmode=verify-full sslrootcert={authority} sslcert={} sslkey={}",
            path(&format!("{name}.crt")),
            path(&format!("{name}.key"))
        )
    };
    assert_eq!(auth_support::psql(&server, "dora", "", &options("dora")), (true, "dora".to_string()));
    assert!(!auth_support::psql(&server, "dora", "", &options("ann")).0);
}

#[test]
fn privileges_over_flight_equal_those_over_postgresql() {
    let folder = tempfile::tempdir().unwrap();
    let rules =
        format!("host all {} 127.0.0.1/32 peer\nhost all all 127.0.0.1/32 scram-sha-256\n", own_user());
    let (_, config) = Rules::write(folder.path(), &rules, "");
    let server =
        TestServer::start_in(folder, &["--launcher", "none", "--flight", "127.0.0.1:0", "--config", &config]);
    let mut admin = auth_support::admin(&server);
    for statement in [
        "CREATE TABLE t (x int, secret text); INSERT INTO t VALUES (1, 'geheim'), (2, 'geheim')",
        "CREATE TABLE u (x int); INSERT INTO u VALUES (1)",
        "CREATE TABLE w (x int)",
        "CREATE VIEW v AS SELECT secret FROM t",
        "CREATE ROLE ann LOGIN PASSWORD 'right'; CREATE ROLE readers; CREATE ROLE mute NOLOGIN PASSWORD 'mute'",
        "GRANT readers TO ann; GRANT SELECT ON v TO readers",
        "GRANT SELECT (x) ON t TO ann; CREATE ROW FILTER ON t TO ann USING (x > 1)",
        "GRANT INSERT ON w TO ann",
    ] {
        admin.query(statement).expect(statement);
    }
    let uri = format!("grpc://127.0.0.1:{}", server.flight);
    let run = |client: &[&str], statements: &[&str]| {
        let login = ["--user", "ann", "--password", "right", &uri];
        let (logged_in, reply) = auth_support::flight(&[client, &login, statements].concat())?;
        assert!(logged_in, "{reply}");
        Some(reply.lines().map(str::to_string).collect::<Vec<_>>())
    };
    for client in [&[][..], &["--pyarrow"]] {
        let Some(reply) = run(client, &["SELECT current_user", "SELECT x FROM t", "SELECT count(*) FROM v"])
        else {
            return;
        };
        assert_eq!(reply, ["[[\"ann\"]]", "[[2]]", "[[2]]"], "{client:?}");
        let refused =
            ["SELECT secret FROM t", "SELECT * FROM t", "SELECT * FROM u", "SELECT * FROM '/etc/hosts.csv'"];
        for (statement, reply) in refused.iter().zip(run(client, &refused).unwrap()) {
            assert!(reply.contains("permission denied"), "{client:?} {statement}: {reply}");
        }
    }
    let refused = [
        "prepare SELECT secret FROM t",
        "prepare INSERT INTO u VALUES (2)",
        "ingest u",
        "UPDATE u SET x = 2",
        "DELETE FROM u",
        "CREATE TABLE mine (x int)",
        "GRANT SELECT ON u TO ann",
        "CREATE ROLE eve",
        "SET ROLE mute",
    ];
    let reply = run(&[], &refused).unwrap();
    assert_eq!(reply.len(), refused.len(), "{reply:?}");
    for (statement, reply) in refused.iter().zip(reply) {
        assert!(reply.contains("permission denied"), "{statement}: {reply}");
    }
    // Granted privileges work in a session that changes its role, and not after it has changed back.
    let reply = run(
        &[],
        &[
            "ingest w",
            "INSERT INTO w VALUES (8)",
            "SET ROLE readers",
            "SELECT count(*) FROM v",
            "SELECT x FROM t",
            "RESET ROLE",
            "SELECT x FROM t",
        ],
    );
    let reply = reply.unwrap();
    assert_eq!((reply[3].as_str(), reply[6].as_str()), ("[[2]]", "[[2]]"), "{reply:?}");
    assert!(reply[4].contains("permission denied"), "{reply:?}");
    assert_eq!(admin.one("SELECT string_agg(x::text, ',' ORDER BY x) FROM w").as_deref(), Ok("7,8"));
    assert_eq!(admin.one("SELECT string_agg(x::text, ',') FROM u").as_deref(), Ok("1"));
    for (user, password, why) in [
        ("ann", "wrong", "password authentication failed"),
        ("mute", "mute", "not permitted to log in"),
        ("nosuch", "x", "password authentication failed"),
    ] {
        let (logged_in, reply) =
            auth_support::flight(&["--user", user, "--password", password, &uri, "SELECT 1"]).unwrap();
        assert!(!logged_in && reply.contains(why), "{user}: {reply}");
    }
    admin.query("REVOKE SELECT (x) ON t FROM ann").unwrap();
    let reply = run(&[], &["SELECT x FROM t"]).unwrap();
    assert!(reply[0].contains("permission denied"), "{reply:?}");
}

/// Same as over the PostgreSQL protocol (`serve/prepared_statements.rs`): results that have started keep the
/// old columns, and a prepared statement returns the columns it was described with, or fails.
#[test]
fn alter_table_during_flight_statements() {
    let server = TestServer::start(&["--launcher", "none", "--flight", "127.0.0.1:0"]);
    let before = r#"{"a": [1], "b": [2]}"#;
    let changed = "\"0A000\"";
    let changes = [
        // The columns change places, and one changes its values.
        ("ALTER TABLE t DROP COLUMN a; ALTER TABLE t ADD COLUMN a INT DEFAULT 9", changed),
        ("ALTER TABLE t ALTER COLUMN a TYPE BIGINT", changed),
        ("ALTER TABLE t ADD COLUMN z INT DEFAULT 7", changed),
        ("ALTER TABLE t DROP COLUMN b", changed),
        ("ALTER TABLE t RENAME COLUMN b TO c", changed),
        ("DROP TABLE t; CREATE TABLE t (b INT, a INT); INSERT INTO t VALUES (1, 2)", changed),
        (
            "DROP TABLE t; CREATE TABLE t (a INT, b INT); INSERT INTO t VALUES (3, 4)",
            r#"{"a": [3], "b": [4]}"#,
        ),
        ("ALTER TABLE t ADD COLUMN z INT; ALTER TABLE t DROP COLUMN z", before),
    ];
    let uri = format!("grpc://127.0.0.1:{}", server.flight);
    let arguments: Vec<&str> =
        std::iter::once(uri.as_str()).chain(changes.iter().map(|(change, _)| *change)).collect();
    let Some((is_done, reply)) = auth_support::python("flight_altered.py", &arguments) else { return };
    assert!(is_done, "{reply}");
    let lines: Vec<&str> = reply.lines().collect();
    assert_eq!(lines.len(), changes.len(), "{reply}");
    for ((change, after), line) in changes.iter().zip(lines) {
        assert_eq!(line, format!("[{before}, {before}, {after}]"), "{change}");
    }
}
