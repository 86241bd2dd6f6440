//! A transaction over several tables and table partitions, in which somebody dies at one step after the
//! other, and a question in which a server does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harrier_launch::{Launcher, Run, finish, seed};

use super::crash_fixture::{Ground, PATIENCE, Place};
use crate::command::preloaded;

const RANKS: usize = 3;

pub const TABLES: [&str; 4] = [
    "CREATE TABLE a (p INT, v BIGINT) PARTITION BY (p)",
    "CREATE TABLE b (k BIGINT, v BIGINT) DISTRIBUTED BY (k) WITH (buckets = 4)",
    "INSERT INTO a SELECT x % 4, x FROM generate_series(1, 1000) AS g(x)",
    "INSERT INTO b SELECT x, x FROM generate_series(1, 1000) AS g(x)",
];

/// Several tables, several table partitions, files and rows kept in the catalog, a new table, and a file that
/// is removed after the commit.
const TRANSACTION: [&str; 10] = [
    "BEGIN",
    "INSERT INTO a SELECT x % 6, x FROM generate_series(1, 600) AS g(x)",
    "DELETE FROM b WHERE k % 3 = 0",
    "UPDATE a SET v = v + 1 WHERE p = 1",
    "INSERT INTO b VALUES (-1, -1)",
    "CREATE TABLE c AS SELECT * FROM b",
    "CREATE TABLE gone AS SELECT x FROM generate_series(1, 100) AS g(x)",
    "DROP TABLE gone",
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

/// Reads several files, and prints a row for each.
const QUESTION: &str = "SELECT p, count(v) AS rows, sum(v) AS sum FROM a GROUP BY p ORDER BY p";

/// Whoever asks a server that stays away gives up by then, by the limits of [`Then::limits`] and on a machine
/// that has much else to do.
const AWAY_MAX: Duration = Duration::from_secs(60);

/// A server that somebody else may kill.
pub trait Server: Sync {
    fn name(&self) -> &'static str;

    /// Its first process, which may have ended.
    fn pid(&self) -> Option<u32>;

    /// Whether it is there, in whatever state.
    fn is_up(&self) -> bool;

    /// Whether it does what it is asked.
    fn works(&self) -> bool;

    /// Starts it again unless it runs.
    fn restart(&self);

    /// Whether that may be said of a statement that has failed as the server was gone, and has happened or
    /// not.
    fn explains(&self, stderr: &str, has_happened: bool) -> bool;
}

/// What becomes of a server that was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// It is started again at once, and the statements run on.
    ComesBack,
    /// It is started again when they have ended.
    StaysAway,
}

impl Then {
    /// How long a store is asked: until it is back, however long that takes here, or a short while.
    fn limits(self) -> [(&'static str, &'static str); 3] {
        let [retries, retry_seconds, request_seconds] = match self {
            Self::ComesBack => ["1000", "60", "30"],
            Self::StaysAway => ["2", "2", "5"],
        };
        [
            ("HARRIER_STORE_RETRIES", retries),
            ("HARRIER_STORE_RETRY_SECONDS", retry_seconds),
            ("HARRIER_STORE_REQUEST_SECONDS", request_seconds),
        ]
    }
}

/// Who dies.
#[derive(Clone, Copy)]
pub enum Dying<'s> {
    /// The only one.
    Process,
    /// One of [`RANKS`]: a writer, or the coordinator.
    Rank(usize),
    /// A server, with all of its processes, at the messages of the only process, or of this one of [`RANKS`],
    /// to it and to others.
    Server { server: &'s dyn Server, then: Then, rank: Option<usize> },
}

