//! `harrier backup` and `harrier restore`: complete restore under another name beside the original,
//! concurrent changes, detection of damage, and interrupted backups and restores.

mod concurrent_backups;
mod damaged_backups;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use harrier_launch::{Launcher, absent, finish, gang_slot};
use harrier_testkit::session::{Configuration, Session};
use tempfile::TempDir;

use crate::command::{BINARY, Run};
use crate::support::{MARKER, Warehouse, assert_undamaged, count, fails, files_below, one, run, table};

/// Timeout of a process.
const PATIENCE: Duration = Duration::from_secs(120);

/// A warehouse, a folder for backups, and folders for restores.
struct Places {
    warehouse: Warehouse,
    folder: TempDir,
}

impl Places {
    fn new() -> Self {
        Self { warehouse: Warehouse::new(), folder: tempfile::tempdir().unwrap() }
    }

    fn target(&self) -> PathBuf {
        self.folder.path().join("backups of lake")
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn backup(&self, more: &[&str]) -> Backup {
        let report = harrier(
            &[&["backup", "--warehouse", text(&self.warehouse.folder()), text(&self.target())], more]
                .concat(),
        );
        assert_eq!(report.status, Some(0), "{report:?}");
        Backup::of(&report.stdout)
    }

    fn restore(&self, to: &Path, more: &[&str]) -> Run {
        harrier(&[&["restore", text(&self.target()), "--warehouse", text(to)], more].concat())
    }

    /// Opens a session of a restored warehouse.
    fn open_restored(&self, to: &Path, more: &[&str]) -> Session {
        let restored = self.restore(to, more);
        assert_eq!(restored.status, Some(0), "{}", restored.stderr);
        session(to)
    }

    fn check(&self) -> Run {
        harrier(&["backup", "--check", text(&self.target())])
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn harrier(args: &[&str]) -> Run {
    Command::new(BINARY).args(args).output().unwrap().into()
}

fn session(warehouse: &Path) -> Session {
    Session::start(&Configuration::embedded().with_warehouse(warehouse)).unwrap()
}

/// Report of a successful backup.
#[derive(Debug)]
struct Backup {
    id: String,
    snapshot: u64,
    copied: usize,
    skipped: usize,
}

impl Backup {
    fn of(report_text: &str) -> Self {
        let words: Vec<&str> = report_text.lines().next().unwrap().split([' ', ':']).collect();
        let after =
            |word: &str, so_many: usize| words[words.iter().position(|one| *one == word).unwrap() + so_many];
        let files = |end: &str| {
            let before = &report_text[..report_text.find(end).unwrap()];
            let sentence = before.rsplit([',', ':']).next().unwrap();
            sentence.split_whitespace().next().unwrap().parse().unwrap()
        };
        Self {
            id: after("backup", 1).to_string(),
            snapshot: after("snapshot", 1).parse().unwrap(),
            copied: files(" copied"),
            skipped: files(" there already"),
        }
    }
}

#[track_caller]
fn assert_refused(run: &Run, sqlstate: &str, word: &str) {
    assert_eq!(run.status, Some(1), "{run:?}");
    assert!(run.stderr.starts_with(&format!("ERROR {sqlstate}: ")), "{}", run.stderr);
    assert!(run.stderr.contains(word), "{}", run.stderr);
}

/// Creates everything that a catalog can contain.
const EVERYTHING: &[&str] = &[
    "CREATE SCHEMA s",
    "CREATE TABLE t (id INT PRIMARY KEY, kind TEXT DEFAULT 'x', amount NUMERIC(10,2) CHECK (amount >= 0), at TIMESTAMPTZ) PARTITION BY (kind)",
    "INSERT INTO t SELECT v, 'k ' || v % 4, v * 1.5, timestamptz '2026-01-01 00:00+00' + v * interval '1 hour' FROM generate_series(1, 1000) AS g(v)",
    "CREATE TABLE s.r (a INT, b DOUBLE PRECISION, c BYTEA, d UUID, e INTERVAL, f JSON, g BOOLEAN)",
    "INSERT INTO s.r VALUES (1, 'NaN', '\\x00ff27', '0192f1c8-7a3b-7c4d-8e5f-1a2b3c4d5e6f', interval '1 month 2 days', '{\"a\": [1]}', true), (NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    "INSERT INTO t (id, amount) VALUES (2001, 1.25), (2002, NULL)",
    "DELETE FROM t WHERE id % 3 = 0",
    "CREATE TABLE ranges (a INT) PARTITION BY RANGE (a) (START (0) END (100) EVERY (50), DEFAULT PARTITION other)",
    "INSERT INTO ranges SELECT v FROM generate_series(1, 300) AS g(v)",
    "CREATE VIEW v AS SELECT kind, count(*) AS n FROM t GROUP BY kind",
    "CREATE SEQUENCE q START 5 INCREMENT 3",
    "SELECT nextval('q'), nextval('q')",
    "COMMENT ON TABLE t IS 'it''s a table'",
    "COMMENT ON COLUMN t.kind IS 'β'",
    "ALTER TABLE s.r ADD COLUMN h TEXT",
    "INSERT INTO s.r (a, h) VALUES (2, 'later')",
    "ANALYZE t",
    "CREATE ROLE reader",
    "CREATE ROLE ada LOGIN PASSWORD 'hush-hush'",
    "GRANT reader TO ada",
    "GRANT SELECT ON t TO reader",
    "CREATE RESOURCE QUEUE nightly WITH (ACTIVE_STATEMENTS=2)",
];

/// Queries that show all of it, without paths.
const SHOWN: &[&str] = &[
    "SELECT count(*), sum(id), sum(amount), min(at), max(at) FROM t",
    "SELECT kind, n FROM v ORDER BY kind",
    "SELECT * FROM s.r ORDER BY a, h",
    "SELECT count(*), sum(a) FROM ranges WHERE a BETWEEN 40 AND 120",
    "SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns WHERE table_schema IN ('main', 'public', 's') ORDER BY 1, 2",
    "SELECT conrelid::regclass, conname, contype, pg_get_constraintdef(oid) FROM pg_constraint ORDER BY 1, 2",
    "SELECT sequencename, start_value, increment_by, last_value FROM pg_sequences",
    "SELECT obj_description('t'::regclass), col_description('t'::regclass, 2)",
    "SELECT rolname, rolcanlogin, rolsuper FROM pg_roles ORDER BY 1",
    "SELECT grantee, table_name, privilege_type FROM information_schema.role_table_grants WHERE grantee = 'reader' ORDER BY 1, 2, 3",
    "SELECT * FROM sys.table_partitions ORDER BY 1, 2, 3",
    "SELECT attname, n_distinct, null_frac FROM pg_stats WHERE tablename = 't' ORDER BY 1",
    "SELECT * FROM sys.snapshots ORDER BY 1",
    "SELECT count(*), sum(id) FROM t AS OF SNAPSHOT 4",
];

#[test]
fn restore_under_another_name_is_complete_and_independent() {
    let places = Places::new();
    let mut first = places.warehouse.session();
    EVERYTHING.iter().for_each(|sql| drop(first.run(sql).unwrap_or_else(|error| panic!("{error} of {sql}"))));
    let report = places.backup(&[]);
    assert_eq!(report.skipped, 0);
    assert_eq!(report.copied, places.warehouse.files());
    let to = places.at("restored");
    let mut restored = places.open_restored(&to, &[]);
    for sql in SHOWN {
        let (expected, actual) = (first.run(sql), restored.run(sql));
        let expected = expected.unwrap_or_else(|error| panic!("{error} of {sql}"));
        assert_eq!(actual.unwrap_or_else(|error| panic!("{error} of {sql}")), expected, "{sql}");
    }
    for name in ["t", "s.r", "ranges"] {
        assert_undamaged(&mut restored, name);
    }
    assert_eq!(one(&mut restored, "SELECT nextval('q')"), one(&mut first, "SELECT nextval('q')"));
    fails(&mut restored, "INSERT INTO t VALUES (1, 'x', -1, NULL)", "23514");
    fails(&mut restored, "CREATE RESOURCE QUEUE nightly WITH (ACTIVE_STATEMENTS=2)", "42710");
    // The catalog is needed to find password hashes.
    let manifest = fs::read_to_string(places.target().join(format!("backups/{}.json", report.id))).unwrap();
    assert!(!manifest.contains("hush") && !manifest.contains("SCRAM"), "{manifest}");
    // Each warehouse vacuums its own files only.
    let owner = |folder: &Path| fs::read_to_string(folder.join("data").join(MARKER)).unwrap();
    assert_ne!(owner(&to), owner(&places.warehouse.folder()));
    let sum = "SELECT count(*) || ' ' || sum(id) FROM t";
    let before = one(&mut first, sum);
    for (session, other) in [(0, 1), (1, 0)] {
        let sessions = [&mut first, &mut restored];
        let expected = one(sessions[other], sum);
        let files = [places.warehouse.files(), files_below(&to.join("data"))];
        for sql in [
            "INSERT INTO t SELECT v, 'new', v, NULL FROM generate_series(5000, 5100) AS g(v)",
            "OPTIMIZE t",
            "CALL expire_snapshots('0 seconds')",
            "SET harrier.vacuum_age_seconds = 0",
        ] {
            run(sessions[session], sql);
        }
        assert!(count(sessions[session], "VACUUM") > 0);
        assert_eq!([places.warehouse.files(), files_below(&to.join("data"))][other], files[other]);
        assert_eq!(one(sessions[other], sum), expected);
        for name in ["t", "s.r", "ranges"] {
            assert_undamaged(sessions[session], name);
            assert_undamaged(sessions[other], name);
        }
    }
    assert_ne!(one(&mut first, sum), before);
    // The restored warehouse has its own backups elsewhere.
    let own = ["backup", "--warehouse", text(&to)];
    assert_refused(&harrier(&[&own[..], &[text(&places.target())]].concat()), "55000", "another warehouse");
    assert_eq!(harrier(&[&own[..], &[text(&places.at("own"))]].concat()).status, Some(0));
    // Restores the earlier backup again, whatever happened to the first restore.
    drop(first);
    fs::remove_dir_all(places.warehouse.folder()).unwrap();
    let mut again = places.open_restored(&places.warehouse.folder(), &["--backup", &report.id]);
    assert_eq!(one(&mut again, sum), before);
}

#[test]
fn incremental_backups_and_expiry() {
    let places = Places::new();
    let mut session = places.warehouse.session();
    let insert =
        |part: u32| format!("INSERT INTO t SELECT v FROM generate_series({part}000, {part}999) AS g(v)");
    run(&mut session, "CREATE TABLE t (v BIGINT)");
    run(&mut session, &insert(1));
    let first = places.backup(&[]);
    let files = first.copied;
    assert!(files > 0 && first.skipped == 0, "{first:?}");
    run(&mut session, &insert(2));
    let second = places.backup(&[]);
    assert_eq!(second.skipped, files, "{second:?}");
    assert_eq!(second.copied, places.warehouse.files() - files);
    let third = places.backup(&[]);
    assert_eq!((third.copied, third.skipped), (0, second.copied + files));
    assert!(third.snapshot == second.snapshot && first.snapshot < second.snapshot);
    let list_output = harrier(&["backup", "--list", text(&places.target())]).stdout;
    let ids: Vec<&str> = list_output.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(ids, [&first.id, &second.id, &third.id, "3"], "{list_output}");
    // A file of the backup that is missing or shorter is copied again.
    let damaged = data_files(&places.target());
    fs::remove_file(&damaged[0]).unwrap();
    fs::write(&damaged[1], b"short").unwrap();
    assert_eq!(places.backup(&[]).copied, 2);
    assert_eq!(places.check().status, Some(0));

    // Files of other programs with names similar to a backup's.
    let target = places.target();
    let mut foreign = [
        "note.txt",
        "backups/notes.json",
        "catalogs/mine.jsonl.zst",
        "files/mine.parquet",
        "files/main/t/readme",
        "files/x.unfinished",
    ]
    .map(|name| target.join(name));
    foreign.iter().for_each(|path| fs::write(path, "mine").unwrap());
    run(&mut session, "OPTIMIZE t");
    run(&mut session, "CALL expire_snapshots('0 seconds')");
    let last = places.backup(&["--keep", "2"]);
    assert!(last.copied > 0);
    let expected = files_below(&target);
    // Keeps only the newest backup, which needs none of the first files.
    let only = places.backup(&["--keep", "1"]);
    assert!(files_below(&target) < expected);
    let named = |folder: &str| {
        fs::read_dir(target.join(folder))
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        named("backups").iter().filter(|name| name.ends_with(".json") && *name != "notes.json").count(),
        1
    );
    assert!(named("backups").contains(&format!("{}.json", only.id)));
    assert_eq!(named("catalogs").len(), 2);
    foreign.sort();
    foreign.iter().for_each(|path| assert_eq!(fs::read_to_string(path).unwrap(), "mine"));
    let own = data_files(&target).into_iter().filter(|path| !foreign.contains(path)).count();
    assert_eq!(own, only.skipped + only.copied);
    assert_eq!(places.check().status, Some(0));
    let mut restored = places.open_restored(&places.at("restored"), &[]);
    assert_eq!(
        one(&mut restored, "SELECT count(*) || ' ' || sum(v) FROM t"),
        one(&mut session, "SELECT count(*) || ' ' || sum(v) FROM t")
    );
}

/// Below the folder of data files.
fn data_files(target: &Path) -> Vec<PathBuf> {
    fn walk(folder: &Path, paths: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            match entry.path().is_dir() {
                true => walk(&entry.path(), paths),
                false if entry.path().extension().is_some_and(|end| end == "parquet") => {
                    paths.push(entry.path())
                }
                false => {}
            }
        }
    }
    let mut paths = Vec::new();
    walk(&target.join("files"), &mut paths);
    paths.sort();
    paths
}

#[test]
fn backup_and_restore_overwrite_nothing() {
    let places = Places::new();
    let mut session = places.warehouse.session();
    run(&mut session, "CREATE TABLE t AS SELECT v FROM generate_series(1, 100) AS g(v)");
    let own = places.warehouse.folder();
    let backup_to = |to: &Path| harrier(&["backup", "--warehouse", text(&own), text(to)]);
    // Into a non-empty folder, into the folder that VACUUM cleans, of a missing warehouse.
    let other = places.at("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("x"), "x").unwrap();
    assert_refused(&backup_to(&other), "55000", "there is \"x\"");
    let files = places.warehouse.files();
    assert_refused(&backup_to(&own.join("data/b")), "55000", "data folder");
    assert_refused(&backup_to(&own.join("data")), "55000", "data folder");
    assert_eq!(places.warehouse.files(), files);
    assert_refused(
        &harrier(&["backup", "--warehouse", text(&places.at("none")), text(&other)]),
        "3D000",
        "no warehouse",
    );
    assert_refused(&harrier(&["backup", "--warehouse", ":memory:", text(&other)]), "22023", "memory");
    assert_refused(&harrier(&["backup", "--list", text(&other)]), "55000", "no backups");
    assert_refused(&harrier(&["backup", "--check", text(&places.at("none"))]), "55000", "no backups");
    assert_refused(&harrier(&["backup", "--warehouse", text(&own), "ftp://host/x"]), "0A000", "ftp");
    assert_eq!(fs::read_dir(&other).unwrap().count(), 1);

    // Two backups at once.
    let target = places.target();
    places.backup(&[]);
    let lock = fs::File::open(target.join("lock")).unwrap();
    lock.lock().unwrap();
    assert_refused(&backup_to(&target), "55006", "another process");
    drop(lock);

    // A restore overwrites nothing.
    assert_refused(&places.restore(&own, &[]), "42P07", "already");
    assert_refused(&places.restore(&other, &[]), "55000", "not empty");
    assert_refused(&places.restore(&places.at("new"), &["--data", text(&other)]), "55000", "not empty");
    assert_refused(
        &places.restore(&places.at("new"), &["--data", text(&own.join("data"))]),
        "55000",
        "data of a warehouse",
    );
    assert_refused(&places.restore(&own.join("data/main/new"), &[]), "55000", "data folder");
    assert_refused(
        &places.restore(&places.at("new"), &["--backup", "20200101-000000-000000-1"]),
        "22023",
        "no backup",
    );
    assert_refused(
        &harrier(&["restore", text(&other), "--warehouse", text(&places.at("new"))]),
        "55000",
        "no backups",
    );
    assert_eq!(one(&mut session, "SELECT count(*) FROM t"), "100");
    assert_undamaged(&mut session, "t");
    // With its files elsewhere.
    let mut restored = places.restore(&places.at("new"), &["--data", text(&places.at("new files"))]);
    assert_eq!(restored.status, Some(0), "{}", std::mem::take(&mut restored.stderr));
    assert!(files_below(&places.at("new files")) == files && !places.at("new/data").exists());
    assert_eq!(one(&mut self::session(&places.at("new")), "SELECT count(*) FROM t"), "100");
}

#[test]
fn only_rank_zero_makes_the_backup() {
    let _turn = gang_slot();
    let words = match Launcher::open_mpi(2).words() {
        Ok(words) => words,
        Err(reason) => return absent(&reason),
    };
    let places = Places::new();
    let mut session = places.warehouse.session();
    run(&mut session, "CREATE TABLE t AS SELECT v FROM generate_series(1, 100) AS g(v)");
    let launched = |args: &[&str]| {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(BINARY).args(args);
        let run = finish(command, PATIENCE);
        assert!(run.success, "{}{}", run.stdout, run.stderr);
        run.stdout
    };
    let (own, target, to) = (places.warehouse.folder(), places.target(), places.at("restored"));
    let report = launched(&["backup", "--warehouse", text(&own), text(&target)]);
    assert_eq!(report.lines().count(), 1, "{report}");
    assert_eq!(harrier(&["backup", "--list", text(&target)]).stdout.lines().last(), Some("1 backup"));
    launched(&["restore", text(&target), "--warehouse", text(&to)]);
    assert_eq!(
        table(&mut self::session(&to), "SELECT count(*), sum(v) FROM t"),
        table(&mut session, "SELECT count(*), sum(v) FROM t")
    );
}
