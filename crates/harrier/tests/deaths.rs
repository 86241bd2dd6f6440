//! Ranks die at random moments of statements that compute, and the gang goes on: with a spare, then with fewer ranks.
//!
//! Every round one rank or two are killed, stopped, aborted or asked to end, alone or together. The statement fails with
//! 57P02 and the name of one of them; the next one is right; nothing is left on any rank, and no descriptor and no shared memory
//! is left over. `HARRIER_ROUNDS` says how many rounds (200 take some minutes), `HARRIER_SEED` repeats a run. Prints how
//! long a statement took to fail after the death, and the next one to answer.

#[path = "support/gang.rs"]
mod gang;
mod support;

use std::env;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use gang::{Gang, data, surviving_session};
use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// Rounds of `make test`: some ten seconds.
const ROUNDS: usize = 12;

/// Four work, one is a spare.
const RANKS: usize = 5;

const DEATHS: [Signal; 4] = [Signal::SIGKILL, Signal::SIGSTOP, Signal::SIGABRT, Signal::SIGTERM];

#[test]
fn the_gang_goes_on() {
    if env::var_os("HARRIER_SKIP_MPI").is_some_and(|value| value == "1") {
        return eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
    }
    let number = |name: &str| env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    let seed = number("HARRIER_SEED").unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let rounds = number("HARRIER_ROUNDS").map_or(ROUNDS, |rounds| rounds as usize);
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut times = Times::default();
    let mut done = 0;
    while done < rounds {
        done += one_gang(&mut random, rounds - done, &mut times);
    }
    times.print();
}

/// Rounds until a gang has no two followers left. Returns how many.
fn one_gang(random: &mut StdRng, rounds_max: usize, times: &mut Times) -> usize {
    let mut gang = surviving_session(RANKS, &["--spares", "1"]);
    is_well(&mut gang);
    let descriptors = descriptors(&gang);
    let mut living: Vec<usize> = (1..RANKS).collect();
    let mut rounds = 0;
    while rounds < rounds_max && living.len() > 1 {
        round(&mut gang, random, &mut living, times);
        rounds += 1;
    }
    let left = self::descriptors(&gang);
    assert!(left <= descriptors, "{left} descriptors, {descriptors} at the beginning");
    gang.end();
    gang.leaves_nothing();
    rounds
}

fn round(gang: &mut Gang, random: &mut StdRng, living: &mut Vec<usize>, times: &mut Times) {
    let count = if living.len() > 2 && random.random_ratio(1, 4) { 2 } else { 1 };
    // The last one may be a spare, whose death fails nothing.
    let working = &living[..living.len().min(3)];
    let victims: Vec<usize> = working.choose_multiple(random, count).copied().collect();
    let signal = *DEATHS.choose(random).expect("there are some");
    let sql = format!(
        "select sum(a.l_quantity * b.l_tax) from '{0}/lineitem/' a join '{0}/lineitem/' b on a.l_partkey % 16 = b.l_partkey % 16",
        data().display()
    );
    gang.ask(&sql);
    gang.busy(&[0]);
    thread::sleep(Duration::from_millis(random.random_range(0..300)));
    let began = Instant::now();
    victims.iter().for_each(|victim| gang.signal_rank(*victim, signal));
    let (code, message) = gang.answered().expect_err("a rank has died");
    let failed = began.elapsed();
    let named = victims.iter().any(|victim| message.contains(&format!("rank {victim} is lost")));
    assert!(code == "57P02" && named, "{signal} to {victims:?}: {code} {message}");
    living.retain(|rank| !victims.contains(rank));
    // Of two that die together the second may be noticed by the next statement only, when its process is taken down.
    let again = Instant::now();
    while count > 1 && !is_well_if_whole(gang, &victims) {}
    is_well(gang);
    times.failed.push((signal, failed));
    times.answered.push(again.elapsed());
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
    format!("select l_returnflag, count(*) from '{}/lineitem/' group by 1 order by 1", data().display())
}

#[track_caller]
fn is_well(gang: &mut Gang) {
    let rows = gang.answer(&count()).expect("the gang is well");
    let counts: Vec<u64> = rows.iter().map(|row| row[1].as_deref().unwrap().parse().unwrap()).collect();
    assert_eq!((rows.len(), counts.iter().sum::<u64>()), (3, 299_814));
}

/// Open in the coordinator's process.
fn descriptors(gang: &Gang) -> usize {
    let pid = gang.rank_processes()[&0];
    fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives").count()
}

#[derive(Default)]
struct Times {
    failed: Vec<(Signal, Duration)>,
    answered: Vec<Duration>,
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
        for signal in DEATHS {
            let times = self.failed.iter().filter(|(of, _)| *of == signal).map(|(_, time)| *time).collect();
            show(&format!("fails after {signal}"), times);
        }
        show("the next statement is answered", self.answered.clone());
    }
}
