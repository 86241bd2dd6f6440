//! Crashes at each step of a transaction over several tables and table partitions, and server crashes during
//! a query.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harrier_launch::{Launcher, Run, finish, seed};

use super::crash_fixture::{CrashFixture, Place, TIMEOUT};
use crate::command::build_preload_library;

const RANKS: usize = 3;

pub const TABLES: [&str; 4] = [
    "CREATE TABLE a (p INT, v BIGINT) PARTITION BY (p)",
    "CREATE TABLE b (k BIGINT, v BIGINT) DISTRIBUTED BY (k) WITH (buckets = 4)",
    "INSERT INTO a SELECT x % 4, x FROM generate_series(1, 1000) AS g(x)",
    "INSERT INTO b SELECT x, x FROM generate_series(1, 1000) AS g(x)",
];

/// Several tables and table partitions, files and inlined rows, a new table, and a file that is removed after
/// the commit.
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

/// Queries of all tables, with VACUUM and a write in between. Nothing depends on file names.
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

/// Reads several files, and prints one row per file.
const QUERY: &str = "SELECT p, count(v) AS rows, sum(v) AS sum FROM a GROUP BY p ORDER BY p";

/// Timeout of a statement whose server stays down, by the limits of [`Then::limits`] on a busy machine.
const AWAY_MAX: Duration = Duration::from_secs(60);

/// A server that a test may kill.
pub trait Server: Sync {
    fn name(&self) -> &'static str;

    /// Its main process, which may have ended.
    fn pid(&self) -> Option<u32>;

    /// Whether its process exists, in any state.
    fn is_up(&self) -> bool;

    /// Whether it answers requests.
    fn is_responding(&self) -> bool;

    /// Restarts it unless it runs.
    fn restart(&self);

    /// Whether this is a valid error of a statement that failed while the server was down; `has_happened`:
    /// the statement was committed.
    fn is_expected_error(&self, stderr: &str, has_happened: bool) -> bool;
}

/// Fate of a killed server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Restarted at once, while the statements run.
    ComesBack,
    /// Restarted after the statements.
    StaysAway,
}

impl Then {
    /// Retry limits of a store: until it is up again, or a short time.
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

/// The victim.
#[derive(Clone, Copy)]
pub enum Victim<'s> {
    /// The only process.
    Process,
    /// One of [`RANKS`]: a writer, or the coordinator.
    Rank(usize),
    /// A server with all of its processes, killed at messages of the only process, or of this one of
    /// [`RANKS`], to it and to others.
    Server { server: &'s dyn Server, then: Then, rank: Option<usize> },
}

impl Victim<'_> {
    /// Whether a server is restarted while statements run.
    pub fn is_restarted(&self) -> bool {
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

    /// The rank whose steps are counted, if there are several.
    fn rank(&self) -> Option<usize> {
        match self {
            Self::Process => None,
            Self::Rank(rank) => Some(*rank),
            Self::Server { rank, .. } => *rank,
        }
    }
}

/// Result of one crash.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// The number of steps varies slightly between runs, so the step may not be reached.
    pub has_died: bool,
    pub has_happened: bool,
}

/// Contents of a warehouse, and its number of files.
#[derive(Debug, PartialEq)]
struct Picture {
    contents: String,
    files: usize,
}

/// A warehouse before and after [`TRANSACTION`].
pub struct Transaction {
    fixture: CrashFixture,
    before: Picture,
    after: Picture,
}

impl Transaction {
    pub fn new(place: impl Place + 'static) -> Self {
        let fixture = CrashFixture::new(place, &TABLES);
        let picture = || {
            fixture.place.settle();
            Picture {
                contents: fixture.query_output(&PICTURE),
                files: fixture.vacuum_all("undisturbed").len(),
            }
        };
        let before = picture();
        fixture.restore();
        fixture.query_output(&TRANSACTION);
        let after = picture();
        assert_ne!(before.contents, after.contents);
        Self { fixture, before, after }
    }

