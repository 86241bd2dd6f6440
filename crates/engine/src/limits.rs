//! What one statement may take: memory and temporary files of every process that works for it, and rows of its answer.

use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use harrier_exec::limits::StatementLimits;
use harrier_exec::sqlstate::{CodedError, SqlState};

/// `None`: as much as there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Of every process.
    pub processes: StatementLimits,
    /// That a statement returns to its client.
    pub rows: Option<u64>,
}

impl Limits {
    /// The lower of both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            processes: self.processes.and(other.processes),
            rows: self.rows.into_iter().chain(other.rows).min(),
        }
    }
}

/// The same rows, until there are more than so many (54000).
pub(crate) fn at_most(stream: SendableRecordBatchStream, rows_max: Option<u64>) -> SendableRecordBatchStream {
    let Some(rows_max) = rows_max else {
        return stream;
    };
    let schema = stream.schema();
    let mut rows = 0;
    let limited = stream.map(move |batch| {
        let batch = batch?;
        rows += batch.num_rows() as u64;
        match rows > rows_max {
            true => {
                let message = format!("the statement returns more than {rows_max} rows");
                Err(CodedError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
                    .with_hint("LIMIT, or COPY … TO a file, which is not limited")
                    .into())
            }
            false => Ok(batch),
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, limited))
}
