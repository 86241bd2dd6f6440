//! COPY … TO STDOUT: rows as text, in the format that files have, too.

use bytes::Bytes;

use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use harrier_sql::parser::copy::Header;

use crate::SqlError;
use crate::copy_format::encode::{encode, encode_json, header};
use crate::copy_format::layout::Layout;
use crate::runtime::progress::PlanProgress;

/// A COPY TO STDOUT; returns its text in chunks. Dropping it cancels the statement.
pub struct CopyOut {
    stream: SendableRecordBatchStream,
    pub progress: PlanProgress,
    /// `None`: one JSON object per line.
    layout: Option<Layout>,
    text: String,
    rows: usize,
    has_begun: bool,
}

impl CopyOut {
    pub(crate) fn new(
        stream: SendableRecordBatchStream,
        progress: PlanProgress,
        layout: Option<Layout>,
        text: String,
    ) -> Self {
        Self { stream, progress, layout, text, rows: 0, has_begun: false }
    }

    /// Wraps the row stream.
    pub(crate) fn map_stream(
        self,
        way: impl FnOnce(SendableRecordBatchStream) -> SendableRecordBatchStream,
    ) -> Self {
        Self { stream: way(self.stream), ..self }
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.stream.schema().fields().len()
    }

    /// The next rows as text; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, SqlError> {
        if !self.has_begun {
            self.has_begun = true;
            if let Some(layout) = self.layout.as_ref().filter(|layout| layout.header != Header::Absent) {
                return Ok(Some(header(&self.stream.schema(), layout).into()));
            }
        }
        let Some(batch) = self.stream.next().await else {
            return Ok(None);
        };
        let batch = batch.map_err(|error| crate::error::in_statement(&error, &self.text))?;
        self.rows += batch.num_rows();
        let encoded = match &self.layout {
            Some(layout) => encode(&batch, layout),
            None => encode_json(&batch),
        };
        match encoded {
            Ok(text) => Ok(Some(text.into())),
            Err(error) => Err(crate::error::in_statement(&error.into(), &self.text)),
        }
    }

    /// The command tag, once the statement has ended.
    pub fn tag(&self) -> String {
        format!("COPY {}", self.rows)
    }
}
