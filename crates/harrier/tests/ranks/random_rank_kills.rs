//! Processes of a gang die at random moments of statements that compute: ranks that work, the spare, the
//! coordinator, the launcher.
//!
//! They are killed, stopped, aborted, asked to end, or exit by themselves. Of ranks that work one or two die:
//! the statement fails with 57P02 and the name of one of them, and the next one is right, with a spare or
//! with fewer ranks; nothing of the failed one is left on any rank (`harrier.check_ledger`). When the spare
//! dies, the statement is right that runs. When the coordinator or the launcher does, all others end, no
//! answer is made up, and no file, no shared memory and no socket is left.
//!
//! One gang lives on through as many deaths as it has spares, and then answers statements: no rank that is
//! left may hold more memory, descriptors, threads and arenas than after the first death.
//!
//! `HARRIER_ROUNDS` says how many rounds (200 take some minutes), and how often that last gang is asked if
//! that is more than usual; `HARRIER_SEED` repeats the choices of a run. Prints how long a statement took to
//! fail after the death, the next one to answer, and all processes to end. No time decides anything.

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

use crate::command::{Folder, preloaded};
use crate::gang::{Gang, Held, data, surviving_session_with};

/// Rounds of `make test`, each with another victim: some twenty seconds.
const ROUNDS: usize = VICTIMS.len();

/// Four work, one is a spare.
const RANKS: usize = 5;

/// Ranks that work besides the coordinator, while there are enough. They are those with the lowest numbers.
const FOLLOWERS: usize = 3;

/// How long a victim lives after its statement has begun, at most.
const LIFE_MS_MAX: u64 = 300;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Worker,
    TwoWorkers,
    Spare,
    Coordinator,
    Launcher,
}

/// Of the rounds; their order is random.
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

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Death {
    Killed,
    /// For ever: the others have to see to its end.
    Stopped,
    Aborted,
    /// The rank removes its files first.
    Asked,
    /// With status 0, without a word to anybody.
    Exit,
}

const DEATHS: [Death; 5] = [Death::Killed, Death::Stopped, Death::Aborted, Death::Asked, Death::Exit];

/// Of the launcher. One that is stopped goes on as soon as it is continued, and nothing else happens.
const LAUNCHER_DEATHS: [Death; 2] = [Death::Killed, Death::Asked];

impl Death {
    fn signal(self) -> Signal {
        match self {
            Death::Killed => Signal::SIGKILL,
            Death::Stopped => Signal::SIGSTOP,
            Death::Aborted => Signal::SIGABRT,
            Death::Asked => Signal::SIGTERM,
            // See `exit.c`.
            Death::Exit => Signal::SIGUSR2,
        }
    }
}

/// What happens in a run, from its seed.
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

    /// The time that the victim has still to live.
    fn life(&mut self) {
        thread::sleep(Duration::from_millis(self.random.random_range(0..LIFE_MS_MAX)));
    }
}

/// Draws each card once before any comes again.
struct Deck<T: 'static> {
    all: &'static [T],
    left: Vec<T>,
}

impl<T: Copy> Deck<T> {
    fn new(all: &'static [T]) -> Deck<T> {
        Deck { all, left: Vec::new() }
    }

