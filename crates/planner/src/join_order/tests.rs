//! Tests of the order of joins: meaning, freedom, optimum, size, ties and estimates.

mod estimates;
mod conflict_rules;
mod interpreter;
mod random_trees;
mod reordering;
mod join_search;
