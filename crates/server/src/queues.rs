//! Resource queues: which statements may run now, and which wait for others to end.
//!
//! As in HAWQ and Greenplum, a role belongs to a queue, and `CREATE RESOURCE QUEUE … WITH (active_statements,
//! memory_limit, max_cost, cost_overcommit, priority)` limits what its statements use together:
//!
//! ```text
//! admit ─► queue a  ▫▫▫▫ ─┐ places, memory and cost of a           ┌─► Ticket ─► the statement runs ─► drop
//! admit ─► queue b  ▫    ─┤ of b           places on the gang, ────┤
//! admit ─► queue c  ▫▫   ─┘ of c           shared by priority      └─► …
//! ```
//!
//! - A statement goes when its queue has a place (`active_statements`), memory (the sum of what running
//!   statements reserve stays within `memory_limit`) and cost (likewise `max_cost`) for it, and all that came
//!   before it in its queue went.
//! - Over all queues no more than [`Limits::gang_statements`] run on the gang. A place that becomes free goes
//!   to the queue whose turn it is: turns are dealt by priority, with weights 1 (MIN), 2, 4, 8 and 16 (MAX),
//!   so that a queue with little weight waits longer and never for ever. Statements that cost less than
//!   [`Limits::small_cost`] need no place on the gang, and pass those of their queue that wait for one.
//! - A statement that asks for more memory than its queue has at all is refused at once (53200). One that
//!   costs more than `max_cost` is refused (53400) if the queue says `cost_overcommit = false`; if not, which
//!   is the default as in HAWQ, it runs when nothing else of its queue does.
//! - Who waits longer than allowed gets 55P03, lock_not_available. It is what PostgreSQL gives for
//!   `lock_timeout`, the wait that is most like this one: programs that try again after 55P03 do the right
//!   thing, while 57014 would read as if a person had canceled the statement, and 53300 as if there were too
//!   many connections.
//!
//! Cancellation: dropping the future of [`Queues::admit`], or a [`Ticket`], leaves nothing behind, at any
//! moment. Source: hawq.txt tells of resource queues as objects of the catalog; their meaning is that of
//! HAWQ's and Greenplum's references.

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

/// How much of the gang a queue gets when others want it too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    Min,
    Low,
    #[default]
    Medium,
    High,
    Max,
}

impl Priority {
    /// As `CREATE RESOURCE QUEUE` has it, in any case.
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

/// What `CREATE RESOURCE QUEUE` said. `None`: no limit.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueDefinition {
    pub name: String,
    /// Statements that run at a time.
    pub active_statements: Option<usize>,
    /// Bytes that running statements reserve together.
    pub memory_limit: Option<u64>,
    pub priority: Priority,
    /// The planner's estimates of running statements together.
    pub max_cost: Option<f64>,
    /// A statement over `max_cost` runs when nothing else of the queue does.
    pub cost_overcommit: bool,
}

impl QueueDefinition {
    /// A queue without limits, with HAWQ's defaults.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            active_statements: None,
            memory_limit: None,
            priority: Priority::default(),
            max_cost: None,
            cost_overcommit: true,
        }
    }
}

/// What holds over all queues.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Statements that run on the gang at a time. `None`: any number.
    pub gang_statements: Option<usize>,
    /// Statements that are estimated to cost less need no place on the gang.
    pub small_cost: f64,
    /// How long a statement waits before it is given up. `None`: for ever.
    pub wait: Option<Duration>,
}

/// The resource queues of a server; clones are the same queues.
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

/// The right to run one statement. Others may go when it is dropped.
#[must_use]
pub struct Ticket {
    queues: Queues,
    id: u64,
}

/// What a queue is doing, for views and pages.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueSnapshot {
    pub definition: QueueDefinition,
    /// It was dropped, and some of its statements still run.
    pub is_dropped: bool,
    pub running: usize,
    /// Bytes that those have reserved.
    pub running_memory: u64,
    pub running_cost: f64,
    pub waiting: usize,
    /// Of those that wait now.
    pub longest_wait: Duration,
    /// Statements that got their turn since the queue was made.
    pub admitted: u64,
    /// Statements that asked for more than the queue has.
    pub refused: u64,
}

