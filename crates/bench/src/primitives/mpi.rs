//! The MPI library's own messages, with nothing of the interconnect in between.
//!
//! Rank 1 sends back what comes over one channel and counts what comes over the other. The sender never has
//! more than [`AHEAD_MAX`] packets under way that were not acknowledged: small messages that nobody has
//! received yet are kept by the library, without a bound.

use std::sync::Arc;
use std::time::{Duration, Instant};

use harrier_mpi::{Block, Channel, Mpi};

use super::pair::{self, Pair};

/// Packets that are acknowledged together.
const ACKNOWLEDGED: u64 = 1024;
/// Packets sent and not acknowledged.
const AHEAD_MAX: u64 = 4 * ACKNOWLEDGED;
/// Bytes given to MPI that it has not sent.
const SENDING_BYTES_MAX: usize = 32 * 1024 * 1024;

/// How long rank 1 looks without a pause after the last message, and how it pauses then: while others are
/// measured it must not take their cores.
const BUSY: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(2);
/// Turns without a look at the clock.
const TURNS: u32 = 1000;

/// Runs a rank until standard input of rank 0 ends. On the thread that makes every call to MPI.
pub(super) fn run() -> Result<(), String> {
    let mut mpi = Mpi::init(&harrier_mpi::Options::default()).map_err(|error| error.to_string())?;
    if mpi.size() != 2 {
        return Err(format!("{} ranks instead of 2", mpi.size()));
    }
    if mpi.rank() == 0 {
        let mut pair = Direct { mpi, echoes: None, told: Vec::new() };
        pair::serve(&mut pair)?;
        pair.send(Channel::Data, &[])?;
        mpi = pair.mpi;
    } else {
        answer_all(&mut mpi)?;
    }
    while mpi.in_flight().sends > 0 {
        mpi.progress(&mut |_, _, _| ()).map_err(|error| error.to_string())?;
    }
    mpi.finalize().map_err(|error| error.to_string())
}

struct Direct {
    mpi: Mpi,
    /// What came back last.
    echoes: Option<Block>,
    /// What the other side said of packets.
    told: Vec<Block>,
}

impl Direct {
    fn send(&mut self, channel: Channel, message: &[u8]) -> Result<(), String> {
        let mut block = Block::with_capacity(message.len());
        block.extend_from_slice(message);
        self.mpi.isend(1, channel, Arc::new(block)).map_err(|error| error.to_string())
    }

    fn progress(&mut self) -> Result<(), String> {
        let (echoes, told) = (&mut self.echoes, &mut self.told);
        let mut deliver = |_, channel, block| match channel {
            Channel::Data => *echoes = Some(block),
            _ => told.push(block),
        };
        self.mpi.progress(&mut deliver).map(drop).map_err(|error| error.to_string())
    }

    /// Takes those that have come. Returns how many.
    fn acknowledgements(&mut self) -> u64 {
        let before = self.told.len();
        self.told.retain(|block| !block.is_empty());
        (before - self.told.len()) as u64
    }
}

impl Pair for &mut Direct {
    fn engine(&self) -> String {
        self.mpi.library().version.clone()
    }

    fn round_trip(&mut self, message: &[u8]) -> Result<(), String> {
        self.send(Channel::Data, message)?;
        loop {
            self.progress()?;
            if let Some(back) = self.echoes.take() {
                let same = back.as_slice() == message;
                return same.then_some(()).ok_or_else(|| "another message came back".to_owned());
            }
        }
    }

    fn packets(&mut self, packet: &[u8], more: &mut dyn FnMut(u64) -> bool) -> Result<u64, String> {
        let sends_max = (SENDING_BYTES_MAX / packet.len().max(1)).clamp(2, 256);
        let (mut sent, mut acknowledged) = (0, 0);
        while more(sent * packet.len() as u64) {
            self.send(Channel::Control, packet)?;
            sent += 1;
            while self.mpi.in_flight().sends > sends_max || sent - acknowledged * ACKNOWLEDGED > AHEAD_MAX {
                self.progress()?;
                acknowledged += self.acknowledgements();
            }
        }
        self.send(Channel::Control, &[])?;
        loop {
            self.progress()?;
            self.acknowledgements();
            if let Some(count) = self.told.pop() {
                let bytes = count.as_slice().try_into().map_err(|_| "no count came back".to_owned())?;
                return Ok(u64::from_le_bytes(bytes));
            }
        }
    }
}

/// What rank 1 does, until an empty message comes to be sent back.
fn answer_all(mpi: &mut Mpi) -> Result<(), String> {
    let mut last = Instant::now();
    let (mut packets, mut bytes) = (0, 0);
    loop {
        let mut came = Vec::new();
        for _ in 0..TURNS {
            let mut deliver = |_, channel, block| came.push((channel, block));
            mpi.progress(&mut deliver).map_err(|error| error.to_string())?;
            if !came.is_empty() {
                break;
            }
        }
        match came.is_empty() {
            true if last.elapsed() > BUSY => std::thread::sleep(PAUSE),
            true => continue,
            false => last = Instant::now(),
        }
        for (channel, block) in came {
            let answer = match channel {
                Channel::Data if block.is_empty() => return Ok(()),
                Channel::Data => Some((Channel::Data, block)),
                _ if block.is_empty() => {
                    let mut count = Block::with_capacity(8);
                    count.extend_from_slice(&u64::to_le_bytes(bytes));
                    (packets, bytes) = (0, 0);
                    Some((Channel::Control, count))
                }
                _ => {
                    packets += 1;
                    bytes += block.len() as u64;
                    (packets % ACKNOWLEDGED == 0).then(|| (Channel::Control, Block::with_capacity(0)))
                }
            };
            if let Some((channel, block)) = answer {
                mpi.isend(0, channel, Arc::new(block)).map_err(|error| error.to_string())?;
            }
        }
    }
}
