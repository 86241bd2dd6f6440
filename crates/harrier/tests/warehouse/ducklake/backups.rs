//! Backups of warehouses written by DuckDB, including registered files; DuckDB continues with the restored
//! warehouse.

use super::*;
use crate::command::BINARY;

fn harrier(args: &[&str]) {
    let output = Command::new(BINARY).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn backup_of_a_duckdb_warehouse() {
    if is_skipped() {
        return;
    }
    let lake = Lake::new();
    let mut session = lake.harrier();
    run(&mut session, "CREATE TABLE t (a BIGINT, b TEXT)");
    run(&mut session, "INSERT INTO t SELECT v, 'x' || v FROM generate_series(1, 1000) AS g(v)");
    let registered_file = lake.0.path().join("given.parquet");
    let mut duck = Duck::attach(&lake);
    duck.run("INSERT INTO t SELECT range, 'duck' FROM range(5000, 5100)");
    duck.run(&format!("COPY (SELECT 7::BIGINT AS a, 'given' AS b) TO '{}'", registered_file.display()));
    duck.run(&format!("CALL ducklake_add_data_files('lake', 't', '{}')", registered_file.display()));
    duck.run("DELETE FROM t WHERE a % 10 = 0");
    duck.run("CREATE TABLE own AS SELECT 1 AS x");
    let (target, restored) = (lake.0.path().join("backups"), Lake::new());
    let place = lake.folder();
    harrier(&["backup", "--warehouse", place.to_str().unwrap(), target.to_str().unwrap()]);
    let expected = rows(&mut session, "SELECT count(*), sum(a), count(DISTINCT b) FROM t");
    // Deletes the original, and files elsewhere.
    drop((session, duck));
    std::fs::remove_dir_all(place).unwrap();
    std::fs::remove_file(registered_file).unwrap();
    harrier(&["restore", target.to_str().unwrap(), "--warehouse", restored.folder().to_str().unwrap()]);
    let (mut session, mut duck) = (restored.harrier(), Duck::attach(&restored));
    let questions = ["SELECT count(*), sum(a), count(DISTINCT b) FROM t", "SELECT x FROM own"];
    assert_eq!(rows(&mut session, questions[0]), expected);
    assert_equal_answers(&mut session, &mut duck, &questions);
    assert_eq!(rows(&mut session, "CHECK TABLE t"), Vec::<Vec<Option<String>>>::new());
    duck.run("INSERT INTO t SELECT range, 'more' FROM range(6000, 6100)");
    duck.run("DELETE FROM t WHERE b = 'given'");
    run(&mut session, "UPDATE t SET b = 'ours' WHERE a < 100");
    assert_equal_answers(&mut session, &mut duck, &questions);
}
