//! MPI primitive: the library's own messages, without the interconnect.
//!
//! Rank 1 echoes messages of one channel and counts those of the other. The sender has at most [`AHEAD_MAX`]
//! unacknowledged packets in flight, because the library buffers unreceived small messages without bound.

use std::sync::Arc;
use std::time::{Duration, Instant};

use harrier_mpi::{Block, Channel, Mpi};

use super::pair::{self, Pair};

/// Packets per acknowledgement.
const PACKETS_PER_ACKNOWLEDGEMENT: u64 = 1024;
/// Maximum number of unacknowledged packets.
const AHEAD_MAX: u64 = 4 * PACKETS_PER_ACKNOWLEDGEMENT;
/// Maximum number of bytes posted to MPI but not sent.
const SENDING_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Busy-polling time of rank 1 after the last message, and its polling interval afterwards: while others are
/// measured it must not occupy their cores.
const BUSY: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(2);
/// Polls between two clock reads.
const TURNS: u32 = 1000;

/// Runs a rank until standard input of rank 0 ends. Must be on the thread that makes every MPI call.
pub(super) fn run() -> Result<(), String> {
    let mut mpi = Mpi::init(&harrier_mpi::Options::default()).map_err(|error| error.to_string())?;
    if mpi.size() != 2 {
        return Err(format!("{} ranks instead of 2", mpi.size()));
    }
    if mpi.rank() == 0 {
        let mut pair = Direct { mpi, echoes: None, acknowledged: Vec::new() };
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
    /// The last echo received.
    echoes: Option<Block>,
    /// Acknowledgements received.
    acknowledged: Vec<Block>,
}

impl Direct {
    fn send(&mut self, channel: Channel, message: &[u8]) -> Result<(), String> {
        let mut block = Block::with_capacity(message.len());
        block.extend_from_slice(message);
        self.mpi.isend(1, channel, Arc::new(block)).map_err(|error| error.to_string())
    }

    fn progress(&mut self) -> Result<(), String> {
        let (echoes, acknowledged) = (&mut self.echoes, &mut self.acknowledged);
        let mut deliver = |_, channel, block| match channel {
            Channel::Data => *echoes = Some(block),
            _ => acknowledged.push(block),
        };
        self.mpi.progress(&mut deliver).map(drop).map_err(|error| error.to_string())
    }

    /// Takes the acknowledgements received so far. Returns their number.
    fn acknowledgements(&mut self) -> u64 {
        let before = self.acknowledged.len();
        self.acknowledged.retain(|block| !block.is_empty());
        (before - self.acknowledged.len()) as u64
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
                return same.then_some(()).ok_or_else(|| "another message received back".to_owned());
            }
        }
    }

    fn packets(&mut self, packet: &[u8], more: &mut dyn FnMut(u64) -> bool) -> Result<u64, String> {
        let sends_max = (SENDING_BYTES_MAX / packet.len().max(1)).clamp(2, 256);
        let (mut sent, mut acknowledged) = (0, 0);
        while more(sent * packet.len() as u64) {
            self.send(Channel::Control, packet)?;
            sent += 1;
            while self.mpi.in_flight().sends > sends_max
                || sent - acknowledged * PACKETS_PER_ACKNOWLEDGEMENT > AHEAD_MAX
            {
                self.progress()?;
                acknowledged += self.acknowledgements();
            }
        }
        self.send(Channel::Control, &[])?;
        loop {
            self.progress()?;
            self.acknowledgements();
            if let Some(count) = self.acknowledged.pop() {
                let bytes = count.as_slice().try_into().map_err(|_| "no count received back".to_owned())?;
                return Ok(u64::from_le_bytes(bytes));
            }
        }
    }
}

/// Serves rank 1, until an empty message arrives on the echo channel.
fn answer_all(mpi: &mut Mpi) -> Result<(), String> {
    let mut last = Instant::now();
    let (mut packets, mut bytes) = (0, 0);
    loop {
        let mut received = Vec::new();
        for _ in 0..TURNS {
            let mut deliver = |_, channel, block| received.push((channel, block));
            mpi.progress(&mut deliver).map_err(|error| error.to_string())?;
            if !received.is_empty() {
                break;
            }
        }
        match received.is_empty() {
            true if last.elapsed() > BUSY => std::thread::sleep(PAUSE),
            true => continue,
            false => last = Instant::now(),
        }
        for (channel, block) in received {
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
                    (packets % PACKETS_PER_ACKNOWLEDGEMENT == 0)
                        .then(|| (Channel::Control, Block::with_capacity(0)))
                }
            };
            if let Some((channel, block)) = answer {
                mpi.isend(0, channel, Arc::new(block)).map_err(|error| error.to_string())?;
            }
        }
    }
}
