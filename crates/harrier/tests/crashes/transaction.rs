//! A transaction over several tables and table partitions, in which somebody dies at one step after the other.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harrier_launch::{Launcher, finish, fresh_seed};
use harrier_servers::Postgres;

use crate::ground::{Ground, PATIENCE, Place};

const RANKS: usize = 3;

pub const TABLES: [&str; 4] = [
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

/// All that the tables show, with a sweep and a write in between. Nothing here depends on the names of files.
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

/// Who dies.
#[derive(Clone, Copy)]
pub enum Dying {
    /// The only one.
    Process,
    /// One of [`RANKS`]: a writer, or the coordinator.
    Rank(usize),
    /// The server of the catalog, with all of its processes. It is started again at once, and the statements run on.
    Catalog(&'static Postgres),
}

/// What a warehouse shows, and how many files there are.
#[derive(Debug, PartialEq)]
struct Picture {
    shown: String,
    files: usize,
}

/// A warehouse before and after [`TRANSACTION`].
pub struct Transaction {
    ground: Ground,
    before: Picture,
    after: Picture,
}

impl Transaction {
    pub fn new(place: impl Place + 'static) -> Self {
        let ground = Ground::new(place, &TABLES);
        let picture = || {
            ground.place.settle();
            Picture { shown: ground.told(&PICTURE), files: ground.swept("undisturbed").len() }
        };
        let before = picture();
        ground.restore();
        ground.told(&TRANSACTION);
        let after = picture();
        assert_ne!(before.shown, after.shown);
        Self { ground, before, after }
    }

    /// Whether the transaction has happened.
    ///
    /// Panics: it has in part, or something of it is left that nobody refers to.
    fn has_happened(&self, is_alone: bool, context: &str) -> bool {
        self.ground.place.settle();
        let shown = self.ground.told(&PICTURE);
        let (before, after) = (&self.before, &self.after);
        assert!(
            shown == before.shown || shown == after.shown,
            "{context}:\n{shown}\nbefore:\n{before:#?}\nafter:\n{after:#?}"
        );
        let files = self.ground.swept(context).len();
        let happened = shown == after.shown;
        // Ranks may write another number of files than one process does.
        if is_alone || !happened {
            assert_eq!(files, if happened { after.files } else { before.files }, "{context}");
        }
        happened
    }

    /// Runs it without a fault, and then with somebody dying at one in `every` steps, a function of how many there are.
    ///
    /// Errors: the launcher is not installed.
    pub fn dies(&self, dying: Dying, every: impl Fn(usize) -> usize) -> Result<(), String> {
        let (name, is_alone) = match dying {
            Dying::Process => ("the process".to_string(), true),
            Dying::Rank(rank) => (format!("rank {rank}"), false),
            Dying::Catalog(_) => ("the catalog's server".to_string(), true),
        };
        self.ground.restore();
        let count = self.ground.work().join("count");
        let mut command = self.command(dying)?;
        command.env("HARRIER_CRASH_COUNT", &count);
        let run = finish(command, PATIENCE);
        assert!(run.success, "{run:#?}");
        assert!(self.has_happened(is_alone, "undisturbed"), "what has committed has happened");
        let steps: usize = fs::read_to_string(&count).unwrap().trim().parse().unwrap();
        assert!(steps > 0, "the steps of {name} are not seen");
        let (mut died, mut happened) = (0, 0);
        for step in tried(&name, steps, every(steps)) {
            self.ground.restore();
            let mut command = self.command(dying)?;
            command.env("HARRIER_CRASH_AT", step.to_string());
            // The number of steps differs a little from run to run, so that one may get by.
            let (run, has_died) = match dying {
                Dying::Process | Dying::Rank(_) => {
                    let run = finish(command, PATIENCE);
                    let has_died = !run.success;
                    (run, has_died)
                }
                Dying::Catalog(server) => {
                    let pid = server.pid().expect("it runs");
                    command.env("HARRIER_CRASH_VICTIM", pid.to_string());
                    let run = kept_up(server, || finish(command, PATIENCE));
                    (run, server.pid() != Some(pid))
                }
            };
            let context = format!("{name}, step {step} of {steps}: {run:#?}");
            assert!(!run.timed_out, "{context}");
            let has_happened = self.has_happened(is_alone, &context);
            // What is said to be so is so; 40003 says that nobody knows.
            assert!(has_happened || !run.success, "{context}");
            if let Dying::Catalog(_) = dying {
                assert!(run.success || !has_happened || run.stderr.contains("ERROR 40003"), "{context}");
            }
            died += usize::from(has_died);
            happened += usize::from(has_happened);
        }
        println!("{name}: {died} died, {happened} transactions had happened");
        assert!(died > 0, "{name}");
        Ok(())
    }

    /// The transaction, with a count of the steps of whoever is to die, or of what is to be heard of it.
    fn command(&self, dying: Dying) -> Result<Command, String> {
        let launcher = match dying {
            Dying::Rank(_) => Launcher::open_mpi(RANKS),
            _ => Launcher::none(),
        };
        let mut command = self.ground.command(&launcher, &TRANSACTION)?;
        command.env("LD_PRELOAD", crashing());
        // Not the files and connections of MPI's own.
        command.env("HARRIER_CRASH_BELOW", "/warehouse/");
        let ports: Vec<String> = self.ground.place.ports().iter().map(u16::to_string).collect();
        command.env("HARRIER_CRASH_PORTS", ports.join(","));
        match dying {
            Dying::Process => {}
            Dying::Rank(rank) => {
                // All scans and values are spread, however few bytes they have.
                command.args(["--set", "harrier.distribute_bytes_min=0"]);
                command.env("HARRIER_CRASH_RANK", rank.to_string());
            }
            // Its end is heard of in messages alone: calls on files are no steps.
            Dying::Catalog(_) => {
                command.env("HARRIER_CRASH_BELOW", "in no path");
            }
        }
        Ok(command)
    }
}

/// The steps to try, of as many as there are: one in `every` from a seed on, or in `HARRIER_CRASH_EVERY`.
pub fn tried(name: &str, steps: usize, every: usize) -> impl Iterator<Item = usize> + use<> {
    let chosen = std::env::var("HARRIER_CRASH_EVERY").ok();
    let every = chosen.map_or(every, |every| every.parse().expect("a number")).max(1);
    let seed = fresh_seed();
    let first = seed.parse::<u64>().expect("a number") as usize % every;
    println!("{name}: seed {seed}, one of {every} steps of {steps} from {first} on");
    (first..steps).step_by(every)
}

/// The library that ends processes.
pub fn crashing() -> &'static Path {
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

/// Does something while a server is started again whenever it is gone. The server is there afterwards.
fn kept_up<R>(server: &Postgres, work: impl FnOnce() -> R) -> R {
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let over = AtomicBool::new(false);
    let done = thread::scope(|scope| {
        let _ends = Ends(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if !server.listens() {
                    server.restart();
                }
                thread::sleep(Duration::from_millis(20));
            }
        });
        work()
    });
    let deadline = Instant::now() + PATIENCE;
    // It may listen still for a moment after it was killed, and does not start while a process of the last one lives.
    while !server.answers() {
        assert!(Instant::now() < deadline, "the catalog's server does not start again");
        server.restart();
    }
    done
}
