//! Warehouses used by several processes, and processes killed during writes; buckets on ranks, range
//! partitions.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use harrier_launch::Launcher;
use harrier_testkit::session::{Answer, Configuration, LOST, Session};

use crate::support::{MARKER, Warehouse, fails, one, plan, run, table};

/// Concurrent inserts into one table do not block one another and all succeed.
#[test]
fn concurrent_inserts_of_processes_succeed() {
    let warehouse = Warehouse::new();
    run(&mut warehouse.session(), "CREATE TABLE t (who INT, n INT)");
    std::thread::scope(|scope| {
        for who in 0..4 {
            let warehouse = &warehouse;
            scope.spawn(move || {
                let mut session = warehouse.session();
                for n in 0..10 {
                    run(&mut session, &format!("INSERT INTO t VALUES ({who}, {n})"));
                    let many = format!(
                        "INSERT INTO t SELECT {who}, 1000 + 100 * {n} + v FROM generate_series(1, 20) AS g(v)"
                    );
                    run(&mut session, &many);
                }
            });
        }
    });
    let mut session = warehouse.session();
    assert_eq!(one(&mut session, "SELECT count(*) FROM t"), "840");
    assert_eq!(one(&mut session, "SELECT count(*) FROM (SELECT DISTINCT who, n FROM t)"), "840");
}

#[test]
fn isolation_levels_across_processes() {
    let warehouse = Warehouse::new();
    let (mut a, mut b) = (warehouse.session(), warehouse.session());
    run(&mut a, "CREATE TABLE t (x INT)");
    run(&mut a, "BEGIN");
    run(&mut a, "INSERT INTO t VALUES (1)");
    assert_eq!(one(&mut a, "SELECT count(*) FROM t"), "1");
    assert_eq!(one(&mut b, "SELECT count(*) FROM t"), "0");
    run(&mut b, "BEGIN ISOLATION LEVEL SERIALIZABLE");
    assert_eq!(one(&mut b, "SELECT count(*) FROM t"), "0");
    run(&mut a, "COMMIT");
    assert_eq!(one(&mut b, "SELECT count(*) FROM t"), "0");
    run(&mut b, "COMMIT");
    assert_eq!(one(&mut b, "SELECT count(*) FROM t"), "1");
    // READ COMMITTED: each statement sees what was committed at its start, and its own changes.
    run(&mut b, "BEGIN");
    run(&mut b, "INSERT INTO t VALUES (2)");
    run(&mut a, "INSERT INTO t SELECT v FROM generate_series(3, 40) AS g(v)");
    assert_eq!(one(&mut b, "SELECT count(*) FROM t"), "40");
    run(&mut b, "ROLLBACK");
    assert_eq!(one(&mut b, "SELECT count(*) FROM t"), "39");
    // ROLLBACK TO a savepoint before the first query does not give up the snapshot of that query.
    run(&mut b, "BEGIN ISOLATION LEVEL SERIALIZABLE");
    run(&mut b, "SAVEPOINT here");
    assert_eq!(one(&mut b, "SELECT count(*) FROM t"), "39");
    run(&mut b, "INSERT INTO t VALUES (41)");
    run(&mut a, "INSERT INTO t VALUES (42)");
    run(&mut b, "ROLLBACK TO here");
    assert_eq!(one(&mut b, "SELECT count(*) FROM t"), "39");
    run(&mut b, "COMMIT");
    assert_eq!(one(&mut b, "SELECT count(*) FROM t"), "40");
}

/// DDL and rows of several tables, with a savepoint: invisible to others before the commit, and visible
/// together after it.
#[test]
fn ddl_and_rows_commit_atomically() {
    let warehouse = Warehouse::new();
    let (mut a, mut b) = (warehouse.session(), warehouse.session());
    run(&mut a, "CREATE TABLE t (x INT)");
    run(&mut a, "CREATE TABLE u (x INT)");
    run(&mut a, "INSERT INTO t SELECT v FROM generate_series(1, 100) AS g(v)");
    let unchanged = |session: &mut Session| {
        assert_eq!(one(session, "SELECT count(*) FROM t"), "100");
        assert_eq!(one(session, "SELECT count(*) FROM u"), "0");
        fails(session, "SELECT y FROM u", "42703");
        fails(session, "SELECT * FROM c", "42P01");
        fails(session, "SELECT * FROM w", "42P01");
    };
    for end in ["ROLLBACK", "COMMIT"] {
        run(&mut a, "BEGIN");
        run(&mut a, "ALTER TABLE u ADD COLUMN y INT");
        unchanged(&mut b);
        run(&mut a, "INSERT INTO u SELECT x, 2 * x FROM t");
        run(&mut a, "DELETE FROM t WHERE x > 60");
        run(&mut a, "SAVEPOINT here");
        unchanged(&mut b);
        run(&mut a, "DROP TABLE t");
        run(&mut a, "CREATE TABLE c AS SELECT 1 AS one");
        unchanged(&mut b);
        run(&mut a, "ROLLBACK TO here");
        run(&mut a, "CREATE TABLE c AS SELECT * FROM u WHERE y > 100");
        run(&mut a, "CREATE VIEW w AS SELECT c.x FROM c JOIN t ON c.x = t.x");
        assert_eq!(one(&mut a, "SELECT count(*) FROM w"), "10");
        unchanged(&mut b);
        run(&mut a, end);
        if end == "ROLLBACK" {
            unchanged(&mut a);
            unchanged(&mut b);
        }
    }
    for session in [&mut a, &mut b] {
        let counts = "SELECT (SELECT count(*) FROM t) || ' ' || (SELECT sum(y) FROM u) || ' ' || (SELECT count(*) FROM c) \
                      || ' ' || (SELECT count(*) FROM w)";
        assert_eq!(one(session, counts), "60 10100 50 10");
    }
}

