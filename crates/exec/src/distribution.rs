//! Distributed planning: slices and tasks, the motions (exchanges, shuffles) between them, the splits of each
//! rank, colocated joins.

pub(crate) mod bucket_routing;
pub(crate) mod colocated_joins;
pub mod direct_dispatch;
pub(crate) mod distribution_config;
pub(crate) mod gang_planner;
pub mod logical_planner;
pub mod runtime_filters;
pub(crate) mod splits;
pub(crate) mod task_assignment;
pub(crate) mod window_sorts;
