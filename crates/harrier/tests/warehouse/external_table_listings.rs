//! Atomic listings of external tables: folders that others list while statements write into them show each
//! statement completely, to DuckDB and to Harrier, even when processes are killed. `HARRIER_SKIP_SERVERS=1`
//! skips what needs DuckDB, `HARRIER_SKIP_MPI=1` what needs MPI.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use harrier_launch::Launcher;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::command::{BINARY, Folder};

/// Rows of one table partition, in several files.
const ROWS: usize = 20_000;

/// Queries until a stop file exists, and prints every answer; answers with files that vanished are skipped.
const LISTER: &str = r#"
import duckdb, os, sys
table, stop = sys.argv[1:]
looks = 0
while not os.path.exists(stop) or looks == 0:
    try:
        rows = duckdb.sql(f"SELECT k, count(*), min(v), max(v) FROM read_parquet('{table}/**/*.parquet', hive_partitioning = true) "
                          "GROUP BY k ORDER BY k").fetchall()
    except duckdb.IOException as error:
        if "No such file" not in str(error) and "No files found" not in str(error):
            raise
        continue
    looks += 1
    print(";".join(",".join(map(str, row)) for row in rows), flush=True)
"#;

/// Lists the folders of all table partitions until a stop file exists, and prints every listing that differs
/// from the previous one of its folder.
const NAMES: &str = r#"
import os, sys
table, stop = sys.argv[1:]
last = {}
while not os.path.exists(stop):
    for k in range(4):
        names = ",".join(sorted(os.listdir(f"{table}/k={k}")))
        if last.get(k) != names:
            last[k] = names
            print(f"{k}:{names}", flush=True)
"#;

/// The Python with DuckDB.
pub fn duckdb() -> Option<PathBuf> {
    harrier_servers::installation("duckdb.sh")
}

fn create(table: &Path) -> String {
    format!(
        "CREATE EXTERNAL TABLE t (v INT, pad TEXT, k INT) STORED AS PARQUET PARTITIONED BY (k) LOCATION '{}' \
         OPTIONS ('target_file_bytes' '65536');\n",
        table.display()
    )
}

/// Overwrites every table partition with rows that contain the statement's number.
fn overwrite(number: usize) -> String {
    format!(
        "INSERT OVERWRITE t SELECT {number}, md5(value::text), value % 4 FROM generate_series(1, {}) AS s(value);\n",
        4 * ROWS
    )
}

/// Versions of the table partitions in an answer such as `0,20000,7,7;1,…`; each partition is complete.
fn versions(answer: &str) -> Vec<usize> {
    let mut versions = Vec::new();
    for row in answer.split(';').filter(|row| !row.is_empty()) {
        let fields: Vec<usize> = row.split(',').map(|field| field.parse().unwrap()).collect();
        let [_, rows, low, high] = fields[..] else { panic!("{answer}") };
        assert_eq!((rows, low), (ROWS, high), "half a statement: {answer}");
        versions.push(low);
    }
    versions
}

