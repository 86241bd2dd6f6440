//! OPTIMIZE, VACUUM and expire_snapshots concurrent with readers and writers. Unreferenced files stay for the
//! default `harrier.vacuum_age_seconds`, which no test here changes.

use std::sync::atomic::{AtomicBool, Ordering};

use harrier_testkit::session::{Answer, Session};

use crate::support::{Warehouse, assert_undamaged, count, fails, one, run};

/// Serialization failure, after which a transaction is retried.
const CONFLICT: &str = "40001";

/// Small files, some with deleted rows, and an inlined row.
fn fill(session: &mut Session, table: &str) {
    run(session, &format!("CREATE TABLE {table} (a INT, b TEXT)"));
    for part in 0..4 {
        let rows = format!("SELECT v, 'x' || v FROM generate_series({part}00, {part}99) AS g(v)");
        run(session, &format!("INSERT INTO {table} {rows}"));
    }
    run(session, &format!("DELETE FROM {table} WHERE a % 2 = 0"));
    run(session, &format!("INSERT INTO {table} VALUES (5000, 'kept')"));
}

fn rows(table: &str) -> String {
    format!("SELECT count(*) || ' ' || sum(a) || ' ' || count(DISTINCT b) FROM {table}")
}

const FILLED: &str = "201 45000 201";

#[test]
fn reader_of_an_old_snapshot_continues() {
    let warehouse = Warehouse::new();
    let (mut reader, mut other) = (warehouse.session(), warehouse.session());
    for table in ["t", "u", "unread"] {
        fill(&mut other, table);
    }
    run(&mut reader, "BEGIN ISOLATION LEVEL SERIALIZABLE");
    assert_eq!(one(&mut reader, &rows("t")), FILLED);
    assert_eq!(one(&mut reader, &rows("u")), FILLED);
    let files = warehouse.files();
    for table in ["t", "u", "unread"] {
        assert_eq!(count(&mut other, &format!("OPTIMIZE {table}")), 201);
    }
    run(&mut other, "DELETE FROM t WHERE a < 100");
    run(&mut other, "UPDATE u SET b = 'other'");
    assert!(warehouse.files() > files);
    // Expires snapshots by age: this one is too young.
    let files = warehouse.files();
    run(&mut other, "CALL expire_snapshots('1 hour')");
    assert_eq!(count(&mut other, "VACUUM"), 0);
    assert_eq!(warehouse.files(), files, "every file is young, or some snapshot has it");
    for table in ["t", "u", "unread"] {
        assert_eq!(one(&mut reader, &rows(table)), FILLED);
    }
    // Only the newest snapshot is left. The reader's files remain, and it has loaded enough of its snapshot.
    assert!(count(&mut other, "CALL expire_snapshots('0 seconds')") > 0);
    assert_eq!(count(&mut other, "VACUUM"), 0);
    assert_eq!(warehouse.files(), files);
    for table in ["t", "u", "unread"] {
        assert_eq!(one(&mut reader, &rows(table)), FILLED);
    }
    assert_eq!(
        one(&mut reader, "SELECT count(*) FROM t JOIN u ON t.a = u.a WHERE t.b = u.b AND t.a < 100"),
        "50"
    );
    run(&mut reader, "COMMIT");
    assert_eq!(one(&mut reader, &rows("t")), "151 42500 151");
    assert_eq!(one(&mut reader, &rows("u")), "201 45000 1");
    for table in ["t", "u", "unread"] {
        assert_undamaged(&mut other, table);
    }
}

/// A reader may be refused what it has not read before its snapshot expired, and never sees anything else.
#[test]
fn expired_snapshot_is_an_error() {
    let warehouse = Warehouse::new();
    let (mut reader, mut other) = (warehouse.session(), warehouse.session());
    fill(&mut other, "t");
    run(&mut reader, "BEGIN ISOLATION LEVEL SERIALIZABLE");
    assert_eq!(one(&mut reader, "SELECT 1"), "1");
    run(&mut other, "OPTIMIZE t");
    run(&mut other, "DELETE FROM t WHERE a < 100");
    run(&mut other, "CALL expire_snapshots('0 seconds')");
    run(&mut other, "VACUUM");
    match reader.run(&rows("t")) {
        Ok(Answer::Rows { rows, .. }) => assert_eq!(rows[0][0].as_deref(), Some(FILLED)),
        Ok(other) => panic!("{other:?}"),
        Err(failure) => assert_eq!(failure.sqlstate, "22023", "{failure}"),
    }
    run(&mut reader, "ROLLBACK");
    assert_eq!(one(&mut reader, &rows("t")), "151 42500 151");
}

