//! Random histories of everything that removes files: VACUUM, snapshot expiry, OPTIMIZE, DROP, overwrite,
//! rollback, and cleanup after kills, by processes with wrong and jumping clocks, beside foreign files,
//! copies, moves, and a second catalog on the same folder.
//!
//! A model knows the rows of each warehouse and the owner of each file: no row is lost, foreign files stay
//! unchanged, and in the end no unreferenced file is left. A transaction whose files were removed because a
//! clock was wrong does not commit. A seed is one history; `HARRIER_SEED` is the first one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use harrier_testkit::session::{Configuration, Session};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

use super::command::build_preload_library;
use super::support::{fails, one, run, table};

const HISTORIES: u64 = 4;
const STEPS: usize = 30;
const PROCESSES: usize = 2;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
/// Clock errors in seconds.
const SHIFTS: [i64; 6] = [-400 * DAY, -2 * HOUR, 0, 2 * HOUR, 2 * DAY, 400 * DAY];
/// Minimum ages for VACUUM in seconds.
const AGES: [i64; 3] = [0, HOUR, 7 * DAY];

const CONFLICT: &str = "40001";
const NOT_IN_STATE: &str = "55000";

/// A process with its own clock.
struct Process {
    session: Session,
    clock: PathBuf,
    /// Rows that its open transaction adds.
    adds: Option<BTreeSet<i64>>,
}

impl Process {
    fn start(folder: &Path, library: &Path, clock: &Path) -> Self {
        if !clock.exists() {
            fs::write(clock, 0_i64.to_ne_bytes()).unwrap();
        }
        Self { session: session(folder, library, clock), clock: clock.to_path_buf(), adds: None }
    }

    /// Written in place: the process has the file mapped.
    fn set_clock(&self, seconds: i64) {
        use std::os::unix::fs::FileExt;
        let file = fs::OpenOptions::new().write(true).open(&self.clock).unwrap();
        file.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }
}

fn session(folder: &Path, library: &Path, clock: &Path) -> Session {
    let mut configuration = Configuration::embedded().with_warehouse(folder);
    configuration.environment.push(("LD_PRELOAD".to_string(), library.display().to_string()));
    configuration.environment.push(("SHIFTED_CLOCK".to_string(), clock.display().to_string()));
    Session::start(&configuration).unwrap()
}

fn sums(rows: &BTreeSet<i64>) -> String {
    format!("{} {}", rows.len(), rows.iter().sum::<i64>())
}

fn sum(session: &mut Session) -> String {
    one(session, "SELECT count(*) || ' ' || coalesce(sum(v), 0) FROM t")
}

struct History {
    folder: TempDir,
    library: PathBuf,
    random: StdRng,
    place: PathBuf,
    moves: usize,
    processes: Vec<Process>,
    rows: BTreeSet<i64>,
    /// Foreign files below the data folder, with their contents.
    foreign: BTreeMap<PathBuf, String>,
    next: i64,
    step_log: Vec<String>,
}

impl History {
    fn new(seed: u64, library: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("w0");
        let mut history = Self {
            library: library.to_path_buf(),
            random: StdRng::seed_from_u64(seed),
            moves: 0,
            processes: Vec::new(),
            rows: BTreeSet::new(),
            foreign: BTreeMap::new(),
            next: 0,
            step_log: vec![format!("seed {seed}")],
            place,
            folder,
        };
        history.start();
        run(&mut history.processes[0].session, "CREATE TABLE t (v BIGINT)");
        history
    }

