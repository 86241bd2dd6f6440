//! The broadcasts that this rank feeds: which of its streams carry the same rows.

use datafusion_distributed::{ExecuteTaskRequest, ProducerHead, TaskKey};
use harrier_interconnect::{Broadcast, Budget};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A partition of a task's plan, as it was before it was broadcast.
type Source = (TaskKey, usize);

/// Of all broadcasts under way, those whose streams may still find others.
#[derive(Clone, Default)]
pub struct Broadcasts(Arc<Mutex<HashMap<Source, Weak<Broadcast>>>>);

/// What a reader asks a task for.
pub struct Asked {
    task: TaskKey,
    /// Of all partitions of the task; those of a broadcast are its sources once for each of its readers.
    partitions: Range<usize>,
    /// All partitions of the task, if it is a broadcast.
    broadcast: Option<usize>,
}

impl Asked {
    pub fn of(request: &ExecuteTaskRequest) -> Asked {
        Asked {
            task: request.task_key,
            partitions: request.target_partition_start..request.target_partition_end,
            broadcast: match request.producer_head {
                ProducerHead::BroadcastExec { output_partitions } => Some(output_partitions),
                _ => None,
            },
        }
    }

    /// How many read the same, and how many sources there are; `None` where nobody else reads what is asked
    /// for.
    fn readers(&self) -> Option<(usize, usize)> {
        let sources = self.partitions.len();
        let all = self.broadcast?;
        // Each reader asks for every source.
        let whole =
            sources > 0 && self.partitions.start.is_multiple_of(sources) && all.is_multiple_of(sources);
        let readers = all.checked_div(sources)?;
        (whole && readers > 1).then_some((readers, sources))
    }
}

impl Broadcasts {
    /// For each partition asked for, the broadcast that its stream is part of; none if it is none. What that
    /// keeps is charged to `budget`.
    pub fn join(&self, asked: &Asked, budget: &Arc<dyn Budget>) -> Vec<Arc<Broadcast>> {
        let Some((readers, sources)) = asked.readers() else { return Vec::new() };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, broadcast| broadcast.strong_count() > 0);
        let mut join = |source| {
            let entry = known.entry((asked.task, source)).or_default();
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

    fn asked(task_number: usize, partitions: Range<usize>, broadcast: Option<usize>) -> Asked {
        Asked {
            task: TaskKey { query_id: Default::default(), stage_id: 1, task_number },
            partitions,
            broadcast,
        }
    }

    #[test]
    fn readers_of_a_broadcast_find_each_other_source_by_source() {
        let broadcasts = Broadcasts::default();
        let budget: Arc<dyn Budget> = Arc::new(Nobody);
        let join = |asked| broadcasts.join(&asked, &budget);
        let first = join(asked(0, 0..2, Some(6)));
        let third = join(asked(0, 4..6, Some(6)));
        assert_eq!(first.len(), 2);
        assert!(first.iter().zip(&third).all(|(one, other)| Arc::ptr_eq(one, other)));
        assert!(!Arc::ptr_eq(&first[0], &first[1]));
        assert!(!Arc::ptr_eq(&first[0], &join(asked(1, 0..2, Some(6)))[0]), "of another task");
        let before = Arc::downgrade(&first[0]);
        drop((first, third));
        assert!(before.upgrade().is_none());
        assert_eq!(join(asked(0, 2..4, Some(6))).len(), 2);
        assert_eq!(broadcasts.0.lock().unwrap().len(), 2, "what is over is forgotten");
    }

    #[test]
    fn what_is_read_once_is_no_broadcast() {
        let broadcasts = Broadcasts::default();
        let budget: Arc<dyn Budget> = Arc::new(Nobody);
        for asked in [
            asked(0, 0..2, None),
            asked(0, 0..2, Some(2)),
            asked(0, 0..0, Some(2)),
            asked(0, 1..3, Some(6)),
            asked(0, 0..4, Some(6)),
        ] {
            assert!(broadcasts.join(&asked, &budget).is_empty());
        }
    }
}
