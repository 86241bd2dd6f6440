//! What one statement may take of every process that works for it, beside what all statements share.
//!
//! Without a limit, too, a statement has a pool in front of that of the process, which counts what it takes
//! (`resources/src/statement_memory.rs`). A limit is a pool of memory, and a count of spilled bytes, of the
//! statement's own, in front of those of the process. On ranks, the parts of a statement find theirs by its
//! number: together they have one limit on each rank.
//!
//! Errors: memory that cannot spill is refused with 53200, as when the process has none left; a spill beyond
//! the limit with 53400.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use datafusion::common::Result;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::SessionConfig;
use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::cancellation::Canceled;
use crate::fair_merge_pool::FairMerges;
use crate::spill_disks::Disks;
use crate::statement_memory::{self, StatementMemory};

/// What all sorts of a statement keep back for merging is at most one such part of its memory.
pub const SORT_SHARES: usize = 4;

const HEADER: HeaderName = HeaderName::from_static("x-harrier-limits");

/// `None`: as much as there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatementLimits {
    /// Bytes of memory on each process.
    pub memory_bytes: Option<u64>,
    /// Bytes of temporary files on each process.
    pub spill_bytes: Option<u64>,
}

impl StatementLimits {
    /// The lower of both.
    pub fn and(self, other: Self) -> Self {
        let lower = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        Self {
            memory_bytes: lower(self.memory_bytes, other.memory_bytes),
            spill_bytes: lower(self.spill_bytes, other.spill_bytes),
        }
    }

    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    /// The environment of one statement within that of its process.
    fn within(self, process: &Arc<RuntimeEnv>, disks: Option<&Disks>) -> Result<Arc<RuntimeEnv>> {
        if self.is_none() {
            return Ok(Arc::clone(process));
        }
        let mut runtime = RuntimeEnvBuilder::from_runtime_env(process);
        if let Some(bytes) = self.memory_bytes {
            runtime = runtime.with_memory_pool(Arc::new(StatementPool::new(bytes, process)));
        }
        if let (Some(bytes), Some(disks)) = (self.spill_bytes, disks) {
            let disks = DiskManagerMode::Custom(Arc::new(disks.for_statement(bytes)));
            runtime = runtime.with_disk_manager_builder(DiskManagerBuilder::default().with_mode(disks));
        }
        runtime.build_arc()
    }
}

/// One statement with its limits and what it takes, by which its parts on a rank know one another. An
/// extension of the session's settings.
#[derive(Debug, Clone)]
pub struct Scope {
    statement: Uuid,
    pub limits: StatementLimits,
    /// Of this process, and what others have told.
    pub memory: Arc<StatementMemory>,
    /// Whether it has been given up.
    pub canceled: Canceled,
}

impl Scope {
    /// Of a statement that begins: the one that [`Canceled::current`] is about, if any is.
    pub fn new(limits: StatementLimits) -> Self {
        let canceled = Canceled::current().unwrap_or_default();
        Self { statement: Uuid::new_v4(), limits, memory: Arc::default(), canceled }
    }

    /// Puts it among the settings that the statement is planned and run with.
    pub fn set(self, config: &mut SessionConfig) {
        config.set_extension(Arc::new(self));
    }

    /// The environment of the statement within that of its process: with its limits, and a pool that counts.
    pub fn environment(&self, process: &Arc<RuntimeEnv>, disks: Option<&Disks>) -> Result<Arc<RuntimeEnv>> {
        let limited = self.limits.within(process, disks)?;
        Ok(Arc::new(statement_memory::counted(&limited, &self.memory, &self.canceled)))
    }

    /// Has sorts keep back no more memory for merging than fits the statement's: all of a statement together
    /// at most a part of it, if they are as many as threads.
    pub fn fit(&self, config: &mut SessionConfig) {
        let Some(bytes) = self.limits.memory_bytes else { return };
        let share =
            usize::try_from(bytes).unwrap_or(usize::MAX) / (SORT_SHARES * config.target_partitions().max(1));
        let reservation = &mut config.options_mut().execution.sort_spill_reservation_bytes;
        *reservation = share.min(*reservation);
    }

    pub fn of(config: &SessionConfig) -> Option<Arc<Self>> {
        config.get_extension::<Self>()
    }

    /// Puts it among the headers that go along with a plan.
    pub fn write(&self, headers: &mut HeaderMap) {
        let number = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
        let StatementLimits { memory_bytes, spill_bytes } = self.limits;
        let text = format!("{};{};{}", self.statement, number(memory_bytes), number(spill_bytes));
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(HEADER, value);
        }
    }

    pub fn read(headers: &HeaderMap) -> Option<Self> {
        let mut parts = headers.get(HEADER)?.to_str().ok()?.split(';');
        let statement = parts.next()?.parse().ok()?;
        let mut number = || parts.next().and_then(|part| part.parse().ok());
        let limits = StatementLimits { memory_bytes: number(), spill_bytes: number() };
        Some(Self { statement, limits, memory: Arc::default(), canceled: Canceled::default() })
    }
}

