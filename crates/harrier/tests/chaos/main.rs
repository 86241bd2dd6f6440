//! Everything around a served warehouse is killed, stopped, filled or starved at random while 16 clients write and read, and nothing that
//! was acknowledged is lost, nothing that was refused is there, every answer is right, and nothing hangs or stays behind.
//!
//! `HARRIER_CHAOS_SECONDS` says for how long (60; half an hour by hand), `HARRIER_SEED` repeats the choices of a run, though not its
//! moments, `HARRIER_CHAOS_FAULTS` names the only faults, `HARRIER_CHAOS_HANG_SECONDS` how long a statement may take (20). Prints how often what was done to whom, what statements came to, and how long
//! it took until the next right answer.
//!
//! ```text
//! HARRIER_CHAOS_SECONDS=1800 HARRIER_CHAOS_HANG_SECONDS=10 cargo test --release --workspace --test chaos -- --nocapture
//! ```
//!
//! An outcome may be unknown only where the connection broke, or 40003 says so, while something was committed: then it is looked up, and
//! has to be all or nothing and to stay so.

mod client;
mod service;
mod worker;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use client::Client;
use harrier_servers::Postgres;
use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use service::{RANKS, Service, signal};
use worker::{FACTS, HANG_SECONDS, SUM, Shared, Worker, sum};

const CLIENTS: usize = 16;

/// Of a run of the test suite.
const SECONDS: u64 = 60;

/// How long the service may take to be whole again.
const PATIENCE: Duration = Duration::from_secs(90);

/// Descriptors that the front end may have more of at the end than before the load: connections of its pool to the catalog.
const DESCRIPTORS_MORE: usize = 40;

/// Bytes of memory that it may have more of, some seconds after the load: freed memory is given back after a while only.
const MEMORY_MORE: u64 = 512 << 20;

/// Bytes a rank may take when its memory is short.
const RANK_BYTES: u64 = 24 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    KillRank,
    StopRank,
    KillTwoRanks,
    KillLauncher,
    KillFrontEnd,
    KillCatalog,
    FullSpillDisk,
    FullDataDisk,
    FullMemory,
}

const FAULTS: [Fault; 9] = [
    Fault::KillRank,
    Fault::StopRank,
    Fault::KillTwoRanks,
    Fault::KillLauncher,
    Fault::KillFrontEnd,
    Fault::KillCatalog,
    Fault::FullSpillDisk,
    Fault::FullDataDisk,
    Fault::FullMemory,
];

/// How often a fault was done, and how long it took until the next right answer.
#[derive(Default)]
struct Figures {
    count: u64,
    answered: Vec<Duration>,
}

#[test]
fn the_service_bears_what_comes() {
    if env::var_os("HARRIER_SKIP_MPI").is_some_and(|value| value == "1") {
        return eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
    }
    let Some(postgres) = Postgres::shared() else { return };
    let number = |name: &str| env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    let seed = number("HARRIER_SEED").unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let seconds = number("HARRIER_CHAOS_SECONDS").unwrap_or(SECONDS);
    println!("seed {seed}, {seconds} s");
    let mut random = StdRng::seed_from_u64(seed);
    let segments = shared_segments();
    let service = Service::start(postgres);
    make_tables(&service);
    wait_until_whole(&service);
    let faults = possible(&service);
    let descriptors = service.descriptors();
    let memory = service.memory();
    let first_pid = service.pid();

    let hang = Duration::from_secs(number("HARRIER_CHAOS_HANG_SECONDS").unwrap_or(HANG_SECONDS));
    let shared = Arc::new(Shared { hang, ..Shared::default() });
    let workers: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let worker = Worker::new(Arc::clone(&shared), service.port, number, seed);
            thread::spawn(move || worker.run())
        })
        .collect();
    let mut figures: BTreeMap<Fault, Figures> = BTreeMap::new();
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        thread::sleep(Duration::from_millis(random.random_range(500..3000)));
        let Some(fault) = faults.choose(&mut random).copied() else { break };
        let answered = inject(fault, &service, &shared, &mut random);
        let entry = figures.entry(fault).or_default();
        entry.count += 1;
        entry.answered.extend(answered);
    }
    for disk in service.disks.values() {
        disk.empty();
    }
    wait_until_whole(&service);
    shared.stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.join().expect("no client panics");
    }
    print(&figures, &shared);
    leaves_nothing(&service, (descriptors, memory), first_pid, &shared, &segments);
    let violations = shared.violations.lock().expect("no panic holds it");
    assert!(violations.is_empty(), "seed {seed}: {violations:#?}\n{}", tail(&service.log()));
}

