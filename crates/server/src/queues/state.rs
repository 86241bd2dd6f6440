//! Admission control: the state machine of the resource queues, without clock, threads or channels. Requests
//! go in, admissions come out. Queues share the gang by stride scheduling.
//!
//! Invariants:
//! - Running statements keep to their queue's limits, unless these were lowered meanwhile or one statement
//!   over `max_cost` runs alone.
//! - Statements that need a slot on the gang never exceed the number of slots.
//! - In a queue, statements are admitted in order of arrival. One exception: while its head waits only for a
//!   slot on the gang, up to [`OVERTAKES_MAX`] small statements overtake it.
//! - After every call no admissible statement waits.

use std::collections::{BTreeMap, VecDeque};

use super::{QueueDefinition, QueuePriority, Refusal};

/// Maximum small statements that overtake a larger one waiting for the gang. Without a bound they could hold
/// its queue's slots in turn, so that it finds none whenever the gang has one.
pub(super) const OVERTAKES_MAX: u32 = 16;

/// A queue's stride (the step of its pass) for weight 1; divisible by every weight.
const STRIDE: u64 = 1 << 20;

/// The resources that a statement needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Request {
    pub cost: f64,
    pub memory: u64,
}

/// The statements of all queues. `T` is the caller's payload of a waiting statement.
#[derive(Debug)]
pub(super) struct State<T> {
    queues: BTreeMap<String, Queue<T>>,
    /// The queue of every statement.
    queue_names: BTreeMap<u64, String>,
    last_id: u64,
    gang_max: Option<usize>,
    small_cost: f64,
    gang_running: usize,
    /// Virtual time of stride scheduling: the pass of the queue that was admitted last.
    virtual_time: u64,
}

#[derive(Debug)]
pub(super) struct Queue<T> {
    pub definition: QueueDefinition,
    /// Dropped, but kept until its last statement has ended.
    pub is_dropped: bool,
    pub running: BTreeMap<u64, Runner>,
    pub waiting: VecDeque<Waiter<T>>,
    /// Its next pass in stride scheduling of the gang, in units of [`STRIDE`].
    pass: u64,
    /// Its head waits only for the gang.
    is_ready: bool,
    pub admitted: u64,
    pub refused: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Runner {
    pub request: Request,
    pub is_small: bool,
}

#[derive(Debug)]
pub(super) struct Waiter<T> {
    pub id: u64,
    pub request: Request,
    pub is_small: bool,
    pub overtakes: u32,
    pub payload: T,
}

/// The end of a wait.
#[derive(Debug, PartialEq)]
pub(super) enum Event<T> {
    Admitted(u64, T),
    /// Changed limits make it impossible to ever run.
    Refused(u64, T, Refusal),
}

impl<T> State<T> {
    pub fn new(gang_max: Option<usize>, small_cost: f64) -> Self {
        Self {
            queues: BTreeMap::new(),
            queue_names: BTreeMap::new(),
            last_id: 0,
            gang_max,
            small_cost,
            gang_running: 0,
            virtual_time: 0,
        }
    }

    pub fn queues(&self) -> impl Iterator<Item = (&str, &Queue<T>)> {
        self.queues.iter().map(|(name, queue)| (name.as_str(), queue))
    }

    /// Number of statements on the gang.
    pub fn gang_running(&self) -> usize {
        self.gang_running
    }

    /// Appends a statement to its queue. Call [`State::advance`] afterwards.
    pub fn enter(&mut self, queue: &str, request: Request, payload: T) -> Result<u64, Refusal> {
        let is_small = request.cost < self.small_cost;
        let Some(target) = self.queues.get_mut(queue).filter(|queue| !queue.is_dropped) else {
            return Err(Refusal::NoQueue { queue: queue.to_string() });
        };
        if let Some(refusal) = target.refusal(&request) {
            target.refused += 1;
            return Err(refusal);
        }
        self.last_id += 1;
        let id = self.last_id;
        target.waiting.push_back(Waiter { id, request, is_small, overtakes: 0, payload });
        self.queue_names.insert(id, queue.to_string());
        Ok(id)
    }

    /// Removes a waiting or running statement. Call [`State::advance`] afterwards.
    pub fn leave(&mut self, id: u64) {
        let Some(name) = self.queue_names.remove(&id) else { return };
        let Some(queue) = self.queues.get_mut(&name) else { return };
        match queue.running.remove(&id) {
            Some(runner) if !runner.is_small => self.gang_running -= 1,
            Some(_) => {}
            None => queue.waiting.retain(|waiter| waiter.id != id),
        }
        if queue.is_dropped && queue.running.is_empty() {
            self.queues.remove(&name);
        }
    }

