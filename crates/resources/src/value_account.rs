//! Memory accounting of function results: a function allocates its result without asking the memory pool, and
//! one call can exceed a machine's memory.
//!
//! A function reserves the bytes of its result before it allocates, and the result's buffer releases them
//! when freed. The account is separate from the memory pool and a quarter of its size: operators already
//! reserve their input there, and it must not count twice. A process has one account; a statement with a
//! memory limit has its own in front of it.
//!
//! An account is an extension of the settings that physical expressions are created with. Without one, a
//! statement is being planned: constants are folded then, see [`harrier_functions::bounded_result`].
//!
//! Errors: a full account refuses with `ResourcesExhausted` (53200).

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use datafusion::arrow::array::{Array, ArrayData, ArrayRef, make_array};
use datafusion::arrow::buffer::Buffer;
use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;

use crate::cancellation::CancelFlag;
use crate::delegation::delegate_pool_facts;
use crate::statement_limits::Scope;

/// Divisor of a process's memory for function results. By default, operators of a process have four fifths of
/// a machine's memory.
const SHARE: u64 = 4;

/// Minimum size of a process's account, bytes.
const BYTES_MIN: u64 = 64 << 20;

/// The account of a process without a memory limit.
static WITHOUT_LIMIT: LazyLock<Arc<Balance>> =
    LazyLock::new(|| Arc::new(Balance::new(share_of(machine_bytes().unwrap_or(u64::MAX)))));

fn share_of(memory_bytes: u64) -> u64 {
    (memory_bytes / SHARE).max(BYTES_MIN)
}

fn machine_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Reserved bytes, and their limit.
#[derive(Debug)]
struct Balance {
    bytes_max: u64,
    bytes: AtomicU64,
}

impl Balance {
    fn new(bytes_max: u64) -> Self {
        Self { bytes_max, bytes: AtomicU64::new(0) }
    }

    fn try_add(&self, bytes: u64) -> bool {
        let fits = |held: u64| held.checked_add(bytes).filter(|held| *held <= self.bytes_max);
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    fn subtract(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A process's memory pool with its account of function results.
pub struct AccountedPool {
    pool: Arc<dyn MemoryPool>,
    balance: Arc<Balance>,
}

impl AccountedPool {
    /// `memory_bytes`: size of the pool.
    pub fn new(pool: Arc<dyn MemoryPool>, memory_bytes: u64) -> Self {
        Self::with_account(pool, share_of(memory_bytes))
    }

    fn with_account(pool: Arc<dyn MemoryPool>, bytes_max: u64) -> Self {
        Self { pool, balance: Arc::new(Balance::new(bytes_max)) }
    }
}

impl fmt::Debug for AccountedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.fmt(f)
    }
}

impl fmt::Display for AccountedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pool)
    }
}

impl MemoryPool for AccountedPool {
    delegate_pool_facts!();

    fn register(&self, consumer: &MemoryConsumer) {
        self.pool.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.pool.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.pool.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.pool.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.pool.try_grow(reservation, additional)
    }
}

/// The account that a statement's functions reserve from.
#[derive(Debug, Clone)]
pub struct Account {
    process: Arc<Balance>,
    statement: Option<Arc<Balance>>,
    canceled: CancelFlag,
}

impl Account {
    /// The account of a statement with these limits, if any, in a process with this environment.
    pub fn new(process: &RuntimeEnv, scope: Option<&Scope>, canceled: CancelFlag) -> Self {
        let pool: &dyn Any = process.memory_pool.as_ref();
        let accounted = pool.downcast_ref::<AccountedPool>();
        let process = accounted.map_or_else(|| Arc::clone(&WITHOUT_LIMIT), |pool| Arc::clone(&pool.balance));
        let bytes_max = scope.and_then(|scope| scope.limits.memory_bytes);
        Self { process, statement: bytes_max.map(|bytes_max| Arc::new(Balance::new(bytes_max))), canceled }
    }

