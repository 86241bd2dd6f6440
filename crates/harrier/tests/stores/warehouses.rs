//! Warehouses with files on S3 or HDFS and catalogs in PostgreSQL, on real servers: every statement has the
//! same answer as on local files, embedded and on ranks, with faults between ranks and store; and request
//! counts.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use harrier_launch::Launcher;
use harrier_servers::{ACCESS_KEY, Fault, Postgres, Proxy, REGION, Rule, S3, SECRET_KEY};
use harrier_testkit::session::{Answer, Configuration, Failure, Session};
use serde_json::Value;
use tempfile::TempDir;

/// Object that marks the owner of a data folder.
const MARKER: &str = "/_harrier_warehouse";

pub(crate) fn run(session: &mut Session, sql: &str) {
    session.run(sql).unwrap_or_else(|error| panic!("{error} of {sql}"));
}

pub(crate) fn one(session: &mut Session, sql: &str) -> String {
    match session.run(sql) {
        Ok(Answer::Rows { rows, .. }) => rows[0][0].clone().unwrap(),
        other => panic!("{other:?} of {sql}"),
    }
}

fn fails(session: &mut Session, sql: &str) -> Failure {
    let failure = session.run(sql).expect_err(sql);
    assert!(!failure.message.contains(SECRET_KEY), "{failure}");
    failure
}

/// Catalog in a folder, data files in `data`.
fn configuration(folder: &Path, data: &str, environment: &[(&str, &str)]) -> Configuration {
    let mut configuration =
        Configuration::embedded().with_warehouse(folder.join("warehouse")).with_arguments(["--data", data]);
    configuration
        .environment
        .extend(environment.iter().map(|(name, value)| (name.to_string(), value.to_string())));
    configuration
}

/// The same on two ranks; `None` where MPI is skipped.
pub(crate) fn on_ranks(one: &Configuration) -> Option<Configuration> {
    if harrier_launch::mpi_skipped() {
        eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
        return None;
    }
    let words = Launcher::open_mpi(2).words().unwrap_or_else(|reason| panic!("{reason}"));
    Some(
        one.clone().with_name("2-ranks").launched_by(words).with_setting("harrier.distribute_bytes_min", "0"),
    )
}

/// A warehouse on S3 behind a fault-injecting proxy.
pub(crate) struct Bucket {
    pub server: &'static S3,
    pub proxy: Proxy,
    pub name: String,
    folder: TempDir,
}

impl Bucket {
    pub fn new() -> Option<Self> {
        let server = S3::shared_instance()?;
        let proxy = Proxy::start(server.address());
        Some(Self { server, proxy, name: server.new_bucket(), folder: tempfile::tempdir().unwrap() })
    }

    pub fn configuration(&self) -> Configuration {
        let data = format!("s3://{}/lake/", self.name);
        let endpoint = self.proxy.endpoint();
        let environment = [
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
            ("AWS_REGION", REGION),
            ("AWS_ENDPOINT_URL", &endpoint),
            ("AWS_ALLOW_HTTP", "true"),
            // Short retry delays.
            ("HARRIER_STORE_REQUEST_SECONDS", "5"),
        ];
        configuration(self.folder.path(), &data, &environment)
    }

    pub fn session(&self) -> Session {
        Session::start(&self.configuration()).unwrap()
    }

    /// Number of objects except the owner marker.
    pub fn objects(&self) -> usize {
        self.server.objects(&self.name).iter().filter(|name| !name.ends_with(MARKER)).count()
    }
}