    /// Replaces all definitions. Running statements continue; waiting ones of a dropped queue, or over the
    /// new limits, are rejected. Call [`State::advance`] afterwards.
    pub fn define(&mut self, definitions: Vec<QueueDefinition>) -> Vec<Event<T>> {
        let mut events = Vec::new();
        let mut named: BTreeMap<_, _> =
            definitions.into_iter().map(|definition| (definition.name.clone(), definition)).collect();
        for (name, queue) in &mut self.queues {
            match named.remove(name) {
                Some(definition) => (queue.definition, queue.is_dropped) = (definition, false),
                None => queue.is_dropped = true,
            }
            for waiter in std::mem::take(&mut queue.waiting) {
                let refusal = if queue.is_dropped {
                    Some(Refusal::Dropped { queue: name.clone() })
                } else {
                    queue.refusal(&waiter.request)
                };
                match refusal {
                    None => queue.waiting.push_back(waiter),
                    Some(refusal) => {
                        queue.refused += 1;
                        self.queue_names.remove(&waiter.id);
                        events.push(Event::Refused(waiter.id, waiter.payload, refusal));
                    }
                }
            }
        }
        self.queues.retain(|_, queue| !queue.is_dropped || !queue.running.is_empty());
        for (name, definition) in named {
            let pass = self.virtual_time;
            self.queues.insert(name, Queue::new(definition, pass));
        }
        events
    }

    /// Changes the gang's slots and the threshold of small statements. Statements already here keep their
    /// class.
    pub fn limit(&mut self, gang_max: Option<usize>, small_cost: f64) {
        (self.gang_max, self.small_cost) = (gang_max, small_cost);
    }

    /// Admits all admissible statements.
    pub fn advance(&mut self) -> Vec<Event<T>> {
        let mut events = Vec::new();
        loop {
            for queue in self.queues.values_mut() {
                while let Some(waiter) = queue.take_small() {
                    events.push(Event::Admitted(waiter.id, waiter.payload));
                }
                let is_ready = queue.is_head_ready();
                if is_ready && !queue.is_ready {
                    // Passes missed while it was not ready are not saved up.
                    queue.pass = queue.pass.max(self.virtual_time);
                }
                queue.is_ready = is_ready;
            }
            if self.gang_max.is_some_and(|gang_max| self.gang_running >= gang_max) {
                return events;
            }
            // Among equal passes, the greater weight wins, then the first by name.
            let next = self
                .queues
                .values_mut()
                .filter(|queue| queue.is_ready)
                .min_by_key(|queue| (queue.pass, std::cmp::Reverse(queue.definition.priority.weight())));
            let Some(queue) = next else { return events };
            let Some(waiter) = queue.waiting.pop_front() else { return events };
            self.virtual_time = queue.pass;
            queue.pass += STRIDE / u64::from(queue.definition.priority.weight());
            self.gang_running += 1;
            queue.start(&waiter);
            events.push(Event::Admitted(waiter.id, waiter.payload));
        }
    }
}

impl<T> Queue<T> {
    fn new(definition: QueueDefinition, pass: u64) -> Self {
        Self {
            definition,
            is_dropped: false,
            running: BTreeMap::new(),
            waiting: VecDeque::new(),
            pass,
            is_ready: false,
            admitted: 0,
            refused: 0,
        }
    }

    /// Total memory reservation of running statements.
    pub fn memory(&self) -> u64 {
        self.running.values().map(|runner| runner.request.memory).sum()
    }

    /// Total cost estimate of running statements.
    pub fn cost(&self) -> f64 {
        self.running.values().map(|runner| runner.request.cost).sum()
    }

    /// Why a statement can never run, if so.
    fn refusal(&self, request: &Request) -> Option<Refusal> {
        let definition = &self.definition;
        if let Some(limit) = definition.memory_limit.filter(|limit| request.memory > *limit) {
            let queue = definition.name.clone();
            return Some(Refusal::Memory { queue, requested: request.memory, limit });
        }
        let limit =
            definition.max_cost.filter(|limit| request.cost > *limit && !definition.cost_overcommit)?;
        Some(Refusal::Cost { queue: definition.name.clone(), requested: request.cost, limit })
    }

    /// Whether the queue's own limits admit a statement beside the running ones.
    fn has_room(&self, request: &Request) -> bool {
        let definition = &self.definition;
        let is_within = |limit: f64| {
            if request.cost > limit { self.running.is_empty() } else { self.cost() + request.cost <= limit }
        };
        definition.active_statements.is_none_or(|queue_names| self.running.len() < queue_names)
            && definition
                .memory_limit
                .is_none_or(|limit| self.memory().saturating_add(request.memory) <= limit)
            && definition.max_cost.is_none_or(is_within)
    }

    fn is_head_ready(&self) -> bool {
        self.waiting.front().is_some_and(|head| !head.is_small && self.has_room(&head.request))
    }

    /// Admits the next small statement, if possible.
    fn take_small(&mut self) -> Option<Waiter<T>> {
        let at = self.waiting.iter().position(|waiter| waiter.is_small)?;
        if !self.has_room(&self.waiting[at].request) {
            return None;
        }
        if at > 0 {
            // Only the head can wait for the gang; the others wait for the head.
            let head = self.waiting.front()?;
            if !self.has_room(&head.request) || head.overtakes >= OVERTAKES_MAX {
                return None;
            }
            self.waiting.front_mut()?.overtakes += 1;
        }
        let waiter = self.waiting.remove(at)?;
        self.start(&waiter);
        Some(waiter)
    }

    fn start(&mut self, waiter: &Waiter<T>) {
        self.admitted += 1;
        self.running.insert(waiter.id, Runner { request: waiter.request, is_small: waiter.is_small });
    }
}

impl QueuePriority {
    /// Its relative share of contended slots on the gang.
    pub(super) fn weight(self) -> u32 {
        match self {
            Self::Min => 1,
            Self::Low => 2,
            Self::Medium => 4,
            Self::High => 8,
            Self::Max => 16,
        }
    }
}
