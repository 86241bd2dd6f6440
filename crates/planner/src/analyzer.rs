//! Rules that give a logical plan its meaning: types and casts as PostgreSQL has them, subqueries as joins.

pub mod boolean_text_cast;
pub mod bounded_results;
pub mod bytea_operators;
pub mod checked_arithmetic;
pub mod decimal_float_coercion;
pub mod decorrelation;
pub mod interval_comparison;
pub mod join_condition_subquery;
pub mod like_escape;
pub mod negative_zero;
pub mod outer_level_aggregate;
pub mod outer_reference_names;
pub mod outer_reference_types;
pub mod scalar_subquery;
pub mod session_time_zone;
pub mod set_operation_all;
pub mod set_operation_types;
pub mod subquery_order_by;
pub mod text_casts;
pub mod text_constants;
pub mod timestamp_coercion;
pub mod timestamp_differences;
pub mod timestamp_out_of_range;
pub mod values_subquery;
pub mod window_functions;
pub mod window_peers;
