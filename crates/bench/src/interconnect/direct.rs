//! Round trips of the MPI library itself: two ranks that call it in a loop, without the interconnect.
//!
//! Rank 1 answers every message and, after [`BUSY`] without one, polls only at intervals: while others are
//! measured, these ranks must not occupy their cores.

use std::sync::Arc;
use std::time::{Duration, Instant};

use harrier_mpi::{Block, Channel, Mpi};

use super::latency::Clock;
use super::{MESSAGE_BYTES, WARM_UP_ROUND_TRIPS};
use crate::protocol::{Latency, Reply, Request};
use crate::worker;

/// Busy-polling time after the last message.
const BUSY: Duration = Duration::from_millis(100);
/// Polling interval after that.
const PAUSE: Duration = Duration::from_millis(2);
/// Polls between two clock reads: reading the clock would add to the measured time.
const TURNS: u32 = 1000;

/// Runs a rank until standard input of rank 0 ends. Must be on the thread that makes every MPI call.
pub fn run() -> Result<(), String> {
    let mut mpi = Mpi::init(&harrier_mpi::Options::default()).map_err(|error| error.to_string())?;
    if mpi.size() != 2 {
        return Err(format!("{} ranks instead of 2", mpi.size()));
    }
    match mpi.rank() {
        0 => take_requests(&mut mpi)?,
        _ => answer_all(&mut mpi)?,
    }
    while mpi.in_flight().sends > 0 {
        mpi.progress(&mut |_, _, _| ()).map_err(|error| error.to_string())?;
    }
    mpi.finalize().map_err(|error| error.to_string())
}

fn take_requests(mpi: &mut Mpi) -> Result<(), String> {
    let to_text = |error: std::io::Error| error.to_string();
    worker::reply(&Reply::Engine(mpi.library().version.clone())).map_err(to_text)?;
    while let Some(line) = worker::next_line().map_err(to_text)? {
        let answer = match Request::parse(&line) {
            Ok(Request::RoundTrips(count)) => round_trips(mpi, count).map(Reply::Latency),
            Ok(_) => Err("this worker only sends small messages".to_owned()),
            Err(message) => Err(message),
        };
        worker::reply(&answer.unwrap_or_else(Reply::Error)).map_err(to_text)?;
    }
    send(mpi, 1, &[])
}

fn round_trips(mpi: &mut Mpi, count: u64) -> Result<Latency, String> {
    let mut clock = Clock::new(WARM_UP_ROUND_TRIPS, count);
    while clock.start() {
        round_trip(mpi)?;
        clock.stop();
    }
    clock.latency()
}

fn round_trip(mpi: &mut Mpi) -> Result<(), String> {
    send(mpi, 1, &[7; MESSAGE_BYTES])?;
    let mut received = None;
    while received.is_none() {
        receive(mpi, &mut received)?;
    }
    match received.is_some_and(|block| block.as_slice() == [7; MESSAGE_BYTES]) {
        true => Ok(()),
        false => Err("another message received back".to_owned()),
    }
}

/// Echoes every message, until an empty one arrives.
fn answer_all(mpi: &mut Mpi) -> Result<(), String> {
    let mut last = Instant::now();
    loop {
        let mut received = None;
        for _ in 0..TURNS {
            receive(mpi, &mut received)?;
            if received.is_some() {
                break;
            }
        }
        match received {
            Some(block) if block.is_empty() => return Ok(()),
            Some(block) => {
                mpi.isend(0, Channel::Data, Arc::new(block)).map_err(|error| error.to_string())?;
                last = Instant::now();
            }
            None if last.elapsed() > BUSY => std::thread::sleep(PAUSE),
            None => {}
        }
    }
}

fn send(mpi: &mut Mpi, to: usize, message: &[u8]) -> Result<(), String> {
    let mut block = Block::with_capacity(message.len());
    block.extend_from_slice(message);
    mpi.isend(to, Channel::Data, Arc::new(block)).map_err(|error| error.to_string())
}

fn receive(mpi: &mut Mpi, received: &mut Option<Block>) -> Result<(), String> {
    mpi.progress(&mut |_, _, block| *received = Some(block)).map(drop).map_err(|error| error.to_string())
}
