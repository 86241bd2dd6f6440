//! Ranks over QUIC on this host: rows arrive unchanged over a lossy network and beside foreign datagrams; a
//! gang that cannot form reports why; the failure of a rank is detected.
//!
//! `HARRIER_SEED` repeats a run.

use harrier_interconnect::transport::quic::{Address, Place, Token};
use harrier_interconnect::{Carrier, Interconnect, Options, StartError};
use harrier_launch::{Hosts, Run, example, finish_all, gang_slot, seed};
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Timeout of a run, which takes a few seconds.
const RUN_TIME_MAX: Duration = Duration::from_secs(240);

/// Timeout for ranks that will not connect.
const SHORT_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum of wake-ups of an idle driver in a second: heartbeats and their answers, and port lookups. A
/// driver that does not sleep has thousands.
const WAKEUPS_PER_SECOND_MAX: u64 = 100;

fn exchange(hosts: &Hosts, arguments: &[&str]) -> (Vec<Run>, String) {
    let seed = seed().to_string();
    let mut commands = hosts.commands(&example("exchange"), &["--seed", &seed]);
    for command in &mut commands {
        command.args(arguments);
    }
    let runs = finish_all(commands, RUN_TIME_MAX);
    let context = format!("--seed {seed} {arguments:?}: {runs:#?}");
    (runs, context)
}

fn check(ranks: usize, arguments: &[&str]) {
    let _turn = gang_slot();
    let hosts = Hosts::new(ranks);
    let (runs, context) = exchange(&hosts, arguments);
    assert!(runs.iter().all(|run| run.success), "{context}");
    let lent = |run: &Run| -> Option<u64> {
        let line = run.stdout.lines().find_map(|line| line.split("streams read, ").nth(1))?;
        line.split(' ').next()?.parse().ok()
    };
    let lent: u64 = runs.iter().map(|run| lent(run).unwrap_or_else(|| panic!("{context}"))).sum();
    assert_eq!(lent > 0, ranks > 1 && !arguments.contains(&"--messages"), "{context}");
}

#[test]
fn quic_exchange_through_shared_memory() {
    for ranks in [1, 2, 4] {
        check(ranks, &["--rounds", "2"]);
    }
}

#[test]
fn quic_exchange_through_messages() {
    for ranks in [1, 2, 4] {
        check(ranks, &["--rounds", "2", "--messages"]);
    }
}

/// Neither while the process can be watched, nor when only its port can be probed.
#[test]
fn ended_ranks_are_detected() {
    let _turn = gang_slot();
    for (victim, arguments) in [(2, &["--messages"][..]), (2, &["--unwatched"]), (0, &["--unwatched"])] {
        let hosts = Hosts::new(3);
        let dies = victim.to_string();
        let arguments = [&["--rounds", "2", "--dies", &dies], arguments].concat();
        let (runs, context) = exchange(&hosts, &arguments);
        for (rank, run) in runs.iter().enumerate() {
            // Detected by the end of the process, not by its silence, which takes seconds.
            let prefix = format!("lost rank {victim}: process ");
            let missed = run.stdout.lines().any(|line| line.starts_with(&prefix) && line.ends_with(" ended"));
            assert!(!run.timed_out && missed == (rank != victim), "rank {rank}: {context}");
        }
    }
}

/// Its process is ended, instead of sending heartbeats for ever.
#[test]
fn ranks_that_hang_in_a_call_are_detected() {
    let _turn = gang_slot();
    let hosts = Hosts::new(3);
    let (runs, context) = exchange(&hosts, &["--rounds", "2", "--stands", "0"]);
    assert!(runs[0].stderr.contains("has stood still"), "{context}");
    for run in &runs[1..] {
        assert!(!run.timed_out && run.stdout.contains("lost rank 0: process "), "{context}");
    }
}

