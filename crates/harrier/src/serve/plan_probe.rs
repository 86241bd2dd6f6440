//! Query profiles of running statements, for the server's pages.

use futures::FutureExt;
use futures::future::BoxFuture;
use harrier_engine::PlanProgress;
use harrier_server::probe::Probe;
use harrier_session_api::query_profile::{Memory, QueryProfile};

/// Samples the plan of one statement, and keeps it until the statement has ended.
#[derive(Debug)]
pub(super) struct PlanProbe(pub(super) PlanProgress);

// Methods are written out to keep compile times low: docs/decisions/0025-boxed-futures-behind-traits.md
impl Probe for PlanProbe {
    fn snapshot(&self) -> QueryProfile {
        self.0.last_snapshot()
    }

    fn memory(&self) -> Vec<Memory> {
        self.0.memory()
    }

    fn refresh<'a: 'f, 'f>(&'a self) -> BoxFuture<'f, QueryProfile> {
        self.0.poll_snapshot().boxed()
    }
}
