//! Frames as MPI messages. The only code above the crate `mpi` that knows of MPI.
//!
//! MPI moves a message only inside its calls, and has no call that sleeps until one arrives. So ranks of one
//! host ring each other's doorbell after they passed MPI a message, and this rank sleeps between rings;
//! operations in flight and peers on other hosts are polled at bounded intervals.

use super::{InFlight, Joined, Progress, SleepParameters, Transport};
use crate::Options;
use crate::doorbell::Doorbell;
use crate::error::StartError;
use crate::introduction::{Introduction, Introductions, create_arena, mapped_flags};
use crate::limits::*;
use crate::liveness_connections::{self, LivenessConnections, LivenessListener};
use harrier_mpi::{Block, Channel, Mpi, process};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

/// Loads MPI and connects to the other ranks that the launcher started. Collective; call it on the thread
/// that will make all further calls.
pub(crate) fn join(options: &Options, library: Option<PathBuf>) -> Result<Joined, StartError> {
    let mut mpi = Mpi::init(&harrier_mpi::Options { library })?;
    let (rank, ranks) = (mpi.rank(), mpi.size());
    let arena = create_arena(options, ranks);
    let mine = Introduction::mine(options, arena.as_deref());
    let all = mpi.all_gather(&mine.encode())?.iter().map(|bytes| Introduction::decode(bytes)).collect();
    let introductions = match Introductions::new(rank, all) {
        Ok(introductions) => introductions,
        Err(error) => {
            // Every rank leaves here; nothing was sent, so MPI can be shut down.
            let _ = mpi.finalize();
            return Err(error);
        }
    };
    let here = introductions.here();
    let doorbell = Doorbell::new(&introductions.all[0].token, rank, &here)?;
    let windows = introductions.windows();
    let listening = LivenessListener::start(&introductions);
    let announcements = mpi.all_gather(listening.as_ref().map_or(&[], LivenessListener::announcement))?;
    let to_coordinator = liveness_connections::connect(&introductions, &announcements[0]);
    // Every rank must listen to its doorbell and map shared memory before any sends.
    let everybodys = mpi.all_gather(&mapped_flags(&windows))?;
    let liveness_connections = listening.map_or(to_coordinator, LivenessListener::finish);
    let library = mpi.library();
    Ok(Joined {
        rank,
        peers: introductions.peers(),
        description: format!("{} ({}, {})", library.version, library.abi, library.path.display()),
        lending: introductions.lending(arena, windows, &everybodys),
        transport: Box::new(MpiTransport {
            mpi,
            doorbell,
            pids: introductions.all.iter().map(|other| other.pid).collect(),
            watched: introductions.watches(),
            liveness_connections,
            touched: vec![false; ranks],
            all_here: here.iter().all(|here| *here),
            ranks_here: here.iter().filter(|here| **here).count(),
            in_flight_sleep_ns: IN_FLIGHT_SLEEP_NS_MIN,
        }),
    })
}

struct MpiTransport {
    mpi: Mpi,
    doorbell: Doorbell,
    /// By rank.
    pids: Vec<u32>,
    /// One entry for every peer whose process this rank can watch, and that has not ended.
    watched: Vec<(usize, OwnedFd)>,
    /// Liveness connections of peers on other hosts.
    liveness_connections: LivenessConnections,
    /// Peers to ring at the end of this turn.
    touched: Vec<bool>,
    all_here: bool,
    /// Ranks on this host, this one included.
    ranks_here: usize,
    in_flight_sleep_ns: u64,
}

impl MpiTransport {
    /// Maximum time in nanoseconds until MPI must be called again.
    fn sleep_ns_max(&mut self, parameters: &SleepParameters<'_>) -> u64 {
        if self.in_flight() != InFlight::default() {
            let timeout = self.in_flight_sleep_ns;
            self.in_flight_sleep_ns = (timeout * 2).min(IN_FLIGHT_SLEEP_NS_MAX);
            timeout
        } else if parameters.leaving {
            IN_FLIGHT_SLEEP_NS_MAX
        } else if self.all_here {
            // Bounded although peers ring: MPI may hold a small message back and send it in a later progress
            // call.
            if parameters.busy { 10 * IN_FLIGHT_SLEEP_NS_MAX } else { HEARTBEAT_NS / 2 }
        } else if parameters.busy {
            REMOTE_BUSY_SLEEP_NS_MAX
        } else {
            REMOTE_IDLE_SLEEP_NS_MAX
        }
    }
}

