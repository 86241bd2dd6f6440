//! ORC writer: encodes Arrow record batches as files of format version 1.
//!
//! Architecture invariant: this crate never knows SQL, a plan or a store. It encodes batches, in order, to
//! any [`std::io::Write`].
//!
//! ```text
//! batches ─► columns ──────────────► streams ─► packed chunks ─► stripe ─┐
//!            column.rs, texts.rs     rle.rs     chunks.rs        writer.rs├─► bytes
//!            statistics.rs ─────────► row index, stripe and file statistics ┘
//! ```
//!
//! Integers use version 2 of the run length encoding with SHORT_REPEAT, DIRECT and DELTA runs. PATCHED_BASE,
//! which only saves bytes for runs with outliers, is not written: the stream's compression saves most of
//! these bytes.
//!
//! # Memory bound
//! A stripe is written when its streams reach [`Options::stripe_bytes`]. Until then they are in memory,
//! uncompressed, plus one batch and the statistics of the stripes already written.
//!
//! # Errors
//! After an error the writer is unusable, and its output is not a valid file.
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