/// Runs every kind of statement that changes rows, and checks the result. Starts and ends without tables.
fn all_statements(session: &mut Session) {
    run(session, "CREATE TABLE t (id INT, kind TEXT, amount NUMERIC(10,2)) PARTITION BY (kind)");
    run(session, "INSERT INTO t SELECT v, 'k' || v % 4, v * 1.5 FROM generate_series(1, 1000) AS g(v)");
    assert_eq!(one(session, "SELECT count(*) FROM t"), "1000");
    assert_eq!(one(session, "SELECT sum(id) FROM t WHERE kind = 'k1'"), "124750");
    // Few rows are inlined in the catalog, and are read together with those in files.
    run(session, "INSERT INTO t VALUES (2001, 'k1', 1.25), (2002, 'new', NULL)");
    assert_eq!(one(session, "SELECT sum(id) FROM t WHERE kind IN ('k1', 'new')"), "128753");
    run(session, "UPDATE t SET amount = 0 WHERE id <= 100");
    assert_eq!(one(session, "SELECT count(*) FROM t WHERE amount = 0"), "100");
    run(session, "DELETE FROM t WHERE kind = 'k2' AND id > 500");
    assert_eq!(one(session, "SELECT count(*) FROM t WHERE kind = 'k2'"), "125");
    run(
        session,
        "CREATE TABLE s AS SELECT v AS id, 'merged' AS kind FROM generate_series(995, 1010) AS g(v)",
    );
    run(
        session,
        "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET amount = -1 \
         WHEN NOT MATCHED THEN INSERT (id, kind) VALUES (s.id, s.kind)",
    );
    assert_eq!(one(session, "SELECT count(*) FROM t WHERE kind = 'merged'"), "11");
    let before = one(session, "SELECT count(*) || ' ' || sum(id) || ' ' || sum(amount) FROM t");
    run(session, "OPTIMIZE t");
    assert_eq!(one(session, "SELECT count(*) || ' ' || sum(id) || ' ' || sum(amount) FROM t"), before);
    run(session, "BEGIN");
    run(session, "INSERT OVERWRITE t SELECT v, 'k3', 7 FROM generate_series(1, 50) AS g(v)");
    assert_eq!(one(session, "SELECT count(*) FROM t WHERE kind = 'k3'"), "50");
    run(session, "ROLLBACK");
    assert_eq!(one(session, "SELECT count(*) || ' ' || sum(id) || ' ' || sum(amount) FROM t"), before);
    run(session, "INSERT OVERWRITE t SELECT v, 'k3', 7 FROM generate_series(1, 50) AS g(v)");
    assert_eq!(one(session, "SELECT count(*) FROM t WHERE kind = 'k3'"), "50");
    // Rewrites only the table partition of the changed rows.
    assert_eq!(one(session, "SELECT count(*) FROM t WHERE kind = 'k2'"), "125");
    run(session, "DROP TABLE t");
    run(session, "DROP TABLE s");
}

#[test]
fn all_statements_on_s3() {
    let Some(bucket) = Bucket::new() else { return };
    all_statements(&mut bucket.session());
    assert!(bucket.objects() > 0);
    let Some(ranks) = on_ranks(&bucket.configuration()) else { return };
    let _turn = harrier_launch::gang_slot();
    all_statements(&mut Session::start(&ranks).unwrap());
}

#[test]
fn all_statements_on_hdfs() {
    let Some((_alone, server)) = crate::hdfs() else { return };
    let folder = tempfile::tempdir().unwrap();
    let one = configuration(folder.path(), &format!("{}/lake/", server.url()), &[]);
    let before = server.calls("/lake");
    all_statements(&mut Session::start(&one).unwrap());
    let after = server.calls("/lake");
    let request_count = |call: &str| {
        let count = |calls: &std::collections::BTreeMap<String, u64>| calls.get(call).copied().unwrap_or(0);
        count(&after) - count(&before)
    };
    assert!(request_count("create") > 10, "{after:?}");
    assert_eq!((request_count("rename"), request_count("listStatus")), (0, 0), "{after:?}");
    let Some(ranks) = on_ranks(&one) else { return };
    let _turn = harrier_launch::gang_slot();
    all_statements(&mut Session::start(&ranks).unwrap());
}

/// A part of all requests is refused, truncated or not answered, without effect on statements.
#[test]
fn faults_between_ranks_and_s3_are_retried() {
    let Some(bucket) = Bucket::new() else { return };
    let faults = |proxy: &Proxy| {
        for at in 0..4 {
            let every = 3 * at;
            proxy.add(Rule::new(Fault::Status(503)).after(every).times(2));
            proxy.add(Rule::new(Fault::Status(500)).of("PUT").after(every).times(2));
            proxy.add(Rule::new(Fault::CutAfterwards).of("PUT").after(every + 1).times(1));
            proxy.add(Rule::new(Fault::StatusAfterwards(500)).of("PUT").after(every + 2).times(1));
            proxy.add(Rule::new(Fault::CutAfterwards).of("GET").after(every).times(1));
            proxy.add(Rule::new(Fault::CutWithin(100)).of("GET").after(every + 1).times(1));
            proxy.add(Rule::new(Fault::CutAfterwards).of("DELETE-MANY").after(every).times(1));
        }
        proxy.add(Rule::new(Fault::SilentAfterwards).of("PUT").after(5).times(1));
    };
    faults(&bucket.proxy);
    all_statements(&mut bucket.session());
    let Some(ranks) = on_ranks(&bucket.configuration()) else { return };
    bucket.proxy.clear();
    faults(&bucket.proxy);
    let _turn = harrier_launch::gang_slot();
    all_statements(&mut Session::start(&ranks).unwrap());
}

