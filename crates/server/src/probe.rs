//! The interface to a running statement's query profile, which the engine provides.

use async_trait::async_trait;
use harrier_session_api::query_profile::{Memory, QueryProfile};

/// Source of a running statement's profile. Dropped when the statement ends.
#[async_trait]
pub trait Probe: std::fmt::Debug + Send + Sync + 'static {
    /// The locally known profile. Called once more when the statement has ended, on the thread that ends it:
    /// must not block.
    fn snapshot(&self) -> QueryProfile;

    /// Memory reservations of all processes that have reported. Must not block.
    fn memory(&self) -> Vec<Memory>;

    /// Like [`Probe::snapshot`], but queries the ranks. Cancel-safe.
    async fn refresh(&self) -> QueryProfile;
}
