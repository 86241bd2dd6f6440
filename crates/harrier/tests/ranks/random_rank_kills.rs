//! Random kills of the processes of a gang during statements: working ranks, the spare, the coordinator, the
//! launcher.
//!
//! They are killed, stopped, aborted, terminated, or exit. If one or two working ranks die, the statement
//! fails with 57P02 and the name of one of them, and the next one succeeds, with a spare or with fewer ranks;
//! nothing of the failed statement is left on any rank (`harrier.check_ledger`). If the spare dies, the
//! running statement succeeds. If the coordinator or the launcher dies, all other processes end, no answer is
//! sent, and no file, shared memory or socket is left.
//!
//! A long-lived gang loses as many ranks as it has spares, and then runs statements: the remaining ranks may
//! not hold more memory, descriptors, threads and arenas than after the first loss (leak check).
//!
//! `HARRIER_ROUNDS` sets the number of rounds (200 take some minutes), and of statements at the end of the
//! long-lived gang if that is more than the default; `HARRIER_SEED` repeats the choices of a run. Prints the
//! times until a statement failed, until the next one succeeded, and until all processes ended. No timeout
//! decides the result.

use std::collections::{BTreeMap, VecDeque};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};

use crate::command::{Folder, build_preload_library};
use crate::gang::{Gang, Resources, data, surviving_session_with};

/// Rounds of `make test`, one per kind of victim: some twenty seconds.
const ROUNDS: usize = VICTIMS.len();

/// Four working ranks and a spare.
const RANKS: usize = 5;

/// Working ranks besides the coordinator, those with the lowest numbers.
const FOLLOWERS: usize = 3;

/// Maximum delay from the start of a statement to the kill.
const LIFE_MS_MAX: u64 = 300;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Worker,
    TwoWorkers,
    Spare,
    Coordinator,
    Launcher,
}

/// Victims of the rounds, in random order.
const VICTIMS: [Victim; 12] = [
    Victim::Worker,
    Victim::Worker,
    Victim::Worker,
    Victim::Worker,
    Victim::TwoWorkers,
    Victim::TwoWorkers,
    Victim::Spare,
    Victim::Spare,
    Victim::Coordinator,
    Victim::Coordinator,
    Victim::Launcher,
    Victim::Launcher,
];

/// How a process is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Death {
    Killed,
    /// SIGSTOP for ever: the failure detector must kill it.
    Stopped,
    Aborted,
    /// SIGTERM: the rank removes its files first.
    Asked,
    /// Exit with status 0 without notice.
    Exit,
}

const DEATHS: [Death; 5] = [Death::Killed, Death::Stopped, Death::Aborted, Death::Asked, Death::Exit];

/// For the launcher. Stopping it is left out: nothing happens until it is continued.
const LAUNCHER_DEATHS: [Death; 2] = [Death::Killed, Death::Asked];

impl Death {
    fn signal(self) -> Signal {
        match self {
            Death::Killed => Signal::SIGKILL,
            Death::Stopped => Signal::SIGSTOP,
            Death::Aborted => Signal::SIGABRT,
            Death::Asked => Signal::SIGTERM,
            // Handled by `exit.c`.
            Death::Exit => Signal::SIGUSR2,
        }
    }
}

/// Random choices of a run, from its seed.
struct Chance {
    random: StdRng,
    rank_deaths: Deck<Death>,
    launcher_deaths: Deck<Death>,
}

impl Chance {
    fn new() -> Chance {
        let seed = harrier_launch::seed();
        println!("seed {seed}");
        Chance {
            random: StdRng::seed_from_u64(seed),
            rank_deaths: Deck::new(&DEATHS),
            launcher_deaths: Deck::new(&LAUNCHER_DEATHS),
        }
    }

    fn death(&mut self) -> Death {
        self.rank_deaths.draw(&mut self.random)
    }

    /// Sleeps for the random delay before the kill.
    fn life(&mut self) {
        thread::sleep(Duration::from_millis(self.random.random_range(0..LIFE_MS_MAX)));
    }
}

