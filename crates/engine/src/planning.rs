//! Planning of statements and expressions: USING columns, SQL stored as text, literals of unknown type,
//! result names.

pub(crate) mod cast_names;
pub(crate) mod coalesce;
pub(crate) mod declared_casts;
pub(crate) mod default_values;
pub(crate) mod delete_alias;
pub(crate) mod generate_series;
pub(crate) mod merge_scope;
pub(crate) mod result_names;
pub(crate) mod returning_items;
pub(crate) mod stored_sql;
pub(crate) mod unknown_literals;
pub(crate) mod using_columns;