#[test]
fn idle_ranks_sleep() {
    let _turn = gang_slot();
    for watching in [&[][..], &["--unwatched"]] {
        let hosts = Hosts::new(3);
        let seconds = 3;
        let idle = seconds.to_string();
        let (runs, context) = exchange(&hosts, &[&["--rounds", "1", "--idle", &idle], watching].concat());
        for run in &runs {
            let line = run.stdout.lines().find_map(|line| line.strip_prefix("woke ")?.strip_suffix(" times"));
            let woke: u64 = line.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{context}"));
            assert!(run.success && woke <= seconds * WAKEUPS_PER_SECOND_MAX, "{context}");
        }
    }
}

/// A proxy between two ranks: forwards datagrams as its seed says, until it is dropped.
struct LossyWire {
    address: SocketAddr,
    /// Datagrams that were not forwarded unchanged.
    harmed: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Impairments of a wire, each for one datagram in this many; 0: for none.
#[derive(Clone, Copy, Debug, Default)]
struct Impairment {
    drops: u32,
    doubles: u32,
    damages: u32,
    delays: u32,
}

impl LossyWire {
    /// Between the first sender and `to`.
    fn new(to: SocketAddr, impairment: Impairment, seed: u64) -> LossyWire {
        let local_socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        let remote_socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        remote_socket.connect(to).unwrap();
        for socket in [&local_socket, &remote_socket] {
            socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        }
        let address = local_socket.local_addr().unwrap();
        let (harmed, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, end) = (Arc::clone(&harmed), Arc::clone(&ended));
        let thread = thread::spawn(move || {
            let mut random = StdRng::seed_from_u64(seed);
            let mut bytes = vec![0; 1 << 16];
            let mut caller = None;
            let mut late: [Option<Vec<u8>>; 2] = [None, None];
            while !end.load(Ordering::Relaxed) {
                for (direction, late) in late.iter_mut().enumerate() {
                    let received = match direction {
                        0 => local_socket.recv_from(&mut bytes).inspect(|(_, from)| caller = Some(*from)),
                        _ => remote_socket.recv(&mut bytes).map(|length| (length, to)),
                    };
                    let Ok((length, _)) = received else { continue };
                    let datagram = &mut bytes[..length];
                    let send = |datagram: &[u8]| {
                        let _ = match (direction, caller) {
                            (0, _) => remote_socket.send(datagram),
                            (_, Some(caller)) => local_socket.send_to(datagram, caller),
                            _ => Ok(0),
                        };
                    };
                    let mut strikes = |one_in: u32| {
                        let strikes = one_in > 0 && random.random_ratio(1, one_in);
                        count.fetch_add(u64::from(strikes), Ordering::Relaxed);
                        strikes
                    };
                    if strikes(impairment.drops) {
                        continue;
                    }
                    if strikes(impairment.delays) && late.is_none() {
                        *late = Some(datagram.to_vec());
                        continue;
                    }
                    if strikes(impairment.doubles) {
                        send(datagram);
                    }
                    if strikes(impairment.damages) {
                        let place = random.random_range(0..length);
                        datagram[place] ^= random.random_range(1..=255);
                    }
                    send(datagram);
                    if let Some(late) = late.take() {
                        send(&late);
                    }
                }
            }
        });
        LossyWire { address, harmed, ended, thread: Some(thread) }
    }
}

impl Drop for LossyWire {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn rows_arrive_over_a_lossy_network() {
    let _turn = gang_slot();
    let seed = seed().to_string();
    for impairment in [
        Impairment { drops: 50, ..Impairment::default() },
        Impairment { damages: 50, doubles: 20, ..Impairment::default() },
        Impairment { drops: 100, doubles: 100, damages: 100, delays: 10 },
    ] {
        let hosts = Hosts::new(2);
        let wire = LossyWire::new(hosts.addresses()[0], impairment, seed.parse().unwrap());
        // The higher rank connects, so only its hosts file is changed.
        let other = hosts.file_with("over-the-wire", &[wire.address, hosts.addresses()[1]]);
        let arguments = ["--seed", &seed, "--rounds", "1", "--messages"];
        let mut commands: Vec<Command> = hosts.commands(&example("exchange"), &arguments);
        commands[1].env("HARRIER_HOSTS", other);
        let runs = finish_all(commands, RUN_TIME_MAX);
        let harmed = wire.harmed.load(Ordering::Relaxed);
        let context = format!("seed {seed}, {impairment:?}, {harmed} harmed: {runs:#?}");
        assert!(runs.iter().all(|run| run.success), "{context}");
        assert!(harmed > 0, "{context}");
    }
}

/// Datagrams of anyone else to a rank's port have no effect: noise of all lengths, and what looks like the
/// start of a connection, while the gang forms and while it works.
#[test]
fn foreign_datagrams_are_ignored() {
    let _turn = gang_slot();
    let seed = seed().to_string();
    let hosts = Hosts::new(2);
    let ended = AtomicBool::new(false);
    let (runs, sent) = thread::scope(|scope| {
        let noise = scope.spawn(|| {
            let mut random = StdRng::seed_from_u64(seed.parse().unwrap());
            let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
            let mut sent = 0u64;
            while !ended.load(Ordering::Relaxed) {
                let mut datagram = vec![0; random.random_range(0..2000)];
                random.fill_bytes(&mut datagram);
                if let [first, version @ ..] = &mut datagram[..]
                    && version.len() > 20
                    && random.random_bool(0.5)
                {
                    // A long header of QUIC, version 1, with connection ids of 8 bytes.
                    *first |= 0xc0;
                    version[..4].copy_from_slice(&1u32.to_be_bytes());
                    version[4] = 8;
                    version[13] = 8;
                }
                for address in hosts.addresses() {
                    sent += u64::from(socket.send_to(&datagram, address).is_ok());
                }
                if sent % 64 < 2 {
                    // Leave CPU time to the ranks.
                    thread::sleep(Duration::from_millis(1));
                }
            }
            sent
        });
        let commands =
            hosts.commands(&example("exchange"), &["--seed", &seed, "--rounds", "2", "--messages"]);
        let runs = finish_all(commands, RUN_TIME_MAX);
        ended.store(true, Ordering::Relaxed);
        (runs, noise.join().unwrap())
    });
    assert!(runs.iter().all(|run| run.success) && sent > 1000, "seed {seed}, {sent} sent: {runs:#?}");
}

/// A rank of a gang that is formed in this process.
struct Rank {
    place: Place,
    version: &'static str,
}

fn ranks(hosts: &Hosts) -> Vec<Rank> {
    let address = |address: &SocketAddr| Address { host: address.ip().to_string(), port: address.port() };
    let place = |rank| Place {
        rank,
        addresses: hosts.addresses().iter().map(address).collect(),
        token: Token::new(hosts.token()).unwrap(),
        patience: SHORT_TIMEOUT,
        watch_processes: true,
    };
    (0..hosts.addresses().len()).map(|rank| Rank { place: place(rank), version: "test" }).collect()
}

/// Starts all ranks at once. Returns their results in the order given.
fn start_gang(ranks: Vec<Rank>) -> Vec<Result<(), StartError>> {
    let threads: Vec<_> = ranks
        .into_iter()
        .map(|Rank { place, version }| {
            thread::spawn(move || {
                let options = Options {
                    carrier: Carrier::Quic(place),
                    version: version.to_string(),
                    shared_memory: false,
                    facts: Vec::new(),
                };
                Interconnect::start(options).map(|gang| gang.leave(0))
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

#[test]
fn gangs_form_and_leave() {
    let hosts = Hosts::new(3);
    for outcome in start_gang(ranks(&hosts)) {
        outcome.unwrap();
    }
}

#[test]
fn token_mismatch_is_reported_on_both_sides() {
    let hosts = Hosts::new(2);
    let mut ranks = ranks(&hosts);
    ranks[1].place.token = Token::new("this is another token").unwrap();
    let outcomes = start_gang(ranks);
    let [zero, one] = hosts.addresses() else { panic!() };
    match &outcomes[1] {
        Err(StartError::WrongToken { rank: 0, address }) => assert_eq!(*address, zero.to_string()),
        other => panic!("{other:?}"),
    }
    match &outcomes[0] {
        Err(error @ StartError::NoAnswer { missing, strangers, .. }) => {
            assert_eq!((&missing[..], &strangers[..]), (&[(1, one.to_string())][..], &[one.to_string()][..]));
            assert_eq!(error.detail(), Some(format!("another token was used from {one}")));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn missing_ranks_are_named() {
    let hosts = Hosts::new(4);
    let mut ranks = ranks(&hosts);
    // Neither the rank that connects to others, nor one that is connected to.
    ranks.remove(3);
    ranks.remove(1);
    for outcome in start_gang(ranks) {
        let error = outcome.unwrap_err();
        let [_, one, _, three] = hosts.addresses() else { panic!() };
        let text = format!("rank 1 ({one}), rank 3 ({three}) did not come within 2 s");
        assert_eq!((error.to_string(), error.sqlstate().as_str()), (text, "08001"));
    }
}

#[test]
fn build_mismatch_is_reported_to_all() {
    let hosts = Hosts::new(3);
    let mut ranks = ranks(&hosts);
    ranks[1].version = "another";
    for outcome in start_gang(ranks) {
        match outcome {
            Err(StartError::VersionMismatch { versions }) => {
                assert_eq!(versions, ["test", "another", "test"])
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn ports_in_use_are_reported() {
    let hosts = Hosts::new(2);
    let _taken = UdpSocket::bind(hosts.addresses()[0]).unwrap();
    let error = start_gang(ranks(&hosts)).remove(0).unwrap_err();
    assert!(
        matches!(&error, StartError::Port { address, .. } if *address == hosts.addresses()[0].to_string())
    );
    assert!(error.hint().unwrap().starts_with("another process has the port"), "{error}");
}

/// Ranks 0 and 1 of two, and one that believes in three.
#[test]
fn rank_count_mismatch_is_reported() {
    let hosts = Hosts::new(3);
    let mut ranks = ranks(&hosts);
    ranks.truncate(2);
    ranks[0].place.addresses.truncate(2);
    for (rank, outcome) in start_gang(ranks).into_iter().enumerate() {
        match outcome {
            Err(StartError::Incompatible { what, .. }) => {
                assert!(what.contains("a gang of"), "rank {rank}: {what}")
            }
            other => panic!("rank {rank}: {other:?}"),
        }
    }
}

/// Two processes configured as rank 1, with other ports.
#[test]
fn duplicate_ranks_are_reported() {
    let hosts = Hosts::new(3);
    let mut first = ranks(&hosts);
    let mut second = ranks(&hosts);
    let other = second[1].place.addresses.remove(2);
    second[1].place.addresses[1] = other.clone();
    first[0].place.addresses.truncate(2);
    first[1].place.addresses.truncate(2);
    let all = vec![first.remove(0), first.remove(0), second.remove(1)];
    let outcomes = start_gang(all);
    outcomes[0].as_ref().unwrap();
    // The later one of the two.
    let failed: Vec<_> = outcomes[1..].iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert_eq!(failed.len(), 1, "{outcomes:?}");
    match failed[0] {
        StartError::Incompatible { rank: 0, what, .. } => {
            let prefix = ["another process as rank 1", "formed the gang without this process"];
            assert!(prefix.iter().any(|prefix| what.contains(prefix)), "{what}");
        }
        // The gang was formed without it already, and does not answer any more.
        StartError::NoAnswer { missing, .. } => assert_eq!(missing[0].0, 0),
        other => panic!("{other:?}"),
    }
}