/// Draws each element once before repeating.
struct Deck<T: 'static> {
    all: &'static [T],
    remaining: Vec<T>,
}

impl<T: Copy> Deck<T> {
    fn new(all: &'static [T]) -> Deck<T> {
        Deck { all, remaining: Vec::new() }
    }

    fn draw(&mut self, random: &mut StdRng) -> T {
        if self.remaining.is_empty() {
            self.remaining.extend_from_slice(self.all);
            self.remaining.shuffle(random);
        }
        self.remaining.pop().expect("no deck is empty")
    }
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().expect("a number"))
}

fn is_skipped() -> bool {
    let is_skipped = env::var_os("HARRIER_SKIP_MPI").is_some_and(|value| value == "1");
    if is_skipped {
        eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
    }
    is_skipped
}

#[test]
fn gang_survives_or_ends_after_random_kills() {
    if is_skipped() {
        return;
    }
    let mut chance = Chance::new();
    let rounds = number("HARRIER_ROUNDS").map_or(ROUNDS, |rounds| rounds as usize);
    let mut victims = Deck::new(&VICTIMS);
    let mut plan: VecDeque<Victim> = (0..rounds).map(|_| victims.draw(&mut chance.random)).collect();
    let mut times = Times::default();
    while !plan.is_empty() {
        one_gang(&mut chance, &mut plan, &mut times);
    }
    times.print();
}

/// Kills processes of one gang until the gang has ended, fewer than two followers are left, or the next
/// victim is a spare and there is none.
fn one_gang(chance: &mut Chance, plan: &mut VecDeque<Victim>, times: &mut Times) {
    let mut gang = start(RANKS, "1", &[]);
    is_well(&mut gang);
    gang.record_names();
    let descriptors = descriptors(&gang);
    let mut living: Vec<usize> = (1..RANKS).collect();
    while living.len() > 1 {
        let has_spare = living.len() > FOLLOWERS;
        let Some(victim) = plan.pop_front_if(|victim| has_spare || *victim != Victim::Spare) else { break };
        match victim {
            Victim::Worker => kill_workers(&mut gang, chance, &mut living, 1, times),
            Victim::TwoWorkers => kill_workers(&mut gang, chance, &mut living, 2, times),
            Victim::Spare => kill_spare(&mut gang, chance, &mut living),
            Victim::Coordinator => return kill_coordinator(gang, chance, times),
            Victim::Launcher => return kill_launcher(gang, chance, times),
        }
    }
    let descriptors_at_end = self::descriptors(&gang);
    assert!(
        descriptors_at_end <= descriptors,
        "{descriptors_at_end} descriptors, {descriptors} at the beginning"
    );
    gang.end();
    gang.leaves_nothing();
}

/// Kills up to `count` working ranks, only one if two are left besides the coordinator.
fn kill_workers(
    gang: &mut Gang,
    chance: &mut Chance,
    living: &mut Vec<usize>,
    count: usize,
    times: &mut Times,
) {
    let count = if living.len() > 2 { count } else { 1 };
    let working = &living[..living.len().min(FOLLOWERS)];
    let victims: Vec<usize> = working.choose_multiple(&mut chance.random, count).copied().collect();
    let death = chance.death();
    kill_and_assert_recovery(gang, chance, &victims, death, times);
    living.retain(|rank| !victims.contains(rank));
}

fn kill_and_assert_recovery(
    gang: &mut Gang,
    chance: &mut Chance,
    victims: &[usize],
    death: Death,
    times: &mut Times,
) {
    gang.ask(&endless());
    gang.wait_until_busy(&[0]);
    chance.life();
    let start_time = Instant::now();
    victims.iter().for_each(|victim| gang.signal_rank(*victim, death.signal()));
    let (code, message) = gang.wait_for_answer().expect_err("a rank has died");
    let failed = start_time.elapsed();
    let names_victim = victims.iter().any(|victim| message.contains(&format!("rank {victim} is lost")));
    assert!(code == "57P02" && names_victim, "{death:?} of {victims:?}: {code} {message}");
    // With two victims, the loss of the second may be detected by the next statement only.
    let again = Instant::now();
    while victims.len() > 1 && !is_well_if_whole(gang, victims) {}
    is_well(gang);
    times.failed.push((death, failed));
    times.answered.push(again.elapsed());
}

