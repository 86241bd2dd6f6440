//! Zero-copy blocks for ranks of the same host through shared memory, and their return.
//!
//! A lent block belongs to its reader until the last buffer in it is dropped, which may be long after its
//! stream has ended: a hash join keeps its build side. Returned blocks are collected here, on whatever thread
//! drops them, and the driver notifies the lenders.
//!
//! # Crash
//! A lost rank returns nothing, and nothing is expected from it: its loans stay untouched while its process
//! may still read them, and are reclaimed when the process has ended. A lost rank may be alive: its transport
//! has failed, or it violated a contract. Blocks borrowed from a lost rank stay readable: the memory lives
//! until the last mapping is gone.

use crate::Shared;
use crate::limits::RETURN_BYTES_MAX;
use bytes::Bytes;
use crossbeam_queue::SegQueue;
use harrier_mpi::shared::{Arena, Loan, Piece, Window};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Shared memory that this rank lends and borrows.
#[derive(Default)]
pub struct Lending {
    /// `None`: nothing is lent.
    arena: Option<Arc<Arena>>,
    /// Which ranks read the arena.
    readers: Vec<bool>,
    /// The arenas of other ranks, by rank; those of lost ones are dropped.
    windows: Vec<Mutex<Option<Arc<Window>>>>,
    returns: SegQueue<(usize, u64)>,
    return_bytes: AtomicUsize,
}

impl Lending {
    /// `readers[rank]`: whether it could open `arena`. `windows[rank]`: its arena, if this rank could open
    /// it. Both are as long as the gang, with false or `None` for this rank itself.
    pub fn new(arena: Option<Arc<Arena>>, readers: Vec<bool>, windows: Vec<Option<Arc<Window>>>) -> Lending {
        let windows = windows.into_iter().map(Mutex::new).collect();
        Lending { arena, readers, windows, ..Lending::default() }
    }

    /// The arena, if rank `to` reads it.
    pub(crate) fn arena_for(&self, to: usize) -> Option<&Arc<Arena>> {
        self.arena.as_ref().filter(|_| self.readers.get(to) == Some(&true))
    }

    /// The arena, if any other rank reads it.
    pub(crate) fn arena(&self) -> Option<&Arc<Arena>> {
        self.arena.as_ref().filter(|_| self.readers.contains(&true))
    }

    /// Number of blocks lent to members of the gang and not returned.
    pub(crate) fn loans(&self) -> usize {
        self.arena.as_ref().map_or(0, |arena| arena.loans())
    }

    /// Members of the gang with outstanding loans; with duplicates.
    pub(crate) fn readers(&self) -> Vec<usize> {
        self.arena.as_ref().map_or(vec![], |arena| arena.readers())
    }

    /// Whether loans wait to be returned.
    pub(crate) fn has_returns(&self) -> bool {
        !self.returns.is_empty()
    }

    /// Loans read since the last call, by lender.
    pub(crate) fn take_returns(&self) -> Vec<(usize, Vec<u64>)> {
        self.return_bytes.store(0, Ordering::Relaxed);
        let mut by_lender: Vec<(usize, Vec<u64>)> = Vec::new();
        while let Some((lender, offset)) = self.returns.pop() {
            match by_lender.iter_mut().find(|(known, _)| *known == lender) {
                Some((_, offsets)) => offsets.push(offset),
                None => by_lender.push((lender, vec![offset])),
            }
        }
        by_lender
    }

    /// Ends a loan of `reader`. Returns false if there was none.
    pub(crate) fn end_loan(&self, offset: u64, reader: usize) -> bool {
        self.arena.as_ref().is_some_and(|arena| arena.end_loan(offset, reader))
    }

    /// Reclaims all loans of `reader`, whose process has ended.
    pub(crate) fn reclaim(&self, reader: usize) {
        if let Some(arena) = &self.arena {
            arena.reclaim(reader);
        }
    }

    /// Stops expecting returns from the lost rank `peer`, which may still be alive, and drops its arena,
    /// whose memory lives as long as a process maps it. Blocks that are still read keep it until they are
    /// dropped.
    pub(crate) fn lose(&self, peer: usize) {
        if let Some(arena) = &self.arena {
            arena.abandon(peer);
        }
        if let Some(window) = self.windows.get(peer) {
            window.lock().take();
        }
    }

    /// The bytes that `lender` lent, from `skip` on; they are returned when the last reference is dropped.
    pub(crate) fn borrow(
        &self,
        shared: &Arc<Shared>,
        lender: usize,
        loan: Loan,
        skip: usize,
    ) -> Option<Bytes> {
        let piece = self.windows.get(lender)?.lock().as_ref()?.piece(loan)?;
        if piece.as_ref().len() < skip {
            return None;
        }
        let borrowed = BorrowedBytes { piece, lender, loan, shared: Arc::downgrade(shared) };
        Some(Bytes::from_owner(borrowed).slice(skip..))
    }
}

struct BorrowedBytes {
    piece: Piece,
    lender: usize,
    loan: Loan,
    shared: Weak<Shared>,
}

impl AsRef<[u8]> for BorrowedBytes {
    fn as_ref(&self) -> &[u8] {
        self.piece.as_ref()
    }
}

impl Drop for BorrowedBytes {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let lending = &shared.lending;
        lending.returns.push((self.lender, self.loan.offset));
        let bytes = self.loan.len as usize;
        let waiting = lending.return_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // While streams are open the thread turns anyway; otherwise it may sleep for long. This may run
        // inside a stream's end, with its locks held.
        if waiting >= RETURN_BYTES_MAX || shared.table.is_idle() {
            shared.wake.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_lost_rank_is_unmapped() {
        let arena = Arena::create(1 << 20).unwrap();
        let window = Window::open(std::process::id(), arena.descriptor()).unwrap();
        let piece = window.piece(Loan { offset: 0, len: 1 }).unwrap();
        let mapped = Arc::downgrade(&window);
        let lending = Lending::new(None, vec![false, false], vec![None, Some(window)]);
        lending.lose(1);
        assert!(mapped.upgrade().is_some(), "a batch still reads it");
        drop(piece);
        assert!(mapped.upgrade().is_none());
        lending.lose(1);
    }
}
