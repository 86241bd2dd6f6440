//! A data folder that is full, or that may only be read: what has to write there fails with its SQLSTATE, the
//! tables are what they were, and no file stays. What needs no file goes on.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use harrier_launch::Launcher;
use harrier_testkit::session::{Configuration, Session};

use crate::support::{Mounted, Warehouse, count, fails, files_below, is_sound, one, run};

const DISK_FULL: &str = "53100";
const READ_ONLY: &str = "25006";
const IO_ERROR: &str = "58030";
const NO_TABLE: &str = "42P01";

/// Bytes of a disk that holds the tables below and not [`MANY`], which take thrice as many however they are
/// compressed.
const DISK_BYTES: u64 = 2 << 20;
const MANY: &str = "SELECT v, md5(v::text) AS b FROM generate_series(1, 400000) AS g(v)";
const FEW: &str = "SELECT v, 'few' AS b FROM generate_series(1, 100) AS g(v)";

/// A table of three files and a row that the catalog keeps.
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

/// Takes all the room that is left.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    for bytes in [vec![7; 64 << 10], vec![7; 1]] {
        while file.write(&bytes).is_ok_and(|written| written > 0) {}
    }
}

/// Every statement fails with `state`, and nothing has come of it.
fn nothing_comes_of(warehouse: &Warehouse, session: &mut Session, sqlstate: &str, statements: &[String]) {
    let (before, files) = (state(session), warehouse.files());
    for sql in statements {
        fails(session, sql, sqlstate);
        warehouse.settles_at(files, sql);
        assert_eq!(state(session), before, "{sql}");
        fails(session, "SELECT * FROM c", NO_TABLE);
    }
    is_sound(session, "t");
}

/// What writes rows, or places of rows, and has no room for them.
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
    let Some(_disk) = Mounted::in_memory(&warehouse.data(), DISK_BYTES) else { return };
    let mut session = Session::start(&configuration(&warehouse)).unwrap();
    let session = &mut session;
    make_table(session);
    let files = warehouse.files();
    // Room ends on the way, with some files done and others begun.
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
    nothing_comes_of(&warehouse, session, DISK_FULL, &large);
    assert_eq!(warehouse.files(), files);
    // In a transaction it is the transaction that fails, with all its files, or what follows a savepoint.
    let before = state(session);
    run(session, "BEGIN");
    run(session, &format!("INSERT INTO t {FEW}"));
    fails(session, &large[0], DISK_FULL);
    fails(session, "SELECT 1", "25P02");
    run(session, "COMMIT");
    warehouse.settles_at(files, "the transaction");
    assert_eq!(state(session), before);
    run(session, "BEGIN");
    run(session, &format!("INSERT INTO t {FEW}"));
    let written = warehouse.files();
    run(session, "SAVEPOINT here");
    fails(session, &large[0], DISK_FULL);
    run(session, "ROLLBACK TO here");
    run(session, "COMMIT");
    warehouse.settles_at(written, "what was written before the savepoint");
    assert_eq!(one(session, "SELECT count(*) FROM t WHERE b = 'few'"), "100");
    assert_eq!(one(session, "SELECT count(*) FROM t"), "3101");
    is_sound(session, "t");
    // No room at all. What the catalog keeps needs none here.
    let filling = warehouse.data().join("filling");
    fill(&filling);
    nothing_comes_of(&warehouse, session, DISK_FULL, &writers());
    run(session, "INSERT INTO t VALUES (5001, 'kept as well')");
    assert_eq!(count(session, "DELETE FROM t WHERE a = 7"), 2);
    run(session, "CREATE TABLE d (a INT)");
    assert_eq!(one(session, "SELECT count(*) FROM t"), "3100");
    // With room again there is nothing to sweep, and everything works.
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
    let referred = one(session, "SELECT count(*) FROM sys.data_files");
    assert_eq!(warehouse.files().to_string(), referred, "OPTIMIZE has left no delete file");
    is_sound(session, "t");
}

#[test]
fn a_full_disk_leaves_the_tables_as_they_were() {
    check_full_disk(Warehouse::configuration);
}

/// Every rank writes, and the ones that had room remove what they have written.
#[test]
fn a_full_disk_leaves_the_tables_as_they_were_on_ranks() {
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
fn a_read_only_data_folder_is_read() {
    let warehouse = Warehouse::new();
    fs::create_dir_all(warehouse.data()).unwrap();
    let Some(mounted) = Mounted::again(&warehouse.data()) else { return };
    let mut session = warehouse.session();
    let session = &mut session;
    make_table(session);
    // What a sweep would remove: the files that OPTIMIZE has written anew.
    run(session, "OPTIMIZE t");
    run(session, "INSERT INTO t SELECT v, 'more' FROM generate_series(6000, 6099) AS g(v)");
    run(session, "INSERT INTO t VALUES (5001, 'kept')");
    run(session, "CALL expire_snapshots('0 seconds')");
    run(session, "SET harrier.vacuum_age_seconds = 0");
    let files = warehouse.files();
    assert_eq!(files, 5);
    mounted.set_read_only(true);
    nothing_comes_of(&warehouse, session, READ_ONLY, &writers());
    let failure = fails(session, &format!("INSERT INTO t {FEW}"), READ_ONLY);
    let place = warehouse.data().join("main/t").display().to_string();
    assert!(failure.message.starts_with(&format!("could not write to \"{place}")), "{failure}");
    fails(session, "VACUUM", IO_ERROR);
    assert_eq!(warehouse.files(), files);
    // The catalog is elsewhere.
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
    is_sound(session, "t");
}

#[test]
fn a_file_in_the_place_of_the_data_folder_is_told() {
    let warehouse = Warehouse::new();
    let mut session = warehouse.session();
    let session = &mut session;
    run(session, "CREATE TABLE t (a BIGINT, b TEXT)");
    run(session, "INSERT INTO t VALUES (1, 'kept')");
    assert_eq!(files_below(&warehouse.data()), 0);
    // Made with the first data file, or before.
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
    is_sound(session, "t");
}

/// The whole warehouse may only be read, and its catalog was not put in order when its last process was
/// killed.
#[test]
fn a_read_only_warehouse_is_read() {
    let warehouse = Warehouse::new();
    fs::create_dir_all(warehouse.folder()).unwrap();
    let Some(mounted) = Mounted::again(&warehouse.folder()) else { return };
    make_table(&mut warehouse.session());
    mounted.set_read_only(true);
    let mut session = warehouse.session();
    let session = &mut session;
    let before = state(session);
    assert!(before.starts_with("3001 "), "{before}");
    let kept = ["INSERT INTO t VALUES (1, 'x')", "CREATE TABLE c (a INT)", "CREATE SCHEMA s", "DROP TABLE t"];
    let kept = kept.map(str::to_string).to_vec();
    nothing_comes_of(&warehouse, session, READ_ONLY, &kept);
    nothing_comes_of(&warehouse, session, READ_ONLY, &writers());
    for sql in ["CALL expire_snapshots('0 seconds')", "ANALYZE t"] {
        fails(session, sql, READ_ONLY);
    }
    mounted.set_read_only(false);
    let mut session = warehouse.session();
    let session = &mut session;
    for sql in kept[..1].iter().chain(&writers()) {
        run(session, sql);
    }
    is_sound(session, "t");
}
