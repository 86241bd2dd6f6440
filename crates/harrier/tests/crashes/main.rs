//! A process may die at any of its calls that change files: a transaction over several tables and table partitions has then happened or
//! not, `CHECK TABLE` is content, the next statement is right, and VACUUM leaves no file that nothing refers to. OPTIMIZE,
//! expire_snapshots and VACUUM change no row, wherever they end, and are finished when they are run again.
//!
//! `crash.c` is preloaded into the process, counts its calls, and ends it by SIGKILL at one of them. Every call is one step; one in
//! [`STEPS_EVERY`] is tried, from a seed on, and all of them with `HARRIER_CRASH_EVERY=1`.

#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use harrier_launch::{Launcher, absent, alone, finish, fresh_seed};
use support::{BINARY, Folder};

const STEPS_EVERY: usize = 3;

/// What a process may take on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(120);

const TABLES: [&str; 4] = [
    "CREATE TABLE a (p INT, v BIGINT) PARTITION BY (p)",
    "CREATE TABLE b (k BIGINT, v BIGINT) DISTRIBUTED BY (k) WITH (buckets = 4)",
    "INSERT INTO a SELECT x % 4, x FROM generate_series(1, 1000) AS g(x)",
    "INSERT INTO b SELECT x, x FROM generate_series(1, 1000) AS g(x)",
];

/// Several tables, several table partitions, files and rows kept in the catalog, and a new table.
const TRANSACTION: [&str; 8] = [
    "BEGIN",
    "INSERT INTO a SELECT x % 6, x FROM generate_series(1, 600) AS g(x)",
    "DELETE FROM b WHERE k % 3 = 0",
    "UPDATE a SET v = v + 1 WHERE p = 1",
    "INSERT INTO b VALUES (-1, -1)",
    "CREATE TABLE c AS SELECT * FROM b",
    "CREATE VIEW w AS SELECT * FROM a WHERE p = 1",
    "COMMIT",
];

/// All that the tables show, and what is left on disk after a sweep. Nothing here depends on the names of files.
const PICTURE: [&str; 9] = [
    "SELECT p, count(*) AS rows, sum(v) AS sum FROM a GROUP BY p ORDER BY p",
    "SELECT count(*) AS rows, sum(k) AS keys, sum(v) AS sum FROM b",
    "SELECT table_name, column_name FROM information_schema.columns WHERE table_name IN ('a', 'b', 'c', 'w') ORDER BY 1, 2",
    "CHECK TABLE a",
    "CHECK TABLE b",
    "SET harrier.vacuum_age_seconds = 0",
    "VACUUM",
    "INSERT INTO b VALUES (-2, -2)",
    "SELECT sum(k) AS keys FROM b",
];

/// The library that ends processes.
fn crashing() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libcrash.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/crashes/crash.c");
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-O2", "-o"])
            .arg(&library)
            .arg(source)
            .arg("-ldl")
            .status();
        assert!(made.expect("a C compiler is there to build Harrier").success());
        library
    })
}

fn sql(folder: &Path, statements: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(arguments(statements)).current_dir(folder).stdin(Stdio::null());
    command
}

/// With one thread, so that as many files are written each time.
fn arguments<'a>(statements: &[&'a str]) -> Vec<&'a str> {
    let words = statements.iter().flat_map(|statement| ["-c", *statement]);
    ["sql", "--format", "csv", "--threads", "1"].into_iter().chain(words).collect()
}

/// Runs statements that must succeed; what they print.
fn told(folder: &Path, statements: &[&str]) -> String {
    let run = finish(sql(folder, statements), PATIENCE);
    assert!(run.success, "{statements:?}: {run:#?}");
    run.stdout
}

/// The picture of a warehouse, with the number of its data files.
fn picture(folder: &Path) -> String {
    let shown = told(folder, &PICTURE);
    format!("{shown}{} files\n", files_below(&folder.join("warehouse/data")))
}