    /// Whether the transaction was committed.
    ///
    /// Panics: in part, or unreferenced files are left.
    fn has_happened(&self, victim: Victim<'_>, context: &str) -> bool {
        self.fixture.place.settle();
        let contents = self.fixture.query_output(&PICTURE);
        let (before, after) = (&self.before, &self.after);
        assert!(
            contents == before.contents || contents == after.contents,
            "{context}:\n{contents}\nbefore:\n{before:#?}\nafter:\n{after:#?}"
        );
        let files = self.fixture.vacuum_all(context).len();
        let is_committed = contents == after.contents;
        // Ranks may write another number of files than one process does.
        if victim.rank().is_none() || !is_committed {
            assert_eq!(files, if is_committed { after.files } else { before.files }, "{context}");
        }
        is_committed
    }

    /// Runs the transaction without a crash, then with a crash at one in `every` steps, a function of their
    /// number. A server is killed at messages, not at file system calls.
    ///
    /// Errors: the launcher is not installed.
    pub fn crash_at_steps(&self, victim: Victim<'_>, every: impl Fn(usize) -> usize) -> Result<(), String> {
        let name = victim.name();
        let steps = self.steps(victim)?;
        let is_tried = |letter: u8| !matches!(victim, Victim::Server { .. }) || letter != FILE;
        let places: Vec<usize> =
            steps.bytes().enumerate().filter(|(_, letter)| is_tried(*letter)).map(|(at, _)| at).collect();
        assert!(!places.is_empty(), "the steps of {name} are not seen");
        let (mut death_count, mut commit_count) = (0, 0);
        for chosen in steps_to_try(&name, places.len(), every(places.len())) {
            let outcome = self.crash_at(victim, places[chosen], steps.len())?;
            death_count += usize::from(outcome.has_died);
            commit_count += usize::from(outcome.has_happened);
        }
        println!("{name}: {death_count} died, {commit_count} transactions had happened");
        assert!(death_count > 0, "{name}");
        assert!(commit_count > 0 || !victim.is_restarted(), "nothing has waited for {name}");
        Ok(())
    }

    /// Runs the transaction without a crash; returns its steps, or those of the victim rank, one letter per
    /// step as in `crash.c`.
    ///
    /// Errors: the launcher is not installed.
    pub fn steps(&self, victim: Victim<'_>) -> Result<String, String> {
        self.fixture.restore();
        let count = self.fixture.work().join("count");
        let mut command = crash_command(&self.fixture, victim, &TRANSACTION)?;
        command.env("HARRIER_CRASH_COUNT", &count);
        let run = finish(command, TIMEOUT);
        assert!(run.success, "{run:#?}");
        assert!(self.has_happened(victim, "undisturbed"), "what has committed has happened");
        let steps = steps_in(&count);
        assert!(!steps.is_empty(), "the steps of {} are not seen", victim.name());
        Ok(steps)
    }

    /// Runs the transaction with a crash at a step of about `steps`.
    ///
    /// Errors: the launcher is not installed.
    pub fn crash_at(&self, victim: Victim<'_>, step: usize, steps: usize) -> Result<Outcome, String> {
        self.fixture.restore();
        let mut command = crash_command(&self.fixture, victim, &TRANSACTION)?;
        command.env("HARRIER_CRASH_AT", step.to_string());
        let (run, has_died) = match victim {
            Victim::Process | Victim::Rank(_) => {
                let run = finish(command, TIMEOUT);
                let has_died = !run.success;
                (run, has_died)
            }
            Victim::Server { server, then, .. } => run_while_killing(server, then, command),
        };
        let context = format!("{}, step {step} of {steps}: {run:#?}", victim.name());
        assert!(!run.timed_out, "{context}");
        let has_happened = self.has_happened(victim, &context);
        // A reported outcome is true; 40003 reports an unknown one.
        assert!(has_happened || !run.success, "{context}");
        if let Victim::Server { server, then, .. } = victim {
            assert!(run.success || server.is_expected_error(&run.stderr, has_happened), "{context}");
            if then == Then::StaysAway && !has_happened {
                // Its leftovers do not block the next attempt.
                self.fixture.query_output(&TRANSACTION);
                self.fixture.vacuum_all(&format!("{context}, and once more"));
            }
        }
        Ok(Outcome { has_died, has_happened })
    }