/// A failed write is not visible, and its files are removed.
#[test]
fn unavailable_store_fails_the_statement() {
    let Some(bucket) = Bucket::new() else { return };
    let mut patient = bucket.configuration();
    patient.environment.push(("HARRIER_STORE_RETRIES".into(), "1".into()));
    let mut session = Session::start(&patient).unwrap();
    run(&mut session, "CREATE TABLE t (k INT, v INT) PARTITION BY (k)");
    run(&mut session, "INSERT INTO t SELECT v % 3, v FROM generate_series(1, 100) AS g(v)");
    assert_eq!(bucket.objects(), 3);
    let insert = "INSERT INTO t SELECT v % 20, v FROM generate_series(1, 1000) AS g(v)";
    bucket.proxy.add(Rule::new(Fault::Status(503)).of("PUT").after(10));
    let failure = fails(&mut session, insert);
    assert_eq!(failure.sqlstate, "58030", "{failure}");
    assert!(failure.message.contains("SlowDown") || failure.message.contains("503"), "{failure}");
    bucket.proxy.clear();
    assert_eq!(one(&mut session, "SELECT count(*) FROM t"), "100");
    // Its files are removed at once, except for one whose upload reached the server after the removal.
    run(&mut session, "SET harrier.vacuum_age_seconds = 0");
    let started = std::time::Instant::now();
    while bucket.objects() > 3 {
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", bucket.server.objects(&bucket.name));
        std::thread::sleep(Duration::from_millis(500));
        run(&mut session, "VACUUM");
    }
    run(&mut session, insert);
    assert_eq!(one(&mut session, "SELECT count(*) FROM t"), "1100");
    // Errors of reads of footers and columns reveal nothing either.
    for after in [0, 1, 7] {
        bucket.proxy.add(Rule::new(Fault::Status(503)).of("GET").after(after));
        let mut other = Session::start(&patient).unwrap();
        let failure = fails(&mut other, "SELECT sum(v) FROM t");
        assert_eq!(failure.sqlstate, "58030", "after {after}: {failure}");
        assert!(failure.message.contains(&bucket.proxy.endpoint()), "{failure}");
        bucket.proxy.clear();
        assert_eq!(one(&mut other, "SELECT sum(v) FROM t"), "505550");
    }

    // None of these words is ever a secret.
    let mut wrong = bucket.configuration();
    wrong.environment.push(("AWS_SECRET_ACCESS_KEY".into(), "wronghush".into()));
    let failure = fails(&mut Session::start(&wrong).unwrap(), "SELECT count(v) FROM t");
    // Although Parquet's reader keeps only the text of the store's error.
    assert_eq!(failure.sqlstate, "42501", "{failure}");
    assert!(!failure.message.contains("wronghush"), "{failure}");
}

/// No listings for reads or writes, one request per written file, and as many as planned to read one.
#[test]
fn request_counts_of_statements() {
    let Some(bucket) = Bucket::new() else { return };
    // Requests per file that is read: footer and column; on ranks one more, because the coordinator assigns
    // row groups.
    let mut sessions = vec![(bucket.session(), "a", 2)];
    let _turn = harrier_launch::gang_slot();
    if let Some(ranks) = on_ranks(&bucket.configuration()) {
        sessions.push((Session::start(&ranks).unwrap(), "b", 3));
    }
    for (session, table, reads_each) in &mut sessions {
        run(session, &format!("CREATE TABLE {table} (k INT, v INT) PARTITION BY (k)"));
        bucket.proxy.reset();
        run(session, &format!("INSERT INTO {table} SELECT v % 200, v FROM generate_series(1, 2000) AS g(v)"));
        let counts = bucket.proxy.counts();
        assert_eq!(counts.get("PUT"), Some(&200), "{counts:?}");
        assert!(bucket.proxy.total() <= 220, "{counts:?}");

        bucket.proxy.reset();
        run(
            session,
            &format!("INSERT OVERWRITE {table} SELECT v % 200, v FROM generate_series(1, 4000) AS g(v)"),
        );
        let counts = bucket.proxy.counts();
        assert!(bucket.proxy.total() <= 220, "{counts:?}");
        assert_eq!(counts.get("LIST"), None, "{counts:?}");

        bucket.proxy.reset();
        assert_eq!(one(session, &format!("SELECT sum(v) FROM {table}")), "8002000");
        let counts = bucket.proxy.counts();
        assert_eq!(counts.keys().map(String::as_str).collect::<Vec<_>>(), ["GET"], "{counts:?}");
        assert!(counts["GET"] <= 200 * *reads_each + 10, "{counts:?}");

        // One file per table partition.
        bucket.proxy.reset();
        assert_eq!(one(session, &format!("SELECT count(v) FROM {table} WHERE k = 7")), "20");
        assert!(bucket.proxy.total() <= 2, "{:?}", bucket.proxy.counts());
        // Nothing is requested that the catalog knows.
        bucket.proxy.reset();
        assert_eq!(one(session, &format!("SELECT count(*) FROM {table}")), "4000");
        assert_eq!(bucket.proxy.total(), 0, "{:?}", bucket.proxy.counts());
    }
}