fn make_tables(service: &Service) {
    let mut client = Client::connect(service.port, PATIENCE).expect("the service is up");
    for sql in [
        "CREATE TABLE ledger (client int, n bigint, amount bigint)".to_string(),
        "CREATE TABLE left_side (client int, n bigint, amount bigint)".to_string(),
        "CREATE TABLE right_side (client int, n bigint, amount bigint)".to_string(),
        format!("CREATE TABLE facts AS SELECT x, x % 7 AS k FROM generate_series(1, {FACTS}) AS s(x)"),
    ] {
        client.query(&sql).unwrap_or_else(|ended| panic!("{sql}: {ended:?}"));
    }
}

/// Until all ranks work, and a statement of theirs is answered.
fn wait_until_whole(service: &Service) {
    let deadline = Instant::now() + PATIENCE;
    while service.ranks().len() < RANKS || answer(service).is_none() {
        assert!(Instant::now() < deadline, "the gang is not whole again\n{}", tail(&service.log()));
        thread::sleep(Duration::from_millis(100));
    }
}

/// The right answer of what all ranks work for; `None` is any other outcome but a wrong answer.
fn answer(service: &Service) -> Option<()> {
    let mut client = Client::connect(service.port, Duration::from_secs(20)).ok()?;
    let answer = client.one(SUM).ok()?;
    assert_eq!(answer, sum(), "{SUM}");
    Some(())
}

/// Faults that can be done here; says which cannot, and why.
fn possible(service: &Service) -> Vec<Fault> {
    let only = env::var("HARRIER_CHAOS_FAULTS").ok();
    let wanted = |fault: &Fault| {
        only.as_ref().is_none_or(|names| names.split(',').any(|name| name == format!("{fault:?}")))
    };
    let can = |fault: &Fault| match fault {
        Fault::FullSpillDisk => service.disks.contains_key("spill"),
        Fault::FullDataDisk => service.disks.contains_key("data"),
        Fault::FullMemory => Cgroup::new(service.port).is_some(),
        _ => true,
    };
    FAULTS
        .into_iter()
        .filter(wanted)
        .filter(|fault| {
            let can = can(fault);
            if !can {
                println!("left out: {fault:?}: this user may not mount, or make control groups");
            }
            can
        })
        .collect()
}

/// Does something bad, undoes it, and waits until the service is well. Returns the time from the moment it could be well to the next
/// right answer of a statement that was asked after it.
fn inject(fault: Fault, service: &Service, shared: &Shared, random: &mut StdRng) -> Option<Duration> {
    println!("{fault:?}");
    let ranks = service.ranks();
    let some_rank = ranks.choose(random).copied();
    let hold = Duration::from_millis(random.random_range(200..2500));
    let mut since = Instant::now();
    match fault {
        Fault::KillRank => signal(some_rank?, Signal::SIGKILL),
        Fault::StopRank => signal(some_rank?, Signal::SIGSTOP),
        Fault::KillTwoRanks => {
            ranks.choose_multiple(random, 2).for_each(|rank| signal(*rank, Signal::SIGKILL));
        }
        Fault::KillLauncher => {
            let launchers =
                service.others().into_iter().filter(|(_, name)| name.starts_with("mpi") || name == "orterun");
            launchers.for_each(|(pid, _)| signal(pid, Signal::SIGKILL));
        }
        Fault::KillFrontEnd => outage(shared, || {
            service.kill_front_end();
            service.start_front_end();
        }),
        Fault::KillCatalog => {
            outage(shared, || {
                service.kill_catalog();
                thread::sleep(hold);
                service.restart_catalog();
            });
            since = Instant::now();
        }
        Fault::FullSpillDisk | Fault::FullDataDisk => {
            let name = if fault == Fault::FullDataDisk { "data" } else { "spill" };
            service.disks[name].fill();
            thread::sleep(hold);
            service.disks[name].empty();
            since = Instant::now();
        }
        Fault::FullMemory => {
            let group = Cgroup::new(service.port)?;
            group.take(some_rank?);
            thread::sleep(hold + Duration::from_secs(1));
        }
    }
    let deadline = since + PATIENCE;
    while answer(service).is_none() {
        assert!(Instant::now() < deadline, "no right answer after {fault:?}\n{}", tail(&service.log()));
        thread::sleep(Duration::from_millis(5));
    }
    let answered = since.elapsed();
    println!("{fault:?}: the next right answer after {answered:.3?}");
    // One fault after the other: two at a time are several ranks, or several runs.
    if random.random_ratio(2, 3) {
        wait_until_whole(service);
    }
    Some(answered)
}

/// While this runs, the service has a reason not to answer.
fn outage(shared: &Shared, bad: impl FnOnce()) {
    let number = {
        let mut outages = shared.outages.lock().expect("no panic holds it");
        outages.push((Instant::now(), None));
        outages.len() - 1
    };
    bad();
    shared.outages.lock().expect("no panic holds it")[number].1 = Some(Instant::now());
}

/// A control group whose members get little memory, of either version.
struct Cgroup {
    folder: PathBuf,
    root: &'static Path,
}