/// The running statement succeeds.
fn kill_spare(gang: &mut Gang, chance: &mut Chance, living: &mut Vec<usize>) {
    let spare = living.pop().expect("the last one is the spare");
    let death = chance.death();
    gang.ask(&sum());
    chance.life();
    gang.signal_rank(spare, death.signal());
    let rows = gang.wait_for_answer().unwrap_or_else(|error| panic!("{death:?} of the spare: {error:?}"));
    assert_eq!(rows, [[Some(sum_alone().to_string())]], "{death:?} of the spare");
    is_well(gang);
    gang.wait_for_exit(spare);
    is_well(gang);
}

/// The client gets no answer, and the other ranks end too.
fn kill_coordinator(mut gang: Gang, chance: &mut Chance, times: &mut Times) {
    let death = chance.death();
    gang.ask(&endless());
    gang.wait_until_busy(&[0]);
    chance.life();
    gang.record_names();
    let start_time = Instant::now();
    gang.signal_rank(0, death.signal());
    // Open MPI's launcher has no exit status of its own if it lets the others live.
    gang.end();
    gang.leaves_nothing();
    times.ended.push((Victim::Coordinator, start_time.elapsed()));
    assert!(gang.is_silent(), "{death:?} of the coordinator has answered");
    if death == Death::Asked {
        assert!(gang.stderr().contains("ERROR 57P01: "), "{}", gang.stderr());
    }
}

/// All ranks end, at different moments, so that a statement may fail first.
fn kill_launcher(mut gang: Gang, chance: &mut Chance, times: &mut Times) {
    let death = chance.launcher_deaths.draw(&mut chance.random);
    gang.ask(&endless());
    gang.wait_until_busy(&[0]);
    chance.life();
    gang.record_names();
    let start_time = Instant::now();
    gang.signal_launcher(death.signal());
    let status = gang.end();
    assert!(!status.success(), "{death:?} of the launcher: {status}");
    gang.leaves_nothing();
    times.ended.push((Victim::Launcher, start_time.elapsed()));
    if death == Death::Asked {
        // Reported by the launcher, or by a rank that ended first.
        assert!(["57P01", "57P02"].iter().any(|code| gang.stderr().contains(code)), "{}", gang.stderr());
    }
}

/// Ranks of the long-lived gang: four work, and each kill uses a spare.
const LONG_RANKS: usize = 1 + FOLLOWERS + LONG_DEATHS;
const LONG_DEATHS: usize = 5;

/// Rounds of statements: after each kill, and at the end.
const TURNS: usize = 1;
const LAST_TURNS: usize = 12;

/// Growth that is allowed between a rank's first rounds and the end.
///
/// A round sends some megabytes to each rank, so a leak would exceed this after [`LAST_TURNS`] rounds. Partly
/// used pages of the allocator were up to 18 MB more at the end, and shared memory, in which arenas keep free
/// ranges for later blocks, 27 MB; the ledger checks after each statement that no block stays lent. One
/// descriptor per kill or per round is too many. The pool of blocking threads is as large as its peak in the
/// last ten seconds.
const MORE: Resources =
    Resources { private_bytes: 40 << 20, shared_bytes: 128 << 20, arenas: 0, descriptors: 2, threads: 8 };

/// Timeout for freed resources to be returned: blocking threads live for ten seconds.
const SETTLING: Duration = Duration::from_secs(60);

