//! What carries frames between the ranks of a gang: the contract, and its implementations.
//!
//! # Contract
//! - Frames of one channel from one rank to another arrive once and in the order in which they were sent. If
//!   one does not arrive, none that was sent after it does, and the receiver's rank or the sender's is lost.
//! - No call waits, but [`Transport::rest`]; and that returns soon after a frame was queued, a frame arrived,
//!   a peer's process ended, or its time is up.
//! - A transport tells when a peer's process has surely ended, and when its connection broke, after which it
//!   may live. Whether a silent peer is gone is decided above it.
//! - Frames are bytes: no transport looks into one.
//!
//! # Order of calls
//! A transport is made by what joins the gang, as a [`Joined`]. Then [`Transport::send`],
//! [`Transport::progress`] and [`Transport::rest`] in any order, on one thread, and last
//! [`Transport::close`].
//!
//! # Errors
//! A transport that cannot go on says why: every other rank is then lost to this one.

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
    /// For people: the library or protocol in use.
    pub description: String,
    /// Shared memory between the ranks of a host; the default lends nothing.
    pub lending: Lending,
    pub transport: Box<dyn Transport>,
}

/// What one call of [`Transport::progress`] did.
#[derive(Default)]
pub struct Progress {
    /// Whether anything moved. If not, the next call may still: the one that finds nothing may be the one
    /// that brings it in.
    pub moved: bool,
    /// Peers that were told to look.
    pub rings: u64,
    /// Peers that frames can no longer be moved to or from, and why.
    pub broken: Vec<(usize, String)>,
}

/// What a transport has begun and not completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    pub sends: usize,
    pub receives: usize,
}

/// How long to rest, and what ends it.
pub struct Rest<'a> {
    pub wake: &'a Wake,
    /// Streams are open: rows may come at any time.
    pub busy: bool,
    /// This rank has said goodbye, and waits for the others.
    pub leaving: bool,
    /// Asked once more after `wake` was told that the thread sleeps.
    pub nothing_to_do: &'a dyn Fn() -> bool,
}

/// See the module's contract.
pub trait Transport {
    /// Takes `frame`, for `to`. A frame that is not `urgent` may wait until something else tells its receiver
    /// to look.
    fn send(&mut self, to: usize, channel: Channel, frame: Arc<Block>, urgent: bool) -> Result<(), String>;

    /// Moves what can be moved without waiting; appends what arrived, with its sender.
    fn progress(&mut self, arrived: &mut Vec<(usize, Block)>) -> Result<Progress, String>;

    fn in_flight(&self) -> InFlight;

    /// Waits. Returns the peers whose process has ended, each once, lost ones too: what they were lent is
    /// written again after that. Frames they sent before may still come by `progress`.
    fn rest(&mut self, rest: &Rest<'_>) -> Result<Vec<usize>, String>;

    /// Whether the driver's thread may call [`Transport::progress`] again and again while nothing moves: that
    /// costs nobody else a processor.
    fn may_busy_poll(&self) -> bool {
        false
    }

    /// Whether the peer's process is seen to be stopped, as by SIGSTOP or a debugger.
    fn is_stopped(&self, peer: usize) -> bool {
        let _ = peer;
        false
    }

    /// Ends the process of a peer that does not answer, if it can: its end is then told by
    /// [`Transport::rest`]. Returns whether it can. A rank that is stopped would outlive its gang: launchers
    /// ask processes to end, and a stopped one does not hear.
    fn kill(&mut self, peer: usize) -> bool;

    /// `peer` is lost: nothing is sent to it any more, and what was begun with it is given up.
    fn lose(&mut self, peer: usize);

    /// The time by which silence is measured.
    fn now(&self) -> Instant {
        Instant::now()
    }

    /// Ends. `orderly`: every rank has left in good order, nothing is in flight, and no rank is lost.
    fn close(self: Box<Self>, orderly: bool);
}
