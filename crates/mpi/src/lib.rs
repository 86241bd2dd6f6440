//! MPI bindings: the only `unsafe` of the workspace, one thread, every call checked; it must never know what
//! the bytes mean.
//!
//! ```text
//!  interconnect ── isend(dest, channel, Arc<Block>) ──► Mpi ──► MPI_Isend ─────────────────────► another rank's
//!                ◄── deliver(source, channel, Block) ──  │  ◄── MPI_Improbe, MPI_Imrecv ◄─────── isend
//!                                                progress(): the only thing that moves anything
//! ```
//!
//! No MPI is needed to build: the library is found and loaded when [`Mpi::init`] is called (see
//! [`Options::library`]), and its binary interface is identified by its symbols, never by its file name.
//! Three interfaces are supported, see [`Abi`].
//!
//! # Invariants
//! - A block passed to MPI is owned by its request until MPI has completed it. If an [`Mpi`] is dropped with
//!   open requests, their blocks are leaked: MPI may still read or write them.
//! - Messages of one source and one channel are delivered in the order of sending, whichever completes first.
//! - A loaded MPI library is never unloaded: it has threads, exit handlers and mapped memory of its own.
//!
//! # Order of calls
//! [`Mpi::init`], then [`Mpi::all_gather`] on every rank alike, then [`Mpi::isend`] and [`Mpi::progress`] in
//! any order, and last [`Mpi::finalize`]. MPI can be initialised once in the life of a process.
//!
//! # Threads
//! Every call is made on the thread that called [`Mpi::init`] (`MPI_THREAD_FUNNELED`); [`Mpi`] is neither
//! `Send` nor `Sync`. A [`Block`] is both.
//!
//! # Memory bound
//! At most [`RECEIVES_MAX`] receives are open, and one round of [`Mpi::progress`] starts at most
//! [`RECEIVES_MAX`] of them. Messages beyond the bound stay with their senders (large ones) or in MPI's own
//! buffers (small ones); the credits above this crate bound their number. Sends are not bounded here. Every
//! message is received into a block allocated for it. The program's allocator should cache freed blocks of
//! 256 KiB, as mimalloc does: with the C library's, which returns them to the system, page faults cost more
//! than the transfer.
//!
//! # Errors
//! MPI is set to return its errors (`MPI_ERRORS_RETURN`) and every return code is checked.
//! [`Mpi::take_failures`] reports failures of single peers, and the others go on. After an [`MpiError`] from
//! [`Mpi::isend`] or [`Mpi::progress`] messages of any peer may have been lost: the rank can only stop.
//!
//! # Crash
//! The standard does not define a world with a dead process in it. This crate relies on messages between two
//! live ranks being independent of a third: with Open MPI and MPICH they are, and no collective call is made
//! after the start.
//!
//! # Source
//! MPI: A Message-Passing Interface Standard, version 5.0: chapters 3.7 (nonblocking), 3.8 (matched probe),
//! 9.3 (errors), 11.6 (threads) and 20 (the application binary interface).

#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

pub mod allocator;
mod ancestry;
mod arena;
mod block;
pub mod descriptors;
mod discovery;
mod endpoint;
mod environment;
mod error;
mod ffi;
mod pmi;
pub mod process;
pub mod processor;
pub mod schedule;
pub mod shared;
pub mod terminal;

use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;

pub use ancestry::has_launcher;
pub use block::Block;
pub use endpoint::RECEIVES_MAX;
pub use environment::{LaunchedProcess, detect_launcher, launcher_sign};
pub use error::MpiError;

use endpoint::World;

/// The channel of a message; each is ordered independently between two ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Channel {
    /// Small control messages: MPI tag 1.
    Control,
    /// Blocks of rows: MPI tag 2.
    Data,
}

impl Channel {
    /// Both channels, in the order of their tags.
    pub const ALL: [Channel; 2] = [Channel::Control, Channel::Data];

    fn tag(self) -> i32 {
        match self {
            Channel::Control => 1,
            Channel::Data => 2,
        }
    }

    fn from_tag(tag: i32) -> Option<Channel> {
        Channel::ALL.into_iter().find(|channel| channel.tag() == tag)
    }

    fn index(self) -> usize {
        match self {
            Channel::Control => 0,
            Channel::Data => 1,
        }
    }
}

/// How to start MPI.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The MPI library to load. `None`: `HARRIER_MPI_LIBRARY` if it is set; else the library of the launcher
    /// that started this process, if the launcher is known; else the one that the dynamic loader finds.
    /// `HARRIER_MPI_ABI` (`openmpi`, `mpich` or `standard`) restricts the search to one binary interface.
    pub library: Option<PathBuf>,
}

/// The binary interface of an MPI library.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Abi {
    /// Open MPI 4 and 5: handles are addresses of objects that the library exports.
    OpenMpi,
    /// MPICH 3.1 and later and its descendants (MPICH ABI Compatibility Initiative): handles are 32-bit
    /// integers.
    Mpich,
    /// The standard interface of MPI 5.0, chapter 20: handles have the size of a pointer and fixed small
    /// values.
    Standard,
}

impl std::fmt::Display for Abi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Abi::OpenMpi => "openmpi",
            Abi::Mpich => "mpich",
            Abi::Standard => "standard",
        })
    }
}