fn files_below(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let below = |path: PathBuf| if path.is_dir() { files_below(&path) } else { 1 };
    entries.flatten().map(|entry| below(entry.path())).sum()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// A warehouse, and what it shows before and after [`TRANSACTION`].
struct Ground {
    folder: Folder,
    before: String,
    after: String,
}

impl Ground {
    fn new() -> Ground {
        let mut ground = Ground { folder: Folder::new(), before: String::new(), after: String::new() };
        fs::create_dir(ground.work()).unwrap();
        told(&ground.work(), &TABLES);
        copy(&ground.work(), &ground.folder.path().join("kept"));
        ground.before = picture(&ground.work());
        ground.after = {
            told(&ground.restored(), &TRANSACTION);
            picture(&ground.work())
        };
        ground
    }

    /// Where the warehouse is used: always the same folder, as its catalog names it.
    fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// The folder with the warehouse as it was before.
    fn restored(&self) -> PathBuf {
        fs::remove_dir_all(self.work()).unwrap();
        copy(&self.folder.path().join("kept"), &self.work());
        self.work()
    }

    /// Whether the transaction has happened.
    fn check(&self, folder: &Path, context: &str) -> bool {
        let shown = picture(folder);
        assert!(
            shown == self.before || shown == self.after,
            "{context}:\n{shown}\nbefore:\n{}\nafter:\n{}",
            self.before,
            self.after
        );
        shown == self.after
    }
}

/// The steps to try, of as many as there are.
fn tried(steps: usize) -> impl Iterator<Item = usize> {
    let every =
        std::env::var("HARRIER_CRASH_EVERY").map_or(STEPS_EVERY, |every| every.parse().expect("a number"));
    let seed: usize = fresh_seed().parse::<u64>().expect("a number") as usize;
    println!("seed {seed}, one of {every} steps of {steps}");
    (seed % every..steps).step_by(every)
}

#[test]
fn a_process_dies_at_every_step_of_a_transaction() {
    let ground = Ground::new();
    assert_ne!(ground.before, ground.after);
    let counted = ground.restored();
    let count = counted.join("count");
    let run = |folder: &Path| {
        let mut command = sql(folder, &TRANSACTION);
        command.env("LD_PRELOAD", crashing()).env("HARRIER_CRASH_BELOW", "/warehouse/");
        command
    };
    let mut command = run(&counted);
    command.env("HARRIER_CRASH_COUNT", &count);
    assert!(finish(command, PATIENCE).success);
    assert!(ground.check(&counted, "undisturbed"));
    let steps: usize = fs::read_to_string(&count).unwrap().trim().parse().unwrap();
    assert!(steps > 50, "{steps} steps only: calls are not seen");
    let (mut happened, mut died) = (0, 0);
    for step in tried(steps) {
        let folder = ground.restored();
        let mut command = run(&folder);
        command.env("HARRIER_CRASH_AT", step.to_string());
        // The number of steps differs a little from run to run, so that one may get by.
        died += usize::from(!finish(command, PATIENCE).success);
        happened += usize::from(ground.check(&folder, &format!("step {step} of {steps}")));
    }
    println!("{died} died, {happened} transactions had happened");
    assert!(died > 0);
}

/// Some rank dies at a step of its own: a writer, or the coordinator.
#[test]
fn a_rank_dies_at_every_step_of_a_transaction() {
    let _turn = alone();
    let launcher = Launcher::open_mpi(3);
    let start = |folder: &Path, rank: usize| {
        let mut command = launcher.command(BINARY)?;
        // All scans and values are spread, however few bytes they have.
        command.args(arguments(&TRANSACTION)).args(["--set", "harrier.distribute_bytes_min=0"]);
        command.current_dir(folder).stdin(Stdio::null());
        command.env("LD_PRELOAD", crashing()).env("HARRIER_CRASH_RANK", rank.to_string());
        // Not those of MPI's own.
        command.env("HARRIER_CRASH_BELOW", "/warehouse/");
        Ok::<_, String>(command)
    };
    let ground = Ground::new();
    let mut died = 0;
    for rank in [0, 2] {
        let counted = ground.restored();
        let count = counted.join("count");
        let mut command = match start(&counted, rank) {
            Ok(command) => command,
            Err(reason) => return absent(&reason),
        };
        command.env("HARRIER_CRASH_COUNT", &count);
        let run = finish(command, PATIENCE);
        assert!(run.success, "{run:#?}");
        let shown = picture(&counted);
        assert_eq!(without_files(&shown), without_files(&ground.after), "ranks give what one process does");
        let steps: usize = fs::read_to_string(&count).unwrap().trim().parse().unwrap();
        assert!(steps > 0, "the calls of rank {rank} are not seen");
        for step in tried(steps) {
            let folder = ground.restored();
            let mut command = start(&folder, rank).expect("as before");
            command.env("HARRIER_CRASH_AT", step.to_string());
            died += usize::from(!finish(command, PATIENCE).success);
            let shown = picture(&folder);
            let context = format!("rank {rank}, step {step} of {steps}");
            // After it there may be other numbers of files than one process makes.
            if without_files(&shown) != without_files(&ground.after) {
                assert_eq!(shown, ground.before, "{context}");
            }
        }
    }
    assert!(died > 0);
}

/// A picture without its last line.
fn without_files(picture: &str) -> &str {
    picture.trim_end().rsplit_once('\n').expect("several lines").0
}

/// After [`TABLES`]: small files, files with deleted rows, rows kept in the catalog, files of a table that is gone.
const WORN: [&str; 9] = [
    "INSERT INTO a SELECT x % 4, x FROM generate_series(1001, 1200) AS g(x)",
    "INSERT INTO b SELECT x, x FROM generate_series(1001, 1200) AS g(x)",
    "DELETE FROM a WHERE v % 3 = 0",
    "DELETE FROM b WHERE k % 3 = 0",
    "CREATE TABLE c (v BIGINT)",
    "INSERT INTO c VALUES (1), (2)",
    "INSERT INTO c VALUES (3)",
    "CREATE TABLE gone AS SELECT x FROM generate_series(1, 100) AS g(x)",
    "DROP TABLE gone",
];

const UPKEEP: [&str; 6] = [
    "OPTIMIZE a",
    "OPTIMIZE b",
    "OPTIMIZE c",
    "CALL expire_snapshots('0 seconds')",
    "SET harrier.vacuum_age_seconds = 0",
    "VACUUM",
];

/// What upkeep does not change.
const ROWS: [&str; 6] = [
    "SELECT p, count(*) AS rows, sum(v) AS sum FROM a GROUP BY p ORDER BY p",
    "SELECT count(*) AS rows, sum(k) AS keys, sum(v) AS sum FROM b",
    "SELECT count(*) AS rows, sum(v) AS sum FROM c",
    "CHECK TABLE a",
    "CHECK TABLE b",
    "CHECK TABLE c",
];

/// How far upkeep is, as the catalog has it, and how many files there are.
fn progress(folder: &Path) -> (String, usize) {
    let counts = "SELECT (SELECT count(*) FROM sys.data_files) AS files, (SELECT count(*) FROM sys.snapshots) AS snapshots, \
                  (SELECT sum(kept_rows) FROM sys.tables) AS kept";
    (told(folder, &[counts]), files_below(&folder.join("warehouse/data")))
}

#[test]
fn a_process_dies_at_every_step_of_upkeep() {
    let kept = Folder::new();
    let work = kept.path().join("work");
    fs::create_dir(&work).unwrap();
    told(&work, &TABLES);
    told(&work, &WORN);
    copy(&work, &kept.path().join("kept"));
    let restore = || {
        fs::remove_dir_all(&work).unwrap();
        copy(&kept.path().join("kept"), &work);
    };
    let rows = told(&work, &ROWS);
    let upkeep = || {
        let mut command = sql(&work, &UPKEEP);
        command.env("LD_PRELOAD", crashing()).env("HARRIER_CRASH_BELOW", "/warehouse/");
        command
    };
    let count = work.join("count");
    let mut command = upkeep();
    command.env("HARRIER_CRASH_COUNT", &count);
    let run = finish(command, PATIENCE);
    assert!(run.success, "{run:#?}");
    let steps: usize = fs::read_to_string(&count).unwrap().trim().parse().unwrap();
    assert!(steps > 50, "{steps} steps only: calls are not seen");
    assert_eq!(told(&work, &ROWS), rows, "undisturbed");
    let done = progress(&work);
    // One file for each table partition, for each bucket, and for the rows that were kept.
    assert_eq!(done, ("files,snapshots,kept\n9,1,0\n".to_string(), 9));
    let (mut died, mut places) = (0, BTreeSet::new());
    for step in tried(steps) {
        restore();
        let mut command = upkeep();
        command.env("HARRIER_CRASH_AT", step.to_string());
        let run = finish(command, PATIENCE);
        let context = format!("step {step} of {steps}");
        assert_eq!(told(&work, &ROWS), rows, "{context}");
        if run.success {
            continue;
        }
        died += 1;
        places.insert(progress(&work).0);
        told(&work, &UPKEEP);
        assert_eq!(told(&work, &ROWS), rows, "{context}, and once more");
        assert_eq!(progress(&work), done, "{context}, and once more");
        told(
            &work,
            &["INSERT INTO a VALUES (9, 9)", "DELETE FROM b WHERE k = 1", "CHECK TABLE a", "CHECK TABLE b"],
        );
    }
    println!("{died} died, in {places:?}");
    // Before the end of each of the three OPTIMIZE, of expire_snapshots, and of VACUUM.
    assert!(places.len() >= 5, "{places:?}");
}
