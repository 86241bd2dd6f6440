//! Every rank opens streams to every other, and each end knows from a seed what the other must say.
//!
//! usage, below a launcher or with a hosts file: `exchange [--seed N] [--rounds N] [--messages] [--unwatched]
//! [--dies RANK] [--stands RANK] [--idle SECONDS]`
//!
//! At last every rank's ledger must be clear. Prints one line a rank; exit status 1 for anything else.
//! `--messages` does without shared memory, `--unwatched` without watching the processes of other ranks.
//! `--dies`: that rank ends after half of the rounds without a word, and the others say why they hold it
//! lost; `--stands`: that rank's driver stands still inside of a call instead, when it is first asked for
//! something. `--idle`: says how often the driver woke in that time, in which there is nothing to do.

use harrier_interconnect::{Carrier, Incoming, Interconnect, Options, Service, launch};
use harrier_sim::contract::{self, Exchange};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a ledger may take to clear once everything is read.
const CLEAR_PATIENCE: Duration = Duration::from_secs(10);

/// Never comes back, on the driver's own thread. What came before it served comes on another one, and is
/// given up.
struct Stands;

impl Service for Stands {
    fn open(&self, _: Incoming) {
        while std::thread::current().name() == Some("interconnect") {
            std::thread::park();
        }
    }
}

fn run() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, default: u64| {
        let value = arguments.iter().skip_while(|argument| *argument != name).nth(1);
        value.map_or(Ok(default), |value| value.parse().map_err(|_| format!("{name} takes a number")))
    };
    let mut exchange = Exchange {
        seed: number("--seed", 1)?,
        rounds: number("--rounds", 5)?,
        streams: 3,
        rows_log2: 18,
        codec: None,
    };
    let flag = |name: &str| arguments.iter().any(|argument| argument == name);
    let stands = number("--stands", u64::MAX)?;
    let dies = number("--dies", stands)?;
    let idle = number("--idle", 0)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let launched = launch(None, false).map_err(|error| error.to_string())?;
    let mut carrier = launched
        .map_or_else(Carrier::mpi, |launched| Ok(launched.carrier))
        .map_err(|error| error.to_string())?;
    if let Carrier::Quic(place) = &mut carrier {
        place.watch_processes = !flag("--unwatched");
    }
    let options = Options {
        carrier,
        version: "exchange".to_string(),
        shared_memory: !flag("--messages"),
        facts: Vec::new(),
    };
    let gang = Interconnect::start(options).map_err(|error| error.to_string())?;
    if dies == gang.rank() as u64 {
        exchange.rounds = exchange.rounds.div_ceil(2);
    }
    if stands == gang.rank() as u64 {
        gang.serve(Arc::new(Stands));
        loop {
            std::thread::park();
        }
    }
    let done = contract::serve(&gang, exchange, runtime.handle().clone(), Arc::default());
    let exchanged = runtime.block_on(contract::exchange(&gang, exchange, Arc::default()));
    if dies == gang.rank() as u64 {
        std::process::abort();
    }
    runtime.block_on(contract::barrier(&gang, done));
    if dies < gang.ranks() as u64 {
        for (rank, reason) in runtime.block_on(gang.wait_for_losses(0)) {
            println!("lost rank {rank}: {reason}");
        }
    }
    // Whoever is left has its rows from this rank even if another one was lost.
    let streams = exchanged.map_err(|problem| problem.to_string());
    // Ends and returns may still be on their way.
    let since = Instant::now();
    while !gang.ledger().is_clear() && since.elapsed() < CLEAR_PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
    }
    if idle > 0 {
        let before = driver_wakeups()?;
        std::thread::sleep(Duration::from_secs(idle));
        println!("woke {} times", driver_wakeups()? - before);
    }
    let (ledger, counters) = (gang.ledger(), gang.counters());
    gang.leave(0);
    if !ledger.is_clear() {
        return Err(format!("the ledger does not clear: {ledger:?}"));
    }
    let streams = streams?;
    println!("rank {}: {streams} streams read, {} blocks lent", gang.rank(), counters.blocks_lent);
    Ok(())
}

/// How often the driver's thread gave up the processor by itself, which it does to sleep.
fn driver_wakeups() -> Result<u64, String> {
    for task in std::fs::read_dir("/proc/self/task").map_err(|error| error.to_string())?.flatten() {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        if field("Name").is_some_and(|name| name.trim() == "interconnect") {
            let switches = field("voluntary_ctxt_switches").and_then(|count| count.trim().parse().ok());
            return switches.ok_or_else(|| "the kernel does not count switches".to_string());
        }
    }
    Err("there is no driver".to_string())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