/// The environments of the statements that have parts on this rank, by their numbers. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Limited(Arc<Mutex<HashMap<Uuid, Weak<RuntimeEnv>>>>);

impl Limited {
    /// The environment of a statement.
    pub fn of(
        &self,
        scope: &Scope,
        process: &Arc<RuntimeEnv>,
        disks: Option<&Disks>,
    ) -> Result<Arc<RuntimeEnv>> {
        let mut known = self.0.lock();
        if let Some(found) = known.get(&scope.statement).and_then(Weak::upgrade) {
            return Ok(found);
        }
        known.retain(|_, runtime| runtime.strong_count() > 0);
        let made = scope.environment(process, disks)?;
        known.insert(scope.statement, Arc::downgrade(&made));
        Ok(made)
    }
}

/// A statement's share of a process's memory: what it takes is taken of both.
struct StatementPool {
    own: FairMerges,
    process: Arc<dyn MemoryPool>,
    bytes: usize,
}

impl StatementPool {
    fn new(bytes: u64, process: &RuntimeEnv) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Self { own: FairMerges::new(bytes), process: Arc::clone(&process.memory_pool), bytes }
    }
}

impl fmt::Debug for StatementPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StatementPool({} bytes)", self.bytes)
    }
}

impl fmt::Display for StatementPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "statement_pool({} bytes)", self.bytes)
    }
}

impl MemoryPool for StatementPool {
    fn name(&self) -> &str {
        "statement_pool"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.own.register(consumer);
        self.process.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.own.unregister(consumer);
        self.process.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.own.grow(reservation, additional);
        self.process.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.own.shrink(reservation, shrink);
        self.process.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.own.try_grow(reservation, additional)?;
        self.process
            .try_grow(reservation, additional)
            .inspect_err(|_| self.own.shrink(reservation, additional))
    }

    fn reserved(&self) -> usize {
        self.own.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::execution::memory_pool::GreedyMemoryPool;

    fn process(bytes: usize) -> Arc<RuntimeEnv> {
        RuntimeEnvBuilder::new().with_memory_pool(Arc::new(GreedyMemoryPool::new(bytes))).build_arc().unwrap()
    }

    #[test]
    fn a_statement_has_its_limit_and_that_of_all() {
        let process = process(1000);
        let limits = StatementLimits { memory_bytes: Some(600), spill_bytes: None };
        let (one, other) = (limits.within(&process, None).unwrap(), limits.within(&process, None).unwrap());
        let take = |runtime: &Arc<RuntimeEnv>| MemoryConsumer::new("test").register(&runtime.memory_pool);
        let (a, b) = (take(&one), take(&other));
        a.try_grow(600).unwrap();
        assert!(a.try_grow(1).is_err());
        // The process has no more.
        assert!(b.try_grow(500).is_err());
        b.try_grow(400).unwrap();
        assert_eq!((process.memory_pool.reserved(), other.memory_pool.reserved()), (1000, 400));
        drop((a, b));
        assert_eq!(process.memory_pool.reserved(), 0);
    }

    #[test]
    fn parts_of_a_statement_share_its_limit() {
        let (process, limited) = (process(1000), Limited::default());
        let limits = StatementLimits { memory_bytes: Some(100), spill_bytes: Some(7) };
        let (scope, other) = (Scope::new(limits), Scope::new(limits));
        let mut headers = HeaderMap::new();
        scope.write(&mut headers);
        let read = Scope::read(&headers).unwrap();
        assert_eq!((read.statement, read.limits), (scope.statement, scope.limits));
        assert!(Scope::read(&HeaderMap::new()).is_none());
        let of = |scope: &Scope| limited.of(scope, &process, None).unwrap();
        let (one, same) = (of(&scope), of(&read));
        assert!(Arc::ptr_eq(&one, &same));
        assert!(!Arc::ptr_eq(&one, &of(&other)));
        // Whichever part came first, they count together.
        assert!(Arc::ptr_eq(&StatementMemory::of(&same.memory_pool).unwrap(), &scope.memory));
        drop((one, same));
        let _kept = of(&other);
        assert_eq!(limited.0.lock().len(), 1);
    }

    #[test]
    fn the_lower_limit_counts() {
        let limits = |memory_bytes, spill_bytes| StatementLimits { memory_bytes, spill_bytes };
        assert_eq!(limits(Some(1), None).and(limits(Some(2), Some(3))), limits(Some(1), Some(3)));
        assert!(limits(None, None).and(limits(None, None)).is_none());
    }
}
