//! Catalog restored to an earlier state while processes have it open: sequence values. The catalog crate's
//! tests cover the caches of tables.

use std::path::Path;
use std::process::Command;

use harrier_testkit::session::Session;

use crate::external_table_listings::duckdb;
use crate::support::{Warehouse, one, run};

/// Copies one SQLite database over another one that others may have open.
const COPY: &str = r#"
import sqlite3, sys
source, target = map(sqlite3.connect, sys.argv[1:])
source.backup(target)
target.close()
"#;

fn copy(python: &Path, source: &Path, target: &Path) {
    let copy_output = Command::new(python).args(["-c", COPY]).args([source, target]).output().unwrap();
    assert!(copy_output.status.success(), "{}", String::from_utf8_lossy(&copy_output.stderr));
}

fn next(session: &mut Session, count: usize) -> Vec<i64> {
    (0..count).map(|_| one(session, "SELECT nextval('s')").parse().unwrap()).collect()
}

/// Cached values of a sequence (CACHE) are discarded if the restored catalog would give them again.
#[test]
fn sequence_values_are_unique_after_catalog_restore() {
    let Some(python) = duckdb() else { return };
    for (loses_commits, descends) in [(true, false), (true, true), (false, false), (false, true)] {
        let warehouse = Warehouse::new();
        let (mut first, mut second) = (warehouse.session(), warehouse.session());
        let by = if descends { -1 } else { 1 };
        run(&mut first, &format!("CREATE SEQUENCE s INCREMENT BY {by} CACHE 10"));
        run(&mut first, "CREATE TABLE t (a BIGINT)");
        let (catalog, backup_copy) =
            (warehouse.folder().join("catalog.sqlite"), warehouse.folder().with_file_name("kept"));
        copy(&python, &catalog, &backup_copy);
        assert_eq!(next(&mut first, 2), [by, 2 * by]);
        if loses_commits {
            run(&mut first, "INSERT INTO t VALUES (1)");
            assert_eq!(one(&mut first, "SELECT count(*) FROM t"), "1");
        }
        copy(&python, &backup_copy, &catalog);
        let mut values = Vec::new();
        if loses_commits {
            values.extend(next(&mut second, 3));
            assert_eq!(values, [by, 2 * by, 3 * by]);
        }
        values.extend(next(&mut first, 12));
        values.extend(next(&mut second, 12));
        let mut different = values.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), values.len(), "{values:?}");
    }
}

/// Without a restore, sessions use their cached values.
#[test]
fn cached_sequence_values_are_used_in_order() {
    let warehouse = Warehouse::new();
    let (mut first, mut second) = (warehouse.session(), warehouse.session());
    run(&mut first, "CREATE SEQUENCE s CACHE 5");
    assert_eq!(next(&mut first, 2), [1, 2]);
    assert_eq!(next(&mut second, 2), [6, 7]);
    run(&mut second, "CREATE TABLE t AS SELECT nextval('s') AS a FROM generate_series(1, 4)");
    assert_eq!(next(&mut first, 4), [3, 4, 5, 16]);
    assert_eq!(one(&mut second, "SELECT string_agg(a::text, ',' ORDER BY a) FROM t"), "8,9,10,11");
}