fn listing(script: &str, table: &Path, stop: &Path, python: &Path) -> Child {
    Command::new(python)
        .args(["-c", script])
        .args([table, stop])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn lines_of(lister: Child) -> Vec<String> {
    let lister = lister.wait_with_output().unwrap();
    assert!(lister.status.success(), "{}", String::from_utf8_lossy(&lister.stderr));
    String::from_utf8(lister.stdout).unwrap().lines().map(str::to_string).collect()
}

/// Asserts that a listing belongs to one statement, and that there is one listing per statement: file names
/// start with the statement's name.
fn check_names(listings: &[String]) {
    let mut listings_of_statement = HashMap::new();
    for listing in listings {
        let statements: BTreeSet<&str> = listing
            .split_once(':')
            .unwrap()
            .1
            .split(',')
            .map(|name| name.rsplitn(3, '-').last().unwrap())
            .collect();
        assert_eq!(statements.len(), 1, "{listing}");
        let k = listing.split(':').next().unwrap();
        let first = listings_of_statement.entry((k, statements)).or_insert(listing);
        assert_eq!(*first, listing, "two listings of one statement");
    }
    assert!(listings_of_statement.len() > 4, "nothing was overwritten");
}

fn check_listed(launcher: &Launcher) {
    let Some(python) = duckdb() else { return };
    let folder = Folder::new();
    let (table, stop) = (folder.path().join("table"), folder.path().join("stop"));
    let first = folder.sql(&["-c", &(create(&table) + &overwrite(0))]);
    assert_eq!(first.status, Some(0), "{}", first.stderr);
    let script: String = (1..12).map(overwrite).collect();
    folder.write("script.sql", &(create(&table) + &script));
    let mut command = launcher.command(BINARY).unwrap();
    command.arg("sql").args(["--set", "harrier.distribute_bytes_min=0", "-f", "script.sql"]);
    command.current_dir(folder.path()).stdin(Stdio::null());
    let listers = [LISTER, NAMES].map(|script| listing(script, &table, &stop, &python));
    let output = command.output().unwrap();
    fs::write(&stop, "").unwrap();
    let [answers, listings] = listers.map(lines_of);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    check_names(&listings);
    let last = answers.last().unwrap();
    assert_eq!(versions(last), [11; 4]);
    // DuckDB opens each listed file by path, and skips those that are gone: a folder that is overwritten in
    // between looks empty to it (decision 0016). It never sees a part.
    answers.iter().for_each(|answer| drop(versions(answer)));
    let files = |k: usize| fs::read_dir(table.join(format!("k={k}"))).unwrap().count();
    assert!((0..4).all(|k| files(k) > 1), "one file shows nothing of files that belong together");
}

#[test]
fn duckdb_listings_are_atomic() {
    check_listed(&Launcher::none());
}

#[test]
fn duckdb_listings_of_ranks_are_atomic() {
    if harrier_launch::mpi_skipped() {
        return eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
    }
    let _turn = harrier_launch::gang_slot();
    check_listed(&Launcher::open_mpi(3));
}

/// Killed at any moment, the table has the files of one statement afterwards, and no staged file stays.
#[test]
fn killed_overwrite_leaves_old_or_new_table() {
    const ROUNDS: usize = 12;
    let folder = Folder::new();
    let table = folder.path().join("table");
    let ask = |sql: &str| {
        let run = folder.sql(&["--format", "csv", "-c", &create(&table), "-c", sql]);
        assert_eq!(run.status, Some(0), "{}", run.stderr);
        run.stdout
    };
    ask(&overwrite(0));
    let mut number = 0;
    let mut random = StdRng::seed_from_u64(harrier_launch::seed());
    for _ in 0..ROUNDS {
        let script: String = (number + 1..number + 30).map(overwrite).collect();
        folder.write("script.sql", &(create(&table) + &script));
        let mut child = folder.command(&["-f", "script.sql"]).stdout(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_millis(random.random_range(200..2500)));
        child.kill().unwrap();
        child.wait().unwrap();
        let answer = ask("SELECT k, count(*), min(v), max(v) FROM t GROUP BY k ORDER BY k");
        let rows: Vec<&str> = answer.lines().skip_while(|line| !line.starts_with("0,")).collect();
        let versions = versions(&rows.join(";"));
        assert_eq!(versions.len(), 4, "{answer}");
        assert!(versions.iter().all(|version| *version == versions[0]), "{versions:?}");
        number = versions[0];
    }
    ask(&overwrite(1000));
    let control = folder.path().join(".harrier-table");
    for entry in fs::read_dir(&control).unwrap() {
        let own = entry.unwrap().path();
        // Exchanged folders leave their names for a minute.
        assert!(!own.is_dir() || (own.join("retired").exists() && !own.join("journal").exists()), "{own:?}");
    }
}

/// Concurrent appends of several processes are all there.
#[test]
fn concurrent_appends_are_complete() {
    let folder = Folder::new();
    let table = folder.path().join("table");
    let insert = |writer: usize| {
        let one = format!(
            "INSERT INTO t SELECT {writer}, 'x', value % 2 FROM generate_series(1, 100) AS s(value);\n"
        );
        create(&table) + &one.repeat(5)
    };
    let children: Vec<_> = (0..3)
        .map(|writer| {
            folder
                .command(&["-c", &insert(writer)])
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let run = folder.sql(&[
        "--format",
        "csv",
        "-c",
        &create(&table),
        "-c",
        "SELECT v, count(*) FROM t GROUP BY v ORDER BY v",
    ]);
    assert!(run.stdout.ends_with("0,500\n1,500\n2,500\n"), "{}{}", run.stdout, run.stderr);
}
