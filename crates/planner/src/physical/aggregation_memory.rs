//! Whether the states of an aggregate may take more memory than a statement has.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use harrier_exec::distribution::direct_dispatch;

/// States of rows that take less than such a part of the memory fit into it, with their copies.
const MEMORY_SHARE: usize = 16;

/// Bytes of a column's value of which nothing is known.
const COLUMN_BYTES: usize = 32;

/// Bytes of rows of which nothing is known and that come from no file, such as those of functions.
const UNKNOWN_BYTES: usize = 128 << 20;

/// How many times as long as their files rows of texts may be: files may be compressed.
const FILE_EXPANSION: usize = 8;

/// The memory of a process and the limit of its statements, for rules that plan by them.
#[derive(Debug, Clone)]
pub struct AggregationMemory {
    runtime: Arc<RuntimeEnv>,
    /// What any statement may take, in bytes; `None`: as much as there is.
    statements: Option<u64>,
    /// What a statement of a session may take, in bytes, as the session says.
    session: fn(&ConfigOptions) -> Option<usize>,
}

impl AggregationMemory {
    /// `statements`: bytes that any statement may take, whatever its session says; `None`: as many as there
    /// are. `session`: reads what the session says.
    pub fn new(
        runtime: Arc<RuntimeEnv>,
        statements: Option<u64>,
        session: fn(&ConfigOptions) -> Option<usize>,
    ) -> Self {
        Self { runtime, statements, session }
    }

    /// Whether states that are as long as what `input` is expected to yield fit for certain.
    ///
    /// Errors: those of estimates.
    pub fn holds(&self, input: &Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<bool> {
        let Some(memory) = self.memory_bytes(config) else { return Ok(true) };
        Ok(bytes_of(input)? < memory / MEMORY_SHARE)
    }

    /// Bytes that a statement may take. `None`: as many as there are.
    fn memory_bytes(&self, config: &ConfigOptions) -> Option<usize> {
        let session = (self.session)(config);
        let statements = self.statements.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let process = match self.runtime.memory_pool.memory_limit() {
            MemoryLimit::Finite(bytes) => Some(bytes),
            MemoryLimit::Infinite | MemoryLimit::Unknown => None,
        };
        session.into_iter().chain(statements).chain(process).min()
    }
}

/// Bytes that a plan is expected to yield.
fn bytes_of(plan: &Arc<dyn ExecutionPlan>) -> Result<usize> {
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new())?;
    let by_rows = statistics
        .num_rows
        .get_value()
        .map(|rows| rows.saturating_mul(COLUMN_BYTES.saturating_mul(plan.schema().fields().len())));
    let told = statistics.total_byte_size.get_value().copied().into_iter().chain(by_rows).max();
    Ok(told.unwrap_or_else(|| match direct_dispatch::scanned_bytes(plan) {
        0 => UNKNOWN_BYTES,
        bytes => bytes.saturating_mul(FILE_EXPANSION),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;

    #[test]
    fn the_least_of_all_limits_counts() {
        // Another option stands for that of the session.
        let session_memory = |config: &ConfigOptions| config.explain.tree_maximum_render_width.checked_sub(1);
        let config = |session: Option<usize>| {
            let mut config = ConfigOptions::new();
            config.explain.tree_maximum_render_width = session.map_or(0, |bytes| bytes + 1);
            config
        };
        let memory = |process: Option<usize>, statements, session| {
            let mut runtime = RuntimeEnvBuilder::new();
            if let Some(bytes) = process {
                runtime = runtime.with_memory_pool(Arc::new(GreedyMemoryPool::new(bytes)));
            }
            AggregationMemory::new(runtime.build_arc().unwrap(), statements, session_memory)
                .memory_bytes(&config(session))
        };
        assert_eq!(memory(None, None, None), None);
        assert_eq!(memory(Some(9), None, None), Some(9));
        assert_eq!(memory(Some(9), Some(5), None), Some(5));
        assert_eq!(memory(None, Some(5), Some(7)), Some(5));
        assert_eq!(memory(Some(9), Some(8), Some(7)), Some(7));
        assert_eq!(memory(Some(4), Some(8), Some(7)), Some(4));
    }
}
