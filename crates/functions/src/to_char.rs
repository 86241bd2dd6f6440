//! PostgreSQL's formatting patterns of dates, times and numbers: `to_char`, `to_timestamp`, `to_date` and
//! `to_number`. Ranks know the functions by their names.
//!
//! ```text
//!   'DD.MM.YYYY "at" HH24:MI' ─► template.rs: pieces ─► moments.rs: text of a moment, or the moment of a text
//!   'FM999,990.00'            ─────────────────────────► numbers.rs: text of a number, or the number of a text
//! ```
//!
//! Source: PostgreSQL's `formatting.c` and its documentation, "Data Type Formatting Functions".

mod functions;
mod moments;
mod numbers;
mod template;

pub(crate) use functions::functions;
pub use functions::{to_char, to_date, to_number, to_timestamp};
