//! Physical optimizer rules, and guards of DataFusion's.

pub mod aggregate_statistics_guard;
pub mod aggregation_memory;
pub mod compact_string_views;
pub mod cooperative_joins;
pub mod filter_pushdown_guard;
pub mod grouping_set_properties;
pub mod grouping_sets;
pub mod join_orderings;
pub mod join_reordering;
pub mod limit_pushdown_guard;
pub mod offset_limits;
pub mod outer_join_properties;
pub mod required_orderings;
pub mod shared_subplans;
pub mod single_stage_aggregation;
pub mod sorted_aggregation;
