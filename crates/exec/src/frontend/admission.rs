//! Admission of statements to the gang, by whoever decides when one may run there.

use std::any::Any;
use std::sync::Arc;

use datafusion::common::Result;
use futures::future::BoxFuture;
use harrier_resources::statement_limits::StatementLimits;

/// Admission control for statements on the gang. An extension of the session's settings.
#[derive(Clone)]
pub struct Admission(pub Arc<dyn Admit>);

/// An admission controller: decides when a statement may run on the gang.
pub trait Admit: Send + Sync {
    /// Waits for admission of a statement that reads `bytes` bytes. Cancel-safe.
    fn admit(&self, bytes: u64) -> BoxFuture<'static, Result<Admitted>>;

    /// Notifies that the statement is retried, because a rank was lost before its first row, for this reason.
    fn notify_retry(&self, reason: &str);
}

/// An admitted statement.
#[derive(Default)]
pub struct Admitted {
    /// Dropping it releases the admission.
    pub turn: Option<Box<dyn Any + Send>>,
    /// Limits of the statement per rank.
    pub limits: StatementLimits,
}