#[test]
fn vacuum_keeps_uncommitted_files() {
    let warehouse = Warehouse::new();
    let (mut writer, mut other) = (warehouse.session(), warehouse.session());
    fill(&mut other, "t");
    fill(&mut other, "u");
    // Data files and delete files, at both isolation levels.
    for level in ["READ COMMITTED", "SERIALIZABLE"] {
        let before = one(&mut other, "SELECT count(*) FROM t");
        let files = warehouse.files();
        run(&mut writer, &format!("BEGIN ISOLATION LEVEL {level}"));
        run(&mut writer, "INSERT INTO t SELECT v, 'new' FROM generate_series(1000, 1099) AS g(v)");
        run(&mut writer, "DELETE FROM u WHERE a % 5 = 1");
        run(&mut writer, "CREATE TABLE c AS SELECT v FROM generate_series(1, 100) AS g(v)");
        let written = warehouse.files();
        assert!(written > files + 1, "rows and the new table are in files");
        // Others commit, expire and vacuum meanwhile.
        run(&mut other, "INSERT INTO t VALUES (1, 'beside')");
        run(&mut other, "OPTIMIZE t");
        run(&mut other, "CALL expire_snapshots('1 hour')");
        assert_eq!(count(&mut other, "VACUUM"), 0);
        assert!(warehouse.files() >= written);
        run(&mut writer, "INSERT INTO t SELECT v, 'newer' FROM generate_series(2000, 2099) AS g(v)");
        assert_eq!(count(&mut other, "VACUUM"), 0);
        run(&mut writer, "COMMIT");
        let after: u64 = one(&mut other, "SELECT count(*) FROM t").parse().unwrap();
        assert_eq!(after, before.parse::<u64>().unwrap() + 201, "{level}");
        assert_eq!(one(&mut other, "SELECT count(*) FROM c"), "100");
        assert_eq!(one(&mut other, "SELECT count(*) FROM u WHERE a % 5 = 1"), "0");
        for table in ["t", "u", "c"] {
            assert_undamaged(&mut other, table);
        }
        run(&mut other, "DROP TABLE c");
        run(&mut other, "DROP TABLE u");
        fill(&mut other, "u");
        // A transaction that can no longer check for conflicts since its start fails, and leaves nothing.
        let (before, files) = (one(&mut other, "SELECT count(*) FROM t"), warehouse.files());
        run(&mut writer, &format!("BEGIN ISOLATION LEVEL {level}"));
        run(&mut writer, "INSERT INTO t SELECT v, 'new' FROM generate_series(1000, 1099) AS g(v)");
        run(&mut writer, "DELETE FROM u WHERE a = 1");
        for _ in 0..2 {
            run(&mut other, "COMMENT ON TABLE u IS 'another snapshot'");
            run(&mut other, "COMMENT ON TABLE u IS NULL");
        }
        run(&mut other, "CALL expire_snapshots('0 seconds')");
        assert_eq!(count(&mut other, "VACUUM"), 0);
        fails(&mut writer, "COMMIT", CONFLICT);
        assert_eq!(one(&mut other, "SELECT count(*) FROM t"), before);
        assert_eq!(one(&mut other, &rows("u")), FILLED);
        assert_eq!(warehouse.files(), files);
    }
    // Rows that OPTIMIZE has moved cannot be deleted at their old position.
    run(&mut writer, "BEGIN");
    run(&mut writer, "DELETE FROM u WHERE a < 300");
    run(&mut other, "OPTIMIZE u");
    fails(&mut writer, "COMMIT", CONFLICT);
    assert_eq!(one(&mut writer, &rows("u")), FILLED);
    // OPTIMIZE fails if rows were deleted before it ends.
    run(&mut other, "INSERT INTO u SELECT v, 'x' || v FROM generate_series(600, 650) AS g(v)");
    run(&mut other, "BEGIN");
    run(&mut other, "OPTIMIZE u");
    run(&mut writer, "DELETE FROM u WHERE a = 1");
    fails(&mut other, "COMMIT", CONFLICT);
    assert_eq!(one(&mut writer, "SELECT count(*) FROM u"), "251");
    assert_undamaged(&mut writer, "u");
}

