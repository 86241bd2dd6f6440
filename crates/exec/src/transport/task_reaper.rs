//! Frees the resources of an ended statement on this rank at once.
//!
//! datafusion-distributed keeps a rank's tasks in a cache. A task holds the hash tables of its joins, with
//! their memory reservation, and the streams from other ranks. At the end of the statement the task is
//! removed from the cache, but a removed entry is freed only by later cache operations, and an idle rank has
//! none: tasks of a canceled statement stayed until the next statements, which lacked the reserved memory.
//!
//! Source: moka 0.12, `common/concurrent/constants.rs` (`READ_LOG_FLUSH_POINT`) and `cht/map/bucket.rs`;
//! crossbeam-epoch 0.9.

use datafusion_distributed::{ExecuteTaskRequest, ProducerHead, TaskKey, Worker};
use std::sync::Arc;
use tokio::sync::Notify;
use uuid::Uuid;

/// Lookups after which the cache runs its maintenance.
const LOOKUPS: usize = 64;

/// Number of flushes until garbage is collected: it must have been unused in two epochs.
const FLUSHES: usize = 4;

/// Requests a cleanup; cheap to clone.
#[derive(Clone, Default)]
pub struct Janitor(Arc<Notify>);

impl Janitor {
    /// Call it when a statement, or this rank's part of one, has ended. Never blocks.
    pub fn call(&self) {
        self.0.notify_one();
    }

    /// Cleans up `worker` on every request, for the life of the process. To be spawned.
    pub async fn work(self, worker: Worker) {
        loop {
            self.0.notified().await;
            for _ in 0..LOOKUPS {
                // The key of no plan: the lookup would wait, and is abandoned.
                tokio::select! {
                    biased;
                    _ = worker.execute_task(unused_request()) => {}
                    () = tokio::task::yield_now() => {}
                }
            }
            for _ in 0..FLUSHES {
                crossbeam_epoch::pin().flush();
                tokio::task::yield_now().await;
            }
        }
    }
}

fn unused_request() -> ExecuteTaskRequest {
    ExecuteTaskRequest {
        task_key: TaskKey { query_id: Uuid::nil(), stage_id: 0, task_number: 0 },
        target_partition_start: 0,
        target_partition_end: 0,
        producer_head: ProducerHead::None,
    }
}
