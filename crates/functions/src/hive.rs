//! Functions of HiveQL that mean something else than the functions of their names in PostgreSQL, or that it
//! does not have. They are called `hive_…`: crate `sql` rewrites the calls of statements in HiveQL to these
//! names, and ranks find them by these.
//!
//! What has no value in Hive is NULL and no error: a text that is no number, a date that does not exist.
//!
//! Source: Hive Language Manual, "Operators and User-Defined Functions"; classes `GenericUDF…` of Hive 4.0.1.

use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;

use crate::postgres_functions::of_tables;

mod casts;
mod java_dates;
mod nested;
mod numbers;
mod regex_cache;
mod texts;
mod times;
mod web;

pub use casts::to_type;

pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    of_tables([numbers::DEFINITIONS, texts::DEFINITIONS, times::DEFINITIONS, web::DEFINITIONS])
        .chain(casts::functions())
        .chain(nested::functions())
        .chain([numbers::round(), numbers::bround()])
}