#[test]
fn later_conflicting_change_fails() {
    let warehouse = Warehouse::new();
    let (mut a, mut b) = (warehouse.session(), warehouse.session());
    run(&mut a, "CREATE TABLE t (x INT, y INT)");
    run(&mut a, "INSERT INTO t SELECT v, v FROM generate_series(1, 100) AS g(v)");
    for change in
        ["UPDATE t SET y = 0 WHERE x = 5", "DELETE FROM t WHERE x < 50", "ALTER TABLE t ADD COLUMN z INT"]
    {
        let before = one(&mut b, "SELECT sum(y) FROM t");
        run(&mut a, "BEGIN");
        run(&mut a, "UPDATE t SET y = y + 1 WHERE x = 5");
        run(&mut b, change);
        let after = one(&mut b, "SELECT sum(y) FROM t");
        let failure = fails(&mut a, "COMMIT", "40001");
        assert!(failure.message.contains("serialize"), "{failure}");
        assert_eq!(one(&mut a, "SELECT sum(y) FROM t"), after, "{change}; before it {before}");
        run(&mut a, "DELETE FROM t");
        run(&mut a, "INSERT INTO t (x, y) SELECT v, v FROM generate_series(1, 100) AS g(v)");
    }
    // Changes of other rows in other files do not conflict.
    run(&mut a, "INSERT INTO t (x, y) SELECT v, v FROM generate_series(1001, 1100) AS g(v)");
    run(&mut a, "BEGIN");
    run(&mut a, "UPDATE t SET y = 0 WHERE x = 1");
    run(&mut b, "UPDATE t SET y = 0 WHERE x = 1001");
    run(&mut b, "INSERT INTO t (x, y) VALUES (2000, 0)");
    run(&mut a, "COMMIT");
    assert_eq!(one(&mut a, "SELECT count(*) FROM t WHERE y = 0"), "3");
}

#[test]
fn conflicts_are_reported_by_the_next_statement() {
    let warehouse = Warehouse::new();
    let (mut a, mut b) = (warehouse.session(), warehouse.session());
    let changes: [(&str, &[&str]); 5] = [
        ("INSERT INTO t VALUES (7, 7)", &["DROP TABLE t", "CREATE TABLE t (x INT, y INT)"]),
        ("INSERT INTO t VALUES (7, 7)", &["ALTER TABLE t ADD COLUMN z INT DEFAULT 3"]),
        ("INSERT INTO t VALUES (7, 7)", &["ALTER TABLE t DROP COLUMN y"]),
        ("DELETE FROM t WHERE x = 4", &["OPTIMIZE t"]),
        ("UPDATE t SET y = 0 WHERE x = 101", &["OPTIMIZE t"]),
    ];
    for (own, others) in changes {
        run(&mut a, "CREATE TABLE t (x INT, y INT)");
        run(&mut a, "INSERT INTO t SELECT v, v FROM generate_series(1, 100) AS g(v)");
        // Two small files, which OPTIMIZE merges, and an inlined row.
        run(&mut a, "INSERT INTO t SELECT v, v FROM generate_series(201, 300) AS g(v)");
        run(&mut a, "INSERT INTO t VALUES (101, 101)");
        run(&mut a, "BEGIN");
        run(&mut a, "SAVEPOINT here");
        run(&mut a, own);
        for sql in others {
            run(&mut b, sql);
        }
        fails(&mut a, "SELECT * FROM t", "40001");
        fails(&mut a, "SELECT 1", "25P02");
        let count = one(&mut b, "SELECT count(*) FROM t");
        run(&mut a, "ROLLBACK TO here");
        assert_eq!(one(&mut a, "SELECT count(*) FROM t"), count, "{own}; {others:?}");
        run(&mut a, "INSERT INTO t (x) VALUES (8)");
        run(&mut a, "COMMIT");
        assert_eq!(one(&mut b, "SELECT count(*) FROM t WHERE x = 8"), if count == "0" { "1" } else { "2" });
        run(&mut a, "DROP TABLE t");
    }
}

#[test]
fn rollback_leaves_no_files() {
    let warehouse = Warehouse::new();
    let mut session = warehouse.session();
    run(&mut session, "CREATE TABLE t (x INT) PARTITION BY (x)");
    run(&mut session, "INSERT INTO t SELECT v % 5 FROM generate_series(1, 100) AS g(v)");
    assert_eq!(warehouse.files(), 5);
    run(&mut session, "BEGIN");
    run(&mut session, "INSERT INTO t SELECT v % 7 FROM generate_series(1, 100) AS g(v)");
    run(&mut session, "DELETE FROM t WHERE x = 3");
    assert!(warehouse.files() > 5);
    run(&mut session, "ROLLBACK");
    assert_eq!(warehouse.files(), 5);
    // A statement that fails halfway.
    fails(
        &mut session,
        "INSERT INTO t SELECT 10 / (v - 5000) FROM generate_series(1, 10000) AS g(v)",
        "22012",
    );
    assert_eq!(warehouse.files(), 5);
    assert_eq!(one(&mut session, "SELECT count(*) FROM t"), "100");
}

/// Process ids of the ranks that use a warehouse.
fn ranks_of(warehouse: &Warehouse) -> Vec<u32> {
    let folder = warehouse.folder().display().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| {
            let id: u32 = entry.file_name().to_str()?.parse().ok()?;
            let words = std::fs::read(entry.path().join("cmdline")).ok()?;
            let words: Vec<String> = words
                .split(|byte| *byte == 0)
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect();
            let is_rank = words[0].ends_with("/harrier")
                && words.contains(&folder)
                && words.contains(&"--set".to_string());
            is_rank.then_some(id)
        })
        .collect()
}

