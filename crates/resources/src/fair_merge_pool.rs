//! A memory pool with fair shares for merges of spilled runs.
//!
//! DataFusion's fair pool divides memory among consumers that can spill. A merge of spilled runs cannot
//! spill, and reserves a buffer for as many runs as it gets memory for, out of all that is free: the first
//! merge leaves the other partitions without the two buffers they need, and the statement fails with 53200
//! depending on timing (a comment in `MultiLevelMergeBuilder` says so). A merge that is refused more buffers
//! merges in several passes. So this pool gives each merge an equal share of half of the pool; the other half
//! is for the consumers of their output, such as the merge of the partitions.
//!
//! The same consumer merges the rows that a sort holds in memory. That merge fails if it is refused, and
//! takes more than its sort releases meanwhile: comparisons by several columns build keys twice as large as
//! rows of one number are counted (apache/datafusion#16979, #24739). So it may take what the pool has, and
//! sorts collect no more rows than a third of the pool before they spill.
//!
//! A sort also fails if its first rows are refused, since it has nothing to spill. The fair pool refuses them
//! while merges hold so much that a fair share of the rest is less than one batch, so the first rows may take
//! all that is free.

use std::collections::HashMap;
use std::fmt;

use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryPool, MemoryReservation};
use parking_lot::Mutex;

use crate::delegation::delegate_pool_facts;

/// Names of the two memory consumers of DataFusion's sorts, before the partition number: one holds rows, the
/// other merges.
const SORTER: &str = "ExternalSorter";
const MERGE: &str = "ExternalSorterMerge";

/// All merges together get this fraction of the pool.
const MERGES_SHARE: usize = 2;

/// All sorts together collect rows in this fraction of the pool.
const SORTERS_SHARE: usize = 3;

/// Buffers that a merge gets whatever its share is: two suffice for progress.
const BUFFERS_MIN: usize = 3;

/// [`FairSpillPool`] with shares for merges.
#[derive(Debug)]
pub struct FairMergePool {
    pool: FairSpillPool,
    bytes: usize,
    sorts: Mutex<Sorts>,
}

/// Sorts that have a merge consumer.
#[derive(Debug, Default)]
struct Sorts {
    /// By id of the merge consumer.
    by_merge: HashMap<usize, Sort>,
    /// Row consumers whose merge consumer is not registered yet, with their partition.
    unpaired: Vec<(usize, String)>,
    /// The merge consumer by row consumer.
    merge_of: HashMap<usize, usize>,
}

/// Bytes of one sort in one partition.
#[derive(Debug, Default)]
struct Sort {
    /// Bytes of rows.
    row_bytes: usize,
    /// Bytes of its merge.
    merging: usize,
    /// Bytes that the merge reserves while rows are collected: its initial reservation, repeated after each
    /// spill.
    reserve: Option<usize>,
    /// Whether rows have arrived since that reservation: the merge is then of rows in memory.
    has_rows: bool,
}

impl Sort {
    fn merge_grows(&mut self, bytes: usize) {
        // Both may be zero while rows move from the sort to its merge, so that alone does not prove that they
        // were spilled.
        if self.row_bytes == 0 && self.merging == 0 && *self.reserve.get_or_insert(bytes) == bytes {
            self.has_rows = false;
        }
        self.merging = self.merging.saturating_add(bytes);
    }
}

/// The role of a consumer in its sort.
enum Role {
    Sorter,
    Merge,
}

impl Sorts {
    fn register(&mut self, consumer: &MemoryConsumer) {
        let Some((name, partition)) = consumer.name().split_once('[') else { return };
        if name == SORTER {
            self.unpaired.push((consumer.id(), partition.to_owned()));
        } else if name == MERGE {
            self.by_merge.insert(consumer.id(), Sort::default());
            // A sort registers both at once. If two sorts register concurrently, both are of one partition,
            // so their shares are equal.
            if let Some(at) = self.unpaired.iter().rposition(|(_, other)| *other == partition) {
                let (sorter, _) = self.unpaired.swap_remove(at);
                self.merge_of.insert(sorter, consumer.id());
            }
        }
    }

