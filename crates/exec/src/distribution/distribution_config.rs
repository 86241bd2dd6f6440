//! Distribution settings of a statement, an extension of its session's settings.

use std::sync::Arc;

use datafusion::execution::cache::cache_manager::FileMetadataCache;

/// Distribution settings of a statement.
pub struct DistributionConfig {
    /// A scan of fewer bytes than this stays on one rank.
    pub bytes_min: usize,
    /// Cache of the footers used in planning.
    pub footers: Arc<FileMetadataCache>,
    /// The gang's members: the rank at each place.
    pub members: Vec<usize>,
}
