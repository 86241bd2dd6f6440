//! Assignment of roles to resource queues: those of the catalog, and a default one.

use std::sync::Arc;

use harrier_engine::{Access, Engine, SqlError};
use harrier_server::queues::{QueueDefinition, QueuePriority, Queues};
use parking_lot::Mutex;

/// Name of the queue of roles without one.
const DEFAULT: &str = "default";

/// The queues of a server, synchronized with the catalog. Clones share them.
#[derive(Clone)]
pub(super) struct RoleQueues {
    queues: Queues,
    engine: Engine,
    versions: Arc<Mutex<Versions>>,
}

/// Versions of the queues' sources.
struct Versions {
    default: QueueDefinition,
    /// Version of the catalog's access data; `None`: not yet loaded.
    version: Option<i64>,
}

/// Queue of a statement, and its share of memory.
pub(super) struct Place {
    pub queue: String,
    /// Bytes of memory that it reserves, and may use; 0: the queue has no limit.
    pub memory: u64,
}

/// The default queue; `statements`: how many of them run at once, or `None` for no limit.
pub(super) fn default(statements: Option<usize>) -> QueueDefinition {
    QueueDefinition { active_statements: statements, ..QueueDefinition::new(DEFAULT) }
}

impl RoleQueues {
    pub(super) fn new(queues: Queues, engine: Engine, default: QueueDefinition) -> Self {
        let versions = Versions { default, version: None };
        Self { queues, engine, versions: Arc::new(Mutex::new(versions)) }
    }

    /// Replaces the default queue.
    pub(super) fn set_default(&self, default: QueueDefinition) {
        let mut versions = self.versions.lock();
        versions.default = default.clone();
        // Refreshed with the next statement; the other queues stay until then.
        versions.version = None;
        let (present, _) = self.queues.snapshot();
        let others = present.into_iter().filter(|queue| !queue.is_dropped).map(|queue| queue.definition);
        let others = others.filter(|queue| queue.name != DEFAULT);
        self.queues.set(others.chain([default]).collect());
    }

    pub(super) fn queues(&self) -> &Queues {
        &self.queues
    }

    /// Returns the queue of a role's statement, after refreshing changed queues.
    ///
    /// Errors: the catalog cannot be read.
    pub(super) async fn of_role(&self, role: &str) -> Result<Place, SqlError> {
        let access = self.engine.access().await?;
        self.refresh(&access);
        let Some(queue) = access.queue(role) else {
            return Ok(Place { queue: DEFAULT.to_string(), memory: 0 });
        };
        // As in HAWQ, all statements that may run at once get equal shares.
        let shares = queue.active_statements.map_or(1, u64::from).max(1);
        Ok(Place { queue: queue.name.clone(), memory: queue.memory_limit.map_or(0, |limit| limit / shares) })
    }

    fn refresh(&self, access: &Access) {
        let mut versions = self.versions.lock();
        if versions.version == Some(access.version) {
            return;
        }
        let mut all: Vec<QueueDefinition> = access
            .queues
            .values()
            .map(|queue| QueueDefinition {
                active_statements: queue.active_statements.map(|count| count as usize),
                memory_limit: queue.memory_limit,
                priority: QueuePriority::parse(queue.priority.name()).unwrap_or_default(),
                max_cost: queue.max_cost,
                ..QueueDefinition::new(&queue.name)
            })
            .collect();
        if all.iter().all(|queue| queue.name != DEFAULT) {
            all.push(versions.default.clone());
        }
        self.queues.set(all);
        versions.version = Some(access.version);
    }
}
