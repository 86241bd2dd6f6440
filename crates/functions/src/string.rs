//! Texts: their lengths, and regular expressions.

pub mod length;
pub mod patterns;
pub mod regexp_matches;
pub mod regexp_replace;
pub mod text_or_bytes;
