//! Backups concurrent with writes, OPTIMIZE, VACUUM and snapshot expiry.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harrier_catalog::{Catalog, reader_name};
use harrier_testkit::session::Session;

use super::{Places, text};
use crate::support::{assert_undamaged, count, one, run};

/// SQLSTATEs of conflicts between several sessions.
const CONFLICT: &str = "40001";

/// Two tables with the same rows in every snapshot.
const SUMS: [&str; 2] =
    ["SELECT count(*) || ' ' || sum(v) FROM t", "SELECT count(*) || ' ' || sum(v) FROM u"];

fn try_statement(session: &mut Session, sql: &str) {
    if let Err(failure) = session.run(sql) {
        assert_eq!(failure.sqlstate, CONFLICT, "{failure} of {sql}");
    }
}

#[test]
fn backups_during_writes_and_vacuum() {
    let places = Places::new();
    let mut first = places.warehouse.session();
    for table in ["t", "u"] {
        run(&mut first, &format!("CREATE TABLE {table} (k INT, v BIGINT)"));
        run(&mut first, &format!("INSERT INTO {table} SELECT 0, v FROM generate_series(1, 1000) AS g(v)"));
    }
    let (is_done, expires) = (AtomicBool::new(false), AtomicBool::new(true));
    let end = Instant::now() + Duration::from_secs(120);
    let goes_on = || !is_done.load(Ordering::Relaxed) && Instant::now() < end;
    std::thread::scope(|scope| {
        // Also if the test fails.
        let _done = OnDrop(&is_done);
        scope.spawn(|| {
            let mut writer = places.warehouse.session();
            for step in (1..).take_while(|_| goes_on()) {
                run(&mut writer, "BEGIN");
                for table in ["t", "u"] {
                    run(
                        &mut writer,
                        &format!("INSERT INTO {table} SELECT {step}, v FROM generate_series(1, 100) AS g(v)"),
                    );
                }
                try_statement(&mut writer, "COMMIT");
                run(&mut writer, "BEGIN");
                // Before OPTIMIZE has rewritten the rows, or not at all.
                let deleted = ["t", "u"]
                    .map(|table| writer.run(&format!("DELETE FROM {table} WHERE k = {step} AND v % 3 = 0")));
                match deleted.iter().all(Result::is_ok) {
                    true => try_statement(&mut writer, "COMMIT"),
                    false => run(&mut writer, "ROLLBACK"),
                }
            }
        });
        scope.spawn(|| {
            let mut sweeper = places.warehouse.session();
            run(&mut sweeper, "SET harrier.vacuum_age_seconds = 0");
            while goes_on() {
                try_statement(&mut sweeper, "OPTIMIZE t");
                try_statement(&mut sweeper, "OPTIMIZE u");
                if expires.load(Ordering::Relaxed) {
                    try_statement(&mut sweeper, "CALL expire_snapshots('0 seconds')");
                }
                try_statement(&mut sweeper, "VACUUM");
            }
        });
        for number in 0..5 {
            // The original still has the snapshots of later backups.
            expires.store(number < 2, Ordering::Relaxed);
            let backup_report = places.backup(&[]);
            let to = places.at(&format!("restored {number}"));
            let mut restored = places.open_restored(&to, &[]);
            let [t, u] = SUMS.map(|sum| one(&mut restored, sum));
            assert_eq!(t, u, "{backup_report:?}");
            if number > 2 {
                assert_eq!(
                    t,
                    one(&mut first, &format!("{} AS OF SNAPSHOT {}", SUMS[0], backup_report.snapshot)),
                    "{backup_report:?}"
                );
            }
            assert_undamaged(&mut restored, "t");
            assert_undamaged(&mut restored, "u");
        }
    });
    let check_run = places.check();
    assert_eq!(check_run.status, Some(0), "{}", check_run.stdout);
}

struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// VACUUM and expiry know the snapshots being copied, and keep their files until the copy is done.
#[test]
fn vacuum_keeps_files_being_copied() {
    let places = Places::new();
    let mut session = places.warehouse.session();
    run(&mut session, "CREATE TABLE t AS SELECT v FROM generate_series(1, 1000) AS g(v)");
    run(&mut session, "SET harrier.vacuum_age_seconds = 0");
    let url = format!("sqlite:{}", text(&places.warehouse.folder().join("catalog.sqlite")));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let catalog = runtime.block_on(Catalog::open(&url)).unwrap();
    let name = reader_name();
    assert!(runtime.block_on(catalog.register_writer(&name)).unwrap());
    let mut copied = Vec::new();
    let mut put = |line| {
        copied.push(line);
        Ok(())
    };
    let files = runtime.block_on(catalog.copy_out(&mut put)).unwrap().files;
    assert!(!files.is_empty());
    run(&mut session, "TRUNCATE t");
    run(&mut session, "CALL expire_snapshots('0 seconds')");
    assert_eq!(count(&mut session, "VACUUM"), 0);
    let there = |expected: bool| {
        files.iter().for_each(|file| assert_eq!(std::path::Path::new(&file.source).exists(), expected))
    };
    there(true);
    // Abandoned files are removed nevertheless.
    run(&mut session, "BEGIN");
    run(&mut session, "INSERT INTO t SELECT v FROM generate_series(1, 1000) AS g(v)");
    run(&mut session, "ROLLBACK");
    runtime.block_on(catalog.unregister_writers(&[name].into())).unwrap();
    assert_eq!(count(&mut session, "VACUUM"), files.len() as u64);
    there(false);
}
