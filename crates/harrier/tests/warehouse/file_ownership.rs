//! Whose files they are: warehouses that are copied, moved, given one folder or folders within one another,
//! beside files of others. A model of few words: what a warehouse has not written stays, and what another one
//! shows stays the same.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use harrier_testkit::session::{Configuration, Session};
use tempfile::TempDir;

use crate::support::{MARKER, fails, one, run, table};

/// An object is not in the state that is needed for it.
const NOT_IN_STATE: &str = "55000";

/// Enough rows for a file.
const ROWS: &str = "SELECT v FROM generate_series(1, 100) AS g(v)";

fn session(warehouse: &Path, data: Option<&Path>) -> Session {
    let mut configuration = Configuration::embedded().with_warehouse(warehouse);
    if let Some(data) = data {
        configuration = configuration.with_arguments(["--data", data.to_str().unwrap()]);
    }
    Session::start(&configuration).unwrap()
}

/// Makes a table with a hundred rows in a file.
fn make(warehouse: &Path, data: Option<&Path>) {
    let mut session = session(warehouse, data);
    run(&mut session, "CREATE TABLE t (v BIGINT)");
    run(&mut session, &format!("INSERT INTO t {ROWS}"));
}

fn sum(session: &mut Session) -> String {
    assert_eq!(table(session, "CHECK TABLE t"), Vec::<Vec<Option<String>>>::new());
    one(session, "SELECT count(*) || ' ' || sum(v) FROM t")
}

/// Removes all that may be removed.
fn sweep(session: &mut Session) {
    for sql in
        ["SET harrier.vacuum_age_seconds = 0", "OPTIMIZE t", "CALL expire_snapshots('0 seconds')", "VACUUM"]
    {
        run(session, sql);
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path().is_dir() {
            true => found.extend(files(&entry.path())),
            false => drop(found.insert(entry.path())),
        }
    }
    found
}

fn owner(data: &Path) -> String {
    let marker = fs::read_to_string(data.join(MARKER)).unwrap();
    marker.lines().find_map(|line| line.strip_prefix("warehouse = ")).unwrap().to_string()
}

fn folders() -> (TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    (folder, a, b)
}

#[test]
fn a_copy_is_a_warehouse_of_its_own() {
    let (_folder, a, b) = folders();
    make(&a, None);
    copy(&a, &b);
    run(&mut session(&a, None), "INSERT INTO t SELECT v FROM generate_series(101, 200) AS g(v)");
    let of_a = files(&a.join("data"));
    // The copy sweeps before it has written, and after.
    let mut copied = session(&b, None);
    sweep(&mut copied);
    assert_eq!(files(&a.join("data")), of_a);
    run(&mut copied, "INSERT INTO t SELECT v FROM generate_series(201, 300) AS g(v)");
    run(&mut copied, "DELETE FROM t WHERE v % 2 = 0");
    sweep(&mut copied);
    assert_eq!(files(&a.join("data")), of_a);
    assert_eq!(sum(&mut session(&a, None)), "200 20100");
    assert_eq!(sum(&mut copied), "100 15000");
    assert_ne!(owner(&a.join("data")), owner(&b.join("data")));
    // And the other way round.
    let of_b = files(&b.join("data"));
    sweep(&mut session(&a, None));
    assert_eq!(files(&b.join("data")), of_b);
    assert_eq!(sum(&mut session(&a, None)), "200 20100");
    // What the original has left abandoned was copied too, and is the copy's own there.
    let abandoned = format!("{}{}-0-0-0.parquet", &owner(&a.join("data"))[..12], "0".repeat(20));
    fs::write(b.join("data").join(&abandoned), "PAR1").unwrap();
    run(&mut copied, "VACUUM");
    assert!(!b.join("data").join(&abandoned).exists());
}

#[test]
fn a_folder_that_was_moved_is_the_same_warehouse() {
    let (_folder, a, b) = folders();
    make(&a, None);
    let id = owner(&a.join("data"));
    fs::rename(&a, &b).unwrap();
    assert_eq!(sum(&mut session(&b, None)), "100 5050");
    let mut moved = session(&b, None);
    run(&mut moved, "INSERT INTO t SELECT v FROM generate_series(101, 200) AS g(v)");
    sweep(&mut moved);
    assert_eq!(sum(&mut moved), "200 20100");
    assert!(!a.exists(), "{:?}", files(&a));
    assert_eq!(owner(&b.join("data")), id);
    // Another one may be made where it was.
    make(&a, None);
    sweep(&mut session(&a, None));
    assert_eq!(sum(&mut session(&b, None)), "200 20100");
}

#[test]
fn a_data_folder_is_one_catalogs() {
    let (folder, a, b) = folders();
    let shared = folder.path().join("shared");
    make(&a, Some(&shared));
    let there = files(&shared);
    let failure = fails(&mut session(&b, Some(&shared)), "CREATE TABLE t (v BIGINT)", NOT_IN_STATE);
    assert!(failure.message.contains("/a/catalog.sqlite"), "{failure}");
    // Nothing was made, so that another folder can be named. One within it is refused as well.
    let within = shared.join("deep/er");
    fails(&mut session(&b, Some(&within)), "CREATE TABLE t (v BIGINT)", NOT_IN_STATE);
    make(&b, Some(&folder.path().join("other")));
    assert_eq!(files(&shared), there);
    // One around it sweeps past it.
    let c = folder.path().join("c");
    make(&c, Some(folder.path()));
    sweep(&mut session(&c, None));
    assert_eq!(files(&shared), there);
    assert_eq!(sum(&mut session(&a, None)), "100 5050");
    assert_eq!(sum(&mut session(&b, None)), "100 5050");
}