    fn unregister(&mut self, consumer: &MemoryConsumer) {
        self.by_merge.remove(&consumer.id());
        self.merge_of.remove(&consumer.id());
        self.unpaired.retain(|(sorter, _)| *sorter != consumer.id());
    }

    fn of(&mut self, consumer: &MemoryConsumer) -> Option<(Role, &mut Sort)> {
        match self.merge_of.get(&consumer.id()) {
            Some(merge) => self.by_merge.get_mut(merge).map(|sort| (Role::Sorter, sort)),
            None => self.by_merge.get_mut(&consumer.id()).map(|sort| (Role::Merge, sort)),
        }
    }

    /// Whether this consumer is a sort without rows yet.
    fn is_first_reservation(&mut self, consumer: &MemoryConsumer) -> bool {
        matches!(self.of(consumer), Some((Role::Sorter, sort)) if sort.row_bytes == 0)
    }

    fn add(&mut self, consumer: &MemoryConsumer, bytes: usize) {
        match self.of(consumer) {
            Some((Role::Sorter, sort)) => {
                sort.row_bytes = sort.row_bytes.saturating_add(bytes);
                sort.has_rows = true;
            }
            Some((Role::Merge, sort)) => sort.merge_grows(bytes),
            None => {}
        }
    }

    fn release(&mut self, consumer: &MemoryConsumer, bytes: usize) {
        let held = match self.of(consumer) {
            Some((Role::Sorter, sort)) => &mut sort.row_bytes,
            Some((Role::Merge, sort)) => &mut sort.merging,
            None => return,
        };
        *held = held.saturating_sub(bytes);
    }
}

impl FairMergePool {
    pub fn new(bytes: usize) -> Self {
        Self { pool: FairSpillPool::new(bytes), bytes, sorts: Mutex::default() }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.pool.reserved().saturating_add(bytes) <= self.bytes
    }

    /// Errors: a merge of spilled runs exceeds its share, or a sort that collects rows does.
    fn check(&self, sorts: &mut Sorts, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let count = sorts.by_merge.len().max(1);
        let Some((role, sort)) = sorts.of(reservation.consumer()) else { return Ok(()) };
        let (held, part, is_limited) = match role {
            Role::Sorter => {
                let is_collecting = sort.reserve == Some(sort.merging);
                (sort.row_bytes, self.bytes / (SORTERS_SHARE * count), is_collecting && sort.row_bytes > 0)
            }
            Role::Merge => {
                let part = self.bytes / (MERGES_SHARE * count);
                (sort.merging, part.max(additional.saturating_mul(BUFFERS_MIN)), !sort.has_rows)
            }
        };
        if is_limited && held.saturating_add(additional) > part {
            return Err(DataFusionError::ResourcesExhausted(format!(
                "{} holds {held} bytes, its part of {} bytes is {part}, and it wants {additional} more",
                reservation.consumer().name(),
                self.bytes
            )));
        }
        Ok(())
    }
}

impl fmt::Display for FairMergePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.fmt(f)
    }
}

impl MemoryPool for FairMergePool {
    delegate_pool_facts!();