    /// A private account of this size.
    pub fn of_bytes(bytes_max: u64) -> Self {
        Self { process: Arc::new(Balance::new(bytes_max)), statement: None, canceled: CancelFlag::default() }
    }

    /// The process's account, for a statement with this flag.
    pub fn with_flag(canceled: CancelFlag) -> Self {
        Self { canceled, ..Self::of_process() }
    }

    /// The process's account, without a known process.
    pub fn of_process() -> Self {
        Self { process: Arc::clone(&WITHOUT_LIMIT), statement: None, canceled: CancelFlag::default() }
    }

    /// The account in these settings; `None` while a statement is planned.
    pub fn of(options: &ConfigOptions) -> Option<&Self> {
        options.extensions.get::<Self>()
    }

    /// Makes functions planned with these settings reserve their results.
    pub fn install(self, options: &mut ConfigOptions) {
        options.extensions.insert(self);
    }

    /// The session with the account of the statement being planned: for its physical plan, not for constant
    /// folding by the optimizer.
    pub fn in_session(state: &SessionState) -> SessionState {
        let scope = Scope::of(state.config());
        let flag = || scope.as_ref().map(|scope| scope.canceled.clone());
        let canceled = CancelFlag::current().or_else(flag).unwrap_or_default();
        let account = Self::new(state.runtime_env(), scope.as_deref(), canceled);
        let mut state = state.clone();
        let mut options = state.config_options().as_ref().clone();
        account.install(&mut options);
        state.execution_props_mut().config_options = Some(Arc::new(options));
        state
    }

    /// The statement's cancellation flag.
    pub fn cancel_flag(&self) -> &CancelFlag {
        &self.canceled
    }

    /// Reserved bytes of the process.
    pub fn bytes(&self) -> u64 {
        self.process.bytes.load(Ordering::Relaxed)
    }

    /// Reserves `bytes` for the result of `function`.
    ///
    /// Errors: not enough bytes are left (53200).
    pub fn reserve(&self, function: &str, bytes: u64) -> Result<Reservation> {
        let refuse = |balance: &Balance| {
            let (held, bytes_max) = (balance.bytes.load(Ordering::Relaxed), balance.bytes_max);
            Err(DataFusionError::ResourcesExhausted(format!(
                "{bytes} bytes for values of {function}() with {held} of {bytes_max} bytes in use"
            )))
        };
        if let Some(statement) = &self.statement
            && !statement.try_add(bytes)
        {
            return refuse(statement);
        }
        if !self.process.try_add(bytes) {
            if let Some(statement) = &self.statement {
                statement.subtract(bytes);
            }
            return refuse(&self.process);
        }
        Ok(Reservation { account: self.clone(), bytes })
    }
}

impl ConfigExtension for Account {
    const PREFIX: &'static str = "harrier_account";
}

impl ExtensionOptions for Account {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _: &str) -> Result<()> {
        Err(DataFusionError::Configuration(format!("could not find config value for key \"{key}\"")))
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}

/// Reserved bytes of an account, released on drop.
#[derive(Debug)]
pub struct Reservation {
    account: Account,
    bytes: u64,
}

impl Reservation {
    /// Releases the excess over `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        let over = self.bytes.saturating_sub(bytes);
        self.bytes -= over;
        self.release(over);
    }

    fn release(&self, bytes: u64) {
        self.account.process.subtract(bytes);
        if let Some(statement) = &self.account.statement {
            statement.subtract(bytes);
        }
    }

    /// Attaches the reservation to the array's largest buffer, whoever holds that buffer later.
    pub fn attach_to(mut self, array: &dyn Array) -> Result<ArrayRef> {
        self.shrink_to(array.get_array_memory_size() as u64);
        let data = array.to_data();
        let bytes = largest(&data);
        if bytes == 0 {
            return Ok(make_array(data));
        }
        let mut held = Some(self);
        Ok(make_array(with_owner(data, bytes, &mut held)?))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release(self.bytes);
    }
}

