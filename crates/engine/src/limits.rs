//! What one statement may take: memory and temporary files of every process that works for it, and rows of its answer.

use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use harrier_exec::limits::StatementLimits;
use harrier_exec::sqlstate::{CodedError, SqlState};

/// How deeply statements may nest, whatever is SET: a level takes some kilobytes of the stacks of those who parse, plan and print them.
pub(crate) const NESTING_MAX: usize = 250;

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

/// `512MB`, `2 GB`; `unit`: of a number alone, in bytes.
pub(crate) fn bytes_of(text: &str, unit: u64) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let count: u64 = text[..digits].parse().ok()?;
    let unit = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" => unit,
        "b" => 1,
        "k" | "kb" => 1 << 10,
        "m" | "mb" => 1 << 20,
        "g" | "gb" => 1 << 30,
        "t" | "tb" => 1 << 40,
        _ => return None,
    };
    count.checked_mul(unit)
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
