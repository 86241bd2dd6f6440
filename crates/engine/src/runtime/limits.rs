//! Limits of one statement: memory and temporary files per process, and rows returned.

use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use harrier_error::{SqlError, SqlState};
use harrier_resources::statement_limits::StatementLimits;
use harrier_sqlstate::IntoDataFusionError;

/// `None` means unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Per process.
    pub processes: StatementLimits,
    /// Rows returned to the client.
    pub rows: Option<u64>,
}

impl Limits {
    /// Returns the lower of each limit.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            processes: self.processes.lower_of(other.processes),
            rows: self.rows.into_iter().chain(other.rows).min(),
        }
    }
}

/// Passes rows through; fails with 54000 after more than `rows_max` rows.
pub(crate) fn limit_rows(
    stream: SendableRecordBatchStream,
    rows_max: Option<u64>,
) -> SendableRecordBatchStream {
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
                Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
                    .with_hint("LIMIT, or COPY … TO a file, which is not limited")
                    .into_datafusion())
            }
            false => Ok(batch),
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, limited))
}