#[test]
fn vacuum_removes_files_on_s3() {
    let Some(bucket) = Bucket::new() else { return };
    let mut session = bucket.session();
    run(&mut session, "CREATE TABLE t (k INT, v INT)");
    run(&mut session, "INSERT INTO t SELECT v % 3, v FROM generate_series(1, 100) AS g(v)");
    let files = bucket.objects();
    run(&mut session, "INSERT OVERWRITE t SELECT v % 3, v FROM generate_series(1, 200) AS g(v)");
    assert!(bucket.objects() > files);
    // Files of earlier snapshots stay as long as these, and young files stay in any case.
    run(&mut session, "VACUUM");
    assert!(bucket.objects() > files);
    assert_eq!(one(&mut session, "SELECT count(*) FROM t"), "200");
    // A file of a dead writer: young, so only a VACUUM with age 0 removes it.
    let objects = bucket.server.objects(&bucket.name);
    let written = objects.iter().find(|name| name.ends_with("-0.parquet")).unwrap();
    let (folder, name) = written.rsplit_once('/').unwrap();
    let (writer, _) = name.split_once('-').unwrap();
    // The first digits of a writer's name identify the warehouse.
    let abandoned_file = format!("{folder}/{}{}-0-0-0.parquet", &writer[..12], "0".repeat(20));
    let foreign = format!("{folder}/left-0-0-0.parquet");
    for name in [&abandoned_file, &foreign] {
        bucket.server.put_object(&bucket.name, name, b"PAR1");
    }
    let before = bucket.objects();
    run(&mut session, "SET harrier.vacuum_age_seconds = 0");
    run(&mut session, "VACUUM");
    let objects = bucket.server.objects(&bucket.name);
    assert_eq!(bucket.objects(), before - 1, "{objects:?}");
    assert!(!objects.contains(&abandoned_file) && objects.contains(&foreign), "{objects:?}");
    assert_eq!(one(&mut session, "SELECT count(*) FROM t"), "200");
}

/// An incomplete multipart upload of a dead writer is not an object, and VACUUM finds it nevertheless.
#[test]
fn vacuum_aborts_uploads_of_dead_writers() {
    let Some(bucket) = Bucket::new() else { return };
    let mut session = bucket.session();
    run(&mut session, "CREATE TABLE t (v TEXT)");
    // The server receives the parts, and the responses are lost.
    bucket.proxy.add(Rule::new(Fault::SilentAfterwards).of("PUT").on("uploadId"));
    let one_file = bucket.configuration().with_setting("datafusion.execution.target_partitions", "1");
    let mut dying = Session::start(&one_file).unwrap();
    let pid = dying.id();
    std::thread::scope(|scope| {
        // More than one part, after compression.
        let insert =
            "INSERT INTO t SELECT md5(v::text) || md5((-v)::text) FROM generate_series(1, 500000) AS g(v)";
        let writing = scope.spawn(move || dying.run(insert).is_err());
        let start = std::time::Instant::now();
        while bucket.server.uploads(&bucket.name) == 0 {
            assert!(start.elapsed() < Duration::from_secs(120), "nothing is uploaded in parts");
            std::thread::sleep(Duration::from_millis(20));
        }
        // Its writer is known.
        run(&mut session, "SET harrier.vacuum_age_seconds = 0");
        run(&mut session, "VACUUM");
        assert!(bucket.server.uploads(&bucket.name) > 0, "it is written still");
        assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
        assert!(writing.join().unwrap());
    });
    bucket.proxy.clear();
    let uploads = bucket.server.uploads(&bucket.name);
    assert!(uploads > 0);
    run(&mut session, "RESET harrier.vacuum_age_seconds");
    run(&mut session, "VACUUM");
    assert_eq!(bucket.server.uploads(&bucket.name), uploads, "they are young");
    run(&mut session, "SET harrier.vacuum_age_seconds = 0");
    run(&mut session, "VACUUM");
    assert_eq!((bucket.server.uploads(&bucket.name), bucket.objects()), (0, 0));
    assert_eq!(one(&mut session, "SELECT count(*) FROM t"), "0");
}

