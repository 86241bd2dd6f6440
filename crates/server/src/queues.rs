//! Resource queues: admission control of statements.
//!
//! As in HAWQ and Greenplum, a role belongs to a queue, and `CREATE RESOURCE QUEUE … WITH (active_statements,
//! memory_limit, max_cost, cost_overcommit, priority)` limits the total use of its statements:
//!
//! ```text
//! admit ─► queue a  ▫▫▫▫ ─┐ slots, memory and cost of a            ┌─► Ticket ─► the statement runs ─► drop
//! admit ─► queue b  ▫    ─┤ of b           slots on the gang, ─────┤
//! admit ─► queue c  ▫▫   ─┘ of c           shared by priority      └─► …
//! ```
//!
//! - A statement is admitted when its queue has a slot (`active_statements`), memory (the reservations of
//!   running statements stay within `memory_limit`) and cost (likewise `max_cost`) for it, and all statements
//!   before it in the queue have been admitted.
//! - Over all queues at most [`QueueLimits::gang_statements`] run on the gang. A free slot goes to the queue
//!   whose turn it is: stride scheduling by priority, with weights 1 (MIN), 2, 4, 8 and 16 (MAX), so that a
//!   queue with little weight waits longer but never starves. Statements that cost less than
//!   [`QueueLimits::small_cost`] need no slot on the gang, and overtake those of their queue that wait for
//!   one.
//! - A statement that needs more memory than its queue's limit is rejected at once (53200). One that costs
//!   more than `max_cost` is rejected (53400) if the queue has `cost_overcommit = false`; otherwise, the
//!   default as in HAWQ, it runs alone in its queue.
//! - A statement that waits too long fails with 55P03, lock_not_available. PostgreSQL uses it for
//!   `lock_timeout`, the most similar wait: programs that retry after 55P03 do the right thing, while 57014
//!   would mean that a person canceled the statement, and 53300 too many connections.
//!
//! Cancellation: dropping the future of [`Queues::admit`], or a [`Ticket`], cleans up completely, at any
//! time. Source: hawq.txt mentions resource queues as catalog objects; their semantics follow HAWQ's and
//! Greenplum's references.

mod state;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use harrier_error::{SqlError, SqlState};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use self::state::{Event, Request, State};
use crate::registry::{Phase, StatementEntry};

/// A queue's share of the gang under contention.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueuePriority {
    Min,
    Low,
    #[default]
    Medium,
    High,
    Max,
}

impl QueuePriority {
    /// Parses a name of `CREATE RESOURCE QUEUE`, in any case.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Min, Self::Low, Self::Medium, Self::High, Self::Max]
            .into_iter()
            .find(|priority| priority.name().eq_ignore_ascii_case(name))
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Max => "max",
        }
    }
}

/// A queue as in `CREATE RESOURCE QUEUE`. `None`: no limit.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueDefinition {
    pub name: String,
    /// Maximum running statements.
    pub active_statements: Option<usize>,
    /// Maximum total memory reservation of running statements, in bytes.
    pub memory_limit: Option<u64>,
    pub priority: QueuePriority,
    /// Maximum total cost estimate of running statements.
    pub max_cost: Option<f64>,
    /// A statement over `max_cost` runs alone in the queue.
    pub cost_overcommit: bool,
}

impl QueueDefinition {
    /// A queue without limits, with HAWQ's defaults.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            active_statements: None,
            memory_limit: None,
            priority: QueuePriority::default(),
            max_cost: None,
            cost_overcommit: true,
        }
    }
}

/// Limits over all queues.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QueueLimits {
    /// Maximum statements on the gang. `None`: no limit.
    pub gang_statements: Option<usize>,
    /// Statements with a lower cost estimate need no slot on the gang.
    pub small_cost: f64,
    /// Maximum wait of a statement. `None`: no limit.
    pub wait: Option<Duration>,
}

/// The resource queues of a server; clones share them.
#[derive(Debug, Clone)]
pub struct Queues {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    state: State<Payload>,
    wait: Option<Duration>,
}

#[derive(Debug)]
struct Payload {
    since: Instant,
    answer: oneshot::Sender<Result<(), Refusal>>,
}

/// The right to run one statement. Dropping it frees the slot.
#[must_use]
pub struct Ticket {
    queues: Queues,
    id: u64,
}

/// The state of a queue, for views and pages.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueSnapshot {
    pub definition: QueueDefinition,
    /// It was dropped while some of its statements still run.
    pub is_dropped: bool,
    pub running: usize,
    /// Their total memory reservation in bytes.
    pub running_memory: u64,
    pub running_cost: f64,
    pub waiting: usize,
    /// Of the currently waiting statements.
    pub longest_wait: Duration,
    /// Statements admitted since the queue was created.
    pub admitted: u64,
    /// Statements rejected by the queue's limits.
    pub refused: u64,
}

impl Queues {
    pub fn new(definitions: Vec<QueueDefinition>, limits: QueueLimits) -> Self {
        let mut state = State::new(limits.gang_statements, limits.small_cost);
        state.define(definitions);
        Self { inner: Arc::new(Mutex::new(Inner { state, wait: limits.wait })) }
    }

    /// Replaces all definitions. Running statements continue, even those of a dropped queue; waiting
    /// statements that can never run fail.
    pub fn set(&self, definitions: Vec<QueueDefinition>) {
        let mut inner = self.inner.lock();
        let events = inner.state.define(definitions);
        Self::notify_waiters(events);
        inner.advance();
    }