impl Dying<'_> {
    /// Whether it is a server that is started again while statements run.
    pub fn comes_back(&self) -> bool {
        matches!(self, Self::Server { then: Then::ComesBack, .. })
    }

    pub fn name(&self) -> String {
        match self {
            Self::Process => "the process".to_string(),
            Self::Rank(rank) => format!("rank {rank}"),
            Self::Server { server, then, rank } => {
                let then = match then {
                    Then::ComesBack => "comes back",
                    Then::StaysAway => "stays away",
                };
                let whose = rank.map_or_else(String::new, |rank| format!(", at steps of rank {rank}"));
                format!("{}, which {then}{whose}", server.name())
            }
        }
    }

    /// Whose steps are counted, if there are several.
    fn rank(&self) -> Option<usize> {
        match self {
            Self::Process => None,
            Self::Rank(rank) => Some(*rank),
            Self::Server { rank, .. } => *rank,
        }
    }
}

/// What came of one death.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// The number of steps differs a little from run to run, so that one may get by.
    pub has_died: bool,
    pub has_happened: bool,
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
    fn has_happened(&self, dying: Dying<'_>, context: &str) -> bool {
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
        if dying.rank().is_none() || !happened {
            assert_eq!(files, if happened { after.files } else { before.files }, "{context}");
        }
        happened
    }

    /// Runs it without a fault, and then with somebody dying at one in `every` steps, a function of how many
    /// there are. A server dies at messages, not at what is done to files.
    ///
    /// Errors: the launcher is not installed.
    pub fn dies(&self, dying: Dying<'_>, every: impl Fn(usize) -> usize) -> Result<(), String> {
        let name = dying.name();
        let steps = self.steps(dying)?;
        let is_tried = |letter: u8| !matches!(dying, Dying::Server { .. }) || letter != FILE;
        let places: Vec<usize> =
            steps.bytes().enumerate().filter(|(_, letter)| is_tried(*letter)).map(|(at, _)| at).collect();
        assert!(!places.is_empty(), "the steps of {name} are not seen");
        let (mut died, mut happened) = (0, 0);
        for chosen in tried(&name, places.len(), every(places.len())) {
            let outcome = self.dies_at(dying, places[chosen], steps.len())?;
            died += usize::from(outcome.has_died);
            happened += usize::from(outcome.has_happened);
        }
        println!("{name}: {died} died, {happened} transactions had happened");
        assert!(died > 0, "{name}");
        assert!(happened > 0 || !dying.comes_back(), "nothing has waited for {name}");
        Ok(())
    }

    /// Runs it without a fault; its steps, or those of the rank at whose steps somebody is to die, a letter
    /// each as `crash.c` has it.
    ///
    /// Errors: the launcher is not installed.
    pub fn steps(&self, dying: Dying<'_>) -> Result<String, String> {
        self.ground.restore();
        let count = self.ground.work().join("count");
        let mut command = commanded(&self.ground, dying, &TRANSACTION)?;
        command.env("HARRIER_CRASH_COUNT", &count);
        let run = finish(command, PATIENCE);
        assert!(run.success, "{run:#?}");
        assert!(self.has_happened(dying, "undisturbed"), "what has committed has happened");
        let steps = steps_in(&count);
        assert!(!steps.is_empty(), "the steps of {} are not seen", dying.name());
        Ok(steps)
    }

    /// Runs it with somebody dying at a step, of about so many.
    ///
    /// Errors: the launcher is not installed.
    pub fn dies_at(&self, dying: Dying<'_>, step: usize, steps: usize) -> Result<Outcome, String> {
        self.ground.restore();
        let mut command = commanded(&self.ground, dying, &TRANSACTION)?;
        command.env("HARRIER_CRASH_AT", step.to_string());
        let (run, has_died) = match dying {
            Dying::Process | Dying::Rank(_) => {
                let run = finish(command, PATIENCE);
                let has_died = !run.success;
                (run, has_died)
            }
            Dying::Server { server, then, .. } => while_dying(server, then, command),
        };
        let context = format!("{}, step {step} of {steps}: {run:#?}", dying.name());
        assert!(!run.timed_out, "{context}");
        let has_happened = self.has_happened(dying, &context);
        // What is said to be so is so; 40003 says that nobody knows.
        assert!(has_happened || !run.success, "{context}");
        if let Dying::Server { server, then, .. } = dying {
            assert!(run.success || server.explains(&run.stderr, has_happened), "{context}");
            if then == Then::StaysAway && !has_happened {
                // Nothing of it is in its own way.
                self.ground.told(&TRANSACTION);
                self.ground.swept(&format!("{context}, and once more"));
            }
        }
        Ok(Outcome { has_died, has_happened })
    }

    /// Asks [`QUESTION`] while a server dies at a message to one of the ports or an answer from it, at so
    /// many of them, beyond the first third: the answer is whole, or there is none.
    pub fn answers(&self, server: &dyn Server, then: Then, port: usize, times: usize) {
        let dying = Dying::Server { server, then, rank: None };
        let name = format!("{}, during a question", dying.name());
        self.ground.restore();
        let expected = self.ground.told(&[QUESTION]);
        let count = self.ground.work().join("count");
        let mut command = commanded(&self.ground, dying, &[QUESTION]).expect("it needs no launcher");
        command.env("HARRIER_CRASH_COUNT", &count);
        let run = finish(command, PATIENCE);
        assert!(run.success && run.stdout == expected, "{name}: {run:#?}");
        let steps = steps_in(&count);
        let places = places_of(&steps, port);
        assert!(places.len() > times, "{name}: its steps are not seen in {steps}");
        let mut died = 0;
        for number in 0..times {
            let step = places[places.len() / 3 + number * places.len() / (3 * times)];
            let mut command = commanded(&self.ground, dying, &[QUESTION]).expect("it needs no launcher");
            command.env("HARRIER_CRASH_AT", step.to_string());
            let (run, has_died) = while_dying(server, then, command);
            let context = format!("{name}, step {step} of {steps}: {run:#?}");
            assert!(!run.timed_out, "{context}");
            died += usize::from(has_died);
            match run.success {
                true => assert_eq!(run.stdout, expected, "{context}"),
                false => {
                    assert_eq!(then, Then::StaysAway, "{context}");
                    assert!(server.explains(&run.stderr, false), "{context}");
                    // The names of columns at most.
                    assert!(run.stdout.lines().count() <= 1, "{context}");
                }
            }
            assert_eq!(self.ground.told(&[QUESTION]), expected, "{context}, and once more");
        }
        assert!(died > 0, "{name}");
    }
}