#[test]
fn vacuum_removes_files_on_hdfs() {
    let Some((_alone, server)) = crate::hdfs() else { return };
    let folder = tempfile::tempdir().unwrap();
    let configuration = configuration(folder.path(), &format!("{}/swept/", server.url()), &[]);
    let mut session = Session::start(&configuration).unwrap();
    run(&mut session, "CREATE TABLE t (k INT, v INT) PARTITION BY (k)");
    run(&mut session, "INSERT INTO t SELECT v % 3, v FROM generate_series(1, 100) AS g(v)");
    run(&mut session, "BEGIN");
    run(&mut session, "INSERT INTO t SELECT v % 3, v FROM generate_series(1, 100) AS g(v)");
    run(&mut session, "ROLLBACK");
    run(&mut session, "SET harrier.vacuum_age_seconds = 0");
    run(&mut session, "VACUUM");
    assert_eq!(one(&mut session, "SELECT sum(v) FROM t"), "5050");
}

// Catalogs in PostgreSQL.

/// A session with its catalog in a database and its files in a folder.
fn with_catalog(url: &str, data: &Path) -> Configuration {
    Configuration::embedded()
        .with_catalog(url)
        .with_arguments(["--data".to_string(), data.display().to_string()])
}

#[test]
fn all_statements_with_a_catalog_in_postgres() {
    let Some(server) = Postgres::shared_instance() else { return };
    let folder = tempfile::tempdir().unwrap();
    let url = server.url(&server.new_database());
    let alone = with_catalog(&url, folder.path());
    all_statements(&mut Session::start(&alone).unwrap());
    if let Some(ranks) = on_ranks(&alone) {
        let _turn = harrier_launch::gang_slot();
        all_statements(&mut Session::start(&ranks).unwrap());
    }
    // Files on S3, catalog in PostgreSQL.
    let Some(bucket) = Bucket::new() else { return };
    let both = bucket.configuration().with_catalog(server.url(&server.new_database()));
    all_statements(&mut Session::start(&both).unwrap());
    assert!(bucket.objects() > 0);
}

#[test]
fn two_processes_share_a_catalog_in_postgres() {
    let Some(server) = Postgres::shared_instance() else { return };
    let folder = tempfile::tempdir().unwrap();
    let url = server.url(&server.new_database());
    let configuration = with_catalog(&url, folder.path());
    let mut first = Session::start(&configuration).unwrap();
    run(&mut first, "CREATE TABLE t (who INT, n INT)");
    std::thread::scope(|scope| {
        for who in 0..3 {
            let configuration = &configuration;
            scope.spawn(move || {
                let mut session = Session::start(configuration).unwrap();
                for n in 0..10 {
                    run(&mut session, &format!("INSERT INTO t VALUES ({who}, {n})"));
                    run(
                        &mut session,
                        &format!(
                            "INSERT INTO t SELECT {who}, 100 * {n} + v FROM generate_series(100, 119) AS g(v)"
                        ),
                    );
                }
            });
        }
    });
    assert_eq!(one(&mut first, "SELECT count(*) FROM t"), "630");
    assert_eq!(one(&mut first, "SELECT count(DISTINCT n) FROM t WHERE n < 100"), "10");
    // The later of two changes to the same rows fails.
    let mut second = Session::start(&configuration).unwrap();
    run(&mut first, "BEGIN");
    run(&mut first, "UPDATE t SET n = 0 WHERE who = 1");
    run(&mut second, "DELETE FROM t WHERE who = 1");
    let failure = fails(&mut first, "COMMIT");
    assert_eq!(failure.sqlstate, "40001", "{failure}");
    assert_eq!(one(&mut first, "SELECT count(*) FROM t"), "420");
}

#[test]
fn unreachable_catalog_server_is_reported() {
    if harrier_servers::skip_requested() {
        return;
    }
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let folder = tempfile::tempdir().unwrap();
    let url = format!("postgres://harrier:hush@{address}/lake");
    let mut session = Session::start(&with_catalog(&url, folder.path())).unwrap();
    let failure = fails(&mut session, "CREATE TABLE t (a INT)");
    assert!(failure.sqlstate.starts_with("08"), "{failure}");
    assert!(!failure.message.contains("hush"), "{failure}");
}

/// One statement in, one answer out, in the format of `harrier sql --format lines`.
const PEER: &str = r#"
import glob, json, os, sys
import duckdb, duckdb_extension_ducklake, duckdb_extension_postgres_scanner
connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
# What takes long would tell how far it is among the answers.
connection.execute("SET enable_progress_bar = false")
for module in (duckdb_extension_postgres_scanner, duckdb_extension_ducklake):
    [path] = glob.glob(os.path.join(os.path.dirname(module.__file__), "extensions", "*", "*.duckdb_extension"))
    connection.execute(f"LOAD '{path}'")
