//! What a server and its gang answer about themselves, each in time or not at all.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::overview::{Health, Overview, QueueFacts, RankFacts, ServerFacts};

/// Timeout of an [`Overview`] call.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Awaits an answer of `Overview`, with a timeout.
pub(crate) async fn ask<T>(what: &str, answer: impl Future<Output = T>) -> Result<T, String> {
    tokio::time::timeout(ANSWER_TIMEOUT, answer)
        .await
        .map_err(|_| format!("{what} did not answer in {} s", ANSWER_TIMEOUT.as_secs()))
}

/// All facts except tables, which must be read from the catalog.
pub(crate) struct Facts {
    pub(crate) server: Result<ServerFacts, String>,
    pub(crate) ranks: Result<Vec<RankFacts>, String>,
    pub(crate) queues: Result<Vec<QueueFacts>, String>,
}

impl Facts {
    pub(crate) async fn of(overview: &Arc<dyn Overview>) -> Self {
        let (server, ranks, queues) = tokio::join!(
            ask("the server", overview.server()),
            ask("the gang", overview.ranks()),
            ask("the queues", overview.queues()),
        );
        Self { server, ranks, queues }
    }

    pub(crate) fn health(&self) -> Health {
        match (&self.server, &self.ranks) {
            (Ok(server), Ok(ranks)) => Health::of(server, ranks),
            (server, ranks) => {
                let complaints =
                    server.as_ref().err().into_iter().chain(ranks.as_ref().err()).cloned().collect();
                Health { is_ready: false, complaints }
            }
        }
    }
}
