//! One rank's endpoint of the MPI world: open requests, the blocks they own, and ordered delivery.
//!
//! ```text
//!  isend ──► requests ──┐                                        ┌──► sends complete: block released
//!                       ├── MPI_Testsome over all of them ───────┤
//!  MPI_Improbe ──► MPI_Imrecv ──► requests + a slot in a lane    └──► receives complete: block put in its slot
//!                                                                      lane[source, channel]: done, done, open, done
//!                                                                                               └─ delivered up to here
//! ```
//! # Invariants
//! - `requests.handles[i]` and `requests.operations[i]` belong together, and no other copy of that handle
//!   exists.
//! - An operation leaves `requests` only after MPI has completed its request; if this object is dropped
//!   before, its block is leaked.
//! - A lane's slots are in the order in which MPI matched the messages, which per source is the order of
//!   sending.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::environment::Launch;
use crate::ffi::{AnyTable, Handle, Statuses, Table, text_until_zero};
use crate::{Block, Channel, InFlight, LibraryInfo, MpiError, Progress};

/// Maximum number of open receives, and of receives started per round of progress. With blocks of 256 KiB
/// they hold 16 MiB: enough to keep every transport busy, and little compared to the credits of the streams.
pub const RECEIVES_MAX: usize = 64;

/// Maximum number of messages matched from one peer per round while others wait for their turn.
const RECEIVES_PER_PEER_AND_ROUND_MAX: usize = 8;

/// The endpoint of this process, independent of the library's handle type.
pub(crate) trait World {
    fn rank(&self) -> usize;
    fn size(&self) -> usize;
    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, MpiError>;
    fn isend(&mut self, dest: usize, channel: Channel, block: Arc<Block>) -> Result<(), MpiError>;
    fn progress(&mut self, deliver: &mut dyn FnMut(usize, Channel, Block)) -> Result<Progress, MpiError>;
    fn in_flight(&self) -> InFlight;
    fn forget(&mut self, peer: usize);
    fn take_failures(&mut self) -> Vec<(usize, MpiError)>;
    fn finalize(&mut self) -> Result<(), MpiError>;
    fn abort(&mut self, code: i32);
}

/// Initialises the library that `table` was resolved from, on the thread that will make every further call.
pub(crate) fn initialize(
    library: &LibraryInfo,
    table: AnyTable,
    launch: &Launch,
) -> Result<Box<dyn World>, MpiError> {
    static INITIALIZED: AtomicBool = AtomicBool::new(false);
    if INITIALIZED.swap(true, Ordering::Relaxed) {
        return Err(MpiError::AlreadyInitialized);
    }
    Ok(match table {
        AnyTable::Pointers(table) => Box::new(Endpoint::initialize(library, table, launch)?),
        AnyTable::Integers(table) => Box::new(Endpoint::initialize(library, table, launch)?),
    })
}

struct Endpoint<H: Handle> {
    table: Table<H>,
    /// A duplicate of `MPI_COMM_WORLD`, so that messages of other users do not arrive here.
    communicator: H,
    rank: usize,
    size: usize,
    requests: Requests<H>,
    /// By source and channel.
    lanes: Vec<[Lane; 2]>,
    /// The peer that is probed first in the next round.
    next_peer: usize,
    /// Peers that were forgotten.
    forgotten: Vec<bool>,
    /// Probe each peer instead of MPI_ANY_SOURCE: one of them is dead, and could match, or make MPI refuse
    /// the probe.
    ask_each: bool,
    /// Errors of MPI for single peers.
    failures: Vec<(usize, MpiError)>,
    sends: usize,
    send_bytes: usize,
    /// Number of open receive requests; at most [`RECEIVES_MAX`].
    receives_open: usize,
    /// Slots in the lanes, open or not yet delivered.
    receives_undelivered: usize,
    /// Lanes that may have messages to deliver.
    lanes_to_deliver: Vec<(usize, Channel)>,
    statuses: Statuses,
    indices: Vec<c_int>,
}

/// Open requests, and the blocks that they own.
struct Requests<H: Handle> {
    handles: Vec<H>,
    operations: Vec<Operation>,
}

enum Operation {
    Send { dest: usize, block: Arc<Block> },
    Receive { source: usize, channel: Channel, slot: u64, block: Block },
}

