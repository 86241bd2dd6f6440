//! Aggregates: overflow-checked sums, averages, modes, samples, and lists.

pub mod average;
pub mod checked_sum;
pub mod decimal_sum;
pub mod extremes;
pub mod float_sum;
pub mod growing_state;
pub mod interval_sum;
pub mod mode;
pub mod reservoir_sample;
