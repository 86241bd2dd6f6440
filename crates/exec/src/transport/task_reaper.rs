//! Takes back at once what an ended statement held on this rank.
//!
//! datafusion-distributed keeps a rank's parts of plans in a cache. A part holds the tables of its hash
//! joins, with their reservation of memory, and the streams from other ranks. When the statement ends it is
//! removed from the cache, but a removed entry is only freed along with the cache's next work, of which an
//! idle rank has none: the rest of a canceled statement stayed until later ones came, and what it had
//! reserved was missing to them.
//!
//! Source: moka 0.12, `common/concurrent/constants.rs` (`READ_LOG_FLUSH_POINT`) and `cht/map/bucket.rs`;
//! crossbeam-epoch 0.9.

use datafusion_distributed::{ExecuteTaskRequest, ProducerHead, TaskKey, Worker};
use std::sync::Arc;
use tokio::sync::Notify;
use uuid::Uuid;

/// How many times an entry is looked at before the cache puts itself in order.
const LOOKS: usize = 64;

/// How often garbage is offered before it is collected: it must have been seen unused in two epochs.
const FLUSHES: usize = 4;

/// Asks for a cleaning; cheap to clone.
#[derive(Clone, Default)]
pub struct Janitor(Arc<Notify>);

impl Janitor {
    /// To be called when a statement, or this rank's part of one, has ended. Never blocks.
    pub fn call(&self) {
        self.0.notify_one();
    }

    /// Cleans after `worker` whenever called, for the life of the process. To be spawned.
    pub async fn work(self, worker: Worker) {
        loop {
            self.0.notified().await;
            for _ in 0..LOOKS {
                // An entry that no plan will ever be for: looking at it would wait, and is given up.
                tokio::select! {
                    biased;
                    _ = worker.execute_task(nobodys()) => {}
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

fn nobodys() -> ExecuteTaskRequest {
    ExecuteTaskRequest {
        task_key: TaskKey { query_id: Uuid::nil(), stage_id: 0, task_number: 0 },
        target_partition_start: 0,
        target_partition_end: 0,
        producer_head: ProducerHead::None,
    }
}