#[test]
fn surviving_ranks_do_not_leak() {
    if is_skipped() {
        return;
    }
    let mut chance = Chance::new();
    let turns = number("HARRIER_ROUNDS").map_or(LAST_TURNS, |rounds| LAST_TURNS.max(rounds as usize));
    // The allocator would otherwise keep freed memory for ten seconds.
    let mut gang = start(LONG_RANKS, &LONG_DEATHS.to_string(), &[("MIMALLOC_PURGE_DELAY", "0")]);
    is_well(&mut gang);
    gang.record_names();
    let mut times = Times::default();
    let mut living: Vec<usize> = (1..LONG_RANKS).collect();
    // Besides the coordinator, one rank survives from the first statement to the last.
    let witness = chance.random.random_range(1..=FOLLOWERS);
    let mut first: BTreeMap<usize, Resources> = BTreeMap::new();
    for _ in 0..LONG_DEATHS {
        let mortal: Vec<usize> =
            living[..FOLLOWERS].iter().copied().filter(|rank| *rank != witness).collect();
        let victim = *mortal.choose(&mut chance.random).expect("two of three");
        let death = chance.death();
        kill_and_assert_recovery(&mut gang, &mut chance, &[victim], death, &mut times);
        gang.wait_for_exit(victim);
        living.retain(|rank| *rank != victim);
        // Each rank held a descriptor (pidfd) of the killed process.
        first.values_mut().for_each(|resources| resources.descriptors -= 1);
        (0..TURNS).for_each(|_| run_each_kind_of_statement(&mut gang));
        let resources = gang.open_resources();
        for rank in living[..FOLLOWERS].iter().chain([&0]) {
            first.entry(*rank).or_insert(resources[rank]);
        }
    }
    (0..turns).for_each(|_| run_each_kind_of_statement(&mut gang));
    first.retain(|rank, _| *rank == 0 || living.contains(rank));
    assert!(first.len() == 1 + FOLLOWERS && first.contains_key(&witness), "{first:?}");
    let start_time = Instant::now();
    loop {
        let last = gang.open_resources();
        let growth = first.iter().filter(|(rank, first)| has_grown(&last[*rank], first, living.len() + 1));
        let growth: Vec<_> = growth.map(|(rank, first)| (rank, first, last[rank])).collect();
        if growth.is_empty() {
            println!("after a rank's first statements: {first:?}\nat the end: {last:?}");
            break;
        }
        assert!(start_time.elapsed() < SETTLING, "(rank, first, last) after {turns} turns: {growth:#?}");
        thread::sleep(Duration::from_millis(50));
    }
    gang.end();
    gang.leaves_nothing();
    times.print();
}

/// Whether `last` exceeds `first` by more than [`MORE`]. A rank maps the arena of each live rank and no
/// other.
fn has_grown(last: &Resources, first: &Resources, ranks: usize) -> bool {
    last.private_bytes > first.private_bytes + MORE.private_bytes
        || last.shared_bytes > first.shared_bytes + MORE.shared_bytes
        || last.arenas > ranks + MORE.arenas
        || last.descriptors > first.descriptors + MORE.descriptors
        || last.threads > first.threads + MORE.threads
}

/// Runs one statement of each kind: small, full redistribution, error on the ranks, early LIMIT.
fn run_each_kind_of_statement(gang: &mut Gang) {
    is_well(gang);
    let redistribution = format!(
        "select count(*) from (select distinct l_orderkey, l_linenumber, l_comment from {})",
        lineitem()
    );
    assert_eq!(gang.answer(&redistribution), Ok(vec![vec![Some(LINEITEM_ROWS.to_string())]]));
    let failing =
        format!("select l_returnflag, sum(1 / (l_orderkey - 250016)) from {} group by 1", lineitem());
    let (code, message) = gang.answer(&failing).expect_err("it divides by zero");
    assert_eq!(code, "22012", "{message}");
    let limited_sql = format!("{} limit 5", pairs("a.l_comment", 16));
    assert_eq!(gang.answer(&limited_sql).map(|rows| rows.len()), Ok(5));
}

