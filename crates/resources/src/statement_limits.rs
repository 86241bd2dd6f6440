//! Memory and spill limits of one statement on every process that works for it.
//!
//! Each statement has a memory pool in front of the process's pool, which counts its memory even without a
//! limit (`resources/src/statement_memory.rs`). A limit adds a memory pool and a counter of spilled bytes for
//! the statement in front of those of the process. On ranks, the slices of a statement share these by its
//! number: together they have one limit per rank.
//!
//! Errors: memory that cannot spill is refused with 53200, as when the process has none left; spilling beyond
//! the limit fails with 53400.

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

use crate::cancellation::CancelFlag;
use crate::fair_merge_pool::FairMergePool;
use crate::spill_disks::{Disks, SpillLimits};
use crate::statement_memory::{self, StatementMemory};

/// All sorts of a statement together reserve at most this fraction of its memory for merging.
pub const SORT_SHARES: usize = 4;

const HEADER: HeaderName = HeaderName::from_static("x-harrier-limits");

/// Limits of one statement. `None`: unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatementLimits {
    /// Bytes of memory per process.
    pub memory_bytes: Option<u64>,
    /// Bytes of temporary files per process.
    pub spill_bytes: Option<u64>,
    /// The statement writes no temporary files while all of a process have this many bytes.
    pub process_spill_bytes: Option<u64>,
}

impl StatementLimits {
    /// The lower of both limits.
    pub fn lower_of(self, other: Self) -> Self {
        let lower = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        Self {
            memory_bytes: lower(self.memory_bytes, other.memory_bytes),
            spill_bytes: lower(self.spill_bytes, other.spill_bytes),
            process_spill_bytes: lower(self.process_spill_bytes, other.process_spill_bytes),
        }
    }

    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    /// Derives the environment of one statement from that of its process.
    fn within(self, process: &Arc<RuntimeEnv>, disks: Option<&Disks>) -> Result<Arc<RuntimeEnv>> {
        if self.is_none() {
            return Ok(Arc::clone(process));
        }
        let mut runtime = RuntimeEnvBuilder::from_runtime_env(process);
        if let Some(bytes) = self.memory_bytes {
            runtime = runtime.with_memory_pool(Arc::new(StatementPool::new(bytes, process)));
        }
        let spill =
            SpillLimits { statement_bytes: self.spill_bytes, process_bytes: self.process_spill_bytes };
        if let (true, Some(disks)) = (spill != SpillLimits::default(), disks) {
            let fan_in = process.disk_manager.max_spill_merge_fan_in();
            let disks = DiskManagerMode::Custom(Arc::new(disks.for_statement(spill)));
            let disks = DiskManagerBuilder::default()
                .with_mode(disks)
                .with_max_temp_directory_size(process.disk_manager.max_temp_directory_size())
                .with_max_spill_merge_fan_in(fan_in);
            runtime = runtime.with_disk_manager_builder(disks);
        }
        runtime.build_arc()
    }
}

/// The limits and memory counters of one statement, shared by its slices on a rank. An extension of the
/// session's settings.
#[derive(Debug, Clone)]
pub struct Scope {
    statement: Uuid,
    pub limits: StatementLimits,
    /// Counters of this process, and those reported by other ranks.
    pub memory: Arc<StatementMemory>,
    /// The statement's cancellation flag.
    pub canceled: CancelFlag,
}

impl Scope {
    /// For a new statement; takes its flag from [`CancelFlag::current`] if there is one.
    pub fn new(limits: StatementLimits) -> Self {
        let canceled = CancelFlag::current().unwrap_or_default();
        Self { statement: Uuid::new_v4(), limits, memory: Arc::default(), canceled }
    }

    /// Adds it to the settings that the statement is planned and run with.
    pub fn set(self, config: &mut SessionConfig) {
        config.set_extension(Arc::new(self));
    }

    /// The environment of the statement derived from that of its process, with its limits and a counting
    /// pool.
    pub fn environment(&self, process: &Arc<RuntimeEnv>, disks: Option<&Disks>) -> Result<Arc<RuntimeEnv>> {
        let limited = self.limits.within(process, disks)?;
        Ok(Arc::new(statement_memory::with_counting_pool(&limited, &self.memory, &self.canceled)))
    }

    /// Lowers the merge reservation of sorts to fit the statement's limit: all sorts together reserve at most
    /// a fraction of it, if they are as many as threads.
    pub fn limit_sort_reservation(&self, config: &mut SessionConfig) {
        let Some(bytes) = self.limits.memory_bytes else { return };
        let share =
            usize::try_from(bytes).unwrap_or(usize::MAX) / (SORT_SHARES * config.target_partitions().max(1));
        let reservation = &mut config.options_mut().execution.sort_spill_reservation_bytes;
        *reservation = share.min(*reservation);
    }

    pub fn of(config: &SessionConfig) -> Option<Arc<Self>> {
        config.get_extension::<Self>()
    }

    /// Writes it to the headers sent with a plan.
    pub fn write(&self, headers: &mut HeaderMap) {
        let number = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
        let StatementLimits { memory_bytes, spill_bytes, process_spill_bytes } = self.limits;
        let [memory, spill, process] = [memory_bytes, spill_bytes, process_spill_bytes].map(number);
        let text = format!("{};{memory};{spill};{process}", self.statement);
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(HEADER, value);
        }
    }

    pub fn read(headers: &HeaderMap) -> Option<Self> {
        let mut parts = headers.get(HEADER)?.to_str().ok()?.split(';');
        let statement = parts.next()?.parse().ok()?;
        let mut number = || parts.next().and_then(|part| part.parse().ok());
        let (memory_bytes, spill_bytes, process_spill_bytes) = (number(), number(), number());
        let limits = StatementLimits { memory_bytes, spill_bytes, process_spill_bytes };
        Some(Self { statement, limits, memory: Arc::default(), canceled: CancelFlag::default() })
    }
}

/// The environments of the statements that have slices on this rank, by statement number. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct StatementEnvironments(Arc<Mutex<HashMap<Uuid, Weak<RuntimeEnv>>>>);

impl StatementEnvironments {
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

/// A statement's memory pool: each reservation is taken from it and from the process's pool.
struct StatementPool {
    own: FairMergePool,
    process: Arc<dyn MemoryPool>,
    bytes: usize,
}

impl StatementPool {
    fn new(bytes: u64, process: &RuntimeEnv) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Self { own: FairMergePool::new(bytes), process: Arc::clone(&process.memory_pool), bytes }
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
    fn statements_obey_own_and_total_limits() {
        let process = process(1000);
        let limits = StatementLimits { memory_bytes: Some(600), ..StatementLimits::default() };
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
        let (process, limited) = (process(1000), StatementEnvironments::default());
        let limits =
            StatementLimits { memory_bytes: Some(100), spill_bytes: Some(7), process_spill_bytes: Some(9) };
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
        // Whichever slice came first, they share one counter.
        assert!(Arc::ptr_eq(&StatementMemory::of(&same.memory_pool).unwrap(), &scope.memory));
        drop((one, same));
        let _kept = of(&other);
        assert_eq!(limited.0.lock().len(), 1);
    }

    #[test]
    fn the_lower_limit_counts() {
        let limits = |memory_bytes, spill_bytes| StatementLimits {
            memory_bytes,
            spill_bytes,
            process_spill_bytes: spill_bytes,
        };
        assert_eq!(limits(Some(1), None).lower_of(limits(Some(2), Some(3))), limits(Some(1), Some(3)));
        assert!(limits(None, None).lower_of(limits(None, None)).is_none());
    }
}