/// Length of the largest buffer, bytes.
fn largest(data: &ArrayData) -> usize {
    let own = data.buffers().iter().map(Buffer::len).max().unwrap_or(0);
    data.child_data().iter().map(largest).fold(own, usize::max)
}

/// Makes one buffer of this length the owner of `held`.
fn with_owner(data: ArrayData, bytes: usize, held: &mut Option<Reservation>) -> Result<ArrayData> {
    if held.is_none() || largest(&data) != bytes {
        return Ok(data);
    }
    let owned =
        |buffer: &Buffer, held: &mut Option<Reservation>| match held.take_if(|_| buffer.len() == bytes) {
            Some(held) => Buffer::from(Bytes::from_owner(Owner { buffer: buffer.clone(), _held: held })),
            None => buffer.clone(),
        };
    let buffers = data.buffers().iter().map(|buffer| owned(buffer, held)).collect();
    let mut children = Vec::with_capacity(data.child_data().len());
    for child in data.child_data() {
        children.push(with_owner(child.clone(), bytes, held)?);
    }
    Ok(data.into_builder().buffers(buffers).child_data(children).build()?)
}

struct Owner {
    buffer: Buffer,
    _held: Reservation,
}

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement_limits::StatementLimits;
    use datafusion::arrow::array::{AsArray, Int64Array, ListArray, StringArray};
    use datafusion::arrow::datatypes::Int64Type;
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;

    #[test]
    fn bytes_are_released_with_the_buffer() {
        let account = Account::of_bytes(1 << 20);
        let texts = StringArray::from_iter_values((0..1000).map(|number| format!("text {number}")));
        let owned = account.reserve("f", 1 << 19).unwrap().attach_to(&texts).unwrap();
        assert_eq!(owned.as_string::<i32>(), &texts);
        assert_eq!(account.bytes(), texts.get_array_memory_size() as u64);
        let slice = owned.slice(3, 1);
        drop(owned);
        assert!(account.bytes() > 0);
        drop(slice);
        assert_eq!(account.bytes(), 0);
    }

    #[test]
    fn elements_of_lists_hold_them_too() {
        let account = Account::of_bytes(1 << 20);
        let lists = (0..10).map(|_| Some((0..100).map(Some)));
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(lists);
        let owned = account.reserve("f", 1 << 19).unwrap().attach_to(&lists).unwrap();
        assert_eq!(owned.as_list::<i32>(), &lists);
        let elements = Arc::clone(owned.as_list::<i32>().values());
        drop(owned);
        assert!(account.bytes() > 0);
        drop(elements);
        assert_eq!(account.bytes(), 0);
    }

    #[test]
    fn empty_results_hold_no_memory() {
        let account = Account::of_bytes(100);
        let none =
            account.reserve("f", 100).unwrap().attach_to(&Int64Array::from(Vec::<i64>::new())).unwrap();
        assert_eq!(none.len(), 0);
        drop(none);
        assert_eq!(account.bytes(), 0);
    }

    #[test]
    fn statements_obey_own_and_total_limits() {
        let pool = AccountedPool::with_account(Arc::new(GreedyMemoryPool::new(1000)), 1000);
        let process = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(pool)).build_arc().unwrap();
        let scope = || Scope::new(StatementLimits { memory_bytes: Some(600), ..StatementLimits::default() });
        let of = |scope: Option<&Scope>| Account::new(&process, scope, CancelFlag::default());
        let (one, other) = (of(Some(&scope())), of(Some(&scope())));
        let first = one.reserve("f", 600).unwrap();
        assert!(one.reserve("f", 1).is_err());
        assert!(other.reserve("f", 500).is_err());
        let second = other.reserve("f", 400).unwrap();
        assert!(of(None).reserve("f", 1).is_err());
        drop((first, second));
        assert_eq!((one.bytes(), other.bytes()), (0, 0));
        assert!(one.reserve("f", u64::MAX).is_err());
        assert_eq!(process.memory_pool.reserved(), 0);
    }
}
