//! Errors and skipped rows of COPY FROM.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::error::{DataFusionError, Result};
use futures::future::BoxFuture;

/// Checks that a COPY FROM adds to its INSERT.
#[derive(Default)]
pub(crate) struct CopyCheck {
    pub(crate) skipped: Arc<AtomicU64>,
    /// Finds the line of an error that a scan reported without one.
    pub(crate) explain:
        Option<Box<dyn FnOnce(DataFusionError) -> BoxFuture<'static, DataFusionError> + Send>>,
}

impl CopyCheck {
    /// Checks the outcome of running all rows, before they are committed. Returns a notice about skipped
    /// rows.
    pub(crate) async fn check<T>(self, outcome: Result<T>) -> Result<(T, Option<String>)> {
        let value = match (outcome, self.explain) {
            (Ok(value), _) => value,
            (Err(error), Some(explain)) => return Err(explain(error).await),
            (Err(error), None) => return Err(error),
        };
        let notice = match self.skipped.load(Ordering::Relaxed) {
            0 => None,
            1 => Some("1 row was skipped due to data type incompatibility".to_string()),
            rows => Some(format!("{rows} rows were skipped due to data type incompatibility")),
        };
        Ok((value, notice))
    }
}
