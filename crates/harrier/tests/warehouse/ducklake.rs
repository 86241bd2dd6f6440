//! DuckLake compatibility: DuckDB with its DuckLake extension reads what Harrier writes and vice versa, with
//! equal answers. `scripts/duckdb.sh` installs it; `HARRIER_SKIP_SERVERS=1` skips these tests.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use harrier_testkit::session::{Answer, Configuration, Session};
use serde_json::Value;
use tempfile::TempDir;

mod backups;
mod statistics;

/// One statement in, one answer out, in the format of `harrier sql --format lines`.
const PEER: &str = r#"
import glob, json, os, sys
import duckdb, duckdb_extension_ducklake, duckdb_extension_sqlite_scanner
connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
# What takes long would tell how far it is among the answers.
connection.execute("SET enable_progress_bar = false")
for module in (duckdb_extension_sqlite_scanner, duckdb_extension_ducklake):
    [path] = glob.glob(os.path.join(os.path.dirname(module.__file__), "extensions", "*", "*.duckdb_extension"))
    connection.execute(f"LOAD '{path}'")
connection.execute("SET TimeZone = 'UTC'")
for line in sys.stdin:
    try:
        result = connection.execute(json.loads(line))
        rows = [[None if value is None else str(value) for value in row] for row in result.fetchall()]
        print(json.dumps({"rows": rows}), flush=True)
    except Exception as error:
        print(json.dumps({"error": str(error)}), flush=True)
"#;