    fn register(&self, consumer: &MemoryConsumer) {
        self.sorts.lock().register(consumer);
        self.pool.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.sorts.lock().unregister(consumer);
        self.pool.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.sorts.lock().add(reservation.consumer(), additional);
        self.pool.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.sorts.lock().release(reservation.consumer(), shrink);
        self.pool.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let mut sorts = self.sorts.lock();
        self.check(&mut sorts, reservation, additional)?;
        match sorts.is_first_reservation(reservation.consumer()) && self.has_room(additional) {
            true => self.pool.grow(reservation, additional),
            false => self.pool.try_grow(reservation, additional)?,
        }
        sorts.add(reservation.consumer(), additional);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn merge(pool: &Arc<dyn MemoryPool>, partition: usize) -> MemoryReservation {
        MemoryConsumer::new(format!("{MERGE}[{partition}]")).register(pool)
    }

    fn sort(pool: &Arc<dyn MemoryPool>, partition: usize) -> (MemoryReservation, MemoryReservation) {
        let rows = MemoryConsumer::new(format!("{SORTER}[{partition}]")).with_can_spill(true).register(pool);
        (rows, merge(pool, partition))
    }

    #[test]
    fn in_memory_merges_get_the_remaining_memory() {
        let pool: Arc<dyn MemoryPool> = Arc::new(FairMergePool::new(2000));
        let ((rows, merge), (_other_rows, _other)) = (sort(&pool, 0), sort(&pool, 1));
        merge.try_grow(50).unwrap();
        for _ in 0..3 {
            rows.try_grow(100).unwrap();
        }
        // A third of the pool is for the rows of two sorts.
        assert!(rows.try_grow(100).is_err());
        merge.free();
        let merging = merge.new_empty();
        // All rows may move to the merge at once.
        rows.free();
        // Comparison keys take more than the rows did.
        for _ in 0..15 {
            merging.try_grow(100).unwrap();
        }
        // Merged output returns to the sort.
        merging.shrink(300);
        rows.try_grow(300).unwrap();
        drop(merging);
        rows.free();
        // The next merge is of spilled runs, and holds nothing before.
        merge.try_grow(50).unwrap();
        merge.try_grow(450).unwrap();
        assert!(merge.try_grow(100).is_err());
        merge.free();
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn a_sort_gets_its_first_rows_while_others_merge() {
        let pool: Arc<dyn MemoryPool> = Arc::new(FairMergePool::new(2000));
        let ((rows, merge), (other_rows, _other)) = (sort(&pool, 0), sort(&pool, 1));
        let many: Vec<_> = (0..8)
            .map(|n| MemoryConsumer::new(format!("r{n}")).with_can_spill(true).register(&pool))
            .collect();
        merge.try_grow(500).unwrap();
        // A fair share of the rest is 150.
        assert!(many[0].try_grow(200).is_err());
        other_rows.try_grow(200).unwrap();
        other_rows.free();
        assert!(other_rows.try_grow(1600).is_err(), "there is not that much");
        drop((rows, many));
    }

    #[test]
    fn merges_have_equal_parts() {
        let pool: Arc<dyn MemoryPool> = Arc::new(FairMergePool::new(2000));
        let (one, other) = (merge(&pool, 0), merge(&pool, 1));
        for _ in 0..5 {
            one.try_grow(100).unwrap();
        }
        assert!(one.try_grow(100).is_err());
        other.try_grow(400).unwrap();
        one.shrink(100);
        one.try_grow(100).unwrap();
        // Another one has ended, and its share is free.
        drop(other);
        one.try_grow(400).unwrap();
        assert_eq!(pool.reserved(), 900);
        drop(one);
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn parts_are_of_all_reservations_of_a_merge() {
        let pool: Arc<dyn MemoryPool> = Arc::new(FairMergePool::new(2000));
        let (one, _other) = (merge(&pool, 0), merge(&pool, 1));
        let next = one.new_empty();
        one.try_grow(300).unwrap();
        next.try_grow(200).unwrap();
        assert!(next.try_grow(100).is_err());
        drop(one);
        next.try_grow(100).unwrap();
    }

    #[test]
    fn every_merge_gets_two_buffers() {
        let pool: Arc<dyn MemoryPool> = Arc::new(FairMergePool::new(1000));
        let merges: Vec<_> = (0..10).map(|partition| merge(&pool, partition)).collect();
        // Three buffers of the same size, whatever the share is.
        merges[0].try_grow(200).unwrap();
        merges[0].try_grow(200).unwrap();
        merges[0].try_grow(200).unwrap();
        assert!(merges[0].try_grow(200).is_err());
        assert!(MemoryConsumer::new("other").register(&pool).try_grow(400).is_ok());
    }
}