/// Statements, with a count of the steps of whoever is to die, or of what is to be heard of it.
pub fn commanded(ground: &Ground, dying: Dying<'_>, statements: &[&str]) -> Result<Command, String> {
    let launcher = match dying.rank() {
        Some(_) => Launcher::open_mpi(RANKS),
        None => Launcher::none(),
    };
    let mut command = ground.command(&launcher, statements)?;
    command.env("LD_PRELOAD", crashing());
    // Not the files and connections of MPI's own.
    command.env("HARRIER_CRASH_BELOW", "/warehouse/");
    let ports: Vec<String> = ground.place.ports().iter().map(u16::to_string).collect();
    command.env("HARRIER_CRASH_PORTS", ports.join(","));
    if let Some(rank) = dying.rank() {
        // All scans and values are spread, however few bytes they have.
        command.args(["--set", "harrier.distribute_bytes_min=0"]);
        command.env("HARRIER_CRASH_RANK", rank.to_string());
    }
    if let Dying::Server { then, .. } = dying {
        // Where a commit is can be seen by them; no server dies at what is done to data files.
        command.env("HARRIER_CRASH_BELOW", "/warehouse/catalog");
        command.envs(then.limits());
    }
    Ok(command)
}

/// The letter of a step that changes a file.
const FILE: u8 = b'.';

/// The steps that a process has written down at its end.
pub fn steps_in(count: &Path) -> String {
    fs::read_to_string(count).unwrap()
}

/// Where the messages to the server at one of the ports are, and the answers from it.
pub fn places_of(steps: &str, port: usize) -> Vec<usize> {
    let letter = b'a' + u8::try_from(port).expect("there are few");
    let own = steps.bytes().enumerate().filter(|(_, step)| step.to_ascii_lowercase() == letter);
    own.map(|(at, _)| at).collect()
}