impl Queues {
    pub fn new(definitions: Vec<QueueDefinition>, limits: Limits) -> Self {
        let mut state = State::new(limits.gang_statements, limits.small_cost);
        state.define(definitions);
        Self { inner: Arc::new(Mutex::new(Inner { state, wait: limits.wait })) }
    }

    /// Replaces all definitions. Running statements go on, even those of a queue that is no more; statements
    /// that wait and can never run any more fail.
    pub fn set(&self, definitions: Vec<QueueDefinition>) {
        let mut inner = self.inner.lock();
        let events = inner.state.define(definitions);
        Self::tell(events);
        inner.advance();
    }

    /// Replaces what holds over all queues. Who waits already does so as long as it was told.
    pub fn set_limits(&self, limits: Limits) {
        let mut inner = self.inner.lock();
        inner.wait = limits.wait;
        inner.state.limit(limits.gang_statements, limits.small_cost);
        inner.advance();
    }

    /// Waits until a statement may run; it does until the ticket is dropped. `cost`: the planner's estimate,
    /// in its units; `memory`: bytes that it reserves on a rank or over all, whichever the queue's limit
    /// counts. While it waits, `entry` says so; when it may go, its phase is running.
    ///
    /// Errors: 42704 there is no such queue, or it was dropped meanwhile; 53200 more memory than the queue
    /// has; 53400 over the queue's `max_cost`; 55P03 it waited longer than [`Limits::wait`]. Cancel-safe.
    pub async fn admit(
        &self,
        queue: &str,
        cost: f64,
        memory: u64,
        entry: &StatementEntry,
    ) -> Result<Ticket, SqlError> {
        // What nobody could estimate limits nobody.
        let cost = if cost.is_nan() { 0.0 } else { cost.max(0.0) };
        let (answer, mut answered) = oneshot::channel();
        let payload = Payload { since: Instant::now(), answer };
        let (ticket, wait) = {
            let mut inner = self.inner.lock();
            let id = inner.state.enter(queue, Request { cost, memory }, payload)?;
            inner.advance();
            // From here on, whatever becomes of this future, the statement leaves its queue with the ticket.
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
            // The sender lives in the queue until it has answered.
            answer.unwrap_or_else(|_| Err(Refusal::Dropped { queue: queue.to_string() }))?;
        }
        entry.set_phase(Phase::Running);
        Ok(ticket)
    }

    /// All queues by name, and how many statements are on the gang.
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

    fn tell(events: Vec<Event<Payload>>) {
        for event in events {
            // Nobody listens if the future was dropped: its ticket then leaves the queue, and lets the next
            // one go.
            let _ = match event {
                Event::Admitted(_, payload) => payload.answer.send(Ok(())),
                Event::Refused(_, payload, refusal) => payload.answer.send(Err(refusal)),
            };
        }
    }
}

impl Inner {
    fn advance(&mut self) {
        Queues::tell(self.state.advance());
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

/// A statement's entry says that it waits until this is dropped, also when its wait is given up.
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
    Memory { queue: String, asked: u64, limit: u64 },
    Cost { queue: String, asked: f64, limit: f64 },
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
            Refusal::Memory { queue, asked, limit } => {
                Self::new(SqlState::OUT_OF_MEMORY, format!("statement needs more memory than resource queue \"{queue}\" has"))
                    .with_detail(format!("It asks for {asked} bytes, the queue has {limit}."))
                    .with_hint("Lower the statement's memory limit, or raise memory_limit of the resource queue.")
            }
            Refusal::Cost { queue, asked, limit } => {
                Self::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, format!("statement costs more than resource queue \"{queue}\" allows"))
                    .with_detail(format!("It is estimated to cost {asked:.0}, max_cost is {limit:.0}."))
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