/// Starts a gang that survives the loss of ranks; its ranks exit on SIGUSR2.
fn start(ranks: usize, spares: &str, environment: &[(&str, &str)]) -> Gang {
    let preloaded = [("LD_PRELOAD", exit_library().to_str().expect("a path in UTF-8"))];
    let environment: Vec<(&str, &str)> = preloaded.iter().chain(environment).copied().collect();
    surviving_session_with(ranks, &["--spares", spares], &environment)
}

/// Builds the library that makes a rank exit.
fn exit_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| build_preload_library("ranks/random_rank_kills/exit.c", &[]))
}

const LINEITEM_ROWS: u64 = 299_814;

fn lineitem() -> String {
    format!("'{}/lineitem/'", data().display())
}

/// Selects `what` from all pairs of rows with equal part keys modulo `classes`.
fn pairs(what: &str, classes: u32) -> String {
    let lineitem = lineitem();
    format!(
        "select {what} from {lineitem} a join {lineitem} b on a.l_partkey % {classes} = b.l_partkey % {classes}"
    )
}

/// Billions of pairs: never ends within a test.
fn endless() -> String {
    pairs("sum(a.l_quantity * b.l_tax)", 16)
}

/// A hundred million pairs: about as long as the maximum delay, or longer.
fn sum() -> String {
    pairs("sum(a.l_quantity * b.l_tax) as total", 1024)
}

/// Answer of one process to [`sum`].
fn sum_alone() -> &'static str {
    static SUM: OnceLock<String> = OnceLock::new();
    SUM.get_or_init(|| {
        let run = Folder::new().command(&["--format", "csv", "-c", &sum()]).output();
        let run = run.expect("the program starts");
        assert!(run.status.success(), "{run:?}");
        let text = String::from_utf8(run.stdout).expect("a number");
        text.trim_end().strip_prefix("total\n").expect("one row with a name").to_string()
    })
}

/// Whether a statement succeeds; otherwise it must fail because of the `victims`.
fn is_well_if_whole(gang: &mut Gang, victims: &[usize]) -> bool {
    match gang.answer(&count()) {
        Ok(_) => true,
        Err((code, message)) => {
            let names_victim =
                victims.iter().any(|victim| message.contains(&format!("rank {victim} is lost")));
            assert!(code == "57P02" && names_victim, "{code} {message}");
            false
        }
    }
}

fn count() -> String {
    format!("select l_returnflag, count(*) from {} group by 1 order by 1", lineitem())
}

#[track_caller]
fn is_well(gang: &mut Gang) {
    let rows = gang.answer(&count()).expect("the gang is well");
    let counts: Vec<u64> = rows.iter().map(|row| row[1].as_deref().unwrap().parse().unwrap()).collect();
    assert_eq!((rows.len(), counts.iter().sum::<u64>()), (3, LINEITEM_ROWS));
}

/// Open descriptors of the coordinator.
fn descriptors(gang: &Gang) -> usize {
    let pid = gang.rank_processes()[&0];
    fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives").count()
}

#[derive(Default)]
struct Times {
    failed: Vec<(Death, Duration)>,
    answered: Vec<Duration>,
    ended: Vec<(Victim, Duration)>,
}

impl Times {
    fn print(&self) {
        let show = |what: &str, times: Vec<Duration>| {
            let mut times = times;
            times.sort();
            if let (Some(median), Some(longest)) = (times.get(times.len() / 2), times.last()) {
                println!("{what}: {} times, median {median:.0?}, longest {longest:.0?}", times.len());
            }
        };
        for death in DEATHS {
            let times = self.failed.iter().filter(|(of, _)| *of == death).map(|(_, time)| *time).collect();
            show(&format!("fails after {death:?}"), times);
        }
        show("the next statement is answered", self.answered.clone());
        for victim in [Victim::Coordinator, Victim::Launcher] {
            let times = self.ended.iter().filter(|(of, _)| *of == victim).map(|(_, time)| *time).collect();
            show(&format!("{victim:?} dies, all processes end"), times);
        }
    }
}