for line in sys.stdin:
    try:
        rows = [[None if value is None else str(value) for value in row] for row in connection.execute(json.loads(line)).fetchall()]
        print(json.dumps({"rows": rows}), flush=True)
    except Exception as error:
        print(json.dumps({"error": str(error)}), flush=True)
"#;

struct Duck {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Duck {
    /// `None`: DuckDB is not available.
    fn start() -> Option<Self> {
        let python = harrier_servers::installation("duckdb.sh")?;
        let mut child = Command::new(python)
            .args(["-c", PEER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Some(Self { child, stdin, stdout })
    }

    fn run(&mut self, sql: &str) -> Vec<Vec<Option<String>>> {
        writeln!(self.stdin, "{}", Value::from(sql)).unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        let Some(rows) = answer["rows"].as_array() else {
            panic!("DuckDB says {} of {sql}", answer["error"])
        };
        let cell = |value: &Value| value.as_str().map(str::to_string);
        rows.iter().map(|row| row.as_array().unwrap().iter().map(cell).collect()).collect()
    }
}

impl Drop for Duck {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// DuckDB and Harrier use the warehouse, and each reads the other's rows.
#[test]
fn duckdb_shares_a_catalog_in_postgres() {
    let Some(server) = Postgres::shared_instance() else { return };
    let folder = tempfile::tempdir().unwrap();
    let database = server.new_database();
    let mut harrier = Session::start(&with_catalog(&server.url(&database), folder.path())).unwrap();
    run(&mut harrier, "CREATE TABLE t (id INT, kind TEXT, ts TIMESTAMP) PARTITION BY (kind)");
    run(
        &mut harrier,
        "INSERT INTO t SELECT v, 'k' || v % 3, to_timestamp(1704067200 + v) FROM generate_series(1, 300) AS g(v)",
    );
    run(&mut harrier, "INSERT INTO t VALUES (1000, 'few', NULL)");
    run(&mut harrier, "DELETE FROM t WHERE id IN (5, 7)");
    run(&mut harrier, "UPDATE t SET kind = 'new' WHERE id > 290");
    let Some(mut duck) = Duck::start() else { return };
    let port = server.port();
    duck.run(&format!(
        "ATTACH 'ducklake:postgres:host=127.0.0.1 port={port} user=harrier dbname={database}' AS lake"
    ));
    duck.run("USE lake");
    let questions = [
        "SELECT count(*), sum(id) FROM t",
        "SELECT kind, count(*), min(id), max(id) FROM t GROUP BY kind ORDER BY kind",
        "SELECT count(*) FROM t WHERE ts < TIMESTAMP '2024-01-01 00:01:00'",
    ];
    let agree = |harrier: &mut Session, duck: &mut Duck| {
        for question in questions {
            let ours = match harrier.run(question) {
                Ok(Answer::Rows { rows, .. }) => rows,
                other => panic!("{other:?} of {question}"),
            };
            assert_eq!(ours, duck.run(question), "Harrier and DuckDB on {question}");
        }
    };
    agree(&mut harrier, &mut duck);
    duck.run("INSERT INTO t SELECT v, 'duck', NULL FROM range(5000, 5100) AS r(v)");
    duck.run("DELETE FROM t WHERE id = 5050");
    duck.run("UPDATE t SET kind = 'both' WHERE id IN (10, 5051)");
    agree(&mut harrier, &mut duck);
    run(&mut harrier, "DELETE FROM t WHERE kind = 'duck' AND id < 5010");
    agree(&mut harrier, &mut duck);
    // In the catalog database, intervals have PostgreSQL's type, with other names of months.
    run(&mut harrier, "CREATE TABLE spans (id INT, v INTERVAL)");
    run(
        &mut harrier,
        "INSERT INTO spans VALUES (1, INTERVAL '1 year 2 months 3 days 4 hours 5.678 seconds'), (2, NULL)",
    );
    duck.run("INSERT INTO spans VALUES (3, INTERVAL '-14 months 3 days -04:05:06.789012'), (4, INTERVAL '100 hours')");
    let parts = "SELECT id, extract(year FROM v), extract(month FROM v), extract(day FROM v), extract(hour FROM v), \
                 replace(CAST(TIMESTAMP '2000-01-31 00:00:00' + v AS VARCHAR), 'T', ' ') FROM spans ORDER BY id";
    let ours = match harrier.run(parts) {
        Ok(Answer::Rows { rows, .. }) => rows,
        other => panic!("{other:?} of {parts}"),
    };
    assert_eq!(ours, duck.run(parts));
}

// External tables in stores, listed by other programs.

fn external(location: &str, format: &str) -> String {
    format!(
        "CREATE EXTERNAL TABLE e (id INT, t TEXT, k INT, c TEXT) STORED AS {format} PARTITIONED BY (k, c) \
         LOCATION '{location}/{format}'"
    )
}

const ALL: &str = "SELECT count(*) || ' ' || coalesce(sum(id), 0) || ' ' || count(DISTINCT k) || ' ' || count(DISTINCT c) FROM e";

/// Runs every kind of write to an external table in every format, and checks the result.
fn all_writes(session: &mut Session, location: &str) {
    for format in ["PARQUET", "CSV", "JSON", "ORC", "AVRO", "TEXTFILE"] {
        run(session, &external(location, format));
        assert_eq!(one(session, ALL), "0 0 0 0", "{format}");
        run(
            session,
            "INSERT INTO e SELECT v, 't' || v, v % 4, 'a b/' || v % 2 FROM generate_series(1, 1000) AS g(v)",
        );
        assert_eq!(one(session, ALL), "1000 500500 4 2", "{format}");
        run(session, "INSERT INTO e VALUES (2000, 'x', 9, 'new'), (2001, NULL, 1, 'a b/1')");
        assert_eq!(one(session, ALL), "1002 504501 5 3", "{format}");
        run(session, "INSERT OVERWRITE e SELECT id, t, k, c FROM e WHERE k = 1 AND id < 10");
        assert_eq!(one(session, ALL), "754 377765 5 3", "{format}");
        run(session, "INSERT OVERWRITE e PARTITION (k = 9, c = 'new') SELECT 1, 'x' WHERE false");
        assert_eq!(one(session, ALL), "753 375765 4 2", "{format}");
        run(session, "INSERT INTO e PARTITION (k = 8, c) VALUES (1, 'x', NULL), (2, 'y', 'z')");
        assert_eq!(one(session, "SELECT count(*) FROM e WHERE c IS NULL"), "1", "{format}");
        let before = one(session, ALL);
        run(session, "INSERT INTO e VALUES (5, 'a', 8, 'z')");
        run(session, "INSERT INTO e VALUES (-5, 'a', 8, 'z')");
        if format != "TEXTFILE" {
            run(session, "OPTIMIZE e");
        }
        assert_eq!(one(session, "SELECT count(*) FROM e WHERE k = 8 AND c = 'z'"), "3", "{format}");
        run(session, "INSERT OVERWRITE e PARTITION (k = 8, c = 'z') SELECT 2, 'y'");
        assert_eq!(one(session, ALL), before, "{format}");
        let failure = fails(
            session,
            "INSERT INTO e SELECT v / (v - 900), 'x', 77, 'x' FROM generate_series(1, 1000) AS g(v)",
        );
        assert_eq!(failure.sqlstate, "22012", "{failure}");
        assert_eq!(one(session, ALL), before, "{format}");
        run(session, "DROP TABLE e");
    }
    run(
        session,
        &format!("CREATE EXTERNAL TABLE n (v BIGINT) STORED AS PARQUET LOCATION '{location}/plain'"),
    );
    run(session, "INSERT INTO n SELECT v FROM generate_series(1, 20000) AS g(v)");
    run(session, "INSERT INTO n SELECT v FROM generate_series(20001, 30000) AS g(v)");
    assert_eq!(one(session, "SELECT sum(v) FROM n"), "450015000");
    run(session, "INSERT OVERWRITE n SELECT v FROM n WHERE v % 2 = 0");
    assert_eq!(one(session, "SELECT count(*) || ' ' || sum(v) FROM n"), "15000 225015000");
    run(session, "INSERT OVERWRITE n SELECT v FROM n WHERE v < 0");
    assert_eq!(one(session, "SELECT count(*) FROM n"), "0");
    run(session, "DROP TABLE n");
    let arrow =
        "CREATE EXTERNAL TABLE n (v BIGINT) STORED AS ARROW LOCATION '{}/arrow/'".replace("{}", location);
    run(session, &arrow);
    assert_eq!(fails(session, "INSERT INTO n VALUES (1)").sqlstate, "0A000");
    run(session, "DROP TABLE n");
}

/// Without a warehouse. `lease_seconds`: lease time of a writer lock.
fn without_warehouse(mut configuration: Configuration, lease_seconds: &str) -> Configuration {
    configuration.warehouse = None;
    configuration.arguments.clear();
    configuration.environment.push(("HARRIER_STORE_LEASE_SECONDS".into(), lease_seconds.into()));
    configuration
}

#[test]
fn external_tables_are_written_on_s3() {
    let Some(bucket) = Bucket::new() else { return };
    let alone = without_warehouse(bucket.configuration(), "10");
    all_writes(&mut Session::start(&alone).unwrap(), &format!("s3://{}/one", bucket.name));
    let names = bucket.server.objects(&bucket.name);
    let hidden: Vec<&String> =
        names.iter().filter(|name| name.contains(".harrier") && !name.contains("/lock-")).collect();
    assert!(hidden.is_empty(), "{hidden:?}");
    assert_eq!(bucket.server.uploads(&bucket.name), 0);
    let Some(ranks) = on_ranks(&alone) else { return };
    let _turn = harrier_launch::gang_slot();
    all_writes(&mut Session::start(&ranks).unwrap(), &format!("s3://{}/ranks", bucket.name));
}

#[test]
fn external_tables_are_written_on_hdfs() {
    let Some((_alone, server)) = crate::hdfs() else { return };
    let folder = tempfile::tempdir().unwrap();
    // Six writes must fit into the lease, and HDFS is slow beside other tests.
    let alone = without_warehouse(configuration(folder.path(), "", &[]), "60");
    all_writes(&mut Session::start(&alone).unwrap(), &format!("{}/external/one", server.url()));
    let Some(ranks) = on_ranks(&alone) else { return };
    let _turn = harrier_launch::gang_slot();
    all_writes(&mut Session::start(&ranks).unwrap(), &format!("{}/external/ranks", server.url()));
}

/// DuckDB lists a bucket's folder repeatedly and sees every table partition complete; a killed process leaves
/// the old or the new table.
#[test]
fn external_table_listings_on_s3_are_atomic() {
    const ROWS: usize = 1000;
    let Some(bucket) = Bucket::new() else { return };
    let configuration = without_warehouse(bucket.configuration(), "10");
    let table = format!(
        "CREATE EXTERNAL TABLE e (v INT, k INT) STORED AS PARQUET PARTITIONED BY (k) LOCATION 's3://{}/t/'",
        bucket.name
    );
    let overwrite = |number: usize| {
        format!("INSERT OVERWRITE e SELECT {number}, v % 4 FROM generate_series(1, {}) AS g(v)", 4 * ROWS)
    };
    let mut session = Session::start(&configuration).unwrap();
    run(&mut session, &table);
    run(&mut session, &overwrite(0));
    let over = std::sync::atomic::AtomicBool::new(false);
    let question = format!(
        "SELECT k, count(*), min(v), max(v) FROM read_parquet('{}/t/**/*.parquet', hive_partitioning = true) GROUP BY k ORDER BY k",
        bucket.server.folder(&bucket.name).display()
    );
    std::thread::scope(|scope| {
        let lister = scope.spawn(|| {
            let mut duck = Duck::start()?;
            let mut looks = 0;
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                let rows = duck.run(&question);
                assert_eq!(rows.len(), 4, "{rows:?}");
                for row in &rows {
                    assert_eq!(row[1].as_deref(), Some("1000"), "{rows:?}");
                    assert_eq!(row[2], row[3], "{rows:?}");
                }
                looks += 1;
            }
            Some(looks)
        });
        let mut reader = Session::start(&configuration).unwrap();
        run(&mut reader, &table);
        let reading = scope.spawn(|| {
            let mut reader = reader;
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                // A read of overwritten files is an error, never a partial answer.
                match reader
                    .run("SELECT count(*) || ' ' || count(DISTINCT v) || ' ' || count(DISTINCT k) FROM e")
                {
                    Ok(Answer::Rows { rows, .. }) => assert_eq!(rows[0][0].as_deref(), Some("4000 1 4")),
                    Ok(other) => panic!("{other:?}"),
                    Err(failure) => assert_eq!(failure.sqlstate, "40001", "{failure}"),
                }
            }
        });
        for number in 1..15 {
            run(&mut session, &overwrite(number));
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(lister.join().unwrap().is_none_or(|looks| looks > 3));
        reading.join().unwrap();
    });
    drop(session);
    // Killed at a random moment.
    let mut number = 100;
    for round in 0..6 {
        let mut dying = Session::start(&configuration).unwrap();
        run(&mut dying, &table);
        let pid = dying.id();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(150 + 130 * round));
            drop(Command::new("kill").args(["-KILL", &pid.to_string()]).status());
        });
        while dying.run(&overwrite(number)).is_ok() {
            number += 1;
        }
        killer.join().unwrap();
        drop(dying);
        let mut session = Session::start(&configuration).unwrap();
        run(&mut session, &table);
        let now = one(
            &mut session,
            "SELECT count(*) || ' ' || count(DISTINCT v) || ' ' || count(DISTINCT k) FROM e",
        );
        assert_eq!(now, "4000 1 4");
        number += 1;
    }
}
