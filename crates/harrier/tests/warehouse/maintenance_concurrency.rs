//! OPTIMIZE, VACUUM and expire_snapshots beside readers and writers that are in the middle of something.
//! Files that nothing refers to stay for as long as `harrier.vacuum_age_seconds` says by default: nothing
//! here sets it.

use std::sync::atomic::{AtomicBool, Ordering};

use harrier_testkit::session::{Answer, Session};

use crate::support::{Warehouse, count, fails, is_sound, one, run};

/// A serialization failure, after which a transaction is run again.
const CONFLICT: &str = "40001";

/// Small files, some with deleted rows, and a row that the catalog keeps.
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
fn a_reader_of_an_old_snapshot_reads_on() {
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
    // As one does who lets snapshots expire that are old: this one is not.
    let files = warehouse.files();
    run(&mut other, "CALL expire_snapshots('1 hour')");
    assert_eq!(count(&mut other, "VACUUM"), 0);
    assert_eq!(warehouse.files(), files, "every file is young, or some snapshot has it");
    for table in ["t", "u", "unread"] {
        assert_eq!(one(&mut reader, &rows(table)), FILLED);
    }
    // Nothing but the newest snapshot is left. The reader's files are, and what it has seen of its snapshot
    // is enough.
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
        is_sound(&mut other, table);
    }
}

/// What a reader has not looked at before its snapshot expired it may be refused, and never sees otherwise.
#[test]
fn an_expired_snapshot_is_missed_and_not_made_up() {
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
fn a_writer_keeps_what_it_has_not_committed() {
    let warehouse = Warehouse::new();
    let (mut writer, mut other) = (warehouse.session(), warehouse.session());
    fill(&mut other, "t");
    fill(&mut other, "u");
    // Files of rows, and of places of deleted rows, of both isolation levels.
    for level in ["READ COMMITTED", "SERIALIZABLE"] {
        let before = one(&mut other, "SELECT count(*) FROM t");
        let files = warehouse.files();
        run(&mut writer, &format!("BEGIN ISOLATION LEVEL {level}"));
        run(&mut writer, "INSERT INTO t SELECT v, 'new' FROM generate_series(1000, 1099) AS g(v)");
        run(&mut writer, "DELETE FROM u WHERE a % 5 = 1");
        run(&mut writer, "CREATE TABLE c AS SELECT v FROM generate_series(1, 100) AS g(v)");
        let written = warehouse.files();
        assert!(written > files + 1, "rows and the new table are in files");
        // Others commit, forget and sweep meanwhile.
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
            is_sound(&mut other, table);
        }
        run(&mut other, "DROP TABLE c");
        run(&mut other, "DROP TABLE u");
        fill(&mut other, "u");
        // Who cannot find out any more what has happened since it began fails, and leaves nothing.
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
    // Rows that OPTIMIZE has moved meanwhile cannot be deleted where they were.
    run(&mut writer, "BEGIN");
    run(&mut writer, "DELETE FROM u WHERE a < 300");
    run(&mut other, "OPTIMIZE u");
    fails(&mut writer, "COMMIT", CONFLICT);
    assert_eq!(one(&mut writer, &rows("u")), FILLED);
    // And OPTIMIZE gives way to what was deleted before it ends.
    run(&mut other, "INSERT INTO u SELECT v, 'x' || v FROM generate_series(600, 650) AS g(v)");
    run(&mut other, "BEGIN");
    run(&mut other, "OPTIMIZE u");
    run(&mut writer, "DELETE FROM u WHERE a = 1");
    fails(&mut other, "COMMIT", CONFLICT);
    assert_eq!(one(&mut writer, "SELECT count(*) FROM u"), "251");
    is_sound(&mut writer, "u");
}

/// Writers, readers and upkeep in processes of their own, until the writers are done. A transaction adds or
/// takes away rows whose values are zero together.
#[test]
fn upkeep_goes_on_beside_everything() {
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
    // Of the 30 rows of each transaction, those of every fifth are gone.
    let rows = WRITERS * TRANSACTIONS * 30 * 4 / 5;
    assert_eq!(one(&mut session, "SELECT count(*) FROM t"), rows.to_string());
    assert_eq!(one(&mut session, "SELECT sum(v) FROM t"), "0");
    is_sound(&mut session, "t");
    run(&mut session, "OPTIMIZE t");
    assert_eq!(one(&mut session, "SELECT count(*) FROM t"), rows.to_string());
}

/// The transaction `n` of a writer: 30 rows, of which few are kept in the catalog; every fifth one takes
/// those of the one before away.
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
    // Only what deletes can be in the way of OPTIMIZE.
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