    fn clock(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("clock{number}"))
    }

    fn start(&mut self) {
        let start = |number| Process::start(&self.place, &self.library, &self.clock(number));
        self.processes = (0..PROCESSES).map(start).collect();
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        *all.choose(&mut self.random).unwrap()
    }

    /// A query of new rows, enough for a file or few enough for the catalog.
    fn new_rows(&mut self) -> (BTreeSet<i64>, String) {
        let count = self.one_of(&[2, 40, 40, 40]);
        let first = self.next;
        self.next += count;
        let sql = format!("SELECT v FROM generate_series({first}, {}) AS g(v)", first + count - 1);
        ((first..first + count).collect(), sql)
    }

    fn log_step(&mut self, number: usize, what: &str) {
        self.step_log.push(format!("process {number}: {what}"));
    }

    fn next_step(&mut self) {
        let number = self.random.random_range(0..PROCESSES);
        let is_open = self.processes[number].adds.is_some();
        match self.random.random_range(0..14) {
            0 | 1 if !is_open => {
                let (rows, sql) = self.new_rows();
                self.log_step(number, "INSERT");
                run(&mut self.processes[number].session, &format!("INSERT INTO t {sql}"));
                self.rows.extend(rows);
            }
            2 | 3 => {
                let (rows, sql) = self.new_rows();
                self.log_step(number, "INSERT in a transaction");
                let process = &mut self.processes[number];
                if !is_open {
                    run(&mut process.session, "BEGIN");
                }
                run(&mut process.session, &format!("INSERT INTO t {sql}"));
                process.adds.get_or_insert_default().extend(rows);
            }
            4 | 5 if is_open => self.end(number),
            6 => self.kill(number),
            7..=9 if !is_open => self.vacuum(number),
            10 => {
                let seconds = self.one_of(&SHIFTS);
                self.log_step(number, &format!("the clock is wrong by {seconds} s"));
                self.processes[number].set_clock(seconds);
            }
            11 if !is_open => self.replace(number),
            12 => self.write_foreign_file(),
            13 => match self.random.random_range(0..3) {
                0 => self.copy(),
                1 => self.move_folder(),
                _ => self.share_data_folder(),
            },
            _ => {}
        }
        self.check();
    }

    /// COMMIT or ROLLBACK.
    fn end(&mut self, number: usize) {
        let commits = self.random.random_bool(0.7);
        let adds = self.processes[number].adds.take().unwrap();
        let session = &mut self.processes[number].session;
        let outcome = session.run(if commits { "COMMIT" } else { "ROLLBACK" });
        self.step_log.push(format!("process {number}: ends its transaction, commits {commits}, {outcome:?}"));
        match outcome {
            Ok(_) if commits => self.rows.extend(adds),
            Ok(_) => {}
            // A clock error made the transaction look abandoned, or the table was recreated.
            Err(failure) => assert_eq!(failure.sqlstate, CONFLICT, "{failure}\n{}", self.step_log.join("\n")),
        }
    }

    fn kill(&mut self, number: usize) {
        self.log_step(number, "is killed");
        let pid = self.processes[number].session.id().to_string();
        assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
        self.processes[number] = Process::start(&self.place, &self.library, &self.clock(number));
    }

    /// Removes files of a random minimum age.
    fn vacuum(&mut self, number: usize) {
        let age = self.one_of(&AGES);
        let steps = [
            (0.5, "OPTIMIZE t".to_string()),
            (0.5, format!("CALL expire_snapshots('{age} seconds')")),
            (0.9, "VACUUM".to_string()),
        ];
        run(&mut self.processes[number].session, &format!("SET harrier.vacuum_age_seconds = {age}"));
        for (share, sql) in steps {
            if self.random.random_bool(share) {
                self.log_step(number, &format!("{sql}, {age} s"));
                run(&mut self.processes[number].session, &sql);
            }
        }
    }

    /// Statements that replace files.
    fn replace(&mut self, number: usize) {
        let (rows, sql) = self.new_rows();
        let statements = match self.random.random_range(0..4) {
            0 => vec![format!("INSERT OVERWRITE t {sql}")],
            1 => vec!["DROP TABLE t".to_string(), format!("CREATE TABLE t AS {sql}")],
            2 => vec!["TRUNCATE t".to_string(), format!("INSERT INTO t {sql}")],
            _ => {
                self.log_step(number, "DELETE of every third row");
                run(&mut self.processes[number].session, "DELETE FROM t WHERE v % 3 = 0");
                self.rows.retain(|v| v % 3 != 0);
                return;
            }
        };
        for sql in statements {
            self.log_step(number, &sql);
            run(&mut self.processes[number].session, &sql);
        }
        self.rows = rows;
    }

    /// Writes a foreign file, with a foreign name or a name of another warehouse's writer.
    fn write_foreign_file(&mut self) {
        let number = self.foreign.len();
        let name = match self.random.random_range(0..4) {
            0 => format!("main/t/other-{number}.parquet"),
            1 => format!("year=2024/part-{number}.parquet"),
            2 => format!("main/t/{number:012}{}-0-0-0.parquet", "0".repeat(20)),
            _ => format!("notes-{number}.txt"),
        };
        let path = PathBuf::from("data").join(name);
        let (place, text) = (self.place.join(&path), format!("somebody's file {number}"));
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, &text).unwrap();
        self.step_log.push(format!("a file of somebody else: {}", path.display()));
        self.foreign.insert(path, text);
    }

    fn is_quiet(&self) -> bool {
        self.processes.iter().all(|process| process.adds.is_none())
    }

    /// Copies the warehouse, changes and vacuums the copy, and deletes it.
    fn copy(&mut self) {
        if !self.is_quiet() {
            return;
        }
        self.step_log.push("a copy is swept".to_string());
        let copy = self.folder.path().join("copy");
        copy_all(&self.place, &copy);
        let clock = self.folder.path().join("clock of the copy");
        fs::write(&clock, (400 * DAY).to_ne_bytes()).unwrap();
        let mut session = session(&copy, &self.library, &clock);
        assert_eq!(sum(&mut session), sums(&self.rows));
        for sql in [
            "INSERT INTO t SELECT v FROM generate_series(1, 40) AS g(v)",
            "DELETE FROM t WHERE v % 2 = 0",
            "OPTIMIZE t",
            "SET harrier.vacuum_age_seconds = 0",
            "CALL expire_snapshots('0 seconds')",
            "VACUUM",
            "DROP TABLE t",
            "CALL expire_snapshots('0 seconds')",
            "VACUUM",
        ] {
            run(&mut session, sql);
        }
        drop(session);
        fs::remove_dir_all(copy).unwrap();
    }

    /// Moves the folder while no process has it open.
    fn move_folder(&mut self) {
        if !self.is_quiet() {
            return;
        }
        self.moves += 1;
        self.step_log.push(format!("the folder is moved, {}", self.moves));
        self.processes.clear();
        let new = self.folder.path().join(format!("w{}", self.moves));
        fs::rename(&self.place, &new).unwrap();
        self.place = new;
        self.start();
    }

    /// Another catalog names the data folder, or one inside it, and is refused.
    fn share_data_folder(&mut self) {
        self.step_log.push("another catalog wants the folder".to_string());
        let data = match self.random.random_bool(0.5) {
            true => self.place.join("data"),
            false => self.place.join("data/main"),
        };
        // The first writer marks the folder.
        if !self.place.join("data/_harrier_warehouse").exists() {
            return;
        }
        let configuration = Configuration::embedded()
            .with_warehouse(self.folder.path().join("intruder"))
            .with_arguments(["--data", data.to_str().unwrap()]);
        fails(&mut Session::start(&configuration).unwrap(), "CREATE TABLE t (v BIGINT)", NOT_IN_STATE);
    }

    #[track_caller]
    fn check(&mut self) {
        for number in 0..PROCESSES {
            if self.processes[number].adds.is_some() {
                continue;
            }
            let actual =
                self.processes[number].session.run("SELECT count(*) || ' ' || coalesce(sum(v), 0) FROM t");
            let actual = actual.map(|answer| answer.into_rows().rows[0][0].clone().unwrap());
            let right = sums(&self.rows);
            assert_eq!(
                actual.as_deref(),
                Ok(right.as_str()),
                "process {number}\n{}",
                self.step_log.join("\n")
            );
        }
        for (path, text) in &self.foreign {
            let actual = fs::read_to_string(self.place.join(path)).ok();
            assert_eq!(
                actual.as_deref(),
                Some(text.as_str()),
                "{}\n{}",
                path.display(),
                self.step_log.join("\n")
            );
        }
    }

    /// Files left after all transactions have ended, for a VACUUM with a clock ahead of all others.
    fn assert_no_leftovers(mut self) {
        for number in 0..PROCESSES {
            if self.processes[number].adds.is_some() {
                self.end(number);
            }
        }
        self.check();
        self.processes.truncate(1);
        self.processes[0].set_clock(500 * DAY);
        let session = &mut self.processes[0].session;
        assert_eq!(
            table(session, "CHECK TABLE t"),
            Vec::<Vec<Option<String>>>::new(),
            "{}",
            self.step_log.join("\n")
        );
        for sql in [
            "OPTIMIZE t",
            "SET harrier.vacuum_age_seconds = 0",
            "CALL expire_snapshots('0 seconds')",
            "VACUUM",
        ] {
            run(session, sql);
        }
        let listed_files: BTreeSet<String> =
            table(session, "VACUUM DRY RUN").into_iter().map(|row| row[0].clone().unwrap()).collect();
        let foreign: BTreeSet<String> =
            self.foreign.keys().map(|path| self.place.join(path).display().to_string()).collect();
        assert_eq!(listed_files, foreign, "{}", self.step_log.join("\n"));
        let rows = sums(&self.rows);
        assert_eq!(sum(&mut self.processes[0].session), rows);
    }
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy_all(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

#[test]
fn garbage_collection_removes_only_own_leftovers() {
    let library = build_preload_library("warehouse/shifted_clock.c", &[]);
    let first = harrier_launch::seed();
    for seed in first..first + HISTORIES {
        let mut history = History::new(seed, &library);
        for _ in 0..STEPS {
            history.next_step();
        }
        history.assert_no_leftovers();
    }
}

/// Checks the library that shifts clocks.
#[test]
fn shifted_clock_library() {
    let library = build_preload_library("warehouse/shifted_clock.c", &[]);
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(&folder.path().join("w"), &library, &folder.path().join("clock"));
    let mut process = process;
    let year =
        |process: &mut Process| one(&mut process.session, "SELECT extract(year FROM now())::int - 2000");
    let now: i64 = year(&mut process).parse().unwrap();
    process.set_clock(40 * 365 * DAY);
    let then: i64 = year(&mut process).parse().unwrap();
    assert!((39..=40).contains(&(then - now)), "{now} {then}");
}
