//! Ownership of files: warehouses that are copied, moved, or share or nest data folders, beside foreign
//! files. Files that a warehouse has not written stay, and the tables of another warehouse stay unchanged.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use harrier_testkit::session::{Configuration, Session};
use tempfile::TempDir;

use crate::support::{MARKER, fails, one, run, table};

/// object_not_in_prerequisite_state.
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

/// Creates a table with a hundred rows in a file.
fn create_warehouse(warehouse: &Path, data: Option<&Path>) {
    let mut session = session(warehouse, data);
    run(&mut session, "CREATE TABLE t (v BIGINT)");
    run(&mut session, &format!("INSERT INTO t {ROWS}"));
}

fn sum(session: &mut Session) -> String {
    assert_eq!(table(session, "CHECK TABLE t"), Vec::<Vec<Option<String>>>::new());
    one(session, "SELECT count(*) || ' ' || sum(v) FROM t")
}

/// Removes all files that may be removed.
fn vacuum_all(session: &mut Session) {
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
    let mut paths = BTreeSet::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path().is_dir() {
            true => paths.extend(files(&entry.path())),
            false => drop(paths.insert(entry.path())),
        }
    }
    paths
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
fn copied_warehouse_owns_its_copies() {
    let (_folder, a, b) = folders();
    create_warehouse(&a, None);
    copy(&a, &b);
    run(&mut session(&a, None), "INSERT INTO t SELECT v FROM generate_series(101, 200) AS g(v)");
    let of_a = files(&a.join("data"));
    // The copy vacuums before and after its first write.
    let mut copied = session(&b, None);
    vacuum_all(&mut copied);
    assert_eq!(files(&a.join("data")), of_a);
    run(&mut copied, "INSERT INTO t SELECT v FROM generate_series(201, 300) AS g(v)");
    run(&mut copied, "DELETE FROM t WHERE v % 2 = 0");
    vacuum_all(&mut copied);
    assert_eq!(files(&a.join("data")), of_a);
    assert_eq!(sum(&mut session(&a, None)), "200 20100");
    assert_eq!(sum(&mut copied), "100 15000");
    assert_ne!(owner(&a.join("data")), owner(&b.join("data")));
    // Vice versa.
    let of_b = files(&b.join("data"));
    vacuum_all(&mut session(&a, None));
    assert_eq!(files(&b.join("data")), of_b);
    assert_eq!(sum(&mut session(&a, None)), "200 20100");
    // An abandoned file of the original was copied too, and belongs to the copy there.
    let abandoned = format!("{}{}-0-0-0.parquet", &owner(&a.join("data"))[..12], "0".repeat(20));
    fs::write(b.join("data").join(&abandoned), "PAR1").unwrap();
    run(&mut copied, "VACUUM");
    assert!(!b.join("data").join(&abandoned).exists());
}

#[test]
fn moved_warehouse_keeps_its_files() {
    let (_folder, a, b) = folders();
    create_warehouse(&a, None);
    let id = owner(&a.join("data"));
    fs::rename(&a, &b).unwrap();
    assert_eq!(sum(&mut session(&b, None)), "100 5050");
    let mut moved = session(&b, None);
    run(&mut moved, "INSERT INTO t SELECT v FROM generate_series(101, 200) AS g(v)");
    vacuum_all(&mut moved);
    assert_eq!(sum(&mut moved), "200 20100");
    assert!(!a.exists(), "{:?}", files(&a));
    assert_eq!(owner(&b.join("data")), id);
    // Another warehouse may be created at the old place.
    create_warehouse(&a, None);
    vacuum_all(&mut session(&a, None));
    assert_eq!(sum(&mut session(&b, None)), "200 20100");
}

#[test]
fn data_folder_belongs_to_one_catalog() {
    let (folder, a, b) = folders();
    let shared = folder.path().join("shared");
    create_warehouse(&a, Some(&shared));
    let there = files(&shared);
    let failure = fails(&mut session(&b, Some(&shared)), "CREATE TABLE t (v BIGINT)", NOT_IN_STATE);
    assert!(failure.message.contains("/a/catalog.sqlite"), "{failure}");
    // Nothing was created, so another folder can be named. A folder within it is refused as well.
    let within = shared.join("deep/er");
    fails(&mut session(&b, Some(&within)), "CREATE TABLE t (v BIGINT)", NOT_IN_STATE);
    create_warehouse(&b, Some(&folder.path().join("other")));
    assert_eq!(files(&shared), there);
    // A warehouse around it leaves it alone.
    let c = folder.path().join("c");
    create_warehouse(&c, Some(folder.path()));
    vacuum_all(&mut session(&c, None));
    assert_eq!(files(&shared), there);
    assert_eq!(sum(&mut session(&a, None)), "100 5050");
    assert_eq!(sum(&mut session(&b, None)), "100 5050");
}

