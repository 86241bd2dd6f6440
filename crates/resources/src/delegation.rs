//! What pools of memory leave to the pool behind them, which is their field `pool`.

/// The facts of a `MemoryPool`; its calls are the wrapper's own.
macro_rules! delegate_pool_facts {
    () => {
        fn name(&self) -> &str {
            self.pool.name()
        }

        /// By all users of the pool behind it.
        fn reserved(&self) -> usize {
            self.pool.reserved()
        }

        fn memory_limit(&self) -> ::datafusion::execution::memory_pool::MemoryLimit {
            self.pool.memory_limit()
        }
    };
}

pub(crate) use delegate_pool_facts;
