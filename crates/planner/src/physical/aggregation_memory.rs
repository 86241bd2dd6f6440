//! Estimate of whether the states of an aggregate fit into a statement's memory.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use harrier_exec::distribution::direct_dispatch;

/// States fit, with their copies, if the input is smaller than this fraction of the memory.
const MEMORY_SHARE: usize = 16;

/// The assumed size of a column value without statistics, in bytes.
const COLUMN_BYTES: usize = 32;

/// The assumed size of an input without statistics that reads no files, such as a table function, in bytes.
const UNKNOWN_BYTES: usize = 128 << 20;

/// The assumed expansion of text rows relative to their files, which may be compressed.
const FILE_EXPANSION: usize = 8;

/// The memory limits of a process and its statements, for rules that plan by them.
#[derive(Debug, Clone)]
pub struct AggregationMemory {
    runtime: Arc<RuntimeEnv>,
    /// The limit of any statement in bytes; `None`: unlimited.
    statements: Option<u64>,
    /// Reads the statement limit in bytes from a session's settings.
    session: fn(&ConfigOptions) -> Option<usize>,
}

impl AggregationMemory {
    /// `statements`: the limit of any statement in bytes, regardless of its session; `None`: unlimited.
    /// `session`: reads the session's limit.
    pub fn new(
        runtime: Arc<RuntimeEnv>,
        statements: Option<u64>,
        session: fn(&ConfigOptions) -> Option<usize>,
    ) -> Self {
        Self { runtime, statements, session }
    }

    /// Whether states as large as the estimated output of `input` certainly fit.
    ///
    /// Errors: those of estimates.
    pub fn holds(&self, input: &Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<bool> {
        let Some(memory) = self.memory_bytes(config) else { return Ok(true) };
        Ok(bytes_of(input)? < memory / MEMORY_SHARE)
    }

    /// The memory limit of a statement in bytes. `None`: unlimited.
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

/// The estimated output of a plan in bytes.
fn bytes_of(plan: &Arc<dyn ExecutionPlan>) -> Result<usize> {
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new())?;
    let by_rows = statistics
        .num_rows
        .get_value()
        .map(|rows| rows.saturating_mul(COLUMN_BYTES.saturating_mul(plan.schema().fields().len())));
    let estimate = statistics.total_byte_size.get_value().copied().into_iter().chain(by_rows).max();
    Ok(estimate.unwrap_or_else(|| match direct_dispatch::scanned_bytes(plan) {
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
    fn the_smallest_limit_applies() {
        // Another option stands in for the session's limit.
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
