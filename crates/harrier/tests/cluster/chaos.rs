//! Chaos test of a served warehouse: processes are killed, stopped, cut off from the network or starved of
//! disk and memory at random while 16 clients write and read. No acknowledged write is lost, no refused write
//! is visible, every answer is correct, and nothing hangs or leaks.
//!
//! `HARRIER_CHAOS_SECONDS` sets the duration (60; half an hour by hand), `HARRIER_SEED` repeats the choices
//! of a run, though not their timing, `HARRIER_CHAOS_FAULTS` restricts the faults,
//! `HARRIER_CHAOS_HANG_SECONDS` is the maximum time of a statement (20). Prints the number of faults by kind,
//! outcomes of statements, and the recovery times until the next correct answer.
//!
//! ```text
//! HARRIER_CHAOS_SECONDS=1800 HARRIER_CHAOS_HANG_SECONDS=10 \
//!     cargo test --release --workspace --test cluster chaos:: -- --nocapture
//! ```
//!
//! An outcome may be unknown only if the connection broke or SQLSTATE 40003 was sent during a commit. The
//! client then looks the outcome up: the change must be there as a whole or not at all, and stay so.

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
use service::{RANKS, Rank, Service, empty, fill, signal};
use worker::{FACTS, HANG_SECONDS, SUM, SharedState, Worker, sum};

const CLIENTS: usize = 16;

/// Duration in a run of the test suite.
const SECONDS: u64 = 60;

/// Timeout for the service to be complete again.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(90);

/// Descriptors that the front end may gain during the load: connections of its pool to the catalog.
const DESCRIPTORS_MORE: usize = 40;

/// Bytes of memory that the front end may gain, some seconds after the load: the allocator returns freed
/// memory with a delay.
const MEMORY_MORE: u64 = 512 << 20;

/// Memory limit of a rank, in bytes, while its memory is short.
const RANK_BYTES: u64 = 24 << 20;

/// Minimum time that a host is cut off so that the failure detector notices.
const CUT_OFF: Duration = Duration::from_secs(6);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    KillRank,
    StopRank,
    KillTwoRanks,
    /// A rank on another host, which no process on this host can watch.
    KillFarRank,
    KillLauncher,
    KillFrontEnd,
    KillCatalog,
    /// Drops the host's network traffic for some seconds.
    CutOffHost,
    /// Kills all processes on the host at once.
    KillHost,
    FullSpillDisk,
    FullDataDisk,
    FullHostDisk,
    FullMemory,
    /// Limits the memory of all ranks of this host together.
    FullHostMemory,
}

const FAULTS: [Fault; 14] = [
    Fault::KillRank,
    Fault::StopRank,
    Fault::KillTwoRanks,
    Fault::KillFarRank,
    Fault::KillLauncher,
    Fault::KillFrontEnd,
    Fault::KillCatalog,
    Fault::CutOffHost,
    Fault::KillHost,
    Fault::FullSpillDisk,
    Fault::FullDataDisk,
    Fault::FullHostDisk,
    Fault::FullMemory,
    Fault::FullHostMemory,
];

#[test]
fn random_faults_lose_no_acknowledged_write() {
    if env::var_os("HARRIER_SKIP_MPI").is_some_and(|value| value == "1") {
        return eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
    }
    let Some(postgres) = Postgres::start_dedicated() else { return };
    let postgres: &'static Postgres = Box::leak(Box::new(postgres));
    let _turn = crate::exclusive_cluster();
    let number = |name: &str| env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    let seed = harrier_launch::seed();
    let seconds = number("HARRIER_CHAOS_SECONDS").unwrap_or(SECONDS);
    println!("seed {seed}, {seconds} s");
    let mut random = StdRng::seed_from_u64(seed);
    let service = Service::start(postgres);
    make_tables(&service);
    wait_for_recovery(&service);
    let faults = available_faults(&service);
    let descriptors = service.descriptors();
    let memory = service.memory();
    let first_pid = service.pid();

    let hang = Duration::from_secs(number("HARRIER_CHAOS_HANG_SECONDS").unwrap_or(HANG_SECONDS));
    let shared = Arc::new(SharedState { hang, ..SharedState::default() });
    let workers: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let worker = Worker::new(Arc::clone(&shared), service.port, number, seed);
            thread::spawn(move || worker.run())
        })
        .collect();
    let mut figures: BTreeMap<Fault, Vec<Duration>> = BTreeMap::new();
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        thread::sleep(Duration::from_millis(random.random_range(500..3000)));
        let Some(fault) = faults.choose(&mut random).copied() else { break };
        // There was no such rank at that moment.
        if let Some(recovery_time) = inject(fault, &service, &shared, &mut random) {
            figures.entry(fault).or_default().push(recovery_time);
        }
    }
    for disk in service.disks.values() {
        disk.empty();
    }
    wait_for_recovery(&service);
    shared.stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.join().expect("no client panics");
    }
    print(&figures, &shared);
    assert_no_leaks(&service, (descriptors, memory), first_pid, &shared);
    let violations = shared.violations.lock().expect("no panic holds it");
    assert!(violations.is_empty(), "seed {seed}: {violations:#?}\n{}", service::tail(&service.log()));
}

