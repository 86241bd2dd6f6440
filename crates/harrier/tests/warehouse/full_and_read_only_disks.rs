//! Full and read-only data folders: writes fail with their SQLSTATE, tables are unchanged, and no file is
//! left. Statements without files succeed.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use harrier_launch::Launcher;
use harrier_testkit::session::{Configuration, Session};

use crate::support::{Mount, Warehouse, assert_undamaged, count, fails, files_below, one, run};

const DISK_FULL: &str = "53100";
const READ_ONLY: &str = "25006";
const IO_ERROR: &str = "58030";
const NO_TABLE: &str = "42P01";

/// Size of a disk that holds the tables below but not [`MANY`], which takes three times as much however it is
/// compressed.
const DISK_BYTES: u64 = 2 << 20;
const MANY: &str = "SELECT v, md5(v::text) AS b FROM generate_series(1, 400000) AS g(v)";
const FEW: &str = "SELECT v, 'few' AS b FROM generate_series(1, 100) AS g(v)";

/// Creates a table with three files and an inlined row.
fn make_table(session: &mut Session) {
    run(session, "CREATE TABLE t (a BIGINT, b TEXT)");
    for part in 0..3 {
        let rows = format!("SELECT v, md5(v::text) FROM generate_series({part}000, {part}999) AS g(v)");
        run(session, &format!("INSERT INTO t {rows}"));
    }
    run(session, "INSERT INTO t VALUES (5000, 'kept')");
}

fn state(session: &mut Session) -> String {
    one(session, "SELECT count(*) || ' ' || sum(a) || ' ' || max(b) || ' ' || count(DISTINCT b) FROM t")
}

/// Fills the disk.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    for bytes in [vec![7; 64 << 10], vec![7; 1]] {
        while file.write(&bytes).is_ok_and(|written| written > 0) {}
    }
}

/// Asserts that every statement fails with `sqlstate` and has no effect.
fn assert_fails_without_effect(
    warehouse: &Warehouse,
    session: &mut Session,
    sqlstate: &str,
    statements: &[String],
) {
    let (before, files) = (state(session), warehouse.files());
    for sql in statements {
        fails(session, sql, sqlstate);
        warehouse.wait_for_files(files, sql);
        assert_eq!(state(session), before, "{sql}");
        fails(session, "SELECT * FROM c", NO_TABLE);
    }
    assert_undamaged(session, "t");
}

/// Statements that write data or delete files.
fn writers() -> Vec<String> {
    vec![
        format!("INSERT INTO t {FEW}"),
        format!("INSERT OVERWRITE t {FEW}"),
        format!("CREATE TABLE c AS {FEW}"),
        "UPDATE t SET b = 'other' WHERE a % 2 = 0".to_string(),
        "DELETE FROM t WHERE a % 2 = 0".to_string(),
        "OPTIMIZE t".to_string(),
    ]
}

fn check_full_disk(configuration: impl FnOnce(&Warehouse) -> Configuration) {
    let warehouse = Warehouse::new();
    let Some(_disk) = Mount::in_memory(&warehouse.data(), DISK_BYTES) else { return };
    let mut session = Session::start(&configuration(&warehouse)).unwrap();
    let session = &mut session;
    make_table(session);
    let files = warehouse.files();
    // The disk fills up while some files are written and others started.
    let merge = format!(
        "MERGE INTO t USING ({MANY}) s ON t.a = s.v + 1000000 WHEN NOT MATCHED THEN INSERT VALUES (s.v, s.b)"
    );
    let large = [
        format!("INSERT INTO t {MANY}"),
        format!("INSERT OVERWRITE t {MANY}"),
        format!("CREATE TABLE c AS {MANY}"),
        format!("CREATE TABLE c PARTITION BY (p) AS SELECT v % 7 AS p, b FROM ({MANY}) AS many"),
        format!("CREATE TABLE c WITH (target_file_bytes = '1MiB') AS {MANY}"),
        merge,
    ];
    assert_fails_without_effect(&warehouse, session, DISK_FULL, &large);
    assert_eq!(warehouse.files(), files);
    // In a transaction, all of it fails, or the statements after a savepoint.
    let before = state(session);
    run(session, "BEGIN");
    run(session, &format!("INSERT INTO t {FEW}"));
    fails(session, &large[0], DISK_FULL);
    fails(session, "SELECT 1", "25P02");
    run(session, "COMMIT");
    warehouse.wait_for_files(files, "the transaction");
    assert_eq!(state(session), before);
    run(session, "BEGIN");
    run(session, &format!("INSERT INTO t {FEW}"));
    let written = warehouse.files();
    run(session, "SAVEPOINT here");
    fails(session, &large[0], DISK_FULL);
    run(session, "ROLLBACK TO here");
    run(session, "COMMIT");
    warehouse.wait_for_files(written, "what was written before the savepoint");
    assert_eq!(one(session, "SELECT count(*) FROM t WHERE b = 'few'"), "100");
    assert_eq!(one(session, "SELECT count(*) FROM t"), "3101");
    assert_undamaged(session, "t");
    // No space at all. Inlined rows need none here.
    let filling = warehouse.data().join("filling");
    fill(&filling);
    assert_fails_without_effect(&warehouse, session, DISK_FULL, &writers());
    run(session, "INSERT INTO t VALUES (5001, 'kept as well')");
    assert_eq!(count(session, "DELETE FROM t WHERE a = 7"), 2);
    run(session, "CREATE TABLE d (a INT)");
    assert_eq!(one(session, "SELECT count(*) FROM t"), "3100");
    // With space again there is nothing to vacuum, and everything works.
    fs::remove_file(&filling).unwrap();
    let files = warehouse.files();
    run(session, "SET harrier.vacuum_age_seconds = 0");
    assert_eq!(count(session, "VACUUM"), 0);
    assert_eq!(warehouse.files(), files);
    for sql in writers() {
        run(session, &sql);
    }
    run(session, "CALL expire_snapshots('0 seconds')");
    assert!(count(session, "VACUUM") > 0);
    let referenced = one(session, "SELECT count(*) FROM sys.data_files");
    assert_eq!(warehouse.files().to_string(), referenced, "OPTIMIZE has left no delete file");
    assert_undamaged(session, "t");
}

