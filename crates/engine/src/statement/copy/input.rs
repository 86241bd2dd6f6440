//! The input of COPY … FROM STDIN.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use tokio::sync::mpsc;

use crate::statement::write::Write;

/// A COPY … FROM STDIN: `write` runs while `input` is fed, and ends after that was dropped.
pub struct CopyIn {
    /// The rows as text, cut anywhere.
    pub input: mpsc::Sender<bytes::Bytes>,
    pub write: Write,
    /// The table that the rows go into, for errors.
    pub table: String,
    /// Of the columns that rows have values for.
    pub schema: SchemaRef,
}

/// A COPY … FROM STDIN in binary, which is not read here: batches of `schema` come in. Otherwise as
/// [`CopyIn`].
pub struct CopyInRows {
    pub input: mpsc::Sender<RecordBatch>,
    pub write: Write,
    pub table: String,
    pub schema: SchemaRef,
}