    /// Runs [`QUERY`] while a server is killed at a message to one of the ports or a response, at `times`
    /// of them after the first third: the answer is complete, or there is none.
    pub fn query_during_crashes(&self, server: &dyn Server, then: Then, port: usize, times: usize) {
        let victim = Victim::Server { server, then, rank: None };
        let name = format!("{}, during a question", victim.name());
        self.fixture.restore();
        let expected = self.fixture.query_output(&[QUERY]);
        let count = self.fixture.work().join("count");
        let mut command = crash_command(&self.fixture, victim, &[QUERY]).expect("it needs no launcher");
        command.env("HARRIER_CRASH_COUNT", &count);
        let run = finish(command, TIMEOUT);
        assert!(run.success && run.stdout == expected, "{name}: {run:#?}");
        let steps = steps_in(&count);
        let places = places_of(&steps, port);
        assert!(places.len() > times, "{name}: its steps are not seen in {steps}");
        let mut death_count = 0;
        for number in 0..times {
            let step = places[places.len() / 3 + number * places.len() / (3 * times)];
            let mut command = crash_command(&self.fixture, victim, &[QUERY]).expect("it needs no launcher");
            command.env("HARRIER_CRASH_AT", step.to_string());
            let (run, has_died) = run_while_killing(server, then, command);
            let context = format!("{name}, step {step} of {steps}: {run:#?}");
            assert!(!run.timed_out, "{context}");
            death_count += usize::from(has_died);
            match run.success {
                true => assert_eq!(run.stdout, expected, "{context}"),
                false => {
                    assert_eq!(then, Then::StaysAway, "{context}");
                    assert!(server.is_expected_error(&run.stderr, false), "{context}");
                    // At most the names of columns.
                    assert!(run.stdout.lines().count() <= 1, "{context}");
                }
            }
            assert_eq!(self.fixture.query_output(&[QUERY]), expected, "{context}, and once more");
        }
        assert!(death_count > 0, "{name}");
    }
}

/// Builds a command for statements that counts the victim's steps, or crashes it.
pub fn crash_command(
    fixture: &CrashFixture,
    victim: Victim<'_>,
    statements: &[&str],
) -> Result<Command, String> {
    let launcher = match victim.rank() {
        Some(_) => Launcher::open_mpi(RANKS),
        None => Launcher::none(),
    };
    let mut command = fixture.command(&launcher, statements)?;
    command.env("LD_PRELOAD", crash_library());
    // Ignores files and connections of MPI itself.
    command.env("HARRIER_CRASH_BELOW", "/warehouse/");
    let ports: Vec<String> = fixture.place.ports().iter().map(u16::to_string).collect();
    command.env("HARRIER_CRASH_PORTS", ports.join(","));
    if let Some(rank) = victim.rank() {
        // Distributes all scans and values, however small.
        command.args(["--set", "harrier.distribute_bytes_min=0"]);
        command.env("HARRIER_CRASH_RANK", rank.to_string());
    }
    if let Victim::Server { then, .. } = victim {
        // The commit can be located by them; servers are not killed at operations on data files.
        command.env("HARRIER_CRASH_BELOW", "/warehouse/catalog");
        command.envs(then.limits());
    }
    Ok(command)
}

/// Letter of a step that changes a file.
const FILE: u8 = b'.';

/// Steps that a process has written at its exit.
pub fn steps_in(count: &Path) -> String {
    fs::read_to_string(count).unwrap()
}

