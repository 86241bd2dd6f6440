//! What a guard of one of DataFusion's rules leaves to the rule, which is its field `0`.

/// Name and order of an `OptimizerRule`.
macro_rules! delegate_optimizer_rule {
    () => {
        fn name(&self) -> &str {
            self.0.name()
        }

        fn apply_order(&self) -> Option<::datafusion::optimizer::ApplyOrder> {
            self.0.apply_order()
        }
    };
}

/// Name and check of a `PhysicalOptimizerRule`.
macro_rules! delegate_physical_rule {
    () => {
        fn name(&self) -> &str {
            self.0.name()
        }

        fn schema_check(&self) -> bool {
            self.0.schema_check()
        }
    };
}

pub(crate) use {delegate_optimizer_rule, delegate_physical_rule};