fn make_tables(service: &Service) {
    let mut client = Client::connect(service.port, RECOVERY_TIMEOUT).expect("the service is up");
    for sql in [
        "CREATE TABLE ledger (client int, n bigint, amount bigint)".to_string(),
        "CREATE TABLE left_side (client int, n bigint, amount bigint)".to_string(),
        "CREATE TABLE right_side (client int, n bigint, amount bigint)".to_string(),
        format!("CREATE TABLE facts AS SELECT x, x % 7 AS k FROM generate_series(1, {FACTS}) AS s(x)"),
    ] {
        client.query(&sql).unwrap_or_else(|ended| panic!("{sql}: {ended:?}"));
    }
}

/// Waits until all ranks work and answer a distributed statement.
fn wait_for_recovery(service: &Service) {
    let deadline = Instant::now() + RECOVERY_TIMEOUT;
    while service.ranks().len() < RANKS || answer(service).is_none() {
        assert!(Instant::now() < deadline, "the gang is not whole again\n{}", service.diagnosis());
        thread::sleep(Duration::from_millis(100));
    }
}

/// Runs a statement that needs all ranks; `None` for any failure except a wrong answer.
fn answer(service: &Service) -> Option<()> {
    let mut client = Client::connect(service.port, Duration::from_secs(20)).ok()?;
    let answer = client.one(SUM).ok()?;
    assert_eq!(answer, sum(), "{SUM}");
    Some(())
}

/// Faults that can be injected here; prints which cannot, and why.
fn available_faults(service: &Service) -> Vec<Fault> {
    let only = env::var("HARRIER_CHAOS_FAULTS").ok();
    let is_enabled = |fault: &Fault| {
        only.as_ref().is_none_or(|names| names.split(',').any(|name| name == format!("{fault:?}")))
    };
    let can = |fault: &Fault| match fault {
        Fault::FullSpillDisk => service.disks.contains_key("spill"),
        Fault::FullDataDisk => service.disks.contains_key("data"),
        Fault::FullMemory | Fault::FullHostMemory => Cgroup::new(service.port).is_some(),
        Fault::KillFarRank | Fault::CutOffHost | Fault::KillHost | Fault::FullHostDisk => {
            service.network.is_some()
        }
        _ => true,
    };
    FAULTS
        .into_iter()
        .filter(is_enabled)
        .filter(|fault| {
            let can = can(fault);
            if !can {
                println!("left out: {fault:?}: this user may not mount, make control groups or namespaces");
            }
            can
        })
        .collect()
}

/// Injects a fault, undoes it, and waits for recovery. Returns the time from the undo to the next correct
/// answer of a statement sent after it.
fn inject(fault: Fault, service: &Service, shared: &SharedState, random: &mut StdRng) -> Option<Duration> {
    println!("{fault:?}");
    let ranks = service.ranks();
    let here: Vec<Rank> = ranks.iter().copied().filter(|rank| rank.host == 1).collect();
    let far: Vec<Rank> = ranks.iter().copied().filter(|rank| rank.host > 1).collect();
    let some_rank = here.choose(random).map(|rank| rank.pid);
    let hold = Duration::from_millis(random.random_range(200..2500));
    let mut since = Instant::now();
    let mut recovery_time = None;
    match fault {
        Fault::KillRank => signal(some_rank?, Signal::SIGKILL),
        Fault::StopRank => signal(some_rank?, Signal::SIGSTOP),
        Fault::KillTwoRanks => {
            ranks.choose_multiple(random, 2).for_each(|rank| signal(rank.pid, Signal::SIGKILL));
        }
        Fault::KillFarRank => signal(far.choose(random)?.pid, Signal::SIGKILL),
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
        Fault::CutOffHost => {
            let network = service.network.as_ref()?;
            let host = far.choose(random)?.host;
            // Either longer than the failure detector's 5 s, or too short for it.
            let hold = if random.random_ratio(3, 4) { hold + CUT_OFF } else { hold };
            thread::scope(|scope| {
                network.cut(host);
                scope.spawn(|| {
                    thread::sleep(hold);
                    network.repair(host);
                });
                recovery_time = Some(time_to_answer(fault, service, since));
            });
        }
        Fault::KillHost => service.network.as_ref()?.kill_all(far.choose(random)?.host),
        Fault::FullHostDisk => {
            let folder = service.spill_of(*far.choose(random)?);
            fill(&folder);
            thread::sleep(hold);
            empty(&folder);
            since = Instant::now();
        }
        Fault::FullSpillDisk | Fault::FullDataDisk => {
            let name = if fault == Fault::FullDataDisk { "data" } else { "spill" };
            service.disks[name].fill();
            thread::sleep(hold);
            service.disks[name].empty();
            since = Instant::now();
        }
        Fault::FullMemory | Fault::FullHostMemory => {
            let group = Cgroup::new(service.port)?;
            match fault {
                Fault::FullMemory => group.take(some_rank?),
                _ => here.iter().for_each(|rank| group.take(rank.pid)),
            }
            thread::sleep(hold + Duration::from_secs(1));
        }
    }
    let recovery_time = recovery_time.unwrap_or_else(|| time_to_answer(fault, service, since));
    println!("{fault:?}: the next right answer after {recovery_time:.3?}");
    // One fault at a time: two at once may affect several ranks or exceed the retries.
    if random.random_ratio(2, 3) {
        wait_for_recovery(service);
    }
    Some(recovery_time)
}