impl Cgroup {
    fn new(port: u16) -> Option<Self> {
        let (first, second) = (Path::new("/sys/fs/cgroup/memory"), Path::new("/sys/fs/cgroup"));
        let (root, limit) =
            if first.is_dir() { (first, "memory.limit_in_bytes") } else { (second, "memory.max") };
        let group = Self { folder: root.join(format!("harrier-chaos-{port}")), root };
        fs::create_dir_all(&group.folder).ok()?;
        fs::write(group.folder.join(limit), RANK_BYTES.to_string()).ok()?;
        Some(group)
    }

    /// What a process has already does not count; what it takes from now on does.
    fn take(&self, pid: u32) {
        let _ = fs::write(self.folder.join("cgroup.procs"), pid.to_string());
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let members = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        for pid in members.split_whitespace() {
            let _ = fs::write(self.root.join("cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

/// What was done, and what came of it.
fn print(figures: &BTreeMap<Fault, Figures>, shared: &Shared) {
    println!("\nfault                times   median  longest  until the next right answer");
    for (fault, Figures { count, answered }) in figures {
        let mut answered = answered.clone();
        answered.sort();
        let median = answered.get(answered.len() / 2).copied().unwrap_or_default();
        let longest = answered.last().copied().unwrap_or_default();
        println!(
            "{:<20} {count:>5} {:>8.3} {:>8.3}",
            format!("{fault:?}"),
            median.as_secs_f64(),
            longest.as_secs_f64()
        );
    }
    let counts = shared.counts.lock().expect("no panic holds it");
    let done: u64 = counts.iter().filter(|((_, outcome), _)| outcome == "done").map(|(_, count)| count).sum();
    println!("\n{done} statements and transactions were done; the others:");
    let mut failed: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for ((what, outcome), count) in counts.iter().filter(|((_, outcome), _)| outcome != "done") {
        failed.entry(outcome).or_default().push(format!("{what} {count}"));
    }
    for (outcome, what) in failed {
        println!("{outcome}: {}", what.join(", "));
    }
    let (done, not_done) = *shared.doubts.lock().expect("no panic holds it");
    println!("outcomes that were not heard: {done} done, {not_done} not done");
    let slowest = shared.slowest.lock().expect("no panic holds it");
    let slowest: Vec<String> =
        slowest.iter().map(|(what, took)| format!("{what} {:.1}", took.as_secs_f64())).collect();
    println!("longest, in seconds: {}", slowest.join(", "));
}

/// Nothing of the service grows without bound, and nothing stays when it has ended.
fn leaves_nothing(
    service: &Service,
    (descriptors, memory): (usize, u64),
    first_pid: u32,
    shared: &Shared,
    segments: &[PathBuf],
) {
    let deadline = Instant::now() + PATIENCE;
    // Connections of clients that have gone are noticed soon, and memory that was freed is given back.
    let is_much =
        || service.descriptors() > descriptors + DESCRIPTORS_MORE || service.memory() > memory + MEMORY_MORE;
    while is_much() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(100));
    }
    let now = service.descriptors();
    println!("descriptors of the front end: {descriptors} at the beginning, {now} at the end");
    let same = if service.pid() == first_pid { "the same" } else { "another" };
    let memory_now = service.memory();
    println!(
        "memory of the front end: {} MiB at the beginning, {} MiB at the end, {same} process",
        memory >> 20,
        memory_now >> 20
    );
    if memory_now > memory + MEMORY_MORE {
        shared.violate(format!("{memory_now} bytes of memory are used, {memory} were at the beginning"));
    }
    if now > descriptors + DESCRIPTORS_MORE {
        shared.violate(format!("{now} descriptors are open, {descriptors} were at the beginning"));
    }
    if service.stop() != Some(0) {
        shared.violate("the server does not end when it is asked to".to_string());
    }
    while !service.others().is_empty() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(100));
    }
    let others = service.others();
    if !others.is_empty() {
        shared.violate(format!("processes are left: {others:?}"));
    }
    let is_launchers = |name: &str| {
        ["ompi.", "prte.", "pmix", "openmpi-sessions"].iter().any(|prefix| name.starts_with(prefix))
    };
    for folder in ["tmp", "spill"] {
        let entries = fs::read_dir(service.folder().join(folder)).into_iter().flatten().flatten();
        let left: Vec<String> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| !is_launchers(name))
            .collect();
        if !left.is_empty() {
            shared.violate(format!("temporary files are left in {folder}: {left:?}"));
        }
    }
    let left: Vec<PathBuf> = shared_segments().into_iter().filter(|path| !segments.contains(path)).collect();
    println!("new in /dev/shm, of this and of whoever else runs: {}", left.len());
}

/// Shared memory that has a name.
fn shared_segments() -> Vec<PathBuf> {
    fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}
