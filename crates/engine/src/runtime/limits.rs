//! What one statement may take: memory and temporary files of every process that works for it, and rows of
//! its answer.

use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use harrier_error::{SqlError, SqlState};
use harrier_resources::statement_limits::StatementLimits;
use harrier_sqlstate::IntoDataFusionError;

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
            processes: self.processes.lower_of(other.processes),
            rows: self.rows.into_iter().chain(other.rows).min(),
        }
    }
}

/// Bytes of a size as settings have it: `512MB`, `2 GB`, `1.5GiB`. As with PostgreSQL `MB` counts in 1024s,
/// and so does `MiB`. `unit`: of a number alone, in bytes.
pub(crate) fn bytes_of(text: &str, unit: u64) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let unit: u64 = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" => unit,
        "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return None,
    };
    let count = &text[..digits];
    if count.contains('.') {
        let bytes = (count.parse::<f64>().ok()? * unit as f64).round();
        return (bytes < u64::MAX as f64).then_some(bytes as u64);
    }
    count.parse::<u64>().ok()?.checked_mul(unit)
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
                Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
                    .with_hint("LIMIT, or COPY … TO a file, which is not limited")
                    .into_datafusion())
            }
            false => Ok(batch),
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, limited))
}
