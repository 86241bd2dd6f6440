//! From SQL's syntax to a plan that runs: how expressions and relations are bound, what is changed in logical
//! and in physical plans, and how many rows are expected of each. No I/O, no clock, and nothing of ranks.
//!
//! - [`rules`]: the one list of all rules, in their order. A rule that is added gets a file in a room and a
//!   line there.
//! - [`binder`]: planners of expressions and relations, which DataFusion asks while it makes a logical plan
//!   of a statement's syntax.
//! - [`analyzer`]: rules that give a logical plan its meaning: types, casts, subqueries.
//! - [`optimizer`]: rules that keep the meaning of a logical plan, and guards of DataFusion's.
//! - [`physical`]: rules on physical plans, and guards of DataFusion's.
//! - [`cardinality`]: histograms and estimates.
//! - [`rewrite`]: the helpers by which rules put one expression into the place of another.
//! - [`cancelable_rules`]: has every rule end when its statement is given up.

pub mod analyzer;
pub mod binder;
pub mod cancelable_rules;
pub mod cardinality;
mod fallible;
pub mod optimizer;
pub mod physical;
pub mod rewrite;
pub mod rules;