/// What a transaction in a catalog of files is at, by its steps.
pub struct Moments {
    /// The first message: no file is there.
    pub first: usize,
    /// A message to the server, or its answer, in the middle of all files.
    pub middle: usize,
    /// All files are there, and none is referred to.
    pub committing: usize,
    /// The commit has happened, and what is left over is being removed.
    pub removing: usize,
}

impl Moments {
    /// Of steps with messages to the server at one of the ports.
    ///
    /// Panics: there is no message after the last change of a file of the catalog which follows messages, or
    /// none before it.
    pub fn of(steps: &str, port: usize) -> Self {
        let letters = steps.as_bytes();
        let is_file = |at: &usize| letters[*at] == FILE;
        let places = places_of(steps, port);
        let last = (0..letters.len()).rev().find(|at| !is_file(at)).expect("there are messages");
        let committed = (0..last).rev().find(is_file).expect("the catalog is changed before it");
        let written = (0..committed).rev().find(|at| !is_file(at)).expect("files are written before that");
        Self {
            first: places[0],
            middle: places[places.len() / 2],
            committing: written + 1,
            removing: committed + 1,
        }
    }
}

/// The steps to try, of as many as there are: one in `every` from a seed on, or in `HARRIER_CRASH_EVERY`.
pub fn tried(name: &str, steps: usize, every: usize) -> impl Iterator<Item = usize> + use<> {
    let chosen = std::env::var("HARRIER_CRASH_EVERY").ok();
    let every = chosen.map_or(every, |every| every.parse().expect("a number")).max(1);
    let seed = seed();
    let first = seed as usize % every;
    println!("{name}: seed {seed}, one of {every} steps of {steps} from {first} on");
    (first..steps).step_by(every)
}

/// The library that ends processes.
pub fn crashing() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| preloaded("warehouse/crashes/crash.c", &["-ldl"]))
}

/// Runs a command in which a server is killed. It is there again afterwards. Tells whether it was killed.
pub fn while_dying(server: &dyn Server, then: Then, mut command: Command) -> (Run, bool) {
    let pid = server.pid().expect("it runs");
    command.env("HARRIER_CRASH_VICTIM", pid.to_string());
    let run = match then {
        Then::ComesBack => kept_up(server, || finish(command, PATIENCE)),
        Then::StaysAway => {
            let _back = Back(server);
            finish(command, AWAY_MAX)
        }
    };
    (run, server.pid() != Some(pid))
}

/// Does something while a server is started again whenever it is gone. The server is there afterwards.
fn kept_up<R>(server: &dyn Server, work: impl FnOnce() -> R) -> R {
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let over = AtomicBool::new(false);
    let _back = Back(server);
    thread::scope(|scope| {
        let _ends = Ends(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if !server.is_up() {
                    server.restart();
                }
                thread::sleep(Duration::from_millis(20));
            }
        });
        work()
    })
}

/// Brings a server back when this is dropped: others need it too, whatever has failed.
struct Back<'s>(&'s dyn Server);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        // It may listen still for a moment after it was killed, and does not start while a process of the
        // last one lives.
        while !self.0.works() {
            if Instant::now() > deadline {
                // A second panic would hide the first one.
                assert!(thread::panicking(), "{} does not start again", self.0.name());
                return;
            }
            self.0.restart();
        }
    }
}

#[test]
fn moments_are_found_by_the_letters_of_steps() {
    // Begun; two files; begun; a file; committed; removed; closed.
    let steps = "...AaAaBbBbAa..AaBb....Aa..";
    let moments = Moments::of(steps, 0);
    let found = [moments.first, moments.middle, moments.committing, moments.removing];
    assert_eq!(found, [3, 12, 19, 23]);
    assert_eq!(places_of(steps, 1), [7, 8, 9, 10, 17, 18]);
    assert_eq!(Moments::of(steps, 1).middle, 10);
}