/// Indexes of messages to the server at one of the ports, and of its responses.
pub fn places_of(steps: &str, port: usize) -> Vec<usize> {
    let letter = b'a' + u8::try_from(port).expect("there are few");
    let own = steps.bytes().enumerate().filter(|(_, step)| step.to_ascii_lowercase() == letter);
    own.map(|(at, _)| at).collect()
}

/// Phases of a transaction with a catalog of files, by its steps.
pub struct Moments {
    /// The first message: no file exists.
    pub first: usize,
    /// A message to the server, or its response, halfway through the files.
    pub middle: usize,
    /// All files exist, none is referenced.
    pub committing: usize,
    /// The transaction is committed, and leftovers are being removed.
    pub removing: usize,
}

impl Moments {
    /// From steps with messages to the server at one of the ports.
    ///
    /// Panics: no message after the last catalog change that follows messages, or none before it.
    pub fn of(steps: &str, port: usize) -> Self {
        let letters = steps.as_bytes();
        let is_file = |at: &usize| letters[*at] == FILE;
        let places = places_of(steps, port);
        let last = (0..letters.len()).rev().find(|at| !is_file(at)).expect("there are messages");
        let commit_step = (0..last).rev().find(is_file).expect("the catalog is changed before it");
        let written = (0..commit_step).rev().find(|at| !is_file(at)).expect("files are written before that");
        Self {
            first: places[0],
            middle: places[places.len() / 2],
            committing: written + 1,
            removing: commit_step + 1,
        }
    }
}

/// Steps to try: one in `every` from a seeded start, or in `HARRIER_CRASH_EVERY`.
pub fn steps_to_try(name: &str, steps: usize, every: usize) -> impl Iterator<Item = usize> + use<> {
    let chosen = std::env::var("HARRIER_CRASH_EVERY").ok();
    let every = chosen.map_or(every, |every| every.parse().expect("a number")).max(1);
    let seed = seed();
    let first = seed as usize % every;
    println!("{name}: seed {seed}, one of {every} steps of {steps} from {first} on");
    (first..steps).step_by(every)
}

/// The library that kills processes.
pub fn crash_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| build_preload_library("warehouse/crashes/crash.c", &["-ldl"]))
}

/// Runs a command in which a server is killed; the server is up again afterwards. Also returns whether it was
/// killed.
pub fn run_while_killing(server: &dyn Server, then: Then, mut command: Command) -> (Run, bool) {
    let pid = server.pid().expect("it runs");
    command.env("HARRIER_CRASH_VICTIM", pid.to_string());
    let run = match then {
        Then::ComesBack => with_restarts(server, || finish(command, TIMEOUT)),
        Then::StaysAway => {
            let _back = Back(server);
            finish(command, AWAY_MAX)
        }
    };
    (run, server.pid() != Some(pid))
}

/// Runs `work` while a thread restarts the server whenever it is down. The server is up afterwards.
fn with_restarts<R>(server: &dyn Server, work: impl FnOnce() -> R) -> R {
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

/// Restarts a server on drop, because other tests need it whatever has failed.
struct Back<'s>(&'s dyn Server);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        let deadline = Instant::now() + TIMEOUT;
        // It may still listen for a moment after the kill, and does not start while an old process lives.
        while !self.0.is_responding() {
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
fn moments_are_located_by_step_letters() {
    // Begin; two files; begin; a file; committed; removed; closed.
    let steps = "...AaAaBbBbAa..AaBb....Aa..";
    let moments = Moments::of(steps, 0);
    let actual = [moments.first, moments.middle, moments.committing, moments.removing];
    assert_eq!(actual, [3, 12, 19, 23]);
    assert_eq!(places_of(steps, 1), [7, 8, 9, 10, 17, 18]);
    assert_eq!(Moments::of(steps, 1).middle, 10);
}
