//! Writes ORC files, version 1 of the format, from Arrow's record batches.
//!
//! Architecture invariant: this crate never knows SQL, a plan or a store: it turns batches into bytes, in
//! order, for any [`std::io::Write`].
//!
//! ```text
//! batches ─► columns ──────────────► streams ─► packed chunks ─► stripe ─┐
//!            column.rs, texts.rs     rle.rs     chunks.rs        writer.rs├─► bytes
//!            statistics.rs ─────────► row index, stripe and file statistics ┘
//! ```
//!
//! Integers are written in version 2 of the run length encoding, in its runs SHORT_REPEAT, DIRECT and DELTA.
//! PATCHED_BASE, which only saves bytes where a run has outliers, is not: what it saves is mostly saved by
//! the compression of the stream.
//!
//! # Memory bound
//! A stripe is written when its streams have [`Options::stripe_bytes`]. Until then they are in memory, not
//! compressed; beyond them there are one batch, and the statistics of the stripes written before.
//!
//! # Errors
//! After an error the writer is of no more use, and what it has written is no file.
//!
//! # Source
//! The ORC specification v1 (<https://orc.apache.org/specification/ORCv1/>).

mod chunks;
mod column;
mod error;
mod proto;
mod rle;
mod statistics;
#[cfg(test)]
mod tests;
mod texts;
mod types;
mod writer;

pub use chunks::Codec;
pub use error::{Error, Result};
pub use types::check;
pub use writer::{Options, Writer};