struct Duck {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

/// Retries of DuckDB's commits after a conflict: SQLite allows one writer at a time, and DuckDB does not
/// wait.
const LOCKED_MAX: usize = 10;

impl Duck {
    fn start() -> Self {
        let python = harrier_servers::installation("duckdb.sh").expect("DuckDB was there before");
        let mut child = Command::new(python)
            .args(["-c", PEER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdin, stdout }
    }

    fn attach(lake: &Lake) -> Self {
        let mut duck = Self::start();
        duck.run(&format!(
            "ATTACH 'ducklake:sqlite:{}' AS lake (DATA_PATH '{}')",
            lake.catalog(),
            lake.data()
        ));
        duck.run("USE lake");
        duck
    }

    fn run(&mut self, sql: &str) -> Vec<Vec<Option<String>>> {
        for _ in 0..LOCKED_MAX {
            match self.answer(sql) {
                Err(error) if error.contains("database is locked") => {}
                answer => return answer.unwrap_or_else(|error| panic!("DuckDB says {error} of {sql}")),
            }
        }
        panic!("the catalog stays locked: {sql}")
    }

    /// Errors: DuckDB's message.
    fn answer(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, String> {
        writeln!(self.stdin, "{}", Value::from(sql)).unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        if line.is_empty() {
            panic!("DuckDB ended, {:?}, in {sql}", self.child.wait());
        }
        let answer: Value = serde_json::from_str(&line).unwrap();
        let Some(rows) = answer["rows"].as_array() else {
            return Err(answer["error"].to_string());
        };
        let cell = |value: &Value| value.as_str().map(str::to_string);
        Ok(rows.iter().map(|row| row.as_array().unwrap().iter().map(cell).collect()).collect())
    }
}

impl Drop for Duck {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Lake(TempDir);

impl Lake {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn folder(&self) -> PathBuf {
        self.0.path().join("warehouse")
    }

    fn catalog(&self) -> String {
        self.folder().join("catalog.sqlite").display().to_string()
    }

    fn data(&self) -> String {
        format!("{}/data/", self.folder().display())
    }

    fn harrier(&self) -> Session {
        Session::start(&Configuration::embedded().with_warehouse(self.folder())).unwrap()
    }
}

fn is_skipped() -> bool {
    harrier_servers::installation("duckdb.sh").is_none()
}

fn run(session: &mut Session, sql: &str) {
    session.run(sql).unwrap_or_else(|error| panic!("Harrier says {error} of {sql}"));
}

fn rows(session: &mut Session, sql: &str) -> Vec<Vec<Option<String>>> {
    match session.run(sql) {
        Ok(Answer::Rows { rows, .. }) => rows,
        other => panic!("{other:?} of {sql}"),
    }
}

/// Asserts equal answers in equal order.
fn assert_equal_answers(session: &mut Session, duck: &mut Duck, questions: &[&str]) {
    for question in questions {
        let plain = |rows: Vec<Vec<Option<String>>>| -> Vec<Vec<Option<String>>> {
            let cell = |value: Option<String>| value.map(|value| value.to_lowercase());
            rows.into_iter().map(|row| row.into_iter().map(cell).collect()).collect()
        };
        let theirs = plain(duck.run(question));
        let ours = plain(rows(session, question));
        assert_eq!(ours, theirs, "Harrier and DuckDB on {question}");
    }
}

const TYPES: &str = "b BOOLEAN, i1 TINYINT, i2 SMALLINT, i4 INT, i8 BIGINT, f4 REAL, f8 DOUBLE PRECISION, d NUMERIC(20,4), \
                     t TEXT, dt DATE, ts TIMESTAMP, tz TIMESTAMPTZ, tm TIME";

const VALUES: [&str; 3] = [
    "(true, -128, -32768, -2147483648, -9223372036854775808, 1.5, 0.1, '1234567890123456.7891'::NUMERIC(20,4), 'ü''x', '2024-02-29', \
     '2024-02-29 23:59:59.999999', '2024-02-29 23:59:59.999999+00', '23:59:59.999999')",
    "(false, 127, 32767, 2147483647, 9223372036854775807, -1.5, 1e300, -0.0001, '', '1969-12-31', \
     '1969-12-31 00:00:00', '1900-01-01 00:00:00+00', '00:00:00')",
    "(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
];

/// Valid in both dialects.
const QUESTIONS: [&str; 5] = [
    "SELECT count(*), count(b), sum(i1), sum(i2), sum(i4), min(i8), max(i8), min(f4), min(d), max(d) FROM v",
    "SELECT DISTINCT t, CAST(dt AS VARCHAR), replace(CAST(ts AS VARCHAR), 'T', ' '), CAST(tm AS VARCHAR) FROM v ORDER BY 1, 2",
    "SELECT count(*) FROM v WHERE tz = TIMESTAMPTZ '2024-02-29 23:59:59.999999+00'",
    "SELECT count(*) FROM v WHERE ts < TIMESTAMP '2000-01-01 00:00:00' OR f8 > 1e200",
    "SELECT b, count(*) FROM v GROUP BY b ORDER BY b NULLS LAST",
];

#[test]
fn duckdb_reads_tables_of_harrier() {
    if is_skipped() {
        return;
    }
    let lake = Lake::new();
    let mut harrier = lake.harrier();
    run(&mut harrier, &format!("CREATE TABLE v ({TYPES})"));
    for values in VALUES {
        run(&mut harrier, &format!("INSERT INTO v VALUES {values}"));
    }
    run(&mut harrier, "INSERT INTO v SELECT v.* FROM v, generate_series(1, 20)");
    let mut duck = Duck::attach(&lake);
    assert_equal_answers(&mut harrier, &mut duck, &QUESTIONS);

    run(
        &mut harrier,
        "CREATE TABLE p (id INT, kind TEXT, ts TIMESTAMP) PARTITION BY (kind, month(ts), bucket(4, id))",
    );
    run(
        &mut harrier,
        "INSERT INTO p SELECT v, CASE v % 3 WHEN 0 THEN NULL WHEN 1 THEN 'a b/%' ELSE 'ü' END, \
         to_timestamp(1704067200 + v * 32400) FROM generate_series(1, 500) AS g(v)",
    );
    run(&mut harrier, "DELETE FROM p WHERE id IN (3, 5)");
    // Rows of one value, first inlined and then in a file.
    run(&mut harrier, "DELETE FROM p WHERE id % 10 = 7");
    run(&mut harrier, "UPDATE p SET kind = 'new' WHERE id BETWEEN 100 AND 130");
    run(&mut harrier, "ALTER TABLE p ADD COLUMN extra INT DEFAULT 5");
    run(&mut harrier, "ALTER TABLE p RENAME COLUMN id TO number");
    run(&mut harrier, "INSERT INTO p (number, kind) VALUES (1000, 'last')");
    run(&mut harrier, "CREATE SCHEMA s");
    run(&mut harrier, "CREATE TABLE s.gone (a INT)");
    run(&mut harrier, "DROP TABLE s.gone");
    run(
        &mut harrier,
        "CREATE TABLE s.n AS SELECT v AS id, [v, v + 1] AS l FROM generate_series(1, 30) AS g(v)",
    );
    run(&mut harrier, "COMMENT ON TABLE p IS 'divided'");
    run(&mut harrier, "CREATE VIEW w AS SELECT kind, count(*) AS n FROM main.p GROUP BY kind");
    assert_equal_answers(
        &mut harrier,
        &mut duck,
        &[
            "SELECT kind, count(*), sum(number), sum(extra) FROM p GROUP BY kind ORDER BY kind NULLS LAST",
            "SELECT count(*), min(number) FROM p WHERE kind = 'ü' AND ts >= TIMESTAMP '2024-03-01 00:00:00'",
            "SELECT number FROM p WHERE number = 77 OR number = 100 OR number = 3 OR number = 4 ORDER BY 1",
            "SELECT count(*), sum(id), sum(l[2]) FROM s.n",
            "SELECT kind, n FROM w ORDER BY kind NULLS LAST",
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 's'",
        ],
    );
    let comment =
        duck.run("SELECT comment FROM duckdb_tables() WHERE table_name = 'p' AND database_name = 'lake'");
    assert_eq!(comment, [[Some("divided".to_string())]]);
    // Buckets equal DuckDB's: rows that DuckDB adds to a bucket are found by the pruning of both.
    duck.run("INSERT INTO p SELECT range + 2000, 'duck', TIMESTAMP '2024-06-01 00:00:00', 1 FROM range(200)");
    assert_equal_answers(
        &mut harrier,
        &mut duck,
        &[
            "SELECT number, kind FROM p WHERE number = 2077",
            "SELECT count(*), sum(number) FROM p WHERE kind = 'duck'",
        ],
    );
}

#[test]
fn harrier_reads_tables_of_duckdb() {
    if is_skipped() {
        return;
    }
    let lake = Lake::new();
    std::fs::create_dir_all(lake.data()).unwrap();
    let mut duck = Duck::attach(&lake);
    duck.run(&format!("CREATE TABLE v ({TYPES})"));
    for values in VALUES {
        duck.run(&format!("INSERT INTO v VALUES {values}"));
    }
    let mut harrier = lake.harrier();
    // From the catalog alone, then from files too.
    assert_equal_answers(&mut harrier, &mut duck, &QUESTIONS);
    duck.run("INSERT INTO v SELECT v.* FROM v, range(20)");
    assert_equal_answers(&mut harrier, &mut duck, &QUESTIONS);
    duck.run("CALL ducklake_flush_inlined_data('lake')");
    assert_equal_answers(&mut harrier, &mut duck, &QUESTIONS);

    duck.run("CREATE TABLE p (id INTEGER, kind VARCHAR, ts TIMESTAMP)");
    duck.run("ALTER TABLE p SET PARTITIONED BY (kind, year(ts), bucket(4, id))");
    duck.run(
        "INSERT INTO p SELECT range, CASE WHEN range % 2 = 0 THEN 'ev en/' END, \
         TIMESTAMP '2020-01-01 00:00:00' + INTERVAL (range) DAY FROM range(800)",
    );
    duck.run("DELETE FROM p WHERE id < 3");
    duck.run("DELETE FROM p WHERE id BETWEEN 100 AND 400");
    duck.run("UPDATE p SET kind = 'x' WHERE id = 20");
    duck.run("ALTER TABLE p ADD COLUMN c INTEGER DEFAULT 5");
    duck.run("INSERT INTO p VALUES (2000, 'n', NULL, 6)");
    duck.run("ALTER TABLE p RENAME id TO number");
    duck.run("ALTER TABLE p RESET PARTITIONED BY");
    duck.run("ALTER TABLE p DROP COLUMN ts");
    duck.run("CREATE TABLE big AS SELECT range AS a, 'v' || range AS b, {'x': range, 'y': [range]} AS s FROM range(10000)");
    duck.run("DELETE FROM big WHERE a % 100 = 0");
    duck.run("CREATE VIEW w AS SELECT kind, count(*) AS n FROM p GROUP BY kind");
    duck.run("CREATE VIEW aliases (\"Fir st\", \"q\"\"\") AS SELECT kind, count(*), max(c) AS last FROM p GROUP BY kind");
    let questions = [
        "SELECT kind, count(*), sum(number), sum(c) FROM p GROUP BY kind ORDER BY kind NULLS LAST",
        "SELECT number FROM p WHERE number IN (1, 50, 99, 100, 401, 2000) ORDER BY 1",
        "SELECT count(*), sum(a), min(b), sum(s['x']) FROM big",
        "SELECT count(*) FROM big WHERE a BETWEEN 95 AND 205",
        "SELECT kind, n FROM w ORDER BY kind NULLS LAST",
        "SELECT \"Fir st\", \"q\"\"\", last FROM aliases ORDER BY 1 NULLS LAST",
    ];
    assert_equal_answers(&mut harrier, &mut duck, &questions);
    // Files rewritten and rows deleted by DuckDB.
    duck.run("CALL ducklake_flush_inlined_data('lake')");
    duck.run("CALL ducklake_merge_adjacent_files('lake')");
    assert_equal_answers(&mut harrier, &mut duck, &questions);
    // Each continues where the other has stopped.
    run(&mut harrier, "DELETE FROM big WHERE a % 100 = 1");
    run(&mut harrier, "DELETE FROM big WHERE a = 555");
    run(&mut harrier, "UPDATE p SET c = c + 1 WHERE number < 50");
    assert_equal_answers(&mut harrier, &mut duck, &questions);
    duck.run("DELETE FROM big WHERE a % 100 = 2");
    duck.run("UPDATE big SET b = 'duck' WHERE a < 50");
    duck.run("UPDATE p SET c = c * 2 WHERE number > 700");
    assert_equal_answers(&mut harrier, &mut duck, &questions);
    run(&mut harrier, "INSERT INTO big SELECT a + 100000, b, s FROM big WHERE a < 1000");
    run(&mut harrier, "TRUNCATE p");
    run(&mut harrier, "INSERT INTO p SELECT v, 'again', v FROM generate_series(1, 100) AS g(v)");
    assert_equal_answers(&mut harrier, &mut duck, &questions);
}

/// DuckDB does not know ranges, and reads and writes range-partitioned tables nevertheless.
#[test]
fn range_partitioned_tables_written_by_both() {
    if is_skipped() {
        return;
    }
    let lake = Lake::new();
    let mut harrier = lake.harrier();
    run(
        &mut harrier,
        "CREATE TABLE r (id INT, day DATE) DISTRIBUTED BY (id) WITH (buckets = 2) PARTITION BY RANGE (day) \
         (START ('2024-01-01') END ('2025-01-01') EVERY (INTERVAL '1 month'))",
    );
    run(
        &mut harrier,
        "INSERT INTO r SELECT v, date '2024-01-01' + v::int FROM generate_series(0, 365) AS g(v)",
    );
    let mut duck = Duck::attach(&lake);
    let questions = [
        "SELECT count(*), sum(id) FROM r",
        "SELECT count(*), sum(id) FROM r WHERE day >= DATE '2024-03-01' AND day < DATE '2024-04-01'",
        "SELECT extract(month FROM day), count(*), max(id) FROM r GROUP BY 1 ORDER BY 1 NULLS LAST",
        "SELECT id FROM r WHERE day = DATE '2023-07-01' OR day IS NULL OR id = 17 ORDER BY id",
    ];
    assert_equal_answers(&mut harrier, &mut duck, &questions);
    // Few rows for the catalog, many for files, some in no range.
    duck.run("INSERT INTO r VALUES (1000, DATE '2024-03-03'), (1001, DATE '2023-07-01')");
    duck.run("INSERT INTO r SELECT range + 2000, DATE '2024-02-01' + INTERVAL (range) DAY FROM range(60)");
    duck.run("INSERT INTO r VALUES (3000, NULL)");
    duck.run("DELETE FROM r WHERE id BETWEEN 30 AND 33");
    duck.run("UPDATE r SET day = DATE '2024-12-31' WHERE id = 0");
    assert_equal_answers(&mut harrier, &mut duck, &questions);
    let overwrite = "INSERT OVERWRITE r VALUES (5, DATE '2024-05-05')";
    let failure = harrier.run(overwrite).expect_err("files of DuckDB are in no range");
    assert_eq!(failure.sqlstate, "0A000");
    // Rows of a range are deleted wherever they are.
    run(&mut harrier, "ALTER TABLE r DROP PARTITION FOR (date '2024-02-15')");
    run(&mut harrier, "ALTER TABLE r TRUNCATE PARTITION FOR (date '2024-12-31')");
    assert_equal_answers(&mut harrier, &mut duck, &questions);
    assert_eq!(
        rows(&mut harrier, "SELECT count(*) FROM r WHERE day BETWEEN '2024-02-01' AND '2024-02-29'"),
        [[Some("0".into())]]
    );
    run(&mut harrier, "ALTER TABLE r ADD PARTITION START ('2024-02-01') END ('2024-03-01')");
    duck.run("INSERT INTO r SELECT range + 4000, DATE '2024-02-01' + INTERVAL (range) DAY FROM range(60)");
    // Rows in no range stay when they are rewritten.
    run(&mut harrier, "OPTIMIZE r");
    assert_equal_answers(&mut harrier, &mut duck, &questions);
    duck.run("DELETE FROM r WHERE day < DATE '2024-01-01' OR day IS NULL");
    run(&mut harrier, "OPTIMIZE r");
    assert_equal_answers(&mut harrier, &mut duck, &questions);
    let range_of_files =
        "SELECT sum(rows) = (SELECT count(*) FROM r) FROM sys.table_partitions WHERE table_name = 'r'";
    assert_eq!(rows(&mut harrier, range_of_files), [[Some("true".into())]]);
    run(&mut harrier, overwrite);
    // Files merged by DuckDB span several ranges, and are split again.
    duck.run("CALL ducklake_merge_adjacent_files('lake')");
    assert_equal_answers(&mut harrier, &mut duck, &questions);
    run(&mut harrier, "OPTIMIZE r");
    assert_eq!(rows(&mut harrier, range_of_files), [[Some("true".into())]]);
    assert_equal_answers(&mut harrier, &mut duck, &questions);
}

/// A table with an unsupported column is refused with the column's name, and listed; other tables work.
#[test]
fn unsupported_columns_are_named() {
    if is_skipped() {
        return;
    }
    let lake = Lake::new();
    let mut harrier = lake.harrier();
    run(&mut harrier, "CREATE TABLE other (id INT)");
    let mut duck = Duck::attach(&lake);
    duck.run("CREATE TABLE z (id INT, odd TIMETZ)");
    let failure = harrier.run("SELECT id FROM z").unwrap_err();
    assert_eq!(failure.sqlstate, "0A000", "{failure:?}");
    let message = "column \"odd\" has type TIMETZ, which cannot be read";
    assert!(failure.message.contains(message), "{failure:?}");
    run(&mut harrier, "INSERT INTO other VALUES (1)");
    assert_equal_answers(&mut harrier, &mut duck, &["SELECT count(*), sum(id) FROM other"]);
    let listed = rows(
        &mut harrier,
        "SELECT table_name, data_type FROM sys.columns WHERE column_name = 'odd' ORDER BY 1",
    );
    let names: Vec<&str> = listed.iter().filter_map(|row| row[0].as_deref()).collect();
    assert_eq!(names, ["z"]);
}

/// In the catalog, in files of DuckDB, and in Harrier's files that they are rewritten into.
#[test]
fn infinity_and_far_years() {
    if is_skipped() {
        return;
    }
    let lake = Lake::new();
    let mut harrier = lake.harrier();
    run(&mut harrier, "CREATE TABLE other (id INT)");
    let mut duck = Duck::attach(&lake);
    let far = "(1, DATE 'infinity', TIMESTAMP 'infinity', TIMESTAMPTZ 'infinity'), \
               (2, DATE '-infinity', TIMESTAMP '-infinity', TIMESTAMPTZ '-infinity'), \
               (3, DATE '12024-01-15', TIMESTAMP '12024-01-15 10:00:00.5', TIMESTAMPTZ '12024-01-15 10:00:00+00'), \
               (4, DATE '0044-03-15 (BC)', TIMESTAMP '0044-03-15 (BC) 10:00:00', TIMESTAMPTZ '0044-03-15 (BC) 10:00:00+00'), \
               (5, DATE '2024-01-15', TIMESTAMP '2024-01-15', TIMESTAMPTZ '2024-01-15 00:00:00+00'), (6, NULL, NULL, NULL)";
    for (table, kept) in [("in_catalog", 100), ("in_files", 0)] {
        duck.run(&format!("CALL lake.set_option('data_inlining_row_limit', {kept})"));
        duck.run(&format!("CREATE TABLE {table} (v INT, d DATE, t TIMESTAMP, z TIMESTAMPTZ)"));
        duck.run(&format!("INSERT INTO {table} VALUES {far}"));
        for column in ["d", "t", "z"] {
            assert_equal_answers(
                &mut harrier,
                &mut duck,
                &[
                    &format!("SELECT v FROM {table} ORDER BY {column} NULLS LAST, v"),
                    &format!("SELECT count(*), count({column}) FROM {table}"),
                    &format!("SELECT v FROM {table} WHERE {column} > DATE '9000-01-01' ORDER BY v"),
                    &format!("SELECT v FROM {table} WHERE {column} < DATE '0100-01-01' ORDER BY v"),
                    &format!("SELECT v FROM {table} WHERE {column} = DATE '2024-01-15'"),
                ],
            );
        }
        let shown_texts = rows(&mut harrier, &format!("SELECT t::text FROM {table} WHERE v <> 4 ORDER BY v"));
        let shown_texts: Vec<_> = shown_texts.iter().map(|row| row[0].as_deref()).collect();
        let expected = ["infinity", "-infinity", "12024-01-15 10:00:00.5", "2024-01-15 00:00:00"];
        assert_eq!(shown_texts, expected.map(Some).into_iter().chain([None]).collect::<Vec<_>>());
        let all = format!(
            "SELECT v, CAST(d AS VARCHAR), CAST(t AS VARCHAR), CAST(z AS VARCHAR) FROM {table} ORDER BY v"
        );
        let before = duck.run(&all);
        for statement in
            [&format!("UPDATE {table} SET v = v + 10 WHERE v <> 5"), &format!("OPTIMIZE TABLE {table}")]
        {
            run(&mut harrier, statement);
        }
        let again: Vec<_> = before
            .iter()
            .map(|row| {
                let v = row[0].as_deref().map(|v| if v == "5" { v.to_string() } else { format!("1{v}") });
                [vec![v], row[1..].to_vec()].concat()
            })
            .collect();
        let mut after = duck.run(&all);
        after.sort_by_key(|row| row[0].as_deref().map(|v| v.trim_start_matches('1').to_string()));
        assert_eq!(after, again, "{table}");
        assert_equal_answers(
            &mut harrier,
            &mut duck,
            &[
                &format!("SELECT v FROM {table} WHERE t > TIMESTAMP '9000-01-01' ORDER BY v"),
                &format!("SELECT v FROM {table} WHERE d < DATE '0100-01-01' ORDER BY v"),
                &format!(
                    "SELECT v FROM {table} WHERE t = TIMESTAMP 'infinity' OR d = DATE '-infinity' ORDER BY v"
                ),
            ],
        );
    }
    run(
        &mut harrier,
        "CREATE TABLE forever (v INT, d DATE, t TIMESTAMP, z TIMESTAMPTZ, e DATE DEFAULT DATE 'infinity', f TIMESTAMPTZ DEFAULT TIMESTAMPTZ 'infinity')",
    );
    run(
        &mut harrier,
        "INSERT INTO forever (v, d, t, z) VALUES (1, DATE 'infinity', TIMESTAMP '-infinity', TIMESTAMPTZ 'infinity'), (2, DATE '2024-01-01', 'infinity'::timestamp, NULL)",
    );
    run(
        &mut harrier,
        "INSERT INTO forever (v, d, t, z) SELECT v + 2, d, t, z FROM forever, generate_series(1, 20)",
    );
    let question = "SELECT count(*), count(*) FILTER (WHERE d = DATE 'infinity'), min(d) < DATE '2024-02-01', min(CAST(t AS VARCHAR)), \
                    max(CAST(t AS VARCHAR)), count(*) FILTER (WHERE z = TIMESTAMPTZ 'infinity'), count(*) FILTER (WHERE e = DATE 'infinity' AND f = TIMESTAMPTZ 'infinity') FROM forever";
    assert_equal_answers(
        &mut harrier,
        &mut duck,
        &[question, "SELECT v FROM forever WHERE t = TIMESTAMP 'infinity' ORDER BY v LIMIT 2"],
    );
}

/// All fields of an interval in a column `v`, in both dialects.
const PARTS: &str = "extract(year FROM v), extract(month FROM v), extract(day FROM v), extract(hour FROM v), \
                     replace(CAST(TIMESTAMP '2000-01-31 00:00:00' + v AS VARCHAR), 'T', ' ')";

/// In the catalog DuckDB stores any interval; files of both have non-negative whole milliseconds.
#[test]
fn intervals_of_both() {
    if is_skipped() {
        return;
    }
    let lake = Lake::new();
    let mut harrier = lake.harrier();
    run(&mut harrier, "CREATE TABLE other (id INT)");
    let mut duck = Duck::attach(&lake);
    duck.run("CREATE TABLE i (id INT, v INTERVAL)");
    duck.run(
        "INSERT INTO i VALUES (1, INTERVAL '1 year 2 months 3 days 04:05:06.789012'), (2, NULL), (3, INTERVAL '-1 day'), \
         (4, INTERVAL '0 days'), (5, INTERVAL '-14 months 3 days -04:05:06.789012'), (6, INTERVAL '100 hours')",
    );
    let all = format!("SELECT id, {PARTS} FROM i ORDER BY id");
    assert_equal_answers(&mut harrier, &mut duck, &[all.as_str()]);
    let refusals =
        ["OPTIMIZE i", "INSERT INTO i VALUES (7, -INTERVAL '1 day')", "INSERT INTO i SELECT * FROM i"];
    for sql in refusals {
        assert_eq!(harrier.run(sql).unwrap_err().sqlstate, "22008", "{sql}");
    }

    run(&mut harrier, "CREATE TABLE f (id INT, v INTERVAL)");
    let all = format!("SELECT id, {PARTS} FROM f ORDER BY id");
    let questions = [
        all.as_str(),
        "SELECT count(*), count(v) FROM f",
        "SELECT id FROM f WHERE v IS NULL ORDER BY id",
        "SELECT id FROM f WHERE v = INTERVAL '5 months 5 days 5 hours' ORDER BY id",
        "SELECT id FROM f WHERE v >= INTERVAL '80 months 80 days 80 hours' ORDER BY id",
    ];
    // Both write into the catalog, from which DuckDB flushes them into a file, and then into files.
    duck.run("INSERT INTO f VALUES (1, INTERVAL '1 year 2 months 3 days 04:05:06.789'), (2, NULL), (3, INTERVAL '0 days')");
    run(&mut harrier, "INSERT INTO f VALUES (4, INTERVAL '1 month 2 days 3.456789 seconds'), (5, NULL)");
    assert_equal_answers(&mut harrier, &mut duck, &questions);
    duck.run("CALL ducklake_flush_inlined_data('lake', table_name => 'f')");
    assert_equal_answers(&mut harrier, &mut duck, &questions);
    for (from, write) in [(100, false), (300, true)] {
        let sql = |range: &str| {
            format!(
                "INSERT INTO f SELECT n + {from}, CASE WHEN n % 7 > 0 THEN n * INTERVAL '1 month 1 day 1 hour' END FROM {range}"
            )
        };
        match write {
            true => run(&mut harrier, &sql("generate_series(0, 99) AS g(n)")),
            false => drop(duck.run(&sql("range(100) AS g(n)"))),
        }
        assert_equal_answers(&mut harrier, &mut duck, &questions);
    }
    run(&mut harrier, "UPDATE f SET v = v + INTERVAL '1 day 1 millisecond' WHERE id % 10 = 3");
    run(&mut harrier, "DELETE FROM f WHERE id % 10 = 4");
    duck.run("UPDATE f SET v = INTERVAL '5 months 5 days 5 hours' WHERE id % 10 = 5");
    duck.run("DELETE FROM f WHERE id % 10 = 6");
    assert_equal_answers(&mut harrier, &mut duck, &questions);
    run(&mut harrier, "OPTIMIZE f");
    assert_equal_answers(&mut harrier, &mut duck, &questions);
    duck.run("CALL ducklake_merge_adjacent_files('lake')");
    assert_equal_answers(&mut harrier, &mut duck, &questions);
    let updated =
        "SELECT count(*) = count(v), max(v) = INTERVAL '5 months 5 days 5 hours' FROM f WHERE id % 10 = 5";
    assert_eq!(rows(&mut harrier, updated), [[Some("true".into()), Some("true".into())]]);

    // Column defaults of either.
    duck.run("ALTER TABLE f ADD COLUMN a INTERVAL DEFAULT '2 days 03:00:00'");
    run(&mut harrier, "ALTER TABLE f ADD COLUMN b INTERVAL DEFAULT INTERVAL '1 month 4 hours'");
    let added = "SELECT id, extract(day FROM a), extract(hour FROM a), extract(month FROM b), extract(hour FROM b) \
                 FROM f ORDER BY id";
    assert_equal_answers(&mut harrier, &mut duck, &[added]);
    duck.run("INSERT INTO f (id) VALUES (1000)");
    run(&mut harrier, "INSERT INTO f (id) VALUES (1001)");
    assert_equal_answers(&mut harrier, &mut duck, &[added]);

    // In lists and structs of both.
    let nested = |make: &str, range: &str| {
        format!(
            "SELECT n AS id, [INTERVAL '1 month', n * INTERVAL '1 day', NULL] AS l, {make} AS s FROM {range} AS g(n)"
        )
    };
    let theirs = nested("{'a': n * INTERVAL '1 hour', 'b': n}", "range(1, 31)");
    let ours = nested("named_struct('a', n * INTERVAL '1 hour', 'b', n)", "generate_series(1, 30)");
    duck.run(&format!("CREATE TABLE theirs AS {theirs}"));
    run(&mut harrier, &format!("CREATE TABLE ours AS {ours}"));
    for table in ["theirs", "ours"] {
        let question = format!(
            "SELECT count(*), sum(extract(day FROM l[2])), sum(extract(month FROM l[1])), \
             sum(extract(hour FROM s['a'])), sum(s['b']) FROM {table}"
        );
        assert_equal_answers(&mut harrier, &mut duck, &[question.as_str()]);
    }

    // DuckDB partitions by intervals, and its equality differs.
    for (table, key) in [("p", "v"), ("q", "bucket(4, v)")] {
        duck.run(&format!("CREATE TABLE {table} (id INT, v INTERVAL)"));
        duck.run(&format!("ALTER TABLE {table} SET PARTITIONED BY ({key})"));
        duck.run(&format!("INSERT INTO {table} SELECT range, (range % 3) * INTERVAL '1 day' FROM range(30)"));
        let days = format!("SELECT extract(day FROM v), count(*) FROM {table} GROUP BY 1 ORDER BY 1");
        let some = format!("SELECT count(*) FROM {table} WHERE v = INTERVAL '2 days'");
        assert_equal_answers(&mut harrier, &mut duck, &[days.as_str(), some.as_str()]);
        let failure = harrier.run(&format!("INSERT INTO {table} SELECT id, v FROM f")).unwrap_err();
        assert_eq!(failure.sqlstate, "0A000", "{failure:?}");
    }
}

/// 128-bit integers become DECIMAL(38): exact in the catalog and in Harrier's files; DuckDB's files hold
/// DOUBLEs.
#[test]
fn declared_lengths_and_uuids() {
    if is_skipped() {
        return;
    }
    let lake = Lake::new();
    let mut harrier = lake.harrier();
    run(&mut harrier, "CREATE TABLE u (n INT, id UUID, v VARCHAR(3), c CHAR(3))");
    let mut duck = Duck::attach(&lake);
    let questions = [
        "SELECT n, CAST(id AS VARCHAR), v, c || '|' FROM u ORDER BY n",
        "SELECT n FROM u WHERE id = '40000000-0000-4000-8000-000000000040' ORDER BY n",
        "SELECT n FROM u WHERE id > '50000000-0000-4000-8000-000000000000' ORDER BY n",
        "SELECT n FROM u WHERE id IN ('00000000-0000-4000-8000-000000000001', '00000000-0000-4000-8000-000000000002') ORDER BY n",
        "SELECT n FROM u WHERE id IS NULL ORDER BY n",
        "SELECT count(*), count(id), count(DISTINCT id) FROM u",
        "SELECT a.n, b.n FROM u AS a JOIN u AS b ON a.id = b.id AND a.n < b.n ORDER BY 1, 2",
    ];
    // Both write into the catalog, from which DuckDB flushes them into a file, and then into files.
    duck.run("INSERT INTO u VALUES (1, '00000000-0000-4000-8000-000000000001', 'abc', 'ab'), (2, NULL, NULL, NULL)");
    run(
        &mut harrier,
        "INSERT INTO u VALUES (3, '{00000000-0000-4000-8000-000000000002}', 'ab   ', 'ab'), (4, 'FFFFFFFF-FFFF-4FFF-8FFF-FFFFFFFFFFFF', 'x', 'x')",
    );
    assert_equal_answers(&mut harrier, &mut duck, &questions);
    duck.run("CALL ducklake_flush_inlined_data('lake', table_name => 'u')");
    assert_equal_answers(&mut harrier, &mut duck, &questions);
    for (from, write) in [(100, false), (200, true), (300, false), (400, true)] {
        let sql = |range: &str| {
            format!(
                "INSERT INTO u SELECT {from} + n, CAST(n || '0000000-0000-4000-8000-0000000000' || n || '0' AS UUID), 'v' || n, 'c' FROM {range}"
            )
        };
        match write {
            true => run(&mut harrier, &sql("generate_series(1, 9) AS g(n)")),
            false => drop(duck.run(&sql("range(1, 10) AS g(n)"))),
        }
        assert_equal_answers(&mut harrier, &mut duck, &questions);
    }
    run(&mut harrier, "UPDATE u SET id = '40000000-0000-4000-8000-000000000040' WHERE n = 1");
    duck.run("UPDATE u SET id = '40000000-0000-4000-8000-000000000040' WHERE n = 2");
    run(&mut harrier, "DELETE FROM u WHERE id = '50000000-0000-4000-8000-000000000050' AND n < 200");
    assert_equal_answers(&mut harrier, &mut duck, &questions);
    run(&mut harrier, "OPTIMIZE u");
    assert_equal_answers(&mut harrier, &mut duck, &questions);
    duck.run("CALL ducklake_merge_adjacent_files('lake')");
    assert_equal_answers(&mut harrier, &mut duck, &questions);

    // DuckDB ignores declared lengths, and Harrier reads what it writes.
    duck.run("INSERT INTO u VALUES (500, NULL, 'longer', 'longer')");
    assert_equal_answers(&mut harrier, &mut duck, &questions[..1]);
    run(&mut harrier, "UPDATE u SET id = NULL WHERE n = 500");
    let error = harrier.run("UPDATE u SET v = v WHERE n IN (500, 501)").err().map(|error| error.sqlstate);
    assert_eq!(error, None);
    assert_eq!(harrier.run("UPDATE u SET v = v || '' WHERE n = 500").unwrap_err().sqlstate, "22001");
    // A column whose type DuckDB has changed loses its declared length.
    duck.run("ALTER TABLE u RENAME COLUMN v TO w");
    assert_eq!(harrier.run("INSERT INTO u (w) VALUES ('longer')").unwrap_err().sqlstate, "22001");
    // Tables of DuckDB with its bounds.
    duck.run("CREATE TABLE d (id UUID, list UUID[])");
    duck.run("INSERT INTO d SELECT uuid(), [uuid()] FROM range(1000)");
    assert_equal_answers(
        &mut harrier,
        &mut duck,
        &["SELECT CAST(id AS VARCHAR) FROM d ORDER BY id", "SELECT min(id) < max(id) FROM d"],
    );
    let all = rows(
        &mut harrier,
        "SELECT count(*) FROM d AS a JOIN d AS b ON a.id = b.id WHERE a.list[1] IS NOT NULL",
    );
    assert_eq!(all, [[Some("1000".to_string())]]);
}

#[test]
fn hugeint_as_decimal() {
    if is_skipped() {
        return;
    }
    let lake = Lake::new();
    let mut harrier = lake.harrier();
    run(&mut harrier, "CREATE TABLE other (id INT)");
    let mut duck = Duck::attach(&lake);
    for (table, kind) in [("h", "HUGEINT"), ("u", "UHUGEINT")] {
        duck.run(&format!("CREATE TABLE {table} (id INT, n {kind})"));
        duck.run(&format!(
            "INSERT INTO {table} VALUES (1, 99999999999999999999999999999999999999), (2, 5), (3, NULL), (4, 9007199254740993)"
        ));
        let questions = [
            format!("SELECT id, n FROM {table} ORDER BY id"),
            format!("SELECT id FROM {table} WHERE n = 5 OR n > 9007199254740990 ORDER BY id"),
            format!("SELECT id FROM {table} WHERE n IS NULL"),
            format!("SELECT count(n), min(n), max(n) FROM {table}"),
        ];
        let questions: Vec<&str> = questions.iter().map(String::as_str).collect();
        assert_equal_answers(&mut harrier, &mut duck, &questions);
        duck.run("CALL ducklake_flush_inlined_data('lake')");
        assert_equal_answers(&mut harrier, &mut duck, &questions);
        duck.run(&format!(
            "INSERT INTO {table} SELECT range + 1000, range::HUGEINT * 1000000000000000000 FROM range(100)"
        ));
        assert_equal_answers(&mut harrier, &mut duck, &questions);
    }
    // Rows of Harrier, inlined and in a file, also negative.
    run(
        &mut harrier,
        "INSERT INTO h VALUES (10, CAST('-12345678901234567890123456789012345678' AS DECIMAL(38,0)))",
    );
    run(
        &mut harrier,
        "INSERT INTO h SELECT v, CAST('12345678901234567890123456789012345000' AS DECIMAL(38,0)) + v \
         FROM generate_series(2000, 2099) AS g(v)",
    );
    let questions = [
        "SELECT id, n FROM h WHERE id >= 10 ORDER BY id",
        "SELECT count(*), min(n), max(n) FROM h",
        "SELECT count(*) FROM h WHERE n < 0",
    ];
    assert_equal_answers(&mut harrier, &mut duck, &questions);
    run(&mut harrier, "DELETE FROM h WHERE n < 0 OR id = 2050");
    run(&mut harrier, "OPTIMIZE h");
    assert_equal_answers(&mut harrier, &mut duck, &questions);
    // Harrier's type has more digits than the unsigned type needs, and fewer than its maximum.
    for sql in ["INSERT INTO u VALUES (10, 7)", "UPDATE u SET n = 8", "INSERT INTO u SELECT id, n FROM h"] {
        assert_eq!(harrier.run(sql).unwrap_err().sqlstate, "0A000", "{sql}");
    }
    duck.run("INSERT INTO u VALUES (20, 340282366920938463463374607431768211455)");
    assert_eq!(harrier.run("SELECT n FROM u").unwrap_err().sqlstate, "22003");
    assert_eq!(rows(&mut harrier, "SELECT count(*) FROM u"), [[Some("105".into())]]);
    // DuckDB hashes them into other buckets.
    duck.run("CREATE TABLE b (n HUGEINT)");
    duck.run("ALTER TABLE b SET PARTITIONED BY (bucket(4, n))");
    duck.run("INSERT INTO b SELECT range FROM range(100)");
    assert_equal_answers(
        &mut harrier,
        &mut duck,
        &["SELECT n FROM b WHERE n = 77", "SELECT count(*) FROM b WHERE n IN (1, 2, 3)"],
    );
    assert_eq!(harrier.run("INSERT INTO b VALUES (1)").unwrap_err().sqlstate, "0A000");
}

/// A type, its value of `n`, and a literal in both dialects with `{}` for the text, if there is one.
const BUCKETED: [(&str, &str, Option<&str>); 21] = [
    ("DECIMAL(4,2)", "(n - 20) * 0.25", Some("'{}'::DECIMAL(4,2)")),
    ("DECIMAL(9,2)", "(n - 20) * 0.25", Some("'{}'::DECIMAL(9,2)")),
    ("DECIMAL(10,2)", "(n - 20) * 0.25", Some("'{}'::DECIMAL(10,2)")),
    ("DECIMAL(18,4)", "(n - 20) * 0.25", Some("'{}'::DECIMAL(18,4)")),
    ("TINYINT", "n - 20", Some("{}")),
    ("SMALLINT", "n - 20", Some("{}")),
    ("INTEGER", "n - 20", Some("{}")),
    ("BIGINT", "n - 20", Some("{}")),
    ("FLOAT", "(n - 20) * 0.25", Some("'{}'::REAL")),
    ("DOUBLE", "(n - 20) * 0.1", Some("'{}'::DOUBLE PRECISION")),
    ("VARCHAR", "'é' || n", Some("'{}'")),
    ("BLOB", "encode('b' || n)", Some("'{}'::BYTEA")),
    ("JSON", "'{\"a\":' || n || '}'", Some("'{}'")),
    ("BOOLEAN", "n % 2 = 0", Some("{}")),
    ("DATE", "DATE '1970-01-01' + (n - 20)::INTEGER", Some("DATE '{}'")),
    ("TIME", "TIME '00:00:00.5' + n * INTERVAL 1 MINUTE", Some("TIME '{}'")),
    ("TIMESTAMP", HOURS, Some("TIMESTAMP '{}'")),
    ("TIMESTAMPTZ", HOURS, Some("TIMESTAMPTZ '{}'")),
    ("TIMESTAMP_S", HOURS, Some("TIMESTAMP '{}'")),
    ("TIMESTAMP_MS", HOURS, Some("TIMESTAMP '{}'")),
    ("TIMESTAMP_NS", HOURS, Some("TIMESTAMP '{}'")),
];

const HOURS: &str = "TIMESTAMP '1970-01-01 00:00:01' + (n - 20) * INTERVAL 1 HOUR";

/// Both look up a row in the same bucket, whoever wrote it.
#[test]
fn bucket_hashes_equal_those_of_duckdb() {
    if is_skipped() {
        return;
    }
    let lake = Lake::new();
    let mut harrier = lake.harrier();
    run(&mut harrier, "CREATE TABLE other (id INT)");
    // Neither side of a join is collected.
    run(&mut harrier, "SET datafusion.optimizer.hash_join_single_partition_threshold = 0");
    run(&mut harrier, "SET datafusion.optimizer.hash_join_single_partition_threshold_rows = 0");
    let mut duck = Duck::attach(&lake);
    for (at, (kind, value, literal)) in BUCKETED.iter().enumerate() {
        let (values, theirs, ours) = (format!("values{at}"), format!("theirs{at}"), format!("ours{at}"));
        duck.run(&format!(
            "CREATE TABLE {values} AS SELECT CASE WHEN n <> 7 THEN ({value})::{kind} END AS k, n AS v FROM range(40) AS g(n)"
        ));
        let some = format!("SELECT k, v FROM {values} WHERE v < 30");
        let others = format!("SELECT k, v FROM {values} WHERE v >= 10");
        duck.run(&format!("CREATE TABLE {theirs} (k {kind}, v BIGINT)"));
        duck.run(&format!("ALTER TABLE {theirs} SET PARTITIONED BY (bucket(8, k))"));
        duck.run(&format!("INSERT INTO {theirs} {some}"));
        run(&mut harrier, &format!("CREATE TABLE {ours} PARTITION BY (bucket(8, k)) AS {some}"));
        run(&mut harrier, &format!("INSERT INTO {theirs} {others}"));
        duck.run(&format!("INSERT INTO {ours} {others}"));

        let texts = format!("SELECT DISTINCT k::VARCHAR FROM {values} WHERE v % 3 = 2 AND k IS NOT NULL");
        let texts: Vec<String> = duck.run(&texts).into_iter().flatten().flatten().collect();
        // In PostgreSQL's SQL, json values are compared as texts only.
        let key = |name: &str| if *kind == "JSON" { format!("{name}::VARCHAR") } else { name.to_string() };
        let (k, join_condition) = (key("k"), format!("{} = {}", key("a.k"), key("b.k")));
        let mut questions = vec![
            format!(
                "SELECT count(*), sum(a.v), sum(b.v) FROM {theirs} AS a JOIN {ours} AS b ON {join_condition}"
            ),
            format!(
                "SELECT count(*), sum(a.v), sum(b.v) FROM {ours} AS a JOIN {values} AS b ON {join_condition}"
            ),
        ];
        for table in [&theirs, &ours] {
            questions.push(format!(
                "SELECT count(*), sum(n), max(n) FROM (SELECT {k}, count(*) AS n FROM {table} GROUP BY {k}) AS g"
            ));
            questions.push(format!("SELECT count(*) FROM {table} WHERE k IS NULL"));
            if let Some(literal) = literal {
                let actual = texts.iter().map(|text| {
                    let key = literal.replace("{}", text);
                    format!("SELECT count(*) AS n, sum(v) AS s FROM {table} WHERE {k} = {key}")
                });
                let actual = actual.collect::<Vec<_>>().join(" UNION ALL ");
                questions.push(format!("SELECT n, s FROM ({actual}) AS f ORDER BY s, n"));
                questions.push(format!("SELECT min(n) FROM ({actual}) AS f"));
            }
        }
        let questions: Vec<&str> = questions.iter().map(String::as_str).collect();
        assert_equal_answers(&mut harrier, &mut duck, &questions);
        if literal.is_some() {
            let actual = rows(&mut harrier, questions[questions.len() - 1]);
            assert!(actual[0][0].as_deref() >= Some("1"), "{kind}: {actual:?}");
        }
    }

    // If DuckDB hashes the text of values, equal values may be in different buckets.
    for kind in ["UTINYINT", "UINTEGER", "UBIGINT"] {
        let table = format!("unsure_{}", kind.to_lowercase());
        duck.run(&format!("CREATE TABLE {table} (k {kind}, v BIGINT)"));
        duck.run(&format!("ALTER TABLE {table} SET PARTITIONED BY (bucket(8, k))"));
        duck.run(&format!("INSERT INTO {table} SELECT n, n FROM range(40) AS g(n) WHERE n >= 10"));
        run(&mut harrier, &format!("INSERT INTO {table} SELECT n, n FROM generate_series(0, 29) AS g(n)"));
        let groups =
            format!("SELECT count(*), max(n), sum(k) FROM (SELECT k, count(*) AS n FROM {table} GROUP BY k)");
        let expected = ["40", "2", "780"].map(|value| Some(value.to_string()));
        assert_eq!(rows(&mut harrier, &groups), [expected], "{kind}");
        for (key, expected) in [(5, "1"), (12, "2"), (29, "2"), (39, "1")] {
            let actual = rows(&mut harrier, &format!("SELECT count(*) FROM {table} WHERE k = {key}"));
            assert_eq!(actual, [[Some(expected.to_string())]], "{kind} {key}");
        }
    }

    // A widened column keeps the buckets of its old type.
    duck.run("CREATE TABLE widened (k DECIMAL(18,4), v INT)");
    duck.run("ALTER TABLE widened SET PARTITIONED BY (bucket(8, k))");
    duck.run("INSERT INTO widened SELECT range, range FROM range(40)");
    duck.run("ALTER TABLE widened ALTER k TYPE DECIMAL(20,4)");
    run(&mut harrier, "INSERT INTO widened SELECT v, v FROM generate_series(20, 59) AS g(v)");
    for v in [0, 5, 19] {
        let actual = rows(&mut harrier, &format!("SELECT v FROM widened WHERE k = {v}::DECIMAL(20,4)"));
        assert_eq!(actual, [[Some(v.to_string())]]);
    }
    let groups = "SELECT count(*), max(n) FROM (SELECT k, count(*) AS n FROM widened GROUP BY k) AS g";
    assert_equal_answers(&mut harrier, &mut duck, &[groups]);

    // Types hashed by text, which differs here in some cases.
    duck.run("CREATE TABLE nested (k INTEGER[], v INT)");
    duck.run("ALTER TABLE nested SET PARTITIONED BY (bucket(8, k))");
    duck.run("INSERT INTO nested SELECT [range], range FROM range(40)");
    assert_equal_answers(&mut harrier, &mut duck, &["SELECT count(*), sum(v), sum(k[1]) FROM nested"]);
    assert_eq!(harrier.run("INSERT INTO nested SELECT k, v FROM nested").unwrap_err().sqlstate, "0A000");
}

/// Keys are Harrier's own: DuckDB renames and drops their columns without knowing them.
#[test]
fn keys_follow_renames_and_drops_of_duckdb() {
    if is_skipped() {
        return;
    }
    let lake = Lake::new();
    let mut harrier = lake.harrier();
    run(&mut harrier, "CREATE TABLE p (id INT PRIMARY KEY, code INT UNIQUE)");
    run(&mut harrier, "CREATE TABLE c (id INT PRIMARY KEY, p INT REFERENCES p, q INT REFERENCES p (code))");
    run(&mut harrier, "CREATE INDEX i ON c ((p + q))");
    let mut duck = Duck::attach(&lake);
    duck.run("INSERT INTO p VALUES (1, 2), (1, 2)");
    duck.run("ALTER TABLE p RENAME TO parents");
    duck.run("ALTER TABLE parents RENAME COLUMN id TO number");
    duck.run("ALTER TABLE c RENAME COLUMN q TO r");
    assert_equal_answers(&mut harrier, &mut duck, &["SELECT number, code FROM parents"]);
    let constraint_query = "SELECT pg_get_constraintdef(oid) FROM pg_constraint ORDER BY 1";
    let texts = |texts: &[&str]| texts.iter().map(|text| vec![Some(text.to_string())]).collect::<Vec<_>>();
    assert_eq!(
        rows(&mut harrier, constraint_query),
        texts(&[
            "FOREIGN KEY (p) REFERENCES parents(number) NOT VALID",
            "FOREIGN KEY (r) REFERENCES parents(code) NOT VALID",
            "PRIMARY KEY (id)",
            "PRIMARY KEY (number)",
            "UNIQUE (code)",
        ])
    );
    assert_eq!(
        rows(&mut harrier, "SELECT indexdef FROM pg_indexes WHERE indexname = 'i'"),
        texts(&["CREATE INDEX i ON public.c USING btree (((p + \"r\")))"])
    );
    duck.run("ALTER TABLE parents DROP COLUMN code");
    duck.run("ALTER TABLE c DROP COLUMN p");
    assert_eq!(rows(&mut harrier, constraint_query), texts(&["PRIMARY KEY (id)", "PRIMARY KEY (number)"]));
    assert_eq!(rows(&mut harrier, "SELECT count(*) FROM pg_indexes WHERE indexname = 'i'"), texts(&["0"]));
    run(&mut harrier, "ALTER TABLE c ADD FOREIGN KEY (r) REFERENCES parents");
    duck.run("DROP TABLE parents");
    assert_eq!(rows(&mut harrier, constraint_query), texts(&["PRIMARY KEY (id)"]));
}

/// Concurrent inserts of both programs all succeed, each once.
#[test]
fn concurrent_writes_of_both() {
    if is_skipped() {
        return;
    }
    let lake = Lake::new();
    let mut harrier = lake.harrier();
    run(&mut harrier, "CREATE TABLE t (who TEXT, n INT)");
    let catalog = lake.catalog();
    let other = std::thread::spawn(move || {
        let mut duck = Duck::start();
        duck.run("SET ducklake_max_retry_count = 100");
        duck.run(&format!("ATTACH 'ducklake:sqlite:{catalog}' AS lake"));
        for n in 0..30 {
            let insert = format!("INSERT INTO lake.t VALUES ('duck', {n})");
            // DuckDB retries conflicts of its own, but not lock timeouts of SQLite.
            while let Err(error) = duck.answer(&insert) {
                assert!(error.contains("database is locked"), "DuckDB says {error} of {insert}");
            }
        }
        duck
    });
    for n in 0..30 {
        run(&mut harrier, &format!("INSERT INTO t VALUES ('harrier', {n})"));
    }
    let mut duck = other.join().unwrap();
    duck.run("USE lake");
    assert_equal_answers(
        &mut harrier,
        &mut duck,
        &["SELECT who, count(*), sum(n) FROM t GROUP BY who ORDER BY who"],
    );
    assert_eq!(
        rows(&mut harrier, "SELECT count(*), count(DISTINCT who || n) FROM t"),
        [[Some("60".into()), Some("60".into())]]
    );
}
