//! The transport contract of frames between the ranks of a gang, and its implementations.
//!
//! # Contract
//! - Frames of one channel from one rank to another arrive once and in the order of sending. If one does not
//!   arrive, none sent after it does, and the receiver's rank or the sender's is lost.
//! - No call blocks, except [`Transport::sleep`]; and that returns soon after a frame was queued, a frame
//!   arrived, a peer's process ended, or its time is up.
//! - A transport reports when a peer's process has certainly ended, and when its connection broke, after
//!   which it may be alive. The layer above decides whether a silent peer is gone.
//! - Frames are opaque: no transport inspects one.
//!
//! # Order of calls
//! A transport is created by the code that joins the gang, as a [`Joined`]. Then [`Transport::send`],
//! [`Transport::progress`] and [`Transport::sleep`] in any order, on one thread, and last
//! [`Transport::close`].
//!
//! # Errors
//! A transport that fails returns the reason: every other rank is then lost to this one.

pub(crate) mod mpi;
pub mod quic;

pub use crate::lending::Lending;

pub use crate::doorbell::Wake;
pub use harrier_mpi::shared::{Arena, Window};
pub use harrier_mpi::{Block, Channel};

use crate::Peer;
use std::sync::Arc;
use std::time::Instant;

/// A rank that has joined its gang.
pub struct Joined {
    pub rank: usize,
    /// All ranks, this one included.
    pub peers: Vec<Peer>,
    /// The library or protocol in use, for messages.
    pub description: String,
    /// Shared memory between the ranks of a host; the default lends nothing.
    pub lending: Lending,
    pub transport: Box<dyn Transport>,
}

/// The result of one call of [`Transport::progress`].
#[derive(Default)]
pub struct Progress {
    /// Whether anything moved. If not, the next call may still: a call that finds nothing may itself complete
    /// a message.
    pub moved: bool,
    /// Number of doorbells rung at peers.
    pub rings: u64,
    /// Peers whose connection broke, with reasons.
    pub broken: Vec<(usize, String)>,
}

/// Operations that a transport has started and not completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    pub sends: usize,
    pub receives: usize,
}

/// Parameters of a sleep.
pub struct SleepParameters<'a> {
    pub wake: &'a Wake,
    /// Streams are open: rows may arrive at any time.
    pub busy: bool,
    /// This rank has said goodbye, and waits for the others.
    pub leaving: bool,
    /// Checked once more after `wake` has published that the thread sleeps.
    pub nothing_to_do: &'a dyn Fn() -> bool,
}

/// See the module's contract.
pub trait Transport {
    /// Takes `frame`, for `to`. A frame that is not `urgent` does not wake its receiver.
    fn send(&mut self, to: usize, channel: Channel, frame: Arc<Block>, urgent: bool) -> Result<(), String>;

    /// Moves frames without waiting; appends those that arrived, with their sender.
    fn progress(&mut self, arrived: &mut Vec<(usize, Block)>) -> Result<Progress, String>;

    fn in_flight(&self) -> InFlight;

    /// Sleeps. Returns the peers whose process has ended, each once, including lost ones: their loans are
    /// reclaimed after that. Frames they sent before may still arrive by `progress`.
    fn sleep(&mut self, parameters: &SleepParameters<'_>) -> Result<Vec<usize>, String>;

    /// Whether the driver's thread may poll [`Transport::progress`] busily while nothing moves, without
    /// taking a processor from others.
    fn may_busy_poll(&self) -> bool {
        false
    }

    /// Whether the peer's process is known to be stopped, as by SIGSTOP or a debugger.
    fn is_stopped(&self, peer: usize) -> bool {
        let _ = peer;
        false
    }

    /// Kills the process of a peer that does not answer, if possible: [`Transport::sleep`] then reports its
    /// exit. Returns whether it is possible. A stopped rank would outlive its gang: launchers send SIGTERM,
    /// which a stopped process does not handle.
    fn kill(&mut self, peer: usize) -> bool;

    /// Disconnects `peer`, which is lost: nothing is sent to it any more, and operations with it are
    /// abandoned.
    fn lose(&mut self, peer: usize);

    /// The clock by which silence is measured.
    fn now(&self) -> Instant {
        Instant::now()
    }

    /// Closes. `orderly`: every rank has left in good order, nothing is in flight, and no rank is lost.
    fn close(self: Box<Self>, orderly: bool);
}
