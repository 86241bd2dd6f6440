//! Registry of the broadcasts that this rank feeds: finds the streams that carry the same rows.

use datafusion_distributed::{ExecuteTaskRequest, ProducerHead, TaskKey};
use harrier_interconnect::{Broadcast, Budget};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A partition of a task's plan before the broadcast.
type Source = (TaskKey, usize);

/// Active broadcasts that may still get further streams.
#[derive(Clone, Default)]
pub struct Broadcasts(Arc<Mutex<HashMap<Source, Weak<Broadcast>>>>);

/// The partitions that a reader requests of a task.
pub struct PartitionRequest {
    task: TaskKey,
    /// Among all partitions of the task; a broadcast repeats its sources once per reader.
    partitions: Range<usize>,
    /// Number of partitions of the task, if it is a broadcast.
    broadcast: Option<usize>,
}

impl PartitionRequest {
    pub fn of(request: &ExecuteTaskRequest) -> PartitionRequest {
        PartitionRequest {
            task: request.task_key,
            partitions: request.target_partition_start..request.target_partition_end,
            broadcast: match request.producer_head {
                ProducerHead::BroadcastExec { output_partitions } => Some(output_partitions),
                _ => None,
            },
        }
    }

    /// The number of readers of the same rows, and of sources; `None` if there is no other reader.
    fn readers(&self) -> Option<(usize, usize)> {
        let sources = self.partitions.len();
        let all = self.broadcast?;
        // Each reader requests every source.
        let whole =
            sources > 0 && self.partitions.start.is_multiple_of(sources) && all.is_multiple_of(sources);
        let readers = all.checked_div(sources)?;
        (whole && readers > 1).then_some((readers, sources))
    }
}

impl Broadcasts {
    /// The broadcast of each requested partition; empty if the task is no broadcast. Its buffers are charged
    /// to `budget`.
    pub fn join(&self, request: &PartitionRequest, budget: &Arc<dyn Budget>) -> Vec<Arc<Broadcast>> {
        let Some((readers, sources)) = request.readers() else { return Vec::new() };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, broadcast| broadcast.strong_count() > 0);
        let mut join = |source| {
            let entry = known.entry((request.task, source)).or_default();
            entry.upgrade().unwrap_or_else(|| {
                let broadcast = Arc::new(Broadcast::new(readers, Arc::clone(budget)));
                *entry = Arc::downgrade(&broadcast);
                broadcast
            })
        };
        (0..sources).map(&mut join).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;

    impl Budget for Nobody {
        fn grow(&self, _: usize) {}

        fn shrink(&self, _: usize) {}
    }

    fn request(task_number: usize, partitions: Range<usize>, broadcast: Option<usize>) -> PartitionRequest {
        PartitionRequest {
            task: TaskKey { query_id: Default::default(), stage_id: 1, task_number },
            partitions,
            broadcast,
        }
    }

    #[test]
    fn broadcast_readers_are_matched_by_source() {
        let broadcasts = Broadcasts::default();
        let budget: Arc<dyn Budget> = Arc::new(Nobody);
        let join = |request| broadcasts.join(&request, &budget);
        let first = join(request(0, 0..2, Some(6)));
        let third = join(request(0, 4..6, Some(6)));
        assert_eq!(first.len(), 2);
        assert!(first.iter().zip(&third).all(|(one, other)| Arc::ptr_eq(one, other)));
        assert!(!Arc::ptr_eq(&first[0], &first[1]));
        assert!(!Arc::ptr_eq(&first[0], &join(request(1, 0..2, Some(6)))[0]), "of another task");
        let before = Arc::downgrade(&first[0]);
        drop((first, third));
        assert!(before.upgrade().is_none());
        assert_eq!(join(request(0, 2..4, Some(6))).len(), 2);
        assert_eq!(broadcasts.0.lock().unwrap().len(), 2, "what is over is forgotten");
    }

    #[test]
    fn single_readers_get_no_broadcast() {
        let broadcasts = Broadcasts::default();
        let budget: Arc<dyn Budget> = Arc::new(Nobody);
        for request in [
            request(0, 0..2, None),
            request(0, 0..2, Some(2)),
            request(0, 0..0, Some(2)),
            request(0, 1..3, Some(6)),
            request(0, 0..4, Some(6)),
        ] {
            assert!(broadcasts.join(&request, &budget).is_empty());
        }
    }
}