/// The MPI library in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LibraryInfo {
    /// The file, as the dynamic loader resolved it.
    pub path: PathBuf,
    /// Its binary interface.
    pub abi: Abi,
    /// The first line of the result of `MPI_Get_library_version`.
    pub version: String,
}

/// Loads the library that [`Mpi::init`] would load with these options, and returns its description. MPI is
/// not initialised.
pub fn find_library(options: &Options) -> Result<LibraryInfo, MpiError> {
    discovery::load(options).map(|(library, _)| library)
}

/// The result of one round of [`Mpi::progress`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Sends that MPI completed; their blocks are released.
    pub sends_completed: usize,
    /// Messages passed to `deliver`.
    pub messages_received: usize,
    /// Messages that MPI matched, and whose receive was started.
    pub receives_started: usize,
}

impl Progress {
    /// Whether nothing at all happened in the round.
    pub fn is_idle(&self) -> bool {
        *self == Progress::default()
    }
}

/// Requests that MPI has not completed, and messages not yet delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InFlight {
    /// Sends that are not complete.
    pub sends: usize,
    /// Messages matched by a receive, and not yet passed to `deliver`.
    pub receives: usize,
    /// The bytes of `sends`; a block sent to several ranks counts once for each.
    pub send_bytes: usize,
}

/// This process as a rank of the MPI world; see the crate's documentation for the order of calls.
pub struct Mpi {
    world: Box<dyn World>,
    library: LibraryInfo,
    /// MPI belongs to the thread that initialised it: neither `Send` nor `Sync`.
    _thread: PhantomData<*mut ()>,
}

impl Mpi {
    /// Loads an MPI library, initialises it (`MPI_THREAD_FUNNELED`) and duplicates `MPI_COMM_WORLD`.
    /// Collective, blocks until every rank has called it. Once in the life of a process.
    ///
    /// # Errors
    /// No library, an unknown one, one that the launcher of this process did not reach
    /// ([`MpiError::WorldMismatch`]), or an error of MPI. A library that cannot initialise itself may also
    /// end the process with its own message.
    pub fn init(options: &Options) -> Result<Mpi, MpiError> {
        let (library, table) = discovery::load(options)?;
        // Before MPI is initialised: a library that finds no launcher sets such variables itself.
        let launch = environment::Launch::from_environment();
        launch.check_library(&library)?;
        let world = endpoint::initialize(&library, table, &launch)?;
        tracing::info!(
            rank = world.rank(),
            size = world.size(),
            library = %library.path.display(),
            abi = %library.abi,
            version = library.version,
            "MPI is initialised"
        );
        Ok(Mpi { world, library, _thread: PhantomData })
    }

    /// This process's rank, from 0 to `size() - 1`.
    pub fn rank(&self) -> usize {
        self.world.rank()
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        self.world.size()
    }

    /// The library in use.
    pub fn library(&self) -> &LibraryInfo {
        &self.library
    }

    /// Gathers `mine` of every rank, in rank order. Collective, and blocks until every rank has called it:
    /// for start-up only. The sum of the lengths must not exceed `i32::MAX` bytes.
    pub fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, MpiError> {
        self.world.all_gather(mine)
    }

    /// Starts to send `block` as one message to the rank `dest`, which may be this rank. Never blocks. The
    /// block is held until a later [`Mpi::progress`] finds the send complete.
    pub fn isend(&mut self, dest: usize, channel: Channel, block: Arc<Block>) -> Result<(), MpiError> {
        self.world.isend(dest, channel, block)
    }

    /// Runs one round of progress; never blocks. Releases the blocks of completed sends, starts to receive
    /// the messages that have arrived, each into a block of exactly its size, and passes complete ones to
    /// `deliver(source, channel, block)` in the order in which MPI matched them per source and channel.
    pub fn progress(&mut self, deliver: &mut dyn FnMut(usize, Channel, Block)) -> Result<Progress, MpiError> {
        self.world.progress(deliver)
    }

    /// Abandons `peer`, which is dead or unreachable: operations in flight to and from it are dropped, their
    /// blocks are leaked, and nothing is sent to it or received from it from now on. The other ranks go on.
    pub fn forget(&mut self, peer: usize) {
        self.world.forget(peer);
    }

    /// MPI's errors for single peers since the last call. Messages to or from such a peer may have been lost:
    /// call [`Mpi::forget`] for it.
    pub fn take_failures(&mut self) -> Vec<(usize, MpiError)> {
        self.world.take_failures()
    }

    /// Operations that are not complete yet; free of cost.
    pub fn in_flight(&self) -> InFlight {
        self.world.in_flight()
    }

    /// Finalises MPI. Cancels nothing and waits for nobody: the caller has made sure that [`Mpi::in_flight`]
    /// is zero on every rank, and that no rank has yet to receive.
    ///
    /// # Errors
    /// [`MpiError::InFlight`] when something is in flight; MPI is then not finalised and can only be left by
    /// ending the process.
    pub fn finalize(mut self) -> Result<(), MpiError> {
        self.world.finalize()
    }

    /// Ends every rank with the exit status `code`, as far as the launcher can (`MPI_Abort`), and always this
    /// process.
    pub fn abort(&mut self, code: i32) -> ! {
        self.world.abort(code);
        std::process::exit(code)
    }
}