impl Transport for MpiTransport {
    fn send(&mut self, to: usize, channel: Channel, frame: Arc<Block>, urgent: bool) -> Result<(), String> {
        self.touched[to] |= urgent;
        self.mpi.isend(to, channel, frame).map_err(|error| error.to_string())
    }

    fn progress(&mut self, arrived: &mut Vec<(usize, Block)>) -> Result<Progress, String> {
        let before = arrived.len();
        let progress = self
            .mpi
            .progress(&mut |source, _, block| arrived.push((source, block)))
            .map_err(|error| error.to_string())?;
        // A long message moves only while both sides poll: its sender waits for this rank.
        for (source, block) in &arrived[before..] {
            self.touched[*source] |= block.len() > BLOCK_BYTES_TARGET / 4;
        }
        let mut rings = 0;
        for (peer, touched) in self.touched.iter_mut().enumerate() {
            if std::mem::take(touched) {
                rings += u64::from(self.doorbell.ring(peer));
            }
        }
        if !progress.is_idle() {
            self.in_flight_sleep_ns = IN_FLIGHT_SLEEP_NS_MIN;
        }
        let broken = self.mpi.take_failures().into_iter().map(|(peer, error)| (peer, error.to_string()));
        Ok(Progress { moved: !progress.is_idle(), rings, broken: broken.collect() })
    }

    fn in_flight(&self) -> InFlight {
        let in_flight = self.mpi.in_flight();
        InFlight { sends: in_flight.sends, receives: in_flight.receives }
    }

    fn sleep(&mut self, parameters: &SleepParameters<'_>) -> Result<Vec<usize>, String> {
        let timeout_ns = self.sleep_ns_max(parameters);
        let processes = self.watched.iter().map(|(_, fd)| fd.as_fd());
        let fds: Vec<_> =
            processes.chain(self.liveness_connections.descriptors().map(TcpStream::as_fd)).collect();
        let ready = self
            .doorbell
            .sleep(parameters.wake, &fds, timeout_ns, parameters.nothing_to_do)
            .map_err(|error| format!("the rank's doorbell failed: {error}"))?;
        let here = self.watched.len();
        if ready.iter().any(|at| *at >= here) {
            self.liveness_connections.poll();
        }
        let ended = ready.into_iter().rev().filter(|at| *at < here).map(|at| self.watched.remove(at).0);
        let mut ended: Vec<usize> = ended.collect();
        ended.extend(self.liveness_connections.take_ended());
        Ok(ended)
    }

    /// If there are as many cores as ranks that could poll at the same time.
    fn may_busy_poll(&self) -> bool {
        std::thread::available_parallelism().is_ok_and(|cores| self.ranks_here <= cores.get())
    }

    fn is_stopped(&self, peer: usize) -> bool {
        self.watched.iter().any(|(watched, _)| *watched == peer) && process::is_stopped(self.pids[peer])
    }

    fn kill(&mut self, peer: usize) -> bool {
        let Some((_, watch)) = self.watched.iter().find(|(watched, _)| *watched == peer) else {
            return false;
        };
        process::kill(watch).inspect_err(|error| tracing::debug!(peer, %error, "could not be ended")).is_ok()
    }

    fn lose(&mut self, peer: usize) {
        self.mpi.forget(peer);
    }

    /// After a loss MPI's own shutdown could wait for the dead rank.
    fn close(self: Box<Self>, orderly: bool) {
        if orderly {
            if let Err(error) = self.mpi.finalize() {
                tracing::warn!(%error, "MPI did not shut down cleanly");
            }
        } else {
            std::mem::forget(self.mpi);
        }
    }
}
