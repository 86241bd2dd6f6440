//! Apache Thrift's binary protocol, of which HiveServer2 and the Hive Metastore are made: values, messages,
//! and the frames that SASL puts around them.
//!
//! ```text
//! bytes of a connection ─► sasl: frame ─► message ─► value ─► field(1), field(2), …
//! ```
//!
//! There is no generated code: a reader knows the fields of a struct by their numbers, and ignores others, so
//! that peers of other versions are understood.
//!
//! Architecture Invariant: this crate opens no connection, and knows no service.
//!
//! Source: "Thrift Binary protocol encoding" of Apache Thrift's specification; `TSaslTransport` of its
//! libraries.

mod decode;
mod message;
mod sasl;
mod value;

pub use decode::{DecodeError, DecodeLimits};
pub use message::{ApplicationError, Kind, Message};
pub use sasl::{FRAME_BYTES, Negotiation, SaslStatus, frame, frame_length};
pub use value::{ThriftValue, Type};