/// Writers, readers and maintenance in separate processes until the writers are done. A transaction inserts
/// or deletes rows whose values sum to zero.
#[test]
fn maintenance_with_concurrent_writers_and_readers() {
    const WRITERS: i64 = 2;
    const TRANSACTIONS: i64 = 25;
    let warehouse = Warehouse::new();
    run(&mut warehouse.session(), "CREATE TABLE t (who INT, n INT, v BIGINT)");
    let are_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (warehouse, are_done) = (&warehouse, &are_done);
        let writers: Vec<_> = (0..WRITERS)
            .map(|who| {
                scope.spawn(move || {
                    let mut session = warehouse.session();
                    for n in 0..TRANSACTIONS {
                        write(&mut session, who, n);
                    }
                })
            })
            .collect();
        scope.spawn(move || {
            let mut session = warehouse.session();
            while !are_done.load(Ordering::Relaxed) {
                assert_eq!(one(&mut session, "SELECT coalesce(sum(v), 0) FROM t"), "0");
                run(&mut session, "BEGIN ISOLATION LEVEL SERIALIZABLE");
                let first = one(&mut session, "SELECT count(*) FROM t");
                assert_eq!(one(&mut session, "SELECT count(*) FROM t WHERE v <> 0"), first);
                run(&mut session, "COMMIT");
            }
        });
        scope.spawn(move || {
            let mut session = warehouse.session();
            while !are_done.load(Ordering::Relaxed) {
                match session.run("OPTIMIZE t") {
                    Ok(_) => {}
                    Err(failure) => assert_eq!(failure.sqlstate, CONFLICT, "{failure}"),
                }
                run(&mut session, "CALL expire_snapshots('1 hour')");
                assert_eq!(count(&mut session, "VACUUM"), 0);
            }
        });
        let failed = writers.into_iter().map(|writer| writer.join()).find_map(Result::err);
        are_done.store(true, Ordering::Relaxed);
        if let Some(failure) = failed {
            std::panic::resume_unwind(failure);
        }
    });
    let mut session = warehouse.session();
    // Each transaction inserts 30 rows, and every fifth one deletes those of the previous one.
    let rows = WRITERS * TRANSACTIONS * 30 * 4 / 5;
    assert_eq!(one(&mut session, "SELECT count(*) FROM t"), rows.to_string());
    assert_eq!(one(&mut session, "SELECT sum(v) FROM t"), "0");
    assert_undamaged(&mut session, "t");
    run(&mut session, "OPTIMIZE t");
    assert_eq!(one(&mut session, "SELECT count(*) FROM t"), rows.to_string());
}

/// Transaction `n` of a writer: 30 rows, few of them inlined; every fifth one deletes the rows of the
/// previous one.
fn write(session: &mut Session, who: i64, n: i64) {
    let insert = match n % 2 {
        0 => format!(
            "INSERT INTO t SELECT {who}, {n}, CASE WHEN g.v % 2 = 0 THEN 1 ELSE -1 END FROM generate_series(1, 30) AS g(v)"
        ),
        _ => {
            let rows: Vec<String> = (0..30).map(|at| format!("({who}, {n}, {})", 1 - at % 2 * 2)).collect();
            format!("INSERT INTO t VALUES {}", rows.join(", "))
        }
    };
    let delete = format!("DELETE FROM t WHERE who = {who} AND n = {}", n - 1);
    let takes = n % 5 == 4;
    // Only deletes conflict with OPTIMIZE.
    loop {
        run(session, "BEGIN");
        run(session, &insert);
        if takes {
            run(session, &delete);
        }
        match session.run("COMMIT") {
            Ok(_) => return,
            Err(failure) => assert_eq!((failure.sqlstate.as_str(), takes), (CONFLICT, true), "{failure}"),
        }
    }
}
