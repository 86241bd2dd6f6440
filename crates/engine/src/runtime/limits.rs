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

/// Parses a size as written in settings: `512MB`, `2 GB`, `1.5GiB`. As in PostgreSQL, `MB` is 1024-based, and
/// so is `MiB`. `unit`: bytes per unit of a bare number.
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
