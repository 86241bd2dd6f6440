//! SQL front end: splits text into statements, tokenizes each once, parses it and desugars it for
//! DataFusion's planner. Independent of catalog, plans and sessions.
//!
//! ```text
//! text ─► splitter ─► Tokens ─► parser::parse ─► Parsed { Statement, clauses } ─► desugar ─► the planner
//!                     tokens/   parser/                                           desugar/
//! ```
//!
//! To add a statement: a variant of [`Statement`], a parse function in `parser/` called by [`parse`], and an
//! executor in crate `engine`. `README.md` shows an example.

pub mod ast_builder;
pub mod column_names;
pub mod desugar;
pub mod dialect;
pub mod file_names;
pub mod hive;
pub mod identifier;
pub mod language;
pub mod nesting;
pub mod on_conflict;
pub mod parser;
mod query_depth;
pub mod splitter;
pub mod tokens;
pub mod words;

pub use parser::{ParseOptions, Parsed, Statement, parse};
pub use tokens::Tokens;
