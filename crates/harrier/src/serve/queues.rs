//! Which resource queue a role's statements wait in: those of the catalog, and one for whoever has none.

use std::sync::Arc;

use harrier_engine::{Access, Engine, SqlError};
use harrier_server::queues::{Priority, QueueDefinition, Queues};
use parking_lot::Mutex;

/// The queue of roles that have none.
const DEFAULT: &str = "default";

/// The queues of a server, made as the catalog has them. Clones share them.
#[derive(Clone)]
pub(super) struct RoleQueues {
    queues: Queues,
    engine: Engine,
    made: Arc<Mutex<Made>>,
}

/// What the queues were made of.
struct Made {
    default: QueueDefinition,
    /// Of who may do what; none yet.
    version: Option<i64>,
}

/// Where a statement waits, and what it gets there.
pub(super) struct Place {
    pub queue: String,
    /// Bytes of memory that it reserves, and may use; 0: the queue has no limit.
    pub memory: u64,
}

/// The queue of roles that have none; `statements`: how many of them run at once, if not as many as there
/// are.
pub(super) fn default(statements: Option<usize>) -> QueueDefinition {
    QueueDefinition { active_statements: statements, ..QueueDefinition::new(DEFAULT) }
}

impl RoleQueues {
    pub(super) fn new(queues: Queues, engine: Engine, default: QueueDefinition) -> Self {
        let made = Made { default, version: None };
        Self { queues, engine, made: Arc::new(Mutex::new(made)) }
    }

    /// For roles that have none, from now on.
    pub(super) fn set_default(&self, default: QueueDefinition) {
        let mut made = self.made.lock();
        made.default = default.clone();
        // Made anew with the next statement; the others stay until then.
        made.version = None;
        let (present, _) = self.queues.snapshot();
        let others = present.into_iter().filter(|queue| !queue.is_dropped).map(|queue| queue.definition);
        let others = others.filter(|queue| queue.name != DEFAULT);
        self.queues.set(others.chain([default]).collect());
    }

    pub(super) fn queues(&self) -> &Queues {
        &self.queues
    }

    /// Where a role's statement is to wait. A queue that was changed by anybody is that from here on.
    ///
    /// Errors: the catalog cannot be read.
    pub(super) async fn of_role(&self, role: &str) -> Result<Place, SqlError> {
        let access = self.engine.access().await?;
        self.follow(&access);
        let Some(queue) = access.queue(role) else {
            return Ok(Place { queue: DEFAULT.to_string(), memory: 0 });
        };
        // As HAWQ has it: each of the statements that may run at once gets the same share.
        let shares = queue.active_statements.map_or(1, u64::from).max(1);
        Ok(Place { queue: queue.name.clone(), memory: queue.memory_limit.map_or(0, |limit| limit / shares) })
    }

    fn follow(&self, access: &Access) {
        let mut made = self.made.lock();
        if made.version == Some(access.version) {
            return;
        }
        let mut all: Vec<QueueDefinition> = access
            .queues
            .values()
            .map(|queue| QueueDefinition {
                active_statements: queue.active_statements.map(|count| count as usize),
                memory_limit: queue.memory_limit,
                priority: Priority::parse(queue.priority.name()).unwrap_or_default(),
                max_cost: queue.max_cost,
                ..QueueDefinition::new(&queue.name)
            })
            .collect();
        if all.iter().all(|queue| queue.name != DEFAULT) {
            all.push(made.default.clone());
        }
        self.queues.set(all);
        made.version = Some(access.version);
    }
}