#[test]
fn full_disk_changes_no_table() {
    check_full_disk(Warehouse::configuration);
}

/// Every rank writes, and ranks with space remove their files.
#[test]
fn full_disk_changes_no_table_on_ranks() {
    if harrier_launch::mpi_skipped() {
        return eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
    }
    let _turn = harrier_launch::gang_slot();
    check_full_disk(|warehouse| {
        Configuration::on_ranks("full-disk", &Launcher::open_mpi(2))
            .unwrap_or_else(|reason| panic!("{reason}"))
            .with_setting("harrier.check_ledger", "true")
            .with_warehouse(warehouse.folder())
    });
}

#[test]
fn read_only_data_folder() {
    let warehouse = Warehouse::new();
    fs::create_dir_all(warehouse.data()).unwrap();
    let Some(mounted) = Mount::bind(&warehouse.data()) else { return };
    let mut session = warehouse.session();
    let session = &mut session;
    make_table(session);
    // Files that VACUUM would remove: those replaced by OPTIMIZE.
    run(session, "OPTIMIZE t");
    run(session, "INSERT INTO t SELECT v, 'more' FROM generate_series(6000, 6099) AS g(v)");
    run(session, "INSERT INTO t VALUES (5001, 'kept')");
    run(session, "CALL expire_snapshots('0 seconds')");
    run(session, "SET harrier.vacuum_age_seconds = 0");
    let files = warehouse.files();
    assert_eq!(files, 5);
    mounted.set_read_only(true);
    assert_fails_without_effect(&warehouse, session, READ_ONLY, &writers());
    let failure = fails(session, &format!("INSERT INTO t {FEW}"), READ_ONLY);
    let place = warehouse.data().join("main/t").display().to_string();
    assert!(failure.message.starts_with(&format!("could not write to \"{place}")), "{failure}");
    fails(session, "VACUUM", IO_ERROR);
    assert_eq!(warehouse.files(), files);
    // The catalog is on another disk.
    run(session, "INSERT INTO t VALUES (5002, 'kept as well')");
    run(session, "CREATE TABLE d (a INT)");
    let before = state(session);
    mounted.set_read_only(false);
    assert_eq!(count(session, "VACUUM"), 3);
    assert_eq!(state(session), before);
    assert_eq!(warehouse.files(), 2);
    for sql in writers() {
        run(session, &sql);
    }
    assert_undamaged(session, "t");
}

#[test]
fn file_in_place_of_the_data_folder_is_an_error() {
    let warehouse = Warehouse::new();
    let mut session = warehouse.session();
    let session = &mut session;
    run(session, "CREATE TABLE t (a BIGINT, b TEXT)");
    run(session, "INSERT INTO t VALUES (1, 'kept')");
    assert_eq!(files_below(&warehouse.data()), 0);
    // With the first data file, or before.
    if warehouse.data().is_dir() {
        fs::remove_dir_all(warehouse.data()).unwrap();
    }
    fs::write(warehouse.data(), "").unwrap();
    for sql in [format!("INSERT INTO t {FEW}"), format!("CREATE TABLE c AS {FEW}"), "OPTIMIZE t".to_string()]
    {
        let failure = fails(session, &sql, IO_ERROR);
        assert!(failure.message.contains("Not a directory"), "{failure}");
        assert_eq!(state(session), "1 1 kept 1", "{sql}");
        fails(session, "SELECT * FROM c", NO_TABLE);
    }
    fs::remove_file(warehouse.data()).unwrap();
    run(session, &format!("INSERT INTO t {FEW}"));
    run(session, "OPTIMIZE t");
    assert_eq!(one(session, "SELECT count(*) FROM t"), "101");
    assert_undamaged(session, "t");
}

/// The whole warehouse is read-only, and its catalog has the WAL of a killed process.
#[test]
fn read_only_warehouse() {
    let warehouse = Warehouse::new();
    fs::create_dir_all(warehouse.folder()).unwrap();
    let Some(mounted) = Mount::bind(&warehouse.folder()) else { return };
    make_table(&mut warehouse.session());
    mounted.set_read_only(true);
    let mut session = warehouse.session();
    let session = &mut session;
    let before = state(session);
    assert!(before.starts_with("3001 "), "{before}");
    let inlined_writes =
        ["INSERT INTO t VALUES (1, 'x')", "CREATE TABLE c (a INT)", "CREATE SCHEMA s", "DROP TABLE t"];
    let inlined_writes = inlined_writes.map(str::to_string).to_vec();
    assert_fails_without_effect(&warehouse, session, READ_ONLY, &inlined_writes);
    assert_fails_without_effect(&warehouse, session, READ_ONLY, &writers());
    for sql in ["CALL expire_snapshots('0 seconds')", "ANALYZE t"] {
        fails(session, sql, READ_ONLY);
    }
    mounted.set_read_only(false);
    let mut session = warehouse.session();
    let session = &mut session;
    for sql in inlined_writes[..1].iter().chain(&writers()) {
        run(session, sql);
    }
    assert_undamaged(session, "t");
}