    fn draw(&mut self, random: &mut StdRng) -> T {
        if self.left.is_empty() {
            self.left.extend_from_slice(self.all);
            self.left.shuffle(random);
        }
        self.left.pop().expect("no deck is empty")
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
fn the_gang_goes_on_or_ends() {
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

/// Rounds until a gang has ended, has no two followers left, or has no spare where one is to die.
fn one_gang(chance: &mut Chance, plan: &mut VecDeque<Victim>, times: &mut Times) {
    let mut gang = start(RANKS, "1", &[]);
    is_well(&mut gang);
    gang.look();
    let descriptors = descriptors(&gang);
    let mut living: Vec<usize> = (1..RANKS).collect();
    while living.len() > 1 {
        let has_spare = living.len() > FOLLOWERS;
        let Some(victim) = plan.pop_front_if(|victim| has_spare || *victim != Victim::Spare) else { break };
        match victim {
            Victim::Worker => workers_die(&mut gang, chance, &mut living, 1, times),
            Victim::TwoWorkers => workers_die(&mut gang, chance, &mut living, 2, times),
            Victim::Spare => spare_dies(&mut gang, chance, &mut living),
            Victim::Coordinator => return coordinator_dies(gang, chance, times),
            Victim::Launcher => return launcher_dies(gang, chance, times),
        }
    }
    let left = self::descriptors(&gang);
    assert!(left <= descriptors, "{left} descriptors, {descriptors} at the beginning");
    gang.end();
    gang.leaves_nothing();
}

/// As many of those that work, unless only two ranks are left besides the coordinator: then one.
fn workers_die(
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
    die(gang, chance, &victims, death, times);
    living.retain(|rank| !victims.contains(rank));
}

fn die(gang: &mut Gang, chance: &mut Chance, victims: &[usize], death: Death, times: &mut Times) {
    gang.ask(&endless());
    gang.busy(&[0]);
    chance.life();
    let began = Instant::now();
    victims.iter().for_each(|victim| gang.signal_rank(*victim, death.signal()));
    let (code, message) = gang.answered().expect_err("a rank has died");
    let failed = began.elapsed();
    let named = victims.iter().any(|victim| message.contains(&format!("rank {victim} is lost")));
    assert!(code == "57P02" && named, "{death:?} of {victims:?}: {code} {message}");
    // Of two that die together the second may be noticed by the next statement only, when its process is
    // taken down.
    let again = Instant::now();
    while victims.len() > 1 && !is_well_if_whole(gang, victims) {}
    is_well(gang);
    times.failed.push((death, failed));
    times.answered.push(again.elapsed());
}

/// A statement that runs meanwhile does not mind.
fn spare_dies(gang: &mut Gang, chance: &mut Chance, living: &mut Vec<usize>) {
    let spare = living.pop().expect("the last one is the spare");
    let death = chance.death();
    gang.ask(&sum());
    chance.life();
    gang.signal_rank(spare, death.signal());
    let rows = gang.answered().unwrap_or_else(|error| panic!("{death:?} of the spare: {error:?}"));
    assert_eq!(rows, [[Some(sum_alone().to_string())]], "{death:?} of the spare");
    is_well(gang);
    gang.ended(spare);
    is_well(gang);
}

/// Its client sees the end and no answer, and the other ranks end too.
fn coordinator_dies(mut gang: Gang, chance: &mut Chance, times: &mut Times) {
    let death = chance.death();
    gang.ask(&endless());
    gang.busy(&[0]);
    chance.life();
    gang.look();
    let began = Instant::now();
    gang.signal_rank(0, death.signal());
    // Open MPI's launcher has no status to tell of when it lets the others live.
    gang.end();
    gang.leaves_nothing();
    times.ended.push((Victim::Coordinator, began.elapsed()));
    assert!(gang.is_silent(), "{death:?} of the coordinator has answered");
    if death == Death::Asked {
        assert!(gang.stderr().contains("ERROR 57P01: "), "{}", gang.stderr());
    }
}

/// All ranks end. They are told so at different moments, so that a statement may fail first.
fn launcher_dies(mut gang: Gang, chance: &mut Chance, times: &mut Times) {
    let death = chance.launcher_deaths.draw(&mut chance.random);
    gang.ask(&endless());
    gang.busy(&[0]);
    chance.life();
    gang.look();
    let began = Instant::now();
    gang.signal_launcher(death.signal());
    let status = gang.end();
    assert!(!status.success(), "{death:?} of the launcher: {status}");
    gang.leaves_nothing();
    times.ended.push((Victim::Launcher, began.elapsed()));
    if death == Death::Asked {
        // Why: the launcher, or a rank that was faster to end.
        assert!(["57P01", "57P02"].iter().any(|code| gang.stderr().contains(code)), "{}", gang.stderr());
    }
}

/// Ranks of the gang that lives long: four work, and each death takes a spare.
const LONG_RANKS: usize = 1 + FOLLOWERS + LONG_DEATHS;
const LONG_DEATHS: usize = 5;

/// How often it is asked everything: after each death, and at the end.
const TURNS: usize = 1;
const LAST_TURNS: usize = 12;

/// What a rank may hold more of at the end than after its first turns.
///
/// A turn moves some megabytes to each rank, so that memory which stayed would be more than this after
/// [`LAST_TURNS`] turns. Pages that the allocator has given out in part were up to 18 MB more at the end, and
/// of shared memory, of which arenas keep free ranges for the blocks to come, 27 MB; that no block stays lent
/// is checked after each statement. One descriptor for each death, or for each turn, is too many. Of threads
/// for blocking calls there are as many as were needed at the same time in the last ten seconds.
const MORE: Held =
    Held { private_bytes: 40 << 20, shared_bytes: 128 << 20, arenas: 0, descriptors: 2, threads: 8 };

/// How long what a rank has freed may take to be gone: the thread of a blocking call is kept for ten seconds.
const SETTLING: Duration = Duration::from_secs(60);

#[test]
fn survivors_hold_no_more() {
    if is_skipped() {
        return;
    }
    let mut chance = Chance::new();
    let turns = number("HARRIER_ROUNDS").map_or(LAST_TURNS, |rounds| LAST_TURNS.max(rounds as usize));
    // Freed memory would stay with the process for ten seconds.
    let mut gang = start(LONG_RANKS, &LONG_DEATHS.to_string(), &[("MIMALLOC_PURGE_DELAY", "0")]);
    is_well(&mut gang);
    gang.look();
    let mut times = Times::default();
    let mut living: Vec<usize> = (1..LONG_RANKS).collect();
    // Besides the coordinator, one rank works from the first statement to the last.
    let witness = chance.random.random_range(1..=FOLLOWERS);
    let mut first: BTreeMap<usize, Held> = BTreeMap::new();
    for _ in 0..LONG_DEATHS {
        let mortal: Vec<usize> =
            living[..FOLLOWERS].iter().copied().filter(|rank| *rank != witness).collect();
        let victim = *mortal.choose(&mut chance.random).expect("two of three");
        let death = chance.death();
        die(&mut gang, &mut chance, &[victim], death, &mut times);
        gang.ended(victim);
        living.retain(|rank| *rank != victim);
        // By one, each rank has watched the process that is gone.
        first.values_mut().for_each(|held| held.descriptors -= 1);
        (0..TURNS).for_each(|_| turn(&mut gang));
        let held = gang.held();
        for rank in living[..FOLLOWERS].iter().chain([&0]) {
            first.entry(*rank).or_insert(held[rank]);
        }
    }
    (0..turns).for_each(|_| turn(&mut gang));
    first.retain(|rank, _| *rank == 0 || living.contains(rank));
    assert!(first.len() == 1 + FOLLOWERS && first.contains_key(&witness), "{first:?}");
    let began = Instant::now();
    loop {
        let last = gang.held();
        let grown = first.iter().filter(|(rank, first)| has_more(&last[*rank], first, living.len() + 1));
        let grown: Vec<_> = grown.map(|(rank, first)| (rank, first, last[rank])).collect();
        if grown.is_empty() {
            println!("after a rank's first statements: {first:?}\nat the end: {last:?}");
            break;
        }
        assert!(began.elapsed() < SETTLING, "(rank, first, last) after {turns} turns: {grown:#?}");
        thread::sleep(Duration::from_millis(50));
    }
    gang.end();
    gang.leaves_nothing();
    times.print();
}

/// Whether `last` is beyond `first` and [`MORE`]. A rank has mapped the arena of each rank that lives, and of
/// no other.
fn has_more(last: &Held, first: &Held, ranks: usize) -> bool {
    last.private_bytes > first.private_bytes + MORE.private_bytes
        || last.shared_bytes > first.shared_bytes + MORE.shared_bytes
        || last.arenas > ranks + MORE.arenas
        || last.descriptors > first.descriptors + MORE.descriptors
        || last.threads > first.threads + MORE.threads
}

/// One of each kind of statement: small, with all rows on the move, one that fails on the ranks, one that is
/// stopped early.
fn turn(gang: &mut Gang) {
    is_well(gang);
    let moved = format!(
        "select count(*) from (select distinct l_orderkey, l_linenumber, l_comment from {})",
        lineitem()
    );
    assert_eq!(gang.answer(&moved), Ok(vec![vec![Some(LINEITEM_ROWS.to_string())]]));
    let failing =
        format!("select l_returnflag, sum(1 / (l_orderkey - 250016)) from {} group by 1", lineitem());
    let (code, message) = gang.answer(&failing).expect_err("it divides by zero");
    assert_eq!(code, "22012", "{message}");
    let stopped = format!("{} limit 5", pairs("a.l_comment", 16));
    assert_eq!(gang.answer(&stopped).map(|rows| rows.len()), Ok(5));
}

/// A gang that goes on where it can, whose ranks exit when they get SIGUSR2.
fn start(ranks: usize, spares: &str, environment: &[(&str, &str)]) -> Gang {
    let preloaded = [("LD_PRELOAD", exiting().to_str().expect("a path in UTF-8"))];
    let environment: Vec<(&str, &str)> = preloaded.iter().chain(environment).copied().collect();
    surviving_session_with(ranks, &["--spares", spares], &environment)
}

/// The library that has a rank exit.
fn exiting() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| preloaded("ranks/random_rank_kills/exit.c", &[]))
}

const LINEITEM_ROWS: u64 = 299_814;

fn lineitem() -> String {
    format!("'{}/lineitem/'", data().display())
}

/// `what` of all pairs of rows whose part keys are the same modulo `classes`.
fn pairs(what: &str, classes: u32) -> String {
    let lineitem = lineitem();
    format!(
        "select {what} from {lineitem} a join {lineitem} b on a.l_partkey % {classes} = b.l_partkey % {classes}"
    )
}

/// Billions of pairs: longer than any test waits.
fn endless() -> String {
    pairs("sum(a.l_quantity * b.l_tax)", 16)
}

/// A hundred million pairs: about as long as a victim lives, and longer.
fn sum() -> String {
    pairs("sum(a.l_quantity * b.l_tax) as total", 1024)
}

/// What a process alone answers to [`sum`].
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

/// Whether a statement is answered; if not, it is for one of the `victims`.
fn is_well_if_whole(gang: &mut Gang, victims: &[usize]) -> bool {
    match gang.answer(&count()) {
        Ok(_) => true,
        Err((code, message)) => {
            let named = victims.iter().any(|victim| message.contains(&format!("rank {victim} is lost")));
            assert!(code == "57P02" && named, "{code} {message}");
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

/// Open in the coordinator's process.
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