/// The matched and not yet delivered messages of one source and channel, in order.
#[derive(Default)]
struct Lane {
    /// The number of the first slot; slots are numbered from 0 for the life of the rank.
    first: u64,
    /// `None` while the message is being received.
    slots: VecDeque<Option<Block>>,
}

impl Operation {
    fn peer(&self) -> usize {
        match self {
            Operation::Send { dest: peer, .. } | Operation::Receive { source: peer, .. } => *peer,
        }
    }
}

impl<H: Handle> Drop for Requests<H> {
    fn drop(&mut self) {
        // MPI may still read or write these blocks, and a drop must not wait for it.
        self.operations.drain(..).for_each(std::mem::forget);
    }
}

impl<H: Handle> Endpoint<H> {
    fn initialize(library: &LibraryInfo, table: Table<H>, launch: &Launch) -> Result<Endpoint<H>, MpiError> {
        let constants = table.constants.clone();
        let mut already: c_int = 0;
        // SAFETY: MPI_Initialized may be called at any time; the place outlives the call.
        check(&table, "MPI_Initialized", unsafe { (table.initialized)(&mut already) })?;
        if already != 0 {
            return Err(MpiError::AlreadyInitialized);
        }

        let mut provided: c_int = 0;
        // SAFETY: called once per process (`initialize`), before any other call; null arguments are allowed
        // since MPI 2.0; the place outlives the call. This thread makes all later calls, since `Mpi` is
        // neither `Send` nor `Sync`.
        let code = unsafe {
            (table.init_thread)(
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                constants.thread_funneled,
                &mut provided,
            )
        };
        check(&table, "MPI_Init_thread", code)?;

        let mut endpoint = Endpoint {
            communicator: constants.comm_null,
            rank: 0,
            size: 0,
            requests: Requests { handles: Vec::new(), operations: Vec::new() },
            lanes: Vec::new(),
            next_peer: 0,
            forgotten: Vec::new(),
            ask_each: false,
            failures: Vec::new(),
            sends: 0,
            send_bytes: 0,
            receives_open: 0,
            receives_undelivered: 0,
            lanes_to_deliver: Vec::new(),
            statuses: Statuses::new(constants.status),
            indices: Vec::new(),
            table,
        };
        if let Err(error) = endpoint.join_world(library, provided, launch) {
            // The process continues without MPI. An error here would hide the first one, which says more.
            let _ = endpoint.finalize();
            return Err(error);
        }
        Ok(endpoint)
    }

    /// Sets MPI to return its errors, verifies that this is the launcher's world, and duplicates it.
    fn join_world(
        &mut self,
        library: &LibraryInfo,
        provided: c_int,
        launch: &Launch,
    ) -> Result<(), MpiError> {
        let world = self.table.constants.comm_world;
        self.return_errors(world)?;
        if provided < self.table.constants.thread_funneled {
            return Err(MpiError::ThreadsUnsupported { provided });
        }
        let (mut rank, mut size): (c_int, c_int) = (-1, -1);
        // SAFETY: MPI is initialised, on this thread; the place outlives the call.
        self.check("MPI_Comm_rank", unsafe { (self.table.comm_rank)(world, &mut rank) })?;
        // SAFETY: as above.
        self.check("MPI_Comm_size", unsafe { (self.table.comm_size)(world, &mut size) })?;
        self.rank = usize::try_from(rank).expect("MPI numbers ranks from 0");
        self.size = usize::try_from(size).expect("MPI counts ranks from 1");
        launch.check_world(self.size, library.abi, &library.path)?;
        let mut communicator = self.table.constants.comm_null;
        // SAFETY: collective, and every rank calls it here; on the thread that initialised MPI; the place
        // outlives the call.
        self.check("MPI_Comm_dup", unsafe { (self.table.comm_dup)(world, &mut communicator) })?;
        self.communicator = communicator;
        self.return_errors(communicator)?;
        self.lanes.resize_with(self.size, Default::default);
        self.forgotten.resize(self.size, false);
        Ok(())
    }

    fn return_errors(&self, communicator: H) -> Result<(), MpiError> {
        let errors_return = self.table.constants.errors_return;
        // SAFETY: MPI is initialised, on this thread, and both handles are valid.
        self.check("MPI_Comm_set_errhandler", unsafe {
            (self.table.comm_set_errhandler)(communicator, errors_return)
        })
    }

