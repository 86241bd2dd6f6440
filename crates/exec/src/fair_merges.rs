//! A pool of memory in which no merge of sorted runs takes what the others need.
//!
//! DataFusion's fair pool divides memory between consumers that can spill. A merge of spilled runs cannot, and reserves a buffer for as many of them as
//! it gets memory for, of all there is: whoever merges first leaves the other partitions without a buffer for two, and the statement fails with
//! 53200, or does not, by the moment (`MultiLevelMergeBuilder` says so in a comment). Refused more, it merges what it has in several levels.
//! So each merge gets the same part of half of the pool here: the other half is for whoever reads what they make, such as the merge of the partitions.

use std::collections::HashMap;
use std::fmt;

use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{
    FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use parking_lot::Mutex;

/// How DataFusion's sorts name the consumer that merges.
const MERGE: &str = "ExternalSorterMerge";

/// All merges together get one such part of the pool.
const MERGES_SHARE: usize = 2;

/// Buffers that a merge gets whatever its part is: with two it goes on.
const BUFFERS_MIN: usize = 3;

/// [`FairSpillPool`], with parts for those that merge.
#[derive(Debug)]
pub struct FairMerges {
    pool: FairSpillPool,
    bytes: usize,
    /// Bytes that each of those that are registered holds, by its number.
    merges: Mutex<HashMap<usize, usize>>,
}

impl FairMerges {
    pub fn new(bytes: usize) -> Self {
        Self { pool: FairSpillPool::new(bytes), bytes, merges: Mutex::default() }
    }

    /// Counts what a merge takes.
    ///
    /// Errors: it is more than its part.
    fn take(&self, consumer: &MemoryConsumer, additional: usize) -> Result<()> {
        let mut merges = self.merges.lock();
        let part = self.bytes / (MERGES_SHARE * merges.len().max(1));
        let Some(held) = merges.get_mut(&consumer.id()) else { return Ok(()) };
        let wanted = held.saturating_add(additional);
        if wanted > part.max(additional.saturating_mul(BUFFERS_MIN)) {
            return Err(DataFusionError::ResourcesExhausted(format!(
                "{} holds {held} bytes, its part of {} bytes is {part}, and it wants {additional} more",
                consumer.name(),
                self.bytes
            )));
        }
        *held = wanted;
        Ok(())
    }

    fn give_back(&self, consumer: &MemoryConsumer, bytes: usize) {
        if let Some(held) = self.merges.lock().get_mut(&consumer.id()) {
            *held = held.saturating_sub(bytes);
        }
    }
}

impl fmt::Display for FairMerges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.fmt(f)
    }
}

impl MemoryPool for FairMerges {
    fn name(&self) -> &str {
        self.pool.name()
    }

    fn register(&self, consumer: &MemoryConsumer) {
        if consumer.name().starts_with(MERGE) {
            self.merges.lock().insert(consumer.id(), 0);
        }
        self.pool.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.merges.lock().remove(&consumer.id());
        self.pool.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        if let Some(held) = self.merges.lock().get_mut(&reservation.consumer().id()) {
            *held = held.saturating_add(additional);
        }
        self.pool.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.give_back(reservation.consumer(), shrink);
        self.pool.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.take(reservation.consumer(), additional)?;
        self.pool
            .try_grow(reservation, additional)
            .inspect_err(|_| self.give_back(reservation.consumer(), additional))
    }

    fn reserved(&self) -> usize {
        self.pool.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.pool.memory_limit()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn merge(pool: &Arc<dyn MemoryPool>, partition: usize) -> MemoryReservation {
        MemoryConsumer::new(format!("{MERGE}[{partition}]")).register(pool)
    }

    #[test]
    fn merges_have_equal_parts() {
        let pool: Arc<dyn MemoryPool> = Arc::new(FairMerges::new(2000));
        let (one, other) = (merge(&pool, 0), merge(&pool, 1));
        for _ in 0..5 {
            one.try_grow(100).unwrap();
        }
        assert!(one.try_grow(100).is_err());
        other.try_grow(400).unwrap();
        one.shrink(100);
        one.try_grow(100).unwrap();
        // What is left when another one has ended.
        drop(other);
        one.try_grow(400).unwrap();
        assert_eq!(pool.reserved(), 900);
        drop(one);
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn parts_are_of_all_reservations_of_a_merge() {
        let pool: Arc<dyn MemoryPool> = Arc::new(FairMerges::new(2000));
        let (one, _other) = (merge(&pool, 0), merge(&pool, 1));
        let next = one.new_empty();
        one.try_grow(300).unwrap();
        next.try_grow(200).unwrap();
        assert!(next.try_grow(100).is_err());
        drop(one);
        next.try_grow(100).unwrap();
    }

    #[test]
    fn nobody_is_left_without_two_buffers() {
        let pool: Arc<dyn MemoryPool> = Arc::new(FairMerges::new(1000));
        let merges: Vec<_> = (0..10).map(|partition| merge(&pool, partition)).collect();
        // Three of the same size, whatever the part is.
        merges[0].try_grow(200).unwrap();
        merges[0].try_grow(200).unwrap();
        merges[0].try_grow(200).unwrap();
        assert!(merges[0].try_grow(200).is_err());
        assert!(MemoryConsumer::new("other").register(&pool).try_grow(400).is_ok());
    }
}
