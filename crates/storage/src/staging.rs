//! Staged files: invisible until published, each by one atomic step of its store.
//!
//! | | S3 | HDFS |
//! |---|---|---|
//! | write | a multipart upload to the final key; the staging path holds a record of the upload | a file at the staging path |
//! | publish | completes the upload | renames the file, replacing an old one |
//! | discard | aborts the upload | deletes the file |
//!
//! Publishing and discarding are idempotent, for every process that has the [`Staged`] file or finds its
//! staging path.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, Result};
use prost::Message;

/// Marker object in a staging folder: its files are being discarded, and must not be published any more.
pub const DISCARDED: &str = "taken-back";

/// A complete, unpublished file.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Staged {
    /// The staging path, or that of the upload's record.
    #[prost(string, tag = "1")]
    pub staged: String,
    /// The only name under which it can be published; empty if any.
    #[prost(string, tag = "2")]
    pub bound: String,
    /// The ID of the multipart upload, if it is one, and its parts.
    #[prost(string, tag = "3")]
    pub upload: String,
    #[prost(string, repeated, tag = "4")]
    pub parts: Vec<String>,
    #[prost(uint64, tag = "5")]
    pub bytes: u64,
}

/// The result of publishing a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishOutcome {
    Published,
    /// It is not at its staging path: it was published before, or discarded.
    Gone,
}

/// A store with staging. Cancel-safe: a dropped operation may have happened or not, and can be repeated.
#[async_trait]
pub trait Staging: Send + Sync + fmt::Debug {
    /// The underlying store, for other operations.
    fn store(&self) -> &Arc<dyn ObjectStore>;

    /// Whether the final name of a file must be known when it is begun.
    fn binds_names(&self) -> bool;

    /// A lock not renewed for this long may be taken over.
    fn lease(&self) -> Duration;

    /// Requests older than this have been executed or never will be.
    fn request_age_max(&self) -> Duration;

    /// Begins a file at the unique path `staged`, to be published as `name`.
    async fn begin(&self, staged: &Path, name: &Path) -> Result<Box<dyn StagedWriter>>;

    /// Publishes a file as `name`, replacing one that exists.
    async fn publish(&self, file: &Staged, name: &Path) -> Result<PublishOutcome>;

    /// Discards everything staged below `folder`, and removes whatever else is there.
    async fn discard(&self, folder: &Path) -> Result<()>;

    /// Atomically writes a small file, replacing one that exists.
    async fn put_atomic(&self, path: &Path, bytes: Bytes) -> Result<()>;

    /// The same if no file exists; false if one does. After an error the put may still happen later, but
    /// never over another file.
    async fn put_if_absent(&self, path: &Path, bytes: Bytes) -> Result<bool>;

    /// Checks that files of `folder`, which may not exist yet, can be published and removed, if the store
    /// allows checking without doing so.
    async fn check_writable(&self, folder: &Path) -> Result<()>;
}

/// A writer of a staged file. Memory bound: a few parts of the upload. Dropping it leaves files for
/// [`Staging::discard`].
#[async_trait]
pub trait StagedWriter: Send {
    async fn write(&mut self, bytes: Bytes) -> Result<()>;

    /// Completes the file durably.
    async fn finish(&mut self) -> Result<Staged>;
}