    fn check(&self, function: &'static str, code: c_int) -> Result<(), MpiError> {
        check(&self.table, function, code)
    }

    /// Starts receives of messages that have arrived, within the bounds. Every round first probes for any
    /// message, which costs one call however many ranks there are; if there is one, the peers are probed
    /// round-robin. Probing each of 4 peers in every round took 4 times as long with nothing to receive, with
    /// Open MPI 4.1 and 5.0 and MPICH 4.0 alike, and was no faster under load.
    fn start_receives(&mut self, progress: &mut Progress) -> Result<(), MpiError> {
        if self.receives_open >= RECEIVES_MAX {
            return Ok(());
        }
        if !self.ask_each {
            match self.start_receive(self.table.constants.any_source, progress) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                // Some libraries refuse this probe once they know of a dead peer.
                Err(MpiError::Call { .. }) => self.ask_each = true,
                Err(error) => return Err(error),
            }
        }
        let first = self.next_peer;
        self.next_peer = (first + 1) % self.size;
        for peer in
            (first..self.size).chain(0..first).filter(|peer| !self.forgotten[*peer]).collect::<Vec<_>>()
        {
            for _ in 0..RECEIVES_PER_PEER_AND_ROUND_MAX {
                if self.receives_open >= RECEIVES_MAX {
                    return Ok(());
                }
                match self.start_receive(peer as c_int, progress) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error @ MpiError::Call { .. }) => {
                        self.failures.push((peer, error));
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Starts to receive the next message from `source`, if there is one.
    fn start_receive(&mut self, source: c_int, progress: &mut Progress) -> Result<bool, MpiError> {
        let constants = &self.table.constants;
        let (byte, any_tag) = (constants.byte, constants.any_tag);
        let mut message = constants.message_null;
        let mut found: c_int = 0;
        // SAFETY: on the thread that initialised MPI; all places outlive the call, and `statuses` has room
        // for one status.
        let code = unsafe {
            let status = self.statuses.as_mut_ptr();
            (self.table.improbe)(source, any_tag, self.communicator, &mut found, &mut message, status)
        };
        self.check("MPI_Improbe", code)?;
        if found == 0 {
            return Ok(false);
        }

        let mut length: c_int = 0;
        // SAFETY: on the thread that initialised MPI; MPI_Improbe has just written the status; the place
        // outlives the call.
        let code = unsafe { (self.table.get_count)(self.statuses.as_mut_ptr(), byte, &mut length) };
        self.check("MPI_Get_count", code)?;
        if length == self.table.constants.undefined {
            return Err(MpiError::TooLarge { bytes: i32::MAX as u64 + 1 });
        }
        let source = usize::try_from(self.statuses.source(0)).expect("a message has a source");
        let tag = self.statuses.tag(0);
        let channel = Channel::from_tag(tag).ok_or(MpiError::UnexpectedTag { sender: source, tag })?;

        // SAFETY: nothing reads the block until it leaves its operation, which is when MPI has completed the
        // request and so written all of it.
        let mut block =
            unsafe { Block::for_receive(usize::try_from(length).expect("a length is not negative")) };
        let mut request = self.table.constants.request_null;
        // SAFETY: the block's memory is written by MPI until the request is complete; until then it is owned
        // by the operation that is pushed to `requests` right below (its address stays the same), and it
        // holds exactly the bytes of the message. On the thread that initialised MPI.
        let code = unsafe {
            (self.table.imrecv)(block.as_mut_ptr().cast(), length, byte, &mut message, &mut request)
        };
        if let Err(error) = self.check("MPI_Imrecv", code) {
            // MPI may still write to it.
            std::mem::forget(block);
            return Err(error);
        }
        let lane = &mut self.lanes[source][channel.index()];
        let slot = lane.first + lane.slots.len() as u64;
        lane.slots.push_back(None);
        self.requests.push(request, Operation::Receive { source, channel, slot, block });
        self.receives_open += 1;
        self.receives_undelivered += 1;
        progress.receives_started += 1;
        Ok(true)
    }

    /// Removes the requests that MPI has completed: sends are released, receives put into their slots; a
    /// failed request becomes a failure of its peer.
    fn complete(&mut self, progress: &mut Progress) -> Result<(), MpiError> {
        let count = self.requests.handles.len();
        if count == 0 {
            return Ok(());
        }
        self.statuses.reserve(count);
        self.indices.resize(self.indices.len().max(count), 0);
        let mut completed: c_int = 0;
        // SAFETY: on the thread that initialised MPI; the handles are those of open requests, none of them
        // null; `indices` and `statuses` have room for `count` entries, and all outlive the call.
        let code = unsafe {
            (self.table.testsome)(
                count_of(count),
                self.requests.handles.as_mut_ptr(),
                &mut completed,
                self.indices.as_mut_ptr(),
                self.statuses.as_mut_ptr(),
            )
        };
        // Requests that failed individually are complete nevertheless; their statuses hold the errors.
        let in_status = code != 0 && class(&self.table, code) == self.table.constants.error_in_status;
        if !in_status {
            self.check("MPI_Testsome", code)?;
        }
        let completed = usize::try_from(completed).unwrap_or(0);
        let mut failed: Vec<c_int> = Vec::new();
        if in_status {
            for entry in 0..completed {
                if let Err(error) = self.check("MPI_Testsome", self.statuses.error(entry)) {
                    let index = self.indices[entry];
                    let operation = &self.requests.operations[usize::try_from(index).expect("not negative")];
                    self.failures.push((operation.peer(), error));
                    failed.push(index);
                }
            }
        }
        // From the last to the first, so that filling a gap with the last entry moves none that is still to
        // be visited.
        let indices = &mut self.indices[..completed];
        indices.sort_unstable_by(|a, b| b.cmp(a));
        for entry in 0..completed {
            let index = usize::try_from(self.indices[entry]).expect("an index is not negative");
            match self.requests.take(index) {
                Operation::Send { block, .. } => {
                    self.sends -= 1;
                    self.send_bytes -= block.len();
                    progress.sends_completed += 1;
                }
                Operation::Receive { source, channel, slot, block } => {
                    self.receives_open -= 1;
                    if failed.contains(&self.indices[entry]) {
                        // Its bytes are not all written. Its slot stays open, so nothing after it is
                        // delivered.
                        continue;
                    }
                    let lane = &mut self.lanes[source][channel.index()];
                    let ahead = (slot - lane.first) as usize;
                    lane.slots[ahead] = Some(block);
                    if ahead == 0 {
                        self.lanes_to_deliver.push((source, channel));
                    }
                }
            }
        }
        Ok(())
    }

    /// Delivers the completed prefix of every lane.
    fn deliver(&mut self, deliver: &mut dyn FnMut(usize, Channel, Block), progress: &mut Progress) {
        while let Some(&(source, channel)) = self.lanes_to_deliver.last() {
            let lane = &mut self.lanes[source][channel.index()];
            while let Some(block) = lane.pop() {
                self.receives_undelivered -= 1;
                progress.messages_received += 1;
                deliver(source, channel, block);
            }
            self.lanes_to_deliver.pop();
        }
    }
}

impl<H: Handle> World for Endpoint<H> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, MpiError> {
        let byte = self.table.constants.byte;
        let length = (mine.len() as u64).to_ne_bytes();
        let mut lengths = vec![[0u8; 8]; self.size];
        // SAFETY: collective, and every rank calls it here, with 8 bytes each; `lengths` has room for 8 bytes
        // of every rank; the call blocks, so both outlive it. On the thread that initialised MPI.
        let code = unsafe {
            let all: *mut c_void = lengths.as_mut_ptr().cast();
            (self.table.allgather)(length.as_ptr().cast(), 8, byte, all, 8, byte, self.communicator)
        };
        self.check("MPI_Allgather", code)?;

        // Every rank sees the same lengths, so either all ranks fail here or none does.
        let lengths: Vec<u64> = lengths.into_iter().map(u64::from_ne_bytes).collect();
        let bytes = lengths.iter().fold(0u64, |sum, &length| sum.saturating_add(length));
        if bytes > i32::MAX as u64 {
            return Err(MpiError::TooLarge { bytes });
        }
        let counts: Vec<c_int> = lengths.iter().map(|&length| count_of(length as usize)).collect();
        let starts: Vec<c_int> =
            counts.iter().scan(0, |next, count| Some(std::mem::replace(next, *next + *count))).collect();
        // An empty slice or vector has address 1, which is MPI_IN_PLACE in some interfaces: one byte more,
        // and another address.
        let mut all = vec![0u8; bytes as usize + 1];
        let mine_start: *const c_void =
            if mine.is_empty() { length.as_ptr().cast() } else { mine.as_ptr().cast() };
        // SAFETY: collective, and every rank calls it here; `counts` and `starts` have an entry for every
        // rank, lie within `all`, and agree with what each rank sends; the call blocks, so all of them
        // outlive it. On the thread that initialised MPI.
        let code = unsafe {
            (self.table.allgatherv)(
                mine_start,
                count_of(mine.len()),
                byte,
                all.as_mut_ptr().cast(),
                counts.as_ptr(),
                starts.as_ptr(),
                byte,
                self.communicator,
            )
        };
        self.check("MPI_Allgatherv", code)?;
        let part = |(&start, &count): (&c_int, &c_int)| all[start as usize..][..count as usize].to_vec();
        Ok(starts.iter().zip(&counts).map(part).collect())
    }

    fn isend(&mut self, dest: usize, channel: Channel, block: Arc<Block>) -> Result<(), MpiError> {
        if dest >= self.size {
            return Err(MpiError::NoSuchRank { rank: dest, size: self.size });
        }
        if self.forgotten[dest] {
            return Ok(());
        }
        let bytes = block.as_slice();
        let mut request = self.table.constants.request_null;
        // SAFETY: MPI reads the block's bytes until the request is complete; until then the operation that is
        // pushed to `requests` right below holds a share of the block, so that nobody can change or free it.
        // On the thread that initialised MPI.
        let code = unsafe {
            (self.table.isend)(
                bytes.as_ptr().cast(),
                count_of(bytes.len()),
                self.table.constants.byte,
                dest as c_int,
                channel.tag(),
                self.communicator,
                &mut request,
            )
        };
        if let Err(error) = self.check("MPI_Isend", code) {
            // MPI may still read it.
            std::mem::forget(block);
            self.failures.push((dest, error));
            return Ok(());
        }
        self.sends += 1;
        self.send_bytes += block.len();
        self.requests.push(request, Operation::Send { dest, block });
        Ok(())
    }

    fn progress(&mut self, deliver: &mut dyn FnMut(usize, Channel, Block)) -> Result<Progress, MpiError> {
        let mut progress = Progress::default();
        let started = self.start_receives(&mut progress);
        let completed = self.complete(&mut progress);
        self.deliver(deliver, &mut progress);
        started.and(completed).map(|()| progress)
    }

    fn in_flight(&self) -> InFlight {
        InFlight { sends: self.sends, receives: self.receives_undelivered, send_bytes: self.send_bytes }
    }

    fn forget(&mut self, peer: usize) {
        self.forgotten[peer] = true;
        self.ask_each = true;
        for index in (0..self.requests.operations.len()).rev() {
            if self.requests.operations[index].peer() != peer {
                continue;
            }
            let operation = self.requests.take(index);
            match &operation {
                Operation::Send { block, .. } => {
                    self.sends -= 1;
                    self.send_bytes -= block.len();
                }
                Operation::Receive { .. } => self.receives_open -= 1,
            }
            // MPI may still read or write its block, and its completion will not be observed.
            std::mem::forget(operation);
        }
        for lane in &mut self.lanes[peer] {
            self.receives_undelivered -= lane.slots.len();
            lane.first += lane.slots.len() as u64;
            lane.slots.clear();
        }
        self.lanes_to_deliver.retain(|(source, _)| *source != peer);
    }

    fn take_failures(&mut self) -> Vec<(usize, MpiError)> {
        std::mem::take(&mut self.failures)
    }

    fn finalize(&mut self) -> Result<(), MpiError> {
        if self.sends > 0 || self.receives_undelivered > 0 {
            return Err(MpiError::InFlight { sends: self.sends, receives: self.receives_undelivered });
        }
        if self.communicator != self.table.constants.comm_null {
            // SAFETY: collective, and every rank calls it here; nothing is open on the communicator; MPI sets
            // the handle to null. On the thread that initialised MPI.
            let code = unsafe { (self.table.comm_free)(&mut self.communicator) };
            self.check("MPI_Comm_free", code)?;
        }
        // SAFETY: the last call to MPI of this process, on the thread that initialised it, with no request
        // open.
        self.check("MPI_Finalize", unsafe { (self.table.finalize)() })
    }

    fn abort(&mut self, code: i32) {
        // SAFETY: on the thread that initialised MPI; a communicator is passed as a value. If the call
        // returns, the caller ends the process, and the open requests' blocks are not freed before.
        let result = unsafe { (self.table.abort)(self.table.constants.comm_world, code) };
        tracing::error!(result, "MPI_Abort returned");
    }
}

impl<H: Handle> Requests<H> {
    fn push(&mut self, handle: H, operation: Operation) {
        self.handles.push(handle);
        self.operations.push(operation);
    }

