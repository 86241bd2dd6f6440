//! Files that nobody sees before they are shown, each by one step of its store.
//!
//! | | S3 | HDFS |
//! |---|---|---|
//! | a file is written | as an upload in parts to the key it will have; where it is staged lies a record of the upload | where it is staged |
//! | it is shown | the upload is completed | it is renamed, over what is there |
//! | it is taken back | the upload is given up | it is deleted |
//!
//! Showing and taking back may be done again, by anybody who has the [`Staged`] file or finds where it was
//! staged.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, Result};
use prost::Message;

/// In a folder of staged files: they are being taken back, and are not to be shown any more.
pub const TAKEN_BACK: &str = "taken-back";

/// A file that is complete, and not shown.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Staged {
    /// Where it lies, or the record of its upload.
    #[prost(string, tag = "1")]
    pub staged: String,
    /// The only name that it can be shown by; empty if that is open.
    #[prost(string, tag = "2")]
    pub bound: String,
    /// The upload, if it is one, with its parts.
    #[prost(string, tag = "3")]
    pub upload: String,
    #[prost(string, repeated, tag = "4")]
    pub parts: Vec<String>,
    #[prost(uint64, tag = "5")]
    pub bytes: u64,
}

/// What became of a file that was to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    Now,
    /// It is not where it was staged: it was shown before, or taken back.
    Gone,
}

/// A store in which files can be staged. Cancel-safe: what is dropped may have happened or not, and may be
/// done again.
#[async_trait]
pub trait Staging: Send + Sync + fmt::Debug {
    /// Whatever else is done there.
    fn store(&self) -> &Arc<dyn ObjectStore>;

    /// Whether a file has to have its name when it is begun.
    fn binds_names(&self) -> bool;

    /// How long a lock is another's who does not renew it.
    fn lease(&self) -> Duration;

    /// What was asked of the store so long ago is done or never will be.
    fn late(&self) -> Duration;

    /// Begins a file at `staged`, which nobody else has, that will be shown as `name`.
    async fn begin(&self, staged: &Path, name: &Path) -> Result<Box<dyn StagedWriter>>;

    /// Shows a file as `name`, in the place of one that is there.
    async fn show(&self, file: &Staged, name: &Path) -> Result<Shown>;

    /// Takes back all that was staged below `folder`, and whatever else is there.
    async fn take_back(&self, folder: &Path) -> Result<()>;

    /// Writes a small file, which is seen whole or not at all, over one that is there.
    async fn put_whole(&self, path: &Path, bytes: Bytes) -> Result<()>;

    /// The same where there is none yet; false if there is one. After an error it may come later, but never
    /// over another one.
    async fn put_new(&self, path: &Path, bytes: Bytes) -> Result<bool>;

    /// Finds out whether files of `folder`, which may not be there yet, can be shown and removed, where the
    /// store lets that be found out without doing it.
    async fn check_writable(&self, folder: &Path) -> Result<()>;
}

/// A file that is being staged. Memory bound: a few parts of the upload. Dropped, it leaves what
/// [`Staging::take_back`] removes.
#[async_trait]
pub trait StagedWriter: Send {
    async fn write(&mut self, bytes: Bytes) -> Result<()>;

    /// It is complete, and stays when this returns.
    async fn finish(&mut self) -> Result<Staged>;
}
