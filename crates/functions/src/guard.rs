//! Functions that the planner inserts into plans: optimizer barriers, and checks that fail for a row.

pub mod check_constraint;
pub mod never_true;
pub mod opaque;
pub mod repeated_key;
pub mod row_filter_check;
pub mod single_row_value;
