//! The query planner between the SQL AST and an executable plan: binding of expressions and relations,
//! rewrites of logical and physical plans, cardinality estimates. No I/O, no clock, no ranks.
//!
//! - [`rules`]: the single ordered list of all rules. A new rule gets a file in one of the modules below and
//!   a line there.
//! - [`binder`]: expression and relation planners, which DataFusion calls while it builds a logical plan.
//! - [`analyzer`]: rules that define the meaning of a logical plan: types, casts, subqueries.
//! - [`optimizer`]: rules that preserve the meaning of a logical plan, and guards of DataFusion's rules.
//! - [`physical`]: physical optimizer rules, and guards of DataFusion's rules.
//! - [`cardinality`]: histograms and estimates.
//! - [`join_order`]: the order of joins by cost, over numbered relations.
//! - [`rewrite`]: helpers for rules that replace expressions.
//! - [`cancelable_rules`]: makes every rule stop when its statement is canceled.

pub mod analyzer;
pub mod binder;
pub mod cancelable_rules;
pub mod cardinality;
mod delegation;
mod fallible;
pub mod join_order;
pub mod optimizer;
pub mod physical;
pub mod rewrite;
pub mod rules;
