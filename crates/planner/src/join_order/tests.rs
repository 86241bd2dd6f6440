//! Tests of the order of joins: meaning, optimum, size and ties.

mod interpreter;
mod random_trees;
mod reordering;
