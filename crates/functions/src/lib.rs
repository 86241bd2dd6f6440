//! SQL functions with PostgreSQL's semantics, by name: scalar functions, aggregates and window functions.
//!
//! A plan that travels to other ranks contains functions by name only, so every session that decodes plans
//! has all of them ([`registry::install`]), and each returns the same value on every rank. They do no I/O and
//! do not depend on plans.
//!
//! - Modules by topic: [`math`], [`string`], [`datetime`], [`json`], [`aggregate`], [`window`], [`cast`],
//!   [`hash`]; [`parse`] and [`format`] are PostgreSQL's input and output functions of types; [`to_char`] its
//!   patterns. [`postgres_functions`] are tables of definitions that are evaluated row by row: most new
//!   functions belong there.
//! - [`guard`]: functions inserted by planners, not called by users.
//! - [`bounded_result`], [`interruptible`] and [`array_elements`] wrap DataFusion's functions: those with
//!   large results, those that run long, and those of an array and a value.

pub mod aggregate;
mod array_assign;
pub mod array_elements;
pub mod array_or_empty;
mod array_remove;
pub mod array_slice;
pub mod bounded_result;
pub mod cast;
pub mod datetime;
mod delegation;
pub mod format;
pub mod guard;
pub mod hash;
pub mod hive;
pub mod interruptible;
pub mod json;
pub mod math;
pub mod nested_order;
mod nullif;
pub mod parse;
pub mod postgres_functions;
pub mod registry;
mod series;
mod signed_counts;
pub mod string;
pub mod to_char;
pub mod uuid_text;
pub mod window;
