//! A catalog that is put back to an earlier state while processes have it open. What they keep of tables is
//! in the catalog's own tests.

use std::path::Path;
use std::process::Command;

use harrier_testkit::session::Session;

use crate::external_table_listings::duckdb;
use crate::support::{Warehouse, one, run};

/// Writes all of one SQLite database over another one, which others may have open.
const COPY: &str = r#"
import sqlite3, sys
source, target = map(sqlite3.connect, sys.argv[1:])
source.backup(target)
target.close()
"#;

fn copy(python: &Path, source: &Path, target: &Path) {
    let done = Command::new(python).args(["-c", COPY]).args([source, target]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

fn next(session: &mut Session, count: usize) -> Vec<i64> {
    (0..count).map(|_| one(session, "SELECT nextval('s')").parse().unwrap()).collect()
}

/// What sessions have kept of a sequence with a CACHE is given up where the catalog would give it once more.
#[test]
fn no_value_of_a_sequence_is_given_twice_afterwards() {
    let Some(python) = duckdb() else { return };
    for (loses_commits, descends) in [(true, false), (true, true), (false, false), (false, true)] {
        let warehouse = Warehouse::new();
        let (mut first, mut second) = (warehouse.session(), warehouse.session());
        let by = if descends { -1 } else { 1 };
        run(&mut first, &format!("CREATE SEQUENCE s INCREMENT BY {by} CACHE 10"));
        run(&mut first, "CREATE TABLE t (a BIGINT)");
        let (catalog, kept) =
            (warehouse.folder().join("catalog.sqlite"), warehouse.folder().with_file_name("kept"));
        copy(&python, &catalog, &kept);
        assert_eq!(next(&mut first, 2), [by, 2 * by]);
        if loses_commits {
            run(&mut first, "INSERT INTO t VALUES (1)");
            assert_eq!(one(&mut first, "SELECT count(*) FROM t"), "1");
        }
        copy(&python, &kept, &catalog);
        let mut given = Vec::new();
        if loses_commits {
            given.extend(next(&mut second, 3));
            assert_eq!(given, [by, 2 * by, 3 * by]);
        }
        given.extend(next(&mut first, 12));
        given.extend(next(&mut second, 12));
        let mut different = given.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), given.len(), "{given:?}");
    }
}

/// Without it, they give what they have kept.
#[test]
fn values_that_are_kept_are_given_in_their_order() {
    let warehouse = Warehouse::new();
    let (mut first, mut second) = (warehouse.session(), warehouse.session());
    run(&mut first, "CREATE SEQUENCE s CACHE 5");
    assert_eq!(next(&mut first, 2), [1, 2]);
    assert_eq!(next(&mut second, 2), [6, 7]);
    run(&mut second, "CREATE TABLE t AS SELECT nextval('s') AS a FROM generate_series(1, 4)");
    assert_eq!(next(&mut first, 4), [3, 4, 5, 16]);
    assert_eq!(one(&mut second, "SELECT string_agg(a::text, ',' ORDER BY a) FROM t"), "8,9,10,11");
}
