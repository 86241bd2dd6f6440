//! What opens a store is shown to nobody: not in relations, messages, plans, pages, numbers or logs.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use crate::test_server::{Served, page};

const KEY: &str = "KEYOFTHESTORE";
const SECRET: &str = "secret-of-the-store";
const TOKEN: &str = "token-of-the-store";

/// A store that refuses everything, and keeps what it was asked.
fn store() -> (u16, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(Mutex::new(String::new()));
    let heard = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 16 << 10];
            let read = stream.read(&mut request).unwrap_or(0);
            heard.lock().unwrap().push_str(&String::from_utf8_lossy(&request[..read]));
            let _ =
                stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    (port, asked)
}

#[test]
fn keys_of_stores_are_shown_to_nobody() {
    let (port, asked) = store();
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
    let served = Served::start_with(tempfile::tempdir().unwrap(), &["--launcher", "none"], &environment);
    let mut client = served.client();
    let mut shown = String::new();
    let mut ask = |sql: &str| match client.query(sql) {
        Ok(rows) => shown.extend(rows.into_iter().flatten().flatten().map(|value| value + "\n")),
        Err((state, message)) => shown.push_str(&format!("{state} {message}\n")),
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
        let (status, body) = page(&served.pages, path, true);
        assert_eq!(status, 200, "{path}");
        shown.push_str(&body);
    }
    // The keys were used.
    let asked = asked.lock().unwrap().clone();
    assert!(asked.contains(&format!("Credential={KEY}/")) && asked.contains(TOKEN), "{asked}");
    assert!(!asked.contains(SECRET), "{asked}");
    // What was asked of the store is told, with what and nothing of how.
    assert!(shown.contains("42501") && shown.contains("s3://bucket/"), "{shown}");
    let log = served.log();
    assert!(log.len() > 100, "{log}");
    for (what, text) in [("an answer", &shown), ("the log", &log)] {
        for secret in [SECRET, TOKEN] {
            let line = text.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "in {what}");
        }
    }
}

/// Statements with a secret in them, in whatever form, and whether they run.
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
fn secrets_in_statements_are_kept_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let (log, config) = (folder.path().join("audit"), folder.path().join("config"));
    std::fs::write(&config, format!("[server]\naudit_log = {log:?}\naudit_statements = \"all\"\n")).unwrap();
    let served = Served::start_in(folder, &["--launcher", "none", "--config", config.to_str().unwrap()]);
    let mut client = served.client();
    for sql in WITH_SECRETS {
        let _ = client.query(sql);
        // In the extended protocol as well.
        client.send(b'P', &[b"\0", sql.as_bytes(), b"\0\0\0"].concat());
        client.send(b'S', b"");
        let _ = client.answer();
    }
    assert_eq!(client.fails("selec 1"), "42601");
    let mut shown = String::new();
    for sql in ["SELECT * FROM sys.statements", "SELECT query FROM pg_stat_activity", "SELECT 'the end'"] {
        let rows = client.query(sql).unwrap_or_default();
        shown.extend(rows.into_iter().flatten().flatten().map(|value| value + "\n"));
    }
    for path in ["/", "/statements", "/sessions"] {
        shown.push_str(&page(&served.pages, path, true).1);
    }
    let audit = std::fs::read_to_string(&log).unwrap();
    assert!(audit.contains("\"selec 1\"") && audit.contains("\"42601\""), "{audit}");
    for secret in ["set_config", "PASSWORD '***'", "s3.secret_access_key = '***'", "me:***@localhost"] {
        assert!(audit.contains(secret), "{secret}: {audit}");
    }
    for (what, text) in [("what is shown", &shown), ("the audit log", &audit), ("the log", &served.log())] {
        for secret in ["clear_secret", "clear", "_secret'"] {
            let line = text.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "in {what}");
        }
    }
}
