//! The input of COPY … FROM STDIN.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use tokio::sync::mpsc;

use crate::statement::write::Write;

/// A COPY … FROM STDIN: run `write` while feeding `input`; it finishes after `input` is dropped.
pub struct CopyIn {
    /// The rows as text, in chunks of any size.
    pub input: mpsc::Sender<bytes::Bytes>,
    pub write: Write,
    /// The target table, for error messages.
    pub table: String,
    /// The columns that the rows have values for.
    pub schema: SchemaRef,
}

/// A COPY … FROM STDIN in binary format, decoded by the protocol layer: takes batches of `schema`. Otherwise
/// like [`CopyIn`].
pub struct CopyInRows {
    pub input: mpsc::Sender<RecordBatch>,
    pub write: Write,
    pub table: String,
    pub schema: SchemaRef,
}