    /// Removes a request that MPI has completed; the last one takes its index.
    fn take(&mut self, index: usize) -> Operation {
        self.handles.swap_remove(index);
        self.operations.swap_remove(index)
    }
}

impl Lane {
    /// The first message, if it is complete.
    fn pop(&mut self) -> Option<Block> {
        let block = self.slots.front_mut()?.take()?;
        self.slots.pop_front();
        self.first += 1;
        Some(block)
    }
}

/// A length as MPI's `int`; blocks and gathered bytes are bounded to fit.
fn count_of(length: usize) -> c_int {
    c_int::try_from(length).expect("a length fits a count of MPI")
}

/// Turns a return code into an error with MPI's own words.
fn check<H: Handle>(table: &Table<H>, function: &'static str, code: c_int) -> Result<(), MpiError> {
    // MPI_SUCCESS is 0 in every interface.
    if code == 0 {
        return Ok(());
    }
    let mut text = vec![0u8; table.constants.error_string_max];
    let mut length: c_int = 0;
    // SAFETY: MPI_Error_string may be called at any time since MPI 4.0, and with the libraries of before once
    // MPI_Init_thread was called; it writes at most `error_string_max` bytes; both places outlive the call.
    let status = unsafe { (table.error_string)(code, text.as_mut_ptr().cast(), &mut length) };
    let message = if status == 0 { text_until_zero(&text) } else { "no text for this error".to_string() };
    Err(MpiError::Call { function, code, class: class(table, code), message })
}

/// The class of an error code, or the code itself if MPI cannot tell.
fn class<H: Handle>(table: &Table<H>, code: c_int) -> c_int {
    let mut class: c_int = code;
    // SAFETY: as for MPI_Error_string; the place outlives the call.
    let status = unsafe { (table.error_class)(code, &mut class) };
    if status == 0 { class } else { code }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(byte: u8) -> Block {
        let mut block = Block::with_capacity(1);
        block.extend_from_slice(&[byte]);
        block
    }

    /// Messages complete in the order `completed`; what may be delivered after each is `delivered`.
    fn check(completed: &[usize], delivered: &[&[u8]]) {
        let mut lane = Lane::default();
        lane.slots.resize_with(completed.len(), || None);
        for (&slot, &expected) in completed.iter().zip(delivered) {
            let ahead = slot - lane.first as usize;
            lane.slots[ahead] = Some(block(slot as u8));
            let popped: Vec<u8> =
                std::iter::from_fn(|| lane.pop()).map(|block| block.as_slice()[0]).collect();
            assert_eq!(popped, expected, "{completed:?}");
        }
        assert_eq!((lane.first as usize, lane.slots.len()), (completed.len(), 0));
    }

    #[test]
    fn no_message_overtakes_an_earlier_one() {
        check(&[0, 1, 2], &[&[0], &[1], &[2]]);
        check(&[2, 1, 0], &[&[], &[], &[0, 1, 2]]);
        check(&[1, 0, 3, 2], &[&[], &[0, 1], &[], &[2, 3]]);
    }

    #[test]
    fn buffers_in_use_by_mpi_are_not_freed() {
        let sent = Arc::new(block(1));
        let mut requests: Requests<usize> = Requests { handles: Vec::new(), operations: Vec::new() };
        let send = || Operation::Send { dest: 0, block: Arc::clone(&sent) };
        requests.push(7, send());
        requests.push(8, send());
        drop(requests.take(0));
        assert_eq!((Arc::strong_count(&sent), &requests.handles[..]), (2, &[8][..]));
        drop(requests);
        assert_eq!(Arc::strong_count(&sent), 2);
    }
}
