//! Every rank opens streams to every other, and each end knows from a seed what the other must say.
//!
//! usage, below a launcher: `exchange [--seed N] [--rounds N] [--messages]`
//!
//! At last every rank's ledger must be clear. Prints one line a rank; exit status 1 for anything else. `--messages` does
//! without shared memory.

use harrier_interconnect::{Interconnect, Options};
use harrier_sim::contract::{self, Exchange};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long a ledger may take to clear once everything is read.
const CLEAR_PATIENCE: Duration = Duration::from_secs(10);

fn run() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, default: u64| {
        let value = arguments.iter().skip_while(|argument| *argument != name).nth(1);
        value.map_or(Ok(default), |value| value.parse().map_err(|_| format!("{name} takes a number")))
    };
    let exchange =
        Exchange { seed: number("--seed", 1)?, rounds: number("--rounds", 5)?, streams: 3, rows_log2: 18 };
    let shared_memory = !arguments.iter().any(|argument| argument == "--messages");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let options = Options { library: None, version: "exchange".to_string(), shared_memory };
    let gang = Interconnect::start(options).map_err(|error| error.to_string())?;
    let done = contract::serve(&gang, exchange, runtime.handle().clone());
    let streams =
        runtime.block_on(contract::exchange(&gang, exchange)).map_err(|problem| problem.to_string())?;
    runtime.block_on(contract::part(&gang, done));
    // Ends and returns may still be on their way.
    let since = Instant::now();
    while !gang.ledger().is_clear() && since.elapsed() < CLEAR_PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (ledger, counters) = (gang.ledger(), gang.counters());
    gang.leave(0);
    if !ledger.is_clear() {
        return Err(format!("the ledger does not clear: {ledger:?}"));
    }
    println!("rank {}: {streams} streams read, {} blocks lent", gang.rank(), counters.blocks_lent);
    Ok(())
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