    /// Replaces the limits over all queues. Waiting statements keep their timeout.
    pub fn set_limits(&self, limits: QueueLimits) {
        let mut inner = self.inner.lock();
        inner.wait = limits.wait;
        inner.state.limit(limits.gang_statements, limits.small_cost);
        inner.advance();
    }

    /// Waits until a statement may run; it may until the ticket is dropped. `cost`: the planner's estimate,
    /// in its units; `memory`: its reservation in bytes on a rank or in total, whichever the queue's limit
    /// counts. Sets the phase of `entry` to queued while it waits, and to running when admitted.
    ///
    /// Errors: 42704 the queue does not exist, or was dropped meanwhile; 53200 more memory than the queue
    /// has; 53400 over the queue's `max_cost`; 55P03 the wait exceeds [`QueueLimits::wait`]. Cancel-safe.
    pub async fn admit(
        &self,
        queue: &str,
        cost: f64,
        memory: u64,
        entry: &StatementEntry,
    ) -> Result<Ticket, SqlError> {
        // An unknown cost counts as zero.
        let cost = if cost.is_nan() { 0.0 } else { cost.max(0.0) };
        let (answer, mut answered) = oneshot::channel();
        let payload = Payload { since: Instant::now(), answer };
        let (ticket, wait) = {
            let mut inner = self.inner.lock();
            let id = inner.state.enter(queue, Request { cost, memory }, payload)?;
            inner.advance();
            // From here on, dropping this future drops the ticket, which removes the statement from its
            // queue.
            (Ticket { queues: self.clone(), id }, inner.wait)
        };
        entry.set_queue(queue);
        if answered.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Empty) {
            let waiting = Waiting::begin(entry);
            let answer = match wait {
                None => answered.await,
                Some(wait) => match tokio::time::timeout(wait, answered).await {
                    Ok(answer) => answer,
                    Err(_) => return Err(too_long(queue, wait)),
                },
            };
            drop(waiting);
            // The queue keeps the sender until it has answered.
            answer.unwrap_or_else(|_| Err(Refusal::Dropped { queue: queue.to_string() }))?;
        }
        entry.set_phase(Phase::Running);
        Ok(ticket)
    }

    /// All queues by name, and the number of statements on the gang.
    pub fn snapshot(&self) -> (Vec<QueueSnapshot>, usize) {
        let inner = self.inner.lock();
        let now = Instant::now();
        let queues = inner.state.queues().map(|(_, queue)| QueueSnapshot {
            definition: queue.definition.clone(),
            is_dropped: queue.is_dropped,
            running: queue.running.len(),
            running_memory: queue.memory(),
            running_cost: queue.cost(),
            waiting: queue.waiting.len(),
            longest_wait: queue
                .waiting
                .iter()
                .map(|waiter| now.saturating_duration_since(waiter.payload.since))
                .max()
                .unwrap_or_default(),
            admitted: queue.admitted,
            refused: queue.refused,
        });
        (queues.collect(), inner.state.gang_running())
    }

    fn notify_waiters(events: Vec<Event<Payload>>) {
        for event in events {
            // The receiver is gone if the future was dropped: its ticket then leaves the queue and admits the
            // next one.
            let _ = match event {
                Event::Admitted(_, payload) => payload.answer.send(Ok(())),
                Event::Refused(_, payload, refusal) => payload.answer.send(Err(refusal)),
            };
        }
    }
}

impl Inner {
    fn advance(&mut self) {
        Queues::notify_waiters(self.state.advance());
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut inner = self.queues.inner.lock();
        inner.state.leave(self.id);
        inner.advance();
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Keeps a statement's phase queued until dropped, even if the wait is canceled.
struct Waiting<'a>(&'a StatementEntry);

impl<'a> Waiting<'a> {
    fn begin(entry: &'a StatementEntry) -> Self {
        entry.set_phase(Phase::Queued);
        Self(entry)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set_phase(Phase::Planning);
    }
}

/// Why a statement can never run in its queue.
#[derive(Debug, Clone, PartialEq)]
enum Refusal {
    NoQueue { queue: String },
    Dropped { queue: String },
    Memory { queue: String, requested: u64, limit: u64 },
    Cost { queue: String, requested: f64, limit: f64 },
}

impl From<Refusal> for SqlError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NoQueue { queue } => {
                Self::new(SqlState::UNDEFINED_OBJECT, format!("resource queue \"{queue}\" does not exist"))
            }
            Refusal::Dropped { queue } => {
                Self::new(SqlState::UNDEFINED_OBJECT, format!("resource queue \"{queue}\" was dropped while the statement waited"))
            }
            Refusal::Memory { queue, requested, limit } => {
                Self::new(SqlState::OUT_OF_MEMORY, format!("statement needs more memory than resource queue \"{queue}\" has"))
                    .with_detail(format!("It asks for {requested} bytes, the queue has {limit}."))
                    .with_hint("Lower the statement's memory limit, or raise memory_limit of the resource queue.")
            }
            Refusal::Cost { queue, requested, limit } => {
                Self::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, format!("statement costs more than resource queue \"{queue}\" allows"))
                    .with_detail(format!("It is estimated to cost {requested:.0}, max_cost is {limit:.0}."))
                    .with_hint(
                        "Restrict what the statement reads, or raise max_cost or set cost_overcommit of the resource queue.",
                    )
            }
        }
    }
}

fn too_long(queue: &str, wait: Duration) -> SqlError {
    SqlError::new(
        SqlState::LOCK_NOT_AVAILABLE,
        format!("canceling statement due to its wait in resource queue \"{queue}\""),
    )
    .with_detail(format!("It waited for {wait:?}."))
    .with_hint("Try again later; sys.queues shows what runs and waits.")
}