/// Waits for the next correct answer; returns the time since `since`.
fn time_to_answer(fault: Fault, service: &Service, since: Instant) -> Duration {
    let deadline = since + RECOVERY_TIMEOUT;
    while answer(service).is_none() {
        assert!(Instant::now() < deadline, "no right answer after {fault:?}\n{}", service.diagnosis());
        thread::sleep(Duration::from_millis(5));
    }
    since.elapsed()
}

/// Records an outage: failures during it are excused.
fn outage(shared: &SharedState, bad: impl FnOnce()) {
    let number = {
        let mut outages = shared.outages.lock().expect("no panic holds it");
        outages.push((Instant::now(), None));
        outages.len() - 1
    };
    bad();
    shared.outages.lock().expect("no panic holds it")[number].1 = Some(Instant::now());
}

/// A cgroup (version 1 or 2) that limits the memory of its processes.
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

    /// Limits memory that the process allocates from now on.
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

/// Prints faults with their recovery times, and outcomes of statements.
fn print(figures: &BTreeMap<Fault, Vec<Duration>>, shared: &SharedState) {
    println!("\nfault                times   median  longest  until the next right answer");
    for (fault, recovery_times) in figures {
        let (count, mut times) = (recovery_times.len(), recovery_times.clone());
        times.sort();
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        let longest = times.last().copied().unwrap_or_default();
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

/// Asserts that the service leaked no memory, descriptors, files or processes.
fn assert_no_leaks(
    service: &Service,
    (descriptors, memory): (usize, u64),
    first_pid: u32,
    shared: &SharedState,
) {
    let deadline = Instant::now() + RECOVERY_TIMEOUT;
    // The server notices closed connections soon, and the allocator returns memory.
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
    let stood = service.log().matches("has stood still").count();
    println!("ranks that stood still inside of a call, and were ended: {stood}");
    if service.stop() != Some(0) {
        shared.violate("the server does not end when it is asked to".to_string());
    }
    let deadline = deadline.max(Instant::now() + Duration::from_secs(10));
    while !service.others().is_empty() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(100));
    }
    // An Open MPI daemon whose launcher was killed while its host was cut off learns it from TCP minutes
    // later.
    let (daemons, others): (Vec<_>, Vec<_>) = service.others().into_iter().partition(|(_, name)| {
        service.network.is_some() && ["orted", "bash", "unshare"].contains(&name.as_str())
    });
    println!("daemons of the launcher that are left on hosts that were cut off: {}", daemons.len());
    if !others.is_empty() {
        shared.violate(format!("processes are left: {others:?}"));
    }
    let is_launchers = |name: &str| {
        ["ompi.", "prte.", "pmix", "openmpi-sessions"].iter().any(|prefix| name.starts_with(prefix))
    };
    for folder in ["tmp", "spill"] {
        let entries = fs::read_dir(service.folder().join(folder)).into_iter().flatten().flatten();
        let leftovers: Vec<String> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| !is_launchers(name))
            .collect();
        if !leftovers.is_empty() {
            shared.violate(format!("temporary files are left in {folder}: {leftovers:?}"));
        }
    }
    // Abandoned segments are removed by other gangs.
    while !abandoned_segments().is_empty() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(100));
    }
    let leftovers = abandoned_segments();
    if !leftovers.is_empty() {
        shared.violate(format!("shared memory is left: {leftovers:?}"));
    }
}

/// Folders of shared memory of any gang that no process uses.
fn abandoned_segments() -> Vec<PathBuf> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let is_gangs = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("harrier-gang-"))
    };
    let is_abandoned =
        |path: &PathBuf| fs::File::open(path.join("lock")).is_ok_and(|lock| lock.try_lock().is_ok());
    entries.map(|entry| entry.path()).filter(is_gangs).filter(is_abandoned).collect()
}