#[test]
fn copied_catalog_does_not_own_the_files() {
    let (folder, a, b) = folders();
    let data = folder.path().join("data");
    create_warehouse(&a, Some(&data));
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
    // A copy of the files is owned by the copied catalog, if it is named.
    let second = folder.path().join("second");
    copy(&data, &second);
    let mut apart = session(&b, Some(&second));
    run(&mut apart, &format!("INSERT INTO t {ROWS}"));
    vacuum_all(&mut apart);
    assert_eq!(sum(&mut apart), "200 10100");
    assert_eq!(sum(&mut session(&b, None)), "200 10100");
    assert_eq!(files(&data), there);
    assert_eq!(sum(&mut session(&a, None)), "100 5050");
    // A catalog from elsewhere may adopt the folder of a deleted one.
    let c = folder.path().join("c");
    copy(&a, &c);
    fs::remove_dir_all(&a).unwrap();
    let mut heir = session(&c, None);
    fails(&mut heir, "VACUUM", NOT_IN_STATE);
    run(&mut heir, "CALL adopt_data_folder()");
    run(&mut heir, &format!("INSERT INTO t {ROWS}"));
    vacuum_all(&mut heir);
    assert_eq!(sum(&mut heir), "200 10100");
}

#[test]
fn changing_the_data_folder_is_refused() {
    let (folder, a, b) = folders();
    create_warehouse(&a, None);
    let elsewhere = folder.path().join("elsewhere");
    let failure = fails(&mut session(&a, Some(&elsewhere)), "SELECT sum(v) FROM t", NOT_IN_STATE);
    assert!(failure.message.contains("elsewhere"), "{failure}");
    assert!(!elsewhere.exists());
    create_warehouse(&b, None);
    fails(&mut session(&a, Some(&b.join("data"))), "SELECT sum(v) FROM t", NOT_IN_STATE);
    // The folder it has may be named again, also by another path.
    for same in [a.join("data"), a.join("../a/data/"), b.join("../a/data")] {
        assert_eq!(sum(&mut session(&a, Some(&same))), "100 5050");
    }
}

#[test]
fn foreign_files_stay_and_are_listed() {
    let (_folder, a, _) = folders();
    let data = a.join("data");
    create_warehouse(&a, None);
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
    let listed_files = |session: &mut Session| -> BTreeSet<(PathBuf, String)> {
        let rows = table(session, "VACUUM DRY RUN");
        rows.into_iter().map(|row| (row[0].clone().unwrap().into(), row[1].clone().unwrap())).collect()
    };
    let unknown = |path: &PathBuf| (path.clone(), "unknown, not removed".to_string());
    assert_eq!(listed_files(&mut session), others.iter().map(unknown).collect(), "one is young");
    run(&mut session, "SET harrier.vacuum_age_seconds = 0");
    let mut expected: BTreeSet<_> = others.iter().map(unknown).collect();
    expected.insert((abandoned.clone(), "abandoned".to_string()));
    assert_eq!(listed_files(&mut session), expected);
    assert!(abandoned.exists());
    run(&mut session, "OPTIMIZE t");
    run(&mut session, "INSERT OVERWRITE t SELECT 7::BIGINT FROM generate_series(1, 50)");
    run(&mut session, "CALL expire_snapshots('0 seconds')");
    assert!(listed_files(&mut session).iter().any(|(_, status)| status == "expired"));
    run(&mut session, "VACUUM");
    assert!(!abandoned.exists());
    let remaining = files(&data);
    assert!(others.is_subset(&remaining), "{remaining:?}");
    assert_eq!(listed_files(&mut session), others.iter().map(unknown).collect());
    assert_eq!(one(&mut session, "SELECT count(*) FROM e"), "100");
    assert_eq!(sum(&mut session), "50 350");
}
