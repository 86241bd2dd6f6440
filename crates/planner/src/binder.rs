//! Expression and relation planners: they turn SQL syntax into parts of a logical plan.

pub mod array_overlap;
pub mod array_subscript;
pub mod column_aliases;
pub mod decimal_division;
pub mod hive_operators;
pub mod integer_negation;
pub mod integer_shift;
pub(crate) mod integer_width;
pub mod interval_arithmetic;
pub mod map_subscript;
pub mod merge;
pub mod nested_call_names;
pub mod on_conflict;
pub mod operator_chains;
pub mod outer_qualifiers;
pub mod pivot;
pub mod table_functions;
pub mod table_sample;
pub mod values_relation;
