//! Tests of join ordering: semantics, reordering freedom, optimum, size, ties and estimates.

mod conflict_rules;
mod estimates;
mod interpreter;
mod join_search;
mod random_trees;
mod reordering;
