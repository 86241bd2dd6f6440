//! Current and peak reserved memory of a statement, on every process that works for it. The limits that are
//! enforced on it are in `resources/src/statement_limits.rs`.
//!
//! Each process counts in a pool in front of the pool that enforces limits ([`CountedPool`]). Ranks report to
//! the coordinator when their slice ends, with its metrics, and whenever the statement is inspected.
//!
//! Counts what operators and motions reserve, not decoding buffers, function results
//! (`resources/src/value_account.rs`) or the process itself.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;
use harrier_session_api::query_profile::Memory;
use parking_lot::Mutex;
use prost::Message;

use crate::cancellation::CancelFlag;
use crate::delegation::delegate_pool_facts;

/// Memory that a statement has reserved on one process, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct MemoryUse {
    /// Currently.
    #[prost(uint64, tag = "1")]
    pub bytes: u64,
    /// At peak.
    #[prost(uint64, tag = "2")]
    pub peak_bytes: u64,
}

fn of_process(rank: Option<usize>, used: MemoryUse) -> Memory {
    Memory { rank: rank.map(|rank| rank as u64), bytes: used.bytes, peak_bytes: used.peak_bytes }
}

/// Memory counters of one statement: of this process, and those reported by other ranks.
#[derive(Debug, Default)]
pub struct StatementMemory {
    bytes: AtomicU64,
    peak_bytes: AtomicU64,
    others: Mutex<BTreeMap<usize, MemoryUse>>,
}

impl StatementMemory {
    /// The counters of the statement that owns this pool, if any.
    pub fn of(pool: &Arc<dyn MemoryPool>) -> Option<Arc<Self>> {
        pool.downcast_ref::<CountedPool>().map(|counted| Arc::clone(&counted.memory))
    }

    /// Memory use on this process.
    pub fn local(&self) -> MemoryUse {
        let bytes = self.bytes.load(Ordering::Relaxed);
        MemoryUse { bytes, peak_bytes: self.peak_bytes.load(Ordering::Relaxed).max(bytes) }
    }

    /// Records the memory use reported by a rank.
    pub fn record(&self, rank: usize, used: MemoryUse) {
        let mut others = self.others.lock();
        let known = others.entry(rank).or_default();
        *known = MemoryUse { peak_bytes: known.peak_bytes.max(used.peak_bytes), ..used };
    }

    /// Memory use of every process that has reserved any. `own`: this process's rank.
    pub fn by_process(&self, own: Option<usize>) -> Vec<Memory> {
        let here = (own, self.local());
        let others = self.others.lock();
        let others = others.iter().map(|(rank, used)| (Some(*rank), *used));
        std::iter::once(here)
            .chain(others)
            .filter(|(_, used)| used.peak_bytes > 0)
            .map(|(rank, used)| of_process(rank, used))
            .collect()
    }

    fn grow(&self, bytes: usize) {
        let held = self.bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        self.peak_bytes.fetch_max(held, Ordering::Relaxed);
    }

    fn shrink(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

/// Wraps the environment's pool in one that counts for `memory` and holds the statement's flag.
pub fn with_counting_pool(
    environment: &RuntimeEnv,
    memory: &Arc<StatementMemory>,
    canceled: &CancelFlag,
) -> RuntimeEnv {
    let (pool, memory) = (Arc::clone(&environment.memory_pool), Arc::clone(memory));
    let pool = CountedPool { pool, memory, canceled: canceled.clone() };
    RuntimeEnv { memory_pool: Arc::new(pool), ..environment.clone() }
}

/// The cancellation flag of the statement that owns this pool.
pub fn cancel_flag(pool: &Arc<dyn MemoryPool>) -> Option<CancelFlag> {
    pool.downcast_ref::<CountedPool>().map(|counted| counted.canceled.clone())
}

/// A pool that counts one statement's reservations from another pool and enforces nothing.
struct CountedPool {
    pool: Arc<dyn MemoryPool>,
    memory: Arc<StatementMemory>,
    canceled: CancelFlag,
}

impl fmt::Debug for CountedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.fmt(f)
    }
}

impl fmt::Display for CountedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pool)
    }
}

impl MemoryPool for CountedPool {
    delegate_pool_facts!();

    fn register(&self, consumer: &MemoryConsumer) {
        self.pool.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.pool.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.pool.grow(reservation, additional);
        self.memory.grow(additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.pool.shrink(reservation, shrink);
        self.memory.shrink(shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.pool.try_grow(reservation, additional)?;
        self.memory.grow(additional);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::execution::memory_pool::FairSpillPool;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;

    #[test]
    fn statements_of_one_process_are_counted_apart_and_share_its_pool() {
        let pool = Arc::new(FairSpillPool::new(1000));
        let process = RuntimeEnvBuilder::new().with_memory_pool(pool).build().unwrap();
        let memories = [Arc::<StatementMemory>::default(), Arc::default()];
        let [one, other] =
            memories.each_ref().map(|memory| with_counting_pool(&process, memory, &CancelFlag::default()));
        let take = |environment: &RuntimeEnv, name: &str| {
            let consumer = MemoryConsumer::new(name).with_can_spill(true);
            consumer.register(&environment.memory_pool)
        };
        let (a, b) = (take(&one, "a"), take(&other, "b"));
        a.try_grow(400).unwrap();
        // Of two consumers that can spill, each has half, whichever statement it belongs to.
        assert!(a.try_grow(200).is_err());
        b.try_grow(300).unwrap();
        b.shrink(200);
        let [first, second] = &memories;
        assert_eq!(first.local(), MemoryUse { bytes: 400, peak_bytes: 400 });
        assert_eq!(second.local(), MemoryUse { bytes: 100, peak_bytes: 300 });
        assert_eq!(process.memory_pool.reserved(), 500);
        drop((a, b));
        assert_eq!(first.local(), MemoryUse { bytes: 0, peak_bytes: 400 });
        assert_eq!(process.memory_pool.reserved(), 0);
        assert!(StatementMemory::of(&process.memory_pool).is_none());
        assert!(Arc::ptr_eq(&StatementMemory::of(&one.memory_pool).unwrap(), first));
    }

    #[test]
    fn reported_memory_of_ranks_keeps_its_peak() {
        let memory = StatementMemory::default();
        assert!(memory.by_process(None).is_empty());
        memory.record(2, MemoryUse { bytes: 10, peak_bytes: 30 });
        memory.record(2, MemoryUse { bytes: 5, peak_bytes: 20 });
        memory.grow(7);
        let of = |rank, bytes, peak_bytes| Memory { rank, bytes, peak_bytes };
        assert_eq!(memory.by_process(Some(0)), [of(Some(0), 7, 7), of(Some(2), 5, 30)]);
        assert_eq!(memory.by_process(None)[0].rank, None);
    }
}