#[test]
fn a_copied_catalog_leaves_the_files_to_the_original() {
    let (folder, a, b) = folders();
    let data = folder.path().join("data");
    make(&a, Some(&data));
    copy(&a, &b);
    let there = files(&data);
    let mut copied = session(&b, None);
    assert_eq!(sum(&mut copied), "100 5050");
    for sql in [&format!("INSERT INTO t {ROWS}"), "VACUUM", "VACUUM DRY RUN"] {
        let failure = fails(&mut copied, sql, NOT_IN_STATE);
        assert!(failure.message.contains("is a copy"), "{failure}");
    }
    assert_eq!(files(&data), there);
    assert_eq!(sum(&mut session(&a, None)), "100 5050");
    // A copy of the files is its own, if it is named.
    let second = folder.path().join("second");
    copy(&data, &second);
    let mut apart = session(&b, Some(&second));
    run(&mut apart, &format!("INSERT INTO t {ROWS}"));
    sweep(&mut apart);
    assert_eq!(sum(&mut apart), "200 10100");
    assert_eq!(sum(&mut session(&b, None)), "200 10100");
    assert_eq!(files(&data), there);
    assert_eq!(sum(&mut session(&a, None)), "100 5050");
    // A catalog that comes from somewhere else can be given the folder of one that is no more.
    let c = folder.path().join("c");
    copy(&a, &c);
    fs::remove_dir_all(&a).unwrap();
    let mut heir = session(&c, None);
    fails(&mut heir, "VACUUM", NOT_IN_STATE);
    run(&mut heir, "CALL adopt_data_folder()");
    run(&mut heir, &format!("INSERT INTO t {ROWS}"));
    sweep(&mut heir);
    assert_eq!(sum(&mut heir), "200 10100");
}

#[test]
fn another_folder_than_the_warehouses_is_refused() {
    let (folder, a, b) = folders();
    make(&a, None);
    let elsewhere = folder.path().join("elsewhere");
    let failure = fails(&mut session(&a, Some(&elsewhere)), "SELECT sum(v) FROM t", NOT_IN_STATE);
    assert!(failure.message.contains("elsewhere"), "{failure}");
    assert!(!elsewhere.exists());
    make(&b, None);
    fails(&mut session(&a, Some(&b.join("data"))), "SELECT sum(v) FROM t", NOT_IN_STATE);
    // The one that it has may be said again, in other words too.
    for same in [a.join("data"), a.join("../a/data/"), b.join("../a/data")] {
        assert_eq!(sum(&mut session(&a, Some(&same))), "100 5050");
    }
}

#[test]
fn files_of_others_stay_and_are_listed() {
    let (_folder, a, _) = folders();
    let data = a.join("data");
    make(&a, None);
    let own = files(&data);
    let mut session = session(&a, None);
    let here = data.display();
    run(
        &mut session,
        &format!("CREATE EXTERNAL TABLE e (v BIGINT) STORED AS PARQUET LOCATION '{here}/ext/'"),
    );
    run(&mut session, &format!("INSERT INTO e {ROWS}"));
    for name in ["raw/year=2024/a.parquet", "b.parquet", "main/t/c.parquet", "notes.txt"] {
        let path = data.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "somebody's").unwrap();
    }
    let others: BTreeSet<PathBuf> = files(&data).difference(&own).cloned().collect();
    assert!(others.len() > 4);
    let abandoned = data.join(format!("main/t/{}{}-0-0-0.parquet", &owner(&data)[..12], "0".repeat(20)));
    fs::write(&abandoned, "PAR1").unwrap();
    let listed = |session: &mut Session| -> BTreeSet<(PathBuf, String)> {
        let rows = table(session, "VACUUM DRY RUN");
        rows.into_iter().map(|row| (row[0].clone().unwrap().into(), row[1].clone().unwrap())).collect()
    };
    let unknown = |path: &PathBuf| (path.clone(), "unknown, not removed".to_string());
    assert_eq!(listed(&mut session), others.iter().map(unknown).collect(), "one is young");
    run(&mut session, "SET harrier.vacuum_age_seconds = 0");
    let mut expected: BTreeSet<_> = others.iter().map(unknown).collect();
    expected.insert((abandoned.clone(), "abandoned".to_string()));
    assert_eq!(listed(&mut session), expected);
    assert!(abandoned.exists());
    run(&mut session, "OPTIMIZE t");
    run(&mut session, "INSERT OVERWRITE t SELECT 7::BIGINT FROM generate_series(1, 50)");
    run(&mut session, "CALL expire_snapshots('0 seconds')");
    assert!(listed(&mut session).iter().any(|(_, status)| status == "expired"));
    run(&mut session, "VACUUM");
    assert!(!abandoned.exists());
    let left = files(&data);
    assert!(others.is_subset(&left), "{left:?}");
    assert_eq!(listed(&mut session), others.iter().map(unknown).collect());
    assert_eq!(one(&mut session, "SELECT count(*) FROM e"), "100");
    assert_eq!(sum(&mut session), "50 350");
}
