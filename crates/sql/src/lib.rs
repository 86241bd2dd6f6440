//! The text of SQL, as one statement: split, cut into tokens once, parsed and put into words that the planner
//! knows. Nothing here knows a catalog, a plan, or a session.
//!
//! ```text
//! text ─► splitter ─► Tokens ─► parser::parse ─► Parsed { Statement, clauses } ─► desugar ─► the planner
//!                     tokens/   parser/                                           desugar/
//! ```
//!
//! A statement is added in three places: a variant of [`Statement`], a function that parses it in `parser/`,
//! called by [`parse`], and one that runs it in crate `engine`. `README.md` shows one.

pub mod ast_builder;
pub mod column_names;
pub mod desugar;
pub mod dialect;
pub mod file_names;
pub mod identifier;
pub mod nesting;
pub mod parser;
pub mod splitter;
pub mod tokens;
pub mod words;

pub use parser::{ParseOptions, Parsed, Statement, parse};
pub use tokens::Tokens;