/// Starts a process with a long INSERT and kills it when its first file exists.
fn kill_during_insert(command: &mut Command, warehouse: &Warehouse) {
    let before = warehouse.files();
    let sql = "INSERT INTO t SELECT a.v % 20, a.v * 1000 + b.v FROM generate_series(1, 20000) AS a(v), generate_series(1, 1000) AS b(v)";
    let mut child = command
        .args(["-c", sql])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    for _ in 0..3000 {
        if warehouse.files() > before || child.try_wait().unwrap().is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn killed_process_changes_nothing() {
    let warehouse = Warehouse::new();
    let mut session = warehouse.session();
    run(&mut session, "CREATE TABLE t (k INT, v BIGINT)");
    run(&mut session, "INSERT INTO t SELECT v % 20, v FROM generate_series(1, 1000) AS g(v)");
    let files = warehouse.files();
    kill_during_insert(&mut warehouse.configuration().command().unwrap(), &warehouse);
    assert_eq!(one(&mut session, "SELECT count(*) FROM t"), "1000");
    assert!(warehouse.files() > files, "the process was killed before it wrote");
    // Young files stay, because a running statement may be writing them.
    run(&mut session, "VACUUM");
    assert!(warehouse.files() > files);
    run(&mut session, "SET harrier.vacuum_age_seconds = 0");
    run(&mut session, "VACUUM");
    assert_eq!(warehouse.files(), files);
    assert_eq!(one(&mut session, "SELECT sum(v) FROM t"), "500500");
}

/// The catalog file is complete (checkpointed) once the last process has exited normally.
#[test]
fn catalog_file_is_checkpointed_when_closed() {
    let warehouse = Warehouse::new();
    let mut one = warehouse.session();
    run(&mut one, "CREATE TABLE t (v BIGINT)");
    run(&mut one, "INSERT INTO t VALUES (1), (2)");
    drop(one);
    let sql = |folder: &std::path::Path, sql: &str| {
        let mut command = Command::new(crate::command::BINARY);
        command.args(["sql", "--format", "csv", "-c", sql, "--warehouse"]).arg(folder);
        let run = harrier_launch::finish(command, Duration::from_secs(120));
        assert!(run.success, "{run:?}");
        run.stdout
    };
    sql(&warehouse.folder(), "INSERT INTO t VALUES (3)");
    let remains = |name: &str| warehouse.folder().join(format!("catalog.sqlite{name}")).exists();
    assert!(remains("") && !remains("-wal") && !remains("-shm"));
    let copy = tempfile::tempdir().unwrap();
    std::fs::copy(warehouse.folder().join("catalog.sqlite"), copy.path().join("catalog.sqlite")).unwrap();
    assert_eq!(sql(copy.path(), "SELECT sum(v) FROM t").lines().last(), Some("6"));
}

/// VACUUM removes files of dead writers of this warehouse, and leaves foreign files.
#[test]
fn vacuum_removes_only_files_of_its_warehouse() {
    let warehouse = Warehouse::new();
    let mut session = warehouse.session();
    run(&mut session, "CREATE TABLE t (v BIGINT)");
    run(&mut session, "INSERT INTO t SELECT v FROM generate_series(1, 1000) AS g(v)");
    let files = warehouse.files();
    let marker = std::fs::read_to_string(warehouse.data().join(MARKER)).unwrap();
    let id = marker.lines().find_map(|line| line.strip_prefix("warehouse = ")).unwrap();
    // The first digits of a writer's name identify the warehouse.
    let writer = format!("{}{}", &id[..12], "0".repeat(20));
    let abandoned_file = format!("{writer}-0-0-0.parquet");
    for name in [&abandoned_file, &format!("{abandoned_file}.0123456789abcdef0123456789abcdef.unfinished")] {
        std::fs::write(warehouse.data().join(name), "PAR1").unwrap();
    }
    for name in [
        "notes.txt",
        "notes.unfinished",
        "notes.0123456789abcdef0123456789abcdef.unfinished",
        "rows.parquet",
        "0123456789abcdef0123456789abcdef-0-0-0.parquet",
    ] {
        std::fs::write(warehouse.data().join(name), "kept").unwrap();
    }
    assert_eq!(warehouse.files(), files + 7);
    run(&mut session, "SET harrier.vacuum_age_seconds = 0");
    run(&mut session, "VACUUM");
    assert_eq!(warehouse.files(), files + 5);
    assert_eq!(std::fs::read(warehouse.data().join("notes.unfinished")).unwrap(), b"kept");
    assert_eq!(one(&mut session, "SELECT sum(v) FROM t"), "500500");
}

/// Files of an open transaction stay, however low the age that VACUUM uses.
#[test]
fn vacuum_keeps_files_of_open_transactions() {
    for partitions in ["PARTITION BY (k)", "PARTITION BY RANGE (k) (START (0) END (10) EVERY (2))"] {
        check_vacuum_keeps_open_files(partitions);
    }
}

fn check_vacuum_keeps_open_files(partitions: &str) {
    let warehouse = Warehouse::new();
    let (mut writer, mut sweeper) = (warehouse.session(), warehouse.session());
    run(&mut writer, &format!("CREATE TABLE t (k INT, v BIGINT) {partitions}"));
    run(&mut writer, "INSERT INTO t SELECT v % 5, v FROM generate_series(1, 1000) AS g(v)");
    run(&mut sweeper, "SET harrier.vacuum_age_seconds = 0");
    let before = warehouse.files();
    for (statement, end, rows_left) in [
        ("INSERT INTO t SELECT v % 5, v FROM generate_series(1, 1000) AS g(v)", "COMMIT", "2000"),
        ("DELETE FROM t WHERE v % 2 = 0", "COMMIT", "1000"),
        ("UPDATE t SET v = v + 2 WHERE k < 4", "COMMIT", "1000"),
        ("INSERT INTO t SELECT v % 5, v FROM generate_series(1, 1000) AS g(v)", "ROLLBACK", "1000"),
    ] {
        run(&mut writer, "BEGIN");
        run(&mut writer, "SAVEPOINT s");
        run(&mut writer, statement);
        run(&mut writer, "ROLLBACK TO s");
        run(&mut writer, statement);
        assert!(warehouse.files() > before, "{statement} wrote no file");
        let written = warehouse.files();
        run(&mut sweeper, "VACUUM");
        assert_eq!(warehouse.files(), written, "{statement}");
        run(&mut writer, end);
        run(&mut sweeper, "VACUUM");
        assert_eq!(one(&mut sweeper, "SELECT count(*) FROM t"), rows_left, "{statement}");
        run(&mut sweeper, "CHECK TABLE t");
    }
    // A closed connection writes no more.
    run(&mut writer, "BEGIN");
    run(&mut writer, "INSERT INTO t SELECT v % 5, v FROM generate_series(1, 1000) AS g(v)");
    let with_its = warehouse.files();
    drop(writer);
    run(&mut sweeper, "VACUUM");
    assert!(warehouse.files() < with_its);
    assert_eq!(one(&mut sweeper, "SELECT count(*) FROM t"), "1000");
}

#[test]
fn killed_rank_changes_nothing() {
    if harrier_launch::mpi_skipped() {
        eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
        return;
    }
    let warehouse = Warehouse::new();
    let mut alone = warehouse.session();
    run(&mut alone, "CREATE TABLE t (k INT, v BIGINT) PARTITION BY (k)");
    run(&mut alone, "CREATE TABLE s AS SELECT v FROM generate_series(1, 100000) AS g(v)");
    let configuration = Configuration::on_ranks("warehouse", &Launcher::open_mpi(3))
        .unwrap_or_else(|reason| panic!("{reason}"))
        .with_warehouse(warehouse.folder());
    let _turn = harrier_launch::gang_slot();
    let mut gang = Session::start(&configuration).unwrap();
    let insert = "INSERT INTO t SELECT v % 20, v FROM s";
    run(&mut gang, insert);
    assert_eq!(one(&mut alone, "SELECT count(*) FROM t"), "100000");
    run(&mut gang, "BEGIN");
    run(&mut gang, insert);
    let victim = ranks_of(&warehouse).into_iter().max().expect("the gang has ranks");
    assert!(Command::new("kill").args(["-9", &victim.to_string()]).status().unwrap().success());
    // The gang fails, or continues without the rank: either way nobody sees half of the transaction.
    let outcome = gang.run("DELETE FROM t WHERE k < 10").and_then(|_| gang.run("COMMIT"));
    let row_count = one(&mut alone, "SELECT count(*) FROM t");
    match outcome {
        Ok(_) => assert_eq!(row_count, "100000"),
        Err(failure) => {
            assert!(["57P02", "25P02", LOST].contains(&failure.sqlstate.as_str()), "{failure}");
            assert_eq!(row_count, "100000");
        }
    }
}

/// Colocated joins only if both sides have the same buckets of the join key; `tests/warehouse/buckets.slt`
/// checks the answers.
#[test]
fn bucketed_tables_join_colocated() {
    let warehouse = Warehouse::new();
    let mut session = warehouse.session();
    for (name, buckets) in [("a", 4), ("b", 4), ("c", 3)] {
        let sql =
            format!("CREATE TABLE {name} (k BIGINT, n INT) DISTRIBUTED BY (k) WITH (buckets = {buckets})");
        run(&mut session, &sql);
        run(
            &mut session,
            &format!("INSERT INTO {name} SELECT v, v % 7 FROM generate_series(1, 2000) AS g(v)"),
        );
    }
    for setting in ["hash_join_single_partition_threshold", "hash_join_single_partition_threshold_rows"] {
        run(&mut session, &format!("SET datafusion.optimizer.{setting} = 0"));
    }
    let moves = |session: &mut Session, sql: &str| plan(session, sql).contains("RepartitionExec");
    for sql in [
        "SELECT count(*) FROM a JOIN b ON a.k = b.k",
        "SELECT count(*) FROM a JOIN b ON a.k = b.k AND a.n = b.n WHERE a.n > 1",
        "SELECT count(*) FROM a JOIN b USING (k) JOIN a c USING (k)",
        "SELECT a.k, b.n FROM a LEFT JOIN b ON a.k = b.k",
        "SELECT k, count(*) FROM a GROUP BY k",
        "SELECT k, n, sum(n) FROM a GROUP BY n, k",
        "SELECT count(*) FROM a JOIN (SELECT k, max(n) AS n FROM b GROUP BY k) m ON a.k = m.k",
    ] {
        assert!(!moves(&mut session, sql), "{sql}\n{}", plan(&mut session, sql));
    }
    for sql in [
        "SELECT count(*) FROM a JOIN c ON a.k = c.k",
        "SELECT count(*) FROM a JOIN b ON a.n = b.n",
        "SELECT count(*) FROM a JOIN b ON a.k = b.n",
        "SELECT count(*) FROM a JOIN b ON a.k = b.k + 1",
        "SELECT n, count(*) FROM a GROUP BY n",
    ] {
        assert!(moves(&mut session, sql), "{sql}\n{}", plan(&mut session, sql));
    }
    assert!(plan(&mut session, "SELECT * FROM a WHERE k = 77").contains("files=1"));
    // The catalog inlines no rows of such a table, because they would be in no bucket.
    run(&mut session, "INSERT INTO a VALUES (1, 1)");
    assert!(!moves(&mut session, "SELECT count(*) FROM a JOIN b ON a.k = b.k"));
    assert_eq!(one(&mut session, "SELECT count(*) FROM a JOIN b ON a.k = b.k"), "2001");
}

/// A session on three ranks that checks the ledgers after each statement.
fn on_three_ranks(warehouse: &Warehouse) -> Session {
    let configuration = Configuration::on_ranks("warehouse", &Launcher::open_mpi(3))
        .unwrap_or_else(|reason| panic!("{reason}"))
        .with_setting("harrier.check_ledger", "true")
        .with_warehouse(warehouse.folder());
    Session::start(&configuration).unwrap()
}

/// If one side of a join is bucketed by the key, only the other side is redistributed, into its buckets.
#[test]
fn joins_redistribute_into_the_other_sides_buckets() {
    if harrier_launch::mpi_skipped() {
        return eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
    }
    let warehouse = Warehouse::new();
    let _turn = harrier_launch::gang_slot();
    let mut gang = on_three_ranks(&warehouse);
    for (name, clauses) in [
        ("orders", "DISTRIBUTED BY (k) WITH (buckets = 8)"),
        ("items", "DISTRIBUTED BY (k) WITH (buckets = 8)"),
        ("people", "DISTRIBUTED BY (n) WITH (buckets = 5)"),
        ("loose", ""),
    ] {
        run(&mut gang, &format!("CREATE TABLE {name} (k BIGINT, n INT) {clauses}"));
    }
    for (name, rows) in [("orders", 8000), ("items", 20000), ("people", 300), ("loose", 8000)] {
        let rows = format!("SELECT v, v % 300 FROM generate_series(1, {rows}) AS g(v)");
        run(&mut gang, &format!("INSERT INTO {name} {rows}"));
    }
    for setting in ["hash_join_single_partition_threshold", "hash_join_single_partition_threshold_rows"] {
        run(&mut gang, &format!("SET datafusion.optimizer.{setting} = 0"));
    }
    for (sql, motions, answer) in [
        // One side is redistributed, whichever it is.
        (
            "SELECT count(*) FROM orders o JOIN loose l ON o.k = l.k",
            &["redistribute 3→3 by k@0 into 8 buckets"][..],
            "8000",
        ),
        (
            "SELECT count(*) FROM people p JOIN orders o ON o.n = p.n",
            &["redistribute 3→3 by n@0 into 5 buckets"],
            "8000",
        ),
        // A colocated join is aggregated where it is, and a redistributed side is joined once more.
        (
            "SELECT count(*) FROM (SELECT i.k, count(*) FROM orders o JOIN items i ON o.k = i.k JOIN loose l ON l.k = i.k \
             GROUP BY i.k) g",
            &["redistribute 3→3 by k@0 into 8 buckets"],
            "8000",
        ),
        // A small side is broadcast to the large one, whose distribution the next join uses.
        (
            "SELECT count(*) FROM people p JOIN orders o ON o.n = p.n JOIN items i ON i.k = o.k",
            &["broadcast 3→3"],
            "8000",
        ),
    ] {
        let plan_text = plan(&mut gang, sql);
        let motions_found: Vec<&str> = plan_text
            .lines()
            .filter_map(|line| Some(line.split_once("─ ")?.1.split_once(" ◄")?.0))
            .filter(|motion| !motion.starts_with("gather"))
            .collect();
        assert_eq!(motions_found, motions, "{sql}\n{plan_text}");
        assert_eq!(one(&mut gang, sql), answer, "{sql}");
    }
}

/// Also on ranks, a key lookup reads only the files of its bucket; and single rows find theirs.
#[test]
fn lookup_on_ranks_reads_one_bucket() {
    if harrier_launch::mpi_skipped() {
        return eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
    }
    let warehouse = Warehouse::new();
    let _turn = harrier_launch::gang_slot();
    let mut gang = on_three_ranks(&warehouse);
    run(&mut gang, "CREATE TABLE t (k BIGINT, n INT) DISTRIBUTED BY (k) WITH (buckets = 8)");
    for part in 0..3 {
        run(&mut gang, &format!("INSERT INTO t SELECT v, {part} FROM generate_series(1, 4000) AS g(v)"));
    }
    let paths: Vec<String> = table(&mut gang, "SELECT path FROM sys.data_files")
        .into_iter()
        .filter_map(|mut row| row.swap_remove(0))
        .collect();
    assert_eq!(paths.len(), 24, "a file in each bucket of each INSERT");
    // The bucket with the key's files, and their number.
    let lookup = "SELECT * FROM t WHERE k = 77";
    let plan_text = plan(&mut gang, lookup);
    let (_, bucket) = plan_text.split_once("reads bucket=").unwrap_or_else(|| panic!("{plan_text}"));
    let bucket: String = bucket.chars().take_while(char::is_ascii_digit).collect();
    assert!(plan_text.contains("files=3,"), "{plan_text}");
    for path in &paths {
        let count = one(&mut gang, &format!("SELECT count(*) FROM '{path}' WHERE k = 77"));
        let expected = if path.contains(&format!("/bucket={bucket}/")) { "1" } else { "0" };
        assert_eq!(count, expected, "{path}");
    }
    assert!(plan(&mut gang, "SELECT * FROM t WHERE n < 5").contains("files=24,"));
    // A single row goes to the same bucket.
    for n in 1..=3 {
        run(&mut gang, "INSERT INTO t VALUES (77, 10)");
        assert!(plan(&mut gang, lookup).contains(&format!("files={},", 3 + n)));
        assert_eq!(one(&mut gang, "SELECT sum(n) FROM t WHERE k = 77"), (3 + 10 * n).to_string());
    }
    run(&mut gang, "OPTIMIZE t");
    assert!(plan(&mut gang, lookup).contains("files=1,"));
    assert_eq!(one(&mut gang, "SELECT count(*) || ' ' || sum(n) FROM t WHERE k = 77"), "6 33");
}

/// Direct dispatch: a statement that reads one bucket runs on its rank alone, and sends only its answer.
#[test]
fn lookup_is_dispatched_to_the_bucket_rank() {
    if harrier_launch::mpi_skipped() {
        return eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
    }
    let warehouse = Warehouse::new();
    let _turn = harrier_launch::gang_slot();
    let mut gang = on_three_ranks(&warehouse);
    for name in ["t", "u"] {
        let create = format!("CREATE TABLE {name} (k BIGINT, n INT) DISTRIBUTED BY (k) WITH (buckets = 6)");
        run(&mut gang, &create);
    }
    run(&mut gang, "INSERT INTO t SELECT v, v % 7 FROM generate_series(1, 6000) AS g(v)");
    run(&mut gang, "INSERT INTO u SELECT k, n FROM t");
    let mut ranks = BTreeSet::new();
    for k in 1..=12 {
        let lookup = format!("SELECT n FROM t WHERE k = {k}");
        let plan_text = plan(&mut gang, &lookup);
        let (before, after) = plan_text.split_once(" has bucket ").unwrap_or_else(|| panic!("{plan_text}"));
        let bucket: usize = after.split(' ').next().unwrap().parse().unwrap();
        let rank = bucket % 3;
        let place = match rank {
            0 => "slice 0 on the coordinator, which".to_string(),
            _ => format!("slice 1 on rank {rank} alone, which"),
        };
        assert!(before.ends_with(&place), "{plan_text}");
        assert_eq!(
            (plan_text.contains("gather 1→1"), plan_text.contains("gather")),
            (rank != 0, rank != 0),
            "{plan_text}"
        );
        assert!(!plan_text.contains("redistribute") && !plan_text.contains("broadcast"), "{plan_text}");
        assert_eq!(one(&mut gang, &lookup), (k % 7).to_string());
        ranks.insert(rank);
    }
    assert_eq!(ranks.len(), 3);
    // Statements on one bucket; 12 is in bucket 4, and 5 and 8 are in bucket 5.
    for (sql, rank, expected) in [
        ("SELECT sum(n) FROM (SELECT n, count(*) FROM t WHERE k = 12 GROUP BY n ORDER BY n)", 1, "5"),
        ("SELECT sum(t.n + u.n) FROM t JOIN u ON t.k = u.k WHERE t.k = 12", 1, "10"),
        ("SELECT row_number() OVER (PARTITION BY k ORDER BY n) FROM t WHERE k = 12 LIMIT 3", 1, "1"),
        ("SELECT sum(k) FROM t WHERE k = 5 OR k = 8", 2, "13"),
        ("SELECT sum(k) FROM t WHERE k IN (5, 8) AND n > 0", 2, "13"),
    ] {
        let plan_text = plan(&mut gang, sql);
        assert!(plan_text.contains(&format!("slice 1 on rank {rank} alone")), "{plan_text}");
        assert!(!plan_text.contains("slice 2"), "{plan_text}");
        assert_eq!(one(&mut gang, sql), expected, "{sql}");
    }
    // Several buckets, and tables with different buckets, are read by all ranks.
    for (sql, files, expected) in [
        ("SELECT count(*) FROM t WHERE k IN (1, 12)", 2, "2"),
        ("SELECT count(*) FROM t WHERE k = 1 OR k = 12 AND n < 100 OR k IN (13, NULL) AND k = 1", 2, "2"),
        ("SELECT count(*) FROM t WHERE k = 1 OR n = 3", 6, "858"),
    ] {
        let plan_text = plan(&mut gang, sql);
        assert!(
            plan_text.contains("on 3 ranks") && plan_text.contains(&format!("files={files},")),
            "{plan_text}"
        );
        assert_eq!(one(&mut gang, sql), expected, "{sql}");
    }
    run(&mut gang, "UPDATE t SET n = 100 WHERE k = 12");
    assert_eq!(one(&mut gang, "SELECT n FROM t WHERE k = 12"), "100");
    run(&mut gang, "DELETE FROM t WHERE k = 12");
    run(&mut gang, "INSERT INTO t VALUES (12, 101)");
    assert_eq!(one(&mut gang, "SELECT n FROM t WHERE k = 12"), "101");
    // Participants: a stream is sent from one rank to another.
    let streams = |gang: &mut Session, statement: &str| {
        let sql = format!(
            "SELECT coalesce(string_agg(DISTINCT rank_from || '->' || rank_to, ' '), 'none') FROM sys.interconnect \
             WHERE kind = 'stream' AND statement LIKE '{statement}'"
        );
        one(gang, &sql)
    };
    assert_eq!(streams(&mut gang, "SELECT n FROM t WHERE k = 12%"), "1->0");
    assert_eq!(streams(&mut gang, "SELECT n FROM t WHERE k = 2"), "none");
    assert_eq!(streams(&mut gang, "INSERT INTO t VALUES%"), "none");
    assert_ne!(streams(&mut gang, "INSERT INTO u SELECT%"), "none");
}

/// CHECK TABLE reports any damage of a file.
#[test]
fn check_table_finds_damage() {
    let warehouse = Warehouse::new();
    let mut session = warehouse.session();
    run(&mut session, "CREATE TABLE t (a INT, b TEXT)");
    for part in 0..4 {
        let sql = format!("INSERT INTO t SELECT v, 'x' FROM generate_series({part}00, {part}99) AS g(v)");
        run(&mut session, &sql);
    }
    run(&mut session, "DELETE FROM t WHERE a % 3 = 0 AND a < 100");
    let problems = |session: &mut Session| match session.run("CHECK TABLE t") {
        Ok(Answer::Rows { rows, .. }) => {
            rows.into_iter().filter_map(|mut row| row.swap_remove(1)).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(problems(&mut session), Vec::<String>::new());
    let paths = match session.run("SELECT path FROM sys.data_files ORDER BY path") {
        Ok(Answer::Rows { rows, .. }) => {
            rows.into_iter().filter_map(|mut row| row.swap_remove(0)).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(paths.len(), 4);
    std::fs::remove_file(&paths[0]).unwrap();
    std::fs::copy(&paths[2], &paths[1]).unwrap();
    let mut flipped = std::fs::read(&paths[2]).unwrap();
    flipped[20] ^= 1;
    std::fs::write(&paths[2], flipped).unwrap();
    let mut cut = std::fs::read(&paths[3]).unwrap();
    cut.truncate(cut.len() - 10);
    std::fs::write(&paths[3], cut).unwrap();
    let problems_found = problems(&mut session);
    assert!(problems_found.contains(&"is missing".to_string()), "{problems_found:?}");
    assert!(problems_found.iter().any(|problem| problem.starts_with("has no footer")), "{problems_found:?}");
    assert!(problems_found.iter().any(|problem| problem.contains("bytes")), "{problems_found:?}");
    assert!(problems_found.contains(&"is not what its checksum says".to_string()), "{problems_found:?}");
}

#[test]
fn range_partitions_are_pruned() {
    let warehouse = Warehouse::new();
    let mut session = warehouse.session();
    run(
        &mut session,
        "CREATE TABLE t (day DATE, v INT) PARTITION BY RANGE (day) \
         (START ('2024-01-01') END ('2025-01-01') EVERY (INTERVAL '1 month'))",
    );
    run(
        &mut session,
        "INSERT INTO t SELECT date '2024-01-01' + v::int, v FROM generate_series(0, 365) AS g(v)",
    );
    assert_eq!(warehouse.files(), 12);
    let read = |session: &mut Session, condition: &str| {
        let plan = plan(session, &format!("SELECT * FROM t WHERE {condition}"));
        let (_, after) = plan.split_once("files=").unwrap_or_else(|| panic!("{plan}"));
        after.split(|sign: char| !sign.is_ascii_digit()).next().unwrap().parse::<usize>().unwrap()
    };
    assert_eq!(read(&mut session, "day >= '2024-03-05' AND day < '2024-05-01'"), 2);
    assert_eq!(read(&mut session, "day = '2024-12-31'"), 1);
    assert_eq!(read(&mut session, "v > 5"), 12);
    // DELETE of a range reads none of its rows.
    run(&mut session, "ALTER TABLE t DROP PARTITION FOR (date '2024-02-10')");
    assert_eq!(one(&mut session, "SELECT count(*) FROM t"), "337");
    assert_eq!(one(&mut session, "SELECT count(*) FROM sys.data_files WHERE table_name = 't'"), "11");
}

/// Rows inserted while the table partitions change belong to the new ones, or the later transaction fails.
#[test]
fn partition_ddl_conflicts_with_row_changes() {
    let warehouse = Warehouse::new();
    let (mut a, mut b) = (warehouse.session(), warehouse.session());
    run(
        &mut a,
        "CREATE TABLE t (x INT) PARTITION BY RANGE (x) \
         (PARTITION one START (1) END (10), PARTITION two START (10) END (20), DEFAULT PARTITION rest)",
    );
    let insert = "INSERT INTO t VALUES (5), (15), (25)";
    for alter in [
        "ALTER TABLE t DROP PARTITION two",
        "ALTER TABLE t ADD PARTITION two START (10) END (20)",
        "ALTER TABLE t RENAME PARTITION two TO second",
        "ALTER TABLE t RENAME PARTITION second TO two",
    ] {
        run(&mut a, "BEGIN");
        run(&mut a, alter);
        run(&mut b, insert);
        fails(&mut a, "COMMIT", "40001");
        run(&mut b, "DELETE FROM t");
        run(&mut a, "BEGIN");
        run(&mut a, insert);
        run(&mut b, alter);
        fails(&mut a, "COMMIT", "40001");
        assert_eq!(one(&mut a, "SELECT count(*) FROM t"), "0");
    }
}

/// Model of a range-partitioned table, and random changes.
struct RangeModel {
    /// Name, lower and upper bound; the default partition has none.
    partitions: Vec<(String, Option<(i64, i64)>)>,
    rows: Vec<i64>,
}

impl RangeModel {
    fn random(random: &mut impl rand::Rng) -> Self {
        let mut bounds: Vec<i64> =
            (0..random.random_range(2..7)).map(|_| random.random_range(-50..50)).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut partitions: Vec<_> =
            bounds.windows(2).map(|pair| (format!("p{}", pair[0] + 50), Some((pair[0], pair[1])))).collect();
        if partitions.is_empty() || random.random_bool(0.5) {
            partitions.push(("rest".to_string(), None));
        }
        Self { partitions, rows: vec![] }
    }

    fn clause(&self) -> String {
        let parts = self.partitions.iter().map(|(name, bounds)| match bounds {
            Some((from, to)) => format!("PARTITION {name} START ({from}) END ({to})"),
            None => format!("DEFAULT PARTITION {name}"),
        });
        format!("PARTITION BY RANGE (x) ({})", parts.collect::<Vec<_>>().join(", "))
    }

    fn partition_of(&self, row: i64) -> Option<&str> {
        let holds = |bounds: &Option<(i64, i64)>| bounds.is_some_and(|(from, to)| from <= row && row < to);
        let rest = || self.partitions.iter().find(|(_, bounds)| bounds.is_none());
        let own = self.partitions.iter().find(|(_, bounds)| holds(bounds)).or_else(rest);
        own.map(|(name, _)| name.as_str())
    }

    /// Runs a statement after which the table must have `rows`, if all of them fit a partition.
    fn change(&mut self, session: &mut Session, sql: &str, rows: Vec<i64>) {
        match rows.iter().all(|row| self.partition_of(*row).is_some()) {
            true => {
                run(session, sql);
                self.rows = rows;
            }
            false => drop(fails(session, sql, "23514")),
        }
    }

    fn step(&mut self, session: &mut Session, random: &mut impl rand::Rng) {
        let list = |rows: &[i64]| rows.iter().map(|row| format!("({row})")).collect::<Vec<_>>().join(", ");
        let one = self.partitions[random.random_range(0..self.partitions.len())].1;
        let (low, high) = one.filter(|_| random.random_bool(0.7)).unwrap_or((-60, 60));
        let new: Vec<i64> = (0..8).map(|_| random.random_range(low..high)).collect();
        let (by, rest) = (random.random_range(-20..20), random.random_range(0..5));
        match random.random_range(0..6) {
            0 | 1 => {
                let rows = self.rows.iter().chain(&new).copied().collect();
                self.change(session, &format!("INSERT INTO t VALUES {}", list(&new)), rows);
            }
            2 => {
                let moved = |row: &i64| if row.rem_euclid(5) == rest { row + by } else { *row };
                let rows = self.rows.iter().map(moved).collect();
                let sql = format!("UPDATE t SET x = x + {by} WHERE ((x % 5) + 5) % 5 = {rest}");
                self.change(session, &sql, rows);
            }
            3 => {
                let is_kept = |row: &&i64| row.rem_euclid(7) != rest;
                let rows = self.rows.iter().filter(is_kept).copied().collect();
                self.change(session, &format!("DELETE FROM t WHERE ((x % 7) + 7) % 7 = {rest}"), rows);
            }
            4 => {
                let replaced_partitions: Vec<_> = new.iter().map(|row| self.partition_of(*row)).collect();
                let kept_rows =
                    self.rows.iter().filter(|row| !replaced_partitions.contains(&self.partition_of(**row)));
                let rows = kept_rows.chain(&new).copied().collect();
                self.change(session, &format!("INSERT OVERWRITE t VALUES {}", list(&new)), rows);
            }
            _ => run(session, "OPTIMIZE t"),
        }
    }

    /// Asserts that every row is there, in a file of its table partition.
    fn check(&self, session: &mut Session) {
        let mut rows = self.rows.clone();
        rows.sort_unstable();
        let expected: Vec<Vec<Option<String>>> = rows.iter().map(|row| vec![Some(row.to_string())]).collect();
        assert_eq!(table(session, "SELECT x FROM t ORDER BY x"), expected);
        for (name, _) in &self.partitions {
            let count = rows.iter().filter(|row| self.partition_of(**row) == Some(name)).count().to_string();
            let sql = format!("SELECT rows FROM sys.table_partitions WHERE partition_name = '{name}'");
            assert_eq!(one(session, &sql), count, "{name}");
        }
        for file in table(session, "SELECT path, table_partition FROM sys.data_files") {
            let (path, partition) = (file[0].clone().unwrap(), file[1].clone().unwrap());
            for row in table(session, &format!("SELECT DISTINCT x FROM '{path}'")) {
                let own = self.partition_of(row[0].as_deref().unwrap().parse().unwrap());
                assert_eq!(partition.strip_prefix("range(x)="), own, "{path}");
            }
        }
    }
}

/// `HARRIER_SEED` repeats the changes of one seed.
#[test]
fn rows_are_in_files_of_their_range_partition() {
    use rand::SeedableRng;
    for seed in harrier_launch::seeds(4) {
        eprintln!("HARRIER_SEED={seed}");
        let mut random = rand::rngs::StdRng::seed_from_u64(seed);
        let warehouse = Warehouse::new();
        let mut session = warehouse.session();
        let mut model = RangeModel::random(&mut random);
        run(&mut session, &format!("CREATE TABLE t (x BIGINT) {}", model.clause()));
        for _ in 0..25 {
            model.step(&mut session, &mut random);
        }
        model.check(&mut session);
    }
}

/// Shapes of a table's files by their table partition.
fn shapes_by_partition(session: &mut Session) -> Vec<String> {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let paths = "SELECT split_part(table_partition, '=', 2), path FROM sys.data_files ORDER BY 1, 2";
    let paths = table(session, paths);
    let shape = |row: &Vec<Option<String>>| {
        let path = row[1].as_deref().unwrap();
        let file = SerializedFileReader::new(std::fs::File::open(path).unwrap()).unwrap();
        let group = file.metadata().row_group(0);
        let codec = format!("{:?}", group.column(0).compression());
        let codec = codec.split('(').next().unwrap().to_lowercase();
        format!("{} {codec} {}", row[0].as_deref().unwrap(), group.num_rows())
    };
    paths.iter().map(shape).collect()
}

#[test]
fn partitions_have_their_own_storage_options() {
    let warehouse = Warehouse::new();
    let mut session = warehouse.session();
    run(
        &mut session,
        "CREATE TABLE t (k INT, v BIGINT) PARTITION BY RANGE (k) \
         (PARTITION old START (0) END (2) WITH (compression = gzip, row_group_rows = 50), \
          PARTITION new START (2) END (4), DEFAULT PARTITION rest WITH (compression = uncompressed)) \
         WITH (compression = snappy, compression_level = 1)",
    );
    let added = "ALTER TABLE t ADD PARTITION newest START (4) END (6) WITH (compression = zstd, compression_level = 3)";
    run(&mut session, "ALTER TABLE t DROP DEFAULT PARTITION");
    run(&mut session, added);
    run(&mut session, "ALTER TABLE t ADD DEFAULT PARTITION rest WITH (compression = uncompressed)");
    let insert = "INSERT INTO t SELECT v % 8, v FROM generate_series(1, 800) AS g(v)";
    let partitions = ["old", "new", "newest", "rest"];
    let shapes = |rows: u64| {
        let rows = [50, rows, rows, rows];
        let codecs = ["gzip", "snappy", "zstd", "uncompressed"];
        let mut shapes: Vec<String> =
            (0..4).map(|at| format!("{} {} {}", partitions[at], codecs[at], rows[at])).collect();
        shapes.sort();
        shapes
    };
    run(&mut session, insert);
    assert_eq!(shapes_by_partition(&mut session), shapes(200));
    run(&mut session, insert);
    run(&mut session, "OPTIMIZE t");
    assert_eq!(shapes_by_partition(&mut session), shapes(400));
    let options =
        "SELECT partition_name, options FROM sys.table_partitions WHERE options IS NOT NULL ORDER BY 1";
    let expected_options = [
        ("newest", "parquet_compression = zstd, parquet_compression_level = 3"),
        ("old", "parquet_compression = gzip, parquet_row_group_size = 50"),
        ("rest", "parquet_compression = uncompressed"),
    ];
    let expected_options =
        expected_options.map(|(name, options)| vec![Some(name.to_string()), Some(options.to_string())]);
    assert_eq!(table(&mut session, options), expected_options);
    fails(&mut session, "ALTER TABLE t ADD PARTITION p START (9) END (10) WITH (inline_rows = 3)", "22023");
}
