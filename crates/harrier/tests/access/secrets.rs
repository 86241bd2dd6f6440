//! Credentials of object stores appear in no relation, message, plan, page, metric or log.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use crate::test_server::{TestServer, page};

const KEY: &str = "KEYOFTHESTORE";
const SECRET: &str = "secret-of-the-store";
const TOKEN: &str = "token-of-the-store";

/// Starts a store that refuses every request and records it.
fn start_refusing_store() -> (u16, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let requests = Arc::new(Mutex::new(String::new()));
    let received = Arc::clone(&requests);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 16 << 10];
            let read = stream.read(&mut request).unwrap_or(0);
            received.lock().unwrap().push_str(&String::from_utf8_lossy(&request[..read]));
            let _ =
                stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    (port, requests)
}

#[test]
fn store_keys_appear_nowhere() {
    let (port, requests) = start_refusing_store();
    let endpoint = format!("http://127.0.0.1:{port}");
    let environment = [
        ("AWS_ACCESS_KEY_ID", KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_SESSION_TOKEN", TOKEN),
        ("AWS_REGION", "eu-central-1"),
        ("AWS_ENDPOINT_URL", &endpoint),
        ("AWS_ALLOW_HTTP", "true"),
        ("HARRIER_LOG", "debug"),
    ];
    let server = TestServer::start_with(tempfile::tempdir().unwrap(), &["--launcher", "none"], &environment);
    let mut client = server.client();
    let mut visible_text = String::new();
    let mut ask = |sql: &str| match client.query(sql) {
        Ok(rows) => visible_text.extend(rows.into_iter().flatten().flatten().map(|value| value + "\n")),
        Err((state, message)) => visible_text.push_str(&format!("{state} {message}\n")),
    };
    for sql in [
        "SELECT * FROM 's3://bucket/x.parquet'",
        "COPY (SELECT 1 AS x) TO 's3://bucket/y.parquet'",
        "CREATE EXTERNAL TABLE e (x INT) STORED AS PARQUET LOCATION 's3://bucket/e/'",
        "SELECT * FROM e",
        "EXPLAIN ANALYZE SELECT * FROM e",
        "EXPLAIN VERBOSE SELECT 1",
        "SHOW ALL",
        "SELECT * FROM pg_settings",
        "SELECT * FROM pg_stat_activity",
        "SELECT * FROM information_schema.tables",
    ] {
        ask(sql);
    }
    for table in ["sessions", "statements", "ranks", "queues", "disks", "tables", "snapshots", "interconnect"]
    {
        ask(&format!("SELECT * FROM sys.{table}"));
    }
    for path in ["/", "/statements", "/sessions", "/ranks", "/queues", "/tables", "/metrics", "/healthz"] {
        let (status, body) = page(&server.pages, path, true);
        assert_eq!(status, 200, "{path}");
        visible_text.push_str(&body);
    }
    // The keys were used.
    let requests = requests.lock().unwrap().clone();
    assert!(requests.contains(&format!("Credential={KEY}/")) && requests.contains(TOKEN), "{requests}");
    assert!(!requests.contains(SECRET), "{requests}");
    // Errors name the object and the operation, and nothing of the credentials.
    assert!(visible_text.contains("42501") && visible_text.contains("s3://bucket/"), "{visible_text}");
    let log = server.log();
    assert!(log.len() > 100, "{log}");
    for (what, text) in [("an answer", &visible_text), ("the log", &log)] {
        for secret in [SECRET, TOKEN] {
            let line = text.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "in {what}");
        }
    }
}

/// Statements that contain a secret in any form, and whether they succeed.
const WITH_SECRETS: &[&str] = &[
    "SET s3.secret_access_key = clear_secret",
    "SET s3.session_token TO clear_secret",
    "SET s3.secret_access_key = 'clear_secret'",
    "SET s3.secret_access_key = E'clear_secret'",
    "SET s3.secret_access_key = U&'clear_secret'",
    "SET s3.secret_access_key = $a$clear_secret$a$",
    "SET s3.secret_access_key = 'clear_secret",
    "SET \"s3.secret_access_key\" = clear_secret nonsense",
    "SELECT set_config('s3.secret_access_key', 'clear_secret', false)",
    "SELECT set_config('s3.secret' || '_access_key', 'clear' || '_secret', false)",
    "SELECT set_config('s3.secret_access_key', 'clear_secret'",
    "CREATE ROLE keeper PASSWORD 'clear_secret'",
    "CREATE ROLE keeper IDENTIFIED BY 'clear_secret'",
    "CREATE ROLE keeper PASSWORD clear_secret",
    "ALTER ROLE keeper PASSWORD ('clear_secret')",
    "ALTER ROLE keeper WITH ENCRYPTED PASSWORD $$clear_secret$$",
    "ALTER ROLE keeper SET s3.secret_access_key = clear_secret",
    "SELECT * FROM 'postgres://me:clear_secret/a@b@localhost/d'",
    "SELECT * FROM 'http://localhost/?token=clear_secret&a=b'",
    "CREATE EXTERNAL TABLE e (a INT) STORED AS CSV LOCATION 's3://b/' OPTIONS ('s3.secret_access_key' 'clear_secret')",
    "CREATE EXTERNAL TABLE e (a INT) STORED AS CSV LOCATION 's3://b/' OPTIONS (s3.secret_access_key clear_secret)",
    "COPY (SELECT 1) TO '/nowhere/a.csv' (secret_access_key 'clear_secret')",
    "EXPLAIN SELECT set_config('s3.secret_access_key', 'clear_secret', false)",
    "PREPARE p AS SELECT set_config('s3.secret_access_key', 'clear_secret', false)",
    "ALTER ROLE keeper PASSWORD 'clear_secret' 'clear_secret' PASSWORD",
];

#[test]
fn secrets_in_statements_are_redacted() {
    let folder = tempfile::tempdir().unwrap();
    let (log, config) = (folder.path().join("audit"), folder.path().join("config"));
    std::fs::write(&config, format!("[server]\naudit_log = {log:?}\naudit_statements = \"all\"\n")).unwrap();
    let server = TestServer::start_in(folder, &["--launcher", "none", "--config", config.to_str().unwrap()]);
    let mut client = server.client();
    for sql in WITH_SECRETS {
        let _ = client.query(sql);
        // In the extended protocol as well.
        client.send(b'P', &[b"\0", sql.as_bytes(), b"\0\0\0"].concat());
        client.send(b'S', b"");
        let _ = client.answer();
    }
    assert_eq!(client.fails("selec 1"), "42601");
    let mut visible_text = String::new();
    for sql in ["SELECT * FROM sys.statements", "SELECT query FROM pg_stat_activity", "SELECT 'the end'"] {
        let rows = client.query(sql).unwrap_or_default();
        visible_text.extend(rows.into_iter().flatten().flatten().map(|value| value + "\n"));
    }
    for path in ["/", "/statements", "/sessions"] {
        visible_text.push_str(&page(&server.pages, path, true).1);
    }
    let audit = std::fs::read_to_string(&log).unwrap();
    assert!(audit.contains("\"selec 1\"") && audit.contains("\"42601\""), "{audit}");
    for secret in ["set_config", "PASSWORD '***'", "s3.secret_access_key = '***'", "me:***@localhost"] {
        assert!(audit.contains(secret), "{secret}: {audit}");
    }
    for (what, text) in
        [("what is shown", &visible_text), ("the audit log", &audit), ("the log", &server.log())]
    {
        for secret in ["clear_secret", "clear", "_secret'"] {
            let line = text.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "in {what}");
        }
    }
}
