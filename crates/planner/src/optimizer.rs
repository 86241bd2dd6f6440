//! Optimizer rules that preserve the meaning of a logical plan, and guards that stop DataFusion's from
//! changing it.

pub mod columnless_windows;
pub mod computed_sort_keys;
pub mod distinct_list_aggregates;
pub mod duplicate_sort_keys;
pub mod duplicate_windows;
pub mod filter_pushdown;
pub mod join_chain_limit;
pub mod schema_refresh;
pub mod short_circuit;
pub mod simplification;
pub mod unique_keys;
